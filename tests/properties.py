"""The properties that hold for every file, as a function that fails where one does not."""

from __future__ import annotations

import ast
import re
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import pairwise

from corpus_comments import lost_comments

from devicefix.config.settings import Settings
from devicefix.config.values import TARGETS
from devicefix.engine.file import Module
from devicefix.engine.fix import ROUNDS, fix_once, recheck
from devicefix.facts.project import Project, ProjectFile
from devicefix.files.text import Source, parse
from devicefix.model import Edit, Finding, Result
from devicefix.rewrite.edits import joined

Look = Callable[[bytes, str, Settings, Project], Result]

SETTINGS = tuple(
    Settings(unsafe_fixes=unsafe, target=target) for target in TARGETS for unsafe in (False, True)
)


def hold_for_all(data: bytes) -> None:
    """Check one file as `hold` does, with all settings that make a difference to it."""
    for target in TARGETS:
        settings = Settings(target=target)
        if hold(data, settings):
            hold(data, replace(settings, unsafe_fixes=True))


def hold(data: bytes, settings: Settings = SETTINGS[0]) -> bool:
    """Check one file, rewrite it until nothing changes, and check the properties after each round.

    Args:
        data: the file.
        settings: the settings; `fix` is tried both ways.

    Returns:
        True if any finding has an unsafe fix.

    Raises:
        AssertionError: a property does not hold.
        Exception: devicefix failed, which must not happen for any file.
    """
    original = data
    first = result = _round(data, settings, first_round)
    unsafe = _has_unsafe(first)
    for _ in range(ROUNDS):
        if result.output is None:
            break
        after = _round(result.output, settings, recheck)
        unsafe = unsafe or _has_unsafe(after)
        _nothing_is_lost(data, result, after.findings)
        data, result = result.output, after
    else:
        raise AssertionError(f"the fixes are never done: {list(map(_said, result.fixed))}")
    codes = Counter(finding.code for finding in result.findings)
    before = Counter(finding.code for finding in first.remaining)
    new = codes - before
    # DF413 reports the function of `torch.accelerator` in the place of one that DF401 or DF404 reported.
    if settings.target == "accelerator":
        gone = before - codes
        new -= Counter({"DF413": gone["DF401"] + gone["DF404"]})
        # Nothing in a loop over the accelerators needs CUDA any more, so that it may be meant to run once.
        new -= Counter({"DF402": new["DF402"]})
    if b" else 0" in data and b" else 0" not in original:  # what a function of CUDA returns without it
        new -= Counter({"DF102": new["DF102"]})  # of code that moves a tensor to such a number
    # A fix may write `torch.cuda.is_available()`, say what a function returns without CUDA, remove the guard
    # that excused the import of a library, or choose the device by which `getattr(torch, device)` is found.
    # What a finding that ends the program held back appears when that finding is fixed.
    held = any(finding.stops for finding in first.findings)
    assert held or not new.keys() - {"DF405", "DF421", "DF703", "DF704", "DF902"}, f"made by a fix: {new}"
    return unsafe


def hide_nothing(data: bytes) -> None:
    """Fix what one rule finds, for each rule alone, and check that what the others found is still reported.

    Args:
        data: the file.

    Raises:
        AssertionError: a finding of another rule is gone.
    """
    findings = run_one(data, SETTINGS[0]).findings
    codes = {finding.code for finding in findings}
    for code in sorted(codes) if len(codes) > 1 else ():
        alone = run_one(data, replace(SETTINGS[0], fix=True, select=(code,)))
        if alone.output is not None:
            others = [finding for finding in findings if finding.code != code]
            after = run_one(alone.output, SETTINGS[0], recheck).findings
            _nothing_is_lost(data, replace(alone, findings=alone.fixed + others), after)


def _round(data: bytes, settings: Settings, look: Look) -> Result:
    """Check a file, and fix it once."""
    checked = run_one(data, replace(settings, fix=False), look)
    assert checked.output is None and not checked.fixed
    _lie_in_the_file(data, checked.findings)
    rewritten = run_one(data, replace(settings, fix=True), look)
    assert list(map(_said, rewritten.findings)) == list(map(_said, checked.findings))
    wanted = (finding for finding in checked.findings if settings.unsafe_fixes or _safe(finding))
    fixable = [each for each in wanted if each.fix and each.fix.edits]
    assert bool(rewritten.output) == bool(rewritten.fixed) == bool(fixable), "a fix that is not made"
    if rewritten.output is not None:
        assert rewritten.output != data, "a fix that changes nothing"
        _untouched_lines_are_kept(data, rewritten)
        _comments_survive(data, rewritten.output)
        if _compiles(data):
            assert _compiles(rewritten.output), "it compiled before"
    return rewritten


def first_round(data: bytes, path: str, settings: Settings, project: Project) -> Result:
    """Check a module as `check_file` does, and make the fixes of the first round only."""
    module = Module(data, path, settings)
    findings = module.find(project)
    if module.devices is None or not settings.fix:
        return Result(path, findings)
    return fix_once(findings, module.devices, settings)


def run_one(data: bytes, settings: Settings, look: Look = first_round) -> Result:
    """Check a module that is the whole project."""
    return look(data, "m.py", settings, Project([ProjectFile(data, "m.py")]))


def _said(finding: Finding) -> tuple[str, str, int, int, int, int]:
    place = finding.line, finding.column, finding.end_line, finding.end_column
    return finding.code, finding.message, *place


def _has_unsafe(result: Result) -> bool:
    return any(each.fix and not _safe(each) for each in result.findings)


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
    """Check that what is not fixed is still reported.

    It may go if a fix changes it, the test that it depends on, also one above that may leave the block, the
    line that its message names, a value that it or that test reads, what it is compared with, or code that
    reads, or whose test reads, the variable whose value is a constant, a call or a function with the finding.
    """
    source = Source(data)
    spans = [(edit.start, edit.end) for edit in _edits(rewritten)]
    nodes = list(ast.walk(parse(source.text)))
    changed = {
        name for node in nodes if isinstance(node, ast.Assign) for name in _changed(source, node, spans)
    }
    names = [node for node in nodes if isinstance(node, ast.Name)]
    tests = [
        source.span(node.test) for node in nodes if isinstance(node, _TESTING) and _holds(source, node, spans)
    ]
    read = {name.id for name in names for span in spans + tests if _inside(source.span(name), span)}
    spans += [
        source.span(node)
        for node in nodes
        if isinstance(node, ast.Assign)
        and isinstance(node.value, (ast.Constant, ast.Attribute, ast.Call))
        and not read.isdisjoint(_bound(node))
    ]
    spans += [
        source.span(default)
        for node in nodes
        if isinstance(node, ast.arguments)
        for argument, default in zip(reversed(node.args), reversed(node.defaults), strict=False)
        if argument.arg in read
    ]
    spans += [source.span(name) for name in names if name.id in changed]
    spans += [
        source.span(node) for node in nodes if isinstance(node, ast.Compare) and _holds(source, node, spans)
    ]
    parents = {child: node for node in nodes for child in ast.iter_child_nodes(node)}
    for node in nodes:
        if isinstance(node, _TESTING | ast.BoolOp):
            test = node.values[0] if isinstance(node, ast.BoolOp) else node.test
            if _holds(source, test, spans):
                start, end = source.span(node)
                if any(isinstance(inner, _LEAVING) for inner in ast.walk(node)):
                    end = _end_of(source, parents[node])
                spans.append((start, end))
        elif isinstance(node, ast.comprehension) and any(_holds(source, test, spans) for test in node.ifs):
            spans.append(source.span(parents[node]))  # type: ignore[arg-type]
    lines = {
        line
        for edit in _edits(rewritten)
        for line in range(source.position(edit.start)[0], source.position(edit.end)[0] + 1)
    }

    def touched(finding: Finding) -> bool:
        start = source.line_starts[finding.line - 1] + finding.column - 1
        end = source.line_starts[finding.end_line - 1] + finding.end_column - 1
        listed = re.findall(r"\blines? (\d[\d, and]*)", finding.message)
        named = {int(each) for text in listed for each in re.findall(r"\d+", text)}
        return any(first < end and start < last for first, last in spans) or not lines.isdisjoint(named)

    # A text is reported only if a read of it is not fixed.
    # So is a string that may be a device, if nothing else uses CUDA once an import of it is gone.
    texts = {
        "DF207",
        *(("DF203",) if any("import" in each.message for each in rewritten.fixed) else ()),
    }
    left = Counter(each.code for each in rewritten.remaining if not touched(each) and each.code not in texts)
    reported = Counter(each.code for each in after)
    assert not left - reported, f"no longer reported: {left - reported}"


_TESTING = ast.If | ast.While | ast.IfExp
_LEAVING = (ast.Return, ast.Raise, ast.Break, ast.Continue)


def _holds(source: Source, node: ast.expr | ast.stmt, spans: list[tuple[int, int]]) -> bool:
    """Return whether a span is inside a node, or the node inside a span that is removed."""
    first, last = source.span(node)
    return any((first <= start and end <= last) or (start <= first and last <= end) for start, end in spans)


def _end_of(source: Source, node: ast.AST) -> int:
    """Return the end of the block around a statement."""
    return source.span(node)[1] if isinstance(node, (ast.stmt, ast.expr)) else len(source.text)


def _changed(source: Source, node: ast.Assign, spans: list[tuple[int, int]]) -> Iterator[str]:
    """Yield the names that an assignment binds, if a fix changes its value or puts it under a guard."""
    whole, value = source.span(node), source.span(node.value)
    if any(_inside(span, value) or _inside(whole, span) for span in spans):
        yield from _bound(node)


def _bound(node: ast.Assign) -> Iterator[str]:
    parts = (part for target in node.targets for part in ast.walk(target))
    yield from (part.id for part in parts if isinstance(part, ast.Name))


def _inside(span: tuple[int, int], other: tuple[int, int]) -> bool:
    return other[0] <= span[0] and span[1] <= other[1]


def _edits(result: Result) -> list[Edit]:
    return [edit for finding in result.fixed if finding.fix for edit in finding.fix.edits]


def _untouched_lines_are_kept(data: bytes, result: Result) -> None:
    """Check that the lines without an edit are still there, in the same order."""
    assert result.output is not None
    before, after = Source(data), Source(result.output)
    edits = joined(before.text, _edits(result))  # the last statement of a clause takes its header along
    new = iter(after.text.splitlines())
    for line in _untouched(before, edits):
        assert any(line == other for other in new), f"lost: {line!r}"


def _comments_survive(before: bytes, after: bytes) -> None:
    """Check that a comment goes only with the statement that it belongs to."""
    lost = [loss for loss in lost_comments(before, after) if not loss.with_statement]
    assert not lost, f"comments lost: {', '.join(map(str, lost))}"


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
