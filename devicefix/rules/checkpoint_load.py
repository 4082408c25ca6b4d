from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from functools import cached_property

from devicefix.devices.expression import DeviceExpr
from devicefix.facts.flow.copied import is_only_copied
from devicefix.facts.flow.sinks import LOADS, load_location, maps_to_cuda
from devicefix.facts.values import cuda_device, cuda_literal, is_constant, is_current_object, last_name
from devicefix.model import Finding, Fix
from devicefix.rewrite.edits import with_keyword
from devicefix.rules.base import Example, Rule

_ELSEWHERE = "`map_location` selects a CUDA device, which may not exist"
_NOWHERE = "loading a GPU checkpoint fails without CUDA; pass `map_location`"
_NONE = "loading a GPU checkpoint fails without CUDA; pass another `map_location`"
_NAMES = ("map_location", "_map_location")
_LOADS = re.compile(r"\bload(?:_state_dict_from_url)?\b")
_ASKING = (ast.Compare, ast.If, ast.IfExp, ast.BoolOp, ast.UnaryOp)


class CheckpointLoad(Rule):
    """
    ## What it does
    Finds calls to functions such as `torch.load` that omit `map_location`, or set it to a CUDA device or to a parameter
    that defaults to `None`.

    ## Why it matters
    Without CUDA, loading a checkpoint that was saved on a GPU raises the error "Attempting to deserialize object on a
    CUDA device" unless `map_location` moves the tensors to an available device.

    ## Example
    ```python
    state = torch.load("last.pt")
    state = torch.load("last.pt", map_location="cuda:0")
    ```

    ## Use instead
    ```python
    state = torch.load("last.pt", map_location=None if torch.cuda.is_available() else "cpu")
    state = torch.load("last.pt", map_location="cuda:0" if torch.cuda.is_available() else "cpu")
    ```

    ## Fix safety
    The fix is usually safe: with CUDA, every tensor ends up on the same device as before. If a call has no `map_location`, the fix usually uses `None` with CUDA, because naming the GPU would also move the checkpoint's CPU tensors.

    If the program only passes the checkpoint to `model.load_state_dict(...)`, the fix usually uses `"cpu"` even with
    CUDA, because the method copies the values into the model, which stays on its device. This does not apply with
    `assign=True`, if `model` may be an optimizer, or if a module in the project defines how its state is loaded.
    """

    code = "DF501"
    name = "checkpoint-load"
    summary = "Loading a GPU checkpoint fails without CUDA"
    words = (b"load_state_dict_from_url",)
    common_words = (b"load",)
    INVALID = (
        Example(
            "a parameter that callers may leave out",
            before="""
                import torch


                class Net:
                    def __init__(self, path, q7=None):
                        self.state = torch.load(path, map_location=q7)
            """,
            after="""
                import torch


                class Net:
                    def __init__(self, path, q7=None):
                        self.state = torch.load(path, map_location=q7 if q7 or torch.cuda.is_available() else "cpu")
            """,
        ),
        Example(
            "no place",
            before="""
                import torch

                net.load_state_dict(torch.load(path)["model"])
            """,
            after="""
                import torch

                net.load_state_dict(torch.load(path, map_location=None if torch.cuda.is_available() else "cpu")["model"])
            """,
        ),
        Example(
            "what modules copy, however they get it, and what is kept",
            before="""
                import torch


                def restore(path, optimizer):
                    net = torch.nn.Linear(2, 2)
                    net.load_state_dict(torch.load(path)["model"])
                    saved = torch.load(path + ".ema", weights_only=True)
                    if "ema" in saved:
                        saved = saved["ema"]
                    ema = make()
                    ema.load_state_dict(saved.get("net"), strict=False)
                    ema.eval()
                    own = torch.load(path)
                    ema.load_state_dict(own, assign=True)
                    both = torch.load(path + ".all")
                    net.load_state_dict(both["model"])
                    optimizer.load_state_dict(both["optimizer"])
                    return net, ema(1)


                def unknown(it, path):
                    it.load_state_dict(torch.load(path))
            """,
            after="""
                import torch

                map_location = None if torch.cuda.is_available() else "cpu"


                def restore(path, optimizer):
                    net = torch.nn.Linear(2, 2)
                    net.load_state_dict(torch.load(path, map_location="cpu")["model"])
                    saved = torch.load(path + ".ema", weights_only=True, map_location="cpu")
                    if "ema" in saved:
                        saved = saved["ema"]
                    ema = make()
                    ema.load_state_dict(saved.get("net"), strict=False)
                    ema.eval()
                    own = torch.load(path, map_location=map_location)
                    ema.load_state_dict(own, assign=True)
                    both = torch.load(path + ".all", map_location=map_location)
                    net.load_state_dict(both["model"])
                    optimizer.load_state_dict(both["optimizer"])
                    return net, ema(1)


                def unknown(it, path):
                    it.load_state_dict(torch.load(path, map_location=map_location))
            """,
        ),
        Example(
            "a cache of tensors on any device",
            before="""
                import os

                import torch


                def cached(path):
                    if os.path.isfile(path):
                        return torch.load(path)
                    found = net(path)
                    torch.save(found, path)
                    return found
            """,
            after="""
                import os

                import torch


                def cached(path):
                    if os.path.isfile(path):
                        return torch.load(path, map_location=None if torch.cuda.is_available() else "cpu")
                    found = net(path)
                    torch.save(found, path)
                    return found
            """,
        ),
        Example(
            "a test that loads what another program has saved",
            before="""
                import shutil

                import torch


                def test_loading(tmp_path):
                    shutil.copy("reference.pt", tmp_path)
                    torch.load(tmp_path / "reference.pt")
            """,
            after="""
                import shutil

                import torch


                def test_loading(tmp_path):
                    shutil.copy("reference.pt", tmp_path)
                    torch.load(tmp_path / "reference.pt", map_location=None if torch.cuda.is_available() else "cpu")
            """,
        ),
        Example(
            "several loads, which share a location",
            before="""
                import torch


                def load(path):
                    return torch.load(path), torch.load(path + ".ema", None)
            """,
            after="""
                import torch


                def load(path):
                    map_location = None if torch.cuda.is_available() else "cpu"
                    return torch.load(path, map_location=map_location), torch.load(path + ".ema", map_location)
            """,
        ),
        Example(
            "a location on a CUDA device, above what is moved to it in the same function",
            before="""
                import multiprocessing

                import torch


                def load(path):
                    model = torch.jit.load(path, map_location="cuda")
                    return model(torch.ones(1).cuda())


                def load_alone(path):
                    return torch.jit.load(path, map_location="cuda")


                def run(paths):
                    return multiprocessing.Pool(2).map(load, paths)
            """,
            after="""
                import multiprocessing

                import torch


                def load(path):
                    device = "cuda" if torch.cuda.is_available() else "cpu"
                    model = torch.jit.load(path, map_location=device)
                    return model(torch.ones(1).to(device))


                def load_alone(path):
                    return torch.jit.load(path, map_location="cuda" if torch.cuda.is_available() else "cpu")


                def run(paths):
                    return multiprocessing.Pool(2).map(load, paths)
            """,
        ),
        Example(
            "loads on another machine, which the variables of a function are sent to",
            before="""
                import ray
                import torch


                def run(path):
                    def load():
                        return torch.load(path), torch.load(path + ".ema")

                    return ray.remote(load).remote()
            """,
            after="""
                import ray
                import torch


                def run(path):
                    def load():
                        return torch.load(path, map_location=None if torch.cuda.is_available() else "cpu"), torch.load(
                            path + ".ema", map_location=None if torch.cuda.is_available() else "cpu"
                        )

                    return ray.remote(load).remote()
            """,
        ),
        Example(
            "loads in two functions, which share a constant of the module",
            before="""
                import torch


                def first(path):
                    return torch.load(path)


                def second(path):
                    return torch.load(path), torch.load(path, pickle_module=dill)
            """,
            after="""
                import torch

                map_location = None if torch.cuda.is_available() else "cpu"


                def first(path):
                    return torch.load(path, map_location=map_location)


                def second(path):
                    return torch.load(path, map_location=map_location), torch.load(
                        path, pickle_module=dill, map_location=map_location
                    )
            """,
        ),
        Example(
            "a place on CUDA",
            before="""
                import torch

                state = torch.load(path, map_location='cuda:0')
            """,
            after="""
                import torch

                state = torch.load(path, map_location='cuda:0' if torch.cuda.is_available() else 'cpu')
            """,
        ),
        Example(
            "the current device, where the module has one",
            before="""
                import torch

                device = torch.device("cuda")
                net.to(device)
                state = torch.load(path, map_location="cuda")
                other = torch.load(path, map_location=torch.device("cuda"))
            """,
            after="""
                import torch

                device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
                net.to(device)
                state = torch.load(path, map_location=device)
                other = torch.load(path, map_location=device)
            """,
        ),
        Example(
            "a function that moves to CUDA",
            before="""
                import torch

                state = torch.load(path, lambda storage, loc: storage.cuda(0))
            """,
            after="""
                import torch

                state = torch.load(path, (lambda storage, loc: storage.cuda(0)) if torch.cuda.is_available() else "cpu")
            """,
        ),
        Example(
            "a dictionary that maps from one GPU to another",
            before="""
                import torch

                def resume(path, rank):
                    place = f"cuda:{rank}"
                    state = torch.load(path, map_location={"cuda:0": place})
                    place = f"cuda:{rank}"
                    places = {"cuda:%d" % 0: "cuda:%d" % rank}
                    return torch.load(path, places)
            """,
            after="""
                import torch

                def resume(path, rank):
                    place = f"cuda:{rank}"
                    state = torch.load(path, map_location={"cuda:0": place} if torch.cuda.is_available() else "cpu")
                    place = f"cuda:{rank}"
                    places = {"cuda:%d" % 0: "cuda:%d" % rank}
                    return torch.load(path, places if torch.cuda.is_available() else "cpu")
            """,
        ),
    )
    VALID = (
        Example(
            "a parameter that the function replaces, or that has a default",
            """
                import torch


                def load(path, map_location=None, where="cpu"):
                    if map_location is None:
                        map_location = "cpu"
                    return torch.load(path, map_location), torch.load(path, map_location=where)


                def read(path, q7=None):
                    return torch.load(path, map_location=q7) if q7 is not None else torch.load(path, "cpu")
            """,
        ),
        Example(
            "the CPU",
            """
                import torch

                state = torch.load(path, map_location="cpu")
            """,
        ),
        Example(
            "a function that keeps everything on the CPU",
            """
                import torch

                state = torch.load(path, map_location=lambda storage, loc: storage)
            """,
        ),
        Example(
            "a variable",
            """
                import torch

                state = torch.load(path, map_location=device)
            """,
        ),
        Example(
            "a dictionary that maps to the CPU",
            """
                import torch

                places = {"cuda:0": "cpu"}
                state = torch.load(path, map_location=places)
            """,
        ),
        Example(
            "load of numpy",
            """
                import numpy as np

                state = np.load(path)
            """,
        ),
    )

    def visit_Call(self, node: ast.Call) -> Iterator[Finding]:
        if not self.facts.call(node, *LOADS):
            return
        if any(isinstance(arg, ast.Starred) for arg in node.args):
            return
        given = load_location(self.facts, node)
        if given is None or is_constant(given, None):
            yield from self._nowhere(node, given)
        elif self._may_be_left_out(given):
            if not self.facts.is_guarded(node):
                yield self.finding(given, f"{_NOWHERE} if the caller does not", self._unless_given(given))
        elif self._selects_cuda(given) and not self.facts.is_guarded(node):
            self.context.mark_handled(given)
            of_cuda = not cuda_device(self.facts, given)
            fix = self._shared(given) or self.context.when_cuda(given, '"cpu"', of_cuda=of_cuda)
            advised = "it only if CUDA is available" if of_cuda else self._advised
            yield self.finding(given, f"{_ELSEWHERE}; use {advised}", fix)

    def _shared(self, given: ast.expr) -> Fix | None:
        """Return the fix that makes a location the device that the module has, or None."""
        is_current = cuda_literal(given) is None or is_current_object(self.facts, given)
        if not is_current:
            return None
        known = self.devices.shared(given, define=self.devices.accelerator is not None, may_be_text=True)
        return None if known is None else self.context.replace(given, known)

    def _nowhere(self, node: ast.Call, given: ast.expr | None) -> Iterator[Finding]:
        if any(keyword.arg is None for keyword in node.keywords):
            return  # `**kwargs` may contain it
        if self.facts.is_guarded(node):
            return
        code, use = self._location(node)
        if given is not None:
            fix = self.context.edit(given, lambda _: code(), use)
        else:

            def located(text: str) -> str:
                return with_keyword("map_location", code())(text)

            fix = self.context.edit(node, located, use)
        yield self.finding(node, _NOWHERE if given is None else _NONE, fix)

    def _location(self, node: ast.Call) -> tuple[Callable[[], str], DeviceExpr]:
        """Return the code of a location, and what it needs: several calls share a constant of the module."""
        copied = is_only_copied(self.context.forwards, node) and not self.devices.why_unsafe(node)
        # The project is asked last: a file is checked again where an answer of it differs.
        if copied and not self.context.project.has_own_loading():
            cpu = DeviceExpr(self.context.source.quoted('"cpu"'))
            return lambda: cpu.text, cpu
        where = self._elsewhere(node)
        return self.devices.constant(node, () if self._calls_once else _NAMES, where)

    def _elsewhere(self, node: ast.Call) -> DeviceExpr:
        """Return the location of a checkpoint: with CUDA where it was saved, else the device in its place."""
        # A random state must be on the CPU.
        is_free = self.devices.accelerator is not None and not self.context.source.holds("rng_state")
        device = self.devices.shared(node, define=True, may_be_text=True) if is_free else None
        if self._keeps_others:
            return self._as_saved(node)
        if device is None:
            return self.devices.either(node, "None", of_cuda=True)
        question = self.devices.available(node, of_cuda=True)
        return DeviceExpr(f"None if {question.text} else {device.text}", question.needs | device.needs)

    @property
    def _keeps_others(self) -> bool:
        """Return whether checkpoints may be those of another accelerator, which stays as it is."""
        return self.devices.accelerator is None and self.facts.serves_others

    def _as_saved(self, node: ast.AST) -> DeviceExpr:
        """Return the location that puts on the CPU only what CUDA has saved, where that is not available."""
        torch = self.devices.torch(node)
        asked = f"{torch.text}.cuda.is_available()"
        new = f'lambda data, tag: None if {asked} or "cuda" not in tag else data'
        return DeviceExpr(self.context.source.quoted(new), torch.needs)

    @cached_property
    def _calls_once(self) -> bool:
        """Return whether the text names a function that loads only once: a constant would not be shared."""
        return len(_LOADS.findall(self.facts.tree.text)) < 2

    def _may_be_left_out(self, given: ast.expr) -> bool:
        """Return whether a location is a parameter whose default is None, which nothing replaces or asks about."""
        found = self.facts.tree.lookup(given)
        if found is None or len(found[1]) != 1 or not found[1][0].parameter:
            return False
        if not is_constant(found[1][0].default, None):
            return False
        reads = self.facts.reads_in(found[0], last_name(given))
        return not any(isinstance(self.facts.tree.parents.get(read), _ASKING) for read in reads)

    def _unless_given(self, given: ast.expr) -> Fix:
        """Return the fix that loads to the CPU without CUDA, where no location is passed."""
        code = self.context.source.code(given)
        if self._keeps_others:
            location = self._as_saved(given)
            return self.context.edit(given, f"{code} or ({location.text})", location)
        question = self.devices.available(given, of_cuda=True)
        text = self.context.source.quoted(f'{code} if {code} or {question.text} else "cpu"')
        return self.context.edit(given, text, question)

    def _selects_cuda(self, given: ast.expr) -> bool:
        """Return whether a location puts something on a CUDA device; torch accepts no number."""
        if isinstance(given, ast.Lambda):
            parts = (each for each in ast.walk(given.body) if isinstance(each, ast.Attribute))
            return any(each.attr == "cuda" and self.facts.resolve(each) is None for each in parts)
        return cuda_device(self.facts, given) or maps_to_cuda(self.facts, given)
