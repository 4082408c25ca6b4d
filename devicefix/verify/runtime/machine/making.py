"""Creation of tensors: factories, legacy constructors, tensor types and generators."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch.overrides import handle_torch_function, has_torch_function
from torch.utils._device import _device_constructors

from devicefix.verify.runtime.machine.checks import common_place
from devicefix.verify.runtime.machine.patches import Patches
from devicefix.verify.runtime.machine.places import HOST, device, pin, place_of, put, put_new
from devicefix.verify.runtime.machine.state import CPU, Machine
from devicefix.verify.runtime.machine.tensors import BASE, Tensors, check_given, method, move, overridable
from devicefix.verify.runtime.names import names


def install(machine: Machine, patches: Patches) -> None:
    """Make all functions that create tensors use the devices of the machine.

    Args:
        machine: the machine.
        patches: records the replacements.
    """
    making = Making(machine)
    constructors = _device_constructors()  # caches the originals, which modes will receive
    sparse = {name: getattr(torch, name) for name in names("making", "sparse") if hasattr(torch, name)}
    for owner in (torch, torch.fft):
        for name, function in list(vars(owner).items()):
            if callable(function) and function in constructors:
                patches.set(owner, name, _named(making.creating(function), function))
    for name in names("making", "like"):
        original = getattr(torch, name)
        patches.set(torch, name, _named(making.creating(original, is_like=True), original))
    for name in names("making", "new"):
        made = making.creating(getattr(BASE, name), is_like=True)
        patches.set(torch.Tensor, name, overridable(name, made))
    for name, function in sparse.items():
        patches.set(torch, name, _named(making.of_parts(function), function))
    for name in ("tensor", "as_tensor", "asarray"):
        patches.set(torch, name, _named(method(getattr(making, name)), getattr(torch, name)))
    patches.set(torch.Tensor, "new_tensor", overridable("new_tensor", making.new_tensor))
    patches.set(torch.Tensor, "__new__", method(making.legacy))
    patches.set(torch.Tensor, "as_subclass", as_subclass)
    wrap = staticmethod(making.wrapper(BASE._make_wrapper_subclass))
    patches.set(torch.Tensor, "_make_wrapper_subclass", wrap)
    patches.set(torch._VF, "_pad_packed_sequence", _padded(torch._VF._pad_packed_sequence))
    _install_types(machine, patches)
    # A build for the CPU supports no GPU in these.
    names_of = {"__module__": "torch", "kind": machine.type}
    patches.set(torch, "device", _DeviceType("device", (), names_of))
    patches.set(torch, "Generator", _generator_type(machine))
    patches.set(torch._C._nn, "_parse_to", _parser(machine, torch._C._nn._parse_to))


def _named(call: Any, original: Any) -> Any:
    """Give a replacement the name of the original, for pickle too."""
    functools.update_wrapper(call, original)
    call.__module__, call.__qualname__ = "torch", original.__name__
    return call


def _padded(original: Callable[..., Any]) -> Callable[..., Any]:
    def _pad_packed_sequence(*args: Any) -> Any:
        padded, lengths = original(*args)
        return padded, put(lengths, HOST)

    return _pad_packed_sequence


def new_tensor(cls: Any, *args: Any, **kwargs: Any) -> Any:
    """Replace `torch.Tensor.__new__` where a mode watches the operations, which breaks it for subclasses."""
    if cls is torch.Tensor:
        return BASE.__new__(cls, *args, **kwargs)
    with torch._C._DisableTorchDispatch():
        return BASE.__new__(cls, *args, **kwargs)


def as_subclass(tensor: torch.Tensor, cls: Any) -> Any:
    """Replace `Tensor.as_subclass`, which a mode breaks before torch 2.6."""
    with torch._C._DisableTorchDispatch():
        return BASE.as_subclass(tensor, cls)


class Making:
    """The functions that create tensors.

    Args:
        machine: the machine.
    """

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._tensor = torch.tensor
        self._asarray = torch.asarray
        self._as_tensor = torch.as_tensor

    def creating(self, original: Callable[..., Any], is_like: bool = False) -> Callable[..., Any]:
        """Wrap a function that creates a tensor.

        Args:
            original: the function.
            is_like: whether the tensor is like another one, and so by default on the same device.
        """
        machine = self._machine

        def make(*args: Any, **kwargs: Any) -> Any:
            if is_like and args and not isinstance(args[0], torch.Tensor) and has_torch_function(args[:1]):
                return handle_torch_function(make, args[:1], *args, **kwargs)  # as a TensorDict
            asked = kwargs.get("device")
            if asked is not None:
                kwargs["device"] = machine.wanted(asked)
            elif not is_like and kwargs.get("out") is None:
                kwargs["device"] = machine.default_device()
            if kwargs.get("pin_memory"):
                return pinned(machine, original, args, kwargs)
            return original(*args, **kwargs)

        return make

    def _place(self, asked: Any, data: Any = None) -> tuple[int | None, Any]:
        """Return the place of the requested device, of the data, or else of the default device.

        Returns:
            The place, None for devices that are not simulated, and the device argument for torch.
        """
        if asked is None and isinstance(data, torch.Tensor):
            return place_of(data), "cpu"
        device = self._machine.default_device() if asked is None else self._machine.wanted(asked)
        place = {self._machine.type: device.index, "cpu": HOST}.get(device.type)
        return place, asked if place is None else "cpu"

    def tensor(self, data: Any, *, device: Any = None, **options: Any) -> Any:
        """Replace `torch.tensor`."""
        if options.get("pin_memory"):
            return pinned(self._machine, self.tensor, (data,), {**options, "device": device})
        place, there = self._place(device, data)
        made = self._tensor(data, device=there, **options)
        if place is not None and place >= 0:
            self._machine.on_gpu += 1
        return made if place is None else put_new(made, place)

    def new_tensor(self, tensor: torch.Tensor, data: Any, *, device: Any = None, **options: Any) -> Any:
        """Replace `Tensor.new_tensor`."""
        place = tensor.device if device is None else device
        return self.tensor(data, device=place, **{"dtype": tensor.dtype, **options})

    def as_tensor(self, data: Any, dtype: Any = None, device: Any = None) -> Any:
        """Replace `torch.as_tensor`."""
        place, there = self._place(device, data)
        made = self._as_tensor(data, dtype=dtype, device=there)
        return made if place is None else move(self._machine, made, place)

    def asarray(self, obj: Any, *, device: Any = None, **options: Any) -> Any:
        """Replace `torch.asarray`."""
        place, there = self._place(device, obj)
        made = self._asarray(obj, device=there, **options)
        if place is None:
            return made
        if isinstance(obj, torch.Tensor) and options.get("copy"):
            put(made, place_of(obj))
        return move(self._machine, made, place)

    def of_parts(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap a function that makes a sparse tensor of its parts."""

        def make(*args: Any, device: Any = None, **options: Any) -> Any:
            given = [each for each in (*args, *options.values()) if isinstance(each, torch.Tensor)]
            place, _ = (common_place(given), "cpu") if device is None and given else self._place(device)
            if place is None:
                return original(*args, device=device, **options)

            def there(part: Any) -> Any:
                if isinstance(part, list):  # of indices, or of values
                    part = put(self._tensor(part), place)
                return move(self._machine, part, place) if isinstance(part, torch.Tensor) else part

            options = {name: there(each) for name, each in options.items()}
            return put(original(*map(there, args), device="cpu", **options), place)

        return make

    def wrapper(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap the function that creates a tensor without memory, for a subclass that wraps other tensors."""

        def _make_wrapper_subclass(*args: Any, device: Any = None, **options: Any) -> Any:
            place, there = self._place("cpu" if device is None else device)
            made = original(*args, device=there, **options)
            return made if place is None else put(made, place)

        return _make_wrapper_subclass

    def legacy(self, cls: Any, *args: Any, **kwargs: Any) -> Any:
        """Replace `torch.Tensor.__new__`, also for subclasses."""
        machine, asked = self._machine, kwargs.pop("device", None)
        if asked is None:  # the default device does not matter, only the default type
            asked = CPU if machine.default == HOST else machine.index()
        place, _ = self._place(asked)
        made = new_tensor(cls, *args, **kwargs)
        if args and isinstance(args[0], torch.Tensor):
            return made  # the same memory, on any device
        shares = check_given(args, HOST if place is None else place)
        return made if shares or place is None else put(made, place)


def pinned(machine: Machine, original: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    """Create a tensor that claims to be in pinned memory, which a build for the CPU lacks; it starts CUDA.

    Args:
        machine: the machine.
        original: the function that creates it.
        args: its positional arguments.
        kwargs: its keyword arguments.

    Raises:
        RuntimeError: the tensor is on a GPU.
    """
    machine.index()
    machine.check_pinning()
    made = original(*args, **{**kwargs, "pin_memory": False})
    if place_of(made) >= 0:
        raise RuntimeError("Only dense CPU tensors can be pinned")
    return pin(made)


class TensorType(type):
    """The metaclass of tensor types such as `torch.cuda.FloatTensor`."""

    machine: Machine
    dtype: torch.dtype
    layout = torch.strided
    is_cuda: bool
    on_gpu: bool
    is_sparse = False
    plain: Any

    def __call__(cls, *args: Any, **kwargs: Any) -> torch.Tensor:
        """Create a tensor of this type."""
        machine = cls.machine
        place = machine.index() if cls.on_gpu else HOST
        kwargs.pop("device", None)
        if cls.on_gpu:  # the memory of an array is copied
            args = tuple(arg.copy() if type(arg).__module__ == "numpy" else arg for arg in args)
        made: torch.Tensor = cls.plain(*args, **kwargs)
        if not check_given(args, place):
            put(made, place)
        return made

    def __instancecheck__(cls, x: Any) -> bool:
        if not (isinstance(x, torch.Tensor) and x.dtype == cls.dtype):
            return False
        return (x.device.type == cls.machine.type) == cls.on_gpu


def _install_types(machine: Machine, patches: Patches) -> None:
    plain = {f"{kind}Tensor": getattr(torch, f"{kind}Tensor") for kind in names("making", "types")}
    for owner in filter(None, (torch, machine.tensor_types)):
        on_gpu, shown = owner is not torch, owner.__name__
        for name, original in plain.items():
            fields = {"machine": machine, "dtype": original.dtype, "plain": original, "on_gpu": on_gpu}
            fields |= {"is_cuda": on_gpu and machine.type == "cuda", "__module__": shown}
            patches.set(owner, name, TensorType(name, (), fields))
    set_type = torch._C._set_default_tensor_type

    def set_default_tensor_type(wanted: Any) -> None:
        kind = Tensors(machine).kind(wanted)
        if kind is None or not isinstance(kind, TensorType):
            raise TypeError(f"invalid type object: {wanted}")
        machine.default = machine.index() if kind.on_gpu else HOST
        set_type(kind.plain)

    patches.set(torch, "set_default_tensor_type", set_default_tensor_type)
    patches.set(torch._C, "_get_default_device", lambda: device(machine.default).type)


class _DeviceType(type):
    """The metaclass of the replacement of `torch.device`, which accepts the index of a GPU."""

    real: Any = torch.device
    kind: str

    def __instancecheck__(cls, x: Any) -> bool:
        return isinstance(x, _DeviceType.real)

    def __eq__(cls, other: object) -> bool:
        return other is cls or other is _DeviceType.real

    def __hash__(cls) -> int:
        return hash(_DeviceType.real)

    def __subclasscheck__(cls, other: Any) -> bool:
        return issubclass(other, (_DeviceType.real, cls)) if other is not cls else True

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        if len(args) == 1 and type(args[0]) is int and not kwargs:
            return _DeviceType.real(cls.kind, args[0])
        return _DeviceType.real(*args, **kwargs)


class _GeneratorType(type(torch._C.Generator)):  # type: ignore[misc]
    """The metaclass of the replacement of `torch.Generator`."""

    def __instancecheck__(cls, x: Any) -> bool:
        return isinstance(x, torch._C.Generator)


def _generator_type(machine: Machine) -> type:
    class Generator(torch._C.Generator, metaclass=_GeneratorType):
        """The replacement of `torch.Generator`."""

        def __new__(cls, device: Any = "cpu") -> Any:
            made: Any = super().__new__(cls)
            machine.wanted(device)  # there may be no such GPU
            made._asked = torch.device(device)
            if made._asked.type not in (machine.type, "cpu"):
                torch._C.Generator(device)  # torch refuses it
            machine.generators[made._cdata] = made._asked.type
            weakref.finalize(made, machine.generators.pop, made._cdata, None)
            return made

        @property
        def device(self) -> torch.device:  # type: ignore[override]
            """The device that the program requested."""
            asked: torch.device = self._asked  # type: ignore[attr-defined]
            return torch.device("cpu") if asked.type == "cpu" else asked

    Generator.__module__, Generator.__qualname__ = "torch", "Generator"
    return Generator


def _parser(machine: Machine, parse: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap the parser of the arguments of `Module.to` so that it accepts the index of a GPU."""

    def _parse_to(*args: Any, **kwargs: Any) -> Any:
        if args and type(args[0]) is int:
            args = (torch.device(machine.type, args[0]), *args[1:])
        if type(kwargs.get("device")) is int:
            kwargs["device"] = torch.device(machine.type, kwargs["device"])
        return parse(*args, **kwargs)

    return _parse_to
