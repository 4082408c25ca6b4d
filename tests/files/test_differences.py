"""Differences of lines, compared with difflib."""

from __future__ import annotations

import time
from difflib import SequenceMatcher

import pytest
from hypothesis import given
from hypothesis import strategies as st

from devicefix.files import differences
from devicefix.files.differences import Differences
from devicefix.report.changes import mark_differences
from devicefix.report.diff import unified

lines = st.lists(st.sampled_from("abcdefgh"), max_size=12)


@given(lines, lines, st.sampled_from([0, 4, 10_000]))
def test_what_differs_turns_one_into_the_other(old: list[str], new: list[str], small: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(differences, "_SMALL", small)
        codes = Differences(old, new).get_opcodes()
    made, at = [], 0
    for kind, first, last, start, end in codes:
        assert first == at
        assert kind != "equal" or old[first:last] == new[start:end]
        made += old[first:last] if kind == "equal" else new[start:end]
        at = last
    assert (at, made) == (len(old), new)


@given(lines, lines)
def test_short_texts_differ_as_in_difflib(old: list[str], new: list[str]) -> None:
    same = sum(block.size for block in Differences(old, new).get_matching_blocks())
    theirs = SequenceMatcher(None, old, new, autojunk=False).get_matching_blocks()
    # What is the same at both ends is taken first, which may be more, or less, than with the longest part.
    assert same >= sum(block.size for block in theirs) // 2


def test_a_change_between_lines_that_occur_once() -> None:
    old = [f"line {number}" for number in range(1000)]
    new = [*old[:500], "more", *old[501:700], *old[702:], "end"]
    assert [code for code in Differences(old, new).get_opcodes() if code[0] != "equal"] == [
        ("replace", 500, 501, 500, 501),
        ("delete", 700, 702, 700, 700),
        ("insert", 1000, 1000, 998, 999),
    ]


MANY = 20_000
HOSTILE = {
    "one line": ["x"] * MANY,
    "two lines": ["x", "y"] * (MANY // 2),
    "each line twice": [f"{number // 2}" for number in range(MANY)],
    "each line once": [f"{number}" for number in range(MANY)],
    "lines in another order": [f"{number * 7919 % MANY}" for number in range(MANY)],
}


@pytest.mark.parametrize("name", HOSTILE)
def test_repeated_lines_and_many_changes_take_little_time(name: str) -> None:
    old = HOSTILE[name]
    new = [line + "!" * (number % 3 == 0) for number, line in enumerate(old)]
    started = time.process_time()
    for other in (new, sorted(old), old[::-1], old[1:], ["z", *old]):
        Differences(old, other).get_opcodes()
    unified("a", "\n".join(old).encode(), "\n".join(new).encode())
    assert time.process_time() - started < 3


def test_the_differences_of_long_lines_take_little_time() -> None:
    line = "x.cuda(); " * 20_000
    started = time.process_time()
    for at in range(0, len(line), len(line) // 50):
        before, after = mark_differences(line, f"{line[:at]} y {line[at:]}")
        assert "".join(before) == line
        assert " y" in after[1]
    mark_differences(line, line.replace("cuda", "to"))
    assert time.process_time() - started < 3
