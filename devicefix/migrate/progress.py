"""The progress of a migration: one that is interrupted continues with what its runs have shown."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from devicefix.config.evidence import NO_EVIDENCE, Evidence, Proven, Seen
from devicefix.config.version import __version__
from devicefix.runner.cache import digest, refuse_foreign, store

_WRONG = (ValueError, TypeError, KeyError)  # the errors that a broken file may cause


@dataclass(frozen=True, slots=True)
class State:
    """The state between two runs.

    Attributes:
        number: the index of the command that runs next.
        before: the evidence with which the earlier commands pass.
        evidence: the evidence to run this command with.
    """

    number: int = 0
    before: Evidence = NO_EVIDENCE
    evidence: Evidence = NO_EVIDENCE


class Progress:
    """The progress of a migration, in the user's cache, since the project's folder stays as it is.

    A wrong file does no harm: the last runs prove all fixes again.

    Args:
        commands: the commands.
        files: the files of the project, which must be the same to continue.
        enabled: whether to remember anything.

    Raises:
        ConfigError: the folder of the cache is something else.
    """

    def __init__(self, commands: Sequence[str], files: Iterable[Path], enabled: bool) -> None:
        self._file = None
        if enabled and commands:
            folder = user_cache()
            refuse_foreign(folder)
            self._file = folder / __version__ / f"{_key(commands, files)}.json"

    def load(self) -> State:
        """Return the state in which an earlier migration was interrupted, else the first one."""
        with suppress(OSError, *_WRONG):
            if self._file is not None:
                data = json.loads(self._file.read_text(encoding="utf-8"))
                return State(int(data["number"]), _evidence(data["before"]), _evidence(data["evidence"]))
        return State()

    def save(self, state: State) -> None:
        """Remember a state; if it can't be written, nothing is remembered."""
        if self._file is not None:
            plain = {name: _plain(getattr(state, name)) for name in ("before", "evidence")}
            store(self._file, json.dumps({"number": state.number, **plain}).encode())

    def forget(self) -> None:
        """Forget the state, at the end of the migration."""
        if self._file is not None:
            with suppress(OSError):
                self._file.unlink()


def user_cache() -> Path:
    """Return the folder for devicefix in the user's cache.

    https://specifications.freedesktop.org/basedir-spec/latest/, and on Windows the folder for local data
    """
    base = os.environ.get("LOCALAPPDATA" if os.name == "nt" else "XDG_CACHE_HOME")
    return Path(base or Path.home() / ".cache", "devicefix")


def _key(commands: Sequence[str], files: Iterable[Path]) -> str:
    contents = []
    for file in files:
        with suppress(OSError):
            contents.append((os.path.realpath(file), digest(file.read_bytes())))
    return digest(repr(("migrate", list(commands), contents)).encode())


def _plain(evidence: Evidence) -> dict[str, list[object]]:
    return {
        "seen": [[path, *seen] for path, seen in sorted(evidence.seen)],
        "proven": [[path, *proven] for path, proven in sorted(evidence.proven)],
    }


def _evidence(plain: dict[str, list[list[str]]]) -> Evidence:
    return Evidence(
        frozenset((path, Seen(kind, int(line), name)) for path, kind, line, name in plain["seen"]),
        frozenset((path, Proven(int(line), code)) for path, line, code in plain["proven"]),
    )
