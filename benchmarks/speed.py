"""Time devicefix beside other tools on the corpus, and print a table in Markdown.

    python benchmarks/speed.py [DIR] [--runs N] [--only TEXT]...

Every round runs each command once, so that what else the machine does meets all alike; a first round,
which fills the file system's cache, is not counted. The timing is pyperf's. The memory is that of the
largest single process. To add a row, add it to `rows`.
"""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import pyperf
from corpus import CACHE

ROOT = Path(__file__).parents[1]
LIMITS = str(Path(__file__).with_name("limits.py"))


@dataclass(frozen=True)
class Row:
    """One line of the table: a command, which may end with status 0 or 1."""

    name: str
    command: list[str]


def rows(corpus: Path) -> list[Row]:
    """What is measured. The ratios are against the first two."""
    python, ruff, folder = sys.executable, executable("ruff"), str(corpus)
    plain = [ruff, "check", "--no-cache", "--isolated"]
    some = [str(path) for name in ("fairseq-*", "fastai-*") for path in sorted(corpus.glob(name))]
    return [
        Row("devicefix check", [python, "-m", "devicefix", "check", folder]),
        Row("ruff check", [*plain, folder]),
        Row("ruff check, only E4, E7, E9, F", [*plain, "--select=E4,E7,E9,F", folder]),
        Row("devicefix rewrite", [python, "-m", "devicefix", "rewrite", folder]),
        Row("ast.parse of every file", [python, LIMITS, "parse", folder]),
        Row("reading every file", [python, LIMITS, "read", folder]),
        Row("devicefix check, fairseq and fastai", [python, "-m", "devicefix", "check", *some]),
        Row("torchfix, fairseq and fastai", [executable("torchfix"), "--select=ALL", *some]),
    ]


def executable(name: str) -> str:
    """A program of this Python's environment, or else of the PATH."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    return shutil.which(name, path=path) or name


def measure(row: Row, results: Path) -> None:
    """Run a row's command once and append its time and memory to a file."""
    once = ["--quiet", "--processes=1", "--values=1", "--loops=1", "--warmups=0"]
    pyperf_command = [
        sys.executable,
        "-m",
        "pyperf",
        "command",
        *once,
        f"--append={results}",
        f"--name={row.name}",
    ]
    checked = ["sh", "-c", '"$@" >/dev/null; test $? -le 1', "sh", *row.command]
    subprocess.run([*pyperf_command, "--", *checked], check=True, cwd=ROOT, stdout=subprocess.DEVNULL)


def table(suite: pyperf.BenchmarkSuite) -> str:
    """The results, in Markdown."""
    benchmarks = suite.get_benchmarks()
    base = benchmarks[:2]
    heads = ["", "median", "range", *(f"/ {each.get_name()}" for each in base), "memory"]
    lines = [heads, ["---", *["---:"] * (len(heads) - 1)]]
    for each in benchmarks:
        values = each.get_values()
        memory = max(run.get_metadata().get("command_max_rss", 0) for run in each.get_runs())
        ratios = [f"{each.median() / other.median():.2f}" for other in base]
        times = [f"{each.median():.2f} s", f"{min(values):.2f}-{max(values):.2f} s"]
        lines.append([each.get_name(), *times, *ratios, f"{memory / 1e6:.0f} MB"])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def about(corpus: Path) -> str:
    """The input and the machine, in one line."""
    sizes = [path.stat().st_size for path in corpus.rglob("*.py")]
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    tools = ", ".join(f"{name} {version(name)}" for name in ("ruff", "torchfix", "libcst"))
    python = f"Python {platform.python_version()}"
    return f"{len(sizes)} files, {sum(sizes) / 1e6:.1f} MB; {cores} cores, {python}, {tools}"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument(
        "dir", nargs="?", type=Path, default=CACHE, help="the corpus (default: in the user's cache)"
    )
    parser.add_argument("--runs", type=int, default=5, help="rounds that count")
    parser.add_argument("--only", action="append", default=[], help="rows whose name holds this text")
    arguments = parser.parse_args()
    corpus = arguments.dir.resolve()
    chosen = [
        row for row in rows(corpus) if not arguments.only or any(text in row.name for text in arguments.only)
    ]
    with tempfile.TemporaryDirectory() as folder:
        for number in range(arguments.runs + 1):
            for row in chosen:
                measure(row, Path(folder, "results.json" if number else "warm-up.json"))
        suite = pyperf.BenchmarkSuite.load(str(Path(folder, "results.json")))
    print(f"{about(corpus)}; medians of {arguments.runs} rounds\n\n{table(suite)}")


if __name__ == "__main__":
    main()
