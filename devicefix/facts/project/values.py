"""Find the values that files pass to one another: options, flags, devices, backends and arguments."""

from __future__ import annotations

import os.path
from collections import defaultdict
from collections.abc import Callable, Iterable
from fnmatch import fnmatchcase
from functools import cached_property

from devicefix.facts.exports.options import options
from devicefix.facts.exports.shared import device_places, flags, settings
from devicefix.facts.exports.texts import named_configurations
from devicefix.facts.project.file import ProjectFile
from devicefix.facts.project.files import Files
from devicefix.facts.project.questions import remembered

_FILES = 40  # that mention one name; what the others do with it is not known
Selected = tuple[tuple[str, int, str, str], ...]  # the keys of CUDA devices: line, value, and path of the key
FindConfigured = Callable[[Iterable[ProjectFile]], Iterable[tuple[str, Selected]]]


def nothing(_files: Iterable[ProjectFile]) -> Iterable[tuple[str, Selected]]:
    """Return nothing: no configuration file is read."""
    return ()


class Values(Files):
    """The values that files share.

    Args:
        files: the files.
        find_configured: finds the configuration files that files name and that select CUDA.
    """

    def __init__(self, files: Iterable[ProjectFile] = (), find_configured: FindConfigured = nothing) -> None:
        super().__init__(files)
        self._find_configured = find_configured

    @cached_property
    def configured_files(self) -> dict[str, Selected]:
        """The configuration files that the files name and that select CUDA."""
        return {os.path.normpath(path): found for path, found in self._find_configured(self.files.values())}

    @remembered
    def is_integer_option(self, name: str) -> bool:
        """Return whether the command line's options of this name are ints."""
        return {kind for kind, _ in self._options[name]} == {"int"}

    @remembered
    def default_of_option(self, name: str) -> str:
        """Return the default of the command line's options of a name, an empty text if it is not known."""
        found = {default for _, default in self._options[name]}
        return found.pop() if len(found) == 1 else ""

    @cached_property
    def _options(self) -> defaultdict[str, list[tuple[str, str]]]:
        """The types and the defaults of the command line's options, by name."""
        found = defaultdict(list)
        for _, declared in self.exporting(options):
            for name, kind, default in declared:
                found[name].append((kind, default))
        return found

    @remembered
    def is_flag(self, name: str) -> bool:
        """Return whether an attribute is set, and only to what is true only with CUDA."""
        if "cuda" not in name and "gpu" not in name:
            return False
        found = [names[name] for _, names in self.exporting(flags, name) if name in names]
        return bool(found) and all(found)

    @remembered
    def is_device_place(self, name: str) -> bool:
        """Return whether a file passes on the value of a name, attribute or key of this name as a device."""
        return any(name in file.export(device_places) for file in self.mentioning(name)[:_FILES])

    @remembered
    def is_setting(self, name: str) -> bool:
        """Return whether an attribute or key of this name becomes a backend, or chooses attention."""
        return any(name in names for _, names in self.exporting(settings, name))

    @remembered
    def configured(self, path: str, key: str) -> list[list[str]]:
        """Return where configuration files set a key to a CUDA device: the file, the line and the value.

        They are those that the file at `path` names, or one that runs with it.
        """
        if not self.configured_files:
            return []
        together = self._together({os.path.normpath(path)})
        naming = (names for file, names in self.exporting(named_configurations) if file.normal in together)
        named = {os.path.join(os.sep, name) for names in naming for name in names}
        return [
            [file, str(line), value]
            for file, values in sorted(self.configured_files.items())
            if any(fnmatchcase(os.path.join(os.sep, file), f"*{name.replace('[', '[[]')}") for name in named)
            for each, line, value, _ in values
            if each == key
        ]
