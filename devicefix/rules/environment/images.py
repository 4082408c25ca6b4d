"""Images and services: Dockerfiles, and the files of Docker Compose."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from devicefix.rules.environment.packages import CONDA
from devicefix.rules.environment.requirements import OPTION, REQUIREMENT, Problem, examine, index

IMAGE = "DF908"

_FROM = re.compile(
    r"^[ \t]*FROM[ \t]+(?:--platform=\S+[ \t]+)?(?P<image>(?:[\w.-]+(?::\d+)?/)*(?P<name>[\w.-]+/[\w.-]+|[\w.-]+)(?::\S+)?)",
    re.M | re.I,
)
_ARG = re.compile(
    r"^[ \t]*ARG[ \t]+\w+=[\"']?(?P<image>(?:docker\.io/)?nvidia/cuda:\S+?)[\"']?[ \t]*$", re.M | re.I
)
_SYSTEM = re.compile(r"-(?P<name>ubuntu|debian|rockylinux|centos)(?P<version>\d[\d.]*)")
_INSTALL = re.compile(
    r"\b(?P<tool>pip3?|conda|mamba|micromamba)[ \t]+install\b(?P<words>(?:[^\n\\;&|#]|\\[ \t]*\r?\n)*)"
)
_WORD = re.compile(r"(?P<quote>[\"']?)(?P<text>[^\s\"'\\]+)(?P=quote)")
_WITH_VALUE = {"-c", "-n", "-p", "-r", "-t", "--channel", "--name", "--prefix", "--requirement", "--target"}
_DRIVER = re.compile(r"^[ \t-]*(?P<driver>driver[ \t]*:[ \t]*[\"']?nvidia[\"']?)[ \t]*(?:#.*)?$", re.M)
_RUNTIME = re.compile(r"^[ \t]*(?P<runtime>runtime[ \t]*:[ \t]*[\"']?nvidia[\"']?)[ \t]*(?:#.*)?$", re.M)
_ALL = re.compile(r"^[ \t]*(?P<gpus>gpus[ \t]*:[ \t]*\S+)[ \t]*(?:#.*)?$", re.M)


def dockerfile_problems(text: str) -> Iterator[Problem]:
    """Yield what needs CUDA in a Dockerfile."""
    for found in [*_FROM.finditer(text), *_ARG.finditer(text)]:
        image = found["image"]
        if "nvidia/" in image or "nvcr.io/" in image:
            system = _SYSTEM.search(image)
            other = f"`{system['name']}:{system['version']}`" if system else "an image without CUDA"
            yield _problem(found, "image", f"`{image}` contains CUDA; without CUDA, use {other}")
    yield from _installed(text)


def _installed(text: str) -> Iterator[Problem]:
    """Yield what needs CUDA in the commands that install packages. They have no fix: an image has one purpose."""
    for command in _INSTALL.finditer(text):
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


def compose_problems(text: str) -> Iterator[Problem]:
    """Yield what needs CUDA in a file of Docker Compose."""
    if not re.search(r"^services[ \t]*:", text, re.M):
        return
    for pattern, name in ((_DRIVER, "driver"), (_RUNTIME, "runtime"), (_ALL, "gpus")):
        for found in pattern.finditer(text):
            message = (
                f"`{found[name]}` fails without a GPU; move it to a separate file, such as"
                " `compose.gpu.yaml`, and use that file only with a GPU"
            )
            yield _problem(found, name, message)


def _problem(found: re.Match[str], group: str, message: str) -> Problem:
    return Problem(found.start(group), found.end(group), IMAGE, message)
