"""The fixes that several rules make."""

from __future__ import annotations

import ast
import pickle

import pytest
from contexts import context_of, expression
from helpers import apply

from devicefix.devices.context import Context
from devicefix.devices.expression import DeviceExpr
from devicefix.model import Definition, Finding, Fix, Import, Safety

IF_CUDA = "if torch.cuda.is_available()"


def applied(context: Context, fix: Fix) -> str:
    """Return the last line of the module after a fix."""
    return apply(context.source.text, fix.edits).splitlines()[-1]


@pytest.mark.parametrize(
    ("line", "new"),
    [
        ("f(x)", 'f("cuda" if c else "cpu")'),
        ("y = x", 'y = "cuda" if c else "cpu"'),
        ("y = [x]", 'y = ["cuda" if c else "cpu"]'),
        ("y = {1: x}", 'y = {1: "cuda" if c else "cpu"}'),
        ("y = {**x}", 'y = {**("cuda" if c else "cpu")}'),
        ("y = {x: 1}", 'y = {"cuda" if c else "cpu": 1}'),
        ("x()", '("cuda" if c else "cpu")()'),
        ("y = x + 1", 'y = ("cuda" if c else "cpu") + 1'),
        ("y = x.z", 'y = ("cuda" if c else "cpu").z'),
        ("y = x if z else 1", 'y = ("cuda" if c else "cpu") if z else 1'),
    ],
)
def test_a_replacement_gets_the_parentheses_that_it_needs(line: str, new: str) -> None:
    context = context_of(f"{line}  # cuda\n")
    fix = context.replace(expression(context, "x"), DeviceExpr('"cuda" if c else "cpu"'))
    assert applied(context, fix) == f"{new}  # cuda"


def test_a_name_needs_no_parentheses() -> None:
    context = context_of("y = x + 1\n")
    assert (
        applied(context, context.replace(expression(context, "x"), DeviceExpr("device"))) == "y = device + 1"
    )


@pytest.mark.parametrize(
    ("line", "code", "new"),
    [
        ("y = x.cuda()", "x.cuda()", f"y = x.cuda() {IF_CUDA} else x"),
        ("y = x.cuda() + 1", "x.cuda()", f"y = (x.cuda() {IF_CUDA} else x) + 1"),
        ("y = f(a if b else c)", "a if b else c", f"y = f((a if b else c) {IF_CUDA} else x)"),
        ("y = f(lambda: a)", "lambda: a", f"y = f((lambda: a) {IF_CUDA} else x)"),
    ],
)
def test_an_expression_depends_on_cuda(line: str, code: str, new: str) -> None:
    context = context_of(f"import torch\n\n{line}  # cuda\n")
    fix = context.when_cuda(expression(context, code), "x")
    assert applied(context, fix) == f"{new}  # cuda"
    assert (fix.safety, fix.needs) == (Safety.SAFE, frozenset())


def test_the_other_case_can_be_made_of_the_code() -> None:
    context = context_of("x = f(x.cuda())\n")
    fix = context.when_cuda(
        expression(context, "x.cuda()"), lambda code: code.removesuffix(".cuda()"), Safety.UNSAFE
    )
    assert applied(context, fix) == f"x = f(x.cuda() {IF_CUDA} else x)"
    assert (fix.safety, fix.needs) == (Safety.UNSAFE, frozenset({Import("torch")}))


def test_strings_have_the_quotes_of_the_code() -> None:
    context = context_of("import torch\n\nx = 'cuda'\n")
    fix = context.when_cuda(expression(context, "'cuda'"), '"cpu"')
    assert applied(context, fix) == f"x = 'cuda' {IF_CUDA} else 'cpu'"


def test_a_device_becomes_the_accelerators() -> None:
    context = context_of('import torch\n\nx = "cuda"\n', target="accelerator")
    node = expression(context, '"cuda"')
    here = "torch.accelerator.current_accelerator().type if torch.accelerator.is_available()"
    assert applied(context, context.when_cuda(node, '"cpu"')) == f'x = {here} else "cpu"'
    saved_from = context.when_cuda(node, '"cpu"', of_cuda=True)
    assert applied(context, saved_from) == f'x = "cuda" {IF_CUDA} else "cpu"'


def test_an_edit_needs_what_its_code_uses() -> None:
    context = context_of("x = y\n")
    use = DeviceExpr("device", frozenset({Definition("device", "1")}))
    fix = context.edit(expression(context, "y"), str.upper, use, Safety.UNSAFE)
    assert applied(context, fix) == "x = Y"
    assert (fix.safety, fix.needs) == (Safety.UNSAFE, use.needs)


def test_a_statement_is_put_under_a_guard() -> None:
    context = context_of("x.cuda()\n")
    fix = context.put_under_guard(context.facts.tree.module.body[0])
    assert apply(context.source.text, fix.edits) == f"{IF_CUDA}:\n    x.cuda()\n"
    assert (fix.safety, fix.needs) == (Safety.SAFE, frozenset({Import("torch")}))


def test_an_import_that_a_fix_leaves_unused_is_removed() -> None:
    context = context_of("from a import b, c\n\nx = b(c)  # cuda\n")
    edits = context.without_import("b", expression(context, "b"))
    assert apply(context.source.text, edits) == "from a import c\n\nx = b(c)  # cuda\n"
    assert context.without_import("c") == ()


@pytest.mark.parametrize("other", ["from m import *\n\nb()\n", "from m import b\n", "import m\n\nm.b()\n"])
def test_an_import_that_another_file_uses_stays(other: str) -> None:
    context = context_of("from a import b\n\nx = 0  # cuda\n", {"n.py": other})
    assert context.without_import("b") == ()


def test_handled_expressions_are_handled_with_what_is_inside_them() -> None:
    context = context_of("if f(x):\n    g(y)\n")
    context.mark_handled(context.facts.tree.module.body[0], expression(context, "f(x)"))
    assert expression(context, "x") in context.handled
    assert context.facts.tree.module.body[0] in context.handled
    assert expression(context, "g(y)") not in context.handled


def test_a_portable_finding_holds_no_syntax_tree() -> None:
    after = ast.parse("import torch").body[0]
    fix = Fix((), "w", frozenset({Import("torch"), Definition("device", "1", after)}))
    portable = Finding("DF101", "", 1, 1, 1, 2, fix).portable()
    assert portable.fix == Fix((), "w")
    assert b"ast" not in pickle.dumps(portable)
