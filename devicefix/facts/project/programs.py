"""Find what a file runs with: CUDA, forks, variables that are set late, replaced functions, low precision."""

from __future__ import annotations

import os.path
import re
from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import TypeVar

from devicefix.facts.exports import Export, autocasts, default_devices, has_low_precision
from devicefix.facts.exports.environment import (
    BY_TEXT,
    asks_on_import,
    imported_early,
    late_functions,
    readers,
)
from devicefix.facts.exports.forks import UNKNOWN, Named, forked
from devicefix.facts.exports.imports import guarded_imports, needed_imports
from devicefix.facts.exports.patches import patched_names, replaces_question
from devicefix.facts.module import OTHERS
from devicefix.facts.project.file import ProjectFile
from devicefix.facts.project.files import Files, closure
from devicefix.facts.project.questions import remembered

Value = TypeVar("Value")

_CALL = rb"%b(?<!def %b)\s*\("  # it begins with the name, which is found fast
_RUNNERS = 100  # files that may run a file
_REACHED = 500  # functions and values that processes may lead to
# What kernels are written in, and what runs models compiled for CUDA: the importing files have no other path.
_KERNELS = re.compile(r"(triton|tensorrt|tensorrt_llm|pycuda|cupy|xfuser|vllm\.worker\.worker)(?![^.])")


class Programs(Files):
    """The files of a project that run together."""

    @remembered
    def serves_others(self, path: str) -> bool:
        """Return whether a file imports code for other accelerators, or is imported by such code."""
        path = os.path.normpath(path)
        # An `__init__.py` only passes on the names of its package.
        importing = [each for each in self._importers.get(path, ()) if not each.endswith("__init__.py")]
        own = any(self.files[each].holds(OTHERS) for each in importing)
        return own or any(map(self.imports_others, (path, *importing)))

    @remembered
    def imports_others(self, path: str) -> bool:
        """Return whether what a file imports, or reads of a module, is defined where one is named."""
        file = self.file(path)
        if file is None:
            return False
        for name in file.imports:
            parts = [name]
            if self.find(path, name) is not None:
                read = rb"(?<![\w.])%b\.(\w+)" % re.escape(name.rpartition(".")[2].encode())
                parts = [f"{name}.{part.decode()}" for part in {*re.findall(read, file.data)}]
            defined = (self.definition(path, each) for each in parts)
            if any(each is not None and each[0].holds(OTHERS) for each in defined):
                return True
        return False

    @remembered
    def is_guarded(self, path: str) -> bool:
        """Return whether a file runs only where CUDA is available: no other import leads to it."""
        path, guards = os.path.normpath(path), set[str]()
        return path in self.files and not self._is_run(path, {path}, guards) and bool(guards)

    def _is_run(self, path: str, seen: set[str], guards: set[str]) -> bool:
        """Return whether a file runs without CUDA, too: as a program, or because a file that does imports it.

        Args:
            path: the file.
            seen: the files that were looked at; if they are too many, it may run.
            guards: gets the files that import one of these only with CUDA.
        """
        # Each import of what is in a package runs its `__init__.py` first.
        file, folder = self.files[path], path.removesuffix("__init__.py")
        inside = {each for each in self.files if folder != path and each.startswith(folder)}
        runners = (self._importers.get(path, set()) | inside) - {path}
        if not runners or file.holds(b"__main__") or len(seen) > _RUNNERS:
            return True
        for each in runners - seen:
            own = self.files[each]
            imports = (module for module in own.imports if module not in own.export(guarded_imports))
            if each not in inside and not any(self.find(each, module) is file for module in imports):
                guards.add(each)
            elif each not in seen:
                seen.add(each)
                if self._is_run(each, seen, guards):
                    return True
        return False

    @remembered
    def needs_cuda(self, path: str) -> list[str]:
        """Return an import that a file can't be imported without, and the library behind it that needs CUDA.

        The import is empty for a part of a package that needs one. Other files need nothing.
        """
        return self._needing.get(os.path.normpath(path), [])

    @cached_property
    def _needing(self) -> dict[str, list[str]]:
        found = {path: need for path, file in self.files.items() if (need := self._kernel_of(file))}
        # Triton can be imported without a GPU: only the file with the kernels needs one, and their tests.
        todo = [path for path, (_, library) in found.items() if library != "triton"]
        for path in todo:  # it grows meanwhile
            for each, name in self._in_need_of(self.files[path]):
                if each not in found:
                    found[each] = [name, found[path][1]]
                    todo.append(each)
        for path in sorted(found.keys() - {*todo}):
            users = self._in_need_of(self.files[path])
            tests = (user for user in users if os.path.basename(user[0]).startswith("test_"))
            found |= {each: [name, "triton"] for each, name in tests if each not in found}
        return found

    def _kernel_of(self, file: ProjectFile) -> list[str]:
        """Return what a file needs by itself: a library, or a compiled extension of the project."""
        libraries = {name: match[1] for name in file.imports if (match := _KERNELS.match(name))}
        libraries |= self.imported_extensions(file.path)
        names = file.export(needed_imports) if libraries else ()
        own = ([name, libraries[name]] for name in names if name in libraries)
        return next((each for each in own if not self.replaces_library(file.path, each[1])), [])

    def _in_need_of(self, file: ProjectFile) -> Iterator[tuple[str, str]]:
        """Yield the files that need a file, each with the import, which is empty for parts of its package."""
        for path in sorted(self._importers.get(file.normal, ())):
            names = self.files[path].export(needed_imports)
            yield from ((path, name) for name in names if self.find(path, name) is file)
        folder = file.normal.removesuffix("__init__.py")
        for path, part in self.files.items() if folder != file.normal else ():
            if path.startswith(folder) and self._importers.get(path) and not part.holds(b"__main__"):
                yield path, ""

    @remembered
    def is_late(self, path: str) -> bool:
        """Return whether a file must not ask for CUDA on import: a variable of the driver is set later."""
        return os.path.normpath(path) in self._late

    @remembered
    def late_functions(self, path: str) -> list[str]:
        """Return the functions of other files of the program that set a variable of the driver."""
        path = os.path.normpath(path)
        late = (names for file, names in self.exporting(late_functions) if file.normal != path)
        return sorted({name for names in late for name in names if name}) if path in self._late else []

    @remembered
    def sets_on_import(self, path: str, module: str) -> bool:
        """Return whether a module that the file at `path` imports sets a variable of the driver on import."""
        file = self.find(path, module)
        return file is not None and "" in file.export(late_functions)

    @remembered
    def may_fork(self, path: str) -> bool:
        """Return whether a file that runs with one may fork processes, as far as its words show."""
        forking = {file.normal for file in self.holding(*forked.words)}
        return bool(forking) and not forking.isdisjoint(self._together({os.path.normpath(path)}))

    @remembered
    def asks_on_import(self, path: str, module: str) -> bool:
        """Return whether a module that the file at `path` imports asks for CUDA on import."""
        file = self.find(path, module)
        return file is not None and file.export(asks_on_import)

    @remembered
    def is_forked(self, path: str) -> bool:
        """Return whether a file must not ask for CUDA on import: processes are forked later."""
        return self._starts_any(self._together({os.path.normpath(path)}))

    @remembered
    def starts_forks(self, path: str, name: str | None) -> bool:
        """Return whether a function may fork processes: a file forks that its own file imports, or is.

        Args:
            path: the file that calls the function.
            name: the function's full name by the imports of that file; None for one of the file itself.
        """
        target = self.file(path) if name is None else self.find(path, name)
        return target is not None and self._starts_any(closure({target.normal}, self._imported))

    def _starts_any(self, among: frozenset[str]) -> bool:
        """Return whether one of some files forks processes that may use CUDA."""
        return any(each.normal in among and self.forks(each.normal) for each in self.holding(*forked.words))

    @remembered
    def forks(self, path: str) -> bool:
        """Return whether a file forks processes that may use CUDA."""
        return self._use_cuda(self.files[path], self.files[path].export(forked))

    @remembered
    def is_patched(self, path: str, name: str) -> bool:
        """Return whether a file runs with one that replaces a function or method of torch."""
        replacing = (file for file, names in self.exporting(patched_names, name) if name in names)
        start = {path for file in replacing for path in self._run_by(file.normal)}
        return os.path.normpath(path) in self._together(start)

    @remembered
    def replaces_question(self, path: str) -> bool:
        """Return whether a file runs with one that replaces `torch.cuda.is_available`."""
        replacing = {file.normal for file, _ in self.exporting(replaces_question)}
        return os.path.normpath(path) in self._together(replacing)

    @remembered
    def has_low_precision(self, path: str) -> bool:
        """Return whether the other files that import a file, or any that these import, have low precision."""
        found = self._exported_around(path, has_low_precision)
        return any(file.normal != os.path.normpath(path) for file, _ in found)

    @remembered
    def autocasts(self, path: str) -> list[str]:
        """Return what the files that are used together with one have autocast for."""
        return sorted({each for _, found in self._exported_around(path, autocasts) for each in found})

    @remembered
    def default_devices(self, path: str) -> list[str]:
        """Return how the files that are used together with one set the device of new tensors."""
        return sorted({each for _, found in self._exported_around(path, default_devices) for each in found})

    @remembered
    def is_mentioned_around(self, path: str, name: str) -> bool:
        """Return whether another file that is used together with one holds a name."""
        path = os.path.normpath(path)
        holding = {file.normal for file in self.mentioning(name)} - {path}
        return bool(holding) and not holding.isdisjoint(self._together({path}))

    def _exported_around(self, path: str, asked: Export[Value]) -> Iterator[tuple[ProjectFile, Value]]:
        """Yield the files that are used together with one and export something, each with what that is."""
        found = list(self.exporting(asked))
        together = self._together({os.path.normpath(path)}) if found else frozenset()
        return ((file, value) for file, value in found if file.normal in together)

    @cached_property
    def _late(self) -> frozenset[str]:
        early = (
            self.find(file.path, name) for file, names in self.exporting(imported_early) for name in names
        )
        found = closure({file.normal for file in early if file is not None}, self._imported)
        for file, names in self.exporting(late_functions):
            for program in self._programs(file.normal):
                if not program <= found and self._may_call(program, names):
                    found |= program
        return found

    def _programs(self, path: str) -> Iterator[frozenset[str]]:
        """Yield the programs with a file: what is imported by each that imports it and is in no other."""
        importing, inside = self._importing(path), set[str]()
        for each in sorted(importing, key=lambda each: len(self._importers.get(each, ()))):
            if each not in inside:
                program = closure({each}, self._imported)
                inside |= program
                yield program

    def _may_call(self, program: frozenset[str], names: frozenset[str]) -> bool:
        """Return whether a program may call a function: code that runs on import leads to its name.

        What no file of the project names is called from elsewhere, and a text may name any function.
        """
        todo = sorted(names)
        for name in todo:  # which grows
            files = self.mentioning(name) if name else ()
            outer = [each for each in files if each.normal not in program]
            inner = [each for each in files if each.normal in program or each.normal.endswith("setup.py")]
            own = {reader for each in inner for reader in self._readers(each, name)}
            if "" in own or not (own or any(self._readers(each, name) for each in outer)):
                return True
            todo += sorted(own.difference(todo))
        return any(self.files[each].holds(BY_TEXT) for each in program)

    def _readers(self, file: ProjectFile, name: str) -> frozenset[str]:
        """Return the functions and classes of a file whose code reads a name; see `readers`."""
        file.is_followed = True
        if (key := (file.normal, name)) not in self._read_by:
            facts = file.facts
            self._read_by[key] = frozenset({""}) if facts is None else readers(facts, name)
        return self._read_by[key]

    @cached_property
    def _read_by(self) -> dict[tuple[str, str], frozenset[str]]:
        """The answers of `_readers`, which every program of a large project asks for."""
        return {}

    def _use_cuda(self, file: ProjectFile, names: frozenset[Named]) -> bool:
        """Return whether one of the things that processes run may use CUDA, as a file names them.

        If they lead to too many functions and values, one of these may.
        """
        todo, seen, asked = [(file, name) for name in names], set[tuple[str, Named]](), 0
        while todo and UNKNOWN not in names:
            file, name = todo.pop()
            if (key := (file.normal, name)) not in seen:
                seen.add(key)
                for other, own in self._named_in(file, name):
                    names, asked = self.reached(other, own), asked + 1
                    if UNKNOWN in names or asked > _REACHED:
                        return True
                    todo += ((other, each) for each in names)
                todo.sort(key=lambda each: (bool(each[1].parameter), each[1]), reverse=True)
        return UNKNOWN in names

    @cached_property
    def _callers(self) -> dict[tuple[str, str], list[ProjectFile]]:
        """The files that call a function, by its file and its name."""
        return {}

    def _named_in(self, file: ProjectFile, named: Named) -> Iterator[tuple[ProjectFile, Named]]:
        """Yield the files that bind a name of a file, or call a function of it, with the name there."""
        if named.parameter:
            key = file.normal, named.name
            if key not in self._callers:
                own = named.name.encode()
                called = re.compile(_CALL % (re.escape(own), re.escape(own)))
                users = map(self.files.__getitem__, self._importing(file.normal))
                self._callers[key] = [each for each in users if each.holds(own) and each.holds(called)]
            yield from ((each, named) for each in self._callers[key])
        elif found := self.definition(file.path, named.name):
            yield found[0], named._replace(name=found[1])

    def _run_by(self, path: str) -> Iterable[str]:
        """Return a file, or all of its folder: pytest runs `conftest.py` before them."""
        folder, name = os.path.split(path)
        if name != "conftest.py":
            return (path,)
        return [file for file in self.files if file.startswith(os.path.join(folder, ""))]
