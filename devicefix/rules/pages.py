"""The pages of rules: their text in Markdown, and their addresses."""

from __future__ import annotations

import re
from inspect import cleandoc
from typing import TYPE_CHECKING, Any

from devicefix.rules.categories import category

if TYPE_CHECKING:
    from devicefix.rules.base import Rule

SITE = "https://devicefix.github.io/devicefix"


def page(rule: type[Rule]) -> str:
    """Return the documentation of a rule in Markdown."""
    return f"# {rule.name} ({rule.code})\n\n{cleandoc(rule.__doc__ or rule.summary)}\n"


def fixes(rule: type[Rule]) -> list[str]:
    """Return the kinds of fixes, "safe" and "unsafe", by a rule's documentation or else its examples."""
    safety = (rule.__doc__ or "").partition("## Fix safety")[2]
    if not safety:
        return sorted(
            {"unsafe" if each.unsafe else "safe" for each in rule.INVALID if each.after is not None}
        )
    return sorted(set(re.findall(r"\b(?:un)?safe\b", safety)))


def as_json(rule: type[Rule]) -> dict[str, Any]:
    """Return what `ruff rule --output-format json` shows of a rule, and when the rule is on."""
    return {
        "name": rule.name,
        "code": rule.code,
        "category": category(rule.code).name,
        "summary": rule.summary,
        "fix_availability": "Sometimes" if fixes(rule) else "None",
        "explanation": cleandoc(rule.__doc__ or rule.summary),
        "default": rule.default,
        "targets": list(rule.targets),
    }


def url(rule: type[Rule]) -> str | None:
    """Return the address of a rule's page, or None for the rule of a plugin."""
    return f"{SITE}/rules/{rule.code}/" if rule.__module__.startswith("devicefix.rules.") else None
