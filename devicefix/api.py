"""The Python API: checks and rewrites for other programs.

Its names, arguments and results are stable, unlike the engine's own classes.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, AnyStr, Generic, Literal, TypeAlias, TypedDict

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from devicefix import model as internal
    from devicefix.config.settings import Settings

StrPath: TypeAlias = str | os.PathLike[str]
Target: TypeAlias = Literal["cuda", "accelerator"]


class DevicefixError(Exception):
    """An error, such as an invalid setting or a source that is too large. The message is one line."""


@dataclass(frozen=True, slots=True, order=True)
class Location:
    """A position in a file.

    Attributes:
        line: the line number, starting at 1. A line ends with LF, CR LF or CR.
        column: the column number, starting at 1, in characters of a `str`.
    """

    line: int
    column: int


@dataclass(frozen=True, slots=True)
class Replacement:
    """New text for a part of a file.

    Attributes:
        location: the location of the first replaced character.
        end_location: the location after the last replaced character; equal to `location` for an insertion.
        text: the new text, with the line endings of the file.
        cell: the number of the notebook cell, starting at 1; None in other files.
    """

    location: Location
    end_location: Location
    text: str
    cell: int | None = None


@dataclass(frozen=True, slots=True)
class Fix:
    """The changes that resolve a finding.

    Attributes:
        applicability: `"safe"` if the program does the same with CUDA as before, `"unsafe"` if it may not.
        replacements: all changes, in the order of the file and without overlaps, including the imports and
            definitions that the new code needs if this is the only fix. Empty in requirements files, or if
            the fix of another finding resolves this finding as well.
    """

    applicability: Literal["safe", "unsafe"]
    replacements: tuple[Replacement, ...]


@dataclass(frozen=True, slots=True)
class Finding:
    """One use of CUDA that a rule reports.

    Attributes:
        code: the code of the rule, such as `"DF101"`.
        name: the name of the rule, such as `"cuda-call"`.
        message: what is wrong and what to do, in one line.
        filename: the path of the file, as it was given or found.
        location: the location of the first character.
        end_location: the location after the last character.
        fix: the fix, or None if you have to change the code yourself.
        url: the address of the rule's page; None for a rule from a plugin.
        cell: the number of the notebook cell, starting at 1, or None. Lines refer to the cell.
    """

    code: str
    name: str
    message: str
    filename: str
    location: Location
    end_location: Location
    fix: Fix | None = None
    url: str | None = None
    cell: int | None = None


@dataclass(frozen=True, slots=True)
class Rewrite(Generic[AnyStr]):
    """The result of rewriting a source.

    Attributes:
        source: the new source, of the same type as the old one, and equal to it if nothing is fixed.
        fixed: the findings that were fixed, with their locations in the old source.
        remaining: the remaining findings, with their locations in the new source.
    """

    source: AnyStr
    fixed: tuple[Finding, ...]
    remaining: tuple[Finding, ...]


@dataclass(frozen=True, slots=True)
class FileError:
    """A file that could not be checked.

    Attributes:
        filename: the path of the file or folder.
        message: why the file or folder could not be checked, in one line.
    """

    filename: str
    message: str


@dataclass(frozen=True, slots=True)
class Report:
    """The findings in files.

    Attributes:
        findings: the findings, sorted by file and position.
        files: the paths of all checked files, sorted.
        errors: the files and folders that could not be checked.
    """

    findings: tuple[Finding, ...]
    files: tuple[str, ...]
    errors: tuple[FileError, ...]


class RuleSettings(TypedDict, total=False):
    """Settings of all functions. None has the same effect as omitting the setting.

    The settings work like the command-line options with these names. Rules are codes, names or prefixes.

    Attributes:
        select: the only rules to enable.
        extend_select: more rules to enable.
        ignore: the rules to disable.
        fixable: the only rules whose findings get a fix.
        extend_fixable: more rules whose findings get a fix.
        unfixable: the rules whose findings get no fix.
        per_file_ignores: patterns of files, each with the rules to disable in these files.
        target: the device to support besides the CPU.
        torch_version: the minimum torch version to support, such as `"2.6"`.
        max_file_size: the maximum size of a file; the default is `"16M"`.
    """

    select: Sequence[str] | None
    extend_select: Sequence[str] | None
    ignore: Sequence[str] | None
    fixable: Sequence[str] | None
    extend_fixable: Sequence[str] | None
    unfixable: Sequence[str] | None
    per_file_ignores: Mapping[str, Sequence[str]] | None
    target: Target | None
    torch_version: str | None
    max_file_size: str | None


class RewriteSettings(RuleSettings, total=False):
    """Settings of `rewrite_source`.

    Attributes:
        unsafe_fixes: whether to apply also the unsafe fixes.
    """

    unsafe_fixes: bool | None


class PathSettings(RuleSettings, total=False):
    """Settings of `check_paths`.

    Attributes:
        jobs: the maximum number of processes, 1 by default. If you set a higher value, protect the entry
            point of your program with `if __name__ == "__main__":`.
        exclude: patterns in .gitignore syntax for the files to exclude, relative to the current folder.
        extend_exclude: more such patterns.
        force_exclude: whether to exclude files that match the patterns even if `paths` names them.
        respect_gitignore: whether to exclude files that git ignores; true by default.
        baseline: a file that `devicefix check --write-baseline` created. The findings in it are not reported.
        config_files: whether to check YAML, JSON and TOML files, shell scripts and makefiles in folders, too.
        environment: whether to check requirements files and similar files in folders as well.
        docs: whether to check Python code blocks in Markdown and reStructuredText files in folders as well.
    """

    jobs: int | None
    exclude: Sequence[str] | None
    extend_exclude: Sequence[str] | None
    force_exclude: bool | None
    respect_gitignore: bool | None
    baseline: StrPath | None
    config_files: bool | None
    environment: bool | None
    docs: bool | None


def check_source(
    source: str | bytes,
    *,
    filename: StrPath | None = None,
    config: StrPath | None = None,
    **settings: Unpack[RuleSettings],
) -> list[Finding]:
    """Find the code in a source that is tied to CUDA.

    Args:
        source: the text, or the contents of a file as bytes, which may declare an encoding.
        filename: the path of the source, which does not have to exist. devicefix uses this path in findings,
            for `per_file_ignores`, and to find the project files that the source imports. Its name
            determines the file type. If None, the source is a standalone Python file named "source.py", and
            no other files are read.
        config: the path of a configuration file, such as the result of `find_config`; None for the defaults.
        settings: settings that override the configuration; see `RuleSettings`.

    Returns:
        The findings, sorted by position. A syntax error raises no exception; the rule DF901 can
        report it.

    Raises:
        DevicefixError: a setting is invalid, the source is too large, or devicefix failed, for example.
        TypeError: a setting does not exist.
    """
    outcome = _outcome(source, filename, _settings(config, settings, RuleSettings))
    return list(_public(outcome, outcome.result.findings))


def rewrite_source(
    source: AnyStr,
    *,
    filename: StrPath | None = None,
    config: StrPath | None = None,
    **settings: Unpack[RewriteSettings],
) -> Rewrite[AnyStr]:
    """Apply the fixes to a source.

    Args:
        source: as for `check_source`.
        filename: as for `check_source`.
        config: as for `check_source`.
        settings: override the configuration; see `RewriteSettings`.

    Returns:
        The new source, the fixed findings and the remaining findings. To keep the encoding and the line
        endings of a file, pass its bytes.

    Raises:
        DevicefixError: a setting is invalid, the source is too large, or devicefix failed, for example.
        TypeError: a setting does not exist.
    """
    outcome = _outcome(source, filename, replace(_settings(config, settings, RewriteSettings), fix=True))
    result = outcome.result
    fixed, left = (tuple(_public(outcome, found)) for found in (result.fixed, result.remaining))
    return Rewrite(source if result.output is None else _like(source, result.output), fixed, left)


def check_paths(
    paths: StrPath | Iterable[StrPath], *, config: StrPath | None = None, **settings: Unpack[PathSettings]
) -> Report:
    """Find the code in files that is tied to CUDA, as `devicefix check` does, but without a cache.

    Args:
        paths: a file, a folder, or several of them. Pass all files of a program together, because findings
            can depend on other files.
        config: as for `check_source`.
        settings: override the configuration; see `PathSettings`.

    Returns:
        The findings, the files that were checked, and those that could not be checked, such as missing files.

    Raises:
        DevicefixError: the settings are invalid.
        TypeError: a setting does not exist.
    """
    from devicefix.config.resolver import Everywhere
    from devicefix.config.settings import ConfigError
    from devicefix.runner.baseline import read, split
    from devicefix.runner.find import find_files
    from devicefix.runner.run import check_files

    chosen = replace(_settings(config, settings, PathSettings), jobs=settings.get("jobs") or 1)
    trouble: list[OSError] = []
    named = [paths] if isinstance(paths, (str, os.PathLike)) else list(paths)
    try:
        resolver = Everywhere(chosen)
        files = find_files(map(Path, named), resolver, trouble.append)
        outcomes = check_files(files, resolver, map(Path, named))
        if chosen.baseline:
            outcomes = split(outcomes, read(chosen.baseline), chosen.baseline.parent)
    except ConfigError as problem:
        raise DevicefixError(str(problem)) from None
    errors = [FileError(str(error.filename), error.strerror or str(error)) for error in trouble]
    errors += [FileError(outcome.path, outcome.error) for outcome in outcomes if outcome.error]
    found = (finding for outcome in outcomes for finding in _public(outcome, outcome.result.findings))
    checked = (outcome.path for outcome in outcomes if not outcome.error)
    return Report(tuple(found), tuple(checked), tuple(errors))


def find_config(path: StrPath) -> Path | None:
    """Return the configuration file for a file or folder, to pass as `config` to the other functions.

    Returns:
        The nearest `.devicefix.toml`, `devicefix.toml`, or `pyproject.toml` with a table `[tool.devicefix]`,
        in the folder of the path or a parent folder; None if there is none.
    """
    from devicefix.config.load import find

    folder = Path(path)
    return find(folder if folder.is_dir() else folder.parent)


def _settings(config: StrPath | None, given: Mapping[str, Any], allowed: type) -> Settings:
    from devicefix.config.load import load, with_values
    from devicefix.config.settings import ConfigError, Settings
    from devicefix.config.values import Origin, nearest
    from devicefix.rules import known_codes

    known = allowed.__annotations__
    for name in given:
        if name not in known:
            raise TypeError(f"got an unexpected keyword argument {name!r}{nearest(name, known)}")
    values = {
        name.replace("_", "-"): os.fspath(value) if isinstance(value, os.PathLike) else value
        for name, value in given.items()
    }
    try:
        below = load(Path(config), known_codes) if config is not None else Settings()
        settings = with_values(below, values, Origin(Path(), known_codes, trusted=True))
    except ConfigError as problem:
        raise DevicefixError(str(problem)) from None
    return replace(settings, replacements=True, quiet=True, cache_dir=None)


def _outcome(source: str | bytes, filename: StrPath | None, settings: Settings) -> internal.Outcome:
    from devicefix.facts.project import Project
    from devicefix.files.text import DecodeError, encoded
    from devicefix.runner.run import check_text

    name = os.fspath(filename) if filename is not None else "source.py"
    try:
        data = encoded(source) if isinstance(source, str) else source
        outcome = check_text(data, name, settings, None if filename else Project)
    except DecodeError as problem:
        raise DevicefixError(f"{name}: {problem}") from None
    if outcome.error:
        raise DevicefixError(f"{name}: {outcome.error}")
    return outcome


def _like(source: AnyStr, data: bytes) -> AnyStr:
    """Return bytes as the type of the source."""
    if isinstance(source, bytes):
        return data
    from devicefix.files.text import Source

    return data.decode(Source(data).encoding)


def _public(outcome: internal.Outcome, findings: Iterable[internal.Finding]) -> Iterator[Finding]:
    """Yield findings of a file as those of the API."""
    from devicefix.rules.pages import url
    from devicefix.rules.registry import RULES

    for finding in findings:
        rule = RULES[finding.code]
        about = finding.code, rule.name, finding.message, outcome.path
        yield Finding(*about, *_span(finding), _fix(finding.fix), url(rule), finding.cell)


def _span(part: internal.Finding | internal.Replacement) -> tuple[Location, Location]:
    return Location(part.line, part.column), Location(part.end_line, part.end_column)


def _fix(fix: internal.Fix | None) -> Fix | None:
    if fix is None:
        return None
    replacements = tuple(Replacement(*_span(part), part.text, part.cell) for part in fix.replacements)
    return Fix(fix.safety.value, replacements)
