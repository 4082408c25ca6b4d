"""Findings as diagnostics, hovers and code actions of an editor."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from lsprotocol import types

from devicefix.config.printable import printable
from devicefix.facts.comments import UNUSED
from devicefix.model import Finding, Safety
from devicefix.rewrite.preview import title
from devicefix.rules.config_file import ConfigFile
from devicefix.rules.environment.requirements import INDEX, REQUIREMENT
from devicefix.rules.pages import page, url
from devicefix.rules.registry import RULES
from devicefix.rules.unparsable import Unparsable
from devicefix.server.documents import Edits, Part, Snapshot
from devicefix.server.inspect import Inspection, has_fix, silenced
from devicefix.server.text import Text

SOURCE = "devicefix"
FIX_ALL = "source.fixAll.devicefix"
FIX_NOTEBOOK = f"notebook.{FIX_ALL}"  # VS Code asks for it once, when a notebook is saved
KINDS = (types.CodeActionKind.QuickFix, FIX_ALL, FIX_NOTEBOOK)
_TAGS = {  # editors grey out what is unnecessary, and strike out what is deprecated
    UNUSED: types.DiagnosticTag.Unnecessary,
    "DF301": types.DiagnosticTag.Deprecated,
}
_UNSUPPRESSED = {UNUSED, Unparsable.code, ConfigFile.code, REQUIREMENT, INDEX}  # not in Python code
_MAX_TITLED = 20  # findings in a range; the actions of more findings have generic titles
_CODE = re.compile(r"\b[A-Z]+\d+", re.I)


def diagnostic(finding: Finding, text: Text) -> types.Diagnostic:
    """Return a finding as a diagnostic."""
    error = finding.code == Unparsable.code
    address = url(RULES[finding.code])
    tag = _TAGS.get(finding.code)
    return types.Diagnostic(
        range=text.range(finding),
        message=printable(finding.message),
        severity=types.DiagnosticSeverity.Error if error else types.DiagnosticSeverity.Warning,
        code=finding.code,
        code_description=types.CodeDescription(address) if address else None,
        source=SOURCE,
        tags=[tag] if tag else None,
        data={"name": RULES[finding.code].name, "fix": finding.safety.value if finding.safety else None},
    )


def hover(inspection: Inspection, part: Part, position: types.Position) -> types.Hover | None:
    """Return the pages of the rules at a position: those with findings, or those that a `noqa` names."""
    text = part.text
    line, column = text.character(position)
    for match in _named(text.lines[line - 1]):
        if match.start() < column <= match.end() + 1:
            start, end = (text.position(line, at + 1) for at in match.span())
            return _pages([match[0].upper()], types.Range(start, end))
    found = [
        finding
        for finding in findings_in(part, inspection.findings)
        if (finding.line, finding.column) <= (line, column) <= (finding.end_line, finding.end_column)
    ]
    return _pages([finding.code for finding in found], text.range(found[-1])) if found else None


def _named(line: str) -> Iterator[re.Match[str]]:
    """Yield the matches of the rule codes in a line's `noqa` comment."""
    start = line.lower().find("noqa:")
    if start >= 0:
        yield from (match for match in _CODE.finditer(line, start) if match[0].upper() in RULES)


def _pages(codes: Iterable[str], where: types.Range) -> types.Hover:
    text = "\n---\n\n".join(page(RULES[code]) for code in dict.fromkeys(codes))
    return types.Hover(types.MarkupContent(types.MarkupKind.Markdown, text), where)


@dataclass(frozen=True)
class Action:
    """A code action.

    Attributes:
        title: the title that the editor shows.
        kind: one of the protocol's kinds.
        does: `fix` or `noqa` for one finding, `rule` for all findings of its rule, or `all`.
        finding: the finding that it resolves.
        preferred: whether the editor may choose it without asking.
    """

    title: str
    kind: str
    does: str
    finding: Finding | None = None
    preferred: bool = False

    def offered(self, part: Part, diagnostics: Iterable[types.Diagnostic]) -> types.CodeAction:
        """Return the action as the protocol has it, without its edit.

        Args:
            part: the text.
            diagnostics: those of the editor, some of which it resolves.
        """
        resolved = [each for each in diagnostics if self._resolves(each, part.text)]
        at = _place(self.finding) if self.finding else None
        return types.CodeAction(
            self.title,
            self.kind,
            diagnostics=resolved or None,
            is_preferred=self.preferred or None,
            data={"uri": part.uri, "does": self.does, "at": at},
        )

    def _resolves(self, diagnostic: types.Diagnostic, text: Text) -> bool:
        finding = self.finding
        if finding is None or self.does == "rule" or diagnostic.source != SOURCE:
            return False
        return diagnostic.code == finding.code and diagnostic.range == text.range(finding)

    def edits(self, inspection: Inspection, document: Snapshot) -> Edits:
        """Return the edits of the action.

        Args:
            inspection: the findings of the document.
            document: the document when it was checked.

        Raises:
            FixError: the action cannot be applied.
        """
        if self.finding is None:
            return document.edits(inspection.with_all_fixed())
        if self.does == "rule":
            return document.edits(inspection.with_rule_fixed(self.finding.code))
        if self.does == "noqa":
            (part,) = (part for part in document.parts if part.cell == self.finding.cell)
            return {part: part.text.edits(silenced(part.text.text, self.finding))}
        fix = inspection.suggestion(self.finding).fix
        return document.replaced(fix.replacements) if fix else {}


def actions(
    inspection: Inspection, part: Part, where: types.Range, only: Iterable[str] | None
) -> Iterator[Action]:
    """Yield the actions for the findings in a range, and for those of the whole document.

    Args:
        inspection: the findings of the document.
        part: the text.
        where: the range.
        only: the requested kinds of actions, None for all.
    """
    wanted = None if only is None else tuple(only)
    fixable = inspection.fixable
    if _is_wanted(types.CodeActionKind.QuickFix, wanted):
        here = list(_at(inspection, part, where))
        named = [inspection.suggestion(finding) for finding in here] if len(here) <= _MAX_TITLED else here
        yield from (_fix(finding) for finding in named if has_fix(finding))
        for code in dict.fromkeys(finding.code for finding in here):
            same = [finding for finding in fixable if finding.code == code]
            if len(same) > 1:
                every = f"devicefix ({code}): Fix all {len(same)} findings in this file"
                yield Action(every, types.CodeActionKind.QuickFix, "rule", same[0])
        if here and fixable:
            yield Action(_ALL, types.CodeActionKind.QuickFix, "all")
        if inspection.devices is not None or part.cell is not None:
            yield from (_suppress(finding) for finding in here if finding.code not in _UNSUPPRESSED)
    if fixable and _is_wanted(FIX_ALL, wanted):
        yield Action(_ALL, FIX_ALL, "all")
    if fixable and wanted is not None and part.cell is not None and _is_wanted(FIX_NOTEBOOK, wanted):
        yield Action(_ALL, FIX_NOTEBOOK, "all")


def restored(data: Mapping[str, Any], inspection: Inspection) -> Action | None:
    """Return the action with these data, None if its finding no longer exists."""
    does, at = str(data.get("does")), data.get("at")
    if at is None:
        return Action(_ALL, FIX_ALL, does) if does == "all" and inspection.fixable else None
    found = (finding for finding in inspection.findings if _place(finding) == at)
    finding = next(found, None)
    return Action("", types.CodeActionKind.QuickFix, does, finding) if finding else None


def _place(finding: Finding) -> list[str | int | None]:
    return [finding.code, finding.line, finding.column, finding.cell]


_ALL = "devicefix: Apply all safe fixes in this file"


def _fix(finding: Finding) -> Action:
    safe = finding.safety is Safety.SAFE
    warning = "" if safe else " (unsafe: may change the program's behavior)"
    text = f"devicefix ({finding.code}): {title(finding)}{warning}"
    return Action(text, types.CodeActionKind.QuickFix, "fix", finding, safe)


def _suppress(finding: Finding) -> Action:
    text = f"devicefix ({finding.code}): Disable for this line"
    return Action(text, types.CodeActionKind.QuickFix, "noqa", finding)


def findings_in(part: Part, findings: Iterable[Finding]) -> list[Finding]:
    """Return the findings in one text of a document."""
    return [finding for finding in findings if finding.cell == part.cell]


def _at(inspection: Inspection, part: Part, where: types.Range) -> Iterator[Finding]:
    """Yield the findings that overlap a range."""
    start, end = part.text.character(where.start), part.text.character(where.end)
    for finding in findings_in(part, inspection.findings):
        if (finding.line, finding.column) <= end and start <= (finding.end_line, finding.end_column):
            yield finding


def _is_wanted(kind: str, only: tuple[str, ...] | None) -> bool:
    """Return whether a kind of action is requested: `source` includes `source.fixAll`."""
    return only is None or any(kind == requested or kind.startswith(f"{requested}.") for requested in only)
