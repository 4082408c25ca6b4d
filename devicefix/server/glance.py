"""The findings in a text that was just changed where nothing is found: the known ones, at their new places.

A check of a whole file takes too long for every key. Much of what people type is in comments, or in functions
without a tie: then the findings move with their lines, until the check that follows when people pause.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import NamedTuple

from devicefix.facts import Facts
from devicefix.facts.prefilter import imported_words, lines_that_matter
from devicefix.files.positions import Place, moved_finding
from devicefix.files.text import parse
from devicefix.model import Finding
from devicefix.rules.registry import WORDS, words
from devicefix.server.inspect import Inspection
from devicefix.server.text import common_length, lines_of

_ENCODED = 2  # lines that may declare the encoding
_DIRECTIVES = ("noqa", "devicefix")

_Function = ast.FunctionDef | ast.AsyncFunctionDef


def glance(known: Inspection, text: str) -> list[Finding] | None:
    """Return the findings in a changed text, without the edits of their fixes.

    Args:
        known: the findings in the text before.
        text: the changed text.

    Returns:
        The findings; None if only a check can find them.
    """
    if known.devices is None or known.text == text:
        return None
    facts = known.devices.facts
    change = _Change.between(lines_of(known.text), lines_of(text))
    lines = "".join([*change.old, *change.new]).lower()
    if change.first < _ENCODED or any(directive in lines for directive in _DIRECTIVES):
        return None
    region = _comments(facts, change) or _function(facts, change)
    if region is None or _holds_word(known, region) or _is_found_in(known, region):
        return None

    def where(line: int, column: int) -> Place:
        return Place(line + change.added if line > change.last else line, column)

    return [moved_finding(finding.portable(), where, str) for finding in known.findings]


class _Change(NamedTuple):
    """Lines of a text that are replaced by others.

    Attributes:
        before: the lines of the text before.
        after: those of the text after.
        first: the number of lines in front of the change.
        last: the number of the last line that it replaces, from 1; `first` if it only inserts.
    """

    before: Sequence[str]
    after: Sequence[str]
    first: int
    last: int

    @staticmethod
    def between(before: Sequence[str], after: Sequence[str]) -> _Change:
        first = common_length(before, after)
        behind = common_length(before[first:][::-1], after[first:][::-1])
        return _Change(before, after, first, len(before) - behind)

    @property
    def added(self) -> int:
        """The number of lines that the text gets longer by."""
        return len(self.after) - len(self.before)

    @property
    def old(self) -> Sequence[str]:
        """The lines that are replaced."""
        return self.before[self.first : self.last]

    @property
    def new(self) -> Sequence[str]:
        """The lines that replace them."""
        return self.after[self.first : self.last + self.added]


class _Region(NamedTuple):
    """The lines around a change on which no finding may depend.

    Attributes:
        first: the number of the first line in the text before, from 1.
        last: the number of the last one; one less than `first` if there is none.
        text: their text, before and after the change.
    """

    first: int
    last: int
    text: str


def _comments(facts: Facts, change: _Change) -> _Region | None:
    """Return the changed lines if they are comments and blank lines between statements."""
    if not all(line.lstrip()[:1] in ("", "#") for line in (*change.old, *change.new)):
        return None
    if change.before[change.first - 1].rstrip("\r\n").endswith("\\"):
        return None
    around = facts.tree.statements_at(range(change.first, change.last + 2))
    headers = (_header(nodes[0]) for nodes in around if isinstance(nodes[0], ast.stmt))
    if any(first <= change.last and change.first < last for first, last in headers):
        return None
    return _Region(change.first + 1, change.last, "".join([*change.old, *change.new]))


def _header(statement: ast.stmt) -> tuple[int, int]:
    """Return the first and the last line of a statement, up to its first block."""
    body = getattr(statement, "body", None)
    return _first_line(statement), body[0].lineno if body else statement.end_lineno or statement.lineno


def _first_line(statement: ast.stmt) -> int:
    """Return the first line of a statement with its decorators."""
    decorators: list[ast.expr] = getattr(statement, "decorator_list", [])
    return min([statement.lineno, *(decorator.lineno for decorator in decorators)])


def _function(facts: Facts, change: _Change) -> _Region | None:
    """Return the lines of the function whose body is changed, unless its signature or its effects change."""
    found: tuple[int, _Function, int] | None = None
    for node in facts.tree.scopes:
        if isinstance(node, _Function) and (found is None or node.lineno > found[0]):
            end = _with_blank_lines(change.before, node.end_lineno or node.lineno)
            if node.body[0].lineno <= change.first + 1 and max(change.first, change.last) <= end:
                found = node.lineno, node, end
    if found is None:
        return None
    _, function, end = found
    start = _first_line(function)
    text = "".join(change.after[start - 1 : end + change.added])
    try:
        (new,) = parse(f"if 1:\n{text}" if function.col_offset else text).body
        if function.col_offset and isinstance(new, ast.If) and not new.orelse:
            (new,) = new.body
        if type(new) is not type(function) or _outside(new) != _outside(function):
            return None
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    return _Region(start, end, "".join(change.before[start - 1 : end]) + text)


def _with_blank_lines(lines: Sequence[str], last: int) -> int:
    """Return the last line of a function with the blank lines below it, where it may go on."""
    while last < len(lines) and not lines[last].strip():
        last += 1
    return last


def _outside(function: ast.stmt) -> tuple[str, set[tuple[type[ast.AST], str]]]:
    """Return what is known of a function around it: its signature, and what it binds there."""
    assert isinstance(function, _Function)
    signature = [function.args, *function.decorator_list, *filter(None, [function.returns])]
    bound: set[tuple[type[ast.AST], str]] = set()
    for node in ast.walk(function):
        if isinstance(node, (ast.Global, ast.Nonlocal)):
            bound.update((type(node), name) for name in node.names)
        elif isinstance(node, ast.Attribute) and not isinstance(node.ctx, ast.Load):
            bound.add((type(node), node.attr))
        elif isinstance(node, ast.alias):
            bound.add((type(node), ast.dump(node)))
    return " ".join([function.name, *map(ast.dump, signature)]), bound


def _holds_word(known: Inspection, region: _Region) -> bool:
    """Return whether the text of a region holds a word that a rule looks for, before or after."""
    assert known.devices is not None
    imported = imported_words(known.devices.facts.tree.imports, words(known.settings))
    return bool(lines_that_matter(region.text, WORDS, imported))


def _is_found_in(known: Inspection, region: _Region) -> bool:
    """Return whether a finding or its fix is in a region."""
    assert known.devices is not None
    source = known.devices.facts.source
    spans = [(finding.line, finding.end_line) for finding in known.findings]
    for finding in known.findings:
        for edit in finding.fix.edits if finding.fix else ():
            spans.append((source.position(edit.start)[0], source.position(edit.end)[0]))
    return any(first <= region.last and region.first <= last for first, last in spans)
