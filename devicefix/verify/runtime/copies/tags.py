"""Tags: what is known of the program's tensor objects."""

from __future__ import annotations

import weakref

from devicefix.verify.runtime.copies.memory import Move, Replica
from devicefix.verify.runtime.site import Site


class Handle:
    """A tensor object that shows watched memory.

    Attributes:
        replica: the replica that it shows.
        counted: whether it shares its version counter with the first tensor of the memory.
        twins: the ids of the tensors that would be one object without the watch.
        altered: the move and the line by which a twin, and so this object too, changed; or None.
    """

    __slots__ = ("altered", "counted", "replica", "twins")

    def __init__(self, replica: Replica, counted: bool) -> None:
        self.replica = replica
        self.counted = counted
        self.twins: list[int] = []
        self.altered: tuple[Move, Site] | None = None


class Tag(weakref.ref):  # type: ignore[type-arg]
    """The record of one tensor object, dropped with the object. Untagged tensors are on the host.

    Attributes:
        key: the id of the object.
        handle: the watched memory that the tensor shows; None for other tensors on the accelerator.
    """

    __slots__ = ("handle", "key")
    key: int
    handle: Handle | None
