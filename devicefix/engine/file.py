"""One file from bytes to result: the one way through devicefix.

    bytes → kind → modules → prefilter → parse, facts → rules → fixes, self-check → result

Everything that checks a file goes through here: the runner's processes, the cluster's workers, the language
server, flake8 and the API. Nothing here reads or writes a file.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING

from devicefix.config.settings import Settings
from devicefix.config.sizes import CODE
from devicefix.engine.check import matters, skipped
from devicefix.files.kinds import Kind, kind_of, language_of
from devicefix.files.text import UNREADABLE, Source, parse, refuse_much
from devicefix.model import Finding, Result

if TYPE_CHECKING:
    from devicefix.devices.choose import Devices
    from devicefix.facts import Facts
    from devicefix.facts.project import Project, ProjectFile
    from devicefix.files.documents import Document


def check_file(data: bytes, path: str, settings: Settings, project: Project) -> Result:
    """Check one file, and fix it if `settings.fix` is set.

    Args:
        data: the file's bytes.
        path: its path, which decides its kind and its place in the project.
        settings: which rules are on, and which fixes are wanted.
        project: the facts of all files.

    Returns:
        The findings, those of them that are fixed, and the new bytes where any change.

    Raises:
        SelfCheckError: a fix would break the file.
    """
    return File(data, path, settings).check(project)


class File:
    """A file: its kind and the modules in it, which are parsed once, when their facts are needed.

    Args:
        data: the file's bytes.
        path: its path.
        settings: those of the run.
    """

    def __init__(self, data: bytes, path: str, settings: Settings) -> None:
        self.data = data
        self.path = path
        self.settings = settings.for_file(path)
        self.kind = kind_of(path)
        self.modules = [Module(content, path, self.settings) for content in self._modules()]

    @property
    def shared(self) -> list[ProjectFile]:
        """Its modules as the other files of the project see them; none of documentation and configuration."""
        from devicefix.facts.project import ProjectFile

        if self.kind is Kind.DOCS:
            return []
        return [ProjectFile(module.data, self.path) for module in self.modules]

    def check(self, project: Project) -> Result:
        """Check the file, and fix it if the settings say so; see `check_file`."""
        if self.kind is Kind.CONFIG:
            return self._settings_checked()
        if self.kind is Kind.ENVIRONMENT:
            return self._environment_checked()
        if self._document is None:
            return self.modules[0].check(project)
        if self.kind is Kind.DOCS:  # each block is a separate project
            from devicefix.facts.project import Project

            project = Project()
        results = []
        for module in self.modules:
            results.append(module.check(project))
            module.devices = None  # a document may have very many, and each takes much memory
        return self._document.result(self.path, results, [*self._problems(), *self._beside()])

    def _settings_checked(self) -> Result:
        from devicefix.rules.config_file.examine import check

        return check(self.data, self.path, self.settings)

    def _environment_checked(self) -> Result:
        """Check the file as one of an environment, and as a configuration if it has such a language."""
        from devicefix.rules.environment.examine import check

        settings = self.settings
        only_settings = settings.config_files and not settings.environment
        result = Result(self.path) if only_settings else check(self.data, self.path, settings)
        if language_of(self.path) is None or (settings.environment and not settings.config_files):
            return result
        return replace(result, findings=result.findings + self._settings_checked().findings)

    def _modules(self) -> list[bytes]:
        if self.kind in (Kind.CONFIG, Kind.ENVIRONMENT):
            return []
        return self._document.modules if self._document else [self.data]

    @cached_property
    def _document(self) -> Document | None:
        """The modules' place in the file, for a file that holds other things as well."""
        most = self.settings.largest // CODE
        if self.kind is Kind.NOTEBOOK:
            from devicefix.files.notebook.document import Notebook

            return Notebook(self.data, most)
        if self.kind is Kind.DOCS:
            from devicefix.files.markdown.document import Docs

            return Docs(self.data, self.path, most)
        return None

    def _problems(self) -> list[Finding]:
        """Return the findings for a document, and the cells that may matter, that cannot be parsed."""
        if self._document is None or not self._document.unreadable:
            return []
        from devicefix.rules.unparsable import Unparsable, explain

        if not self.settings.enabled(Unparsable.code):
            return []
        parts = (
            part
            for part in self._document.unreadable
            if (part.cell is None and self.kind is Kind.NOTEBOOK) or matters(part.data, self.settings)
        )
        return [explain(part.data, part.error, part.cell) for part in parts]

    def _beside(self) -> list[Finding]:
        """Return the findings in the shell commands and the metadata of a notebook."""
        settings = self.settings
        if self.kind is not Kind.NOTEBOOK or not (settings.config_files or settings.environment):
            return []
        from devicefix.rules.config_file.notebook import check_notebook

        return check_notebook(self.data, settings)


class Module:
    """A module of a file.

    Args:
        data: its bytes.
        path: the path of its file.
        settings: those for the file.

    Attributes:
        devices: what the fixes rely on, once the module has been checked; None if it was not parsed.
    """

    def __init__(self, data: bytes, path: str, settings: Settings) -> None:
        self.data = data
        self.path = path
        self.settings = settings
        self.devices: Devices | None = None

    def matters(self, project: Project) -> bool:
        """Return whether there may be something to find, in what the module itself holds."""
        shared = self._shared(project)
        known = shared.may_matter if shared is not None else None
        return matters(self.data, self.settings, known) or bool(self.settings.evidence.seen_in(self.path))

    def _shared(self, project: Project) -> ProjectFile | None:
        """Return the module as the other files see it; None if it is none of the project's."""
        shared = project.file(self.path)
        return shared if shared is not None and shared.data == self.data else None

    def _facts(self, project: Project) -> Facts:
        """Return the facts of the module, shared with files that ask for them."""
        from devicefix.facts import Facts

        refuse_much(len(self.data), self.settings.largest // CODE)
        shared = self._shared(project)
        known = shared.facts if shared is not None else None
        return known or Facts.read(self.data)

    def find(self, project: Project) -> list[Finding]:
        """Return the findings with their fixes, and keep what the fixes rely on in `devices`."""
        if not self.matters(project) and not self.is_reached(project):
            return self._syntax_error()
        try:
            facts = self._facts(project)
        except UNREADABLE as problem:
            return self._unreadable(problem)
        from devicefix.engine.check import check_module

        findings, self.devices = check_module(facts, self.path, self.settings, project)
        return findings

    def is_reached(self, project: Project) -> bool:
        """Return whether the module, without a word of CUDA, needs it because of other files.

        It imports a CUDA extension that they build, moves something to the number of a GPU that they pass
        or define, or may read a device from a configuration file.
        """
        questions = (
            project.imported_extensions, project.receives_number, project.brings_number, project.selected,
        )  # fmt: skip
        return any(ask(self.path) for ask in questions) and not skipped(self.data)

    def check(self, project: Project) -> Result:
        """Check the module, and fix it if the settings say so; see `check_file`."""
        findings = self.find(project)
        if self.devices is None:
            return Result(self.path, findings)
        from devicefix.engine.fix import fix_until_stable, spelled_out

        findings = spelled_out(findings, self.devices, self.settings)
        if not self.settings.fix:
            return Result(self.path, findings)
        return fix_until_stable(findings, self.devices, self.settings, project)

    def _syntax_error(self) -> list[Finding]:
        """Return the finding for a module that needs no checks, but cannot be parsed either."""
        if len(self.data) > self.settings.largest // CODE or skipped(self.data):
            return []
        try:
            parse(Source(self.data).text)
        except UNREADABLE as problem:
            return self._unreadable(problem)
        return []

    def _unreadable(self, problem: Exception) -> list[Finding]:
        """Return the finding for a module that cannot be parsed; in documentation many are fragments."""
        from devicefix.rules.unparsable import Unparsable, explain

        if kind_of(self.path) is Kind.DOCS or not self.settings.enabled(Unparsable.code):
            return []
        return [explain(self.data, problem)]
