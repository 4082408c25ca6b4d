"""Callbacks after the import of a module, and contexts for it."""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from types import ModuleType

_waiting: dict[str, list[Callable[[], None]]] = {}
_contexts: dict[str, Callable[[], AbstractContextManager[None]]] = {}


def when_imported(name: str, call: Callable[[], None]) -> None:
    """Call a function after the import of a module, or now if it is imported already.

    Args:
        name: the full name of the module.
        call: the function. It runs before the import statement returns.
    """
    if name in sys.modules:
        call()
        return
    _find()
    _waiting.setdefault(name, []).append(call)


def import_within(context: Callable[[], AbstractContextManager[None]], *names: str) -> None:
    """Import modules in a context, which undoes what they must not see.

    Args:
        context: makes the context.
        *names: the full names of the modules.
    """
    _find()
    _contexts.update(dict.fromkeys(names, context))


def import_as_usual(*names: str) -> None:
    """Undo `import_within`."""
    for name in names:
        _contexts.pop(name, None)


def _find() -> None:
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())


class _Finder(importlib.abc.MetaPathFinder):
    """A finder that delegates to the other finders, and wraps the loader."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname not in _waiting and fullname not in _contexts:
            return None
        calls, context = _waiting.pop(fullname, []), _contexts.pop(fullname, nullcontext)
        spec = importlib.util.find_spec(fullname)
        if spec is None or spec.loader is None:
            _waiting[fullname], _contexts[fullname] = calls, context
            return None
        load = spec.loader.exec_module

        def load_and_call(module: ModuleType) -> None:
            with context():
                load(module)
            for call in calls:
                call()

        spec.loader.exec_module = load_and_call  # type: ignore[method-assign]
        return spec
