"""The methods of tensors and storages that report a device or move to one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.overrides import handle_torch_function, has_torch_function_unary

from devicefix.verify.runtime.machine.kernels import type_name
from devicefix.verify.runtime.machine.patches import Patches
from devicefix.verify.runtime.machine.places import FREE, HOST, device, is_pinned, pin, place_of, put
from devicefix.verify.runtime.machine.state import Machine

BASE: Any = torch._C.TensorBase
_device = BASE.device.__get__
_to = BASE.to
_type = BASE.type
_numpy = BASE.numpy
_copy = torch.ops.aten._to_copy.default
# The types of Python that torch takes for dtypes.
_OF_PYTHON: dict[Any, torch.dtype] = {
    bool: torch.bool,
    int: torch.int64,
    float: torch.float64,
    complex: torch.complex128,
}


def install(machine: Machine, patches: Patches) -> None:
    """Make tensors report the devices of the machine.

    Args:
        machine: the machine.
        patches: records the replacements.
    """
    for name, value in Tensors(machine).methods().items():
        patches.set(torch.Tensor, name, overridable(name, value))
    public: Any = torch.Tensor
    torch.overrides.get_default_nowrap_functions().add(public.grad.__get__)
    _allow_uninitialized(patches)
    for name, value in Storages(machine).methods().items():
        patches.set(torch.UntypedStorage, name, value)


def overridable(name: str, value: Any) -> Any:
    """Make a replacement obey `__torch_function__`, as torch's own methods do.

    Args:
        name: the name of the attribute of `torch.Tensor`.
        value: its replacement, which is a function or a property.
    """
    public: Any = torch.Tensor
    if isinstance(value, property):
        return _Attribute(
            name,
            _overridable(value.fget, lambda: getattr(public, name).__get__),
            value.fset and _overridable(value.fset, lambda: getattr(public, name).__set__),
            value.fdel and _overridable(value.fdel, lambda: getattr(public, name).__delete__),
        )
    made = _overridable(value, lambda: getattr(public, name))
    made.__name__, made.__qualname__ = name, f"Tensor.{name}"
    return made


class _Attribute(property):
    """An attribute of tensors, which TorchDynamo takes for one of torch's own."""

    __objclass__ = torch._C.TensorBase

    def __init__(self, name: str, *functions: Any) -> None:
        super().__init__(*functions)
        self.__name__ = name


def _overridable(call: Any, public: Callable[[], Any]) -> Callable[..., Any]:
    def overridden(tensor: Any, *args: Any, **kwargs: Any) -> Any:
        if has_torch_function_unary(tensor):
            return handle_torch_function(public(), (tensor,), tensor, *args, **kwargs)
        return call(tensor, *args, **kwargs)

    return overridden


def _allow_uninitialized(patches: Patches) -> None:
    """Let the parameters of lazy modules have the replacements of the methods that they allow."""
    mixin: Any = vars(torch.nn.parameter)["UninitializedTensorMixin"]
    allowed = [getattr(torch.Tensor, call.__name__, call) for call in mixin._allowed_methods]
    patches.set(mixin, "_allowed_methods", allowed)


def method(call: Callable[..., Any]) -> Callable[..., Any]:
    """Turn a bound method into a method of another class, which gets the instance as an argument."""

    def bound(self: Any, *args: Any, **kwargs: Any) -> Any:
        return call(self, *args, **kwargs)

    return bound


def move(
    machine: Machine, tensor: torch.Tensor, place: int, dtype: torch.dtype | None = None, **options: Any
) -> Any:
    """Move a tensor to a place.

    Args:
        machine: the machine.
        tensor: the tensor.
        place: the place to move it to.
        dtype: the dtype to convert it to, or None.
        **options: `copy`, `memory_format` and `non_blocking`, as for `Tensor.to`.

    Returns:
        The tensor itself if it is there already and nothing changes, else a copy.
    """
    here = place_of(tensor)
    if here == FREE:
        here = place_of(put(tensor, place))
    dtype = dtype or tensor.dtype
    if here == place:
        return _to(tensor, dtype, **options)
    form = options.get("memory_format")
    if machine.moves is not None:
        ends, asynchronous = (str(device(here)), str(device(place))), bool(options.get("non_blocking"))
        machine.moves.add(*ends, is_pinned(tensor), asynchronous, form)
    if tensor.requires_grad and torch.is_grad_enabled():
        return Move.apply(tensor, machine, place, dtype, form)  # type: ignore[no-untyped-call]
    return _moved(machine, tensor, place, dtype, form)


def _moved(machine: Machine, tensor: torch.Tensor, place: int, dtype: torch.dtype, form: Any) -> Any:
    options = {} if form is None else {"memory_format": form}
    return _copy(tensor, dtype=dtype, device=machine.device_for(place), **options)


class Move(torch.autograd.Function):
    """The copy from one device to another, whose gradient is copied back."""

    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor, *options: Any) -> Any:
        """Copy a tensor; the options are the machine, the place, the dtype and the memory format."""
        machine, place, dtype, form = options
        ctx.machine, ctx.source, ctx.dtype = machine, place_of(tensor), tensor.dtype
        moved = _moved(machine, tensor.detach(), place, dtype, form)
        if not (moved.is_floating_point() or moved.is_complex()):
            ctx.mark_non_differentiable(moved)
        return moved

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> Any:
        """Copy the gradient back."""
        return move(ctx.machine, grad, ctx.source, ctx.dtype), None, None, None, None


class Tensors:
    """The methods of tensors that depend on devices.

    Args:
        machine: the machine.
    """

    def __init__(self, machine: Machine) -> None:
        self._machine = machine

    def methods(self) -> dict[str, Any]:
        """Return the replacements for attributes of `torch.Tensor`, by name."""
        kind = self._machine.type
        return {
            "device": property(self._device),
            f"is_{kind}": property(lambda x: self.place(x) >= 0),
            "is_cpu": property(lambda x: self.place(x) == HOST and BASE.is_cpu.__get__(x)),
            "grad": property(BASE.grad.__get__, self._set_grad, BASE.grad.__delete__),
            "get_device": lambda x: max(self.place(x), HOST),
            "cpu": lambda x, memory_format=None: self._move(x, HOST, memory_format=memory_format),
            "to": method(self._to),
            "type": method(self._type),
            "type_as": method(self._to),
            "numpy": method(self._numpy),
            "new": method(self._new),
            "pin_memory": method(self._pin),
            "is_pinned": lambda x, *_, **__: is_pinned(x),
            "record_stream": method(self._record_stream),
            **({kind: method(self._gpu)} if hasattr(BASE, kind) or self._machine.profile.custom else {}),
        }

    def place(self, tensor: torch.Tensor) -> int:
        """Return the place of a tensor that the program sees."""
        return self._machine.seen(place_of(tensor))

    def _device(self, tensor: torch.Tensor) -> Any:
        place = self.place(tensor)
        return device(place) if place >= 0 else _device(tensor)

    def _move(self, tensor: torch.Tensor, place: int, dtype: Any = None, **options: Any) -> Any:
        options = {name: value for name, value in options.items() if value is not None}
        return move(self._machine, tensor, place, dtype, **options)

    def _gpu(
        self, tensor: torch.Tensor, device: Any = None, non_blocking: bool = False, memory_format: Any = None
    ) -> Any:
        kind = self._machine.type
        if device is not None and not isinstance(device, int) and torch.device(device).type != kind:
            raise RuntimeError(f"Invalid device, must be {kind} device, but got {device}")
        place = self._machine.index(device)
        return self._move(tensor, place, non_blocking=non_blocking, memory_format=memory_format)

    def _to(self, tensor: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        args = tuple(_OF_PYTHON.get(each, each) if isinstance(each, type) else each for each in args)
        if isinstance(kwargs.get("dtype"), type):
            kwargs["dtype"] = _OF_PYTHON.get(kwargs["dtype"], kwargs["dtype"])
        first = args[0] if args else kwargs.get("other", kwargs.get("device", kwargs.get("dtype")))
        if isinstance(first, torch.dtype) and kwargs.get("device") is None:
            return _to(tensor, *args, **kwargs)
        names = ("copy", "memory_format", "non_blocking")
        options = {name: kwargs[name] for name in names if kwargs.get(name) is not None}
        rest = list(args[1:])
        dtype = kwargs.get("dtype")
        wanted = first
        if isinstance(first, torch.Tensor):
            dtype = first.dtype
        elif isinstance(first, torch.dtype):
            wanted, dtype = kwargs["device"], first
        elif rest and not isinstance(rest[0], bool):
            dtype = rest.pop(0) or dtype
        options |= zip(("non_blocking", "copy"), rest, strict=False)
        if wanted is None:
            return _to(tensor, *args, **kwargs)
        target = self._machine.wanted(wanted)
        gpu = self._machine.type
        if target.type not in (gpu, "cpu") or _device(tensor).type != "cpu":
            return _to(tensor, target, dtype or tensor.dtype, **options)
        return move(self._machine, tensor, target.index if target.type == gpu else HOST, dtype, **options)

    def _type(self, tensor: torch.Tensor, dtype: Any = None, non_blocking: bool = False, **_: Any) -> Any:
        here = self.place(tensor)
        if dtype is None:
            name = _type(tensor)
            return name if here < 0 else name.replace("torch.", f"torch.{self._machine.type}.", 1)
        if isinstance(dtype, torch.dtype):
            return _to(tensor, dtype)
        kind = self.kind(dtype)
        if kind is None:
            return _type(tensor, dtype, non_blocking)
        if not kind.on_gpu:
            return move(self._machine, tensor, HOST, kind.dtype, non_blocking=non_blocking)
        # a tensor on a GPU stays on that GPU
        place = here if here >= 0 else self._machine.index()
        return move(self._machine, tensor, place, kind.dtype, non_blocking=non_blocking)

    def kind(self, named: Any) -> Any:
        """Return the tensor type that a program names, or None if it is unknown.

        Args:
            named: a tensor type or its name.
        """
        if isinstance(named, str):
            module, _, name = named.rpartition(".")
            owner = {"torch": torch, f"torch.{self._machine.type}": self._machine.tensor_types}.get(module)
            named = getattr(owner, name, None)
        return named if isinstance(getattr(named, "dtype", None), torch.dtype) else None

    def _numpy(self, tensor: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        place = place_of(tensor)
        if place >= 0:
            if not kwargs.get("force"):
                advice = "Use Tensor.cpu() to copy the tensor to host memory first."
                raise TypeError(f"can't convert {device(place)} device type tensor to numpy. {advice}")
            tensor = move(self._machine, tensor.detach(), HOST)
        return _numpy(tensor, *args, **kwargs)

    def _new(self, tensor: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        asked = kwargs.pop("device", None)
        place = self.place(tensor) if asked is None else self._machine.index(asked)
        made = BASE.new(tensor, *args, **kwargs)
        if not check_given(args, place):
            put(made, place)
        return made

    def _pin(self, tensor: torch.Tensor, *_: Any, **__: Any) -> Any:
        if place_of(tensor) >= 0:
            kind = f"torch.{self._machine.type}.{type_name(tensor)}Tensor"
            raise RuntimeError(f"cannot pin '{kind}' only dense CPU tensors can be pinned")
        self._machine.check_pinning()
        self._machine.index()
        return tensor if tensor.is_pinned() else pin(tensor.clone())

    def _record_stream(self, tensor: torch.Tensor, *_: Any) -> None:
        if self.place(tensor) < 0:
            problem = "Could not run 'aten::record_stream' with arguments from the 'CPU' backend"
            raise NotImplementedError(problem)

    def _set_grad(self, tensor: torch.Tensor, grad: Any) -> None:
        if isinstance(grad, torch.Tensor):
            here, there = place_of(tensor), place_of(grad)
            if there == FREE:
                put(grad, here)
            elif here not in (there, FREE):
                raise _other_gradient(device(here), device(there))
        BASE.grad.__set__(tensor, grad)


def _other_gradient(wanted: torch.device, given: torch.device) -> RuntimeError:
    if given.type == wanted.type:
        return RuntimeError("assigned grad has data located on a different device")
    return RuntimeError(
        f"attempting to assign a gradient with device type '{given.type}' to a tensor with device type"
        f" '{wanted.type}'. Please ensure that the gradient and the tensor are on the same device"
    )


def check_given(args: tuple[Any, ...], place: int) -> bool:
    """Return whether a legacy constructor receives memory to share.

    Args:
        args: the arguments of the constructor.
        place: the place at which it creates tensors.

    Raises:
        TypeError: the memory is at another place.
    """
    if not args or not isinstance(args[0], (torch.Tensor, torch.UntypedStorage, torch.TypedStorage)):
        return False
    given = args[0] if isinstance(args[0], torch.Tensor) else None
    here = place if given is None else place_of(given)
    if here not in (place, FREE):
        expected = f"legacy constructor expects device type: {device(place).type}"
        raise TypeError(f"{expected} but device type: {device(here).type} was passed")
    return True


class Storages:
    """The methods of storages that depend on devices.

    Args:
        machine: the machine.
    """

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._real: Any = torch.UntypedStorage.device

    def methods(self) -> dict[str, Any]:
        """Return the replacements for attributes of `torch.UntypedStorage`, by name."""
        return {
            "device": property(self._device),
            "clone": lambda storage: self._copy(storage, storage._devicefix_place),
            self._machine.type: lambda storage, device=None, *_, **__: self._to(storage, device),
            "to": lambda storage, *, device, **_: self._to(storage, device),
            "pin_memory": lambda storage, *_, **__: storage.clone(),
        }

    def _device(self, storage: Any) -> Any:
        place = self._machine.seen(storage._devicefix_place)
        return device(place) if place >= 0 else self._real.__get__(storage)

    def _to(self, storage: Any, wanted: Any) -> Any:
        place = self._machine.index(wanted)
        return storage if storage._devicefix_place == place else self._copy(storage, place)

    def _copy(self, storage: Any, place: int) -> Any:
        copied: Any = type(storage)(storage.nbytes())
        copied.copy_(storage, False)
        copied._devicefix_place = place
        return copied
