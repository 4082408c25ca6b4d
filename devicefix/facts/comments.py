"""`# noqa` comments: what they silence, how one is added, and which of them do nothing.

They are read as ruff and flake8 read them, and the codes of other tools stay as they are:
https://docs.astral.sh/ruff/linter/#error-suppression.
"""

from __future__ import annotations

import ast
import re
import tokenize
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from devicefix.config.values import nearest
from devicefix.facts.tree import walk
from devicefix.files.text import Source, parse
from devicefix.model import Edit, Finding, Fix

if TYPE_CHECKING:
    from devicefix.config.settings import Settings

SKIP_FILE = re.compile(rb"^[ \t]*#\s*devicefix:\s*skip-file\b", re.M)
UNUSED = "DF001"

_CODE = r"[A-Z]+[0-9]+\b"
_DIRECTIVE = re.compile(  # within one line; a colon without a code says nothing that can be meant
    rf"#[^\S\r\n]*noqa\b(?::[^\S\r\n]*(?P<codes>{_CODE}(?:(?:,|[^\S\r\n])+{_CODE})*)|(?!:))", re.I
)
_OURS = re.compile(r"DF\d+")


# -- what is silenced ----------------------------------------------------------------------------------


def silenced(source: Source, finding: Finding, module: ast.Module | None = None) -> bool:
    """Return whether a comment silences a finding.

    The comment is at the end of the finding's first or last line. Where a string or a backslash continues
    that line, it is at the end of the line that ends the string.

    Args:
        source: the file's text.
        finding: a finding in it.
        module: its syntax tree, where it has one.
    """
    silencing = [line for line, codes in _silencing(source).items() if codes is None or finding.code in codes]
    return bool(silencing) and any(line in silencing for line in _lines(source, finding, module))


def _lines(source: Source, finding: Finding, module: ast.Module | None) -> Iterator[int]:
    """Return the lines where a comment silences a finding."""
    yield finding.line
    yield finding.end_line
    if module is not None:
        yield comment_line(source, module, finding.line)
        yield comment_line(source, module, finding.end_line)


@lru_cache(maxsize=1)
def _silencing(source: Source) -> dict[int, set[str] | None]:
    """Return the codes that `# noqa: ...` names, by line; None for a `# noqa` that silences all."""
    found: dict[int, set[str] | None] = {}
    for match in _DIRECTIVE.finditer(source.text):
        line = source.position(match.start())[0]
        codes = found.setdefault(line, set())
        if match["codes"] is None:
            found[line] = None
        elif codes is not None:
            codes.update(_split(match["codes"]))
    return found


def _split(codes: str) -> list[str]:
    return re.split(r"[,\s]+", codes.upper())


def comment_line(source: Source, module: ast.Module, line: int) -> int:
    """Return the first line, from `line` on, at whose end a comment can be added."""
    strings = _long_strings(source, module)
    while line < len(source.line_starts):
        behind = max((last for first, last in strings if first <= line < last), default=line)
        start = source.line_starts[behind - 1]
        text = source.text[start : source.line_end(start)]
        if behind == line:
            if not text.endswith("\\") or "#" in text:  # which may end a comment
                break
            behind += 1
        line = behind
    return line


@lru_cache(maxsize=1)
def _long_strings(source: Source, module: ast.Module) -> list[tuple[int, int]]:
    """Return the first and the last line of each string in triple quotes that has several."""
    if '"""' not in source.text and "'''" not in source.text:
        return []
    strings = (node for node in walk(module) if isinstance(node, (ast.Constant, ast.JoinedStr)))
    lines = ((node.lineno, node.end_lineno or 0, node) for node in strings if node.lineno != node.end_lineno)
    return [(first, last) for first, last, node in lines if re.search("\"\"\"|'''", source.code(node))]


# -- comments ------------------------------------------------------------------------------------------


def _comments(source: Source) -> dict[int, tuple[int, int]]:
    """Return the span of each comment, by line."""
    found = {}
    for kind, text, (line, column), _, _ in _tokens(source):
        if kind == tokenize.COMMENT:
            start = source.line_starts[line - 1] + column
            found[line] = start, start + len(text)
    return found


def _tokens(source: Source) -> Iterator[tokenize.TokenInfo]:
    starts = source.line_starts
    lines = (source.text[start : source.line_end(start)] + "\n" for start in starts)
    return tokenize.generate_tokens(lambda: next(lines, ""))


def _directive(source: Source, comment: tuple[int, int]) -> re.Match[str] | None:
    """Return the first directive in a comment that names codes."""
    return next((match for match in _DIRECTIVE.finditer(source.text, *comment) if match["codes"]), None)


# -- add -----------------------------------------------------------------------------------------------


class Added(NamedTuple):
    """A file's bytes with comments that silence findings, how many lines have changed, and what is left."""

    data: bytes
    lines: int
    left: list[Finding]


def add(data: bytes, findings: Iterable[Finding]) -> Added:
    """Silence findings by comments at the ends of their lines.

    Nothing but comments changes, which is proved by the tokens of both texts; a finding that cannot be
    silenced so is left.

    Args:
        data: the file's bytes.
        findings: what was found in it.
    """
    findings = list(findings)
    unchanged = Added(data, 0, findings)
    try:
        source = Source(data)
        module = parse(source.text)
        comments = _comments(source)
    except Exception:  # the findings say why the file cannot be parsed
        return unchanged
    wanted: dict[int, set[str]] = {}
    for finding in findings:
        if finding.code != UNUSED:
            wanted.setdefault(comment_line(source, module, finding.line), set()).add(finding.code)
    edits = [_with_codes(source, line, comments.get(line), codes) for line, codes in wanted.items()]
    text = source.text
    for start, end, new in sorted(edits, reverse=True):
        text = text[:start] + new + text[end:]
    after = Source(source.encode(text))
    if not _same_code(source, after):
        return unchanged
    module = parse(text)
    left = [finding for finding in findings if not silenced(after, finding, module)]
    return Added(source.encode(text), len(edits), left)


def _with_codes(
    source: Source, line: int, comment: tuple[int, int] | None, codes: set[str]
) -> tuple[int, int, str]:
    """Return the edit that gives a line's comment these codes."""
    directive = _directive(source, comment) if comment is not None else None
    if directive is not None:
        named = ", ".join(sorted(codes.union(_split(directive["codes"]))))
        return *directive.span(), f"# noqa: {named}"
    start = source.line_starts[line - 1]
    end = source.line_end(start)
    kept = len(source.text[start:end].rstrip(" \t\f"))
    return start + kept, end, f"  # noqa: {', '.join(sorted(codes))}"


def _same_code(before: Source, after: Source) -> bool:
    """Return whether two texts differ only in comments."""

    def code(source: Source) -> list[tuple[int, str, int]]:
        return [(kind, text, at[0]) for kind, text, at, *_ in _tokens(source) if kind != tokenize.COMMENT]

    return code(before) == code(after)


# -- unused --------------------------------------------------------------------------------------------


def may_be_unused(data: bytes, settings: Settings) -> bool:
    """Return whether a file's bytes may hold a comment that `unused` reports."""
    return (b"noqa" in data or b"NOQA" in data) and settings.enabled(UNUSED, default=False)


def unused(
    source: Source, module: ast.Module, found: list[Finding], rules: Mapping[str, bool]
) -> Iterator[Finding]:
    """Report the comments that name codes of devicefix which are not found on their lines.

    Args:
        source: the file's text.
        module: its syntax tree.
        found: what was found in it, silenced or not.
        rules: all codes, true for those that are on. Nothing is reported of the others.
    """
    if not any(_OURS.match(code) for codes in _silencing(source).values() if codes for code in codes):
        return
    used = {(line, finding.code) for finding in found for line in _lines(source, finding, module)}
    for line, comment in _comments(source).items():
        directive = _directive(source, comment)
        codes = _split(directive["codes"]) if directive is not None else []
        idle = [code for code in codes if _is_idle(code, line, used, rules)]
        if directive is not None and idle and UNUSED not in codes:
            place = *source.position(directive.start()), *source.position(directive.end())
            fix = _without(source, directive, comment, [code for code in codes if code not in idle])
            yield Finding(UNUSED, f"unused `noqa`: {_reason(idle, rules)}", *place, fix)


def _is_idle(code: str, line: int, used: set[tuple[int, str]], rules: Mapping[str, bool]) -> bool:
    """Return whether a code does nothing in a line, and is no other tool's."""
    return rules[code] and (line, code) not in used if code in rules else bool(_OURS.fullmatch(code))


def _reason(idle: Sequence[str], rules: Mapping[str, bool]) -> str:
    """Return why codes do nothing."""
    known = [code for code in idle if code in rules]
    verb = "is" if len(known) == 1 else "are"
    unreported = [f"{' and '.join(known)} {verb} not reported here"] if known else []
    unknown = [f"no rule has the code {code!r}{_hint(code, rules)}" for code in idle if code not in rules]
    return ", and ".join([*unreported, *unknown])


def _hint(code: str, rules: Iterable[str]) -> str:
    is_part = any(each.startswith(code) for each in rules)
    return "; write full codes, not prefixes" if is_part else nearest(code, rules)


def _without(source: Source, directive: re.Match[str], comment: tuple[int, int], kept: list[str]) -> Fix:
    """Return the fix that leaves only some codes in a comment, or removes it if nothing else is in it."""
    if kept:
        return Fix((Edit(directive.start("codes"), directive.end(), ", ".join(kept)),))
    begin, end = comment
    text = source.text
    following = text.find("#", directive.end(), end)  # up to it, words are the reason of this one
    if following >= 0:
        return Fix((Edit(directive.start(), following, ""),))
    number = source.position(begin)[0]
    line = source.line_starts[number - 1]
    start = line + len(text[line : directive.start()].rstrip(" \t\f"))
    if start == line and begin == directive.start() and number < len(source.line_starts):
        return Fix((Edit(line, source.line_starts[number], ""),))
    return Fix((Edit(start, end, ""),))
