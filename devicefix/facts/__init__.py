"""Collect facts about a module and its project: scopes, values, guards, control flow, copies."""

from devicefix.facts.guards import ASKS, AVAILABLE, COUNTS, VERSION, of_any_count
from devicefix.facts.module import Facts
from devicefix.facts.refusals import returns
from devicefix.facts.scopes import Binding, Function, Scope, dotted, with_defaults
from devicefix.facts.tree import Tree

__all__ = [
    "ASKS", "AVAILABLE", "COUNTS", "VERSION", "Binding", "Facts", "Function", "Scope", "Tree", "dotted",
    "of_any_count", "returns", "with_defaults",
]  # fmt: skip
