"""The cache: the findings of earlier runs, so that a run checks only files that have changed.

An entry holds the result of a file's check, and the questions that it asked about the other files with their
answers. With the same answers, the result depends only on the file's content, the settings and devicefix's
version. The entries are JSON, not pickles: a cache may come with a cloned repository, and a wrong one can
mislead, but it can't run code.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import astuple, is_dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args, get_origin, get_type_hints

from devicefix.config.resolver import Resolver
from devicefix.config.settings import ConfigError, Settings
from devicefix.config.sizes import mode, read
from devicefix.config.version import __version__
from devicefix.files import signals, system
from devicefix.model import Finding, Outcome, Result
from devicefix.runner.record import Record, Seen, Stamp, stamp

if TYPE_CHECKING:
    from devicefix.facts.project.questions import Question

NAME = ".devicefix_cache"
_RACY = 2_000_000_000  # ns; a second change may get the same time as a recent one
_ROOMS = ("config", "devices", "engine", "facts", "files", "rewrite", "rules")  # what findings depend on
# The errors that a broken cache may cause.
_WRONG = (
    ValueError, TypeError, KeyError, IndexError, AttributeError, OverflowError, RecursionError,
)  # fmt: skip


class Cache:
    """The results of earlier runs with the same settings.

    Args:
        folder: the cache folder.
        resolver: the settings of the run and of its files.

    Raises:
        ConfigError: the folder is something else, or a link, which may lead anywhere.
    """

    def __init__(self, folder: Path, resolver: Resolver) -> None:
        refuse_foreign(folder)
        self._file = folder / __version__ / f"{_key(resolver.root)}.json"
        self._resolver = resolver
        self._others: dict[str, str] = {}
        self._paths: list[str] = []
        self._around: list[str] = []
        self._stamps: dict[str, Any] = {}
        self._outcomes: list[Any] = []
        self._begun = time.time_ns()
        self._saved_from = 0  # the start of the run that saved this
        self._rest = ""
        self._entries: dict[str, Any] | None = None
        with suppress(OSError, *_WRONG):
            first, self._rest = read(self._file).decode().split("\n", 1)
            content = json.loads(first)
            self._saved_from, self._paths = int(content["begun"]), content["paths"]
            self._around = content["around"]
            self._stamps, self._outcomes = dict(content["stamps"]), content["outcomes"]
            self._others = dict(content["settings"])

    def outcomes(self, paths: list[str], around: list[str]) -> list[Outcome] | None:
        """Return the outcomes of files, if they are those of the last run and nothing has changed.

        Args:
            paths: the files.
            around: the other files of their projects.
        """
        if paths != self._paths or around != self._around:
            return None
        files = (*paths, *around)
        if not (all(map(self._same, files)) and all(map(self._unchanged, {*files, *self._stamps}))):
            return None
        with suppress(*_WRONG):
            found = {path: Outcome(path, Result(path)) for path in paths}
            found |= {outcome.path: outcome for outcome in map(_outcome, self._outcomes)}
            return [found[path] for path in paths]
        return None

    def records(self, paths: Iterable[str]) -> dict[str, Record]:
        """Return the records of the files that have not changed."""
        if self._entries is None:
            self._entries = {}
            with suppress(*_WRONG):
                self._entries = dict(json.loads(self._rest))
        found = {}
        for path in paths:
            entry = self._entries.get(path)
            with suppress(OSError, *_WRONG):
                now = stamp(path)
                if entry and self._same(path) and (self._unchanged(path) or digest(read(path)) == entry[0]):
                    found[path] = _record(path, now, entry)
        return found

    def _same(self, path: str) -> bool:
        """Return whether a file has the settings that it had."""
        return self._others.get(path, "") == self._other(path)

    def _other(self, path: str) -> str:
        """Return the digest of a file's settings; empty if they are those of the run."""
        settings, root = self._resolver.of(path), self._resolver.root
        return "" if settings is root or _digest_of(settings) == _digest_of(root) else _digest_of(settings)

    def _unchanged(self, path: str) -> bool:
        known, now = self._stamps.get(path, 0), stamp(path)
        return known == now and (now is None or now[0] < self._saved_from - _RACY)

    def save(self, records: Mapping[str, Record], outcomes: Iterable[Outcome], seen: Seen) -> None:
        """Save the results of a run; if they can't be written, there is no cache.

        Args:
            records: those of all files of the projects.
            outcomes: those of the checked files.
            seen: the other files and folders that they depend on.
        """
        checked = {outcome.path: outcome for outcome in outcomes}
        first = {
            "begun": self._begun,
            "paths": list(checked),
            "around": [path for path in records if path not in checked],
            "stamps": seen | {path: record.stamp for path, record in records.items() if record.stamp},
            "settings": {path: other for path in records if (other := self._other(path))},
            "outcomes": [_plain_outcome(outcome) for outcome in checked.values() if outcome.result.findings],
        }
        rest = {path: _plain(record) for path, record in records.items() if record.digest}
        text = "\n".join(json.dumps(part, separators=(",", ":"), default=list) for part in (first, rest))
        store(self._file, text.encode())


def store(file: Path, data: bytes) -> None:
    """Write a file of a cache, which is created; if that is not possible, nothing is written.

    Args:
        file: the file, in the folder of this version.
        data: its content.
    """
    with suppress(OSError):
        _prepare(file.parent)
        _replace(file, data)


def digest(data: bytes) -> str:
    """Return the digest of a content."""
    return hashlib.blake2b(data, digest_size=16).hexdigest()


def _key(settings: Settings) -> str:
    """Return the cache key: settings, current folder, Python, plugins and devicefix itself."""
    parts = (_digest_of(settings), _plugins(), os.getcwd(), sys.version_info[:3], _code_changed())
    return digest(repr(parts).encode())


@lru_cache(maxsize=64)
def _digest_of(settings: Settings) -> str:
    """Return the digest of the settings that findings depend on."""
    relevant = (
        settings.selections, settings.fixable_selections, settings.off, settings.target,
        settings.torch_version, settings.config_files, settings.environment,
        settings.replacements, settings.unsafe_fixes,
        settings.per_file_ignores, settings.extend_per_file_ignores, settings.ignore_noqa,
        settings.max_file_size,
    )  # fmt: skip
    return digest(repr(relevant).encode())


def _code_changed() -> int:
    """Return when the code that makes findings was last changed, in ns."""
    package = Path(__file__).parents[1]
    return max(
        entry.stat().st_mtime_ns
        for room in _ROOMS
        for folder, _, _ in os.walk(package / room)
        for entry in os.scandir(folder)
        if entry.name.endswith(".py")
    )


def _plugins() -> list[tuple[str, list[int]]]:
    """Return the versions of the plugins, and the times of their files, since one may be in development."""
    from devicefix.rules.registry import PLUGINS

    return [(str(plugin), [os.stat(file).st_mtime_ns for file in sorted(plugin.files)]) for plugin in PLUGINS]


TAG, IGNORE = "CACHEDIR.TAG", ".gitignore"  # https://bford.info/cachedir/
_TAGGED = "Signature: 8a477f597d28d172789f06886806bc55\n# A cache of devicefix.\n"


def refuse_foreign(folder: Path) -> None:
    """Refuse a folder that no earlier run has made; what a clone has at its place may lead to other files.

    Raises:
        ConfigError: there is such a folder.
    """
    other = "choose another folder with --cache-dir, or disable the cache with --no-cache"
    for part in (folder, folder / __version__):
        if os.path.islink(part):  # false, too, where no file can have the name
            raise ConfigError(f"{part}: a cache must not be a symbolic link; remove it, or {other}")
    try:
        if stat.S_ISDIR(mode(folder)) and not _is_ours(folder):
            raise ConfigError(f"{folder}: this folder is not a devicefix cache; {other}")
    except OSError as problem:
        raise ConfigError(f"{folder}: {problem.strerror or problem}; {other}") from None


def _is_ours(folder: Path) -> bool:
    """Return whether a folder is empty, or has our tag; a run that was killed may leave an empty one."""
    tag = folder / TAG
    if not tag.is_file():
        return not os.listdir(folder)
    return tag.stat().st_size == 0 or is_tagged(folder)


def is_tagged(folder: str | os.PathLike[str]) -> bool:
    """Return whether a folder has our tag."""
    tag = os.path.join(folder, TAG)
    return os.path.isfile(tag) and os.path.getsize(tag) == len(_TAGGED) and read(tag) == _TAGGED.encode()


def _prepare(folder: Path) -> None:
    """Create the folder, marked so that git, backups and searches skip it."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    for name, text in ((TAG, _TAGGED), (IGNORE, "*\n")):
        with suppress(FileExistsError), open(folder.parent / name, "xb") as file:  # not through a link
            file.write(text.encode())
    folder.mkdir(exist_ok=True)


def _replace(file: Path, data: bytes) -> None:
    """Write a file, or leave nothing behind; its name is replaced even if it is a link."""
    with signals.held():
        handle, name = tempfile.mkstemp(dir=file.parent)
        try:
            with os.fdopen(handle, "wb") as temporary:
                temporary.write(data)
            system.replace(name, file)
        except BaseException:
            os.unlink(name)
            raise


# --- JSON --------------------------------------------------------------------------------------------


def _plain_outcome(outcome: Outcome) -> list[Any]:
    return [outcome.path, [astuple(finding.portable()) for finding in outcome.result.findings]]


def _outcome(plain: Any) -> Outcome:
    from devicefix.rules.registry import RULES

    path, values = plain
    findings = [_read(Finding, value) for value in values]
    if not all(finding.code in RULES for finding in findings):
        raise ValueError("no rule has the code of a finding")
    return Outcome(path, Result(path, findings))


def _plain(record: Record) -> list[Any]:
    exports = {name: _plain_value(value) for name, value in record.exports.items()}
    outcome = record.outcome and _plain_outcome(record.outcome)[1]
    answers = None if record.answers is None else [[*item] for item in record.answers.items()]
    return [record.digest, exports, outcome, answers]


def _plain_value(value: Any) -> Any:
    return sorted(value, key=repr) if isinstance(value, frozenset) else value  # they mix positions and names


def _record(path: str, now: Stamp | None, entry: Any) -> Record:
    from devicefix.facts.exports import EXPORTS
    from devicefix.facts.project import Project  # noqa: F401 it defines all exports

    known, exports, findings, answers = entry
    return Record(
        known,
        now,
        None if findings is None else _outcome([path, findings]),
        None if answers is None else {_question(*question): answer for question, answer in answers},
        {name: _read(EXPORTS[name].kind, value) for name, value in exports.items()},
    )


def _question(name: str, *args: Any) -> Question:
    from devicefix.facts.project.questions import QUESTIONS

    *kinds, _ = _kinds(QUESTIONS[name]).values()
    return (name, *(_read(kind, value) for kind, value in zip(kinds, args, strict=True)))


# The types of the fields of a class, or of the parameters of a function and of its result.
_kinds = cache(get_type_hints)


def _read(kind: Any, value: Any) -> Any:
    """Return a value from JSON as one of a type.

    Raises:
        TypeError, ValueError: it is not of that type.
    """
    origin, parts = get_origin(kind), get_args(kind)
    if origin is dict and type(value) is dict:
        return {_read(parts[0], key): _read(parts[1], item) for key, item in value.items()}
    if origin in (frozenset, tuple) and type(value) is list:
        if origin is tuple and ... not in parts:
            return tuple(_read(part, item) for part, item in zip(parts, value, strict=True))
        if parts[0] is str and {str}.issuperset(map(type, value)):  # most values, and several times as fast
            return origin(value)
        return origin(_read(parts[0], item) for item in value)
    if origin not in (dict, frozenset, tuple):
        kinds = parts or (kind,)  # the types of a union, or the type
        if type(value) in kinds:
            return value
        record: Any = next((each for each in kinds if is_dataclass(each) or hasattr(each, "_fields")), None)
        if record is not None and type(value) is list:
            return record(*map(_read, _kinds(record).values(), value))
    raise TypeError(f"not of the type {kind}")
