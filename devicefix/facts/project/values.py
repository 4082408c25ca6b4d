"""Find the values that files pass to one another: options, flags, devices, backends and arguments."""

from __future__ import annotations

import os.path
from collections.abc import Iterable
from functools import cached_property
from itertools import chain

from devicefix.facts.exports import Summary
from devicefix.facts.exports.passed_numbers import UNKNOWN, Parameter
from devicefix.facts.kinds import NUMBERS, Kind
from devicefix.facts.project.files import Files
from devicefix.facts.project.questions import remembered

_NUMBERS = {kind.name for kind in (*NUMBERS, Kind.NONE, Kind.CUDA)}


class Values(Files):
    """The values that files share."""

    def __init__(self, summaries: Iterable[Summary]) -> None:
        super().__init__(summaries)
        options = {option for summary in self.files.values() for option in summary.options}
        self.integer_options = frozenset(
            {name for name, kind, _ in options if kind == "int"}
            - {name for name, kind, _ in options if kind != "int"}
        )
        self.defaults: dict[str, set[str]] = {}
        for name, _, default in options:
            self.defaults.setdefault(name, set()).add(default)
        flags: dict[str, bool] = {}
        for summary in self.files.values():
            for name, implies in summary.flags.items():
                flags[name] = flags.get(name, True) and implies
        self.flags = frozenset(name for name, implies in flags.items() if implies)

    @remembered
    def is_integer_option(self, name: str) -> bool:
        """Return whether the command line's options of this name are ints."""
        return name in self.integer_options

    @remembered
    def default_of_option(self, name: str) -> str:
        """Return the default of the command line's options of a name, an empty text if it is not known."""
        found = self.defaults.get(name, set())
        return next(iter(found)) if len(found) == 1 else ""

    @remembered
    def is_flag(self, name: str) -> bool:
        """Return whether an attribute is set, and only to what is true only with CUDA."""
        return name in self.flags

    @remembered
    def is_device_place(self, name: str) -> bool:
        """Return whether a file passes on the value of a name, attribute or key of this name as a device."""
        return name in self._device_places

    @remembered
    def receives_device(self, function: str, place: int | str) -> bool:
        """Return whether a function of this name passes on an argument as a device."""
        return any(place in parameter for parameter in self._receivers.get(function, ()))

    @remembered
    def refuses_cpu(self, path: str, name: str, place: int | str) -> bool:
        """Return whether a function that a file imports ends the program where an argument is the CPU."""
        module, _, function = name.rpartition(".")
        refusing = self._refusing.get(function, ())
        return any(place in parameter for parameter in refusing) and self.find(path, module) is not None

    @remembered
    def takes_number(self, path: str, name: str) -> bool:
        """Return whether another file than that at `path` takes the number of a device of some name."""
        path = os.path.normpath(path)
        return any(name in summary.numbered for file, summary in self.files.items() if file != path)

    @remembered
    def passed(self, function: str, parameter: str, position: int) -> list[str]:
        """Return the kinds of what is passed to functions of a name for a parameter."""
        asked = Parameter(function, parameter, position)
        return sorted(self._scanned(asked) | self._numbers(asked))

    @remembered
    def receives_number(self, path: str) -> bool:
        """Return whether the file at `path` passes on as a device what calls show to be a GPU's number."""
        if not self._passed_numbers:  # that is soon known of most projects
            return False
        summary = self.files.get(os.path.normpath(path))
        receivers = summary.receivers if summary is not None else ()
        return any("INDEX" in self._numbers(Parameter(name, *place)) for name, place in receivers)

    @remembered
    def compares(self, path: str, name: str, place: int | str) -> bool:
        """Return whether a function that the file at `path` imports compares an argument with an int."""
        module, _, function = name.rpartition(".")
        target = self.find(path, module) if module else None
        compared = target.compared if target is not None else ()
        return any(called == function and place in parameter for called, parameter in compared)

    def _scanned(self, parameter: Parameter) -> set[str]:
        """Return the kinds of what the text of calls shows that they pass for a parameter."""
        given = self._passed.get(parameter.function, ())
        return {kind for place, kind in given if place in (parameter.name, parameter.position)}

    def _numbers(self, parameter: Parameter) -> set[str]:
        """Return the kinds of what calls pass for a parameter, also through others, if they are numbers.

        One call that passes another value, or one that is not known, and there are none.
        """
        todo, seen, kinds = [parameter], set[Parameter](), set[str]()
        while todo:
            each = todo.pop()
            if each in seen:
                continue
            seen.add(each)
            given = self._passed_numbers.get(each.function, ())
            sources = {source for place, source in given if place in (each.name, each.position)}
            sources |= self._scanned(each) or ({UNKNOWN} if not sources else set())
            for source in sources:
                through = Parameter.read(source)
                todo += [through] if through is not None else []
                kinds |= set() if through is not None else {source}
        return kinds if "INDEX" in kinds and kinds <= _NUMBERS else set()

    @remembered
    def is_number(self, path: str, name: str) -> bool:
        """Return whether what the file at `path` imports by its full name is an int, or returns one."""
        module, _, last = name.rpartition(".")
        target = self.find(path, module) if module else None
        return target is not None and last in target.numbers

    @remembered
    def is_pure(self, path: str, name: str) -> bool:
        """Return whether a function that the file at `path` imports returns an int, and does nothing else."""
        module, _, last = name.rpartition(".")
        target = self.find(path, module) if module else None
        return target is not None and last in target.pure

    @remembered
    def is_chosen(self, path: str, name: str, library: str) -> bool:
        """Return whether a variable that the file at `path` imports is bound to the name of a library."""
        module, _, last = name.rpartition(".")
        target = self.find(path, f"{module}." if not module.strip(".") else module)
        return target is not None and (last, library) in target.choices

    @remembered
    def returns_namespace(self, function: str) -> bool:
        """Return whether a function of this name returns `torch.cuda` or the like by the type of a device."""
        return any(function in summary.namespaces for summary in self.files.values())

    @remembered
    def is_backend(self, name: str) -> bool:
        """Return whether a file makes a process group with the value of an attribute or key of this name."""
        return any(
            name in summary.backends
            or any(self._gets_backend(*to) for passed, to in summary.passed_backends if passed == name)
            for summary in self.files.values()
        )

    @remembered
    def receives_backend(self, function: str, place: int | str) -> bool:
        """Return whether a function of this name makes a process group with an argument."""
        return self._gets_backend(function, place)

    def _gets_backend(self, function: str, place: int | str) -> bool:
        return any(
            function == name and place in parameter
            for summary in self.files.values()
            for name, parameter in summary.backend_receivers
        )

    @remembered
    def allows_gloo(self, path: str, name: str) -> bool:
        """Return whether nothing of this name is compared with "nccl", or something is with "gloo".

        The comparisons of the file at `path` count, or else those of all files: elsewhere another thing
        may have the name.
        """
        own = self.files.get(os.path.normpath(path))
        for summaries in ([own] if own is not None else [], self.files.values()):
            pairs = chain.from_iterable(summary.compared_backends for summary in summaries)
            texts = {text for compared, text in pairs if compared == name}
            if texts:
                return texts != {"nccl"}
        return True

    @remembered
    def configured(self, path: str, key: str) -> list[list[str]]:
        """Return where configuration files set a key to a CUDA device: the file, the line and the value.

        They are those that the file at `path` names, or one that runs with it.
        """
        if not self._configured:
            return []
        together = self._together({os.path.normpath(path)})
        named = {os.path.join(os.sep, name) for file in together for name in self._named_by(file)}
        return [
            [summary.path, str(line), value]
            for file, summary in sorted(self._configured.items())
            if any(os.path.join(os.sep, file).endswith(name) for name in named)
            for each, line, value in summary.configured
            if each == key
        ]

    def _named_by(self, file: str) -> frozenset[str]:
        return self.files[file].configurations if file in self.files else frozenset()

    @cached_property
    def _configured(self) -> dict[str, Summary]:
        return {file: summary for file, summary in self.files.items() if summary.configured}

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

    @cached_property
    def _refusing(self) -> dict[str, list[tuple[str, int]]]:
        found: dict[str, list[tuple[str, int]]] = {}
        for summary in self.files.values():
            for function, parameter in summary.refusing:
                found.setdefault(function, []).append(parameter)
        return found

    @cached_property
    def _passed_numbers(self) -> dict[str, list[tuple[int | str, str]]]:
        found: dict[str, list[tuple[int | str, str]]] = {}
        for summary in self.files.values():
            for function, argument in summary.passed_numbers:
                found.setdefault(function, []).append(argument)
        return found

    @cached_property
    def _passed(self) -> dict[str, list[tuple[int | str, str]]]:
        found: dict[str, list[tuple[int | str, str]]] = {}
        for summary in self.files.values():
            for function, argument in summary.passed:
                found.setdefault(function, []).append(argument)
        return found
