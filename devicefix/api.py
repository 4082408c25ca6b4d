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
    """devicefix could not do its work; the message says why, in one line."""


@dataclass(frozen=True, slots=True, order=True)
class Location:
    """A place in a file.

    Attributes:
        line: from 1. A line ends in LF, CR LF or CR.
        column: from 1, in characters, that is in items of a `str`.
    """

    line: int
    column: int


@dataclass(frozen=True, slots=True)
class Replacement:
    """New text for a part of a file.

    Attributes:
        location: the first character that is replaced.
        end_location: the one after the last; the same as `location` for an insertion.
        text: the new text, with the line ends of the file.
        cell: the number of the cell in a notebook, from 1; None in other files.
    """

    location: Location
    end_location: Location
    text: str
    cell: int | None = None


@dataclass(frozen=True, slots=True)
class Fix:
    """The changes that resolve a finding.

    Attributes:
        applicability: `"safe"` if nothing changes on a machine with CUDA, `"unsafe"` if something may.
        replacements: the changes, in the order of the file, without overlaps. They include the imports and
            definitions that the new code needs, for this fix alone (`rewrite_source` makes several). Empty
            where the fix of another finding resolves this one as well.
    """

    applicability: Literal["safe", "unsafe"]
    replacements: tuple[Replacement, ...]


@dataclass(frozen=True, slots=True)
class Finding:
    """One tie to CUDA.

    Attributes:
        code: of the rule, such as `"DF101"`.
        name: of the rule, such as `"cuda-call"`.
        message: what is wrong and what to do, in one line.
        filename: the file, as it was given or found.
        location: its first character.
        end_location: the character after its last.
        fix: None where a person has to decide.
        url: the rule's page; None for a plugin's rule.
        cell: the number of the cell in a notebook, from 1, whose lines are counted; None in other files.
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
        fixed: the findings that are fixed, at their places in the old source.
        remaining: the findings that remain, at their places in the new source.
    """

    source: AnyStr
    fixed: tuple[Finding, ...]
    remaining: tuple[Finding, ...]


@dataclass(frozen=True, slots=True)
class FileError:
    """A file that could not be checked.

    Attributes:
        filename: the file or folder.
        message: why not, in one line.
    """

    filename: str
    message: str


@dataclass(frozen=True, slots=True)
class Report:
    """The findings in files.

    Attributes:
        findings: in the order of the files, and within each from its top.
        files: all files that were checked, sorted.
        errors: the files that could not be.
    """

    findings: tuple[Finding, ...]
    files: tuple[str, ...]
    errors: tuple[FileError, ...]


class RuleSettings(TypedDict, total=False):
    """Settings of all functions; as in the configuration, with `_` for `-`. None is the same as no value.

    Attributes:
        select: codes of the only rules to use, or beginnings of codes.
        extend_select: codes of rules to use as well.
        ignore: codes of rules not to use.
        fixable: codes of the only rules whose findings get a fix, or beginnings of codes.
        extend_fixable: codes of rules whose findings get a fix as well.
        unfixable: codes of rules whose findings get no fix.
        per_file_ignores: patterns of files, each with the codes of rules not to use there.
        target: what the program runs on besides the CPU.
        torch_version: the oldest torch that a rewrite must run with, such as `"2.6"`.
        max_file_size: the largest source, such as `"16M"`, which is the default.
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
        unsafe_fixes: whether to apply fixes that may change a run on CUDA as well.
    """

    unsafe_fixes: bool | None


class PathSettings(RuleSettings, total=False):
    """Settings of `check_paths`.

    Attributes:
        jobs: the number of processes, 1 by default. With more than one, `multiprocessing` must be able to
            start the calling program again: `if __name__ == "__main__":`.
        exclude: patterns, as in .gitignore, of what to exclude from folders, relative to the current one.
        extend_exclude: more such patterns.
        force_exclude: whether to exclude files that match the patterns even if `paths` names them.
        respect_gitignore: whether to exclude files that git ignores, as is the default.
        baseline: a file that `devicefix check --write-baseline` created; its findings are not reported.
        config_files: whether to check YAML, JSON, TOML and shell scripts in folders as well.
        environment: whether to check requirements and other files of the environment in folders as well.
        docs: whether to check blocks of Python in Markdown and reStructuredText in folders as well.
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
    """Find the ties to CUDA in a source.

    Args:
        source: the text, or the bytes of a file, which may declare an encoding.
        filename: the path that the source has or will have. Findings name it, `per_file_ignores` match it,
            and the files of its project that it imports are read. Its suffix says what it is: Python, a
            notebook, a configuration file. None for a module without a project: no file is read, and
            findings name "source.py".
        config: a file with settings, such as `find_config` finds; None for the defaults.
        settings: override the configuration; see `RuleSettings`.

    Returns:
        The findings, from the top of the file. A source that does not parse is a finding, too: DF901.

    Raises:
        DevicefixError: the settings cannot be used, or devicefix failed.
        TypeError: there is no such setting.
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
    """Rewrite a source to run on any device, as far as that is safe.

    Args:
        source: as for `check_source`.
        filename: as for `check_source`.
        config: as for `check_source`.
        settings: override the configuration; see `RewriteSettings`.

    Returns:
        The new source, what is fixed in it, and what remains. To write a file back, pass its bytes: they keep
        their encoding and their line ends.

    Raises:
        DevicefixError: the settings cannot be used, or devicefix failed.
        TypeError: there is no such setting.
    """
    outcome = _outcome(source, filename, replace(_settings(config, settings, RewriteSettings), fix=True))
    result = outcome.result
    fixed, left = (tuple(_public(outcome, found)) for found in (result.fixed, result.remaining))
    return Rewrite(source if result.output is None else _like(source, result.output), fixed, left)


def check_paths(
    paths: StrPath | Iterable[StrPath], *, config: StrPath | None = None, **settings: Unpack[PathSettings]
) -> Report:
    """Find the ties to CUDA in files, as `devicefix check` does. Nothing is written, no cache is kept.

    Args:
        paths: files and folders, or one of them. Together they are the program: the classes of one file can
            matter to others.
        config: as for `check_source`.
        settings: override the configuration; see `PathSettings`.

    Returns:
        The findings, the files that were checked, and those that could not be, such as missing ones.

    Raises:
        DevicefixError: the settings cannot be used.
        TypeError: there is no such setting.
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
    """Return the configuration file that applies to a file or folder, to be given as `config`.

    Returns:
        The nearest `.devicefix.toml`, `devicefix.toml`, or `pyproject.toml` with a table `[tool.devicefix]`,
        at or above the path; None where there is none.
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
