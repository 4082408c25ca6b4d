"""Keep the findings on lines that have changed since the merge base of a revision and HEAD.

A repository may name programs that git runs (filters, drivers, hooks), and nothing of a checked repository
may run. So git is asked only for the contents of its commits and its index; the files are compared here.
"""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from itertools import accumulate
from pathlib import Path
from typing import Any

from devicefix.config.settings import ConfigError
from devicefix.files.differences import Differences
from devicefix.files.discover import git, git_program
from devicefix.files.text import LINE_END
from devicefix.model import Finding, Result
from devicefix.runner.worktree import name_in, top_of


class DiffBaseError(ConfigError):
    """There is no revision to compare with; the message says why."""

    def __init__(self, why: str) -> None:
        super().__init__(f"--diff-base: {why}")


class Since:
    """The changes since a revision, in the work trees of some files.

    Args:
        revision: a branch, tag or commit.
        paths: files and folders; the work tree of each must have the revision.

    Raises:
        DiffBaseError: git does not know a path or the revision.
    """

    def __init__(self, revision: str, paths: Iterable[Path]) -> None:
        self.revision = revision
        self._tops: dict[str, str | None] = {}
        self._bases: dict[str, _Base] = {}
        for path in paths:
            self._base(path)

    def limited(self, result: Result, data: bytes) -> Result:
        """Return a result with only the findings on changed lines.

        Args:
            result: the result of a file.
            data: the file's content.

        Raises:
            DiffBaseError: git does not know the file's work tree, the revision in it, or the file's content.
        """
        changes = _Changes(self._base(Path(result.path)).content(result.path), data)
        return replace(result, findings=[finding for finding in result.findings if changes.touch(finding)])

    def _base(self, path: Path) -> _Base:
        real = os.path.realpath(path)
        folder = real if os.path.isdir(real) else os.path.dirname(real)
        top = top_of(folder, self._tops)
        if top is None:
            raise DiffBaseError(f"{path} is not in a git work tree")
        if top not in self._bases:
            self._bases[top] = _Base(top, self.revision)
        return self._bases[top]


class _Base:
    """A work tree as of the merge base."""

    def __init__(self, top: str, revision: str) -> None:
        self.top = top
        if git_program() is None:
            raise DiffBaseError("git is not installed")
        if self._git("rev-parse", "--git-dir") is None:
            raise DiffBaseError(f"git refuses to use {top}; for the reason, run: git -C {top} status")
        if self._git("rev-parse", "--verify", "HEAD^{commit}") is None:
            raise DiffBaseError(f"{top} has no commits yet")
        named = self._git("rev-parse", "--verify", f"{revision}^{{commit}}")
        if not named:
            raise DiffBaseError(f"there is no revision {revision!r} in {top}{self._fetch_unknown(revision)}")
        common = self._git("merge-base", named.decode().strip(), "HEAD")
        if not common:
            raise DiffBaseError(f"{revision!r} and HEAD have no commit in common in {top}{self._fetch()}")
        self.commit = common.split()[0].decode()

    def content(self, path: str) -> bytes | None:
        """Return the content of a file; None if there was none."""
        name = name_in(self.top, path)
        blob = self._blobs.get(self._renamed.get(name, name))
        if blob is None:
            return None
        data = self._git("cat-file", "blob", blob)
        if data is None:
            missing = f"git does not have the content of {path} at commit {self.commit[:12]}"
            raise DiffBaseError(f"{missing}{self._fetch()}")
        return data

    @cached_property
    def _blobs(self) -> dict[bytes, str]:
        """Return the blobs of all files, by path."""
        listed = self._git("ls-tree", "-r", "-z", "--full-tree", self.commit) or b""
        entries = (entry.partition(b"\t") for entry in listed.split(b"\0") if entry)
        return {name: about.split()[2].decode() for about, _, name in entries}

    @cached_property
    def _renamed(self) -> dict[bytes, bytes]:
        """Return the old names of the files that the index renames."""
        renames = ("--raw", "-z", "--find-renames", "--diff-filter=R", "--no-ext-diff", "--no-textconv")
        fields = (self._git("diff-index", "--cached", *renames, self.commit, "--") or b"").split(b"\0")
        return dict(zip(fields[2::3], fields[1::3], strict=False))

    def _git(self, *arguments: str) -> bytes | None:
        return git(self.top, *arguments)

    def _fetch_unknown(self, revision: str) -> str:
        """Return the end of a message: how to fetch an unknown revision."""
        name = re.split("[~^:@]", revision)[0]
        if self._git("rev-parse", "--verify", f"{name}^{{commit}}"):  # HEAD of HEAD~9
            return self._fetch()
        remotes = (self._git("remote") or b"").decode().split()
        for remote in remotes:
            branch = name.removeprefix(f"{remote}/")
            if branch and branch != name:
                return self._fetch(remote, f"{branch}:refs/remotes/{name}")
        if not (remotes and self._is_shallow):
            return ""
        tag, branch = self._command("--tags"), self._command(remotes[0], f"{name}:{name}")
        return f", which is a shallow clone: run {tag}, or for a branch {branch}"

    def _fetch(self, *arguments: str) -> str:
        """Return the end of a message: how to fetch the history of a shallow clone, and a branch.

        Args:
            arguments: those of `git fetch` for the branch.
        """
        command = self._command(*arguments)
        if self._is_shallow:
            return f", which is a shallow clone: run {command}, or set fetch-depth: 0 for actions/checkout"
        return f"; run {command}" if arguments else ""

    def _command(self, *arguments: str) -> str:
        return shlex.join(["git", "fetch", *["--unshallow"] * self._is_shallow, *arguments])

    @cached_property
    def _is_shallow(self) -> bool:
        return self._git("rev-parse", "--is-shallow-repository") == b"true\n"


class _Changes:
    """The lines that differ between two contents of a file; all of them if there was no file."""

    def __init__(self, before: bytes | None, after: bytes) -> None:
        self._starts: list[int] = []  # the first lines of a notebook's cells
        self._blocks: list[tuple[int, int]] | None = None
        if before is not None:
            old, _ = _lines(before)
            new, self._starts = _lines(after)
            codes = Differences(old, new).get_opcodes()
            # The ranges of lines that differ, as first and last + 1; both are equal for deleted lines.
            self._blocks = [(start, end) for kind, _, _, start, end in codes if kind != "equal"]

    def touch(self, finding: Finding) -> bool:
        """Return whether a line of a finding is new or changed, or lines between its lines are gone."""
        if self._blocks is None:
            return True
        offset = -1
        if finding.cell is not None:
            if finding.cell > len(self._starts):
                return True
            offset += self._starts[finding.cell - 1]
        first, last = finding.line + offset, finding.end_line + offset
        return any(first < end and start <= last for start, end in self._blocks)


def _lines(data: bytes) -> tuple[list[str], list[int]]:
    """Return the lines of a file; for a notebook those of its cells, and the first line of each cell."""
    text = data.decode("latin-1")
    with suppress(ValueError, TypeError, KeyError, AttributeError):
        if data.lstrip()[:1] == b"{":
            cells = [_source(cell) for cell in json.loads(data)["cells"]]
            starts = [0, *accumulate(map(len, cells))]
            return [line for cell in cells for line in cell], starts[:-1]
    return LINE_END.split(text), []


def _source(cell: Any) -> list[str]:
    source = cell["source"]
    return LINE_END.split(source if isinstance(source, str) else "".join(source))
