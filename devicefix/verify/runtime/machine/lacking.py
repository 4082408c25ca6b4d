"""What a program uses and the simulation lacks, for a remark at the end of `devicefix run --simulate`.

Event: `lacking` for each such use, with `what`, `file` and `line`, once for each.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from devicefix.verify.runtime.events import Events
from devicefix.verify.runtime.imported import when_imported
from devicefix.verify.runtime.once import Once
from devicefix.verify.runtime.site import Sites

_uses: list[Once] = []  # the recorder, if there is one
_LIBRARIES = ("cupy", "numba.cuda", "pycuda", "pynvml", "tensorrt", "flash_attn", "transformer_engine")


def install(events: Events, sites: Sites) -> None:
    """Record the uses of what the simulation lacks.

    Args:
        events: the recorder of events.
        sites: finds the user's line.
    """
    _uses[:] = [Once(events, sites)]
    for name in _LIBRARIES:
        when_imported(name, lambda name=name: note(name))  # type: ignore[misc]
    when_imported("triton.runtime.jit", lambda: _watch("triton.runtime.jit:JITFunction.run", "Triton kernels"))
    extensions = ("load", "load_inline", "CUDAExtension")
    for name in extensions:
        path = f"torch.utils.cpp_extension:{name}"
        when_imported("torch.utils.cpp_extension", lambda path=path: _watch(path, "extensions"))  # type: ignore[misc]


def note(what: str) -> None:
    """Record that the running line uses something.

    Args:
        what: what the simulation lacks.
    """
    for uses in _uses:
        uses.record("lacking", what=what)


def noted(call: Callable[..., Any], what: str) -> Callable[..., Any]:
    """Return a function that records its calls.

    Args:
        call: the function.
        what: what it uses.
    """

    @wraps(call)
    def noting(*args: Any, **kwargs: Any) -> Any:
        note(what)
        return call(*args, **kwargs)

    return noting


def _watch(path: str, what: str) -> None:
    import importlib

    module, _, names = path.partition(":")
    owner: Any = importlib.import_module(module)
    *classes, name = names.split(".")
    for each in classes:
        owner = getattr(owner, each)
    setattr(owner, name, noted(getattr(owner, name), what))
