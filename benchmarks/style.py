"""Measure how the rewrites of repositories read: long lines, and conditions inside expressions.

    python benchmarks/style.py DIR [DIR ...] [--list] [--jobs N]

Each folder in a DIR is a repository, and is rewritten as one project, in memory. Counted are

- *new lines*: the lines that a rewritten module has and the old one has not;
- *long*: those of them with more than 110 columns, in place of lines that had no more;
- *sites*: the places that a safe fix changed;
- *inline*: the sites whose new text holds a conditional expression that asks for CUDA. The definition of
  a device, `device = torch.device("cuda" if torch.cuda.is_available() else "cpu")`, is not inline: one a
  variable and scope.

The table has the inline conditions by kind: where a value moves, `map_location=`, the default of a parameter,
the default of an option of the command line, and what only distributed programs have, such as the backend,
also where it is the value of a variable.
"""

from __future__ import annotations

import argparse
import ast
import difflib
import re
import sys
import warnings
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))  # this checkout's devicefix, installed or not

from devicefix.config.resolver import Everywhere
from devicefix.config.settings import Settings
from devicefix.engine.file import File
from devicefix.model import Outcome
from devicefix.runner.find import find_files
from devicefix.runner.run import check_files

LONGEST = 110
ASKS = re.compile(r"is_available\(\)|\.is_cuda\b|\.type [!=]= ['\"]")
KINDS = ("move", "map_location", "parameter", "option", "distributed", "other")
DISTRIBUTED = {"backend", "device_ids", "output_device", "device_id", "init_process_group", "new_group"}
PLACES = ast.Call | ast.keyword | ast.arguments | ast.stmt


@dataclass
class Style:
    """The figures of one repository, or of several.

    Attributes:
        new: the number of new lines.
        long: the new lines that are too long, each with its place.
        sites: the number of places that fixes changed.
        inline: the inline conditions by kind, each with its place.
    """

    new: int = 0
    long: list[str] = field(default_factory=list)
    sites: int = 0
    inline: dict[str, list[str]] = field(default_factory=lambda: {kind: [] for kind in KINDS})

    def add(self, other: Style) -> None:
        """Add the figures of another repository."""
        self.new += other.new
        self.long += other.long
        self.sites += other.sites
        for kind in KINDS:
            self.inline[kind] += other.inline[kind]

    @property
    def cells(self) -> list[object]:
        """The figures in the order of the table's columns."""
        kinds = [len(self.inline[kind]) for kind in KINDS]
        return [self.new, len(self.long), self.sites, sum(kinds), *kinds]


def measured(root: Path, jobs: int | None) -> Style:
    """Return the figures of one repository."""
    settings = Settings(fix=True, quiet=True, jobs=jobs)
    files = find_files([root], Everywhere(settings), lambda problem: print(problem, file=sys.stderr))
    total = Style()
    for outcome in check_files(files, Everywhere(settings)):
        if outcome.result.output is not None:
            total.add(style_of(outcome, settings))
    return total


def style_of(outcome: Outcome, settings: Settings) -> Style:
    """Return the figures of one file."""
    assert outcome.result.output is not None
    old = File(outcome.before, outcome.path, settings).modules
    new = File(outcome.result.output, outcome.path, settings).modules
    found = Style(sites=len(outcome.result.fixed))
    for before, after in zip(old, new, strict=True):
        _compare(found, outcome.path, before.data.decode("utf-8"), after.data.decode("utf-8"))
    return found


def _compare(found: Style, path: str, old: str, new: str) -> None:
    """Add the new lines and the new conditions of a module."""
    lines, others = old.splitlines(), new.splitlines()
    matcher = difflib.SequenceMatcher(None, lines, others, autojunk=False)
    for kind, first, last, start, end in matcher.get_opcodes():
        if kind in ("equal", "delete"):
            continue
        found.new += end - start
        longest = max((len(line) for line in lines[first:last]), default=0)
        found.long += [
            f"{path}:{at + 1}: {others[at].strip()}"
            for at in range(start, end)
            if len(others[at]) > LONGEST >= longest
        ]
    known = Counter(ast.dump(node) for node, _ in _conditions(old))
    defined: set[tuple[int, str]] = set()
    for node, around in _conditions(new):
        text = ast.dump(node)
        if known[text]:
            known[text] -= 1
        elif not (_is_plain(node) and _is_definition(around, defined)):
            place = f"{path}:{node.lineno}: {others[node.lineno - 1].strip()}"
            found.inline[_kind(node, around)].append(place)


Around = list[ast.AST]


def _conditions(text: str) -> Iterator[tuple[ast.IfExp, Around]]:
    """Yield the conditional expressions that ask for CUDA, each with the nodes around it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        stack: list[tuple[ast.AST, Around]] = [(ast.parse(text), [])]
    while stack:
        node, around = stack.pop()
        if isinstance(node, ast.IfExp) and ASKS.search(ast.unparse(node.test)):
            yield node, around
        stack += [(child, [node, *around]) for child in ast.iter_child_nodes(node)]


def _is_plain(node: ast.IfExp) -> bool:
    """Return whether a condition chooses the CPU, or between two names: it moves and computes nothing."""
    if ast.unparse(node.orelse).endswith(("'cpu'", "'cpu')")):
        return True
    return all(isinstance(each, ast.Name | ast.Attribute) for each in (node.body, node.orelse))


def _is_definition(around: Around, defined: set[tuple[int, str]]) -> bool:
    """Return whether a condition is the value of a variable, or its device; the first in its scope."""
    holder = around[0]
    if isinstance(holder, ast.Call) and ast.unparse(holder.func).endswith("torch.device"):
        holder = around[1]
    match holder:
        case ast.Assign(targets=[target]) | ast.AnnAssign(target=target):
            pass
        case _:
            return False
    scopes = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    scope = next((id(node) for node in around if isinstance(node, scopes)), 0)
    if (scope, ast.unparse(target)) in defined:
        return False
    defined.add((scope, ast.unparse(target)))
    return True


def _kind(node: ast.IfExp, around: Around) -> str:
    """Return the kind of an inline condition."""
    names = []
    for each in around:
        if isinstance(each, ast.arguments):
            return "parameter"
        if isinstance(each, ast.stmt):
            break
        if isinstance(each, ast.keyword):
            names.append(each.arg)
        if isinstance(each, ast.Call):
            names.append(ast.unparse(each.func).rpartition(".")[2])
    if "map_location" in names:
        return "map_location"
    if names[:1] == ["default"]:
        return "option"
    if DISTRIBUTED.intersection(names) or ast.unparse(node.orelse) == "'gloo'":
        return "distributed"
    moves = re.search(r"\.(cuda|to)\(", ast.unparse(node)) or {"device", "to"}.intersection(names)
    return "move" if moves else "other"


def row(name: str, *cells: object) -> None:
    """Print one line of a table."""
    print(f"{name[:40]:<42}" + "".join(f"{cell!s:>13}" for cell in cells))


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folders", nargs="+", type=Path, metavar="DIR")
    parser.add_argument("--list", action="store_true", help="print the long lines and the inline conditions")
    parser.add_argument("--jobs", type=int)
    given = parser.parse_args()
    total = Style()
    row("repository", "new lines", "long", "sites", "inline", *KINDS)
    for folder in given.folders:
        for root in sorted(path for path in folder.iterdir() if path.is_dir()):
            found = measured(root, given.jobs)
            row(root.name, *found.cells)
            total.add(found)
    row("sum", *total.cells)
    if given.list:
        for name, places in {"long": total.long, **total.inline}.items():
            print(f"\n{name}", *places, sep="\n")


if __name__ == "__main__":
    main()
