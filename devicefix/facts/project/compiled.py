"""Find the code that other files let TorchScript compile."""

from __future__ import annotations

import os.path
from collections.abc import Iterator
from functools import cached_property

from devicefix.facts.exports.shared import scripted
from devicefix.facts.project.files import Files
from devicefix.facts.project.questions import remembered
from devicefix.facts.torchscript import A_MODULE, EVERYTHING


class Compiled(Files):
    """The code of all files that TorchScript compiles."""

    @remembered
    def compiled(self, path: str) -> list[str]:
        """Return what other files let TorchScript compile of a file; see `TorchScript`."""
        return sorted(self._compiled.get(os.path.normpath(path), ()))

    @cached_property
    def _compiled(self) -> dict[str, set[str]]:
        found: dict[str, set[str]] = {}
        read = set[str]()  # the files whose imports are followed
        named = ((file.normal, name) for file, names in self.exporting(scripted) for name in names)
        todo = [pair for path, name in named for pair in self._compiled_by(path, name)]
        while todo:
            path, name = todo.pop()
            if name in found.setdefault(path, set()):
                continue
            found[path].add(name)
            file = self.files[path]
            if path not in read and (name != A_MODULE or any(file.classes.values())):
                read.add(path)
                # What its functions read of other files is compiled as well; its names are unknown.
                todo += [pair for each in file.imports for pair in self._compiled_by(path, each)]
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
        yield target.normal, last
