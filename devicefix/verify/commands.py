"""A command, the limits of its run, and how the run ended."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from devicefix.verify.stdin import Input


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of a run.

    Attributes:
        timeout: the time limit in seconds, or None.
        memory: the memory limit in bytes, for all processes together, or None.
    """

    timeout: float | None = 600
    memory: int | None = None


@dataclass(frozen=True, slots=True)
class Command:
    """A command, and where to run it.

    Attributes:
        words: the words of the command.
        folder: the folder to run it in.
        environment: additional environment variables.
        to_stderr: whether to send its output to the standard error.
        stdin: its standard input.
        output: the file for its output; None to pass it on.
    """

    words: list[str]
    folder: Path
    environment: dict[str, str] = field(default_factory=dict)
    to_stderr: bool = False
    stdin: Input = field(default_factory=Input)
    output: Path | None = None


@dataclass(frozen=True, slots=True)
class Ended:
    """The end of a run.

    Attributes:
        status: the exit status; the negative number of the signal if one ended the process.
        seconds: the duration.
        limit: "timeout" or "memory" if that limit ended the run.
    """

    status: int
    seconds: float
    limit: str | None = None
