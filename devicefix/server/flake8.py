"""devicefix as a plugin of flake8, which finds it by its entry point: `flake8 --select DF`."""

from __future__ import annotations

import ast
import codecs
import io
import tokenize
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

from devicefix.config import load
from devicefix.config.settings import ConfigError, Settings
from devicefix.config.version import __version__
from devicefix.files.discover import excluded
from devicefix.report.wording import printable
from devicefix.rules import known_codes
from devicefix.runner.errors import internal_error
from devicefix.runner.run import check_text

TROUBLE = "DF000"  # what keeps devicefix from looking at a file

Violation = tuple[int, int, str, type]


class Plugin:
    """One file, as flake8 hands it over: https://flake8.pycqa.org/en/latest/plugin-development.

    `# noqa` comments are flake8's affair. The settings are those of the nearest configuration of devicefix.

    Args:
        tree: its presence tells flake8 to call once a file.
        filename: where the file is, or what to call the standard input.
        lines: the file's lines, with their ends.
    """

    name = "devicefix"
    version = __version__

    def __init__(self, tree: ast.AST, filename: str, lines: Sequence[str]) -> None:
        self.filename = filename
        self.lines = lines

    def run(self) -> Iterator[Violation]:
        """The findings: line from 1, column from 0, code and message. What fails is one of them."""
        try:
            yield from self._findings()
        except ConfigError as problem:
            yield self._trouble(str(problem))
        except Exception as problem:
            yield self._trouble(internal_error(problem))

    def _findings(self) -> Iterator[Violation]:
        settings = _settings(Path(self.filename).parent)
        if excluded(self.filename, settings.exclude, settings.root, settings.extend_exclude):
            return
        outcome = check_text(_bytes("".join(self.lines)), self.filename, settings)
        if outcome.error:
            yield self._trouble(outcome.error)
        for finding in outcome.result.findings:
            message = f"{finding.code} {printable(finding.message)}"
            yield finding.line, finding.column - 1, message, Plugin

    def _trouble(self, problem: str) -> Violation:
        return 1, 0, f"{TROUBLE} not checked: {printable(problem)}", Plugin


@cache
def _settings(folder: Path) -> Settings:
    """The settings for the files in a folder."""
    file = load.find(folder)
    settings = load.load(file, known_codes) if file else Settings()
    return replace(settings.checked(), cache_dir=None, ignore_noqa=True)


def _bytes(text: str) -> bytes:
    """A file's content, from the text that flake8 has decoded."""
    data = text.encode(errors="surrogatepass")
    try:
        encoding = tokenize.detect_encoding(io.BytesIO(data).readline)[0]
        return text.encode(encoding)
    except (SyntaxError, UnicodeError):  # it was another one: flake8 then reads Latin-1, and drops a BOM
        return codecs.BOM_UTF8 + data
