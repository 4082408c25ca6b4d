from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from devicefix.facts import Binding, Facts, dotted
from devicefix.model import Edit, Finding, Fix
from devicefix.rewrite.operations import AddKeyword, KeepReceiver
from devicefix.rules.base import Example, Rule
from devicefix.rules.shared.called_below import called_below

_CALL = ".pin_memory()"
_HOPS = 3  # names from one to the next, as `pin = self.pin`
_SHORT = 72  # characters of an expression that may be repeated


class PinMemory(Rule):
    """
    ## What it does
    Finds code that pins a tensor's memory, such as `x.pin_memory()` and `torch.empty(n, pin_memory=True)`.

    ## Why it matters
    Without a GPU, pinning memory raises an error such as "Cannot access accelerator device when none is available".
    The rule ignores `DataLoader(pin_memory=True)`, which only causes a warning.

    ## Example
    ```python
    batch = batch.pin_memory()
    buffer = torch.empty(size, pin_memory=True)
    ```

    ## Use instead
    ```python
    if torch.cuda.is_available():
        batch = batch.pin_memory()
    buffer = torch.empty(size, pin_memory=torch.cuda.is_available())
    ```

    ## Fix safety
    The fix is usually safe: with CUDA, the memory is pinned as before. The rule reports a variable passed as
    `pin_memory` only if the same file sets the variable to `True`.
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

                if torch.cuda.is_available():
                    batch = batch.pin_memory()
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

                batch = torch.from_numpy(rows).pin_memory().to(device, non_blocking=True)
            """,
            after="""
                import torch

                batch = (torch.from_numpy(rows).pin_memory() if torch.cuda.is_available() else torch.from_numpy(rows)).to(
                    device, non_blocking=True
                )
            """,
        ),
        Example(
            "the method of a long expression",
            before="""
                import torch

                batch = torch.stack([torch.from_numpy(row.astype("float32")) for row in rows]).pin_memory()
            """,
            after="""
                import torch

                batch = torch.stack([torch.from_numpy(row.astype("float32")) for row in rows])
                if torch.cuda.is_available():
                    batch = batch.pin_memory()
            """,
        ),
        Example(
            "a parameter that is true by default",
            before="""
                import torch

                def buffer(like, pin_memory=True):
                    return torch.zeros_like(like, device="cpu", pin_memory=pin_memory)
            """,
            after="""
                import torch

                def buffer(like, pin_memory=True):
                    return torch.zeros_like(like, device="cpu", pin_memory=pin_memory and torch.cuda.is_available())
            """,
        ),
        Example(
            "an attribute that is set from such a parameter",
            before="""
                import torch

                class Buffers:
                    def __init__(self, pin_memory=True):
                        self.pinned = pin_memory

                    def make(self, like):
                        pinned = self.pinned
                        return like.new_empty(like.shape, device="cpu", pin_memory=pinned)
            """,
            after="""
                import torch

                class Buffers:
                    def __init__(self, pin_memory=True):
                        self.pinned = pin_memory

                    def make(self, like):
                        pinned = self.pinned
                        return like.new_empty(like.shape, device="cpu", pin_memory=pinned and torch.cuda.is_available())
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
            "values that nothing here makes true",
            """
                import torch

                def buffer(like, pin_memory=False):
                    return torch.zeros_like(like, pin_memory=pin_memory)

                def of_device(like, device):
                    pinned = device.type == "cuda"
                    return torch.zeros_like(like, pin_memory=pinned)

                pinned = False
                if torch.cuda.is_available():
                    pinned = True
                buffer = torch.empty(3, pin_memory=pinned)
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
    _METHODS = ("new_empty", "new_full", "new_ones", "new_tensor", "new_zeros")

    def visit_Call(self, node: ast.Call) -> Iterator[Finding]:
        if not self._pins(node) or self.facts.is_guarded(node) or self._called_by_loader(node):
            return
        is_for_any = self.context.accelerator is not None
        needed, wanted = ("an accelerator", "one other than MPS") if is_for_any else ("a GPU", "CUDA")
        problem, advice = f"memory cannot be pinned without {needed}", f"pin it only if {wanted} is available"
        if self._makes_tensor(node):
            for keyword in node.keywords:
                if keyword.arg == "pin_memory" and self._true(keyword.value):
                    fix = self._only_with_cuda(keyword.value)
                    yield self.finding(node, f"{problem}; {advice}", fix)
        elif isinstance(node.func, ast.Attribute) and node.func.attr == "pin_memory" and not node.args:
            made = self._fix(node, node.func.value)
            if made is None:
                advice = f"assign the tensor to a variable, and {advice}"
            yield self.finding(node, f"{problem}; {advice}", made)

    def _makes_tensor(self, call: ast.Call) -> bool:
        name = self.facts.resolve(call.func) or ""
        method = call.func.attr if isinstance(call.func, ast.Attribute) else ""
        return (name.startswith("torch.") and name.count(".") == 1) or method in self._METHODS

    def _true(self, value: ast.expr) -> bool:
        """Return whether an argument is true, or a name or attribute that the module makes true."""
        if isinstance(value, ast.Constant):
            return bool(value.value)
        return self.facts.once(_made_true, _bindings(self.facts, value), _HOPS)

    def _only_with_cuda(self, value: ast.expr) -> Fix:
        use = self.devices.available(value, pins=True)
        if isinstance(value, ast.Constant):
            return self.context.replace(value, use)
        return self.context.edit(value, lambda text: f"{text} and {use.text}", use)

    def _pins(self, node: ast.Call) -> bool:
        """Return whether a call may pin memory, by its names alone."""
        method = node.func.attr if isinstance(node.func, ast.Attribute) else ""
        return method == "pin_memory" or any(keyword.arg == "pin_memory" for keyword in node.keywords)

    def _fix(self, node: ast.Call, receiver: ast.expr) -> Fix | None:
        if dotted(receiver) is not None:
            return self.context.when_cuda(node, self.context.source.code(receiver))
        if self.facts.call(receiver, *(f"torch.{name}" for name in self._MAKERS)):
            given = {keyword.arg for keyword in receiver.keywords}
            if given.isdisjoint(("device", "pin_memory", None)):
                return self._pinned_when_made(node, receiver)
        code = self.context.source.code(node)
        if not code.endswith(_CALL) or "\n" in code or len(code) > _SHORT:
            return called_below(self.context, node)
        return self.context.when_cuda(node, KeepReceiver())

    def _pinned_when_made(self, node: ast.Call, receiver: ast.expr) -> Fix:
        use = self.devices.available(node)
        start, end = self.context.source.span(node)
        inner_start, inner_end = self.context.source.span(receiver)
        added = Edit(inner_start, inner_end, AddKeyword("pin_memory", use.text))
        edits = (added, Edit(inner_end, end, "")) if start == inner_start else ()
        return Fix(edits, needs=use.needs)

    def _called_by_loader(self, node: ast.Call) -> bool:
        """Return whether a node is in a `pin_memory` method, which a DataLoader only calls to pin."""
        function = self.facts.tree.scope(node).node
        return isinstance(function, ast.FunctionDef) and function.name == "pin_memory"


def _bindings(facts: Facts, node: ast.expr) -> Sequence[Binding]:
    """Return the bindings of a name or a dotted path, those of parameters too."""
    return facts.tree.bound(node) or facts.tree.attributes.get(dotted(node) or "", ())


def _made_true(facts: Facts, bindings: Sequence[Binding], hops: int) -> bool:
    """Return whether one of the bindings is `True`, or a name that is made so a few steps before."""
    for binding in bindings:
        value = binding.value or binding.default
        if value is None or facts.is_guarded(binding.node):
            continue
        if isinstance(value, ast.Constant):
            if value.value is True:
                return True
        elif hops and facts.once(_made_true, _bindings(facts, value), hops - 1):
            return True
    return False
