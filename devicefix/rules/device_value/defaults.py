"""Fix defaults of parameters, options and fields: several share a constant of the module."""

from __future__ import annotations

import ast
from functools import cached_property

from devicefix.devices.context import Context
from devicefix.devices.define import CONSTANTS
from devicefix.devices.expression import DeviceExpr
from devicefix.facts.values import cuda_literal, cuda_string, last_name
from devicefix.model import Fix
from devicefix.rules.base import Example

# Options of the command line, fields of classes, variables of the environment.
OPTIONS = ("add_argument", "argument", "Argument", "option", "Option", "field", "Field", "getenv", "next")
NAMES = ("default", "const", "value")


class Defaults:
    """The fixes of defaults, and of arguments that share their constants.

    Args:
        context: The context of the module.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        self._devices = context.devices
        self._tree = context.facts.tree

    @cached_property
    def indices(self) -> frozenset[int | str | None]:
        """The indices of devices that are defaults of parameters or options, where asking for CUDA is safe."""
        texts = (each for each in self._tree.nodes_with("cuda") if isinstance(each, ast.Constant))
        defaults = (each for each in texts if cuda_string(each) and self._is_default(each))
        return frozenset(cuda_literal(each) for each in defaults if not self._devices.why_unsafe(each))

    def fix(self, value: ast.expr) -> Fix | None:
        """Return the fix of a default or an argument that others of the module may share, or None."""
        index = cuda_literal(value)
        if self._devices.accelerator or index == "no" or not self._is_passed(value):
            return None
        known = self._devices.named(value) if index is None else None
        if known is not None:
            return self._context.replace(value, known)
        name = "cuda" if index is None else f"cuda:{index}"
        question = self._devices.available(value)
        choice = f'"{name}" if {question.text} else "cpu"'
        choice = self._context.source.quoted(choice, self._context.source.code(value))
        names = [f"{each}{index or ''}" for each in CONSTANTS]
        code, use = self._devices.constant(value, names, DeviceExpr(choice, question.needs))
        return self._context.edit(value, lambda _: code(), use)

    def _is_default(self, value: ast.Constant) -> bool:
        parent = self._tree.parents.get(value)
        if isinstance(parent, ast.keyword) and parent.arg in NAMES:
            call = self._tree.parents.get(parent)
            return isinstance(call, ast.Call) and last_name(call.func) in OPTIONS
        return isinstance(parent, ast.arguments) or self._is_field(value)

    def _is_field(self, value: ast.expr) -> bool:
        """Return whether a value is that of an attribute in the body of a class."""
        assigned = isinstance(self._tree.parents.get(value), (ast.Assign, ast.AnnAssign))
        return assigned and isinstance(self._tree.scope(value).node, ast.ClassDef)

    def _is_passed(self, value: ast.expr) -> bool:
        """Return whether a value is an argument of a call, or the default of a parameter or a field."""
        parent = self._tree.parents.get(value)
        if isinstance(parent, ast.arguments) or self._is_field(value):
            return True
        call = self._tree.parents.get(parent) if isinstance(parent, ast.keyword) else parent
        return isinstance(call, ast.Call) and call.func is not value


INVALID = (
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
            args = parser.parse_args()
            net.to(args.device)
        """,
        after="""
            import torch

            parser.add_argument("--device", default="cuda:3" if torch.cuda.is_available() else "cpu", help="where")
            args = parser.parse_args()
            net.to(args.device)
        """,
    ),
    Example(
        "the constant of a command line option",
        before="""
            import torch

            parser.add_argument("--place", action="store_const", const="cuda")
            args = parser.parse_args()
            net.to(args.place)
        """,
        after="""
            import torch

            parser.add_argument("--place", action="store_const", const="cuda" if torch.cuda.is_available() else "cpu")
            args = parser.parse_args()
            net.to(args.place)
        """,
    ),
    Example(
        "the options of click and typer",
        before="""
            import torch

            @click.option("--where", default="cuda")
            def main(where):
                net.to(where)


            main.callback(where="cpu")


            def run(where: str = typer.Option("cuda")):
                net.to(where)
        """,
        after="""
            import torch

            DEFAULT_DEVICE = "cuda" if torch.cuda.is_available() else "cpu"

            @click.option("--where", default=DEFAULT_DEVICE)
            def main(where):
                net.to(where)


            main.callback(where="cpu")


            def run(where: str = typer.Option(DEFAULT_DEVICE)):
                net.to(where)
        """,
    ),
    Example(
        "a default of the environment, of an attribute and of an iterator",
        before="""
            import torch

            import os

            a = torch.ones(1, device=os.getenv("D") or "cuda")
            b = torch.ones(1, device=os.environ.get("D", "cuda"))
            c = torch.ones(1, device=getattr(args, "place", "cuda"))
            d = torch.ones(1, device=next(iter(places), "cuda"))
        """,
        after="""
            import torch

            import os

            DEFAULT_DEVICE = "cuda" if torch.cuda.is_available() else "cpu"

            a = torch.ones(1, device=os.getenv("D") or ("cuda" if torch.cuda.is_available() else "cpu"))
            b = torch.ones(1, device=os.environ.get("D", DEFAULT_DEVICE))
            c = torch.ones(1, device=getattr(args, "place", DEFAULT_DEVICE))
            d = torch.ones(1, device=next(iter(places), DEFAULT_DEVICE))
        """,
    ),
    Example(
        "keyword arguments",
        before="""
            import torch

            def f(**kwargs):
                kwargs.setdefault("device", "cuda")
                return torch.ones(1, device=kwargs["device"])


            def g(**kwargs):
                place = kwargs.pop("place", "cuda")
                return torch.ones(1, device=place)
        """,
        after="""
            import torch

            DEFAULT_DEVICE = "cuda" if torch.cuda.is_available() else "cpu"

            def f(**kwargs):
                kwargs.setdefault("device", DEFAULT_DEVICE)
                return torch.ones(1, device=kwargs["device"])


            def g(**kwargs):
                place = kwargs.pop("place", DEFAULT_DEVICE)
                return torch.ones(1, device=place)
        """,
    ),
    Example(
        "the fields of a data class",
        before="""
            import torch

            from dataclasses import dataclass, field


            @dataclass
            class Options:
                compute: str = "cuda"
                storage: str = field(default="cuda")
                others: list = field(default_factory=lambda: ["cuda"])


            options = Options("cuda")
            a.to(options.compute)
            b.to(options.storage)
            c.to(options.others[0])
        """,
        after="""
            import torch

            from dataclasses import dataclass, field

            DEFAULT_DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


            @dataclass
            class Options:
                compute: str = DEFAULT_DEVICE
                storage: str = field(default=DEFAULT_DEVICE)
                others: list = field(default_factory=lambda: ["cuda" if torch.cuda.is_available() else "cpu"])


            options = Options(DEFAULT_DEVICE)
            a.to(options.compute)
            b.to(options.storage)
            c.to(options.others[0])
        """,
    ),
    Example(
        "a default, an option and an argument, which share a constant, and devices with a number",
        before="""
            import torch


            def load(path, device="cuda:0"):
                return read(path).to(device)


            def copy(x, device="cuda:1"):
                return x.to(device)


            def move(x, device="cuda:1"):
                return x.to(device)


            parser.add_argument("--device", default="cuda:0")
            net.to(parser.parse_args().device)
            load("a", "cuda:0")
        """,
        after="""
            import torch

            DEFAULT_DEVICE = "cuda:0" if torch.cuda.is_available() else "cpu"
            DEFAULT_DEVICE1 = "cuda:1" if torch.cuda.is_available() else "cpu"


            def load(path, device=DEFAULT_DEVICE):
                return read(path).to(device)


            def copy(x, device=DEFAULT_DEVICE1):
                return x.to(device)


            def move(x, device=DEFAULT_DEVICE1):
                return x.to(device)


            parser.add_argument("--device", default=DEFAULT_DEVICE)
            net.to(parser.parse_args().device)
            load("a", DEFAULT_DEVICE)
        """,
    ),
    Example(
        "defaults of parameters, which share a constant",
        before="""
            import torch


            def first(x, device="cuda"):
                return x.to(device)


            def second(x, device='cuda'):
                return x.to(device)
        """,
        after="""
            import torch

            DEFAULT_DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


            def first(x, device=DEFAULT_DEVICE):
                return x.to(device)


            def second(x, device=DEFAULT_DEVICE):
                return x.to(device)
        """,
    ),
    Example(
        "the default of a parameter, for which the module has a name already",
        before="""
            import torch

            where = "cuda" if torch.cuda.is_available() else "cpu"


            def first(x, device="cuda"):
                return x.to(device), where
        """,
        after="""
            import torch

            where = "cuda" if torch.cuda.is_available() else "cpu"


            def first(x, device=where):
                return x.to(device), where
        """,
    ),
    Example(
        "defaults and an argument in a module that forks: CUDA can't be used in a fork once it was asked for",
        before="""
            import multiprocessing

            import torch


            def move(x, device="cuda"):
                return x.to(device)


            def copy(x, device="cuda"):
                return x.to(device)


            def run():
                pool = multiprocessing.Pool(2)
                return move(1, device="cuda")


            if __name__ == "__main__":
                run()
                print(move(2, "cuda"), copy(2, "cuda"))
        """,
        after="""
            import multiprocessing

            import torch


            def move(x, device="cuda"):
                return x.to(device)


            def copy(x, device="cuda"):
                return x.to(device)


            def run():
                pool = multiprocessing.Pool(2)
                device = "cuda" if torch.cuda.is_available() else "cpu"
                return move(1, device=device)


            if __name__ == "__main__":
                run()
                device = "cuda" if torch.cuda.is_available() else "cpu"
                print(move(2, device), copy(2, device))
        """,
    ),
    Example(
        "a device that is tested before something moves to the CPU",
        before="""
            import torch


            class Pipe:
                def __init__(self, net, device="cuda"):
                    self.net = net
                    self.to(device)

                def to(self, device=None):
                    if device is not None:
                        self.device = torch.device(device)
                        self.net.to(device)

                def offload(self):
                    if self.device.type != "cpu":
                        self.to("cpu")
                        torch.cuda.empty_cache()
        """,
        after="""
            import torch


            class Pipe:
                def __init__(self, net, device="cuda" if torch.cuda.is_available() else "cpu"):
                    self.net = net
                    self.to(device)

                def to(self, device=None):
                    if device is not None:
                        self.device = torch.device(device)
                        self.net.to(device)

                def offload(self):
                    if self.device.type != "cpu":
                        self.to("cpu")
                        torch.cuda.empty_cache()
        """,
    ),
)
