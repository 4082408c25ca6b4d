"""Compare the time of devicefix with those of `ast.parse` and ruff, and print a table in Markdown.

    python benchmarks/speed.py [DIR ...] [--only NAME]... [--rounds N] [--trees FOLDER]

The trees are the wheels of `speed.toml`, downloaded and unpacked to FOLDER, and every DIR. Of each, the whole
tree and one file are checked. All figures are processor time (user and system), medians of the rounds, with
one process of devicefix and no cache. `ast.parse` reads and parses every .py file of the tree. Every round
runs each command once, so that the load of the machine affects all alike.
"""

from __future__ import annotations

import argparse
import os
import platform
import resource
import shutil
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from statistics import median

from corpus import CACHE, fetch, read_pins

ROOT = Path(__file__).parents[1]
PINS = Path(__file__).with_name("speed.toml")
FILES = {
    "transformers": "transformers/trainer.py",
    "diffusers": "diffusers/pipelines/pipeline_utils.py",
    "trl": "trl/trainer/utils.py",
    "verl": "verl/trainer/ppo/ray_trainer.py",
}  # large files that hold `cuda`
OF_TREE, OF_FILE = 1.5, 0.15  # the goals for a whole tree and for one file, in times of ast.parse
FLOOR = 0.4  # a file may take so many seconds in any case
HEAD = ("Checked", "`ast.parse`", "ruff", "devicefix", "/ `ast.parse`", "/ ruff", "Goal")
PARSE = """
import ast, contextlib, pathlib, sys, warnings
warnings.simplefilter("ignore")
for path in pathlib.Path(sys.argv[1]).rglob("*.py"):
    with contextlib.suppress(SyntaxError, ValueError):
        ast.parse(path.read_bytes())
"""


@dataclass(frozen=True)
class Tree:
    """A folder, and a file of it that is also checked alone."""

    name: str
    folder: Path
    file: Path

    def commands(self) -> list[list[str]]:
        """Return what is timed: ast.parse, then ruff and devicefix on the tree and on the file."""
        ruff = [executable("ruff"), "check", "--isolated", "--no-cache"]
        devicefix = [sys.executable, "-m", "devicefix", "check", "--isolated", "--no-cache", "--jobs=1"]
        both = (str(self.folder), str(self.file))
        return [
            [sys.executable, "-c", PARSE, str(self.folder)],
            *([*tool, path] for path in both for tool in (ruff, devicefix)),
        ]

    def rows(self, parse: float, *times: float) -> list[list[str]]:
        """Return the two lines of the table, from the times of the commands."""
        sizes = [path.stat().st_size for path in self.folder.rglob("*.py")]
        whole = f"{self.name}: {len(sizes):,} files, {sum(sizes) / 1e6:.1f} MB"
        one = f"`{self.file.relative_to(self.folder)}`: {self.file.stat().st_size / 1e6:.2f} MB"
        goals = (parse * OF_TREE, max(parse * OF_FILE, FLOOR))
        return [
            [
                name,
                *(f"{time:.2f} s" for time in (parse, ruff, ours)),
                *(f"{ours / other:.2f}" for other in (parse, ruff)),
                f"{goal:.2f} s: {'met' if ours <= goal else 'missed'}",
            ]
            for name, ruff, ours, goal in zip((whole, one), times[::2], times[1::2], goals, strict=True)
        ]


def pinned(folder: Path, only: list[str]) -> list[Tree]:
    """Download what `folder` lacks, and return the trees of the wheels."""
    packages = [package for package in read_pins(PINS) if not only or package.name in only]
    fetch(folder, packages)
    for each in packages:  # as in a user's repository, one file is checked with the facts of the whole tree
        subprocess.run(["git", "init", "--quiet", folder / each.folder], check=True)
    return [
        Tree(f"{each.name} {each.version}", folder / each.folder, folder / each.folder / FILES[each.name])
        for each in packages
    ]


def other(folder: Path) -> Tree:
    """Return the tree of another folder, with its largest file that holds `cuda`."""
    holding = (path for path in folder.rglob("*.py") if b"cuda" in path.read_bytes())
    return Tree(folder.name, folder, max(holding, key=lambda path: path.stat().st_size))


def executable(name: str) -> str:
    """Find a program in the environment of this Python, or else on the PATH."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    return shutil.which(name, path=path) or name


def seconds(command: list[str]) -> float:
    """Run a command, which may end with status 0 or 1, and return its processor time."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    quiet = subprocess.DEVNULL
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    done = subprocess.run(command, cwd=ROOT, env=environment, stdout=quiet, stderr=quiet, check=False)
    if done.returncode not in (0, 1):
        done.check_returncode()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def table(lines: Iterable[Iterable[str]]) -> str:
    """Return the lines as a table in Markdown."""
    rule = ["---", *["---:"] * (len(HEAD) - 1)]
    return "\n".join(f"| {' | '.join(line)} |" for line in (HEAD, rule, *lines))


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("dirs", nargs="*", type=Path, metavar="DIR", help="one more tree")
    parser.add_argument("--only", action="append", default=[], choices=FILES, help="measure this wheel only")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--trees", type=Path, default=CACHE.with_name("devicefix-speed"), metavar="FOLDER")
    arguments = parser.parse_args()
    trees = pinned(arguments.trees.resolve(), arguments.only)
    trees += [other(folder.resolve()) for folder in arguments.dirs]
    commands = [command for tree in trees for command in tree.commands()]
    seconds(trees[0].commands()[-1])  # compiles devicefix, which is not counted
    times = [[seconds(command) for command in commands] for _ in range(arguments.rounds)]
    medians = [median(each) for each in zip(*times, strict=True)]
    rows = [row for at, tree in enumerate(trees) for row in tree.rows(*medians[at * 5 : at * 5 + 5])]
    about = f"Python {platform.python_version()}, ruff {version('ruff')}, processor time"
    print(f"{about}, rounds: {arguments.rounds}\n")
    print(table(rows))


if __name__ == "__main__":
    main()
