"""The rules, by code: one a module of this folder, and those that installed plugins bring."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from pathlib import Path

from devicefix.rules.base import Rule
from devicefix.rules.entry_points import plugins

RULES: dict[str, type[Rule]] = {}

for _module in pkgutil.iter_modules([str(Path(__file__).parent)]):
    for _, _class in inspect.getmembers(
        importlib.import_module(f"devicefix.rules.{_module.name}"), inspect.isclass
    ):
        if issubclass(_class, Rule) and "code" in vars(_class):
            RULES[_class.code] = _class
PLUGINS = plugins(RULES)
RULES |= {rule.code: rule for plugin in PLUGINS for rule in plugin.rules}
RULES = dict(sorted(RULES.items()))
