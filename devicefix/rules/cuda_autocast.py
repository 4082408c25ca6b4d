from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import zip_longest

from devicefix.facts.exports import autocasts, has_low_precision
from devicefix.facts.flow.kinds.parameters import argument_of
from devicefix.facts.flow.parameters import unpacks
from devicefix.facts.flow.sources import How, Sources
from devicefix.facts.scopes import dotted
from devicefix.facts.values import cuda_string
from devicefix.model import Edit, Finding, Fix, Need
from devicefix.rules.base import Example, Rule

_OFF = (
    "CUDA autocast is off on a CPU, so operations there may mix low-precision and float32 operands;"
    " use `torch.autocast(device.type, ...)`"
)
_NO_FLOAT32 = (
    "autocast on a CPU does not support {dtype} and is off, so operations may mix low-precision and float32 operands;"
    " convert the operands to {dtype}"
)
_STILL_ON = (
    "this disables autocast only for CUDA, but the surrounding code uses autocast for the program's device;"
    " pass that device's type"
)
_FLOAT32_ON_CPU = "if everything is in float32 on a CPU, the fix changes the results there"
# They raise an error for an operand in another dtype than their own, but not under autocast.
_LAYER = re.compile(r"torch\.nn\.(Linear|Conv(Transpose)?[123]d)")
_CONVERTED = re.compile(r"\.(half|bfloat16|type)\(|\.to\(.*(type|half|t16)|(ear|\dd)\(.*dtype|set_default")
_NEW = tuple(f"torch.{name}" for name in ("empty", "full", "ones", "rand", "randn", "tensor", "zeros"))
_LOW = {"torch.bfloat16", "torch.float16", "torch.half"}
_WIDE = dict.fromkeys(("torch.float32", "torch.float"), "float32")
_WIDE |= dict.fromkeys(("torch.float64", "torch.double"), "float64")
_HOPS = 4  # bindings and calls to follow from a dtype to its constant
_OF_ANY_DEVICE = ("torch.autocast", "torch.amp.autocast", "torch.amp.autocast_mode.autocast")
_OLD_ARGUMENTS = ("enabled", "dtype", "cache_enabled")
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
    The fix is safe if a layer in float32 gets a tensor in low precision under autocast, which fails on a CPU otherwise:
    the layer is of `torch.nn`, no code of the program converts it, and the tensor is created with that dtype. Otherwise
    it is unsafe, because everything under autocast may be in float32, and the results on a CPU are then more accurate
    without autocast. The fix sets the dtype explicitly, because the default is float16 for CUDA and bfloat16
    for a CPU. [Low precision on a CPU](https://devicefix.github.io/devicefix/precision/) shows how much the results on
    a CPU differ from those of an emulated GPU. In a program that trains in float16, also use a gradient scaler for the
    device: the one for CUDA is disabled on a CPU.

    Autocast to float32 is reported without a fix in files that name CUDA, regardless of its device: with CUDA, it
    casts low-precision tensors to float32, but on a CPU, it disables itself with a warning (torch 2.13).

    `torch.autocast("cuda", enabled=False)` does not disable CPU autocast. Therefore, if the program uses autocast on a
    CPU, before or after the rewrite, the fix changes the device in this call too. This is safe, because nothing changes
    with CUDA.
    """

    code = "DF407"
    fails = False
    name = "cuda-autocast"
    summary = "CUDA autocast is off on a CPU, where low-precision code may need it"
    words = (b"cuda",)
    common_words = (b"autocast",)
    references = _OF_CUDA
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
            unsafe=True,
        ),
        Example(
            "a buffer whose dtype has the condition of autocast",
            before="""
                import torch
                from torch import nn


                class World(nn.Module):
                    def __init__(self, amp):
                        super().__init__()
                        self.amp = amp
                        self.dtype = torch.bfloat16 if self.amp else torch.float32
                        self.step = nn.Linear(4, 4)

                    def dream(self, n):
                        states = torch.zeros(2, n + 1, 4, dtype=self.dtype)
                        with torch.autocast("cuda", dtype=torch.bfloat16, enabled=self.amp):
                            for i in range(n):
                                states[:, i + 1] = self.step(states[:, i])
                        return states
            """,
            after="""
                import torch
                from torch import nn

                device = torch.device("cuda" if torch.cuda.is_available() else "cpu")


                class World(nn.Module):
                    def __init__(self, amp):
                        super().__init__()
                        self.amp = amp
                        self.dtype = torch.bfloat16 if self.amp else torch.float32
                        self.step = nn.Linear(4, 4)

                    def dream(self, n):
                        states = torch.zeros(2, n + 1, 4, dtype=self.dtype)
                        with torch.autocast(device.type, dtype=torch.bfloat16, enabled=self.amp):
                            for i in range(n):
                                states[:, i + 1] = self.step(states[:, i])
                        return states
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
            unsafe=True,
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
            unsafe=True,
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
            "another name, which is that alone or a choice",
            before="""
                import torch
                from contextlib import nullcontext

                cast = torch.cuda.amp.autocast
                other = torch.cuda.amp.autocast if options.amp else nullcontext
                with cast():
                    y = net(x.half())
                with other():
                    y = net(x.half())
            """,
        ),
        Example(
            "a flag",
            before="""
                import torch


                def step(net, x, amp):
                    with torch.cuda.amp.autocast(amp):
                        return net(x if amp else x.half())
            """,
            after="""
                import torch

                device = torch.device("cuda" if torch.cuda.is_available() else "cpu")


                def step(net, x, amp):
                    with torch.autocast(device.type, dtype=torch.float16, enabled=amp):
                        return net(x if amp else x.half())
            """,
            unsafe=True,
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
        is_named = "autocast" in self.context.source.code(node)  # another name is reported where it is bound
        if call is None or not is_named or self.facts.is_guarded(node):
            return
        if call.is_off:
            if call.names_cuda and self._is_within_another:
                yield self.finding(node, _STILL_ON, self._fix(call))
        elif (enabled := call.arguments.get("enabled")) is not None and self.facts.guards.implies(enabled):
            return  # the program means it to be off on a CPU
        elif wide := self._wide(call):
            if self._has_low_precision:
                yield self.finding(node, _NO_FLOAT32.format(dtype=wide))
        elif call.names_cuda and self._has_low_precision:
            fix = self._fix(call)
            if fix is not None and not self._fails_without(call):
                fix = replace(fix, why=_FLOAT32_ON_CPU)
            yield self.finding(node, _OFF, fix, self._obstacle(call))

    @cached_property
    def _has_low_precision(self) -> bool:
        """Return whether the module, or one that is used together with it, has low precision."""
        here = has_low_precision(self.context.source.text.encode())
        return here or self.context.project.has_low_precision(self.devices.path)

    @cached_property
    def _is_within_another(self) -> bool:
        """Return whether code around an autocast that is off, or the callers of it, may have one on a CPU.

        This is one for the type of the device, or one for CUDA whose unsafe fix makes it that.
        """
        here = autocasts(self.context.source.text.encode())
        on = here | {*self.context.project.autocasts(self.devices.path)}
        changed = "cuda" in on and self.context.options.unsafe_fixes
        return "device" in on or (changed and self._has_low_precision)

    # -- the call ------------------------------------------------------------------------------------

    def visit_reference(self, node: ast.Name | ast.Attribute, _name: str) -> Iterator[Finding]:
        """Check autocast that gets another name, by which it is called on lines that do not show what it is."""
        calls = (
            self.facts.tree.call_of(use) for use in self.context.forwards.of(node).uses if use is not node
        )
        hidden = (each for each in calls if each and "autocast" not in self.context.source.code(each.func))
        is_on = any(all(keyword.arg != "enabled" for keyword in each.keywords) for each in hidden)
        if is_on and self._has_low_precision and not self.facts.is_guarded(node):
            yield self.finding(node, _OFF, unless="because it is called by another name")

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
        names = _OLD_ARGUMENTS if of_cuda else ("device_type", "dtype", "enabled", "cache_enabled")
        arguments = dict(zip(names, given, strict=False))
        arguments.update((keyword.arg, keyword.value) for keyword in node.keywords if keyword.arg)
        kind = arguments.get("device_type")
        names_cuda = of_cuda or (kind is not None and self._names_cuda(kind))
        plain = not unpacks(node) and len(given) <= len(names)
        return _Autocast(node, function, of_cuda, names_cuda, tuple(given), arguments, plain, is_partial)

    def _names_cuda(self, kind: ast.expr) -> bool:
        value = self.facts.value(kind) if isinstance(kind, ast.Name) else None
        return cuda_string(kind if value is None else value)

    def _wide(self, call: _Autocast) -> str:
        """Return the dtype of an autocast that a CPU does not have, empty for any other."""
        dtype = call.arguments.get("dtype")
        names = {_WIDE.get(name, "") for name in self._dtypes(dtype)} if dtype is not None else {""}
        return names.pop() if len(names) == 1 else ""

    def _dtypes(self, value: ast.expr, flag: ast.expr | None = None) -> set[str]:
        """Return the names of the dtypes that a value may be where a flag is true, empty for an unknown one."""
        sources = Sources(self.facts, How.BOUND | How.PASSED | How.DEFAULT | How.CHOICE, _HOPS)
        bound = list(self.facts.bindings(flag)) if flag is not None else []
        choices = [each.node for each in sources.of(value) if isinstance(each.node, ast.IfExp) and bound]
        off = [each.orelse for each in choices if [*self.facts.bindings(each.test)] == bound[:1] == bound]
        passed = (self.facts.others.passed(name, *place) for name, place in sources.parameters([value]))
        ends = [each for each in sources.ends(value) if each not in off]
        return {""} if any(passed) else {self.facts.resolve(each) or "" for each in ends}

    def _fails_without(self, call: _Autocast) -> bool:
        """Return whether a layer in float32 certainly gets a tensor in low precision under an autocast."""
        tree, around = self.facts.tree, (ast.If, ast.IfExp, ast.Try, ast.With)
        items = map(tree.parents.get, (call.node, *self.context.forwards.of(call.node).uses))
        scopes = [tree.parents[each] for each in items if isinstance(each, ast.withitem)]
        calls = (each for scope in scopes for each in ast.walk(scope) if isinstance(each, ast.Call))
        sure = (each for each in calls if next(tree.around(each, *around)) in scopes)
        others = self.context.project.has_low_precision(self.devices.path)
        is_known = not others and not _CONVERTED.search(self.context.source.text)
        return is_known and any(self._mixes(each, call) for each in sure)

    def _mixes(self, layer: ast.Call, call: _Autocast) -> bool:
        """Return whether a call is that of a layer in float32, with a tensor in low precision."""
        classes, flag = self.facts.kinds.of(layer.func).classes, call.arguments.get("enabled")
        if not (layer.args and classes and all(map(_LAYER.fullmatch, classes))):
            return False
        made = Sources(self.facts, How.BOUND | How.PASSED | How.ELEMENT, _HOPS).ends(layer.args[0])
        given = [argument_of(each, "dtype", -1) for each in made if self.facts.call(each, *_NEW)]
        low = [each for each in given if each is not None and self._dtypes(each, flag) <= _LOW]
        return len(low) == len(made)

    # -- the fix -------------------------------------------------------------------------------------

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
        around = {parent for _, parent in self.facts.tree.ancestors(call.node)}
        in_script = not around.isdisjoint(self.context.compiled.functions)
        if in_script or self.context.accelerator or self._obstacle(call):
            return None
        kind, needs = self._device_type(call.node)
        torch = self.devices.torch(call.node)
        low = "" if call.is_off else f"dtype={torch.text}.float16"
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
        name = (dotted(call.function) or "").partition(".")[0]
        if name != torch and len(self.facts.tree.reads(name)) == 1:
            yield from self.context.without_import(name, call.function)
        new = ", ".join(filter(None, (kind, "" if "dtype" in call.arguments else low)))
        end = source.span(call.function)[1] if call.is_partial else source.span(call.node)[1] - 1
        others: list[ast.expr | ast.keyword] = [*call.given, *call.node.keywords]
        if call.is_partial:
            yield Edit(end, end, f", {new}")
        elif not others:
            yield Edit(end, end, new)
        first = None if call.is_partial else next(iter(others), None)
        for name, each in zip_longest(_OLD_ARGUMENTS[: len(call.given)], others):
            start = source.span(each)[0]
            text = (f"{new}, " if each is first else "") + (f"{name}=" if name else "")
            yield Edit(start, start, text)

    def _is_called_by_keywords(self, node: ast.Call) -> bool:
        """Return whether what `partial` makes is only called, and without arguments by position."""
        calls = [self.facts.tree.parents.get(use) for use in self.context.forwards.of(node).uses]
        return bool(calls) and all(isinstance(call, ast.Call) and not call.args for call in calls)

    def _device_type(self, site: ast.Call) -> tuple[str, frozenset[Need]]:
        """Return the code of the type of the current device, `device.type`, and what it needs."""
        known, text = self.devices.shared(site), self.devices.named(site)
        device = known or (None if text else self.devices.shared(site, define=True))
        if device is not None:
            return f"{device.text}.type", device.needs
        use = text or self.devices.current(site)
        return use.text, use.needs
