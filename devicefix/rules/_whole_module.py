from __future__ import annotations

from devicefix.rule import Context, Rule


class WholeModule(Rule):
    """A rule that looks at a module as a whole, in `visit_Module`, whatever its statements hold."""

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        tree = context.facts.tree
        if tree.module not in tree.nodes[:1]:
            tree.nodes.insert(0, tree.module)
