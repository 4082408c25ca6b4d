from __future__ import annotations

import ast
from collections.abc import Iterator

from devicefix.facts.flow.kinds import Kind
from devicefix.facts.flow.kinds.library import CURRENT_ACCELERATOR
from devicefix.facts.values import last_name
from devicefix.model import Finding, Fix
from devicefix.rewrite import blocks
from devicefix.rules.base import Example, Rule
from devicefix.rules.shared.torch_facts import ACCELERATOR

_DEVICE = "torch.device"
_ASKING = (ast.Compare, ast.If, ast.IfExp, ast.BoolOp, ast.UnaryOp, ast.Assert)


class AcceleratorFunction(Rule):
    """
    ## What it does
    Finds calls to `torch.accelerator` functions that need an accelerator, and code that fails if
    `current_accelerator()` returns `None`.

    ## Why it matters
    Without an accelerator, these functions raise an error, and `current_accelerator()` returns `None`, which has no
    `type` attribute.

    ## Example
    ```python
    torch.accelerator.synchronize()
    kind = torch.accelerator.current_accelerator().type
    ```

    ## Use instead
    ```python
    if torch.accelerator.is_available():
        torch.accelerator.synchronize()
    device = torch.accelerator.current_accelerator()
    kind = device.type if device is not None else "cpu"
    ```

    ## Fix safety
    The fix is safe: it puts the call under a guard. There is no fix for code that uses `current_accelerator()`, or for
    any other call whose return value the program uses.
    """

    code = "DF413"
    name = "accelerator-function"
    summary = "A `torch.accelerator` function that needs an accelerator"
    references = (CURRENT_ACCELERATOR, _DEVICE, *ACCELERATOR)
    words = (b"current_accelerator",)
    common_words = (b".accelerator.",)
    attributes = ("type", "index")
    INVALID = (
        Example(
            "the name of the accelerator, which may be None",
            before="""
                import torch

                class Place:
                    def __init__(self):
                        self.device = torch.accelerator.current_accelerator()

                def first(place):
                    return torch.device(f"{place.device}:0")

                where = torch.device(torch.accelerator.current_accelerator())
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
            "the type of an accelerator that may not exist",
            before="""
                import torch

                kind = torch.accelerator.current_accelerator().type
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
        call = self.facts.tree.parents[node]
        if not isinstance(call, ast.Call) or call.func is not node or self.facts.is_guarded(node):
            return
        if name == _DEVICE:
            yield from self._checked(next(iter(call.args), None))
        elif name != CURRENT_ACCELERATOR:
            message = f"`{name}()` raises an error on a CPU; check `torch.accelerator.is_available()` first"
            fix = self._only_with_accelerator(call)
            yield self.finding(call, message, fix, "because its result is used")
        elif self._fails(call):
            yield self.finding(call, f"`{name}()` returns None on a CPU; fall back to `cpu`")

    def visit_Attribute(self, node: ast.Attribute) -> Iterator[Finding]:
        if node.attr in self.attributes:
            yield from self._checked(node.value)

    def _only_with_accelerator(self, call: ast.Call) -> Fix | None:
        """Return a fix that puts a call under a guard, None where its value is used or torch has no name here."""
        statement = self.facts.tree.parents[call]
        if not isinstance(statement, ast.Expr) or not isinstance(call.func, ast.Attribute):
            return None
        question = f"{self.context.source.code(call.func.value)}.is_available()"
        return Fix((blocks.put_under_guard(self.facts, statement, question),))

    def _checked(self, value: ast.expr | None) -> Iterator[Finding]:
        """Check a value that must not be None."""
        made = value and self.facts.kinds.of(value).seen.get(Kind.NONE)
        if value is None or not isinstance(made, ast.Call) or not self.facts.call(made, CURRENT_ACCELERATOR):
            return
        if not (self.facts.is_guarded(value) or self._is_asked(made) or self._fails(made)):
            code = self.context.source.code(value)
            message = f"`{code}` comes from `{CURRENT_ACCELERATOR}()`, which returns None on a CPU; fall back to `cpu`"
            yield self.finding(value, message)

    def _fails(self, call: ast.Call) -> bool:
        """Return whether what a call returns is used in a way that None is not, and the program does not ask."""
        return not self._is_asked(call) and any(map(self._refuses_none, self._uses_of(call)))

    def _refuses_none(self, use: ast.expr) -> bool:
        """Return whether an expression must not be None: an attribute of it is read, or it is a device's name."""
        parent = self.facts.tree.parents.get(use)
        match parent:
            case ast.Attribute() | ast.withitem():
                return True
            case ast.Call(func=ast.Name(id="str")) | ast.FormattedValue():
                text = self.facts.tree.parents[parent] if isinstance(parent, ast.FormattedValue) else parent
                around = map(self.facts.tree.parents.get, self.context.uses.of(text).uses)  # type: ignore[arg-type]
                return any(map(self._takes_device, around))
            case ast.Call(args=[first, *_]):
                return first is use and self.facts.call(parent, _DEVICE)
        return False

    def _takes_device(self, around: ast.AST | None) -> bool:
        """Return whether what is around the name of a device passes it on as a device."""
        if isinstance(around, ast.keyword):
            return around.arg in ("device", "device_type")
        return isinstance(around, ast.Call) and (
            last_name(around.func) == "to" or self.facts.call(around, _DEVICE, "torch.autocast")
        )

    def _is_asked(self, call: ast.Call) -> bool:
        """Return whether the program asks about what a call returns."""
        return any(isinstance(self.facts.tree.parents.get(use), _ASKING) for use in self._uses_of(call))

    def _uses_of(self, call: ast.Call) -> list[ast.expr]:
        """Return the unguarded uses of what a call returns."""
        return [use for use in self.context.uses.of(call).uses if not self.facts.is_guarded(use)]
