"""Define the questions of a module to the other files of its project, with the answers without a project."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

UNKNOWN = "?"
Answer = TypeVar("Answer")


class Others:
    """The other files as one file sees them; without a project, nothing is known of them.

    Args:
        project: the project, whose questions have the same names.
        path: the path of the file.
    """

    def __init__(self, project: Any = None, path: str = "") -> None:
        self.path = path
        self._project = project

    def _ask(self, unknown: Answer, question: str, *about: str | int) -> Answer:
        """Return the answer of the project, or that nothing is known."""
        if self._project is None:
            return unknown
        answer: Answer = getattr(self._project, question)(*about)
        return answer

    def is_integer_option(self, name: str) -> bool:
        """Return whether the command line's options of this name are ints."""
        return self._ask(False, "is_integer_option", name)

    def is_flag(self, name: str) -> bool:
        """Return whether an attribute is set, and only to what is true only with CUDA."""
        return self._ask(False, "is_flag", name)

    def is_constant(self, owner: str, name: str) -> bool:
        """Return whether no other file sets an attribute of a class of the module, nor derives from it."""
        return self._ask(False, "is_constant", self.path, owner, name)

    def is_guarded(self) -> bool:
        """Return whether the module is only imported where CUDA is available."""
        return self._ask(False, "is_guarded", self.path)

    def serves_others(self) -> bool:
        """Return whether the module imports code for other accelerators, or is imported by such code."""
        return self._ask(False, "serves_others", self.path)

    def is_mentioned(self, name: str) -> bool:
        """Return whether another file holds a name."""
        return self._ask(False, "is_mentioned", self.path, name)

    def is_mentioned_around(self, name: str) -> bool:
        """Return whether another file that is used together with this one holds a name."""
        return self._ask(False, "is_mentioned_around", self.path, name)

    def is_pure(self, name: str) -> bool:
        """Return whether an imported function returns an int, and does nothing else."""
        return self._ask(False, "is_pure", self.path, name)

    def passed(self, function: str, parameter: str, position: int) -> Sequence[str]:
        """Return the kinds of what the calls in other files pass to functions of a name for a parameter."""
        return self._ask([], "passed", self.path, function, parameter, position)

    def gives(self, called: str, part: str, position: int = -1) -> bool:
        """Return whether other files give no number to a function, or do not use an attribute of a class.

        Args:
            called: the name of the function or class.
            part: a parameter, which may get a number that a fix makes the CPU; or `.x` for an attribute.
            position: the position of the parameter.
        """
        return self._ask(True, "gives", self.path, called, part, position)

    def kinds_of(self, name: str, part: str = "") -> Sequence[str]:
        """Return the kinds of an import, by its full name.

        Args:
            name: the name; with `()`, what the function returns is meant.
            part: empty for the whole, `YIELDED` for what a generator yields, or else the position in a tuple,
                a key, or an attribute of an object.

        Returns:
            The names of the kinds; with `UNKNOWN` if there may be others, and nothing if nothing is known.
        """
        return self._ask([], "kinds_of", self.path, name, part)

    def is_device_place(self, name: str) -> bool:
        """Return whether a file passes on the value of a name, attribute or key of this name as a device."""
        return self._ask(False, "is_device_place", name)

    def is_read_elsewhere(self, variable: str) -> bool:
        """Return whether another file may read a variable of the module."""
        return self._ask(False, "is_read_elsewhere", self.path, variable)

    def is_of_library(self, name: str) -> bool:
        """Return whether a class of the project, or that of a method, is based on one of Hugging Face's."""
        return self._ask(False, "is_of_library", self.path, name)

    def is_imported(self) -> bool:
        """Return whether another file imports the module."""
        return self._ask(False, "is_imported", self.path)

    def use_of_argument(self, function: str, place: int | str) -> int:
        """Return the value of the `Use` of an argument of an imported function, by its full name."""
        return self._ask(0, "use_of_argument", self.path, function, place)

    def use_of_result(self, function: str) -> int:
        """Return the value of the `Use` that other files make of what a function of the module returns."""
        return self._ask(0, "use_of_result", self.path, function)

    def configuration_of(self, name: str) -> Sequence[str]:
        """Return which parts of configurations an import is, or makes, by its full name: the keys."""
        return self._ask(["="], "configuration_of", self.path, name)

    def configuration_passed(self, function: str, parameter: str, position: int) -> Sequence[str]:
        """Return which parts of configurations other files pass to functions of a name for a parameter."""
        return self._ask([], "configuration_passed", self.path, function, parameter, position)
