from __future__ import annotations

import ast
from collections.abc import Iterator

from devicefix.config.evidence import Seen
from devicefix.facts.effects import has_effects
from devicefix.model import Edit, Finding, Fix
from devicefix.rules.base import Example, Rule


class MissingAttribute(Rule):
    """
    ## What it does
    Reports an attribute, such as `model.module`, if a run showed that the object has this attribute only with CUDA.
    Only `devicefix migrate --run` uses this rule.

    ## Why it matters
    Without CUDA, the program stops with an `AttributeError`.

    ## Example
    ```python
    if torch.cuda.is_available():
        model = torch.nn.DataParallel(model)
    torch.save(model.module.state_dict(), path)
    ```

    ## Use instead
    ```python
    if torch.cuda.is_available():
        model = torch.nn.DataParallel(model)
    torch.save(getattr(model, "module", model).state_dict(), path)
    ```

    ## Fix safety
    The fix is unsafe because, even with CUDA, the program no longer stops if the object lacks the attribute. `migrate`
    keeps the fix only if the run then passes, with the same numbers as on simulated CUDA.
    """

    code = "DF705"
    name = "missing-attribute"
    needs_run = True
    attributes = ("module", "_orig_mod")
    summary = "A run showed that an attribute exists only with CUDA"
    INVALID = (
        Example(
            "the model in a wrapper",
            before="""
                torch.save(model.module.state_dict(), path)
            """,
            after="""
                torch.save(getattr(model, "module", model).state_dict(), path)
            """,
            unsafe=True,
            seen=(Seen("attribute", 1, "module"),),
        ),
        Example(
            "an attribute of an object",
            before="""
                net = self.net.module
            """,
            after="""
                net = getattr(self.net, "module", self.net)
            """,
            unsafe=True,
            seen=(Seen("attribute", 1, "module"),),
        ),
        Example(
            "the result of a call, which would be called twice",
            before="""
                net = load().module
            """,
            seen=(Seen("attribute", 1, "module"),),
        ),
    )
    VALID = (
        Example("nothing seen at the line", "net = model.module\n", seen=(Seen("attribute", 2, "module"),)),
        Example("an attribute that is set", "model.module = net\n", seen=(Seen("attribute", 1, "module"),)),
        Example(
            "a method of the same name", "net = wrapped(module)\n", seen=(Seen("attribute", 1, "module"),)
        ),
    )

    def visit_Attribute(self, node: ast.Attribute) -> Iterator[Finding]:
        line = node.end_lineno or node.lineno
        places = {Seen("attribute", each, node.attr) for each in (node.lineno, line)}
        seen = not places.isdisjoint(self.context.options.seen)
        if not seen or not isinstance(node.ctx, ast.Load):
            return
        code = self.context.source.code(node.value)
        message = f"a run showed that `{code}` has no attribute `{node.attr}` without CUDA; in that case, use `{code}` itself"
        if has_effects(self.facts, node.value):
            yield self.finding(node, message).unfixed(f"because `{code}` would be evaluated twice")
            return
        start, end = self.context.source.span(node)
        why = "a missing attribute is no longer an error"
        fix = Fix((Edit(start, end, f'getattr({code}, "{node.attr}", {code})'),), why)
        yield self.finding(node, message, fix)
