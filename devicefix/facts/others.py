"""Define the questions of a module to the other files of its project, with the answers without a project."""

from __future__ import annotations

from collections.abc import Sequence


class Others:
    """The other files, of which nothing is known.

    Attributes:
        path: the path of the module.
    """

    path = ""

    def is_integer_option(self, _name: str) -> bool:
        """Return whether the command line's options of this name are ints."""
        return False

    def is_flag(self, _name: str) -> bool:
        """Return whether an attribute is set, and only to what is true only with CUDA."""
        return False

    def is_pure(self, _name: str) -> bool:
        """Return whether an imported function returns an int, and does nothing else."""
        return False

    def passed(self, _function: str, _parameter: str, _position: int) -> Sequence[str]:
        """Return the kinds of what the calls in other files pass to functions of a name for a parameter."""
        return ()

    def kinds_of(self, _name: str, _part: str = "") -> Sequence[str]:
        """Return the kinds of an import, by its full name.

        Args:
            _name: the name; with `()`, what the function returns is meant.
            _part: empty for the whole, or else the position in a tuple, a key, or an attribute of an object.

        Returns:
            The names of the kinds; with `UNKNOWN` if there may be others, and nothing if nothing is known.
        """
        return ()

    def is_device_place(self, _name: str) -> bool:
        """Return whether a file passes on the value of a name, attribute or key of this name as a device."""
        return False

    def is_imported(self) -> bool:
        """Return whether another file imports the module."""
        return False

    def use_of_argument(self, _function: str, _place: int | str) -> int:
        """Return the value of the `Use` of an argument of an imported function, by its full name."""
        return 0

    def use_of_result(self, _function: str) -> int:
        """Return the value of the `Use` that other files make of what a function of the module returns."""
        return 0


UNKNOWN = "?"
