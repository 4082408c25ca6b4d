"""Requirements: one of them, and the files of pip that list them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from devicefix.rules.environment.names import normalized
from devicefix.rules.environment.packages import WITH_BUILDS, package

REQUIREMENT, INDEX = "DF906", "DF907"
CPU_INDEX = "https://download.pytorch.org/whl/cpu"  # whose builds pip prefers to those of PyPI

_TORCH = {"torch", "torchaudio", "torchvision"}
_MARKER = 'sys_platform != "darwin"'
_PLATFORM = re.compile(r"\b(?:sys_platform|platform_system|os_name)\b")
_BUILD = re.compile(r"\+cu\d+")
_LOCAL_CUDA = re.compile(
    r"=\s*(?P<version>(?P<public>[\w.!]+)\+(?P<local>(?:pt|torch)?[\d.]*cu\d\w*))(?![\w.-])"
)
_WHEEL = re.compile(
    r".*/(?P<name>\w+)-(?P<version>[\w.]+)(?:\+|%2B)(?:[\w.]*[._])?(?:pt\d+)?cu\d{2,3}(?!\d)[\w.]*-[^/]*\.whl",
    re.I,
)
_CUDA_URL = re.compile(r"(?<![a-z])cu\d{2,3}(?!\d)")
_NVIDIA_INDEX = re.compile(r"https?://(?:pypi\.ngc\.|pypi\.|developer\.download\.)nvidia\.com\S*")
OPTION = re.compile(
    r"[ \t]*(?P<name>--(?:extra-)?index-url|--find-links|-[if])(?:[ \t]*=[ \t]*|[ \t]+)(?P<url>\S+)"
)
_INCLUDE = re.compile(r"[ \t]*(?:-[rc]|--requirement|--constraint)(?:[ \t]*=[ \t]*|[ \t]*)(?P<file>\S+)")
_LINE = re.compile(r"(?:[^\r\n\\]|\\(?:\r\n|[^\r\n]|[\r\n]|\Z))*")
_COMMENT = re.compile(r"(?:^|[ \t]+)#.*")
_HASHES = re.compile(r"[ \t]+--(?:hash|config-settings|global-option)[ \t=]")
_EDITABLE = re.compile(r"[ \t]*(?:-e|--editable)(?:[ \t]*=[ \t]*|[ \t]+)")
# https://packaging.python.org/specifications/dependency-specifiers, with any word as a version, and any marker
_REQUIREMENT = re.compile(
    r"\s*(?P<name>\w(?:[\w.-]*\w)?)\s*(?:\[[\w.,\s-]*\]\s*)?"
    r"(?:@\s*(?P<url>\S+)\s*"
    r"|(?:\(\s*)?(?P<versions>(?:(?:===?|[~!<>]=|[<>])\s*[\w.*+!-]+[,\s]*)*)(?:\)\s*)?)"
    r"(?:;\s*(?P<marker>\S.*))?",
    re.A | re.S,
)
_GIT = re.compile(r"(?:-e[ \t]+)?(?:git\+)?\S*?/(?P<name>[\w.-]+?)(?:\.git)?/?(?:@[^#\s]*)?(?:#\S*)?")


@dataclass(frozen=True, slots=True)
class Problem:
    """A part of a file that needs CUDA.

    Attributes:
        start: the offset at which it starts.
        end: the offset at which it ends.
        code: the rule.
        message: what is wrong, then what to do.
        safe: the text that keeps what is installed with CUDA; None if there is none.
        cpu: the text for a machine without CUDA, empty to leave it out; None if it stays.
    """

    start: int
    end: int
    code: str
    message: str
    safe: str | None = None
    cpu: str | None = None


def examine(text: str, start: int = 0) -> Problem | None:
    """Return what is wrong with a requirement, None if it needs no CUDA.

    Args:
        text: the requirement, such as `torch==2.0.1+cu118`, without comments and options.
        start: its offset in the file.
    """
    end = start + len(text)
    found = _REQUIREMENT.fullmatch(text)
    if found is None:
        return _from_source(text, start)
    if found["url"]:
        return _at_url(found, text, start)
    if (build := _LOCAL_CUDA.search(found["versions"])) is not None:
        return _built(found["name"], build, text, start)
    name, marker = found["name"], found["marker"]
    needed = package(name)
    if needed is None or (needed.installs and marker and _PLATFORM.search(marker)):
        return None
    is_of_nvidia = normalized(name).startswith("nvidia-")
    only_macos = needed.installs and not needed.cpu and not is_of_nvidia
    advice = f"; without CUDA, use `{needed.cpu}`" if needed.cpu else "; without CUDA, leave it out"
    advice = "; leave it out on macOS" if only_macos else advice
    separator = "" if text.endswith(" ") else " "
    safe = None if marker else f"{text}{separator}; {_MARKER}"
    cpu: str | None = text.replace(name, needed.cpu, 1) if needed.cpu else ""
    if only_macos:
        cpu = safe
    return Problem(start, end, REQUIREMENT, f"`{name}` {needed.why}{advice}", safe, cpu)


def _built(name: str, build: re.Match[str], text: str, start: int) -> Problem:
    version, public, local = build.group("version", "public", "local")
    plain = text.replace(version, public)
    end = start + len(text)
    if normalized(name) in WITH_BUILDS and _BUILD.fullmatch(f"+{local}"):
        advice = f"require `{public}`, for which a CUDA package index still provides this build"
        message = f"`{version}` is a CUDA-only build; {advice}"
        return Problem(start, end, REQUIREMENT, message, plain, plain)
    message = f"`{version}` is a CUDA-only build; without CUDA, require `{public}`"
    return Problem(start, end, REQUIREMENT, message, None, plain)


def _at_url(found: re.Match[str], text: str, start: int) -> Problem | None:
    end = start + len(text)
    wheel = _WHEEL.fullmatch(found["url"])
    if wheel is not None:
        return _wheel(wheel, start, end)
    if (needed := package(found["name"])) is None:
        return None
    message = f"`{found['name']}` {needed.why}; without CUDA, leave it out"
    return Problem(start, end, REQUIREMENT, message, None, needed.cpu)


def _wheel(wheel: re.Match[str], start: int, end: int) -> Problem:
    public = "" if package(wheel["name"]) else f"{wheel['name']}=={wheel['version']}"
    advice = f"require `{public}`" if public else "leave it out"
    message = f"this wheel is built for CUDA; without CUDA, {advice}"
    return Problem(start, end, REQUIREMENT, message, None, public)


def _from_source(text: str, start: int) -> Problem | None:
    """Examine a URL, a repository or a folder."""
    end = start + len(text)
    if wheel := _WHEEL.fullmatch(text):
        return _wheel(wheel, start, end)
    source = _GIT.fullmatch(text.strip())
    needed = package(source["name"]) if source is not None else None
    if source is None or needed is None:
        return None
    message = f"`{source['name']}` {needed.why}; without CUDA, leave it out"
    return Problem(start, end, REQUIREMENT, message, None, "")


def problems(text: str) -> Iterator[Problem]:
    """Yield what needs CUDA in a file of requirements or constraints.

    https://pip.pypa.io/en/stable/reference/requirements-file-format/
    """
    for line in _lines(text):
        yield from _in_line(text, *line.span())


def _lines(text: str) -> Iterator[re.Match[str]]:
    """Yield the lines of a file of requirements; a backslash continues one."""
    at = 0
    while at < len(text):
        line = _LINE.match(text, at)
        assert line is not None
        yield line
        at = max(line.end(), at) + 1


def _in_line(text: str, start: int, end: int) -> Iterator[Problem]:
    comment = _COMMENT.search(text, start, end)
    if comment is not None and "\n" not in text[start : comment.start()]:
        end = comment.start()
    option = OPTION.match(text, start, end)
    if option is not None:
        yield from index(option)
        return
    hashes = _HASHES.search(text, start, end)
    last = hashes.start() if hashes else end
    begin = start + len(text[start:last]) - len(text[start:last].lstrip())
    requirement = text[begin:last].rstrip()
    if not requirement or (requirement.startswith("-") and not _EDITABLE.match(requirement)):
        return
    found = examine(requirement, begin)
    if found is not None:
        if hashes:  # another version has other hashes
            found = Problem(found.start, end, found.code, found.message, None, found.cpu and None)
        yield found


def lacks_index(text: str) -> bool:
    """Return whether a file requires torch, but names no index: on Linux, PyPI has only CUDA builds."""
    lines = [match[0] for match in _LINE.finditer(text) if match[0].strip()]
    if any(OPTION.match(line) for line in lines):
        return False
    return any(_requires_torch(_COMMENT.sub("", line)) for line in lines)


def _requires_torch(line: str) -> bool:
    found = _REQUIREMENT.fullmatch(line)
    if found is None or found["url"]:
        return False
    return normalized(found["name"]) in _TORCH and "+cpu" not in found["versions"]


def index(option: re.Match[str]) -> Iterator[Problem]:
    """Yield what is wrong with an index, from a match of `OPTION`."""
    url, start, end = option["url"], option.start("name"), option.end("url")
    if _NVIDIA_INDEX.match(url):
        message = f"`{url}` has only packages for CUDA; without CUDA, leave it out"
        yield Problem(start, end, INDEX, message, None, "")
    elif _CUDA_URL.search(url):
        cpu = _CUDA_URL.sub("cpu", url)
        message = f"`{url}` has only CUDA builds; without CUDA, use `{cpu}`"
        yield Problem(start, end, INDEX, message, None, option[0].lstrip().replace(url, cpu))


def includes(text: str) -> Iterator[tuple[int, int]]:
    """Yield the offsets of the names of other files that a file of requirements includes."""
    for line in _lines(text):
        if (found := _INCLUDE.match(text, *line.span())) is not None:
            yield found.span("file")
