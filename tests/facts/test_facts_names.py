"""`devicefix.facts.names`: what the names of one module resolve to."""

from __future__ import annotations

import ast

import pytest

from devicefix.facts import Facts
from devicefix.facts.names import option_names
from devicefix.facts.others import Others
from devicefix.files.text import parse


def facts_of(code: str) -> Facts:
    return Facts.read(code.encode())


def last(facts: Facts) -> ast.expr:
    """Return the expression that is the last statement, wherever that is."""
    nodes = [node for node in ast.walk(facts.tree.module) if isinstance(node, ast.Expr)]
    return max(nodes, key=lambda node: (node.lineno, node.col_offset)).value


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("import torch\ntorch.cuda.synchronize", "torch.cuda.synchronize"),
        ("import torch as t\nt.cuda", "torch.cuda"),
        ("import torch.cuda as tc\ntc.amp.autocast", "torch.cuda.amp.autocast"),
        ("import torch.cuda\ntorch.cuda", "torch.cuda"),
        ("from torch import cuda\ncuda.amp", "torch.cuda.amp"),
        ("from torch.cuda.amp import autocast as a\na", "torch.cuda.amp.autocast"),
        ("from .x import y\ny.z", ".x.y.z"),
        ("torch.cuda", "torch.cuda"),
        ("cuda.amp", None),
        ("import torch\nt = torch\nt.cuda", "torch.cuda"),
        ("import torch\nc = torch.cuda\nd = c\nd.amp", "torch.cuda.amp"),
        ("import torch\nt = torch\nt = x\nt.cuda", None),
        ("import torch\ntorch = x\ntorch.cuda", None),
        ("try:\n    import torch\nexcept ImportError:\n    torch = None\ntorch.cuda", "torch.cuda"),
        ("try:\n    import torch\nexcept ImportError:\n    torch = object()\ntorch.cuda", "torch.cuda"),
        ("import a as x\nimport b as x\nx", "b"),
        ("if y:\n    import a as x\nelse:\n    import b as x\nx", None),
        ("import a as x\nx = 1\nfrom c import x\ny = x.y\nx = 2\nx", None),
        ("def x(): ...\nfrom a import x\nif y:\n    x = 1\nx.y", None),
        ("def x(): ...\nfrom a import x\nif y:\n    x.y", "a.x.y"),
        ("from a import x\nfor y in z:\n    if y:\n        x = 1\n    x.y", None),
        ("import a as torch\nimport torch\ntorch", "torch"),
        ("import torch\ndef f(torch):\n    torch.cuda", None),
        ("import torch\ndef f():\n    torch.cuda", "torch.cuda"),
        ("import torch\nf().cuda", None),
        ("import torch\nx[0].cuda", None),
        ("a = b\nb = a\na.c", None),
    ],
)
def test_resolve(code: str, expected: str | None) -> None:
    facts = facts_of(code)
    assert facts.resolve(last(facts)) == expected


def test_local_names_resolve_in_statements_without_a_word_of_cuda() -> None:
    facts = facts_of("import torch\ndef f():\n    import numpy as torch\n    return torch.zeros(1)\n")
    (call,) = (node for node in ast.walk(facts.tree.module) if isinstance(node, ast.Call))
    assert facts.resolve(call.func) == "numpy.zeros"


def test_call() -> None:
    facts = facts_of("import torch\ntorch.load(x)\n")
    node = last(facts)
    assert facts.call(node, "torch.save", "torch.load")
    assert not facts.call(node, "torch.save")
    assert isinstance(node, ast.Call)
    assert not facts.call(node.func, "torch.load")


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("x = 1\nx", ["1"]),
        ("x = 1\nx = 2\nx", ["1", "2"]),
        ("def f(x):\n    x = 1\n    x", []),
        ("import x\nx", []),
        ("x", []),
        ("args.cuda = 1\nargs.cuda", ["1"]),
        ("args.cuda = 1\nother.cuda", []),
        ("f().x = 1\nf().x", []),
    ],
)
def test_bindings(code: str, expected: list[str]) -> None:
    facts = facts_of(code)
    found = facts.bindings(last(facts))
    assert [ast.unparse(binding.value) for binding in found if binding.value] == expected


@pytest.mark.parametrize(("code", "expected"), [("x = 1\nx", "1"), ("x = 1\nx = 2\nx", None), ("x", None)])
def test_value(code: str, expected: str | None) -> None:
    facts = facts_of(code)
    value = facts.value(last(facts))
    assert (value and ast.unparse(value)) == expected


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("import torch\nx", "torch"),
        ("import torch as t\nx", "t"),
        ("import torch.nn\nx", "torch"),
        ("import torch.nn as nn\nx", None),
        ("x", None),
        ("def f():\n    import torch\nx", None),
        ("def f():\n    import torch as t\n    x", "t"),
        ("import torch\ndef f(torch):\n    x", None),
        ("from a import *\ntorch.zeros(1)\nx", "torch"),
        ("from a import *\nx", None),
        ("torch.zeros(1)\nx", None),
        ("from a import *\ndef f(torch):\n    torch.zeros(1)\nx", None),
        ("from a import *\ny = lambda torch: torch.zeros(1)\nx", None),
    ],
)
def test_torch_name(code: str, expected: str | None) -> None:
    facts = facts_of(code)
    assert facts.torch_name(last(facts)) == expected


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("device = 1", True),
        ("import device", True),
        ("def f():\n    global device", True),
        ("print(device)", True),
        ("def f():\n    print(device)", True),
        ("def f(device):\n    print(device)", False),
        ("f = lambda device: device", False),
        ("f(device=1)", False),
        ("x.device", False),
        ("devices", False),
        ("", False),
    ],
)
def test_taken(code: str, expected: bool) -> None:
    assert facts_of(code).taken("device") is expected


@pytest.mark.parametrize(
    ("code", "expected"),
    [("x = 1\nx", None), ("x = 1\ndef f(x):\n    x", ast.FunctionDef), ("x = 1\ndef f():\n    x", None)],
)
def test_shadowed(code: str, expected: type[ast.AST] | None) -> None:
    facts = facts_of(code)
    scope = facts.shadowed("x", last(facts))
    assert (scope and type(scope.node)) == expected


def test_options() -> None:
    facts = facts_of(
        "p.add_argument('--local-rank', '-r', type=int)\n"
        "p.add_argument('--gpu', dest='device_id')\n"
        "p.add_argument('--n', type=str)\np.add_argument('--n', type=int)\n"
        "add_argument('--other', type=int)\n"
        "p.add_argument('--cuda', action='store_true')\np.add_argument('--ids', default=f())\n"
    )
    assert facts.options == {
        ("local_rank", "int", "None"), ("r", "int", "None"), ("gpu", "", "None"), ("device_id", "", "None"),
        ("n", "str", "None"), ("n", "int", "None"), ("cuda", "", "False"), ("ids", "", ""),
    }  # fmt: skip
    assert facts.is_integer_option("local_rank")
    assert not facts.is_integer_option("gpu")
    assert not facts.is_integer_option("n")
    assert not facts.is_integer_option("elsewhere")
    others = Others()
    others.is_integer_option = {"elsewhere", "n"}.__contains__  # type: ignore[assignment, method-assign]
    informed = facts.informed(others)
    assert informed.is_integer_option("elsewhere")
    assert not informed.is_integer_option("n")


def test_option_names() -> None:
    call = ast.parse("add('--a-b', '-c', x, 1, dest='d')", mode="eval").body
    assert isinstance(call, ast.Call)
    assert option_names(call) == ["a_b", "c", "d"]


def test_once() -> None:
    facts = facts_of("x = 1")
    asked: list[str] = []

    def question(_facts: Facts, _scope: object, more: str) -> str:
        asked.append(more)
        return more

    answers = [facts.once(question, facts.tree.root, more) for more in ("a", "b", "a")]
    assert answers == ["a", "b", "a"]
    assert asked == ["a", "b"]


def test_parse_warns_of_nothing(recwarn: pytest.WarningsRecorder) -> None:
    parse("x = '\\d'\n")
    assert not recwarn
