"""The owners of files, from a CODEOWNERS file.

GitHub (https://docs.github.com/en/repositories, "About code owners") and GitLab
(https://docs.gitlab.com/user/project/codeowners/reference/) differ in where the file is, in sections, and in
what a pattern matches. Both ignore lines that are not valid.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from pathspec import GitIgnoreSpec

from devicefix.config import sizes
from devicefix.config.globs import LONGEST
from devicefix.config.ignore import spec

# GitHub's folders in its order, then the one that only GitLab has.
PLACES = (".github/CODEOWNERS", "CODEOWNERS", "docs/CODEOWNERS", ".gitlab/CODEOWNERS")
GITLAB_FILES = (".gitlab", ".gitlab-ci.yml")
LARGEST = "3M"  # GitHub reads no larger one

_SECTION = re.compile(r"\^?\[(?P<name>[^\]]+)\](?:\[\d+\])?(?P<owners>(?:\s.*)?)\Z")
_WORD = re.compile(r"(?:\\.|[^\s\\])+", re.S)
_COMMENT = re.compile(r"(?:\A|\s)#")
_OWNER = re.compile(r"@{1,2}[\w.][\w./-]*|[^\s@#]+@[\w.-]+")


class Rule(NamedTuple):
    """A line of the file: what matches its paths, and their owners."""

    paths: GitIgnoreSpec
    owners: tuple[str, ...]


class Owners:
    """The owners of files.

    Args:
        file: the path of the CODEOWNERS file, for people.
        text: its content.
        gitlab: whether GitLab reads it, rather than GitHub.
    """

    def __init__(self, file: str, text: str, gitlab: bool) -> None:
        self.file = file
        self.gitlab = gitlab
        self._sections = _gitlab(text) if gitlab else [list(_github(text))]

    def of(self, path: str) -> tuple[str, ...]:
        """Return the owners of a file: those of the last pattern of each section that matches it.

        Args:
            path: the path, relative to the top of the repository, with `/` between its parts.
        """
        found: dict[str, None] = {}
        for rules in self._sections:
            owners = next((rule.owners for rule in reversed(rules) if rule.paths.match_file(path)), ())
            found |= dict.fromkeys(owners)
        return tuple(found)


def read(root: Path) -> Owners | None:
    """Return the owners of the files in a repository, None if no file names any.

    Raises:
        OSError: the file cannot be read, or is too large.
    """
    for place in PLACES:
        file = root / place
        if file.is_file():
            text = sizes.read(file, sizes.size(LARGEST)).decode(errors="replace").removeprefix("\ufeff")
            return Owners(place, text, _is_gitlab(root, place, text))
    return None


def _is_gitlab(root: Path, place: str, text: str) -> bool:
    """Return whether GitLab reads the file, where its place may be either's."""
    if place.startswith("."):
        return place.startswith(".gitlab")
    sections = any(_SECTION.match(line.strip()) for line in text.splitlines())
    return sections or any((root / name).exists() for name in GITLAB_FILES)


def _lines(text: str) -> Iterator[str]:
    lines = (line.strip() for line in text.splitlines())
    return (line for line in lines if line and not line.startswith("#"))


def _split(line: str) -> tuple[str, list[str]]:
    """Return the pattern of a line and the words after it, without a comment."""
    match = _WORD.match(line)
    pattern = match[0] if match else ""
    return pattern, _words(line[len(pattern) :])


def _words(text: str) -> list[str]:
    return _COMMENT.split(text, maxsplit=1)[0].split()


def _owners(words: list[str]) -> tuple[str, ...]:
    return tuple(word for word in words if _OWNER.fullmatch(word))


# -- GitHub ------------------------------------------------------------------------------------------


def _github(text: str) -> Iterator[Rule]:
    for line in _lines(text):
        pattern, words = _split(line)
        owners = _owners(words)
        if not pattern or pattern.startswith(("!", "\\#")) or len(owners) < len(words):
            continue  # not valid there
        with suppress(ValueError):  # a pattern that is not valid, or too long
            yield Rule(_github_paths(pattern), owners)


def _github_paths(pattern: str) -> GitIgnoreSpec:
    """Return what a pattern matches: as in .gitignore without ranges, but `docs/*` no folders."""
    glob = re.sub(r"(?<!\\)\[", r"\\[", pattern) if pattern.strip("/") else "*"
    return _paths(glob, whole=glob.endswith("/*"))


# -- GitLab ------------------------------------------------------------------------------------------


def _gitlab(text: str) -> list[list[Rule]]:
    """Return the rules by section; sections of the same name are one."""
    sections: dict[str, list[Rule]] = {"": []}
    name = ""
    default: tuple[str, ...] = ()
    for line in _lines(text):
        section = _SECTION.match(line)
        if section:
            name, default = section["name"].strip().casefold(), _owners(_words(section["owners"]))
            sections.setdefault(name, [])
            continue
        pattern, words = _split(line)
        owners = () if pattern.startswith("!") else _owners(words) or default
        with suppress(ValueError):  # a pattern that is not valid, or too long
            sections[name].append(Rule(_gitlab_paths(pattern.removeprefix("!")), owners))
    return list(sections.values())


def _gitlab_paths(pattern: str) -> GitIgnoreSpec:
    """Return what a pattern matches: a whole path, from any folder unless it starts with a slash."""
    if not pattern:
        raise ValueError("there is no pattern")
    glob = pattern if pattern.startswith("/") else f"/**/{pattern}"
    return _paths(f"{glob}**/*" if glob.endswith("/") else re.sub(r"/\*\*\Z", "/*", glob), whole=True)


def _paths(glob: str, whole: bool) -> GitIgnoreSpec:
    """Return what a pattern as in .gitignore matches.

    Args:
        glob: the pattern.
        whole: whether it matches no files below a folder that it matches.

    Raises:
        ValueError: it is not valid, or too long.
    """
    if len(glob) > LONGEST:
        raise ValueError("the pattern is too long")
    return spec(glob, f"!{glob}/") if whole else spec(glob)
