"""Descriptions of differences for people."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from devicefix.verify.compare.difference import ONLY_CPU, ONLY_CUDA, Difference
from devicefix.verify.compare.streams import Value
from devicefix.verify.compare.values import is_close
from devicefix.verify.places import shown_path

_CALLS = {what: f"`.{what}()`" for what in ("item", "tolist", "numpy")}
_CALLS |= {what: f"`{what}()`" for what in ("float", "int", "print", "format")}
_CALLS |= {"array": "`numpy.asarray()`", "save": "`torch.save()`"}
_VERBS = {"print": "showed", "format": "showed", "save": "wrote"}
_PRECISION = 1e-3  # relative
_DIGITS = (4, 6, 8, 12)
CONTROL_FLOW = "look for conditions that depend on the device: a line runs a different number of times"


def describe(difference: Difference) -> str:
    """Describe a difference in one line."""
    here, there = "on CUDA", "on the CPU"
    if difference.same_machine:
        here, there = "in the original", "in the rewritten program"
    place = f"{shown_path(difference.file)}:{difference.line}: " if difference.file else ""
    return f"{place}{_text(difference, here, there)}"


def hint(difference: Difference) -> str:
    """Return what a difference between CUDA and the CPU may come from, and what to do about it."""
    if difference.kind == "draw":
        return "draw random numbers with a CPU generator, then move them"
    if difference.kind == "dtype":
        return "the program chooses another dtype on the CPU; to compare, use that dtype on CUDA too"
    if difference.kind in ("count", "missing", "shape", "end", "unreached"):
        return CONTROL_FLOW
    if _distance(difference) < _PRECISION:
        return "if this small difference is harmless, raise `--tolerance`"
    return "check earlier lines that move tensors or draw random numbers"


def _distance(difference: Difference) -> float:
    """Return the largest relative distance of two numbers; infinite if they cannot be compared."""
    one, other = difference.one, difference.other
    if not (isinstance(one, dict) and isinstance(other, dict)):
        return math.inf
    pairs = [(one["item"], other["item"])] if "item" in one and "item" in other else []
    pairs += zip(one.get("sample", ()), other.get("sample", ()), strict=False)
    try:
        return max((abs(a - b) / (max(abs(a), abs(b)) or 1) for a, b in pairs), default=math.inf)
    except TypeError:
        return math.inf


def _listed(gpus: list[int]) -> str:
    return ", ".join(map(str, gpus))


def _text(difference: Difference, here: str, there: str) -> str:
    if difference.kind == "draw":
        return _draw_text(difference, here, there)
    if difference.kind in _TEXTS:
        text, shown = _TEXTS[difference.kind]
        one, other = shown(difference.one), shown(difference.other)
        call = _CALLS.get(difference.what, "")
        return text.format(one=one, other=other, here=here, there=there, call=call, path=difference.path)
    is_missing = difference.one is None or difference.other is None
    return (_missing_text if is_missing else _value_text)(difference, here, there)


def _value_text(difference: Difference, here: str, there: str) -> str:
    left, right = _values(difference.kind, difference.one, difference.other)
    verb = f"{_CALLS[difference.what]} {_VERBS.get(difference.what, 'returned')}"
    path = f" `{difference.path}`:" if difference.path else ""
    return f"{verb}{path} {left} {here} and {right} {there} ({_number(difference)})"


def _missing_text(difference: Difference, here: str, there: str) -> str:
    if difference.kind == "unreached":
        lacks = f"does not run {there}, although it is not under a condition"
        return f"this line reads a tensor {here}, but {lacks}"
    if difference.kind in (ONLY_CUDA, ONLY_CPU):
        return f"this line reads a tensor {difference.kind}"
    has, lacks = (there, here) if difference.one is None else (here, there)
    if difference.path:
        return f"`torch.save()` wrote `{difference.path}` {has}, but not {lacks} ({_number(difference)})"
    return f"this line read a tensor {has}, but not {lacks} (process {difference.process})"


def _draw_text(difference: Difference, here: str, there: str) -> str:
    draws = (difference.one, difference.other)
    left, right = (_draw(draw, difference) if draw else "nothing" for draw in draws)
    return f"the {_ordinal(difference.number)} random draw was {left} {here} and {right} {there}"


def _options(options: list[str]) -> str:
    return f"with {' and '.join(options)}" if options else "without options"


def _draw(draw: Value, difference: Difference) -> str:
    """Describe a random draw, with its line where that is not the line of the difference."""
    place = f" (line {draw['line']})" if draw["line"] != difference.line else ""
    return f"`{draw['op']}` of {draw['numel']} on {draw['device']}{place}"


def _end(error: str | None) -> str:
    return f"with an error ({error})" if error else "without an error"


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


# The texts of some kinds of differences, and how their two values are shown.
_TEXTS: dict[str, tuple[str, Callable[[Any], str]]] = {
    "operations": ("{other} operations ran on {path} {there}, and {one} {here}", str),
    "lowered": ("autocast lowered the precision of {other} operations {there}, and of {one} {here}", str),
    "gpus": ("the program sees the GPUs {other} {there}, and {one} {here}", _listed),
    "autocast": ("{one} {here}, and {other} {there}", str),
    "scaler": ("a gradient scaler ended with {one} {here}, and with {other} {there}", str),
    "end": ("the program ended {one} {here}, and {other} {there}", _end),
    "count": ("{call} ran {one} {here} and {other} {there}", _times),
    "move": ("a tensor moved {path} {one} {here} and {other} {there}", _options),
}


def _number(difference: Difference) -> str:
    return f"{_ordinal(difference.number)} time at this line"


def _ordinal(number: int) -> str:
    ending = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number:,}{ending}"


def _values(kind: str, one: Value, other: Value) -> tuple[str, str]:
    """Return the part that differs, of both values."""
    if kind in ("device", "dtype"):
        preposition = "on" if kind == "device" else "of"
        return f"a tensor {preposition} {one[kind]}", f"{preposition} {other[kind]}"
    if kind == "shape":
        return f"shape {tuple(one[kind])}", f"{tuple(other[kind])}"
    if "item" in one:
        return _distinct(one["item"], other["item"])
    return _elements(one, other)


def _elements(one: Value, other: Value) -> tuple[str, str]:
    """Return the first sample that differs, or else the mean."""
    samples = zip(one.get("sample", ()), other.get("sample", ()), strict=False)
    for number, pair in enumerate(samples, 1):
        if not is_close(*pair, 1e-12):
            left, right = _distinct(*pair)
            return f"{_tensor(one)} with {left} as its {_ordinal(number)} sample", right
    if "mean" in one and one["mean"] != other["mean"]:
        left, right = _distinct(one["mean"], other["mean"])
        return f"{_tensor(one)} with the mean {left}", right
    return _tensor(one), "different elements"


def _tensor(value: Value) -> str:
    return f"{value['dtype']}{value['shape']}"


def _distinct(one: Any, other: Any) -> tuple[str, str]:
    """Format two numbers with as many digits as distinguish them."""
    for digits in _DIGITS:
        left, right = f"{one:.{digits}g}", f"{other:.{digits}g}"
        if left != right and not isinstance(one, bool):
            return left, right
    return repr(one), repr(other)
