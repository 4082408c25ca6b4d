"""Read the JSON files that devicefix has written before; they may come from anywhere."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from devicefix.config import sizes
from devicefix.config.settings import ConfigError

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class JsonFormat:
    """A format of JSON files.

    Attributes:
        name: the name for messages, such as "a baseline".
        version: the version that this devicefix writes and reads.
        create: what to do if there is no file.
        replace: what to do about a file that is not valid; may be empty.
        largest: the number of bytes that a file may have.
    """

    name: str
    version: int
    create: str
    replace: str = ""
    largest: int = sys.maxsize - 1

    def content(self, file: Path) -> bytes:
        """Return the bytes of a file.

        Raises:
            ConfigError: the file cannot be read.
        """
        try:
            return sizes.read(file, self.largest)
        except OSError as problem:
            hint = self.create if isinstance(problem, FileNotFoundError) else ""
            raise ConfigError(f"{file}: {problem.strerror or problem}{hint}") from None

    def parsed(self, file: Path, data: bytes, read: Callable[[dict[str, Any]], T]) -> T:
        """Return what a file contains.

        Args:
            file: the file, for messages.
            data: its bytes.
            read: returns the content of the JSON, or raises ValueError if that is not valid.

        Raises:
            ConfigError: the file does not have this format.
        """
        try:
            document = json.loads(data)
            if not isinstance(document, dict) or "version" not in document:
                raise ValueError('it has no "version"')
            if document["version"] != self.version:
                found = f"its version is {document['version']!r}"
                raise ValueError(f"{found}, but this devicefix supports only version {self.version}")
            return read(document)
        except json.JSONDecodeError as problem:
            place, why = f"{file}:{problem.lineno}:{problem.colno}", problem.msg
        except (ValueError, RecursionError) as problem:
            place, why = str(file), str(problem)
        raise ConfigError(f"{place}: not {self.name}: {why}{self.replace}")
