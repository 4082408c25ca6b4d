"""`devicefix.facts.exports`: what one file shows the others of its project."""

from __future__ import annotations

import ast
from typing import Any

import pytest

from devicefix.facts import Facts
from devicefix.facts.exports import EXPORTS, late_settings, own_method
from devicefix.facts.exports.forks import Named
from devicefix.facts.project import ProjectFile


def exported(code: str, name: str) -> Any:
    """Return what a module that mentions CUDA exports."""
    file = ProjectFile(f"{code}\n# cuda\n".encode(), "x.py")
    return getattr(file, name) if hasattr(file, name) else file.export(EXPORTS[name])


@pytest.mark.parametrize(
    ("code", "name", "expected"),
    [
        ("import a.b as c, d", "imports", {"a.b", "d"}),
        ("from a import b", "imports", {"a", "a.b"}),
        ("from . import b", "imports", {".", ".b"}),
        ("from ..a import b", "imports", {"..a", "..a.b"}),
        ("from a import *", "imports", {"a"}),
        ("from a import *\nfrom .b import *", "star_imports", ("a", ".b")),
        ("x = 1\ndef f(): y = 2", "bound_names", {"x", "f"}),
        ("device = 'cuda'\nx = 'cpu'", "devices", {"device"}),
        ("device = 'cuda'\ndevice = 'cpu'", "devices", set()),
        ("if x:\n    device = 'cuda'", "devices", set()),
        ("from a import *\nx = y + f(z)", "names_read", {"y", "f", "z"}),
        ("class A(B, c.D): ...\nclass E: ...", "classes", {"A": ("B", "c.D"), "E": ()}),
        ("class A:\n    def cuda(self): ...\nclass B:\n    def cpu(self): ...", "cuda_classes", {"A"}),
        ("class A:\n    def to(self, form): ...\nclass B:\n    def cuda(self): ...\n    def to(self): ...",
         "to_classes", {"A"}),
        ("def f():\n    class A:\n        def cuda(self): ...\ndef g():\n    class A: ...",
         "cuda_classes", {"A"}),
        ("class A:\n    def cuda(self):\n        self.x = self.x.cuda()\n        return self", "has_effects",
         False),
        ("class A:\n    def cuda(self):\n        self.n += 1\n        return self.x.cuda()", "has_effects",
         True),
        ("class A:\n    cuda: bool = field(default=True)", "has_effects", False),
        ("class A:\n    def cuda(self):\n        new = A()\n        new[0] = self.x\n        return new",
         "has_effects", False),
        ("def move(self): ...\nA.cuda = move", "adds_cuda_method", True),
        ("def move(self): ...\nsetattr(f(), 'cuda', move)", "adds_cuda_method", True),
        ("def add(cls):\n    cls.cuda = lambda self: self\n    return cls", "adds_cuda_method", True),
        ("type('A', (), {'cuda': lambda self: self})", "adds_cuda_method", True),
        ("type('A', (), dict(cuda=lambda self: self))", "adds_cuda_method", True),
        ("class M(type):\n    def __new__(m, n, b, d):\n        d['cuda'] = lambda self: self",
         "adds_cuda_method", True),
        ("def move(self): ...\nd['x'].cuda = functools.partial(move, 1)", "adds_cuda_method", True),
        ("class A:\n    def move(self): ...\n    def __init__(self):\n        self.cuda = self.move",
         "adds_cuda_method", True),
        ("self.cuda = args.cuda\nf(cuda=x)\nd = {'cuda': 1}", "adds_cuda_method", False),
        ("import torch\nos.environ['CUDA_VISIBLE_DEVICES'] = '0'", "late_functions", frozenset({""})),
        ("os.environ['CUDA_VISIBLE_DEVICES'] = '0'\nimport torch", "late_functions", frozenset()),
        ("def f():\n    os.environ['CUDA_X'] = y\ndef g():\n    f()", "late_functions", {"f", "g"}),
        ("p.add_argument('--x', type=int)", "options", {("x", "int", "None")}),
        ("class A:\n    def f(self):\n        self.use_cuda = torch.cuda.is_available()", "flags",
         {"use_cuda": True}),
        ("class A:\n    def f(self, x):\n        self.use_cuda = x", "flags", {"use_cuda": False}),
        ("class A:\n    def f(self):\n        self.gpu = False", "flags", {"gpu": True}),
        ("class A:\n    def f(self):\n        if torch.cuda.is_available():\n            self.gpu = 3",
         "flags", {"gpu": True}),
        ("class A:\n    def f(self):\n        self.x = 1", "flags", {}),
        ("class A:\n    def f(self):\n        self.gpu = False\nargs.gpu = x", "flags", {"gpu": False}),
        ("class A:\n    gpu: bool = True\n    def f(self):\n        self.gpu = False", "flags",
         {"gpu": False}),
    ],
)  # fmt: skip
def test_exports(code: str, name: str, expected: object) -> None:
    assert exported(code, name) == expected


@pytest.mark.parametrize(
    ("code", "modules"),
    [
        ("exec(open('config.py').read())", {""}),
        ("exec(text, globals())", {""}),
        ("exec(text, {})", set()),
        ("exec('lr = 2')", set()),
        ("exec('device = 2')", {""}),
        ("x = {k: v for k, v in globals().items()}", {""}),
        ("globals()[name] = 2", {""}),
        ("'device' in globals()", {""}),
        ("f = globals()[name]\ng = globals().get(name)\nglobals()['lr'] = 2", set()),
        ("vars()", {""}),
        ("def f():\n    return vars(), locals(), dir()", set()),
        ("vars(x)\ndir(x)\nx.__dict__", set()),
        ("from a import b\nvars(b).update(x=2)", {"a.b"}),
        ("import a.b as q7\nsorted(q7.__dict__)", {"a.b"}),
        ("import a\na.__dict__[name]()", set()),
        ("import a\nhasattr(a, 'device')\nhasattr(a, 'lr')", {"a"}),
        ("import a, inspect\ninspect.getmembers(a)", {"a"}),
        ("import sys\ndir(sys.modules[__name__])", {""}),
        ("import a, types\ntypes.FunctionType(a.f.__code__, {})", {"a.__code__"}),
        ("import inspect\ninspect.getsource(f)", {""}),
        ("import runpy\nrunpy.run_path(here / 'a/b.py')", {"b"}),
        ("import importlib\nimportlib.import_module('a.b').device = 2", {"a.b"}),
        ("def f(x, y):\n    setattr(y, name, 2)", {Named("f", False, parameter="y", position=1)}),
        ("def f(self):\n    setattr(self, name, 2)", set()),
        ("import a\npatch.object(a, 'device', 2, create=True)", {"a"}),
    ],
)
def test_open_namespaces(code: str, modules: set[str | Named]) -> None:
    named = {each if isinstance(each, Named) else Named(each) for each in modules}
    assert exported(code, "open_namespaces") == named


@pytest.mark.parametrize(
    ("code", "lines"),
    [
        ("import torch\nos.environ['CUDA_VISIBLE_DEVICES'] = '0'", [2]),
        ("from torch import nn\nos.environ['CUDA_VISIBLE_DEVICES'] = '0'", [2]),
        ("import os\nos.environ['CUDA_VISIBLE_DEVICES'] = '0'\nimport torch", []),
        ("def f():\n    os.environ['CUDA_VISIBLE_DEVICES'] = '0'\nimport torch", [2]),
        ("import torch\nos.environ.setdefault('CUDA_VISIBLE_DEVICES', '0')", [2]),
        ("import torch\nos.environ.update(CUDA_VISIBLE_DEVICES='0')", [2]),
        ("import torch\nos.environ.update({'CUDA_VISIBLE_DEVICES': '0'})", [2]),
        ("import torch\nq7 = {'CUDA_VISIBLE_DEVICES': '0'}\nos.environ.update(q7)", [3]),
        ("import torch\nfor q7 in ['CUDA_VISIBLE_DEVICES']:\n    os.environ[q7] = '0'", [3]),
        ("import torch\nfrom os import environ as q7\nq7['CUDA_VISIBLE_DEVICES'] = '0'", [3]),
        ("import torch\nimport os\nq7 = os.environ\nq7['CUDA_VISIBLE_DEVICES'] = '0'", [4]),
        ("import torch\nfrom os import putenv as q7\nq7('CUDA_VISIBLE_DEVICES', '0')", [3]),
        ("import torch\nq7 = 'CUDA_VISIBLE_DEVICES'\nos.environ['A'] = q7\nos.environ.update(B=q7)", []),
        ("import torch\nos.putenv('CUDA_VISIBLE_DEVICES', '0')", [2]),
        ("import torch\nos.environ.get('CUDA_VISIBLE_DEVICES')", []),
        ("import torch\nx['OTHER'] = 'CUDA_VISIBLE_DEVICES'", []),
        ("import torch\nfor q7 in ('A', 'B'):\n    os.environ[q7] = '0'", []),
        ("import torch\nq7 = []\nq7.append('A')\nfor q8 in q7:\n    os.environ.pop(q8)", []),
        ("import torch\nq7 = []\nq7.append('CUDA_X')\nfor q8 in q7:\n    os.environ.pop(q8)", [5]),
        ("import torch\nq7 = ['A']\nq7.append(q9)\nfor q8 in q7:\n    os.environ.pop(q8)", [5]),
        ("import torch\nfor q7, v in {'A': 1}.items():\n    os.environ[q7] = v", []),
        ("import torch\nfor q7, v in read().items():\n    os.environ[q7] = v", [3]),
        ("import torch\ndef set(q7):\n    os.environ[q7] = '1'\nset('A')", []),
        ("import torch\ndef set(q7):\n    os.environ[q7] = '1'\nset('CUDA_VISIBLE_DEVICES')", [3]),
        ("import torch\ndef set(q7):\n    os.environ[q7] = '1'", [3]),
        ("import torch\nfrom dotenv import load_dotenv as q7\nq7()", [3]),
        ("import torch\nimport dotenv\nfound = dotenv.load_dotenv('.env')", [3]),
        ("import torch\nenv = environs.Env()\nenv.read_env()", [3]),
    ],
)
def test_late_settings(code: str, lines: list[int]) -> None:
    assert [node.lineno for node in late_settings(Facts.read(code.encode()))] == lines


def test_imports_and_classes_are_found_in_the_bytes() -> None:
    data = (
        b"import a.b, c as d; import o\n    from ..e import f, g as h\nclass K(L, m.N): pass\nclass O: pass\n"
        b"from p import q, \\\n    r\nfrom s import (  # one\n    t,  # two\n    u\n)\n"
        b"class P(Generic[T],\n  Q): ...\n"
    )
    file = ProjectFile(data, "x.py")
    assert file.imports == {
        "a.b", "c", "o", "..e", "..e.f", "..e.g", "p", "p.q", "p.r", "s", "s.t", "s.u",
    }  # fmt: skip
    assert file.classes == {"K": ("L", "m.N"), "O": (), "P": ("Generic", "Q")}


def test_a_device_without_a_name_is_no_place_of_devices() -> None:
    file = ProjectFile(b"import torch\nf(device=...)\nx = config.size\n", "x.py")
    assert "size" not in file.export(EXPORTS["device_places"])


@pytest.mark.parametrize(
    "code",
    [
        "def f(x, where=None):\n    return x.to(where or settings.place)",
        "def pick():\n    return settings.place\nx.to(pick())",
        "class A:\n    @property\n    def device(self):\n        return settings.place[self.rank]",
        "class A:\n    def __init__(self):\n        self.device = settings.place",
    ],
)
def test_places_of_devices(code: str) -> None:
    file = ProjectFile(f"import settings\n{code}\n".encode(), "x.py")
    assert "place" in file.export(EXPORTS["device_places"])


def test_an_import_in_parentheses_with_bytes_of_another_encoding() -> None:
    light = ProjectFile(b"from a import (\xff, b)\n", "x.py")
    assert {"a", "a.b"} <= light.imports


def test_a_file_without_a_word_of_cuda_is_not_parsed() -> None:
    light, whole = (ProjectFile(b"__all__ = ['x']\nx = %s\n" % x, "x.py") for x in (b"1", b"cuda"))
    assert not light.export(EXPORTS["public_names"])
    assert whole.export(EXPORTS["public_names"]) == {"x"}
    assert not ProjectFile(b"cuda = (\n", "x.py").export(EXPORTS["bound_names"])


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("def cuda(self): ...", True),
        ("async def cuda(self): ...", True),
        ("cuda = move", True),
        ("if x:\n        def cuda(self): ...", True),
        ("from other import cuda", True),
        ("def __getattr__(self, name):\n        return {'cuda': self.f}[name]", True),
        ("def __getattr__(self, name):\n        return lambda *args: self", True),
        ("def __getattr__(self, name):\n        return getattr(self.x, name)", False),
        ("def f(self): ...", False),
        ("cuda = 1", False),
        ("cuda: bool", False),
        ("@property\n    def cuda(self): ...", False),
    ],
)
def test_a_class_has_its_own_method(body: str, expected: bool) -> None:
    facts = Facts.read(f"class A:\n    {body}\n".encode())
    (node,) = facts.tree.module.body
    assert isinstance(node, ast.ClassDef)
    assert own_method(facts, node, "cuda") is expected


def test_a_file_without_cuda_shows_the_classes_with_a_method_to() -> None:
    data = b"import torch\nclass A(nn.Module):\n    def to(self, form): ...\nclass B:\n    def too(): ...\n"
    assert ProjectFile(data, "x.py").export(EXPORTS["to_classes"]) == {"A"}
