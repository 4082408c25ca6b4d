"""Sees every operation, also of the backward pass: refuses to mix devices, puts results where they belong."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from devicefix.verify.runtime.machine.places import FREE, HOST, device, place_of, put
from devicefix.verify.runtime.machine.state import Machine

_LACKING = -3  # of an operation without tensors
_CPU = torch.device("cpu")
_Tensor = torch.Tensor

# Only the first tensor says where these run: the others may be elsewhere.
_FIRST = {"copy_", "_ctc_loss", "_ctc_loss_backward", "_pack_padded_sequence", "_resize_output_"}
_INDEXING = {"index", "index_put", "index_put_", "_index_put_impl_", "_unsafe_index", "_unsafe_index_put"}
# What these return is where the storage is that they are given.
_STORAGES = {"set_", "set_data", "_set_source", "lift_fresh"}
# Scalars on the CPU are welcome beside CUDA tensors, but not in these.
_STRICT = {"stack", "cat", "where_", "index_select", "gather", "dot", "mm"}


class Facts:
    """What there is to know of an operation, learned once.

    Attributes:
        name: without namespace and overload.
        tensors: the positions of its tensors.
        lists: the positions of its lists of tensors.
        keywords: its keyword arguments that are tensors, or lists of them.
        makes: whether it returns memory of its own.
        plain: whether nothing else is to be known.
    """

    __slots__ = (
        "draws",
        "first",
        "indexing",
        "inplace",
        "keywords",
        "lists",
        "makes",
        "name",
        "places",
        "plain",
        "rows",
        "strict",
        "tensors",
    )

    def __init__(self, func: Any) -> None:
        schema = func._schema
        namespace, _, self.name = schema.name.rpartition("::")
        arguments = list(enumerate(schema.arguments))
        kinds = {i: str(argument.type) for i, argument in arguments}
        foreign = namespace in ("c10d", "_c10d_functional", "profiler")
        self.tensors = (
            [] if foreign else [i for i, a in arguments if _is_tensor(kinds[i]) and not a.kwarg_only]
        )
        self.lists = [] if foreign else [i for i, a in arguments if _is_list(kinds[i]) and not a.kwarg_only]
        self.keywords = [
            a.name for i, a in arguments if a.kwarg_only and (_is_tensor(kinds[i]) or _is_list(kinds[i]))
        ]
        self.makes = not foreign and any(value.alias_info is None for value in schema.returns)
        self.places = any(a.name == "device" for _, a in arguments)
        self.draws = torch.Tag.nondeterministic_seeded in func.tags
        self.indexing = self.name in _INDEXING
        self.first = self.name in _FIRST
        self.strict = self.name in _STRICT
        self.rows = self.name.startswith(("_foreach", "_fused"))
        self.inplace = self.name.endswith("_") and not self.name.endswith("__")
        if self.name in _STORAGES:
            self.tensors, self.makes = [], False
        self.plain = not (self.keywords or self.places or self.draws or self.indexing or self.first)


def _is_tensor(kind: str) -> bool:
    return kind in ("Tensor", "Optional[Tensor]")


def _is_list(kind: str) -> bool:
    return kind in ("List[Tensor]", "Optional[List[Tensor]]", "List[Optional[Tensor]]")


class Transparent(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Sees every operation, and changes nothing."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # else each operation goes through a wrapper, and the first one imports all of dynamo

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **kwargs) if kwargs else func(*args)


class Kernels(Transparent):  # type: ignore[no-untyped-call]
    """Computes on the CPU what a program believes to be computed on the simulated machine.

    Args:
        machine: the machine.
    """

    def __init__(self, machine: Machine) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._machine = machine
        self._facts: dict[Any, Facts] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        facts = self._facts.get(func)
        if facts is None:
            facts = self._facts[func] = Facts(func)
        if not facts.plain:
            return self._special(facts, func, args, kwargs or {})
        place = _LACKING
        given = len(args)
        try:
            for i in facts.tensors:
                if i < given:
                    tensor = args[i]
                    if isinstance(tensor, _Tensor):  # numbers are handed on as such
                        here = tensor.untyped_storage()._devicefix_place  # type: ignore[attr-defined]
                        if here != place:
                            if place != _LACKING:
                                return self._mixed(facts, func, args, kwargs or {})
                            place = here
            for i in facts.lists:
                if i < given and args[i] is not None:
                    for tensor in args[i]:
                        if tensor is not None:
                            here = tensor.untyped_storage()._devicefix_place
                            if here != place:
                                if place != _LACKING:
                                    return self._mixed(facts, func, args, kwargs or {})
                                place = here
        except RuntimeError:  # tensors without a storage of their own
            return self._mixed(facts, func, args, kwargs or {})
        out = func(*args, **kwargs) if kwargs else func(*args)
        if place == HOST:
            self._machine.on_cpu += 1
        elif place != _LACKING:
            self._settle(facts, out, place)
        return out

    def _settle(self, facts: Facts, out: Any, place: int) -> None:
        """An operation has run at a place."""
        machine = self._machine
        if place < 0:
            machine.on_cpu += 1
        else:
            machine.on_cuda += 1
            if machine.forked:
                machine.initialize()
            if machine.trace is not None and facts.name not in ("detach", "alias"):
                machine.note("run", place, facts.name)
        if facts.makes:
            if type(out) is torch.Tensor:
                put(out, place)
            else:
                for tensor in _tensors(out):
                    put(tensor, place)

    def _mixed(self, facts: Facts, func: Any, args: Any, kwargs: Any) -> Any:
        """An operation whose tensors are not all at one place."""
        if facts.rows:
            return self._for_each(facts, func, args, kwargs)
        place = self._common(facts, _given(facts, args, kwargs))
        out = func(*args, **kwargs)
        if place != _LACKING:
            self._settle(facts, out, place)
            for tensor in _tensors(out):  # a view of a sparse tensor has memory of its own
                put(tensor, place)
        return out

    def _common(self, facts: Facts, given: list[torch.Tensor]) -> int:
        """Where an operation runs; tensors that were nowhere yet go there."""
        places: list[int] = []
        for number, tensor in enumerate(given):
            here = place_of(tensor)
            if here == FREE or here in places:
                continue
            if here == HOST and not tensor.dim() and not facts.strict and not (facts.inplace and number == 0):
                continue
            places.append(here)
        if len(places) > 1:
            raise different(places)
        free = [tensor for tensor in given if place_of(tensor) == FREE]
        if not places:
            return _LACKING if not given else FREE if len(free) == len(given) else HOST
        for tensor in free:
            put(tensor, places[0])
        return places[0]

    def _for_each(self, facts: Facts, func: Any, args: Any, kwargs: Any) -> Any:
        """An operation on lists of tensors: the first of each belong together, and so on."""
        lists = [args[i] for i in facts.lists if i < len(args) and args[i]]
        places = [self._common(facts, list(row)) for row in zip(*lists, strict=True)]
        out = func(*args, **kwargs)
        for place, tensor in zip(places, _tensors(out), strict=False):
            put(tensor, place)
        for place in places:
            self._machine.note("run", place, facts.name)
        self._machine.on_cuda += any(place >= 0 for place in places)
        return out

    def _special(self, facts: Facts, func: Any, args: Any, kwargs: Any) -> Any:
        given = _given(facts, args, kwargs)
        if facts.first:
            place = self._at_first(facts, given)
        elif facts.indexing:
            place = self._indexed(facts, args)
        else:
            place = self._common(facts, given)
        told = kwargs.get("device") if facts.places else None
        if told is not None:
            kwargs = {**kwargs, "device": _CPU if told.type in ("cuda", "cpu") else told}
            if told.type == "cuda":
                place = self._machine.index(told)
            elif told.index is not None or told.type != "cpu":
                place = HOST
            elif not given:
                place = FREE
        elif not given and facts.places:
            place = FREE
        if facts.draws:
            return self._draw(facts, func, args, kwargs, place)
        out = func(*args, **kwargs)
        self._made(facts, out, place, not given or told is not None)
        return out

    def _made(self, facts: Facts, out: Any, place: int, fresh: bool) -> None:
        if facts.name == "_pack_padded_sequence":
            put(out[0], place)
            return
        if not fresh or self._machine.trace is None or place < 0:
            if place != _LACKING:
                self._settle(facts, out, place)
            return
        self._machine.on_cuda += 1
        for tensor in _tensors(out):
            if facts.name.startswith("empty"):
                tensor.zero_()  # what happens to be there is no part of what happened
            put(tensor, place)
            note_values(self._machine, tensor, place)

    def _at_first(self, facts: Facts, given: list[torch.Tensor]) -> int:
        place = place_of(given[0])
        if facts.name == "copy_" and place == FREE:
            place = place_of(given[1])
            put(given[0], place)
        if facts.name == "_pack_padded_sequence" and place_of(given[1]) >= 0:
            raise RuntimeError(
                "'lengths' argument should be a 1D CPU int64 tensor, but got "
                f"{given[1].dim()}D {device(place_of(given[1]))} {type_name(given[1])} tensor"
            )
        return place

    def _indexed(self, facts: Facts, args: Any) -> int:
        """An index may be on the CPU, whatever it is an index of."""
        place = place_of(args[0])
        if place == FREE:
            place = next((here for here in map(place_of, _tensors(args[1:])) if here != FREE), FREE)
            put(args[0], place)
        for index in _tensors(args[1]):
            if place_of(index) not in (HOST, FREE, place):
                raise RuntimeError(
                    "indices should be either on cpu or on the same device as the indexed tensor "
                    f"({device(place)})"
                )
        values = args[2] if len(args) > 2 and isinstance(args[2], torch.Tensor) else None
        if values is not None:
            self._common(facts, [args[0], values])
        return place

    def _draw(self, facts: Facts, func: Any, args: Any, kwargs: Any, place: int) -> Any:
        machine = self._machine
        generator = kwargs.get("generator")
        if generator is not None:
            _check_generator(machine.generators.get(generator._cdata, "cpu"), place)
        if machine.separate_generators and place >= 0 and generator is None:
            host = torch.default_generator.get_state()
            own = machine.generator(place)
            torch.default_generator.set_state(own.get_state())
            try:
                out = func(*args, **kwargs)
            finally:
                own.set_state(torch.default_generator.get_state())
                torch.default_generator.set_state(host)
        else:
            out = func(*args, **kwargs)
        if machine.draws is not None:
            numel = next((tensor.numel() for tensor in _tensors(out)), 0)
            machine.draws.add(str(device(place)), facts.name, numel)
        self._made(facts, out, place, not _given(facts, args, kwargs))
        return out


def different(places: Iterable[int]) -> RuntimeError:
    """What CUDA says to tensors of several devices."""
    found = " and ".join(str(device(place)) for place in sorted(places, reverse=True)[:2])
    return RuntimeError(
        f"Expected all tensors to be on the same device, but found at least two devices, {found}!"
    )


def note_values(machine: Machine, tensor: torch.Tensor, place: int) -> None:
    """Write down that a tensor has come to a GPU, and what is in it."""
    if machine.trace is None or place < 0:
        return
    with torch._C._DisableTorchDispatch(), torch.no_grad():
        values = tensor.detach().double()
        total = f"{values.sum().item():.9g} {values.abs().sum().item():.9g}"
    machine.note("put", place, str(tensor.dtype), list(tensor.shape), total)


def type_name(tensor: torch.Tensor) -> str:
    """The word for a tensor's dtype in its type: "Float"."""
    return torch._C.TensorBase.type(tensor).rpartition(".")[2].removesuffix("Tensor")


def _check_generator(kind: str, place: int) -> None:
    wanted = device(place).type
    if kind != wanted and place != FREE:
        raise RuntimeError(f"Expected a '{wanted}' device type for generator but found '{kind}'")


def _given(facts: Facts, args: Any, kwargs: Any) -> list[torch.Tensor]:
    """The tensors that an operation is given."""
    given = [args[i] for i in facts.tensors if i < len(args) and isinstance(args[i], torch.Tensor)]
    for i in facts.lists:
        if i < len(args) and args[i] is not None:
            given += [tensor for tensor in args[i] if tensor is not None]
    for name in facts.keywords:
        given += _tensors(kwargs.get(name))
    return given


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for inner in value:
            yield from _tensors(inner)
