"""Programs of odd but legal Python, rewritten, on the simulated CUDA machine and on a CPU.

They are in the folder `odd_programs`. A header `=== name` begins a program, and `--- module` a module of it;
one without such a header is `main`. A program means the same once it is rewritten, or it fails on the CPU
and a finding that is left covers that (`=== name | reported`). Each module begins with `import torch`, unless
it imports torch itself or says that it is without it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import meaning
import pytest
from meaning import Judge
from meaning_programs import Program

from devicefix.config.settings import Settings
from devicefix.engine.file import check_file
from devicefix.facts.project import Project, ProjectFile

pytestmark = pytest.mark.needs("numpy", "torch")

FOLDER = Path(__file__).parent / "odd_programs"
_PROGRAM = re.compile(r"^=== ", re.M)
_MODULE = re.compile(r"^--- (\w+)\n", re.M)
_HAS_ITS_OWN = re.compile(r"^\s*import torch(?: as \w+)?$|\A# without torch$", re.M)


def modules(text: str) -> Iterator[tuple[str, str]]:
    """Yield the modules of a program, each with its source."""
    first, *others = _MODULE.split(text)
    for name, source in [("main", first), *zip(others[::2], others[1::2], strict=True)]:
        if source.strip():
            yield name, source if _HAS_ITS_OWN.search(source) else f"import torch\n{source}"


def programs() -> Iterator[tuple[str, str, dict[str, str]]]:
    """Yield the programs: the name, the category of the rewrite, and the modules."""
    for path in sorted(FOLDER.glob("*.txt")):
        for text in _PROGRAM.split(path.read_text(encoding="utf-8"))[1:]:
            header, _, body = text.partition("\n")
            name, _, category = header.partition(" | ")
            yield f"{path.stem}: {name}", category or meaning.FINE, dict(modules(body))


PROGRAMS = list(programs())


@pytest.mark.parametrize(
    ("category", "files"),
    [
        pytest.param(category, files, id=name, marks=[pytest.mark.slow] * (number % 3 > 0))
        for number, (name, category, files) in enumerate(PROGRAMS)
    ],
)
def test_the_meaning_stays(judge: Judge, category: str, files: dict[str, str]) -> None:
    verdict = judge(Program(files))
    assert verdict.category == category, meaning.shown(verdict)


@pytest.mark.parametrize(
    "files",
    [
        pytest.param(files, id=name, marks=[pytest.mark.slow] * (number % 5 > 0))
        for number, (name, _, files) in enumerate(PROGRAMS)
    ],
)
def test_unsafe_fixes_give_python(files: dict[str, str]) -> None:
    data = {f"{name}.py": source.encode() for name, source in files.items()}
    project = Project(ProjectFile(content, path) for path, content in data.items())
    for path, content in data.items():
        output = check_file(content, path, Settings(fix=True, unsafe_fixes=True), project).output
        compile(output or content, path, "exec", dont_inherit=True)
