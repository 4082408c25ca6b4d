"""Find the names that files read of one another: by imports, star imports and attributes."""

from __future__ import annotations

import os.path
import re
from functools import cached_property

from devicefix.facts.exports.forks import Named
from devicefix.facts.exports.namespaces import OWN, TAKEN, listed_packages, open_namespaces
from devicefix.facts.exports.shared import bound_names, devices, names_read, public_names
from devicefix.facts.exports.texts import attributes_read
from devicefix.facts.project.classes import Classes
from devicefix.facts.project.file import ProjectFile
from devicefix.facts.project.files import module_name
from devicefix.facts.project.questions import remembered

_OWN = {OWN, Named(TAKEN)}  # names of the file itself
_AS_MODULE = rb"%b(?!\s+import\b)"  # a module, and not only what is imported from it


class SharedNames(Classes):
    """The names that files share."""

    @cached_property
    def star_importers(self) -> dict[str, list[ProjectFile]]:
        """The files that import everything from a file, by the path of that."""
        found: dict[str, list[ProjectFile]] = {}
        for file in self.holding(b"import *", b"import  *", b"import(*", b"import\t*"):
            for module in file.star_imports:
                target = self.find(file.path, module)
                if target is not None:
                    found.setdefault(target.normal, []).append(file)
        return found

    @remembered
    def star_names(self, path: str) -> dict[str, bool]:
        """Return the names that star imports bring into a file; true for those that are a device.

        A file that imports this one in turn may not have bound its names yet.
        """
        file = self.file(path)
        names: dict[str, bool] = {}
        for module in file.star_imports if file is not None else ():
            target = self.find(path, module)
            if target is not None:
                known, bound = target.export(devices), target.export(bound_names)
                brought = self.star_names(target.path) | {name: name in known for name in bound}
                late = any(brought.values()) and target.normal in self._importing(path)
                names |= {name: of and not late for name, of in brought.items() if name[0] != "_"}
            elif module in ("torch", "torch.cuda"):
                names["device"] = False  # a class
        return names

    @remembered
    def carried(self, path: str, name: str) -> bool:
        """Return whether a star import would carry a new name of a file to one that uses it otherwise."""
        if name.startswith("_"):
            return False
        importers = self.star_importers.get(os.path.normpath(path), ())
        return any(
            name in each.export(bound_names)
            or name in each.export(names_read)
            or self.carried(each.path, name)
            for each in importers
        )

    @remembered
    def is_open(self, path: str) -> bool:
        """Return whether a new global name of a file may be seen or replaced, other than by its name.

        The file itself, or one that imports it, lists the names, writes or asks for one that is computed,
        runs code with them, or takes a function out of it. So may one that a star import carries them to.
        """
        return self._is_open(os.path.normpath(path), set())

    def _is_open(self, path: str, seen: set[str]) -> bool:
        seen.add(path)
        own = self.files.get(path)
        if own is None or own.export(open_namespaces) & _OWN:
            return own is not None
        if any(path.startswith(folder) for folder in self._open_packages):
            return True
        stem = os.fsencode(module_name(path))
        as_module = re.compile(_AS_MODULE % re.escape(stem))
        importers = map(self.files.__getitem__, self._importers.get(path, ()))
        is_passed = path.endswith("__init__.py") or any(each.holds(as_module) for each in importers)
        for file in self.holding(*open_namespaces.words) if is_passed else self.holding(stem):
            if any(self._means(file, named, own) for named in file.export(open_namespaces) - _OWN):
                return True
        carried_to = () if own.export(public_names) else self.star_importers.get(path, ())
        return any(self._is_open(each.normal, seen) for each in carried_to if each.normal not in seen)

    @remembered
    def is_taken(self, path: str) -> bool:
        """Return whether the code of a function is taken out of a file: it may run without its names."""
        own = self.files.get(os.path.normpath(path))
        return own is not None and any(
            file is own if named in _OWN else self._means(file, named, own)
            for file in self.holding(TAKEN[1:].encode())
            for named in file.export(open_namespaces)
            if named.name.endswith(TAKEN)
        )

    def _means(self, file: ProjectFile, named: Named, own: ProjectFile) -> bool:
        """Return whether a name in a file is that of a module, or calls pass that."""
        if not named.parameter:
            return self.find(file.path, named.name.removesuffix(TAKEN)) is own
        callers = self.mentioning(named.name)
        importing = (each for each in callers if own.normal in self._imported[each.normal])
        values = ((each.path, value.name) for each in importing for value in self.reached(each, named))
        return any(self.find(path, name) is own for path, name in values)

    @cached_property
    def _open_packages(self) -> list[str]:
        """The folders of packages whose modules a file imports by a computed name, and lists."""
        listed = ((file, name) for file, names in self.exporting(listed_packages) for name in names)
        packages = (self.find(file.path, name) for file, name in listed)
        return [os.path.join(os.path.dirname(each.normal), "") for each in packages if each is not None]

    @remembered
    def is_imported(self, path: str) -> bool:
        """Return whether another file imports the one at `path`."""
        path = os.path.normpath(path)
        return bool(self._importing(path) - {path})

    @remembered
    def is_mentioned(self, path: str, name: str) -> bool:
        """Return whether another file than that at `path` holds a name."""
        return any(file.normal != os.path.normpath(path) for file in self.mentioning(name))

    @remembered
    def is_read_elsewhere(self, path: str, variable: str) -> bool:
        """Return whether another file than that at `path` may read a variable.

        Args:
            path: the file that binds it.
            variable: `x` for a name of the module, `self.x` for an attribute of its classes, `.x` for an
                attribute of another object; `super.x` for that of `self` in classes that inherit.
        """
        path = os.path.normpath(path)
        owner, _, name = variable.rpartition(".")
        if "." not in variable:
            return self._is_global_read(path, name)
        own = self._family(path) if owner else frozenset()
        reading = [
            file.normal
            for file in self.mentioning(name)
            if file.normal != path
            and (
                (name in (read := file.export(attributes_read)) and owner != "super")
                or (f"self.{name}" in read and (not owner or _inherits(file, own)))
            )
        ]
        return bool(reading) and not self._together({path}).isdisjoint(reading)

    def _is_global_read(self, path: str, name: str, passed: frozenset[str] = frozenset()) -> bool:
        """Return whether another file may read a name of the module at `path`."""
        own = self.files.get(path)
        if own is not None and name in own.export(public_names):
            return True
        others = [file for file in self.mentioning(name) if file.normal != path and file.normal not in passed]
        importing = self._importing(path) if others else ()
        for file in others:
            named = (each for each in file.imports if each.rpartition(".")[2] == name)
            if file.normal in importing and (
                name in file.export(attributes_read)
                or any(self._finds(file.path, each, path) for each in named)
                or self._calls(file, name, path)
            ):
                return True
        stars = self.star_importers.get(path, ())
        return any(
            name in other.export(names_read) or self._is_global_read(other.normal, name, passed | {path})
            for other in stars
            if other.normal != path and other.normal not in passed
        )

    def _calls(self, file: ProjectFile, name: str, target: str) -> bool:
        """Return whether a file calls a function of the module at `target`, as in `m.name()`."""
        if not re.search(rf"\.\s*{name}\s*\(".encode(), file.data):
            return False
        file.is_followed = True
        if (facts := file.facts) is None:
            return False
        called = (facts.resolve(each.func) or "" for each in facts.tree.calls_with_name(name))
        return any(each.endswith(f".{name}") and self._finds(file.path, each, target) for each in called)

    def _finds(self, path: str, imported: str, target: str) -> bool:
        """Return whether `from m import x` in the file at `path`, as `m.x`, reads the module at `target`."""
        module = imported.removesuffix(imported.rpartition(".")[2])
        found = self.find(path, module.rstrip(".") or module)
        return found is not None and found.normal == target


def _inherits(file: ProjectFile, classes: frozenset[str]) -> bool:
    """Return whether a class of a file directly inherits from one of some classes."""
    return any(base.rpartition(".")[2] in classes for bases in file.classes.values() for base in bases)
