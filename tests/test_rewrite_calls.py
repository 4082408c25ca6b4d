"""Edits of expressions: comments and line breaks inside them survive."""

from __future__ import annotations

import subprocess
import sys

import pytest

from devicefix.rewrite.calls import first_choice, moved, on_call, receiver_of, with_keyword
from devicefix.rewrite.parsing import parse_expression


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
    ],
)
def test_moved(before: str, after: str) -> None:
    assert moved("device")(before) == after


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
    ],
)
def test_with_keyword(before: str, after: str) -> None:
    assert with_keyword("k", "v")(before) == after


def test_receiver_of() -> None:
    assert receiver_of("a.b[0](\n  1)  .cuda(0)") == "a.b[0](\n  1)"


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
    assert first_choice(before) == after


def test_an_unchanged_call_keeps_every_character() -> None:
    text = "f (a , # one\r\n\t*b,\r\n\t# two\r\n\tc = d,)"
    assert on_call(lambda call: call)(text) == text


def test_what_is_nested_too_deeply_is_refused() -> None:
    with pytest.raises(RecursionError):
        parse_expression("-" * 400 + "x")


def test_libcst_is_not_imported_with_the_module() -> None:
    code = (
        "import sys, devicefix.rewrite.calls, devicefix.rewrite.blocks, devicefix.rewrite.selfcheck\n"
        "print('libcst' in sys.modules)"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout == "False\n"
