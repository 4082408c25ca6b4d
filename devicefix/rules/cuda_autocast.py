from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import zip_longest

from devicefix.facts.exports import autocasts, has_low_precision
from devicefix.facts.flow.kinds.parameters import argument_of
from devicefix.facts.flow.parameters import unpacks
from devicefix.facts.flow.sources import How, Sources
from devicefix.facts.scopes import dotted
from devicefix.facts.values import cpu, cuda_device, cuda_string
from devicefix.model import Edit, Finding, Fix, Need
from devicefix.rules.base import Example, Rule

_OFF = (
    "CUDA autocast is off on a CPU, so operations may mix low-precision and float32 operands;"
    " use `torch.autocast(device.type, ...)`"
)
_NO_FLOAT32 = (
    "autocast to {dtype} is off on a CPU, so operations may mix low-precision and float32 operands; convert the operands"
    " to {dtype}"
)
_STILL_ON = (
    "this disables autocast only for CUDA, but the surrounding code may use autocast for the program's device;"
    " use `torch.autocast(device.type, enabled=False)`"
)
_BY_DEFAULT = "autocast defaults to float16 with CUDA, but to bfloat16 on a CPU; pass `dtype=torch.float16`"
_BFLOAT16_ON_CPU = "on a CPU, the program may already compute in bfloat16"
_FLOAT32_ON_CPU = "on a CPU, the fix changes the results if everything is in float32"
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
    On a CPU, CUDA autocast disables itself, which is harmless if everything is in float32. However, passing a bfloat16
    tensor to a float32 `nn.Linear` raises an error: "mat1 and mat2 must have the same dtype".

    ## Example
    ```python
    embedding = nn.Embedding(n, d).to(torch.bfloat16)
    head = nn.Linear(d, n)
    with torch.autocast("cuda", dtype=torch.bfloat16):
        loss = head(embedding(x))
    ```

    ## Use instead
    ```python
    embedding = nn.Embedding(n, d).to(torch.bfloat16)
    head = nn.Linear(d, n)
    with torch.autocast(device.type, dtype=torch.bfloat16):
        loss = head(embedding(x))
    ```

    ## Fix safety
    The fix is safe if devicefix can tell that a float32 linear or convolutional layer gets a low-precision tensor,
    because such code fails on a CPU without the fix. Otherwise, the fix is unsafe: if everything is in float32, the
    results on a CPU are more accurate without autocast. For related measurements, see [Low precision on a
    CPU](https://devicefix.github.io/devicefix/simulation/#low-precision-on-a-cpu).

    The fix sets the dtype explicitly, because the default is float16 for CUDA and bfloat16 for a CPU. If the device is
    a variable, the fix usually only adds the missing dtype. This fix is unsafe if the device may be the CPU.

    If the program uses autocast on a CPU, the fix also changes the device of `torch.autocast("cuda", enabled=False)`,
    which is safe. There is no fix for autocast to float32, which disables itself on a CPU (torch 2.13).
    """

    code = "DF407"
    fails = False
    name = "cuda-autocast"
    summary = "Autocast has a different effect on a CPU than on a GPU"
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

                device = "cuda" if torch.cuda.is_available() else "cpu"

                embedding = torch.nn.Embedding(5, 4).to(torch.bfloat16)
                with torch.autocast(device, dtype=torch.bfloat16):
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

                device = "cuda" if torch.cuda.is_available() else "cpu"


                class World(nn.Module):
                    def __init__(self, amp):
                        super().__init__()
                        self.amp = amp
                        self.dtype = torch.bfloat16 if self.amp else torch.float32
                        self.step = nn.Linear(4, 4)

                    def dream(self, n):
                        states = torch.zeros(2, n + 1, 4, dtype=self.dtype)
                        with torch.autocast(device, dtype=torch.bfloat16, enabled=self.amp):
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

                device = "cuda" if torch.cuda.is_available() else "cpu"

                net = torch.nn.Conv2d(3, 3, 3)


                @torch.autocast(device, dtype=torch.float16)
                def step(x):
                    return net(x.half().contiguous()), torch.nn.functional.linear(x.half(), net.weight)


                @torch.autocast(device, enabled=True, dtype=torch.float16, cache_enabled=False)
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

                device = "cuda" if torch.cuda.is_available() else "cpu"


                @torch.autocast(device, dtype=torch.float16)
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

                device = "cuda" if torch.cuda.is_available() else "cpu"


                def step(net, x, amp):
                    with torch.autocast(device, dtype=torch.float16, enabled=amp):
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

                device = "cuda" if torch.cuda.is_available() else "cpu"

                torch.set_default_dtype(torch.bfloat16)


                def step(net, x, dtype):
                    with torch.amp.autocast(device_type=device, enabled=True, dtype=dtype):
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
            "off on a CPU, too",
            """
                import torch

                with torch.autocast(device.type):
                    with torch.autocast("cpu", enabled=False), torch.autocast("cuda", enabled=False):
                        y = head(y.float())
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
            if call.names_cuda and self._is_within_another(node) and self.context.translation is None:
                yield self.finding(node, _STILL_ON, self._fix(call))
        elif (enabled := call.arguments.get("enabled")) is not None and self.facts.guards.implies(enabled):
            return  # the program means it to be off on a CPU
        elif wide := self._wide(call):
            if self._has_low_precision:
                yield self.finding(node, _NO_FLOAT32.format(dtype=wide))
        elif call.names_cuda and self._has_low_precision and not self._is_chosen(call):
            fix = self._fix(call)
            if fix is not None and not self._fails_without(call):
                fix = replace(fix, why=_FLOAT32_ON_CPU)
            yield from self._off(call, fix)
        elif not (call.names_cuda or "dtype" in call.arguments or self._obstacle(call)):
            yield from self._by_default(call)

    def _off(self, call: _Autocast, fix: Fix | None) -> Iterator[Finding]:
        """Yield the finding of an autocast that is off on a CPU, whose operations may need it there.

        If any accelerator is the target, DF408 finds the call as well, and keeps autocast off on a CPU. So this
        is the finding only where the fix is safe.
        """
        if (translation := self.context.translation) is not None:
            if fix is None or fix.why:
                return
            translation.planned.update(ast.walk(call.function))
            self.context.handled.add(call.node)
        yield self.finding(call.node, _OFF, fix, self._obstacle(call))

    @cached_property
    def _has_low_precision(self) -> bool:
        """Return whether the module, or one that is used together with it, has low precision."""
        here = has_low_precision(self.context.source.text.encode())
        return here or self.context.project.has_low_precision(self.devices.path)

    def _is_within_another(self, node: ast.Call) -> bool:
        """Return whether code around an autocast that is off, or the callers of it, may have one on a CPU.

        This is one for the type of the device, or one for CUDA whose unsafe fix makes it that. There is none if
        a `with` statement around also disables autocast for the CPU.
        """
        statements = self.facts.tree.around(node, ast.With)
        managers = [item.context_expr for each in statements for item in each.items]
        calls = (self._autocast(each) for each in managers if isinstance(each, ast.Call))
        devices = [call.arguments.get("device_type") for call in calls if call and call.is_off]
        if any(device is not None and cpu(self.facts, device) for device in devices):
            return False
        here = autocasts(self.context.source.text.encode())
        on = here | {*self.context.project.autocasts(self.devices.path)}
        changed = "cuda" in on and self.context.options.unsafe_fixes
        return "device" in on or (changed and self._has_low_precision)

    # -- the call ------------------------------------------------------------------------------------

    def visit_reference(self, node: ast.Name | ast.Attribute, _name: str) -> Iterator[Finding]:
        """Check autocast that gets another name, by which it is called on lines that do not show what it is."""
        uses = self.context.forwards.of(node).uses
        calls = (self.facts.tree.call_of(use) for use in uses if use is not node)
        hidden = (each for each in calls if each and "autocast" not in self.context.source.code(each.func))
        is_on = any(all(keyword.arg != "enabled" for keyword in each.keywords) for each in hidden)
        if is_on and self._has_low_precision and not self.facts.is_guarded(node):
            yield self.finding(node, _OFF, unless="because autocast is called through an alias")

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
        names_cuda = of_cuda or self._names_cuda(arguments.get("device_type"))
        plain = not unpacks(node) and len(given) <= len(names)
        return _Autocast(node, function, of_cuda, names_cuda, tuple(given), arguments, plain, is_partial)

    def _names_cuda(self, kind: ast.expr | None) -> bool:
        value = self.facts.value(kind) if isinstance(kind, ast.Name) else None
        return kind is not None and cuda_string(kind if value is None else value)

    def _ends(self, value: ast.expr | None, *, closed: bool = False) -> list[ast.expr]:
        """Return what a value comes from, nothing where other files pass it, or may pass it."""
        how = How.BOUND | How.PASSED | How.DEFAULT | How.CHOICE | How.NAMED | How.ELEMENT | How.RETURNED
        sources, given = Sources(self.facts, how, _HOPS), [] if value is None else [value]
        passed = (closed or self.facts.others.passed(name, *each) for name, each in sources.parameters(given))
        return [] if any(passed) else [end for each in given for end in sources.ends(each)]

    def _wide(self, call: _Autocast) -> str:
        """Return the dtype of an autocast that a CPU does not have, empty for any other."""
        ends = self._ends(call.arguments.get("dtype"))
        names = {_WIDE.get(self.facts.resolve(end) or "", "") for end in ends}
        return names.pop() if len(names) == 1 else ""

    def _by_default(self, call: _Autocast) -> Iterator[Finding]:
        """Check an autocast whose device is a variable, and whose dtype is the default of that device."""
        kind = call.arguments.get("device_type")
        own, torch = self._ends(kind, closed=True), self.devices.torch(call.node)
        is_cuda = bool(own) and all(cuda_device(self.facts, each) for each in own)
        is_other = any(cpu(self.facts, each) or isinstance(each, ast.Constant) for each in self._ends(kind))
        if kind is not None and (is_cuda or (self._has_low_precision and not is_other)):
            edit = Edit(*self.context.source.span(kind), lambda code: f"{code}, dtype={torch.text}.float16")
            fix = Fix((edit,), "" if is_cuda else _BFLOAT16_ON_CPU, torch.needs)
            yield self.finding(call.node, _BY_DEFAULT, fix)

    def _fails_without(self, call: _Autocast) -> bool:
        """Return whether a layer in float32 certainly gets a tensor in low precision under an autocast."""
        tree, around = self.facts.tree, (ast.If, ast.IfExp, ast.Try, ast.With)
        scope = tree.parents.get(tree.parents.get(call.node))
        is_converted = self.context.project.has_low_precision(self.devices.path)
        if is_converted or _CONVERTED.search(self.context.source.text) or not isinstance(scope, ast.With):
            return False
        calls = (each for each in ast.walk(scope) if isinstance(each, ast.Call))
        sure = (each for each in calls if next(tree.around(each, *around)) is scope)
        return any(self._mixes(each, call.arguments.get("enabled")) for each in sure)

    def _mixes(self, layer: ast.Call, enabled: ast.expr | None) -> bool:
        """Return whether a call is that of a layer in float32, with a tensor in low precision."""
        classes, made = self.facts.kinds.of(layer.func).classes, self._ends(next(iter(layer.args), None))
        given = [argument_of(each, "dtype", -1) for each in made if self.facts.call(each, *_NEW)]
        low = [each for each in given if self._is_low(each, enabled)]
        return bool(classes) and all(map(_LAYER.fullmatch, classes)) and 0 < len(low) == len(made)

    def _is_low(self, dtype: ast.expr | None, enabled: ast.expr | None) -> bool:
        """Return whether a dtype is one of low precision where an autocast is on."""
        flag, ends = list(self.facts.bindings(enabled)) if enabled is not None else [], self._ends(dtype)
        for choice in [self.facts.tree.parents[end] for end in ends]:
            if isinstance(choice, ast.IfExp) and list(self.facts.bindings(choice.test)) == flag[:1] == flag:
                ends = [end for end in ends if not flag or end is not choice.orelse]
        return bool(ends) and all(self.facts.resolve(end) in _LOW for end in ends)

    # -- the fix -------------------------------------------------------------------------------------

    def _obstacle(self, call: _Autocast) -> str:
        """Return why an autocast can't become that of the device, an empty text if it can."""
        if not call.is_plain or (call.is_partial and not self._is_called_by_keywords(call.node)):
            return "because of the call's arguments"
        if isinstance(call.arguments.get("dtype"), ast.Constant) and not call.is_off:
            return "because CPU autocast has another default dtype"
        if self.context.source.holds("set_autocast"):
            return "because the program also sets the default autocast dtype"
        return ""

    def _fix(self, call: _Autocast) -> Fix | None:
        """Return the fix that makes an autocast that of the device, with the dtype and all other arguments."""
        around = {parent for _, parent in self.facts.tree.ancestors(call.node)}
        in_script = not around.isdisjoint(self.context.compiled.functions)
        if in_script or self._obstacle(call):
            return None
        kind, needs = self._device_type(call.node)
        torch = self.devices.torch(call.node)
        low = "" if call.is_off or "dtype" in call.arguments else f", dtype={torch.text}.float16"
        device = call.arguments.get("device_type")
        edits = [Edit(*self.context.source.span(device), lambda _: kind() + low)] if device else []
        edits += self._edits_of_cuda(call, lambda: kind() + low, torch.text) if call.of_cuda else ()
        return Fix(tuple(edits), needs=needs | torch.needs)

    def _is_chosen(self, call: _Autocast) -> bool:
        """Return whether the device is the variable that a fix would choose: its value has its own finding."""
        kind = call.arguments.get("device_type")
        if not isinstance(kind, ast.Name) or "dtype" not in call.arguments:
            return False
        return self._device_type(call.node)[0]() == kind.id

    def _edits_of_cuda(self, call: _Autocast, new: Callable[[], str], torch: str) -> Iterator[Edit]:
        """Yield the edits of a call of `torch.cuda.amp.autocast`, whose arguments are in another order."""
        source = self.context.source
        yield Edit(*source.span(call.function), f"{torch}.autocast")
        name = (dotted(call.function) or "").partition(".")[0]
        if name != torch and len(self.facts.tree.reads(name)) == 1:
            yield from self.context.without_import(name, call.function)
        end = source.span(call.function)[1] if call.is_partial else source.span(call.node)[1] - 1
        others: list[ast.expr | ast.keyword] = [*call.given, *call.node.keywords]
        if call.is_partial or not others:
            yield Edit(end, end, lambda _: f", {new()}" if call.is_partial else new())
        first = None if call.is_partial else next(iter(others), None)
        for name, each in zip_longest(_OLD_ARGUMENTS[: len(call.given)], others):
            start = source.span(each)[0]
            if each is first:
                yield Edit(start, start, lambda _: f"{new()}, ")
            if name:
                yield Edit(start, start, f"{name}=")

    def _is_called_by_keywords(self, node: ast.Call) -> bool:
        """Return whether what `partial` makes is only called, and without arguments by position."""
        calls = [self.facts.tree.parents.get(use) for use in self.context.forwards.of(node).uses]
        return bool(calls) and all(isinstance(call, ast.Call) and not call.args for call in calls)

    def _device_type(self, site: ast.Call) -> tuple[Callable[[], str], frozenset[Need]]:
        """Return what makes the code of the type of the current device, and what it needs."""
        known = self.devices.text(site)
        if known is not None:
            return known[0], known[1].needs
        use = self.devices.named(site) or self.devices.current(site)
        return lambda: use.text, use.needs
