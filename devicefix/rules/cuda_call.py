from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import replace

from devicefix.devices.arguments import device_argument, runtime_device, target_device
from devicefix.devices.context import SKIPS, Context
from devicefix.devices.methods import CustomCuda, custom_cuda, may_be_storage, shows_class
from devicefix.facts import Facts, Function, dotted
from devicefix.facts.effects import has_effects
from devicefix.facts.flow.kinds import Kind
from devicefix.facts.flow.parameters import unpacks
from devicefix.facts.tree import walk
from devicefix.facts.values import is_negative, last_name
from devicefix.model import Finding, Fix
from devicefix.rewrite.lines import alone
from devicefix.rewrite.operations import KeepReceiver, Move
from devicefix.rules.base import Example, Rule
from devicefix.rules.shared.called_below import called_below

_MOVES = "`.cuda()` needs CUDA; use `.to(device)`"
_MOVES_TO = "`.cuda(...)` needs CUDA; without CUDA, use the CPU"
_MOVES_TO_ANY = "`.cuda(...)` needs CUDA; use an accelerator if one is available"
_SKIPPED = "on a CPU, the program may also skip the other effects of the project's `cuda` method"
_INTERPRETERS = ("torch.fx.Interpreter", "torch.fx.Transformer")
_IN_GRAPH = "on a CPU, the FX graph may change the tensor itself instead of a copy"


class CudaCall(Rule):
    """
    ## What it does
    Finds calls to `x.cuda()` on tensors and modules, with or without arguments.

    ## Why it matters
    Without CUDA, the call usually raises an error such as "Torch not compiled with CUDA enabled".

    ## Example
    ```python
    model = Net().cuda()
    target = target.cuda(non_blocking=True)
    ```

    ## Use instead
    ```python
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")

    model = Net().to(device)
    target = target.to(device, non_blocking=True)
    ```

    ## Fix safety
    The fix is usually safe: like `.cuda()`, `torch.device("cuda")` refers to the current CUDA device. The fix keeps an
    index: `.cuda(1)` becomes a move to `cuda:1`.

    If devicefix can't tell which device the argument specifies, or if the object may have a custom `cuda` method, the
    fix usually puts the call under a check for CUDA. This fix is unsafe if a custom method or a call in the arguments
    may have side effects, because without CUDA, the program skips them.

    The fix is also unsafe in a subclass of `torch.fx.Interpreter`, because on a CPU, in-place operations may change the
    tensor itself instead of a copy.

    There is no fix for `x.cuda(*args)`: pass the arguments one by one, or write
    `x.cuda(*args) if torch.cuda.is_available() else x`.
    """

    code = "DF101"
    name = "cuda-call"
    summary = "`.cuda()` moves a tensor or module to a GPU, which may not exist"
    words = (b"cuda", b"get_device(")
    INVALID = (
        Example(
            "a variable to which a function moves several times",
            before="""
                import os
                import torch


                def run():
                    local_rank = int(os.environ["LOCAL_RANK"])
                    torch.manual_seed(local_rank)
                    net = Net().cuda(local_rank)
                    train(local_rank, load(), net, Net(2).cuda(local_rank))


                def train(q7, loader, net):
                    net.cuda(q7)
                    for x, y in loader:
                        x, y = x.cuda(q7, non_blocking=True), y.cuda(
                            q7, non_blocking=True
                        )
                        step(net, x, y)


                def evaluate(gpu_id: int, x, y):
                    return [part.cuda(device=gpu_id) for part in x], y.cuda(gpu_id)
            """,
            after="""
                import os
                import torch


                def run():
                    local_rank = int(os.environ["LOCAL_RANK"])
                    torch.manual_seed(local_rank)
                    local_rank_device = local_rank if torch.cuda.is_available() else "cpu"
                    net = Net().to(local_rank_device)
                    train(local_rank, load(), net, Net(2).to(local_rank_device))


                def train(q7, loader, net):
                    q7_device = ("cuda" if q7 is None else q7) if torch.cuda.is_available() else "cpu"
                    net.to(q7_device)
                    for x, y in loader:
                        x, y = x.to(q7_device, non_blocking=True), y.to(
                            q7_device, non_blocking=True
                        )
                        step(net, x, y)


                def evaluate(gpu_id: int, x, y):
                    gpu_device = gpu_id if torch.cuda.is_available() else "cpu"
                    return [part.to(gpu_device) for part in x], y.to(gpu_device)
            """,
        ),
        Example(
            "a parameter whose value changes, or whose device has no name",
            before="""
                import torch


                def move(q7, x, y):
                    q7 = q7 or 0
                    return x.cuda(q7), y.cuda(q7)


                def send(q7, x, y, q7_device):
                    return x.cuda(q7), y.cuda(q7)
            """,
            after="""
                import torch


                def move(q7, x, y):
                    q7 = q7 or 0
                    return x.cuda(q7) if torch.cuda.is_available() else x, y.cuda(q7) if torch.cuda.is_available() else y


                def send(q7, x, y, q7_device):
                    return x.cuda(q7) if torch.cuda.is_available() else x, y.cuda(q7) if torch.cuda.is_available() else y
            """,
        ),
        Example(
            "a device that is chosen at run time, and one that may be None",
            before="""
                import torch


                def move(x, y, where: torch.device, q7: torch.device = None):
                    return x.cuda(where), y.cuda(q7)
            """,
            after="""
                import torch


                def move(x, y, where: torch.device, q7: torch.device = None):
                    return x.to(where if torch.cuda.is_available() else "cpu"), y.cuda(q7) if torch.cuda.is_available() else y
            """,
        ),
        Example(
            "an argument that may do more than return a value",
            before="""
                import torch

                x.cuda(start())
                y = (x.cuda(start()), 1)
            """,
            after="""
                import torch

                if torch.cuda.is_available():
                    x.cuda(start())
                y = (x.cuda(start()) if torch.cuda.is_available() else x, 1)
            """,
            unsafe=True,
        ),
        Example(
            "something that may be an object whose own method does more than move",
            before="""
                import torch


                class Own:
                    def cuda(self):
                        self.moves += 1
                        return self


                for q7 in objects:
                    q7.cuda()
            """,
            after="""
                import torch


                class Own:
                    def cuda(self):
                        self.moves += 1
                        return self


                for q7 in objects:
                    if torch.cuda.is_available():
                        q7.cuda()
            """,
            unsafe=True,
        ),
        Example(
            "the device of another tensor by get_device",
            before="""
                import torch

                x = torch.randn(3).cuda(1)
                z = torch.randn(3).cuda(x.data.get_device())
            """,
            after="""
                import torch

                x = torch.randn(3).to("cuda:1" if torch.cuda.is_available() else "cpu")
                z = torch.randn(3).to(x.data.device)
            """,
        ),
        Example(
            "get_device of what may be no tensor",
            before="""
                import torch

                z = torch.randn(3).cuda(x.get_device())
            """,
            after="""
                import torch

                z = torch.randn(3).to(x.get_device() if torch.cuda.is_available() else "cpu")
            """,
        ),
        Example(
            "a module that may have its own cuda method, in front of a semicolon",
            before="""
                import torch


                class Own:
                    def cuda(self):
                        pass


                def move(net):
                    net = net.cuda();
                    return net
            """,
            after="""
                import torch


                class Own:
                    def cuda(self):
                        pass


                def move(net):
                    net = net.cuda() if torch.cuda.is_available() else net;
                    return net
            """,
        ),
        Example(
            "a module that may have its own cuda method",
            before="""
                import torch


                class Own:
                    def cuda(self):
                        pass


                net = Own()
                if simple:
                    net = torch.nn.Linear(1, 1)
                net.cuda()
            """,
            after="""
                import torch


                class Own:
                    def cuda(self):
                        pass


                net = Own()
                if simple:
                    net = torch.nn.Linear(1, 1)
                if torch.cuda.is_available():
                    net.cuda()
            """,
        ),
        Example(
            "a storage",
            before="""
                import torch


                def place(storage, location):
                    return storage.cuda(0)
            """,
            after="""
                import torch


                def place(storage, location):
                    return storage.cuda(0) if torch.cuda.is_available() else storage
            """,
        ),
        Example(
            "a storage that is called something else",
            before="""
                import torch

                q7 = torch.ones(2).untyped_storage()
                y = q7.cuda()
            """,
            after="""
                import torch

                q7 = torch.ones(2).untyped_storage()
                y = q7.cuda() if torch.cuda.is_available() else q7
            """,
        ),
        Example(
            "the storages of a checkpoint",
            before="""
                import torch


                def place(q7, location):
                    return q7.cuda(0)


                state = torch.load("x.pt", place)
            """,
            after="""
                import torch


                def place(q7, location):
                    return q7.cuda(0) if torch.cuda.is_available() else q7


                state = torch.load("x.pt", place)
            """,
        ),
        Example(
            "an argument that may be a number, None or a device",
            before="""
                import torch


                def move(x, where):
                    return f(x).cuda(where)
            """,
            after="""
                import torch


                def move(x, where):
                    return f(x).cuda(where) if torch.cuda.is_available() else f(x)
            """,
        ),
        Example(
            "such an argument behind a receiver over several lines",
            before="""
                import torch


                def move(x, where):
                    return f(
                        x,
                    ).cuda(where)
            """,
            after="""
                import torch


                def move(x, where):
                    return f(
                        x,
                    ).to(("cuda" if where is None else where) if torch.cuda.is_available() else "cpu")
            """,
        ),
        Example(
            "an object that may have no cuda method, but one that is called to",
            before="""
                import torch


                class Form:
                    def to(self, name):
                        return self


                try:
                    x = f(x).cuda()
                except AttributeError:
                    print("not moved")
            """,
        ),
        Example(
            "an object that may have no cuda method, where another class has one",
            before="""
                class Own:
                    def cuda(self):
                        return self


                try:
                    x = [].cuda()
                except AttributeError:
                    print("not moved")
            """,
        ),
        Example(
            "a computed argument behind a receiver over several lines",
            before="""
                import torch

                y = f(
                    x
                ).cuda(pick(x))
            """,
        ),
        Example(
            "a tensor to the current device",
            before="""
                import torch

                x = torch.ones(2).cuda()
            """,
            after="""
                import torch

                device = torch.device("cuda" if torch.cuda.is_available() else "cpu")

                x = torch.ones(2).to(device)
            """,
        ),
        Example(
            "a numbered device, with non_blocking by position",
            before="""
                import torch

                x = torch.ones(2).cuda(1)
                y = x.cuda(1, True)
            """,
            after="""
                import torch

                device1 = torch.device("cuda:1" if torch.cuda.is_available() else "cpu")

                x = torch.ones(2).to(device1)
                y = x.to(device1, non_blocking=True)
            """,
        ),
        Example(
            "a parameter as the number, with non_blocking",
            before="""
                import torch


                def move(x, gpu):
                    return x.cuda(gpu, non_blocking=True)
            """,
            after="""
                import torch


                def move(x, gpu):
                    return x.cuda(gpu, non_blocking=True) if torch.cuda.is_available() else x
            """,
        ),
        Example(
            "a parameter annotated as int",
            before="""
                import torch


                def move(x, gpu: int):
                    return (x + 1).cuda(gpu)
            """,
            after="""
                import torch


                def move(x, gpu: int):
                    return (x + 1).to(torch.device("cuda", gpu) if torch.cuda.is_available() else "cpu")
            """,
        ),
        Example(
            "device None, with a continued line and a comment",
            before="""
                import torch

                device = torch.device('cuda' if torch.cuda.is_available() else 'cpu')
                x = torch.ones(2)  \\
                    .cuda(  # there
                        device=None,
                    )
            """,
            after="""
                import torch

                device = torch.device('cuda' if torch.cuda.is_available() else 'cpu')
                x = torch.ones(2)  \\
                    .to(  # there
                        device,
                    )
            """,
        ),
        Example(
            "new objects that may be of a class of the project with its own `cuda`",
            before="""
                import torch

                class Cloud:
                    def cuda(self):
                        return self

                def read(load, gpu, data):
                    cloud = load(gpu).cuda()
                    gpu = load(gpu).cuda(gpu)
                    try:
                        part = load(gpu).cuda()
                    finally:
                        print(part)
                    return {key: x[0].cuda() if isinstance(x, torch.Tensor) else x for key, x in data.items()}
            """,
            after="""
                import torch

                class Cloud:
                    def cuda(self):
                        return self

                def read(load, gpu, data):
                    cloud = load(gpu)
                    if torch.cuda.is_available():
                        cloud = cloud.cuda()
                    gpu = load(gpu).cuda(gpu) if torch.cuda.is_available() else load(gpu)
                    try:
                        part = load(gpu).cuda() if torch.cuda.is_available() else load(gpu)
                    finally:
                        print(part)
                    return {key: (
                        x[0].cuda() if torch.cuda.is_available() else x[0]
                    ) if isinstance(x, torch.Tensor) else x for key, x in data.items()}
            """,
        ),
        Example(
            "a function that the workers of a loader call, below a setting of the driver",
            before="""
                import os

                import torch

                os.environ["CUDA_VISIBLE_DEVICES"] = "0,1"


                def made(n):
                    return torch.ones(n).cuda()


                def start(number):
                    made(number)


                loader = torch.utils.data.DataLoader([1, 2], num_workers=1, worker_init_fn=start)
                batches = list(loader)
            """,
            after="""
                import os

                import torch

                os.environ["CUDA_VISIBLE_DEVICES"] = "0,1"


                def made(n):
                    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
                    return torch.ones(n).to(device)


                def start(number):
                    made(number)


                loader = torch.utils.data.DataLoader([1, 2], num_workers=1, worker_init_fn=start)
                batches = list(loader)
            """,
        ),
        Example(
            "imports only in the main block",
            before="""
                if __name__ == "__main__":
                    from settings import epochs


                def train(x):
                    return x.cuda()
            """,
            after="""
                import torch

                device = torch.device("cuda" if torch.cuda.is_available() else "cpu")

                if __name__ == "__main__":
                    from settings import epochs


                def train(x):
                    return x.to(device)
            """,
        ),
    )
    VALID = (
        Example(
            "under a guard",
            """
                import torch

                if torch.cuda.is_available():
                    y = torch.ones(2).cuda() + 1
            """,
        ),
        Example(
            "in the CUDA arm of a choice",
            """
                import torch

                use = torch.cuda.is_available()
                y = f(x.cuda()) if use else f(x)
            """,
        ),
        Example(
            "the cuda module of numba",
            """
                from numba import cuda


                @cuda.jit
                def kernel(x):
                    pass
            """,
        ),
        Example(
            "the cuda method of a class of the project",
            """
                class Own:
                    def cuda(self):
                        pass


                net = Own()
                net.cuda()
            """,
        ),
    )

    def visit_Call(self, node: ast.Call) -> Iterator[Finding]:
        if not isinstance(node.func, ast.Attribute) or node.func.attr != "cuda":
            return
        receiver = node.func.value
        if self.facts.is_guarded(node):
            return
        imported = self.facts.resolve(receiver)
        # `model = model.cuda()` moves a value: then an imported name is also assigned.
        assigned = any(isinstance(each.node, ast.Assign) for each in self.facts.tree.bound(receiver))
        if imported is not None and not assigned:
            if self._is_value(imported):
                message = "`.cuda()` needs CUDA, and the value comes from another module; use `.to(device)`"
                yield self.finding(node, message)
            return
        own = custom_cuda(self.context, receiver)
        if own is CustomCuda.ALWAYS:
            return  # the body of the method is checked
        if unpacks(node):
            message = "`.cuda(...)` needs CUDA; pass its arguments one by one instead of unpacking them"
            yield self.finding(node, message)
        elif node.args and self.facts.kinds.of(node.args[0]).are({Kind.TENSOR}):
            message = "`.cuda` is called with a tensor, so it is not torch's own method; check that it works without CUDA"
            yield self.finding(node, message)
        elif shows_class(self.context, node):
            message = (
                "`.cuda()` needs CUDA, and the code handles an error that `.to(device)` may not raise; check"
                " the type of the object instead"
            )
            yield self.finding(node, message)
        else:
            finding = self._of_project(node) if own is CustomCuda.MAYBE else self._move(node)
            yield finding.unsafe(_IN_GRAPH) if finding.fix and _interprets(self.facts, node) else finding

    def _of_project(self, node: ast.Call) -> Finding:
        """Return the finding for a call that may be one of a method of the project."""
        if self._may_be_super(node):
            message = "`.cuda()` needs CUDA and may be called on `super()`; call it only if CUDA is available"
            return self.finding(node, message, unless="because `super()` is also used as a value")
        fix = self._of_super(node)
        if fix is not None:
            return self.finding(node, _MOVES, fix)
        message = (
            "`.cuda()` needs CUDA, and the object's class may define its own `cuda` or `to` method; call `.cuda()` only"
            " if CUDA is available"
        )
        fix = _for_accelerators(self.context, node) or _kept(self.context, node)
        parent, receiver = self.facts.tree.parents.get(node), getattr(node.func, "value", node)
        called = (self.facts.resolve(parent.func) or "") if isinstance(parent, ast.Call) else ""
        library = called and not self.context.project.has_module(self.devices.path, called.partition(".")[0])
        used = not (library or isinstance(parent, ast.Attribute) or _only_moves(parent, receiver))
        if fix and self.context.project.has_cuda_effects(used) and not self._is_of_torch(node):
            fix = replace(fix, why=_SKIPPED)
        return self.finding(node, message, fix, unless="because the object is `super()` or a long expression")

    def _of_super(self, node: ast.Call) -> Fix | None:
        """Return the fix that makes `super().cuda()` of a module `super().to(device)`, or None."""
        assert isinstance(node.func, ast.Attribute)
        name = _instance(self.context, node, node.func.value) if _super(node.func.value) else None
        if name is None or device_argument(node) is not None or self.context.project.has_own_to():
            return None
        owner = next(self.facts.tree.around(node, ast.ClassDef), None)
        if owner is None or not self._is_of_torch(node) or not self.context.project.is_foreign(owner.name):
            return None
        use = self.devices.current(node)
        return self.context.edit(node, Move(use.text), use)

    def _is_of_torch(self, node: ast.Call) -> bool:
        """Return whether a call is `super().cuda()` in a class that has no other class's own `cuda`."""
        assert isinstance(node.func, ast.Attribute)
        owner = next(self.facts.tree.around(node, ast.ClassDef), None)
        if owner is None or not _super(node.func.value):
            return False
        return not any(map(self.context.project.is_cuda_class, map(last_name, owner.bases)))

    def _may_be_super(self, node: ast.Call) -> bool:
        """Return whether the function around a call uses `super()` as a value, which has no attributes."""
        scopes = self.facts.tree.scope(node).chain()
        owner = next(each.node for each in scopes if isinstance(each.node, (Function, ast.Module)))
        parts = (part for part in walk(owner) if isinstance(part, ast.expr) and _super(part))
        parents = map(self.facts.tree.parents.get, parts if isinstance(owner, ast.FunctionDef) else ())
        return not all(isinstance(parent, ast.Attribute) for parent in parents)

    def _is_value(self, name: str) -> bool:
        """Return whether an imported name is a value of a module of the project, and not a module."""
        project, path = self.context.project, self.devices.path
        module = name.rpartition(".")[0]
        return bool(module) and project.has_module(path, module) and not project.has_module(path, name)

    def _move(self, node: ast.Call) -> Finding:
        fix = move(self.context, node)
        target = device_argument(node)
        if fix is not None and isinstance(target, ast.Call):
            if self.facts.call(target, "torch.cuda.current_device"):
                self.context.mark_handled(target)  # one finding for the call
        if _is_storage(self.context, node):
            message = "`.cuda()` needs CUDA, and storages reject `.to(device)`; call `.cuda()` only if CUDA is available"
            return self.finding(node, message, fix)
        if is_negative(target):
            message = "`.cuda(...)` needs CUDA and rejects a negative index; use `.to(device)`"
            return self.finding(node, message)
        if fix is None:
            message = "`.cuda(...)` needs CUDA, and its argument may be a number, None or a device"
            return self.finding(node, f"{message}; pass a `torch.device` to `.to(...)` instead")
        # A call that is kept, and skipped without CUDA, does not use another accelerator.
        is_moved = self.context.accelerator is not None and any(
            isinstance(each.new, Move) for each in fix.edits
        )
        moves_to = _MOVES_TO_ANY if is_moved else _MOVES_TO
        return self.finding(node, _MOVES if target is None else moves_to, fix)


def _interprets(facts: Facts, node: ast.AST) -> bool:
    """Return whether code is part of a class that runs the operations of a graph.

    https://docs.pytorch.org/docs/stable/fx.html#torch.fx.Interpreter
    """
    bases = (base for owner in facts.tree.around(node, ast.ClassDef) for base in owner.bases)
    return any(facts.resolve(base) in _INTERPRETERS for base in bases)


def move(context: Context, node: ast.Call) -> Fix | None:
    """Return the fix that replaces `.cuda()` by `.to(device)`, or None if there is none."""
    target = device_argument(node)
    if is_negative(target):
        return None
    storage = _is_storage(context, node)
    use = None if storage else target_device(context, node, target)
    if use is None and context.accelerator is not None and target is not None and not storage:
        use = runtime_device(context, node, target)
    if use is None:
        fix = _kept(context, node)
        if fix is not None and any(has_effects(context.facts, each) for each in (*node.args, *node.keywords)):
            fix = replace(fix, why=SKIPS)
        if fix is not None or target is None or storage:
            return fix
        use = runtime_device(context, node, target)
    return None if use is None else context.edit(node, Move(use.text), use)


def _for_accelerators(context: Context, node: ast.Call) -> Fix | None:
    """Return the fix that keeps `x.cuda()` for CUDA, and uses `x.to(device)` for other accelerators, or None."""
    assert isinstance(node.func, ast.Attribute)
    receiver, target = node.func.value, device_argument(node)
    if context.accelerator is None or not context.project.always_has_to():
        return None
    if _super(receiver) or not context.may_repeat(receiver) or may_be_storage(context, receiver):
        return None
    use = context.devices.current(node) if target is None else runtime_device(context, node, target)
    if use is None:
        return None
    is_statement = isinstance(context.facts.tree.parents.get(node), ast.Expr)
    plain = is_statement and not node.args and not node.keywords
    new = f"{context.source.code(receiver)}.to({use.text})" if plain else Move(use.text)
    return context.keep_for_cuda(node, new, use)


def _kept(context: Context, node: ast.Call) -> Fix | None:
    """Return the fix that keeps the call where CUDA is available, and evaluates its receiver once."""
    assert isinstance(node.func, ast.Attribute)
    receiver = node.func.value
    parent = context.facts.tree.parents.get(node)
    if isinstance(parent, ast.stmt) and _only_moves(parent, receiver):
        if isinstance(parent, ast.Expr) or alone(context.source, parent):
            return context.put_under_guard(parent)
    if _super(receiver):
        instance = _instance(context, node, receiver)
        return context.when_cuda(node, instance) if instance is not None else None
    if (below := called_below(context, node)) is not None:
        return below
    if not context.may_repeat(receiver):
        return None
    return context.when_cuda(node, KeepReceiver(), of_cuda=True)


def _only_moves(statement: ast.AST | None, receiver: ast.expr) -> bool:
    """Return whether a statement moves a variable and does nothing else: `x.cuda()` or `x = x.cuda()`."""
    name = dotted(receiver)
    match statement:
        case ast.Expr():
            return name is not None
        case ast.Assign(targets=[target]):
            return name is not None and name == dotted(target)
    return False


def _is_storage(context: Context, node: ast.Call) -> bool:
    assert isinstance(node.func, ast.Attribute)
    return may_be_storage(context, node.func.value)


def _instance(context: Context, node: ast.Call, receiver: ast.expr) -> str | None:
    """Return the name of the object whose method `super()` calls, or None if there is none."""
    assert isinstance(receiver, ast.Call)
    if receiver.args:  # `super(Class, self)`
        last = receiver.args[-1]
        return last.id if len(receiver.args) == 2 and isinstance(last, ast.Name) else None
    function = context.facts.tree.scope(node).node
    if not isinstance(function, Function):
        return None
    first = next(iter((*function.args.posonlyargs, *function.args.args)), None)
    return first.arg if first is not None else None


def _super(receiver: ast.expr) -> bool:
    return isinstance(receiver, ast.Call) and dotted(receiver.func) == "super"
