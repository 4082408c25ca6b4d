from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from devicefix.devices.arguments import device_argument
from devicefix.devices.choose import DeviceExpr
from devicefix.devices.methods import CustomCuda, custom_cuda
from devicefix.facts import ASKS, dotted
from devicefix.model import Edit, Finding, Fix
from devicefix.rewrite.blocks import can_unwrap, unwrapped
from devicefix.rules.base import Changed, Rule
from devicefix.rules.cuda_call import collapsed


class GuardedMove(Rule):
    """
    ## What it does
    Finds a guard that does nothing but move: `if torch.cuda.is_available(): x = x.cuda()`, and
    `x.cuda() if use_cuda else x`.

    ## Why it matters
    It is right already, but says twice what `.to(device)` says once, and it is where the next tie to CUDA
    is added.

    ## Example
    ```python
    use_gpu = torch.cuda.is_available()
    if use_gpu:
        model = model.cuda()
    ```

    ## Use instead
    ```python
    use_gpu = torch.cuda.is_available()
    device = torch.device("cuda" if use_gpu else "cpu")
    model = model.to(device)
    ```

    ## Fix safety
    Safe: on a CPU the move does nothing. A guard that does anything else as well stays.
    """

    code = "DF702"
    name = "guarded-move"
    summary = "A guard that does nothing but move"
    MATCHES = (
        Changed(
            "import torch\n\nuse_gpu = torch.cuda.is_available()\nif use_gpu:\n    model = model.cuda()\n    loss.cuda()\n",
            "import torch\n\nuse_gpu = torch.cuda.is_available()\n"
            'device = torch.device("cuda" if use_gpu else "cpu")\nmodel = model.to(device)\nloss.to(device)\n',
        ),
        Changed(
            "import torch\n\n\ndef to_var(x):\n    if torch.cuda.is_available():\n        x = x.cuda()\n    return x\n",
            'import torch\n\ndevice = torch.device("cuda" if torch.cuda.is_available() else "cpu")\n\n\n'
            "def to_var(x):\n    x = x.to(device)\n    return x\n",
        ),
        Changed(
            "import torch\n\ny = x.cuda() if torch.cuda.is_available() else x\n",
            'import torch\n\ndevice = torch.device("cuda" if torch.cuda.is_available() else "cpu")\n\ny = x.to(device)\n',
        ),
    )
    LEAVES = (
        "import torch\n\nif torch.cuda.is_available():\n    model = model.cuda()\n    torch.backends.cudnn.benchmark = True\n",
        "import torch\n\nif torch.cuda.is_available():\n    y = x.cuda()\nelse:\n    y = x.double()\n",
        "import torch\n\nif torch.cuda.is_available():\n    model = torch.nn.DataParallel(model).cuda()\n",
    )

    def visit_If(self, node: ast.If) -> Iterator[Finding]:
        moves = self._moves(node)
        if not moves or node.orelse or not can_unwrap(self.context.source, node, node.body):
            return
        use = self._device(node, node.test)
        if use is not None:
            edits = [collapsed(self.context, call, use) for call in moves]
            fix = Fix((*edits, *unwrapped(self.context.source, node, node.body)), needs=use.needs)
            yield self.finding(node.test, "this guard does nothing but move: use `.to(device)`", fix)

    def visit_IfExp(self, node: ast.IfExp) -> Iterator[Finding]:
        if not self._plain(node.body) or self.facts.is_guarded(node):
            return
        assert isinstance(node.body, ast.Call) and isinstance(node.body.func, ast.Attribute)
        receiver = node.body.func.value
        if type(receiver) is not type(node.orelse) or ast.dump(receiver) != ast.dump(node.orelse):
            return
        use = self._device(node, node.test)
        if use is not None:
            start, end = self.context.source.span(node)
            body_start, body_end = self.context.source.span(node.body)
            edits = [Edit(start, body_start, "")] if start < body_start else []
            edits += [collapsed(self.context, node.body, use), Edit(body_end, end, "")]
            fix = Fix(tuple(edits), needs=use.needs)
            yield self.finding(node, "this choice does nothing but move: use `.to(device)`", fix)

    def _moves(self, node: ast.If) -> list[ast.Call]:
        """The calls of `.cuda()` in the body, empty if it does anything else."""
        moves: list[ast.Call] = []
        for statement in node.body:
            found = self._moves_of(statement)
            if not found:
                return []
            moves += found
        return moves

    def _moves_of(self, statement: ast.stmt) -> list[ast.Call]:
        match statement:
            case ast.Expr(value=ast.Call() as call) if self._plain(call):
                return [call]
            case ast.Assign(targets=[ast.Tuple(elts=targets)], value=ast.Tuple(elts=values)):
                return self._pairs(targets, values)
            case ast.Assign(targets=[target], value=value):
                return self._pairs([target], [value])
        return []

    def _pairs(self, targets: Sequence[ast.expr], values: Sequence[ast.expr]) -> list[ast.Call]:
        """The calls, if each target is given its own moved self."""
        calls = []
        for target, value in zip(targets, values, strict=False):
            if not (
                isinstance(value, ast.Call) and self._plain(value) and isinstance(value.func, ast.Attribute)
            ):
                return []
            if ast.unparse(target) != ast.unparse(value.func.value):
                return []
            calls.append(value)
        return calls if len(targets) == len(values) else []

    def _plain(self, node: ast.expr) -> bool:
        """`x.cuda()` of a name, an attribute or an item, to the current device."""
        if (
            not isinstance(node, ast.Call)
            or not isinstance(node.func, ast.Attribute)
            or node.func.attr != "cuda"
        ):
            return False
        receiver = node.func.value
        if not isinstance(receiver, (ast.Name, ast.Attribute, ast.Subscript)):
            return False
        if custom_cuda(self.context, receiver) is not CustomCuda.NEVER:
            return False
        return device_argument(node) is None and all(each.arg == "non_blocking" for each in node.keywords)

    def _device(self, site: ast.AST, test: ast.expr) -> DeviceExpr | None:
        if self.facts.call(test, *ASKS):
            return self.devices.current(site)
        if dotted(test) is not None and self.facts.guards.implies(test):
            return self.devices.flagged(site, test)
        return None
