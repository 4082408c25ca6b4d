"""What `import devicefix` offers: checks and rewrites for other programs.

Its names, arguments and results stay as they are; what they are made of may change with every version. So the
classes here are not those that the engine works with.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, AnyStr, Generic, Literal, TypeAlias

if TYPE_CHECKING:
    from devicefix import model as internal
    from devicefix.config.settings import Settings
    from devicefix.model import Outcome

StrPath: TypeAlias = str | os.PathLike[str]
Target: TypeAlias = Literal["cuda", "accelerator"]

_UNNAMED = "source.py"


class DevicefixError(Exception):
    """devicefix could not do what it was asked for; the message says why, in one line."""


@dataclass(frozen=True, slots=True, order=True)
class Location:
    """A place in a file.

    Attributes:
        line: from 1. A line ends in `\\n`, `\\r\\n` or `\\r`.
        column: from 1, in characters, that is in items of a `str`.
    """

    line: int
    column: int


@dataclass(frozen=True, slots=True)
class Replacement:
    """New text for a part of a file.

    Attributes:
        location: the first character that is replaced.
        end_location: the one behind the last; the same as `location` where text is only put in.
        text: what stands there afterwards, with the line ends of the file.
        cell: the number of the cell in a notebook, from 1; None in other files.
    """

    location: Location
    end_location: Location
    text: str
    cell: int | None = None


@dataclass(frozen=True, slots=True)
class Fix:
    """What to change so that a finding is gone.

    Attributes:
        applicability: `"safe"` if nothing changes on a machine with CUDA, `"unsafe"` if something may.
        replacements: the changes, in the order of the file, none of which overlap. They are complete:
            imports and definitions that the new code needs are among them. They hold for this fix alone; to
            make several at once is what `rewrite_source` is for. Empty where the fix of another finding sees
            to this one as well.
    """

    applicability: Literal["safe", "unsafe"]
    replacements: tuple[Replacement, ...]


@dataclass(frozen=True, slots=True)
class Finding:
    """One tie to CUDA.

    Attributes:
        code: of the rule, such as `"DF101"`.
        name: of the rule, such as `"cuda-call"`.
        message: what is wrong, in one line.
        filename: the file, as it was given or found.
        location: where it begins.
        end_location: the character behind its last.
        fix: what to do about it, None where that is up to a person.
        url: the rule's page, None for a rule that a plugin brings.
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
    """What became of a source.

    Attributes:
        source: the new source, of the same type as the old one, and equal to it where nothing is fixed.
        fixed: the findings that the new source has no more, at their places in the old one.
        remaining: the findings that are left, at their places in the new one.
    """

    source: AnyStr
    fixed: tuple[Finding, ...]
    remaining: tuple[Finding, ...]


@dataclass(frozen=True, slots=True)
class FileError:
    """A file that could not be looked at.

    Attributes:
        filename: the file or folder.
        message: why not, in one line.
    """

    filename: str
    message: str


@dataclass(frozen=True, slots=True)
class Report:
    """What was found in files.

    Attributes:
        findings: in the order of the files, and within each from its top.
        files: all files that were looked at, sorted.
        errors: the files that could not be.
    """

    findings: tuple[Finding, ...]
    files: tuple[str, ...]
    errors: tuple[FileError, ...]


def check_source(
    source: str | bytes,
    *,
    filename: StrPath | None = None,
    config: StrPath | None = None,
    select: Sequence[str] | None = None,
    extend_select: Sequence[str] | None = None,
    ignore: Sequence[str] | None = None,
    per_file_ignores: Mapping[str, Sequence[str]] | None = None,
    target: Target | None = None,
    torch_version: str | None = None,
) -> list[Finding]:
    """Find the ties to CUDA in a source.

    Args:
        source: the text, or the bytes of a file, which may declare an encoding.
        filename: the file that it is or will be: findings tell of it, `per_file_ignores` go by it, and what
            it imports from files of its project is taken into account. The suffix says what it is: Python, a
            notebook, a configuration file. None for Python that stands alone: nothing is read then, and
            findings tell of "source.py".
        config: a file with settings, such as `find_config` finds. None for the defaults.
        select: codes of the only rules to use, or beginnings of codes; as all that follow, it goes before
            what `config` says.
        extend_select: codes of rules to use as well.
        ignore: codes of rules not to use.
        per_file_ignores: patterns of files, each with the codes of rules not to use there.
        target: what the program is to run on besides the CPU.
        torch_version: the oldest torch that a rewrite must run with, such as `"2.6"`.

    Returns:
        The findings, from the top of the file. A source that does not parse is a finding, too: DF901.

    Raises:
        DevicefixError: the settings cannot be used, or devicefix failed.
    """
    given = {
        "select": select,
        "extend-select": extend_select,
        "ignore": ignore,
        "per-file-ignores": per_file_ignores,
        "target": target,
        "torch-version": torch_version,
    }
    outcome = _outcome(source, filename, _settings(config, given))
    return list(_public(outcome, outcome.result.findings))


def rewrite_source(
    source: AnyStr,
    *,
    filename: StrPath | None = None,
    unsafe_fixes: bool | None = None,
    config: StrPath | None = None,
    select: Sequence[str] | None = None,
    extend_select: Sequence[str] | None = None,
    ignore: Sequence[str] | None = None,
    per_file_ignores: Mapping[str, Sequence[str]] | None = None,
    target: Target | None = None,
    torch_version: str | None = None,
) -> Rewrite[AnyStr]:
    """Make a source run on any device, as far as that is safe.

    Args:
        source: as for `check_source`.
        filename: as for `check_source`.
        unsafe_fixes: whether to apply also what may change a run on CUDA.
        config: as for `check_source`, and so on.

    Returns:
        The new source, what is fixed in it, and what is left. Who writes a file back should give its bytes,
        which keep their encoding and their line ends.

    Raises:
        DevicefixError: the settings cannot be used, or devicefix failed.
    """
    given = {
        "unsafe-fixes": unsafe_fixes,
        "select": select,
        "extend-select": extend_select,
        "ignore": ignore,
        "per-file-ignores": per_file_ignores,
        "target": target,
        "torch-version": torch_version,
    }
    outcome = _outcome(source, filename, _settings(config, given, fix=True))
    result = outcome.result
    return Rewrite(
        source if result.output is None else _like(source, result.output),
        tuple(_public(outcome, result.fixed)),
        tuple(_public(outcome, result.remaining)),
    )


def check_paths(
    paths: StrPath | Iterable[StrPath],
    *,
    jobs: int = 1,
    config: StrPath | None = None,
    select: Sequence[str] | None = None,
    extend_select: Sequence[str] | None = None,
    ignore: Sequence[str] | None = None,
    per_file_ignores: Mapping[str, Sequence[str]] | None = None,
    exclude: Sequence[str] | None = None,
    extend_exclude: Sequence[str] | None = None,
    baseline: StrPath | None = None,
    config_files: bool | None = None,
    docs: bool | None = None,
    target: Target | None = None,
    torch_version: str | None = None,
) -> Report:
    """Find the ties to CUDA in files, as `devicefix check` does. Nothing is written, no cache is kept.

    Args:
        paths: files and folders, or one of them. All files together are taken for the program: what one says
            of its classes can matter to others.
        jobs: how many processes to use. With more than one, the calling program must be one that
            `multiprocessing` can start again: `if __name__ == "__main__":`.
        config: as for `check_source`, and so on.
        exclude: patterns as in .gitignore of what to leave out of folders, relative to the current one.
        extend_exclude: more of them.
        baseline: a file that `devicefix check --write-baseline` has made; what stands in it is not reported.
        config_files: whether to look at YAML, JSON, TOML and shell scripts in folders, too.
        docs: whether to look at blocks of Python in Markdown and reStructuredText in folders, too.

    Returns:
        The findings, the files that were looked at, and those that could not be, such as missing ones.

    Raises:
        DevicefixError: the settings cannot be used.
    """
    from devicefix.config.settings import ConfigError
    from devicefix.runner.baseline import read, split
    from devicefix.runner.run import check_files, find_files

    given = {
        "jobs": jobs,
        "select": select,
        "extend-select": extend_select,
        "ignore": ignore,
        "per-file-ignores": per_file_ignores,
        "exclude": exclude,
        "extend-exclude": extend_exclude,
        "baseline": baseline and os.fspath(baseline),
        "config-files": config_files,
        "docs": docs,
        "target": target,
        "torch-version": torch_version,
    }
    settings = _settings(config, given)
    trouble: list[OSError] = []
    named = [paths] if isinstance(paths, (str, os.PathLike)) else paths
    try:
        outcomes = check_files(find_files(map(Path, named), settings, trouble.append), settings)
        if settings.baseline:
            outcomes = split(outcomes, read(settings.baseline), settings.baseline.parent)
    except ConfigError as problem:
        raise DevicefixError(str(problem)) from None
    errors = [FileError(str(each.filename), each.strerror or str(each)) for each in trouble]
    errors += [FileError(each.path, each.error) for each in outcomes if each.error]
    return Report(
        tuple(finding for each in outcomes for finding in _public(each, each.result.findings)),
        tuple(each.path for each in outcomes if not each.error),
        tuple(errors),
    )


def find_config(path: StrPath) -> Path | None:
    """The file with the settings that are in force at a path: what to give as `config`.

    Args:
        path: a file or folder.

    Returns:
        The nearest `.devicefix.toml`, `devicefix.toml`, or `pyproject.toml` with a table `[tool.devicefix]`,
        at or above the path; None where there is none.
    """
    from devicefix.config.load import find

    folder = Path(path)
    return find(folder if folder.is_dir() else folder.parent)


def _settings(config: StrPath | None, given: Mapping[str, Any], fix: bool = False) -> Settings:
    from devicefix.config.load import load, with_values
    from devicefix.config.settings import ConfigError, Settings
    from devicefix.config.values import Origin
    from devicefix.rules import known_codes

    try:
        below = load(Path(config), known_codes) if config is not None else Settings()
        settings = with_values(below, given, Origin(Path(), known_codes))
    except ConfigError as problem:
        raise DevicefixError(str(problem)) from None
    return replace(settings, fix=fix, replacements=True, quiet=True, cache_dir=None)


def _outcome(source: str | bytes, filename: StrPath | None, settings: Settings) -> Outcome:
    from devicefix.files.text import DecodeError, encoded
    from devicefix.runner.run import check_text

    name = os.fspath(filename) if filename is not None else _UNNAMED
    try:
        data = encoded(source) if isinstance(source, str) else source
        outcome = check_text(data, name, settings, follow_imports=bool(filename))
    except DecodeError as problem:
        raise DevicefixError(f"{name}: {problem}") from None
    if outcome.error:
        raise DevicefixError(f"{name}: {outcome.error}")
    return outcome


def _like(source: AnyStr, data: bytes) -> AnyStr:
    """Bytes as what the source is."""
    if isinstance(source, bytes):
        return data
    from devicefix.files.text import Source

    return data.decode(Source(data).encoding)


def _public(outcome: Outcome, findings: Iterable[internal.Finding]) -> Iterator[Finding]:
    """Findings of a file as they are shown to the world."""
    from devicefix.rules.pages import url
    from devicefix.rules.registry import RULES

    for each in findings:
        rule = RULES[each.code]
        yield Finding(
            each.code,
            rule.name,
            each.message,
            outcome.path,
            Location(each.line, each.column),
            Location(each.end_line, each.end_column),
            _fix(each.fix),
            url(rule),
            each.cell,
        )


def _fix(fix: internal.Fix | None) -> Fix | None:
    if fix is None:
        return None
    replacements = (
        Replacement(
            Location(each.line, each.column), Location(each.end_line, each.end_column), each.text, each.cell
        )
        for each in fix.replacements
    )
    return Fix(fix.safety.value, tuple(replacements))
