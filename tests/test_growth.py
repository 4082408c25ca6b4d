"""A file that is twice as long takes twice the work, however odd it is: counted in calls, not in seconds."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType

import pytest

from devicefix.config.settings import Settings
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


SHAPES = {
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
    "imports": repeated(TORCH, "from a% import b%\n", "x.cuda()\n"),
    "an import that may fail": repeated(
        f"try:\n    {TORCH}except E:\n    pass\ndef f(x):\n", "    x.cuda()\n"
    ),
    "visible devices": repeated("import os, torch\ndef f(x):\n", VISIBLE),
    "devices": repeated(TORCH, "device% = torch.device('cuda')\nx.to(device%)\n"),
    "options": repeated(TORCH, "p.add_argument('--gpu%', type=int)\nx.cuda(args.gpu%)\n"),
    "numbers of GPUs": repeated(TORCH, f"{COUNT}range(n)\n"),
    "methods that are kept": repeated(TORCH, "f% = x.cuda\n"),
    "streams": repeated(
        f"{TORCH}s = torch.cuda.Stream()\n", "with torch.cuda.stream(s):\n    x = x.cuda()\n"
    ),
    "random states": repeated(TORCH, "s = torch.cuda.get_rng_state()\n"),
    "modules under autocast": repeated(
        TORCH,
        "e% = torch.nn.Linear(2, 2)\ne%.half()\nh% = torch.nn.Linear(2, 2)\n"
        "with torch.autocast('cuda'):\n    h%(e%(x))\n",
    ),
    "names bound under a guard": repeated(f"{TORCH}if torch.cuda.is_available():\n", "    a = 1\n", "f(a)\n"),
}


def calls(text: str, settings: Settings) -> int:
    """Return the number of functions that are called to check a file, or to rewrite it."""
    count = 0

    def counted(frame: FrameType, event: str, argument: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(counted)
    try:
        outcome = check_text(text.encode(), "a.py", settings)
    finally:
        sys.setprofile(None)
    assert not outcome.error
    return count


@pytest.mark.parametrize("name", SHAPES)
def test_twice_the_file_is_twice_the_work(name: str) -> None:
    shape = SHAPES[name]
    calls(shape(2), Settings())  # what is worked out once for all files
    assert calls(shape(2 * SIZE), Settings()) < MOST * calls(shape(SIZE), Settings())


@pytest.mark.slow
@pytest.mark.parametrize("name", SHAPES)
def test_rewriting_twice_the_file_is_twice_the_work(name: str) -> None:
    shape, settings = SHAPES[name], Settings(fix=True, unsafe_fixes=True)
    calls(shape(2), settings)
    assert calls(shape(2 * SIZE), settings) < MOST * calls(shape(SIZE), settings)


def test_twice_the_fixes_are_twice_the_work() -> None:
    shape, settings = repeated(TORCH, "x.to('cuda')\n"), Settings(fix=True)
    calls(shape(2), settings)
    assert calls(shape(8 * SIZE), settings) < MOST * calls(shape(4 * SIZE), settings)
