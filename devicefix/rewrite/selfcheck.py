"""Proof that a rewrite changes only what its edits declare.

How the new text was made does not matter. It has to hold that

- every character outside of the edits is the same;
- the new text has the same statements in the same order, each in the same block and as deep as before, except
  for what edits add, remove or move by their declared effect;
- a statement without an edit begins and ends where the edits before it shift it; one that moves with its
  block has the same syntax tree;
- names and values next to an edit are still there: the edit does not end in an open string or a comment;
- every comment inside an edit is still there, except in what the edit removes.
"""

from __future__ import annotations

import ast
import re
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from typing import NamedTuple

from devicefix.files.text import DecodeError, Source, parse
from devicefix.model import Edit, Effect, SelfCheckError, Span
from devicefix.rewrite.edits import Change, joined, replaced, resolved

_BLOCKS = ("body", "handlers", "cases", "orelse", "finalbody")
_TOKEN = re.compile(
    r"""(?s:(?P<quote>'''|\"{3})(?:[^\\]|\\.)*?(?P=quote))|(?P<single>['"])(?:\\(?:\r\n|(?s:.))|(?!(?P=single))[^\\\r\n])*(?P=single)"""
    r"|(?P<comment>\#[^\r\n]*)"
)
_ONLY_COMMENT = re.compile(r"\s*#[^\r\n]*\s*")
_LINE_END = re.compile(r"\r\n|\r|\n")
_NO_EFFECT = Effect()


def check(
    source: Source, module: ast.Module, output: bytes, edits: Sequence[Edit], changes: Sequence[Change]
) -> None:
    """Compare a rewritten file with the original.

    Args:
        source: The text of the original.
        module: Its syntax tree.
        output: The content of the rewritten file.
        edits: The edits that were made, in order, with the effects that they declare.
        changes: The outermost of them, with their new text.

    Raises:
        SelfCheckError: The new text does not parse, or differs from the original where it must not.
    """
    try:
        new = Source(output)
        rewritten = parse(new.text)
    except (DecodeError, SyntaxError, ValueError) as problem:
        raise SelfCheckError(f"would not parse: {problem}") from problem
    if new.text != replaced(source.text, changes):
        raise SelfCheckError("differs outside of the fixes")
    _Comparison(source, new, edits, changes).compare(module, rewritten)
    for change in changes:
        _compare_comments(source, change, edits)


# -- statements ------------------------------------------------------------------------------------------


class _Statement(NamedTuple):
    """A statement, exception handler or case, and its place.

    `depth` is the number of blocks around it, an `elif` being as deep as its `if`; `block` is the field of
    the statement around it that it is in. `head_end` is where its first block begins, or else its end.
    """

    node: ast.AST
    kind: str
    depth: int
    block: str
    start: int
    head_end: int
    end: int


class _Expected(NamedTuple):
    """A statement that the new text should have; `old` is None for one that an edit adds."""

    kind: str
    depth: int | None
    old: _Statement | None = None
    moved: bool = False


class _Shift:
    """Offsets of the old text in the new one."""

    def __init__(self, changes: Sequence[Change]) -> None:
        self.starts = [start for start, _, _ in changes]
        self.ends = [end for _, end, _ in changes]
        self.sums = [0, *accumulate(len(new) - (end - start) for start, end, new in changes)]

    def touches(self, start: int, end: int) -> bool:
        """Return whether a change overlaps a part of the old text, or is next to it."""
        return bisect_left(self.ends, start) < bisect_right(self.starts, end)

    def covers(self, offset: int) -> bool:
        """Return whether a character of the old text is replaced."""
        return bisect_right(self.ends, offset) < bisect_right(self.starts, offset)

    def __call__(self, offset: int) -> list[int]:
        """Return where an offset is in the new text: two places at an insertion, none if it is gone."""
        first, last = bisect_left(self.ends, offset), bisect_right(self.ends, offset)
        if last < len(self.starts) and self.starts[last] < offset:
            return []
        while first < last and self.starts[first] < offset:
            first += 1  # a replaced part that ends here
        return [offset + moved for moved in self.sums[first : last + 1]]


class _Comparison:
    """The statements of two texts, and what edits may change about them.

    Args:
        source: The original text.
        new: The new text.
        edits: The edits, in order.
        changes: The outermost of them.
    """

    def __init__(self, source: Source, new: Source, edits: Sequence[Edit], changes: Sequence[Change]) -> None:
        self.source = source
        self.new = new
        self.edits = edits
        self.shift = _Shift(changes)
        self.inner = _Shift([(edit.start, edit.end, "") for edit in edits if edit.effect == _NO_EFFECT])

    def compare(self, module: ast.Module, rewritten: ast.Module) -> None:
        """Compare the statements of two modules.

        Raises:
            SelfCheckError: They differ where they must not.
        """
        expected = list(_expected(_outline(self.source, module), self.edits))
        found = list(_outline(self.new, rewritten))
        for wanted, statement in zip(expected, found, strict=False):
            if wanted.kind != statement.kind or wanted.depth not in (None, statement.depth):
                line, _ = self.new.position(statement.start)
                raise SelfCheckError(f"has another statement in line {line}, or in another block")
            if wanted.old is not None:
                same = self._same_after_move if wanted.moved else self._same_in_place
                if not same(wanted.old, statement):
                    line, _ = self.source.position(wanted.old.start)
                    raise SelfCheckError(f"changes more than the fix in line {line}")
        if len(expected) != len(found):
            raise SelfCheckError("has lost or gained a statement")

    def _same_after_move(self, old: _Statement, found: _Statement) -> bool:
        """Return whether a statement that moves with its block is unchanged, or has an edit inside."""
        return self.inner.touches(old.start, old.head_end) or _head(old.node) == _head(found.node)

    def _same_in_place(self, old: _Statement, found: _Statement) -> bool:
        """Return whether a statement is in its block and place, and changed only by edits inside it."""
        starts, ends = self.shift(old.start), self.shift(old.end)
        if old.block != found.block or (ends and found.end not in ends):
            return False
        if not self.shift.covers(old.start) and found.start not in starts:
            return False
        if not self.shift.touches(old.start, old.head_end):
            return True
        return set(_shifted(self.source, old.node, self.shift)) <= set(_leaves(self.new, found.node))


def _outline(source: Source, module: ast.Module) -> Iterator[_Statement]:
    """Yield the statements of a module in order."""
    todo: list[tuple[ast.AST, int, str]] = [(node, 0, "body") for node in reversed(module.body)]
    while todo:
        node, depth, block = todo.pop()
        inner: list[tuple[ast.AST, int, str]] = []
        for name in _BLOCKS:
            for child in getattr(node, name, ()):
                is_elif = name == "orelse" and isinstance(child, ast.If) and _starts(source, child, "elif")
                inner.append((child, depth, "elif") if is_elif else (child, depth + 1, name))
        start, end = _span(source, node)
        head_end = _span(source, inner[0][0])[0] if inner else end
        yield _Statement(node, type(node).__name__, depth, block, start, head_end, end)
        todo += reversed(inner)


def _starts(source: Source, node: ast.stmt, word: str) -> bool:
    return source.text.startswith(word, source.span(node)[0])


def _span(source: Source, node: ast.AST) -> Span:
    """Return where a statement starts, with its decorators, and where it ends."""
    if isinstance(node, ast.match_case):
        return source.span(node.pattern)[0], source.span(node.body[-1])[1]  # type: ignore[arg-type]
    start, end = source.span(node)  # type: ignore[arg-type]
    decorators = getattr(node, "decorator_list", None)
    return (source.span(decorators[0])[0] if decorators else start), end


def _expected(statements: Iterable[_Statement], edits: Sequence[Edit]) -> Iterator[_Expected]:
    """Yield the statements that the new text should have, by the effects of the edits."""
    around: list[Edit] = []
    index = 0
    for statement in statements:
        while index < len(edits) and edits[index].start <= statement.start:
            yield from _added(edits[index], _around(around, edits[index].start), statement.depth)
            around.append(edits[index])
            index += 1
        if not _removed(_around(around, statement.start), statement.start):
            deeper = sum(edit.effect.deeper for edit in around)
            moved = any(edit.effect != _NO_EFFECT for edit in around)
            yield _Expected(statement.kind, statement.depth + deeper, statement, moved)
    for edit in edits[index:]:
        yield from _added(edit, _around(around, edit.start), None)


def _around(edits: list[Edit], offset: int) -> list[Edit]:
    """Return the edits around an offset, given those around one before it."""
    while edits and edits[-1].end <= offset:
        edits.pop()
    return edits


def _removed(edits: Iterable[Edit], offset: int) -> bool:
    return any(start <= offset < end for edit in edits for start, end in edit.effect.removed)


def _added(edit: Edit, around: list[Edit], depth: int | None) -> Iterator[_Expected]:
    """Yield the statements that an edit adds: by its effect, or by the lines of code that it inserts."""
    if _removed(around, edit.start):
        return
    if depth is not None:
        depth += sum(outer.effect.deeper for outer in around)
    yield from (_Expected(kind, depth) for kind in edit.effect.added)
    if edit.start == edit.end and isinstance(edit.new, str) and _LINE_END.search(edit.new):
        for line in _LINE_END.split(edit.new):
            yield from (_Expected(type(node).__name__, None) for node in parse(line.strip()).body)


# -- expressions -----------------------------------------------------------------------------------------


def _own(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes of a statement that are not in its blocks, and no parts of an f-string."""
    todo = [child for child in ast.iter_child_nodes(node) if not _is_statement(child)]
    while todo:
        node = todo.pop()
        yield node
        if not isinstance(node, ast.JoinedStr):  # its parts have no places before Python 3.12
            todo += ast.iter_child_nodes(node)


def _is_statement(node: ast.AST) -> bool:
    return isinstance(node, (ast.stmt, ast.ExceptHandler, ast.match_case))


def _head(node: ast.AST) -> list[str]:
    """Return the code of a statement without its blocks."""
    return [ast.dump(child) for child in ast.iter_child_nodes(node) if not _is_statement(child)]


def _leaves(source: Source, node: ast.AST) -> Iterator[tuple[str, int, int]]:
    """Yield the names and values of a statement, with their places."""
    for part in _own(node):
        if isinstance(part, (ast.Name, ast.Constant, ast.JoinedStr)):
            yield type(part).__name__, *source.span(part)


def _shifted(source: Source, node: ast.AST, shift: _Shift) -> Iterator[tuple[str, int, int]]:
    """Yield the names and values of a statement that no edit touches, with their new places."""
    for kind, start, end in _leaves(source, node):
        if not shift.touches(start + 1, end - 1) and shift(start) and shift(end):
            yield kind, shift(start)[-1], shift(end)[0]


# -- comments --------------------------------------------------------------------------------------------


def _compare_comments(source: Source, change: Change, edits: Sequence[Edit]) -> None:
    """Compare the comments of a changed part with those of its new text.

    An edit may change a comment, if that is all that it changes.
    """
    start, end, text = change
    old = source.text[start:end]
    if ("#" not in old and "#" not in text) or _ONLY_COMMENT.fullmatch(old):
        return
    first = bisect_left(edits, start, key=lambda edit: edit.start)
    last = bisect_left(edits, end, key=lambda edit: edit.start)
    inside = edits[first:last]
    kept: Counter[str] = Counter()
    changed = 0
    for at, comment in _comments(old):
        offset = start + at
        if any(offset <= edit.start < offset + len(comment) for edit in inside):
            changed += 1
        elif not _removed(inside, offset):
            kept[comment] += 1
    found = Counter(comment for _, comment in _comments(text))
    if kept - found or (found - kept).total() > changed:
        raise SelfCheckError(f"loses or changes a comment in line {source.position(start)[0]}")


def loses_comment(source: Source, edits: Sequence[Edit]) -> bool:
    """Return whether edits would lose a comment, made alone."""
    if not any("#" in source.text[edit.start : edit.end] for edit in edits):
        return False
    edits = joined(source.text, edits)
    try:
        for change in resolved(source.text, edits):
            _compare_comments(source, change, edits)
    except SelfCheckError:
        return True
    except RecursionError:  # it is reported when the fix is made
        return False
    return False


def _comments(text: str) -> Iterator[tuple[int, str]]:
    for match in _TOKEN.finditer(text):
        if match["comment"]:
            yield match.start(), match["comment"].rstrip()
