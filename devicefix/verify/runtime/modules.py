"""Import hooks that run the user's modules rewritten: imported modules, the script, and files run by `runpy`.

The hook is in the step where Python's loader compiles a file, not in the search for modules. So it works for
`import`, for loaders that a program creates itself (`importlib.util.spec_from_file_location`), and together
with other import hooks.
"""

from __future__ import annotations

import ast
import hashlib
import importlib.abc
import importlib.machinery
import importlib.util
import os
import runpy
import sys
from types import CodeType, ModuleType
from typing import Any

from devicefix.verify.runtime import errors, lines, probes
from devicefix.verify.runtime.events import Events
from devicefix.verify.runtime.plan import Plan, Source
from devicefix.verify.runtime.site import Sites


class Modules:
    """Compiles the user's files.

    Args:
        plan: the rewritten files, and what the fixes made in them.
        events: the recorder of modules and fixes that run.
    """

    def __init__(self, plan: Plan, events: Events) -> None:
        self._plan = plan
        self._events = events
        self._compiled: set[str] = set()

    def rewritten(self, path: str) -> Source | None:
        """Return the source to run instead of a file; None for one that the program has changed since."""
        source = self._plan.rewritten.get(os.path.realpath(path))
        same = source and hashlib.sha256(self._content(path)).hexdigest() == source.digest
        return source if same else None

    def _content(self, path: str) -> bytes:
        """Return the Python source of a file: that of a notebook holds its cells."""
        notebook = self._plan.notebook
        with open(notebook["source"] if path == notebook.get("path") else path, "rb") as file:
            return file.read()

    def text(self, source: Source) -> str:
        """Return the text of a rewritten source."""
        with open(source.path, "rb") as file:
            return importlib.util.decode_source(file.read())

    def tree(self, path: str) -> ast.Module | None:
        """Return the tree to compile for a file, or None if it is not rewritten.

        Args:
            path: the path to put into the code object.
        """
        source = self.rewritten(path)
        if source is None:
            return None
        text = self.text(source)
        tree = ast.parse(text, path)
        old, new = importlib.util.decode_source(self._content(path)).split("\n"), text.split("\n")
        real = os.path.realpath(path)
        if self._plan.watch:
            probes.insert(tree, source.places, new, real)
        lines.restore(tree, source.origins, old, new)
        if real not in self._compiled:
            self._compiled.add(real)
            self._events.emit("module", file=real)
        return tree

    def code(self, path: str) -> CodeType | None:
        """Return the code to run for a file, or None if it is not rewritten."""
        tree = self.tree(path)
        return None if tree is None else compile(tree, path, "exec", dont_inherit=True)


def install(plan: Plan, events: Events, sites: Sites) -> Modules:
    """Make this process run the user's modules as the plan says.

    Args:
        plan: the plan of the run.
        events: the recorder of events.
        sites: finds the user's modules.
    """
    modules = Modules(plan, events)
    probes.install(lambda path, places: events.emit("fix", file=path, places=places))
    _hook_loader(modules)
    _hook_run_path(modules)
    script = os.path.realpath(sys.argv[0]) if sys.argv else ""
    if script.endswith((".py", ".pyw")) and os.path.isfile(script) and sites.is_project(script):
        _hook_script(script, modules, events)
    return modules


def _hook_loader(modules: Modules) -> None:
    loader = importlib.machinery.SourceFileLoader
    get_code = loader.get_code

    def rewritten(self: importlib.machinery.SourceFileLoader, fullname: str) -> CodeType | None:
        return modules.code(self.get_filename(fullname)) or get_code(self, fullname)

    # Python removes the frames of its import system from tracebacks, up to a function of this name.
    rewritten.__code__ = rewritten.__code__.replace(
        co_filename="<frozen importlib._bootstrap>", co_name="_call_with_frames_removed"
    )
    loader.get_code = rewritten  # type: ignore[assignment, method-assign]


def _hook_run_path(modules: Modules) -> None:
    """Patch `runpy.run_path`, which reads files itself, and which `multiprocessing` uses."""
    get_code: Any = runpy._get_code_from_file  # type: ignore[attr-defined]

    def rewritten(*arguments: str) -> Any:
        code = modules.code(arguments[-1])
        found = get_code(*arguments)
        if code is None:
            return found
        return (code, *found[1:]) if isinstance(found, tuple) else code  # depends on the version

    runpy._get_code_from_file = rewritten  # type: ignore[attr-defined]


def _hook_script(script: str, modules: Modules, events: Events) -> None:
    """Make Python run its script with `_Script`, once.

    Python first asks `sys.path_hooks` whether the script can be imported from, as a zip file can.
    """

    def hook(path: str) -> _Script:
        if os.path.realpath(path) != script:
            raise ImportError(path)
        loader = importlib.machinery.SourceFileLoader("__main__", path)
        try:
            code = modules.code(path) or loader.get_code("__main__")
        except Exception as problem:  # Python has errors of its own for a script that it cannot compile
            raise ImportError(path) from problem
        assert code is not None  # `get_code` returns code or raises
        sys.path_hooks.remove(hook)
        return _Script(path, code, events)

    sys.path_hooks.insert(0, hook)


class _Script(importlib.abc.PathEntryFinder, importlib.abc.InspectLoader):
    """A loader that runs one of the user's files as `python FILE` does."""

    def __init__(self, path: str, code: CodeType, events: Events) -> None:
        self.path = path
        self.code = code
        self.events = events

    def find_spec(
        self, fullname: str, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Return the spec of `__main__`."""
        if fullname != "__main__":
            return None
        return importlib.machinery.ModuleSpec(fullname, self, origin=self.path)

    def get_source(self, fullname: str) -> str:
        """Return the source of the script."""
        with open(self.path, "rb") as file:
            return importlib.util.decode_source(file.read())

    def get_code(self, fullname: str) -> CodeType:
        """Return code that calls `run`."""
        sys.modules["__devicefix_script__"] = self  # type: ignore[assignment]
        return compile("import __devicefix_script__; __devicefix_script__.run()", __file__, "exec")

    def run(self) -> None:
        """Run the script in the module `__main__`, set up as Python would."""
        del sys.modules["__devicefix_script__"]
        main = sys.modules["__main__"].__dict__
        main.pop("__devicefix_script__", None)
        _set_first_path(self.path)
        sys.path_importer_cache.pop(self.path, None)
        loader = importlib.machinery.SourceFileLoader("__main__", self.path)
        main.update(__file__=self.path, __loader__=loader, __package__=None, __spec__=None, __cached__=None)
        try:
            exec(self.code, main)
        except BaseException as problem:
            errors.emit(self.events, problem)
            raise


def _set_first_path(script: str) -> None:
    """Replace the script in `sys.path` by its folder, as Python does: without links, except on Windows."""
    if getattr(sys.flags, "safe_path", False):
        del sys.path[0]
    else:
        full = os.path.abspath if os.name == "nt" else os.path.realpath
        sys.path[0] = os.path.dirname(full(script))
