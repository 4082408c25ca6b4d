"""Counts optimizer steps, and ends the program after as many as were asked for."""

from __future__ import annotations

import os
import sys
from typing import Any

from torch.optim.optimizer import register_optimizer_step_post_hook

from devicefix.verify.runtime.events import Events


class StepsReached(SystemExit):
    """Ends the program: it has taken as many optimizer steps as were asked for."""


def install(limit: int | None, events: Events) -> None:
    """Write down every optimizer step that this process takes.

    Args:
        limit: the number of steps after which the process ends with status 0, None for no end.
        events: where to write.
    """
    taken = 0

    def step(*_: Any) -> None:
        nonlocal taken
        taken += 1
        if limit is not None and taken > limit:  # the program has caught the exception, and goes on
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(0)
        events.emit("step", steps=taken)
        if taken == limit:
            events.emit("stopped", steps=taken)
            raise StepsReached(0)

    register_optimizer_step_post_hook(step)
