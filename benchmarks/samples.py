"""The steps that precision.py and recall.py share: run over the corpus, draw a sample, write it, read it.

An entry is one place in the corpus that a person can judge. Its id names the package with its version, the
file and the line, so a verdict on a pinned package stays with its place. A work sheet is TOML: comments
show the entry, and below them is a line to fill in. It holds source lines of the packages, so it is kept
outside of the repository. Only the filled lines, which begin with a quotation mark, are kept as data, in
`verdicts-*.toml` next to this file.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import random
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import chain
from math import sqrt
from pathlib import Path
from typing import TypeAlias

import corpus

sys.path.insert(0, str(Path(__file__).parents[1]))  # this checkout's devicefix, installed or not

import corpus_report

from devicefix.facts.project import Project

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

AROUND = 4  # lines that a work sheet shows before and after


@dataclass(frozen=True, order=True)
class Entry:
    """A place to judge. `shown` is the description that a work sheet has besides the source lines."""

    id: str
    path: str
    line: int
    end_line: int
    kind: str
    shown: str = ""

    @property
    def seen(self) -> str:
        """A mark that changes when what was judged changes."""
        return hashlib.sha256(self.shown.encode()).hexdigest()[:8]


@dataclass(frozen=True)
class Verdict:
    """The verdict of a person. `mended` says what was changed in devicefix because of it."""

    verdict: str
    seen: str = ""
    note: str = ""
    mended: str = ""


Work = Callable[["Project", Path, bytes], list[Entry]]


def entries(root: Path, work: Work, jobs: int) -> list[Entry]:
    """Apply `work` to every file of every package in `root`; return the entries sorted, with unique ids."""
    packages = sorted(path for path in root.iterdir() if path.is_dir() and not path.name.startswith("."))
    found: list[Entry] = []
    with ProcessPoolExecutor(jobs) as pool:
        for package in packages:
            found_files = sorted(package.rglob("*.py"))
            files = [path for path in found_files if path.is_file() and not path.is_symlink()]
            project = corpus_report.facts([(str(path), None) for path in files])
            one = partial(_in_file, work, project)
            found += chain.from_iterable(pool.map(one, files, chunksize=corpus_report.CHUNK))
    return distinct(sorted(found))


def _in_file(work: Work, project: bytes, path: Path) -> list[Entry]:
    return work(corpus_report.unpickled(project), path, path.read_bytes())


def distinct(found: Iterable[Entry]) -> list[Entry]:
    """Return the entries with unique ids: the second with an id becomes `id#2`."""
    seen: dict[str, int] = {}
    result = []
    for entry in found:
        number = seen[entry.id] = seen.get(entry.id, 0) + 1
        name = entry.id if number == 1 else f"{entry.id}#{number}"
        result.append(Entry(name, entry.path, entry.line, entry.end_line, entry.kind, entry.shown))
    return result


def place(path: Path, root: Path) -> str:
    """Return `package-version:file`, the beginning of an id."""
    package, *parts = path.relative_to(root).parts
    return f"{package}:{'/'.join(parts)}"


def draw(population: Iterable[Entry], size: int, seed: int) -> list[Entry]:
    """Draw a random sample, which depends on population, size and seed only, sorted by id."""
    ordered = sorted(population)
    return sorted(random.Random(seed).sample(ordered, min(size, len(ordered))))


# --- work sheets ---


def sheet(chosen: Sequence[Entry], known: dict[str, Verdict], allowed: Sequence[str]) -> Iterator[str]:
    """Yield the lines of a work sheet. Known verdicts on unchanged entries are filled in."""
    yield f"# verdict: {' | '.join(allowed)}. Keep the lines that begin with a quotation mark, no others."
    for number, entry in enumerate(chosen, 1):
        yield f"\n# ===== {number}/{len(chosen)}  {entry.path}:{entry.line}  {entry.kind}"
        yield from commented(entry.shown)
        yield from commented(excerpt(entry))
        old = known.get(entry.id)
        known_still = old if old and old.seen in ("", entry.seen) else Verdict("")
        fields = (
            f'verdict = "{known_still.verdict}", seen = "{entry.seen}", note = {quoted(known_still.note)}'
        )
        yield f"{quoted(entry.id)} = {{ {fields} }}"


def commented(text: str) -> Iterator[str]:
    """Yield each line as a comment."""
    return (f"# {line}".rstrip() for line in text.splitlines())


def excerpt(entry: Entry) -> str:
    """Return the source lines of an entry and around it, those of the entry marked."""
    lines = Path(entry.path).read_bytes().decode("utf-8", "replace").splitlines()
    first, last = max(1, entry.line - AROUND), min(len(lines), entry.end_line + AROUND)
    return "\n".join(
        f"{'>' if entry.line <= number <= entry.end_line else ' '}{number:>5} {lines[number - 1]}"
        for number in range(first, last + 1)
    )


def quoted(text: str) -> str:
    """Return a basic string of TOML."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", " ") + '"'


# --- verdicts ---


def read_verdicts(path: Path, allowed: Sequence[str]) -> dict[str, Verdict]:
    """Read the verdicts of a file, by id.

    Raises:
        OSError: the file can't be read. A wrong path is no file without verdicts: a sample would repeat what
            was judged before.
        ValueError: a verdict is none of those that are allowed.
    """
    verdicts = {name: Verdict(**value) for name, value in tomllib.loads(path.read_text("utf-8")).items()}
    for name, verdict in verdicts.items():
        if verdict.verdict not in allowed:
            raise ValueError(f"{path.name}: {name}: {verdict.verdict!r} is none of {', '.join(allowed)}")
    return verdicts


def interval(hits: int, trials: int) -> tuple[float, float]:
    """Return Wilson's 95 % interval for a share."""
    if not trials:
        return 0.0, 1.0
    z, share = 1.96, hits / trials
    middle = share + z * z / (2 * trials)
    spread = z * sqrt(share * (1 - share) / trials + z * z / (4 * trials * trials))
    scale = 1 + z * z / trials
    return max(0.0, (middle - spread) / scale), min(1.0, (middle + spread) / scale)


# --- command line ---


def parser(
    description: str | None, verdicts: Path
) -> tuple[argparse.ArgumentParser, argparse.ArgumentParser]:
    """Return a parser for commands, and one with what all of them take.

    Args:
        description: what the program does.
        verdicts: the file that keeps its verdicts unless another one is named.
    """
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("dir", nargs="?", type=Path, default=corpus.CACHE, help="the corpus")
    common.add_argument("--verdicts", type=Path, default=verdicts, help="the file of verdicts")
    common.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes")
    raw = argparse.RawTextHelpFormatter
    return argparse.ArgumentParser(description=description, formatter_class=raw), common


Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"


def add_sample(commands: Commands, common: argparse.ArgumentParser) -> None:
    """Run the command `sample`."""
    sample = commands.add_parser("sample", parents=[common], help="draw a sample and write a work sheet")
    sample.add_argument("--size", type=int, default=200, help="entries to draw")
    sample.add_argument("--seed", type=int, default=1, help="of the random numbers")
    sample.add_argument("--unread", action="store_true", help="draw only from what has no verdict yet")
    sample.add_argument("--sheet", type=Path, help="a file outside of the repository (default: stdout)")


def write_sheet(
    arguments: argparse.Namespace, population: list[Entry], kept: Path, allowed: Sequence[str]
) -> None:
    """Do what `sample` was asked for."""
    known = read_verdicts(kept, allowed)
    if arguments.unread:
        population = [entry for entry in population if entry.id not in known]
    chosen = draw(population, arguments.size, arguments.seed)
    text = "\n".join(sheet(chosen, known, allowed)) + "\n"
    if arguments.sheet:
        arguments.sheet.write_text(text, "utf-8")
        print(f"{len(chosen)} of {len(population)} written to {arguments.sheet}")
    else:
        print(text, end="")
