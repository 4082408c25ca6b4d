"""Operations: what a fix does to a node of the syntax tree. `transformer.py` carries them out with LibCST."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from devicefix.model import New, Operation


class Placed(NamedTuple):
    """An operation, and the offsets of its node in a text."""

    operation: Operation
    start: int
    end: int

    def moved(self, offset: int) -> Placed:
        """Return the operation in a text that holds the text from an offset on."""
        return Placed(self.operation, self.start + offset, self.end + offset)


# -- expressions -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Move(Operation):
    """Make `x.cuda(1, True)` into `x.to(device, non_blocking=True)`. The other arguments stay."""

    device: str


@dataclass(frozen=True, slots=True)
class AddKeyword(Operation):
    """Give a call one more keyword argument, the last one before `**kwargs`."""

    name: str
    value: str


@dataclass(frozen=True, slots=True)
class ReplaceFunction(Operation):
    """Call another function with the same arguments."""

    function: str


@dataclass(frozen=True, slots=True)
class KeepReceiver(Operation):
    """Keep `x` of the call `x.method(...)`."""


@dataclass(frozen=True, slots=True)
class Conditional(Operation):
    """Make `x` into `x if test else otherwise`.

    Attributes:
        test: The code of the test.
        otherwise: The code for when it is false, or what makes it from `x`.
        brackets: Whether to put brackets around the whole.
    """

    test: str
    otherwise: New
    brackets: bool = False


@dataclass(frozen=True, slots=True)
class Chain(Operation):
    """Change a node several times, one change after the other."""

    changes: tuple[New, ...]


# -- what is parsed by itself ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class KeepFirst(Operation):
    """Keep `a` of `a if b else c`, with the comments of the rest after it."""


@dataclass(frozen=True, slots=True)
class StatementOperation(Operation):
    """An operation on a statement, with the comments below that are indented as its last block.

    Attributes:
        indentation: The white space at the beginning of its lines.
        newline: The line end of the file.
    """

    indentation: str
    newline: str


@dataclass(frozen=True, slots=True)
class Guard(StatementOperation):
    """Put a statement under `if test:`.

    Attributes:
        test: The code of the test.
        indent: The white space by which the new block is indented.
        joins: Whether the statement above is under the same `if`.
    """

    test: str
    indent: str
    joins: bool = False


@dataclass(frozen=True, slots=True)
class KeepBranch(StatementOperation):
    """Put a branch of an `if` in the place of the whole.

    Attributes:
        orelse: Whether it is the `else`, and not the body.
        silent: Whether to keep a notebook from showing the value of the last statement.
    """

    orelse: bool
    silent: bool


@dataclass(frozen=True, slots=True)
class BecomeElse(StatementOperation):
    """Make the last `elif` of an `if` its `else`, in the place of the old one."""
