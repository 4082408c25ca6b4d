"""The coverage file: which fixes ran in `devicefix verify`, over several runs.

An entry holds the fixes of one file. It is valid as long as the file, its rewrite and devicefix are the same.
The paths of entries are compared with those of checked files, and never opened.
"""

from __future__ import annotations

import hashlib
import json
import operator
import os
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import astuple, dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from devicefix.config import sizes
from devicefix.config.json_files import JsonFormat
from devicefix.config.version import __version__
from devicefix.files import write as files
from devicefix.model import Finding, Safety
from devicefix.runner.baseline import relative

FORMAT = JsonFormat(
    "a coverage file",
    version=1,
    create="; create it with `devicefix verify --coverage-file`",
    replace="; delete it to start over",
    largest=sizes.size(sizes.LARGEST),
)


@dataclass(frozen=True, slots=True)
class Seen:
    """A fix, and what ran of it.

    Attributes:
        line: its line in the file, from 1.
        column: its column.
        code: the code of its rule.
        ran: for each part of the code that it made, whether it ran.
    """

    line: int
    column: int
    code: str
    ran: tuple[bool, ...]

    @property
    def is_seen(self) -> bool:
        """True if all that it made ran."""
        return bool(self.ran) and all(self.ran)


class Entry(NamedTuple):
    """The fixes of a file.

    Attributes:
        source: a digest of the file.
        rewrite: a digest of the file with its fixes.
        fixes: the fixes, in the order of the file.
        devicefix: the version that made the fixes.
    """

    source: str
    rewrite: str
    fixes: tuple[Seen, ...]
    devicefix: str = __version__

    def joined(self, other: Entry) -> Entry | None:
        """Return what ran in one of two runs; None if they are not of the same code."""
        if self._shape() != other._shape():
            return None
        pairs = zip(self.fixes, other.fixes, strict=True)
        both = (replace(one, ran=tuple(map(operator.or_, one.ran, two.ran))) for one, two in pairs)
        return self._replace(fixes=tuple(both))

    def _shape(self) -> Entry:
        """Return the entry without what ran."""
        return self._replace(fixes=tuple(replace(fix, ran=(False,) * len(fix.ran)) for fix in self.fixes))

    def is_seen(self, finding: Finding) -> bool | None:
        """Return whether a finding's fix ran; None if there is no fix, or an unsafe one that was not made."""
        fixes = [fix for fix in self.fixes if (fix.line, fix.code) == (finding.line, finding.code)]
        if finding.safety is not Safety.SAFE:
            fixes = [fix for fix in fixes if finding.fix and fix.column == finding.column]
            return all(fix.is_seen for fix in fixes) if fixes else None
        return bool(fixes) and all(fix.is_seen for fix in fixes)

    @property
    def lines(self) -> dict[int, bool]:
        """The lines with fixes, each with True if all that its fixes made ran."""
        found: dict[int, bool] = {}
        for fix in self.fixes:
            found[fix.line] = found.get(fix.line, True) and fix.is_seen
        return found


NOT_RUN = Entry("", "", ())  # of a file that no run has seen


class Coverage:
    """A coverage file, to look up the findings of files.

    Args:
        file: the coverage file.

    Attributes:
        changed: the paths of files that have changed since their runs, which count as not run.

    Raises:
        ConfigError: the file cannot be read, or is no coverage file.
    """

    def __init__(self, file: Path) -> None:
        self._entries = read(file)
        self._folder = Path(os.path.realpath(file.parent))
        self.changed: list[str] = []

    def entry(self, path: str, data: bytes) -> Entry | None:
        """Return the entry of a file, None if there is none for this content."""
        found = self._entries.get(relative(os.path.realpath(path), self._folder))
        if found is None or (found.source, found.devicefix) == (digest(data), __version__):
            return found
        self.changed.append(path)
        return None


class Added(NamedTuple):
    """The content of a coverage file after a run was added.

    Attributes:
        entries: the entries, by path.
        dropped: the paths whose older entries were dropped, since the code has changed.
    """

    entries: dict[str, Entry]
    dropped: list[str]


def digest(data: bytes) -> str:
    """Return the digest of a file's content."""
    return hashlib.sha256(data).hexdigest()


def read(file: Path) -> dict[str, Entry]:
    """Return the entries of a coverage file by path, which is relative to its folder and has `/`.

    Raises:
        ConfigError: the file cannot be read, or is no coverage file.
    """
    return FORMAT.parsed(file, FORMAT.content(file), _entries)


def _entries(document: dict[str, Any]) -> dict[str, Entry]:
    entries = document.get("files")
    if not isinstance(entries, dict):
        raise ValueError('"files" must be an object')
    return {path: _entry(path, value) for path, value in entries.items()}


def _entry(path: str, value: Any) -> Entry:
    match value:
        case {
            "devicefix": str(version),
            "source": str(source),
            "rewrite": str(rewrite),
            "fixes": list(fixes),
        }:
            return Entry(source, rewrite, tuple(_seen(path, fix) for fix in fixes), version)
    raise ValueError(f'"files", {path!r} must have "devicefix", "source", "rewrite" and "fixes"')


def _seen(path: str, value: Any) -> Seen:
    match value:
        case [int(line), int(column), str(code), list(ran)] if all(isinstance(part, bool) for part in ran):
            return Seen(line, column, code, tuple(ran))
    raise ValueError(f'"files", {path!r}, "fixes" must contain lists such as [1, 5, "DF101", [true]]')


def written(entries: Mapping[str, Entry]) -> bytes:
    """Return the bytes of a coverage file, with one fix a line, for readable diffs."""
    blocks = []
    for path, entry in sorted(entries.items()):
        head = {"devicefix": entry.devicefix, "source": entry.source, "rewrite": entry.rewrite}
        fixes = ",\n".join(f"    {json.dumps(astuple(fix))}" for fix in entry.fixes)
        blocks.append(f'  {json.dumps(path)}: {json.dumps(head)[:-1]}, "fixes": [\n{fixes}\n  ]}}')
    text = f'{{"version": {FORMAT.version}, "files": {{\n' + ",\n".join(blocks) + "\n}}\n"
    return text.encode()


def add(file: Path, run: Mapping[str, Entry], unchanged: Collection[str]) -> Added:
    """Add what a run has seen to a coverage file, and create the file if there is none.

    Several runs may end at the same time.

    Args:
        file: the coverage file.
        run: the entries of the run, by path.
        unchanged: the paths that have no fixes (any more).

    Raises:
        ConfigError: the file exists and is no coverage file.
        OSError: the file cannot be written.
    """
    with _locked(file):
        files.refuse_dangling(os.fspath(file))
        before = FORMAT.content(file) if file.exists() else None
        known = {} if before is None else FORMAT.parsed(file, before, _entries)
        added = _joined(known, run, unchanged)
        files.write(files.Change(os.fspath(file), before, written(added.entries)))
    return added


def _joined(known: Mapping[str, Entry], run: Mapping[str, Entry], unchanged: Collection[str]) -> Added:
    entries, dropped = dict(run), []
    for path, entry in known.items():
        if path in run:
            both = entry.joined(run[path])
            entries[path] = both or run[path]
            dropped += [] if both else [path]
        elif path in unchanged:
            dropped.append(path)
        else:
            entries[path] = entry
    return Added(entries, sorted(dropped))


@contextmanager
def _locked(file: Path) -> Iterator[None]:
    """Wait until no other run writes a file in the same folder.

    The folder is locked, since the file is replaced by another one.
    """
    try:
        import fcntl
    except ImportError:  # on Windows, an error says that the file has changed in the meantime
        yield
        return
    handle = os.open(os.path.dirname(os.path.realpath(file)), os.O_RDONLY)
    try:
        with suppress(OSError):  # a file system without locks
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)
