"""Moves between devices: where each goes, and what CUDA would have copied."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import torch

from devicefix.verify.runtime.copies.functions import name_of
from devicefix.verify.runtime.copies.intent import ACCELERATOR, HOST, SAME, meant
from devicefix.verify.runtime.copies.ledger import Ledger
from devicefix.verify.runtime.copies.memory import Move, watchable
from devicefix.verify.runtime.site import Sites

TORCH = torch.__path__[0]
_RUNTIME = __name__.split(".copies")[0]

Arguments = tuple[Any, ...]
Options = dict[str, Any]


class Moves:
    """The moves of tensors.

    Args:
        ledger: the record of replicas.
        sites: finds the program's own lines.

    Attributes:
        pending: a move whose result must stay the same object: the id of the tensor, the line of the move,
            the sides that it moves between, and the move. See `chained`.
    """

    def __init__(self, ledger: Ledger, sites: Sites) -> None:
        self._ledger = ledger
        self._sites = sites
        self.pending: tuple[int, tuple[str, int], str, str, Move] | None = None
        self._asked = (("", 0), HOST)

    def ask(self, tensor: torch.Tensor) -> None:
        """Record that the program reads the device of a tensor."""
        self._asked = (_line_of(_caller()[0]), self._ledger.side(tensor))

    def moved(self, func: Callable[..., Any], args: Arguments, kwargs: Options, result: Any) -> Any:
        """Record a move, and return its result: a new object where CUDA would have created one."""
        name = name_of(func)
        source = args[0] if args else kwargs.get("data", kwargs.get("obj"))
        if not isinstance(result, torch.Tensor) or torch._C._get_tracing_state() is not None:
            return result
        if not isinstance(source, torch.Tensor):
            self._from_array(name, source, kwargs, result)
            return result
        frame, in_module = _caller()
        here = self._ledger.side(source)
        there = self._destination(name, args, kwargs, frame) or here
        if result is not source:
            self._ledger.set_side(result, there)
        elif here != there:
            move = Move(self._sites.current(), _text(name, there))
            if not watchable(source):
                self._ledger.set_side(source, there)
            elif in_module and isinstance(source, torch.nn.Parameter):
                self._ledger.take_along(source, here, there, move)
            elif source.requires_grad or (isinstance(source, torch.nn.Parameter) and there == ACCELERATOR):
                # the result must stay the same object, since another one would change the graph
                self.pending = (id(source), _line_of(frame), here, there, move)
                if there == ACCELERATOR or not source.is_leaf:
                    self._ledger.set_side(source, there)
            elif (alias := _another(source)) is not None:
                self._ledger.link(source, alias, here, there, move)
                return alias
        return result

    def _destination(
        self, name: str, args: Arguments, kwargs: Options, frame: FrameType | None
    ) -> str | None:
        """Return the side that a move goes to; None if it only changes the dtype or names no device."""
        if name in ("cpu", "cuda"):
            return HOST if name == "cpu" else ACCELERATOR
        if name in ("to", "type_as"):
            other = kwargs.get("other", args[1] if len(args) > 1 else None)
            if isinstance(other, torch.Tensor):
                return self._ledger.side(other)
            if isinstance(other, torch.dtype) and kwargs.get("device") is None:
                return None
        elif name != "type" and kwargs.get("device") is None:
            return None
        return self.meant(frame)

    def meant(self, frame: FrameType | None = None) -> str | None:
        """Return the device that the calling line means."""
        frame = frame or _caller()[0]
        if frame is None:
            return None
        found, frame = meant(frame)
        if found != SAME:
            return found
        line, side = self._asked
        return side if line == _line_of(frame) else ACCELERATOR

    def chained(self, source: Any, result: Any) -> None:
        """Record `x.cpu().detach()`, where `detach` returns the new object for the result of the move."""
        assert self.pending is not None
        (*place, here, there, move), self.pending = self.pending, None
        is_chained = place == [id(source), _line_of(_caller()[0])]
        if is_chained and type(result) is torch.Tensor and result.numel():
            self._ledger.link(source, result, here, there, move)

    def _from_array(self, name: str, source: Any, kwargs: Options, result: torch.Tensor) -> None:
        """Record `torch.as_tensor(array, device=device)`, which shares the array's memory on a CPU."""
        side = self.meant() if kwargs.get("device") is not None else HOST
        shows = type(source).__module__ == "numpy" and not result.untyped_storage().resizable()
        if shows:
            self._ledger.arrays.wrap(source, result)
        if side == ACCELERATOR and shows and result.numel():
            move = Move(self._sites.current(), f"torch.{name}(device=device)")
            self._ledger.link(result, result, HOST, ACCELERATOR, move)
        elif side == ACCELERATOR:
            self._ledger.set_side(result, ACCELERATOR)


def _another(tensor: torch.Tensor) -> torch.Tensor | None:
    """Return another object with a tensor's class, attributes and memory; None if there can't be one."""
    kind = type(tensor)
    if kind is torch.Tensor:
        return tensor.detach()
    if kind.__torch_dispatch__ is not torch.Tensor.__torch_dispatch__:  # its memory may be elsewhere
        return None
    alias = tensor.detach().as_subclass(kind)
    alias.__dict__ = tensor.__dict__
    return alias


def _caller() -> tuple[FrameType | None, bool]:
    """Return the frame that called torch, and whether the call moves a module."""
    frame: FrameType | None = sys._getframe(1)
    in_module = False
    while frame is not None:
        if not frame.f_code.co_filename.startswith(TORCH):
            if not frame.f_globals.get("__name__", "").startswith(_RUNTIME):
                return frame, in_module
        in_module = in_module or frame.f_code.co_name == "_apply"
        frame = frame.f_back
    return None, in_module


def _line_of(frame: FrameType | None) -> tuple[str, int]:
    return (frame.f_code.co_filename, frame.f_lineno) if frame is not None else ("", 0)


def _text(name: str, there: str) -> str:
    if name in ("cpu", "cuda"):
        return f".{name}()"
    return f".{name}({'device' if there == ACCELERATOR else 'cpu'})"
