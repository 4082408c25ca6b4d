"""Autocast for the simulated GPUs.

Torch has a kernel at the dispatch key AutocastCUDA for each operation that autocast changes on CUDA. These
kernels ignore tensors in the CPU's memory. Here they are replaced by kernels that cast the tensors on
simulated GPUs. Torch itself decides, as on CUDA, in which blocks the key applies.

CUDA multiplies in low precision and adds up in float32. A CPU without instructions for the low precision
computes in float32 instead: from the same rounded operands, with the result rounded once.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import Any

import torch

from devicefix.verify.runtime.eager import tensors
from devicefix.verify.runtime.machine.patches import Patches
from devicefix.verify.runtime.machine.places import HOST, place_of
from devicefix.verify.runtime.machine.state import Machine
from devicefix.verify.runtime.names import names
from devicefix.verify.runtime.profiles import CUDA, PROFILES, Profile

_KEYS = {kind: f"Autocast{kind.upper()}" for kind in PROFILES}
_KEYS |= dict.fromkeys(("npu", "musa"), "AutocastPrivateUse1")
_current = [CUDA.type]  # the type of the GPUs of this process
_to: Any = torch._C.TensorBase.to

_LOW = frozenset((*names("autocast", "low"), *names("autocast", "rnn")))
_WIDEST, _ARGUMENT = names("autocast", "widest"), names("autocast", "argument")
_NORMS = {"norm.Scalar": "ScalarOpt_dtype", "norm.ScalarOpt_dim": "ScalarOpt_dim_dtype"}


def install(machine: Machine, patches: Patches) -> None:
    """Make autocast for the GPUs cast the tensors on them.

    Args:
        machine: the machine.
        patches: records the replacements.
    """
    _current[0] = machine.type
    casts = _registered(machine.profile)
    casts.machine = machine
    clear = torch.clear_autocast_cache

    def clear_autocast_cache() -> None:
        clear()
        casts.cache.clear()

    patches.set(torch, "clear_autocast_cache", clear_autocast_cache)


@functools.cache
def _registered(profile: Profile) -> _Casts:
    """Register the kernels, once for the process."""
    casts = _Casts()
    library = casts.library
    if profile.custom:  # torch has kernels for none of the other operations either
        others = torch.library.Library("_", "IMPL", _key())  # type: ignore[no-untyped-call]
        others.fallback(torch.library.fallthrough_kernel)  # type: ignore[no-untyped-call]
        casts.libraries.append(others)
    own = (name for name in torch._C._dispatch_get_all_op_names() if name.startswith("aten::"))
    replaced = [name for name in own if torch._C._dispatch_has_kernel_for_dispatch_key(name, profile.casts)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns of replaced kernels
        for name in [*replaced, *names("autocast", "rnn")]:
            packet, _, overload = name.removeprefix("aten::").partition(".")
            op = getattr(getattr(torch.ops.aten, packet), overload or "default")
            library.impl(name.removeprefix("aten::"), _kernel(op, casts), _key())  # type: ignore[no-untyped-call]
    return casts


def use(used: bool) -> None:
    """Set whether this thread uses the kernels where it has enabled autocast for the GPUs."""
    torch._C._dispatch_tls_set_dispatch_key_included(_key(), used)


def _key() -> str:
    """Return the dispatch key of autocast."""
    return _KEYS[_current[0]]


class _Casts:
    """The casts of arguments.

    Attributes:
        library: the kernels of the operations that autocast changes.
        libraries: this and those of all others; kernels are in use as long as these live.
        machine: the machine, which counts the operations in low precision.
        cache: the casts of parameters, with the parameters, by identity; until the outermost block ends.
    """

    machine: Machine

    def __init__(self) -> None:
        self.library = torch.library.Library("aten", "IMPL")  # type: ignore[no-untyped-call]
        self.libraries = [self.library]
        self.cache: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}

    def all(self, value: Any, dtype: torch.dtype) -> Any:
        """Return an argument with its tensors in another dtype."""
        if isinstance(value, torch.Tensor):
            return self._one(value, dtype) if is_cast(value) and value.dtype != dtype else value
        if isinstance(value, (list, tuple)):
            return [self.all(each, dtype) for each in value]
        return value

    def _one(self, tensor: torch.Tensor, dtype: torch.dtype) -> Any:
        is_weight = tensor.dtype == torch.float32 and tensor.requires_grad and tensor.is_leaf
        if not is_weight or tensor._is_view() or not torch.is_autocast_cache_enabled():
            return _to(tensor, dtype)
        found = self.cache.get(id(tensor))
        if found is None or found[1].dtype != dtype:
            found = self.cache[id(tensor)] = tensor, _to(tensor, dtype)
        return found[1]


def is_cast(tensor: torch.Tensor) -> bool:
    """Return whether autocast for the GPUs changes the dtype of a tensor."""
    return tensor.is_floating_point() and tensor.dtype != torch.float64 and place_of(tensor) != HOST


def low_dtype() -> torch.dtype:
    """Return the dtype of autocast for the GPUs in this thread."""
    if hasattr(torch, "get_autocast_dtype"):
        return torch.get_autocast_dtype(_current[0])
    return torch.get_autocast_gpu_dtype()


@functools.cache
def _is_fast(dtype: torch.dtype) -> bool:
    """Return whether this CPU has instructions for a dtype; without them it may be 30 times as slow."""
    names = {torch.float16: "_is_mkldnn_fp16_supported", torch.bfloat16: "_is_mkldnn_bf16_supported"}
    if dtype not in names:
        return True
    return bool(getattr(torch.ops.mkldnn, names[dtype], bool)())


def _kernel(op: Any, casts: _Casts) -> Callable[..., Any]:
    """Return the kernel of an operation for the dispatch key of autocast."""
    run, keys = _runner(op, casts), torch._C.DispatchKeySet(getattr(torch._C.DispatchKey, _key()))

    def kernel(*args: Any, **kwargs: Any) -> Any:
        with torch._C._ExcludeDispatchKeyGuard(keys), torch._C.DisableTorchFunction():
            return run(args, kwargs)

    return kernel


def _runner(op: Any, casts: _Casts) -> Callable[[Any, Any], Any]:  # noqa: C901  one small function for each kind
    name = op._schema.name.removeprefix("aten::")
    full = f"{name}.{op._schema.overload_name}"

    def cast(args: Any, kwargs: Any, dtype: torch.dtype) -> Any:
        return op(*casts.all(args, dtype), **{key: casts.all(value, dtype) for key, value in kwargs.items()})

    def low(args: Any, kwargs: Any) -> Any:
        dtype = low_dtype()
        casts.machine.lowered += dtype != torch.float32 and any(map(is_cast, tensors(args)))
        args, kwargs = casts.all(args, dtype), {key: casts.all(value, dtype) for key, value in kwargs.items()}
        if _is_fast(dtype):
            try:
                return op(*args, **kwargs)
            except RuntimeError as problem:
                if "not implemented for" not in str(problem) or dtype == torch.float32:
                    raise  # otherwise the CPU lacks it in low precision
        return casts.all(cast(args, kwargs, torch.float32), dtype)

    def widest(args: Any, kwargs: Any) -> Any:
        found = {each.dtype for each in tensors([args, *kwargs.values()]) if is_cast(each)}
        return cast(args, kwargs, torch.float32 if torch.float32 in found else low_dtype())

    def argument(args: Any, kwargs: Any) -> Any:
        place = next(i for i, each in enumerate(op._schema.arguments) if each.name == "dtype")
        given = args[place] if place < len(args) else kwargs.get("dtype")
        if given is None and is_cast(args[0]):
            args, kwargs = args[:place], {**kwargs, "dtype": torch.float32}
        return op(*args, **kwargs)

    def norm(args: Any, kwargs: Any) -> Any:
        if not is_cast(args[0]):
            return op(*args, **kwargs)
        args = args if len(args) > 1 else (*args, 2)
        return getattr(torch.ops.aten.norm, _NORMS[full])(*args, dtype=torch.float32, **kwargs)

    def refused(args: Any, kwargs: Any) -> Any:
        if any(map(is_cast, tensors(args))):
            names = "torch.nn.functional.binary_cross_entropy and torch.nn.BCELoss"
            raise RuntimeError(f"{names} are unsafe to autocast")
        return op(*args, **kwargs)

    if name in _LOW or f"aten::{full}" in _LOW:
        return low
    if name in _WIDEST:
        return widest
    if name in _ARGUMENT:
        return argument
    if full in _NORMS:
        return norm
    if name == "binary_cross_entropy":
        return refused
    return lambda args, kwargs: cast(args, kwargs, torch.float32)
