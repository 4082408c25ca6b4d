"""How a module is laid out: where its imports end, and where a line of ours goes."""

from __future__ import annotations

import ast
import re
from functools import cached_property

from devicefix.facts import Facts, dotted
from devicefix.files.notebook.markers import CELL_END, MAGIC
from devicefix.model import Import
from devicefix.rewrite.blocks import alone

_AMONG_IMPORTS = ("sys.", "os.", "warnings.", "matplotlib.", "mpl.", "print", "logging.", MAGIC)
_OF_DEVICES = re.compile(r"^[^#\r\n]*(?:cuda|device|\.to\()", re.M)


class Layout:
    """Where lines are inserted into one module."""

    def __init__(self, facts: Facts) -> None:
        self.facts = facts
        self._last_on_line: dict[ast.stmt, ast.stmt] = {}

    @cached_property
    def _prologue_statement(self) -> ast.stmt | None:
        """The statement after which an import may be added: the docstring and `__future__` imports."""
        place = None
        for statement in self.facts.tree.module.body:
            if (
                _docstring(statement)
                or _calls(statement, MAGIC)
                or (isinstance(statement, ast.ImportFrom) and statement.module == "__future__")
            ):
                place = statement
            else:
                break
        return place

    @cached_property
    def leading_imports(self) -> ast.stmt | None:
        """The last statement of the imports that a module begins with.

        In a notebook, of those that begin with the first import of torch: whoever runs the cells in an order
        of their own has run that one.
        """
        if len(self._cells) == 1:
            return _leading(self.facts.tree.module.body) or self._prologue_statement
        stars = (each for each in reversed(self.facts.tree.module.body) if _imports_all(each))
        first = None if self.torch_comes_late else self.torch_import or next(stars, None)
        blocks = self._cells
        if first is not None:
            blocks = [cell[cell.index(first) :] for cell in blocks if first in cell]
        return next(filter(None, map(_leading, blocks)), self._prologue_statement)

    @cached_property
    def _cells(self) -> list[list[ast.stmt]]:
        """The statements of each of a notebook's cells; of a module all of them."""
        cells: list[list[ast.stmt]] = [[]]
        for statement in self.facts.tree.module.body:
            if _calls(statement, CELL_END):
                cells.append([])
            else:
                cells[-1].append(statement)
        return cells

    def binds_torch(self, statement: ast.stmt) -> bool:
        """Whether a statement of the top level imports torch."""
        if not imports_something(statement):
            return False
        return not self._torch_imports.isdisjoint(ast.walk(statement))

    @cached_property
    def torch_import(self) -> ast.stmt | None:
        """The first statement of the top level that imports torch."""
        return next(filter(self.binds_torch, self.facts.tree.module.body), None)

    @cached_property
    def torch_comes_late(self) -> bool:
        """Whether a notebook has cells with devices before the one that imports torch."""
        if len(self._cells) == 1 or self.torch_import is None:
            return False
        start = self.facts.source.span(self.torch_import)[0]
        return _OF_DEVICES.search(self.facts.source.text, 0, start) is not None

    @cached_property
    def _torch_imports(self) -> set[ast.AST]:
        """The statements that import torch at the top level."""
        bindings = self.facts.tree.root.bindings.values()
        return {each.node for found in bindings for each in found if each.imported == "torch"}

    def import_line(self, needed: Import) -> tuple[int, str]:
        """Where and how an import is inserted: before the first of the same package, else of any."""
        package = "torch" if needed.module == "torch" else ""
        for statement in self.facts.tree.module.body:
            if isinstance(statement, ast.Import):
                name = statement.names[0].name
            elif isinstance(statement, ast.ImportFrom) and statement.module != "__future__":
                name = statement.module or "."
            else:
                continue
            if len(self._cells) > 1 and statement.lineno > getattr(self.leading_imports, "lineno", 0):
                break  # what is defined behind the first imports would come before it
            if name.startswith(package) and alone(self.facts.source, statement):
                return self.facts.source.span(statement)[0], f"{needed.line}{self.facts.source.newline}"
        return self.line_after(self.leading_imports, needed.line, group=False)

    def line_after(self, statement: ast.stmt | None, line: str, group: bool) -> tuple[int, str]:
        """Where and how a line is inserted behind a statement; a group is set off by blank lines."""
        source, newline = self.facts.source, self.facts.source.newline
        if statement is None:
            at = self._prologue_end
            return at, f"{line}{newline}" + (newline if group else "")
        end = self._line_end(statement)
        if not group:
            return end, f"{newline}{line}"
        rest = source.text[end:].splitlines()[1:2]
        gap = newline if rest and rest[0].strip() and not rest[0].startswith(CELL_END) else ""
        return end, f"{newline}{newline}{line}{gap}"

    @cached_property
    def _prologue_end(self) -> int:
        """Behind the comments that a file begins with: `#!`, the encoding, a licence."""
        at = 0
        for line in self.facts.source.text.splitlines(keepends=True):
            if not line.startswith("#"):
                break
            at += len(line)
        return at

    def last_on_line(self, statement: ast.stmt) -> ast.stmt:
        """The statement that ends the lines of a statement: after a semicolon others may follow it."""
        if statement not in self._last_on_line:
            last = statement
            for each in self.facts.tree.block(statement):
                if each.lineno == last.end_lineno:
                    last = each
            self._last_on_line[statement] = last
        return self._last_on_line[statement]

    def _line_end(self, statement: ast.stmt) -> int:
        return self.facts.source.line_end(self.facts.source.span(self.last_on_line(statement))[1])

    def line_in(
        self, function: ast.FunctionDef | ast.AsyncFunctionDef, after: ast.stmt | None, line: str
    ) -> tuple[int, str]:
        """Where and how a line is inserted into a function: at its start, or behind a statement."""
        source, newline = self.facts.source, self.facts.source.newline
        first = function.body[0]
        start = source.span(first)[0]
        indentation = source.indentation(start)
        after = after or (first if _docstring(first) else None)
        if after is not None:
            return self._line_end(after), f"{newline}{indentation}{line}"
        if isinstance(first, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)) and first.decorator_list:
            start = source.span(first.decorator_list[0])[0] - 1
        return start - len(indentation), f"{indentation}{line}{newline}"


def _leading(body: list[ast.stmt]) -> ast.stmt | None:
    """The last of the imports that a block begins with."""
    last = None
    for statement in body:
        if imports_something(statement):
            last = statement
        elif not _among_imports(statement):
            break
    return last


def _imports_all(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.ImportFrom) and statement.names[0].name == "*"


def _calls(statement: ast.stmt, prefix: str) -> bool:
    """Whether a statement calls a function, by a name that begins so, and does nothing else."""
    return (
        isinstance(statement, ast.Expr)
        and isinstance(statement.value, ast.Call)
        and isinstance(statement.value.func, ast.Name)
        and statement.value.func.id.startswith(prefix)
    )


def _docstring(statement: ast.stmt) -> bool:
    return (
        isinstance(statement, ast.Expr)
        and isinstance(statement.value, ast.Constant)
        and isinstance(statement.value.value, str)
    )


def imports_something(statement: ast.stmt) -> bool:
    """An import, or a `try` or `if` that holds nothing but imports and plain settings."""
    if isinstance(statement, (ast.Import, ast.ImportFrom)):
        return True
    chain: list[ast.stmt] = []
    todo = [statement]
    while len(todo) == 1 and isinstance(todo[0], (ast.Try, ast.If)):  # `elif` may go on for long
        chain += todo
        todo = todo[0].orelse
    known: dict[ast.stmt, bool] = {}
    for outer in reversed(chain):
        inner = [each for name in ("body", "orelse", "finalbody") for each in getattr(outer, name, ())]
        inner += [each for handler in getattr(outer, "handlers", ()) for each in handler.body]
        answers = [known[each] if each in known else imports_something(each) for each in inner]
        known[outer] = any(answers) and all(
            answer or _among_imports(each) for answer, each in zip(answers, inner, strict=True)
        )
    return known.get(statement, False)


def _among_imports(statement: ast.stmt) -> bool:
    """What may stand between imports without ending the block of them."""
    if isinstance(statement, ast.Pass) or _docstring(statement):
        return True
    if isinstance(statement, ast.Assign):
        target = statement.targets[0]
        name = dotted(target.value if isinstance(target, ast.Subscript) else target) or ""
        return (
            name.startswith("__")
            or name.endswith(("environ", "sys.path"))
            or isinstance(statement.value, (ast.Constant, ast.Name))
        )
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
        name = dotted(statement.value.func) or ""
        return name.startswith(_AMONG_IMPORTS)
    return False
