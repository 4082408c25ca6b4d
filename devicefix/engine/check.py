"""Prefilter a file, and run the rules over a module."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import TYPE_CHECKING

from devicefix.facts.comments import SKIP_FILE, UNUSED, may_be_unused, silenced, unused
from devicefix.facts.prefilter import lines_that_matter, may_matter
from devicefix.model import Finding, Import

if TYPE_CHECKING:
    from devicefix.config.settings import Settings
    from devicefix.devices.choose import Devices
    from devicefix.devices.context import Context
    from devicefix.facts import Facts
    from devicefix.facts.project import Project


Visit = Callable[[ast.AST], Iterator[Finding]]


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


def check_module(
    facts: Facts, path: str, settings: Settings, project: Project
) -> tuple[list[Finding], Devices | None]:
    """Return the findings in a module, and the devices that their fixes rely on.

    Args:
        facts: the module's facts.
        path: the path of its file.
        settings: those for the file.
        project: the facts of all files.

    Returns:
        The findings in the order of the file, without those that a comment silences. The devices are None if
        the module is nested too deeply to be checked.
    """
    source, module = facts.source, facts.tree.module
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
    if finding.fix is None or Import("torch") not in finding.fix.needs:
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
