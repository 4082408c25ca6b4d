"""The layout of a module: where its imports end, and where new lines go."""

from __future__ import annotations

import ast
import re
import sys
from bisect import bisect_left
from collections.abc import Callable, Iterable
from functools import cached_property
from itertools import takewhile

from devicefix.facts import Facts, dotted
from devicefix.facts.scopes import DEFINITIONS, is_main
from devicefix.files.notebook.markers import CELL_END, INSTALLS, MAGIC
from devicefix.files.text import Source
from devicefix.model import Import
from devicefix.rewrite.lines import alone, begins_line, end_of

_AMONG_IMPORTS = ("sys.", "os.", "warnings.", "matplotlib.", "mpl.", "print", "logging.", MAGIC)
# Comments right below a line that an empty line sets off from what follows, such as imports in comments.
_END = r"(?:\r\n|\r(?!\n)|\n)"
_COMMENTS_BELOW = re.compile(rf"(?:{_END}#(?!\s*(?:%%|In\s*\[))[^\r\n]*)+(?={_END}[ \t]*(?:{_END}|\Z)|\Z)")
# Neither the end of a signature, nor where a cell begins in a script of cells.
_COMMENT = re.compile(r"[ \t]*#(?!\s*(?:type:|%%|In\s*\[))")
_HEADER = re.compile(
    r"(?P<first>(?:#(?:![^\r\n]*|[^\r\n]*coding[:=][^\r\n]*)?(?:\r\n|\r|\n)){0,2})"
    r"(?:#[^\r\n]*(?:\r\n|\r|\n|\Z))*"
)
_LINES_ABOVE_CELLS = 2
_NO_PACKAGES = {"", *sys.stdlib_module_names}
# The libraries whose import a fix puts under a guard, which needs torch.
GUARDED_LIBRARIES = ("flash_attn", "xformers")
_BLANK_LINES = re.compile(r"(?:[ \t]*(?:\r\n|\r|\n))*")
_LICENCE = re.compile(r"copyright|licen[cs]e|SPDX", re.I)
_INSTALLS = re.compile(
    rf"\b(?:pip3?|conda|mamba|uv)\b[^\n]*\binstall\b|\binstall\b[^\n]*\btorch|{MAGIC}\d+\({INSTALLS}\)"
)
_OF_DEVICES = re.compile(r"^[^#\r\n]*(?:cuda|device|\.to\()", re.M)


class Layout:
    """The places in a module at which lines can be inserted.

    Args:
        facts: The module's facts.
        is_own: Whether a module is one of the project.
    """

    def __init__(self, facts: Facts, is_own: Callable[[str], bool] = lambda _: False) -> None:
        self.facts = facts
        self._is_own = is_own
        self._last_on_line: dict[ast.stmt, ast.stmt] = {}
        self._above_imports: dict[Import, ast.stmt | None] = {}

    @cached_property
    def _prologue_statement(self) -> ast.stmt | None:
        """The last of the docstring and the `__future__` imports, after which an import may be added."""
        return _last(takewhile(_is_prologue, self.facts.tree.module.body))

    @cached_property
    def leading_imports(self) -> ast.stmt | None:
        """The last statement of the imports that a module begins with.

        In a notebook these begin with the first import of torch, whose cell runs first in any order of the
        cells, or with one below that installs nothing: users skip an installation the next time. Without an
        import, they are those of the first cell with devices: a cell above it may install torch.
        """
        if len(self._cells) == 1:
            return _leading(self.facts.tree.module.body) or self._prologue_statement
        if self.torch_comes_late:
            return self._above_devices
        if self.torch_import is not None:
            return self._below_torch
        first = next(filter(_imports_all, reversed(self.facts.tree.module.body)), None)
        if first is None:
            return self._above_devices
        blocks = [cell[cell.index(first) :] for cell in self._cells if first in cell]
        return next(filter(None, map(_leading, blocks)), self._prologue_statement)

    @property
    def _below_torch(self) -> ast.stmt | None:
        """The last of the imports that begin with one of torch, or an installation below in their cell."""
        found: list[ast.stmt] = []
        for cell in self._cells:
            above = list(takewhile(lambda statement: not self._has_devices(statement), cell))
            first = next(filter(self.binds_torch, cell), None)
            if first is not None:
                installs = list(filter(self._installs, above))
                leading = _leading(cell[cell.index(first) :]) or first
                place = max([leading, *installs], key=lambda statement: statement.lineno)
                if not installs:
                    return place
                found.append(place)
            if len(above) < len(cell):
                break
        return found[0] if found else self.torch_import

    @property
    def _above_devices(self) -> ast.stmt | None:
        """The statement of a notebook below which what its first devices need can be imported.

        It is the last of the imports and commands that their cell begins with, or an installation below them,
        or else the end of the cell above.
        """
        end: ast.stmt | None = self._prologue_statement
        for cell, cell_end in zip(self._cells, [*self._cell_ends, None], strict=True):
            above = list(takewhile(lambda statement: not self._has_devices(statement), cell))
            if len(above) < len(cell):
                line = cell[len(above)].lineno  # which may begin with `%time`
                lines_above = (each for each in above if each.lineno < line)
                leading = takewhile(lambda each: imports_something(each) or _among_imports(each), lines_above)
                found = [each for each in leading if imports_something(each) or _calls(each, MAGIC)]
                found += (each for each in cell if self._installs(each) and not self._has_devices(each))
                return max(found, key=lambda statement: statement.lineno, default=end)
            end = cell_end
        return self._prologue_statement

    def _has_devices(self, statement: ast.stmt) -> bool:
        """Return whether a statement may use a device; `cuda_version = "12.1"` does not."""
        match statement:
            case ast.Assign(value=ast.Constant(value=str() as text)):
                return text.startswith("cuda")
            case ast.Expr(value=ast.Call(func=ast.Name(id="print"), args=args)) if all(
                isinstance(each, ast.Constant) for each in args
            ):
                return False
            case ast.Expr() | ast.Assign() if self._installs(statement):
                return False
        return _OF_DEVICES.search(self.facts.source.code(statement)) is not None

    def _installs(self, statement: ast.stmt) -> bool:
        """Return whether a statement may install packages, such as `os.system("pip install torch")`."""
        if isinstance(statement, DEFINITIONS):
            return False
        text = self.facts.source.code(statement)
        return _INSTALLS.search(text) is not None or any(f"{name}(" in text for name in self._installers)

    @cached_property
    def _installers(self) -> list[str]:
        """The functions of the notebook that may install packages."""
        functions = [each for each in self.facts.tree.module.body if isinstance(each, DEFINITIONS)]
        return [each.name for each in functions if _INSTALLS.search(self.facts.source.code(each))]

    @cached_property
    def _cell_ends(self) -> list[ast.stmt]:
        """The statements that end the cells of a notebook."""
        return [statement for statement in self.facts.tree.module.body if _calls(statement, CELL_END)]

    @cached_property
    def _cells(self) -> list[list[ast.stmt]]:
        """The statements of each cell of a notebook, or all of a module."""
        cells: list[list[ast.stmt]] = [[]]
        for statement in self.facts.tree.module.body:
            if _calls(statement, CELL_END):
                cells.append([])
            else:
                cells[-1].append(statement)
        return cells

    def binds_torch(self, statement: ast.stmt) -> bool:
        """Return whether a statement of the top level imports torch."""
        if not imports_something(statement):
            return False
        return not self._torch_imports.isdisjoint(ast.walk(statement))

    @cached_property
    def torch_import(self) -> ast.stmt | None:
        """The first statement of the top level that imports torch."""
        return next(filter(self.binds_torch, self.facts.tree.module.body), None)

    @cached_property
    def torch_comes_late(self) -> bool:
        """Return whether a notebook has cells with devices before the one that imports torch."""
        if len(self._cells) == 1 or self.torch_import is None:
            return False
        above = takewhile(lambda statement: statement is not self.torch_import, self.facts.tree.module.body)
        return any(map(self._has_devices, above))

    @cached_property
    def _torch_imports(self) -> set[ast.AST]:
        """The statements that import torch at the top level."""
        bindings = self.facts.tree.root.bindings.values()
        return {binding.node for found in bindings for binding in found if binding.imported == "torch"}

    def import_line(self, needed: Import) -> tuple[int, str]:
        """Return the offset and the text of a new import: above the first of the same package, or of any."""
        package = ("torch", *GUARDED_LIBRARIES) if needed.module == "torch" else ""
        for statement in self.facts.tree.module.body:
            if isinstance(statement, ast.Import):
                name = statement.names[0].name
            elif isinstance(statement, ast.ImportFrom) and statement.module != "__future__":
                name = statement.module or "."
            else:
                continue
            if statement.lineno > getattr(self.leading_imports, "lineno", 0):
                break  # a definition below the first imports would come before it
            if name.startswith(package) and alone(self.facts.source, statement):
                return self._above(statement), f"{needed.line}{self.facts.source.newline}"
        return self._among_others(needed) or self.line_after(self.leading_imports, needed.line, group=False)

    def _among_others(self, needed: Import) -> tuple[int, str] | None:
        """Return the offset and the text of a new import among those of other packages, as isort places it.

        They are the last imports on lines of their own that no other statement interrupts. Imports of the
        standard library, and of the project's own modules, are other groups.
        """
        body, last = self.facts.tree.module.body, self.leading_imports
        block = body[: body.index(last) + 1] if last is not None else []
        others: list[ast.Import | ast.ImportFrom] = []
        for statement in block:
            if not isinstance(statement, (ast.Import, ast.ImportFrom)):
                others = []
            elif alone(self.facts.source, statement) and not _imports_all(statement):
                if self._is_package(statement):
                    others.append(statement)
        plain = [each for each in others if isinstance(each, ast.Import)]
        after = [each for each in plain if each.names[0].name > needed.module]
        if below := after or ([] if plain else others):
            return self._above(below[0]), f"{needed.line}{self.facts.source.newline}"
        return self.line_after(plain[-1], needed.line, group=False) if plain else None

    def _is_package(self, statement: ast.Import | ast.ImportFrom) -> bool:
        """Return whether an import is of a package, not of the standard library or the project."""
        names = [each.name for each in statement.names]
        if isinstance(statement, ast.ImportFrom):
            names = [statement.module or ""] if not statement.level else [""]
        return not any(name.partition(".")[0] in _NO_PACKAGES or self._is_own(name) for name in names)

    def above_import(self, needed: Import) -> ast.stmt | None:
        """Return the last statement of the module above a new import; None at the beginning."""
        if needed not in self._above_imports:
            at, _ = self.import_line(needed)
            body = self.facts.tree.module.body
            index = bisect_left(body, at, key=lambda statement: self.facts.source.span(statement)[0])
            self._above_imports[needed] = body[index - 1] if index else None
        return self._above_imports[needed]

    def line_after(self, statement: ast.stmt | None, line: str, group: bool) -> tuple[int, str]:
        """Return the offset and the text of a new line below a statement.

        Args:
            statement: The statement, None for the beginning of the module.
            line: The line.
            group: Whether blank lines set it off.
        """
        source, newline = self.facts.source, self.facts.source.newline
        if statement is None:
            blank = _BLANK_LINES.match(source.text, self._prologue_end) if group else None
            return blank.end() if blank else self._prologue_end, f"{line}{newline}" + newline * group
        end = self._line_end(statement)
        if not group:
            return end, f"{newline}{line}"
        if (comments := _COMMENTS_BELOW.match(source.text, end)) is not None:
            end = comments.end()
        rest = source.text[end:].splitlines()[1:2]
        gap = newline if rest and rest[0].strip() and not rest[0].startswith(CELL_END) else ""
        return end, f"{newline}{newline}{line}{gap}"

    @cached_property
    def _prologue_end(self) -> int:
        """The end of the comments that a file begins with: `#!`, the encoding, a licence.

        Those directly above the first statement belong to it, unless they are one of these.
        """
        header = _HEADER.match(self.facts.source.text)
        assert header is not None
        body = self.facts.tree.module.body
        explained = body and self.facts.source.position(header.end())[0] == body[0].lineno
        return header.end("first") if explained and not _LICENCE.search(header.group()) else header.end()

    def _above(self, statement: ast.stmt) -> int:
        """Return the start of a statement, or of the comment above that explains it."""
        source = self.facts.source
        decorators = getattr(statement, "decorator_list", None)
        index = source.position(source.span(decorators[0] if decorators else statement)[0])[0] - 1
        is_notebook = len(self._cells) > 1
        top = _LINES_ABOVE_CELLS if is_notebook else 0
        first = index
        while first > top and _is_comment(source, first - 1):
            first -= 1
        explained = is_notebook or first > top  # else it is the header of the file
        return source.line_starts[first if explained else index]

    def last_on_line(self, statement: ast.stmt) -> ast.stmt:
        """Return the last of the statements that share a line with a statement."""
        if statement not in self._last_on_line:
            last = statement
            for sibling in self.facts.tree.block(statement):
                if sibling.lineno == last.end_lineno:
                    last = sibling
            self._last_on_line[statement] = last
        return self._last_on_line[statement]

    def _line_end(self, statement: ast.stmt) -> int:
        return end_of(self.facts.source, self.last_on_line(statement))

    def line_below(self, statement: ast.stmt, line: str) -> tuple[int, str]:
        """Return the offset and the text of a new line below a statement, in its block."""
        return self._line_end(statement), f"{self.facts.source.newline}{self._indentation(statement)}{line}"

    def line_above(self, statement: ast.stmt, line: str) -> tuple[int, str]:
        """Return the offset and the text of a new line above a statement, in its block."""
        return self._above(statement), f"{self._indentation(statement)}{line}{self.facts.source.newline}"

    def _indentation(self, statement: ast.stmt) -> str:
        return self.facts.source.indentation(self.facts.source.span(statement)[0])

    def line_in(
        self, block: list[ast.stmt], after: ast.stmt | None, line: str, above: ast.stmt | None = None
    ) -> tuple[int, str]:
        """Return the offset and the text of a new line in the block of a function, or of an `if`.

        Args:
            block: The statements of the block.
            after: The statement that the line follows; None for the beginning.
            line: The line.
            above: The statement of the block that the line precedes, if it has lines of its own.
        """
        first = block[0]
        if above is not None and begins_line(self.facts.source, above) and not docstring(above):
            return self.line_above(above, line)
        after = after or (first if docstring(first) else None)
        return self.line_above(first, line) if after is None else self.line_below(after, line)


def _is_comment(source: Source, index: int) -> bool:
    """Return whether a line holds only a comment that may explain the line below."""
    return _COMMENT.match(source.text, source.line_starts[index]) is not None


def _leading(body: list[ast.stmt]) -> ast.stmt | None:
    """Return the last of the imports that a block begins with."""
    leading = takewhile(lambda each: imports_something(each) or _among_imports(each), body)
    return _last(filter(imports_something, leading))


def _last(statements: Iterable[ast.stmt]) -> ast.stmt | None:
    return max(statements, key=lambda statement: statement.lineno, default=None)


def _is_prologue(statement: ast.stmt) -> bool:
    """Return whether a statement is a docstring, a command of a notebook or a `__future__` import."""
    if isinstance(statement, ast.ImportFrom):
        return statement.module == "__future__"
    return docstring(statement) or _calls(statement, MAGIC)


def _imports_all(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.ImportFrom) and statement.names[0].name == "*"


def _calls(statement: ast.stmt, prefix: str) -> bool:
    """Return whether a statement only calls a function whose name begins with a prefix."""
    match statement:
        case ast.Expr(value=ast.Call(func=ast.Name(id=name))):
            return name.startswith(prefix)
    return False


def docstring(statement: ast.stmt) -> bool:
    """Return whether a statement is a string alone."""
    match statement:
        case ast.Expr(value=ast.Constant(value=str())):
            return True
    return False


def imports_something(statement: ast.stmt) -> bool:
    """Return whether a statement is an import, or a `try` or `if` with only imports and plain settings."""
    if isinstance(statement, (ast.Import, ast.ImportFrom)):
        return True
    chain: list[ast.stmt] = []
    todo = [statement]
    if is_main(statement):
        return False
    while len(todo) == 1 and isinstance(todo[0], (ast.Try, ast.If)):  # an `elif` chain may be long
        chain += todo
        todo = todo[0].orelse
    known: dict[ast.stmt, bool] = {}
    for outer in reversed(chain):
        inner = [child for name in ("body", "orelse", "finalbody") for child in getattr(outer, name, ())]
        inner += [child for handler in getattr(outer, "handlers", ()) for child in handler.body]
        answers = [known[child] if child in known else imports_something(child) for child in inner]
        others = (child for answer, child in zip(answers, inner, strict=True) if not answer)
        known[outer] = any(answers) and all(map(_among_imports, others))
    return known.get(statement, False)


def _among_imports(statement: ast.stmt) -> bool:
    """Return whether a statement may be between imports without ending their block."""
    if isinstance(statement, ast.Pass) or docstring(statement):
        return True
    if isinstance(statement, ast.Assign):
        target = statement.targets[0]
        name = dotted(target.value if isinstance(target, ast.Subscript) else target) or ""
        is_known = name.startswith("__") or name.endswith(("environ", "sys.path"))
        return is_known or isinstance(statement.value, (ast.Constant, ast.Name))
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
        name = dotted(statement.value.func) or ""
        return name.startswith(_AMONG_IMPORTS) and name not in ("sys.exit", "os._exit", "os.abort")
    return False
