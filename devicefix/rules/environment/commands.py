"""Commands that install packages, in Dockerfiles, scripts and CI workflows."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from devicefix.rules.environment.packages import CONDA
from devicefix.rules.environment.requirements import OPTION, REQUIREMENT, Problem, examine, index

_INSTALL = re.compile(
    r"\b(?P<tool>pip3?|conda|mamba|micromamba)[ \t]+install\b(?P<words>(?:[^\n\\;&|#]|\\[ \t]*\r?\n)*)"
)
# A comment, or a text that is printed.
_NOT_RUN = re.compile(r"(?:^|[ \t])#|\b(?:echo|printf)\b[^;&|]*$")
_WORD = re.compile(r"(?P<quote>[\"']?)(?P<text>[^\s\"'\\]+)(?P=quote)")
_WITH_VALUE = {"-c", "-n", "-p", "-r", "-t", "--channel", "--name", "--prefix", "--requirement", "--target"}


def installed(text: str) -> Iterator[Problem]:
    """Yield what needs CUDA in the commands of a text that install packages.

    They have no fix: a script or an image has one purpose, and the command may only be for machines with CUDA.

    Args:
        text: a Dockerfile, a shell script, a makefile or a CI workflow.
    """
    for command in _INSTALL.finditer(text):
        if _NOT_RUN.search(text[text.rfind("\n", 0, command.start()) + 1 : command.start()]):
            continue
        at, end = command.span("words")
        while (word := _WORD.search(text, at, end)) is not None:
            at = word.end()
            option = OPTION.match(text, word.start(), end)
            if option is not None:
                at = option.end()
                yield from map(_without_fix, index(option))
            elif word["text"] in _WITH_VALUE:
                value = _WORD.search(text, at, end)
                at = value.end() if value else end
            elif not word["text"].startswith("-"):
                yield from _package(word, command["tool"])


def _package(word: re.Match[str], tool: str) -> Iterator[Problem]:
    if "conda" not in tool and tool != "mamba":
        found = examine(word["text"], word.start("text"))
        if found is not None and not _is_of_macos(found):  # an image has Linux
            yield _without_fix(found)
    elif CONDA.fullmatch(re.split("[=<>!:]", word["text"].lower())[0]):
        message = f"`{word['text']}` installs CUDA; without CUDA, leave it out"
        yield Problem(word.start("text"), word.end("text"), REQUIREMENT, message)


def _is_of_macos(found: Problem) -> bool:
    """Return whether a package is missing only on macOS: then a CPU keeps it, with the marker of the fix."""
    return found.cpu is not None and found.cpu == found.safe and "darwin" in found.cpu


def _without_fix(found: Problem) -> Problem:
    return replace(found, safe=None, cpu=None)
