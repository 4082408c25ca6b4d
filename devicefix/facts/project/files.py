"""Find the file that an import reads, and the files that run together."""

from __future__ import annotations

import os.path
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property

from devicefix.facts.exports import Summary
from devicefix.facts.exports.forks import UNKNOWN
from devicefix.facts.project.questions import Questions, remembered


class Files(Questions):
    """The files of a project, by their imports.

    Args:
        summaries: those of the files.
    """

    def __init__(self, summaries: Iterable[Summary]) -> None:
        super().__init__()
        self.files = {os.path.normpath(summary.path): summary for summary in summaries}
        self._found: dict[tuple[str, str], Summary | None] = {}
        self._imported_by_name: dict[str, frozenset[str]] = {}

    @remembered
    def is_late(self, path: str) -> bool:
        """Return whether a file must not ask for CUDA on import: a variable of the driver is set later."""
        return os.path.normpath(path) in self._late

    @remembered
    def late_functions(self, path: str) -> list[str]:
        """Return the functions of other files of the program that set a variable of the driver."""
        path = os.path.normpath(path)
        late = (self.files[file].late for file in self._late if file != path and file in self.files)
        return sorted({name for names in late for name in names if name}) if path in self._late else []

    @remembered
    def is_patched(self, path: str, name: str) -> bool:
        """Return whether a file runs with one that replaces a function or method of torch."""
        return os.path.normpath(path) in self._patched.get(name, ())

    @remembered
    def is_circular(self, path: str) -> bool:
        """Return whether a file is in a circle of imports: others may call it while it is imported."""
        return os.path.normpath(path) in self._circular

    @cached_property
    def _circular(self) -> frozenset[str]:
        """The files in circles of imports, and those that lead from one circle to another."""
        return _endless(self._imported, self._importers) & _endless(self._importers, self._imported)

    @remembered
    def is_only_guarded(self, path: str, name: str) -> bool:
        """Return whether other files use a name of the file at `path`, and only where CUDA is available.

        A package that imports the name passes it on to the files that import the package.
        """
        todo, seen, found = [os.path.normpath(path)], set[str](), False
        while todo:
            file = todo.pop()
            if file in seen:
                continue
            seen.add(file)
            for each in self._importers.get(file, ()):
                importer = self.files[each]
                if name not in self._imported_names(each):
                    if self._has_module(importer, file) or (importer.star_imports and name in importer.read):
                        return False
                elif name in importer.guarded:
                    found = True
                elif os.path.basename(each) == "__init__.py":
                    todo.append(each)
                else:
                    return False
        return found

    def _has_module(self, importer: Summary, file: str) -> bool:
        """Return whether a file imports another as a whole, and may read any attribute of it."""
        names = {_module_name(file), ""}  # `from . import x` has no last part
        if names.isdisjoint(self._imported_names(os.path.normpath(importer.path))):
            return False  # this is soon known of most files
        return any(
            not any(other.startswith(f"{module}.") for other in importer.imports)
            for module in importer.imports
            if (found := self.find(importer.path, module)) is not None
            and os.path.normpath(found.path) == file
        )

    def _imported_names(self, path: str) -> frozenset[str]:
        """Return the last parts of the names of what a file imports."""
        if path not in self._imported_by_name:
            imports = self.files[path].imports
            self._imported_by_name[path] = frozenset(module.rpartition(".")[2] for module in imports)
        return self._imported_by_name[path]

    @remembered
    def is_set_elsewhere(self, path: str, name: str) -> bool:
        """Return whether another file sets a name of the module at `path`, as in `config.device = "cpu"`."""
        path = os.path.normpath(path)
        others = (self.files[file] for file in self._importing(path) if file != path)
        return any(not other.set_on_imports.isdisjoint((name, "")) for other in others)

    @remembered
    def has_low_precision(self, path: str) -> bool:
        """Return whether the files that import a file, or any that these import, have low precision."""
        together = self._together({os.path.normpath(path)})
        return any(self.files[name].low_precision for name in together if name in self.files)

    @remembered
    def stops_autocast(self, path: str) -> bool:
        """Return whether another file that is used together with one switches autocast off for a part."""
        here = os.path.normpath(path)
        together = self._together({here})
        return any(
            self.files[name].stops_autocast for name in together if name in self.files and name != here
        )

    @remembered
    def autocasts(self, path: str) -> list[str]:
        """Return what the files that are used together with one have autocast for."""
        together = self._together({os.path.normpath(path)})
        return sorted(
            {each for name in together if name in self.files for each in self.files[name].autocasts}
        )

    @remembered
    def low_flags(self, path: str) -> list[str]:
        """Return the flags for which the files that are used together with one convert to low precision."""
        together = self._together({os.path.normpath(path)})
        return sorted(
            {each for name in together if name in self.files for each in self.files[name].low_flags}
        )

    @remembered
    def is_mixing(self, path: str, name: str) -> bool:
        """Return whether low precision meets float32 in a class, by the name that `path` imports it by."""
        module, _, short = name.rpartition(".")
        found = self.find(path, module)
        return found is not None and short in found.mixing

    @remembered
    def transforms(self, path: str, name: str) -> list[tuple[str, int]]:
        """Return the parameters that a function transforms by Fourier, by the name that `path` imports it by.

        Programs also import from folders that they add to `sys.path`: then the only file of that name counts.
        """
        module, _, short = name.rpartition(".")
        found = self.find(path, module)
        if found is None and len(named := self._named.get(module, [])) == 1:
            found = self.files[named[0]]
        pairs = found.transforms if found is not None else ()
        return sorted(parameter for function, parameter in pairs if function == short)

    @remembered
    def transforming(self) -> list[str]:
        """Return the functions of the project that transform a parameter by Fourier."""
        return sorted({name for summary in self.files.values() for name, _ in summary.transforms})

    @remembered
    def has_module(self, path: str, module: str) -> bool:
        """Return whether an import in the file at `path` reads a file of the project."""
        return self.find(path, module) is not None

    @remembered
    def replaces_library(self, path: str, module: str) -> bool:
        """Return whether an import in the file at `path` reads a file of the project, and no library.

        A file in a package has the package in front of its name: `import triton` beside it reads the library.
        """
        target = self.find(path, module)
        if target is None:
            return False
        stem = os.path.splitext(os.path.normpath(target.path))[0].removesuffix(f"{os.sep}__init__")
        root = stem.removesuffix(module.replace(".", os.sep))
        return os.path.join(root, "__init__.py") not in self.files

    @remembered
    def is_tried(self, path: str, name: str) -> bool:
        """Return whether another file than `path` catches the errors of a module or function of this name."""
        here = os.path.normpath(path)
        return any(
            name in summary.tried and here in self._imported[other]
            for other, summary in self.files.items()
            if other != here
        )

    @remembered
    def imported_extensions(self, path: str) -> dict[str, str]:
        """Return the imports of a file that the project builds with CUDA, each with the extension."""
        if not self._cuda_extensions:  # that is soon known of a file that is checked alone
            return {}
        summary = self.files.get(os.path.normpath(path))
        imports = summary.imports if summary is not None else ()
        # An import begins with the first part of a module's name, a relative one with the last.
        named = (name for name in imports if name.lstrip(".").partition(".")[0] in self._parts_of_extensions)
        read = {name: absolute(path, name) for name in named}
        return {
            name: extension
            for name, (whole, is_relative) in read.items()
            for extension in self._cuda_extensions
            if (
                f".{whole}".endswith(f".{extension}")
                if is_relative
                else f"{whole}.".startswith(f"{extension}.")
            )
        }

    @cached_property
    def _cuda_extensions(self) -> frozenset[str]:
        return frozenset().union(*(summary.cuda_extensions for summary in self.files.values()))

    @cached_property
    def _parts_of_extensions(self) -> frozenset[str]:
        """The first and last parts of the names of the extensions."""
        names = (name.split(".") for name in self._cuda_extensions)
        return frozenset(part for parts in names for part in (parts[0], parts[-1]))

    def find(self, path: str, module: str) -> Summary | None:
        """Return the file that an import in the file at `path` reads, if it is one of the project's."""
        name = module.rpartition(".")[2]
        named = self._named.get(name, [])
        if name and not named:  # most imports are of other projects
            return None
        here = os.path.normpath(path)
        key = here if here in named else os.path.dirname(here), module  # no file imports itself
        if key not in self._found:
            self._found[key] = self._find(here, module, named)
        return self._found[key]

    def _find(self, path: str, module: str, named: list[str]) -> Summary | None:
        """Return the file that an import reads, of those whose names end as the module's."""
        if module.startswith("."):
            return next((self.files[name] for name in candidates(path, module) if name in self.files), None)
        # The same as by `candidates`, the nearest one, from the end of the path: that is ten times as fast.
        folder = os.path.join(os.path.dirname(path), "")
        stem = module.replace(".", os.sep)
        found = [
            (len(file) - len(end), file)
            for end in (f"{stem}.py", os.path.join(stem, "__init__.py"))
            for file in named
            if file.endswith(end) and folder.startswith(file[: len(file) - len(end)])
            if (len(file) == len(end) or file[-len(end) - 1] == os.sep) and file != path
        ]
        return self.files[max(found, key=lambda each: each[0])[1]] if found else None

    @cached_property
    def _named(self) -> dict[str, list[str]]:
        """Return the project's files by the last parts of their modules' names."""
        named: dict[str, list[str]] = {}
        for path in self.files:
            named.setdefault(_module_name(path), []).append(path)
        return named

    def _importing(self, path: str) -> frozenset[str]:
        """Return the files that import a file, also through others, with the file."""
        return closure({os.path.normpath(path)}, self._importers)

    @cached_property
    def _importers(self) -> dict[str, set[str]]:
        importers: dict[str, set[str]] = {}
        for path, targets in self._imported.items():
            for target in targets:
                importers.setdefault(target, set()).add(path)
        return importers

    def _together(self, start: set[str]) -> frozenset[str]:
        """Return the files that some files may run with.

        They are those of `start`, those that import such a file, since they may call it, and all that any of
        these import.
        """
        if not start:
            return frozenset()
        return closure(closure(start, self._importers), self._imported)

    @cached_property
    def _late(self) -> frozenset[str]:
        return self._together({path for path, summary in self.files.items() if summary.late})

    @cached_property
    def _forking(self) -> frozenset[str]:
        forking = (path for path, summary in self.files.items() if summary.forks)
        return self._together({path for path in forking if self._computes(path)})

    @remembered
    def starts_forks(self, path: str, name: str | None) -> bool:
        """Return whether a function may fork processes: a file forks that its own file imports, or is.

        Args:
            path: the file that calls the function.
            name: the function's full name by the imports of that file; None for one of the file itself.
        """
        target = self.files.get(os.path.normpath(path)) if name is None else self.find(path, name)
        if target is None:
            return False
        reached = closure({os.path.normpath(target.path)}, self._imported)
        return any(self.files[file].forks for file in reached if file in self.files)

    def _computes(self, path: str) -> bool:
        """Return whether processes that a file forks may use CUDA: they run code that names devices."""
        forks = self.files[path].forks
        found = (self.find(path, module) for module in forks)
        run = {path} if UNKNOWN in forks else {os.path.normpath(each.path) for each in found if each}
        reached = closure(run, self._imported)
        return any(self.files[file].devices_mentioned for file in reached if file in self.files)

    @cached_property
    def _patched(self) -> dict[str, frozenset[str]]:
        start: dict[str, set[str]] = {}
        for path, summary in self.files.items():
            for name in summary.patched:
                start.setdefault(name, set()).update(self._run_by(path))
        return {name: self._together(paths) for name, paths in start.items()}

    def _run_by(self, path: str) -> Iterable[str]:
        """Return a file, or all of its folder: pytest runs `conftest.py` before them."""
        folder, name = os.path.split(path)
        if name != "conftest.py":
            return (path,)
        return [file for file in self.files if file.startswith(os.path.join(folder, ""))]

    @cached_property
    def _imported(self) -> dict[str, set[str]]:
        return {path: self._imported_files(summary) for path, summary in self.files.items()}

    def _imported_files(self, summary: Summary) -> set[str]:
        found = (self.find(summary.path, module) for module in summary.imports)
        return {os.path.normpath(target.path) for target in found if target is not None}


def _module_name(path: str) -> str:
    """Return the last part of a module's name; a package has that of its folder."""
    *_, folder, name = ["", *os.path.splitext(path)[0].split(os.sep)]
    return folder if name == "__init__" and folder else name


def _endless(following: Mapping[str, set[str]], previous: Mapping[str, set[str]]) -> frozenset[str]:
    """Return what has something that follows it without end; what only follows itself has not."""
    left = {each: len(found - {each}) for each, found in following.items()}
    ends = [each for each, number in left.items() if not number]
    while ends:
        last = ends.pop()
        for each in previous.get(last, set()) - {last}:
            left[each] -= 1
            if not left[each]:
                ends.append(each)
    return frozenset(each for each, number in left.items() if number)


def candidates(path: str, module: str) -> Iterator[str]:
    """Return the paths where an imported module may be: in the importing file's folder, or further up."""
    level = len(module) - len(module.lstrip("."))
    parts = [part for part in module.split(".") if part]
    folder = os.path.dirname(os.path.normpath(path))
    for _ in range(level - 1):
        folder = os.path.dirname(folder)
    if not parts:
        yield os.path.normpath(os.path.join(folder, "__init__.py"))
    while parts:
        stem = os.path.join(folder, *parts)
        yield os.path.normpath(f"{stem}.py")
        yield os.path.normpath(os.path.join(stem, "__init__.py"))
        if level or not folder or folder == os.path.dirname(folder):
            return
        folder = os.path.dirname(folder)


def absolute(path: str, module: str) -> tuple[str, bool]:
    """Return the dotted path of an import, of a relative one to its first module, and whether it is one."""
    level = len(module) - len(module.lstrip("."))
    if not level:
        return module, False
    folders = os.path.normpath(path).split(os.sep)[:-level]
    return ".".join((*folders, module[level:].partition(".")[0])), True


def closure(start: Iterable[str], following: Mapping[str, set[str]]) -> frozenset[str]:
    """Return what is reached from a start, with the start."""
    reached = set(start)
    todo = list(reached)
    while todo:
        more = following.get(todo.pop(), set()) - reached
        reached |= more
        todo.extend(more)
    return frozenset(reached)
