"""Facts of several files: star imports, classes with their own `cuda()`, late settings."""

from __future__ import annotations

import builtins
import os.path
from collections.abc import Callable, Iterable, Iterator, Mapping
from copy import copy
from functools import cached_property, wraps
from typing import Any, TypeVar, cast

from devicefix.facts.exports import Summary
from devicefix.facts.torchscript import A_MODULE, EVERYTHING


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
        own = {name for summary in self.files.values() for name in summary.cuda_classes}
        self.cuda_classes = self._with_subclasses(own)
        self.to_classes = {name for summary in self.files.values() for name in summary.to_classes}
        self._adds_cuda = any(summary.adds_cuda for summary in self.files.values())
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
        self.late = self._together({path for path, summary in self.files.items() if summary.late})
        self.forks = self._together({path for path, summary in self.files.items() if summary.forks})
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
        """Return whether `.cuda()` and `.to(device)` may differ: a class has its own of either."""
        return self._supposed_own_cuda or self._adds_cuda or bool(self._own_classes)

    @_remembered
    def adds_cuda(self) -> bool:
        """Return whether an object or class of unknown name gets its own `cuda` after it was made."""
        return self._adds_cuda

    @_remembered
    def has_own_to(self) -> bool:
        """Return whether any class defines a `to`, but no `cuda`."""
        return bool(self.to_classes)

    @_remembered
    def is_cuda_class(self, name: str) -> bool:
        """Return whether a class of this name defines or inherits `cuda`."""
        return name in self.cuda_classes

    @_remembered
    def may_be_own(self, name: str) -> bool:
        """Return whether an instance of a class of this name may have its own `cuda` or `to`."""
        return name in self._above_own_classes

    @cached_property
    def _own_classes(self) -> frozenset[str]:
        """The classes whose `cuda` is their own, or the one of torch beside a `to` of their own."""
        return self.cuda_classes | self._with_subclasses(set(filter(self._is_foreign, self.to_classes)))

    @cached_property
    def _above_own_classes(self) -> frozenset[str]:
        return _closure(self._own_classes, self._bases) if self._own_classes else frozenset()

    def _is_foreign(self, name: str) -> bool:
        """Return whether a class inherits from one of another project: only that can bring torch's `cuda`."""
        reached = _closure({name}, self._bases)
        return any(base not in self._bases and not hasattr(builtins, base) for base in reached)

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
        """Return whether a file must not ask for CUDA on import: a variable of the driver is set later."""
        return os.path.normpath(path) in self.late

    @_remembered
    def is_forked(self, path: str) -> bool:
        """Return whether a file must not ask for CUDA on import: processes are forked later."""
        return os.path.normpath(path) in self.forks

    @_remembered
    def has_low_precision(self, path: str) -> bool:
        """Return whether the files that import a file, or any that these import, have low precision."""
        together = self._together({os.path.normpath(path)})
        return any(self.files[name].low_precision for name in together if name in self.files)

    @_remembered
    def has_module(self, path: str, module: str) -> bool:
        """Return whether an import in the file at `path` reads a file of the project."""
        return self.find(path, module) is not None

    def find(self, path: str, module: str) -> Summary | None:
        """Return the file that an import in the file at `path` reads, if it is one of the project's."""
        name = module.rpartition(".")[2]
        named = self._named.get(name, [])
        if name and not named:  # most imports are of other projects
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
    def takes_number(self, path: str, name: str) -> bool:
        """Return whether another file than that at `path` takes the number of a device of some name."""
        path = os.path.normpath(path)
        return any(name in summary.numbered for file, summary in self.files.items() if file != path)

    @_remembered
    def passed(self, function: str, parameter: str, position: int) -> list[str]:
        """Return the kinds of what is passed to functions of a name for a parameter."""
        given = self._passed.get(function, ())
        return sorted({kind for place, kind in given if place in (parameter, position)})

    @_remembered
    def is_backend(self, name: str) -> bool:
        """Return whether a file makes a process group with the value of an attribute or key of this name."""
        return any(name in summary.backends for summary in self.files.values())

    @_remembered
    def receives_backend(self, function: str, place: int | str) -> bool:
        """Return whether a function of this name makes a process group with an argument."""
        return any(
            function == name and place in parameter
            for summary in self.files.values()
            for name, parameter in summary.backend_receivers
        )

    @_remembered
    def allows_gloo(self, name: str) -> bool:
        """Return whether no file compares what has this name with "nccl", or one does with "gloo"."""
        texts = {
            text
            for summary in self.files.values()
            for compared, text in summary.compared_backends
            if compared == name
        }
        return texts != {"nccl"}

    @_remembered
    def is_tried(self, path: str, name: str) -> bool:
        """Return whether another file than `path` catches the errors of a module or function of this name."""
        here = os.path.normpath(path)
        return any(
            name in summary.tried and here in self._imported[other]
            for other, summary in self.files.items()
            if other != here
        )

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
        """Return the names that star imports bring into a file; true for those that are a device.

        A file that imports this one in turn may not have bound its names yet.
        """
        summary = self.files.get(os.path.normpath(path))
        names: dict[str, bool] = {}
        if summary is not None:
            for module in summary.star_imports:
                target = self.find(path, module)
                if target is not None:
                    devices = target.devices if target.path not in self._importing(path) else ()
                    names |= {name: name in devices for name in target.bound if name[0] != "_"}
        return names

    @_remembered
    def compiled(self, path: str) -> list[str]:
        """Return what other files let TorchScript compile of a file; see `TorchScript`."""
        return sorted(self._compiled.get(os.path.normpath(path), ()))

    @cached_property
    def _compiled(self) -> dict[str, set[str]]:
        found: dict[str, set[str]] = {}
        todo = [
            pair
            for path, summary in self.files.items()
            for name in summary.scripted
            for pair in self._compiled_by(path, name)
        ]
        while todo:
            path, name = todo.pop()
            if name in found.setdefault(path, set()):
                continue
            first = not found[path]
            found[path].add(name)
            summary = self.files[path]
            if first and (name != A_MODULE or any(summary.classes.values())):
                # What its functions read of other files is compiled as well; its names are unknown.
                todo += [pair for each in summary.imports for pair in self._compiled_by(path, each)]
        return found

    def _compiled_by(self, path: str, name: str) -> Iterator[tuple[str, str]]:
        """Yield the files, with the names in them, that are compiled with what the file at `path` reads."""
        if name == A_MODULE:
            yield from ((file, A_MODULE) for file in self._together({path}))
            return
        full = name.removesuffix("()")
        module, last = full.removesuffix(full.rpartition(".")[2]), full.rpartition(".")[2]
        target = self.find(path, module.rstrip(".") or module) if module else None
        if target is None:
            target, last = self.find(path, full), EVERYTHING
            reads = self.files[path].imports
            if target is None or any(each != full and each.startswith(f"{full}.") for each in reads):
                return
        elif name != full and last not in target.classes:  # what a function returns
            last = A_MODULE
        yield os.path.normpath(target.path), last

    @_remembered
    def is_read_elsewhere(self, path: str, variable: str) -> bool:
        """Return whether another file than that at `path` may read a variable.

        Args:
            path: the file that binds it.
            variable: `x` for a name of the module, `self.x` for an attribute of its classes, `.x` for an
                attribute of another object.
        """
        path = os.path.normpath(path)
        owner, _, name = variable.rpartition(".")
        if "." not in variable:
            return self._is_global_read(path, name)
        own = self._family(path) if owner else frozenset()
        return any(
            name in other.attributes
            or (f"self.{name}" in other.attributes and (not owner or _inherits(other, own)))
            for file in self._together({path}) - {path}
            for other in (self.files[file],)
        )

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

    def _is_global_read(self, path: str, name: str, passed: frozenset[str] = frozenset()) -> bool:
        """Return whether another file may read a name of the module at `path`."""
        summary = self.files.get(path)
        if summary is not None and name in summary.public:
            return True
        for file in self._importing(path) - {path, *passed}:
            other = self.files[file]
            if name in other.attributes or any(
                imported.rpartition(".")[2] == name and self._finds(file, imported, path)
                for imported in other.imports
            ):
                return True
        stars = self.star_importers.get(path, ())
        return any(
            name in other.read or self._is_global_read(file, name, passed | {path})
            for other in stars
            if (file := os.path.normpath(other.path)) != path and file not in passed
        )

    def _finds(self, path: str, imported: str, target: str) -> bool:
        """Return whether `from m import x` in the file at `path`, as `m.x`, reads the module at `target`."""
        module = imported.removesuffix(imported.rpartition(".")[2])
        found = self.find(path, module.rstrip(".") or module)
        return found is not None and os.path.normpath(found.path) == target

    def _family(self, path: str) -> frozenset[str]:
        """Return the names of the classes of a file and of those that inherit from them."""
        summary = self.files.get(path)
        return self._with_subclasses(set(summary.classes)) if summary is not None else frozenset()

    def _importing(self, path: str) -> frozenset[str]:
        """Return the files that import a file, also through others, with the file."""
        return _closure({os.path.normpath(path)}, self._importers)

    @cached_property
    def _importers(self) -> dict[str, set[str]]:
        importers: dict[str, set[str]] = {}
        for path, targets in self._imported.items():
            for target in targets:
                importers.setdefault(target, set()).add(path)
        return importers

    def _with_subclasses(self, classes: set[str]) -> frozenset[str]:
        if not classes:
            return frozenset()
        subclasses: dict[str, set[str]] = {}
        for name, bases in self._bases.items():
            for base in bases:
                subclasses.setdefault(base, set()).add(name)
        return _closure(classes, subclasses)

    @cached_property
    def _passed(self) -> dict[str, list[tuple[int | str, str]]]:
        found: dict[str, list[tuple[int | str, str]]] = {}
        for summary in self.files.values():
            for function, argument in summary.passed:
                found.setdefault(function, []).append(argument)
        return found

    def _together(self, start: set[str]) -> frozenset[str]:
        """Return the files that some files may run with.

        They are those of `start`, those that import such a file, since they may call it, and all that any of
        these import.
        """
        if not start:
            return frozenset()
        return _closure(_closure(start, self._importers), self._imported)

    @cached_property
    def _imported(self) -> dict[str, set[str]]:
        return {path: self._imported_files(summary) for path, summary in self.files.items()}

    def _imported_files(self, summary: Summary) -> set[str]:
        found = (self.find(summary.path, module) for module in summary.imports)
        return {os.path.normpath(target.path) for target in found if target is not None}


def _inherits(summary: Summary, classes: frozenset[str]) -> bool:
    """Return whether a class of a file directly inherits from one of some classes."""
    return any(base.rpartition(".")[2] in classes for bases in summary.classes.values() for base in bases)


def _closure(start: Iterable[str], following: Mapping[str, set[str]]) -> frozenset[str]:
    """Return what is reached from a start, with the start."""
    reached = set(start)
    todo = list(reached)
    while todo:
        more = following.get(todo.pop(), set()) - reached
        reached |= more
        todo.extend(more)
    return frozenset(reached)
