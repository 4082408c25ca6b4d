"""The process that runs a notebook: one cell after the other in the module `__main__`, as Jupyter does.

Commands of IPython run in IPython if the program's Python has it. Those that only concern the display or the
time are left out.
"""

from __future__ import annotations
import __future__ as future

import ast
import asyncio
import builtins
import inspect
import linecache
import os
import re
import sys
import traceback
from functools import partial
from importlib.util import find_spec
from types import CodeType, ModuleType
from typing import Any

from devicefix.verify.runtime import errors
from devicefix.verify.runtime.events import Events
from devicefix.verify.runtime.modules import Modules
from devicefix.verify.runtime.plan import VARIABLE, Plan

CELL = "__devicefix_cell__"
_SHOW = "__devicefix_show__"
_COMMAND = re.compile(r"__magic_(\d+)")
_END = re.compile(r"__cell_\d+")
_LEFT_OUT = re.compile(
    r"\s*%{1,2}(autoreload|capture|config|debug|load_ext|matplotlib|memit|prun|pylab|reload_ext|time|timeit)\b"
    r"|\s*\?|.*\?\s*$"
)
_FUTURE = sum(getattr(future, name).compiler_flag for name in future.all_feature_names)


CELL_NAME = re.compile(r"(?P<path>.*\.ipynb):cell (?P<cell>\d+)", re.S)


def cell_name(path: str, number: int) -> str:
    """Return the file name of the code of a cell."""
    return f"{path}:cell {number}"


class Notebook:
    """A notebook that runs.

    Args:
        plan: the plan of the run.
        modules: compiles the cells.
        main: the module in which the cells run.
    """

    def __init__(self, plan: Plan, modules: Modules, main: ModuleType) -> None:
        self._modules = modules
        self._path: str = plan.notebook["path"]
        self._source: str = plan.notebook["source"]
        self._lines: list[tuple[int, int]] = plan.notebook["lines"]
        self._commands: list[str] = plan.notebook["commands"]
        self._cells: dict[str, str] = plan.notebook["cells"]
        self._main = main
        self._flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
        self._loop: asyncio.AbstractEventLoop | None = None
        self._shell: Any = None

    def run(self) -> None:
        """Run all cells."""
        for key, text in self._cells.items():
            name = cell_name(self._path, int(key))
            linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
        for number, _ in enumerate(self._commands):
            setattr(builtins, f"__magic_{number}", partial(self._command, number))  # see `files.notebook`
        setattr(builtins, CELL, self._other)
        setattr(builtins, _SHOW, sys.displayhook)  # called from the cell, so that the values are compared
        builtins.get_ipython = self._get_ipython  # type: ignore[attr-defined]
        cell: list[ast.stmt] = []
        for statement in self._tree().body:
            if _called(statement, _END):
                self._run(cell)
                cell = []
            else:
                cell.append(statement)

    def _tree(self) -> ast.Module:
        tree = self._modules.tree(self._path)
        if tree is not None:
            return tree
        with open(self._source, encoding="utf-8", newline="") as file:
            return ast.parse(file.read())

    def _run(self, cell: list[ast.stmt]) -> None:
        if not cell:
            return
        number = self._lines[cell[-1].lineno - 1][0]
        name = cell_name(self._path, number)
        nodes = [node for statement in cell for node in ast.walk(statement)]
        for node in nodes:
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                if _COMMAND.fullmatch(node.func.id):
                    node.args = []  # a name that is not defined
        for node in nodes:
            if hasattr(node, "lineno"):
                node.lineno = self._lines[node.lineno - 1][1]
                last = self._lines[node.end_lineno - 1][1]  # type: ignore[attr-defined]
                node.end_lineno = max(node.lineno, last)  # type: ignore[attr-defined]
            if isinstance(node, ast.stmt) and _called(node, _COMMAND):
                node.value.args = [ast.Constant(True)]  # type: ignore[attr-defined]
                ast.fix_missing_locations(node)
        final = cell[-1]
        if isinstance(final, ast.Expr) and not self._cells[str(number)].rstrip().endswith(";"):
            final.value = ast.Call(ast.Name(_SHOW, ast.Load()), [final.value], [])
            ast.fix_missing_locations(ast.copy_location(final.value, final))
        self._execute(ast.Module(cell, []), name)

    def _execute(self, tree: ast.Module | str, name: str) -> None:
        code: CodeType = compile(tree, name, "exec", self._flags, dont_inherit=True)
        self._flags |= code.co_flags & _FUTURE
        result = eval(code, self._main.__dict__)
        if code.co_flags & inspect.CO_COROUTINE:
            self._loop = self._loop or asyncio.new_event_loop()
            self._loop.run_until_complete(result)

    def _other(self, number: int) -> None:
        """Run a cell that is not rewritten: with a command such as `%%bash`, or one that does not parse."""
        text = self._cells[str(number)]
        if text.lstrip().startswith("%%"):
            text = self._transformed(text)
        self._execute(text, cell_name(self._path, number))

    def _command(self, number: int, bare: bool = False) -> Any:
        """Run a command of IPython, and return its value if that is used."""
        text = self._commands[number]
        if _LEFT_OUT.match(text):
            return None
        if bare:
            self._execute(self._transformed(text.strip()), "<ipython>")
            return None
        self._execute(self._transformed(f"__devicefix_value__ = {text.strip()}"), "<ipython>")
        return self._main.__dict__.pop("__devicefix_value__")

    def _transformed(self, text: str) -> str:
        self._ipython(text)
        from IPython.core.inputtransformer2 import TransformerManager

        return str(TransformerManager().transform_cell(text))  # type: ignore[no-untyped-call]

    def _get_ipython(self) -> Any:
        """Return the shell of IPython.

        Raises:
            NameError: there is no IPython, and the caller is a library, which asks whether there is.
        """
        caller = sys._getframe(1).f_code.co_filename
        if CELL_NAME.fullmatch(caller) is None and find_spec("IPython") is None:
            raise NameError("name 'get_ipython' is not defined", name="get_ipython")
        return self._ipython()

    def _ipython(self, command: str = "get_ipython()") -> Any:
        """Return the shell of IPython, which runs commands in the notebook's module."""
        if self._shell is None:
            try:
                from IPython.core.interactiveshell import InteractiveShell
                from traitlets.config import Config
            except ImportError:
                what = f"`{command.strip().splitlines()[0]}` needs IPython, which is not installed"
                raise ModuleNotFoundError(what, name="IPython") from None
            config = Config()
            config.HistoryManager.enabled = False
            hook, display = sys.excepthook, sys.displayhook
            self._shell = InteractiveShell.instance(config=config, user_module=self._main)
            sys.excepthook, sys.displayhook = hook, display
        return self._shell


def _called(statement: ast.stmt, name: re.Pattern[str]) -> bool:
    """Return whether a statement is a call of a function with such a name."""
    call = statement.value if isinstance(statement, ast.Expr) else None
    return (
        isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and bool(name.fullmatch(call.func.id))
    )


def main() -> None:
    """Run the notebook of the plan. The arguments are its path, and those of the program."""
    del sys.argv[0]
    sys.path[0] = ""  # the current folder, which a notebook may change, as in Jupyter
    module = ModuleType("__main__")
    sys.modules["__main__"] = module
    os.environ.setdefault("MPLBACKEND", "Agg")
    plan = Plan.load(os.environ[VARIABLE])
    events = Events(plan.events, plan.watch)
    sys.excepthook = traceback.print_exception  # Python's own does not know the lines of cells
    errors.install(events)
    Notebook(plan, Modules(plan, events), module).run()


if __name__ == "__main__":
    main()
