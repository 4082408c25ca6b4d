from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import zip_longest

from devicefix.facts import Facts
from devicefix.facts.exports import autocasts, has_low_precision, low_flags
from devicefix.facts.precision import LOW, Precision
from devicefix.facts.precision.conversions import class_around
from devicefix.facts.scopes import dotted
from devicefix.facts.values import cuda_string, last_name
from devicefix.model import Edit, Finding, Fix, Need
from devicefix.rules.base import Example, Rule

_OFF = (
    "CUDA autocast is off on a CPU, so operations there mix low-precision and float32 operands;"
    " use `torch.autocast(device.type, ...)`"
)
_KEPT = (
    f"{_OFF.rpartition(';')[0]}; use `functools.partial(torch.autocast, device.type, dtype=torch.float16)`"
)
_NO_FLOAT32 = (
    "autocast on a CPU does not support {dtype} and is off, so operations mix low-precision and float32 operands;"
    " convert the operands to {dtype}"
)
_STILL_ON = (
    "this disables autocast only for CUDA, but the surrounding code uses autocast for the program's device;"
    " pass that device's type"
)
# https://github.com/pytorch/pytorch/pull/112484, of November 2023; it works with torch 2.2
_FLOAT16_SINCE = (2, 2)
_ATTENTION_SINCE = (2, 2)  # measured: see docs/precision.md
_WIDE = {
    "torch.float32": "float32",
    "torch.float": "float32",
    "torch.float64": "float64",
    "torch.double": "float64",
}
_OF_ANY_DEVICE = ("torch.autocast", "torch.amp.autocast", "torch.amp.autocast_mode.autocast")
_OF_CUDA = ("torch.cuda.amp.autocast", "torch.cuda.amp.autocast_mode.autocast")


@dataclass(frozen=True, slots=True)
class _Autocast:
    """A call of autocast.

    Attributes:
        node: The call, of autocast or of `partial`.
        function: What refers to autocast.
        of_cuda: Whether this is `torch.cuda.amp.autocast`.
        names_cuda: Whether this is for CUDA by that, or by the type of the device.
        given: The arguments by position.
        arguments: All arguments by name.
        is_plain: Whether there are no others.
        is_partial: Whether the call is one of `partial`.
    """

    node: ast.Call
    function: ast.expr
    of_cuda: bool
    names_cuda: bool
    given: tuple[ast.expr, ...]
    arguments: Mapping[str, ast.expr]
    is_plain: bool
    is_partial: bool

    @property
    def is_off(self) -> bool:
        """Return whether autocast is off in any case."""
        enabled = self.arguments.get("enabled")
        return isinstance(enabled, ast.Constant) and not enabled.value


class CudaAutocast(Rule):
    """
    ## What it does
    Finds CUDA autocast in programs that also use tensors or modules in float16 or bfloat16.

    ## Why it matters
    On a CPU, CUDA autocast disables itself. This is harmless if everything is in float32. Otherwise, the program may
    need autocast to cast the operands of a matrix product or a convolution to the same dtype. Without it, passing a
    bfloat16 tensor to a float32 layer raises an error: "mat1 and mat2 must have the same dtype".

    ## Example
    ```python
    embedding = nn.Embedding(n, d).to(torch.bfloat16)
    head = nn.Linear(d, n)
    with torch.autocast("cuda", dtype=torch.bfloat16):
        loss = head(embedding(x))
    ```

    ## Use instead
    ```python
    with torch.autocast(device.type, dtype=torch.bfloat16):
        loss = head(embedding(x))
    ```

    ## Fix safety
    The fix is safe if, without it, an operation under autocast would fail on a CPU because it mixes float32 and
    low-precision operands. This operation may be in the `forward` method of a class in another file. The fix sets the
    dtype explicitly, because the default is float16 for CUDA and bfloat16 for a CPU.
    [Low precision on a CPU](https://devicefix.github.io/devicefix/precision/) shows how much the results on a CPU
    differ from those of an emulated GPU.

    If devicefix finds no such operation, the fix is unsafe: everything under autocast may be in float32, and the
    results on a CPU are then more accurate without autocast. Even if an operation would fail without autocast, the fix
    is unsafe if part of the program disables only CUDA autocast, or if devicefix doesn't know the dtype. It is also
    unsafe if the program trains in float16, because the gradient scaler is disabled on a CPU.

    The rule reports autocast with `enabled=flag` only if the code under it fails without autocast or uses a
    low-precision tensor, or if the program also uses the flag to convert a tensor or module to low precision. Autocast
    to float32 is reported without a fix, regardless of its device: with CUDA, it casts low-precision tensors to
    float32, but on a CPU, it disables itself with a warning (torch 2.13).

    `torch.autocast("cuda", enabled=False)` does not disable CPU autocast. Therefore, if the program uses autocast on a
    CPU, before or after the rewrite, the fix changes the device in this call too. This is safe, because nothing changes
    with CUDA.
    """

    code = "DF407"
    name = "cuda-autocast"
    summary = "CUDA autocast is off on a CPU, where low-precision code may need it"
    references = (*_OF_CUDA, *_OF_ANY_DEVICE)
    words = (b"autocast",)
    companions = (b"float16", b"half", b"cuda")
    INVALID = (
        Example(
            "a module in bfloat16",
            before="""
                import torch

                embedding = torch.nn.Embedding(5, 4).to(torch.bfloat16)
                with torch.autocast("cuda", dtype=torch.bfloat16):
                    y = torch.nn.Linear(4, 4)(embedding(x))
            """,
            after="""
                import torch

                device = torch.device("cuda" if torch.cuda.is_available() else "cpu")

                embedding = torch.nn.Embedding(5, 4).to(torch.bfloat16)
                with torch.autocast(device.type, dtype=torch.bfloat16):
                    y = torch.nn.Linear(4, 4)(embedding(x))
            """,
        ),
        Example(
            "a class with a part in bfloat16",
            before="""
                import torch
                from torch import nn

                device = "cuda" if torch.cuda.is_available() else "cpu"


                class Net(nn.Module):
                    def __init__(self):
                        super().__init__()
                        self.embed = nn.Embedding(5, 4)
                        self.embed.bfloat16()
                        self.layers = nn.ModuleList([nn.Linear(4, 4) for _ in range(2)])

                    def forward(self, x):
                        x = self.embed(x)
                        for layer in self.layers:
                            x = x + layer(x)
                        return x


                def train(net, x, amp):
                    with torch.amp.autocast(device_type="cuda", enabled=amp, dtype=torch.bfloat16):
                        return net(x)


                train(Net(), x, True)
            """,
            after="""
                import torch
                from torch import nn

                device = "cuda" if torch.cuda.is_available() else "cpu"


                class Net(nn.Module):
                    def __init__(self):
                        super().__init__()
                        self.embed = nn.Embedding(5, 4)
                        self.embed.bfloat16()
                        self.layers = nn.ModuleList([nn.Linear(4, 4) for _ in range(2)])

                    def forward(self, x):
                        x = self.embed(x)
                        for layer in self.layers:
                            x = x + layer(x)
                        return x


                def train(net, x, amp):
                    with torch.amp.autocast(device_type=device, enabled=amp, dtype=torch.bfloat16):
                        return net(x)


                train(Net(), x, True)
            """,
        ),
        Example(
            "the old name, a decorator, and the default dtype",
            before="""
                import torch
                from torch.cuda.amp import autocast

                net = torch.nn.Conv2d(3, 3, 3)


                @autocast()
                def step(x):
                    return net(x.half().contiguous()), torch.nn.functional.linear(x.half(), net.weight)


                @autocast(True, torch.float16, cache_enabled=False)
                def other(x):
                    return torch.zeros(2, 2, dtype=torch.half) @ torch.ones(2, 2)
            """,
            after="""
                import torch
                from torch.cuda.amp import autocast

                device = torch.device("cuda" if torch.cuda.is_available() else "cpu")

                net = torch.nn.Conv2d(3, 3, 3)


                @torch.autocast(device.type, dtype=torch.float16)
                def step(x):
                    return net(x.half().contiguous()), torch.nn.functional.linear(x.half(), net.weight)


                @torch.autocast(device.type, enabled=True, dtype=torch.float16, cache_enabled=False)
                def other(x):
                    return torch.zeros(2, 2, dtype=torch.half) @ torch.ones(2, 2)
            """,
        ),
        Example(
            "a context that is kept, a partial, and a part that is off",
            before="""
                import torch
                from functools import partial

                kind = "cuda"
                device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
                scope = partial(torch.autocast, device_type="cuda", dtype=torch.bfloat16)
                head = torch.nn.Linear(4, 4)


                class Runner:
                    def __init__(self):
                        self.context = torch.autocast(device_type=kind, dtype=torch.bfloat16)

                    def run(self, x):
                        memory = torch.zeros(4, 4, dtype=torch.bfloat16)
                        with self.context:
                            y = head(memory)
                            with torch.autocast("cuda", enabled=False):
                                return y.float().softmax(-1)


                with torch.no_grad(), scope():
                    y = head(torch.zeros(4, 4).bfloat16())
            """,
            after="""
                import torch
                from functools import partial

                kind = "cuda"
                device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
                scope = partial(torch.autocast, device_type=device.type, dtype=torch.bfloat16)
                head = torch.nn.Linear(4, 4)


                class Runner:
                    def __init__(self):
                        self.context = torch.autocast(device_type=device.type, dtype=torch.bfloat16)

                    def run(self, x):
                        memory = torch.zeros(4, 4, dtype=torch.bfloat16)
                        with self.context:
                            y = head(memory)
                            with torch.autocast(device.type, enabled=False):
                                return y.float().softmax(-1)


                with torch.no_grad(), scope():
                    y = head(torch.zeros(4, 4).bfloat16())
            """,
        ),
        Example(
            "a network whose type is not known",
            before="""
                import torch
                from torch.cuda.amp import autocast


                @autocast()
                def step(net, x):
                    return net(x.half())
            """,
            after="""
                import torch

                device = torch.device("cuda" if torch.cuda.is_available() else "cpu")


                @torch.autocast(device.type, dtype=torch.float16)
                def step(net, x):
                    return net(x.half())
            """,
            unsafe=True,
        ),
        Example(
            "training in float16, with a scaler that is off",
            before="""
                import torch

                net = torch.nn.Linear(4, 4)
                scaler = torch.cuda.amp.GradScaler()
                with torch.autocast("cuda"):
                    loss = net(torch.ones(4, 4).half()).sum()
                scaler.scale(loss).backward()
            """,
            after="""
                import torch

                device = torch.device("cuda" if torch.cuda.is_available() else "cpu")

                net = torch.nn.Linear(4, 4)
                scaler = torch.cuda.amp.GradScaler()
                with torch.autocast(device.type, dtype=torch.float16):
                    loss = net(torch.ones(4, 4).half()).sum()
                scaler.scale(loss).backward()
            """,
            unsafe=True,
        ),
        Example(
            "autocast under another name, or none",
            before="""
                import torch
                from contextlib import suppress

                head = torch.nn.Linear(4, 4)


                def step(x, amp):
                    scope = torch.autocast if amp else suppress
                    with scope("cuda"):
                        return head(x.half())
            """,
        ),
        Example(
            "autocast in an attribute, or none",
            before="""
                import torch
                from contextlib import nullcontext

                head = torch.nn.Linear(4, 4)


                class Runner:
                    def __init__(self, amp):
                        self.scope = torch.cuda.amp.autocast if amp else nullcontext

                    def run(self, x):
                        with self.scope():
                            return head(x.bfloat16())
            """,
        ),
        Example(
            "a default dtype",
            before="""
                import torch

                torch.set_default_dtype(torch.bfloat16)


                def step(net, x, dtype):
                    with torch.amp.autocast(device_type="cuda", enabled=True, dtype=dtype):
                        return net(x)
            """,
            after="""
                import torch

                device = torch.device("cuda" if torch.cuda.is_available() else "cpu")

                torch.set_default_dtype(torch.bfloat16)


                def step(net, x, dtype):
                    with torch.amp.autocast(device_type=device.type, enabled=True, dtype=dtype):
                        return net(x)
            """,
            unsafe=True,
        ),
        Example(
            "a flag that also converts the network",
            before="""
                import torch


                def make(config):
                    net = build(config)
                    if config.fp16:
                        if config.get("bf16", True):
                            net = net.to(torch.bfloat16)
                    return net


                def step(net, x, config):
                    with torch.cuda.amp.autocast(enabled=config.fp16, dtype=torch.bfloat16):
                        return net(x)
            """,
            after="""
                import torch

                device = torch.device("cuda" if torch.cuda.is_available() else "cpu")


                def make(config):
                    net = build(config)
                    if config.fp16:
                        if config.get("bf16", True):
                            net = net.to(torch.bfloat16)
                    return net


                def step(net, x, config):
                    with torch.autocast(device.type, enabled=config.fp16, dtype=torch.bfloat16):
                        return net(x)
            """,
            unsafe=True,
        ),
        Example(
            "a flag, with inputs in half precision whatever it is",
            before="""
                import torch

                device = torch.device("cuda" if torch.cuda.is_available() else "cpu")


                def step(net, batch, amp):
                    if "sound" in batch:
                        sound = batch["sound"]
                        sound = sound.to(device, dtype=torch.float16)
                    else:
                        sound = None
                    with torch.autocast("cuda", dtype=torch.float16, enabled=amp):
                        return net(batch["image"], sound)
            """,
            after="""
                import torch

                device = torch.device("cuda" if torch.cuda.is_available() else "cpu")


                def step(net, batch, amp):
                    if "sound" in batch:
                        sound = batch["sound"]
                        sound = sound.to(device, dtype=torch.float16)
                    else:
                        sound = None
                    with torch.autocast(device.type, dtype=torch.float16, enabled=amp):
                        return net(batch["image"], sound)
            """,
            unsafe=True,
        ),
        Example(
            "autocast to float32, which a CPU does not have",
            before="""
                import torch
                from torch import amp, nn

                wide = torch.float32
                head = nn.Linear(4, 4).to(torch.bfloat16)
                with amp.autocast(place(), dtype=torch.float32):  # cuda
                    y = head(torch.ones(2, 4))
                with torch.autocast("cuda", dtype=wide):
                    y = head(torch.ones(2, 4))
            """,
        ),
        Example(
            "a part that is off for CUDA only, under autocast of the device",
            before="""
                import torch

                device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
                with torch.autocast(device.type):
                    y = net(x)
                    with torch.autocast("cuda", enabled=False):
                        y = head(y.float())
            """,
            after="""
                import torch

                device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
                with torch.autocast(device.type):
                    y = net(x)
                    with torch.autocast(device.type, enabled=False):
                        y = head(y.float())
            """,
        ),
    )
    VALID = (
        Example(
            "a dtype that only autocast gets",
            """
                import torch

                dtype = torch.bfloat16 if options.bf16 else torch.float16
                assert x.dtype not in (torch.float16, torch.bfloat16)
                scope = torch.cuda.amp.autocast(dtype=dtype)
                with scope:
                    y = net(x)
            """,
        ),
        Example(
            "operations that autocast leaves alone",
            """
                import torch

                net = net.half()
                with torch.autocast("cuda", dtype=torch.float64):
                    angles = angles.to(torch.float64)
                    angles = angles / angles.norm(dim=-1, keepdim=True)
                    y = torch.view_as_complex(angles)
            """,
        ),
        Example(
            "a property that is only true with CUDA",
            """
                import torch
                from contextlib import nullcontext


                class Policy(torch.nn.Module):
                    @property
                    def _is_mixed(self):
                        return bool(self.config.amp) and self._device.type == "cuda"

                    def scope(self):
                        self.net.half()
                        if self._is_mixed:
                            return torch.autocast("cuda", dtype=torch.float16)
                        return nullcontext()
            """,
        ),
        Example(
            "another name, of another device or in float32",
            """
                import torch
                from contextlib import nullcontext

                head = torch.nn.Linear(4, 4)
                first = torch.autocast if amp else nullcontext
                second = torch.cuda.amp.autocast if amp else nullcontext
                with first(device.type):
                    y = head(x.half())
                with second():
                    y = head(x.half().float())
            """,
        ),
        Example(
            "float32 only",
            """
                import torch

                with torch.autocast("cuda", dtype=torch.bfloat16):
                    y = net(x)
            """,
        ),
        Example(
            "the type of the device",
            """
                import torch

                net = net.half()
                with torch.autocast(device.type, dtype=torch.half):  # cuda
                    y = net(x)
            """,
        ),
        Example(
            "off",
            """
                import torch

                with torch.cuda.amp.autocast(enabled=False):
                    y = net(x.half())
            """,
        ),
        Example(
            "a flag",
            """
                import torch


                def step(net, x, amp):
                    with torch.cuda.amp.autocast(amp):
                        return net(x if amp else x.half())
            """,
        ),
        Example(
            "under a guard",
            """
                import torch

                x = torch.zeros(2, dtype=torch.half)
                if torch.cuda.is_available():
                    with torch.autocast("cuda"):
                        y = net(x)
            """,
        ),
        Example(
            "a question about the type",
            """
                import torch

                with torch.autocast("cuda"):
                    y = net(x)
                assert y.dtype == torch.half
            """,
        ),
    )

    def visit_Call(self, node: ast.Call) -> Iterator[Finding]:
        call = self._autocast(node)
        if call is None or self.facts.is_guarded(node):
            return
        if call.is_off:
            if call.names_cuda and self._is_within_another(node):
                yield self.finding(node, _STILL_ON, self._fix(call))
            return
        wide = self._wide(call)
        if not (call.names_cuda or wide) or not self._is_anywhere:
            return
        shown = node in self._shown
        if not (shown or self._may_fail(call)):
            return
        if wide:
            yield self.finding(node, _NO_FLOAT32.format(dtype=wide))
            return
        fix = self._fix(call)
        why = self._why_unsafe(call, shown)
        fix = replace(fix, why=why) if fix is not None else None
        yield self.finding(node, _OFF, fix, self._obstacle(call))

    def _may_fail(self, call: _Autocast) -> bool:
        """Return whether the code under an autocast may get low precision that it would have cast."""
        blocks = list(self._blocks(call.node))
        if blocks and not any(map(self._precision.may_cast, blocks)):
            return False
        enabled = call.arguments.get("enabled")
        if enabled is None or isinstance(enabled, ast.Constant):
            return True
        return not self._low_flags.isdisjoint(_flags(enabled)) or any(map(self._precision.takes_low, blocks))

    @cached_property
    def _low_flags(self) -> set[str]:
        """The flags that the program converts to low precision for."""
        here = low_flags(self.context.source.text.encode())
        return {*here, *self.context.project.low_flags(self.devices.path)}

    def visit_reference(self, node: ast.Name | ast.Attribute, name: str) -> Iterator[Finding]:
        parent = self.facts.tree.parents[node]
        if isinstance(parent, ast.Call) or self.facts.is_guarded(node) or not self._is_anywhere:
            return  # a call is visited by itself
        calls = (call for call in self._calls_of(node) if self._with_cuda(call, name))
        if any(self._precision.meets(block) for call in calls for block in self._blocks(call)):
            yield self.finding(node, _KEPT, unless="because its calls have another name")

    def _calls_of(self, function: ast.expr) -> Iterator[ast.Call]:
        """Yield the calls of a function under the names that it gets, also as an attribute of `self`."""
        followed = self.context.uses.of(function)
        for use in followed.uses:
            call = self.facts.tree.parents.get(use)
            if isinstance(call, ast.Call) and call.func is use:
                yield call
        owner = class_around(self.facts.tree, function)
        for name in {variable.name for variable in followed.variables if variable.attribute}:
            for call in self.facts.tree.nodes_with(f"self.{name}("):
                if isinstance(call, ast.Call) and dotted(call.func) == f"self.{name}":
                    if class_around(self.facts.tree, call) is owner:
                        yield call

    def _with_cuda(self, call: ast.Call, name: str) -> bool:
        """Return whether a call of autocast under another name is one for CUDA."""
        kind = next(
            iter(call.args), next((each.value for each in call.keywords if each.arg == "device_type"), None)
        )
        return name in _OF_CUDA or (kind is not None and self._names_cuda(kind))

    @cached_property
    def _is_anywhere(self) -> bool:
        """Return whether the module, or one that is used together with it, has low precision."""
        here = has_low_precision(self.context.source.text.encode())
        return here or self.context.project.has_low_precision(self.devices.path)

    @cached_property
    def _shown(self) -> set[ast.Call]:
        """The calls of autocast around code that shows that low precision meets float32."""
        return {
            node
            for node in self.facts.tree.nodes_with("autocast")
            if isinstance(node, ast.Call)
            if self._autocast(node) is not None and any(map(self._precision.meets, self._blocks(node)))
        }

    @cached_property
    def _precision(self) -> Precision:
        return Precision(self.facts, partial(self.context.project.is_mixing, self.devices.path))

    def _is_within_another(self, node: ast.Call) -> bool:
        """Return whether code around an autocast that is off, or the callers of it, may have one on a CPU.

        This is one for the type of the device, or one for CUDA that gets it.
        """
        on = {
            *autocasts(self.context.source.text.encode()),
            *self.context.project.autocasts(self.devices.path),
        }
        gets = (
            "cuda" in on
            or not on.isdisjoint(f"if {flag}" for flag in self._low_flags)
            or any(each is not node for each in self._shown)
        )
        return "device" in on or (self._is_anywhere and bool(gets))

    # -- the call ------------------------------------------------------------------------------------

    def _autocast(self, node: ast.Call) -> _Autocast | None:
        """Return a call of autocast, or of `partial` with it; None for any other call."""
        function, given = node.func, node.args
        is_partial = self.facts.call(node, "functools.partial") and bool(given)
        if is_partial:
            function, given = given[0], given[1:]
        name = self.facts.resolve(function)
        if name not in (*_OF_CUDA, *_OF_ANY_DEVICE):
            return None
        of_cuda = name in _OF_CUDA
        names = (
            ("enabled", "dtype", "cache_enabled")
            if of_cuda
            else ("device_type", "dtype", "enabled", "cache_enabled")
        )
        arguments = dict(zip(names, given, strict=False))
        arguments.update((keyword.arg, keyword.value) for keyword in node.keywords if keyword.arg)
        plain = not any(isinstance(each, ast.Starred) for each in given) and all(
            each.arg for each in node.keywords
        )
        kind = arguments.get("device_type")
        names_cuda = of_cuda or (kind is not None and self._names_cuda(kind))
        plain = plain and len(given) <= len(names)
        return _Autocast(node, function, of_cuda, names_cuda, tuple(given), arguments, plain, is_partial)

    def _names_cuda(self, kind: ast.expr) -> bool:
        value = self.facts.value(kind) if isinstance(kind, ast.Name) else None
        return cuda_string(kind if value is None else value)

    def _wide(self, call: _Autocast) -> str:
        """Return the dtype of an autocast that a CPU does not have, empty for any other."""
        dtype = call.arguments.get("dtype")
        value = self.facts.value(dtype) if isinstance(dtype, ast.Name) else None
        return _WIDE.get(self.facts.resolve(value or dtype) or "", "") if dtype is not None else ""

    # -- the code under it ---------------------------------------------------------------------------

    def _blocks(self, node: ast.Call) -> Iterator[list[ast.stmt]]:
        """Yield the blocks of code that run under an autocast."""
        parent = self.facts.tree.parents.get(node)
        entered = isinstance(parent, ast.withitem) or _is_decorator(node, parent)
        for use in [node] if entered else self.context.uses.of(node).uses:
            around = self.facts.tree.parents.get(use)
            made = use
            if isinstance(around, ast.Call) and around.func is use:  # what `partial` made
                made, around = around, self.facts.tree.parents.get(around)
            if isinstance(around, ast.withitem) and around.context_expr is made:
                statement = self.facts.tree.parents[around]
                assert isinstance(statement, (ast.With, ast.AsyncWith))
                yield statement.body
            elif _is_decorator(made, around):
                yield around.body  # type: ignore[union-attr]

    # -- the fix -------------------------------------------------------------------------------------

    def _why_unsafe(self, call: _Autocast, shown: bool) -> str:
        """Return why autocast for the CPU may not compute the numbers of the GPU, empty if it does."""
        source = self.context.source
        if not shown:
            return "if everything is in float32 on a CPU, the fix changes the results there"
        if self.context.project.stops_autocast(self.devices.path) or source.holds("custom_fwd"):
            return "another part of the program disables autocast only for CUDA"
        dtype = call.arguments.get("dtype")
        name = _name_of_low(self.facts, dtype) if dtype is not None else "float16"
        if name is None:
            return "the dtype is not known, and CPU autocast may not support it"
        version = self.context.options.runs_with
        if name == "float16" and version is not None and version < _FLOAT16_SINCE:
            return "CPU autocast does not support float16 before torch 2.2"
        if version is not None and version < _ATTENTION_SINCE and source.holds("ttention"):
            return "CPU autocast does not cast attention operands before torch 2.2"
        if name == "float16" and source.holds("backward("):
            return "small float16 gradients vanish without a scaler, and a CUDA scaler is off on a CPU: use a scaler for the device"
        return ""

    def _obstacle(self, call: _Autocast) -> str:
        """Return why an autocast can't become that of the device, an empty text if it can."""
        if not call.is_plain or (call.is_partial and not self._is_called_by_keywords(call.node)):
            return "because of its arguments"
        if isinstance(call.arguments.get("dtype"), ast.Constant) and not call.is_off:
            return "because CPU autocast has another default type"
        if self.context.source.holds("set_autocast"):
            return "because the program sets the type of autocast elsewhere"
        return ""

    def _fix(self, call: _Autocast) -> Fix | None:
        """Return the fix that makes an autocast that of the device, with the dtype and all other arguments."""
        in_script = any(
            parent in self.context.compiled.functions for _, parent in self.facts.tree.ancestors(call.node)
        )
        if in_script or self.context.accelerator or self._obstacle(call):
            return None
        kind, needs = self._device_type(call.node)
        torch = self.devices.torch(call.node)
        low = f"dtype={torch.text}.float16"
        if call.is_off:
            low = ""
        edits = (
            self._edits_of_cuda(call, kind, low, torch.text) if call.of_cuda else self._edits(call, kind, low)
        )
        return Fix(tuple(edits), needs=needs | torch.needs)

    def _edits(self, call: _Autocast, kind: str, low: str) -> Iterator[Edit]:
        """Yield the edits of a call that names the type of the device."""
        device = call.arguments["device_type"]
        end = self.context.source.span(device)[1]
        yield Edit(*self.context.source.span(device), kind)
        if "dtype" not in call.arguments and low:
            yield Edit(end, end, f", {low}")

    def _edits_of_cuda(self, call: _Autocast, kind: str, low: str, torch: str) -> Iterator[Edit]:
        """Yield the edits of a call of `torch.cuda.amp.autocast`, whose arguments are in another order."""
        source = self.context.source
        yield Edit(*source.span(call.function), f"{torch}.autocast")
        if len(self.facts.tree.reads(name := _base_name(call.function))) == 1:
            yield from self.context.without_import(name, call.function)
        new = ", ".join(filter(None, (kind, "" if "dtype" in call.arguments else low)))
        end = source.span(call.function)[1] if call.is_partial else source.span(call.node)[1] - 1
        others: list[ast.expr | ast.keyword] = [*call.given, *call.node.keywords]
        if call.is_partial:
            yield Edit(end, end, f", {new}")
        elif not others:
            yield Edit(end, end, new)
        first = None if call.is_partial else next(iter(others), None)
        for name, each in zip_longest(("enabled", "dtype", "cache_enabled")[: len(call.given)], others):
            start = source.span(each)[0]
            text = (f"{new}, " if each is first else "") + (f"{name}=" if name else "")
            yield Edit(start, start, text)

    def _is_called_by_keywords(self, node: ast.Call) -> bool:
        """Return whether what `partial` makes is only called, and without arguments by position."""
        calls = [self.facts.tree.parents.get(use) for use in self.context.uses.of(node).uses]
        return bool(calls) and all(isinstance(call, ast.Call) and not call.args for call in calls)

    def _device_type(self, site: ast.Call) -> tuple[str, frozenset[Need]]:
        """Return the code of the type of the current device, `device.type`, and what it needs."""
        use = self.devices.current(site, with_type=True)
        if not use.text.isidentifier():
            return use.text, use.needs
        found = self.facts.tree.scope(site).lookup(use.text)
        values = [binding.value for binding in found[1]] if found is not None and not use.needs else []
        if values and all(value is not None and _is_text(value) for value in values):
            return use.text, use.needs
        if use.needs or (
            values and all(value is not None and self.facts.call(value, "torch.device") for value in values)
        ):
            return f"{use.text}.type", use.needs
        return f"{self.devices.torch(site).text}.device({use.text}).type", use.needs


def _flags(enabled: ast.expr) -> set[str]:
    """Return the flags that must be true for an expression to be, by their last names."""
    match enabled:
        case ast.Name() | ast.Attribute():
            return {last_name(enabled)}
        case ast.BoolOp(op=ast.And(), values=values):
            return {name for each in values for name in _flags(each)}
        case ast.Compare(left=left, ops=[ast.Is() | ast.Eq()], comparators=[ast.Constant(value=True)]):
            return _flags(left)
    return set()


def _is_decorator(node: ast.AST, parent: ast.AST | None) -> bool:
    return isinstance(parent, (ast.FunctionDef, ast.AsyncFunctionDef)) and node in parent.decorator_list


def _is_text(node: ast.expr) -> bool:
    """Return whether an expression is a string, or chooses between two."""
    if isinstance(node, ast.IfExp):
        return _is_text(node.body) and _is_text(node.orelse)
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def _base_name(node: ast.expr) -> str:
    while isinstance(node, ast.Attribute):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def _name_of_low(facts: Facts, node: ast.expr) -> str | None:
    """Return the name of a low precision that an expression names, None if it is not known to be one."""
    value = facts.value(node) if isinstance(node, ast.Name) else None
    return LOW.get(facts.resolve(node if value is None else value) or "")
