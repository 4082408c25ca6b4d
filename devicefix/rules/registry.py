"""All rules: devicefix's own, one in a module of this folder, and those of installed plugins."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from devicefix.rules.base import Rule, words_of
from devicefix.rules.dispatch import CircleError, precedence
from devicefix.rules.entry_points import Plugin, PluginError, plugins

if TYPE_CHECKING:
    from devicefix.config.settings import Settings
    from devicefix.model import Finding


def _own() -> dict[str, type[Rule]]:
    """Return devicefix's own rules by code.

    Raises:
        ValueError: two rules have the same code.
    """
    found: dict[str, type[Rule]] = {}
    for module in pkgutil.iter_modules([str(Path(__file__).parent)]):
        members = vars(importlib.import_module(f"devicefix.rules.{module.name}")).values()
        for member in members:
            if inspect.isclass(member) and issubclass(member, Rule) and "code" in vars(member):
                other = found.setdefault(member.code, member)
                if other is not member:
                    raise ValueError(
                        f"{other.__module__}.{other.__name__} and {member.__module__}.{member.__name__} have the"
                        f" same code {member.code}; change one of them"
                    )
    return dict(sorted(found.items()))


def _ranks(rules: dict[str, type[Rule]], plugins: list[Plugin]) -> dict[str, int]:
    """Return the rank of each rule.

    Raises:
        PluginError: a plugin orders rules in a cycle.
    """
    try:
        return precedence(rules)
    except CircleError as circle:
        for plugin in plugins:
            if any(rule.code in circle.codes for rule in plugin.rules):
                raise PluginError(str(plugin), f"orders rules in a cycle: {circle}") from None
        raise


_OWN = _own()
PLUGINS = plugins(_OWN)
RULES = dict(sorted((_OWN | {rule.code: rule for plugin in PLUGINS for rule in plugin.rules}).items()))
RANKS = _ranks(RULES, PLUGINS)
# Which rule goes first: as declared, else devicefix's own before those of plugins, else by code.
ORDER = tuple(sorted(RULES, key=lambda code: (-RANKS[code], code not in _OWN, code)))
# What a statement holds in which a rule finds something; `words` are those that a file is parsed for.
WORDS = tuple(sorted({word for rule in RULES.values() for word in (*words_of(rule), *rule.common_words)}))

_PLACES = {code: place for place, code in enumerate(ORDER)}


def by_position(finding: Finding) -> tuple[int, int, int]:
    """Return the key that sorts findings by position, and at one position by the precedence of their rules."""
    return finding.line, finding.column, _PLACES.get(finding.code, -1)


@lru_cache(maxsize=1)
def words(settings: Settings) -> tuple[bytes, ...]:
    """Return the words that the rules look for with these settings, sorted."""
    return tuple(sorted({word for found in words_by_companions(settings).values() for word in found}))


@lru_cache(maxsize=1)
def words_by_companions(settings: Settings) -> dict[tuple[bytes, ...], tuple[bytes, ...]]:
    """Return the words that files are parsed for with these settings, sorted, by the companions they need."""
    found: dict[tuple[bytes, ...], set[bytes]] = {}
    for code, rule in RULES.items():
        if settings.enabled(code, rule.default) and settings.target in rule.targets:
            found.setdefault(rule.companions, set()).update(words_of(rule))
    return {companions: tuple(sorted(each)) for companions, each in found.items()}
