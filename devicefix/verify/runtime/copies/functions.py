"""The effects of torch's functions on memory, by their names."""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum, auto
from types import FunctionType
from typing import Any

import torch


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


def words(text: str) -> frozenset[str]:
    """Return the words of a text."""
    return frozenset(text.split())


_ASKS = words("""
    size stride dim ndimension numel nelement get_device element_size storage_offset data_ptr
    __len__ __hash__ __dir__ shape dtype layout requires_grad grad_fn ndim names output_nr
    retains_grad name itemsize nbytes register_hook register_post_accumulate_grad_hook
    record_stream has_names storage_type _backward_hooks
    _post_accumulate_grad_hooks _grad _grad_fn _base _cdata _version _set_grad_enabled
    _has_compatible_shallow_copy_type _record_function_enter_new _RecordFunction
    is_floating_point is_complex is_tensor is_storage is_same_size result_type can_cast
    promote_types dim_order sparse_dim dense_dim _nnz
""")
_ALTERS = words("""
    requires_grad_ retain_grad detach_ resize_ resize_as_ set_ squeeze_ unsqueeze_ t_ transpose_
    swapaxes_ swapdims_ swap_dims_ as_strided_ rename_ data grad requires_grad
""")
_FILLS = words("""
    __setitem__ copy_ zero_ fill_ normal_ uniform_ random_ exponential_ bernoulli_ geometric_
    cauchy_ log_normal_ _foreach_zero_ _foreach_copy_
""")
_OPERATORS = frozenset(
    f"__i{name}__"
    for name in words("add sub mul div truediv floordiv mod pow matmul and or xor lshift rshift")
)
_PARTIAL = words("""
    __setitem__ index_add_ index_copy_ index_fill_ index_put_ index_reduce_ masked_fill_ masked_scatter_
    put_ scatter_ scatter_add_ scatter_reduce_ fill_diagonal_
""")
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
