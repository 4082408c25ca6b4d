from __future__ import annotations

import ast
from collections.abc import Iterator

from devicefix.config.evidence import Seen
from devicefix.facts.flow.tensors import METHODS
from devicefix.model import Edit, Finding, Fix
from devicefix.rules.base import Example, Rule
from devicefix.rules.kept_view import COSTS


class SharedMemory(Rule):
    """
    ## What it does
    Reports a call such as `x.cpu()` if a run showed that, on a CPU, the result shares memory with `x`, and that one of
    the two changes while the other is in use. Only `devicefix migrate --run` uses this rule.

    ## Why it matters
    With CUDA, such calls copy `x`. On a CPU, they return `x` itself, so the numbers can be wrong without an error.

    ## Example
    ```python
    buffer = model(batch)
    results.append(buffer.cpu().numpy())
    ```

    ## Use instead
    ```python
    buffer = model(batch)
    results.append(buffer.cpu().numpy().copy())
    ```

    ## Fix safety
    The fix is unsafe because the program makes a second copy with CUDA. `migrate` keeps the fix only if the run
    then passes, with the same numbers as on simulated CUDA.
    """

    code = "DF805"
    name = "shared-memory"
    needs_run = True
    summary = "A run showed that a call's result is a copy only on a GPU"
    INVALID = (
        Example(
            "an array of a tensor that is filled again",
            before="""
                def collect(model, loader):
                    for batch in loader:
                        out = model(batch)
                        seen.append(out.cpu().numpy())
            """,
            after="""
                def collect(model, loader):
                    for batch in loader:
                        out = model(batch)
                        seen.append(out.cpu().numpy().copy())
            """,
            unsafe=True,
            seen=(Seen("copy", 4, "cpu"),),
        ),
        Example(
            "a tensor that is kept",
            before="""
                best = weights.to("cpu")
            """,
            after="""
                best = weights.to("cpu").clone()
            """,
            unsafe=True,
            seen=(Seen("copy", 1, "to"),),
        ),
        Example(
            "a call over several lines",
            before="""
                def last(state):
                    return (
                        state
                        .detach()
                        .cpu()
                    )
            """,
            after="""
                def last(state):
                    return (
                        state
                        .detach()
                        .cpu().clone()
                    )
            """,
            unsafe=True,
            seen=(Seen("copy", 5, "cpu"),),
        ),
    )
    VALID = (
        Example("nothing seen at the line", "y = x.cpu()\n", seen=(Seen("copy", 2, "cpu"),)),
        Example("another method", "y = x.float()\n", seen=(Seen("copy", 1, "cpu"),)),
        Example("cloned already", "y = x.cpu().clone()\n", seen=(Seen("copy", 1, "cpu"),)),
    )

    def visit_Call(self, node: ast.Call) -> Iterator[Finding]:
        if not isinstance(node.func, ast.Attribute):
            return
        at = node.func.end_lineno or node.lineno
        places = {Seen("copy", line, node.func.attr) for line in (node.lineno, at)}
        if places.isdisjoint(self.context.options.seen):
            return
        last = self._last_view(node)
        if self._called_on(last, "clone", "copy") is not None:
            return
        start, end = (self.context.source.span(each)[1] for each in (node, last))
        method = "copy" if "numpy" in self.context.source.text[start:end] else "clone"
        shown = "a run showed that the shared memory changes while it is in use"
        place = " after `.numpy()`" if method == "copy" else ""
        message = f"`{self.context.source.code(node)}` makes no copy on a CPU, and {shown}; add `.{method}()`{place}"
        yield self.finding(node, message, Fix((Edit(end, end, f".{method}()"),), COSTS))

    def _last_view(self, node: ast.expr) -> ast.expr:
        """Return the outermost expression around a call that is a view of its result."""
        while (outer := self._called_on(node, *METHODS["view"])) is not None:
            node = outer
        return node

    def _called_on(self, node: ast.expr, *methods: str) -> ast.Call | None:
        """Return the call of one of some methods of an expression, None if it is used otherwise."""
        method = self.facts.tree.parents.get(node)
        is_one = isinstance(method, ast.Attribute) and method.attr in methods
        return self.facts.tree.call_of(method) if is_one else None
