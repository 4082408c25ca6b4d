from __future__ import annotations

import ast
from collections.abc import Iterator

from devicefix.devices.context import Context
from devicefix.facts.flow.forwards import Forwards
from devicefix.facts.flow.forwards.library import SHOWS
from devicefix.facts.scopes import dotted
from devicefix.facts.tree import walk
from devicefix.facts.values import last_name
from devicefix.model import Finding
from devicefix.rules.base import Example, Rule
from devicefix.rules.shared.torch_facts import MEMORY_FIGURES

_DIVISIONS = (ast.Div, ast.FloorDiv, ast.Mod)
_SAME = {"int", "float", "round", "abs"}  # 0 for 0
_STEPS = 100  # how many expressions to follow a figure through


class MemoryDivisor(Rule):
    """
    ## What it does
    Finds divisions by GPU memory figures such as `torch.cuda.memory_allocated()`. The rule follows the figures through
    variables and arithmetic.

    ## Why it matters
    Without CUDA, these figures are 0, so the division raises a `ZeroDivisionError`.

    ## Example
    ```python
    before = torch.cuda.memory_allocated() / 2**20
    run()
    print(torch.cuda.max_memory_allocated() / 2**20 / before)
    ```

    ## Use instead
    ```python
    before = torch.cuda.memory_allocated() / 2**20
    run()
    print(torch.cuda.max_memory_allocated() / 2**20 / (before if torch.cuda.is_available() else 1))
    ```

    ## Fix safety
    The fix is safe if the program only prints or logs the quotient. With CUDA, the quotient is the same as before, and
    without CUDA, the program divides by 1. For any other use, the fix is unsafe, because the program may base a
    decision on a figure that means nothing on a CPU.
    """

    code = "DF420"
    name = "memory-divisor"
    summary = "A number is divided by a GPU memory figure, which is 0 without CUDA"
    words = (b"memory_allocated", b"memory_reserved", b"memory_cached")
    INVALID = (
        Example(
            "a ratio that is printed",
            before="""
                import torch

                plain = torch.cuda.memory_allocated("cuda:0") // 1024 / 1024
                quantize()
                small = torch.cuda.memory_allocated("cuda:0") // 1024 / 1024
                print("ratio: {:.2f}%".format(small / plain * 100))
            """,
            after="""
                import torch

                plain = torch.cuda.memory_allocated("cuda:0") // 1024 / 1024
                quantize()
                small = torch.cuda.memory_allocated("cuda:0") // 1024 / 1024
                print("ratio: {:.2f}%".format(small / (plain if torch.cuda.is_available() else 1) * 100))
            """,
        ),
        Example(
            "a share that decides",
            before="""
                import torch

                def batches(used):
                    return int(used / torch.cuda.max_memory_reserved())
            """,
            after="""
                import torch

                def batches(used):
                    return int(used / (torch.cuda.max_memory_reserved() if torch.cuda.is_available() else 1))
            """,
            unsafe=True,
        ),
    )
    VALID = (
        Example(
            "a figure that is divided",
            """
                import torch

                print(torch.cuda.max_memory_allocated() / 2**30)
                print("%d bytes" % torch.cuda.memory_allocated())
            """,
        ),
        Example(
            "a figure that the program asks about",
            """
                import torch

                used = torch.cuda.memory_allocated()
                if used > 0:
                    print(peak / used)
                share = peak / used if used else 0
                rest = peak / (torch.cuda.memory_reserved() or 1) + peak / max(used, 1) + peak / (used + 1e-9)
                try:
                    print(peak / used)
                except ZeroDivisionError:
                    print("no memory")
            """,
        ),
        Example(
            "under a guard",
            """
                import torch

                if torch.cuda.is_available():
                    print(peak / torch.cuda.memory_allocated())
            """,
        ),
    )

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._uses = Forwards(context.facts, zero=True)
        self._reported: set[ast.AST] = set()

    def visit_Module(self, node: ast.Module) -> Iterator[Finding]:
        # The line of a division may hold no word that it is visited for.
        for figure in self.facts.tree.nodes_with("memory_allocated(", "memory_reserved(", "memory_cached("):
            if isinstance(figure, ast.Call) and self.facts.call(figure, *MEMORY_FIGURES):
                for divisor in () if self.facts.is_guarded(figure) else self._divisors(figure):
                    if divisor not in self._reported:
                        self._reported.add(divisor)
                        yield self._found(divisor, self.facts.resolve(figure.func) or "")

    def _found(self, divisor: ast.expr, name: str) -> Finding:
        why = "" if self._is_shown(divisor) else "the divisor may be something else"
        fix = self.context.when_cuda(divisor, "1", why, of_cuda=True)
        return self.finding(
            divisor, f"`{name}` returns 0 without CUDA; divide by it only if CUDA is available", fix
        )

    def _divisors(self, figure: ast.expr) -> Iterator[ast.expr]:
        """Yield the expressions that something is divided by, and that are 0 where a figure is."""
        todo = [figure]
        zeros: set[ast.AST] = set()
        while todo and len(zeros) < _STEPS:
            node = todo.pop()
            if node in zeros:
                continue
            zeros.add(node)
            for use in self._uses.of(node).uses:
                parent = self.facts.tree.parents.get(use)
                match parent:
                    case ast.BinOp(op=op, right=right) if right is use and isinstance(op, _DIVISIONS):
                        if not (_is_text(parent.left) or self._copes(use)):
                            yield use
                    case ast.BinOp() if self._is_zero(parent, use):
                        todo.append(parent)
                    case ast.Call(func=ast.Name(id=name), args=[first, *_]) if name in _SAME and first is use:
                        todo.append(parent)

    def _is_zero(self, node: ast.BinOp, operand: ast.expr) -> bool:
        """Return whether an operation on a number that is 0 is 0 as well."""
        match node.op:
            case ast.Mult():
                return True
            case ast.Div() | ast.FloorDiv() | ast.RShift():
                return node.left is operand
        return False

    def _copes(self, divisor: ast.expr) -> bool:
        """Return whether the program asks about a divisor before it divides, or handles the error."""
        if self.facts.is_guarded(divisor):
            return True
        if self.facts.guards.refusals.handlers(divisor, "ZeroDivisionError"):
            return True
        path = dotted(divisor)
        return path is not None and any(
            isinstance(parent, (ast.If, ast.IfExp, ast.While))
            and child is not parent.test
            and any(dotted(part) == path for part in walk(parent.test) if isinstance(part, ast.expr))
            for child, parent in self.facts.tree.ancestors(divisor)
        )

    def _is_shown(self, divisor: ast.expr) -> bool:
        """Return whether the quotient is only printed or logged."""
        for child, parent in self.facts.tree.ancestors(divisor):
            match parent:
                case ast.BinOp() | ast.FormattedValue() | ast.JoinedStr() | ast.keyword():
                    continue
                case ast.Call(func=function) if child is not function:
                    shows = last_name(function) in SHOWS
                    if shows and isinstance(self.facts.tree.parents.get(parent), ast.Expr):
                        return True
                    if last_name(function) not in ("format", *_SAME):
                        return False
                case _:
                    return False
        return False


def _is_text(node: ast.expr) -> bool:
    """Return whether an expression is a text, which `%` formats."""
    return isinstance(node, ast.JoinedStr) or (
        isinstance(node, ast.Constant) and isinstance(node.value, (str, bytes))
    )
