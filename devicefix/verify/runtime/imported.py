"""Call something as soon as a module has been imported."""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Callable, Sequence
from types import ModuleType

_waiting: dict[str, list[Callable[[], None]]] = {}


def when_imported(name: str, call: Callable[[], None]) -> None:
    """Call something once a module has been imported, or at once where it has been already.

    Args:
        name: the module's full name.
        call: what to call. It runs before the import is over for whoever asked for it.
    """
    if name in sys.modules:
        call()
        return
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())
    _waiting.setdefault(name, []).append(call)


class _Finder(importlib.abc.MetaPathFinder):
    """Finds nothing itself: it lets the other finders find, and hears when the import is over."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname not in _waiting:
            return None
        calls = _waiting.pop(fullname)
        spec = importlib.util.find_spec(fullname)
        if spec is None or spec.loader is None:
            _waiting[fullname] = calls
            return None
        load = spec.loader.exec_module

        def load_and_call(module: ModuleType) -> None:
            load(module)
            for call in calls:
                call()

        spec.loader.exec_module = load_and_call  # type: ignore[method-assign]
        return spec
