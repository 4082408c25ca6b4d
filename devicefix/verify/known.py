"""Errors whose text shows their cause, as `known.toml` lists them."""

from __future__ import annotations

import re
from functools import cache
from typing import NamedTuple

from devicefix.config import toml
from devicefix.verify.cause import Cause


class Known(NamedTuple):
    """A kind of error.

    Attributes:
        pattern: what its type and message contain.
        cause: its cause.
        evidence: what the text shows.
        advice: what to do.
    """

    pattern: re.Pattern[str]
    cause: Cause
    evidence: str
    advice: str


@cache
def kinds(group: str) -> tuple[Known, ...]:
    """Return the kinds of errors of a group, such as "memory"."""
    groups = toml.beside(__file__)
    return tuple(
        Known(re.compile("|".join(kind["patterns"])), Cause(kind["cause"]), kind["evidence"], kind["advice"])
        for kind in groups[group]
    )


def first(text: str, *groups: str) -> Known | None:
    """Return the first kind of error in some groups that a text is of.

    Args:
        text: the type and message of an error.
        *groups: the names of the groups.
    """
    return next((known for group in groups for known in kinds(group) if known.pattern.search(text)), None)
