"""A new git branch with a commit for each step of a migration.

The work tree and the index stay as they are.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path

from devicefix.config.settings import ConfigError
from devicefix.files.discover import git_program, outside_hooks, work_tree
from devicefix.files.kinds import environment_of
from devicefix.files.write import Change
from devicefix.migrate.session import Migration
from devicefix.runner.worktree import name_in, uncommitted

_INSTALL = (
    "Make the project installable without CUDA\n\ndevicefix changed or created these files:\n\n{files}\n"
)
_SAFE = "Make the code device-agnostic\n\nSafe fixes that devicefix applied: {count}\n"
_JUSTIFIED = (
    "Make the code run on a CPU\n\ndevicefix applied these unsafe fixes, which the program's runs justify:"
    "\n\n{fixes}\n"
)


def check(root: Path, name: str) -> None:
    """Check that a branch can be made, before the work is done.

    Args:
        root: the folder of the project.
        name: the name of the branch.

    Raises:
        ConfigError: there is no git repository with a commit, or the name is wrong or taken.
    """
    top = work_tree(root)
    if top is None:
        raise ConfigError(f"--branch needs a git repository, but {root} is not in one")
    if not _succeeds(top, "check-ref-format", "--branch", name):
        raise ConfigError(f"--branch: git does not accept {name!r} as a branch name")
    if not _succeeds(top, "rev-parse", "--verify", "HEAD"):
        raise ConfigError("--branch needs a commit to start from; commit your files first")
    if not (_succeeds(top, "var", "GIT_AUTHOR_IDENT") and _succeeds(top, "var", "GIT_COMMITTER_IDENT")):
        raise ConfigError("--branch: git does not know who you are; set user.name and user.email")
    if _succeeds(top, "show-ref", "--verify", "--quiet", f"refs/heads/{name}"):
        raise ConfigError(f"--branch: the branch {name} already exists; delete it, or choose another name")


def check_committed(changes: Iterable[Change]) -> None:
    """Check that the files to change have no changes of their own.

    Args:
        changes: the files, with their contents.

    Raises:
        ConfigError: a file has changes that are not committed.
    """
    inside, outside = uncommitted(changes)
    if unsaved := inside + outside:
        raise ConfigError(f"--branch: {unsaved[0]} has uncommitted changes; commit them first")


def make(done: Migration, name: str) -> None:
    """Make the branch: one commit with the safe fixes, and one with those that runs justify.

    Raises:
        ConfigError: a file has changes that are not committed, or git fails.
    """
    top = work_tree(done.look.root)
    assert top is not None  # see `check`
    check_committed(done.changes)
    commit = head = _git(top, "rev-parse", "HEAD")
    changed = {each.path: each.result.output for each in done.safe if each.result.output is not None}
    contents = {path: output for path, output in changed.items() if environment_of(path) is not None}
    safe = {path: output for path, output in changed.items() if path not in contents}
    contents |= {variant.path: variant.content for variant in done.new}
    if contents:
        files = "\n".join(f"- {os.fsdecode(name_in(str(top), path))}" for path in sorted(contents))
        commit = _commit(top, commit, contents, _INSTALL.format(files=files))
    if safe:
        fixes = sum(len(outcome.result.fixed) for outcome in done.safe if outcome.path in safe)
        commit = _commit(top, commit, safe, _SAFE.format(count=fixes))
    later = {path: after for path, before, after in done.changes if before is not None}
    later = {path: after for path, after in later.items() if changed.get(path) != after}
    if later:
        named = ((os.fsdecode(name_in(str(top), kept.path)), kept) for kept in done.kept)
        lines = (f"- {name}:{k.finding.line} {k.finding.code}: {k.evidence}" for name, k in named)
        commit = _commit(top, commit, later, _JUSTIFIED.format(fixes="\n".join(lines)))
    _git(top, "update-ref", f"refs/heads/{name}", commit, "0" * len(head))


def _commit(top: Path, parent: str, contents: Mapping[str, bytes], message: str) -> str:
    """Commit new contents of files on top of a commit, and return the new one."""
    with tempfile.TemporaryDirectory(prefix="devicefix-") as folder:
        index = {"GIT_INDEX_FILE": os.path.join(folder, "index")}
        _git(top, "read-tree", parent, environment=index)
        modes = _modes(top, parent)
        for path, content in contents.items():
            name = os.fsdecode(name_in(str(top), path))
            blob = _git(top, "hash-object", "-w", "--no-filters", "--stdin", data=content)
            entry = f"{modes.get(name, '100644')},{blob},{name}"
            _git(top, "update-index", "--add", "--cacheinfo", entry, environment=index)
        tree = _git(top, "write-tree", environment=index)
        return _git(top, "commit-tree", tree, "-p", parent, data=message.encode())


def _modes(top: Path, commit: str) -> dict[str, str]:
    listed = _git(top, "ls-tree", "-r", "-z", commit)
    entries = (entry.partition("\t") for entry in listed.split("\0") if entry)
    return {name: about.split()[0] for about, _, name in entries}


def _succeeds(top: Path, *arguments: str) -> bool:
    try:
        _git(top, *arguments)
    except ConfigError:
        return False
    return True


# The repository may name programs for git to run: hooks, a monitor, one that signs.
_NO_PROGRAMS = (
    "-c", f"core.hooksPath={os.devnull}", "-c", "core.fsmonitor=false", "-c", "commit.gpgSign=false",
)  # fmt: skip


def _git(top: Path, *arguments: str, data: bytes | None = None, environment: Mapping[str, str] = {}) -> str:
    """Run git, which runs no program of the repository, and return its output.

    Raises:
        ConfigError: git is not installed, or fails.
    """
    program = git_program()
    if program is None:
        raise ConfigError("--branch needs git, which is not installed")
    done = subprocess.run(
        [program, *_NO_PROGRAMS, "-C", str(top), *arguments],
        input=data,
        stdin=subprocess.DEVNULL if data is None else None,
        capture_output=True,
        env={**outside_hooks(), **environment},
        check=False,
    )
    if done.returncode:
        raise ConfigError(f"git {arguments[0]} failed: {done.stderr.decode(errors='replace').strip()}")
    return os.fsdecode(done.stdout).rstrip("\n")
