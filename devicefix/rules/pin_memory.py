from __future__ import annotations

import ast
from collections.abc import Iterator

from devicefix.facts import dotted
from devicefix.model import Edit, Finding, Fix
from devicefix.rules.base import Changed, Rule


class PinMemory(Rule):
    """
    ## What it does
    Finds tensors whose memory is pinned: `x.pin_memory()`, `torch.empty(n, pin_memory=True)`.

    ## Why it matters
    Memory is pinned for a GPU to read it; without one it is an error: "Cannot access accelerator device when
    none is available". A `DataLoader(pin_memory=True)` only warns and is left alone.

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
    Safe: with CUDA the memory is pinned as before. There is no fix for what is not a name or an attribute, since
    it would be computed twice.
    """

    code = "DF104"
    name = "pin-memory"
    summary = "Memory is pinned, which needs a GPU"
    MATCHES = (
        Changed(
            "import torch\n\nbatch = batch.pin_memory()\n",
            "import torch\n\nbatch = batch.pin_memory() if torch.cuda.is_available() else batch\n",
        ),
        Changed(
            "import torch\n\nbuffer = torch.empty(3, pin_memory=True)\n",
            "import torch\n\nbuffer = torch.empty(3, pin_memory=torch.cuda.is_available())\n",
        ),
        Changed(
            "import torch\n\nbuffer = torch.zeros(3).pin_memory()\n",
            "import torch\n\nbuffer = torch.zeros(3, pin_memory=torch.cuda.is_available())\n",
        ),
        Changed("import torch\n\nbatch = collate(items).pin_memory()\n", None),
    )
    LEAVES = (
        "from torch.utils.data import DataLoader\n\nloader = DataLoader(data, pin_memory=True)\n",
        "import torch\n\nbatch = batch.pin_memory() if torch.cuda.is_available() else batch\n",
        "class Batch:\n    def pin_memory(self):\n        self.x = self.x.pin_memory()\n        return self\n",
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
                        node, "memory can't be pinned without CUDA", self.context.replace(keyword.value, use)
                    )
        elif isinstance(node.func, ast.Attribute) and node.func.attr == "pin_memory" and not node.args:
            fix = self._fix(node, node.func.value)
            advice = (
                "" if fix else ": give the tensor a name, and pin it under `if torch.cuda.is_available():`"
            )
            yield self.finding(node, f"memory can't be pinned without CUDA{advice}", fix)

    def _pins(self, node: ast.Call) -> bool:
        """Whether a call may be one that pins memory, by its names alone."""
        method = node.func.attr if isinstance(node.func, ast.Attribute) else ""
        return method == "pin_memory" or any(each.arg == "pin_memory" for each in node.keywords)

    def _fix(self, node: ast.Call, receiver: ast.expr) -> Fix | None:
        if dotted(receiver) is not None:
            return self.context.when_cuda(node, self.context.source.code(receiver))
        maker = (self.facts.resolve(receiver.func) or "") if isinstance(receiver, ast.Call) else ""
        if maker.removeprefix("torch.") not in self._MAKERS or any(
            each.arg in ("device", "pin_memory", None)
            for each in receiver.keywords  # type: ignore[attr-defined]
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
        """Whether the place is in a method that a DataLoader calls, and only where it pins."""
        function = self.facts.tree.scope(node).node
        return isinstance(function, ast.FunctionDef) and function.name == "pin_memory"
