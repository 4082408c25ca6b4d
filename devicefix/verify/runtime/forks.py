"""Processes that a program forks."""

from __future__ import annotations

import os
from collections.abc import Callable


def after_fork(function: Callable[[], None]) -> None:
    """Call a function in each process that this one forks; Windows has no forks."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=function)
