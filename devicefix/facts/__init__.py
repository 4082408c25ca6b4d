"""The facts of a module: scopes, values, guards and control flow, for rules to ask."""

from devicefix.facts.guards import ASKS, AVAILABLE, of_any_count, refuses, returns
from devicefix.facts.module import Facts, parse
from devicefix.facts.scopes import Binding, Scope, dotted, with_defaults
from devicefix.facts.tree import Tree

__all__ = [
    "ASKS", "AVAILABLE", "Binding", "Facts", "Scope", "Tree", "dotted", "of_any_count", "parse", "refuses",
    "returns", "with_defaults",
]  # fmt: skip
