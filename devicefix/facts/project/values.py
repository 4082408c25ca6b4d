"""Find the values that files pass to one another: options, flags, devices, backends and arguments."""

from __future__ import annotations

import os.path
from collections import defaultdict
from collections.abc import Callable, Iterable
from functools import cached_property

from devicefix.facts.exports.options import options
from devicefix.facts.exports.shared import device_places, flags, settings
from devicefix.facts.exports.texts import named_configurations
from devicefix.facts.project.file import ProjectFile
from devicefix.facts.project.files import Files
from devicefix.facts.project.questions import remembered

_LOADING = (b"yaml", b"json.load", b"toml", b"OmegaConf", b"hydra")
GIVEN = (b"--config", b"--cfg", b"from_cli")  # as which option a program takes a configuration
_FILES = 40  # that mention one name; what the others do with it is not known
Selected = tuple[tuple[str, int, str, str], ...]  # the keys of CUDA devices: line, value, and path of the key
Configured = tuple[str, Selected, set[str]]  # a configuration file, and the files that name it
FindConfigured = Callable[[Iterable[ProjectFile]], Iterable[Configured]]


def nothing(_files: Iterable[ProjectFile]) -> Iterable[Configured]:
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
    def configured_files(self) -> list[Configured]:
        """The configuration files that the files name and that select CUDA."""
        return list(self._find_configured(self.files.values())) if self.holding(*_LOADING) else []

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

    def selected(self, path: str) -> list[list[str]]:
        """Return where configuration files set a key that the file at `path` holds to what needs CUDA."""
        return self.configured(path) if self.loads_configurations() else []

    @remembered
    def loads_configurations(self) -> bool:
        """Return whether files may load configurations, and name them or take their names as options."""
        named = self.holding(*GIVEN) or any(True for _ in self.exporting(named_configurations))
        return bool(named and self.holding(*_LOADING))

    @remembered
    def configured(self, path: str) -> list[list[str]]:
        """Return where configuration files select CUDA: file, line, value and path of the key.

        They are those that it names, or a file that runs with it, if it holds the key or may unpack anything.
        """
        own = self.file(path)
        found = [
            ([os.path.normpath(file), str(line), value, path_of_key], naming)
            for file, values, naming in (self.configured_files if own is not None else ())
            for key, line, value, path_of_key in values
            if own is not None and any(map(own.holds, (key.encode(), b"**", b"instantiate(")))
        ]
        together = self._together({own.normal}) if own is not None and found else frozenset[str]()
        return [each for each, naming in found if not together.isdisjoint(naming)]
