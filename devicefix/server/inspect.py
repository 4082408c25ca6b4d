"""What is found in the text of one file, and what can be done about it."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

from devicefix.config.settings import Settings
from devicefix.devices.choose import Devices
from devicefix.engine import check as engine
from devicefix.engine import fix as fixing
from devicefix.facts.exports import Summary, summary_of
from devicefix.facts.project import Answers, Project
from devicefix.files.documents import is_document
from devicefix.files.text import DecodeError, Source, encoded
from devicefix.model import Finding, Outcome, Result, Safety
from devicefix.rules.config_file.languages import is_beside
from devicefix.rules.unparsable import explain
from devicefix.runner import baseline
from devicefix.runner import run as runner

Asked = Callable[[list[Summary]], Project]  # the facts of all files, of which these are one's


class FixError(Exception):
    """A fix cannot be made; the message says why."""


@dataclass(slots=True)
class Look:
    """What was found in a text.

    Attributes:
        path: the file.
        text: what the editor shows of it.
        settings: how it was looked at.
        findings: what was found; their fixes as text are what `suggestion` is for.
        summaries: the facts of the file for others.
        project: the facts of all files.
        answers: what the findings rest on of those.
        devices: what the fixes rely on, where the file is a module that can be read.
    """

    path: str
    text: str
    settings: Settings
    findings: list[Finding]
    summaries: list[Summary]
    project: Project
    answers: Answers
    devices: Devices | None = None

    @property
    def fixable(self) -> list[Finding]:
        """The findings with a safe fix that changes something by itself."""
        return [each for each in self.findings if each.safety is Safety.SAFE and has_fix(each)]

    def suggestion(self, finding: Finding) -> Finding:
        """A finding whose fix is spelled out."""
        if self.devices is None:
            return finding
        from devicefix.rewrite.preview import suggested

        return suggested(finding, self.devices.facts.source, self.devices.insertions)

    def with_rule_fixed(self, code: str) -> str:
        """The text with all safe fixes of a rule made.

        Raises:
            FixError: they can't be made.
        """
        if self.devices is None:
            settings = replace(self.settings, select=(code,), extend_select=(), ignore=())
            return self._rewritten(settings)
        chosen = [each for each in self.findings if each.code == code]
        settings = replace(self.settings, unsafe_fixes=False)
        try:
            result = fixing.fixed(chosen, self.devices, self.path, settings)
        except Exception as problem:
            raise FixError(runner.internal_error(problem)) from problem
        return self.text if result.output is None else Source(result.output).text

    def with_all_fixed(self) -> str:
        """The text as `devicefix rewrite` leaves it, with safe fixes alone.

        Raises:
            FixError: they can't be made.
        """
        return self._rewritten(self.settings)

    def _rewritten(self, settings: Settings) -> str:
        settings = replace(settings, fix=True, unsafe_fixes=False)
        outcome = runner.run_one(encoded(self.text), self.path, settings, self.project)
        if outcome.error:
            raise FixError(outcome.error)
        output = outcome.result.output
        return self.text if output is None else Source(output).text

    def silenced(self, finding: Finding) -> str:
        """The text with a comment that silences a finding.

        Raises:
            FixError: none can.
        """
        from devicefix.facts.comments import add

        added = add(encoded(self.text), [finding])
        if added.left:
            raise FixError(f"no comment can silence {finding.code} in line {finding.line}")
        return Source(added.data).text


def has_fix(finding: Finding) -> bool:
    """Whether a finding has a fix that changes something by itself."""
    return finding.fix is not None and bool(finding.fix.edits or finding.fix.replacements)


def look(path: str, text: str, settings: Settings, asked: Asked) -> Look:
    """Look at a text.

    Args:
        path: the file that it belongs to.
        text: what the editor shows of it.
        settings: which rules are on.
        asked: gives the facts of all files.
    """
    try:
        data = encoded(text)
    except DecodeError as problem:  # it could not be saved
        return _told(path, text, settings, [explain(b"", problem)], [], asked([]))
    if is_beside(path) or is_document(path):
        project = asked(runner.summaries_of(data, path))
        project.answers = {}
        outcome = runner.run_one(data, path, replace(settings, replacements=True), project)
        if outcome.error:
            raise FixError(outcome.error)
        return _told(path, text, settings, outcome.result.findings, [], project)
    return _module(path, text, data, settings, asked)


def _module(path: str, text: str, data: bytes, settings: Settings, asked: Asked) -> Look:
    from devicefix.facts import Facts

    own = settings.for_file(path)
    if not engine.matters(data, own):
        summaries = runner.summaries_of(data, path)
        return _told(path, text, settings, [], summaries, asked(summaries))
    try:
        facts = Facts.read(data)
        summaries = [summary_of(facts, path)]
    except engine.UNREADABLE as problem:
        finding = explain(data, problem)
        return _told(path, text, settings, [finding] if own.enabled(finding.code) else [], [], asked([]))
    project = asked(summaries)
    project.answers = {}
    findings, devices = engine.look(facts, path, settings, project)
    return _told(path, text, settings, findings, summaries, project, devices)


def _told(
    path: str,
    text: str,
    settings: Settings,
    findings: list[Finding],
    summaries: list[Summary],
    project: Project,
    devices: Devices | None = None,
) -> Look:
    answers, project.answers = project.answers, {}
    findings = _new(path, text, settings, findings)
    return Look(path, text, settings, findings, summaries, project, answers, devices)


def _new(path: str, text: str, settings: Settings, findings: list[Finding]) -> list[Finding]:
    """Findings that the baseline does not know."""
    file = settings.baseline
    if file is None or not findings:
        return findings
    known = Counter(_baseline(file, os.stat(file).st_mtime_ns))
    outcome = Outcome(path, Result(path, findings), before=encoded(text))
    return baseline.split([outcome], known, file.parent)[0].result.findings


@lru_cache(maxsize=8)
def _baseline(file: Path, changed: int) -> Counter[baseline.Entry]:
    return baseline.read(file)
