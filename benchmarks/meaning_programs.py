"""Random programs that are tied to CUDA, that run, and that print what they compute.

A program has one to four situations, such as "a tensor is moved and changed in place". A situation is made of
random parts: how a value is bound, what it is called, how it is moved or passed on, and what is printed. Then
the statements are put into random blocks and functions, and get a random form. Each part that is chosen has a
name, its kind, which the program lists.

On the simulated CUDA machine most programs run to the end. They print the same on a CPU, except for devices
and the word "gpu", for which a CPU prints "cpu".
"""

from __future__ import annotations

import builtins
import keyword
import re
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random

import meaning_forms
from meaning_situations import DEVICES, MOVES, SITUATIONS

Lines = list[str]
Body = Callable[[str], Lines]

TYPICAL = {
    "tensor": ("x", "y", "data", "images", "inputs", "labels", "h", "out", "batch"),
    "module": ("model", "net", "encoder", "criterion", "layer"),
    "own": ("batch", "sample", "data", "obj", "images", "model"),
    "device": ("device", "dev", "gpu", "where", "DEVICE", "compute", "map_location"),
    "int": ("gpu", "rank", "local_rank", "idx", "device_id", "gpu_id", "i"),
    "flag": ("use_cuda", "cuda", "use_gpu", "gpu", "has_gpu"),
    "count": ("n", "n_gpu", "ngpus", "world_size", "num_gpus"),
    "stream": ("stream", "s", "copy_stream"),
    "event": ("start", "end", "event", "t0"),
    "function": ("run", "step", "train", "forward", "build", "sync"),
    "class": ("Batch", "Net", "Model", "Config", "Trainer"),
    "other": ("args", "opt", "cfg", "value", "item"),
}
MISLEADING = (
    "device", "gpu", "cuda", "model", "rank", "stream", "x", "devices", "n_gpu", "use_cuda", "out", "device1",
    "device0", "default_device",
)  # fmt: skip
# What programs have around the code that moves something; the names may mislead.
SURROUNDINGS = (
    "device = torch.device('cuda' if torch.cuda.is_available() else 'cpu')",
    "device = torch.device('cuda' if torch.cuda.is_available() else 'cpu')",
    "device = 'cuda' if torch.cuda.is_available() else 'cpu'",
    "device = torch.device('cuda') if torch.cuda.is_available() else torch.device('cpu')",
    "device = torch.device('cuda')",
    "device = 'cuda'",
    "DEVICE = 'cuda'",
    "device = torch.device('cuda:1')",
    "device = 'cuda:0'",
    "device = torch.device('cpu')",
    "device = 'cpu'",
    "device = 0",
    "device = None",
    "device = torch.float64",
    "use_cuda = torch.cuda.is_available()",
    "use_cuda = True",
    "use_cuda = False",
    "use_cuda = torch.cuda.is_available()\ndevice = torch.device('cuda' if use_cuda else 'cpu')",
    "use_cuda = False\ndevice = torch.device('cuda' if use_cuda else 'cpu')",
    "no_cuda = True\ndevice = torch.device('cuda' if torch.cuda.is_available() and not no_cuda else 'cpu')",
    "if 1 > 2: device = 'cpu'\nelse: device = torch.device('cuda')",
    "if 1 < 2: device = 'cpu'\nelse: device = torch.device('cuda')",
    "device = 'cpu'\nif torch.cuda.is_available(): device = 'cuda'",
    "def device(): return 3",
    "def get_device(): return torch.device('cuda')",
    "gpu = 1",
    "gpu = None",
    "local_rank = 0",
    "torch.cuda.set_device(1)",
    "torch.cuda.set_device(0)",
    "class Own:\n    def cuda(self): return self",
    "class Own:\n    def cuda(self): return self\n    def to(self, device): return self",
    "import platform as device",
    "cuda = torch.cuda.is_available()",
    "n_gpu = torch.cuda.device_count()",
    "device = [torch.device('cuda')]",
    "for device in ['cuda', 'cpu']: pass",
    "for device in ['cpu', 'cuda']: pass",
    "(device := 'cpu')",
    "device, dtype = torch.device('cuda'), torch.float32",
    "device = torch.device('cuda', torch.cuda.current_device())",
    "torch.backends.cudnn.benchmark = True",
    "import os\nos.environ['CUDA_VISIBLE_DEVICES'] = '1'",
    "import os\nos.environ['CUDA_VISIBLE_DEVICES'] = '0,1'",
    "device = torch.ones(1).cuda().device",
    "match 'cpu':\n    case device: pass",
    "with __import__('contextlib').nullcontext('cpu') as device: pass",
    "try:\n    raise ValueError\nexcept ValueError as device: pass",
)

# Bindings that take the place of an assignment.
REBINDINGS = (
    "NAME, _ = VALUE, 1",
    "[NAME, *_] = [VALUE, 1]",
    "*_, NAME = 1, VALUE",
    "NAME = _ = VALUE",
    "NAME: object = VALUE",
    "if (NAME := VALUE) is not None: pass",
    "for NAME in [VALUE]: pass",
    "with __import__('contextlib').nullcontext(VALUE) as NAME: pass",
    "match VALUE:\n    case NAME: pass",
    "match {'k': VALUE}:\n    case {'k': NAME}: pass",
    "match [VALUE]:\n    case [NAME]: pass",
    "NAME = (lambda: VALUE)()",
    "NAME = [VALUE][0]",
    "NAME = {'k': VALUE}['k']",
    "NAME = VALUE if True else None",
    "NAME = [_ for _ in [VALUE]][0]",
    "if True: NAME = VALUE",
    "try: NAME = VALUE\nfinally: pass",
    "while True:\n    NAME = VALUE\n    break",
    "if 1 > 2: NAME = None\nelse: NAME = VALUE",
    "NAME = None\nNAME = VALUE",
    "NAME = next(iter([VALUE]))",
    "NAME = (lambda w: w)(VALUE)",
    "import types; NAME = types.SimpleNamespace(a=VALUE).a",
    "_ = VALUE; NAME = _; del _",
    "NAME = (_ := VALUE)",
    "@(lambda f: f())\ndef NAME(): return VALUE",
)

# Calls that take the place of `X.cuda(ARGS)`.
RECALLS = (
    "(lambda t: t.cuda(ARGS))(X)",
    "[t.cuda(ARGS) for t in [X]][0]",
    "(X).cuda(ARGS)",
    "getattr(X, 'cuda')(ARGS)",
    "next(t.cuda(ARGS) for t in (X,))",
    "X.cuda(*[ARGS])",
    "(X.cuda)(ARGS)",
    "(X if True else None).cuda(ARGS)",
    "(None or X).cuda(ARGS)",
    "[X][0].cuda(ARGS)",
    "{'k': X}['k'].cuda(ARGS)",
    "(lambda: X)().cuda(ARGS)",
    "X . cuda(\n        ARGS)",
    "X.cuda(ARGS).cuda()",
    "__import__('operator').methodcaller('cuda')(X)",
)

# Expressions that take the place of `'cuda'`.
SAME_DEVICES = (
    "None or 'cuda'",
    "'cu' + 'da'",
    "['cuda', 'cpu'][0]",
    "{'device': 'cuda'}['device']",
    "str('cuda')",
    "f'{\"cuda\"}'",
    "'cuda' if True else 'cpu'",
    "(lambda: 'cuda')()",
    "torch.device('cuda').type",
    "'%s' % 'cuda'",
    "__import__('os').environ.get('NO_SUCH', 'cuda')",
    "'cuda:0'.split(':')[0]",
)

RESERVED = {
    *keyword.kwlist,
    *keyword.softkwlist,
    *dir(builtins),
    "torch",
    "nn",
    "np",
    "os",
    "sys",
    "io",
    "th",
}


_KINDS = {**SITUATIONS, **meaning_forms.SITUATIONS}


@dataclass(frozen=True, slots=True)
class Program:
    """A program.

    Attributes:
        files: the sources by the name of the module; `main` runs.
        kinds: the kinds of code in it.
        gpus: the number of GPUs that it needs.
    """

    files: dict[str, str]
    kinds: tuple[str, ...] = ()
    gpus: int = 2


def program(random: Random) -> Program:
    """Return a random program."""
    return Maker(random).program()


def indented(lines: Lines, depth: int = 1) -> Lines:
    """Return lines as the block of a statement."""
    return ["    " * depth + line if line else line for line in lines]


class Maker:
    """Makes one program."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.kinds: list[str] = []
        self.files: dict[str, str] = {}
        self.imports: dict[str, None] = {}
        self.in_async = False  # whether the code runs inside `asyncio.run`
        self.at_top = True  # whether names that are bound are the module's
        self.used: set[str] = set()

    # -- choices

    def pick(self, what: str, **ways: Callable[..., object]) -> Callable[..., object]:
        """Choose a way, and note its kind."""
        name = self.random.choice([*ways])
        self.kinds.append(f"{what}: {name.strip('_').replace('_', ' ')}")
        return ways[name]

    def one_of(self, what: str, choices: Sequence[str]) -> str:
        """Choose a text, which is its own kind."""
        chosen = self.random.choice(choices)
        self.kinds.append(f"{what}: {' '.join(chosen.split())[:60]}")
        return chosen

    def chance(self, probability: float) -> bool:
        """Return True with a probability."""
        return self.random.random() < probability

    def name(self, role: str) -> str:
        """Return a name that this situation does not use yet: a typical, a misleading, or a random one."""
        for _ in range(20):
            draw = self.random.random()
            if draw < 0.5:
                name, kind = self.random.choice(TYPICAL[role]), "typical"
            elif draw < 0.7 and role != "class":
                name, kind = self.random.choice(MISLEADING), "misleading"
            else:
                name, kind = f"{self.random.choice('abcdefgpqrstuvwz')}{self.random.randint(1, 99)}", "random"
                name = name.upper() if role == "class" else name
            if name not in self.used and name not in RESERVED:
                self.used.add(name)
                self.kinds.append(f"name: {kind}")
                return name
        return self.fresh()

    def fresh(self) -> str:
        """Return a name that is not used at all."""
        name = f"v{len(self.used)}_{self.random.randint(100, 999)}"
        self.used.add(name)
        return name

    def need(self, line: str) -> None:
        """Import something at the top."""
        self.imports[line] = None

    # -- the program

    def program(self) -> Program:
        """Make the program."""
        count = self.random.choice((1, 1, 1, 2, 2, 3, 4))
        blocks = [self.placed() for _ in range(count)]
        before = self.surroundings() if self.chance(0.35) else []
        after = self.surroundings() if self.chance(0.15) else []
        body = [*before, *(line for block in blocks for line in block), *after]
        text = "\n".join([*self.beginning(body), *body, ""])
        files = {"main": Dress(self)(text)}
        every = "\n".join((text, *self.files.values()))
        second = re.search(
            r"cuda:1|cuda\(1|% 1|'1'|device\(1|= 1\b|0, ?1|count\(\)|'cuda', 1|\{1\}|range\(2\)|cuda\(n\)",
            every,
        )
        gpus = 2 if second or self.chance(0.5) else 1
        kinds = (*self.kinds, f"situations: {count}", f"GPUs: {gpus}")
        return Program({**self.files, **files}, kinds, gpus)

    def beginning(self, body: Lines) -> Lines:
        """Return the imports, in some form and order."""
        others = [*self.imports]
        self.random.shuffle(others)
        shadowed = re.search(
            r"\b(range|sum|max|min|abs|all|any|float|int|bool|pow|round|hash)\b", "\n".join(body)
        )
        torch = self.one_of(
            "import",
            (
                "import torch",
                "import torch",
                "import torch",
                "import torch, math",
                "import torch\nimport torch.cuda",
                "import torch; import math",
                "try:\n    import torch\nexcept ImportError:\n    torch = None",
                "if True:\n    import torch",
                "from math import *\nimport torch" if shadowed else "from torch import *\nimport torch",
                "import torch as torch",
                "import math\nimport torch  # the library",
                "with __import__('contextlib').suppress(ImportError):\n    import torch",
                "global torch\nimport torch",
            ),
        )
        start = self.random.choice(([], [], ['"""A program."""'], ["# a program"], ["#!/usr/bin/env python"]))
        future = ["from __future__ import annotations"] if self.chance(0.1) else []
        first = [*others, *torch.split("\n")] if self.chance(0.5) else [*torch.split("\n"), *others]
        blank = [""] if self.chance(0.7) else []
        return [*start, *future, *first, *blank]

    def placed(self) -> Lines:
        """Return a situation, in a random place."""
        self.used = set()
        place = self.pick("place", **_PLACES)
        kind = self.random.choice([*_KINDS, *meaning_forms.SITUATIONS])

        def body(**changes: bool) -> Lines:
            before = {name: getattr(self, name) for name in changes}
            for name, value in changes.items():
                setattr(self, name, value)
            lines = self.varied(_KINDS[kind](self))
            for name, value in before.items():
                setattr(self, name, value)
            return lines

        self.kinds.append(f"situation: {kind.replace('_', ' ')}")
        lines = place(self, body)
        assert isinstance(lines, list)
        return lines

    def varied(self, lines: Lines) -> Lines:
        """Return a situation with other names, bindings and expressions, and maybe in a block."""
        local = [] if self.at_top or not self.chance(0.15) else self.surroundings()
        lines = [*local, *"\n".join(lines).split("\n")]
        for change in (self.rebound, self.renamed, self.reworded):
            text = change("\n".join(lines))
            if _compiles_inside(text):
                lines = text.split("\n")
        return _wrapped(self, lines) if self.chance(0.15) else lines

    def surroundings(self) -> Lines:
        """Return statements that choose a device, or bind a name as if they did."""
        return self.one_of("surroundings", SURROUNDINGS).split("\n")

    def rebound(self, text: str) -> str:
        """Replace some assignments by other bindings of the same name."""

        def other(match: re.Match[str]) -> str:
            spaces, name, value = match.groups()
            if not self.chance(0.12) or not _compiles_inside(f"{name} = {value}"):
                return match.group()
            form = self.one_of("other binding", REBINDINGS)
            if form.startswith("NAME = None") and re.search(rf"\b{name}\b", value):
                return match.group()  # the value is made of the one before
            new = form.replace("NAME", name).replace("VALUE", value)
            return spaces + new.replace("\n", "\n" + spaces)

        return re.sub(r"(?m)^( *)([a-z_]\w*) = (.*[^\\,;(\[{])$", other, text)

    def renamed(self, text: str) -> str:
        """Rename a variable of the situation."""
        names = sorted(set(re.findall(r"(?m)^ *(?:for )?([a-z]\w*)(?:, \w+)?(?: =| in) ", text)))
        if not names or not self.chance(0.3):
            return text
        old, new = (
            self.random.choice(names),
            self.random.choice((*MISLEADING, f"q{self.random.randint(1, 99)}")),
        )
        if re.search(
            rf"\b{new}\b|[(, ]{old}=[^=]|['\"]{old}\b|\b{old}['\"]|import.*\b{old}\b|__{old}__", text
        ):
            return text
        self.kinds.append("name: changed")
        self.used.add(new)
        return re.sub(rf"(?<![.\w]){old}\b", new, text)

    def reworded(self, text: str) -> str:
        """Replace some expressions by others of the same value."""

        def moved(match: re.Match[str]) -> str:
            if not self.chance(0.08):
                return match.group()
            form = self.one_of("other call", RECALLS)
            return form.replace("X", match[1]).replace("ARGS", match[2])

        def device(match: re.Match[str]) -> str:
            return f"({self.one_of('other device', SAME_DEVICES)})" if self.chance(0.08) else match.group()

        text = re.sub(r"(?<![\w.)\]])((?:torch\.)?\w+(?:\([\w.,: ]*\))?)\.cuda\(([^()]*)\)", moved, text)
        return re.sub(r"(?<=[(=, ])'cuda'(?=[,) \n])", device, text)

    # -- how a value is bound

    def bound(self, value: str, role: str, body: Body) -> Lines:
        """Bind a value in a random way, and continue with code that reads it."""
        way = self.pick("binding", **_BINDINGS)
        name = self.name(role)
        lines = way(self, name, value, body)
        assert isinstance(lines, list)
        return lines

    def inside(self, value: str, role: str, use: Callable[[str], str]) -> str:
        """Return an expression that binds a value in a random way, and reads it."""
        name = self.name(role)
        form = self.one_of(
            "binding in an expression",
            (
                "[{u} for {n} in [{v}]][0]",
                "next({u} for {n} in ({v},))",
                "(lambda {n}: {u})({v})",
                "(lambda {n}={v}: {u})()",
                "(lambda *{n}: {s})({v})",
                "({n} := {v}, {u})[1]",
                "{{0: {u} for {n} in [{v}]}}[0]",
                "[{u} for {n}, _ in [({v}, 0)]][0]",
                "list(map(lambda {n}: {u}, [{v}]))[0]",
                "[{u} for _ in range(1) for {n} in [{v}] if {n} is not None][0]",
                "(lambda *, {n}: {u})({n}={v})",
                "(lambda {n}: lambda: {u})({v})()",
            ),
        )
        if not self.at_top and ":=" in form:
            form = "[{u} for {n} in [{v}]][0]"
        return form.format(n=name, v=value, u=use(name), s=use(f"{name}[0]"))

    # -- values

    def tensor(self) -> str:
        """Return an expression for a tensor on the CPU."""
        return self.one_of(
            "tensor",
            (
                "torch.ones(3)",
                "torch.arange(4.0)",
                "torch.randn(2, 2)",
                "torch.tensor([1.0, 2.0])",
                "torch.rand(3) + 1",
                "torch.zeros(2, 3)",
                "torch.full((2,), 3.0)",
                "torch.eye(2)",
                "torch.linspace(0, 1, 5)",
                "torch.ones(2, 2).t()",
                "torch.randperm(4).float()",
                "torch.FloatTensor([1, 2, 3])",
            ),
        )

    def module(self) -> str:
        """Return an expression for a module."""
        return self.one_of(
            "module",
            (
                "torch.nn.Linear(2, 2)",
                "torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.ReLU(), torch.nn.Linear(3, 2))",
                "torch.nn.ModuleList([torch.nn.Linear(2, 2)])[0]",
                "torch.nn.Linear(2, 2).eval()",
                "torch.nn.Linear(2, 2).double().float()",
            ),
        )

    def seen(self, tensor: str) -> Lines:
        """Return statements that print a tensor."""
        form = self.one_of(
            "print",
            (
                "print({t})",
                "print({t}.device, {t}.sum().item())",
                "print(({t} + 1).cpu().numpy().tolist())",
                'print(f"{{{t}.device}} {{{t}.sum():.3f}}")',
                "print(str({t}.device), {t}.tolist())",
                "print({t}.sum(), {t}.dtype, {t}.shape)",
                "print(({t} * torch.ones_like({t})).sum())",
                "print({t}.cpu().tolist()); print({t}.device.type)",
                "print('%s %.3f' % ({t}.device, {t}.sum()))",
                "print(float({t}.sum()) if {t}.numel() else 0.0, {t}.device)",
                "for row in {t}.reshape(-1)[:2]: print(row.item(), row.device)",
            ),
        )
        return form.format(t=tensor).split("; ")

    def cuda_device(self, kinds: Sequence[str] = ("str", "device", "int")) -> tuple[str, str]:
        """Return an expression for a CUDA device, and "str", "device" or "int"."""
        kind = self.random.choice(kinds)
        form = self.one_of(f"device ({kind})", DEVICES[kind])
        for module in ("os", "types", "itertools"):
            if re.search(rf"\b{module}\.", form):
                self.need(f"import {module}")
        return form, kind

    def moved(self, tensor: str) -> str:
        """Return an expression that moves a tensor to CUDA."""
        form = self.one_of("move", MOVES)
        for module in ("functools", "operator"):
            if f"{module}." in form:
                self.need(f"import {module}")
        if "DEV" in form:
            form = form.replace("DEV", self.cuda_device()[0])
        return form.replace("TENSOR", tensor)


# -- places ----------------------------------------------------------------------------------------------


def _at_top(_: Maker, body: Callable[..., Lines]) -> Lines:
    return body()


def _in_function(m: Maker, body: Callable[..., Lines]) -> Lines:
    name = m.name("function")
    return [f"def {name}():", *indented(body(at_top=False)), "", f"{name}()"]


def _under_main(m: Maker, body: Callable[..., Lines]) -> Lines:
    name = m.name("function")
    inner = body(at_top=False)
    return [f"def {name}():", *indented(inner), "", 'if __name__ == "__main__":', f"    {name}()"]


def _in_main_guard(_: Maker, body: Callable[..., Lines]) -> Lines:
    return ['if __name__ == "__main__":', *indented(body())]


def _in_method(m: Maker, body: Callable[..., Lines]) -> Lines:
    kind, name = m.name("class"), m.name("function")
    inner = indented(body(at_top=False), 2)
    form = m.random.choice(
        (
            [f"    def {name}(self):", *inner, "", f"{kind}().{name}()"],
            ["    @staticmethod", f"    def {name}():", *inner, "", f"{kind}.{name}()"],
            ["    @classmethod", f"    def {name}(cls):", *inner, "", f"{kind}.{name}()"],
            ["    def __init__(self):", *inner, "", f"{kind}()"],
            ["    def __call__(self):", *inner, "", f"{kind}()()"],
            ["    @property", f"    def {name}(self):", *inner, "", f"{kind}().{name}"],
        )
    )
    return [f"class {kind}:", *form]


def _in_nested_function(m: Maker, body: Callable[..., Lines]) -> Lines:
    outer, inner = m.name("function"), m.name("function")
    code = body(at_top=False)
    return [
        f"def {outer}():",
        f"    def {inner}():",
        *indented(code, 2),
        f"    return {inner}",
        "",
        f"{outer}()()",
    ]


_HEADERS = (
    ("if True:",),
    ("if not False:",),
    ("for _ in range(1):",),
    ("while True:", "break"),
    ("try:", "finally:\n    pass"),
    ("try:", "except (ValueError, IndexError):\n    pass"),
    ("try:", "except KeyError:\n    pass\nelse:\n    pass"),
    ("with __import__('contextlib').nullcontext():",),
    ("if False:\n    pass\nelse:",),
    ("if 1 > 2:\n    pass\nelif 2 > 1:",),
    ("for _ in ():\n    pass\nelse:",),
    ("match 1:\n    case 1:",),
    ("try:\n    raise KeyError\nexcept KeyError:",),
    ("try:\n    pass\nfinally:",),
    ("with torch.no_grad():",),
)


def _wrapped(m: Maker, lines: Lines) -> Lines:
    """Put statements into a block that runs once."""
    header, *end = m.random.choice(_HEADERS)
    m.kinds.append(f"block: {' / '.join(' '.join(part.split()) for part in (header, *end))}")
    *before, last = header.split("\n")
    depth = 1 + (len(last) - len(last.lstrip())) // 4
    end = end[0].split("\n") if end else []
    if end == ["break"]:
        return [*before, last, *indented([*lines, "break"])]
    return [*before, last, *indented(lines, depth), *end]


def _in_block(m: Maker, body: Callable[..., Lines]) -> Lines:
    return _wrapped(m, body())


def _in_function_of_block(m: Maker, body: Callable[..., Lines]) -> Lines:
    name = m.name("function")
    return _wrapped(m, [f"def {name}():", *indented(body(at_top=False)), f"{name}()"])


def _in_block_of_function(m: Maker, body: Callable[..., Lines]) -> Lines:
    name = m.name("function")
    return [f"def {name}():", *indented(_wrapped(m, body(at_top=False))), "", f"{name}()"]


def _in_async_function(m: Maker, body: Callable[..., Lines]) -> Lines:
    m.need("import asyncio")
    name = m.name("function")
    code = indented(body(at_top=False, in_async=True))
    return [f"async def {name}():", *code, "", f"asyncio.run({name}())"]


def _in_decorated_function(m: Maker, body: Callable[..., Lines]) -> Lines:
    name = m.name("function")
    decorator = m.one_of(
        "decorator",
        ("@(lambda f: f())", "@torch.no_grad()", "@staticmethod", "@__import__('functools').cache"),
    )
    call = [] if "lambda" in decorator else ["", f"{name}()"]
    return [decorator, f"def {name}():", *indented(body(at_top=False)), *call]


def _in_generator(m: Maker, body: Callable[..., Lines]) -> Lines:
    name = m.name("function")
    code = [*body(at_top=False), "yield 1"]
    return [f"def {name}():", *indented(code), "", f"print(sum({name}()))"]


def _in_class_body(m: Maker, body: Callable[..., Lines]) -> Lines:
    return [f"class {m.name('class')}:", *indented(["pass"] if m.in_async else _in_function_of(m, body))]


def _in_function_of(m: Maker, body: Callable[..., Lines]) -> Lines:
    name = m.name("function")
    return [f"def {name}():", *indented(body(at_top=False)), f"{name}()"]


def _in_callback(m: Maker, body: Callable[..., Lines]) -> Lines:
    name, other = m.name("function"), m.name("function")
    code = indented(body(at_top=False))
    return [f"def {name}(_=None):", *code, "", f"{other} = [{name}]", f"for call in {other}: call()"]


_PLACES: dict[str, Callable[..., object]] = {
    "at_module_level": _at_top,
    "at_module_level_": _at_top,
    "in_a_function": _in_function,
    "in_a_function_": _in_function,
    "in_main": _under_main,
    "under_the_main_guard": _in_main_guard,
    "in_a_method": _in_method,
    "in_a_nested_function": _in_nested_function,
    "in_a_block": _in_block,
    "in_a_function_of_a_block": _in_function_of_block,
    "in_a_block_of_a_function": _in_block_of_function,
    "in_an_async_function": _in_async_function,
    "in_a_decorated_function": _in_decorated_function,
    "in_a_generator": _in_generator,
    "in_a_function_of_a_class_body": _in_class_body,
    "in_a_callback": _in_callback,
}


# -- bindings --------------------------------------------------------------------------------------------


def _lines(*forms: str) -> Callable[[Maker, str, str, Body], Lines]:
    """Return a binding by statements, after which the name is bound."""

    def bind(m: Maker, n: str, v: str, body: Body) -> Lines:
        form = m.random.choice(forms)
        return [*form.replace("NAME", n).replace("VALUE", v).split("\n"), *body(n)]

    return bind


def _around(*forms: str) -> Callable[[Maker, str, str, Body], Lines]:
    """Return a binding by a statement whose block reads the name."""

    def bind(m: Maker, n: str, v: str, body: Body) -> Lines:
        text = m.random.choice(forms).replace("NAME", n).replace("VALUE", v)
        found: Lines = []
        for line in text.split("\n"):
            depth = (len(line) - len(line.lstrip())) // 4
            found += indented(body(n), depth) if line.strip() == "BODY" else [line]
        return found

    return bind


def _as(*forms: str) -> Callable[[Maker, str, str, Body], Lines]:
    """Return a binding after which the value has another name, which the form's last line is."""

    def bind(m: Maker, n: str, v: str, body: Body) -> Lines:
        text = m.random.choice(forms).replace("NAME", n).replace("VALUE", v)
        text = (
            re.sub(r"OTHER|KIND", lambda match: other[match.group()], text)
            if (other := {"OTHER": m.name("other"), "KIND": m.name("class")})
            else text
        )
        *lines, reference = text.split("\n")
        return [*lines, *body(reference)]

    return bind


def _parameter(m: Maker, n: str, v: str, body: Body) -> Lines:
    form = m.one_of(
        "parameter",
        (
            "def F(NAME):\nF(VALUE)",
            "def F(NAME):\nF(NAME=VALUE)",
            "def F(NAME=VALUE):\nF()",
            "def F(*, NAME):\nF(NAME=VALUE)",
            "def F(*, NAME=VALUE):\nF()",
            "def F(NAME, /):\nF(VALUE)",
            "def F(NAME: object = None):\nF(VALUE)",
            "def F(NAME=None):\nF(VALUE)",
            "def F(a=1, NAME=None):\nF(NAME=VALUE)",
            "def F(a, NAME):\nF(1, VALUE)",
            "def F(a, NAME):\nF(*[1, VALUE])",
            "def F(NAME):\nF(**{'NAME': VALUE})",
            "def F(NAME):\n__import__('functools').partial(F, VALUE)()",
            "def F(NAME):\n[F(w) for w in [VALUE]]",
            "def F(NAME):\nlist(map(F, [VALUE]))",
            "def F(NAME):\nG = F\nG(VALUE)",
        ),
    )
    function, other = m.name("function"), m.name("function")
    form = re.sub(r"\bF\b", function, form.replace("NAME", n).replace("VALUE", v))
    header, *calls = re.sub(r"\bG\b", other, form).split("\n")
    before, m.at_top = m.at_top, False
    code = indented(body(n))
    m.at_top = before
    return [header, *code, *calls]


def _variable_parameter(m: Maker, n: str, v: str, body: Body) -> Lines:
    function = m.name("function")
    before, m.at_top = m.at_top, False
    if m.chance(0.5):
        lines = [f"def {function}(*{n}):", *indented(body(f"{n}[0]")), f"{function}({v})"]
    else:
        lines = [f"def {function}(**{n}):", *indented(body(f"{n}['k']")), f"{function}(k={v})"]
    m.at_top = before
    return lines


def _closure(m: Maker, n: str, v: str, body: Body) -> Lines:
    outer, inner = m.name("function"), m.name("function")
    before, m.at_top = m.at_top, False
    code = indented(body(n), 2)
    m.at_top = before
    late = m.chance(0.3)
    binding = [f"    {n} = {v}"]
    return [
        f"def {outer}():",
        *([] if late else binding),
        f"    def {inner}():",
        *code,
        *(binding if late else []),
        f"    return {inner}()",
        f"{outer}()",
    ]


def _nonlocal(m: Maker, n: str, v: str, body: Body) -> Lines:
    outer, inner = m.name("function"), m.name("function")
    before, m.at_top = m.at_top, False
    code = indented(body(n))
    m.at_top = before
    return [
        f"def {outer}():",
        f"    {n} = None",
        f"    def {inner}():",
        f"        nonlocal {n}",
        f"        {n} = {v}",
        f"    {inner}()",
        *code,
        f"{outer}()",
    ]


def _global(m: Maker, n: str, v: str, body: Body) -> Lines:
    function = m.name("function")
    lines = [f"def {function}():", f"    global {n}", f"    {n} = {v}", f"{function}()"]
    if not m.at_top:  # the block that follows may be in a function that binds the name
        return [*lines, *_in_scope(m, n, body)]
    return [*lines, *body(n)]


def _in_scope(m: Maker, n: str, body: Body) -> Lines:
    function = m.name("function")
    return [f"def {function}():", f"    global {n}", *indented(body(n)), f"{function}()"]


def _self(m: Maker, n: str, v: str, body: Body) -> Lines:
    kind, function = m.name("class"), m.name("function")
    before, m.at_top = m.at_top, False
    code = indented(body(f"self.{n}"), 2)
    m.at_top = before
    init = m.random.choice(
        (
            ["    def __init__(self):", f"        self.{n} = {v}"],
            [f"    def __init__(self, {n}={v}):", f"        self.{n} = {n}"],
            ["    def __init__(self):", f"        setattr(self, '{n}', {v})"],
            ["    @property", f"    def {n}(self):", f"        return {v}"],
            ["    @__import__('functools').cached_property", f"    def {n}(self):", f"        return {v}"],
            ["    def __getattr__(self, name):", f"        return {v}"],
        )
    )
    lines = [*init, f"    def {function}(self):", *code]
    if m.chance(0.3):
        lines = [f"    def {function}(self):", *code, *init]
    return [f"class {kind}:", *lines, f"{kind}().{function}()"]


def _import(m: Maker, n: str, v: str, body: Body) -> Lines:
    """Bind in another module, if the value is made of torch alone."""
    if not re.fullmatch(r"torch\.[\s\d.()\[\],\"'=]*(?:[a-zA-Z_.]+\([\d.,' \[\]cuda:]*\)[.\s]*)*", v):
        return _lines("NAME = VALUE")(m, n, v, body)
    module = f"other{len(m.files)}"
    m.files[module] = f"import torch\n\n{n} = {v}\n"
    form = m.one_of(
        "import of a value",
        (
            "from {f} import {n}",
            "import {f}\n{n} = {f}.{n}",
            "from {f} import *",
            "import {f}",
            "import {f} as {o}",
        ),
    )
    if "*" in form and not m.at_top:
        form = "from {f} import {n}"
    other = m.name("other")
    lines = form.format(f=module, n=n, o=other).split("\n")
    whole = len(lines) == 1 and lines[0].startswith("import")
    reference = f"{other if ' as ' in form else module}.{n}" if whole else n
    return [*lines, *body(reference)]


def _async_value(m: Maker, n: str, v: str, body: Body) -> Lines:
    function = m.name("function")
    define = [f"async def {function}():", f"    return {v}"]
    if m.in_async:
        return [*define, f"{n} = await {function}()", *body(n)]
    m.need("import asyncio")
    return [*define, f"{n} = asyncio.run({function}())", *body(n)]


_BINDINGS: dict[str, Callable[..., object]] = {
    "assignment": _lines("NAME = VALUE"),
    "assignment_": _lines("NAME = VALUE"),
    "assignment__": _lines("NAME = VALUE"),
    "tuple": _lines(
        "NAME, _ = VALUE, 1",
        "_, NAME = 1, VALUE",
        "[NAME, _] = [VALUE, 1]",
        "(NAME, _), _ = (VALUE, 1), 2",
        "NAME, = VALUE,",
        "_, (NAME, *_) = 0, (VALUE, 1)",
    ),
    "starred": _lines("NAME, *_ = VALUE, 1, 2", "*_, NAME = 1, 2, VALUE"),
    "chained_assignment": _lines("NAME = _ = VALUE", "_ = NAME = VALUE"),
    "annotated_assignment": _lines("NAME: object = VALUE", "NAME: object\nNAME = VALUE"),
    "walrus": _lines(
        "if (NAME := VALUE) is not None: pass", "print(len([NAME := VALUE]))", "(NAME := VALUE)"
    ),
    "walrus_in_while": _around("while (NAME := VALUE) is not None:\n    BODY\n    break"),
    "for": _lines("for NAME in [VALUE]: pass", "for NAME in (VALUE,):\n    pass"),
    "for_around": _around("for NAME in [VALUE]:\n    BODY", "for _, NAME in enumerate([VALUE]):\n    BODY"),
    "with_as": _around(
        "with __import__('contextlib').nullcontext(VALUE) as NAME:\n    BODY",
        "with __import__('contextlib').nullcontext((VALUE, 1)) as (NAME, _):\n    BODY",
    ),
    "with_as_after": _lines("with __import__('contextlib').nullcontext(VALUE) as NAME: pass"),
    "except_as": _around(
        "try:\n    raise ValueError(VALUE)\nexcept ValueError as e:\n    NAME = e.args[0]\n    BODY"
    ),
    "match_name": _around("match VALUE:\n    case NAME:\n        BODY"),
    "match_as": _around("match VALUE:\n    case object() as NAME:\n        BODY"),
    "match_sequence": _around(
        "match [VALUE, 1]:\n    case [NAME, _]:\n        BODY",
        "match [1, VALUE]:\n    case [_, *NAME]:\n        NAME = NAME[0]\n        BODY",
        "match (VALUE, 1):\n    case (NAME, 2) | (NAME, 1):\n        BODY",
    ),
    "match_mapping": _around(
        "match {'k': VALUE}:\n    case {'k': NAME}:\n        BODY",
        "match {'k': VALUE, 'j': 1}:\n    case {'j': _, **NAME}:\n        NAME = NAME['k']\n        BODY",
    ),
    "match_class": _around(
        "match __import__('types').SimpleNamespace(k=VALUE):\n    case object(k=NAME):\n        BODY"
    ),
    "match_after": _lines(
        "match VALUE:\n    case NAME: pass", "match {'k': VALUE}:\n    case {'k': NAME}: pass"
    ),
    "match_in_other_branch": _lines(
        "match 1:\n    case 2 as NAME:\n        pass\n    case _:\n        NAME = VALUE"
    ),
    "parameter": _parameter,
    "parameter_": _parameter,
    "variable_parameter": _variable_parameter,
    "closure": _closure,
    "nonlocal": _nonlocal,
    "global": _global,
    "attribute_of_self": _self,
    "attribute_of_self_": _self,
    "class_attribute": _as(
        "class KIND:\n    NAME = VALUE\nKIND.NAME", "class KIND:\n    NAME = VALUE\nKIND().NAME"
    ),
    "attribute": _as(
        "OTHER = __import__('types').SimpleNamespace(NAME=VALUE)\nOTHER.NAME",
        "class KIND: pass\nOTHER = KIND()\nOTHER.NAME = VALUE\nOTHER.NAME",
        "OTHER = __import__('argparse').Namespace()\nOTHER.NAME = VALUE\nOTHER.NAME",
    ),
    "dataclass": _as(
        "import dataclasses\n@dataclasses.dataclass\nclass KIND:\n    NAME: object = None\n"
        "OTHER = KIND(VALUE)\nOTHER.NAME",
        "from dataclasses import dataclass\n@dataclass\nclass KIND:\n    NAME: object\n"
        "OTHER = KIND(NAME=VALUE)\nOTHER.NAME",
        "import collections\nKIND = collections.namedtuple('KIND', ['NAME'])\n"
        "OTHER = KIND(VALUE)\nOTHER.NAME",
    ),
    "entry": _as(
        "OTHER = {'NAME': VALUE}\nOTHER['NAME']",
        "OTHER = dict(NAME=VALUE)\nOTHER['NAME']",
        "OTHER = {}\nOTHER['NAME'] = VALUE\nOTHER['NAME']",
        "OTHER = [VALUE]\nOTHER[0]",
        "OTHER = [VALUE, VALUE]\nOTHER[-1]",
        "OTHER = []\nOTHER.append(VALUE)\nOTHER[0]",
        "OTHER = (VALUE, 1)\nOTHER[0]",
        "OTHER = {'NAME': VALUE}\nOTHER.get('NAME')",
    ),
    "returned": _as(
        "def OTHER():\n    return VALUE\nNAME = OTHER()\nNAME",
        "OTHER = lambda: VALUE\nNAME = OTHER()\nNAME",
        "def OTHER():\n    NAME = VALUE\n    return NAME\nOTHER()",
        "def OTHER():\n    return VALUE, 1\nNAME, _ = OTHER()\nNAME",
        "@(lambda f: f())\ndef NAME():\n    return VALUE\nNAME",
    ),
    "yielded": _as(
        "def OTHER():\n    yield VALUE\nNAME = next(OTHER())\nNAME",
        "def OTHER():\n    yield VALUE\nfor NAME in OTHER(): pass\nNAME",
    ),
    "conditional": _lines(
        "NAME = VALUE if True else None",
        "NAME = None or VALUE",
        "if True:\n    NAME = VALUE\nelse:\n    NAME = None",
        "try:\n    NAME = VALUE\nexcept ValueError:\n    NAME = None",
        "NAME = None\nif NAME is None:\n    NAME = VALUE",
        "NAME = None\nNAME = NAME or VALUE",
    ),
    "alias": _as("NAME = VALUE\nOTHER = NAME\nOTHER", "OTHER = NAME = VALUE\nNAME = None\nOTHER"),
    "comprehension": _lines("NAME = [_ for _ in [VALUE]][0]", "[NAME := _ for _ in [VALUE]]"),
    "import": _import,
    "awaited": _async_value,
    "deleted_and_bound_again": _lines("NAME = 1\ndel NAME\nNAME = VALUE"),
    "special_method": _as(
        "class KIND:\n    def __get__(self, *_): return VALUE\nclass OTHER: NAME = KIND()\nOTHER().NAME",
        "class KIND:\n    def __getitem__(self, key): return VALUE\nOTHER = KIND()\nOTHER[0]",
        "class KIND:\n    def __call__(self): return VALUE\nOTHER = KIND()\nOTHER()",
        "class KIND:\n    def __iter__(self): yield VALUE\nNAME, = KIND()\nNAME",
        "class KIND(dict):\n    def __missing__(self, key): return VALUE\nOTHER = KIND()\nOTHER['NAME']",
        "class KIND:\n    def __enter__(self): return VALUE\n    def __exit__(self, *_): pass\n"
        "with KIND() as OTHER: pass\nOTHER",
        "class KIND:\n    def __init_subclass__(cls, NAME=None): cls.NAME = NAME\n"
        "class OTHER(KIND, NAME=VALUE): pass\nOTHER.NAME",
    ),
    "record": _as(
        "import dataclasses\n@dataclasses.dataclass\nclass KIND:\n"
        "    NAME: object = dataclasses.field(default_factory=lambda: VALUE)\nKIND().NAME",
        "import dataclasses\n@dataclasses.dataclass(frozen=True)\nclass KIND:\n    NAME: object = None\n"
        "OTHER = dataclasses.replace(KIND(), NAME=VALUE)\nOTHER.NAME",
        "import dataclasses\n@dataclasses.dataclass\nclass KIND:\n    NAME: object = None\n"
        "    def __post_init__(self): self.NAME = VALUE\nKIND().NAME",
        "import typing\nclass KIND(typing.NamedTuple):\n    NAME: object = None\n"
        "OTHER = KIND()._replace(NAME=VALUE)\nOTHER.NAME",
        "import typing\nclass KIND(typing.TypedDict):\n    NAME: object\n"
        "OTHER = KIND(NAME=VALUE)\nOTHER['NAME']",
        "import enum\nclass KIND(enum.Enum):\n    NAME = VALUE\nKIND.NAME.value",
        "class KIND:\n    __slots__ = ('NAME',)\n    def __init__(self, w): self.NAME = w\nKIND(VALUE).NAME",
        "OTHER = type('OTHER', (), {'NAME': VALUE})\nOTHER.NAME",
        "class KIND: pass\nfor _, OTHER in {'NAME': VALUE}.items(): setattr(KIND, _, OTHER)\nKIND.NAME",
        "OTHER = __import__('collections').ChainMap({'NAME': VALUE})\nOTHER['NAME']",
        "OTHER = __import__('collections').defaultdict(lambda: VALUE)\nOTHER['NAME']",
        "OTHER = lambda: OTHER.NAME\nOTHER.NAME = VALUE\nOTHER()",
    ),
    "passed_on": _as(
        "@__import__('contextlib').contextmanager\ndef KIND(): yield VALUE\n"
        "with KIND() as OTHER: pass\nOTHER",
        "with __import__('contextlib').ExitStack() as OTHER:\n"
        "    NAME = OTHER.enter_context(__import__('contextlib').nullcontext(VALUE))\nNAME",
        "def KIND():\n    NAME = yield\n    while True: NAME = yield NAME\n"
        "OTHER = KIND(); next(OTHER)\nNAME = OTHER.send(VALUE)\nNAME",
        "def KIND(w): yield from w\nNAME, = KIND([VALUE])\nNAME",
        "NAME = __import__('functools').reduce(lambda _, w: w, [None, VALUE])\nNAME",
        "NAME = __import__('operator').itemgetter('NAME')({'NAME': VALUE})\nNAME",
        "def KIND():\n    try: return VALUE\n    finally: pass\nNAME = KIND()\nNAME",
        "def KIND():\n    try: return None\n    finally: return VALUE\nNAME = KIND()\nNAME",
        "class KIND:\n    def OTHER(self, w): return w\n"
        "    NAME = __import__('functools').partialmethod(OTHER, VALUE)\nKIND().NAME()",
        "def KIND(w): return lambda: w\nNAME = KIND(VALUE)()\nNAME",
        "def KIND(w=VALUE, /, *_, **OTHER): return w\nNAME = KIND(NAME=1)\nNAME",
    ),
}


# -- the form --------------------------------------------------------------------------------------------


class Dress:
    """Changes the form of a program."""

    def __init__(self, maker: Maker) -> None:
        self._maker = maker
        self._random = maker.random

    def __call__(self, text: str) -> str:
        """Return the program in a random form."""
        for kind, way in self._ways().items():
            if self._random.random() < 0.15:
                other = way(text)
                if other != text and _compiles(other):
                    self._maker.kinds.append(f"form: {kind}")
                    text = other
        return text

    def _ways(self) -> dict[str, Callable[[str], str]]:
        return {
            "comments": self._comments,
            "continuation lines": lambda text: re.sub(
                r"^( *\w+) = ", r"\1 = \\\n      ", text, count=1, flags=re.M
            ),
            "brackets over lines": self._brackets,
            "semicolons": lambda text: re.sub(
                r"^( *)(\w+ = [^\n#]*)\n\1(?=print)", r"\1\2; ", text, flags=re.M
            ),
            "joined statements": self._joined,
            "one-line blocks": lambda text: re.sub(
                r"^((?: *)(?:if|for|with|else)\b[^\n]*:)\n +(\w[^\n:]*)$", r"\1 \2", text, count=1, flags=re.M
            ),
            "double quotes": lambda text: re.sub(r"'(\w*)'", r'"\1"', text),
            "two spaces": lambda text: self._indentation(text, "  "),
            "tabs": lambda text: self._indentation(text, "\t"),
            "eight spaces": lambda text: self._indentation(text, " " * 8),
            "blank lines": lambda text: re.sub(r"\n(?=\S)", "\n\n", text),
            "spaces around dots": lambda text: text.replace(".cuda()", " . cuda ( )", 1),
            "another name of torch": self._renamed,
            "windows lines": lambda text: text.replace("\n", "\r\n"),
            "no end of line": lambda text: text.rstrip("\n"),
            "torch.nn as nn": lambda text: self._after_import(
                text.replace("torch.nn.", "nn."), "from torch import nn"
            ),
        }

    def _after_import(self, text: str, line: str) -> str:
        new, count = re.subn(
            r"^( *)import torch\b(.*)$", rf"\1import torch\2\n\1{line}", text, count=1, flags=re.M
        )
        return new if count else "syntax error"

    def _renamed(self, text: str) -> str:
        if "import torch\n" not in text or "'torch" in text or '"torch' in text or "from torch" in text:
            return text
        return (
            re.sub(r"\btorch\b(?!\s*=)", "th", text)
            .replace("import th\n", "import torch as th\n")
            .replace("import th.", "import torch.")
        )

    def _indentation(self, text: str, unit: str) -> str:
        return re.sub(r"^(?:    )+", lambda match: unit * (len(match.group()) // 4), text, flags=re.M)

    def _comments(self, text: str) -> str:
        lines = text.split("\n")
        for number in range(self._random.randint(1, 5)):
            index = self._random.randrange(len(lines))
            line = lines[index]
            spaces = line[: len(line) - len(line.lstrip())]
            new = (
                f"{line}  # remark {number}"
                if self._random.random() < 0.5
                else f"{spaces}# remark {number}\n{line}"
            )
            other = "\n".join([*lines[:index], new, *lines[index + 1 :]])
            if _compiles(other):
                lines = other.split("\n")
        return "\n".join(lines)

    def _brackets(self, text: str) -> str:
        places = list(re.finditer(r"\((?=[^()\n]+\))", text))
        if not places:
            return text
        place = self._random.choice(places)
        new = self._random.choice(("(\n            ", "(  # why\n            "))
        return text[: place.start()] + new + text[place.end() :]

    def _joined(self, text: str) -> str:
        places = list(re.finditer(r"(?m)^( *)[^\s#][^#\n]*[\w)\]](\n\1)(?=\w)", text))
        self._random.shuffle(places)
        for place in places[:3]:
            other = text[: place.start(2)] + "; " + text[place.end(2) :]
            if _compiles(other) and not re.match(
                r" *(if|for|with|while|else|def|class|case|try)\b", place.group()
            ):
                return other
        return text


def _compiles_inside(text: str) -> bool:
    """Return whether statements may be the body of a function."""
    return _compiles("\n".join(["async def f(self):", *indented(text.split("\n"))]))


def _compiles(text: str) -> bool:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            compile(text, "main.py", "exec", dont_inherit=True)
        except (SyntaxError, ValueError):
            return False
    return True
