"""The dispatch mode: it sees every operation, rejects mixed devices, and sets the places of results."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from devicefix.verify.runtime.eager import tensors
from devicefix.verify.runtime.machine import autocast
from devicefix.verify.runtime.machine.places import FREE, HOST, device, place_of, put, put_new
from devicefix.verify.runtime.machine.state import Machine
from devicefix.verify.runtime.names import names

_TENSOR = ("Tensor", "Optional[Tensor]")
_LISTS = ("List[Tensor]", "Optional[List[Tensor]]", "List[Optional[Tensor]]")
_LACKING = -3  # the place of an operation without tensors
_CPU = torch.device("cpu")
_NO_DISPATCH = torch._C._disabled_torch_dispatch_impl


class Traits:
    """The properties of an operation, from its schema.

    Attributes:
        name: the name without namespace and overload.
        composite: whether it consists of other operations, and arrives whole only in inference mode.
        tensors: the positions of its tensors.
        lists: the positions of its lists of tensors.
        keywords: its keyword arguments that are tensors, or lists of them.
        makes: whether it returns new memory.
        places: whether it has a `device` argument.
        draws: whether it draws random numbers.
        indexing: whether it takes an index, which may be on the CPU.
        first: whether its first tensor alone decides where it runs.
        strict: whether it rejects scalars on the CPU together with CUDA tensors.
        rows: whether it works on lists of tensors in parallel.
        inplace: whether it changes its first tensor.
        collective: whether it makes processes communicate.
        plain: whether it needs no special treatment.
    """

    def __init__(self, func: Any) -> None:
        schema = func._schema
        namespace, _, self.name = schema.name.rpartition("::")
        has_kernel = torch._C._dispatch_has_kernel_for_dispatch_key
        composite = has_kernel(func.name(), "CompositeImplicitAutograd")
        # not those with a kernel for the CPU, such as `silu_backward`, whose parts round differently
        self.composite = composite and not has_kernel(func.name(), "CPU")
        arguments = [(i, str(argument.type), argument) for i, argument in enumerate(schema.arguments)]
        foreign = namespace in ("c10d", "_c10d_functional", "profiler")
        positional = [(i, kind) for i, kind, a in arguments if not (foreign or a.kwarg_only)]
        self.tensors = [i for i, kind in positional if kind in _TENSOR]
        self.lists = [i for i, kind in positional if kind in _LISTS]
        self.keywords = [a.name for _, kind, a in arguments if a.kwarg_only and kind in (*_TENSOR, *_LISTS)]
        self.makes = not foreign and any(value.alias_info is None for value in schema.returns)
        self.places = any(a.name == "device" for *_, a in arguments)
        self.draws = torch.Tag.nondeterministic_seeded in func.tags
        self.indexing = self.name in names("operations", "indexing")
        self.first = self.name in names("operations", "first")
        self.strict = self.name in names("operations", "strict")
        self.rows = self.name.startswith(("_foreach", "_fused"))
        self.inplace = self.name.endswith("_") and not self.name.endswith("__")
        if self.name in names("operations", "storages"):
            self.tensors, self.makes = [], False
        self.collective = namespace == "c10d"
        traits = (self.composite, self.keywords, self.places, self.draws, self.indexing, self.first)
        self.plain = not (any(traits) or self.collective)


def _program_runs(types: Any) -> bool:
    """Return whether a class has a `__torch_dispatch__` of its own."""
    return any(kind.__torch_dispatch__ is not _NO_DISPATCH for kind in types)


class Transparent(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """A mode that sees every operation and changes nothing."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # otherwise each operation passes a wrapper, and the first imports TorchDynamo

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run an operation, unless a subclass of the program does so."""
        if types and _program_runs(types):
            return NotImplemented
        return func(*args, **kwargs) if kwargs else func(*args)


class Kernels(Transparent):  # type: ignore[no-untyped-call]
    """A mode that runs the operations of the simulated machine on the CPU.

    Args:
        machine: the machine.
    """

    def __init__(self, machine: Machine) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._machine = machine
        self._traits: dict[Any, Traits] = {}

    def __enter__(self) -> Any:
        autocast.use(self._machine.autocast)
        return super().__enter__()  # type: ignore[no-untyped-call]

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)  # type: ignore[no-untyped-call]
        autocast.use(False)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run an operation on the CPU, and set the places of its results."""
        if types and _program_runs(types):
            return NotImplemented  # its `__torch_dispatch__` runs operations on plain tensors
        traits = self._traits.get(func)
        if traits is None:
            traits = self._traits[func] = Traits(func)
        special = self._for_each if traits.rows else self._special
        if traits.collective:
            special = self._collective
        if not traits.plain:
            return special(traits, func, args, kwargs or {})
        try:
            places = {tensor.untyped_storage()._devicefix_place for tensor in _given(traits, args, {})}
        except RuntimeError:  # a tensor without a storage
            return special(traits, func, args, kwargs or {})
        if len(places) > 1:
            return special(traits, func, args, kwargs or {})
        place = places.pop() if places else _LACKING
        out = func(*args, **kwargs) if kwargs else func(*args)
        if place == HOST:
            self._machine.on_cpu += 1
        elif place != _LACKING:
            self._finish(traits, out, place)
        return out

    def _finish(self, traits: Traits, out: Any, place: int) -> None:
        """Count an operation at a place, and set the places of its results."""
        machine = self._machine
        if place < 0:
            machine.on_cpu += 1
        else:
            machine.on_gpu += 1
            if machine.forked:
                machine.initialize()
        if traits.makes:
            if type(out) is torch.Tensor:
                put_new(out, place)
            else:
                for tensor in tensors(out):
                    put_new(tensor, place)

    def _common(self, traits: Traits, given: list[torch.Tensor]) -> int:
        """Return where an operation runs, and move its free tensors there.

        Raises:
            RuntimeError: the tensors are on several devices.
        """
        places: list[int] = []
        for number, tensor in enumerate(given):
            here = place_of(tensor)
            is_changed = traits.inplace and number == 0
            is_scalar = here == HOST and not (tensor.dim() or traits.strict or is_changed)
            if here != FREE and here not in places and not is_scalar:
                places.append(here)
        if len(places) > 1:
            raise different(places)
        free = [tensor for tensor in given if place_of(tensor) == FREE]
        if not places:
            return _LACKING if not given else FREE if len(free) == len(given) else HOST
        for tensor in free:
            put(tensor, places[0])
        return places[0]

    def _for_each(self, traits: Traits, func: Any, args: Any, kwargs: Any) -> Any:
        """Run an operation on lists of tensors, whose elements at the same index belong together."""
        lists = [args[i] for i in traits.lists if i < len(args) and args[i]]
        places = [self._common(traits, list(row)) for row in zip(*lists, strict=True)]
        out = func(*args, **kwargs)
        for place, tensor in zip(places, tensors(out), strict=False):
            put(tensor, place)
        self._machine.on_gpu += any(place >= 0 for place in places)
        return out

    def _collective(self, traits: Traits, func: Any, args: Any, kwargs: Any) -> Any:
        """Let processes communicate, unless their backend is one for tensors on the CPU."""
        if self._machine.gloo and any(place_of(each) >= 0 for each in tensors(args)):
            raise RuntimeError(f"No backend type associated with device type {self._machine.type}")
        return func(*args, **kwargs)

    def _special(self, traits: Traits, func: Any, args: Any, kwargs: Any) -> Any:
        """Run an operation that needs special treatment, or whose tensors are at several places."""
        if traits.composite:
            return self._composite(func, args, kwargs)
        given = _given(traits, args, kwargs)
        if traits.first:
            place = self._at_first(traits, given)
        elif traits.indexing:
            place = self._indexed(traits, args)
        else:
            place = self._common(traits, given)
        machine, asked = self._machine, kwargs.get("device") if traits.places else None
        if asked is not None:
            kwargs = {**kwargs, "device": _CPU if asked.type in (machine.type, "cpu") else asked}
            if asked.type == machine.type:
                place = machine.index(asked)
            elif asked.index is not None or asked.type != "cpu":
                place = HOST
            elif not given:
                place = FREE
        elif not given and traits.places:
            place = FREE
        if traits.draws:
            return self._draw(traits, func, args, kwargs, place)
        out = func(*args, **kwargs)
        self._made(traits, out, place)
        return out

    def _composite(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Run an operation that consists of others, so that this mode sees them."""
        super().__enter__()  # type: ignore[no-untyped-call]
        try:
            return func.decompose(*args, **kwargs)
        finally:
            super().__exit__(None, None, None)  # type: ignore[no-untyped-call]

    def _made(self, traits: Traits, out: Any, place: int) -> None:
        if traits.name == "_pack_padded_sequence":
            put(out[0], place)
        elif place != _LACKING:
            self._finish(traits, out, place)
            if traits.plain:  # a view of a sparse tensor has its own memory
                for tensor in tensors(out):
                    put(tensor, place)

    def _at_first(self, traits: Traits, given: list[torch.Tensor]) -> int:
        place = place_of(given[0])
        if traits.name == "copy_" and place == FREE:
            place = place_of(given[1])
            put(given[0], place)
        if traits.name == "_pack_padded_sequence" and place_of(given[1]) >= 0:
            got = f"{given[1].dim()}D {device(place_of(given[1]))} {type_name(given[1])} tensor"
            raise RuntimeError(f"'lengths' argument should be a 1D CPU int64 tensor, but got {got}")
        return place

    def _indexed(self, traits: Traits, args: Any) -> int:
        """Return where an indexing operation runs.

        Reading takes an index on the CPU or the same device. Writing moves the index to the tensor's device.

        Raises:
            RuntimeError: the index or the values are on another device.
        """
        place = place_of(args[0])
        if place == FREE:
            place = next((here for here in map(place_of, tensors(args[1:])) if here != FREE), FREE)
            put(args[0], place)
        if traits.name == "index_fill_":  # called by `x[index] = 1` in torch 2.15
            return place
        if len(args) > 2 and isinstance(args[2], torch.Tensor):
            self._common(traits, [args[0], args[2]])
        elif any(place_of(index) not in (HOST, FREE, place) for index in tensors(args[1])):
            there = f"on the same device as the indexed tensor ({device(place)})"
            raise RuntimeError(f"indices should be either on cpu or {there}")
        return place

    def _draw(self, traits: Traits, func: Any, args: Any, kwargs: Any, place: int) -> Any:
        machine = self._machine
        generator = kwargs.get("generator")
        if generator is not None:
            kind, wanted = machine.generators.get(generator._cdata, "cpu"), device(place).type
            if kind != wanted and place != FREE:
                raise RuntimeError(f"Expected a '{wanted}' device type for generator but found '{kind}'")
        out = func(*args, **kwargs)
        if machine.draws is not None:
            numel = next((tensor.numel() for tensor in tensors(out)), 0)
            machine.draws.add(str(device(place)), traits.name, numel)
        self._made(traits, out, place)
        return out


def different(places: Iterable[int]) -> RuntimeError:
    """Return the error that CUDA raises for tensors on several devices."""
    found = " and ".join(str(device(place)) for place in sorted(places, reverse=True)[:2])
    expected = "Expected all tensors to be on the same device"
    return RuntimeError(f"{expected}, but found at least two devices, {found}!")


def type_name(tensor: torch.Tensor) -> str:
    """Return the name of a tensor's dtype in its type, such as "Float"."""
    return torch._C.TensorBase.type(tensor).rpartition(".")[2].removesuffix("Tensor")


def _given(traits: Traits, args: Any, kwargs: Any) -> list[Any]:
    """Return the tensors among the arguments of an operation."""
    given = [args[i] for i in traits.tensors if i < len(args) and isinstance(args[i], torch.Tensor)]
    for i in traits.lists:
        if i < len(args) and args[i] is not None:
            given += [tensor for tensor in args[i] if tensor is not None]
    for name in traits.keywords:
        given += tensors(kwargs.get(name))
    return given
