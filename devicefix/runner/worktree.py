"""Find the files whose content git could not restore, since it is not committed.

A repository may name programs that git runs (hooks, filters, monitors, transports), and nothing of a checked
repository may run. So git is asked only for its index and its last commit; the files are compared here.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable

from devicefix.config.folders import nearest_above
from devicefix.files.discover import git
from devicefix.files.write import Change


def uncommitted(changes: Iterable[Change], *, staged: bool = False) -> tuple[list[str], list[str]]:
    """Return the files whose present content is in no commit.

    Args:
        changes: the files with their contents.
        staged: whether content in the index counts as committed; git can restore it, too.

    Returns:
        The files in git work trees, and the files outside of them.
    """
    tops: dict[str, str | None] = {}
    trees: dict[str, list[Change]] = {}
    outside = []
    for change in changes:
        if change.before is None:  # a new file
            continue
        top = top_of(os.path.dirname(os.path.realpath(change.path)), tops)
        if top is None:
            outside.append(change.path)
        else:
            trees.setdefault(top, []).append(change)
    found = {path for top, inside in trees.items() for path in _uncommitted(top, inside, staged)}
    return [change.path for inside in trees.values() for change in inside if change.path in found], outside


def top_of(folder: str, known: dict[str, str | None]) -> str | None:
    """Return the nearest folder, at or above this one, that is the top of a work tree."""
    return nearest_above(folder, known, lambda at: at if os.path.lexists(os.path.join(at, ".git")) else None)


def _uncommitted(top: str, changes: Iterable[Change], staged: bool) -> list[str]:
    committed = _hashes_of(top, staged)
    known = ((change, committed.get(name_in(top, change.path), b"").decode()) for change in changes)
    return [each.path for each, blob in known if blob not in _hashes(each.before or b"", committed)]


def name_in(top: str, path: str) -> bytes:
    """Return the name that git has for a file in a work tree."""
    return os.fsencode(os.path.relpath(os.path.realpath(path), top).replace(os.sep, "/"))


def _hashes_of(top: str, staged: bool) -> dict[bytes, bytes]:
    """Return the hashes of files by path: all of the index, or those that the last commit has, too."""
    different: bytes | None = b""
    if not staged:
        different = git(top, "diff-index", "--cached", "--name-only", "--no-ext-diff", "-z", "HEAD", "--")
    listed = git(top, "ls-files", "--stage", "-z")
    if different is None or listed is None:  # no commit yet, no git, or git does not trust this repository
        return {}
    entries = (entry.partition(b"\t") for entry in listed.split(b"\0") if entry)
    hashes = {name: about.split()[1] for about, _, name in entries}
    for name in different.split(b"\0"):
        hashes.pop(name, None)
    return hashes


def _hashes(data: bytes, committed: dict[bytes, bytes]) -> set[str]:
    """Return git's possible hashes of a content: as it is, and with normalized line ends."""
    long = any(len(value) == 64 for value in committed.values())
    digest = hashlib.sha256 if long else hashlib.sha1
    forms = {data, data.replace(b"\r\n", b"\n")}
    return {digest(b"blob %d\0" % len(form) + form).hexdigest() for form in forms}
