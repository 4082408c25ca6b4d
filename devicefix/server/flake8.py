"""The flake8 plugin: `flake8 --select DF`."""

from __future__ import annotations

import ast
import codecs
import io
import os
import tokenize
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache, partial
from pathlib import Path

from devicefix.config import load
from devicefix.config.printable import printable
from devicefix.config.resolver import Nearest
from devicefix.config.settings import ConfigError, Settings
from devicefix.config.version import __version__
from devicefix.files.discover import is_excluded
from devicefix.rules import known_codes
from devicefix.runner.errors import internal_error
from devicefix.runner.run import Projects, check_text

ERROR = "DF000"  # the code of errors that prevent a file from being checked

Violation = tuple[int, int, str, type]


class Plugin:
    """The plugin for one file; see https://flake8.pycqa.org/en/latest/plugin-development.

    flake8 itself applies `# noqa` comments. The settings come from devicefix's nearest configuration.

    Args:
        tree: unused; a parameter with this name makes flake8 call the plugin once per file.
        filename: the path of the file, or a name for the standard input.
        lines: the file's lines, with their line ends.
    """

    name = "devicefix"
    version = __version__

    def __init__(self, tree: ast.AST, filename: str, lines: Sequence[str]) -> None:  # noqa: ARG002 (see `tree` above)
        self.filename = filename
        self.lines = lines

    def run(self) -> Iterator[Violation]:
        """Yield the findings, each with its line from 1, its column from 0, and its message.

        An error is reported as a finding, so that flake8 continues.
        """
        try:
            yield from self._findings()
        except ConfigError as error:
            yield self._error(str(error))
        except Exception as error:
            yield self._error(internal_error(error))

    def _findings(self) -> Iterator[Violation]:
        resolver, projects = _run(os.getcwd())
        settings = resolver.of(self.filename)
        if is_excluded(self.filename, settings):
            return
        facts = partial(projects.around, self.filename)
        outcome = check_text(_bytes("".join(self.lines)), self.filename, settings, facts)
        if outcome.error:
            yield self._error(outcome.error)
        for finding in outcome.result.findings:
            message = f"{finding.code} {printable(finding.message)}"
            yield finding.line, finding.column - 1, message, Plugin

    def _error(self, message: str) -> Violation:
        return 1, 0, f"{ERROR} not checked: {printable(message)}", Plugin


@cache
def _run(folder: str) -> tuple[Nearest, Projects]:
    """Return the settings and the facts of all files of a run in a folder."""
    resolver = Nearest(_settings, folder)
    return resolver, Projects(resolver)


def _settings(file: Path | None) -> Settings:
    """Return the settings that a configuration makes."""
    return replace(load.load(file, known_codes).checked(), cache_dir=None, ignore_noqa=True)


def _bytes(text: str) -> bytes:
    """Return the content of a file, from the text that flake8 has decoded."""
    data = text.encode(errors="surrogatepass")
    try:
        encoding = tokenize.detect_encoding(io.BytesIO(data).readline)[0]
        return text.encode(encoding)
    except (SyntaxError, UnicodeError):  # flake8 has read Latin-1 instead, and dropped a BOM
        return codecs.BOM_UTF8 + data
