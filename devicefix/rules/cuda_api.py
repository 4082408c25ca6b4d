from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import replace

from devicefix.devices.accelerator import AMP, COUNTERPARTS, QUESTIONS, Counterpart
from devicefix.devices.arguments import device_argument, target_device
from devicefix.devices.context import Context
from devicefix.devices.methods import CustomCuda, custom_cuda
from devicefix.facts import returns
from devicefix.facts.values import cuda_device, last_name, literal_index
from devicefix.model import Edit, Finding, Fix, Safety
from devicefix.rewrite.edits import moved
from devicefix.rules.base import Changed, Rule
from devicefix.rules.cuda_function import CudaFunction
from devicefix.rules.guarded_move import GuardedMove
from devicefix.rules.stream import CudaStream

_ADVICE = {
    "manual_seed": "`torch.manual_seed` seeds every device",
    "manual_seed_all": "`torch.manual_seed` seeds every device",
    "seed": "`torch.seed` seeds every device",
    "seed_all": "`torch.seed` seeds every device",
    "OutOfMemoryError": "`torch.OutOfMemoryError` is the same for every device (torch 2.5)",
    "amp.custom_fwd": '`torch.amp.custom_fwd(device_type="cuda")` is the same (torch 2.4)',
    "amp.custom_bwd": '`torch.amp.custom_bwd(device_type="cuda")` is the same (torch 2.4)',
}
_ELSE = "keep it under `if torch.cuda.is_available():`, or ask `torch.get_device_module(device)` for that device's own"
_TELLS = {"print", "debug", "info", "warning", "log", "write", "echo"}
_LOADS = ("torch.load", "torch.jit.load", "torch.hub.load_state_dict_from_url")
_DEPTH = 4  # how many variables to follow


class CudaApi(Rule):
    """
    ## What it does
    With `--target accelerator`, finds every use of `torch.cuda`, called or not, under any name, and also those
    that do no harm on a CPU.

    ## Why it matters
    `torch.cuda` is one kind of accelerator. A program that says `torch.accelerator`, `torch.Stream` and
    `torch.Event` (torch 2.6) runs on others, too, without a line for each.

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
    Safe: with CUDA and on a CPU the program does what it did. Most of `torch.accelerator` raises an error where
    there is none, also where `torch.cuda` does nothing; such a call is put under a guard. `torch.amp.autocast`
    and `torch.amp.GradScaler` go on naming "cuda", since on a CPU another device would change the numbers.
    Streams and events are replaced together in a module, or not at all: what they are handed to may need CUDA's.

    `torch.cuda.is_available()` is replaced where everything that depends on it can be seen and works with any
    accelerator; devices and moves there become the accelerator's. Where it guards what is CUDA's own (a tensor
    type, NCCL, the place that a checkpoint was saved from), it stays and is reported: another accelerator must
    not take CUDA's path. Where its answer is handed on (an attribute, an argument, a result), the fix is unsafe
    for that reason. On a machine with CUDA, and on a CPU, it makes no difference.

    What `torch.accelerator` does not have is reported; so is what needs a newer torch than `--torch-version`, and
    an import of `torch.cuda`, to be removed when nothing uses it any more. Memory statistics of
    `torch.accelerator` are not there for every accelerator.
    """

    code = "DF405"
    name = "cuda-api"
    summary = "A use of `torch.cuda` where any accelerator is the target"
    targets = ("accelerator",)
    sees_handled = True
    MATCHES = (
        Changed(
            "import torch\n\ntorch.cuda.synchronize()\ntorch.cuda.empty_cache()\n",
            "import torch\n\nif torch.accelerator.is_available():\n"
            "    torch.accelerator.synchronize()\n    torch.accelerator.empty_cache()\n",
        ),
        Changed(
            "import torch.cuda as tc\nimport torch\n\nif tc.is_available():\n    tc.set_device(rank)\nused = tc.memory_allocated(device=0)\n",
            "import torch.cuda as tc\nimport torch\n\nif torch.accelerator.is_available():\n"
            "    torch.accelerator.set_device_index(rank)\n"
            "used = torch.accelerator.memory_allocated(0) if torch.accelerator.is_available() else 0\n",
        ),
        Changed(
            'import torch\n\ndevice = torch.device("cuda:0" if torch.cuda.is_available() else "cpu")\n'
            'here = torch.device("cuda") if torch.cuda.is_available() else torch.device("cpu")\n',
            "import torch\n\ndevice = torch.device("
            'f"{torch.accelerator.current_accelerator().type}:0" if torch.accelerator.is_available() else "cpu")\n'
            "here = torch.accelerator.current_accelerator() "
            'if torch.accelerator.is_available() else torch.device("cpu")\n',
        ),
        Changed(
            "import torch\n\nuse = torch.cuda.is_available()\nif use:\n    net = net.cuda()\n    tune(net)\n",
            "import torch\n\n"
            'device = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else torch.device("cpu")\n\n'
            "use = torch.accelerator.is_available()\nif use:\n    net = net.to(device)\n    tune(net)\n",
        ),
        Changed(
            "import torch\n\nx = torch.cuda.FloatTensor if torch.cuda.is_available() else torch.FloatTensor\n",
            None,
        ),
        Changed(
            "import torch\n\nwith torch.cuda.amp.autocast(args.half):\n    run()\nscaler = torch.cuda.amp.GradScaler()\n",
            'import torch\n\nwith torch.amp.autocast("cuda", enabled=args.half):\n    run()\n'
            'scaler = torch.amp.GradScaler("cuda")\n',
        ),
        Changed(
            "import torch\n\nstart = torch.cuda.Event(True)\nstart.record()\n",
            "import torch\n\n"
            "start = torch.Event(enable_timing=True) if torch.accelerator.is_available() else None\n"
            "if torch.accelerator.is_available():\n    start.record()\n",
        ),
        Changed(
            "import torch\n\nargs.cuda = torch.cuda.is_available()\n",
            "import torch\n\nargs.cuda = torch.accelerator.is_available()\n",
            unsafe=True,
        ),
        Changed("import torch\n\ntorch.cuda.manual_seed_all(1)\n", None),
        Changed("from torch.cuda import nvtx\n", None),
        Changed("import torch\n\nwait = torch.cuda.synchronize\n", None),
    )
    LEAVES = (
        "import torch\n\nif torch.accelerator.is_available():\n    torch.accelerator.synchronize()\n",
        "import torch\n\ntorch.backends.cuda.matmul.allow_tf32 = True\nprint(torch.version.cuda)\n",
        "from numba import cuda\n\ncuda.synchronize()\n",
    )

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        assert context.accelerator is not None
        self.accelerator = context.accelerator
        self.functions = CudaFunction(context)
        self.streams = CudaStream(context)
        self.moves = GuardedMove(context)
        self._collapses = context.settings.enabled(GuardedMove.code, GuardedMove.default)
        self.planned: set[ast.AST] = set()

    def visit_Attribute(self, node: ast.Attribute) -> Iterator[Finding]:
        yield from self._look(node)

    def visit_Name(self, node: ast.Name) -> Iterator[Finding]:
        yield from self._look(node)

    def visit_Import(self, node: ast.Import) -> Iterator[Finding]:
        if any(f"{alias.name}.".startswith("torch.cuda.") for alias in node.names):
            yield self._imported(node)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> Iterator[Finding]:
        names = {alias.name for alias in node.names}
        if not node.level and (
            f"{node.module}.".startswith("torch.cuda.") or (node.module == "torch" and "cuda" in names)
        ):
            yield self._imported(node)

    def _imported(self, node: ast.stmt) -> Finding:
        return self.finding(node, "imports `torch.cuda`: remove it when nothing uses it any more")

    def _look(self, node: ast.Name | ast.Attribute) -> Iterator[Finding]:
        short = self.accelerator.reference(node)
        if short is None:
            return
        name = f"torch.cuda.{short}" if short else "torch.cuda"
        counterpart = self.accelerator.counterpart(node)
        if counterpart is None:
            yield self.finding(node, f"`{name}` is CUDA's own: {self._advice(node, short)}")
        elif short in QUESTIONS:
            fix, reason = self._question(node, counterpart)
            advice = reason or f"use `torch.{counterpart.name}`"
            yield self.finding(node, f"`{name}` asks for CUDA alone: {advice}", fix)
        else:
            fix = self._fix(node, short, counterpart)
            advice = "" if fix else ", under a guard, and say what to do without"
            yield self.finding(node, f"`{name}` is CUDA's own: use `torch.{counterpart.name}`{advice}", fix)

    def _advice(self, node: ast.AST, short: str) -> str:
        known = COUNTERPARTS.get(short, ())
        if known and known[-1].since > self.accelerator.version:
            version = "{}.{}".format(*known[-1].since)
            return f"`torch.{known[-1].name}` takes its place from torch {version} on"
        if short.endswith("Tensor"):
            return "use a dtype and a device"
        if known:
            return f"`torch.{known[0].name}` may take its place, but not as it is used here"
        return _ADVICE.get(short, _ELSE)

    # -- what is called ------------------------------------------------------------------------------

    def _fix(self, node: ast.expr, short: str, counterpart: Counterpart) -> Fix | None:
        call = self.accelerator.call(node)
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
            return fix if self.streams.of_maker(call) is not None else None
        if short == "device":
            return fix
        return fix if self.functions.fix(call, short) is not None else None

    def _seen_to(self, node: ast.expr) -> bool:
        """Whether another rule makes what is around a node depend on CUDA, or on any accelerator."""
        return any(child in self.context.handled for child, _ in self.facts.tree.ancestors(node))

    def _guard(self, call: ast.Call, instead: str) -> Fix:
        statement = self.facts.tree.statement(call)
        if isinstance(statement, ast.Expr) and statement.value is call:
            return self.context.put_under_guard(statement)
        return self.context.when_cuda(call, instead)

    def _arguments(self, call: ast.Call, short: str) -> Iterator[Edit]:
        """The edits that hand the arguments of a call to its counterpart."""
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
        """The edits that make the devices among the arguments of a call the accelerator's."""
        for value in (*call.args, *(each.value for each in call.keywords)):
            accelerated = self.devices.accelerated(value) if value not in self.planned else None
            if accelerated is not None:
                self.planned.add(value)
                yield Edit(*self.context.source.span(value), accelerated[1])

    def _entered(self, call: ast.Call) -> Fix:
        """The fix that enters a stream itself; there is none to enter on a CPU."""
        (stream,) = call.args
        source = self.context.source
        (start, end), (first, last) = source.span(call), source.span(stream)
        if self.facts.is_guarded(call):
            return Fix((Edit(start, first, ""), Edit(last, end, "")))
        use = self.devices.available(call)
        otherwise = f" if {use.text} else contextlib.nullcontext()"
        return Fix(
            (Edit(start, first, ""), Edit(last, end, otherwise)),
            needs=use.needs | self.devices.imports("contextlib"),
        )

    # -- whether there is CUDA -----------------------------------------------------------------------

    def _question(self, node: ast.expr, counterpart: Counterpart) -> tuple[Fix | None, str]:
        """The fix of a question whether there is CUDA, or why there is none."""
        torch = self.devices.torch(node)
        rename = Edit(*self.context.source.span(node), f"{torch.text}.{counterpart.name}")
        fix = Fix((rename,), needs=torch.needs)
        call = self.accelerator.call(node)
        counts = counterpart.name.endswith("count")
        regions = self._regions(call, _DEPTH, counts) if call is not None else None
        if regions is None:
            return replace(fix, safety=Safety.UNSAFE), ""
        edits: list[Edit] = []
        needs = fix.needs
        planned = set()
        for region in regions:
            for part in ast.walk(region):
                change = self._change(part)
                if change is None:
                    line = getattr(part, "lineno", None)
                    where = f" in line {line}" if line else ""
                    return (
                        None,
                        f"it guards what is CUDA's own{where}, which another accelerator must not reach",
                    )
                if change.edits and part not in self.planned and part not in planned:
                    planned.add(part)
                    edits += change.edits
                    needs |= change.needs
        self.planned |= planned
        return Fix((rename, *edits), needs=needs), ""

    def _change(self, node: ast.AST) -> Fix | None:
        """What makes a guarded node any accelerator's; None where it is CUDA's own."""
        nothing = Fix(())
        match node:
            case ast.Call(func=ast.Attribute(attr="cuda")):
                return self._move(node) if self.facts.resolve(node.func) is None else nothing
            case ast.Call() if self.facts.call(node, *_LOADS):
                where = next((each.value for each in node.keywords if each.arg == "map_location"), None)
                return nothing if isinstance(where, (ast.Name, ast.Attribute)) or _is_cpu(where) else None
            case ast.expr() if cuda_device(self.facts, node) and self._value(node):
                accelerated = self.devices.accelerated(node)
                if accelerated is None:
                    return nothing  # a number, which is any accelerator's
                use, change = accelerated
                return Fix((Edit(*self.context.source.span(node), change),), needs=use.needs)
            case ast.Constant() | ast.Name() | ast.Attribute():
                return None if self.accelerator.is_cuda_only(node) else nothing
        return nothing

    def _move(self, node: ast.Call) -> Fix | None:
        """`.cuda()` as `.to(device)`."""
        assert isinstance(node.func, ast.Attribute)
        receiver, target = node.func.value, device_argument(node)
        plain = target is None or literal_index(target) is not None
        if (
            not plain
            or "storage" in last_name(receiver)
            or custom_cuda(self.context, receiver) is not CustomCuda.NEVER
        ):
            return None
        if any(isinstance(each, ast.Starred) for each in node.args) or any(
            not each.arg for each in node.keywords
        ):
            return None
        use = target_device(self.context, node, target)
        return self.context.edit(node, moved(use.text), use) if use is not None else None

    def _value(self, node: ast.expr) -> bool:
        """Whether a device is used as one, and not compared, told, or part of another."""
        parent = self.facts.tree.parents.get(node)
        if isinstance(parent, (ast.Compare, ast.Subscript, ast.JoinedStr, ast.BinOp, ast.Expr)):
            return False
        if isinstance(parent, ast.Dict) and node in parent.keys:
            return False
        if isinstance(parent, ast.Call):
            # `torch.device("cuda")` is replaced as a whole.
            return last_name(parent.func) not in _TELLS and not cuda_device(self.facts, parent)
        return True

    def _of_cuda(self, node: ast.AST) -> ast.Call | None:
        """The call around a node that reads a checkpoint, or is CUDA's own."""
        for _, parent in self.facts.tree.ancestors(node):
            if isinstance(parent, ast.stmt):
                break
            if isinstance(parent, ast.Call):
                if self.facts.call(parent, *_LOADS):
                    return parent
                chosen = parent.func
                function = chosen.body if isinstance(chosen, ast.IfExp) else chosen
                if self.accelerator.reference(function) and not self.accelerator.counterpart(function):
                    return parent
        return None

    def _regions(self, node: ast.expr, depth: int, counts: bool) -> list[ast.AST] | None:
        """What runs only by the answer to a question; None where that can't be seen."""
        if depth == 0:
            return None
        tree, guards = self.facts.tree, self.facts.guards
        around = self._of_cuda(node)
        if around is not None:
            return [around]
        before: list[ast.AST] = []
        top, parent = node, tree.parents.get(node)
        while isinstance(parent, (ast.UnaryOp, ast.BoolOp, ast.Compare)) or _keeps(parent):
            if isinstance(parent, ast.BoolOp):
                before += parent.values[parent.values.index(top) + 1 :]
            assert isinstance(parent, ast.expr)
            top, parent = parent, tree.parents.get(parent)
        with_it, without = guards.implies(top), guards.implies(top, False)
        match parent:
            case ast.IfExp(test=test, body=body, orelse=orelse) if test is top:
                if self._collapses and any(self.moves.visit_IfExp(parent)):
                    return before
                return [*before, *([body] if with_it else [orelse] if without else [body, orelse])]
            case ast.If(test=test, body=block, orelse=other) if test is top:
                if guards.refusal(parent) is not None:
                    return before
                if self._collapses and any(self.moves.visit_If(parent)):
                    return before
                if with_it:
                    return [*before, *block]
                if without and returns(block):
                    following = tree.block(parent)
                    return [*before, *other, *following[following.index(parent) + 1 :]]
                if without:
                    return [*before, *other] if other else None
                return [*before, *block, *other]
            case ast.While(test=test, body=block) if test is top:
                return [*before, *block]
            case ast.Assert():
                return before
            case ast.Assign(targets=[ast.Name() as name]) | ast.AnnAssign(target=ast.Name() as name):
                return self._of_variable(name, before, depth, counts)
            case ast.keyword(arg="pin_memory") | ast.Expr():
                return before
            case ast.Call() if last_name(parent.func) in _TELLS:
                return before
            case ast.Call() if parent in getattr(tree.parents[parent], "decorator_list", ()):
                return [*before, tree.parents[parent]]
        return [*before, *self._counted(top)] if counts else None

    def _counted(self, node: ast.expr) -> list[ast.AST]:
        """What depends on a number of GPUs where it is counted with: the statement, and a loop's body."""
        statement = self.facts.tree.statement(node)
        if isinstance(statement, (ast.For, ast.AsyncFor)):
            return [statement]
        bodies = ("body", "orelse", "finalbody", "handlers")
        return [
            part
            for part in ast.iter_child_nodes(statement)
            if not any(part in getattr(statement, name, ()) for name in bodies)
        ]

    def _of_variable(
        self, name: ast.Name, before: Sequence[ast.AST], depth: int, counts: bool
    ) -> list[ast.AST] | None:
        """What depends on a variable that holds an answer."""
        found = self.facts.tree.scope(name).lookup(name.id)
        if found is None or len(found[1]) != 1:
            return None
        regions = list(before)
        for node in self.facts.tree.reads(name.id):
            if self.facts.tree.scope(node).lookup(name.id) == found:
                more = self._regions(node, depth - 1, counts)
                if more is None:
                    return None
                regions += more
        return regions


def _keeps(node: ast.AST | None) -> bool:
    """Whether a call hands an answer on as it is, or nearly so."""
    return isinstance(node, ast.Call) and last_name(node.func) in ("bool", "int", "max", "min")


def _is_cpu(node: ast.expr | None) -> bool:
    return isinstance(node, ast.Constant) and node.value == "cpu"
