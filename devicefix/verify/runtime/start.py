"""Set-up of each process of a run."""

from __future__ import annotations

import importlib
import os
import random
import sys
from collections.abc import Callable, Iterator
from typing import Any

from devicefix.verify.runtime import errors, modules, sources
from devicefix.verify.runtime.events import Events
from devicefix.verify.runtime.imported import when_imported
from devicefix.verify.runtime.plan import VARIABLE, Plan
from devicefix.verify.runtime.site import Sites


def begin() -> None:
    """Set this process up as its plan says, if it has a plan."""
    path = os.environ.get(VARIABLE)
    if not path:
        return
    try:
        plan = Plan.load(path)
    except OSError:  # the run is over, and this process outlived it
        return
    events = Events(plan.events, plan.watch or bool(plan.simulated))
    sites = Sites(plan.roots)
    events.emit("process", executable=sys.executable)
    sys.dont_write_bytecode = True  # a cache of rewritten code must not outlive the run
    errors.install(events)
    sources.install(modules.install(plan, events, sites))
    if not (plan.watch or plan.simulated):
        return
    when_imported("torch", lambda: _with_torch(plan, events, sites))
    if plan.seed is not None:  # last, so that the generators of the simulated CUDA machine exist
        _seed(plan.seed)


def _seed(seed: int) -> None:
    """Seed the generator of Python now, and those of torch and NumPy on import."""
    random.seed(seed)
    when_imported("torch", lambda: sys.modules["torch"].manual_seed(seed))
    when_imported("numpy.random", lambda: sys.modules["numpy.random"].seed(seed % 2**32))


def _with_torch(plan: Plan, events: Events, sites: Sites) -> None:
    """Watch torch after its import. A watch that fails must not end the program."""
    import torch

    events.emit("torch", version=torch.__version__)
    for name, install in _watches(plan, events, sites):
        try:
            install()
        except Exception as problem:
            events.emit("trouble", where=name, message=f"{type(problem).__name__}: {problem}")


def _watches(plan: Plan, events: Events, sites: Sites) -> Iterator[tuple[str, Callable[[], None]]]:
    from devicefix.verify.runtime import steps

    if plan.watch:
        yield "steps", lambda: steps.install(plan.steps, events)
    if plan.simulated:
        yield "the simulated machine", lambda: _of("machine").install(plan, events, sites)
    elif plan.machine == "cpu":
        yield "requests", lambda: _without_cuda(plan, events, sites)
        if plan.observe:
            yield "rounding", lambda: _of("machine").round_alike()
    if plan.copies and plan.watch:
        yield "copies", lambda: _of("copies").install(plan, events, sites)
    if plan.observe:
        yield "autocast", lambda: _of("autocasts").install(plan, events, sites)
        yield "observations", lambda: _of("observe").install(plan, events, sites)


def _of(module: str) -> Any:
    """Return a module that needs torch."""
    return importlib.import_module(f"devicefix.verify.runtime.{module}")


def _without_cuda(plan: Plan, events: Events, sites: Sites) -> None:
    from devicefix.verify.runtime import answers
    from devicefix.verify.runtime.requests import Requests

    requests = Requests(events, sites, answers.answer if plan.keep_going else None)
    requests.install()
    if plan.keep_going:
        answers.Devices(requests).__enter__()  # type: ignore[no-untyped-call]
