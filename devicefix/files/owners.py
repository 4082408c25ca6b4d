"""The owners of files, from a CODEOWNERS file of GitHub or GitLab.

See https://docs.github.com/en/repositories, "About code owners", and
https://docs.gitlab.com/user/project/codeowners/reference/. Both ignore lines that are not valid. They differ
in what some patterns match; here they match what they do in .gitignore, but `docs/*` no folders.
"""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from pathspec import GitIgnoreSpec

from devicefix.config import sizes
from devicefix.config.globs import LONGEST
from devicefix.config.ignore import spec

# GitHub's folders in its order, then the one that only GitLab has.
PLACES = (".github/CODEOWNERS", "CODEOWNERS", "docs/CODEOWNERS", ".gitlab/CODEOWNERS")
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
    """

    def __init__(self, file: str, text: str) -> None:
        self.file = file
        self._sections = _sections(text)

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
            return Owners(place, text)
    return None


def _words(text: str) -> list[str]:
    return _COMMENT.split(text, maxsplit=1)[0].split()


def _owners(words: list[str]) -> tuple[str, ...]:
    return tuple(word for word in words if _OWNER.fullmatch(word))


def _sections(text: str) -> list[list[Rule]]:
    """Return the rules by section, of which only GitLab has several; sections of the same name are one."""
    sections: dict[str, list[Rule]] = {"": []}
    name = ""
    default: tuple[str, ...] = ()
    for line in map(str.strip, text.splitlines()):
        section = _SECTION.match(line)
        if section:
            name, default = section["name"].strip().casefold(), _owners(_words(section["owners"]))
            sections.setdefault(name, [])
        elif (match := _WORD.match(line)) and not line.startswith("#"):
            pattern, words = match[0], _words(line[match.end() :])
            owners = _owners(words)
            if len(owners) == len(words):
                owners = () if pattern.startswith("!") else owners or default
                with suppress(ValueError):  # a pattern that is not valid, or too long
                    sections[name].append(Rule(_paths(pattern.removeprefix("!")), owners))
    return list(sections.values())


def _paths(pattern: str) -> GitIgnoreSpec:
    """Return what a pattern matches.

    Raises:
        ValueError: it is not valid, or too long.
    """
    if len(pattern) > LONGEST:
        raise ValueError("the pattern is too long")
    return spec(pattern, f"!{pattern}/") if pattern.endswith("/*") else spec(pattern)
