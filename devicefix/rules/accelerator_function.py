from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import replace

from devicefix.devices.counterparts import RAISES, TARGETS
from devicefix.devices.expression import DeviceExpr
from devicefix.facts.flow.kinds.library import CURRENT_ACCELERATOR
from devicefix.model import Finding, Fix
from devicefix.rewrite import blocks
from devicefix.rules.base import Example, Rule
from devicefix.rules.shared.torch_facts import ACCELERATOR

_ASKING = (ast.Compare, ast.If, ast.IfExp, ast.BoolOp, ast.UnaryOp, ast.Assert)


class AcceleratorFunction(Rule):
    """
    ## What it does
    Finds calls to `torch.accelerator` functions that need an accelerator. Also finds code that fails if
    `current_accelerator()` returns `None`.

    ## Why it matters
    Without an accelerator, these functions may raise an error, and `current_accelerator()` may return `None`, which has no
    `type`.

    ## Example
    ```python
    torch.accelerator.synchronize()
    kind = torch.accelerator.current_accelerator().type
    ```

    ## Use instead
    ```python
    if torch.accelerator.is_available():
        torch.accelerator.synchronize()
    kind = torch.accelerator.current_accelerator().type if torch.accelerator.is_available() else "cpu"
    ```

    ## Fix safety
    The fix is usually safe: with an accelerator, the program still makes the call. There is no fix for most calls whose
    return value the program uses.
    """

    code = "DF413"
    name = "accelerator-function"
    summary = "A `torch.accelerator` function fails or may return None on a CPU"
    references = (CURRENT_ACCELERATOR, *ACCELERATOR)
    words = (b"torch.accelerator", b"import accelerator")
    INVALID = (
        Example(
            "the name of the accelerator, which may be None",
            before="""
                import torch

                where = torch.device(torch.accelerator.current_accelerator())
            """,
            after="""
                import torch

                where = torch.device(torch.accelerator.current_accelerator() if torch.accelerator.is_available() else "cpu")
            """,
        ),
        Example(
            "an accelerator that is used later",
            before="""
                import torch

                accelerator = torch.accelerator.current_accelerator()
                kind = accelerator.type
            """,
        ),
        Example(
            "functions of an accelerator that may not exist",
            before="""
                import torch

                torch.accelerator.synchronize()
                used = torch.accelerator.memory_allocated()
            """,
            after="""
                import torch

                if torch.accelerator.is_available():
                    torch.accelerator.synchronize()
                used = torch.accelerator.memory_allocated()
            """,
        ),
        Example(
            "a function by its own name",
            before="""
                from torch.accelerator import synchronize

                synchronize()
            """,
            after="""
                import torch
                from torch.accelerator import synchronize

                if torch.accelerator.is_available():
                    synchronize()
            """,
        ),
        Example(
            "the type of an accelerator that may not exist",
            before="""
                import torch

                kind = torch.accelerator.current_accelerator().type if hasattr(torch, 'accelerator') else "cpu"
                print(torch.accelerator.current_accelerator().type)
            """,
            after="""
                import torch

                kind = (
                    (torch.accelerator.current_accelerator().type if torch.accelerator.is_available() else "cpu")
                    if hasattr(torch, 'accelerator')
                    else "cpu"
                )
                print(torch.accelerator.current_accelerator().type if torch.accelerator.is_available() else "cpu")
            """,
        ),
    )
    VALID = (
        Example(
            "under a guard",
            """
                import torch

                device = torch.accelerator.current_accelerator()
                if device is not None:
                    print(device.type)
                print(f"on {torch.accelerator.current_accelerator()}")
                if torch.accelerator.is_available():
                    kind = torch.accelerator.current_accelerator().type
                    torch.accelerator.empty_cache()
            """,
        ),
        Example(
            "the number of accelerators",
            """
                import torch

                x = torch.rand(torch.accelerator.device_count())
            """,
        ),
    )

    def visit_reference(self, node: ast.Name | ast.Attribute, name: str) -> Iterator[Finding]:
        call = self.facts.tree.call_of(node)
        if call is None or self.facts.is_guarded(node):
            return
        if name != CURRENT_ACCELERATOR:
            raises = TARGETS[name.removeprefix("torch.")].driverless == RAISES
            problem = "raises an error" if raises else "may raise an error"
            message = f"`{name}()` {problem} on a CPU; check `torch.accelerator.is_available()` first"
            fix = self._only_with_accelerator(call)
            yield self.finding(call, message, fix, "because the program uses the result")
        elif self._fails(call):
            message = f"`{name}()` may return None on a CPU; check `torch.accelerator.is_available()` first"
            yield self.finding(call, message, self._or_cpu(call), "because the program uses the result")

    def _or_cpu(self, call: ast.Call) -> Fix | None:
        """Return a fix that uses "cpu" for the type of no accelerator, or for its name; None for other uses."""
        parent, source = self.facts.tree.parents[call], self.context.source
        is_type = isinstance(parent, ast.Attribute) and parent.attr == "type"
        if not is_type and not self.facts.call(parent, "torch.device"):
            return None
        used = parent if isinstance(parent, ast.Attribute) else call
        code, module = source.code(used), self._module(call)
        cpu = source.quoted('"cpu"', code)
        choice = f"{code} if {module.text}.is_available() else {cpu}"
        return self.context.replace(used, replace(module, text=choice), self.devices.why_unsafe(call))

    def _module(self, call: ast.Call) -> DeviceExpr:
        """Return `torch.accelerator` as a call names it, or by the name of torch."""
        if isinstance(call.func, ast.Attribute):
            return DeviceExpr(self.context.source.code(call.func.value))
        torch = self.devices.torch(call)
        return DeviceExpr(f"{torch.text}.accelerator", torch.needs)

    def _only_with_accelerator(self, call: ast.Call) -> Fix | None:
        """Return a fix that puts a call under a guard, None where its value is used."""
        statement = self.facts.tree.parents[call]
        if not isinstance(statement, ast.Expr):
            return None
        module = self._module(call)
        edit = blocks.put_under_guard(self.facts, statement, f"{module.text}.is_available()")
        return Fix((edit,), needs=module.needs)

    def _fails(self, call: ast.Call) -> bool:
        """Return whether what a call returns is used in a way that None is not, and the program does not ask."""
        uses = [use for use in self.context.forwards.of(call).uses if not self.facts.is_guarded(use)]
        parents = [(use, self.facts.tree.parents.get(use)) for use in uses]
        if any(isinstance(parent, _ASKING) for _, parent in parents):
            return False
        calls = ((use, parent) for use, parent in parents if self.facts.call(parent, "torch.device"))
        is_taken = any(isinstance(parent, (ast.Attribute, ast.withitem)) for _, parent in parents)
        return is_taken or any(use in call.args[:1] for use, call in calls)
