"""A copy that is kept, and used after what it was made of has changed."""

from __future__ import annotations

import ast
from dataclasses import dataclass

from devicefix.facts.copies.views import Place


@dataclass(frozen=True, slots=True, eq=False)
class Held:
    """A copy that is kept.

    Attributes:
        call: the call that copies on a GPU and not on a CPU.
        outer: the expression around it that is a view of it, such as `x.cpu().numpy()`.
        source: what is copied.
        holder: what keeps the copy.
        change: where the source is changed in place, None where it happens out of sight.
        use: the line of a use behind the change, None for a use out of sight.
        reverse: whether it is the copy that is changed, and the source that is used after that.
    """

    call: ast.Call
    outer: ast.expr
    source: Place
    holder: str
    change: ast.AST | None
    use: int | None
    reverse: bool = False
