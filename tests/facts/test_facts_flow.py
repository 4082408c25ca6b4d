"""`devicefix.facts.project.flow`: values that go from one file to another."""

from __future__ import annotations

import pytest
from helpers import analyze

from devicefix.facts.flow.forwards import Use
from devicefix.facts.project import Project, ProjectFile

START = "import os\n\n\ndef start():\n    gpu = int(os.environ['LOCAL_RANK'])\n    return {}\n"
RECORD = "from collections import namedtuple\n\nSetup = namedtuple('Setup', 'rank gpu')\n"


def project(**files: str) -> Project:
    return Project(ProjectFile(code.encode(), f"/p/{name}.py") for name, code in files.items())


@pytest.mark.parametrize(
    ("returned", "part", "kinds"),
    [
        ("gpu", "", ["INDEX"]),
        ("0, x, gpu", "2", ["INDEX"]),
        ("0, x, gpu", "1", ["?"]),
        ("0, *x", "0", ["?"]),
        ("{'gpu': gpu}", "gpu", ["INDEX"]),
        ("Setup(0, gpu)", "gpu", ["INDEX"]),
        ("f(gpu)", "0", ["?"]),
    ],
)
def test_what_a_function_of_another_file_returns(returned: str, part: str, kinds: list[str]) -> None:
    files = project(env=RECORD + START.format(returned), main="from env import start")
    assert files.kinds_of("/p/main.py", "env.start()", part) == kinds


def test_a_field_that_may_change_is_not_certain() -> None:
    record = "from dataclasses import dataclass\n\n\n@dataclass\nclass Setup:\n    gpu: int\n\n\n"
    files = project(env=record + START.format("Setup(gpu)"), main="from env import start")
    assert files.kinds_of("/p/main.py", "env.start()", "gpu") == ["INDEX", "?"]


def test_an_import_is_followed_through_a_package() -> None:
    names = {"/p/a/__init__.py": "from .b import *\nfrom .c import start", "/p/a/c.py": START.format("gpu")}
    files = Project(ProjectFile(code.encode(), path) for path, code in names.items())
    assert files.kinds_of("/p/main.py", "a.start()", "") == ["INDEX"]
    assert files.kinds_of("/p/main.py", "a.other()", "") == []


def test_a_function_that_only_returns_a_number_is_pure() -> None:
    files = project(
        env="import os, torch\nimport torch.distributed as dist\n"
        "def a(): return int(os.environ['LOCAL_RANK'])\n"
        "def b():\n    dist.init_process_group('gloo')\n    return dist.get_rank()\n"
        "def c():\n    global x\n    x = 1\n    return int(os.environ['LOCAL_RANK'])\n",
    )
    assert [files.is_pure("/p/main.py", f"env.{name}()") for name in "abc"] == [True, False, False]
    assert [files.kinds_of("/p/main.py", f"env.{name}()", "") for name in "abc"] == [["INDEX"]] * 3


def test_two_files_that_ask_each_other_know_nothing() -> None:
    files = project(
        a="from b import g\n\n\ndef f(gpu):\n    return g(gpu)\n",
        b="from a import f\n\n\ndef g(gpu):\n    return f(gpu)\n",
    )
    assert files.kinds_of("/p/main.py", "a.f()", "") == ["?"]


@pytest.mark.parametrize(
    ("calls", "kinds"),
    [
        (["move(x, rank)"], ["INDEX"]),
        (["move(x, device=rank)", "move(x, None)"], ["INDEX", "NONE"]),
        (["move(x, rank)", "move(x, other)"], []),
        (["move(x, torch.float16)", "move(x, other)"], ["DTYPE"]),
        (["self.gpu = rank\nmove(x, self.gpu)"], ["INDEX"]),
    ],
)
def test_what_other_files_pass(calls: list[str], kinds: list[str]) -> None:
    start = "import torch\nfrom mv import move\nrank = torch.cuda.current_device()\n"
    others = {f"main{number}": f"{start}{call}\n" for number, call in enumerate(calls)}
    files = project(mv="def move(x, device):\n    return x.to(device)\n", **others)
    assert files.passed("/p/mv.py", "move", "device", 1) == kinds
    assert files.receives_number("/p/mv.py") is ("INDEX" in kinds)


def test_a_name_that_too_many_files_mention_is_open() -> None:
    call = "import torch\nfrom mv import move\nmove(x, torch.cuda.current_device())\n"
    callee = "def move(x, device):\n    return x.to(device)\n"
    few = project(mv=callee, **{f"main{number}": call for number in range(20)})
    many = project(mv=callee, **{f"main{number}": call for number in range(21)})
    assert few.passed("/p/mv.py", "move", "device", 1) == ["INDEX"]
    assert many.passed("/p/mv.py", "move", "device", 1) == []


@pytest.mark.parametrize(
    ("body", "is_device"),
    [
        ("x.to(where)", True),
        ("other = where\n    y = [other]\n    x.to(y[0])", True),
        ("print(where)", False),
    ],
)
def test_what_a_function_of_another_file_does_with_an_argument(body: str, is_device: bool) -> None:
    files = project(mv=f"def move(x, where):\n    {body}  # device\n", main="from mv import move")
    use = Use(files.use_of_argument("/p/main.py", "mv.move", 1))
    assert (Use.DEVICE in use) is is_device


def test_what_other_files_do_with_a_result() -> None:
    files = project(
        dev="GPU = 'cuda'\n\n\ndef get():\n    return GPU\n",
        mv="def move(x, where):\n    return x.to(where)\n",
        main="from dev import get\nfrom mv import move\nmove(x, get())\n",
    )
    assert Use.DEVICE in Use(files.use_of_result("/p/dev.py", "get"))
    assert Use.DEVICE not in Use(files.use_of_result("/p/mv.py", "move"))


@pytest.mark.parametrize(
    ("body", "taken"), [("int(d.split(':')[-1])", True), ("x.to(d)[0]", False), ("d.index + 1", True)]
)
def test_a_function_of_another_file_takes_the_number(body: str, taken: bool) -> None:
    files = project(a=f"def world(d):\n    return {body}\n", main="from a import world")
    assert (Use.INDEXED in Use(files.use_of_argument("/p/main.py", "a.world", 0))) is taken


@pytest.mark.parametrize(
    ("body", "need"),
    [
        ("assert d.type == 'cuda'", Use.CPU_REFUSED),
        ("if torch.device(d).type == 'cpu':\n        raise ValueError", Use.CPU_REFUSED),
        ("e = str(d)\n    check(e)", Use.CPU_REFUSED),
        ("if d == 0:\n        print(1)", Use.COMPARED),
        ("torch.distributed.init_process_group(d)", Use.BACKEND),
        ("assert d.type in ('cuda', 'cpu')", Use.NOTHING),
    ],
)
def test_what_a_function_of_another_file_needs_its_argument_to_be(body: str, need: Use) -> None:
    needs = Use.INDEXED | Use.CPU_REFUSED | Use.COMPARED | Use.BACKEND
    check = "def check(text):\n    assert 'cuda' in text\n"
    made = f"class Made:\n    def __init__(self, d):\n        start(d)\n\ndef start(d):\n    {body}\n"
    files = project(
        a=f"import torch\n\n{made}\n{check}",
        b="import a\n\ndef run(x, d):\n    a.start(d)\n",
        main="from a import Made, start\nfrom b import run",
    )
    for name, place in (("a.start", 0), ("a.Made", "d"), ("b.run", 1)):
        assert Use(files.use_of_argument("/p/main.py", name, place)) & needs == need


def test_all_functions_of_a_name_are_asked_about_an_argument() -> None:
    stub = "@overload\ndef start(d: str) -> None: ...\n"
    files = project(
        a=f"from typing import overload\n\n{stub}{stub}def start(d):\n    assert d == 'cuda'\n",
        main="from a import start",
    )
    assert Use.CPU_REFUSED in Use(files.use_of_argument("/p/main.py", "a.start", 0))


def test_numbers_are_fixed_through_files() -> None:
    env = "import os\n\n\ndef start():\n    gpu = int(os.environ['LOCAL_RANK'])\n    return 0, gpu\n"
    main = "import torch\nfrom env import start\n\nrank, device = start()\nx = torch.ones(2).to(device)\n"
    output = analyze(main, path="main.py", others={"env.py": env}, fix=True).output
    assert output is not None
    assert b'.to(device if torch.cuda.is_available() else "cpu")' in output
