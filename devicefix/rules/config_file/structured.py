"""Find keys and values of YAML, JSON and TOML, with their positions.

The parsers of the standard library give no positions, and reject a file because of a comment or a tab. The scanner
for JSON and TOML distinguishes keys from strings and comments, and skips anything else. PyYAML reads YAML.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import yaml


@dataclass(frozen=True, slots=True)
class Pair:
    """A key with its value or values; `start` and `end` are their offsets in the text."""

    key: str
    values: tuple[str, ...]
    start: int
    end: int
    several: bool = False  # a list, even of one value
    shell: bool = False


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str  # "word", or the character itself
    text: str
    start: int
    end: int


# A string that is not closed ends with its line: to look for its end again at each quote in it takes long.
_STRING = r'"(?:\\.|[^"\\\n])*"?|\'(?:\\.|[^\'\\\n])*\'?'
_JSON = re.compile(
    rf"(?P<skip>//[^\n]*|/\*.*?(?:\*/|\Z)|\#[^\n]*)|(?P<word>{_STRING}|[^\s{{}}\[\](),:\"'#/][^\s{{}}\[\](),:\"'#]*)|[{{}}\[\](),:]",
    re.S,
)
_TOML = re.compile(
    rf'(?P<skip>\#[^\n]*|"""(?:\\.|[^\\])*?(?:"""|\Z)|\'\'\'.*?(?:\'\'\'|\Z))|(?P<word>{_STRING}|[^\s{{}}\[\](),=\"\'#]+)|[{{}}\[\](),=\n]',
    re.S,
)
_MANY = 1000  # list items; a list with more contains data


def json_pairs(text: str) -> Iterator[Pair]:
    """Yield the pairs of JSON, with or without comments."""
    yield from _pairs(list(_tokens(_JSON, text)), ":")


def toml_pairs(text: str) -> Iterator[Pair]:
    """Yield the pairs of TOML."""
    yield from _pairs(list(_tokens(_TOML, text)), "=")


def _tokens(pattern: re.Pattern[str], text: str) -> Iterator[_Token]:
    for match in pattern.finditer(text):
        if match.lastgroup == "word":
            word = match.group().rstrip()
            yield _Token("word", word, match.start(), match.start() + len(word))
        elif match.lastgroup is None:
            yield _Token(match.group(), match.group(), *match.span())


def _pairs(tokens: list[_Token], separator: str) -> Iterator[Pair]:
    for index in range(1, len(tokens) - 1):
        key, colon, value = tokens[index - 1], tokens[index], tokens[index + 1]
        if colon.kind != separator or key.kind != "word":
            continue
        if value.kind == "word":
            yield Pair(plain(key.text), (plain(value.text),), key.start, value.end)
        elif value.kind in "[(":
            items, end = _items(tokens, index + 2)
            if items:
                yield Pair(plain(key.text), items, key.start, end, several=True)


def _items(tokens: list[_Token], index: int) -> tuple[tuple[str, ...], int]:
    """Return the words of a list and its end; no words if it contains anything else."""
    items = []
    for token in tokens[index : index + _MANY]:
        if token.kind == "word":
            items.append(plain(token.text))
        elif token.kind in "])":
            return tuple(items), token.end
        elif token.kind not in ",\n":
            break
    return (), 0


def plain(word: str) -> str:
    """Return a word without its quotes."""
    return word[1:-1] if len(word) > 1 and word[0] in "'\"" and word[-1] == word[0] else word


# -- YAML ---------------------------------------------------------------------------------------------

_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_REPAIRS = 20  # lines that may be left out
_LINE = re.compile(r".*")
_TEMPLATE = re.compile(r"^.*(?:\{\{|\{%).*$", re.M)  # of Helm or Jinja
_ERRORS = (yaml.YAMLError, ValueError, OverflowError, RecursionError)  # such as an escape of no character


def yaml_pairs(text: str) -> Iterator[Pair]:
    """Yield the pairs of YAML, without the lines of templates and those that can't be parsed."""
    todo = list(_documents(_TEMPLATE.sub(_blank, text)))
    seen: set[yaml.Node] = set()
    while todo:
        node = todo.pop()
        if node in seen or isinstance(node, yaml.ScalarNode):
            continue
        seen.add(node)  # an alias repeats a node
        if isinstance(node, yaml.MappingNode):
            yield from (pair for key, value in node.value if (pair := _pair(key, value)) is not None)
        inner = [part for each in node.value for part in (each if isinstance(each, tuple) else (each,))]
        todo += reversed(inner)


def _documents(text: str) -> Iterator[yaml.Node]:
    for _ in range(_REPAIRS):
        try:
            found = list(yaml.compose_all(text, Loader=_LOADER))
        except yaml.MarkedYAMLError as problem:
            at = problem.problem_mark.index if problem.problem_mark else 0
            start = text.rfind("\n", 0, at) + 1
            text = text[:start] + _LINE.sub(_blank, text[start:], count=1)
        except _ERRORS:
            return
        else:
            yield from found
            return


def _blank(found: re.Match[str]) -> str:
    return " " * len(found[0])


def _pair(key: yaml.Node, value: yaml.Node) -> Pair | None:
    """Return the pair of a key with a value, or with a list of values; None for others, and for block texts."""
    is_list = isinstance(value, yaml.SequenceNode)
    nodes = value.value if is_list else [value]
    are_plain = (isinstance(each, yaml.ScalarNode) and each.style not in ("|", ">") for each in (key, *nodes))
    if not nodes or not all(are_plain):
        return None
    last = nodes[-1] if isinstance(value, yaml.SequenceNode) and not value.flow_style else value
    start, end = key.start_mark.index, last.end_mark.index
    return Pair(key.value, tuple(each.value for each in nodes), start, end, is_list) if start < end else None
