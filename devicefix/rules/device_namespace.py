from __future__ import annotations

import ast
from collections.abc import Iterator

from devicefix.facts.effects import has_effects
from devicefix.facts.flow.kinds import Kind
from devicefix.model import Finding, Fix
from devicefix.rewrite import blocks
from devicefix.rules.base import Example, Rule
from devicefix.rules.shared.torch_facts import CPU_LACKS, OF_MEMORY

_NEEDS_ANOTHER = "because a CPU may need other code"
_TWICE = "the fixed code evaluates the module expression twice"


class DeviceNamespace(Rule):
    """
    ## What it does
    Finds calls to functions that `torch.cpu` lacks, if the program chooses the device's torch module at run time, as in
    `torch.get_device_module(device).empty_cache()` and `getattr(torch, device.type).memory_allocated()`.

    ## Why it matters
    `torch.cpu` has no functions for memory or random numbers (torch 2.13). Calling a missing function raises an
    `AttributeError`.

    ## Example
    ```python
    torch.get_device_module(device).empty_cache()
    ```

    ## Use instead
    ```python
    if hasattr(torch.get_device_module(device), "empty_cache"):
        torch.get_device_module(device).empty_cache()
    ```

    ## Fix safety
    The fix is safe for statements that only manage GPU memory: the program calls the function only if the module has
    it. The fix is unsafe if the expression for the module may have side effects, because the fixed code evaluates it
    twice. Calls to other functions have no fix.
    """

    code = "DF421"
    name = "device-namespace"
    summary = "A function that `torch.cpu` lacks is called on a device's torch module"
    words = (b"get_device_module", b"empty_cache", b"memory_stats", b"memory_allocated", b"memory_reserved")
    common_words = tuple(sorted(name.encode() for name in CPU_LACKS))
    INVALID = (
        Example(
            "the part of torch for a device",
            before="""
                import torch


                def clean(device):
                    torch.get_device_module(device).empty_cache()
            """,
            after="""
                import torch


                def clean(device):
                    if hasattr(torch.get_device_module(device), "empty_cache"):
                        torch.get_device_module(device).empty_cache()
            """,
        ),
        Example(
            "an attribute of torch by the type of a device",
            before="""
                import torch


                class Pipe:
                    def clean(self):
                        getattr(torch, self.device_type).empty_cache()
            """,
            after="""
                import torch


                class Pipe:
                    def clean(self):
                        if hasattr(getattr(torch, self.device_type), "empty_cache"):
                            getattr(torch, self.device_type).empty_cache()
            """,
        ),
        Example(
            "figures and random numbers",
            before="""
                import torch

                part = torch.get_device_module()
                print(part.max_memory_allocated())
                part.manual_seed(0)
            """,
        ),
    )
    VALID = (
        Example(
            "functions that torch.cpu has",
            """
                import torch

                torch.get_device_module(device).synchronize()
                print(getattr(torch, kind).device_count())
            """,
        ),
        Example(
            "after a question",
            """
                import torch


                def clean(device):
                    part = torch.get_device_module(device)
                    if hasattr(part, "empty_cache"):
                        part.empty_cache()
                    if device.type != "cpu":
                        part.reset_peak_memory_stats()
                    if device.type == "cpu":
                        return
                    print(part.memory_allocated())
            """,
        ),
        Example(
            "an error that is handled",
            """
                import torch


                def clean(device):
                    try:
                        getattr(torch, device).empty_cache()
                    except AttributeError:
                        pass
            """,
        ),
        Example(
            "the part for CUDA, and what is no part of torch",
            """
                import torch

                getattr(torch, "cuda").empty_cache()
                torch.get_device_module("cuda").empty_cache()
                getattr(pool, kind).empty_cache()
                dtype = getattr(torch, name)
            """,
        ),
    )

    def visit_Call(self, node: ast.Call) -> Iterator[Finding]:
        match node.func:
            case ast.Attribute(value=part, attr=name) if name in CPU_LACKS and self._is_part(part):
                if not self._copes(node):
                    message = f"this may be `torch.cpu`, which has no `{name}`; check for the function first"
                    unless = "because the program uses the result" if name in OF_MEMORY else _NEEDS_ANOTHER
                    yield self.finding(node, message, self._fix(node, part, name), unless)

    def _is_part(self, node: ast.expr) -> bool:
        """Return whether an expression, or the value of a variable, is the part of torch for some device."""
        made = self.facts.value(node) or node
        if not isinstance(made, ast.Call):
            return False
        kinds = [*made.args, *(keyword.value for keyword in made.keywords)]
        if not self.facts.call(made, "torch.get_device_module"):
            is_chosen = isinstance(made.func, ast.Name) and made.func.id == "getattr" and len(kinds) > 1
            if not is_chosen or self.facts.resolve(kinds.pop(0)) != "torch":
                return False
        return not kinds or not (
            isinstance(kinds[0], ast.Constant) or self.facts.kinds.of(kinds[0]).are({Kind.CUDA})
        )

    def _fix(self, call: ast.Call, part: ast.expr, name: str) -> Fix | None:
        """Return a fix that asks for the function, None if its value is used or a CPU needs another call."""
        statement = self.facts.tree.parents[call]
        if name not in OF_MEMORY or not isinstance(statement, ast.Expr):
            return None
        if not self.context.has_builtin(call, "hasattr"):
            return None
        code = self.context.source.code(part)
        quoted = self.context.source.quoted(f'"{name}"', code)
        edit = blocks.put_under_guard(self.facts, statement, f"hasattr({code}, {quoted})")
        return Fix((edit,), _TWICE if has_effects(self.facts, part) else "")

    def _copes(self, call: ast.Call) -> bool:
        """Return whether a call is only reached where it may work, or its error is handled."""
        if self.facts.is_guarded(call) or self.facts.guards.refusals.handlers(call, "AttributeError"):
            return True
        parents = [parent for _, parent in self.facts.tree.ancestors(call)]
        tests = (each if isinstance(each, ast.BoolOp) else getattr(each, "test", None) for each in parents)
        return any("hasattr(" in self.context.source.code(test) for test in tests if test is not None)
