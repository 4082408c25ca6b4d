"""Edits of expressions: comments and line breaks inside them survive."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from random import Random

import pytest

from devicefix.rewrite.edits import new_code
from devicefix.rewrite.operations import AddKeyword, KeepFirst, KeepReceiver, Move, ReplaceFunction
from devicefix.rewrite.transformer import parse_expression


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("x.cuda()", "x.to(device)"),
        ("x.cuda(0)", "x.to(device)"),
        ("x.cuda(None, True)", "x.to(device, non_blocking=True)"),
        ("x.cuda(non_blocking=True)", "x.to(device, non_blocking=True)"),
        ("x.cuda(device=1, non_blocking=b)", "x.to(device, non_blocking=b)"),
        ("x.cuda(  # one\n    0,  # two\n)", "x.to(  # one\n    device,  # two\n)"),
        ("(x\n  # why\n  .cuda())[0].cuda()", "(x\n  # why\n  .cuda())[0].to(device)"),
        ("x . cuda ( )", "x . to ( device)"),
        ("x.cuda(\r\n\t0)", "x.to(\r\n\tdevice)"),
        ("x.cuda((0))", "x.to(device)"),
        ("x.cuda(*a, b)", "x.to(device, *a, non_blocking=b)"),
        ("x.cuda(**a)", "x.to(device, **a)"),
        ("x.cuda(non_blocking=b, device=(1))", "x.to(non_blocking=b, device=device)"),
        ("x.cuda(non_blocking=b, device # ==\n = 1,)", "x.to(non_blocking=b, device # ==\n = device,)"),
        ("x.cuda(a for a in b)", "x.to(device)"),
        ("((é)\\\n .cuda)(0)", "((é)\\\n .to)(device)"),
        ("x.cuda(ｄｅｖｉｃｅ=0)", "x.to(device)"),
    ],
)
def test_moved(before: str, after: str) -> None:
    assert new_code(Move("device"), before) == after


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("f()", "f(k=v)"),
        ("f(a)", "f(a, k=v)"),
        ("f(a, **b)", "f(a, k=v, **b)"),
        ("f(**b)", "f(k=v, **b)"),
        ("f(a,)", "f(a, k=v,)"),
        ("f(\n    a,\n    b,\n)", "f(\n    a,\n    b,\n    k=v,\n)"),
        ("f(\n    a  # why\n)", "f(\n    a, k=v  # why\n)"),
        ("f(\n    a,  # why\n)", "f(\n    a, k=v,  # why\n)"),
        ("f(\n    a,  # one\n\n    b,  # two\n)", "f(\n    a,  # one\n\n    b,  # two\n    k=v,\n)"),
        ("f(((a)\n))", "f(((a)\n), k=v)"),
        ("f(a for a in b if c )", "f((a for a in b if c), k=v )"),
        ("f((a for a in b))", "f((a for a in b), k=v)"),
        ("f('#,)', ')', )", "f('#,)', ')', k=v, )"),
        ("(f)(a)(b)", "(f)(a)(b, k=v)"),
    ],
)
def test_with_keyword(before: str, after: str) -> None:
    assert new_code(AddKeyword("k", "v"), before) == after


def test_receiver_of() -> None:
    assert new_code(KeepReceiver(), "a.b[0](\n  1)  .cuda(0)") == "a.b[0](\n  1)"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("x.to(d) if ok else x", "x.to(d)"),
        ("(x.to(d)) if ok else x", "x.to(d)"),
        ("(x\n .to(d)) if ok else x", "(x\n .to(d))"),
        ("x.to(d)\n  if ok else x", "x.to(d)"),
        ("x.to(d)  # there\n     if ok else x", "x.to(d)  # there\n     "),
        ("x.to(d) if ok  # one\n  else  # two\n  x", "x.to(d)  # one\n  # two\n  "),
        ("x.to(  # in\n  d) if (ok  # out\n) else x", "(x.to(  # in\n  d)  # out\n)"),
        ("x.to(d)  # there\r\n\tif ok else x", "x.to(d)  # there\r\n\t"),
    ],
)
def test_the_first_choice_keeps_the_comments_of_the_rest(before: str, after: str) -> None:
    assert new_code(KeepFirst(), before) == after


def test_every_other_character_stays() -> None:
    text = "f (a , # one\r\n\t*b,\r\n\t# two\r\n\tc = d,)"
    assert new_code(ReplaceFunction("f"), text) == text
    assert new_code(ReplaceFunction("g"), "(a).b  (c)") == "g  (c)"


@pytest.mark.parametrize("seed", range(20))
def test_a_new_call_differs_only_in_what_changes(seed: int) -> None:
    """Both rewrites of random calls parse, and keep the other arguments and every comment."""
    random = Random(seed)
    for _ in range(40):
        text = random_call(random)
        old = parsed(text)
        keywords = [f"{keyword.arg}={ast.dump(keyword.value)}" for keyword in old.keywords]
        new = parsed(new_code(AddKeyword("k", "v"), text))
        with_new = [f"{keyword.arg}={ast.dump(keyword.value)}" for keyword in new.keywords]
        assert [*map(ast.dump, new.args)] == [*map(ast.dump, old.args)]
        assert sorted(with_new) == sorted([*keywords, f"k={ast.dump(ast.Name('v', ast.Load()))}"])
        assert COMMENT.findall(new_code(AddKeyword("k", "v"), text)) == COMMENT.findall(text)
        moving = parsed(new_code(Move("there"), text))
        assert isinstance(moving.func, ast.Attribute) and moving.func.attr == "to"
        given = [*moving.args[:1], *(each.value for each in moving.keywords if each.arg == "device")]
        assert any(isinstance(each, ast.Name) and each.id == "there" for each in given)
        kept = {f"{keyword.arg}" for keyword in old.keywords} - {"device"}
        assert kept <= {f"{keyword.arg}" for keyword in moving.keywords}


COMMENT = re.compile("#[0-9]+")


def random_call(random: Random) -> str:
    """Return the code of a call of `cuda` with arguments, white space and comments at random."""

    def space() -> str:
        comment = f" #{random.randrange(100)}\n\t"
        return random.choice(("", "", "", " ", "\n  ", "\r\n", "\n\n ", "\\\n", comment))

    values = ("0", "a", "(b)", "((c)\n)", "f(x, y)", "'é'", "a[0]", "[i for i in z]", "(i for i in z)", "','")
    names = ["", *random.choices(("", "*"), k=random.randrange(2)), "device", "non_blocking", "other", "**"]
    arguments = [
        f"{name}{space()}{'=' if name.isidentifier() else ''}{space()}{random.choice(values)}"
        for name in names
        if random.random() < 0.5
    ]
    inside = f"{space()},{space()}".join(arguments)
    last = "," if arguments and random.random() < 0.3 else ""
    receiver = random.choice(("x", "(x)", "x[0]", "f(a, b)", "x.y", "(\nx)"))
    return f"{receiver}{space()}.{space()}cuda{space()}({space()}{inside}{space()}{last}{space()})"


def parsed(text: str) -> ast.Call:
    """Parse a call."""
    statement = ast.parse(f"({text}\n)").body[0]
    assert isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call)
    return statement.value


def test_what_is_nested_too_deeply_is_refused() -> None:
    with pytest.raises(RecursionError):
        parse_expression("-" * 400 + "x")


def test_libcst_is_not_imported_with_the_module() -> None:
    code = (
        "import sys, devicefix.rewrite.edits, devicefix.rewrite.blocks, devicefix.rewrite.selfcheck\n"
        "print('libcst' in sys.modules)"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout == "False\n"
