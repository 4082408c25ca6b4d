"""The functions that TorchScript compiles."""

from __future__ import annotations

import runpy
from pathlib import Path
from textwrap import dedent

import pytest

from devicefix.config.settings import Settings
from devicefix.engine.file import check_file
from devicefix.facts import Facts
from devicefix.facts.project import Project
from devicefix.facts.torchscript import TorchScript

NET = """
class Sub(nn.Module):
    def forward(self, x):
        return helper(x)

def helper(x):
    return x

class Net(nn.Module):
    def __init__(self):
        self.sub = Sub()

    def forward(self, x):
        return self.step(x)

    def step(self, x):
        return self.sub(x)

    def other(self, x):
        return unrelated(x)

    @torch.jit.ignore
    def left(self, x):
        return x

def unrelated(x):
    return x

class Another(nn.Module):
    def forward(self, y):
        return y
"""


def compiled(code: str) -> set[str]:
    """Return the names of the functions that are compiled."""
    facts = Facts.read(f"import torch\nfrom torch import nn\n{dedent(code)}".encode())
    return {node.name for node in TorchScript(facts).functions}


@pytest.mark.parametrize("decorator", ["torch.jit.script", "torch.jit.script_method", "torch.jit.export"])
def test_a_decorated_function_is_compiled_with_what_it_calls(decorator: str) -> None:
    code = f"def g(x):\n    return x\n@{decorator}\ndef f(x):\n    return g(x)\ndef h(x):\n    return f(x)\n"
    assert compiled(code) == {"f", "g"}


@pytest.mark.parametrize("code", ["torch.jit.script(Net())", "net = Net()\ntorch.jit.script(net)"])
def test_a_modules_methods_are_compiled_as_far_as_they_are_reached(code: str) -> None:
    assert compiled(f"{NET}\n{code}\n") == {"forward", "step", "helper"}


def test_all_modules_may_be_compiled_where_the_object_is_not_known() -> None:
    code = f"{NET}\ndef export(net):\n    torch.jit.script(net)\n"
    found = TorchScript(Facts.read(f"import torch\nfrom torch import nn\n{code}".encode())).functions
    assert sum(node.name == "forward" for node in found) == 3


def test_a_script_class_is_compiled() -> None:
    code = """
        @torch.jit.script
        class A:
            def f(self):
                return B()

        class B:
            def g(self):
                pass
    """
    assert compiled(code) == {"f", "g"}


def test_traced_and_loaded_modules_are_not_compiled() -> None:
    assert compiled(f"{NET}\ntorch.jit.trace(Net(), x)\ntorch.jit.load(p)\n") == set()


def test_a_default_is_not_compiled() -> None:
    facts = Facts.read(b"import torch\n\n\n@torch.jit.script\ndef f(x=1):\n    return 2\n")
    (function,) = TorchScript(facts).functions
    assert not TorchScript(facts).compiles(function.args.defaults[0])
    assert TorchScript(facts).compiles(function.body[0])


def test_a_function_and_a_class_inside_another_function_are_compiled() -> None:
    code = """
        def outer():
            def inner(x):
                return x
            inner = torch.jit.script(inner)

            class Local(nn.Module):
                def forward(self, x):
                    return x
            return torch.jit.script(Local())
    """
    assert compiled(code) == {"inner", "forward"}


@pytest.mark.needs("torch")
@pytest.mark.parametrize(
    ("parameters", "line"),
    [
        ("x, *others", ""),
        ("x, **options", ""),
        ("x, *, n=1", ""),
        ("x", "try: x\n        except ValueError: pass"),
        ("x", "def g(): pass"),
        ("x", "class A: pass"),
        ("x", "import math"),
        ("x", "from math import pi"),
        ("x", "global y"),
        ("x", "match x:\n            case 1: pass"),
        ("x", "f = lambda y: y"),
        ("x", "(y := 1)"),
        ("x", "y = {1, 2}"),
        ("x", "y = {z for z in x}"),
        ("x", "yield x"),
    ],
)
def test_what_torchscript_does_not_accept_is_not_compiled(parameters: str, line: str, tmp_path: Path) -> None:
    """It is an error even in a branch for Python only, so a program that runs can't compile it."""
    import torch

    body = f"    if not torch.jit.is_scripting():\n        {line or 'pass'}\n    return x\n"
    code = f"import torch\n\n\ndef f({parameters}):\n{body}\n\ncompiled = torch.jit.script(f)\n"
    assert not TorchScript(Facts.read(code.encode())).functions
    path = tmp_path / "program.py"
    path.write_text(code)
    with pytest.raises(torch.jit.frontend.NotSupportedError):
        runpy.run_path(str(path))


def test_a_local_device_around_compiled_code_is_not_used_in_it() -> None:
    code = b"""import torch

def outer():
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")

    @torch.jit.script
    def inner(x: torch.Tensor):
        return x.cuda()
    return inner(torch.ones(1).to(device))
"""
    (finding,) = check_file(code, "m.py", Settings(), Project()).findings
    assert finding.fix is None
    assert "TorchScript" in finding.message
