from __future__ import annotations

import ast
from collections.abc import Iterator

from devicefix.devices.context import Context
from devicefix.facts import with_defaults
from devicefix.facts.values import cuda_literal, cuda_string, device_name, devices_name, last_name
from devicefix.model import Finding
from devicefix.rules.base import Example, Rule
from devicefix.rules.shared.taken_numbers import checked_for_number


class DeviceValue(Rule):
    """
    ## What it does
    Finds the name of a CUDA device as a value: assigned to a variable or attribute, as the default of a parameter
    or command line option, in a dictionary, or returned by a function that selects a device.

    ## Why it matters
    The value is passed on, and moving anything to it fails without CUDA.

    ## Example
    ```python
    DEVICE = "cuda"
    parser.add_argument("--device", default="cuda:3")
    def encode(text, device="cuda"): ...
    ```

    ## Use instead
    ```python
    DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
    parser.add_argument("--device", default="cuda:3" if torch.cuda.is_available() else "cpu")
    def encode(text, device="cuda" if torch.cuda.is_available() else "cpu"): ...
    ```

    ## Fix safety
    Safe: a string stays a string, and a value given by the user still overrides the default. Unsafe if the program
    sets `CUDA_VISIBLE_DEVICES` afterwards, since `torch.cuda.is_available()` determines which GPUs are visible, or if
    it takes the number out of the value (`device.split(":")[1]`), since the CPU has none.
    """

    code = "DF203"
    name = "device-value"
    summary = "A variable, default or option is a CUDA device"
    words = (b"cuda",)
    common_words = (b"device", b"gpu", b"rank")
    INVALID = (
        Example(
            "a constant",
            before="""
                import torch

                DEVICE = 'cuda'
            """,
            after="""
                import torch

                DEVICE = 'cuda' if torch.cuda.is_available() else 'cpu'
            """,
        ),
        Example(
            "the default of a parameter",
            before="""
                import torch


                def f(x, device="cuda"):
                    return x.to(device)
            """,
            after="""
                import torch


                def f(x, device="cuda" if torch.cuda.is_available() else "cpu"):
                    return x.to(device)
            """,
        ),
        Example(
            "the default of a command line option",
            before="""
                import torch

                parser.add_argument("--device", default="cuda:3", help="where")
            """,
            after="""
                import torch

                parser.add_argument("--device", default="cuda:3" if torch.cuda.is_available() else "cpu", help="where")
            """,
        ),
        Example(
            "a dictionary and its get method",
            before="""
                import torch

                hparams = {"device": "cuda", "dim": 3}
                d = hparams.get("device", "cuda")
            """,
            after="""
                import torch

                hparams = {"device": "cuda" if torch.cuda.is_available() else "cpu", "dim": 3}
                d = hparams.get("device", "cuda" if torch.cuda.is_available() else "cpu")
            """,
        ),
        Example(
            "a list of devices",
            before="""
                import torch

                devices = ["cuda:0", "cpu"]
                device_list.append("cuda:" + str(i))
            """,
            after="""
                import torch

                devices = ["cuda:0" if torch.cuda.is_available() else "cpu", "cpu"]
                device_list.append("cuda:" + str(i) if torch.cuda.is_available() else "cpu")
            """,
        ),
        Example(
            "a variable that is used as a device",
            before="""
                from torch import nn

                target = "cuda"
                net = nn.Linear(1, 1).to(target)
            """,
            after="""
                import torch
                from torch import nn

                target = "cuda" if torch.cuda.is_available() else "cpu"
                net = nn.Linear(1, 1).to(target)
            """,
        ),
        Example(
            "a device whose number is used",
            before="""
                import torch

                where = "cuda:1"
                x = x.to(where)
                q7 = int(where.split(":")[1])
            """,
            after="""
                import torch

                where = "cuda:1" if torch.cuda.is_available() else "cpu"
                x = x.to(where)
                q7 = int(where.split(":")[1])
            """,
            unsafe=True,
        ),
        Example(
            "a device whose number is used only if it has one",
            before="""
                import torch

                where = "cuda:1"
                x = x.to(where)
                q7 = int(where.split(":")[1]) if ":" in where else 0
            """,
            after="""
                import torch

                where = "cuda:1" if torch.cuda.is_available() else "cpu"
                x = x.to(where)
                q7 = int(where.split(":")[1]) if ":" in where else 0
            """,
        ),
    )
    VALID = (
        Example(
            "a list that is compared with",
            """
                import torch

                assert device in ["cuda", "cpu"]
            """,
        ),
        Example(
            "a comparison",
            """
                import torch

                if device == "cuda":
                    print(device)
            """,
        ),
        Example(
            "under a guard",
            """
                import torch

                device = "cpu"
                if torch.cuda.is_available():
                    device = "cuda"
            """,
        ),
        Example(
            "a name that says nothing about a device",
            """
                backend = "cuda"
            """,
        ),
        Example(
            "a list of choices",
            """
                choices = ["cuda", "cpu"]
            """,
        ),
        Example(
            "the choices of a command line option",
            """
                parser.add_argument("--device", choices=["cuda", "cpu"], default="cpu")
            """,
        ),
    )

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._used: dict[str, bool] = {}

    def visit_Assign(self, node: ast.Assign) -> Iterator[Finding]:
        pairs = [(target, node.value) for target in node.targets]
        for target in node.targets:
            if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
                pairs += zip(target.elts, node.value.elts, strict=False)
        for target, value in pairs:
            if cuda_string(value) and self._holds_device(target):
                yield from self._report(value)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> Iterator[Finding]:
        value = node.value
        if isinstance(value, ast.Call) and device_name(
            last_name(node.target)
        ):  # dataclasses.field(default=...)
            value = next((keyword.value for keyword in value.keywords if keyword.arg == "default"), None)
        if value is not None and cuda_string(value) and self._holds_device(node.target):
            yield from self._report(value)

    def visit_NamedExpr(self, node: ast.NamedExpr) -> Iterator[Finding]:
        if cuda_string(node.value) and self._holds_device(node.target):
            yield from self._report(node.value)

    def visit_arguments(self, node: ast.arguments) -> Iterator[Finding]:
        for arg, default in with_defaults(node):
            if default is not None and cuda_string(default) and device_name(arg.arg):
                yield from self._report(default)

    def visit_Dict(self, node: ast.Dict) -> Iterator[Finding]:
        for key, value in zip(node.keys, node.values, strict=True):
            if isinstance(key, ast.Constant) and isinstance(key.value, str) and device_name(key.value):
                if cuda_string(value):
                    yield from self._report(value)

    def visit_Return(self, node: ast.Return) -> Iterator[Finding]:
        if node.value is None or not cuda_string(node.value):
            return
        function = self.facts.tree.scope(node).node
        if isinstance(function, ast.FunctionDef) and device_name(function.name):
            yield from self._report(node.value)

    def visit_List(self, node: ast.List | ast.Tuple) -> Iterator[Finding]:
        parent = self.facts.tree.parents.get(node)
        if isinstance(parent, ast.Assign) and devices_name(last_name(parent.targets[0])):
            for value in filter(cuda_string, node.elts):
                yield from self._report(value)

    visit_Tuple = visit_List

    def visit_Call(self, node: ast.Call) -> Iterator[Finding]:
        if isinstance(node.func, ast.Attribute) and node.func.attr == "append" and len(node.args) == 1:
            if cuda_string(node.args[0]) and devices_name(last_name(node.func.value)):
                yield from self._report(node.args[0])
            return
        strings = [
            argument.value
            for argument in node.args
            if isinstance(argument, ast.Constant) and isinstance(argument.value, str)
        ]
        if not any(device_name(string.lstrip("-")) for string in strings):
            return
        if isinstance(node.func, ast.Attribute) and node.func.attr in ("get", "pop", "setdefault", "getattr"):
            candidates = node.args[1:2]
        elif isinstance(node.func, ast.Name) and node.func.id in ("getattr", "setattr"):
            candidates = node.args[2:3]
        else:
            candidates = [keyword.value for keyword in node.keywords if keyword.arg == "default"]
        for value in candidates:
            if cuda_string(value):
                yield from self._report(value)

    def visit_Constant(self, node: ast.Constant) -> Iterator[Finding]:
        """Check a name with a number, which can only be a device, in all other places."""
        parent = self.facts.tree.parents.get(node)
        if type(cuda_literal(node)) is not int or isinstance(parent, (ast.Compare, ast.Expr, ast.JoinedStr)):
            return
        if isinstance(parent, ast.Dict) and node in parent.keys:
            return
        if isinstance(parent, ast.Return):
            yield from self._report(node)
        elif isinstance(parent, (ast.Dict, ast.List, ast.Tuple, ast.keyword, ast.arguments, ast.Assign)):
            if not self.facts.is_guarded(node) and not self._compared(parent):
                message = f"`{self.context.source.code(node)}` is a CUDA device, which may not exist, if it is used as a device"
                yield self.finding(node, f"{message}; select it by `torch.cuda.is_available()`")

    def _compared(self, node: ast.AST) -> bool:
        return isinstance(self.facts.tree.parents.get(node), (ast.Compare, ast.Subscript))

    def _report(self, value: ast.expr) -> Iterator[Finding]:
        if self.facts.is_guarded(value):
            return
        self.context.mark_handled(value)
        code = self.context.source.code(value)
        fix = self.context.when_cuda(value, '"cpu"', self.devices.safety(value))
        finding = self.finding(
            value,
            f"`{code}` is a CUDA device, which may not exist; select it by `torch.cuda.is_available()`",
            fix,
        )
        yield checked_for_number(self.context, value, finding)

    def _holds_device(self, target: ast.expr) -> bool:
        """Return whether a target holds a device, by its name or by its uses in the module."""
        if isinstance(target, ast.Subscript):
            key = target.slice
            return isinstance(key, ast.Constant) and isinstance(key.value, str) and device_name(key.value)
        if device_name(last_name(target)):
            return True
        if not isinstance(target, ast.Name):
            return False
        if target.id not in self._used:
            self._used[target.id] = any(map(self._used_as_device, self.facts.tree.reads(target.id)))
        return self._used[target.id]

    def _used_as_device(self, node: ast.expr) -> bool:
        parent = self.facts.tree.parents.get(node)
        if isinstance(parent, ast.keyword):
            return parent.arg in ("device", "map_location")
        if not isinstance(parent, ast.Call) or node not in parent.args:
            return False
        if self.facts.call(parent, "torch.load"):
            return parent.args.index(node) == 1
        if node is not parent.args[0]:
            return False
        to = isinstance(parent.func, ast.Attribute) and parent.func.attr == "to"
        return to or self.facts.call(parent, "torch.device")
