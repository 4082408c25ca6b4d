from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from devicefix.devices.arguments import device_argument
from devicefix.devices.choose import DeviceExpr
from devicefix.devices.tensors import KEEPERS, MAKERS, expressions, is_variable
from devicefix.facts.values import current_device
from devicefix.model import Finding
from devicefix.rewrite.edits import moved
from devicefix.rules.base import Changed, Rule

Function = ast.FunctionDef | ast.AsyncFunctionDef

# What only a tensor has, and one that has dimensions: a number on the CPU goes together with a GPU's tensors.
_OF_TENSORS = {
    "size", "shape", "view", "dim", "unsqueeze", "squeeze", "permute", "transpose", "reshape", "expand", "repeat",
    "contiguous", "flatten", "matmul", "mm", "bmm", "new_zeros", "new_ones", "new_full", "new_empty", "scatter_",
    "masked_fill", "masked_fill_", "index_select", "gather", "chunk", "split",
}  # fmt: skip
# These take tensors of several devices.
_ANYWHERE = re.compile(
    r"copy_?|type_as|to|expand_as|view_as|reshape_as|new_tensor|save|pack_\w+|print|equal|set_"
)
_MOVES = re.compile(r"\.(?:cuda|cpu|to|numpy|tolist|item)\b")


class SiblingDevice(Rule):
    """
    ## What it does
    Finds a tensor that is made in `forward`, or in a loss, and sent to the current GPU or to a device of the
    module's, though it is used together with one that the function was given. Off by default: select it to have
    it.

    ## Why it matters
    The function then works wherever its arguments are: on any device, on several at once, and without a global
    variable.

    ## Example
    ```python
    def forward(self, x):
        noise = torch.randn(x.size()).cuda()
        return x + noise
    ```

    ## Use instead
    ```python
    def forward(self, x):
        noise = torch.randn(x.size()).to(x.device)
        return x + noise
    ```

    ## Fix safety
    Safe: one operation takes both tensors, so that they have to be on the same device already. Where no operation
    shows that, or what the function was given is moved in it, it is left alone. The tensor is still made on the
    CPU, and its random numbers drawn there.
    """

    code = "DF107"
    name = "sibling-device"
    summary = "A function sends a tensor to a device of its own, and not to that of its arguments"
    default = False
    MATCHES = (
        Changed(
            "import torch\n\n\nclass Noise(torch.nn.Module):\n    def forward(self, x):\n"
            "        noise = torch.randn(x.size()).cuda()\n        return x + noise\n",
            "import torch\n\n\nclass Noise(torch.nn.Module):\n    def forward(self, x):\n"
            "        noise = torch.randn(x.size()).to(x.device)\n        return x + noise\n",
        ),
        Changed(
            "import torch\nfrom torch.autograd import Variable\n\n\nclass Net(torch.nn.Module):\n"
            "    def forward(self, text, lengths):\n        x = self.embed(text)\n"
            "        h0, c0 = Variable(torch.rand(1, text.size(0), 8)).cuda(), torch.rand(1, 8).cuda(non_blocking=True)\n"
            "        return self.rnn(text, (h0, c0))\n",
            "import torch\nfrom torch.autograd import Variable\n\n\nclass Net(torch.nn.Module):\n"
            "    def forward(self, text, lengths):\n        x = self.embed(text)\n"
            "        h0, c0 = torch.rand(1, text.size(0), 8).to(text.device), "
            "torch.rand(1, 8).to(text.device, non_blocking=True)\n"
            "        return self.rnn(text, (h0, c0))\n",  # with the rule for `Variable`
        ),
        Changed(
            'import torch\n\ndevice = torch.device("cuda" if torch.cuda.is_available() else "cpu")\n\n\n'
            "def dice_loss(output, target):\n"
            "    one_hot = torch.rand(target.size(0), 5).to(device).scatter_(1, target.view(-1, 1), 1)\n"
            "    weight = torch.rand(5).to(device)\n"
            "    return (torch.mul(weight, output.squeeze()) + output * weight).sum()\n",
            'import torch\n\ndevice = torch.device("cuda" if torch.cuda.is_available() else "cpu")\n\n\n'
            "def dice_loss(output, target):\n"
            "    one_hot = torch.rand(target.size(0), 5).to(device).scatter_(1, target.view(-1, 1), 1)\n"
            "    weight = torch.rand(5).to(output.device)\n"
            "    return (torch.mul(weight, output.squeeze()) + output * weight).sum()\n",
        ),
        Changed(
            "import torch\n\n\nclass Net(torch.nn.Module):\n    def forward(self, x):\n"
            "        return x.view(-1) * torch.rand(3).cuda() + torch.cat([x, torch.rand(3).float().cuda()])\n",
            'import torch\n\ndevice = torch.device("cuda" if torch.cuda.is_available() else "cpu")\n\n\n'
            "class Net(torch.nn.Module):\n    def forward(self, x):\n"
            "        return x.view(-1) * torch.rand(3).to(device) + torch.cat([x, torch.rand(3).float().to(x.device)])\n",
        ),
    )
    LEAVES = (
        # Lengths stay on the CPU, and numbers go anywhere.
        "import torch\n\n\nclass Net(torch.nn.Module):\n    def forward(self, lengths, scale):\n"
        "        mask = torch.rand(lengths.size(0)).cuda()\n        return self.rnn(mask, lengths) * scale\n",
        "import torch\n\n\nclass Net(torch.nn.Module):\n    def forward(self, scale):\n"
        "        noise = torch.rand(3).cuda()\n        return scale * noise\n",
        # It is moved here.
        "import torch\n\n\nclass Net(torch.nn.Module):\n    def forward(self, x):\n"
        "        noise = torch.rand(x.size()).cuda()\n        x = x.cuda()\n        return x + noise\n",
        "import torch\n\n\ndef train(x):\n    noise = torch.rand(x.size()).cuda()\n    return x + noise\n",
        "import torch\n\n\nclass Net(torch.nn.Module):\n    def forward(self, x, device):\n"
        "        noise = torch.rand(x.size()).to(device)\n        return x + noise\n",
    )

    # At the statement, before the rules for `.cuda()` get to see the call in it.
    def _look(self, node: ast.stmt) -> Iterator[Finding]:
        function = self._function(node)
        if function is None:
            return
        for each in expressions(node):
            if isinstance(each, ast.Call) and self._sent(each) and each not in self.context.handled:
                name = self._sibling(each, function)
                if name is not None:
                    self.context.mark_handled(each)
                    message = f"this belongs where `{name}` is: use `.to({name}.device)`"
                    fix = self.context.edit(each, moved(f"{name}.device"), DeviceExpr(""))
                    yield self.finding(each, message, fix)

    visit_Assign = visit_AnnAssign = visit_AugAssign = visit_Expr = visit_Return = visit_If = visit_For = (
        _look
    )

    def _function(self, node: ast.stmt) -> Function | None:
        """The function that a statement belongs to, if it is `forward` of a class, or a loss."""
        function = self.facts.tree.scope(node).node
        if not isinstance(function, Function):
            return None
        parent = self.facts.tree.parents.get(function)
        if isinstance(parent, ast.ClassDef) and function.name == "forward":
            return function if parent.bases else None
        return function if "loss" in function.name.lower() else None

    def _sent(self, node: ast.Call) -> bool:
        """Whether a call sends what has just been made to the current GPU, or to a device of the module's."""
        if not isinstance(node.func, ast.Attribute) or "cuda" in self.context.source.code(node.func.value):
            return False
        if not self._fresh(node.func.value) or any(
            each.arg not in ("device", "non_blocking") for each in node.keywords
        ):
            return False
        target = device_argument(node)
        if node.func.attr == "cuda":
            return target is None and not self.facts.is_guarded(node)
        if node.func.attr != "to" or not isinstance(target, ast.Name) or len(node.args) > 1:
            return False
        found = self.facts.tree.scope(target).lookup(target.id)
        return found is not None and found[0].is_module and current_device(self.facts, target)

    def _fresh(self, node: ast.expr) -> bool:
        if not isinstance(node, ast.Call):
            return False
        if is_variable(self.facts, node):
            return len(node.args) == 1 and not node.keywords and self._fresh(node.args[0])
        name = self.facts.resolve(node.func)
        if name is not None:
            return name.removeprefix("torch.") in MAKERS and not any(
                each.arg in ("device", "requires_grad", None) for each in node.keywords
            )
        return (
            isinstance(node.func, ast.Attribute)
            and node.func.attr in KEEPERS
            and self._fresh(node.func.value)
        )

    def _sibling(self, node: ast.Call, function: Function) -> str | None:
        """The parameter that an operation takes together with a tensor."""
        parameters = [each.arg for each in (*function.args.posonlyargs, *function.args.args)]
        plain = parameters[: len(parameters) - len(function.args.defaults)]
        if isinstance(self.facts.tree.parents.get(function), ast.ClassDef):
            plain = plain[1:]
        given = [name for name in plain if self._stays(name, function)]
        if not given:
            return None
        made = self._outermost(node)
        name = self._name(made)
        for each in ast.walk(function):
            operands, others = self._operands(each, made, {name, *given})
            if made in others or any(isinstance(other, ast.Name) and other.id == name for other in others):
                for operand in operands:
                    if isinstance(operand, ast.Name) and operand.id in given:
                        return operand.id
        return None

    def _outermost(self, node: ast.Call) -> ast.expr:
        """The tensor that is left when all has been done to it: `torch.rand(3).cuda().long()`."""
        outer: ast.AST = node
        for _, parent in self.facts.tree.ancestors(node):
            if isinstance(parent, ast.Attribute):
                if parent.attr not in KEEPERS or parent.attr in ("cuda", "cpu", "to", "type_as"):
                    break
            elif isinstance(parent, ast.Call) and parent.func is outer:
                node = parent
            else:
                break
            outer = parent
        return node

    def _name(self, node: ast.expr) -> str | None:
        """The name that a new tensor is bound to, and nothing else."""
        for name, bindings in self.facts.tree.scope(node).bindings.items():
            if len(bindings) == 1 and bindings[0].value is node:
                return name
        return None

    def _stays(self, name: str, function: Function) -> bool:
        """Whether a parameter is a tensor with dimensions that the function moves nowhere."""
        if re.search(r"len|num|size", name):
            return False
        scope = self.facts.tree.scopes[function]
        for binding in scope.bindings.get(name, ()):
            if not binding.parameter and (binding.value is None or _MOVES.search(ast.unparse(binding.value))):
                return False
        return any(self._has_dimensions(each, name) for each in ast.walk(function))

    def _has_dimensions(self, node: ast.AST, name: str) -> bool:
        """Whether an expression shows that a name is a tensor, and not a single number."""
        match node:
            case ast.Attribute(
                value=ast.Name(id=owner) | ast.Attribute(value=ast.Name(id=owner), attr="data")
            ):
                return owner == name and node.attr in _OF_TENSORS
            case ast.Call(args=[ast.Name(id=first), *_]) if first == name:
                return (self.facts.resolve(node.func) or "").startswith("torch.nn.functional.")
        return False

    def _operands(
        self, node: ast.AST, made: ast.expr, tensors: set[str | None]
    ) -> tuple[list[ast.expr], list[ast.expr]]:
        """Two lists, such that what is in the one is on the same device as what is in the other."""
        if isinstance(node, ast.BinOp):
            return [node.left, node.right], [node.left, node.right]
        if not isinstance(node, ast.Call):
            return [], []
        arguments = list(_flat([*node.args, *(each.value for each in node.keywords)]))
        name = self.facts.resolve(node.func)
        if name is not None:
            torch = name.startswith(("torch.", "torch.nn.functional.")) and not name.startswith(
                "torch.nn.utils."
            )
            return (arguments, arguments) if torch and not _anywhere(name) else ([], [])
        if not isinstance(node.func, ast.Attribute) or _anywhere(node.func.attr):
            return [], []
        receiver = node.func.value
        if isinstance(receiver, ast.Name) and receiver.id == "self":
            # A layer, and not a method of the class's own: its first argument is a tensor that it computes with.
            return (arguments[:1], arguments) if not self._own(node.func) else ([], [])
        if receiver is made or (isinstance(receiver, ast.Name) and receiver.id in tensors):
            return [receiver, *arguments], [receiver, *arguments]
        return [], []

    def _own(self, node: ast.Attribute) -> bool:
        for _, parent in self.facts.tree.ancestors(node):
            if isinstance(parent, ast.ClassDef):
                return any(isinstance(each, Function) and each.name == node.attr for each in parent.body)
        return True


def _anywhere(name: str) -> bool:
    return _ANYWHERE.fullmatch(name.rpartition(".")[2]) is not None


def _flat(nodes: list[ast.expr]) -> Iterator[ast.expr]:
    for node in nodes:
        if isinstance(node, (ast.Tuple, ast.List)):
            yield from _flat(node.elts)
        else:
            yield node
