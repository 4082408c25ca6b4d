"""Fold the findings in code that never runs without CUDA into the finding of what keeps it from that."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING
from weakref import proxy

from devicefix.engine.guarded_uses import GuardedUses
from devicefix.engine.kept_checks import STILL
from devicefix.facts.scopes import FUNCTIONS, PERHAPS
from devicefix.model import Finding

if TYPE_CHECKING:
    from devicefix.devices.context import Context

_LIBRARY, _REFUSAL, _MOVE, _DEVICE_IDS = "DF902", "DF701", "DF102", "DF602"
_GRAPHS = ("torch.cuda.CUDAGraph", "torch.cuda.graph")
_EVENTS = ("torch.cuda.Event", "torch.cuda.Stream")


class Stops:
    """The stops of one module without CUDA that no safe fix removes: an import, a check, or a CUDA graph.

    What it leads to runs only with CUDA, so a fix there would only be another guard.

    Args:
        context: the context of the module.
        found: the findings, each with the node at which it was found.
    """

    def __init__(self, context: Context, found: Sequence[tuple[ast.AST, Finding]]) -> None:
        self._context = context
        self._tree = context.facts.tree
        self._found = found
        self._guards = dict[Finding, str]()  # of these stops, each with the codes of what is for no use below
        self._blocks: dict[int, tuple[ast.stmt, Finding]] = {}
        stops = [each for each in found if self._stops(*each)]
        for node, finding in sorted(stops, key=lambda each: each[1] in self._guards):
            statement = self._tree.statement(node)
            for block in (self._tree.block(statement), *self._later(statement)):
                self._blocks.setdefault(id(block), (statement, finding))
        self._uses = GuardedUses(context, partial(Stops._is_below, proxy(self)))  # no circle

    def fold(self) -> list[tuple[ast.AST, Finding]]:
        """Return the findings: each that stops the code of others with their lines, in the place of these."""
        kept, lines = list[tuple[ast.AST, Finding]](), dict[Finding, list[int]]()
        for node, finding in self._found:
            stop = self._of(node) if finding.code != _LIBRARY else None
            if stop is None or stop is finding or not self._covers(stop, finding):
                kept.append((node, finding))
            else:
                lines.setdefault(stop, []).append(finding.line)
        others = lines.keys() - {finding for _, finding in kept}  # that of an import in another file
        kept += ((self._tree.module, each) for each in others)
        return [(node, _with_lines(each, sorted({*lines.get(each, ())}))) for node, each in kept]

    def _covers(self, stop: Finding, finding: Finding) -> bool:
        """Return whether a finding is for no use while a stop is left: of some only guards are, and no moves.

        A check stays because of what has no fix, which is reported.
        """
        if stop in self._guards:
            return finding.code.startswith(self._guards[stop]) and finding.is_fixable(unsafe_fixes=False)
        return not stop.is_unsafe_for([STILL]) or finding.is_fixable(unsafe_fixes=False)

    def _stops(self, node: ast.AST, finding: Finding) -> bool:
        """Return whether a finding is of a statement that ends the program without CUDA, and stays."""
        if finding.code == _REFUSAL:
            return not finding.is_fixable(self._context.options.unsafe_fixes)
        facts = self._context.facts
        if finding.fix is None and facts.call(node, *_EVENTS):
            self._guards[finding] = "DF4"
        elif finding.code == _MOVE and not finding.is_fixable(self._context.options.unsafe_fixes):
            self._guards[finding] = _DEVICE_IDS
        if finding in self._guards:
            return not any(self._tree.around(node, *PERHAPS))
        return finding.stops or (finding.fix is None and facts.call(node, *_GRAPHS))

    def _later(self, stop: ast.stmt) -> Iterator[list[ast.stmt]]:
        """Yield the blocks below a stop that the same test leads to again."""
        match self._tree.parents[stop]:
            case ast.If(test=test, body=body) as choice:
                found = (each for each in self._tree.after(choice) if isinstance(each, ast.If))
                alike = (each for each in found if ast.dump(each.test) == ast.dump(test))
                yield from (each.body if stop in body else each.orelse for each in alike)

    def _of(self, node: ast.AST) -> Finding | None:
        """Return the finding that stops the code of a node, None if it may run."""
        if self._context.needs_cuda or not self._blocks:
            return self._context.needs_cuda
        _, first = next(iter(self._blocks.values()))
        return self._above(node) or (first if self._uses.hold(node) else None)

    def _is_below(self, node: ast.AST) -> bool:
        """Return whether a node is below a check that stops its function or the module."""
        return self._above(node) not in (None, *self._guards)

    def _above(self, node: ast.AST) -> Finding | None:
        """Return the first finding that stops a function, or the module, before it gets to a node."""
        stop: Finding | None = None
        inner: ast.AST | None = None
        for child, parent in self._tree.ancestors(node):
            if isinstance(child, ast.stmt):
                check, finding = self._blocks.get(id(self._tree.block(child)), (child, None))
                is_inside = check is child and isinstance(inner, ast.stmt)  # its test is evaluated
                stop = finding if finding and (is_inside or check.lineno < child.lineno) else stop
            inner = child
            if isinstance(parent, FUNCTIONS):
                break
        return stop


def _with_lines(finding: Finding, lines: list[int]) -> Finding:
    """Return a finding that names the lines of those that it replaces."""
    if not lines:
        return finding
    *first, last = [str(each) for each in lines[:5]] + [f"{len(lines) - 5} more"] * (len(lines) > 5)
    shown = f"lines {', '.join(first)} and {last}" if first else f"line {last}"
    return replace(finding, message=f"{finding.message} ({shown} can be fixed only after this)")
