"""Optimizer steps: their count, and the limit that ends the program."""

from __future__ import annotations

import os
import sys
from typing import Any

from torch.optim.optimizer import register_optimizer_step_post_hook

from devicefix.verify.runtime.events import Events


class StepsReached(SystemExit):
    """The exit of the program after the limit on optimizer steps."""


def install(limit: int | None, events: Events) -> None:
    """Record every optimizer step of this process.

    Args:
        limit: the number of steps after which the process ends with status 0, or None.
        events: the recorder of events.
    """
    taken = 0

    def step(*_: Any) -> None:
        nonlocal taken
        taken += 1
        if limit is not None and taken > limit:  # the program caught the exception
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(0)
        events.emit("step", steps=taken)
        if taken == limit:
            events.emit("stopped", steps=taken)
            raise StepsReached(0)

    register_optimizer_step_post_hook(step)
