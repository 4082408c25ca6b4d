"""The removal of an import that a fix leaves unused."""

from __future__ import annotations

import ast

import pytest
from helpers import apply

from devicefix.config.settings import RuleOptions
from devicefix.devices.context import Context
from devicefix.facts import Facts
from devicefix.facts.project import Project


def without(text: str, name: str = "Variable", path: str = "module.py", newline: str = "\n") -> str:
    """Return a module without the import that is unused once the calls of a name are gone."""
    facts = Facts.read(text.replace("\n", newline).encode())
    context = Context(facts.source, facts, Project(), path, RuleOptions())
    calls = [
        node
        for node in ast.walk(facts.tree.module)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == name
    ]
    return apply(facts.source.text, context.without_import(name, *calls))


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("import torch\nfrom torch.autograd import Variable\n\nx = {}\n", "import torch\n\nx = {}\n"),
        ("from a import Variable, b\nx = {}\n", "from a import b\nx = {}\n"),
        ("from a import b, Variable\nx = {}\n", "from a import b\nx = {}\n"),
        ("from a import (\n    b,\n    Variable,\n)\nx = {}\n", "from a import (\n    b,\n)\nx = {}\n"),
        ("from a import (b, Variable)\nx = {}\n", "from a import (b)\nx = {}\n"),
        ("import a, c.d as Variable\nx = {}\n", "import a\nx = {}\n"),
        ("def f():\n    import Variable\n    return {}\n", "def f():\n    return {}\n"),
        ("import a; import Variable\nx = {}\n", "import a; pass\nx = {}\n"),
    ],
)
@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_an_unused_import_is_removed(before: str, after: str, newline: str) -> None:
    call = "Variable(x)"
    wanted = after.format(call).replace("\n", newline)
    assert without(before.format(call), newline=newline) == wanted


@pytest.mark.parametrize(
    "text",
    [
        "from a import Variable\nx = Variable(x)\ny = isinstance(x, Variable)\n",
        "from a import Variable  # noqa: F401\nx = Variable(x)\n",
        "from a import Variable as Variable\nx = Variable(x)\n",
        "from a import Variable\n__all__ = ['Variable']\nx = Variable(x)\n",
        "from a import Variable\n\n\ndef f(x: 'Variable'):\n    return Variable(x)\n",
        "try:\n    from a import Variable\nexcept E:\n    from b import Variable\nx = Variable(x)\n",
        "try:\n    from a import Variable\nexcept ImportError:\n    pass\nx = Variable(x)\n",
        "from a import Variable\nVariable = Variable(x)\n",
        "from a import *\nx = Variable(x)\n",
        "x = Variable(x)\n",
    ],
)
def test_an_import_that_may_be_used_stays(text: str) -> None:
    assert without(text) == text


def test_imports_of_a_package_stay() -> None:
    text = "from a import Variable\nx = Variable(x)\n"
    assert without(text, path="pkg/__init__.py") == text


def test_a_line_that_is_inserted_behind_the_import_stays() -> None:
    text = "import torch\nfrom a import Variable\n\nx = Variable(x)\n"
    facts = Facts.read(text.encode())
    context = Context(facts.source, facts, Project(), "module.py", RuleOptions())
    call = facts.tree.module.body[-1].value  # type: ignore[attr-defined]
    fix = context.edit(call, context.devices.current(call).text, context.devices.current(call))
    edits = [*fix.edits, *context.devices.insertions(fix.needs), *context.without_import("Variable", call)]
    device = 'device = torch.device("cuda" if torch.cuda.is_available() else "cpu")'
    assert apply(text, edits) == f"import torch\n\n{device}\n\nx = device\n"
