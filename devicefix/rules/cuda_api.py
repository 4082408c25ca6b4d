from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import replace

from devicefix.devices.accelerator import AMP, QUESTIONS
from devicefix.devices.arguments import device_argument, target_device
from devicefix.devices.context import Context
from devicefix.devices.counterparts import COUNTERPARTS, Counterpart
from devicefix.devices.methods import CustomCuda, custom_cuda, may_be_storage
from devicefix.facts.flow.kinds.parameters import argument_of
from devicefix.facts.flow.parameters import unpacks
from devicefix.facts.flow.sinks import LOADS
from devicefix.facts.refusals import PRINTING
from devicefix.facts.values import cuda_device, is_constant, last_name, literal_index
from devicefix.model import Edit, Finding, Fix
from devicefix.rewrite.operations import Move
from devicefix.rules.base import Example, Rule
from devicefix.rules.guarded_move import GuardedMove
from devicefix.rules.shared.functions import Functions
from devicefix.rules.shared.regions import Regions
from devicefix.rules.shared.streams import Streams

_ADVICE = {
    "manual_seed": "use `torch.manual_seed`, which seeds every device",
    "manual_seed_all": "use `torch.manual_seed`, which seeds every device",
    "seed": "use `torch.seed`, which seeds every device",
    "seed_all": "use `torch.seed`, which seeds every device",
    "OutOfMemoryError": "use `torch.OutOfMemoryError`, which every device raises (torch 2.5 and later)",
    "amp.custom_fwd": 'use `torch.amp.custom_fwd(device_type="cuda")` (torch 2.4 and later)',
    "amp.custom_bwd": 'use `torch.amp.custom_bwd(device_type="cuda")` (torch 2.4 and later)',
}
_ELSE = "put it under `if torch.cuda.is_available():`, or use `torch.get_device_module(device)`"


class CudaApi(Rule):
    """
    ## What it does
    Finds every use of `torch.cuda`, including aliases, functions that are not called, and uses that are harmless on a
    CPU. This rule applies only with `--target accelerator`.

    ## Why it matters
    CUDA is only one of several accelerators that torch supports. A program that uses `torch.accelerator`,
    `torch.Stream` and `torch.Event` (torch 2.6 or later) also runs on other accelerators, without separate code for
    each of them.

    ## Example
    ```python
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    if torch.cuda.is_available():
        torch.cuda.set_device(rank)
    ```

    ## Use instead
    ```python
    if torch.accelerator.is_available():
        torch.accelerator.synchronize()
        torch.accelerator.empty_cache()
    if torch.accelerator.is_available():
        torch.accelerator.set_device_index(rank)
    ```

    ## Fix safety
    The fix is safe: with CUDA and on a CPU, the program behaves as before. Most `torch.accelerator` functions raise an
    error without an accelerator, even where the corresponding `torch.cuda` function does nothing, so the fix puts these
    calls under a guard. The fix passes `"cuda"` to `torch.amp.autocast` and `torch.amp.GradScaler`, because any other
    device type would change the results on a CPU. The fix replaces either all streams and events in a file or none of
    them, because a function that receives one may accept only CUDA streams and events.

    For `torch.cuda.is_available()`, the fix is safe if devicefix knows all the code that depends on the result, and if
    this code works with any accelerator. Devices and moves in this code then use the accelerator too. If the check
    guards code that is specific to CUDA, there is no fix, because another accelerator must not run that code. For
    example, the code may use a CUDA tensor type or NCCL, or load a checkpoint onto the device from which it was saved.
    If the program stores the check's result in an attribute, passes it to a function or returns it, the fix is unsafe,
    because code that is specific to CUDA may depend on the result. Even then, nothing changes with CUDA or on a CPU.

    There is no fix if `torch.accelerator` has no counterpart, or if the counterpart needs a newer version of torch than
    `--torch-version` specifies. There is also no fix for an import of `torch.cuda`, which you can remove once nothing
    uses it.

    The fix also replaces calls that return memory statistics. Some accelerators do not support their counterparts in
    `torch.accelerator`.
    """

    code = "DF405"
    name = "cuda-api"
    summary = "`torch.cuda` is used although the target is any accelerator"
    targets = ("accelerator",)
    words = (b"cuda",)
    common_words = (b"accelerator", b"device", b"stream", b"event", b".record", b"elapsed", b"synchronize")
    sees_handled = True
    INVALID = (
        Example(
            "calls as statements",
            before="""
                import torch

                torch.cuda.synchronize()
                torch.cuda.empty_cache()
            """,
            after="""
                import torch

                if torch.accelerator.is_available():
                    torch.accelerator.synchronize()
                    torch.accelerator.empty_cache()
            """,
        ),
        Example(
            "another name of torch.cuda, and memory statistics",
            before="""
                import torch.cuda as tc
                import torch

                if tc.is_available():
                    tc.set_device(rank)
                used = tc.memory_allocated(device=0)
            """,
            after="""
                import torch.cuda as tc
                import torch

                if torch.accelerator.is_available():
                    torch.accelerator.set_device_index(rank)
                used = torch.accelerator.memory_allocated(0) if torch.accelerator.is_available() else 0
            """,
        ),
        Example(
            "devices chosen by availability",
            before="""
                import torch

                device = torch.device("cuda:0" if torch.cuda.is_available() else "cpu")
                here = torch.device("cuda") if torch.cuda.is_available() else torch.device("cpu")
            """,
            after="""
                import torch

                device = torch.device(
                    f"{torch.accelerator.current_accelerator().type}:0" if torch.accelerator.is_available() else "cpu"
                )
                here = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else torch.device("cpu")
            """,
        ),
        Example(
            "a flag that guards a move",
            before="""
                import torch

                use = torch.cuda.is_available()
                if use:
                    net = net.cuda()
                    tune(net)
            """,
            after="""
                import torch

                device = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else torch.device("cpu")

                use = torch.accelerator.is_available()
                if use:
                    net = net.to(device)
                    tune(net)
            """,
        ),
        Example(
            "a tensor type",
            before="""
                import torch

                x = torch.cuda.FloatTensor if torch.cuda.is_available() else torch.FloatTensor
            """,
        ),
        Example(
            "mixed precision",
            before="""
                import torch

                with torch.cuda.amp.autocast(args.half):
                    run()
                scaler = torch.cuda.amp.GradScaler()
            """,
            after="""
                import torch

                with torch.amp.autocast("cuda", enabled=args.half):
                    run()
                scaler = torch.amp.GradScaler("cuda")
            """,
        ),
        Example(
            "an event",
            before="""
                import torch

                start = torch.cuda.Event(True)
                start.record()
            """,
            after="""
                import torch

                if torch.accelerator.is_available():
                    start = torch.Event(enable_timing=True)
                    start.record()
            """,
        ),
        Example(
            "availability in an attribute",
            before="""
                import torch

                args.cuda = torch.cuda.is_available()
            """,
            after="""
                import torch

                args.cuda = torch.accelerator.is_available()
            """,
            unsafe=True,
        ),
        Example(
            "a random seed",
            before="""
                import torch

                torch.cuda.manual_seed_all(1)
            """,
        ),
        Example(
            "an import",
            before="""
                from torch.cuda import nvtx
            """,
        ),
        Example(
            "a function that is not called",
            before="""
                import torch

                wait = torch.cuda.synchronize
            """,
        ),
    )
    VALID = (
        Example(
            "torch.accelerator",
            """
                import torch

                if torch.accelerator.is_available():
                    torch.accelerator.synchronize()
            """,
        ),
        Example(
            "the backend and the version of CUDA",
            """
                import torch

                torch.backends.cuda.matmul.allow_tf32 = True
                print(torch.version.cuda)
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
        assert context.accelerator is not None
        self.accelerator = context.accelerator
        self._functions = Functions(context)
        self._streams = Streams(context)
        collapses = GuardedMove.code in context.options.enabled
        self._regions = Regions(context, context.accelerator, collapses=collapses)
        self.planned: set[ast.AST] = set()

    def visit_Import(self, node: ast.Import) -> Iterator[Finding]:
        if any(f"{alias.name}.".startswith("torch.cuda.") for alias in node.names):
            yield self._imported(node)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> Iterator[Finding]:
        names = {alias.name for alias in node.names}
        of_torch = node.module == "torch" and "cuda" in names
        if not node.level and (of_torch or f"{node.module}.".startswith("torch.cuda.")):
            yield self._imported(node)

    def _imported(self, node: ast.stmt) -> Finding:
        return self.finding(node, "imports `torch.cuda`; remove the import once nothing uses it")

    def visit_Attribute(self, node: ast.Name | ast.Attribute) -> Iterator[Finding]:
        short = self.accelerator.reference(node)
        if short is None:
            return
        name = f"torch.cuda.{short}" if short else "torch.cuda"
        counterpart = self.accelerator.counterpart(node)
        if counterpart is None:
            yield self.finding(node, f"`{name}` is specific to CUDA; {self._advice(short)}")
        elif short in QUESTIONS:
            fix, reason = self._question(node, counterpart)
            advice = reason or f"use `torch.{counterpart.name}`"
            yield self.finding(node, f"`{name}` checks only for CUDA; {advice}", fix)
        else:
            fix = self._fix(node, short, counterpart)
            advice = "" if fix else " under a guard, and add a CPU path"
            message = f"`{name}` is specific to CUDA; use `torch.{counterpart.name}`{advice}"
            yield self.finding(node, message, fix)

    visit_Name = visit_Attribute

    def _advice(self, short: str) -> str:
        known = COUNTERPARTS.get(short, ())
        if known and known[-1].since > self.accelerator.version:
            version = "{}.{}".format(*known[-1].since)
            return f"use `torch.{known[-1].name}`, which needs torch {version}"
        if short.endswith("Tensor"):
            return "specify a dtype and a device instead"
        if known:
            return f"adapt this code so that it can use `torch.{known[0].name}`"
        return _ADVICE.get(short, _ELSE)

    # -- calls ---------------------------------------------------------------------------------------

    def _fix(self, node: ast.expr, short: str, counterpart: Counterpart) -> Fix | None:
        call = self.facts.tree.call_of(node)
        assert call is not None
        torch = self.devices.torch(node)
        rename = Edit(*self.context.source.span(node), f"{torch.text}.{counterpart.name}")
        fix = Fix((rename, *self._arguments(call, short), *self._devices(call)), needs=torch.needs)
        if short == "stream":
            return self._entered(call)
        if short in AMP or self.facts.is_guarded(node) or self._seen_to(node):
            return fix
        if counterpart.instead is not None:
            guard = self._guard(call, counterpart.instead)
            return Fix((*guard.edits, *fix.edits), needs=guard.needs | fix.needs)
        if short in ("Stream", "Event", "current_stream"):
            return fix if self._streams.of_maker(call) is not None else None
        if short == "device":
            return fix
        return fix if self._functions.fix(call, short) is not None else None

    def _seen_to(self, node: ast.expr) -> bool:
        """Return whether another rule rewrites code around a node for CUDA or an accelerator."""
        return any(child in self.context.handled for child, _ in self.facts.tree.ancestors(node))

    def _guard(self, call: ast.Call, instead: str) -> Fix:
        statement = self.facts.tree.statement(call)
        if isinstance(statement, ast.Expr) and statement.value is call:
            return self.context.put_under_guard(statement)
        return self.context.when_cuda(call, instead)

    def _arguments(self, call: ast.Call, short: str) -> Iterator[Edit]:
        """Yield the edits that fit the arguments of a call to its counterpart."""
        source = self.context.source
        end = source.span(call)[1]
        bracket = source.text.index("(", source.span(call.func)[1])
        if short in AMP:
            kind = source.quoted('"cuda"')
            if not call.args and not call.keywords:
                yield Edit(bracket, end, f"({kind})")
                return
            space = "" if source.text[bracket + 1] in "\r\n" else " "
            name = "enabled=" if short == "amp.autocast" and call.args else ""
            yield Edit(bracket, bracket + 1, f"({kind},{space}{name}")
        elif short == "Event" and call.args:
            yield Edit(bracket, bracket + 1, "(enable_timing=")
        elif short not in ("Stream", "Event"):
            for keyword in call.keywords:
                yield Edit(source.span(keyword)[0], source.span(keyword.value)[0], "")

    def _devices(self, call: ast.Call) -> Iterator[Edit]:
        """Yield the edits that replace the devices among the arguments of a call by the accelerator."""
        for value in (*call.args, *(keyword.value for keyword in call.keywords)):
            accelerated = self.devices.accelerated(value) if value not in self.planned else None
            if accelerated is not None:
                self.planned.add(value)
                yield Edit(*self.context.source.span(value), accelerated[1])

    def _entered(self, call: ast.Call) -> Fix:
        """Return the fix that enters a stream directly, and `contextlib.nullcontext()` on a CPU."""
        (stream,) = call.args
        source = self.context.source
        (start, end), (first, last) = source.span(call), source.span(stream)
        if self.facts.is_guarded(call):
            return Fix((Edit(start, first, ""), Edit(last, end, "")))
        use = self.devices.available(call)
        otherwise = f" if {use.text} else contextlib.nullcontext()"
        needs = use.needs | self.devices.imports("contextlib", call)
        return Fix((Edit(start, first, ""), Edit(last, end, otherwise)), needs=needs)

    # -- questions -----------------------------------------------------------------------------------

    def _question(self, node: ast.expr, counterpart: Counterpart) -> tuple[Fix | None, str]:
        """Return the fix of a check for CUDA, or the reason why there is none."""
        torch = self.devices.torch(node)
        rename = Edit(*self.context.source.span(node), f"{torch.text}.{counterpart.name}")
        fix = Fix((rename,), needs=torch.needs)
        call = self.facts.tree.call_of(node)
        counts = counterpart.name.endswith("count")
        regions = self._regions.of(call, counts) if call is not None else None
        if regions is None:
            return replace(fix, why="the code that it guards may need CUDA"), ""
        edits: list[Edit] = []
        needs = fix.needs
        planned = set()
        for region in regions:
            for part in ast.walk(region):
                change = self._change(part)
                if change is None:
                    line = getattr(part, "lineno", None)
                    where = f" on line {line}" if line else ""
                    return None, f"first change the CUDA-specific code that it guards{where}"
                if change.edits and part not in self.planned and part not in planned:
                    planned.add(part)
                    edits += change.edits
                    needs |= change.needs
        self.planned |= planned
        return Fix((rename, *edits), needs=needs), ""

    def _change(self, node: ast.AST) -> Fix | None:
        """Return the fix that makes a guarded node work on any accelerator, or None if it is specific to CUDA."""
        nothing = Fix(())
        match node:
            case ast.Call(func=ast.Attribute(attr="cuda")):
                return self._move(node) if self.facts.resolve(node.func) is None else nothing
            case ast.Call() if self.facts.call(node, *LOADS):
                where = argument_of(node, "map_location", -1)
                goes_there = isinstance(where, (ast.Name, ast.Attribute)) or is_constant(where, "cpu")
                return nothing if goes_there else None
            case ast.expr() if cuda_device(self.facts, node) and self._value(node):
                accelerated = self.devices.accelerated(node)
                if accelerated is None or not self.facts.is_guarded(node):
                    return nothing  # a number, which fits any of them; a device that has a rule of its own
                use, change = accelerated
                return Fix((Edit(*self.context.source.span(node), change),), needs=use.needs)
            case ast.Constant() | ast.Name() | ast.Attribute():
                return None if self.accelerator.is_cuda_only(node) else nothing
        return nothing

    def _move(self, node: ast.Call) -> Fix | None:
        """Return the fix that replaces `.cuda()` by `.to(device)`, or None."""
        assert isinstance(node.func, ast.Attribute)
        receiver, target = node.func.value, device_argument(node)
        plain = target is None or literal_index(target) is not None
        if not plain or unpacks(node) or may_be_storage(self.context, receiver):
            return None
        if custom_cuda(self.context, receiver) is not CustomCuda.NEVER:
            return None
        use = target_device(self.context, node, target)
        return self.context.edit(node, Move(use.text), use) if use is not None else None

    def _value(self, node: ast.expr) -> bool:
        """Return whether a device is used as one, and not compared, printed, or part of another."""
        parent = self.facts.tree.parents.get(node)
        if isinstance(parent, (ast.Compare, ast.Subscript, ast.JoinedStr, ast.BinOp, ast.Expr)):
            return False
        if isinstance(parent, ast.Dict) and node in parent.keys:
            return False
        if isinstance(parent, ast.Call):
            # `torch.device("cuda")` is replaced as a whole.
            return last_name(parent.func) not in PRINTING and not cuda_device(self.facts, parent)
        return True
