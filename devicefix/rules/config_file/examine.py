"""The check of configuration files and shell scripts."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from devicefix.facts.comments import SKIP_FILE, silenced
from devicefix.files.kinds import language_of
from devicefix.files.text import DecodeError, Source
from devicefix.model import Finding, Result
from devicefix.rules.config_file.shell import makefile_pairs, shell_pairs
from devicefix.rules.config_file.structured import Pair, json_pairs, toml_pairs, yaml_pairs
from devicefix.rules.config_file.ties import tie

if TYPE_CHECKING:
    from devicefix.config.settings import Settings

LARGEST = 1_000_000  # bytes; larger files contain data
_WORDS = re.compile(rb"cuda|gpu|nccl|device", re.I)
_DEVICE = re.compile(r"cuda(:\d+)?|nccl")
_INTERPOLATED = re.compile(r"\$\{[\w.]+\}")
_LIGHTNING = ("accelerator", "gpu")
_SHOWN = 60

Reader = Callable[[str], Iterable[Pair]]

_READERS: dict[str, Reader] = {
    "json": json_pairs,
    "make": makefile_pairs,
    "shell": shell_pairs,
    "toml": toml_pairs,
    "yaml": yaml_pairs,
}


def check(data: bytes, path: str, settings: Settings) -> Result:
    """Check a configuration file or script for settings that need CUDA.

    Parsing is lenient, since templates and comments make many files invalid. Binary files, and those larger than
    `LARGEST`, are not checked.

    Args:
        data: the bytes of the file.
        path: the path, whose name determines the language.
        settings: the settings for the file.

    Returns:
        The findings; nothing is ever rewritten.
    """
    from devicefix.rules.config_file import ConfigFile

    result = Result(path)
    language = language_of(path)
    if language is None or not settings.enabled(ConfigFile.code, ConfigFile.default):
        return result
    if len(data) > LARGEST or b"\0" in data or not _WORDS.search(data) or SKIP_FILE.search(data):
        return result
    source = _decoded(data)
    for pair, code, message in ties(source.text, language):
        places = *source.position(pair.start), *source.position(pair.end)
        finding = Finding(ConfigFile.code, f"`{code}` {message}", *places)
        if not silenced(source, finding):
            result.findings.append(finding)
    result.findings.sort(key=lambda finding: (finding.line, finding.column))
    return result


def ties(text: str, language: str) -> Iterator[tuple[Pair, str, str]]:
    """Yield the settings in a text that need CUDA: each as it is written, with what is wrong."""
    for pair in _READERS[language](text):
        message = tie(pair.key, pair.values, pair.several, pair.shell)
        if message is not None:
            code = " ".join(text[pair.start : pair.end].replace("\\\n", " ").split())
            yield pair, code if len(code) <= _SHOWN else f"{code[:_SHOWN]}…", message


def cuda_values(data: bytes, path: str) -> list[tuple[str, int, str, str]]:
    """Return the keys of a configuration file whose values need CUDA: each with its line, value and path.

    A value `${device}` that the file does not have is that of another file.
    """
    language = language_of(path) or ""
    if language not in ("json", "toml", "yaml") or len(data) > LARGEST:
        return []
    source = _decoded(data)
    pairs = [each for each in _READERS[language](source.text) if not each.several]
    values = {f"${{{pair.path}}}": pair.values[0] for pair in pairs}  # `${device}` is the value of a key
    found = ((pair, values.get(pair.values[0], pair.values[0])) for pair in pairs)
    return [
        (pair.key, source.position(pair.start)[0], value, pair.path)
        for pair, value in found
        if _DEVICE.fullmatch(value) or _INTERPOLATED.fullmatch(value) or (pair.key, value) == _LIGHTNING
    ]


def _decoded(data: bytes) -> Source:
    try:
        return Source(data)
    except DecodeError:
        # The declared encoding is wrong: ignore it, and replace what cannot be decoded.
        return Source(data.decode(errors="replace").replace("coding", "c-ding").encode())
