"""Environments of conda: `environment.yml`, whose lists may hold requirements of pip."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from devicefix.files.positions import Lines
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
        content = YAML(typ="rt").load(text)
    except (YAMLError, ValueError, AttributeError):
        return
    if not isinstance(content, dict) or not isinstance(content.get("dependencies"), list):
        return
    lines = Lines(text)
    only = "cpuonly" if "pytorch" in (content.get("channels") or ()) else ""
    for index, entry in enumerate(content["dependencies"]):
        if isinstance(entry, str):
            for found in _package(text, lines, content["dependencies"], index):
                of_torch = bool(only) and not found.cpu and _CUDA_VERSION.match(entry) is not None
                yield replace(found, cpu=only) if of_torch else found  # or conda may choose a CUDA build
                only = "" if of_torch else only
        elif isinstance(entry, dict) and isinstance(entry.get("pip"), list):
            for number, requirement in enumerate(entry["pip"]):
                if isinstance(requirement, str):
                    yield from _requirement(text, lines, entry["pip"], number)


def _package(text: str, lines: Lines, items: Any, index: int) -> Iterator[Problem]:
    entry, (start, end) = items[index], _span(text, lines, items, index)
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


def _requirement(text: str, lines: Lines, items: Any, index: int) -> Iterator[Problem]:
    start, end = _span(text, lines, items, index)
    if text[start:end] == items[index]:
        for found in requirements.problems(items[index]):
            if found.start == 0:
                yield _moved(found, start, start + found.end)


def _moved(found: Problem, start: int, end: int) -> Problem:
    return Problem(start, end, found.code, found.message, found.safe, found.cpu)


def _span(text: str, lines: Lines, items: Any, index: int) -> tuple[int, int]:
    """Return the offsets of a plain item of a list."""
    line, column = items.lc.item(index)
    start = lines.offset(line + 1, column + 1)
    if text[start : start + 1] in "'\"":
        start += 1
    return start, start + len(items[index])
