"""Find the comments that rewriting loses: a comment may go only with the statement that it belongs to."""

from __future__ import annotations

import ast
import io
import re
import shutil
import sys
import tempfile
import tokenize
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from difflib import SequenceMatcher
from pathlib import Path
from typing import NamedTuple

from corpus_compare import Version, packages_of

SIMILAR = 0.5  # from this ratio on, a statement counts as edited, not as removed


class Comment(NamedTuple):
    """A comment and its place."""

    text: str
    line: int
    column: int
    alone: bool  # nothing else is on its line


@dataclass(frozen=True)
class Loss:
    """A comment that is not in the rewritten file."""

    comment: Comment
    with_statement: bool  # the statement that it belongs to was removed

    def __str__(self) -> str:
        """Return line and text of the comment."""
        return f"{self.comment.line}: {self.comment.text}"


def report(version: Version, folders: Iterable[Path]) -> int:
    """Rewrite a copy of every package, and print each comment that is lost.

    Args:
        version: the devicefix to run.
        folders: folders of packages.

    Returns:
        The exit status: 0 if no comment is lost, 1 if one is, 2 if there was nothing to rewrite.
    """
    counts: Counter[str] = Counter()
    for package in (package for folder in folders for package in packages_of(folder)):
        counts["packages"] += 1
        with tempfile.TemporaryDirectory() as name:
            copy = Path(name) / package.name
            paths = copy_python_files(package, copy)
            done = version.run("rewrite", "--in-place", *version.rewrite_options, str(copy))
            if done.returncode:
                counts["crashes"] += 1
                print(f"{package.name}: `rewrite` exits with {done.returncode}: {done.stderr.strip()}")
            for path in paths:
                show(
                    f"{package.name}/{path}",
                    (package / path).read_bytes(),
                    (copy / path).read_bytes(),
                    counts,
                )
    if not counts["packages"]:
        print("no packages to rewrite: run `corpus.py fetch`, or name a folder of packages", file=sys.stderr)
        return 2
    print(
        f"{counts['packages']} packages, {counts['files']} rewritten files, {counts['comments']} comments: "
        f"{counts['lost']} lost, {counts['removed']} removed with their statements"
    )
    return 1 if counts["lost"] or counts["crashes"] else 0


def copy_python_files(package: Path, copy: Path) -> list[Path]:
    """Copy the Python files of a package, and return their paths relative to it."""
    paths = [
        path.relative_to(package)
        for pattern in ("*.py", "*.pyi")
        for path in sorted(package.rglob(pattern))
        if path.is_file() and not path.is_symlink()
    ]
    copy.mkdir()
    for path in paths:
        (copy / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(package / path, copy / path)
    return paths


def show(name: str, before: bytes, after: bytes, counts: Counter[str]) -> None:
    """Print the comments that one file has lost, and count them."""
    if before == after:
        return
    counts["files"] += 1
    counts["comments"] += len(comments(before))
    for loss in lost_comments(before, after):
        counts["removed" if loss.with_statement else "lost"] += 1
        print(f"{'removed with its statement' if loss.with_statement else 'LOST'}: {name}:{loss}")


def lost_comments(before: bytes, after: bytes) -> list[Loss]:
    """Find the comments of a file that its rewrite lacks.

    Args:
        before: the file.
        after: the rewritten file.

    Returns:
        The losses, in the order of the file.
    """
    before, after = map(without_tabs, (before, after))
    old = comments(before)
    too_few = Counter(comment.text for comment in old) - Counter(comment.text for comment in comments(after))
    if not too_few:
        return []
    kept, statements = kept_comments(old, comments(after)), list(flat(parse(before)))
    removed = {id(node) for node in removed_statements(statements, list(flat(parse(after))))}
    candidates = [Loss(comment, id(owner(comment, statements)) in removed) for comment in old]
    # of comments with the same text, those of a removed statement are missing, or else those out of order
    candidates.sort(key=lambda loss: (not loss.with_statement, loss.comment in kept))
    losses = []
    for loss in candidates:
        if too_few[loss.comment.text]:
            too_few[loss.comment.text] -= 1
            losses.append(loss)
    return sorted(losses, key=lambda loss: loss.comment.line)


def without_tabs(source: bytes) -> bytes:
    """Return a file whose lines are indented by spaces, so that columns can be compared."""
    return re.sub(rb"(?:^|(?<=[\r\n]))[ \t]+", lambda indentation: indentation[0].expandtabs(), source)


def comments(source: bytes) -> list[Comment]:
    """Return the comments of a file, in order; none if it cannot be split into tokens."""
    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(source).readline)
        text = io.StringIO(source.decode(encoding), newline=None)  # tokenize does not know "\r" as a line end
        tokens = list(tokenize.generate_tokens(text.readline))
    except (tokenize.TokenError, SyntaxError, UnicodeDecodeError):
        return []
    return [
        Comment(token.string.rstrip(), *token.start, not token.line[: token.start[1]].strip())
        for token in tokens
        if token.type == tokenize.COMMENT
    ]


def kept_comments(old: list[Comment], new: list[Comment]) -> set[Comment]:
    """Return the old comments that are in the same order among the new ones."""
    matcher = SequenceMatcher(None, [each.text for each in old], [each.text for each in new], autojunk=False)
    return {
        comment for block in matcher.get_matching_blocks() for comment in old[block.a : block.a + block.size]
    }


def parse(source: bytes) -> ast.Module:
    """Return the syntax tree, which is empty if the source does not parse."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return ast.parse(source)
        except (SyntaxError, ValueError, RecursionError):
            return ast.Module([], [])


def flat(node: ast.AST) -> Iterator[ast.stmt]:
    """Yield all statements in a node, in the order of the file."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.stmt):
            yield child
        if isinstance(child, (ast.stmt, ast.excepthandler, ast.match_case)):
            yield from flat(child)


def head(statement: ast.stmt) -> str:
    """Return the code of a statement without its blocks."""
    kinds = (ast.stmt, ast.excepthandler, ast.match_case)
    parts = [ast.unparse(node) for node in ast.iter_child_nodes(statement) if not isinstance(node, kinds)]
    name = getattr(statement, "name", "")
    simple = not hasattr(statement, "body")
    return ast.unparse(statement) if simple else f"{type(statement).__name__} {name} {' '.join(parts)}"


def removed_statements(old: list[ast.stmt], new: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield the statements that have no counterpart in the rewritten file, not even an edited one."""
    before, after = list(map(head, old)), list(map(head, new))
    matcher = SequenceMatcher(None, before, after, autojunk=False)
    for tag, start, end, new_start, new_end in matcher.get_opcodes():
        if tag == "equal":
            continue
        candidates = list(range(new_start, new_end))
        for index in range(start, end):
            if isinstance(old[index], ast.Import):  # no fix edits one: `import torch` is new, if it is alike
                yield old[index]
                continue
            alike = [each for each in candidates if type(new[each]) is type(old[index])]
            similar = max(alike, key=lambda each: likeness(before[index], after[each]), default=None)
            if similar is not None and likeness(before[index], after[similar]) >= SIMILAR:
                candidates.remove(similar)
            else:
                yield old[index]


def likeness(one: str, other: str) -> float:
    """Return how much of two texts is the same, from 0 to 1."""
    return SequenceMatcher(None, one, other, autojunk=False).ratio()


def owner(comment: Comment, statements: list[ast.stmt]) -> ast.stmt | None:
    """Return the statement that a comment belongs to, if that is clear.

    That is the statement on its line, or else the one below it. A comment after the last statement of a
    block belongs to that statement, also if it is deeper.
    """
    around = [node for node in statements if node.lineno <= comment.line <= (node.end_lineno or node.lineno)]
    innermost = around[-1] if around else None
    body = getattr(innermost, "body", None)
    if innermost and (not body or (not comment.alone and comment.line < body[0].lineno)):
        return innermost
    below = next((node for node in statements if node.lineno > comment.line), None)
    if below and (below.col_offset >= comment.column or not comment.alone):
        return below
    above = [node for node in statements if (node.end_lineno or 0) < comment.line]
    if above and above[-1].col_offset < comment.column:
        return above[-1]
    return next((node for node in reversed(above) if node.col_offset == comment.column), None)
