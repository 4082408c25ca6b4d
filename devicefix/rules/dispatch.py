"""Precedence of rules, and the visit of a module's nodes by them."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping

from devicefix.model import Finding
from devicefix.rules.base import Rule, Visit, visitors

Table = dict[type[ast.AST], list[tuple[Visit, bool]]]


class CircleError(ValueError):
    """Rules that each come before the next.

    Args:
        codes: the codes of the rules; the last is the first again.
    """

    def __init__(self, codes: tuple[str, ...]) -> None:
        super().__init__(" before ".join(codes))
        self.codes = codes


def precedence(rules: Mapping[str, type[Rule]]) -> dict[str, int]:
    """Return the rank of each rule by what the rules declare as `before`.

    A rule that names no other has rank 0; the others have a higher rank than all the rules they name. A code
    that no rule has is ignored: its plugin may not be installed.

    Raises:
        CircleError: a rule would have to come before itself.
    """
    ranks: dict[str, int] = {}

    def rank(code: str, chain: tuple[str, ...]) -> int:
        if code in chain:
            raise CircleError((*chain[chain.index(code) :], code))
        if code not in ranks:
            following = (rank(name, (*chain, code)) for name in rules[code].before if name in rules)
            ranks[code] = 1 + max(following, default=-1)
        return ranks[code]

    for code in rules:
        rank(code, ())
    return ranks


def tables(rules: Iterable[Rule], ranks: Mapping[str, int]) -> list[Table]:
    """Return the methods of rules by the class of node they visit: one table for each rank, the highest first.

    Args:
        rules: the rules that are on, in the order in which those of one rank visit a node.
        ranks: the rank of each rule, by code.
    """
    by_rank: dict[int, Table] = {}
    for rule in rules:
        table = by_rank.setdefault(ranks[rule.code], {})
        for kind, visit in visitors(rule):
            table.setdefault(kind, []).append((visit, rule.sees_handled))
    return [by_rank[rank] for rank in sorted(by_rank, reverse=True)]


def visit(
    statements: Iterable[Iterable[ast.AST]],
    tables: list[Table],
    handled: set[ast.AST],
    attributes: frozenset[str] | None = None,
) -> Iterator[tuple[ast.AST, Finding]]:
    """Visit nodes statement by statement, and yield each finding with the node it was found at.

    Args:
        statements: the statements of a tree, each with the nodes of its expressions.
        tables: those of `tables`; in each statement the first visits all nodes before the second does.
        handled: the nodes that a rule has marked as handled; it grows during the visit.
        attributes: the names of the attributes to visit, None for all.
    """
    visited = frozenset().union(*tables)
    for statement in statements:
        nodes = [node for node in statement if type(node) in visited]
        if attributes is not None:
            nodes = [node for node in nodes if type(node) is not ast.Attribute or node.attr in attributes]
        for table in tables:
            for node in nodes:
                for method, sees_handled in table.get(type(node), ()):
                    if sees_handled or node not in handled:
                        for finding in method(node):
                            yield node, finding
