"""Reads of NumPy arrays, which no call of torch shows: what the bytecode of running functions does next."""

from __future__ import annotations

import dis
import inspect
import sys
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any

_FRAMES = 16  # callers to look at
_SHAPE = frozenset(("shape", "dtype", "ndim", "size", "nbytes", "itemsize", "strides"))
_ENDS = ("RETURN", "RAISE", "RERAISE", "YIELD")


def read_follows(
    shows: Callable[[Any], bool], is_project: Callable[[str], bool], tensors: int = 0
) -> bool | None:
    """Return whether the program reads an array after the instructions that are running.

    Args:
        shows: whether a value is the array.
        is_project: whether a file is the user's.
        tensors: how many tensors hold the array.

    Returns:
        True if a running function certainly reads a variable that has it, False if only variables of a module
        have it and nothing reads them any more, and None if neither is known.
    """
    unread = False
    frame: FrameType | None = sys._getframe(1)
    for _ in range(_FRAMES):
        while frame is not None and not is_project(frame.f_code.co_filename):
            frame = frame.f_back
        if frame is None:
            break
        for name in _holders(frame, shows):
            if _reads_next(frame.f_code, frame.f_lasti, name):
                return True
            value = frame.f_locals[name] if frame.f_code.co_name == "<module>" else None
            # a dictionary, `value` and the argument each refer to the array
            unread = value is not None and sys.getrefcount(value) <= 3 + tensors
            if not unread or _may_read(frame.f_code, frame.f_lasti, name):
                return None
        frame = frame.f_back
    return False if unread else None


def _holders(frame: FrameType, shows: Callable[[Any], bool]) -> list[str]:
    """Return the names of the variables of a frame that have an array."""
    held = frame.f_locals
    names = [name for name in list(held) if shows(held[name])]
    if frame.f_code.co_flags & inspect.CO_OPTIMIZED and isinstance(held, dict):
        held.clear()  # it is a copy, which would keep the variables' values alive
    return names


def _reads_next(code: CodeType, last: int, name: str) -> bool:
    """Return whether code certainly reads the content of a variable after an instruction."""
    rest = [instruction for instruction in dis.get_instructions(code) if instruction.offset > last]
    for number, instruction in enumerate(rest):
        if _names(instruction, name):
            if not instruction.opname.startswith("LOAD"):
                return False
            behind = rest[number + 1]
            if behind.opname not in ("LOAD_ATTR", "LOAD_METHOD") or behind.argval not in _SHAPE:
                return not _is_changed(rest[number + 1 :])
        if instruction.opname.startswith(_ENDS) or _jumps_ahead(instruction):
            return False
    return False


def _names(instruction: dis.Instruction, name: str) -> bool:
    """Return whether an instruction reads or binds a variable."""
    value = instruction.argval
    is_named = name in value if isinstance(value, tuple) else name == value
    kinds = ("_FAST", "_NAME", "_GLOBAL", "_DEREF")
    return is_named and any(kind in instruction.opname for kind in kinds)


def _is_changed(rest: list[dis.Instruction]) -> bool:
    """Return whether the line goes on to change elements of what has been loaded."""
    for instruction in rest:
        if instruction.starts_line:
            return False
        if instruction.opname in ("STORE_SUBSCR", "STORE_SLICE"):
            return True
    return False


def _jumps_ahead(instruction: dis.Instruction) -> bool:
    """Return whether an instruction may leave out others, unless it is the end of a loop."""
    is_jump = instruction.opcode in dis.hasjrel or instruction.opcode in dis.hasjabs
    return is_jump and instruction.opname != "FOR_ITER" and instruction.argval > instruction.offset


def _may_read(code: CodeType, last: int, name: str) -> bool:
    """Return whether a module may read a variable after an instruction, also in a function."""
    inner = [part for part in code.co_consts if isinstance(part, CodeType)]
    if any(_mentions(part, name) for part in inner):
        return True
    every = list(dis.get_instructions(code))
    jumps = [each for each in every if each.offset > last and each.opcode in (*dis.hasjrel, *dis.hasjabs)]
    first = min((each.argval for each in jumps), default=last)
    return any(
        _names(each, name) and each.opname.startswith("LOAD")
        for each in every
        if each.offset > min(first, last)
    )


def _mentions(code: CodeType, name: str) -> bool:
    inner = (part for part in code.co_consts if isinstance(part, CodeType))
    return name in (*code.co_names, *code.co_freevars) or any(_mentions(part, name) for part in inner)
