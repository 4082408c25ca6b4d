from __future__ import annotations

import ast
from collections.abc import Iterator

from devicefix.devices.context import Context
from devicefix.facts.copies.moves import moves
from devicefix.model import Finding
from devicefix.rules.base import Example, Rule
from devicefix.rules.shared.guarded_moves import GuardedMoves


class GuardedMove(Rule):
    """
    ## What it does
    Finds checks for CUDA (guards) around code that only moves something, as in `if torch.cuda.is_available(): x =
    x.cuda()` and `x.cuda() if use_cuda else x`. The rule usually ignores a single move if the fix would define a
    device.

    ## Why it matters
    Most such code works, but `.to(device)` is shorter and works on any device.

    ## Example
    ```python
    use_gpu = torch.cuda.is_available()
    if use_gpu:
        model = model.cuda()
    if use_gpu:
        x = x.cuda()
    ```

    ## Use instead
    ```python
    use_gpu = torch.cuda.is_available()
    device = torch.device("cuda" if use_gpu else "cpu")
    model = model.to(device)
    x = x.to(device)
    ```

    ## Fix safety
    The fix is usually safe: on a CPU, the move does nothing. The fix also removes a guard above the definition of a
    name that the program needs on a CPU, such as `x = batch[0].cuda()`. There is no fix for
    `use_cuda and x.cuda()`, because the program may need its false value.
    """

    code = "DF702"
    name = "guarded-move"
    summary = "A check for CUDA around a move is not needed"
    words = (b"cuda",)
    common_words = (b"device", b"gpu")
    INVALID = (
        Example(
            "two moves under a flag",
            before="""
                import torch

                use_gpu = torch.cuda.is_available()
                if use_gpu:
                    model = model.cuda()
                    loss.cuda()
            """,
            after="""
                import torch

                use_gpu = torch.cuda.is_available()
                device = torch.device("cuda" if use_gpu else "cpu")
                model = model.to(device)
                loss.to(device)
            """,
        ),
        Example(
            "a move in a function",
            before="""
                import torch


                def to_var(x, y):
                    if torch.cuda.is_available():
                        x = x.cuda()
                    if torch.cuda.is_available():
                        y = y.cuda()
                    return x, y
            """,
            after="""
                import torch

                device = torch.device("cuda" if torch.cuda.is_available() else "cpu")


                def to_var(x, y):
                    x = x.to(device)
                    y = y.to(device)
                    return x, y
            """,
        ),
        Example(
            "a choice between moved and not moved",
            before="""
                import torch

                y = x.cuda() if torch.cuda.is_available() else x
                z.cuda()
            """,
            after="""
                import torch

                device = torch.device("cuda" if torch.cuda.is_available() else "cpu")

                y = x.to(device)
                z.to(device)
            """,
        ),
        Example(
            "names that are not defined without the guard",
            before="""
                import torch

                cuda = torch.cuda.is_available()
                for batch in loader:
                    if cuda:
                        x, y = batch[1].cuda(), batch[0].cuda()
                    step(x, y)
            """,
            after="""
                import torch

                cuda = torch.cuda.is_available()
                device = torch.device("cuda" if cuda else "cpu")
                for batch in loader:
                    x, y = batch[1].to(device), batch[0].to(device)
                    step(x, y)
            """,
        ),
        Example(
            "a value that is false without CUDA",
            before="""
                import torch

                y = torch.cuda.is_available() and x.cuda()
                print(y.sum())
            """,
        ),
    )
    VALID = (
        Example(
            "one move, for which nothing defines a device",
            """
                import torch

                if torch.cuda.is_available():
                    model.cuda()
            """,
        ),
        Example(
            "a statement, and a value with another one",
            """
                import torch

                torch.cuda.is_available() and net.cuda()
                y = torch.cuda.is_available() and x.cuda() or x
            """,
        ),
        Example(
            "a guard with another statement",
            """
                import torch

                if torch.cuda.is_available():
                    model = model.cuda()
                    torch.backends.cudnn.benchmark = True
            """,
        ),
        Example(
            "a guard with another branch",
            """
                import torch

                if torch.cuda.is_available():
                    y = x.cuda()
                else:
                    y = x.double()
            """,
        ),
        Example(
            "a guard that wraps the model",
            """
                import torch

                if torch.cuda.is_available():
                    model = torch.nn.DataParallel(model).cuda()
            """,
        ),
        Example(
            "a name that is defined before the guard",
            """
                import torch

                y = None
                if torch.cuda.is_available():
                    y = x.cuda()
                step(y)
            """,
        ),
        Example(
            "a name that is only used with CUDA",
            """
                import torch

                cuda = torch.cuda.is_available()
                if cuda:
                    y = x.cuda()
                if cuda:
                    step(y)
            """,
        ),
        Example(
            "something that is only there with CUDA",
            """
                import torch

                cuda = torch.cuda.is_available()
                if cuda:
                    x = make()
                if cuda:
                    x = x.cuda()
            """,
        ),
    )

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._moves = GuardedMoves(context)

    def visit_If(self, node: ast.If) -> Iterator[Finding]:
        fix = self._moves.of_guard(node)
        if fix is not None:
            problem = "this check works but is not needed"
            if name := self._moves.defines(node):
                problem = f"without CUDA, this check leaves `{name}` undefined"
            yield self.finding(node.test, f"{problem}; use `.to(device)`", fix)

    def visit_IfExp(self, node: ast.IfExp) -> Iterator[Finding]:
        fix = self._moves.of_choice(node)
        if fix is not None:
            yield self.finding(node, "this condition works but is not needed; use `.to(device)`", fix)

    def visit_BoolOp(self, node: ast.BoolOp) -> Iterator[Finding]:
        """Check the value of `torch.cuda.is_available() and x.cuda()`, which is false without CUDA."""
        *tests, last = node.values
        if not isinstance(node.op, ast.And) or not isinstance(last, ast.Call) or not moves(self.facts, last):
            return
        parent = self.facts.tree.parents.get(node)
        is_test = node is getattr(parent, "test", None)
        is_asked = is_test or isinstance(parent, (ast.BoolOp, ast.UnaryOp, ast.Expr))
        if not is_asked and any(map(self.facts.guards.implies, tests)):
            message = "without CUDA, this value is false instead of a tensor or module; use `.to(device)`"
            yield self.finding(node, message)
