"""Edits: how they nest, join and replace each other."""

from __future__ import annotations

from dataclasses import replace

import pytest
from helpers import apply

from devicefix.files.text import replaced
from devicefix.model import Edit, Effect, Removal
from devicefix.rewrite.edits import ConflictError, joined, resolved
from devicefix.rewrite.operations import Guard

TEXT = "f(a, b)\ng(c)\n"


def made(text: str, *edits: Edit) -> str:
    return apply(text, edits)


def test_edits_are_made_in_any_order() -> None:
    edits = Edit(5, 6, "y"), Edit(2, 3, "x")
    assert made(TEXT, *edits) == made(TEXT, *reversed(edits)) == "f(x, y)\ng(c)\n"


def test_an_outer_edit_gets_the_text_with_the_inner_ones_made() -> None:
    outer = Edit(0, 7, lambda text: f"[{text}]")
    assert made(TEXT, Edit(2, 3, "x"), outer, Edit(5, 6, lambda text: text * 2)) == "[f(x, bb)]\ng(c)\n"


def test_insertions_come_before_what_starts_there_and_after_what_ends_there() -> None:
    assert made(TEXT, Edit(2, 3, "x"), Edit(2, 2, "<"), Edit(3, 3, ">")) == "f(<x>, b)\ng(c)\n"


def test_the_outermost_edits_are_given_with_their_places() -> None:
    edits = joined(TEXT, [Edit(2, 3, "x"), Edit(0, 7, str.upper), Edit(10, 11, "z")])
    assert resolved(TEXT, edits) == [(0, 7, "F(X, B)"), (10, 11, "z")]


@pytest.mark.parametrize(
    "edits",
    [
        pytest.param([Edit(0, 4, ""), Edit(2, 6, "")], id="they cross"),
        pytest.param([Edit(0, 4, ""), Edit(0, 4, "")], id="the same place"),
        pytest.param([Edit(0, 7, ""), Edit(0, 4, ""), Edit(2, 6, "")], id="they cross inside another"),
    ],
)
def test_edits_that_cross_are_refused(edits: list[Edit]) -> None:
    with pytest.raises(ConflictError):
        made(TEXT, *edits)


def guard(text: str, code: str, test: str = "ok", newline: str = "\n") -> Edit:
    start = text.index(code)
    effect = Effect(added=("If",), deeper=True)
    return Edit(start, start + len(code), Guard("", newline, test, "    "), effect=effect)


@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
def test_neighbours_share_a_guard(newline: str) -> None:
    text = f"a(){newline}b()  # why{newline}c(){newline}"
    edits = joined(text, [guard(text, code, newline=newline) for code in ("c()", "a()", "b()")])
    assert [edit.effect for edit in edits] == [
        Effect(("If",), deeper=True),
        Effect(deeper=True),
        Effect(deeper=True),
    ]
    expected = f"if ok:{newline}    a(){newline}    b()  # why{newline}    c(){newline}"
    assert replaced(text, resolved(text, edits)) == expected


@pytest.mark.parametrize(
    "text", ["a()\n\n\nb()\n", "a()\n# why\nb()\n", "a()\nx()\nb()\n", "if x:\n    a()\nb()\n"]
)
def test_others_do_not_share_a_guard(text: str) -> None:
    assert made(text, guard(text, "a()"), guard(text, "b()")).count("if ok:") == 2


def test_another_guard_is_not_shared() -> None:
    text = "a()\nb()\n"
    assert made(text, guard(text, "a()"), guard(text, "b()", "no")).count("if") == 2


def removal(text: str, line: str, block: int, size: int, instead: Edit) -> Edit:
    start = text.index(line)
    return Edit(start, start + len(line), "", removal=Removal(block, size, instead))


def test_a_block_of_which_something_stays_is_kept() -> None:
    text = "if a:\n  x\n  y\n  z\n"
    edits = [removal(text, line, 8, 3, Edit(0, len(text), "")) for line in ("  x\n", "  z\n")]
    assert made(text, *edits) == "if a:\n  y\n"


def test_a_block_of_which_everything_goes_is_replaced() -> None:
    text = "if a:\n  x\n  y\nz\n"
    edits = [removal(text, line, 8, 2, Edit(0, 14, "")) for line in ("  x\n", "  y\n")]
    assert made(text, *edits) == "z\n"


def test_a_block_that_is_left_empty_empties_the_one_around_it() -> None:
    text = "def f():\n  if a:\n    x\n    y\n  z\n"
    instead = Edit(11, text.index("  z") - 1, "pass")
    outer = removal(text, "  if a:\n    x\n    y\n", 11, 2, instead)
    edits = [removal(text, line, 21, 2, outer) for line in ("    x\n", "    y\n")]
    assert made(text, *edits) == "def f():\n  z\n"
    edits.append(removal(text, "  z\n", 11, 2, Edit(len(text) - 2, len(text) - 1, "pass")))
    assert made(text, *edits) == "def f():\n  pass\n"


def whole(text: str, code: str, test: str = "ok") -> Edit:
    """Return the guard of a statement in the body of `if a:`, which can join that test."""
    instead = Edit(3, 4, lambda old: f"{old} and {test}")
    return replace(guard(text, code, test), removal=Removal(8, text.count("\n") - 1, instead))


def test_a_guard_of_a_whole_block_joins_the_test_around() -> None:
    text = "if a:\n  x()\n  y()  # why\n"
    edits = [whole(text, code) for code in ("x()", "y()")]
    assert made(text, *edits) == "if a and ok:\n  x()\n  y()  # why\n"
    gone = removal(text, "  x()\n", 8, 2, Edit(0, len(text), ""))
    assert made(text, gone, edits[1]) == "if a and ok:\n  y()  # why\n"


@pytest.mark.parametrize(
    "also", [(), (("x()", "no"),), (("x()", "ok"), ("a", ""))], ids=["a part", "other guards", "another test"]
)
def test_other_guards_stay_in_the_block(also: tuple[tuple[str, str], ...]) -> None:
    text = "if a:\n  x()\n  y()\n"
    others = [whole(text, *each) if each[1] else Edit(3, 4, "b") for each in also]
    assert " and ok:" not in made(text, whole(text, "y()"), *others)
