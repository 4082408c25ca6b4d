"""Find the names that files read of one another: by imports, star imports and attributes."""

from __future__ import annotations

import os.path
from collections.abc import Iterable

from devicefix.facts.exports import Summary
from devicefix.facts.project.classes import Classes
from devicefix.facts.project.questions import remembered


class SharedNames(Classes):
    """The names that files share."""

    def __init__(self, summaries: Iterable[Summary]) -> None:
        super().__init__(summaries)
        self.star_importers: dict[str, list[Summary]] = {}
        for summary in self.files.values():
            for module in summary.star_imports:
                target = self.find(summary.path, module)
                if target is not None:
                    self.star_importers.setdefault(os.path.normpath(target.path), []).append(summary)

    @remembered
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

    @remembered
    def carried(self, path: str, name: str) -> bool:
        """Return whether a star import would carry a new name of a file to one that uses it otherwise."""
        if name.startswith("_"):
            return False
        importers = self.star_importers.get(os.path.normpath(path), ())
        return any(name in importer.bound or name in importer.read for importer in importers)

    @remembered
    def is_imported(self, path: str) -> bool:
        """Return whether another file imports the one at `path`."""
        path = os.path.normpath(path)
        return bool(self._importing(path) - {path})

    @remembered
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


def _inherits(summary: Summary, classes: frozenset[str]) -> bool:
    """Return whether a class of a file directly inherits from one of some classes."""
    return any(base.rpartition(".")[2] in classes for bases in summary.classes.values() for base in bases)
