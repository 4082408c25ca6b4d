"""Where values go: what is shown to become a device, in a module, in a project, and when the program runs."""

from __future__ import annotations

import ast
from textwrap import dedent

import pytest
from helpers import ProjectFolder, analyze, devicefix

from devicefix.facts import Facts
from devicefix.facts.flow.forwards import Forwards, Use
from devicefix.facts.project import Project, ProjectFile
from devicefix.model import Safety


def use_of(code: str) -> Use:
    """Return what becomes of the value "cuda" of a module."""
    facts = Facts.read(dedent(code).encode())
    (value,) = (node for node in facts.tree.nodes if isinstance(node, ast.Constant) and node.value == "cuda")
    return Forwards(facts).use_of(value)


@pytest.mark.parametrize(
    "code",
    [
        "x.to('cuda')",
        "q7 = 'cuda'\nx.to(q7)",
        "q7 = r8 = 'cuda'\nx.to(r8)",
        "q7, n = 'cuda', 1\nx.to(q7)",
        "if q7 := 'cuda':\n    x.to(q7)",
        "o.q7 = 'cuda'\nx.to(p.q7)",
        "o['q7'] = 'cuda'\nx.to(o['q7'])",
        "o = dict(q7='cuda')\nx.to(o.get('q7'))",
        "o = SimpleNamespace(q7='cuda')\nx.to(o.q7)",
        "o = {'q7': 'cuda'}\nf(**o)\ndef f(q7):\n    x.to(q7)",
        "o = [('cuda', 1)]\nfor q7, n in o:\n    x.to(q7)",
        "for i, q7 in enumerate(['cuda']):\n    x.to(q7)",
        "[x.to(q7) for x, q7 in zip(xs, ['cuda'])]",
        "list(map(lambda q7: x.to(q7), ['cuda']))",
        "q7 = ['cuda']\nq7.append('cpu')\nx.to(q7[-1])",
        "q7 = []\nq7.append('cuda')\nx.to(q7[0])",
        "def f(*, q7='cuda'):\n    x.to(q7)",
        "def f(*a):\n    x.to(a[0])\nf('cuda')",
        "def f(**k):\n    x.to(k['q7'])\nf(q7='cuda')",
        "f = lambda q7: x.to(q7)\nf('cuda')",
        "class C:\n    def f(self, q7):\n        x.to(q7)\no.f('cuda')",
        "class C:\n    @staticmethod\n    def f(q7):\n        x.to(q7)\nC.f('cuda')",
        "class C(B):\n    def __init__(self, q7='cuda'):\n        super().__init__(1, device=q7)",
        "class C:\n    q7 = 'cuda'\n    def f(self):\n        x.to(self.q7)",
        "class C:\n    @property\n    def q7(self):\n        return 'cuda'\nx.to(C().q7)",
        "def f():\n    yield 'cuda'\nfor q7 in f():\n    x.to(q7)",
        "q7 = 'cuda'\nd = torch.device(q7)",
        "q7 = 'cuda'\nbuild(device=q7)",
        "q7 = 'cuda'\ntorch.load(path, q7)",
        "q7 = 'cuda'\nx.to(f'{q7}:0')",
        "@pytest.mark.parametrize('q7', ['cuda'])\ndef f(q7):\n    x.to(q7)",
        "flags.DEFINE_string('q7', 'cuda', 'help')\nx.to(FLAGS.q7)",
        "setattr(o, 'q7', 'cuda')\nx.to(o.q7)",
        "q7 = 'cuda'\nif q7 == k:\n    x.cuda()",
        "q7 = 'cuda'\nif q7.startswith(k):\n    x.cuda()",
    ],
)
def test_a_value_that_becomes_a_device(code: str) -> None:
    assert Use.DEVICE in use_of(f"import torch\n{code}\n")


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("def f():\n    device = 'cuda'\n    print(device)", Use.SHOWN),
        ("def f(device='cuda'):\n    if device == 'cpu':\n        g()", Use.SHOWN),
        ("def f(device='cuda'):\n    return x.device == torch.device(device)", Use.SHOWN),
        ("def f():\n    return device == 'cuda'", Use.SHOWN),
        ("def f():\n    return device in ['cuda']", Use.SHOWN),
        ("def f():\n    device = 'cuda'", Use.NOTHING),
        ("def f(device='cuda'):\n    torch.cuda.set_device(device)", Use.OF_CUDA),
        ("launch('cuda')", Use.UNKNOWN),
        ("launch(backend='cuda')", Use.UNKNOWN),
        ("torch.autocast(device_type='cuda')", Use.SHOWN),  # it disables itself
        ("f(o['cuda'], getattr(o, 'x', o.get(1)))", Use.SHOWN),
        ("o = {'cuda': 1}", Use.SHOWN),
        ("q7 = o.replace('cuda', '')", Use.SHOWN),
        ("add('--q7', choices=['cuda', 'cpu'])", Use.SHOWN),
        ("o = {'a': 'cuda', 'b': 'cpu'}\nx.to(o['b'])", Use.UNKNOWN),
        ("o = ('cuda', 'cpu')\nx.to(o[1])", Use.UNKNOWN),
    ],
)
def test_a_value_that_does_not_become_a_device(code: str, expected: Use) -> None:
    assert use_of(f"import torch\n{code}\n") & ~Use.NAMED == expected


@pytest.mark.parametrize(
    "code",
    [
        "device = 'cuda'",
        "o.my_device = r8 = 'cuda'",
        "r8 = 'cuda'\nlaunch(device=1)\ndef f(device):\n    pass\nf(r8)",
        "def get_device():\n    return 'cuda' or r8",
        "devices = [f'{r8}', 'cuda']",
        "o = {'device': 'cuda'}",
        "o.get('device', 'cuda')",
        "parser.add_argument('--device', default='cuda')",
    ],
)
def test_a_holder_that_has_the_name_of_a_device(code: str) -> None:
    assert Use.NAMED in use_of(code)
    assert Use.NAMED not in use_of("q7 = 'cuda'\nlaunch(q7)")


def test_only_what_another_file_may_read_is_shown_there(project: ProjectFolder) -> None:
    project.write(
        {
            "nets.py": "import torch\n\ndef make(args):\n    return torch.ones(1, device=args.device)\n",
            "script.py": "import torch\n\ndevice = 'cuda'\nprint(torch.ones(1))\n",
            "settings.py": "import torch\n\ndevice = 'cuda'\nprint(torch.ones(1))\n",
            "main.py": "import nets\nimport settings\n\nnets.make(settings)\n",
            "test_nets.py": """
                from unittest.mock import MagicMock

                import torch


                def test_make():
                    options, mock = torch.nn.Module(), MagicMock()
                    options.device = "cuda"
                    mock.device = "cuda"
                """,
        }
    )
    devicefix("rewrite", "--in-place", ".", cwd=project.path)
    chosen = "'cuda' if torch.cuda.is_available() else 'cpu'"
    assert project.read("script.py").startswith("import torch\n\ndevice = 'cuda'\n")
    assert f"device = {chosen}" in project.read("settings.py")
    test = project.read("test_nets.py")
    assert 'mock.device = "cuda"\n' in test
    assert 'options.device = "cuda" if' in test


def test_another_file_shows_what_becomes_of_a_value(project: ProjectFolder) -> None:
    project.write(
        {
            "settings.py": """
                import argparse
                import torch

                PLACE = "cuda"
                OTHER = "cuda"
                parser = argparse.ArgumentParser()
                parser.add_argument("--where", default="cuda")
                """,
            "nets.py": """
                import torch
                from settings import PLACE


                def make(n, where=None):
                    return torch.ones(n, device=where).to(PLACE)


                class Net:
                    def __init__(self, size, spot):
                        self.spot = spot

                    def run(self, x):
                        return x.to(self.spot)
                """,
            "train.py": """
                import torch
                from nets import Net, make
                from settings import parser

                args = parser.parse_args()
                x = make(1, "cuda").to(args.where)
                net = Net(2, "cuda")
                """,
        }
    )
    devicefix("rewrite", "--in-place", ".", cwd=project.path)
    chosen = '"cuda" if torch.cuda.is_available() else "cpu"'
    settings, train = project.read("settings.py"), project.read("train.py")
    assert f"PLACE = {chosen}" in settings
    assert 'OTHER = "cuda"\n' in settings
    assert f'"--where", default={chosen}' in settings
    assert f"device = {chosen}\n" in train
    assert "make(1, device)" in train
    assert "Net(2, device)" in train


@pytest.mark.parametrize("tie", [b"", b"w.cuda()\n"], ids=["without a tie", "with a tie"])
def test_the_places_of_devices_are_exported(tie: bytes) -> None:
    code = b"import torch\ndef f(a, b):\n    x.to(b)\n    y.to(o.place)\n    z.to(c['key'])\n"
    file = ProjectFile(code + tie, "module.py")
    assert Project([file]).is_device_place("place")
    assert Project([file]).is_device_place("key")
    assert Use.DEVICE in Use(Project([file]).use_of_argument("main.py", "module.f", 1))


PROGRAM = """
import argparse
import itertools
import os
from dataclasses import dataclass, field
from functools import partial
import torch

where = os.environ.get("NO_SUCH_VARIABLE", "cuda")
places = [f"cuda:{i}" for i in range(2)]
turns = itertools.cycle(["cuda:%d" % i for i in range(2)])


@dataclass
class Options:
    compute: str = "cuda"
    others: list = field(default_factory=lambda: ["cuda"])


class Net:
    def __init__(self, place=None):
        self.place = place or "cuda"

    def run(self, x):
        return x.to(self.place) + 1


def make(n, spot=None):
    return torch.ones(n).to(spot if spot else "cuda")


def total(x, **kwargs):
    kwargs.setdefault("spot", "cuda")
    return x.to(kwargs["spot"]).sum()


parser = argparse.ArgumentParser()
parser.add_argument("--where", default="cuda")
args = parser.parse_args([])
wait = torch.cuda.synchronize
x = make(3) + make(3, "cuda") + make(3, "cpu")
x = Net().run(x) + Net("cpu").run(x)
x = x.to(where).to(places[1]).to(next(turns)).to(args.where)
x = torch.Tensor.to(x, Options().compute).to(*Options("cuda").others)
x = x.to(partial(torch.device, "cuda")()).to(**{"device": "cuda"}).to(getattr(args, "other", "cuda"))
wait()
result = total(x), total(x, spot="cpu"), getattr(torch.cuda, "FloatTensor")([4.0])
"""


def test_a_rewritten_program_runs_on_the_cpu() -> None:
    torch = pytest.importorskip("torch")
    if torch.cuda.is_available():
        pytest.skip("this is about a machine without CUDA")
    result = analyze(PROGRAM, fix=True)
    assert result.output is not None
    assert not [finding for finding in result.findings if finding.safety is not Safety.SAFE]
    names: dict[str, object] = {"__name__": "__main__"}
    exec(compile(result.output, "program.py", "exec"), names)
    assert [float(value) for value in names["result"]] == [24.0, 24.0, 4.0]  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("code", "rule"),
    [
        ("x.to('cuda')", "DF102"),
        ("x = torch.ones(1, device='cuda')", "DF202"),
        ("d = torch.device('cuda')", "DF201"),
        ("s = torch.load(path, map_location='cuda:0')", "DF501"),
    ],
)
def test_a_rule_that_is_off_is_not_replaced_by_another(code: str, rule: str) -> None:
    source = f"import torch\n{code}\n"
    assert [finding.code for finding in analyze(source).findings] == [rule]
    assert not analyze(source, ignore=(rule,)).findings


@pytest.mark.parametrize(
    "code",
    [
        "device = 'cuda'\nlaunch(device)",
        "def f(device='cuda'):\n    launch(device)",
        "options = {'device': 'cuda'}\nlaunch(options)",
        "for where in ['cuda', 'cpu']:\n    net.to(where)",
        "for where in {f'cuda:{i}' for i in range(2)}:\n    net.to(where)",
    ],
)
def test_no_fix_is_safe_by_a_name_or_beside_the_cpu(code: str) -> None:
    (finding,) = analyze(f"import torch\n{code}\n").findings
    assert finding.safety is Safety.UNSAFE


@pytest.mark.parametrize(
    "code",
    [
        "f = lambda: 'cuda'\nx.to(f())",
        "def f():\n    return 'cuda'\nclass C:\n    q7: str = field(default_factory=f)\nx.to(o.q7)",
        "def f(n):\n    return 'cuda'\nfor q7 in map(f, ns):\n    x.to(q7)",
        "def f():\n    return 'cuda'\ndef g(make):\n    x.to(make())\ng(f)",
        "o = {'a': lambda: 'cuda'}\nx.to(o['a']())",
    ],
)
def test_what_a_function_returns_is_followed_with_the_function(code: str) -> None:
    assert Use.DEVICE in use_of(f"import torch\n{code}\n")
