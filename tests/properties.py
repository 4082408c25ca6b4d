"""What holds for every file that devicefix looks at, as a function that fails where it does not."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise

from devicefix.config import TARGETS, Settings
from devicefix.engine import run
from devicefix.finding import Edit, Finding, Result
from devicefix.gate import may_matter
from devicefix.project import Project
from devicefix.source import Source
from devicefix.summary import summarize

SETTINGS = tuple(
    Settings(unsafe_fixes=unsafe, target=target) for target in TARGETS for unsafe in (False, True)
)


class NotSettled(AssertionError):
    """What was rewritten is rewritten again."""


def hold(data: bytes, settings: Settings = SETTINGS[0]) -> bool:
    """Check one file, rewrite it, and look at what came out.

    Args:
        data: the file.
        settings: without `fix`, which is tried both ways.

    Returns:
        Whether anything was rewritten.

    Raises:
        AssertionError: a property does not hold.
        Exception: devicefix failed, which it must not whatever the file holds.
    """
    checked = run_one(data, replace(settings, fix=False))
    assert checked.output is None and not checked.fixed
    _lie_in_the_file(data, checked.findings)
    rewritten = run_one(data, replace(settings, fix=True))
    assert list(map(_said, rewritten.findings)) == list(map(_said, checked.findings))
    wanted = (each for each in checked.findings if settings.unsafe_fixes or _safe(each))
    fixable = [each for each in wanted if each.fix and each.fix.edits]
    assert bool(rewritten.output) == bool(rewritten.fixed) == bool(fixable), "a fix that is not made"
    if rewritten.output is None:
        return False
    assert rewritten.output != data, "a fix that changes nothing"
    _untouched_lines_are_kept(data, rewritten)
    if _compiles(data):
        assert _compiles(rewritten.output), "it compiled before"
    again = run_one(rewritten.output, replace(settings, fix=True))
    if again.output is not None:
        raise NotSettled(f"a second run changes something: {list(map(_said, again.fixed))}")
    if may_matter(rewritten.output):  # without a word of CUDA there is nothing that it would look at
        _nothing_is_lost(data, rewritten, again.findings)
    return True


def run_one(data: bytes, settings: Settings) -> Result:
    """What the engine makes of a file that is the whole project."""
    return run(data, "m.py", settings, Project.of([summarize(data, "m.py")]))


def _said(finding: Finding) -> tuple[str, str, int, int, int, int]:
    place = finding.line, finding.column, finding.end_line, finding.end_column
    return finding.code, finding.message, *place


def _safe(finding: Finding) -> bool:
    return finding.safety is not None and finding.safety.value == "safe"


def _lie_in_the_file(data: bytes, findings: list[Finding]) -> None:
    if not findings or findings[0].code == "DF901":  # it may be no text at all
        return
    source = Source(data)
    for finding in findings:
        assert 1 <= finding.line <= finding.end_line <= len(source.line_starts)
        for line, column in ((finding.line, finding.column), (finding.end_line, finding.end_column)):
            start = source.line_starts[line - 1]
            assert 1 <= column <= source.line_end(start) - start + 1
        assert (finding.line, finding.column) <= (finding.end_line, finding.end_column)


def _nothing_is_lost(data: bytes, rewritten: Result, after: list[Finding]) -> None:
    """What is not fixed is still reported, unless another fix has taken care of it."""
    source = Source(data)
    spans = [(edit.start, edit.end) for edit in _edits(rewritten)]

    def touched(finding: Finding) -> bool:
        start = source.line_starts[finding.line - 1] + finding.column - 1
        end = source.line_starts[finding.end_line - 1] + finding.end_column - 1
        return any(first < end and start < last for first, last in spans)

    left = Counter(each.code for each in rewritten.remaining if not touched(each))
    reported = Counter(each.code for each in after)
    assert not left - reported, f"no longer reported: {left - reported}"
    new = reported - Counter(each.code for each in rewritten.remaining)
    # `torch.cuda.is_available()` is our own; the word that excused the import of a library may be gone.
    assert not new.keys() - {"DF405", "DF902"}, f"made by a fix: {new}"


def _edits(result: Result) -> list[Edit]:
    return [edit for finding in result.fixed if finding.fix for edit in finding.fix.edits]


def _untouched_lines_are_kept(data: bytes, result: Result) -> None:
    """The lines that no edit touches are still there, in their order: insertions may stand between them."""
    assert result.output is not None
    before, after = Source(data), Source(result.output)
    edits = _edits(result)
    new = iter(after.text.splitlines())
    for line in _untouched(before, edits):
        assert any(line == other for other in new), f"lost: {line!r}"


def _untouched(source: Source, edits: list[Edit]) -> Iterator[str]:
    for start, end in pairwise([*source.line_starts, len(source.text)]):
        if source.text[start:end].strip() and end < len(source.text):  # a last line may get its line end
            if not any(edit.start < end and start <= edit.end for edit in edits):
                yield from source.text[start:end].splitlines()


def _compiles(data: bytes) -> bool:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            compile(Source(data).text, "m.py", "exec", dont_inherit=True)
        except (SyntaxError, ValueError, RecursionError):
            return False
    return True
