"""Plant faults in devicefix, one at a time, and print which of them the fast tests miss.

    python benchmarks/mutants.py [--seed N] [--count N] [--jobs N] [--seconds N] [--tests ARGUMENT ...]

A fault (a mutant) is a small change of the code in one of the rooms facts, devices, rewrite and engine: a
negated `if`, an `or` for an `and`, another bool that is returned, `all` for `any`, `!=` for `==`, a dropped
`not`, a number that is larger by one, or a string that a tuple or set lacks. All else in the file keeps its
bytes. The tests run in a copy of the checkout: without a fault, with a package that can't be imported, which
they must notice, and with each fault until the first test fails. A fault that makes them hang is caught. What
is missed needs a test, unless the fault changes nothing that anyone can see.
"""

from __future__ import annotations

import argparse
import ast
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from bisect import bisect
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.util import cache_from_source
from itertools import islice, pairwise
from pathlib import Path
from queue import SimpleQueue
from random import Random
from textwrap import shorten

ROOT = Path(__file__).parents[1]
ROOMS = ("facts", "devices", "rewrite", "engine")
TESTS = (
    "test_rules", "test_facts_*", "test_devices*", "test_rewrite*", "test_engine", "test_across_files",
    "test_review_misses", "test_copies*", "test_precision", "test_refusals", "test_statement_fixes",
)  # fmt: skip
OTHERS = {"any": "all", "all": "any", "and": "or", "==": "!="}
COMMENT = re.compile(rb"#[^\n]*")


@dataclass(frozen=True)
class Mutant:
    """A change of one file.

    Attributes:
        file: the file, in the checkout.
        line: the line of the change.
        column: where in that line it starts.
        start: where the replaced bytes start.
        old: what they are.
        new: what replaces them.
    """

    file: Path
    line: int
    column: int
    start: int
    old: bytes
    new: bytes

    @property
    def room(self) -> str:
        """The folder of the package that the file is in."""
        return self.file.parts[1]

    def planted(self, source: bytes) -> bytes:
        """Return the file with the change."""
        return source[: self.start] + self.new + source[self.start + len(self.old) :]

    def __str__(self) -> str:
        old, new = (shorten(each.decode(), 60, placeholder="...") for each in (self.old, self.new))
        return f"{self.file.as_posix()}:{self.line}:{self.column}: `{old}` -> `{new}`"


class Planter:
    """Finds the mutants of one file."""

    def __init__(self, file: Path, source: bytes) -> None:
        """Parse the file."""
        self.file, self.source, self.tree = file, source, ast.parse(source)
        self.lines = [0]  # where each line starts
        for line in source.splitlines(keepends=True):
            self.lines.append(self.lines[-1] + len(line))

    def mutants(self) -> Iterator[Mutant]:
        """Yield the mutants."""
        for node in visible(self.tree):
            for start, end, new in (*self.of_conditions(node), *self.of_values(node)):
                line = bisect(self.lines, start)
                column = start - self.lines[line - 1] + 1
                yield Mutant(self.file, line, column, start, self.source[start:end], new)

    def of_conditions(self, node: ast.AST) -> Iterator[tuple[int, int, bytes]]:
        """Yield what may change in a condition: the start, the end, and the new bytes between them."""
        match node:
            case ast.If(test=test) | ast.IfExp(test=test) | ast.comprehension(ifs=[test]):
                if not isinstance(test, ast.UnaryOp):  # its `not` may be dropped
                    start, end = self.span(test)
                    yield start, end, b"not (" + self.source[start:end] + b")"
            case ast.BoolOp(op=ast.And(), values=values):
                yield from (self.between(left, right, "and") for left, right in pairwise(values))
            case ast.Compare(left=left, ops=[ast.Eq()], comparators=[right]):
                yield self.between(left, right, "==")
            case ast.UnaryOp(op=ast.Not()):
                start, end = self.span(node)
                yield start, end, self.source[start:end].removeprefix(b"not").lstrip()
            case ast.Call(func=ast.Name(id="any" | "all" as name) as function):
                yield *self.span(function), OTHERS[name].encode()

    def of_values(self, node: ast.AST) -> Iterator[tuple[int, int, bytes]]:
        """Yield what may change in a constant, in the same way."""
        match node:
            case ast.Return(value=ast.Constant(value=bool(value)) as constant):
                yield *self.span(constant), str(not value).encode()
            case ast.Constant(value=int(number)) if not isinstance(number, bool):
                yield *self.span(node), str(number + 1).encode()
            case ast.Tuple(elts=elements) | ast.Set(elts=elements) if all(map(is_string, elements)):
                spans = [self.span(element) for element in elements]
                if len(spans) > (2 if isinstance(node, ast.Tuple) else 1):  # a tuple of one needs its comma
                    yield from ((one[0], two[0], b"") for one, two in pairwise(spans))
                    yield spans[-2][1], spans[-1][1], b""

    def span(self, node: ast.AST) -> tuple[int, int]:
        """Return where a node starts and ends, in bytes."""
        assert isinstance(node, ast.expr) and node.end_lineno and node.end_col_offset is not None
        return (
            self.lines[node.lineno - 1] + node.col_offset,
            self.lines[node.end_lineno - 1] + node.end_col_offset,
        )

    def between(self, left: ast.expr, right: ast.expr, operator: str) -> tuple[int, int, bytes]:
        """Return the change of the operator between two expressions."""
        start, end = self.span(left)[1], self.span(right)[0]
        gap = COMMENT.sub(lambda comment: b" " * len(comment[0]), self.source[start:end])
        at = start + gap.index(operator.encode())
        return at, at + len(operator), OTHERS[operator].encode()


def visible(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes below a node, but no annotations and types, which do nothing, and no f-strings."""
    for name, value in ast.iter_fields(node):
        for child in value if isinstance(value, list) else [value]:
            if not isinstance(child, ast.AST) or name in ("annotation", "returns"):
                continue
            match child:
                case ast.JoinedStr() | ast.Subscript(value=ast.Name(id="Literal")):
                    pass  # before Python 3.12, what is in an f-string has other positions
                case ast.If(test=ast.Name(id="TYPE_CHECKING")):
                    pass
                case _:
                    yield child
                    yield from visible(child)


def is_string(node: ast.expr) -> bool:
    """Return whether a node is a string."""
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def parses(source: bytes) -> bool:
    """Return whether a file parses."""
    try:
        ast.parse(source)
    except SyntaxError:
        return False
    return True


def choose(root: Path, count: int, seed: int) -> list[Mutant]:
    """Return some mutants of the rooms that parse, always the same for a seed."""
    files = sorted(path for room in ROOMS for path in (root / "devicefix" / room).rglob("*.py"))
    sources = {path.relative_to(root): path.read_bytes() for path in files}
    mutants = [mutant for file, source in sources.items() for mutant in Planter(file, source).mutants()]
    Random(seed).shuffle(mutants)
    return list(islice((each for each in mutants if parses(each.planted(sources[each.file]))), count))


def copied(to: Path) -> Path:
    """Copy the files of the checkout that git knows or does not ignore to a new folder."""
    listing = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    for name in set(subprocess.check_output(listing, cwd=ROOT, text=True).split("\0")):
        if (ROOT / name).is_file():
            (to / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, to / name)
    return to


def passes(copy: Path, tests: list[str], seconds: float | None = None) -> bool:
    """Return whether the tests pass in a copy, within some seconds."""
    process = subprocess.Popen(
        [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *tests],
        cwd=copy,
        env={**os.environ, "PYTHONPATH": str(copy)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        return process.wait(seconds) == 0
    except subprocess.TimeoutExpired:
        return False
    finally:
        with suppress(ProcessLookupError):  # none is left
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@contextmanager
def changed(path: Path, change: Callable[[bytes], bytes]) -> Iterator[None]:
    """Change a file of a copy for a while."""
    before = path.read_bytes()
    compiled = Path(cache_from_source(str(path)))  # looks up to date if the size and the second are the same
    try:
        path.write_bytes(change(before))
        compiled.unlink(missing_ok=True)
        yield
    finally:
        path.write_bytes(before)
        compiled.unlink(missing_ok=True)


def check(copy: Path, tests: list[str]) -> None:
    """Exit unless the tests pass in a copy, and import the package that is there."""
    if not passes(copy, tests):
        sys.exit(f"the tests fail without a fault: {' '.join(tests)}")
    with changed(copy / "devicefix/__init__.py", lambda _: b"raise ImportError"):
        if passes(copy, tests):
            sys.exit("the tests do not import the copy")


def survives(mutant: Mutant, copies: SimpleQueue[Path], tests: list[str], seconds: float) -> bool:
    """Return whether the tests pass with a mutant, in the first copy that is free."""
    copy = copies.get()
    try:
        with changed(copy / mutant.file, mutant.planted):
            missed = passes(copy, tests, seconds)
    finally:
        copies.put(copy)
    print("missed" if missed else "caught", mutant, file=sys.stderr, flush=True)
    return missed


def main() -> None:
    """Plant mutants and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--seed", type=int, default=1, help="chooses the mutants")
    parser.add_argument("--count", type=int, default=40, help="how many")
    parser.add_argument("--jobs", type=int, default=1, help="how many are tested at a time")
    parser.add_argument("--seconds", type=float, default=300, help="how long the tests may take")
    parser.add_argument("--tests", nargs="+", help="arguments of pytest (default: the tests of these rooms)")
    given = parser.parse_args()
    files = sorted(path for name in TESTS for path in (ROOT / "tests").rglob(f"{name}.py"))
    tests = given.tests or [str(path.relative_to(ROOT)) for path in files]
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(given.jobs) as pool:
        paths = [copied(Path(folder) / str(number)) for number in range(given.jobs)]
        chosen = choose(paths[0], given.count, given.seed)
        check(paths[0], tests)
        copies: SimpleQueue[Path] = SimpleQueue()
        for path in paths:
            copies.put(path)
        alive = list(pool.map(lambda mutant: survives(mutant, copies, tests, given.seconds), chosen))
    missed = [mutant for mutant, survived in zip(chosen, alive, strict=True) if survived]
    of_all, of_missed = (Counter(mutant.room for mutant in each) for each in (chosen, missed))
    print("| Room | Mutants | Caught | Missed |\n| --- | ---: | ---: | ---: |")
    for room in ROOMS:
        print(f"| `{room}` | {of_all[room]} | {of_all[room] - of_missed[room]} | {of_missed[room]} |")
    print(f"| all | {len(chosen)} | {len(chosen) - len(missed)} | {len(missed)} |\n")
    for mutant in sorted(missed, key=lambda mutant: (mutant.file, mutant.start)):
        print(f"- {mutant}")


if __name__ == "__main__":
    main()
