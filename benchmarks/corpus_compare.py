"""Compare the findings and rewrites of two versions of devicefix over folders of packages.

Each package is checked and rewritten as one project, by `python -m devicefix` in a new process, so that
any two revisions can be compared, however much their modules differ.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path

ROOT = Path(__file__).parents[1]
FILE_HEADER = re.compile(r"^diff --git .*\n(?:--- .*\n)?\+\+\+ b/(?P<path>.*)\n", re.MULTILINE)
HUNK_HEADER = re.compile(r"^@@ .*$", re.MULTILINE)

Location = tuple[str, int, int, str]  # path, line, column, code
Hunks = Counter[str]


@dataclass(frozen=True)
class Version:
    """One version of devicefix to run.

    Attributes:
        tree: the folder that holds the package `devicefix`.
        options: options for both `devicefix check` and `devicefix rewrite`.
        rewrite_options: more options for `devicefix rewrite`.
        environment: environment variables to set.
        program: the arguments of Python that start devicefix.
    """

    tree: Path
    options: tuple[str, ...] = ()
    rewrite_options: tuple[str, ...] = ()
    environment: tuple[tuple[str, str], ...] = ()
    program: tuple[str, str] = ("-m", "devicefix")

    def run(self, command: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run a command of devicefix from an empty folder: nothing there can shadow a module.

        Args:
            command: `check` or `rewrite`.
            arguments: its options and paths.

        Returns:
            The finished process, with its output.
        """
        own = {"PYTHONPATH": str(self.tree), "PYTHONDONTWRITEBYTECODE": "1", "PYTHONHASHSEED": "0"}
        common = ("--no-cache", "--exit-zero", "--quiet", *self.options)
        with tempfile.TemporaryDirectory() as folder:
            return subprocess.run(
                [sys.executable, *self.program, command, *common, *arguments],
                cwd=folder,
                env={**os.environ, **own, **dict(self.environment)},
                capture_output=True,
                encoding="utf-8",
                errors="surrogateescape",
                check=False,
            )


@dataclass(frozen=True, order=True)
class Reported:
    """The part of a finding that is compared, besides its location."""

    end: tuple[int, int]
    safety: str
    message: str = ""

    def __str__(self) -> str:
        """Return the parts in one line."""
        line, column = self.end
        return f"to {line}:{column}, fix: {self.safety}" + (f", {self.message}" if self.message else "")


@dataclass
class Snapshot:
    """The output of one version of devicefix for one package."""

    findings: dict[Location, list[Reported]] = field(default_factory=dict)
    rewrites: dict[str, Hunks] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)


@dataclass
class Difference:
    """The difference between two snapshots, as counts and as lines to print."""

    added: int = 0
    removed: int = 0
    changed: int = 0
    rewrites: int = 0
    problems: int = 0
    lines: list[str] = field(default_factory=list)

    def __bool__(self) -> bool:
        """Return whether anything differs."""
        return any((self.added, self.removed, self.changed, self.rewrites, self.problems))

    def __str__(self) -> str:
        """Return the counts in one line."""
        counts = f"findings: +{self.added} -{self.removed} ~{self.changed}, rewritten files: {self.rewrites}"
        return counts + (f", problems: {self.problems}" if self.problems else "")

    def add(self, other: Difference) -> None:
        """Add the counts of another difference."""
        self.added += other.added
        self.removed += other.removed
        self.changed += other.changed
        self.rewrites += other.rewrites
        self.problems += other.problems


def compare(old: Version, new: Version, folders: Iterable[Path], *, messages: bool = False) -> int:
    """Print what differs between two versions, by package.

    Args:
        old: the version to compare with.
        new: the version under test.
        folders: folders of packages.
        messages: whether to compare the messages too.

    Returns:
        The exit status: 0 if nothing differs, 1 if something does, 2 if there was nothing to compare.
    """
    total, packages, findings, rewrites = Difference(), 0, 0, 0
    for package in (package for folder in folders for package in packages_of(folder)):
        before, after = snapshot(old, package, messages=messages), snapshot(new, package, messages=messages)
        found = difference(before, after)
        total.add(found)
        packages += 1
        findings += sum(map(len, before.findings.values()))
        rewrites += len(before.rewrites)
        if found:
            print(f"{package.name}: {found}", *found.lines, sep="\n  ", flush=True)
    if not packages:
        print("no packages to compare: run `corpus.py fetch`, or name a folder of packages", file=sys.stderr)
        return 2
    print(f"{packages} packages, {findings} findings, {rewrites} rewritten files; differences: {total}")
    return 1 if total else 0


def packages_of(folder: Path) -> list[Path]:
    """Return the packages in a folder: its subfolders, or itself if it has Python files directly in it."""
    if not folder.is_dir():
        return []
    if any(folder.glob("*.py")):
        return [folder]
    return sorted(path for path in folder.iterdir() if path.is_dir() and not path.name.startswith("."))


@contextmanager
def checkout(revision: str) -> Iterator[Path]:
    """Check out a revision of this repository into a temporary git worktree.

    Args:
        revision: a commit, branch or tag.

    Yields:
        The folder of the worktree.

    Raises:
        subprocess.CalledProcessError: git does not know the revision.
    """
    git = ("git", "-C", str(ROOT), "worktree")
    with tempfile.TemporaryDirectory(prefix="devicefix-") as name:
        folder = Path(name).resolve() / "base"
        subprocess.run([*git, "add", "--quiet", "--detach", str(folder), revision], check=True)
        try:
            yield folder
        finally:
            subprocess.run([*git, "remove", "--force", str(folder)], check=True)


def snapshot(version: Version, package: Path, *, messages: bool) -> Snapshot:
    """Check and rewrite one package with one version of devicefix."""
    package = package.resolve()
    checked = version.run("check", "--output-format=json", str(package))
    rewritten = version.run("rewrite", *version.rewrite_options, str(package))
    result = Snapshot(rewrites=hunks_by_file(rewritten.stdout))
    for done in (checked, rewritten):
        if done.returncode:
            last = (done.stderr.strip().splitlines() or ["no output"])[-1]
            result.problems.append(f"`{done.args[3]}` exits with {done.returncode}: {last}")
        elif messages:
            result.problems += done.stderr.splitlines()
    if not checked.returncode:
        result.findings = findings_by_location(json.loads(checked.stdout), package, messages=messages)
    return result


def findings_by_location(
    entries: list[dict[str, object]], package: Path, *, messages: bool
) -> dict[Location, list[Reported]]:
    """Group the findings of the JSON output by where they are and by code."""
    grouped: dict[Location, list[Reported]] = defaultdict(list)
    for entry in entries:
        path = os.path.relpath(str(entry["filename"]), package)
        cell = f" cell {entry['cell']}" if entry.get("cell") is not None else ""
        line, column = position(entry["location"])
        fix = entry["fix"]
        safety = str(fix["applicability"]) if isinstance(fix, dict) else "none"
        reported = Reported(
            position(entry["end_location"]), safety, str(entry["message"]) if messages else ""
        )
        grouped[path + cell, line, column, str(entry["code"])].append(reported)
    return {location: sorted(found) for location, found in grouped.items()}


def position(location: object) -> tuple[int, int]:
    """Return line and column of a location in the JSON output."""
    assert isinstance(location, dict)
    return location["row"], location["column"]


def hunks_by_file(patch: str) -> dict[str, Hunks]:
    """Split a patch into its hunks, by file; line numbers are left out of their headers."""
    headers = list(FILE_HEADER.finditer(patch))
    ends = [*(header.start() for header in headers), len(patch)][1:]
    return {
        header["path"].strip('"'): Counter(HUNK_HEADER.split(patch[header.end() : end])[1:])
        for header, end in zip(headers, ends, strict=False)
    }


def difference(old: Snapshot, new: Snapshot) -> Difference:
    """Compare two snapshots of one package."""
    found = Difference()
    for location in sorted(old.findings.keys() | new.findings.keys()):
        path, line, column, code = location
        place = f"{path}:{line}:{column} {code}"
        before, after = old.findings.get(location, []), new.findings.get(location, [])
        for one, other in zip_longest(*without_common(before, after)):
            if one is None:
                found.added += 1
                found.lines.append(f"+ {place} ({other})")
            elif other is None:
                found.removed += 1
                found.lines.append(f"- {place} ({one})")
            else:
                found.changed += 1
                found.lines.append(f"~ {place} ({one} -> {other})")
    for path in sorted(old.rewrites.keys() | new.rewrites.keys()):
        before_hunks, after_hunks = old.rewrites.get(path, Hunks()), new.rewrites.get(path, Hunks())
        if before_hunks != after_hunks:
            found.rewrites += 1
            found.lines.append(f"rewrite of {path}")
            found.lines += marked("-", before_hunks - after_hunks)
            found.lines += marked("+", after_hunks - before_hunks)
    lost, gained = (
        Counter(old.problems) - Counter(new.problems),
        Counter(new.problems) - Counter(old.problems),
    )
    found.problems = lost.total() + gained.total()
    found.lines += [f"- {problem}" for problem in lost.elements()]
    found.lines += [f"+ {problem}" for problem in gained.elements()]
    return found


def without_common(old: list[Reported], new: list[Reported]) -> tuple[list[Reported], list[Reported]]:
    """Leave out what both lists hold."""
    return sorted((Counter(old) - Counter(new)).elements()), sorted((Counter(new) - Counter(old)).elements())


def marked(sign: str, hunks: Hunks) -> Iterator[str]:
    """Return the lines of hunks, with the sign of the side that they are from."""
    for hunk in hunks.elements():
        yield f"  {sign} @@"
        yield from (f"  {sign} {line}" for line in hunk.strip("\n").splitlines())
