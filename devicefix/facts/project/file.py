"""Hold one file of a project: its bytes, its facts when they are needed, and what it exports."""

from __future__ import annotations

import os.path
import re
from collections import deque
from functools import cached_property
from typing import Any, TypeVar
from weakref import ref

from devicefix.facts.exports import EXPORTS, Export
from devicefix.facts.exports.classes import bases_of
from devicefix.facts.exports.imports import imports_in
from devicefix.facts.module import Facts
from devicefix.facts.prefilter import may_matter, names_in
from devicefix.files.text import UNREADABLE

Value = TypeVar("Value")

# Words of files that concern others, besides those that may have findings.
_FOR_OTHERS = (
    b"CUDA_", b"VISIBLE_DEVICES", b"init_process_group", b"gloo", b"LOCAL_RANK", b"get_rank(",
    b"AssertionError",
)  # fmt: skip
_WITH_NUMBER = (b"rank", b"RANK", b"gpu", b"cuda")
# Each begins with one text, so that it is found several times as fast.
_FUNCTION = re.compile(rb"def[ \t]+(\w+)")
_CLASS = re.compile(rb"class[ \t]+(\w+)")
_BOUND = re.compile(rb"\n(\w+)[ \t]*(?::[^\n=]*)?=")


class ProjectFile:
    """A file as the others of its project see it.

    Args:
        data: its bytes; for a notebook, those of its code.
        path: its path.

    Attributes:
        path: its path.
        normal: the path in its normal form.
        data: its bytes.
        known: the exports that were asked for, by name.
        tree: its facts, as long as `TREES` keeps them.
        is_broken: whether it is known that the file does not parse.
        is_followed: whether a value was followed into the file, which depends on more than its exports.
        has_more: whether there are more of them since somebody looked.
    """

    def __init__(self, data: bytes, path: str) -> None:
        self.data = data
        self.path = path
        self.normal = os.path.normpath(path)
        self.known: dict[str, Any] = {}
        self.is_broken = False
        self.is_followed = False
        self.has_more = False
        self.tree: Facts | None = None
        self._held: dict[bytes | re.Pattern[bytes], bool] = {}

    def __getstate__(self) -> dict[str, Any]:
        """Return what another process needs: it parses the file itself."""
        return {**self.__dict__, "tree": None}

    def holds(self, word: bytes | re.Pattern[bytes]) -> bool:
        """Return whether the bytes of the file hold a word, or what matches a pattern."""
        if word not in self._held:
            data = self.data
            self._held[word] = word in data if isinstance(word, bytes) else word.search(data) is not None
        return self._held[word]

    def export(self, asked: Export[Value]) -> Value:
        """Return what the file shows the others."""
        if asked.name not in self.known:
            self.known[asked.name] = self._find(asked)
            self.has_more = True
        found: Value = self.known[asked.name]
        return found

    def changed_to(self, other: ProjectFile) -> bool:
        """Take over another text of the file if it gives the same answers to all that this one was asked.

        Returns:
            Whether it does.
        """
        same = (
            not self.is_followed
            and self._imports == other._imports
            and self._defined == other._defined
            and self._bound == other._bound
            and self.matters == other.matters
            and self.may_matter == other.may_matter
            and names_in(self.data) == names_in(other.data)
            and all(other.holds(word) == held for word, held in self._held.items())
            and all(other.export(EXPORTS[name]) == value for name, value in self.known.items())
        )
        if same:
            self.data, self.tree, self.is_broken = other.data, other.tree, other.is_broken
        return same

    def _find(self, asked: Export[Value]) -> Value:
        if asked.words and not any(map(self.holds, asked.words)):
            return asked.empty
        if asked.pattern is not None and not asked.pattern.search(self.data):
            return asked.empty
        if asked.of_bytes:
            return asked(self.data)
        if not (asked.anywhere or self.matters):
            return asked.empty
        try:
            return asked.empty if self.facts is None else asked(self.facts)
        except RecursionError:
            return asked.empty

    def defines(self, name: str) -> bool:
        """Return whether the file defines a function or class of a name."""
        return name in self._defined

    @cached_property
    def _defined(self) -> frozenset[str]:
        return frozenset(map(bytes.decode, _FUNCTION.findall(self.data) + _CLASS.findall(self.data)))

    def binds(self, name: str) -> bool:
        """Return whether the file assigns to a name at its top level."""
        return name in self._bound

    @cached_property
    def _bound(self) -> frozenset[str]:
        return frozenset(map(bytes.decode, _BOUND.findall(b"\n" + self.data)))

    @cached_property
    def matters(self) -> bool:
        """Return whether the file holds a word that may concern the others."""
        return any(map(self.holds, _FOR_OTHERS)) or self.may_matter

    @cached_property
    def has_number(self) -> bool:
        """Return whether the file may have the number of a GPU."""
        return any(map(self.holds, _WITH_NUMBER)) and self.matters

    @cached_property
    def may_matter(self) -> bool:
        """Return whether the file holds a word that every run looks for."""
        return may_matter(self.data)

    @property
    def facts(self) -> Facts | None:
        """The facts of the file; None if it does not parse."""
        return TREES.facts(self)

    @cached_property
    def _imports(self) -> tuple[frozenset[str], tuple[str, ...]]:
        return imports_in(self.data)

    @property
    def imports(self) -> frozenset[str]:
        """The modules that the file imports, absolute (`a.b`) or relative (`..b`)."""
        return self._imports[0]

    @property
    def star_imports(self) -> tuple[str, ...]:
        """Those of them that it imports everything from."""
        return self._imports[1]

    @property
    def classes(self) -> dict[str, tuple[str, ...]]:
        """The bases of the file's classes."""
        return self.export(bases_of)


class Trees:
    """The facts of the files that were parsed last: a check needs those of other files again and again.

    Attributes:
        room: how many bytes of source to keep at most; the syntax trees take some forty times as much.
    """

    def __init__(self, room: int) -> None:
        self.room = room
        self._files: deque[tuple[ref[ProjectFile], int]] = deque()
        self._size = 0

    def facts(self, file: ProjectFile) -> Facts | None:
        """Return the facts of a file; None if it does not parse."""
        if file.tree is None and not file.is_broken:
            try:
                file.tree = Facts.read(file.data)
            except UNREADABLE:
                file.is_broken = True
                return None
            self._keep(file)
        return file.tree

    def _keep(self, file: ProjectFile) -> None:
        self._files.append((ref(file), len(file.data)))
        self._size += len(file.data)
        while self._size > self.room and len(self._files) > 1:
            oldest, size = self._files.popleft()
            self._size -= size
            old = oldest()
            if old is not None:
                old.tree = None


TREES = Trees(16_000_000)
