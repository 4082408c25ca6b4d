"""Run a program on a made-up accelerator: an oracle for what `--target accelerator` writes.

    python accelerator_machine.py [--record FILE] [--exact] [--own-random] [--unpinned] [--name NAME] SCRIPT …

PyTorch gives one backend key to devices from outside of its tree. Here a backend in Python takes it: a
tensor "on NAME" has no memory of its own, its storage has a CPU storage as an attribute, and each operation
runs on views of that. PyTorch itself answers what a device is, dispatches, and fails where two devices meet.
Nothing here is shared with the simulated machine of `devicefix verify`, which keeps CPU tensors and patches
what reports a device.

`--exact` notes where autocast would cast, and does not cast. `--own-random` gives the device a random state
of its own; without it numbers are those of a CPU. `--record` writes what ran where (`Record`) at the end.

What it cannot do: more than one device, quantized and compressed tensors, compiled code (it runs as it
stands), several processes.
"""

# mypy: disable-error-code="assignment, attr-defined, method-assign, misc, no-any-return, valid-type"
# which are what it is to replace parts of torch

from __future__ import annotations

import argparse
import atexit
import collections
import contextlib
import functools
import gc
import io
import json
import os
import re
import runpy
import sys
import time
import types
from pathlib import Path
from typing import Any, NamedTuple

os.environ.setdefault("TORCHDYNAMO_DISABLE", "1")
import torch as typed
from torch import Tensor
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.utils._device import _device_constructors
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_flatten, tree_unflatten
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

torch: Any = typed  # most of it is replaced below
_empty = torch.empty  # which is replaced below
CPU = torch.device("cpu")
_ON_CPU = torch._C.DispatchKeySet(torch._C.DispatchKey.CPU)
_ON_SPARSE_CPU = torch._C.DispatchKeySet(torch._C.DispatchKey.SparseCPU)
_SHAPES = torch._C.DispatchKeySet(torch._C.DispatchKey.Meta)  # kernels that set shapes, and allocate nothing
_AUTOCAST = torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastPrivateUse1).add(
    torch._C.DispatchKey.AutocastCPU
)
_SET = torch.ops.aten.set_.source_Storage_storage_offset
# Operations that take indices on the CPU with a tensor on the device, as CUDA does.
_INDEXING = {"index", "index_put", "index_put_", "_index_put_impl_", "_unsafe_index"}
# Operations on sparse tensors that PyTorch does by operations on their indices and values.
_SPARSE = """empty.memory_format copy_ copy_sparse_to_sparse_ _sparse_coo_tensor_with_dims _coalesced_
    _sparse_coo_tensor_with_dims_and_tensors is_coalesced _indices _values indices values _nnz sparse_dim
    dense_dim"""
# Operations that autocast runs in its type, in float32, and in the widest type of their tensors.
_LOW = """linear matmul mm addmm bmm baddbmm addbmm mv addmv dot einsum chain_matmul conv1d conv2d conv3d
    conv_transpose1d conv_transpose2d conv_transpose3d scaled_dot_product_attention prelu"""
_FULL = """softmax log_softmax layer_norm group_norm norm nll_loss nll_loss_nd cross_entropy_loss mse_loss
    l1_loss smooth_l1_loss huber_loss kl_div binary_cross_entropy_with_logits exp log log1p log2 log10 pow
    rsqrt sum prod cumsum cumprod dist cdist cosine_similarity softplus erfinv expm1"""
_WIDEST = "cat stack addcmul addcdiv bilinear cross atan2 index_put scatter_add"
_HEAVY = re.compile(r"(mm|addmm|bmm|baddbmm|mv|addmv|dot|linear|convolution|_\w*scaled_dot\w+)$")


class Record:
    """A record of what ran where: parameters, states, operations, autocast, scalers, calls and prints."""

    def __init__(self) -> None:
        self.parameters: dict[int, str] = {}
        self.states: dict[int, str] = {}
        self.operations: collections.Counter[str] = collections.Counter()
        self.products: collections.Counter[str] = collections.Counter()
        self.entered: collections.Counter[str] = collections.Counter()
        self.casts: collections.Counter[str] = collections.Counter()
        self.calls: collections.Counter[str] = collections.Counter()
        self.scalers: dict[int, dict[str, Any]] = {}
        self.printed = io.StringIO()

    def watch(self) -> None:
        """Note parameters, states, autocasts and scalers as the program uses them."""

        def parameters(module: Any, inputs: Any) -> None:
            with torch._C.DisableTorchFunction():  # which other machines count
                for each in module._parameters.values():
                    if each is not None:
                        self.parameters[id(each)] = each.device.type

        def states(optimizer: Any, args: Any, kwargs: Any) -> None:
            with torch._C.DisableTorchFunction():
                tensors = [each for state in optimizer.state.values() for each in state.values()]
                for each in _tensors(tensors):
                    if each.dim():
                        self.states[id(each)] = f"{each.device.type} {each.dtype}".replace("torch.", "")

        torch.nn.modules.module.register_module_forward_pre_hook(parameters)
        register_optimizer_step_post_hook(states)
        enter, scale = torch.autocast.__enter__, torch.amp.GradScaler.update

        def entered(context: Any) -> Any:
            kind = f"{context.device} {context.fast_dtype} {'on' if context._enabled else 'off'}"
            self.entered[kind.replace("torch.", "")] += 1
            return enter(context)

        def update(scaler: Any, *args: Any, **kwargs: Any) -> Any:
            scale(scaler, *args, **kwargs)
            with torch._C.DisableTorchFunction():
                scaled = scaler.get_scale()
            found = {"device": scaler._device, "enabled": scaler.is_enabled(), "scale": scaled}
            self.scalers[id(scaler)] = found

        torch.autocast.__enter__ = entered
        torch.amp.GradScaler.update = update

    def start(self) -> None:
        """Record from now on what this process prints, and its operations."""
        sys.stdout = _Tee(sys.stdout, self.printed)
        _Watch(self).__enter__()  # type: ignore[no-untyped-call]

    def found(self) -> dict[str, Any]:
        """Return the record as values of JSON."""
        numbers = re.findall(r"-?\d+\.\d+(?:e[-+]\d+)?", self.printed.getvalue())
        return {
            "parameters": dict(collections.Counter(self.parameters.values())),
            "optimizer states": dict(collections.Counter(self.states.values())),
            "operations": dict(self.operations),
            "products": dict(self.products),
            "autocast entered": dict(self.entered),
            "autocast casts": dict(self.casts),
            "scalers": list(self.scalers.values()),
            "calls": dict(self.calls),
            "numbers printed": [float(each) for each in numbers],
        }


class _Watch(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Count the operations of each device, and the kinds of tensor that products are."""

    def __init__(self, record: Record) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.record = record

    def __torch_dispatch__(
        self, op: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        out = op(*args, **(kwargs or {}))
        found = next(_tensors((out, args)), None)
        if found is not None:
            self.record.operations[found.device.type] += 1
            if _HEAVY.match(op._schema.name.partition("::")[2]):
                self.record.products[f"{found.device.type} {found.dtype}".replace("torch.", "")] += 1
        return out


class _Known(NamedTuple):
    """The facts in the schema of an operation: which arguments are tensors, and which are written."""

    name: str
    tensors: frozenset[int]
    written: frozenset[int]
    mutable: bool
    random: bool


@functools.cache
def _known(op: Any) -> _Known:
    schema = op._schema
    arguments = list(enumerate(schema.arguments))
    return _Known(
        schema.name.partition("::")[2],
        frozenset(i for i, each in arguments if str(each.type) == "Tensor"),
        frozenset(i for i, each in arguments if each.is_write),
        schema.is_mutable,
        torch.Tag.nondeterministic_seeded in op.tags,
    )


def _operation(name: str) -> Any:
    packet, _, overload = name.partition(".")
    return getattr(getattr(torch.ops.aten, packet), overload or "default")


def _tensors(value: Any) -> Any:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for each in value:
            yield from _tensors(each)


class Machine:
    """The accelerator: its memory, its kernels and what PyTorch asks of a device's module."""

    def __init__(
        self, name: str = "npu", *, exact: bool = False, own_random: bool = False, pins: bool = True
    ) -> None:
        self.name, self.exact, self.pins = name, exact, pins
        self.random = torch.Generator().get_state() if own_random else None
        self.record = Record()
        self.libraries: list[Any] = []
        self.default = torch.default_generator
        self.ours: set[int] = set()  # the generators of this device

    # -- memory ----------------------------------------------------------------------------------

    def host(self, tensor: Tensor) -> Tensor:
        """Return the CPU tensor with the memory of a tensor on the device."""
        if tensor.device.type != self.name:
            return tensor
        memory = self.memory(tensor.untyped_storage())
        blank = _empty(0, dtype=tensor.dtype, device="cpu")
        return _signed(blank.set_(memory, tensor.storage_offset(), tensor.size(), tensor.stride()), tensor)

    def memory(self, storage: Any) -> Any:
        """Return the CPU storage of a storage of the device; that of the CPU is its own."""
        if storage.device.type != self.name:
            return storage
        if not hasattr(storage, "memory"):
            storage.memory = torch.UntypedStorage(storage.nbytes(), device="cpu")
        return storage.memory

    def wrap(self, host: Tensor, storage: Any = None) -> Tensor:
        """Return a tensor on the device with the memory of a CPU tensor."""
        if host.layout != torch.strided or host.is_quantized:
            raise NotImplementedError(f"{self.name}: only dense tensors, and sparse ones of coordinates")
        blank = torch._C._acc.create_empty_tensor((0,), host.dtype)
        if storage is None:
            storage = blank.untyped_storage()
            storage.memory = host.untyped_storage()
        place = host.storage_offset(), host.size(), host.stride()
        return _signed(_SET.redispatch(_SHAPES, blank, storage, *place), host)

    # -- kernels ---------------------------------------------------------------------------------

    def run(self, op: Any, *args: Any, **kwargs: Any) -> Any:
        """Run any operation on the memory of its tensors."""
        with torch._C.DisableTorchFunction(), torch._C._ExcludeDispatchKeyGuard(_AUTOCAST):
            known, call = _known(op), _Call(self)
            lowered = [call.lower(each) for each in args]
            for i in known.tensors:
                if i < len(args) and isinstance(args[i], (bool, int, float, complex)):
                    lowered[i] = torch.tensor(args[i], device="cpu")  # the dispatcher has made a number of it
            named = {key: call.lower(each) for key, each in kwargs.items() if key != "pin_memory"}
            if call.others or kwargs.get("generator") is not None:
                self.same_device(op, args, kwargs)
            with self.own_random() if known.random and self.random is not None else contextlib.nullcontext():
                out = op(*lowered, **named)
            if known.mutable:
                for host, tensor in call.hosts.values():
                    self.reshape(tensor, host)
            return call.lift(out)

    def reshape(self, tensor: Tensor, host: Tensor) -> None:
        """Give a tensor the shape that an operation gave to its memory, and a sparse one what it has."""
        if tensor.is_sparse:
            torch.ops.aten.copy_sparse_to_sparse_(tensor, _sparse(self.wrap, host))
        elif (tensor.size(), tensor.stride()) != (host.size(), host.stride()):
            place = host.storage_offset(), host.size(), host.stride()
            _SET.redispatch(_SHAPES, tensor, tensor.untyped_storage(), *place)

    def same_device(self, op: Any, args: Any, kwargs: Any) -> None:
        """Fail on tensors of two devices, other than numbers and indices on the CPU."""
        name = _known(op).name
        written = [each for i, each in enumerate(args) if i in _known(op).written]
        found = list(_tensors((args[0], *args[2:]) if name in _INDEXING else (args, list(kwargs.values()))))
        if name in _INDEXING and found[0].device.type == "cpu":
            found += _tensors(args[1])
        here = next((each.device for each in found if each.device.type == self.name), None)
        for each in found:
            number = each.dim() == 0 and name not in ("cat", "stack") and not any(each is w for w in written)
            if here is not None and each.device != here and not number:
                raise RuntimeError(
                    "Expected all tensors to be on the same device, but found at least two devices, "
                    f"{here} and {each.device}! (in {name})"
                )
        generator = kwargs.get("generator")
        if generator is not None and generator._cdata not in self.ours:
            raise RuntimeError(f"Expected a '{self.name}' device type for generator but found 'cpu'")

    @contextlib.contextmanager
    def own_random(self) -> Any:
        """Draw from the device's own random state."""
        before = self.default.get_state()
        self.default.set_state(self.random)
        try:
            yield
        finally:
            self.random = self.default.get_state()
            self.default.set_state(before)

    def kernels(self) -> None:
        """Register the kernels: one for all operations, and those that PyTorch asks a device for."""
        device = "PrivateUse1"
        every, aten = torch.library.Library("_", "IMPL"), torch.library.Library("aten", "IMPL")
        for key in (device, f"Sparse{device}"):
            every.fallback(self.run, key)
        for name in _SPARSE.split():
            aten.impl(name, functools.partial(_operation(name).redispatch, _ON_SPARSE_CPU), f"Sparse{device}")
        self.libraries += [every, aten]
        self.memory_kernels(functools.partial(aten.impl, dispatch_key=device))
        run = functools.partial  # a kernel with its first arguments
        for name in ("lstm.input", "lstm.data", "gru.input", "gru.data", "lstm_cell", "gru_cell"):
            aten.impl(name, run(_recurrent, self, _operation(name)), f"Autograd{device}")
            aten.impl(name, run(self.run, _operation(name)), device)
        aten.impl("record_stream", lambda tensor, stream: None, device)  # all work is done at once
        # PyTorch does these by others, that round, warn or need views, or asks for them where no fallback is.
        alone = """convolution convolution_backward native_group_norm native_layer_norm silu_backward
            mish_backward mse_loss smooth_l1_loss huber_loss _local_scalar_dense"""
        for name in alone.split():
            aten.impl(name, run(self.run, _operation(name)), device)
        for key in (device, f"Autograd{device}"):
            aten.impl("ctc_loss.Tensor", _ctc_loss, key)
            # a parameter takes the data of another device
            aten.impl("_has_compatible_shallow_copy_type", lambda tensor, other: True, key)

    def memory_kernels(self, register: Any) -> None:
        """Register what makes tensors, copies them and gives them shapes."""

        def empty(op: Any, *args: Any, device: Any = None, pin_memory: Any = None, **kwargs: Any) -> Tensor:
            with torch._C.DisableTorchFunction():
                return self.wrap(op(*args, device=CPU, **kwargs))

        def copy(into: Tensor, source: Tensor, non_blocking: bool = False) -> Tensor:
            with torch._C.DisableTorchFunction():
                self.host(into).copy_(self.host(source))
            return into

        register("copy_", copy)
        for name in ("empty.memory_format", "empty_strided"):
            register(name, functools.partial(empty, _operation(name)))
        for name in ("as_strided", "view"):
            register(name, functools.partial(_operation(name).redispatch, _ON_CPU))
        for overload in ("", ".source_Storage", ".source_Storage_storage_offset", ".source_Tensor"):
            name = f"set_{overload}"
            register(name, functools.partial(_operation(name).redispatch, _SHAPES))

    def casts(self) -> None:
        """Register what autocast does to operations: it leaves those without a rule as they are."""
        every, aten = torch.library.Library("_", "IMPL"), torch.library.Library("aten", "IMPL")
        every.fallback(torch.library.fallthrough_kernel, "AutocastPrivateUse1")
        self.libraries += [every, aten]
        full = lambda dtypes: torch.float32  # noqa: E731
        for cast, names in ((self.lower, _LOW), (full, _FULL), (self.widen, _WIDEST)):
            for packet in names.split():
                for overload in getattr(torch.ops.aten, packet).overloads():
                    op = getattr(getattr(torch.ops.aten, packet), overload)
                    if overload.endswith("out") or "dtype" in overload:
                        continue
                    name = packet if overload == "default" else f"{packet}.{overload}"
                    aten.impl(name, functools.partial(self.autocast, op, cast), "AutocastPrivateUse1")

    # -- autocast --------------------------------------------------------------------------------

    def autocast(self, op: Any, cast: Any, *args: Any, **kwargs: Any) -> Any:
        """Run an operation with the types that autocast gives it."""
        with torch._C._ExcludeDispatchKeyGuard(_AUTOCAST):
            dtype = cast([each.dtype for each in _tensors(args) if each.is_floating_point()])
            if self.exact or dtype is None:
                return op(*args, **kwargs)

            def to(value: Any) -> Any:
                if isinstance(value, Tensor) and value.is_floating_point() and value.dtype != torch.float64:
                    return value.to(dtype) if value.device.type == self.name else value
                return type(value)(map(to, value)) if isinstance(value, (list, tuple)) else value

            return op(*map(to, args), **{key: to(each) for key, each in kwargs.items()})

    def lower(self, dtypes: list[torch.dtype]) -> torch.dtype:
        dtype = torch.get_autocast_dtype(self.name)
        self.record.casts[str(dtype).replace("torch.", "")] += 1
        return dtype

    def widen(self, dtypes: list[torch.dtype]) -> torch.dtype | None:
        return functools.reduce(torch.promote_types, dtypes) if dtypes else None

    # -- what a program sees ---------------------------------------------------------------------

    def module(self) -> types.ModuleType:
        """Return `torch.NAME`."""
        module = types.ModuleType(f"torch.{self.name}")
        answers: dict[str, Any] = {
            "is_initialized": True, "is_available": True, "current_device": 0, "device_count": 1,
            "_is_in_bad_fork": False, "set_device": None, "synchronize": None, "empty_cache": None,
            "memory_allocated": 1 << 20, "max_memory_allocated": 1 << 20, "memory_reserved": 1 << 21,
            "max_memory_reserved": 1 << 21, "reset_peak_memory_stats": None, "get_device_name": "Made-up NPU",
            "mem_get_info": (1 << 33, 1 << 34), "is_bf16_supported": True, "_lazy_init": None,
            "get_amp_supported_dtype": [torch.float16, torch.bfloat16, torch.float32],
        }  # fmt: skip
        for name, answer in answers.items():
            setattr(module, name, self.noted(f"{self.name}.{name}", answer))
        module.manual_seed = module.manual_seed_all = self.manual_seed
        state = lambda device=0: self.default.get_state() if self.random is None else self.random  # noqa: E731
        module.get_rng_state = state
        module.set_rng_state = self.set_rng_state
        module.Stream, module.Event, torch.Event = torch.Stream, _Event, _Event
        module.device = lambda index: contextlib.nullcontext()
        module.stream = lambda stream: stream or contextlib.nullcontext()
        module.current_stream = lambda device=None: torch.accelerator.current_stream()
        return module

    def manual_seed(self, seed: int) -> None:
        if self.random is not None:
            self.random = torch.Generator(device="cpu").manual_seed(seed).get_state()

    def set_rng_state(self, state: Tensor, device: Any = 0) -> None:
        if self.random is None:
            self.default.set_state(state)
        else:
            self.random = state

    def noted(self, name: str, answer: Any) -> Any:
        """Return a function that notes that it is called, and answers always the same."""

        def call(*args: Any, **kwargs: Any) -> Any:
            self.record.calls[name] += 1
            return answer

        return call

    def install(self) -> None:
        """Register the device in this process. There is no way back."""
        torch.jit._state.disable()  # whose fuser knows no such device
        self.kernels()
        self.casts()
        _setup_privateuseone_for_python_backend(self.name, self.module())
        accelerator = torch.accelerator
        answers = {
            "synchronize": None, "empty_cache": None, "empty_host_cache": None, "memory_allocated": 1 << 20,
            "max_memory_allocated": 1 << 20, "memory_reserved": 1 << 21, "max_memory_reserved": 1 << 21,
            "reset_peak_memory_stats": None, "reset_accumulated_memory_stats": None, "memory_stats": {},
            "get_memory_info": (1 << 33, 1 << 34), "set_stream": None,
            "get_device_capability": {"supported_dtypes": {torch.float32, torch.float16, torch.bfloat16}},
        }  # fmt: skip
        for name, answer in answers.items():  # PyTorch asks C++ for these
            setattr(accelerator, name, self.noted(f"accelerator.{name}", answer))
        self.storages()
        self.generators()
        self.pinned()
        self.parallel()
        self.processes()
        self.record.watch()

    def storages(self) -> None:
        """Give tensors and storages the addresses of their memory, and copy and move storages."""
        write, to_other, copied = (getattr(torch.UntypedStorage, each) for each in ("copy_", "to", "clone"))

        def copy(into: Any, source: Any, non_blocking: Any = None) -> Any:
            write(self.memory(into), self.memory(source))
            return into

        def to(storage: Any, *, device: Any, non_blocking: bool = False) -> Any:
            if torch.device(device).type != self.name:
                return to_other(storage, device=device)
            memory = torch.empty(0, dtype=torch.uint8, device="cpu").set_(self.memory(storage).clone())
            return self.wrap(memory).untyped_storage()

        def clone(storage: Any) -> Any:
            return to(storage, device=storage.device) if storage.device.type == self.name else copied(storage)

        torch.UntypedStorage.copy_, torch.UntypedStorage.to, torch.UntypedStorage.clone = copy, to, clone
        for kind in (Tensor, torch.UntypedStorage):
            real = kind.data_ptr

            def address(value: Any, real: Any = real) -> int:
                return real(self.host(value) if isinstance(value, Tensor) else self.memory(value))

            kind.data_ptr = address

    def generators(self) -> None:
        """Give the device generators: those of the CPU, that say where they are."""
        real, name, ours = torch.Generator, self.name, self.ours

        class Generator(real):
            def __new__(cls, device: Any = "cpu") -> Any:
                where = torch.device(device)
                made = super().__new__(cls, "cpu" if where.type == name else where)
                made.where = where
                if where.type == name:
                    ours.add(made._cdata)
                return made

            device = property(lambda self: self.where)

        torch.Generator = Generator

    def pinned(self) -> None:
        """Pin memory: a copy that says that it is pinned."""

        def pin(tensor: Tensor, device: Any = None) -> Tensor:
            if tensor.device.type != "cpu" or not self.pins:
                raise RuntimeError(f"cannot pin '{tensor.type()}' only dense CPU tensors can be pinned")
            copy = tensor.clone()
            copy.pinned = True
            self.record.calls["pin_memory"] += 1
            return copy

        Tensor.pin_memory = pin
        Tensor.is_pinned = lambda self, device=None: hasattr(self, "pinned")
        _device_constructors()  # knows the factories by what they are now
        for name in ("empty", "zeros", "ones", "full", "rand", "randn", "tensor", "empty_like", "zeros_like"):
            setattr(torch, name, _unpinned(getattr(torch, name)))

    def parallel(self) -> None:
        """Run models in parallel on the one device that there is."""
        parallel = torch.nn.parallel.DistributedDataParallel
        real = parallel.__init__

        def init(wrapper: Any, module: Any, device_ids: Any = None, *args: Any, **kwargs: Any) -> None:
            one = isinstance(wrapper, torch.nn.DataParallel)
            here = next(module.parameters()).device.type == self.name
            if not one and not here:
                real(wrapper, module, device_ids, *args, **kwargs)
                return
            torch.nn.Module.__init__(wrapper)
            wrapper.module, wrapper.device_ids = module.to(self.name) if one else module, [0]
            wrapper.process_group = None if one else torch.distributed.group.WORLD
            wrapper.moves, wrapper.require_backward_grad_sync, wrapper.dim = one or bool(device_ids), True, 0

        def wrap(ran: Any) -> Any:
            def forward(wrapper: Any, *inputs: Any, **kwargs: Any) -> Any:
                if not hasattr(wrapper, "moves"):
                    return ran(wrapper, *inputs, **kwargs)
                leaves, spec = tree_flatten((inputs, kwargs))
                if wrapper.moves:
                    leaves = [each.to(self.name) if isinstance(each, Tensor) else each for each in leaves]
                inputs, kwargs = tree_unflatten(leaves, spec)
                return wrapper.module(*inputs, **kwargs)

            return forward

        for kind in (torch.nn.DataParallel, parallel):
            kind.__init__, kind.forward = init, wrap(kind.forward)

    def processes(self) -> None:
        """Register a backend of torch.distributed for one process."""
        distributed = torch.distributed
        if not distributed.is_available():
            return
        future = torch.futures.Future()
        future.set_result(None)
        done = torch._C._distributed_c10d._create_work_from_future(future)

        def same(group: Any, *tensors: Any, **options: Any) -> Any:
            return done

        def spread(group: Any, into: Any, source: Any, *options: Any, **named: Any) -> Any:
            outputs, inputs = list(_tensors(into)), list(_tensors(source))
            for output, each in zip(outputs, inputs, strict=True):
                output.copy_(each.reshape(output.shape))
            return done

        methods = dict.fromkeys(("allreduce", "broadcast", "reduce", "allreduce_coalesced", "barrier"), same)
        named = "allgather gather scatter reduce_scatter alltoall _allgather_base _reduce_scatter_base"
        for each in f"{named} all_gather_single reduce_scatter_single all_to_all_single".split():
            methods[each] = spread
        methods["getBackendName"] = lambda group: "hccl"
        methods["setGroupName"] = lambda group, name: setattr(group, "named", name)
        methods["getGroupName"] = lambda group: getattr(group, "named", "0")
        methods["getSize"] = methods["size"] = lambda group: 1
        methods["getRank"] = methods["rank"] = lambda group: 0
        group = type("Alone", (distributed.ProcessGroup,), methods)
        make = lambda store, rank, size, timeout: group(rank, size)  # noqa: E731
        distributed.Backend.register_backend("hccl", make, devices=[self.name])


class _Call:
    """The tensors of one call, on the device and on the CPU."""

    def __init__(self, machine: Machine) -> None:
        self.machine, self.others = machine, False
        self.hosts: dict[int, tuple[Tensor, Tensor]] = {}  # by the CPU tensor: it, and the one on the device
        self.memory: dict[int, Any] = {}  # storages of the device by those of the CPU

    def lower(self, value: Any) -> Any:
        """Return an argument for the CPU."""
        if isinstance(value, Tensor):
            if value.device.type != self.machine.name:
                self.others = True
                return value
            host = _sparse(self.lower, value) if value.is_sparse else self.machine.host(value)
            self.hosts[id(host)] = (host, value)
            if not value.is_sparse:
                self.memory[host.untyped_storage()._cdata] = value.untyped_storage()
            return host
        if isinstance(value, (list, tuple)):
            return type(value)([self.lower(each) for each in value])
        return CPU if isinstance(value, torch.device) else value

    def lift(self, value: Any) -> Any:
        """Return a result on the device: an argument, a view of one, or a new tensor."""
        if isinstance(value, (list, tuple)):
            return type(value)([self.lift(each) for each in value])
        if not isinstance(value, Tensor):
            return value
        if id(value) in self.hosts:
            return self.hosts[id(value)][1]
        if value.is_sparse:
            return _sparse(self.lift, value)
        return self.machine.wrap(value, self.memory.get(value.untyped_storage()._cdata))


def _sparse(move: Any, tensor: Tensor) -> Tensor:
    """Return a sparse tensor of moved indices and values."""
    parts = move(tensor._indices()), move(tensor._values())
    return torch.ops.aten._sparse_coo_tensor_unsafe(*parts, tensor.size(), is_coalesced=tensor.is_coalesced())


def _signed(tensor: Tensor, other: Tensor) -> Tensor:
    """Return a tensor that is a lazy conjugate or negative where another is."""
    tensor = torch._conj(tensor) if other.is_conj() else tensor
    return torch._neg_view(tensor) if other.is_neg() else tensor


def _unpinned(real: Any) -> Any:
    """Make a factory that takes pin_memory, of which the CPU build has none."""

    @functools.wraps(real)
    def make(*args: Any, **kwargs: Any) -> Tensor:
        pinned = kwargs.pop("pin_memory", False)
        made = real(*args, **kwargs)
        return made.pin_memory() if pinned else made

    return make


class _Recurrent(typed.autograd.Function):
    """Run a recurrent network on the memory of its tensors, whose own graph gives the gradients."""

    @staticmethod
    def forward(ctx: Any, machine: Machine, op: Any, spec: Any, *leaves: Any) -> Any:
        ctx.machine, needs = machine, ctx.needs_input_grad[3:]
        hosts = [machine.host(each) if isinstance(each, Tensor) else each for each in leaves]
        ctx.inputs = [each.requires_grad_() for each, need in zip(hosts, needs, strict=True) if need]
        ctx.needs = needs
        with torch.enable_grad(), _disable_current_modes():
            ctx.outputs = op(*tree_unflatten(hosts, spec))
        ctx.single = isinstance(ctx.outputs, Tensor)
        ctx.outputs = (ctx.outputs,) if ctx.single else ctx.outputs
        found = tuple(machine.wrap(each.detach()) for each in ctx.outputs)
        return found[0] if ctx.single else found

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        hosts = [ctx.machine.host(each.contiguous()) for each in grads]
        with _disable_current_modes():
            found = iter(torch.autograd.grad(ctx.outputs, ctx.inputs, hosts, allow_unused=True))
        given = [next(found) if need else None for need in ctx.needs]
        return None, None, None, *(None if each is None else ctx.machine.wrap(each) for each in given)


def _recurrent(machine: Machine, op: Any, *args: Any) -> Any:
    found = [each for i, each in enumerate(args) if i != 1 or op._overloadname == "input"]
    machine.same_device(op, found, {})
    leaves, spec = tree_flatten(args)
    recurrent: Any = _Recurrent
    return recurrent.apply(machine, op, spec, *leaves)


class _Event:
    """An event that has the time at which it is recorded."""

    def __init__(self, device: Any = None, *, enable_timing: bool = False, **options: Any) -> None:
        self.at, self.timed = 0.0, enable_timing

    def record(self, stream: Any = None) -> None:
        self.at = time.perf_counter()

    def wait(self, stream: Any = None) -> None:
        pass

    synchronize = wait

    def query(self) -> bool:
        return True

    def elapsed_time(self, end: _Event) -> float:
        if not (self.timed and end.timed):
            raise RuntimeError("Both events must be created with argument 'enable_timing=True'.")
        return 1000 * (end.at - self.at)


def _ctc_loss(log_probs: Tensor, targets: Tensor, inputs: Tensor, lengths: Tensor, *rest: Any) -> Tensor:
    """Take lengths wherever they are, as CUDA does."""
    return torch.ops.aten.ctc_loss.IntList(log_probs, targets, inputs.tolist(), lengths.tolist(), *rest)


class _Tee(io.TextIOBase):
    def __init__(self, *streams: Any) -> None:
        self.streams = streams

    def write(self, text: str) -> int:
        for each in self.streams:
            each.write(text)
        return len(text)

    def flush(self) -> None:
        self.streams[0].flush()


def main() -> None:
    """Run a script on the machine."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--record", type=Path, help="the file to write the record to")
    parser.add_argument("--name", default="npu", help="the device's name")
    parser.add_argument("--exact", action="store_true", help="note what autocast would cast, and do not cast")
    parser.add_argument("--unpinned", action="store_true", help="the device has no pinned memory, as MPS")
    parser.add_argument("--own-random", action="store_true", help="the device has a random state of its own")
    parser.add_argument("script", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    machine = Machine(
        options.name, exact=options.exact, own_random=options.own_random, pins=not options.unpinned
    )
    machine.install()
    if options.record:
        path = options.record.resolve()
        atexit.register(lambda: path.write_text(json.dumps(machine.record.found(), indent=1) + "\n"))
        machine.record.start()
    gc.freeze()  # what is there by now stays
    sys.argv = options.script
    sys.path[0] = str(Path(options.script[0]).parent)
    runpy.run_path(options.script[0], run_name="__main__")


if __name__ == "__main__":
    main()
