"""The check of what a notebook holds besides Python: shell commands, cells of CUDA, and the machine that it asks for."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from devicefix.files.positions import Lines
from devicefix.model import Finding
from devicefix.rules.config_file import ConfigFile
from devicefix.rules.config_file.shell import shell_pairs
from devicefix.rules.config_file.ties import tie
from devicefix.rules.environment.commands import installed
from devicefix.rules.environment.requirements import INDEX, REQUIREMENT

if TYPE_CHECKING:
    from devicefix.config.settings import Settings

_SHELL_CELL = re.compile(r"\s*%%(?:bash|sh|script\s+(?:ba|z)?sh)\b")
_CUDA_CELL = re.compile(r"\s*(%%(?:cu|cuda\w*)\b|%(?:load_ext|reload_ext)\s+nvcc\w*)")
_COMMAND = re.compile(
    r"(?P<before>[ \t]*(?:[\w, \t]+=[ \t]*)?)(?:!+|%(?=(?:pip|conda|mamba)\b))(?P<command>.*)", re.S
)
_TOOL = re.compile(r"(?:\w+=\S+[ \t]+)*(nvidia-smi|nvcc)\b")
_ACCELERATOR = re.compile(r'"(?:accelerator|gpuType|isGpuEnabled)"\s*:\s*(?:"[^"]*"|true)')
_SHOWN = 60


def check_notebook(data: bytes, settings: Settings) -> list[Finding]:
    """Return what needs CUDA in a notebook besides its Python.

    Args:
        data: the bytes of the notebook; there are no findings if it is not one.
        settings: those for the file, which select the commands that install packages, and everything else.
    """
    try:
        notebook = json.loads(data)
        cells = list(enumerate(notebook["cells"], 1))
        found: list[Finding] = []
        if settings.config_files:
            found += _in_metadata(data.decode(), notebook["metadata"])
            found += [finding for number, cell in cells for finding in _in_cell(number, cell)]
        if settings.environment:
            found += [finding for number, cell in cells for finding in _installs(number, cell)]
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return []
    return [finding for finding in found if settings.enabled(finding.code)]


def _in_cell(number: int, cell: Any) -> Iterator[Finding]:
    source = cell["source"]
    text = source if isinstance(source, str) else "".join(source)
    if cell["cell_type"] != "code":
        return
    if compiled := _CUDA_CELL.match(text):
        message = f"`{compiled[1]}` compiles CUDA code, which needs a GPU; skip the cell if there is no GPU"
        yield _finding(text, compiled.start(1), compiled.end(1), message, number)
        return
    commands = _commands(text, ConfigFile.code)
    lines = commands.splitlines(keepends=True)
    at = 0
    for line in lines:
        if tool := _TOOL.match(line.lstrip()):
            start = at + len(line) - len(line.lstrip()) + tool.start(1)
            message = f"`{tool[1]}` may fail without a GPU; run it only if there is one"
            yield _finding(text, start, start + len(tool[1]), message, number)
        at += len(line)
    for pair in shell_pairs(commands):
        if why := tie(pair.key, pair.values, pair.several, pair.shell):
            code = " ".join(commands[pair.start : pair.end].split())[:_SHOWN]
            yield _finding(text, pair.start, pair.end, f"`{code}` {why}", number)


def _installs(number: int, cell: Any) -> Iterator[Finding]:
    source = cell["source"]
    text = source if isinstance(source, str) else "".join(source)
    if cell["cell_type"] == "code" and "install" in text:
        for problem in installed(_commands(text, REQUIREMENT, INDEX)):
            found = _finding(text, problem.start, problem.end, problem.message, number)
            yield replace(found, code=problem.code)


def _commands(text: str, *codes: str) -> str:
    """Return a cell with spaces in place of all that is not a command of the shell, or has `noqa` for a code."""
    comments = [f"noqa: {code.lower()}" for code in codes]
    shell = _SHELL_CELL.match(text)
    first, continues = True, False
    parts = []
    for line in text.splitlines(keepends=True):
        command = _COMMAND.fullmatch(line)
        if any(comment in line.lower() for comment in comments):
            kept = ""
        elif (shell and not first) or continues:
            kept = line
        else:
            kept = " " * (len(line) - len(command["command"])) + command["command"] if command else ""
        parts.append(kept or re.sub(r"[^\r\n]", " ", line))
        continues = bool(kept) and line.rstrip("\r\n").endswith("\\")
        first = False
    return "".join(parts)


def _in_metadata(text: str, metadata: Any) -> Iterator[Finding]:
    """Yield the finding for a notebook of Colab or Kaggle that asks for a GPU."""
    kaggle = metadata.get("kaggle") or {}
    accelerators = f"{metadata.get('accelerator', '')} {kaggle.get('accelerator', '')}".lower()
    if "gpu" not in accelerators and "nvidia" not in accelerators and kaggle.get("isGpuEnabled") is not True:
        return
    places = list(_ACCELERATOR.finditer(text))
    if places:
        advice = "remove the setting if the notebook also runs on a CPU"
        message = f"`{places[0][0]}` requests a machine with a GPU; {advice}"
        yield _finding(text, places[0].start(), places[0].end(), message, None)


def _finding(text: str, start: int, end: int, message: str, cell: int | None) -> Finding:
    lines = Lines(text)
    return Finding(ConfigFile.code, message, *lines.position(start), *lines.position(end), cell=cell)
