"""Images and services: Dockerfiles, and the files of Docker Compose."""

from __future__ import annotations

import re
from collections.abc import Iterator

from devicefix.rules.environment.commands import installed
from devicefix.rules.environment.requirements import Problem

IMAGE = "DF908"

_FROM = re.compile(
    r"^[ \t]*FROM[ \t]+(?:--platform=\S+[ \t]+)?(?P<image>(?:[\w.-]+(?::\d+)?/)*(?P<name>[\w.-]+/[\w.-]+|[\w.-]+)(?::\S+)?)",
    re.M | re.I,
)
_ARG = re.compile(
    r"^[ \t]*ARG[ \t]+\w+=[\"']?(?P<image>(?:docker\.io/)?nvidia/cuda:\S+?)[\"']?[ \t]*$", re.M | re.I
)
_SYSTEM = re.compile(r"-(?P<name>ubuntu|debian|rockylinux|centos)(?P<version>\d[\d.]*)")
_DRIVER = re.compile(r"^[ \t-]*(?P<driver>driver[ \t]*:[ \t]*[\"']?nvidia[\"']?)[ \t]*(?:#.*)?$", re.M)
_RUNTIME = re.compile(r"^[ \t]*(?P<runtime>runtime[ \t]*:[ \t]*[\"']?nvidia[\"']?)[ \t]*(?:#.*)?$", re.M)
_ALL = re.compile(r"^[ \t]*(?P<gpus>gpus[ \t]*:[ \t]*\S+)[ \t]*(?:#.*)?$", re.M)


def dockerfile_problems(text: str) -> Iterator[Problem]:
    """Yield what needs CUDA in a Dockerfile."""
    for found in [*_FROM.finditer(text), *_ARG.finditer(text)]:
        image = found["image"]
        if "nvidia/" in image or "nvcr.io/" in image:
            system = _SYSTEM.search(image)
            other = f"`{system['name']}:{system['version']}`" if system else "a CPU-only image"
            yield _problem(
                found, "image", f"`{image}` contains CUDA; on a machine without a GPU, use {other}"
            )
    yield from installed(text)


def compose_problems(text: str) -> Iterator[Problem]:
    """Yield what needs CUDA in a file of Docker Compose."""
    if not re.search(r"^services[ \t]*:", text, re.M):
        return
    for pattern, name in ((_DRIVER, "driver"), (_RUNTIME, "runtime"), (_ALL, "gpus")):
        for found in pattern.finditer(text):
            advice = (
                "move it to a separate file, such as `compose.gpu.yaml`, and use that file only with a GPU"
            )
            yield _problem(found, name, f"`{found[name]}` fails without a GPU; {advice}")


def _problem(found: re.Match[str], group: str, message: str) -> Problem:
    return Problem(found.start(group), found.end(group), IMAGE, message)
