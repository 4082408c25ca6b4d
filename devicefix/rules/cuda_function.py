from __future__ import annotations

import ast
from collections.abc import Iterator

from devicefix.devices.context import Context
from devicefix.facts.values import last_name
from devicefix.model import Edit, Finding, Fix
from devicefix.rules.base import Example, Rule
from devicefix.rules.shared.functions import ASSIGNS, NVTX, Functions

_GENERATORS = "torch.cuda.default_generators"
_OF_BUILDS = ("nvtx.", "tunable.", "nccl.version")  # in a CUDA build, these do without a GPU
_STATISTICS = ("memory_stats", "memory.memory_stats")


class CudaFunction(Rule):
    """
    ## What it does
    Finds calls to `torch.cuda` functions that raise an error without CUDA, such as `torch.cuda.synchronize()` and
    `torch.cuda.set_device(rank)`. Also finds `manual_seed` and `manual_seed_all` in programs that seed only GPUs.

    ## Why it matters
    Without CUDA, the functions stop the program, and the seeds have no effect.

    ## Example
    ```python
    torch.cuda.set_device(args.local_rank)
    torch.cuda.synchronize()
    ```

    ## Use instead
    ```python
    if torch.cuda.is_available():
        torch.cuda.set_device(args.local_rank)
        torch.cuda.synchronize()
    ```

    ## Fix safety
    The fix is usually safe if the call is a statement on its own, or if the program probably works with the value that
    the fix uses on a CPU, such as `"cpu"` for the GPU's name. For the compute capability, this value is (0, 0), which
    is lower than any GPU's, or (8, 0) if the program uses it only to choose between bfloat16 and another dtype.

    If the program saves and restores the random number generator's state only for GPUs, the fix uses the CPU
    generator's state without CUDA. This fix is unsafe if devicefix doesn't know all uses of the state. If the program
    seeds only GPUs, the fix seeds the CPU generator without CUDA. This fix is usually unsafe.

    A fix that checks for CUDA before the program sets `CUDA_VISIBLE_DEVICES`, which then has no effect, is unsafe
    unless the call itself initializes CUDA.

    Other calls whose result the program uses, such as those that return GPU properties, usually have no fix: you must
    choose a value for the CPU.
    """

    code = "DF401"
    name = "cuda-function"
    summary = "A `torch.cuda` function does not work without CUDA"
    words = (b"cuda", b"nvtx", b"graphsafe_")
    common_words = (b"device", b"synchronize")
    INVALID = (
        Example(
            "an index that only functions of torch.cuda get",
            before="""
                import torch


                def train(model, batches):
                    current = torch.cuda.current_device()
                    for batch in batches:
                        model(batch).sum().backward()
                        if torch.cuda.memory_reserved(current) > 30 * 1e9:
                            torch.cuda.empty_cache()
            """,
            after="""
                import torch


                def train(model, batches):
                    current = torch.cuda.current_device() if torch.cuda.is_available() else "cpu"
                    for batch in batches:
                        model(batch).sum().backward()
                        if torch.cuda.memory_reserved(current) > 30 * 1e9:
                            torch.cuda.empty_cache()
            """,
        ),
        Example(
            "an index in a dictionary of arguments, and one that is asked about at once",
            before="""
                import torch
                from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

                options = {"device_id": torch.cuda.current_device(), "use_orig_params": True}
                net = FSDP(net, **options)
                used = torch.cuda.memory_allocated(torch.cuda.current_device())
            """,
            after="""
                import torch
                from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

                options = {"device_id": torch.cuda.current_device() if torch.cuda.is_available() else "cpu",
                           "use_orig_params": True}
                net = FSDP(net, **options)
                used = torch.cuda.memory_allocated(torch.cuda.current_device() if torch.cuda.is_available() else "cpu")
            """,
        ),
        Example(
            "a separate statement",
            before="""
                import torch


                def step():
                    torch.cuda.synchronize()  # for the clock
            """,
            after="""
                import torch


                def step():
                    if torch.cuda.is_available():
                        torch.cuda.synchronize()  # for the clock
            """,
        ),
        Example(
            "memory and tunable operations",
            before="""
                import torch
                from torch.cuda import memory

                memory.reset_peak_memory_stats()
                torch.cuda.tunable.enable()
            """,
            after="""
                import torch
                from torch.cuda import memory

                if torch.cuda.is_available():
                    memory.reset_peak_memory_stats()
                    torch.cuda.tunable.enable()
            """,
        ),
        Example(
            "before the program selects its GPUs",
            before="""
                import os
                import torch

                torch.cuda.tunable.enable()
                os.environ["CUDA_VISIBLE_DEVICES"] = "1"
            """,
            after="""
                import os
                import torch

                if torch.cuda.is_available():
                    torch.cuda.tunable.enable()
                os.environ["CUDA_VISIBLE_DEVICES"] = "1"
            """,
            unsafe=True,
        ),
        Example(
            "another name for the function",
            before="""
                from torch.cuda import (
                    synchronize as wait,
                )

                wait()
            """,
            after="""
                import torch
                from torch.cuda import (
                    synchronize as wait,
                )

                if torch.cuda.is_available():
                    wait()
            """,
        ),
        Example(
            "one of several statements in a line",
            before="""
                from torch import cuda

                if verbose: cuda.reset_peak_memory_stats(); go()
            """,
            after="""
                import torch
                from torch import cuda

                if verbose: cuda.reset_peak_memory_stats() if torch.cuda.is_available() else None; go()
            """,
        ),
        Example(
            "the state of a generator in a checkpoint",
            before="""
                import torch

                states = {
                    "cpu": torch.get_rng_state(),
                    "gpu": torch.cuda.get_rng_state(),
                }
                torch.save(states, path)
                states = torch.load(path, map_location="cpu")
                torch.set_rng_state(states["cpu"])
                torch.cuda.set_rng_state(states["gpu"])
            """,
            after="""
                import torch

                states = {
                    "cpu": torch.get_rng_state(),
                    "gpu": torch.cuda.get_rng_state() if torch.cuda.is_available() else None,
                }
                torch.save(states, path)
                states = torch.load(path, map_location="cpu")
                torch.set_rng_state(states["cpu"])
                if torch.cuda.is_available():
                    torch.cuda.set_rng_state(states["gpu"])
            """,
        ),
        Example(
            "the current device as an argument, and a name that is logged",
            before="""
                import torch

                x = x.cuda(torch.cuda.current_device())
                logger.info(torch.cuda.get_device_name(0))
            """,
            after="""
                import torch

                device = torch.device("cuda" if torch.cuda.is_available() else "cpu")

                x = x.to(device)
                logger.info(torch.cuda.get_device_name(0) if torch.cuda.is_available() else "cpu")
            """,
        ),
        Example(
            "the current device as a device and as a number",
            before="""
                import torch

                place = where or torch.cuda.current_device()
                x = torch.ones(2, device=place)
                rank = torch.cuda.current_device()
                print(ports[rank] + rank)
            """,
            after="""
                import torch

                place = where or (torch.cuda.current_device() if torch.cuda.is_available() else "cpu")
                x = torch.ones(2, device=place)
                rank = torch.cuda.current_device() if torch.cuda.is_available() else 0
                print(ports[rank] + rank)
            """,
        ),
        Example(
            "the current device in an attribute of which no use is known",
            before="""
                import torch

                self.device = torch.cuda.current_device()
            """,
        ),
        Example(
            "a size that is divided by, and a name that is looked up",
            before="""
                import torch

                free, total = torch.cuda.mem_get_info()
                used = 1 - free / total
                speed = SPEEDS[torch.cuda.get_device_name()]
            """,
        ),
        Example(
            "a capability that is compared, with and without an end of the program",
            before="""
                import torch

                major, minor = torch.cuda.get_device_capability()
                dtype = torch.bfloat16 if major >= 8 else torch.float16
                free, total = torch.cuda.mem_get_info()
                if free < 2**30:
                    raise MemoryError
            """,
            after="""
                import torch

                major, minor = torch.cuda.get_device_capability() if torch.cuda.is_available() else (8, 0)
                dtype = torch.bfloat16 if major >= 8 else torch.float16
                free, total = torch.cuda.mem_get_info()
                if free < 2**30:
                    raise MemoryError
            """,
        ),
        Example(
            "the random states of all GPUs, in a function that does not keep the CPU's",
            before="""
                import torch

                kept = torch.get_rng_state()


                def noise(x):
                    states = torch.cuda.get_rng_state_all()
                    y = torch.rand_like(x)
                    torch.cuda.set_rng_state_all(new_states=states)
                    return y
            """,
            after="""
                import torch

                kept = torch.get_rng_state()


                def noise(x):
                    states = torch.cuda.get_rng_state_all() if torch.cuda.is_available() else torch.get_rng_state()
                    y = torch.rand_like(x)
                    if torch.cuda.is_available():
                        torch.cuda.set_rng_state_all(new_states=states)
                    else:
                        torch.set_rng_state(states)
                    return y
            """,
        ),
        Example(
            "a random state that is restored, but also stored",
            before="""
                import torch

                old = torch.cuda.get_rng_state()
                states.append(old)
                torch.cuda.set_rng_state(old)
            """,
            after="""
                import torch

                old = torch.cuda.get_rng_state() if torch.cuda.is_available() else torch.get_rng_state()
                states.append(old)
                if torch.cuda.is_available():
                    torch.cuda.set_rng_state(old)
                else:
                    torch.set_rng_state(old)
            """,
            unsafe=True,
        ),
        Example(
            "a device as a context manager",
            before="""
                import torch

                with torch.cuda.device(1):
                    run()
            """,
            after="""
                import contextlib
                import torch

                with torch.cuda.device(1) if torch.cuda.is_available() else contextlib.nullcontext():
                    run()
            """,
        ),
        Example(
            "an f-string that is printed, and a chained call",
            before="""
                import torch

                print(f"on {torch.cuda.get_device_name()}")
                torch.cuda.cudart().cudaProfilerStart()
            """,
            after="""
                import torch

                if torch.cuda.is_available():
                    print(f"on {torch.cuda.get_device_name()}")
                    torch.cuda.cudart().cudaProfilerStart()
            """,
        ),
        Example(
            "a line with other values than those of the GPU, which is printed without CUDA, too",
            before="""
                import torch

                print("loss", losses.pop(), "on GPU", torch.cuda.current_device())
                print("on GPU", torch.cuda.current_device())
            """,
            after="""
                import torch

                print("loss", losses.pop(), "on GPU", torch.cuda.current_device() if torch.cuda.is_available() else -1)
                if torch.cuda.is_available():
                    print("on GPU", torch.cuda.current_device())
            """,
        ),
        Example(
            "a line with other values, in an f-string",
            before="""
                import torch

                print(f"{loss:.2f} on {torch.cuda.get_device_name()}")
            """,
        ),
        Example(
            "a line with effects, in an f-string",
            before="""
                import torch

                print(f"{losses.pop()} on {torch.cuda.get_device_name()}")
            """,
        ),
        Example(
            "an argument with an effect",
            before="""
                import torch

                torch.cuda.set_device(gpu := 0)
                x = torch.ones(gpu)
            """,
        ),
        Example(
            "a range of NVTX as a context manager",
            before="""
                import torch

                with torch.cuda.nvtx.range("step"):
                    run()
            """,
            after="""
                import contextlib
                import torch

                with torch.cuda.nvtx.range("step") if torch.cuda.is_available() else contextlib.nullcontext():
                    run()
            """,
        ),
        Example(
            "a random state that is restored",
            before="""
                import torch

                old = torch.cuda.get_rng_state()
                draw()
                torch.cuda.set_rng_state(old)
            """,
            after="""
                import torch

                old = torch.cuda.get_rng_state() if torch.cuda.is_available() else torch.get_rng_state()
                draw()
                if torch.cuda.is_available():
                    torch.cuda.set_rng_state(old)
                else:
                    torch.set_rng_state(old)
            """,
        ),
        Example(
            "the present random state",
            before="""
                import torch as th

                th.cuda.set_rng_state(th.cuda.get_rng_state())
            """,
            after="""
                import torch as th

                if th.cuda.is_available():
                    th.cuda.set_rng_state(th.cuda.get_rng_state() if th.cuda.is_available() else th.get_rng_state())
            """,
        ),
        Example(
            "a seed between the saving and the restoring of random states",
            before="""
                import torch

                torch.manual_seed(0)


                def draw(seed):
                    states = torch.cuda.get_rng_state_all()
                    torch.cuda.manual_seed_all(seed)
                    drawn = sample()
                    torch.cuda.set_rng_state_all(states)
                    return drawn
            """,
            after="""
                import torch

                torch.manual_seed(0)


                def draw(seed):
                    states = torch.cuda.get_rng_state_all() if torch.cuda.is_available() else torch.get_rng_state()
                    if torch.cuda.is_available():
                        torch.cuda.manual_seed_all(seed)
                    else:
                        torch.manual_seed(seed)
                    drawn = sample()
                    if torch.cuda.is_available():
                        torch.cuda.set_rng_state_all(states)
                    else:
                        torch.set_rng_state(states)
                    return drawn
            """,
        ),
        Example(
            "a random state that is restored beside that of the CPU",
            before="""
                import torch

                old, old_cuda = torch.get_rng_state(), torch.cuda.get_rng_state()
                draw()
                torch.set_rng_state(old)
                torch.cuda.set_rng_state(old_cuda)
            """,
            after="""
                import torch

                old, old_cuda = torch.get_rng_state(), torch.cuda.get_rng_state() if torch.cuda.is_available() else None
                draw()
                torch.set_rng_state(old)
                if torch.cuda.is_available():
                    torch.cuda.set_rng_state(old_cuda)
            """,
        ),
        Example(
            "a variable that holds whether CUDA is available, one that a user sets, and one that comes later",
            before="""
                import torch

                has_cuda = torch.cuda.is_available()
                flag = torch.cuda.is_available()
                if args.cpu:
                    flag = False


                def run():
                    torch.cuda.synchronize()
                    wanted = torch.cuda.is_available() and args.gpu
                    torch.cuda.set_device(0)


                def shadow(has_cuda):
                    torch.cuda.synchronize()


                def before():
                    torch.cuda.synchronize()
                    found = torch.cuda.is_available()
                    torch.cuda.ipc_collect()
                    has_cuda = 1
            """,
            after="""
                import torch

                has_cuda = torch.cuda.is_available()
                flag = torch.cuda.is_available()
                if args.cpu:
                    flag = False


                def run():
                    if has_cuda:
                        torch.cuda.synchronize()
                    wanted = torch.cuda.is_available() and args.gpu
                    if has_cuda:
                        torch.cuda.set_device(0)


                def shadow(has_cuda):
                    if torch.cuda.is_available():
                        torch.cuda.synchronize()


                def before():
                    if torch.cuda.is_available():
                        torch.cuda.synchronize()
                    found = torch.cuda.is_available()
                    if found:
                        torch.cuda.ipc_collect()
                    has_cuda = 1
            """,
        ),
        Example(
            "neighbours that do nothing without CUDA",
            before="""
                import torch


                def warm_up():
                    torch.cuda.empty_cache()
                    torch.cuda.reset_peak_memory_stats()
                    torch.cuda.empty_cache()
                    torch.cuda.synchronize()
                    torch.cuda.empty_cache()

                    torch.cuda.empty_cache()
                    torch.cuda.empty_cache(); run()
                    torch.cuda.ipc_collect()
            """,
            after="""
                import torch


                def warm_up():
                    if torch.cuda.is_available():
                        torch.cuda.empty_cache()
                        torch.cuda.reset_peak_memory_stats()
                        torch.cuda.empty_cache()
                        torch.cuda.synchronize()
                        torch.cuda.empty_cache()

                    torch.cuda.empty_cache()
                    torch.cuda.empty_cache(); run()
                    if torch.cuda.is_available():
                        torch.cuda.ipc_collect()
            """,
        ),
        Example(
            "random states under keys",
            before="""
                import torch


                class Tracker:
                    def save(self, name):
                        self.states[name] = torch.cuda.get_rng_state()

                    def restore(self, name):
                        torch.cuda.set_rng_state(self.states[name])
            """,
            after="""
                import torch


                class Tracker:
                    def save(self, name):
                        self.states[name] = torch.cuda.get_rng_state() if torch.cuda.is_available() else torch.get_rng_state()

                    def restore(self, name):
                        if torch.cuda.is_available():
                            torch.cuda.set_rng_state(self.states[name])
                        else:
                            torch.set_rng_state(self.states[name])
            """,
            unsafe=True,
        ),
        Example(
            "random states of both generators in functions",
            before="""
                import torch


                def save():
                    return torch.get_rng_state(), torch.cuda.get_rng_state()


                def restore(cpu, gpu):
                    torch.set_rng_state(cpu)
                    torch.cuda.set_rng_state(gpu)
            """,
            after="""
                import torch


                def save():
                    return torch.get_rng_state(), torch.cuda.get_rng_state() if torch.cuda.is_available() else None


                def restore(cpu, gpu):
                    torch.set_rng_state(cpu)
                    if torch.cuda.is_available():
                        torch.cuda.set_rng_state(gpu)
            """,
            unsafe=True,
        ),
        Example(
            "a seed for the GPUs alone",
            before="""
                import torch

                torch.cuda.manual_seed(42)
            """,
            after="""
                import torch

                if torch.cuda.is_available():
                    torch.cuda.manual_seed(42)
                else:
                    torch.manual_seed(42)
            """,
            unsafe=True,
        ),
        Example(
            "a random state under a guard",
            before="""
                import torch

                if torch.cuda.is_available():
                    state = torch.cuda.get_rng_state()
                draw()
                if torch.cuda.is_available():
                    torch.cuda.set_rng_state(state)
            """,
        ),
        Example(
            "a random state that is kept",
            before="""
                import torch

                self.state = torch.cuda.get_rng_state()
            """,
            after="""
                import torch

                self.state = torch.cuda.get_rng_state() if torch.cuda.is_available() else None
            """,
            unsafe=True,
        ),
        Example(
            "an allocator",
            before="""
                import torch

                allocator = torch.cuda.memory.CUDAPluggableAllocator("alloc.so", "my_malloc", "my_free")
                torch.cuda.memory.change_current_allocator(allocator)
            """,
            after="""
                import torch

                allocator = torch.cuda.memory.CUDAPluggableAllocator("alloc.so", "my_malloc", "my_free")
                if torch.cuda.is_available():
                    torch.cuda.memory.change_current_allocator(allocator)
            """,
        ),
        Example(
            "a graph by the name of its module",
            before="""
                import torch

                pool = torch.cuda.graphs.graph_pool_handle()
            """,
        ),
        Example(
            "what is empty without CUDA",
            before="""
                import torch

                print(torch.cuda.memory_stats()["num_ooms"])
            """,
            after="""
                import torch

                print(torch.cuda.memory_stats().get("num_ooms", 0))
            """,
        ),
        Example(
            "what is empty without CUDA, but has to be more than 0",
            before="""
                import torch

                share = 1 / torch.cuda.memory_stats()["allocated_bytes.all.peak"]
            """,
        ),
        Example(
            "a value that is only compared with a literal",
            before="""
                import torch

                bits = 16 if torch.cuda.get_device_capability()[0] >= 8 else 32
                old = torch.cuda.get_device_capability() < (8, 0)
                near = [x, "PCIE" in torch.cuda.get_device_name()]
                any_at_all = torch.cuda.get_device_capability()[0] >= 0
            """,
            after="""
                import torch

                bits = 16 if torch.cuda.is_available() and torch.cuda.get_device_capability()[0] >= 8 else 32
                old = not torch.cuda.is_available() or torch.cuda.get_device_capability() < (8, 0)
                near = [x, torch.cuda.is_available() and "PCIE" in torch.cuda.get_device_name()]
                any_at_all = (torch.cuda.get_device_capability() if torch.cuda.is_available() else (0, 0))[0] >= 0
            """,
        ),
        Example(
            "a device as the device of another call",
            before="""
                import torch

                torch.cuda.set_device(torch.cuda.device(rank))
            """,
            after="""
                import torch

                if torch.cuda.is_available():
                    torch.cuda.set_device(torch.cuda.device(rank))
            """,
        ),
        Example(
            "the properties of a device",
            before="""
                import torch

                memory = torch.cuda.get_device_properties(0).total_memory
            """,
        ),
        Example(
            "the device of a new tensor",
            before="""
                import torch

                def total(x):
                    return torch.tensor(x, device=torch.cuda.current_device(), dtype=torch.float32)
            """,
            after="""
                import torch

                device = torch.device("cuda" if torch.cuda.is_available() else "cpu")

                def total(x):
                    return torch.tensor(x, device=device, dtype=torch.float32)
            """,
        ),
        Example(
            "a generator of a GPU",
            before="""
                import torch

                generator = torch.cuda.default_generators[0]
            """,
            after="""
                import torch

                generator = torch.cuda.default_generators[0] if torch.cuda.is_available() else torch.default_generator
            """,
        ),
        Example(
            "the state of a generator, for graphs",
            before="""
                import torch

                rng = torch.Generator("cpu")
                state = rng.graphsafe_get_state()
                rng.graphsafe_set_state(state)
            """,
        ),
        Example(
            "the current device for an object that uses it several times",
            before="""
                import torch


                class Buffers:
                    def __init__(self, where):
                        self.device = where
                        self.x = torch.ones(2, device=self.device)
                        self.y = torch.ones(2).to(self.device)


                Buffers(torch.cuda.current_device())
            """,
            after="""
                import torch


                class Buffers:
                    def __init__(self, where):
                        self.device = where
                        self.x = torch.ones(2, device=self.device)
                        self.y = torch.ones(2).to(self.device)


                Buffers(torch.cuda.current_device() if torch.cuda.is_available() else "cpu")
            """,
        ),
    )
    VALID = (
        Example(
            "a generator that is replaced",
            """
                import torch

                torch.cuda.default_generators[0] = generator
            """,
        ),
        Example(
            "under a guard",
            """
                import torch

                if torch.cuda.is_available():
                    torch.cuda.synchronize()
            """,
        ),
        Example(
            "the version of NCCL in a build with CUDA",
            """
                import torch

                new = torch.version.cuda and torch.cuda.nccl.version() >= (2, 10)
            """,
        ),
        Example(
            "a seed for the GPUs beside one of a library",
            """
                import random
                import lightning
                import torch

                random.seed(1)
                lightning.seed_everything(1)
                torch.cuda.manual_seed_all(1)
            """,
        ),
        Example(
            "functions that do nothing without CUDA",
            """
                import torch

                torch.cuda.empty_cache()
                torch.manual_seed(1)
                torch.cuda.manual_seed_all(1)
                peak = torch.cuda.memory_stats().get("allocated_bytes.all.peak", 0)
                n = torch.cuda.device_count()
            """,
        ),
        Example(
            "the cuda module of numba",
            """
                from numba import cuda

                cuda.synchronize()
            """,
        ),
    )

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._functions = Functions(context)

    def visit_Call(self, node: ast.Call) -> Iterator[Finding]:
        name = self.facts.resolve(node.func) or ""
        if not name:
            yield from self._perhaps(node)
            yield from self._of_generator(node)
        if not name.startswith(("torch.cuda.", NVTX)):
            return
        short, guarded = name.removeprefix("torch.cuda."), self.facts.is_guarded(node)
        replays = self._functions.replays(node, short, guarded=guarded)
        if guarded and not replays:
            return
        if isinstance(node.func, ast.Name) and self.facts.value(node.func) is not None:
            return  # a variable: the rule for functions that are stored checks where it gets its value
        if short == "nccl.version" and self.facts.built.is_guarded(node):
            return  # it needs no GPU
        if short == "device":
            yield from self._device(node)
        elif short in _STATISTICS:
            yield from self._statistics(node)
        elif replays:
            yield self._replayed(node, name, short, guarded=guarded)
        elif self._functions.raises(short):
            yield self._raising(node, name, short)

    def _replayed(self, node: ast.Call, name: str, short: str, *, guarded: bool) -> Finding:
        """Return the finding for a seed, or a state that is saved or restored, of the generators of GPUs alone."""
        fix = None if guarded else self._functions.fix(node, short)
        why = "because some places that restore the state may be unknown"
        if guarded:
            why = "because the call is under a check for CUDA"
        elif self._functions.assigns(node):
            why = ASSIGNS
        states = "states of GPU generators" if short.endswith("_all") else "state of a GPU generator"
        if "manual_seed" in short:
            message = f"`{name}` seeds only GPUs; on a CPU, seed its generator"
        elif "set_rng_state" in short:
            message = f"`{name}` restores only the {states}; on a CPU, restore its generator's state"
        else:
            message = f"`{name}` returns only the {states}; on a CPU, save its generator's state"
        return self.finding(node, message, fix, unless=why)

    def _raising(self, node: ast.Call, name: str, short: str) -> Finding:
        """Return the finding for a function that raises an error without CUDA."""
        fix = self._functions.fix(node, short)
        advice = (
            "call it only if CUDA is available, and add a CPU path"
            if fix is None
            else self._advice(node, short, fix)
        )
        why = ASSIGNS if self._functions.assigns(node) else "because the program uses the result"
        if fix is None and (use := self._functions.failing(node)) is not None:
            why = f"because line {use.lineno} uses a value that exists only with CUDA"
        problem = "raises an error without CUDA"
        if short.endswith("set_rng_state"):
            problem = "cannot restore a state without CUDA"
        elif short.startswith(_OF_BUILDS):
            problem = "raises an error in CPU builds of torch"
        return self.finding(node, f"`{name}` {problem}; {advice}", fix, unless=why)

    def _advice(self, node: ast.Call, short: str, fix: Fix) -> str:
        """Return what the fix of a function that raises an error does."""
        if (value := self._functions.value(node, fix)) is not None:
            return f"use `{value}`"
        instead = self._functions.instead(node, short) if short == "get_device_capability" else ""
        advice = self._advice_to_call(node, self._functions.site(node, short))
        return f"{advice}, and use {instead} on a CPU" if instead else advice

    def visit_Subscript(self, node: ast.Subscript) -> Iterator[Finding]:
        is_read = isinstance(node.ctx, ast.Load)
        if is_read and self.facts.resolve(node.value) == _GENERATORS and not self.facts.is_guarded(node):
            fix = self.context.when_cuda(node, f"{self.devices.torch(node).text}.default_generator")
            yield self.finding(
                node,
                f"`{_GENERATORS}` contains only GPU generators; without CUDA, use the CPU generator",
                fix,
            )

    def _statistics(self, node: ast.Call) -> Iterator[Finding]:
        """Check the items of `torch.cuda.memory_stats()`, which has none without CUDA."""
        for use in self.context.forwards.of(node).uses:
            item = self.facts.tree.parents.get(use)
            if isinstance(item, ast.Subscript) and item.value is use and not self.facts.is_guarded(item):
                (_, end), part, (_, last) = map(self.context.source.span, (use, item.slice, item))
                opened = Edit(end, part[0], lambda text: text.replace("[", ".get("))
                closed = Edit(part[1], last, lambda text: text.replace("]", ", 0)"))
                fix = Fix((opened, closed)) if self._functions.failing(item) is None else None
                advice = "`.get(key, 0)`" if fix is not None else "`.get()` with a default that works here"
                message = f"`torch.cuda.memory_stats()` is empty without CUDA; use {advice}"
                yield self.finding(item, message, fix, unless="because the program may not work with 0")

    def _of_generator(self, node: ast.Call) -> Iterator[Finding]:
        """Check a call of a method of `torch.Generator` that a generator of the CPU does not have."""
        method = last_name(node.func)
        if method in ("graphsafe_get_state", "graphsafe_set_state") and not self.facts.is_guarded(node):
            message = f"`{method}` raises an error for a CPU generator; use `{method[10:]}`"
            yield self.finding(node, message, unless="because `get_state` returns a copy")

    def _perhaps(self, node: ast.Call) -> Iterator[Finding]:
        """Check a call of a name that is bound to a function of `torch.cuda`, and to something else."""
        for name in self.facts.may_resolve(node.func):
            if name.startswith("torch.cuda.") and self._functions.raises(name.removeprefix("torch.cuda.")):
                if not self.facts.is_guarded(node):
                    code = self.context.source.code(node.func)
                    message = (
                        f"`{code}` may be `{name}` here, which needs CUDA; call it only if CUDA is available"
                    )
                    yield self.finding(node, message, unless="because the name may refer to another function")
                return

    def _device(self, node: ast.Call) -> Iterator[Finding]:
        """Check `with torch.cuda.device(i):`.

        `torch.cuda.device_of(x)` is shorter for a tensor's device, but `torch.compile` can't trace it.
        """
        if len(node.args) == 1 and not node.keywords and not isinstance(node.args[0], ast.IfExp):
            self.context.mark_handled(node.args[0])
            outer = self._functions.outer(node)
            fix = self._functions.of_outer(outer) if outer is not None else self._functions.entered(node)
            advice = self._advice_to_call(node, self._functions.site(node, "device"))
            yield self.finding(node, f"`torch.cuda.device` needs CUDA; {advice}", fix)
