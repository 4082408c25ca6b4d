from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import replace
from itertools import takewhile

from devicefix.devices.accelerator import QUESTIONS, STREAM_MAKERS
from devicefix.devices.context import Context
from devicefix.devices.counterparts import COUNTERPARTS, RAISES, TARGETS, Counterpart, written
from devicefix.devices.device_types import OF_CUDA
from devicefix.facts.values import last_name
from devicefix.model import Edit, Finding, Fix
from devicefix.rewrite import blocks
from devicefix.rules.base import Example, Rule
from devicefix.rules.cuda_function import CudaFunction
from devicefix.rules.shared.functions import ASSIGNS, Functions
from devicefix.rules.shared.questions import UNKNOWN, Questions
from devicefix.rules.shared.streams import Streams
from devicefix.rules.stream import CudaStream

_SKIPPED = "other accelerators skip this code, so add code for them"
_ELSE = "put it under `if torch.cuda.is_available():`, or use `torch.get_device_module(device)`"
_UNGUARDED = ("stream", "device")  # the fix of the call has what a CPU needs
_PARALLEL = ("torch.nn.DataParallel", "torch.nn.parallel.DataParallel", "torch.nn.parallel.data_parallel")


class CudaApi(Rule):
    """
    ## What it does
    With `--target accelerator`, finds uses of `torch.cuda` that other rules usually don't report, such as aliases,
    uncalled functions and uses that are harmless on a CPU. Also finds `DataParallel`, which [fails on
    XPU](https://github.com/pytorch/pytorch/issues/143239).

    ## Why it matters
    With `torch.accelerator`, `torch.Stream` and `torch.Event` (torch 2.6 or later), a program also runs on other
    accelerators.

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
    The fix is usually safe: with CUDA, the program behaves as before. Most `torch.accelerator` functions raise an error
    without an accelerator, so the fixed code checks for one first. The fix replaces all streams and events in a
    file, or none.

    For `torch.cuda.is_available()`, the fix is safe if devicefix knows all uses of the result, and finds no need for CUDA in the code that depends on it. In this code, a statement that only calls a CUDA-specific function, such as
    `torch.cuda.nvtx.mark`, gets its own check for CUDA. There is no fix if the code uses another CUDA-specific
    feature, such as a CUDA tensor type. The fix is unsafe if the result is passed to a function, returned or read by other
    files, because code that needs CUDA may depend on it.

    If a function has no [counterpart](https://devicefix.github.io/devicefix/counterparts/) in `torch.accelerator`, the
    fix usually uses the accelerator's own module. There is no fix if XPU or NPU lacks the function. If the function
    fails on MPS with the minimum torch version, the fixed code excludes MPS.
    """

    code = "DF405"
    name = "cuda-api"
    summary = "`torch.cuda` or `DataParallel` is used"
    targets = ("accelerator",)
    words = (b"cuda", b"DataParallel")
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
            "`DataParallel`",
            before="""
                import torch

                if torch.accelerator.is_available():
                    net = torch.nn.DataParallel(net)
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

                device = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else torch.device("cpu")

                with torch.amp.autocast(device.type, enabled=args.half and device.type != "cpu"):
                    run()
                scaler = torch.amp.GradScaler(device.type, enabled=device.type != "cpu")
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
        ),
        Example(
            "seeds of GPUs alone, and beside that of all devices",
            before="""
                import torch

                torch.cuda.manual_seed_all(1)


                def seed(number):
                    torch.manual_seed(number)
                    if torch.cuda.is_available():
                        torch.cuda.manual_seed_all(number)
                    return number
            """,
            after="""
                import torch

                device = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else torch.device("cpu")

                if device.type not in ("cpu", "mps"):
                    torch.get_device_module().manual_seed_all(1)


                def seed(number):
                    torch.manual_seed(number)
                    return number
            """,
        ),
        Example(
            "an import of what is replaced, and one of what only CUDA has",
            before="""
                import torch
                from torch.cuda.amp import autocast
                from torch.cuda import nvtx

                with autocast():
                    run()
                if torch.cuda.is_available():
                    torch.cuda.synchronize()
                    nvtx.mark("done")
            """,
            after="""
                import torch
                from torch.cuda import nvtx

                device = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else torch.device("cpu")

                with torch.amp.autocast(device.type, enabled=device.type != "cpu"):
                    run()
                if torch.accelerator.is_available():
                    torch.accelerator.synchronize()
                    if torch.cuda.is_available():
                        nvtx.mark("done")
            """,
        ),
        Example(
            "one of several accelerators",
            before="""
                import torch

                if torch.cuda.is_available():
                    kind, memory = "cuda", torch.cuda.max_memory_allocated
                elif torch.backends.mps.is_available():
                    kind, memory = "mps", torch.mps.current_allocated_memory
            """,
        ),
        Example(
            "a function that is not called",
            before="""
                import torch

                wait = torch.cuda.synchronize
            """,
        ),
        Example(
            "a check for CUDA around patterns, which are compared",
            before="""
                import torch

                if torch.cuda.is_available():
                    match kind:
                        case "cuda":
                            torch.cuda.synchronize()
            """,
            after="""
                import torch

                if torch.accelerator.is_available():
                    match kind:
                        case "cuda":
                            torch.accelerator.synchronize()
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
        assert context.accelerator is not None and context.translation is not None
        self.accelerator = context.accelerator
        self.translation = context.translation
        self._functions = Functions(context)
        self._streams = Streams(context)
        self._questions = Questions(context)

    def visit_Import(self, node: ast.Import | ast.ImportFrom) -> Iterator[Finding]:
        module = f"{'.' * node.level}{node.module}." if isinstance(node, ast.ImportFrom) else ""
        aliases = [each for each in node.names if f"{module}{each.name}.".startswith("torch.cuda.")]
        if aliases:
            edits = next(filter(None, map(self._without, aliases)), ())
            fix = Fix(edits) if edits else None
            yield self.finding(node, "this import is specific to CUDA; remove it once nothing uses it", fix)

    visit_ImportFrom = visit_Import

    def _without(self, alias: ast.alias) -> tuple[Edit, ...]:
        """Return the edits that remove an unused import; if it binds `torch`, which fixes may use, that stays."""
        name = alias.asname or alias.name.partition(".")[0]
        if name != "torch":
            return self.context.without_import(name)
        tree = self.facts.tree
        is_only = len(tree.scope(alias).bindings.get(name, ())) == 1
        if not is_only or any(self.accelerator.references(tree.module)):
            return ()
        return (Edit(*self.context.source.span(alias), name),)

    def visit_Attribute(self, node: ast.Name | ast.Attribute) -> Iterator[Finding]:
        short = self.accelerator.reference(node)
        if short is None or node in self.translation.planned or self.context.serves_others(node):
            return
        if self._is_found(node, short):
            return
        name = f"torch.cuda.{short}" if short else "torch.cuda"
        if short.startswith("manual_seed") and (fix := self._without_seed(node)) is not None:
            message = f"`{name}` repeats `torch.manual_seed`, which seeds every device; remove this call"
            yield self.finding(node, message, fix)
            return
        counterpart = self.accelerator.counterpart(node)
        if counterpart is None:
            yield self.finding(node, f"`{name}` is specific to CUDA; {self._advice(node, short)}")
        elif short in QUESTIONS:
            yield from self._question(node, name, counterpart)
        else:
            fix = self._fix(node, short, counterpart)
            advice = self._condition(node, counterpart) + ("" if fix else ", and add a CPU path")
            message = f"`{name}` is specific to CUDA; use `torch.{counterpart.name}`{advice}"
            call = self.facts.tree.call_of(node)
            why = ASSIGNS if call is not None and self._functions.assigns(call) else ""
            yield self.finding(node, message, fix, unless=why)

    visit_Name = visit_Attribute

    def visit_Call(self, node: ast.Call) -> Iterator[Finding]:
        """Check `DataParallel`: its module splits the batch with a function that only builds for CUDA have."""
        if self.facts.call(node, *_PARALLEL):
            yield self.finding(node, "`DataParallel` fails on XPU; use `DistributedDataParallel`")

    def _is_found(self, node: ast.expr, short: str) -> bool:
        """Return whether another rule finds a call."""
        call, enabled = self.facts.tree.call_of(node), self.context.options.enabled
        if call is None or self._is_guarded(node):
            return False
        raises = CudaFunction.code in enabled and self._functions.raises(short)
        return raises or (CudaStream.code in enabled and self._streams.is_maker(call))

    def _without_seed(self, node: ast.expr) -> Fix | None:
        """Return the fix that removes a seed beside the same one of all devices, None if there is none."""
        tree, call = self.facts.tree, self.facts.tree.call_of(node)
        statement = tree.statement(node)
        if call is None or not isinstance(statement, ast.Expr) or statement.value is not call:
            return None
        gone: ast.stmt = statement
        outer: ast.stmt = statement
        parent = tree.parents[statement]
        if isinstance(parent, ast.If) and not parent.orelse and all(map(_seeds, parent.body)):
            outer = parent
            is_alone = len(parent.body) == 1 and self.facts.guards.implies(parent.test)
            gone = parent if is_alone else statement
        block, at = tree.block(outer), tree.position(outer)
        beside = [*takewhile(_seeds, reversed(block[:at])), *takewhile(_seeds, block[at + 1 :])]
        given = [*map(ast.dump, call.args)]
        for each in beside:
            other = getattr(each, "value", None)
            if self.facts.call(other, "torch.manual_seed", "torch.random.manual_seed"):
                if [*map(ast.dump, other.args)] == given:
                    return Fix((blocks.remove(self.facts, gone),))
        return None

    def _advice(self, node: ast.expr, short: str) -> str:
        known = COUNTERPARTS.get(short, ())
        if known and known[0].since > self.accelerator.version:
            return f"use `torch.{known[0].name}`, which needs torch {written(known[0].since)}"
        if short.endswith("Tensor"):
            return "use a dtype and a device instead"
        if known:
            return f"adapt this code so that it can use `torch.{known[0].name}`"
        return _SKIPPED if self._is_guarded(node) else _ELSE

    def _condition(self, node: ast.expr, counterpart: Counterpart) -> str:
        """Return on what condition a program can use a counterpart where it uses a function of torch.cuda."""
        fails = self.accelerator.fails_on_mps(node)
        if self.facts.tree.call_of(node) is None or (self._is_guarded(node) and not fails):
            return ""
        target = TARGETS.get(counterpart.name)
        if target is not None and target.without != RAISES:
            return ""
        return f" if an accelerator{' other than MPS' if fails else ''} is available"

    # -- calls ---------------------------------------------------------------------------------------

    def _fix(self, node: ast.expr, short: str, counterpart: Counterpart) -> Fix | None:
        call = self.facts.tree.call_of(node)
        is_guarded = self._is_guarded(node) and not self.accelerator.fails_on_mps(node)
        if call is None or short in (*OF_CUDA, *_UNGUARDED) or is_guarded or self._seen_to(node):
            return self.translation.call(node)
        if self._functions.assigns(call):
            return None  # a guard would skip it
        if counterpart.instead is not None:
            return self._guard(call, counterpart.instead)
        if short in STREAM_MAKERS:
            return self._streams.of_maker(call)
        return self._functions.fix(call, short)

    def _is_guarded(self, node: ast.AST) -> bool:
        """Return whether a node only runs where CUDA is available."""
        return self.facts.is_guarded(node) or self.context.is_held(node)

    def _seen_to(self, node: ast.expr) -> bool:
        """Return whether another rule rewrites code around a node for CUDA or an accelerator."""
        return any(child in self.context.handled for child, _ in self.facts.tree.ancestors(node))

    def _guard(self, call: ast.Call, instead: str) -> Fix:
        statement = self.facts.tree.statement(call)
        if isinstance(statement, ast.Expr) and statement.value is call:
            return self.context.put_under_guard(statement)
        return self.context.when_cuda(call, instead)

    # -- questions -----------------------------------------------------------------------------------

    def _question(self, node: ast.expr, name: str, counterpart: Counterpart) -> Iterator[Finding]:
        """Check a question, unless what it guards has a finding of its own: then it stays."""
        torch = self.devices.torch(node)
        rename = Edit(*self.context.source.span(node), f"{torch.text}.{counterpart.name}")
        fix, obstacle, advice = Fix((rename,), needs=torch.needs), None, f"use `torch.{counterpart.name}`"
        call = self.facts.tree.call_of(node)
        if call is not None and self._questions.is_one_of_many(call):
            message = f"`{name}` is one of several checks for accelerators; add any missing ones"
            yield self.finding(node, message)
            return
        counts = counterpart.name.endswith("count")
        if call is not None and not counts:
            failing = self._questions.failing_on_mps(call)
            if failing or self._questions.excludes_mps(call):
                use = self.devices.beyond_mps(call)
                advice += ", and exclude MPS"
                fix = self.context.replace(call, use).joined(*map(self.translation.call, failing))
        if call is None:
            fix = replace(fix, why=UNKNOWN)
        else:
            fix, obstacle = self._questions.fix(call, fix, counts=counts)
        if obstacle is None:
            asks = "counts only CUDA devices" if counts else "checks only for CUDA"
            yield self.finding(node, f"`{name}` {asks}; {advice}", fix)
        elif self.accelerator.reference(obstacle) is None and not self._has_other_import(obstacle):
            line = getattr(obstacle, "lineno", None)
            where = f" on line {line}" if line else ""
            message = (
                f"`{name}` checks only for CUDA; first change the CUDA-specific code that it guards{where}"
            )
            yield self.finding(node, message)

    def _has_other_import(self, node: ast.AST) -> bool:
        """Return whether a node imports what only CUDA has, and other accelerators use something else."""
        is_import = isinstance(node, (ast.Import, ast.ImportFrom))
        return is_import and bool(getattr(self.facts.tree.parents.get(node), "orelse", None))


def _seeds(statement: ast.stmt) -> bool:
    """Return whether a statement seeds a generator, or sets an option of torch: it draws no numbers."""
    match statement:
        case ast.Expr(value=ast.Call(func=function)):
            return "seed" in last_name(function)
        case ast.Assign(targets=[ast.Attribute() | ast.Subscript() as target]):
            return "backends" in ast.dump(target) or "environ" in ast.dump(target)
    return False
