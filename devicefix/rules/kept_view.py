from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from itertools import takewhile

from devicefix.devices.context import Context
from devicefix.facts.copies import Held, held_copies
from devicefix.facts.values import last_name
from devicefix.model import Edit, Finding, Fix
from devicefix.rules.base import Example, Rule

COSTS = "with CUDA, the fix makes a second copy"
_MAKES_TENSOR = re.compile(r"from_numpy|as_tensor|asarray|\w*Tensor")


class KeptView(Rule):
    """
    ## What it does
    Finds `x.cpu()`, `x.cpu().numpy()`, `x.cuda()` and `x.to(device)` if the program changes `x` in place and later uses
    the result, or changes the result in place and later uses `x`. Such changes include `+=`, `x[...] = y` and
    `copy_()`. The rule follows values only within a file, and not through every call. `devicefix verify` can find other
    cases.

    ## Why it matters
    With CUDA, these calls usually copy `x`. On a CPU, `x.cpu()` and `x.to(device)` return `x` itself, and `.numpy()`
    returns a view of `x`, so the numbers can be wrong without an error.

    ## Example
    ```python
    for image, label in loader:
        labels.copy_(label)
        seen.append(labels.cpu().numpy())
    ```

    ## Use instead
    ```python
    for image, label in loader:
        labels.copy_(label)
        seen.append(labels.cpu().numpy().copy())
    ```

    ## Fix safety
    The fix is unsafe: with CUDA, the results stay the same, but a second copy takes time and memory.
    """

    code = "DF802"
    name = "kept-view"
    summary = "A tensor or array is used after a change to memory that it shares only on a CPU"
    words = (b"cuda",)
    INVALID = (
        Example(
            "arrays of a tensor that is filled again",
            before="""
                def collect(loader, labels):  # on cuda
                    seen = []
                    for image, label in loader:
                        labels.copy_(label)
                        seen += [labels.cpu().numpy()]
                    return seen
            """,
            after="""
                def collect(loader, labels):  # on cuda
                    seen = []
                    for image, label in loader:
                        labels.copy_(label)
                        seen += [labels.cpu().numpy().copy()]
                    return seen
            """,
            unsafe=True,
        ),
        Example(
            "a tensor that an augmented assignment changes",
            before="""
                def attack(model, x):  # on cuda
                    first = x.detach().cpu()
                    for _ in range(10):
                        x += model(x).sign()
                    return x - first
            """,
            after="""
                def attack(model, x):  # on cuda
                    first = x.detach().cpu().clone()
                    for _ in range(10):
                        x += model(x).sign()
                    return x - first
            """,
            unsafe=True,
        ),
        Example(
            "an element that is written back to another place",
            before="""
                def update(grads, states):  # on cuda
                    for i, grad in enumerate(grads):
                        state = states[i].to(grad.device)
                        state.add_(grad)
                        i += 1
                        states[i].copy_(state)
            """,
            after="""
                def update(grads, states):  # on cuda
                    for i, grad in enumerate(grads):
                        state = states[i].to(grad.device).clone()
                        state.add_(grad)
                        i += 1
                        states[i].copy_(state)
            """,
            unsafe=True,
        ),
        Example(
            "an attribute that is changed by index",
            before="""
                class Tracker:  # on cuda
                    def update(self, out):
                        state = self.state.cpu().data.numpy()
                        self.history.append((out, state))
                        self.state[:, 0] = out
            """,
        ),
        Example(
            "a tensor that a function of the module changes",
            before="""
                def refill(tensor, data):  # on cuda
                    tensor.data.resize_(data.size()).copy_(data)


                def collect(loader, image):
                    seen = []
                    for data in loader:
                        refill(image, data)
                        seen.append(image.cpu())
                    return seen
            """,
            after="""
                def refill(tensor, data):  # on cuda
                    tensor.data.resize_(data.size()).copy_(data)


                def collect(loader, image):
                    seen = []
                    for data in loader:
                        refill(image, data)
                        seen.append(image.cpu().clone())
                    return seen
            """,
            unsafe=True,
        ),
        Example(
            "a method that changes the copy in place",
            before="""
                def look_up(ids, table):  # on cuda
                    mapped = ids.cpu().apply_(table.get)
                    return mapped, ids
            """,
            after="""
                def look_up(ids, table):  # on cuda
                    mapped = ids.cpu().clone().apply_(table.get)
                    return mapped, ids
            """,
            unsafe=True,
        ),
        Example(
            "a copy that an augmented assignment changes",
            before="""
                def attack(images, device):  # on cuda
                    adversarial = images.to(device)
                    adversarial += 0.1
                    return adversarial - images.to(device)
            """,
            after="""
                def attack(images, device):  # on cuda
                    adversarial = images.to(device).clone()
                    adversarial += 0.1
                    return adversarial - images.to(device)
            """,
            unsafe=True,
        ),
        Example(
            "an argument that is used after the call",
            before="""
                def brighten(image, device):  # on cuda
                    image = image.to(device)
                    image += 1
                    return image


                def run(image, device):
                    first = brighten(image, device)
                    return first, image
            """,
            after="""
                def brighten(image, device):  # on cuda
                    image = image.to(device).clone()
                    image += 1
                    return image


                def run(image, device):
                    first = brighten(image, device)
                    return first, image
            """,
            unsafe=True,
        ),
    )
    VALID = (
        Example(
            "an element that is written back",
            """
                def update(grads, states):  # on cuda
                    for i, grad in enumerate(grads):
                        state = states[i].to(grad.device)
                        state.mul_(0.9).add_(grad)
                        grad.copy_(state)
                        states[i].copy_(state)
            """,
        ),
        Example(
            "a new tensor in every round",
            """
                def collect(model, loader):  # on cuda
                    seen = []
                    for x in loader:
                        y = model(x)
                        y[y < 0] = 0
                        seen.append(y.cpu().numpy())
                    return seen
            """,
        ),
        Example(
            "used up before the change",
            """
                def run(x):  # on cuda
                    for _ in range(10):
                        y = x.cpu().numpy()
                        print(y)
                        x += 1
            """,
        ),
        Example(
            "cloned already",
            """
                def run(x):  # on cuda
                    y = x.cpu().clone()
                    x += 1
                    return y
            """,
        ),
        Example(
            "a new tensor computed from it",
            """
                def run(x):  # on cuda
                    y = x.cpu().float().mean()
                    x += 1
                    return y
            """,
        ),
        Example(
            "the name is bound again before the change",
            """
                def run(x):  # on cuda
                    y = x.cpu()
                    x = x + 1
                    x += 1
                    return y
            """,
        ),
        Example(
            "elements of a list are replaced",
            """
                def run(xs, new):  # on cuda
                    y = xs[0].cpu()
                    xs[0] = new
                    return y
            """,
        ),
        Example(
            "on the CPU with CUDA as well",
            """
                import torch


                def run():  # not on cuda
                    x = torch.zeros(3)
                    y = x.cpu()
                    x += 1
                    return y
            """,
        ),
        Example(
            "under a guard",
            """
                import torch


                def run(x):
                    if torch.cuda.is_available():
                        y = x.cpu()
                        x += 1
                        return y
            """,
        ),
        Example(
            "the parameter of a lambda, which is each of several tensors in turn",
            """
                import torch

                def train(net, loader, device):
                    for data in loader:
                        x, y = map(lambda each: each.to(device, dtype=torch.float), data)
                        y -= x[:, 0:3]
                        print(net(x), y)
            """,
        ),
    )

    def visit_Module(self, node: ast.Module) -> Iterator[Finding]:
        for held in held_copies(self.facts):
            if not held.copy.source.parameters and not held.copy.source.buffer:
                yield self.finding(held.copy.outer, self._message(held), copied(self.context, held))

    def _message(self, held: Held) -> str:
        code = self.context.source.code(held.copy.call)
        shown = changed_and_used(held)
        if held.reverse:
            line = getattr(held.change, "lineno", None)
            path = held.copy.source.path
            again = (
                " (an error if gradients are recorded)"
                if held.copy.source.trained
                else ", which may be used again"
            )
            used = f" before line {held.use} uses it" if held.use else again
            shown = f"{f'line {line}' if line else 'training'} also changes `{path}`{used}"
        return f"`{code}` makes no copy on a CPU, so {shown}; {remedy(held)}"


def changed_and_used(held: Held) -> str:
    """Return a clause about the change of the source, which also changes the copy, and the use after it."""
    line = getattr(held.change, "lineno", None)
    change = (
        f"line {line} also changes" if line else f"a later change to `{held.copy.source.path}` also changes"
    )
    used = f" before line {held.use} uses it" if held.use else ", which is used later"
    return f"{change} `{held.holder}`{used}"


def remedy(held: Held) -> str:
    """Return what to do to make a copy on every device."""
    if _is_state(held.copy.outer):
        return "wrap the `state_dict` call in `copy.deepcopy(...)`"
    clones = held.copy.source.buffer is False and _array(held) is None
    return "add `.clone()`" if clones else "add `.copy()` after `.numpy()`"


def _is_state(outer: ast.expr) -> bool:
    return isinstance(outer, ast.Call) and last_name(outer.func) == "state_dict"


def copied(context: Context, held: Held) -> Fix | None:
    """Return the fix that also makes a copy on a CPU, or None."""
    if held.copy.source.buffer:
        array = _given(held.copy.call)
        if not isinstance(array, (ast.Name, ast.Attribute, ast.Subscript)):
            return None
        end = context.source.span(array)[1]
        return Fix((Edit(end, end, ".copy()"),), COSTS)
    if _is_state(held.copy.outer):
        return None
    array = _array(held)
    end = context.source.span(array or held.copy.call)[1]
    return Fix((Edit(end, end, ".copy()" if array else ".clone()"),), COSTS)


def _array(held: Held) -> ast.Call | None:
    """Return the call of `.numpy()` around the call that copies, or None."""
    around = takewhile(lambda node: node is not held.copy.call, ast.walk(held.copy.outer))
    return next((one for one in around if isinstance(one, ast.Call) and last_name(one.func) == "numpy"), None)


def copy_of_array(context: Context, held: Held) -> str:
    """Return what to pass in place of the array of which a call makes a tensor, in the words of a message."""
    array = _given(held.copy.call)
    is_short = isinstance(array, (ast.Name, ast.Attribute, ast.Subscript, ast.Call))
    code = context.source.code(array) if array is not None and is_short else ""
    return "a copy of the array" if not code or "\n" in code else f"`{code}.copy()`"


def _given(call: ast.Call) -> ast.expr | None:
    """Return the array of which a call makes a tensor, maybe in the receiver of a move."""
    for node in (call, *ast.walk(call.func)):
        if isinstance(node, ast.Call) and node.args:
            if isinstance(node.func, ast.IfExp) or _MAKES_TENSOR.fullmatch(last_name(node.func)):
                return node.args[0]
    return None
