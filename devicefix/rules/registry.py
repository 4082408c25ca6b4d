"""All rules: devicefix's own, one in a module of this folder, and those of installed plugins."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from functools import lru_cache
from typing import TYPE_CHECKING

from devicefix import rules
from devicefix.rules.base import Rule
from devicefix.rules.dispatch import precedence
from devicefix.rules.entry_points import plugins

if TYPE_CHECKING:
    from devicefix.config.settings import Settings
    from devicefix.model import Finding


def _own() -> dict[str, type[Rule]]:
    """Return devicefix's own rules by code."""
    found = {}
    for module in pkgutil.iter_modules(rules.__path__):
        members = vars(importlib.import_module(f"{rules.__name__}.{module.name}")).values()
        for member in members:
            if inspect.isclass(member) and issubclass(member, Rule) and "code" in vars(member):
                found[member.code] = member
    return dict(sorted(found.items()))


_OWN = _own()
PLUGINS = plugins(_OWN)
RULES = dict(sorted((_OWN | {rule.code: rule for plugin in PLUGINS for rule in plugin.rules}).items()))
RANKS = precedence(RULES)
# Which rule goes first: as declared, else devicefix's own before those of plugins, else by code.
ORDER = tuple(sorted(RULES, key=lambda code: (-RANKS[code], code not in _OWN, code)))
WORDS = tuple(sorted({word for rule in RULES.values() for word in rule.words}))

_PLACES = {code: place for place, code in enumerate(ORDER)}


def by_position(finding: Finding) -> tuple[int, int, int]:
    """Return the key that sorts findings by position, and at one position by the precedence of their rules."""
    return finding.line, finding.column, _PLACES.get(finding.code, -1)


@lru_cache(maxsize=1)
def words(settings: Settings) -> tuple[bytes, ...]:
    """Return the words of the rules that are on, sorted."""
    on = (rule for code, rule in RULES.items() if settings.enabled(code, rule.default))
    return tuple(sorted({word for rule in on for word in rule.words}))
