"""What an editor shows of findings, and offers to do about them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from lsprotocol import types

from devicefix.facts.comments import UNUSED
from devicefix.model import Finding, Safety
from devicefix.rewrite.preview import title
from devicefix.rules.pages import page, url
from devicefix.rules.registry import RULES
from devicefix.rules.unparsable import Unparsable
from devicefix.server.inspect import Inspection, has_fix
from devicefix.server.text import Text

SOURCE = "devicefix"
FIX_ALL = "source.fixAll.devicefix"
KINDS = (types.CodeActionKind.QuickFix, FIX_ALL)
_TAGS = {  # editors grey out the one, and strike out the other
    UNUSED: types.DiagnosticTag.Unnecessary,
    "DF301": types.DiagnosticTag.Deprecated,
    "DF811": types.DiagnosticTag.Deprecated,
    "DF812": types.DiagnosticTag.Deprecated,
}
_FEW = 20  # findings at a place; of more than that, no title says what becomes of each
_CODE = re.compile(r"[A-Z]+\d+", re.I)


def diagnostics(look: Inspection | None, text: Text) -> list[types.Diagnostic]:
    """What was found, as an editor shows it."""
    return [_diagnostic(finding, text) for finding in look.findings] if look else []


def _diagnostic(finding: Finding, text: Text) -> types.Diagnostic:
    error = finding.code == Unparsable.code
    address = url(RULES[finding.code])
    tag = _TAGS.get(finding.code)
    return types.Diagnostic(
        range=text.range(finding),
        message=finding.message,
        severity=types.DiagnosticSeverity.Error if error else types.DiagnosticSeverity.Warning,
        code=finding.code,
        code_description=types.CodeDescription(address) if address else None,
        source=SOURCE,
        tags=[tag] if tag else None,
        data={"name": RULES[finding.code].name, "fix": finding.safety.value if finding.safety else None},
    )


def hover(look: Inspection, text: Text, position: types.Position) -> types.Hover | None:
    """The pages of the rules that have found something at a place, or that a `noqa` there names."""
    line, column = text.character(position)
    for match in _named(text.lines[line - 1]):
        if match.start() < column <= match.end() + 1:
            start, end = (text.position(line, at + 1) for at in match.span())
            return _pages([match[0].upper()], types.Range(start, end))
    found = [
        each
        for each in look.findings
        if (each.line, each.column) <= (line, column) <= (each.end_line, each.end_column)
    ]
    return _pages([each.code for each in found], text.range(found[-1])) if found else None


def _named(line: str) -> Iterator[re.Match[str]]:
    """The codes of rules that a line's `noqa` names."""
    _, noqa, _ = line.lower().partition("noqa:")
    if noqa:
        start = line.lower().index("noqa:") + len(noqa)
        yield from (match for match in _CODE.finditer(line, start) if match[0].upper() in RULES)


def _pages(codes: Iterable[str], where: types.Range) -> types.Hover:
    text = "\n---\n\n".join(page(RULES[code]) for code in dict.fromkeys(codes))
    return types.Hover(types.MarkupContent(types.MarkupKind.Markdown, text), where)


@dataclass(frozen=True)
class Action:
    """Something to do about findings.

    Attributes:
        title: what the editor calls it.
        kind: of the protocol's kinds.
        does: what is done: `fix` or `noqa` for one finding, `rule` for all of its rule, `all`.
        finding: what it is about.
        preferred: whether it is the thing to do.
    """

    title: str
    kind: str
    does: str
    finding: Finding | None = None
    preferred: bool = False

    @property
    def data(self) -> dict[str, Any]:
        """What tells it from others of the same text."""
        each = self.finding
        return {"does": self.does, "at": [each.code, each.line, each.column] if each else None}

    def edits(self, look: Inspection, text: Text) -> list[types.TextEdit]:
        """What it changes.

        Raises:
            FixError: it can't be done.
        """
        if self.finding is None:
            return text.edits(look.with_all_fixed())
        if self.does == "rule":
            return text.edits(look.with_rule_fixed(self.finding.code))
        if self.does == "noqa":
            return text.edits(look.silenced(self.finding))
        fix = look.suggestion(self.finding).fix
        return [types.TextEdit(text.range(each), each.text) for each in fix.replacements] if fix else []


def actions(look: Inspection, text: Text, where: types.Range, only: Iterable[str] | None) -> Iterator[Action]:
    """What can be done about the findings at a place, and about those of the file.

    Args:
        look: what was found.
        text: where it was.
        where: the place.
        only: the kinds that are asked for, None for all.
    """
    wanted = None if only is None else tuple(only)
    fixable = look.fixable
    if _is_wanted(types.CodeActionKind.QuickFix, wanted):
        here = list(_at(look, text, where))
        named = [look.suggestion(each) for each in here] if len(here) <= _FEW else here
        yield from (_fix(each) for each in named if has_fix(each))
        for code in dict.fromkeys(each.code for each in here):
            same = [each for each in fixable if each.code == code]
            if len(same) > 1:
                every = f"devicefix ({code}): Fix all {len(same)} in this file"
                yield Action(every, types.CodeActionKind.QuickFix, "rule", same[0])
        if here and fixable:
            yield Action(_ALL, types.CodeActionKind.QuickFix, "all")
        yield from (_silence(each) for each in here if _can_be_silenced(look, each))
    if fixable and _is_wanted(FIX_ALL, wanted):
        yield Action(_ALL, FIX_ALL, "all")


def again(data: Mapping[str, Any], look: Inspection) -> Action | None:
    """The action that an earlier one of these data is now, None where it has no sense any more."""
    does, at = data["does"], data["at"]
    if at is None:
        return Action(_ALL, FIX_ALL, does) if look.fixable else None
    found = (each for each in look.findings if [each.code, each.line, each.column] == at)
    finding = next(found, None)
    return Action("", types.CodeActionKind.QuickFix, does, finding) if finding else None


def is_about(action: Action, diagnostic: types.Diagnostic, text: Text) -> bool:
    """Whether an action does something about what an editor shows."""
    finding = action.finding
    if finding is None or action.does == "rule" or diagnostic.source != SOURCE:
        return False
    return diagnostic.code == finding.code and diagnostic.range == text.range(finding)


_ALL = "devicefix: Fix all that is safe in this file"


def _fix(finding: Finding) -> Action:
    safe = finding.safety is Safety.SAFE
    warning = "" if safe else " (unsafe: may change a run on CUDA)"
    text = f"devicefix ({finding.code}): {title(finding)}{warning}"
    return Action(text, types.CodeActionKind.QuickFix, "fix", finding, safe)


def _silence(finding: Finding) -> Action:
    text = f"devicefix ({finding.code}): Silence with `# noqa: {finding.code}`"
    return Action(text, types.CodeActionKind.QuickFix, "noqa", finding)


def _can_be_silenced(look: Inspection, finding: Finding) -> bool:
    return look.devices is not None and finding.code != UNUSED


def _at(look: Inspection, text: Text, where: types.Range) -> Iterator[Finding]:
    """The findings that a range touches."""
    start, end = text.character(where.start), text.character(where.end)
    for each in look.findings:
        if (each.line, each.column) <= end and start <= (each.end_line, each.end_column):
            yield each


def _is_wanted(kind: str, only: tuple[str, ...] | None) -> bool:
    """Whether a kind of actions is among those asked for: `source` stands for `source.fixAll` as well."""
    return only is None or any(kind == each or kind.startswith(f"{each}.") for each in only)
