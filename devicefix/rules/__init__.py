"""The rules, one a module: whatever stands in this folder is found, by code."""

from __future__ import annotations

import importlib
import inspect
import pkgutil

from devicefix.rule import Rule

RULES: dict[str, type[Rule]] = {}

for _module in pkgutil.iter_modules(__path__):
    for _, _class in inspect.getmembers(
        importlib.import_module(f"{__name__}.{_module.name}"), inspect.isclass
    ):
        if issubclass(_class, Rule) and "code" in vars(_class):
            RULES[_class.code] = _class
RULES = dict(sorted(RULES.items()))
