from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from devicefix.devices.arguments import device_argument
from devicefix.devices.choose import DeviceExpr
from devicefix.devices.tensors import KEEPERS, MAKERS, is_variable
from devicefix.facts.values import current_device
from devicefix.model import Finding
from devicefix.rewrite.calls import moved
from devicefix.rules.base import Example, Rule

Function = ast.FunctionDef | ast.AsyncFunctionDef

# Attributes of tensors with dimensions. A number on the CPU can be combined with tensors on a GPU.
_OF_TENSORS = {
    "size", "shape", "view", "dim", "unsqueeze", "squeeze", "permute", "transpose", "reshape", "expand", "repeat",
    "contiguous", "flatten", "matmul", "mm", "bmm", "new_zeros", "new_ones", "new_full", "new_empty", "scatter_",
    "masked_fill", "masked_fill_", "index_select", "gather", "chunk", "split",
}  # fmt: skip
# These accept tensors on several devices.
_ANYWHERE = re.compile(
    r"copy_?|type_as|to|expand_as|view_as|reshape_as|new_tensor|save|pack_\w+|print|equal|set_"
)
_MOVES = re.compile(r"\.(?:cuda|cpu|to|numpy|tolist|item)\b")


class SiblingDevice(Rule):
    """
    ## What it does
    Finds tensors that `forward` or a loss function creates, moves to the current GPU or to a device in a global
    variable, and combines with one of its arguments. The function could use the argument's device instead. This rule is
    off by default.

    ## Why it matters
    A function that uses its argument's device works on any device, even on several devices in one program, and does not
    need a global variable.

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
    The fix is safe: an operation uses both tensors, so they must already be on the same device. The new tensor is still
    created on the CPU, so its random numbers stay the same. The rule ignores tensors that are not combined with an
    argument, and arguments that the function itself moves.
    """

    code = "DF107"
    name = "sibling-device"
    summary = "A function does not use the device of its arguments"
    default = False
    words = (b"cuda",)
    common_words = (b".to",)
    before = ("DF101", "DF102")
    INVALID = (
        Example(
            "noise that is added to an input of forward",
            before="""
                import torch


                class Noise(torch.nn.Module):
                    def forward(self, x):
                        noise = torch.randn(x.size()).cuda()
                        return x + noise
            """,
            after="""
                import torch


                class Noise(torch.nn.Module):
                    def forward(self, x):
                        noise = torch.randn(x.size()).to(x.device)
                        return x + noise
            """,
        ),
        Example(
            "two states for a layer, one of them a Variable",
            before="""
                import torch
                from torch.autograd import Variable


                class Net(torch.nn.Module):
                    def forward(self, text, lengths):
                        x = self.embed(text)
                        h0, c0 = Variable(torch.rand(1, text.size(0), 8)).cuda(), torch.rand(1, 8).cuda(non_blocking=True)
                        return self.rnn(text, (h0, c0))
            """,
            after="""
                import torch
                from torch.autograd import Variable


                class Net(torch.nn.Module):
                    def forward(self, text, lengths):
                        x = self.embed(text)
                        h0, c0 = torch.rand(1, text.size(0), 8).to(text.device), torch.rand(1, 8).to(text.device, non_blocking=True)
                        return self.rnn(text, (h0, c0))
            """,
        ),
        Example(
            "a weight that is multiplied with an input of a loss",
            before="""
                import torch

                device = torch.device("cuda" if torch.cuda.is_available() else "cpu")


                def dice_loss(output, target):
                    one_hot = torch.rand(target.size(0), 5).to(device).scatter_(1, target.view(-1, 1), 1)
                    weight = torch.rand(5).to(device)
                    return (torch.mul(weight, output.squeeze()) + output * weight).sum()
            """,
            after="""
                import torch

                device = torch.device("cuda" if torch.cuda.is_available() else "cpu")


                def dice_loss(output, target):
                    one_hot = torch.rand(target.size(0), 5).to(device).scatter_(1, target.view(-1, 1), 1)
                    weight = torch.rand(5).to(output.device)
                    return (torch.mul(weight, output.squeeze()) + output * weight).sum()
            """,
        ),
        Example(
            "one of two tensors in an expression",
            before="""
                import torch


                class Net(torch.nn.Module):
                    def forward(self, x):
                        return x.view(-1) * torch.rand(3).cuda() + torch.cat([x, torch.rand(3).float().cuda()])
            """,
            after="""
                import torch

                device = torch.device("cuda" if torch.cuda.is_available() else "cpu")


                class Net(torch.nn.Module):
                    def forward(self, x):
                        return x.view(-1) * torch.rand(3).to(device) + torch.cat([x, torch.rand(3).float().to(x.device)])
            """,
        ),
    )
    VALID = (
        Example(
            "lengths, which stay on the CPU",
            """
                import torch


                class Net(torch.nn.Module):
                    def forward(self, lengths, scale):
                        mask = torch.rand(lengths.size(0)).cuda()
                        return self.rnn(mask, lengths) * scale
            """,
        ),
        Example(
            "a parameter that may be a number",
            """
                import torch


                class Net(torch.nn.Module):
                    def forward(self, scale):
                        noise = torch.rand(3).cuda()
                        return scale * noise
            """,
        ),
        Example(
            "a parameter that the method moves",
            """
                import torch


                class Net(torch.nn.Module):
                    def forward(self, x):
                        noise = torch.rand(x.size()).cuda()
                        x = x.cuda()
                        return x + noise
            """,
        ),
        Example(
            "a function that is neither forward nor a loss",
            """
                import torch


                def train(x):
                    noise = torch.rand(x.size()).cuda()
                    return x + noise
            """,
        ),
        Example(
            "a device that is passed in",
            """
                import torch


                class Net(torch.nn.Module):
                    def forward(self, x, device):
                        noise = torch.rand(x.size()).to(device)
                        return x + noise
            """,
        ),
    )

    def visit_Call(self, node: ast.Call) -> Iterator[Finding]:
        if self.facts.tree.f_string(node) is not None:
            return
        function = self._function(self.facts.tree.statement(node))
        if function is None or not self._sent(node):
            return
        name = self._sibling(node, function)
        if name is not None:
            self.context.mark_handled(node)
            message = f"this tensor belongs on the device of `{name}`; use `.to({name}.device)`"
            fix = self.context.edit(node, moved(f"{name}.device"), DeviceExpr(""))
            yield self.finding(node, message, fix)

    def _function(self, node: ast.stmt) -> Function | None:
        """Return the function that a statement belongs to if it is a `forward` method or a loss, or None."""
        function = self.facts.tree.scope(node).node
        if not isinstance(function, Function):
            return None
        parent = self.facts.tree.parents.get(function)
        if isinstance(parent, ast.ClassDef) and function.name == "forward":
            return function if parent.bases else None
        return function if "loss" in function.name.lower() else None

    def _sent(self, node: ast.Call) -> bool:
        """Return whether a call moves a new tensor to the current GPU, or to a device of the module."""
        if not isinstance(node.func, ast.Attribute) or "cuda" in self.context.source.code(node.func.value):
            return False
        if not self._fresh(node.func.value) or any(
            keyword.arg not in ("device", "non_blocking") for keyword in node.keywords
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
                keyword.arg in ("device", "requires_grad", None) for keyword in node.keywords
            )
        return (
            isinstance(node.func, ast.Attribute)
            and node.func.attr in KEEPERS
            and self._fresh(node.func.value)
        )

    def _sibling(self, node: ast.Call, function: Function) -> str | None:
        """Return the parameter that an operation takes together with a tensor, or None."""
        parameters = [parameter.arg for parameter in (*function.args.posonlyargs, *function.args.args)]
        plain = parameters[: len(parameters) - len(function.args.defaults)]
        if isinstance(self.facts.tree.parents.get(function), ast.ClassDef):
            plain = plain[1:]
        given = [name for name in plain if self._stays(name, function)]
        if not given:
            return None
        made = self._outermost(node)
        name = self._name(made)
        for inner in ast.walk(function):
            operands, others = self._operands(inner, made, {name, *given})
            if made in others or any(isinstance(other, ast.Name) and other.id == name for other in others):
                for operand in operands:
                    if isinstance(operand, ast.Name) and operand.id in given:
                        return operand.id
        return None

    def _outermost(self, node: ast.Call) -> ast.expr:
        """Return the outermost call of a chain of methods: `torch.rand(3).cuda().long()`."""
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
        """Return the name that is bound to a new tensor and nothing else, or None."""
        for name, bindings in self.facts.tree.scope(node).bindings.items():
            if len(bindings) == 1 and bindings[0].value is node:
                return name
        return None

    def _stays(self, name: str, function: Function) -> bool:
        """Return whether a parameter is a tensor with dimensions that the function does not move."""
        if re.search(r"len|num|size", name):
            return False
        scope = self.facts.tree.scopes[function]
        for binding in scope.bindings.get(name, ()):
            if not binding.parameter and (binding.value is None or _MOVES.search(ast.unparse(binding.value))):
                return False
        return any(self._has_dimensions(inner, name) for inner in ast.walk(function))

    def _has_dimensions(self, node: ast.AST, name: str) -> bool:
        """Return whether an expression shows that a name is a tensor with dimensions."""
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
        """Return two lists of expressions; those of one are on the same device as those of the other."""
        if isinstance(node, ast.BinOp):
            return [node.left, node.right], [node.left, node.right]
        if not isinstance(node, ast.Call):
            return [], []
        arguments = list(_flat([*node.args, *(keyword.value for keyword in node.keywords)]))
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
            # A layer rather than a method of the class: it computes with its first argument.
            return (arguments[:1], arguments) if not self._own(node.func) else ([], [])
        if receiver is made or (isinstance(receiver, ast.Name) and receiver.id in tensors):
            return [receiver, *arguments], [receiver, *arguments]
        return [], []

    def _own(self, node: ast.Attribute) -> bool:
        for _, parent in self.facts.tree.ancestors(node):
            if isinstance(parent, ast.ClassDef):
                return any(
                    isinstance(statement, Function) and statement.name == node.attr
                    for statement in parent.body
                )
        return True


def _anywhere(name: str) -> bool:
    return _ANYWHERE.fullmatch(name.rpartition(".")[2]) is not None


def _flat(nodes: list[ast.expr]) -> Iterator[ast.expr]:
    for node in nodes:
        if isinstance(node, (ast.Tuple, ast.List)):
            yield from _flat(node.elts)
        else:
            yield node
