from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from functools import cached_property
from itertools import islice, takewhile

from devicefix.devices.arguments import name_fix
from devicefix.devices.expression import DeviceExpr
from devicefix.facts.flow.forwards import Use
from devicefix.facts.replaced import is_replaced
from devicefix.facts.texts import text_of
from devicefix.facts.torch_use import uses_torch
from devicefix.facts.values import cuda_literal, cuda_string, device_name, last_name
from devicefix.model import Finding, Fix
from devicefix.rules.base import Example, Rule
from devicefix.rules.shared.device_uses import checked_for_uses, merges

_UNSEEN = "its uses are not known"
_REFUSED = "the program may stop without this device"
_OF_OTHER_RULES = ("torch.load", "torch.jit.load", "torch.Generator", "torch.set_default_device")
_WITH_DEFAULT = ("get", "pop", "setdefault", "getattr", "setattr")
# Options of the command line, fields of classes, variables of the environment.
_OPTIONS = ("add_argument", "argument", "Argument", "option", "Option", "field", "Field", "getenv", "next")
_AROUND = 6  # how many expressions may put a string together around its first piece
_CONSTANTS = ("DEFAULT_DEVICE", "_DEFAULT_DEVICE")  # for defaults and arguments


class DeviceValue(Rule):
    """
    ## What it does
    Finds CUDA device names, such as `"cuda:0"`, that the program later uses as devices. The name may be stored in a
    variable, an attribute, a list or a dictionary. It may also be an argument, a return value, or the default of a
    parameter or command-line option.

    ## Why it matters
    Without CUDA, moving anything to such a device fails.

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
    The fix is safe if the same file or another file in the project uses the value as a device. A string stays a string,
    and a value from the user still overrides the default. With CUDA, the value is the same as before. Without CUDA, the
    program would have failed.

    The fix is unsafe in these cases:

    - Only the name of the variable, option or key, or a `"cpu"` next to the value, suggests that the value is a device.
    - The value is an argument to a function from another library.
    - The value is in a set, an enumeration, or a list that also contains the CPU. Without CUDA, the value may equal
      another element.
    - The program reads an index from the value, as in `device.split(":")[1]`. The CPU has no index.
    - The program adds an index to the value, as in `torch.device(device, 1)`. Without CUDA, the result is
      `cpu:1`, which never equals a tensor's device.
    - The program stops if the value is the CPU, as in `assert device == "cuda"`.
    - The program sets `CUDA_VISIBLE_DEVICES` later. The variable has no effect after the call to
      `torch.cuda.is_available()` that the fix adds.
    """

    code = "DF203"
    name = "device-value"
    summary = "A variable, default or option is a CUDA device"
    words = (b"cuda", b"'cu'", b'"cu"')  # the last ones for "cu" + "da"
    common_words = (b"device", b"gpu", b"rank")
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
            "a constant",
            before="""
                import torch

                DEVICE = "cuda"
                net.to(DEVICE)
            """,
            after="""
                import torch

                DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
                net.to(DEVICE)
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
            "a parameter that a method passes on to the same method of another object",
            before="""
                import torch

                class Engine:
                    def load(self, path, device="cuda"):
                        return self.model_class.load(path, device=device)
            """,
            after="""
                import torch

                class Engine:
                    def load(self, path, device="cuda" if torch.cuda.is_available() else "cpu"):
                        return self.model_class.load(path, device=device)
            """,
        ),
        Example(
            "the default of a parameter of another name",
            before="""
                import torch

                def f(n, where="cuda"):
                    return torch.ones(n, device=where)
            """,
            after="""
                import torch

                def f(n, where="cuda" if torch.cuda.is_available() else "cpu"):
                    return torch.ones(n, device=where)
            """,
        ),
        Example(
            "an argument of a function of the module",
            before="""
                import torch

                def make(n, where=None):
                    return torch.ones(n, device=where)


                make(1, "cuda")
                make(1, where="cuda")
            """,
            after="""
                import torch

                device = "cuda" if torch.cuda.is_available() else "cpu"

                def make(n, where=None):
                    return torch.ones(n, device=where)


                make(1, device)
                make(1, where=device)
            """,
        ),
        Example(
            "an argument of a function by another name, and of a lambda that is called",
            before="""
                import torch

                def make(n, where=None):
                    return torch.ones(n, device=where)


                build = make
                build(1, "cuda")
                place = (lambda each: each)("cuda:1")
                net.to(place)
            """,
            after="""
                import torch

                device = "cuda" if torch.cuda.is_available() else "cpu"
                device1 = "cuda:1" if torch.cuda.is_available() else "cpu"

                def make(n, where=None):
                    return torch.ones(n, device=where)


                build = make
                build(1, device)
                place = (lambda each: each)(device1)
                net.to(place)
            """,
        ),
        Example(
            "an argument through two functions",
            before="""
                import torch

                def outer(where):
                    return inner(where)


                def inner(place):
                    return torch.ones(1).to(place)


                outer("cuda")
            """,
            after="""
                import torch

                device = "cuda" if torch.cuda.is_available() else "cpu"

                def outer(where):
                    return inner(where)


                def inner(place):
                    return torch.ones(1).to(place)


                outer(device)
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
            "a dictionary and its get method",
            before="""
                import torch

                hparams = {"device": "cuda", "dim": 3}
                net.to(hparams.get("device", "cuda"))
            """,
            after="""
                import torch

                hparams = {"device": "cuda" if torch.cuda.is_available() else "cpu", "dim": 3}
                net.to(hparams.get("device", "cuda" if torch.cuda.is_available() else "cpu"))
            """,
        ),
        Example(
            "a value in place of none",
            before="""
                import torch

                def f(x, device=None):
                    device = device or "cuda"
                    return x.to(device if device else "cuda")
            """,
            after="""
                import torch

                def f(x, device=None):
                    device = device or ("cuda" if torch.cuda.is_available() else "cpu")
                    return x.to(device if device else ("cuda" if torch.cuda.is_available() else "cpu"))
            """,
        ),
        Example(
            "an attribute in place of none",
            before="""
                import torch

                class Trainer:
                    def __init__(self, device=None):
                        self.device = device or "cuda"

                    def step(self, x):
                        return x.to(self.device)
            """,
            after="""
                import torch

                class Trainer:
                    def __init__(self, device=None):
                        self.device = device or ("cuda" if torch.cuda.is_available() else "cpu")

                    def step(self, x):
                        return x.to(self.device)
            """,
        ),
        Example(
            "a choice inside an argument",
            before="""
                import torch

                x = x.to(args.place or "cuda")
            """,
            after="""
                import torch

                x = x.to(args.place or ("cuda" if torch.cuda.is_available() else "cpu"))
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
            "a list of devices",
            before="""
                import torch

                devices = ["cuda:0", "cuda:1"]
                places = [f"cuda:{i}" for i in range(2)]
                nets = [net.to(device) for net, device in zip(nets, devices)]
                net.to(places[0])
            """,
            after="""
                import torch

                devices = ["cuda:0" if torch.cuda.is_available() else "cpu", "cuda:1" if torch.cuda.is_available() else "cpu"]
                places = [f"cuda:{i}" if torch.cuda.is_available() else "cpu" for i in range(2)]
                nets = [net.to(device) for net, device in zip(nets, devices)]
                net.to(places[0])
            """,
        ),
        Example(
            "strings that are put together",
            before="""
                import torch

                a = ["cuda:%d" % i for i in range(2)]
                b = tuple("cuda:" + str(i) for i in range(2))
                c = {i: "cuda:{}".format(i) for i in range(2)}
                d = list(map(lambda i: f"cuda:{i}", range(2)))
                e = "".join(["cuda:", str(i)])
                f = "{}:{}".format("cuda", i)
                g = "%s:%d" % ("cuda", i)
                for place in (a[0], b[0], c[0], d[0], e, f, g):
                    net.to(place)
            """,
            after="""
                import torch

                a = ["cuda:%d" % i if torch.cuda.is_available() else "cpu" for i in range(2)]
                b = tuple("cuda:" + str(i) if torch.cuda.is_available() else "cpu" for i in range(2))
                c = {i: "cuda:{}".format(i) if torch.cuda.is_available() else "cpu" for i in range(2)}
                d = list(map(lambda i: f"cuda:{i}" if torch.cuda.is_available() else "cpu", range(2)))
                e = "".join(["cuda:", str(i)]) if torch.cuda.is_available() else "cpu"
                f = "{}:{}".format("cuda", i) if torch.cuda.is_available() else "cpu"
                g = "%s:%d" % ("cuda", i) if torch.cuda.is_available() else "cpu"
                for place in (a[0], b[0], c[0], d[0], e, f, g):
                    net.to(place)
            """,
        ),
        Example(
            "devices by turns",
            before="""
                import torch

                from itertools import cycle

                places = cycle(["cuda:0", "cuda:1"])
                net.to(next(places))
            """,
            after="""
                import torch

                from itertools import cycle

                places = cycle(
                    ["cuda:0" if torch.cuda.is_available() else "cpu", "cuda:1" if torch.cuda.is_available() else "cpu"])
                net.to(next(places))
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
            "a function that is called with its first arguments",
            before="""
                import torch

                from functools import partial
                from operator import methodcaller

                make = partial(torch.device, "cuda")
                x = torch.ones(1, device=make())
                y = methodcaller("to", "cuda")(x)
            """,
            after="""
                import torch

                from functools import partial
                from operator import methodcaller

                device = "cuda" if torch.cuda.is_available() else "cpu"

                make = partial(torch.device, device)
                x = torch.ones(1, device=make())
                y = methodcaller("to", device)(x)
            """,
        ),
        Example(
            "the method of a class, and unpacked arguments",
            before="""
                import torch

                torch.Tensor.to(x, "cuda")
                x.to(*["cuda"])
                x.to(**{"device": "cuda"})
            """,
            after="""
                import torch

                device = "cuda" if torch.cuda.is_available() else "cpu"

                torch.Tensor.to(x, device)
                x.to(*["cuda" if torch.cuda.is_available() else "cpu"])
                x.to(**{"device": device})
            """,
        ),
        Example(
            "checkpoints",
            before="""
                import torch

                from safetensors.torch import load_file

                a = load_file(path, "cuda")
                b = Net.load_from_checkpoint(path, "cuda")
                c = load_state_dict(path, location="cuda")
            """,
            after="""
                import torch

                from safetensors.torch import load_file

                device = "cuda" if torch.cuda.is_available() else "cpu"

                a = load_file(path, device)
                b = Net.load_from_checkpoint(path, device)
                c = load_state_dict(path, location=device)
            """,
        ),
        Example(
            "a returned value",
            before="""
                import torch

                def pick():
                    return "cuda"


                net.to(pick())
            """,
            after="""
                import torch

                def pick():
                    return "cuda" if torch.cuda.is_available() else "cpu"


                net.to(pick())
            """,
        ),
        Example(
            "a choice of code that needs CUDA",
            before="""
                import torch

                def run(x, device="cuda"):
                    if device == "cuda":
                        x = x.cuda()
                    return x
            """,
            after="""
                import torch

                def run(x, device="cuda" if torch.cuda.is_available() else "cpu"):
                    if device == "cuda":
                        x = x.cuda()
                    return x
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
            "through a lambda, and an item of a dictionary or a list",
            before="""
                import torch

                same = lambda q7: q7
                x = x.to(same({True: "cuda", False: None}[flag]))
                y = y.to((lambda q8: q8)([None, "cuda"][True]))
            """,
            after="""
                import torch

                device = "cuda" if torch.cuda.is_available() else "cpu"

                same = lambda q7: q7
                x = x.to(same({True: device, False: None}[flag]))
                y = y.to((lambda q8: q8)([None, "cuda" if torch.cuda.is_available() else "cpu"][True]))
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
        Example(
            "an option of which only one copy is replaced without CUDA",
            before="""
                import argparse

                import torch

                parser = argparse.ArgumentParser()
                parser.add_argument("--device", default="cuda")
                args = parser.parse_args()
                device = args.device
                if not torch.cuda.is_available():
                    device = "cpu"
                net.to(device)
                x.to(args.device)
            """,
            after="""
                import argparse

                import torch

                parser = argparse.ArgumentParser()
                parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
                args = parser.parse_args()
                device = args.device
                if not torch.cuda.is_available():
                    device = "cpu"
                net.to(device)
                x.to(args.device)
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
                    default_device = "cuda" if torch.cuda.is_available() else "cpu"
                    print(move(2, default_device), copy(2, default_device))
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
    )
    VALID = (
        Example(
            "what disables itself without CUDA, and the name of a method",
            """
                from contextlib import nullcontext

                import torch

                scope = torch.autocast if mixed else nullcontext
                with scope("cuda"):
                    move = getattr(module, "cuda")
            """,
        ),
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
            "a variable that is replaced without CUDA",
            """
                import torch

                device = "cuda"
                if not torch.cuda.is_available():
                    device = "cpu"
                net.to(device)
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
            "functions of autocast, which switches itself off",
            """
                import functools
                import torch

                @torch.amp.custom_bwd(device_type="cuda")
                def backward(ctx, grad):
                    return grad

                scope = functools.partial(torch.autocast, device_type="cuda", enabled=False)
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
            "a part of a path",
            """
                from pathlib import Path

                import torch

                net = build(torch.randn(3), str(Path(__file__).parent / "cuda" / "kernel.cu"))
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

    def visit_Constant(self, node: ast.Constant) -> Iterator[Finding]:
        if isinstance(node.value, str) and node.value[:1] in ("c", "C"):
            parent = self.facts.tree.parents.get(node)
            if not isinstance(parent, ast.JoinedStr):
                yield from self._check(self._composed(node))

    def visit_JoinedStr(self, node: ast.JoinedStr) -> Iterator[Finding]:
        yield from self._check(self._composed(node))

    def _composed(self, node: ast.expr) -> ast.expr | None:
        """Return the whole string that a piece such as `"cuda:"` begins, None if that is no CUDA device."""
        whole = node if cuda_string(node) else None
        for _, parent in islice(self.facts.tree.ancestors(node), _AROUND):
            if not isinstance(parent, ast.expr):
                break
            whole = parent if cuda_string(parent) else whole
        return whole

    def _check(self, value: ast.expr | None) -> Iterator[Finding]:
        """Check an expression whose value is the name of a CUDA device."""
        if value is None or value in self.context.handled or self.facts.is_guarded(value):
            return
        if self._is_of_another_rule(value) or self._is_path(value) or is_replaced(self.facts, value):
            return
        use = self.context.forwards.use_of(value)
        if Use.NUMBERED in use and (text_of(value) or "").lower() == "cuda":
            yield self._report(value, "the program adds an index to it, and a CPU has no index")
        elif Use.DEVICE in use or use & (Use.OF_CUDA | Use.UNKNOWN) == Use.OF_CUDA | Use.UNKNOWN:
            yield self._report(value)
        elif Use.REFUSED in use or (Use.UNKNOWN in use and (Use.NAMED in use or self._is_of_library(value))):
            yield self._report(value, _REFUSED if Use.REFUSED in use else _UNSEEN)
        elif Use.UNKNOWN in use and self._may_be_device(value):
            message = f"`{self.context.source.code(value)}` may be used as a device, which may not exist"
            message = f"{message}; use it only if CUDA is available"
            yield self.finding(value, message, unless="because its uses are not known")

    def _may_be_device(self, value: ast.expr) -> bool:
        """Return whether a value that goes out of sight may become a device: if it has a number, or torch is used."""
        return type(cuda_literal(value)) is int or self._uses_torch

    @cached_property
    def _uses_torch(self) -> bool:
        return uses_torch(self.facts)

    def _is_of_another_rule(self, value: ast.expr) -> bool:
        """Return whether a value is a direct argument of a call that another rule checks."""
        parents = self.facts.tree.parents
        parent = parents.get(value)
        call = parents.get(parent) if isinstance(parent, ast.keyword) else parent
        if not isinstance(call, ast.Call):
            return False
        function = call.func.body if isinstance(call.func, ast.IfExp) else call.func  # a type that is fixed
        name = self.facts.resolve(function) or ""
        if name == "torch.device" or name.startswith("torch.cuda."):
            return True
        if not cuda_string(value):
            return False
        if isinstance(parent, ast.keyword):
            return parent.arg == "map_location" or device_name(parent.arg or "")
        moves = last_name(call.func) in ("to", "to_empty", "cuda") and value is call.args[0]
        return moves or name in _OF_OTHER_RULES

    def _is_path(self, value: ast.expr) -> bool:
        """Return whether a value is a part of a path, such as `folder / "cuda" / "kernel.cu"`."""
        parent = self.facts.tree.parents.get(value)
        return isinstance(parent, ast.BinOp) and isinstance(parent.op, ast.Div)

    def _is_of_library(self, value: ast.expr) -> bool:
        """Return whether a value is an argument of another library's function, such as `clip.load(name, "cuda")`.

        The first argument is rather the name of something.
        """
        call = self.facts.tree.parents.get(value)
        if not isinstance(call, ast.Call) or value not in call.args[1:]:
            return False
        module = (self.facts.resolve(call.func) or "").partition(".")[0]
        if not module or module == "torch" or module in sys.stdlib_module_names:
            return False
        return not self.context.project.has_module(self.devices.path, module)

    def _report(self, value: ast.expr, why: str = "") -> Finding:
        self.context.mark_handled(value)
        why = why or merges(self.facts, value)
        fix = (
            self._of_argument(value, why)
            or self._shared(value, why)
            or self.context.when_cuda(value, '"cpu"', why)
        )
        finding = self.finding(value, f"{self._is_device(value)}; use it only if CUDA is available", fix)
        return checked_for_uses(self.context, value, finding)

    def _of_argument(self, value: ast.expr, why: str) -> Fix | None:
        """Return the fix of an argument or an item that gets a device of the module by its name, or None.

        Defaults stay where they are read, those of options and of fields as well. An argument shares the
        constant of such defaults.
        """
        parent = self.facts.tree.parents.get(value)
        if isinstance(parent, ast.keyword) and parent.arg not in (None, "default", "value"):
            parent = self.facts.tree.parents.get(parent)
        if isinstance(parent, ast.Call):
            if last_name(parent.func) in (*_WITH_DEFAULT, *_OPTIONS):
                return None
        elif not isinstance(parent, ast.Dict) or parent.values[self.facts.tree.place(value)] is not value:
            return None
        if cuda_literal(value) in self._defaults:
            return None
        if why or isinstance(self.facts.tree.scope(value).node, ast.ClassDef):
            return None
        around = list(takewhile(_is_in_statement, (each for _, each in self.facts.tree.ancestors(value))))
        if any(isinstance(each, ast.arguments) for each in around):
            return None
        if not any(isinstance(each, ast.Call) for each in around):
            return None
        return name_fix(self.context, value)

    def _shared(self, value: ast.expr, why: str) -> Fix | None:
        """Return the fix of a default or an argument that others of the module may share, or None."""
        index = cuda_literal(value)
        if self.devices.accelerator or why or index == "no":
            return None
        if not self._is_passed(value):
            return None
        known = self.devices.named(value) if index is None else None
        if known is not None:
            return self.context.replace(value, known)
        name = "cuda" if index is None else f"cuda:{index}"
        question = self.devices.available(value)
        choice = f'"{name}" if {question.text} else "cpu"'
        choice = self.context.source.quoted(choice, self.context.source.code(value))
        names = [f"{each}{index or ''}" for each in _CONSTANTS]
        code, use = self.devices.constant(value, names, DeviceExpr(choice, question.needs))
        return self.context.edit(value, lambda _: code(), use)

    @cached_property
    def _defaults(self) -> frozenset[int | str | None]:
        """The indices of devices that are defaults of parameters or options, where asking for CUDA is safe."""
        return frozenset(
            cuda_literal(each)
            for each in self.facts.tree.nodes_with("cuda")
            if isinstance(each, ast.Constant) and cuda_string(each) and self._is_default(each)
            if not self.devices.why_unsafe(each)
        )

    def _is_default(self, value: ast.Constant) -> bool:
        parents = self.facts.tree.parents
        parent = parents.get(value)
        if isinstance(parent, ast.keyword) and parent.arg in ("default", "value"):
            call = parents.get(parent)
            return isinstance(call, ast.Call) and last_name(call.func) in _OPTIONS
        return isinstance(parent, ast.arguments) or self._is_field(value)

    def _is_field(self, value: ast.expr) -> bool:
        """Return whether a value is that of an attribute in the body of a class."""
        assigned = isinstance(self.facts.tree.parents.get(value), (ast.Assign, ast.AnnAssign))
        return assigned and isinstance(self.facts.tree.scope(value).node, ast.ClassDef)

    def _is_passed(self, value: ast.expr) -> bool:
        """Return whether a value is an argument of a call, or the default of a parameter or a field."""
        parent = self.facts.tree.parents.get(value)
        if isinstance(parent, ast.arguments) or self._is_field(value):
            return True
        call = self.facts.tree.parents.get(parent) if isinstance(parent, ast.keyword) else parent
        return isinstance(call, ast.Call) and call.func is not value

    def _is_device(self, value: ast.expr) -> str:
        return f"`{self.context.source.code(value)}` is a CUDA device, which may not exist"


def _is_in_statement(node: ast.AST) -> bool:
    return not isinstance(node, ast.stmt)
