"""Decide from its uses whether a value is a device, and whether its fix is safe."""

from __future__ import annotations

import ast
import sys

from devicefix.devices.context import Context
from devicefix.facts.flow.forwards import Use
from devicefix.facts.texts import text_of
from devicefix.rules.base import Example
from devicefix.rules.shared.device_uses import merges


def why_unsafe(context: Context, value: ast.expr, use: Use) -> str | None:
    """Return why the fix of a device is not safe, empty if it is, None if nothing shows that the value is a device."""
    if Use.NUMBERED in use and (text_of(value) or "").lower() == "cuda":
        return "the program adds an index to the device, but a CPU has no index"
    # For the target CUDA, the guard of the call is enough.
    is_taken = Use.OF_CUDA in use and (Use.UNKNOWN in use or context.accelerator is not None)
    if Use.DEVICE in use or is_taken:
        return merges(context.facts, value)
    if Use.REFUSED in use:
        return "the program may stop without this device"
    if Use.UNKNOWN in use and (Use.NAMED in use or _is_of_library(context, value)):
        return "the value's uses are unknown"
    return None


def _is_of_library(context: Context, value: ast.expr) -> bool:
    """Return whether a value is an argument of another library's function, such as `clip.load(name, "cuda")`.

    The first argument is rather the name of something.
    """
    call = context.facts.tree.parents.get(value)
    if not isinstance(call, ast.Call) or value not in call.args[1:]:
        return False
    module = (context.facts.resolve(call.func) or "").partition(".")[0]
    if not module or module == "torch" or module in sys.stdlib_module_names:
        return False
    return not context.project.has_module(context.devices.path, module)


INVALID = (
    Example(
        "a field whose uses are not known",
        before="""
            import torch
            from pydantic import BaseModel


            class Config(BaseModel):
                device: str = "cuda:0"
        """,
        after="""
            import torch
            from pydantic import BaseModel


            class Config(BaseModel):
                device: str = "cuda:0" if torch.cuda.is_available() else "cpu"
        """,
        unsafe=True,
    ),
    Example(
        "a name alone",
        before="""
            import torch

            device = "cuda"
            launch(device)
            launchers = {"device": "cuda"}
        """,
        after="""
            import torch

            device = "cuda" if torch.cuda.is_available() else "cpu"
            launch(device)
            launchers = {"device": "cuda" if torch.cuda.is_available() else "cpu"}
        """,
        unsafe=True,
    ),
    Example(
        "what the user starts with",
        before="""
            import torch

            menu = Dropdown(["cuda", "cpu"], value="cuda")
            parser.add_argument("--kind", choices=["cpu", "cuda"], default="cuda")
        """,
        after="""
            import torch

            menu = Dropdown(["cuda", "cpu"], value="cuda" if torch.cuda.is_available() else "cpu")
            parser.add_argument("--kind", choices=["cpu", "cuda"], default="cuda" if torch.cuda.is_available() else "cpu")
        """,
        unsafe=True,
    ),
    Example(
        "an argument of another library",
        before="""
            import clip
            import torch

            net, transform = clip.load("ViT-B/32", "cuda")
        """,
        after="""
            import clip
            import torch

            net, transform = clip.load("ViT-B/32", "cuda" if torch.cuda.is_available() else "cpu")
        """,
        unsafe=True,
    ),
    Example(
        "both CUDA and the CPU",
        before="""
            import torch

            for where in ["cuda", "cpu"]:
                net.to(where)
        """,
        after="""
            import torch

            for where in ["cuda" if torch.cuda.is_available() else "cpu", "cpu"]:
                net.to(where)
        """,
        unsafe=True,
    ),
    Example(
        "a set of devices",
        before="""
            import torch

            for where in {f"cuda:{i}" for i in range(2)}:
                net.to(where)
        """,
        after="""
            import torch

            for where in {f"cuda:{i}" if torch.cuda.is_available() else "cpu" for i in range(2)}:
                net.to(where)
        """,
        unsafe=True,
    ),
    Example(
        "a number that may be no device",
        before="""
            import torch

            launch(place="cuda:0")
            start("cuda:1")
        """,
    ),
    Example(
        "a value that goes out of sight",
        before="""
            import torch

            launch(kind="cuda")
            match "cuda":
                case place:
                    net.to(place)
            make = lambda: "cuda"
            *_, last = 1, "cuda:%d" % 0
            net.to(["cpu", "cuda"][choice])
            launch(last)
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
        "a device that gets a number, and one that the program requires",
        before="""
            import torch

            where = "cuda"
            x = x.to(torch.device(where, rank))
            q7 = "cuda"
            assert q7 == "cuda"
            x = x.to(q7)
        """,
        after="""
            import torch

            where = "cuda" if torch.cuda.is_available() else "cpu"
            x = x.to(torch.device(where, rank))
            q7 = "cuda" if torch.cuda.is_available() else "cpu"
            assert q7 == "cuda"
            x = x.to(q7)
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
    Example(
        "a device without which a method ends the program",
        before="""
            import torch


            class Detector:
                def __init__(self, device="cuda"):
                    if device == "cpu":
                        self.model = None
                    else:
                        self.model = build().to(device)

                def run(self, x):
                    if self.model is None:
                        raise NotImplementedError("there is no detection on the CPU")
                    return self.model(x)
        """,
        after="""
            import torch


            class Detector:
                def __init__(self, device="cuda" if torch.cuda.is_available() else "cpu"):
                    if device == "cpu":
                        self.model = None
                    else:
                        self.model = build().to(device)

                def run(self, x):
                    if self.model is None:
                        raise NotImplementedError("there is no detection on the CPU")
                    return self.model(x)
        """,
        unsafe=True,
    ),
    Example(
        "a device that must not be the CPU",
        before="""
            import torch


            def move(x, device="cuda"):
                if device == "cpu":
                    raise ValueError(device)
                return x.to(device)
        """,
        after="""
            import torch


            def move(x, device="cuda" if torch.cuda.is_available() else "cpu"):
                if device == "cpu":
                    raise ValueError(device)
                return x.to(device)
        """,
        unsafe=True,
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
        "a name that says nothing about a device",
        """
            backend = "cuda"
        """,
    ),
    Example(
        "a name that chooses between implementations",
        """
            def run(device="cuda"):
                if device == "cuda":
                    print("native")
                else:
                    print("reference")
        """,
    ),
    Example(
        "a value that goes to another library",
        """
            launch(backend="cuda")
            build(name="cuda")
        """,
    ),
    Example(
        "a value that is only printed",
        """
            def f():
                device = "cuda"
                print(f"on {device}")
        """,
    ),
    Example(
        "a list of choices",
        """
            choices = ["cuda", "cpu"]
        """,
    ),
    Example(
        "the choices of an option without the CPU, but with other values",
        """
            import torch

            parser.add_argument("--kind", type=click.Choice(["auto", "cuda", "none"]), default="auto")
            net = build(torch.randn(3), parser.parse_args().kind)
        """,
    ),
    Example(
        "the choices of a command line option",
        """
            import torch

            parser.add_argument("--device", choices=["cuda", "cpu"], default="cpu")
            parser.add_argument("--kind", type=click.Choice(["cuda", "cpu"]), default="cpu")
            net = build(torch.randn(3), parser.parse_args().kind)
        """,
    ),
)
