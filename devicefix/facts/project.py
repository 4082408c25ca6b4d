"""Facts of several files: star imports, classes with their own `cuda()`, late settings."""

from __future__ import annotations

import os.path
from collections.abc import Callable, Iterable, Iterator, Mapping
from copy import copy
from functools import cached_property, wraps
from typing import Any, TypeVar, cast

from devicefix.facts.exports import Summary


def candidates(path: str, module: str) -> Iterator[str]:
    """Return the paths where an imported module may be: in the importing file's folder, or further up."""
    level = len(module) - len(module.lstrip("."))
    parts = [part for part in module.split(".") if part]
    folder = os.path.dirname(os.path.normpath(path))
    for _ in range(level - 1):
        folder = os.path.dirname(folder)
    while parts:
        stem = os.path.join(folder, *parts)
        yield os.path.normpath(f"{stem}.py")
        yield os.path.normpath(os.path.join(stem, "__init__.py"))
        if level or not folder or folder == os.path.dirname(folder):
            return
        folder = os.path.dirname(folder)


def _absolute(path: str, module: str) -> tuple[str, bool]:
    """Return the dotted path of an import, of a relative one to its first module, and whether it is one."""
    level = len(module) - len(module.lstrip("."))
    if not level:
        return module, False
    folders = os.path.normpath(path).split(os.sep)[:-level]
    return ".".join((*folders, module[level:].partition(".")[0])), True


Question = tuple[str, ...]
Answers = dict[Question, Any]
Method = TypeVar("Method", bound=Callable[..., Any])


def _remembered(method: Method) -> Method:
    """Record the questions to a project, with its answers."""

    @wraps(method)
    def ask(self: Project, *args: Any) -> Any:
        question = (method.__name__, *args)
        if question not in self.answers:
            self.answers[question] = method(self, *args)
        return self.answers[question]

    return cast(Method, ask)


class Project:
    """The facts of all files together.

    Attributes:
        answers: the questions that were asked of the project, with its answers. With a project that gives
            the same answers, a check has the same result.
    """

    def __init__(self, summaries: Iterable[Summary] = (), supposed_own_cuda: bool = False) -> None:
        self._supposed_own_cuda = supposed_own_cuda
        self.answers: Answers = {}
        self.files = {os.path.normpath(summary.path): summary for summary in summaries}
        self._bases: dict[str, set[str]] = {}
        for summary in self.files.values():
            for name, names in summary.classes.items():
                self._bases.setdefault(name, set()).update(base.rpartition(".")[2] for base in names)
        own = [pair for summary in self.files.values() for pair in summary.cuda_classes.items()]
        self.cuda_classes = self._with_subclasses({name for name, _ in own})
        self.without_to = self._with_subclasses({name for name, has_to in own if not has_to})
        options = {option for summary in self.files.values() for option in summary.options}
        self.integer_options = frozenset(
            {name for name, kind in options if kind == "int"}
            - {name for name, kind in options if kind != "int"}
        )
        flags: dict[str, bool] = {}
        for summary in self.files.values():
            for name, implies in summary.flags.items():
                flags[name] = flags.get(name, True) and implies
        self.flags = frozenset(name for name, implies in flags.items() if implies)
        self.late = self._imported_too_early({path for path, summary in self.files.items() if summary.late})
        self.forks = self._imported_too_early({path for path, summary in self.files.items() if summary.forks})
        self.star_importers: dict[str, list[Summary]] = {}
        for summary in self.files.values():
            for module in summary.star_imports:
                target = self.find(summary.path, module)
                if target is not None:
                    self.star_importers.setdefault(os.path.normpath(target.path), []).append(summary)

    @classmethod
    def of(cls, summaries: Iterable[Summary | None]) -> Project:
        """Put the files' summaries together."""
        return cls(summary for summary in summaries if summary is not None)

    @classmethod
    def alone(cls, summary: Summary, among: int) -> Project:
        """Return the project of one file, before the others are known.

        Args:
            summary: the file's.
            among: how many files there are. Among many, some class mostly defines `cuda`; where that
                turns out to be wrong, the file is checked again.
        """
        return cls([summary], supposed_own_cuda=among > 500)

    def fresh(self) -> Project:
        """Return the same project with no answers yet."""
        project = copy(self)
        project.answers = {}
        return project

    def agrees(self, answers: Answers) -> bool:
        """Return whether this project gives the same answers as another did."""
        return all(getattr(self, name)(*args) == answer for (name, *args), answer in answers.items())

    @_remembered
    def has_own_cuda(self) -> bool:
        """Return whether any class defines `cuda` without a `to`, which could replace it."""
        return self._supposed_own_cuda or bool(self.without_to)

    @_remembered
    def is_cuda_class(self, name: str) -> bool:
        """Return whether a class of this name defines or inherits `cuda`."""
        return name in self.cuda_classes

    @_remembered
    def has_cuda_subclass(self, name: str) -> bool:
        """Return whether a class of this name has a subclass that defines `cuda`."""
        return name in self._above_cuda_classes

    @cached_property
    def _above_cuda_classes(self) -> frozenset[str]:
        return (
            _closure(self.cuda_classes, self._bases) - self.cuda_classes if self.cuda_classes else frozenset()
        )

    @_remembered
    def defines_get_device(self) -> bool:
        """Return whether any file defines a `get_device`, as tensors do."""
        return any(summary.get_device for summary in self.files.values())

    @_remembered
    def is_integer_option(self, name: str) -> bool:
        """Return whether the command line's options of this name are ints."""
        return name in self.integer_options

    @_remembered
    def is_flag(self, name: str) -> bool:
        """Return whether an attribute is set, and only to what is true only with CUDA."""
        return name in self.flags

    @_remembered
    def is_late(self, path: str) -> bool:
        """Return whether a file must not ask for CUDA on import: CUDA_VISIBLE_DEVICES is set later."""
        return os.path.normpath(path) in self.late

    @_remembered
    def is_forked(self, path: str) -> bool:
        """Return whether a file must not ask for CUDA on import: processes are forked later."""
        return os.path.normpath(path) in self.forks

    @_remembered
    def has_low_precision(self, path: str) -> bool:
        """Return whether the files that import a file, or any that these import, have low precision."""
        together = self._imported_too_early({os.path.normpath(path)})
        return any(self.files[name].low_precision for name in together if name in self.files)

    @_remembered
    def has_module(self, path: str, module: str) -> bool:
        """Return whether an import in the file at `path` reads a file of the project."""
        return self.find(path, module) is not None

    def find(self, path: str, module: str) -> Summary | None:
        """Return the file that an import in the file at `path` reads, if it is one of the project's."""
        named = self._named.get(module.rpartition(".")[2])
        if named is None:  # most imports are of other projects
            return None
        if module.startswith("."):
            return next((self.files[name] for name in candidates(path, module) if name in self.files), None)
        # The same as by `candidates`, the nearest one, from the end of the path: that is ten times as fast.
        folder = os.path.join(os.path.dirname(os.path.normpath(path)), "")
        stem = module.replace(".", os.sep)
        found = [
            (len(file) - len(end), file)
            for end in (f"{stem}.py", os.path.join(stem, "__init__.py"))
            for file in named
            if file.endswith(end) and folder.startswith(file[: len(file) - len(end)])
            if len(file) == len(end) or file[-len(end) - 1] == os.sep
        ]
        return self.files[max(found, key=lambda each: each[0])[1]] if found else None

    @cached_property
    def _named(self) -> dict[str, list[str]]:
        """Return the project's files by the last parts of their modules' names."""
        named: dict[str, list[str]] = {}
        for path in self.files:
            *_, folder, name = ["", *os.path.splitext(path)[0].split(os.sep)]
            named.setdefault(folder if name == "__init__" and folder else name, []).append(path)
        return named

    @_remembered
    def is_device_place(self, name: str) -> bool:
        """Return whether a file passes on the value of a name, attribute or key of this name as a device."""
        return name in self._device_places

    @_remembered
    def receives_device(self, function: str, place: int | str) -> bool:
        """Return whether a function of this name passes on an argument as a device."""
        return any(place in parameter for parameter in self._receivers.get(function, ()))

    @_remembered
    def imported_extensions(self, path: str) -> dict[str, str]:
        """Return the imports of a file that the project builds with CUDA, each with the extension."""
        summary = self.files.get(os.path.normpath(path))
        imports = summary.imports if summary is not None and self._cuda_extensions else ()
        read = {name: _absolute(path, name) for name in imports}
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

    @_remembered
    def star_names(self, path: str) -> dict[str, bool]:
        """Return the names that star imports bring into a file; true for those that are a device."""
        summary = self.files.get(os.path.normpath(path))
        names: dict[str, bool] = {}
        if summary is not None:
            for module in summary.star_imports:
                target = self.find(path, module)
                if target is not None:
                    names |= {name: name in target.devices for name in target.bound if name[0] != "_"}
        return names

    @_remembered
    def carried(self, path: str, name: str) -> bool:
        """Return whether a star import would carry a new name of a file to one that uses it otherwise."""
        if name.startswith("_"):
            return False
        importers = self.star_importers.get(os.path.normpath(path), ())
        return any(name in importer.bound or name in importer.read for importer in importers)

    @cached_property
    def _device_places(self) -> frozenset[str]:
        return frozenset().union(*(summary.device_places for summary in self.files.values()))

    @cached_property
    def _receivers(self) -> dict[str, list[tuple[str, int]]]:
        found: dict[str, list[tuple[str, int]]] = {}
        for summary in self.files.values():
            for function, parameter in summary.receivers:
                found.setdefault(function, []).append(parameter)
        return found

    def _with_subclasses(self, classes: set[str]) -> frozenset[str]:
        if not classes:
            return frozenset()
        subclasses: dict[str, set[str]] = {}
        for name, bases in self._bases.items():
            for base in bases:
                subclasses.setdefault(base, set()).add(name)
        return _closure(classes, subclasses)

    def _imported_too_early(self, start: set[str]) -> frozenset[str]:
        """Return the files that must not ask for CUDA as they are imported.

        They are those of `start`, those that import such a file, since they may call it, and all that any of
        these import.
        """
        if not start:
            return frozenset()
        importers: dict[str, set[str]] = {}
        for path, targets in self._imported.items():
            for target in targets:
                importers.setdefault(target, set()).add(path)
        return _closure(_closure(start, importers), self._imported)

    @cached_property
    def _imported(self) -> dict[str, set[str]]:
        return {path: self._imported_files(summary) for path, summary in self.files.items()}

    def _imported_files(self, summary: Summary) -> set[str]:
        found = (self.find(summary.path, module) for module in summary.imports)
        return {os.path.normpath(target.path) for target in found if target is not None}


def _closure(start: Iterable[str], following: Mapping[str, set[str]]) -> frozenset[str]:
    """Return what is reached from a start, with the start."""
    reached = set(start)
    todo = list(reached)
    while todo:
        more = following.get(todo.pop(), set()) - reached
        reached |= more
        todo.extend(more)
    return frozenset(reached)
