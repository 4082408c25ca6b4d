"""The check of a file of an environment, its safe fixes, and its variant for a machine without CUDA."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from devicefix.facts.comments import SKIP_FILE, silenced
from devicefix.files.kinds import Environment, environment_of
from devicefix.files.text import DecodeError, Source, replaced
from devicefix.model import Edit, Finding, Fix, Replacement, Result, SelfCheckError
from devicefix.rules.environment.requirements import Problem

if TYPE_CHECKING:
    from devicefix.config.settings import Settings

LARGEST = 1_000_000  # bytes; larger files are generated

_FOR_CUDA = re.compile(r"(?i)cuda|gpu|nvidia|(?<![a-z])cu\d{2,3}(?!\d)")
_CUDA_NAME = re.compile(r"(?i)[-_.]?(?:cuda[\d.]*|gpu|nvidia|(?<![a-z])cu\d{2,3}(?!\d))")

Reader = Callable[[str], Iterator[Problem]]


def check(data: bytes, path: str, settings: Settings) -> Result:
    """Check a file of an environment, and make the safe fixes if the settings say so.

    Args:
        data: the bytes of the file.
        path: the path, whose name says what the file is.
        settings: the settings for the file.
    """
    result = Result(path)
    source = _source(data)
    if source is None or is_for_cuda(path):
        return result
    found = [problem for problem in problems(source.text, path) if settings.enabled(problem.code)]
    kept = [
        (problem, finding) for problem in found if not silenced(source, finding := _finding(source, problem))
    ]
    result.findings = [finding for _, finding in kept]
    if not settings.fix:
        return result
    fixes = [(problem, finding) for problem, finding in kept if finding.fix and settings.fixes(problem.code)]
    if fixes:
        output = replaced(source.text, [(p.start, p.end, p.safe or "") for p, _ in fixes])
        after = [problem for problem in problems(output, path) if problem.safe is not None]
        if after:
            raise SelfCheckError("the fixes for its requirements never converge")
        result.output = source.encode(output)
        result.fixed = [finding for _, finding in fixes]
        done = {id(finding) for finding in result.fixed}
        left = [finding for finding in result.findings if id(finding) not in done]
        result.findings = [*result.fixed, *left]
    return result


def problems(text: str, path: str) -> list[Problem]:
    """Return what needs CUDA in a file of an environment, in the order of the text."""
    kind = environment_of(path)
    return [] if kind is None else sorted(_reader(kind)(text), key=lambda problem: problem.start)


def is_for_cuda(path: str) -> bool:
    """Return whether the name of a file says that it is for CUDA: a machine without CUDA uses another one."""
    return _FOR_CUDA.search(os.path.basename(path)) is not None


def for_cpu(data: bytes, path: str, variants: Iterable[str] = ()) -> bytes | None:
    """Return the variant of a file for a machine without CUDA; None if it would be the same, or makes no sense.

    Args:
        data: the bytes of the file.
        path: its path. Only requirements and environments of conda have variants.
        variants: the names of other files, as this one includes them, that have a variant, too.
    """
    kind = environment_of(path)
    source = _source(data)
    if kind not in (Environment.REQUIREMENTS, Environment.CONDA) or source is None:
        return None
    text, edits = source.text, []
    for problem in problems(text, path):
        if problem.cpu is None:
            continue
        edits.append((problem.start, problem.end, problem.cpu) if problem.cpu else _commented(text, problem))
    if kind is Environment.REQUIREMENTS:
        from devicefix.rules.environment.requirements import CPU_INDEX, includes, lacks_index

        known = set(variants)
        edits += [
            (*span, variant_name(name)) for span in includes(text) if (name := text[slice(*span)]) in known
        ]
        if lacks_index(text) and "constraint" not in os.path.basename(path).lower():
            edits.append((0, 0, f"--extra-index-url {CPU_INDEX}\n"))
    return source.encode(replaced(text, sorted(edits))) if edits else None


def variant_name(path: str) -> str:
    """Return the name of a file's variant: `requirements-cpu.txt` for `requirements.txt`."""
    folder, name = os.path.split(path)
    stem, dot, suffix = name.rpartition(".")
    neutral = _CUDA_NAME.sub("", stem)
    return os.path.join(folder, f"{neutral}-cpu{dot}{suffix}")


def _commented(text: str, problem: Problem) -> tuple[int, int, str]:
    """Return the edit that turns the lines of a problem into comments."""
    start = text.rfind("\n", 0, problem.start) + 1
    start += len(text[start : problem.start]) - len(text[start : problem.start].lstrip())
    lines = text[start : problem.end].split("\n")
    return start, problem.end, "\n".join(f"# {line}" for line in lines)


def _finding(source: Source, problem: Problem) -> Finding:
    places = *source.position(problem.start), *source.position(problem.end)
    if (new := problem.safe) is None:
        return Finding(problem.code, problem.message, *places)
    fix = Fix((Edit(problem.start, problem.end, new),), replacements=(Replacement(*places, new),))
    return Finding(problem.code, problem.message, *places, fix)


def _source(data: bytes) -> Source | None:
    """Return the text of a file; None if it is not checked."""
    if len(data) > LARGEST or b"\0" in data or SKIP_FILE.search(data):
        return None
    try:
        return Source(data)
    except DecodeError:
        return None


def _reader(kind: Environment) -> Reader:
    from devicefix.rules.environment import commands, conda, images, project, requirements

    readers: dict[Environment, Reader] = {
        Environment.CFG: project.cfg_problems,
        Environment.COMPOSE: images.compose_problems,
        Environment.CONDA: conda.problems,
        Environment.DOCKERFILE: images.dockerfile_problems,
        Environment.PROJECT: project.problems,
        Environment.REQUIREMENTS: requirements.problems,
        Environment.SCRIPT: commands.installed,
        Environment.WORKFLOW: commands.installed,
    }
    return readers[kind]
