"""Lines that a run on the CPU must reach: no condition stands between them and a line that it has reached.

A line may read a tensor with CUDA only, since the program asks for CUDA around it. Without such a condition,
the run on the CPU has ended, or left the function, too early.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

from devicefix.verify.compare.difference import ONLY_CUDA, Difference
from devicefix.verify.compare.streams import Event, streams_of

_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)
_BLOCKS = (ast.For, ast.AsyncFor, ast.With, ast.AsyncWith)
_LEAVES = (ast.Return, ast.Raise, ast.Continue, ast.Break, ast.Yield, ast.YieldFrom, ast.Assert)
_CONDITIONS = (ast.IfExp, ast.BoolOp, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_EXITS = ("exit", "_exit", "quit", "abort", "skip", "fail")


def unreached(found: Iterable[Difference], one: list[Event], other: list[Event]) -> Iterator[Difference]:
    """Yield differences, those of lines that the CPU should have reached as "unreached".

    Args:
        found: differences between a run on CUDA and one on the CPU.
        one: the events of the first run.
        other: the events of the second run.
    """
    reached: dict[str, set[int]] = defaultdict(set)
    for file, line in _lines(one) & _lines(other):
        reached[file].add(line)
    for difference in found:
        only, file = difference.kind == ONLY_CUDA, difference.file
        if only and _must_follow(file, difference.line, reached[file]):
            yield replace(difference, kind="unreached")
        else:
            yield difference


def _lines(events: list[Event]) -> set[tuple[str, int]]:
    """Return the lines that read a tensor in a run, each with its file."""
    return {key[:2] for stream in streams_of(events).values() for key in stream.seen}


def _must_follow(file: str, line: int, reached: set[int]) -> bool:
    """Return whether a line of a file runs whenever one of the others above it has run."""
    block = _block(file, line)
    here = next((index for index, each in enumerate(block) if _holds(each, line)), None)
    if here is None or _depends(block[here]):
        return False
    for statement in reversed(block[:here]):
        if _may_leave(statement):
            return False
        if any(_holds(statement, each) for each in reached):
            return True
    return False


def _block(file: str, line: int) -> Sequence[ast.stmt]:
    """Return the innermost statements around a line that run one after the other, under no condition."""
    block: Sequence[ast.stmt] = _body(file)
    while True:
        statement = next((each for each in block if _holds(each, line)), None)
        if isinstance(statement, (*_SCOPES, *_BLOCKS)) or _is_main(statement):
            inner = statement.body  # type: ignore[union-attr]
            if isinstance(inner, list) and inner[0].lineno <= line <= (inner[-1].end_lineno or 0):
                block = inner
                continue
        return block


def _is_main(statement: ast.stmt | None) -> bool:
    """Return whether a statement is `if __name__ == "__main__":`."""
    return isinstance(statement, ast.If) and "__name__" in ast.unparse(statement.test)


def _holds(statement: ast.stmt, line: int) -> bool:
    return statement.lineno <= line <= (statement.end_lineno or statement.lineno)


def _depends(statement: ast.stmt) -> bool:
    """Return whether a part of a statement may not run, although the statement does."""
    if not isinstance(statement, (ast.Expr, ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Return)):
        return True
    return any(isinstance(node, (*_CONDITIONS, *_SCOPES)) for node in ast.walk(statement))


def _may_leave(node: ast.AST) -> bool:
    """Return whether a statement may leave the block that it is in, by itself or a part of it."""
    if isinstance(node, _LEAVES):
        return True
    if isinstance(node, ast.Call):
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if name in _EXITS:
            return True
    return any(_may_leave(child) for child in ast.iter_child_nodes(node) if not isinstance(child, _SCOPES))


@lru_cache(maxsize=64)
def _body(file: str) -> list[ast.stmt]:
    try:
        return ast.parse(Path(file).read_bytes()).body
    except (OSError, SyntaxError, ValueError, RecursionError):
        return []
