"""The rules' pages: their text as Markdown, and where each is on the web."""

from __future__ import annotations

from inspect import cleandoc
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from devicefix.rules.base import Rule

SITE = "https://devicefix.github.io/devicefix"


def page(rule: type[Rule]) -> str:
    """What there is to know of a rule, as Markdown."""
    return f"# {rule.name} ({rule.code})\n\n{cleandoc(rule.__doc__ or rule.summary)}\n"


def url(rule: type[Rule]) -> str | None:
    """Where the page of a rule is, None for a rule that a plugin brings."""
    return f"{SITE}/rules/{rule.code}/" if rule.__module__.startswith("devicefix.rules.") else None
