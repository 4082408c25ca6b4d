"""Leaves that a CPU keeps as leaves when they are moved. With CUDA, the result of the move is no leaf."""

from __future__ import annotations

import weakref
from collections import defaultdict
from collections.abc import Callable, Iterable
from types import FrameType
from typing import Any

import torch

from devicefix.verify.runtime.copies.functions import name_of
from devicefix.verify.runtime.copies.intent import moved_alone
from devicefix.verify.runtime.copies.memory import Move
from devicefix.verify.runtime.copies.reports import Reports
from devicefix.verify.runtime.site import Sites

_REPETITIONS = 32  # more than Python runs before it optimizes code
_SET_REQUIRES_GRAD = torch.Tensor.requires_grad.__set__  # type: ignore[attr-defined]


class Leaves:
    """The leaves that only the result of a move refers to, which would be another tensor with CUDA.

    Args:
        reports: the recorder of copy hazards.
        sites: finds the program's own lines.

    Attributes:
        moved: a weak reference to each of these leaves, and its move, by the id of the object.
        references: the references to a leaf during a move, as from `measure`.
    """

    def __init__(self, reports: Reports, sites: Sites) -> None:
        self._reports = reports
        self._sites = sites
        self.moved: dict[int, tuple[weakref.ref[Any], Move]] = {}
        self._retained: set[int] = set()
        self.references: dict[tuple[str, bool], int] = {}

    def __contains__(self, value: Any) -> bool:
        return id(value) in self.moved

    def move(self, tensor: torch.Tensor, references: int, move: Move, frame: FrameType | None) -> None:
        """Record a move of a leaf, if nothing refers to the leaf itself after it.

        Args:
            tensor: the leaf.
            references: how many references to it there are during the move.
            move: the call.
            frame: the frame that calls it.
        """
        variable = None if frame is None else moved_alone(frame, method_of(move))
        if variable is None or references != self.references.get((method_of(move), variable)):
            return
        key, moved, retained = id(tensor), self.moved, self._retained

        def forget(reference: weakref.ref[Any]) -> None:
            if key in moved and moved[key][0] is reference:
                del moved[key]
                retained.discard(key)

        moved[key] = (weakref.ref(tensor, forget), move)

    def ask(self, function: Callable[..., Any], tensor: torch.Tensor) -> None:
        """Report a question that has another answer for a tensor that is no leaf.

        Args:
            function: the function that the program calls.
            tensor: one of these leaves.
        """
        name = name_of(function)
        if name == "retain_grad":
            self._retained.add(id(tensor))
        elif name == "detach_":
            del self.moved[id(tensor)]
        elif (
            name in ("is_leaf", "requires_grad_")
            or function == _SET_REQUIRES_GRAD
            or (name == "grad" and tensor.grad is not None and id(tensor) not in self._retained)
        ):
            self._report("leaf", tensor)

    def optimize(self, parameters: Iterable[Any]) -> None:
        """Report parameters of an optimizer, which takes only leaves."""
        for parameter in parameters:
            if parameter in self:
                self._report("leaf", parameter)

    def register(self, parameter: Any) -> None:
        """Report a parameter that a module gets, which is no parameter with CUDA."""
        if parameter in self:
            self._report("parameter", parameter)

    def _report(self, what: str, tensor: torch.Tensor) -> None:
        _, move = self.moved.pop(id(tensor))
        self._reports.hazard(what, move, self._sites.current())


def method_of(move: Move) -> str:
    """Return the name of the method that a move calls."""
    return move.text.strip(".").partition("(")[0]


def measure(count: Callable[[], int]) -> dict[tuple[str, bool], int]:
    """Return how many references there are to a leaf during its move, if the program has no others.

    Args:
        count: returns the references during the last move.

    Returns:
        The references by the method, and whether a variable holds the leaf. A method is missing if their
        number changes when Python optimizes the code.
    """
    found: dict[tuple[str, bool], set[int]] = defaultdict(set)
    held = torch.zeros(1, requires_grad=True)
    for _ in range(_REPETITIONS):
        torch.zeros(1, requires_grad=True).to("cpu")
        found["to", False].add(count())
        torch.zeros(1, requires_grad=True).cpu()
        found["cpu", False].add(count())
        held = held.to("cpu")
        found["to", True].add(count())
        held = held.cpu()
        found["cpu", True].add(count())
    return {key: counts.pop() for key, counts in found.items() if len(counts) == 1}
