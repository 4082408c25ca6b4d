"""The effects of torch's functions on memory, by their names."""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum, auto
from types import FunctionType
from typing import Any

import torch

from devicefix.verify.runtime.names import names


class Kind(IntEnum):
    """The effect of a function on the memory of its arguments. Up to ALTERS, only watched memory matters."""

    ASKS = auto()  # reads attributes, not the content
    READS = auto()
    WRITES = auto()  # reads and changes in place
    FILLS = auto()  # changes in place without reading
    LOOKS = auto()  # creates a tensor of the same shape
    ALTERS = auto()  # changes the attributes, not the content
    SETS_DATA = auto()
    DETACHES = auto()
    DEVICE = auto()  # reads the device
    MOVES = auto()
    EXPORTS = auto()  # to NumPy


_ASKS, _ALTERS, _FILLS, _OPERATORS, _PARTIAL = (
    frozenset(names("memory", kind)) for kind in ("asks", "alters", "fills", "operators", "partial")
)
_MOVES = ("to", "cpu", "cuda", "type", "type_as", "as_tensor", "asarray")
_MADE_OF = (torch.as_tensor, torch.asarray)
_BY_NAME = {
    "device": Kind.DEVICE,
    "detach": Kind.DETACHES,
    "data": Kind.DETACHES,
    "numpy": Kind.EXPORTS,
    "__array__": Kind.EXPORTS,
    "grad": Kind.LOOKS,
}
KNOWN: dict[Any, Kind] = {}  # the kinds of functions that were called


def kind_of(function: Callable[..., Any]) -> Kind:
    """Return the kind of a function.

    Args:
        function: the function, as a TorchFunctionMode receives it.
    """
    try:
        known = KNOWN.get(function)
    except TypeError:  # not hashable
        return _judge(function)
    if known is None:
        known = _judge(function)
        if len(KNOWN) < 10_000:  # a program may create functions without end
            KNOWN[function] = known
    return known


def name_of(function: Callable[..., Any]) -> str:
    """Return the name of a function, or of the attribute that it reads or sets."""
    name = getattr(function, "__name__", "")
    if name in ("__get__", "__set__", "__delete__"):
        return str(getattr(getattr(function, "__self__", None), "__name__", ""))
    return str(name)


def shows(function: Callable[..., Any]) -> bool:
    """Return whether a function returns the content of a tensor as text."""
    return name_of(function) in ("__repr__", "__format__")


def is_partial(function: Callable[..., Any]) -> bool:
    """Return whether a function changes those elements of its first argument that others select."""
    return name_of(function) in _PARTIAL


def targets_of(
    kind: Kind, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[Any, ...]:
    """Return the arguments that a call changes in place, even if their version counters do not change.

    Args:
        kind: the kind of the function.
        function: the function.
        args: its positional arguments.
        kwargs: its keyword arguments.
    """
    out = kwargs.get("out")
    if kind in (Kind.WRITES, Kind.FILLS):
        return (out, *args[:1])
    if name_of(function) in ("batch_norm", "instance_norm"):
        by_name = kwargs.get("training", kwargs.get("use_input_stats"))
        if by_name or (len(args) > 5 and args[5]):
            # Statistics change without a new version. Functions in Python take them first, those in C++ last.
            return (out, *(args[1:3] if isinstance(function, FunctionType) else args[3:5]))
    return (out,)


def _judge(function: Callable[..., Any]) -> Kind:
    name = name_of(function)
    if getattr(function, "__name__", "") in ("__set__", "__delete__"):
        if name == "data":
            return Kind.SETS_DATA
        return Kind.ALTERS if name in _ALTERS else Kind.ASKS
    if name in _BY_NAME:
        return _BY_NAME[name]
    if name in _ASKS or (name.startswith("is_") and name != "is_set_to") or not name:
        return Kind.ASKS
    if name in _MOVES and (function in _MADE_OF or function is getattr(torch.Tensor, name, None)):
        return Kind.MOVES
    return _kind_of_name(name)


def _kind_of_name(name: str) -> Kind:
    """Return the kind of a function that follows torch's naming conventions."""
    if name in _ALTERS and name.endswith("_"):
        return Kind.ALTERS
    if name in _FILLS:
        return Kind.FILLS
    if name.startswith("new_") or name.endswith("_like"):
        return Kind.LOOKS
    in_place = name in _OPERATORS or (name.endswith("_") and not name.endswith("__"))
    return Kind.WRITES if in_place else Kind.READS
