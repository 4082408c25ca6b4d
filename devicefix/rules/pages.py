"""The pages of rules: their text in Markdown, and their addresses."""

from __future__ import annotations

from inspect import cleandoc
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from devicefix.rules.base import Rule

SITE = "https://devicefix.github.io/devicefix"


def page(rule: type[Rule]) -> str:
    """Return the documentation of a rule in Markdown."""
    return f"# {rule.name} ({rule.code})\n\n{cleandoc(rule.__doc__ or rule.summary)}\n"


def url(rule: type[Rule]) -> str | None:
    """Return the address of a rule's page, or None for the rule of a plugin."""
    return f"{SITE}/rules/{rule.code}/" if rule.__module__.startswith("devicefix.rules.") else None
