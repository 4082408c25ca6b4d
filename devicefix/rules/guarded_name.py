from __future__ import annotations

import ast
from collections.abc import Iterator

from devicefix.devices.context import Context
from devicefix.facts import dotted
from devicefix.model import Finding
from devicefix.rules.base import Example, Rule
from devicefix.rules.shared.guarded_moves import GuardedMoves
from devicefix.rules.shared.guarded_names import GuardedNames


class GuardedName(Rule):
    """
    ## What it does
    Finds names that are defined only with CUDA, but also used without it. Under a condition such as `if args.cuda`, the rule finds only names in assignments such as `y = x.cuda()`.

    ## Why it matters
    On a CPU, using the name raises a `NameError` or an `UnboundLocalError`.

    ## Example
    ```python
    if torch.cuda.is_available():
        device = torch.device("cuda:0")
    model.to(device)
    ```

    ## Use instead
    ```python
    device = torch.device("cuda:0" if torch.cuda.is_available() else "cpu")
    model.to(device)
    ```

    ## Fix safety
    There is no fix. Define the name for the CPU before the check or in an `else` branch. If the code under the
    check only moves something, `DF702` may remove the check.
    """

    code = "DF703"
    name = "guarded-name"
    summary = "A name is defined only for CUDA, but also used on a CPU"
    words = (b"cuda",)
    common_words = (b"device", b"gpu")
    INVALID = (
        Example(
            "a device that is used behind the guard",
            before="""
                import torch

                if torch.cuda.is_available():
                    device = torch.device('cuda:0')
                net.to(device)
            """,
        ),
        Example(
            "a name that a pattern binds",
            before="""
                import torch

                if torch.cuda.is_available():
                    match {"image": q7.cuda()}:
                        case {"image": q8}:
                            pass
                print(q8)
            """,
        ),
        Example(
            "a name that is bound again after its use",
            before="""
                import torch

                def step(batches):
                    for q7 in batches:
                        if torch.cuda.is_available():
                            q8 = torch.device("cuda")
                        print(q7.to(q8))
                        q8 = None
            """,
        ),
        Example(
            "a name that a function uses",
            before="""
                import torch

                if torch.cuda.is_available():
                    q7 = torch.device("cuda")


                def move(x):
                    return x.to(q7)
            """,
        ),
        Example(
            "an import",
            before="""
                import torch

                if torch.cuda.is_available():
                    import cupy as cp
                x = cp.zeros(3)
            """,
        ),
        Example(
            "names of with, for and try",
            before="""
                import torch

                q7 = torch.cuda.is_available()
                if q7:
                    with open(name) as file:
                        for line in file:
                            try:
                                number = int(line)
                            except ValueError as error:
                                print(error)
                print(file, line, number)
            """,
        ),
        Example(
            "a branch for another accelerator",
            before="""
                import torch

                if torch.cuda.is_available():
                    d = torch.device("cuda")
                elif torch.backends.mps.is_available():
                    d = torch.device("mps")
                net.to(d)
            """,
        ),
        Example(
            "another accelerator, if its library is installed",
            before="""
                import torch

                if torch.cuda.is_available():
                    count = torch.cuda.device_count()
                if is_ipex_available() and torch.xpu.is_available():
                    count = torch.xpu.device_count()
                memory = {i: "10GB" for i in range(count)}
            """,
        ),
        Example(
            "a global name",
            before="""
                import torch


                def init():
                    global name
                    if torch.cuda.is_available():
                        name = torch.cuda.get_device_name()


                def run(x):
                    return name, x
            """,
        ),
        Example(
            "a flag of the user",
            before="""
                import torch


                def step(batch, q7):
                    if q7:
                        x, y = batch[1].cuda(), batch[0].cuda()
                    return x + y
            """,
            after="""
                import torch

                device = torch.device("cuda" if torch.cuda.is_available() else "cpu")


                def step(batch, q7):
                    if q7:
                        x, y = batch[1].to(device), batch[0].to(device)
                    return x + y
            """,
        ),
    )
    VALID = (
        Example(
            "a name that an earlier round of the loop binds",
            """
                import torch

                def step(batches):
                    for number, q7 in enumerate(batches):
                        if torch.cuda.is_available():
                            q8 = torch.device("cuda")
                        if number:
                            print(q7.to(q8))
                        q8 = torch.device("cpu")
            """,
        ),
        Example(
            "both branches bind the name",
            """
                import torch

                if torch.cuda.is_available():
                    device = 'cuda'
                else:
                    device = 'cpu'
                net.to(device)
            """,
        ),
        Example(
            "the function returns, or raises an error, if the flag is false",
            """
                import torch

                def move(batch, q7):
                    if q7:
                        x = batch.to(device)
                    else:
                        return batch
                    return x

                def copy(batch, q7):
                    if not q7:
                        return batch
                    if q7:
                        x = batch.to(device)
                    return x

                if torch.cuda.is_available() and HOME is not None:
                    path = HOME
                else:
                    raise NotImplementedError
                build(path)
            """,
        ),
        Example(
            "bound before the guard",
            """
                import torch

                device = 'cpu'
                if torch.cuda.is_available():
                    device = 'cuda'
                net.to(device)
            """,
        ),
        Example(
            "used under the same flag",
            """
                import torch

                use = torch.cuda.is_available()
                if use:
                    d = 'cuda'
                if use:
                    net.to(d)
            """,
        ),
        Example(
            "used under the guard only",
            """
                import torch

                if torch.cuda.is_available():
                    d = 'cuda'
                    net.to(d)
            """,
        ),
        Example(
            "used under the same flag of the user",
            """
                import torch


                def step(batch, q7):
                    if q7:
                        x = batch[1].cuda()
                    if q7 and batch:
                        return x
            """,
        ),
        Example(
            "an error that is caught",
            """
                import torch

                if torch.cuda.is_available():
                    stream = torch.cuda.Stream()
                try:
                    stream.wait()
                except NameError:
                    n = 1
            """,
        ),
    )

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._names = GuardedNames(self.facts)
        self._moves = GuardedMoves(context)

    def visit_If(self, node: ast.If) -> Iterator[Finding]:
        guards = self.facts.guards
        if not guards.implies(node.test) or guards.refusal(node) is not None or guards.is_guarded(node):
            return
        if self._moves.of_guard(node) is not None:
            return  # the guard goes
        assigned = [statement for statement in node.body if isinstance(statement, ast.Assign)]
        for name, place in self._names.bound(node.body):
            use = self._names.use(name, node)
            if use is not None:
                if self._names.is_bound_beside(name, node):
                    message = f"`{name}` may be undefined without CUDA, but line {use.lineno} uses it"
                else:
                    message = (
                        f"`{name}` is defined only with CUDA, but line {use.lineno} also uses it without CUDA"
                    )
                where = place if self.facts.tree.statement(place) in assigned else node.test
                yield self.finding(where, f"{message}; define it for the CPU, too")

    def visit_Assign(self, node: ast.Assign) -> Iterator[Finding]:
        """Check a name that is moved to CUDA under a flag of the user's."""
        guard = self.facts.tree.parents.get(node)
        if not isinstance(guard, ast.If) or node not in guard.body or dotted(guard.test) is None:
            return
        if self.facts.guards.implies(guard.test) or not any(map(_moves, ast.walk(node.value))):
            return
        for name, place in self._names.bound([node]):
            use = self._names.use(name, guard)
            if use is not None:
                flag = self.context.source.code(guard.test)
                if self._names.is_bound_beside(name, guard):
                    message = f"`{name}` may be undefined if `{flag}` is false, but line {use.lineno} uses it"
                else:
                    message = f"`{name}` is defined only if `{flag}` is true, but line {use.lineno} also uses it if `{flag}` is false"
                yield self.finding(place, f"{message}; define it in that case, too")


def _moves(node: ast.AST) -> bool:
    """Return whether a node is a call of `cuda`, or of `to` as fixes write it."""
    match node:
        case ast.Call(func=ast.Attribute(attr="cuda")):
            return True
        case ast.Call(func=ast.Attribute(attr="to"), args=[ast.Name() | ast.IfExp()]):
            return True
    return False
