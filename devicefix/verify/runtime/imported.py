"""Callbacks after the import of a module."""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Callable, Sequence
from types import ModuleType

_waiting: dict[str, list[Callable[[], None]]] = {}


def when_imported(name: str, call: Callable[[], None]) -> None:
    """Call a function after the import of a module, or now if it is imported already.

    Args:
        name: the full name of the module.
        call: the function. It runs before the import statement returns.
    """
    if name in sys.modules:
        call()
        return
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())
    _waiting.setdefault(name, []).append(call)


class _Finder(importlib.abc.MetaPathFinder):
    """A finder that delegates to the other finders, and wraps the loader to call back after the import."""

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,
        target: ModuleType | None = None,
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
