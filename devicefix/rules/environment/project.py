"""Projects: the dependencies, indexes and sources in `pyproject.toml` and `setup.cfg`."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping
from typing import Any

from devicefix.rules.environment import requirements
from devicefix.rules.environment.requirements import INDEX, Problem

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

_STRING = re.compile(
    r'"""(?:\\.|[^\\])*?"""|\'\'\'.*?\'\'\'|"((?:\\.|[^"\\\n])*)"|\'([^\'\n]*)\'|#[^\n]*', re.S
)
_URL = re.compile(r"https?://\S*(?<![a-z])cu\d{2,3}(?!\d)\S*")
_CFG_LIST = re.compile(
    r"^(?:install_requires|setup_requires)[ \t]*=[ \t]*(.*(?:\n(?:[ \t]+.*|[ \t]*(?=\n)))*)", re.M
)
_LONGEST = 4000  # characters of a list in setup.cfg


def problems(text: str) -> Iterator[Problem]:
    """Yield what needs CUDA in a project's TOML; nothing if the text is not TOML."""
    try:
        content = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError):
        return
    listed = set(_requirements(content))
    for match in _STRING.finditer(text):
        group = 1 if match[1] is not None else 2
        value = match[group]
        if value is None:
            continue
        if value in listed:
            yield from _quoted(requirements.examine(value, match.start(group)), '"' if group == 1 else "'")
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


def _requirements(content: Mapping[str, Any]) -> Iterator[str]:
    """Yield the requirements that every installation of a project has (PEP 621 and PEP 518).

    An extra or a group is the right place for what needs CUDA.
    """
    project, build = _table(content.get("project")), _table(content.get("build-system"))
    for values in (project.get("dependencies"), build.get("requires")):
        if isinstance(values, list):
            yield from (value for value in values if isinstance(value, str))


def _table(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def cfg_problems(text: str) -> Iterator[Problem]:
    """Yield what needs CUDA in the requirements of `setup.cfg`."""
    for values in _CFG_LIST.finditer(text):
        for found in requirements.problems(values[1][:_LONGEST]):
            at = values.start(1)
            yield Problem(at + found.start, at + found.end, found.code, found.message, found.safe)
