"""Time devicefix and other tools on the corpus, and print a table in Markdown.

    python benchmarks/speed.py [DIR] [--runs N] [--only TEXT]...

Every round runs each command once, so that the load of the machine affects all alike; a first round,
which fills the file system's cache, is not counted. The timing is pyperf's. The memory is that of the
largest single process. To add a row, add it to `rows`.
"""

from __future__ import annotations

import argparse
import ast
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
    """One line of the table: a command, which may end with status 0 or 1.

    Attributes:
        name: what is measured.
        command: the words of the command.
        before: a command that is run each time before, and not timed.
        rounds: how many rounds take part in it at most.
    """

    name: str
    command: list[str]
    before: list[str] | None = None
    rounds: int = 1000


def rows(corpus: Path, scratch: Path) -> list[Row]:
    """Return what is measured. The ratios are to the first two rows."""
    python, ruff, folder = sys.executable, executable("ruff"), str(corpus)
    devicefix = executable("devicefix")
    check = [devicefix, "check", "--cache-dir", str(scratch / "devicefix"), folder]
    cold = [devicefix, "check", "--no-cache"]
    plain = [ruff, "check", "--no-cache", "--isolated"]
    some = [str(path) for name in ("fairseq-*", "fastai-*") for path in sorted(corpus.glob(name))]
    copy, tenth, one = scratch / "copy", scratch / "tenth", scratch / "one.py"
    fresh = ["sh", "-c", f"rm -rf '{copy}' && cp -r '{folder}' '{copy}'"]
    sample(corpus, tenth, one)
    of_two = [
        Row("devicefix check, fairseq and fastai", [*cold, *some]),
        Row("ruff check, fairseq and fastai", [*plain, *some]),
        Row("torchfix, fairseq and fastai", [executable("torchfix"), "--select=ALL", *some], rounds=1),
    ]
    return [
        Row("devicefix check", [*cold, folder]),
        Row("ruff check", [*plain, folder]),
        Row("ruff check, only E4, E7, E9, F", [*plain, "--select=E4,E7,E9,F", folder]),
        Row("ast.parse of every file", [python, LIMITS, "parse", folder]),
        Row("reading every file", [python, LIMITS, "read", folder]),
        Row("devicefix check, warm", check),
        Row("ruff check, warm", [ruff, "check", "--isolated", "--cache-dir", str(scratch / "ruff"), folder]),
        Row("devicefix rewrite --in-place", [devicefix, "rewrite", "-q", "--in-place", str(copy)], fresh),
        Row("devicefix check, a tenth of the files", [*cold, str(tenth)]),
        Row("devicefix check, one file of 500 lines", [*cold, str(one)]),
        Row("python -c 'import libcst'", [python, "-c", "import libcst"]),
        Row("devicefix --version", [devicefix, "--version"]),
        Row("python -c 'import click'", [python, "-c", "import click"]),
        *(of_two if some else ()),  # another folder has neither
    ]


def sample(corpus: Path, tenth: Path, one: Path) -> None:
    """Copy every tenth file of the corpus, and 500 lines of one with many ties to CUDA."""
    files = sorted(corpus.rglob("*.py"))
    for path in files[::10]:
        target = tenth / path.relative_to(corpus)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, target)
    enough = (path for path in files if path.read_bytes().count(b"\n") >= 500)
    lines = max(enough, key=lambda path: path.read_bytes().count(b"cuda")).read_text().splitlines(True)
    whole = next(end for end in range(500, 0, -1) if _parses("".join(lines[:end])))
    one.write_text("".join(lines[:whole]) + "\n" * (500 - whole))


def _parses(text: str) -> bool:
    try:
        ast.parse(text)
    except SyntaxError:
        return False
    return True


def executable(name: str) -> str:
    """Find a program in the environment of this Python, or else on the PATH."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    return shutil.which(name, path=path) or name


def measure(row: Row, results: Path) -> None:
    """Run a row's command once and append its time and memory to a file."""
    if row.before:
        subprocess.run(row.before, check=True)
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
    """Return the results, in Markdown."""
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
    """Return the input and the machine, in one line."""
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
    with tempfile.TemporaryDirectory() as name:
        scratch = Path(name)
        chosen = [
            row
            for row in rows(corpus, scratch)
            if not arguments.only or any(text in row.name for text in arguments.only)
        ]
        for number in range(arguments.runs + 1):
            for row in chosen:
                if number <= row.rounds and (number or row.rounds > 1):  # slow ones need no round to warm up
                    measure(row, scratch / ("results.json" if number else "warm-up.json"))
        suite = pyperf.BenchmarkSuite.load(str(scratch / "results.json"))
    limit = [sys.executable, LIMITS, "libcst", str(corpus)]
    print(f"{about(corpus)}; medians of {arguments.runs} rounds\n\n{table(suite)}\n")
    print(subprocess.run(limit, capture_output=True, text=True, cwd=ROOT, check=True).stdout, end="")


if __name__ == "__main__":
    main()
