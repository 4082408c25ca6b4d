"""Proof that a rewrite changes only what its edits declare.

The check does not rely on the code that made the new text. It compares

- the characters outside the edits, which are equal;
- the statements in order, which have the same kind, block and depth, apart from the effects that edits
  declare. Those that do not move start and end at their shifted offsets;
- the tokens of each statement, up to its first block, which are kept unless an edit replaces them;
- the comments inside the edits, which are kept unless an edit removes their statement;
- the names that an edit's new text reads and its old text did not hold, which are bound where they are read.
"""

from __future__ import annotations

import ast
import re
import tokenize
from bisect import bisect_left, bisect_right
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import zip_longest
from operator import attrgetter
from typing import NamedTuple

from devicefix.facts.bound import Bound
from devicefix.facts.bound.evaluation import reads
from devicefix.facts.names import Names
from devicefix.files.text import Change, DecodeError, Source, parse, replaced, tokens
from devicefix.model import Edit, Effect, SelfCheckError, Span
from devicefix.rewrite.edits import Shift, Spans, joined, resolved

_BLOCKS = ("body", "handlers", "cases", "orelse", "finalbody")
_NAME = re.compile(r"[^\W\d]\w*")
_IMPORT = re.compile(r"(?<![^\r\n])[ \t\f]*(?:import|from)\b[^\r\n;]*")
_ONLY_COMMENT = re.compile(r"\s*#[^\r\n]*\s*")
_STRING_OR_COMMENT = re.compile(
    r"""(?s:(?P<quote>'''|\"{3})(?:[^\\]|\\.)*?(?P=quote))|(?P<single>['"])(?:\\(?:\r\n|(?s:.))|(?!(?P=single))[^\\\r\n])*(?P=single)"""
    r"|(?P<comment>\#[^\r\n]*)"
)


def check(
    source: Source, module: ast.Module, output: bytes, edits: Sequence[Edit], changes: Sequence[Change]
) -> tuple[Source, ast.Module]:
    """Compare a rewritten file with the original.

    Args:
        source: The text of the original.
        module: Its syntax tree.
        output: The content of the rewritten file.
        edits: The edits that were made, in order, with the effects that they declare.
        changes: The outermost of them, with their new text.

    Returns:
        The text of the rewritten file, and its syntax tree.

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
    effects = _Effects(edits)
    shift = Shift(changes)
    for old, found in zip_longest(_statements(source, module, effects), _statements(new, rewritten)):
        if old is None or found is None:
            raise SelfCheckError("has lost or gained a statement")
        if not _is_kept(old, found, shift, effects):
            raise SelfCheckError(f"changes more than the fix on line {source.position(old.start)[0]}")
    for change in changes:
        if not _keeps_comments(source, change, edits, effects):
            raise SelfCheckError(f"loses or changes a comment on line {source.position(change[0])[0]}")
    return new, rewritten


# -- effects ---------------------------------------------------------------------------------------------


class _Effects:
    """The effects of edits.

    Attributes:
        replaced: What edits without an effect on statements replace.
        removed: What is removed.
        moved: Where statements may move.
        deeper: The starts of the statements that get one block deeper.
        added: The offset and kind of each new statement, except in removed code, and whether it is in
            another new one.
    """

    def __init__(self, edits: Sequence[Edit]) -> None:
        with_effect = [edit for edit in edits if edit.effect != Effect()]
        self.replaced = Spans((edit.start, edit.end) for edit in edits if edit.effect == Effect())
        self.removed = Spans(span for edit in with_effect for span in edit.effect.removed)
        self.moved = Spans((edit.start, edit.end) for edit in with_effect)
        self.deeper = {edit.start for edit in with_effect if edit.effect.deeper}
        self.deeper.update(start for edit in with_effect for start in edit.effect.below)
        self.added: list[tuple[int, str, bool]] = []
        for edit in filter(self._stays, with_effect):
            self.added += ((edit.start, kind, False) for kind in edit.effect.added)
            self.added += ((edit.start, kind, True) for kind in edit.effect.inside)

    def _stays(self, edit: Edit) -> bool:
        """Return whether no other edit removes what an edit adds: an insertion before removed code stays."""
        around = self.removed.around(edit.start)
        before = around is not None and around[0] == edit.start == edit.end
        return before or around in (None, *edit.effect.removed)


_NO_EFFECTS = _Effects(())


# -- statements ------------------------------------------------------------------------------------------


class _Statement(NamedTuple):
    """A statement, exception handler or case.

    Attributes:
        kind: The name of its class in `ast`.
        place: The field of its parent and the number of blocks around it; None for any place.
        start: The offset of its first character.
        end: The offset after its last character; None if it has blocks, whose statements end it.
        head: Its code up to its first block, comments included; None if an edit adds the statement.
    """

    kind: str
    place: tuple[str, int] | None
    start: int
    end: int | None = None
    head: str | None = None


def _statements(source: Source, module: ast.Module, effects: _Effects = _NO_EFFECTS) -> Iterator[_Statement]:
    """Yield the statements of a module in order, with the effects of edits.

    The statements in the blocks of a removed one take its place, unless they are removed as well.
    """
    added = deque(effects.added)
    todo: list[tuple[ast.AST, str, int]] = [(node, "body", 0) for node in reversed(module.body)]
    while todo:
        node, block, depth = todo.pop()
        start = _start(source, node)
        while added and added[0][0] <= start:
            at, kind, inside = added.popleft()
            yield _Statement(kind, (block, depth) if at == start and not inside else None, at)
        if start in effects.deeper:
            block, depth = "body", depth + 1
        removed = effects.removed.around(start) is not None
        below = ((child, name) for name in _BLOCKS for child in getattr(node, name, ()))
        inner = [(child, block, depth) if removed else (child, name, depth + 1) for child, name in below]
        if not removed:
            end = None if inner else source.span(node)[1]  # type: ignore[arg-type]
            head = source.text[start : _start(source, inner[0][0]) if inner else end]
            yield _Statement(type(node).__name__, (block, depth), start, end, head)
        todo += reversed(inner)
    yield from (_Statement(kind, None, at) for at, kind, _ in added)


def _start(source: Source, node: ast.AST) -> int:
    """Return where a statement starts, with the `@` of its first decorator."""
    decorators = getattr(node, "decorator_list", None)
    if decorators:
        return source.text.rindex("@", 0, source.span(decorators[0])[0])
    return source.span(node.pattern if isinstance(node, ast.match_case) else node)[0]  # type: ignore[arg-type]


def _is_kept(old: _Statement, new: _Statement, shift: Shift, effects: _Effects) -> bool:
    """Return whether a statement of the new text is the expected one.

    Args:
        old: The statement of the old text, or the one that an edit adds.
        new: The statement of the new text.
        shift: The new offsets of what does not move.
        effects: The effects of the edits.
    """
    if old.kind != new.kind or old.place not in (None, new.place):
        return False
    if old.head is None or new.head is None:
        return True
    moves = effects.moved.around(old.start) is not None
    ends = {None} if old.end is None else {shift.start(old.end), shift.end(old.end)}
    if not moves and not (new.start == shift.start(old.start) and new.end in ends):
        return False
    if old.head == new.head:
        return True
    before, after = list(_tokens(old.start, old.head)), list(_tokens(new.start, new.head))
    kept = [(at, token) for at, token in before if not effects.replaced.overlap(at, at + len(token))]
    if not moves:
        return {(shift.start(at), token) for at, token in kept} <= set(after)
    wanted, found = (Counter(token for _, token in tokens) for tokens in (kept, after))
    return wanted == found if kept == before else wanted <= found


def _tokens(start: int, code: str) -> Iterator[tuple[int, str]]:
    """Yield the tokens of code that starts at an offset, each after its own, without comments."""
    for at, token in tokens(code.rstrip("\\ \t\f\r\n")):
        if token.string.strip() and token.type != tokenize.COMMENT:
            yield start + at, token.string


# -- names -----------------------------------------------------------------------------------------------


def check_names(
    source: Source,
    new: Source,
    rewritten: ast.Module,
    changes: Sequence[Change],
    is_circular: Callable[[], bool] = lambda: False,
) -> None:
    """Prove that the names which changes bring are bound.

    Args:
        source: The text of the original.
        new: The text of the rewritten file.
        rewritten: Its syntax tree.
        changes: The outermost edits that were made, with their new text.
        is_circular: Whether the file is in a circle of imports.

    Raises:
        SelfCheckError: A name may be unbound where it is read.
    """
    shift = Shift(changes)
    fresh: list[tuple[Span, set[str]]] = []
    for index, (start, end, text) in enumerate(changes):
        first, last, _ = changes[max(index - 1, 0)]
        is_else = text.lstrip().startswith("else:")  # which may read what the statement above reads
        begin = first if is_else and "\n" not in source.text[last:start] else start
        old = _IMPORT.sub("", source.text[begin:end])  # what an import binds is gone with it
        names = set(_NAME.findall(text)).difference(_NAME.findall(old))
        if names:
            first = shift.start(end) - len(text)
            fresh.append(((first, first + len(text)), names))
    if not fresh:
        return
    facts = Names(new, rewritten)
    inserted: dict[ast.Name, int] = {}  # each with where its change begins
    starts, ends = [start for (start, _), _ in fresh], [end for (_, end), _ in fresh]
    spans = zip(starts, ends, strict=True)
    rows = ((new.position(start)[0], new.position(end)[0]) for start, end in spans)
    lines = {line for first, last in rows for line in range(first, last + 1)}
    for node in facts.tree.nodes_at(sorted(lines)):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            first, last = new.span(facts.tree.f_string(node) or node)
            around = fresh[bisect_right(ends, first) : bisect_left(starts, last)]
            begins = [begin for (begin, _), names in around if node.id in names]
            inserted.update((node, begin) for begin in begins[:1])
    bound = Bound(facts, frozenset(inserted), is_circular)
    for node in inserted:
        if not (bound.name(node.id, node) or _is_read_below(new, facts.tree.statement(node), node, inserted)):
            raise SelfCheckError(f"uses `{node.id}` on line {node.lineno}, where it may not be bound")


def _is_read_below(new: Source, test: ast.stmt, node: ast.Name, inserted: Mapping[ast.Name, int]) -> bool:
    """Return whether a name is in a new test, the last one before a statement that has always read it.

    Args:
        new: The text of the rewritten file.
        test: The statement with the name.
        node: The name.
        inserted: All names that changes bring, each with where its change begins.
    """
    match test:
        case ast.If(test=ast.BoolOp(op=ast.And(), values=[*_, last]) | last, body=[below, *_]):
            is_added = node in ast.walk(last) and inserted[node] < new.span(last)[0]
            return is_added and any(each not in inserted for each in reads(below, node.id))
    return False


# -- comments --------------------------------------------------------------------------------------------


def _keeps_comments(source: Source, change: Change, edits: Sequence[Edit], effects: _Effects) -> bool:
    """Return whether the new text of a change has the comments of the old one, and no others.

    An edit may change a comment, if that is all that it changes.
    """
    start, end, text = change
    old = source.text[start:end]
    if ("#" not in old and "#" not in text) or _ONLY_COMMENT.fullmatch(old):
        return True
    first, last = (bisect_left(edits, at, key=attrgetter("start")) for at in (start, end))
    kept: Counter[str] = Counter()
    changed = 0
    for at, comment in _comments(old, start):
        if any(at <= edit.start < at + len(comment) for edit in edits[first:last]):
            changed += 1
        elif effects.removed.around(at) is None:
            kept[comment] += 1
    found = Counter(comment for _, comment in _comments(text))
    return kept <= found and found.total() - kept.total() <= changed


def _comments(text: str, start: int = 0) -> Iterator[tuple[int, str]]:
    """Yield the comments of a text that starts at an offset, each after its own."""
    for match in _STRING_OR_COMMENT.finditer(text):
        if match["comment"]:
            yield start + match.start(), match["comment"].rstrip()


def loses_comment(source: Source, edits: Sequence[Edit]) -> bool:
    """Return whether edits would lose a comment, made alone."""
    if not any("#" in source.text[edit.start : edit.end] for edit in edits):
        return False
    edits = joined(source.text, edits)
    effects = _Effects(edits)
    try:
        changes = resolved(source.text, edits)
        return not all(_keeps_comments(source, change, edits, effects) for change in changes)
    except RecursionError:  # it is reported when the fix is made
        return False
