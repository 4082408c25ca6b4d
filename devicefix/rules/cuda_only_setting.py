from __future__ import annotations

import ast
from collections.abc import Iterator

from devicefix.devices.arguments import gpu_number
from devicefix.facts.kinds import NUMBERS, Kind
from devicefix.facts.kinds.library import CURRENT_ACCELERATOR
from devicefix.facts.values import last_name
from devicefix.model import Finding, Fix, Safety
from devicefix.rewrite import blocks
from devicefix.rules.base import Example, Rule

_OPTIMIZERS = tuple(
    f"torch.optim.{name}"
    for name in ("ASGD", "Adadelta", "Adam", "AdamW", "Adamax", "NAdam", "RAdam", "RMSprop", "Rprop")
)
_KERNEL = "torch.nn.attention.sdpa_kernel"
_OLD_KERNEL = "torch.backends.cuda.sdp_kernel"
_OLD_SWITCHES = ("enable_flash", "enable_math", "enable_mem_efficient")  # its parameters
_SWITCHES = ("torch.backends.cuda.enable_flash_sdp", "torch.backends.cuda.enable_math_sdp")
_FSDP = "torch.distributed.fsdp.FullyShardedDataParallel"
_DEVICE = "torch.device"
_OF_ACCELERATORS = tuple(
    f"torch.accelerator.{name}"
    for name in (
        "current_device_idx", "current_device_index", "set_device_idx", "set_device_index", "current_stream",
        "set_stream", "synchronize", "empty_cache", "empty_host_cache", "get_device_capability", "get_memory_info",
        "memory_allocated", "max_memory_allocated", "memory_reserved", "max_memory_reserved", "memory_stats",
        "reset_peak_memory_stats", "reset_accumulated_memory_stats",
    )
)  # fmt: skip
_PROFILER = "torch.profiler.profile"
_ACTIVITY = "torch.profiler.ProfilerActivity.CUDA"
_PLANS = "torch.backends.cuda.cufft_plan_cache"
_HOOK = "torch.distributed.algorithms.ddp_comm_hooks.default_hooks.bf16_compress_hook"
_GROUPS = ("torch.distributed.ProcessGroupNCCL", "torch.distributed.distributed_c10d.ProcessGroupNCCL")
_ATTENTION = "scaled_dot_product_attention"
_DROPOUT = 4  # the position of its dropout
_ASKING = (ast.Compare, ast.If, ast.IfExp, ast.BoolOp, ast.UnaryOp, ast.Assert)
_CPU_KERNELS = ("MATH", "FLASH_ATTENTION")  # the others have no kernel for a CPU
_NO_DROPOUT = "leaves no kernel of attention with dropout for a CPU; allow `MATH` without CUDA"
_NO_KERNEL = "leaves no kernel of scaled dot product attention for a CPU; allow `MATH` without CUDA"


class CudaOnlySetting(Rule):
    """
    ## What it does
    Finds settings of torch with which it needs CUDA: optimizers with `capturable=True`, kernels of scaled dot
    product attention that a CPU does not have, functions of `torch.accelerator`, attributes and names of its
    `current_accelerator()`, `FullyShardedDataParallel` without a `device_id` that is a device or with
    `sync_module_states=True`, a profiler of CUDA alone, cuFFT's cache of plans, the communication hook that
    compresses gradients to bfloat16, and `ProcessGroupNCCL`.

    ## Why it matters
    Measured on torch 2.13 without CUDA: the step of a capturable optimizer raises an `AssertionError`. Attention
    raises `RuntimeError: No viable backend` unless its math or flash kernels are allowed, and with dropout unless the
    math kernel is. The current accelerator is `None`, which has no `type`, and all functions of `torch.accelerator`
    that use an accelerator raise an error. `FullyShardedDataParallel` needs an accelerator unless it is given a
    device, and also to synchronize the states of the module. A profiler without an activity raises an error, and so
    do the cache of plans and the hook. Builds of torch without CUDA have no `ProcessGroupNCCL`.

    ## Example
    ```python
    optimizer = torch.optim.Adam(net.parameters(), capturable=True)
    ```

    ## Use instead
    ```python
    optimizer = torch.optim.Adam(net.parameters(), capturable=torch.cuda.is_available())
    ```

    ## Fix safety
    Unsafe for `capturable`: it computes the corrections of a step in float32, and other optimizers do so in float64,
    which may differ in the last digits. Safe for a statement that only calls a function of `torch.accelerator` or
    uses the cache of plans: the fix puts it under a guard. The other settings are reported without a fix.
    """

    code = "DF411"
    name = "cuda-only-setting"
    summary = "A setting of torch only works with CUDA"
    references = (
        *_OPTIMIZERS, _KERNEL, _OLD_KERNEL, *_SWITCHES, _FSDP, CURRENT_ACCELERATOR, _DEVICE, *_OF_ACCELERATORS, _PROFILER, _PLANS, _HOOK,
        *_GROUPS,
    )  # fmt: skip
    words = (
        b"capturable", b"sdpa_kernel", b"FullyShardedDataParallel", b"current_accelerator", b".accelerator.",
        b"ProfilerActivity.CUDA", b"cufft_plan_cache", b"bf16_compress_hook", b"ProcessGroupNCCL",
    )  # fmt: skip
    common_words = (b"sdp", b"profile")
    attributes = ("type", "index")
    INVALID = (
        Example(
            "an optimizer that can be captured in a graph",
            before="""
                import torch

                optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3, capturable=True)
            """,
            after="""
                import torch

                optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3, capturable=torch.cuda.is_available())
            """,
            unsafe=True,
        ),
        Example(
            "a kernel of attention that a CPU does not have",
            before="""
                from torch.nn.attention import SDPBackend, sdpa_kernel

                with sdpa_kernel(SDPBackend.EFFICIENT_ATTENTION):
                    y = attend(q, k, v)
            """,
        ),
        Example(
            "several kernels of attention that a CPU does not have",
            before="""
                from torch.nn.attention import SDPBackend, sdpa_kernel

                with sdpa_kernel(backends=[SDPBackend.EFFICIENT_ATTENTION, SDPBackend.CUDNN_ATTENTION]):
                    y = attend(q, k, v)
            """,
        ),
        Example(
            "kernels of attention in torch before 2.3",
            before="""
                import torch

                with torch.backends.cuda.sdp_kernel(enable_flash=False, enable_math=False):
                    y = attend(q, k, v)
            """,
        ),
        Example(
            "kernels of attention by position",
            before="""
                import torch

                with torch.backends.cuda.sdp_kernel(False, False, True):
                    y = attend(q, k, v)
            """,
        ),
        Example(
            "dropout with the flash kernel alone",
            before="""
                import torch
                import torch.nn.functional as F
                from torch.nn.attention import SDPBackend, sdpa_kernel


                def attend(q, k, v, p):
                    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
                        y = F.scaled_dot_product_attention(q, k, v, dropout_p=p)
                    with torch.backends.cuda.sdp_kernel(enable_math=False):
                        return y + F.scaled_dot_product_attention(q, k, v, None, 0.1)
            """,
        ),
        Example(
            "kernels of attention that are disabled for good",
            before="""
                import torch

                torch.backends.cuda.enable_flash_sdp(False)
                torch.backends.cuda.enable_math_sdp(False)
            """,
        ),
        Example(
            "the name of the accelerator, which may be None",
            before="""
                import torch

                class Place:
                    def __init__(self):
                        self.device = torch.accelerator.current_accelerator()

                def first(place):
                    return torch.device(f"{place.device}:0")

                where = torch.device(torch.accelerator.current_accelerator())
            """,
        ),
        Example(
            "parameters that are sharded over GPUs",
            before="""
                from functools import partial
                from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

                wrap = partial(FSDP, device_id=int(rank))
                net = FSDP(net, use_orig_params=True)
            """,
        ),
        Example(
            "parameters that are sharded over the current GPU",
            before="""
                import torch
                from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

                net = FSDP(net, device_id=torch.cuda.current_device())
            """,
        ),
        Example(
            "parameters that are sharded over the GPU of a process",
            before="""
                import torch
                from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


                def work(rank, n):
                    torch.cuda.manual_seed(n)
                    net = FSDP(net, device_id=rank)


                torch.multiprocessing.spawn(work, args=(2,), nprocs=2)
            """,
        ),
        Example(
            "states that are synchronized over GPUs",
            before="""
                from torch.distributed.fsdp import FullyShardedDataParallel

                net = FullyShardedDataParallel(net, device_id=device, sync_module_states=True)
            """,
        ),
        Example(
            "functions of an accelerator that may not exist",
            before="""
                import torch

                torch.accelerator.synchronize()
                used = torch.accelerator.memory_allocated()
            """,
            after="""
                import torch

                if torch.accelerator.is_available():
                    torch.accelerator.synchronize()
                used = torch.accelerator.memory_allocated()
            """,
        ),
        Example(
            "a profiler of CUDA alone",
            before="""
                import torch
                from torch.profiler import ProfilerActivity

                with torch.profiler.profile(activities=[ProfilerActivity.CUDA]):
                    net(x)
            """,
        ),
        Example(
            "the plans of cuFFT",
            before="""
                import torch

                torch.backends.cuda.cufft_plan_cache.clear()
                torch.backends.cuda.cufft_plan_cache[0].max_size = 32
                print(torch.backends.cuda.cufft_plan_cache.size)
            """,
            after="""
                import torch

                if torch.cuda.is_available():
                    torch.backends.cuda.cufft_plan_cache.clear()
                    torch.backends.cuda.cufft_plan_cache[0].max_size = 32
                print(torch.backends.cuda.cufft_plan_cache.size)
            """,
        ),
        Example(
            "gradients in bfloat16",
            before="""
                from torch.distributed.algorithms.ddp_comm_hooks import default_hooks

                net.register_comm_hook(None, default_hooks.bf16_compress_hook)
            """,
        ),
        Example(
            "options of NCCL",
            before="""
                import torch.distributed as dist

                options = dist.ProcessGroupNCCL.Options(is_high_priority_stream=True)
            """,
        ),
        Example(
            "the type of an accelerator that may not exist",
            before="""
                import torch

                kind = torch.accelerator.current_accelerator().type
            """,
        ),
    )
    VALID = (
        Example(
            "settings that a CPU accepts",
            """
                import torch
                from torch.nn.attention import SDPBackend, sdpa_kernel

                optimizer = torch.optim.Adam(net.parameters(), fused=True, capturable=False)
                with sdpa_kernel([SDPBackend.MATH, SDPBackend.CUDNN_ATTENTION]):
                    x = torch.rand(1)
                with sdpa_kernel(backends):
                    x = torch.rand(1)
                with torch.backends.cuda.sdp_kernel(enable_math=False, enable_mem_efficient=False):
                    x = torch.nn.functional.scaled_dot_product_attention(x, x, x, dropout_p=0.0)
                with torch.backends.cuda.sdp_kernel(*flags):
                    x = torch.nn.functional.scaled_dot_product_attention(x, x, x, dropout_p=p)
                activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
                with torch.profiler.profile(activities=activities):
                    x = torch.rand(1)
                with torch.profiler.profile(activities=[*activities, torch.profiler.ProfilerActivity.CUDA]):
                    x = torch.rand(torch.accelerator.device_count())
                torch.backends.cuda.enable_flash_sdp(False)
                torch.backends.cuda.enable_math_sdp(True)
            """,
        ),
        Example(
            "parameters that are sharded over a device",
            """
                import torch
                from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

                device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
                net = FSDP(net, device_id=device)
                other = FSDP(net, device_id=args.device)
                last = FSDP(net, **options)
                print(isinstance(net, FSDP))
            """,
        ),
        Example(
            "one of two switches, and the other where CUDA is",
            """
                import torch

                torch.backends.cuda.enable_math_sdp(False)
                if torch.cuda.is_available():
                    torch.backends.cuda.enable_flash_sdp(False)
            """,
        ),
        Example(
            "under a guard",
            """
                import torch

                device = torch.accelerator.current_accelerator()
                if device is not None:
                    print(device.type)
                print(f"on {torch.accelerator.current_accelerator()}")
                if torch.accelerator.is_available():
                    kind = torch.accelerator.current_accelerator().type
                    torch.accelerator.empty_cache()
                if torch.cuda.is_available():
                    optimizer = torch.optim.Adam(net.parameters(), capturable=True)
            """,
        ),
    )

    def visit_reference(self, node: ast.Name | ast.Attribute, name: str) -> Iterator[Finding]:
        call = self.facts.tree.parents[node]
        if self.facts.is_guarded(node):
            return
        if name == _HOOK:
            yield self.finding(
                node, f"`{last_name(node)}` raises an error on a CPU; register it only if CUDA is available"
            )
        elif name in _GROUPS:
            yield self.finding(
                node, f"torch for the CPU has no `{last_name(node)}`; use it only if CUDA is available"
            )
        elif name == _PLANS:
            message = "the plans of cuFFT raise an error on a CPU; use them only if CUDA is available"
            yield self.finding(node, message, self._only_with_cuda(node))
        elif isinstance(call, ast.Call):
            if call.func is node or (name == _FSDP and self.facts.call(call, "functools.partial")):
                yield from self._check_call(call, node, name)

    def _check_call(self, call: ast.Call, node: ast.expr, name: str) -> Iterator[Finding]:
        given = {keyword.arg: keyword.value for keyword in call.keywords}
        if name in _OPTIMIZERS:
            yield from self._capturable(given.get("capturable"))
        elif name == _FSDP:
            yield from self._check_sharding(node, given)
        elif name == CURRENT_ACCELERATOR:
            if self._fails(call):
                yield self.finding(call, f"`{name}()` is None on a CPU; use `cpu` where there is none")
        elif name == _DEVICE:
            yield from self._checked(next(iter(call.args), None))
        elif name in _OF_ACCELERATORS:
            message = (
                f"`{name}()` raises an error on a CPU; call it only if `torch.accelerator.is_available()`"
            )
            yield self.finding(call, message, self._only_with_accelerator(call))
        elif name == _PROFILER:
            yield from self._check_activities(call, given.get("activities"))
        elif self._leaves_no_kernel(call, name, given):
            yield self.finding(call, f"`{last_name(node)}` {_NO_KERNEL}")
        elif self._leaves_flash(call, name, given) and self._has_dropout(call):
            yield self.finding(call, f"`{last_name(node)}` {_NO_DROPOUT}")

    def _check_activities(self, call: ast.Call, activities: ast.expr | None) -> Iterator[Finding]:
        """Check what a profiler records."""
        parts = activities.elts if isinstance(activities, (ast.List, ast.Tuple, ast.Set)) else []
        if parts and all(self.facts.resolve(part) == _ACTIVITY for part in parts):
            yield self.finding(
                call, "`ProfilerActivity.CUDA` alone raises an error on a CPU; add `ProfilerActivity.CPU`"
            )

    def _only_with_cuda(self, node: ast.expr) -> Fix | None:
        """Return a fix that puts the statement of an object under a guard, None where its value is used.

        A statement calls a method of the object, or sets an attribute.
        """
        parents = self.facts.tree.parents
        use: ast.AST = node
        while isinstance(parents[use], (ast.Attribute, ast.Subscript)):
            use = parents[use]
        called = parents[use]
        if isinstance(called, ast.Call) and called.func is use:
            use = called
        statement = parents[use]
        alone = isinstance(statement, ast.Expr) or (
            isinstance(statement, ast.Assign) and statement.targets == [use]
        )
        return self.context.put_under_guard(statement) if alone else None  # type: ignore[arg-type]  # a statement

    def _check_sharding(self, node: ast.expr, given: dict[str | None, ast.expr]) -> Iterator[Finding]:
        """Check the arguments of FullyShardedDataParallel."""
        where = given.get("device_id")
        if None not in given and (where is None or self._is_number(where)):
            yield self.finding(
                node,
                f"`{last_name(node)}` needs an accelerator unless `device_id` is a device; pass a `torch.device`",
            )
        elif _is(given.get("sync_module_states"), True):
            yield self.finding(
                node, "`sync_module_states=True` needs an accelerator; use it only if CUDA is available"
            )

    def _is_number(self, where: ast.expr) -> bool:
        """Return whether an expression is, or may be, the number of a GPU."""
        return self.facts.kinds.of(where).are(NUMBERS) or gpu_number(self.context, where) is not None

    def _only_with_accelerator(self, call: ast.Call) -> Fix | None:
        """Return a fix that puts a call under a guard, None where its value is used or torch has no name here."""
        statement = self.facts.tree.parents[call]
        if not isinstance(statement, ast.Expr) or not isinstance(call.func, ast.Attribute):
            return None
        question = f"{self.context.source.code(call.func.value)}.is_available()"
        return Fix((blocks.put_under_guard(self.facts, statement, question),), Safety.SAFE)

    def _capturable(self, capturable: ast.expr | None) -> Iterator[Finding]:
        if capturable is not None and _is(capturable, True):
            yield self.finding(
                capturable,
                "`capturable=True` raises an error on a CPU; use `False` there",
                self.context.replace(
                    capturable, self.devices.available(capturable, of_cuda=True), Safety.UNSAFE
                ),
            )

    def visit_Attribute(self, node: ast.Attribute) -> Iterator[Finding]:
        if node.attr in self.attributes:
            yield from self._checked(node.value)

    def _checked(self, value: ast.expr | None) -> Iterator[Finding]:
        """Check a value that must not be None."""
        made = value and self.facts.kinds.of(value).seen.get(Kind.NONE)
        if value is None or not isinstance(made, ast.Call) or not self.facts.call(made, CURRENT_ACCELERATOR):
            return
        if not (self.facts.is_guarded(value) or self._is_asked(made) or self._fails(made)):
            code = self.context.source.code(value)
            message = f"`{code}` is None on a CPU, as `{CURRENT_ACCELERATOR}()` is; use `cpu` there"
            yield self.finding(value, message)

    def _fails(self, call: ast.Call) -> bool:
        """Return whether what a call returns is used in a way that None is not, and the program does not ask."""
        return not self._is_asked(call) and any(map(self._refuses_none, self._uses_of(call)))

    def _refuses_none(self, use: ast.expr) -> bool:
        """Return whether an expression must not be None: an attribute of it is read, or it is a device's name."""
        parent = self.facts.tree.parents.get(use)
        match parent:
            case ast.Attribute() | ast.withitem():
                return True
            case ast.Call(func=ast.Name(id="str")) | ast.FormattedValue():
                text = self.facts.tree.parents[parent] if isinstance(parent, ast.FormattedValue) else parent
                around = map(self.facts.tree.parents.get, self.context.uses.of(text).uses)  # type: ignore[arg-type]
                return any(map(self._takes_device, around))
            case ast.Call(args=[first, *_]):
                return first is use and self.facts.call(parent, _DEVICE)
        return False

    def _takes_device(self, around: ast.AST | None) -> bool:
        """Return whether what is around the name of a device passes it on as a device."""
        if isinstance(around, ast.keyword):
            return around.arg in ("device", "device_type")
        return isinstance(around, ast.Call) and (
            last_name(around.func) == "to" or self.facts.call(around, _DEVICE, "torch.autocast")
        )

    def _is_asked(self, call: ast.Call) -> bool:
        """Return whether the program asks about what a call returns."""
        return any(isinstance(self.facts.tree.parents.get(use), _ASKING) for use in self._uses_of(call))

    def _uses_of(self, call: ast.Call) -> list[ast.expr]:
        """Return the unguarded uses of what a call returns."""
        return [use for use in self.context.uses.of(call).uses if not self.facts.is_guarded(use)]

    def _leaves_no_kernel(self, call: ast.Call, name: str, given: dict[str | None, ast.expr]) -> bool:
        """Return whether no kernel of attention for a CPU is left after a call."""
        if name == _OLD_KERNEL:
            given = _by_name(call, given)
            return all(_is(given.get(each), False) for each in _OLD_SWITCHES[:2])
        if name == _KERNEL:
            backends = next(iter(call.args), given.get("backends"))
            each = backends.elts if isinstance(backends, (ast.List, ast.Tuple)) else [backends]
            names = [(backend and self.facts.resolve(backend)) or "" for backend in each]
            return bool(names) and all(
                ".SDPBackend." in name and not name.endswith(_CPU_KERNELS) for name in names
            )
        return name == _SWITCHES[1] and all(map(self._is_off, _SWITCHES))

    def _leaves_flash(self, call: ast.Call, name: str, given: dict[str | None, ast.expr]) -> bool:
        """Return whether the flash kernel of attention is the only one that is left for a CPU."""
        if name == _OLD_KERNEL:
            return _is(_by_name(call, given).get("enable_math"), False)
        backends = next(iter(call.args), given.get("backends"))
        each = backends.elts if isinstance(backends, (ast.List, ast.Tuple)) else [backends]
        names = [(backend and self.facts.resolve(backend)) or "" for backend in each]
        return name == _KERNEL and all(
            ".SDPBackend." in name and not name.endswith(".MATH") for name in names
        )

    def _has_dropout(self, call: ast.Call) -> bool:
        """Return whether attention in the `with` statement of a call may have dropout."""
        item = self.facts.tree.parents[call]
        statement = self.facts.tree.parents[item] if isinstance(item, ast.withitem) else None
        if not isinstance(statement, (ast.With, ast.AsyncWith)):
            return False
        lines = range(statement.lineno, (statement.end_lineno or statement.lineno) + 1)
        return any(
            isinstance(node, ast.Call) and last_name(node.func) == _ATTENTION and _may_drop(node)
            for node in self.facts.tree.nodes_with(_ATTENTION)
            if getattr(node, "lineno", 0) in lines
        )

    def _is_off(self, switch: str) -> bool:
        """Return whether a module disables a kernel wherever it sets its switch."""
        calls = [
            node
            for node in self.facts.tree.nodes_with(switch.rpartition(".")[2])
            if isinstance(node, ast.Call) and self.facts.resolve(node.func) == switch
        ]
        return bool(calls) and all(
            bool(call.args) and _is(call.args[0], False) and not self.facts.is_guarded(call) for call in calls
        )


def _is(node: ast.expr | None, value: bool) -> bool:
    return isinstance(node, ast.Constant) and node.value is value


def _by_name(call: ast.Call, given: dict[str | None, ast.expr]) -> dict[str | None, ast.expr]:
    """Return the arguments of `sdp_kernel` by name; none of those behind a starred one are known."""
    positional = zip(_OLD_SWITCHES, call.args, strict=False)
    return given | {name: value for name, value in positional if not isinstance(call.args[0], ast.Starred)}


def _may_drop(call: ast.Call) -> bool:
    """Return whether a call of attention has dropout, as far as its arguments show."""
    given = next((keyword.value for keyword in call.keywords if keyword.arg == "dropout_p"), None)
    dropout = call.args[_DROPOUT] if len(call.args) > _DROPOUT else given
    return dropout is not None and not (isinstance(dropout, ast.Constant) and not dropout.value)
