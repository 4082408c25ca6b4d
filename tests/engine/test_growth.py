"""A file that is twice as long takes twice the work, however odd it is: counted in calls, not in seconds."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable
from cProfile import Profile

import pytest

from devicefix.config.resolver import Everywhere
from devicefix.config.settings import Settings
from devicefix.report import FORMATS
from devicefix.report.checked import Checked
from devicefix.report.diff import unified
from devicefix.runner.run import check_text

SIZE = 100
MOST = 2.25  # times the calls for twice the file

Shape = Callable[[int], str]

TORCH = "import torch\n"
FUNCTION = f"{TORCH}\ndef f(x):\n"
COUNT = "n = torch.cuda.device_count()\n"
HELD = "    best.append(x.cpu())\n    x.add_(1)\n"
VISIBLE = "    os.environ['CUDA_VISIBLE_DEVICES'] = '0'\n    x.cuda()\n"


def repeated(head: str, part: str, tail: str = "\n") -> Shape:
    """Return a function that repeats a part, with its number in place of `%`."""
    return lambda size: head + "".join(part.replace("%", str(number)) for number in range(size)) + tail


def notebook(*cells: str) -> str:
    sources = ("import torch\n", *cells)
    made = [{"cell_type": "code", "metadata": {}, "outputs": [], "source": source} for source in sources]
    return json.dumps({"cells": made, "metadata": {}, "nbformat": 4, "nbformat_minor": 5})


SHAPES: dict[str, Shape] = {
    "values of an and": repeated(f"{TORCH}y = ", "x.cuda() and ", "x\n"),
    "flags in an or": repeated(f"{TORCH}y = ", "f% or ", "x.cuda()\n"),
    "moves of one name": repeated(TORCH, "x = x.cuda()\n"),
    "moves of one name in a function": repeated(FUNCTION, "    x = x.cuda()\n"),
    "moves of many names": repeated(FUNCTION, "    x% = y%.cuda()\n"),
    "many names before": repeated(TORCH, "a% = 1\nx.cuda()\n"),
    "moves where torch is not imported": repeated("", "x = x.cuda()\n"),
    "moves of attributes": repeated(f"{TORCH}class C:\n    def f(self):\n", "        self.x% = y.cuda()\n"),
    "moves on one line": repeated(TORCH, "x.cuda(); "),
    "silenced moves": repeated(TORCH, "x = x.cuda()  # noqa: E501\n"),
    "branches": repeated(f"{TORCH}if a:\n    pass\n", "elif b:\n    x = x.cuda()\n"),
    "arms of a choice": repeated(f"{TORCH}y = ", "x.cuda() if a else ", "x\n"),
    "moves under a guard": repeated(f"{TORCH}if torch.cuda.is_available():\n", "    x = x.cuda()\n"),
    "moves under a flag": repeated(f"{TORCH}f = torch.cuda.is_available()\nif f:\n", "    x = x.cuda()\n"),
    "moves under flags": repeated(f"{TORCH}if {'a or ' * 100}b:\n", "    x = x.cuda()\n"),
    "a flag that depends on itself": repeated(
        TORCH, "a.b = a.b and torch.cuda.is_available()\nif a.b:\n    x.cuda()\n"
    ),
    "flags set by others": repeated("f0 = torch.cuda.is_available()\n", "g = f0\nif g:\n    f0 = g\n"),
    "handlers": repeated(f"{TORCH}try:\n    x = x.cuda()\n", "except E:\n    x = x.cpu()\n"),
    "decorators": repeated(f"{TORCH}", "@f(x.cuda())\n", "def g():\n    pass\n"),
    "copies": repeated(f"{FUNCTION}    x.cuda()\n    best = []\n", HELD, "    return best\n"),
    "copies that are used": repeated(
        FUNCTION, "    y% = x.cpu()\n    f(y%)\n    x.add_(1)\n", "    x.cuda()\n"
    ),
    "copies that nothing changes": repeated(FUNCTION, "    a% = b%.cpu()\n", "    x.cuda()\n"),
    "copies by methods": repeated("class C:  # cuda\n", "    def f%(self):\n        self.x = self.y.cpu()\n"),
    "functions that copy": repeated(
        "", "def f%(m):\n    return [v.cpu() for v in m.parameters()]\n", "# cuda"
    ),
    "functions that take a device": repeated(TORCH, "def f%(device='cuda'):\n    x.to(device)\n"),
    "functions that pass on the current GPU": repeated(
        TORCH,
        "def f%(x, d):\n    return x.to(d), f%(x, d)\n\n",
        "f1(x, torch.cuda.current_device())\n",
    ),
    "calls that pass a number": repeated(
        f"{TORCH}def f(x, device):\n    return x.to(device)\n\n", "f(x%, device=0)\n"
    ),
    "moves to the number of a class": repeated(
        f"{TORCH}class C:\n    def __init__(self, device=0):\n        self.device = device\n",
        "    def f%(self, x):\n        return x.to(self.device)\n",
        "\nC(device=0).f1(x)\n",
    ),
    "objects that keep a number": repeated(
        f"{TORCH}class C:\n    def __init__(self, device=0):\n        self.device = device\n"
        "    def f(self, x):\n        return x.to(self.device), torch.ones(1, device=self.device)\n\n",
        "c% = C(device=0)\nc%.f(x)\n",
    ),
    "imports": repeated(TORCH, "from a% import b%\n", "x.cuda()\n"),
    "an import that may fail": repeated(
        f"try:\n    {TORCH}except E:\n    pass\ndef f(x):\n", "    x.cuda()\n"
    ),
    "visible devices": repeated("import os, torch\ndef f(x):\n", VISIBLE),
    "a list of devices": repeated(f"{TORCH}d = [", '"cuda:%", ', "]\nfor e in d:\n    x.to(e)\n"),
    "a dictionary of devices": repeated(f"{TORCH}d = {{", '"k%": "cuda:%", ', "}\nx.to(d['k1'])\n"),
    "calls between a configuration and its use": lambda size: (
        f"{TORCH}import yaml\ndef f0(c):\n    x.to(c['device'])\n"
        + "".join(f"def f{n + 1}(c):\n" + f"    f{n}(c)\n" * (size // 10 or 1) for n in range(6))
        + "c = yaml.safe_load(t)\n"
    ),
    "texts that are parsed": repeated(
        f"{TORCH}import json\n", "a% = json.loads('{\"device\": \"cuda\"}')\nx.to(a%['device'])\n"
    ),
    "parts of a text": lambda size: (
        f"{TORCH}import yaml\na = yaml.safe_load('''\n"
        + "".join(f"d{number}: cuda\n" for number in range(size))
        + "''')\n"
        + "".join(f"x.to(a['d{number}'])\n" for number in range(size))
    ),
    "calls that parse a text": repeated(
        f"{TORCH}T = '--device cuda'\n", "a = p.parse_args(T.split())\nx.to(a.device)\n"
    ),
    "moves in a try": repeated(f"{TORCH}try:\n", "    x = x.cuda()\n", "except Exception:\n    x = 1\n"),
    "calls of a function that refuses": lambda size: (
        f"{TORCH}def f0():\n    assert torch.cuda.is_available()\n    run()\n"
        + "".join(f"def f{n + 1}():\n" + f"    f{n}()\n" * (size // 10 or 1) for n in range(6))
    ),
    "devices": repeated(TORCH, "device% = torch.device('cuda')\nx.to(device%)\n"),
    "options": repeated(TORCH, "p.add_argument('--gpu%', type=int)\nx.cuda(args.gpu%)\n"),
    "numbers of GPUs": repeated(TORCH, f"{COUNT}range(n)\n"),
    "methods that are kept": repeated(TORCH, "f% = x.cuda\n"),
    "streams": repeated(
        f"{TORCH}s = torch.cuda.Stream()\n", "with torch.cuda.stream(s):\n    x = x.cuda()\n"
    ),
    "random states": repeated(TORCH, "s = torch.cuda.get_rng_state()\n"),
    "seeds": repeated(TORCH, "torch.cuda.manual_seed(1)\n"),
    "texts": repeated(
        TORCH, "torch.ones(1).to(dict(p.split('=') for p in 'n=1,device=cuda'.split(','))['device'])\n"
    ),
    "modules under autocast": repeated(
        TORCH,
        "e% = torch.nn.Linear(2, 2)\ne%.half()\nh% = torch.nn.Linear(2, 2)\n"
        "with torch.autocast('cuda'):\n    h%(e%(x))\n",
    ),
    "names bound under a guard": repeated(f"{TORCH}if torch.cuda.is_available():\n", "    a = 1\n", "f(a)\n"),
    "functions": repeated(TORCH, "def f%(x):\n    return x.cuda()\n"),
    "functions that are called": repeated(TORCH, "def f%(x):\n    return x.cuda()\nf%(y)\n"),
    "lambdas": repeated(TORCH, "f% = lambda x: x.cuda()\n"),
    "classes": repeated(
        TORCH, "class C%(torch.nn.Module):\n    def f(self, x):\n        self.x = x.cuda()\n"
    ),
    "methods": repeated(f"{TORCH}class C:\n", "    def f%(self, x):\n        return x.cuda()\n"),
    "attributes with a device": repeated(
        f"{TORCH}class C:\n    def __init__(self):\n",
        "        self.d% = 'cuda'\n        self.x% = x.to(self.d%)\n",
    ),
    "statements": repeated(TORCH, "x = 1\n", "x.cuda()\n"),
    "statements on one line": repeated(TORCH, "a; ", "x.cuda()\n"),
    "blocks with a move": repeated(TORCH, "with a% as b:\n    b.cuda()\n"),
    "loops": repeated(TORCH, "for x in y%:\n    x = x.cuda()\n"),
    "imports and moves": repeated(TORCH, "import a%\na%.f(x.cuda())\n"),
    "guards": repeated(TORCH, "if torch.cuda.is_available():\n    x = x.cuda()\n"),
    "guards with both branches": repeated(
        TORCH, "if torch.cuda.is_available():\n    x% = x.cuda()\nelse:\n    x% = x\n"
    ),
    "synchronizations": repeated(TORCH, "torch.cuda.synchronize()\n"),
    "refusals": repeated(TORCH, "assert torch.cuda.is_available()\n"),
    "strings": repeated(TORCH, "a% = 'cuda'\nx.to(a%)\n"),
    "strings in a list": repeated(f"{TORCH}a = [\n", "    'cuda',\n", "]\nx.to(a[0])\n"),
    "formatted strings": repeated(TORCH, "a% = f'cuda:{i}'\nx.to(a%)\n"),
    "a long string": repeated(f"{TORCH}x.cuda()\na = '''", "cuda ' \" \n", "'''\n"),
    "items of a dictionary": repeated(f"{TORCH}a = {{\n", "    'k%': x.cuda(),\n", "}\n"),
    "arguments": repeated(f"{TORCH}f(", "x%.cuda(), ", ")\n"),
    "comments": repeated(TORCH, "x.cuda()  # a cuda comment %\n# more\n"),
    "cells": lambda size: notebook(*(f"%time\nx{number} = y.cuda()\n" for number in range(size))),
    "lines of a cell": lambda size: notebook("x = y.cuda()\n" * size),
    "blocks of Markdown": repeated("", "```python\nx.cuda()\n```\n\n"),
    "blocks of reStructuredText": repeated("", ".. code:: python\n\n    x.cuda()\n\n"),
    "keys": repeated("", "device%: cuda\n"),
    "commands": repeated("", "python a.py --gpu %\n"),
}
PATHS = {
    "cells": "a.ipynb",
    "lines of a cell": "a.ipynb",
    "blocks of Markdown": "a.md",
    "blocks of reStructuredText": "a.rst",
    "keys": "a.yaml",
    "commands": "a.sh",
}


def calls(name: str, size: int, settings: Settings) -> int:
    """Return the number of functions that are called to check a file, or to rewrite it, and to show that."""
    data, path = SHAPES[name](size).encode(), PATHS.get(name, "a.py")
    with Profile() as profile:
        outcome = check_text(data, path, settings)
        for shown in ("full", "gitlab"):
            deque(FORMATS[shown].renderer()(Checked([outcome], [], Everywhere(settings))), 0)
        if outcome.result.output is not None:
            unified(path, data, outcome.result.output)
    assert not outcome.error
    return sum(entry.callcount for entry in profile.getstats())


@pytest.mark.parametrize("name", list(SHAPES)[::3])
def test_twice_the_file_is_twice_the_work(name: str) -> None:
    calls(name, SIZE, Settings())  # what is worked out once for all files
    assert calls(name, 2 * SIZE, Settings()) < MOST * calls(name, SIZE, Settings())


@pytest.mark.slow
@pytest.mark.parametrize("name", SHAPES)
def test_rewriting_twice_the_file_is_twice_the_work(name: str) -> None:
    settings = Settings(fix=True, unsafe_fixes=True)
    calls(name, SIZE, settings)
    assert calls(name, 2 * SIZE, settings) < MOST * calls(name, SIZE, settings)


@pytest.mark.slow
def test_twice_the_fixes_are_twice_the_work() -> None:
    settings = Settings(fix=True)
    calls("strings", 10, settings)
    assert calls("strings", 8 * SIZE, settings) < MOST * calls("strings", 4 * SIZE, settings)
