from __future__ import annotations

import ast
from collections.abc import Iterator

from devicefix.facts import dotted
from devicefix.model import Edit, Finding, Fix
from devicefix.rules.base import Example, Rule

MESSAGE = "memory cannot be pinned without CUDA"


class PinMemory(Rule):
    """
    ## What it does
    Finds tensors in pinned memory: `x.pin_memory()`, `torch.empty(n, pin_memory=True)`.

    ## Why it matters
    Memory is pinned so that a GPU can read it. Without a GPU this raises an error: "Cannot access accelerator
    device when none is available". `DataLoader(pin_memory=True)` only warns and is left alone.

    ## Example
    ```python
    batch = batch.pin_memory()
    buffer = torch.empty(size, pin_memory=True)
    ```

    ## Use instead
    ```python
    batch = batch.pin_memory() if torch.cuda.is_available() else batch
    buffer = torch.empty(size, pin_memory=torch.cuda.is_available())
    ```

    ## Fix safety
    Safe: with CUDA the memory is pinned as before. There is no fix for an expression other than a name or an
    attribute, since it would be evaluated twice.
    """

    code = "DF104"
    name = "pin-memory"
    summary = "Pinned memory needs a GPU"
    words = (b"pin_memory",)
    INVALID = (
        Example(
            "the pin_memory method",
            before="""
                import torch

                batch = batch.pin_memory()
            """,
            after="""
                import torch

                batch = batch.pin_memory() if torch.cuda.is_available() else batch
            """,
        ),
        Example(
            "the keyword of a factory function",
            before="""
                import torch

                buffer = torch.empty(3, pin_memory=True)
            """,
            after="""
                import torch

                buffer = torch.empty(3, pin_memory=torch.cuda.is_available())
            """,
        ),
        Example(
            "the method of a new tensor",
            before="""
                import torch

                buffer = torch.zeros(3).pin_memory()
            """,
            after="""
                import torch

                buffer = torch.zeros(3, pin_memory=torch.cuda.is_available())
            """,
        ),
        Example(
            "the method of a computed value",
            before="""
                import torch

                batch = collate(items).pin_memory()
            """,
        ),
    )
    VALID = (
        Example(
            "the keyword of a DataLoader",
            """
                from torch.utils.data import DataLoader

                loader = DataLoader(data, pin_memory=True)
            """,
        ),
        Example(
            "a choice by availability",
            """
                import torch

                batch = batch.pin_memory() if torch.cuda.is_available() else batch
            """,
        ),
        Example(
            "a class that defines pin_memory",
            """
                class Batch:
                    def pin_memory(self):
                        self.x = self.x.pin_memory()
                        return self
            """,
        ),
    )
    _MAKERS = ("empty", "zeros", "ones", "full", "rand", "randn", "arange", "tensor")

    def visit_Call(self, node: ast.Call) -> Iterator[Finding]:
        if not self._pins(node) or self.facts.is_guarded(node) or self._called_by_loader(node):
            return
        name = self.facts.resolve(node.func) or ""
        if name.startswith("torch.") and name.count(".") == 1:
            for keyword in node.keywords:
                if (
                    keyword.arg == "pin_memory"
                    and isinstance(keyword.value, ast.Constant)
                    and keyword.value.value
                ):
                    use = self.devices.available(node)
                    yield self.finding(
                        node,
                        f"{MESSAGE}; pin it only with CUDA",
                        self.context.replace(keyword.value, use),
                    )
        elif isinstance(node.func, ast.Attribute) and node.func.attr == "pin_memory" and not node.args:
            fix = self._fix(node, node.func.value)
            advice = (
                "pin it only with CUDA"
                if fix
                else "assign the tensor to a name, and pin it under `if torch.cuda.is_available():`"
            )
            yield self.finding(node, f"{MESSAGE}; {advice}", fix)

    def _pins(self, node: ast.Call) -> bool:
        """Return whether a call may pin memory, by its names alone."""
        method = node.func.attr if isinstance(node.func, ast.Attribute) else ""
        return method == "pin_memory" or any(keyword.arg == "pin_memory" for keyword in node.keywords)

    def _fix(self, node: ast.Call, receiver: ast.expr) -> Fix | None:
        if dotted(receiver) is not None:
            return self.context.when_cuda(node, self.context.source.code(receiver))
        maker = (self.facts.resolve(receiver.func) or "") if isinstance(receiver, ast.Call) else ""
        if maker.removeprefix("torch.") not in self._MAKERS or any(
            keyword.arg in ("device", "pin_memory", None)
            for keyword in receiver.keywords  # type: ignore[attr-defined]
        ):
            return None
        return self._pinned_when_made(node, receiver)

    def _pinned_when_made(self, node: ast.Call, receiver: ast.expr) -> Fix:
        from devicefix.rewrite.calls import with_keyword

        use = self.devices.available(node)
        start, end = self.context.source.span(node)
        inner_start, inner_end = self.context.source.span(receiver)
        edits = (
            Edit(inner_start, inner_end, with_keyword("pin_memory", use.text)),
            Edit(inner_end, end, ""),
        )
        return Fix(edits if start == inner_start else (), needs=use.needs)

    def _called_by_loader(self, node: ast.Call) -> bool:
        """Return whether a node is in a `pin_memory` method, which a DataLoader only calls to pin."""
        function = self.facts.tree.scope(node).node
        return isinstance(function, ast.FunctionDef) and function.name == "pin_memory"
