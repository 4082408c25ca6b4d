"""The findings in one file's text, and the edits that resolve them."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

from devicefix.config.settings import Settings
from devicefix.devices.choose import Devices
from devicefix.engine.file import File
from devicefix.engine.fix import fix_once
from devicefix.facts.comments import add
from devicefix.facts.project import Answers, Project, ProjectFile
from devicefix.files.kinds import Kind
from devicefix.files.notebook.cells import Joined, line_in_module
from devicefix.files.text import DecodeError, Source, TooMuchCode, encoded
from devicefix.model import Finding, Outcome, Result, Safety
from devicefix.rewrite.preview import suggested
from devicefix.rules.unparsable import explain
from devicefix.runner import baseline
from devicefix.runner.errors import internal_error
from devicefix.runner.record import stamp
from devicefix.runner.run import check_text, too_large

ProjectOf = Callable[[list[ProjectFile]], Project]  # of all files, given one of them


class FixError(Exception):
    """A fix cannot be made; the message says why."""


@dataclass(slots=True)
class Inspection:
    """The findings in a text.

    Attributes:
        path: the file.
        text: the text in the editor.
        settings: which rules were on.
        findings: the findings that are not in the baseline; `suggestion` spells out a fix.
        shared: what the other files see of this one.
        project: the facts of all files.
        answers: what the findings depend on of those.
        devices: what the fixes rely on, for a module that can be parsed.
    """

    path: str
    text: str
    settings: Settings
    findings: list[Finding]
    shared: list[ProjectFile]
    project: Project
    answers: Answers
    devices: Devices | None = None

    @property
    def fixable(self) -> list[Finding]:
        """The findings with a safe fix that changes something itself."""
        return [finding for finding in self.findings if finding.safety is Safety.SAFE and has_fix(finding)]

    def suggestion(self, finding: Finding) -> Finding:
        """Return a finding with its fix spelled out."""
        if self.devices is None:
            return finding
        return suggested(finding, self.devices.facts, self.devices.insertions, None)

    def with_rule_fixed(self, code: str) -> str:
        """Return the text with all safe fixes of a rule.

        Raises:
            FixError: they can't be made.
        """
        if self.devices is None:
            return self.with_all_fixed(replace(self.settings, select=(code,), extend_select=(), ignore=()))
        chosen = [finding for finding in self.findings if finding.code == code]
        settings = replace(self.settings, unsafe_fixes=False)
        try:
            result = fix_once(chosen, self.devices, settings)
        except Exception as problem:
            raise FixError(internal_error(problem)) from problem
        return self.text if result.output is None else Source(result.output).text

    def with_all_fixed(self, settings: Settings | None = None) -> str:
        """Return the text that `devicefix rewrite` makes, with safe fixes only.

        Args:
            settings: other settings than those that the text was checked with.

        Raises:
            FixError: they can't be made.
        """
        settings = replace(settings or self.settings, fix=True, unsafe_fixes=False)
        outcome = check_text(encoded(self.text), self.path, settings, lambda _: self.project)
        if outcome.error:
            raise FixError(outcome.error)
        output = outcome.result.output
        return self.text if output is None else Source(output).text


def silenced(text: str, finding: Finding) -> str:
    """Return a text with a comment that silences a finding.

    Args:
        text: the file, or the notebook's cell that holds the finding.
        finding: a finding in Python code.

    Raises:
        FixError: no comment can.
    """
    if finding.cell is None:
        return _commented(text, finding)
    cell = Joined([text])
    line, end_line = (line_in_module(cell, line) for line in (finding.line, finding.end_line))
    return cell.unmasked(_commented(cell.text, replace(finding, line=line, end_line=end_line))).cells[0]


def _commented(text: str, finding: Finding) -> str:
    added = add(encoded(text), [finding])
    if added.left:
        raise FixError(f"no comment can suppress {finding.code} on line {finding.line}")
    return Source(added.data).text


def has_fix(finding: Finding) -> bool:
    """Return whether a finding has a fix that changes something itself."""
    return finding.fix is not None and bool(finding.fix.edits or finding.fix.replacements)


def inspect(path: str, text: str, settings: Settings, project_of: ProjectOf) -> Inspection:
    """Check a text.

    Args:
        path: the file that it belongs to.
        text: the text in the editor.
        settings: which rules are on.
        project_of: returns the project, given what others see of this file.

    Raises:
        SelfCheckError: a document's findings cannot be placed in it.
    """
    try:
        data = encoded(text)
        if problem := too_large(data, settings):
            raise TooMuchCode(problem)
        file = File(data, path, settings)
    except (DecodeError, TooMuchCode) as error:  # the text could not be saved, or checked
        return Inspection(path, text, settings, [explain(b"", error)], [], project_of([]), {})
    shared = file.shared
    project = project_of(shared)
    asked = project.fresh()
    if file.kind is Kind.MODULE:
        (module,) = file.modules
        findings, devices = module.find(asked), module.devices
    else:  # a fix is moved to its place in the document as text
        spelled = File(file.data, path, replace(settings, fix=False, replacements=True))
        findings, devices = spelled.check(asked).findings, None
    findings = _new(path, text, settings, findings)
    return Inspection(path, text, settings, findings, shared, project, asked.answers, devices)


def _new(path: str, text: str, settings: Settings, findings: list[Finding]) -> list[Finding]:
    """Return the findings that are not in the baseline."""
    file = settings.baseline
    if file is None or not findings:
        return findings
    known = Counter(_baseline(file, tuple(stamp(os.fspath(file)) or ())))
    outcome = Outcome(path, Result(path, findings), before=encoded(text))
    return baseline.split([outcome], known, file.parent)[0].result.findings


@lru_cache(maxsize=8)
def _baseline(file: Path, _stamp: tuple[int, ...]) -> Counter[baseline.Entry]:
    """Return the entries of a baseline, cached while it is unchanged."""
    return baseline.read(file)
