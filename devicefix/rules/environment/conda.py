"""Environments of conda: `environment.yml`, whose lists may hold requirements of pip."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

import yaml

from devicefix.rules.environment import requirements
from devicefix.rules.environment.packages import CONDA, CONDA_FOR_CPU
from devicefix.rules.environment.requirements import REQUIREMENT, Problem

_SPEC = re.compile(
    r"(?:[\w.-]+::)?(?P<name>[\w.-]+)(?P<version>[ \t]*=[^=\s]+(?:=(?P<build>\S+))?|[ \t]*[=<>!~].*)?"
)
_CUDA_VERSION = re.compile(r"(?:[\w.-]+::)?(?:cudatoolkit|pytorch-cuda)\b")
_CUDA_BUILD = re.compile(r".*(?:cuda|cu\d{2,3}|gpu).*", re.I)


def problems(text: str) -> Iterator[Problem]:
    """Yield what needs CUDA in an environment of conda; nothing if the text is not one.

    https://docs.conda.io/projects/conda/en/stable/user-guide/tasks/manage-environments.html
    """
    try:
        content = _mapping(yaml.compose(text, Loader=yaml.SafeLoader))
    except (yaml.YAMLError, ValueError, OverflowError, RecursionError):  # such as an escape of no character
        return
    channels = _items(content.get("channels"))
    only = "cpuonly" if any(_word(channel) == "pytorch" for channel in channels) else ""
    for entry in _items(content.get("dependencies")):
        word = _word(entry)
        for found in _package(text, entry, word) if word else ():
            of_torch = bool(only) and not found.cpu and _CUDA_VERSION.match(word) is not None
            yield replace(found, cpu=only) if of_torch else found  # or conda may choose a CUDA build
            only = "" if of_torch else only
        for requirement in _items(_mapping(entry).get("pip")):
            yield from _requirement(text, requirement, _word(requirement))


def _mapping(node: yaml.Node | None) -> dict[str, yaml.Node]:
    pairs = node.value if isinstance(node, yaml.MappingNode) else ()
    return {_word(key): value for key, value in pairs}


def _items(node: yaml.Node | None) -> list[yaml.Node]:
    """Return the items of a list; one that an alias repeats is there once."""
    return list(dict.fromkeys(node.value)) if isinstance(node, yaml.SequenceNode) else []


def _word(node: yaml.Node) -> str:
    return str(node.value) if node.tag == "tag:yaml.org,2002:str" else ""


def _package(text: str, node: yaml.Node, entry: str) -> Iterator[Problem]:
    start, end = _span(text, node, entry)
    found = _SPEC.fullmatch(entry.strip())
    if found is None or text[start:end] != entry:
        return
    name = found["name"].lower()
    build = found["build"]
    if name in CONDA_FOR_CPU:
        other = CONDA_FOR_CPU[name]
        message = f"`{name}` is a CUDA build; without CUDA, use `{other}`"
        yield Problem(start, end, REQUIREMENT, message, None, entry.replace(found["name"], other, 1))
    elif CONDA.fullmatch(name):
        message = f"`{name}` installs CUDA; without CUDA, leave it out"
        yield Problem(start, end, REQUIREMENT, message, None, "")
    elif build and _CUDA_BUILD.fullmatch(build):
        plain = entry[: entry.rindex(f"={build}")]
        message = f"`{build}` is a CUDA build; without CUDA, use `{plain}`"
        yield Problem(start, end, REQUIREMENT, message, None, plain)


def _requirement(text: str, node: yaml.Node, requirement: str) -> Iterator[Problem]:
    start, end = _span(text, node, requirement)
    if text[start:end] == requirement:
        for found in requirements.problems(requirement):
            if found.start == 0:
                yield replace(found, start=start, end=start + found.end)


def _span(text: str, node: yaml.Node, word: str) -> tuple[int, int]:
    """Return the offsets of a string without its quotes."""
    start: int = node.start_mark.index
    start += text.startswith(("'", '"'), start)
    return start, start + len(word)
