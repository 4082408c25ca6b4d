"""The files from which a project is installed on a machine without CUDA."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from devicefix.files.kinds import Environment, environment_of
from devicefix.rules.environment.examine import for_cpu, is_for_cuda, variant_name
from devicefix.rules.environment.requirements import includes


@dataclass(frozen=True, slots=True)
class Variant:
    """A new file to install from on a machine without CUDA.

    Attributes:
        original: the file that it is made from.
        path: its path.
        content: its content.
        exists: whether there is such a file already, which stays as it is.
    """

    original: str
    path: str
    content: bytes
    exists: bool = False

    @property
    def command(self) -> str:
        """The command that installs from it."""
        if environment_of(self.original) is Environment.CONDA:
            return f"conda env create -f {self.path}"
        return f"pip install -r {self.path}"


def environment(files: Iterable[Path]) -> list[Variant]:
    """Return the variants of files for a machine without CUDA.

    Args:
        files: the files of the project.
    """
    texts = {os.fspath(file): data for file in files if (data := _read(file)) is not None}
    texts = {path: data for path, data in texts.items() if _is_of_cpu(path, texts)}
    found: dict[str, bytes] = {}
    before = -1
    while len(found) > before:  # a file that includes one with a variant has one, too
        before = len(found)
        for path, data in texts.items():
            new = for_cpu(data, path, _with_variants(path, data, found))
            if new is not None:
                found[path] = new
    named = ((path, variant_name(path), content) for path, content in found.items())
    return [Variant(path, name, content, os.path.lexists(name)) for path, name, content in named]


def _is_of_cpu(path: str, paths: Iterable[str]) -> bool:
    """Return whether a machine without CUDA installs from a file, or from a variant of it.

    If all files of the kind in a folder are for CUDA, that is the last one, which is for the latest version.
    """
    folder, kind = os.path.dirname(path), environment_of(path)
    alike = [each for each in paths if os.path.dirname(each) == folder and environment_of(each) is kind]
    neutral = [each for each in alike if not is_for_cuda(each)]
    return path in neutral if neutral else path == max(alike)


def _with_variants(path: str, data: bytes, found: Iterable[str]) -> list[str]:
    """Return the names of the files with variants that a file includes, as it spells them."""
    if environment_of(path) is not Environment.REQUIREMENTS:
        return []
    text = data.decode(errors="replace")
    folder = os.path.dirname(path)
    real = {os.path.realpath(other) for other in found}
    names = (text[start:end] for start, end in includes(text))
    return [name for name in names if os.path.realpath(os.path.join(folder, name)) in real]


def _read(file: Path) -> bytes | None:
    if environment_of(str(file)) not in (Environment.REQUIREMENTS, Environment.CONDA):
        return None
    try:
        return file.read_bytes()
    except OSError:
        return None
