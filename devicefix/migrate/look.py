"""Describe a project: its files, the frameworks that it imports, how it is started, and what it builds."""

from __future__ import annotations

import ast
import os
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from devicefix.files.kinds import NOTEBOOK, is_python
from devicefix.files.origin import is_test

# Packages that decide how a PyTorch program is built, started or distributed.
FRAMEWORKS = (
    "accelerate", "apex", "deepspeed", "diffusers", "fairscale", "hydra", "ignite", "lightning", "mmcv",
    "mmengine", "peft", "pytorch_lightning", "torch", "torch_geometric", "transformers", "vllm",
)  # fmt: skip
_NAMES = "|".join(FRAMEWORKS)
_IMPORT = re.compile(rf"^[ \t]*(?:import|from)[ \t]+({_NAMES})\b", re.M)
_MAIN = re.compile(r"^if[ \t]+__name__[ \t]*==[ \t]*['\"]__main__['\"]", re.M)
_TESTING = re.compile(r"^\s*(?:import|from)\s+(?:pytest|unittest)\b", re.M)  # `test_net.py` may be a script
_BUILDS = re.compile(r"\bCUDAExtension\b")
_COMMAND = re.compile(
    r"^[ \t$>]*((?:[A-Z_]+=\S+[ \t]+)*(?:python3?|torchrun|accelerate launch|deepspeed)[ \t]+[^\n`]+)", re.M
)
_PLACEHOLDER = re.compile(r"[<{\[$]|\.\.\.|/path|path/|your|download", re.I)
_README = re.compile(r"(?i)readme(\.\w+)?")
_LONGEST = 200  # characters of a command


@dataclass(slots=True)
class Look:
    """The description of a project.

    Attributes:
        root: its folder.
        files: the number of Python files.
        notebooks: the notebooks, by their paths below the folder.
        lines: the number of lines of the Python files.
        frameworks: the frameworks that it imports, with the number of files.
        scripts: the files that are started, by their paths below the folder.
        commands: the commands that its README gives.
        builds: the files that build a CUDA extension.
    """

    root: Path
    files: int = 0
    notebooks: list[str] = field(default_factory=list)
    lines: int = 0
    frameworks: Counter[str] = field(default_factory=Counter)
    scripts: list[str] = field(default_factory=list)
    commands: list[str] = field(default_factory=list)
    builds: list[str] = field(default_factory=list)


def look(root: Path, files: Iterable[Path]) -> Look:
    """Return what a project is.

    Args:
        root: its folder.
        files: its files.
    """
    found = Look(root)
    for file in files:
        if file.suffix == NOTEBOOK:
            found.notebooks.append(_inside(file, root))
            continue
        if not is_python(file.name):
            continue
        try:
            text = file.read_text(encoding="utf-8", errors="replace")
        except OSError:
            continue
        name = _inside(file, root)
        found.files += 1
        found.lines += text.count("\n")
        found.frameworks.update(set(_IMPORT.findall(text)))
        if _MAIN.search(text) and not (is_test(name) and _TESTING.search(text)):
            found.scripts.append(name)
        if _BUILDS.search(text) and _calls(text, "CUDAExtension"):
            found.builds.append(name)
    found.commands = commands_in(root)
    return found


def commands_in(root: Path) -> list[str]:
    """Return the commands in a project's README that start Python."""
    found: dict[str, None] = {}
    for name in sorted(os.listdir(root)) if root.is_dir() else ():
        if _README.fullmatch(name) and (root / name).is_file():
            text = (root / name).read_text(encoding="utf-8", errors="replace").replace("\\\n", " ")
            for command in _COMMAND.findall(text):
                words = command.partition(" #")[0].split()
                if _starts_own(words, root):
                    found.setdefault(" ".join(words)[:_LONGEST])
    return sorted(found, key=_unlikely)


def _starts_own(words: Sequence[str], root: Path) -> bool:
    """Return whether a command starts a script or module of the project, unlike `python -m venv env`."""
    scripts = [word for word in words if word.endswith(".py") and word != "setup.py"]
    modules = [word.replace(".", "/") for flag, word in pairwise(words) if flag == "-m"]
    own = [*scripts, *modules, *(f"{module}.py" for module in modules)]
    return any(os.path.exists(root / name) for name in own)


def _unlikely(command: str) -> bool:
    """Return whether a command needs something that the README only names, such as `/path/to/data`."""
    return _PLACEHOLDER.search(command) is not None


def _calls(text: str, name: str) -> bool:
    try:
        nodes: Sequence[ast.AST] = list(ast.walk(ast.parse(text)))
    except (SyntaxError, ValueError, RecursionError):
        return True
    calls = (node.func for node in nodes if isinstance(node, ast.Call))
    return any(name in (getattr(func, "id", ""), getattr(func, "attr", "")) for func in calls)


def _inside(file: Path, root: Path) -> str:
    try:
        return Path(os.path.relpath(file, root)).as_posix()
    except ValueError:  # on another drive
        return str(file)
