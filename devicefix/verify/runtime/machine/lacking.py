"""Note what a program uses and the simulation lacks, for a remark at the end of `devicefix run --simulate`.

Event: `lacking` for each such use, with `what`, `file` and `line`, once for each.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial, wraps
from typing import Any

from devicefix.verify.runtime.events import Events
from devicefix.verify.runtime.imported import when_imported
from devicefix.verify.runtime.once import Once
from devicefix.verify.runtime.site import Sites

_uses: list[Once] = []  # the recorder, if there is one
_LIBRARIES = ("cupy", "flash_attn", "numba.cuda", "pycuda", "pynvml", "tensorrt", "transformer_engine")
# The calls of other modules: the module, the object in it and its attribute.
_CALLS = {
    ("triton.runtime.jit", "JITFunction", "run"): "Triton kernels",
    ("torch.utils.cpp_extension", "", "load"): "C++ extensions",
    ("torch.utils.cpp_extension", "", "load_inline"): "C++ extensions",
    ("torch.utils.cpp_extension", "", "CUDAExtension"): "C++ extensions",
}


def install(events: Events, sites: Sites) -> None:
    """Record the uses of what the simulation lacks.

    Args:
        events: the recorder of events.
        sites: finds the user's line.
    """
    _uses[:] = [Once(events, sites)]
    for name in _LIBRARIES:
        when_imported(name, partial(note, name))
    for (module, owner, name), what in _CALLS.items():
        when_imported(module, partial(_watch, module, owner, name, what))


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


def _watch(module: str, owner: str, name: str, what: str) -> None:
    """Record the calls of a function, or of a method of a class."""
    holder: Any = getattr(sys.modules[module], owner) if owner else sys.modules[module]
    setattr(holder, name, noted(getattr(holder, name), what))
