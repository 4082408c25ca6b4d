"""Projects: the dependencies, indexes and sources in `pyproject.toml` and `setup.cfg`."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator

from devicefix.rules.environment import requirements
from devicefix.rules.environment.requirements import INDEX, Problem

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

_TOKEN = re.compile(
    r'''
    ^[ \t]*\[{1,2}(?P<table>[^\[\]\n]+)\]{1,2}[ \t\r]*(?:\#[^\n]*)?$ | ^[ \t]*(?P<key>[\w.-]+)[ \t]*=
    | """(?:\\.|[^\\])*?""" | \'{3}.*?\'{3} | \#[^\n]*
    | "(?P<basic>(?:\\.|[^"\\\n])*)" | \'(?P<literal>[^\'\n]*)\'
    ''',
    re.M | re.S | re.X,
)
# What every installation has (PEP 621 and PEP 518); an extra or a group is the right place for CUDA.
_REQUIRED = ("project.dependencies", "build-system.requires")
_URL = re.compile(r"https?://\S*(?<![a-z])cu\d{2,3}(?!\d)\S*")
_CFG_LIST = re.compile(
    r"^(?:install_requires|setup_requires)[ \t]*=[ \t]*(.*(?:\n(?:[ \t]+.*|[ \t]*(?=\n)))*)", re.M
)
_LONGEST = 4000  # characters of a list in setup.cfg


def problems(text: str) -> Iterator[Problem]:
    """Yield what needs CUDA in a project's TOML; nothing if the text is not TOML."""
    try:
        tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError):
        return
    table, key = "", ""
    for match in _TOKEN.finditer(text):
        table, key = match["table"] or table, match["key"] or ("" if match["table"] else key)
        group = "basic" if match["basic"] is not None else "literal"
        value = match[group]
        if value is None:
            continue
        if f"{table.strip()}.{key}".lstrip(".") in _REQUIRED:
            quote = '"' if group == "basic" else "'"
            yield from _quoted(requirements.examine(value, match.start(group)), quote)
        elif _URL.fullmatch(value):
            message = f"`{value}` has only CUDA builds; without CUDA, use an index with CPU builds"
            yield Problem(match.start(group), match.end(group), INDEX, message)


def _quoted(found: Problem | None, quote: str) -> Iterator[Problem]:
    """Yield a problem whose new texts fit between quotes."""
    if found is None:
        return
    other = "'" if quote == '"' else '"'

    def spelled(new: str | None) -> str | None:
        return new if new is None else new.replace(quote, other)

    yield Problem(found.start, found.end, found.code, found.message, spelled(found.safe), None)


def cfg_problems(text: str) -> Iterator[Problem]:
    """Yield what needs CUDA in the requirements of `setup.cfg`."""
    for values in _CFG_LIST.finditer(text):
        for found in requirements.problems(values[1][:_LONGEST]):
            at = values.start(1)
            yield Problem(at + found.start, at + found.end, found.code, found.message, found.safe)
