"""Find keys and values of YAML, JSON and TOML, with their positions.

The parsers of the standard library give no positions, and reject a file because of a comment or a tab. PyYAML reads
YAML and JSON; a pattern finds the keys of TOML.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import yaml


@dataclass(frozen=True, slots=True)
class Pair:
    """A key with its value or values; `start` and `end` are their offsets in the text.

    `path` is the key with those around it, such as `training.device`.
    """

    key: str
    values: tuple[str, ...]
    start: int
    end: int
    several: bool = False  # a list, even of one value
    shell: bool = False
    path: str = ""


# A string that is not closed ends with its line: to look for its end again at each quote in it takes long.
_STRING = r'"(?:\\.|[^"\\\n])*"?|\'(?:\\.|[^\'\\\n])*\'?'
_COMMENT = re.compile(rf"({_STRING})|//[^\n]*|/\*.*?(?:\*/|\Z)|\t", re.S)
_WORD = rf"{_STRING}|[^\s{{}}\[\](),=\"'#]+"
_TOML = re.compile(
    rf'#[^\n]*|"""(?:\\.|[^\\])*?(?:"""|\Z)|\'\'\'.*?(?:\'\'\'|\Z)'
    rf"|(?m:^)[ \t]*\[+(?P<table>[\w.-]+)\]|(?P<key>{_WORD})[ \t]*=[ \t]*(?:(?!\"\"\"|\'\'\')(?P<value>{_WORD})"
    rf"|\[(?P<list>[^\[\]]*)\])|{_WORD}",
    re.S,
)


def json_pairs(text: str) -> Iterator[Pair]:
    """Yield the pairs of JSON, with or without comments, which is YAML but for these and for tabs."""
    yield from yaml_pairs(_COMMENT.sub(lambda found: found[1] or _blank(found), text))


def toml_pairs(text: str) -> Iterator[Pair]:
    """Yield the pairs of TOML."""
    table = ""
    for found in _TOML.finditer(text):
        table = f"{found['table']}." if found["table"] else table
        several = found["value"] is None
        words = re.findall(_WORD, re.sub(r"#.*", "", found["list"] or "")) if several else [found["value"]]
        if found["key"] and words:
            key = _plain(found["key"])
            yield Pair(key, tuple(map(_plain, words)), *found.span(), several, path=table + key)


def _plain(word: str) -> str:
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
    todo = [(node, "") for node in _documents(_TEMPLATE.sub(_blank, text))]
    seen: set[yaml.Node] = set()
    while todo:
        node, path = todo.pop()
        if node in seen or isinstance(node, yaml.ScalarNode):
            continue
        seen.add(node)  # an alias repeats a node
        inner = [(each, path) for each in node.value]
        if isinstance(node, yaml.MappingNode):
            yield from (pair for key, value in node.value if (pair := _pair(key, value, path)) is not None)
            inner = [each for k, v in node.value for each in ((k, path), (v, f"{path}{k.value}."))]
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


def _pair(key: yaml.Node, value: yaml.Node, path: str) -> Pair | None:
    """Return the pair of a key with a value, or with a list of values; None for others, and for block texts."""
    is_list = isinstance(value, yaml.SequenceNode)
    nodes = value.value if is_list else [value]
    are_plain = (isinstance(each, yaml.ScalarNode) and each.style not in ("|", ">") for each in (key, *nodes))
    if not nodes or not all(are_plain):
        return None
    last = nodes[-1] if isinstance(value, yaml.SequenceNode) and not value.flow_style else value
    start, end = key.start_mark.index, last.end_mark.index
    values = tuple(each.value for each in nodes)
    return Pair(key.value, values, start, end, is_list, path=path + key.value) if start < end else None
