"""One file in, one result out: gate, parse, rules, findings and the new source. Pure."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING

from devicefix.facts.comments import UNUSED, may_be_unused, silenced, unused
from devicefix.facts.prefilter import lines_that_matter, may_matter
from devicefix.files.text import DecodeError, Source
from devicefix.model import Finding, Result

if TYPE_CHECKING:
    from devicefix.config.settings import Settings
    from devicefix.devices.choose import Devices
    from devicefix.devices.context import Context
    from devicefix.facts import Facts
    from devicefix.facts.project import Project

SKIP_FILE = re.compile(rb"^[ \t]*#\s*devicefix:\s*skip-file\b", re.M)
UNREADABLE = (DecodeError, SyntaxError, ValueError, RecursionError, MemoryError)

Visit = Callable[[ast.AST], Iterator[Finding]]

ROUNDS = 10  # of fixes that let others become possible; three have been seen


def run(data: bytes, path: str, settings: Settings, project: Project) -> Result:
    """Check one file, and fix it where `settings.fix` says so.

    Args:
        data: the file's bytes.
        path: where it is, for its place in the project and for messages.
        settings: which rules are on, and which fixes are wanted.
        project: the facts of all files.

    Returns:
        The findings, those of them that are fixed, and the new bytes where any change.
    """
    result = Result(path)
    settings = settings.for_file(path)
    if not matters(data, settings):
        return result
    from devicefix.facts import Facts

    try:
        facts = Facts.read(data)
    except UNREADABLE as problem:
        from devicefix.rules.unparsable import explain

        finding = explain(data, problem)
        result.findings = [finding] if settings.enabled(finding.code) else []
        return result
    return examine(facts, path, settings, project)


def matters(data: bytes, settings: Settings) -> bool:
    """Whether a file's bytes may hold something to find, and do not ask to be left out."""
    if not (
        may_matter(data)
        or (b"torch" in data and any(word in data for word in _words(settings)))
        or may_be_unused(data, settings)
    ):
        return False
    return not (b"skip-file" in data and SKIP_FILE.search(data))


@lru_cache(maxsize=1)
def _words(settings: Settings) -> tuple[bytes, ...]:
    """Return the words that the selected rules look for, besides those that every run looks for."""
    from devicefix.rules.registry import RULES

    on = (rule for code, rule in RULES.items() if rule.words and settings.enabled(code, rule.default))
    return tuple(word for rule in on for word in rule.words)


def examine(facts: Facts, path: str, settings: Settings, project: Project) -> Result:
    """Check a module whose facts are known, and fix it where `settings.fix` says so; else as `run`."""
    findings, devices = look(facts, path, settings, project)
    if devices is None:
        return Result(path, findings)
    if settings.replacements:
        from devicefix.rewrite.preview import suggested

        findings = [suggested(finding, facts.source, devices) for finding in findings]
    if not settings.fix:
        return Result(path, findings)
    from devicefix.engine.fix import fixed

    return fixed(findings, devices, path, settings)


def look(
    facts: Facts, path: str, settings: Settings, project: Project
) -> tuple[list[Finding], Devices | None]:
    """The findings of a module whose facts are known, and what their fixes rely on: None if it is too deep.

    Args:
        facts: the module's.
        path: as for `run`, like the rest.
    """
    source, module = facts.source, facts.tree.module
    settings = settings.for_file(path)
    try:
        found, devices = _find(facts, path, settings, project)
    except RecursionError as problem:
        from devicefix.rules.unparsable import explain

        finding = explain(b"", problem)
        return [finding] if settings.enabled(finding.code) else [], None
    findings = [each for each in found if settings.ignore_noqa or not silenced(source, each, module)]
    if settings.enabled(UNUSED, default=False):
        findings += unused(source, module, found, _rules(settings))
        findings.sort(key=lambda finding: (finding.line, finding.column, finding.code))
    return findings, devices


def _rules(settings: Settings) -> dict[str, bool]:
    """Return the codes of all rules, true for those that are on."""
    from devicefix.rules.registry import RULES

    return {
        code: settings.target in rule.targets and settings.enabled(code, rule.default)
        for code, rule in RULES.items()
    }


def settle(result: Result, data: bytes, settings: Settings, project: Project) -> Result:
    """Fix what the fixes of a file have let become possible, until nothing does.

    Args:
        result: what `run` has made of the file.
        data: the file's bytes.
        settings: as for `run`.
        project: as for `run`.

    Returns:
        The same for a file that was not changed. Else the findings that remain stand where they are in the
        new source, and those that are fixed in the old one.
    """
    if result.output is None:
        return result
    fixed, output = list(result.fixed), result.output
    for _ in range(ROUNDS):
        after = look_again(output, result.path, settings, project)
        if after.output is None:
            return Result(result.path, fixed + after.findings, fixed, output)
        fixed += _where_they_were(after.fixed, data, output)
        output = after.output
    # They undo each other, or one its own work: no better than the first.
    after = look_again(result.output, result.path, replace(settings, fix=False), project)
    return Result(result.path, result.fixed + after.findings, result.fixed, result.output)


def look_again(data: bytes, path: str, settings: Settings, project: Project) -> Result:
    """As `run`, of what has been rewritten: the words of CUDA may be gone from it, and something remain."""
    from devicefix.facts import Facts

    return examine(Facts.read(data), path, settings, project)


def _where_they_were(findings: list[Finding], old: bytes, new: bytes) -> list[Finding]:
    """Findings in a new text, at the lines of the old one that theirs have come of."""
    from difflib import SequenceMatcher

    lines, others = (re.split("\r\n|\r|\n", Source(data).text) for data in (old, new))
    origin: list[int] = []
    for _, first, last, start, end in SequenceMatcher(None, lines, others, autojunk=False).get_opcodes():
        most = min(max(first, last - 1), len(lines) - 1)
        origin += (min(first + at, most) for at in range(end - start))

    def place(line: int, column: int) -> tuple[int, int]:
        was = origin[line - 1]
        return was + 1, min(column, len(lines[was]) + 1)

    return [
        Finding(
            each.code,
            each.message,
            *place(each.line, each.column),
            *place(each.end_line, each.end_column),
            each.fix,
        )
        for each in findings
    ]


def _find(facts: Facts, path: str, settings: Settings, project: Project) -> tuple[list[Finding], Devices]:
    from devicefix.devices.context import Context
    from devicefix.rules.base import visitors
    from devicefix.rules.registry import RULES

    facts = facts.informed(project.is_integer_option, project.is_flag)
    context = Context(facts.source, facts, project, path, settings)
    table: dict[type[ast.AST], list[tuple[Visit, bool]]] = {}
    for code, rule in RULES.items():
        if settings.target in rule.targets and settings.enabled(code, rule.default):
            for kind, visit in visitors(rule(context)):
                table.setdefault(kind, []).append((visit, rule.sees_handled))
    found = sorted(_walk(context, table), key=lambda finding: (finding.line, finding.column, finding.code))
    return _unless_deep(facts, found), context.devices


def _walk(context: Context, table: dict[type[ast.AST], list[tuple[Visit, bool]]]) -> Iterator[Finding]:
    tree = context.facts.tree
    only_data = all(isinstance(each, (ast.Assign, ast.AnnAssign, ast.Expr)) for each in tree.module.body)
    lines = lines_that_matter(tree.text, _words(context.settings))
    for node in tree.nodes_at([0, *lines]):  # 0: the module itself
        visits = table.get(type(node))
        if visits is None:
            continue
        string = tree.f_string(node)
        handled = node in context.handled
        for visit, sees_handled in visits:
            if handled and not sees_handled:
                continue
            for finding in visit(node):
                finding = _in_data(finding) if only_data else finding
                yield finding if string is None else _in_string(context, string, finding)


def _in_data(finding: Finding) -> Finding:
    """A finding whose fix would be the only code in a module of plain values, such as a configuration."""
    if finding.fix is None or "import torch" not in finding.fix.needs:
        return finding
    return finding.unfixed("in a module of plain values: choose it where it is used")


def _unless_deep(facts: Facts, findings: list[Finding]) -> list[Finding]:
    """The findings, less the fixes that would change what is nested too deeply."""
    from devicefix.rewrite.edits import may_be_too_deep, too_deep

    text = facts.source.text
    changed = {
        (edit.start, edit.end)
        for each in findings
        if each.fix
        for edit in each.fix.edits
        if callable(edit.new)
    }
    if not any(may_be_too_deep(text[start:end]) for start, end in changed):
        return findings
    deep = changed.intersection(map(facts.source.span, too_deep(facts.tree.module)))
    return [
        each.unfixed("since the code is nested too deeply")
        if each.fix and any((edit.start, edit.end) in deep for edit in each.fix.edits)
        else each
        for each in findings
    ]


def _in_string(context: Context, string: ast.JoinedStr, finding: Finding) -> Finding:
    """A finding inside an f-string: before Python 3.12 its place is not known, nor how to quote there."""
    span = context.source.span(string)
    start, end = map(context.source.position, span)
    if finding.fix and all(edit.start <= span[0] and span[1] <= edit.end for edit in finding.fix.edits):
        return Finding(finding.code, finding.message, *start, *end, finding.fix)
    finding = finding.unfixed("inside an f-string: take the expression out of it")
    return Finding(finding.code, finding.message, *start, *end)
