from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property

from devicefix.facts import Scope
from devicefix.facts.values import device_name, index_name, last_name
from devicefix.model import Finding, Fix, Safety
from devicefix.rules.base import Changed, Rule

# Measured on torch 2.13 without CUDA: each of these raises there. What is not named is harmless: it
# answers 0, nothing or an empty list, or does nothing.
_RAISING = frozenset((
    "set_device", "synchronize", "current_device", "get_device_name", "get_device_properties",
    "get_device_capability", "CUDAGraph", "graph", "graph_pool_handle", "get_rng_state", "initial_seed", "mem_get_info", "memory_summary",
    "memory_snapshot", "reset_peak_memory_stats", "reset_max_memory_allocated", "reset_max_memory_cached",
    "reset_accumulated_memory_stats", "set_per_process_memory_fraction", "init", "ipc_collect", "cudart",
    "check_error", "can_device_access_peer", "current_blas_handle", "get_sync_debug_mode", "set_sync_debug_mode",
    "is_current_stream_capturing", "caching_allocator_alloc", "caching_allocator_delete", "get_allocator_backend",
    "utilization", "temperature", "power_draw", "clock_rate", "memory_usage", "device_memory_used",
    "nvtx.range_push", "nvtx.range_pop", "nvtx.mark", "nvtx.range", "nvtx.range_start", "nvtx.range_end",
    "profiler.start", "profiler.stop", "profiler.init", "profiler.profile", "memory._record_memory_history",
    "memory._snapshot", "memory._dump_snapshot", "nccl.version", "nccl.unique_id", "nccl.all_reduce",
    "nccl.reduce", "nccl.broadcast", "nccl.all_gather", "comm.broadcast", "comm.broadcast_coalesced",
    "comm.reduce_add", "comm.scatter", "comm.gather", "random.get_rng_state", "random.initial_seed",
))  # fmt: skip
# As a value: what stands for the answer on a CPU wherever the answer is only shown or compared.
_INSTEAD = {
    "get_device_name": '"cpu"',
    "get_device_capability": "(0, 0)",
    "memory_summary": '""',
    "mem_get_info": "(0, 0)",
    "utilization": "0",
    "memory_usage": "0",
}
# As context managers.
_NVTX = "torch.autograd.profiler.emit_nvtx"
_CONTEXTS = ("nvtx.range", "profiler.profile", _NVTX)
_TELLS = {"print", "debug", "info", "warning", "error", "log", "write", "echo"}


class CudaFunction(Rule):
    """
    ## What it does
    Finds calls of `torch.cuda` that raise an error where there is no CUDA, such as
    `torch.cuda.synchronize()` and `torch.cuda.set_device(rank)`.

    ## Why it matters
    They only mean something with CUDA, but stop the program without it.

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
    Safe where the call stands alone, or where its value is the current device, the name of the GPU or its
    capability. Other values are reported: what a stream, an event or the properties of a GPU are good for
    on a CPU is for a person to decide.
    """

    code = "DF401"
    name = "cuda-function"
    summary = "A function of `torch.cuda` that raises without CUDA"
    MATCHES = (
        Changed(
            "import torch\n\n\ndef step():\n    torch.cuda.synchronize()  # for the clock\n",
            "import torch\n\n\ndef step():\n    if torch.cuda.is_available():\n"
            "        torch.cuda.synchronize()  # for the clock\n",
        ),
        Changed(
            "from torch import cuda\n\nif verbose: cuda.reset_peak_memory_stats(); go()\n",
            "import torch\nfrom torch import cuda\n\n"
            "if verbose: cuda.reset_peak_memory_stats() if torch.cuda.is_available() else None; go()\n",
        ),
        Changed(
            "import torch\n\nx = x.cuda(torch.cuda.current_device())\nlogger.info(torch.cuda.get_device_name(0))\n",
            "import torch\n\n"
            'x = x.to(torch.device("cuda", torch.cuda.current_device()) if torch.cuda.is_available() else "cpu")\n'
            'logger.info(torch.cuda.get_device_name(0) if torch.cuda.is_available() else "cpu")\n',
        ),
        Changed(
            "import torch\n\ndevice = device or torch.cuda.current_device()\nrank = torch.cuda.current_device()\n",
            'import torch\n\ndevice = device or (torch.cuda.current_device() if torch.cuda.is_available() else "cpu")\n'
            "rank = torch.cuda.current_device() if torch.cuda.is_available() else 0\n",
        ),
        Changed(
            "import torch\n\nwith torch.cuda.device(1):\n    run()\n",
            "import torch\n\nwith torch.cuda.device(1 if torch.cuda.is_available() else -1):\n    run()\n",
        ),
        Changed(
            'import torch\n\nprint(f"on {torch.cuda.get_device_name()}")\ntorch.cuda.cudart().cudaProfilerStart()\n',
            'import torch\n\nif torch.cuda.is_available():\n    print(f"on {torch.cuda.get_device_name()}")\n'
            "    torch.cuda.cudart().cudaProfilerStart()\n",
        ),
        Changed(
            'import torch\n\nwith torch.cuda.nvtx.range("step"):\n    run()\n',
            "import contextlib\nimport torch\n\n"
            'with torch.cuda.nvtx.range("step") if torch.cuda.is_available() else contextlib.nullcontext():\n    run()\n',
        ),
        Changed(
            "import torch\n\nold = torch.cuda.get_rng_state()\ndraw()\ntorch.cuda.set_rng_state(old)\n",
            "import torch\n\nold = torch.cuda.get_rng_state() if torch.cuda.is_available() else None\ndraw()\n"
            "if torch.cuda.is_available():\n    torch.cuda.set_rng_state(old)\n",
        ),
        Changed(
            "import torch\n\nself.state = torch.cuda.get_rng_state()\n",
            "import torch\n\nself.state = torch.cuda.get_rng_state() if torch.cuda.is_available() else None\n",
            unsafe=True,
        ),
        Changed("import torch\n\nmemory = torch.cuda.get_device_properties(0).total_memory\n", None),
    )
    LEAVES = (
        "import torch\n\nif torch.cuda.is_available():\n    torch.cuda.synchronize()\n",
        "import torch\n\ntorch.cuda.empty_cache()\ntorch.cuda.manual_seed_all(1)\nn = torch.cuda.device_count()\n",
        "from numba import cuda\n\ncuda.synchronize()\n",
    )

    def visit_Call(self, node: ast.Call) -> Iterator[Finding]:
        name = self.facts.resolve(node.func) or ""
        if not name.startswith(("torch.cuda.", _NVTX)) or self.facts.is_guarded(node):
            return
        short = name.removeprefix("torch.cuda.")
        if short == "device":
            yield from self._device(node)
        elif short in (*_RAISING, _NVTX) or (short.endswith("set_rng_state") and self._saves_state):
            fix = self.fix(node, short)
            advice = "" if fix else ": decide what to do instead, and put it under a guard"
            yield self.finding(node, f"`{name}` raises an error without CUDA{advice}", fix)

    @cached_property
    def _saves_state(self) -> bool:
        """The module asks for the random state, which is None on a CPU once it is fixed, and can't be set."""
        return any(
            isinstance(node, ast.Call)
            and (self.facts.resolve(node.func) or "").startswith("torch.cuda.")
            and (self.facts.resolve(node.func) or "").endswith("get_rng_state")
            for node in self.facts.tree.nodes
        )

    def _restored(self, node: ast.Call, parent: ast.AST | None) -> bool:
        """Whether torch is given the random state back in the same function."""
        if not (isinstance(parent, ast.Assign) and isinstance(parent.targets[0], ast.Name)):
            return False
        return self.facts.tree.scope(node) in self._restoring

    @cached_property
    def _restoring(self) -> set[Scope]:
        """The scopes in which torch is given a random state back."""
        return {
            self.facts.tree.scope(each)
            for each in self.facts.tree.nodes
            if isinstance(each, ast.Call)
            and last_name(each.func) == "set_rng_state"
            and (self.facts.resolve(each.func) or "").startswith("torch.cuda.")
        }

    def _device(self, node: ast.Call) -> Iterator[Finding]:
        """`with torch.cuda.device(i):`, which does nothing for the index -1."""
        if len(node.args) == 1 and not node.keywords and not isinstance(node.args[0], ast.IfExp):
            self.context.mark_handled(node.args[0])
            accelerator = self.context.accelerator
            taken_over = accelerator is not None and accelerator.counterpart(node.func) is not None
            fix = self.context.when_cuda(node.args[0], "None" if taken_over else "-1", of_cuda=not taken_over)
            yield self.finding(node, "`torch.cuda.device` can't be entered without CUDA", fix)

    def fix(self, node: ast.Call, short: str) -> Fix | None:
        if self._inside_another(node):
            return Fix(())  # what is done about that one serves both
        parent = self.facts.tree.parents.get(node)
        statement = self._statement(node)
        if statement is not None and not (
            short in _INSTEAD and self._tells(statement) and not self._quoted(node)
        ):
            return self.context.put_under_guard(statement)
        if short == "current_device":
            return self._current(node, parent)
        if short.endswith("get_rng_state"):
            # Kept for later, it reaches code that can't be seen from here.
            safety = Safety.SAFE if self._restored(node, parent) else Safety.UNSAFE
            return self.context.when_cuda(node, "None", safety)
        if short in _INSTEAD:
            return self.context.when_cuda(node, _INSTEAD[short])
        if short == "initial_seed":
            return self.context.when_cuda(node, f"{self.devices.torch(node).text}.initial_seed()")
        if short in _CONTEXTS and isinstance(parent, ast.withitem):
            fix = self.context.when_cuda(node, "contextlib.nullcontext()")
            return replace(fix, needs=fix.needs | self.devices.imports("contextlib"))
        return None

    def _inside_another(self, node: ast.Call) -> bool:
        """Whether a call is an argument of another that raises."""
        return any(
            isinstance(parent, ast.Call)
            and (self.facts.resolve(parent.func) or "").removeprefix("torch.cuda.") in _RAISING
            for _, parent in self.facts.tree.ancestors(node)
            if isinstance(parent, (ast.expr, ast.keyword))
        )

    def _statement(self, node: ast.expr) -> ast.Expr | None:
        """The statement to guard, if a call is all that it does, or if it only tells what the call says."""
        statement = self.facts.tree.statement(node)
        if not isinstance(statement, ast.Expr):
            return None
        if self._tells(statement):
            return statement
        chain: ast.expr = statement.value
        while isinstance(chain, (ast.Call, ast.Attribute)) and chain is not node:
            chain = chain.func if isinstance(chain, ast.Call) else chain.value
        return statement if chain is node else None

    def _tells(self, statement: ast.Expr) -> bool:
        call = statement.value
        return isinstance(call, ast.Call) and last_name(call.func) in _TELLS

    def _quoted(self, node: ast.expr) -> bool:
        return any(isinstance(parent, ast.JoinedStr) for _, parent in self.facts.tree.ancestors(node))

    def _current(self, node: ast.Call, parent: ast.AST | None) -> Fix | None:
        """The number of the current GPU, where it is used as a device or kept as a number."""
        moves = (
            isinstance(parent, ast.Call)
            and isinstance(parent.func, ast.Attribute)
            and parent.func.attr in ("to", "cuda")
        )
        if moves:
            return Fix(())  # the move itself is fixed
        place = self._place_of(node)
        if device_name(place) or place == "map_location":
            return self.context.when_cuda(node, '"cpu"')
        if parent is not None and self.facts.call(parent, "torch.device"):
            return self.context.when_cuda(node, '"cpu"')
        return self.context.when_cuda(node, "0") if index_name(place) else None

    def _place_of(self, node: ast.expr) -> str:
        """What a value is assigned to or handed over as: a variable, an argument or a key."""
        for child, parent in self.facts.tree.ancestors(node):
            match parent:
                case ast.BoolOp() | ast.IfExp():
                    continue
                case ast.keyword(arg=str(name)):
                    return name
                case ast.Assign(targets=[target, *_]):
                    return last_name(target)
                case ast.Dict(keys=keys, values=values) if child in values:
                    key = keys[values.index(child)]
                    return str(key.value) if isinstance(key, ast.Constant) else ""
            return ""
        return ""
