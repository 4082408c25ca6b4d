"""The check of what was rewritten: planted faults, whatever they come from, must not reach a file."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from pathlib import Path

import pytest
from click.testing import CliRunner

from devicefix.cli import main
from devicefix.config.settings import Settings
from devicefix.engine.file import check_file
from devicefix.facts.exports import summarize
from devicefix.facts.project import Project
from devicefix.model import Edit, SelfCheckError
from devicefix.rewrite import edits as rewriting
from devicefix.rewrite.selfcheck import check

BEFORE = """\
import torch

limit = (1)  # why


def move(x, c):
    # there
    a = '''
  kept'''
    x = x.cuda(); save(x)
    if c:
        log(x)
        x.cuda()
    return [a, x]
"""
CALLS = ("x.cuda(); save", "x.cuda()\n    return")


def spans(text: str, calls: Iterable[str] = CALLS) -> list[tuple[int, int]]:
    return [(text.index(call), text.index(call) + len("x.cuda()")) for call in calls]


def fixed(text: str) -> str:
    return text.replace("x.cuda()", "x.to(device)")


def passes(before: str, after: str, edits: list[tuple[int, int]]) -> bool:
    try:
        check(before, ast.parse(before), after, edits)
    except SelfCheckError:
        return False
    return True


@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
def test_right_fixes_pass(newline: str) -> None:
    calls = [call.replace("\n", newline) for call in CALLS]
    before = BEFORE.replace("\n", newline)
    assert passes(before, fixed(before), spans(before, calls))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        pytest.param("(1)", "1", id="a bracket"),
        pytest.param("  # why", "", id="a comment"),
        pytest.param("    # there\n", "", id="a line of comment"),
        pytest.param("[a, x]", "[a]", id="a neighbour below"),
        pytest.param("save(x)", "save(y)", id="a neighbour on the line"),
        pytest.param("limit", "limits", id="a neighbour above"),
        pytest.param("  kept", " kept", id="a string of several lines"),
        pytest.param("\n\n\n", "\n\n", id="a blank line"),
        pytest.param("(1)  # why\n", "(1)  # why\r\n", id="a line end"),
        pytest.param("\n    return", "\n        return", id="the next statement's indentation"),
        pytest.param("        x.to(device)\n", "    x.to(device)\n", id="its own indentation"),
        pytest.param(
            "x.to(device); save(x)", "x.to(device)#; save(x)", id="a comment that swallows the rest"
        ),
        pytest.param("x.to(device)\n    return", "x.to(device) + \\\n    (return)", id="what does not parse"),
        pytest.param("x.to(device)\n    return [a, x]", "x.to((device,\n    [a, x]))", id="an open bracket"),
        pytest.param("x.to(device)\n    return [a, x]", "x.to(device) + \\\n    [a, x]", id="a continuation"),
        pytest.param("x.to(device)\n    return [a, x]", "'''\n    return [a, x]\n'''", id="an open string"),
        pytest.param(
            "import torch\n", "import torch\n\ndevice = 0\n", id="an insertion that nothing asked for"
        ),
        pytest.param(
            "        log(x)\n        x.to(device)\n", "        x.to(device)\n        log(x)\n", id="order"
        ),
    ],
)
def test_a_fault_is_found(old: str, new: str) -> None:
    after = fixed(BEFORE)
    assert old in after
    assert not passes(BEFORE, after.replace(old, new, 1), spans(BEFORE))


def test_no_character_around_the_fixes_can_be_lost_or_doubled() -> None:
    """Next to a fix, what is doubled may be part of it."""
    after = fixed(BEFORE)
    free = {at for match in re.finditer(r".x\.to\(device\)\s?", after) for at in range(*match.span())}
    for at in set(range(len(after))) - free:
        for changed in (after[:at] + after[at + 1 :], after[: at + 1] + after[at:]):
            assert not passes(BEFORE, changed, spans(BEFORE)), changed


def test_insertions_and_guards_pass() -> None:
    before = "import torch\nwith a:\n    x.step()\nx.cuda()\ny.cuda()\n"
    first = before.index("x.cuda")
    edits = [(12, 12), (first, first + 8), (first + 9, first + 17)]
    guarded = "import torch\nok = ask()\nwith a:\n    x.step()\nif ok:\n    x.cuda()\n    y.cuda()\n"
    assert passes(before, guarded, edits)


@pytest.mark.parametrize("end", ["", "\n", "  # end", "\n# end"])
def test_an_insertion_at_the_end_passes(end: str) -> None:
    before = f"x = 1\ny = 2{end}"
    assert passes(before, f"{before}\nok = 1", [(len(before), len(before))])
    assert not passes(before, f"x = 1\ny = 3{end}\nok = 1", [(len(before), len(before))])


def test_a_statement_must_not_come_under_the_guard_of_an_inner_block() -> None:
    before = "with a:\n    x.cuda()\ny.cuda()\n"
    edits = [(12, 20), (21, 29)]
    assert passes(before, "with a:\n    if ok:\n        x.cuda()\nif ok:\n    y.cuda()\n", edits)
    assert not passes(before, "with a:\n    if ok:\n        x.cuda()\n    y.cuda()\n", edits)
    assert not passes(before, "with a:\n    if ok:\n        x.cuda()\n        y.cuda()\n", edits)


def test_what_follows_must_stay_in_its_block() -> None:
    before = "if x.cuda():\n    y()\nz()\n"
    assert passes(before, "if x.to(device):\n    y()\nz()\n", [(3, 11)])
    assert not passes(before, "if ok:\n  if x.to(device):\n    y()\nz()\n", [(3, 11)])
    before = "if a:\n    x.cuda()\n    y()\n"
    assert not passes(before, "if a:\n    x.to(device)\nif ok:\n    y()\n", [(10, 18)])


def test_a_block_that_is_as_deep_as_the_one_behind_is_none_of_it() -> None:
    before = (
        "if a:\n    if b:\n        c(x.cuda())\n        y.cuda()\n    z.cuda()\n    if d.cuda():\n        e\n"
    )
    calls = [match.span() for match in re.finditer(r"\b\w\.cuda\(\)", before)]
    after = before.replace("    z.cuda()", "    if ok:\n        z.cuda()")
    assert passes(before, after, calls)
    assert not passes(before, after.replace("\n    if ok:", "\n        if ok:"), calls)


def test_whole_lines_must_stay_in_their_block() -> None:
    before = "if a:\n    y()\n    x.cuda()\nz()\n"
    lines = [(before.index("    x"), before.index("z"))]
    assert passes(before, "if a:\n    y()\nz()\n", lines)
    assert passes(before, "if a:\n    y()\n    x.to(device)\nz()\n", lines)
    assert not passes(before, "if a:\n    y()\nx.to(device)\nz()\n", lines)
    before = "for v in w:\n    if c:\n        a()\nz()\n"
    assert not passes(before, "for v in w:\n        a()\nz()\n", [(12, 22)])


def test_what_stands_between_two_fixes_is_kept() -> None:
    before = "f(x.cuda(), kept, y.cuda())\n"
    edits = [(2, 10), (18, 26)]
    assert passes(before, "f(x.to(device), kept, y.to(device))\n", edits)
    assert not passes(before, "f(x.to(device), y.to(device))\n", edits)


def rewrite(text: str) -> bytes | None:
    data = text.encode()
    return check_file(data, "m.py", Settings(fix=True), Project.of([summarize(data, "m.py")])).output


def plant(monkeypatch: pytest.MonkeyPatch, sign: str, old: str, new: str) -> None:
    """Edits of a statement with a sign in it lead to a fault elsewhere."""
    right = rewriting.apply

    def wrong(text: str, edits: Iterable[Edit]) -> str:
        edits = list(edits)
        faulty = any(sign in text[edit.start : edit.end] for edit in edits)
        result = right(text, edits)
        return result.replace(old, new) if faulty else result

    monkeypatch.setattr(rewriting, "apply", wrong)


def test_the_message_names_the_fixes_that_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch, "bad", "  # why", "")
    text = "import torch\n\nn = 1  # why\nx = y.cuda()\ntorch.cuda.synchronize()\nz = bad.cuda()\n"
    with pytest.raises(SelfCheckError) as caught:
        rewrite(text)
    told = str(caught.value)
    assert "The cause is DF101 in line 6, column 5;" in told
    assert told.endswith("devicefix rewrite --select DF101 -- m.py")


def test_an_error_in_a_fix_is_told_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(text: str, edits: Iterable[Edit]) -> str:
        raise KeyError("x")

    monkeypatch.setattr(rewriting, "apply", fails)
    with pytest.raises(SelfCheckError, match=r"fails with KeyError: 'x'"):
        rewrite("import torch\n\nx = y.cuda()\n")


def test_a_failed_check_keeps_the_file_and_the_others_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch, "bad", "(1)", "1")
    bad, good = "import torch\n\nn = (1)\nx = bad.cuda()\n", "import torch\n\nx = y.cuda()\n"
    (tmp_path / "a.py").write_text(bad)
    (tmp_path / "b.py").write_text(good)
    ran = CliRunner().invoke(main, ["rewrite", "--in-place", str(tmp_path)])
    assert ran.exit_code == 2
    assert (tmp_path / "a.py").read_text() == bad
    assert "y.to(device)" in (tmp_path / "b.py").read_text()
    assert f"devicefix rewrite --select DF101 -- {tmp_path / 'a.py'}" in ran.output
