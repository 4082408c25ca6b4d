"""Find the classes of a project whose `cuda` or `to` is their own, subclasses included."""

from __future__ import annotations

import builtins
import os.path
import re
from functools import cached_property

from devicefix.facts.exports.classes import (
    adds_cuda_method,
    cuda_classes,
    defines_get_device,
    mixed_classes,
    to_classes,
)
from devicefix.facts.exports.texts import attributes_set_on_any
from devicefix.facts.project.file import ProjectFile
from devicefix.facts.project.files import Files, closure
from devicefix.facts.project.questions import remembered

# No class of theirs has a `cuda`. torch imports them itself: no file of a project can take their names.
_STANDARD = ("abc", "collections", "collections.abc", "enum", "typing")
_LOADS = re.compile(
    rb"def (?:load_state_dict|_load_from_state_dict|set_extra_state)\b|load_state_dict_p\w+_hook"
)


class Classes(Files):
    """The classes of a project, by their names."""

    @cached_property
    def _bases(self) -> dict[str, set[str]]:
        found: dict[str, set[str]] = {}
        for file in self.files.values():
            for name, names in file.classes.items():
                bases = (base for base in names if not _is_standard(file, base))
                found.setdefault(name, set()).update(base.rpartition(".")[2] for base in bases)
        return found

    @cached_property
    def cuda_classes(self) -> frozenset[str]:
        """The classes that define or inherit a `cuda`."""
        return self._with_subclasses({name for _, names in self.exporting(cuda_classes) for name in names})

    @cached_property
    def to_classes(self) -> frozenset[str]:
        """The other classes that define a `to`."""
        return frozenset(name for _, names in self.exporting(to_classes) for name in names)

    @remembered
    def adds_cuda(self) -> bool:
        """Return whether an object or class of unknown name gets its own `cuda` after it was made."""
        return any(True for _ in self.exporting(adds_cuda_method))

    @remembered
    def has_own_to(self) -> bool:
        """Return whether any class defines a `to`, but no `cuda`."""
        return bool(self.to_classes)

    @remembered
    def always_has_to(self) -> bool:
        """Return whether all classes with their own `cuda` inherit a `to`, such as that of torch."""
        return not self.adds_cuda() and not self.to_classes and all(map(self.is_foreign, self.cuda_classes))

    @remembered
    def has_own_loading(self) -> bool:
        """Return whether a module of the project may load its state in its own way."""
        return any(_LOADS.search(file.data) for file in self.holding(b"_state_dict", b"set_extra_state"))

    @remembered
    def is_cuda_class(self, name: str) -> bool:
        """Return whether a class of this name defines or inherits `cuda`."""
        return name in self.cuda_classes

    @remembered
    def is_always_cuda_class(self, name: str) -> bool:
        """Return whether all classes of this name define or inherit `cuda`."""
        return name in self.cuda_classes and all(
            (name in file.export(cuda_classes) and name not in file.export(mixed_classes))
            or any(base.rpartition(".")[2] in self.cuda_classes for base in file.classes[name])
            for file in self.mentioning(name)
            if name in file.classes
        )

    @remembered
    def may_be_own(self, name: str) -> bool:
        """Return whether an instance of a class of this name may have its own `cuda` or `to`."""
        return name in self._above_own_classes

    @remembered
    def is_never_own(self, method: str) -> bool:
        """Return whether no object with its own `cuda` or `to` has some method, by a pattern."""
        reached = closure(self._own_classes, self._bases)
        files = (file for file in self.files.values() if not reached.isdisjoint(file.classes))
        found = re.compile(rf"def[ \t]+{method}\b|\b{method}\b[ \t]*[:=]|__getattr|setattr\(".encode())
        return not any(map(self.is_foreign, reached)) and not any(file.holds(found) for file in files)

    @remembered
    def is_constant(self, path: str, owner: str, name: str) -> bool:
        """Return whether only a class of a file sets an attribute of its objects; see `Others`."""
        if self._with_subclasses({owner}) != {owner}:
            return False
        here, users = os.path.normpath(path), self.mentioning(owner)
        found = ((file, file.export(attributes_set_on_any)) for file in {*self.mentioning(name), *users})
        return not any(
            name in names or ("" in names and file in users) for file, names in found if file.normal != here
        )

    @remembered
    def defines_get_device(self) -> bool:
        """Return whether any file defines a `get_device`, as tensors do."""
        return any(True for _ in self.exporting(defines_get_device))

    @cached_property
    def _own_classes(self) -> frozenset[str]:
        """The classes whose `cuda` is their own, or the one of torch beside a `to` of their own."""
        return self.cuda_classes | self._with_subclasses(set(filter(self.is_foreign, self.to_classes)))

    @cached_property
    def _above_own_classes(self) -> frozenset[str]:
        return closure(self._own_classes, self._bases) if self._own_classes else frozenset()

    @remembered
    def is_foreign(self, name: str) -> bool:
        """Return whether a class inherits from one of another project: only that can bring torch's `cuda`."""
        reached = closure({name}, self._bases)
        return any(base not in self._bases and not hasattr(builtins, base) for base in reached)

    def _with_subclasses(self, classes: set[str]) -> frozenset[str]:
        if not classes:
            return frozenset()
        subclasses: dict[str, set[str]] = {}
        for name, bases in self._bases.items():
            for base in bases:
                subclasses.setdefault(base, set()).add(name)
        return closure(classes, subclasses)

    def _family(self, path: str) -> frozenset[str]:
        """Return the names of the classes of a file and of those that inherit from them."""
        file = self.files.get(path)
        return self._with_subclasses(set(file.classes)) if file is not None else frozenset()


def _is_standard(file: ProjectFile, base: str) -> bool:
    """Return whether a file imports a base class, such as `NamedTuple`, from one of these modules alone."""
    module, _, name = base.rpartition(".")
    if module:
        return module in _STANDARD and module in file.imports
    if not any(f"{each}.{name}" in file.imports for each in _STANDARD):
        return False  # this is soon known of most bases
    found = {each.rpartition(".")[0] for each in file.imports if each.rpartition(".")[2] == name}
    return found.issubset(_STANDARD)
