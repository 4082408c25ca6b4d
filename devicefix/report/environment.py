"""The Jinja environment of the HTML outputs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined


def environment(finalize: Callable[[Any], Any] | None = None, **filters: Callable[..., Any]) -> Environment:
    """Return an environment that reads this package's templates and escapes every value.

    Args:
        finalize: applied to every value that a template prints.
        filters: the filters that the templates use, by name.
    """
    made = Environment(
        loader=PackageLoader("devicefix.report"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=finalize,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= filters
    return made
