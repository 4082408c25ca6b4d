"""Define an export: what one file shows the others of its project, found only when one of them asks."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cached_property
from typing import Any, Generic, TypeVar, get_origin, get_type_hints

Value = TypeVar("Value")

EXPORTS: dict[str, Export[Any]] = {}  # all of them, by name


class Export(Generic[Value]):
    """A question about one file.

    Args:
        find: finds the answer in the facts of the file, or in its bytes.
        of_bytes: whether it does so in the bytes.
        words: every file with an answer holds one of them; none for any file.
        pattern: what is in each of these files as well.
        anywhere: whether to look in files without a word of CUDA's, too.
    """

    def __init__(
        self,
        find: Callable[[Any], Value],
        words: tuple[bytes, ...],
        *,
        of_bytes: bool = False,
        pattern: bytes = b"",
        anywhere: bool = True,
    ) -> None:
        self.name = find.__name__
        self.words = words
        self.of_bytes = of_bytes
        self.pattern = re.compile(pattern) if pattern else None
        self.anywhere = anywhere
        self._find = find
        EXPORTS[self.name] = self

    def __call__(self, read: Any) -> Value:
        """Return the answer for facts, or for bytes."""
        return self._find(read)

    @cached_property
    def kind(self) -> Any:
        """The type of the answer."""
        return get_type_hints(self._find)["return"]

    @cached_property
    def empty(self) -> Value:
        """The answer for a file in which there is nothing."""
        empty: Value = (get_origin(self.kind) or self.kind)()
        return empty


def of_bytes(*words: bytes) -> Callable[[Callable[[bytes], Value]], Export[Value]]:
    """Make an export of a function of a file's bytes; see `Export`."""
    return lambda find: Export(find, words, of_bytes=True)


def of_facts(
    *words: bytes, pattern: bytes = b"", anywhere: bool = False
) -> Callable[[Callable[[Any], Value]], Export[Value]]:
    """Make an export of a function of a file's facts; see `Export`."""
    return lambda find: Export(find, words, pattern=pattern, anywhere=anywhere)
