from __future__ import annotations

import ast
from collections.abc import Iterator

from devicefix.devices.context import Context
from devicefix.facts.copies import Held, held_copies
from devicefix.facts.values import last_name
from devicefix.model import Edit, Finding, Fix, Safety
from devicefix.rules.base import Changed, Rule


class KeptView(Rule):
    """
    ## What it does
    Finds `x.cpu()`, `x.cpu().numpy()`, `x.cuda()` and `x.to(device)` whose result is kept and used again after
    `x` itself has been changed in place: by `+=`, `x[...] = `, `copy_()`, `zero_()` and the like. Also the
    other way round, where the result is changed and `x` is used again.

    ## Why it matters
    On a GPU these calls copy. On a CPU they return `x` itself, and `.numpy()` a view of it, so that what was
    kept changes along with `x`: every row of a list of results is then the last one. Nothing fails; the
    numbers are wrong.

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
    Unsafe: with CUDA it costs a second copy. The numbers stay the same there.
    """

    code = "DF802"
    name = "kept-view"
    summary = "A copy that a CPU does not make is used after its source has changed"
    MATCHES = (
        Changed(
            "def collect(loader, labels):  # on cuda\n    seen = []\n    for image, label in loader:\n        labels.copy_(label)\n"
            "        seen += [labels.cpu().numpy()]\n    return seen\n",
            "def collect(loader, labels):  # on cuda\n    seen = []\n    for image, label in loader:\n        labels.copy_(label)\n"
            "        seen += [labels.cpu().numpy().copy()]\n    return seen\n",
            unsafe=True,
        ),
        Changed(
            "def attack(model, x):  # on cuda\n    first = x.detach().cpu()\n    for _ in range(10):\n        x += model(x).sign()\n"
            "    return x - first\n",
            "def attack(model, x):  # on cuda\n    first = x.detach().cpu().clone()\n    for _ in range(10):\n        x += model(x).sign()\n"
            "    return x - first\n",
            unsafe=True,
        ),
        Changed(
            "class Tracker:  # on cuda\n    def update(self, out):\n        state = self.state.cpu().data.numpy()\n"
            "        self.history.append((out, state))\n        self.state[:, 0] = out\n",
            None,
        ),
        Changed(
            "def refill(tensor, data):  # on cuda\n    tensor.data.resize_(data.size()).copy_(data)\n\n\n"
            "def collect(loader, image):\n    seen = []\n    for data in loader:\n        refill(image, data)\n"
            "        seen.append(image.cpu())\n    return seen\n",
            "def refill(tensor, data):  # on cuda\n    tensor.data.resize_(data.size()).copy_(data)\n\n\n"
            "def collect(loader, image):\n    seen = []\n    for data in loader:\n        refill(image, data)\n"
            "        seen.append(image.cpu().clone())\n    return seen\n",
            unsafe=True,
        ),
        Changed(
            "def look_up(ids, table):  # on cuda\n    mapped = ids.cpu().apply_(table.get)\n    return mapped, ids\n",
            "def look_up(ids, table):  # on cuda\n    mapped = ids.cpu().clone().apply_(table.get)\n    return mapped, ids\n",
            unsafe=True,
        ),
    )
    LEAVES = (
        # A new tensor in every round.
        "def collect(model, loader):  # on cuda\n    seen = []\n    for x in loader:\n        y = model(x)\n        y[y < 0] = 0\n"
        "        seen.append(y.cpu().numpy())\n    return seen\n",
        # Used up before the change.
        "def run(x):  # on cuda\n    for _ in range(10):\n        y = x.cpu().numpy()\n        print(y)\n        x += 1\n",
        # A copy on a CPU as well.
        "def run(x):  # on cuda\n    y = x.cpu().clone()\n    x += 1\n    return y\n",
        "def run(x):  # on cuda\n    y = x.cpu().float().mean()\n    x += 1\n    return y\n",
        # The name is bound anew: the old tensor stays as it was.
        "def run(x):  # on cuda\n    y = x.cpu()\n    x = x + 1\n    x += 1\n    return y\n",
        # Elements of a list are replaced, not changed.
        "def run(xs, new):  # on cuda\n    y = xs[0].cpu()\n    xs[0] = new\n    return y\n",
        # On the CPU with CUDA as well.
        "import torch\n\n\ndef run():  # not on cuda\n    x = torch.zeros(3)\n    y = x.cpu()\n    x += 1\n    return y\n",
        "import torch\n\n\ndef run(x):\n    if torch.cuda.is_available():\n        y = x.cpu()\n        x += 1\n        return y\n",
    )

    def visit_Module(self, node: ast.Module) -> Iterator[Finding]:
        for held in held_copies(self.facts):
            if not held.source.parameters and not held.source.buffer:
                yield self.finding(held.outer, self._message(held), copied(self.context, held))

    def _message(self, held: Held) -> str:
        code = self.context.source.code(held.call)
        if held.reverse:
            line = getattr(held.change, "lineno", None)
            used = f"is used after that (line {held.use})" if held.use else "the caller may use again"
            return (
                f"`{code}` copies on a GPU only: on a CPU line {line} changes `{held.source.path}` itself,"
                f" which {used}; add {remedy(held)}"
            )
        return (
            f"`{code}` copies on a GPU only: on a CPU `{held.holder}` keeps `{held.source.path}` itself,"
            f" {changed_and_used(held)}; add {remedy(held)}"
        )


def changed_and_used(held: Held) -> str:
    """What happens to the source, and to the copy after that, in words."""
    change = getattr(held.change, "lineno", None)
    words = f"which line {change} changes in place" if change else "which is changed in place later"
    return f"{words}, and is used after that" + (f" (line {held.use})" if held.use else "")


def remedy(held: Held) -> str:
    """What to write to get a copy everywhere."""
    if isinstance(held.outer, ast.Call) and last_name(held.outer.func) == "state_dict":
        return "`copy.deepcopy(...)` around it"
    return "`.clone()`" if held.source.buffer is False and _array(held) is None else "`.copy()`"


def copied(context: Context, held: Held) -> Fix | None:
    """The fix that makes a copy on a CPU as well."""
    if held.source.buffer:
        array = _given(held.call)
        if not isinstance(array, (ast.Name, ast.Attribute, ast.Subscript)):
            return None
        end = context.source.span(array)[1]
        return Fix((Edit(end, end, ".copy()"),), Safety.UNSAFE)
    if (
        held.source.parameters
        and isinstance(held.outer, ast.Call)
        and last_name(held.outer.func) == "state_dict"
    ):
        return None
    array = _array(held)
    end = context.source.span(array or held.call)[1]
    return Fix((Edit(end, end, ".copy()" if array else ".clone()"),), Safety.UNSAFE)


def _array(held: Held) -> ast.Call | None:
    """The call of `.numpy()` around the call that copies."""
    for node in ast.walk(held.outer):
        if node is held.call:
            return None
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "numpy":
            return node
    return None


def _given(call: ast.Call) -> ast.expr | None:
    """The array that `torch.from_numpy(...)` or `torch.as_tensor(...)` is given, in the receiver of a move."""
    node: ast.expr = call
    while isinstance(node, (ast.Call, ast.Attribute)):
        if isinstance(node, ast.Attribute):
            node = node.value
        elif isinstance(node.func, ast.Attribute) and node.func.attr in ("from_numpy", "as_tensor"):
            return node.args[0]
        elif isinstance(node.func, ast.Name):
            return node.args[0] if node.func.id in ("from_numpy", "as_tensor") else None
        else:
            node = node.func
    return None
