"""Find the file that an import reads, and the imports of files around it."""

from __future__ import annotations

import os.path
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, TypeVar

from devicefix.facts.exports import Export
from devicefix.facts.exports.forks import Forks, Named
from devicefix.facts.exports.imports import tried_names
from devicefix.facts.exports.shared import cuda_extensions
from devicefix.facts.exports.texts import attributes_set
from devicefix.facts.prefilter import names_in
from devicefix.facts.project.file import ProjectFile
from devicefix.facts.project.questions import Questions, remembered

Value = TypeVar("Value")
Definition = tuple[ProjectFile, str]

_WHOLE = rb"%b(?<![\w\x80-\xff]%b)(?![\w\x80-\xff])"  # it begins with the name, which is found fast
_HOPS = 3  # packages that pass on a name that they import
_SEARCHES = 30  # names; to index all names takes as long as to search for so many


class Files(Questions):
    """The files of a project, by their imports.

    Args:
        files: the files.

    Attributes:
        files: the files by their normal paths.
    """

    def __init__(self, files: Iterable[ProjectFile] = ()) -> None:
        super().__init__()
        self.files = {file.normal: file for file in files}
        self._found: dict[tuple[str, str], ProjectFile | None] = {}
        self._mentions: dict[str, list[ProjectFile]] = {}
        self._holding: dict[tuple[bytes, ...], list[ProjectFile]] = {}
        self._reached: dict[tuple[str, Named], frozenset[Named]] = {}
        self._known_importing: dict[str, frozenset[str]] = {}

    def file(self, path: str) -> ProjectFile | None:
        """Return the file at a path."""
        return self.files.get(os.path.normpath(path))

    def learned(self) -> dict[str, dict[str, Any]]:
        """Return what the files that were asked since the last call export, by path."""
        asked = [file for file in self.files.values() if file.has_more]
        for file in asked:
            file.has_more = False
        return {file.path: dict(file.known) for file in asked}

    def holding(self, *words: bytes) -> list[ProjectFile]:
        """Return the files whose bytes hold one of some words, or all files if there are none."""
        if words not in self._holding:
            files = self.files.values()
            self._holding[words] = [file for file in files if not words or any(map(file.holds, words))]
        return self._holding[words]

    def mentioning(self, name: str) -> Sequence[ProjectFile]:
        """Return the files that hold a name, in their order."""
        if name not in self._mentions:
            if len(self._mentions) < _SEARCHES or not name.isidentifier():
                self._mentions[name] = list(self._searched(name.encode()))
            else:
                self._mentions[name] = self._index.get(name.encode(), [])
        return self._mentions[name]

    def _searched(self, name: bytes) -> Iterator[ProjectFile]:
        """Yield the files that hold a name, and not only as a part of another."""
        whole = re.compile(_WHOLE % (re.escape(name), re.escape(name)))
        for file in self.files.values():
            if name in file.data and whole.search(file.data):
                yield file

    @cached_property
    def _index(self) -> dict[bytes, list[ProjectFile]]:
        """The files by all names in them."""
        found: dict[bytes, list[ProjectFile]] = {}
        for file in self.files.values():
            for name in names_in(file.data):
                found.setdefault(name, []).append(file)
        return found

    def exporting(self, asked: Export[Value], name: str = "") -> Iterator[tuple[ProjectFile, Value]]:
        """Yield the files that export something, each with what that is.

        Args:
            asked: the export.
            name: what it is asked for, which is in each of these files.
        """
        for file in self.mentioning(name) if name else self.holding(*asked.words):
            found = file.export(asked)
            if found:
                yield file, found

    @remembered
    def is_circular(self, path: str) -> bool:
        """Return whether a file is in a circle of imports: others may call it while it is imported."""
        path = os.path.normpath(path)
        imported = self._imported.get(path, set()) - {path}
        return path in closure(imported, self._imported)

    @remembered
    def is_set_elsewhere(self, path: str, name: str) -> bool:
        """Return whether another file sets a name of the module at `path`, as in `config.device = "cpu"`."""
        path = os.path.normpath(path)
        others = (
            each for each in {*self.mentioning(name), *self.mentioning("setattr")} if each.normal != path
        )
        setting = [each.normal for each in others if not each.export(attributes_set).isdisjoint((name, ""))]
        return bool(setting) and not self._importing(path).isdisjoint(setting)

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
        stem = os.path.splitext(target.normal)[0].removesuffix(f"{os.sep}__init__")
        root = stem.removesuffix(module.replace(".", os.sep))
        return os.path.join(root, "__init__.py") not in self.files

    @remembered
    def is_tried(self, path: str, name: str) -> bool:
        """Return whether another file than `path` catches the errors of a module or function of this name."""
        here = os.path.normpath(path)
        others = (file for file in self.mentioning(name) if file.normal != here)
        importing = (file for file in others if here in self._imported[file.normal])
        return any(name in file.export(tried_names) for file in importing)

    @remembered
    def imported_extensions(self, path: str) -> dict[str, str]:
        """Return the imports of a file that the project builds with CUDA, each with the extension."""
        if not self._cuda_extensions:  # that is soon known of a file that is checked alone
            return {}
        file = self.file(path)
        imports = file.imports if file is not None else ()
        pairs = ((name, each) for name in imports for each in self._cuda_extensions)
        return {name: each for name, each in pairs if _reads_extension(path, name, each)}

    @cached_property
    def _cuda_extensions(self) -> frozenset[str]:
        return frozenset().union(*(names for _, names in self.exporting(cuda_extensions)))

    def find(self, path: str, module: str) -> ProjectFile | None:
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

    def _find(self, path: str, module: str, named: list[str]) -> ProjectFile | None:
        """Return the file that an import reads, of those whose names end as the module's."""
        if module.startswith("."):
            return next((self.files[name] for name in candidates(path, module) if name in self.files), None)
        # The nearest one, from the end of the path: that is ten times as fast as to look in each folder.
        folder = os.path.join(os.path.dirname(path), "")
        stem = module.replace(".", os.sep)
        nearest = [
            (len(file) - len(end), file)
            for end in (f"{stem}.py", os.path.join(stem, "__init__.py"))
            for file in named
            if file.endswith(end) and folder.startswith(file[: len(file) - len(end)])
            if (len(file) == len(end) or file[-len(end) - 1] == os.sep) and file != path
        ]
        return self.files[max(nearest)[1]] if nearest else None

    @cached_property
    def _named(self) -> dict[str, list[str]]:
        """Return the project's files by the last parts of their modules' names."""
        named: dict[str, list[str]] = {}
        for path in self.files:
            named.setdefault(module_name(path), []).append(path)
        return named

    def definition(self, path: str, name: str, hops: int = _HOPS) -> Definition | None:
        """Return the file that defines what the file at `path` imports by a full name, and the name there."""
        module, _, last = name.rpartition(".")
        file = self.find(path, module or ".") if last else None
        if file is None or not (file.star_imports or file.holds(last.encode())):
            return None
        if file.defines(last) or not hops:
            return file, last
        passed_on = [each for each in file.imports if each.rpartition(".")[2] == last and each != last]
        passed_on += [f"{star.rstrip('.') if star.strip('.') else star}.{last}" for star in file.star_imports]
        for each in passed_on:
            found = self.definition(file.path, each, hops - 1)
            if found is not None:
                return found
        return (file, last) if file.holds(last.encode()) else None

    def reached(self, file: ProjectFile, named: Named) -> frozenset[Named]:
        """Return what is reached from a name of a file, from its result, or from what its calls pass."""
        file.is_followed = True
        if (file.normal, named) not in self._reached:
            facts = file.facts
            forks = facts.once(Forks, facts.tree.root) if facts is not None else None
            found = forks.reached(forks.named(named)) if forks is not None else ()
            self._reached[file.normal, named] = frozenset(found)
        return self._reached[file.normal, named]

    def _importing(self, path: str) -> frozenset[str]:
        """Return the files that import a file, also through others, with the file."""
        path = os.path.normpath(path)
        if path not in self._known_importing:
            self._known_importing[path] = closure({path}, self._importers)
        return self._known_importing[path]

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
    def _imported(self) -> dict[str, set[str]]:
        return {path: set(self._imported_by(file)) for path, file in self.files.items()}

    def _imported_by(self, file: ProjectFile) -> Iterator[str]:
        for module in file.imports:
            found = self.find(file.path, module)
            if found is not None:
                yield found.normal


def module_name(path: str) -> str:
    """Return the last part of a module's name; a package has that of its folder."""
    *_, folder, name = ["", *os.path.splitext(path)[0].split(os.sep)]
    return folder if name == "__init__" and folder else name


def candidates(path: str, module: str) -> Iterator[str]:
    """Yield the paths where an imported module may be: in the importing file's folder, or further up."""
    level, folders, names = _parts(path, module)
    while True:
        stem = os.sep.join((*folders, *names))
        if names:
            yield f"{stem}.py"
        yield os.path.join(stem, "__init__.py")
        if level or folders in ([], [""]):
            return
        folders.pop()


def _parts(path: str, module: str) -> tuple[int, list[str], list[str]]:
    """Return the number of dots before an imported module, the folders that it is in, and its names."""
    level = len(module) - len(module.lstrip("."))
    folders = os.path.normpath(path).split(os.sep)[: -max(level, 1)]
    return level, folders, [name for name in module.split(".") if name]


def _reads_extension(path: str, module: str, extension: str) -> bool:
    """Return whether an import reads a compiled module, as `module` or `.module`, or something in it."""
    level, folders, names = _parts(path, module)
    if not level:
        return f"{module}.".startswith(f"{extension}.")
    return f".{'.'.join((*folders, *names[:1]))}".endswith(f".{extension}")


def closure(start: Iterable[str], following: Mapping[str, set[str]]) -> frozenset[str]:
    """Return what is reached from a start, with the start."""
    reached = set(start)
    todo = list(reached)
    while todo:
        more = following.get(todo.pop(), set()) - reached
        reached |= more
        todo.extend(more)
    return frozenset(reached)
