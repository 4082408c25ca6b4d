"""Reads of NumPy arrays, which no call of torch shows: what the bytecode of running functions does next."""

from __future__ import annotations

import dis
import inspect
import sys
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any, NamedTuple

from devicefix.verify.runtime.names import names

_FRAMES = 16  # callers to look at
_ENDS = ("RETURN", "RAISE", "RERAISE", "YIELD")
_ATTRIBUTES = ("LOAD_ATTR", "LOAD_METHOD")
_OPERATORS = ("BINARY_", "INPLACE_", "COMPARE_OP", "UNARY_NEGATIVE", "FORMAT_")


class _Held(NamedTuple):
    """A variable of a running function that has an array."""

    frame: FrameType
    name: str
    value: Any


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
    found: list[_Held] = []
    frame: FrameType | None = sys._getframe(1)
    for _ in range(_FRAMES):
        while frame is not None and not is_project(frame.f_code.co_filename):
            frame = frame.f_back
        if frame is None:
            break
        found += _held(frame, shows)
        frame = frame.f_back
    if not found or _is_shared(found, tensors):
        return None
    for frame in {held.frame for held in found}:
        variables = {held.name for held in found if held.frame is frame}
        if _reads_next(frame.f_code, frame.f_lasti, variables):
            return True
    frames = ((held.frame.f_code, held.frame.f_lasti, held.name) for held in found)
    is_read = any(code.co_name != "<module>" or _may_read(code, last, name) for code, last, name in frames)
    return None if is_read else False


def _held(frame: FrameType, shows: Callable[[Any], bool]) -> list[_Held]:
    held = frame.f_locals
    found = [_Held(frame, name, held[name]) for name in list(held) if shows(held[name])]
    if frame.f_code.co_flags & inspect.CO_OPTIMIZED and isinstance(held, dict):
        held.clear()  # it is a copy, which would keep the variables' values alive
    return found


def _is_shared(found: list[_Held], tensors: int) -> bool:
    """Return whether something else has the array, and so may change it."""
    values = [held.value for held in found]
    for value in values:
        # A variable, its `_Held` and `values` hold each known reference; and `value` and the argument one.
        known = 3 * sum(value is other for other in values)
        if sys.getrefcount(value) > known + 2 + tensors:
            return True
        base = value.base
        if type(base) is type(value) and not any(base is other for other in values):
            if sys.getrefcount(base) > 3:  # the array, `base` and the argument
                return True
    return False


def _reads_next(code: CodeType, last: int, variables: set[str]) -> bool:
    """Return whether what code does next with some variables is certainly to read their content."""
    every = list(dis.get_instructions(code))
    certain = 0  # the offset up to which instructions may be left out
    for number, instruction in enumerate(every):
        if instruction.offset <= last:
            continue
        if any(_names(instruction, name) for name in variables):
            is_load = instruction.opname.startswith("LOAD")
            if not is_load or instruction.offset < certain:
                return False
            before, following = every[number - 1], every[number + 1 : number + 3]
            shape = following[0].opname in _ATTRIBUTES and following[0].argval in names("arrays", "shape")
            if not shape and before.argval != "len":
                return _is_read(before, following)
        if instruction.opname.startswith(_ENDS):
            return False
        if _is_jump(instruction):
            certain = max(certain, instruction.argval)
    return False


def _is_read(before: dis.Instruction, following: list[dis.Instruction]) -> bool:
    """Return whether the instructions around that which loads an array read its content."""
    if following[0].opname in _ATTRIBUTES:
        return following[0].argval in names("arrays", "methods")
    is_operand = any(instruction.opname.startswith(_OPERATORS) for instruction in following)
    return is_operand or before.argval in names("arrays", "functions")


def _names(instruction: dis.Instruction, name: str) -> bool:
    """Return whether an instruction reads or binds a variable that no other function binds."""
    value = instruction.argval
    is_named = name in value if isinstance(value, tuple) else name == value
    return is_named and any(kind in instruction.opname for kind in ("_FAST", "_NAME", "_GLOBAL"))


def _is_jump(instruction: dis.Instruction) -> bool:
    return instruction.opcode in dis.hasjrel or instruction.opcode in dis.hasjabs


def _may_read(code: CodeType, last: int, name: str) -> bool:
    """Return whether a module may read a variable after an instruction, also in a function."""
    if any(_mentions(part, name) for part in code.co_consts if isinstance(part, CodeType)):
        return True
    every = list(dis.get_instructions(code))
    first = min([last, *(each.argval for each in every if each.offset > last and _is_jump(each))])
    return any(_names(each, name) and each.opname.startswith("LOAD") for each in every if each.offset > first)


def _mentions(code: CodeType, name: str) -> bool:
    inner = (part for part in code.co_consts if isinstance(part, CodeType))
    return name in (*code.co_names, *code.co_freevars) or any(_mentions(part, name) for part in inner)
