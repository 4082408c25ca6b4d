from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from itertools import chain

from devicefix.facts import returns
from devicefix.model import Finding
from devicefix.rules.base import Example, Rule

_HALF = re.compile(r"(?<![bB])(?:float16|fp16|FP16|half)\b")


_CAPABILITY = "torch.cuda.get_device_capability"


class Bfloat16Question(Rule):
    """
    ## What it does
    Finds code that falls back to float16 if `torch.cuda.is_bf16_supported()` returns `False`, or if
    `torch.cuda.get_device_capability()` returns a capability that is too low.

    ## Why it matters
    Without CUDA, `is_bf16_supported()` returns `False`. `get_device_capability()` raises an error, which the fix for
    DF401 avoids by using `(0, 0)`, a capability lower than that of any GPU. With either value, the program silently
    computes in float16 instead of bfloat16, with different results and a smaller range of values, even though a CPU
    supports bfloat16.

    ## Example
    ```python
    dtype = torch.bfloat16 if torch.cuda.is_bf16_supported() else torch.float16
    ```

    ## Use instead
    ```python
    bf16 = not torch.cuda.is_available() or torch.cuda.is_bf16_supported()
    dtype = torch.bfloat16 if bf16 else torch.float16
    ```

    ## Fix safety
    There is no fix: you have to choose the dtype for a CPU. The rule ignores code that also checks whether CUDA is
    available, because that code already makes this choice.
    """

    code = "DF408"
    name = "bfloat16-question"
    summary = "The choice of bfloat16 depends on the GPU, so a CPU computes in float16"
    references = ("torch.cuda.is_bf16_supported", _CAPABILITY)
    INVALID = (
        Example(
            "an expression",
            before="""
                import torch

                dtype = torch.bfloat16 if torch.cuda.is_bf16_supported() else torch.float16
            """,
        ),
        Example(
            "a statement",
            before="""
                import torch

                if torch.cuda.is_bf16_supported(including_emulation=False):
                    net = net.bfloat16()
                else:
                    net = net.half()
            """,
        ),
        Example(
            "a return",
            before="""
                from torch.cuda import is_bf16_supported


                def precision():
                    if is_bf16_supported():
                        return "bf16"
                    return "fp16"
            """,
        ),
        Example(
            "a negation with another condition",
            before="""
                import torch

                if big and not torch.cuda.is_bf16_supported():
                    dtype = torch.half
            """,
        ),
        Example(
            "a flag",
            before="""
                import torch

                args = Arguments(fp16=not torch.cuda.is_bf16_supported(), bf16=torch.cuda.is_bf16_supported())
            """,
        ),
        Example(
            "the capability",
            before="""
                import torch

                if torch.cuda.get_device_capability()[0] >= 8:
                    dtype = torch.bfloat16
                else:
                    dtype = torch.float16
            """,
            after="""
                import torch

                if (torch.cuda.get_device_capability() if torch.cuda.is_available() else (0, 0))[0] >= 8:
                    dtype = torch.bfloat16
                else:
                    dtype = torch.float16
            """,
        ),
        Example(
            "the parts of a capability",
            before="""
                import torch

                major, minor = torch.cuda.get_device_capability(0)
                dtype = torch.bfloat16 if major >= 8 else torch.float16
            """,
            after="""
                import torch

                major, minor = torch.cuda.get_device_capability(0) if torch.cuda.is_available() else (0, 0)
                dtype = torch.bfloat16 if major >= 8 else torch.float16
            """,
        ),
    )
    VALID = (
        Example(
            "a capability that chooses no dtype",
            """
                import torch

                fused = torch.cuda.get_device_capability() >= (9, 0)
                if torch.cuda.is_available() and torch.cuda.get_device_capability()[0] >= 8:
                    dtype = torch.bfloat16
                else:
                    dtype = torch.float16
            """,
        ),
        Example(
            "float32 otherwise",
            """
                import torch

                dtype = torch.bfloat16 if torch.cuda.is_bf16_supported() else torch.float32
            """,
        ),
        Example(
            "a program that has chosen",
            """
                import torch

                bf16 = torch.cuda.is_available() and torch.cuda.is_bf16_supported()
                dtype = torch.bfloat16 if torch.cuda.is_available() and torch.cuda.is_bf16_supported() else torch.float16
            """,
        ),
        Example(
            "the answer alone",
            """
                import torch

                print(torch.cuda.is_bf16_supported(), "float16")
            """,
        ),
    )

    def visit_reference(self, node: ast.Name | ast.Attribute, name: str) -> Iterator[Finding]:
        call = self.facts.tree.parents[node]
        if not isinstance(call, ast.Call) or call.func is not node:
            return
        questions = list(self._comparisons(call)) if name == _CAPABILITY else [call]
        guarded = self.facts.is_guarded(call) and not (name == _CAPABILITY and self._has_default(call))
        if not guarded and any(map(_HALF.search, chain.from_iterable(map(self._if_not, questions)))):
            yield self.finding(
                call,
                "this check is false on a CPU, so the program computes in float16 instead of bfloat16; use bfloat16 on a"
                " CPU, too",
            )

    def _has_default(self, call: ast.Call) -> bool:
        """Return whether a capability is chosen for a CPU: `... if torch.cuda.is_available() else (0, 0)`."""
        parent = self.facts.tree.parents[call]
        return isinstance(parent, ast.IfExp) and parent.body is call

    def _comparisons(self, call: ast.Call) -> Iterator[ast.expr]:
        """Yield the comparisons of a capability with a lower bound, also by a variable."""
        tree = self.facts.tree
        value: ast.expr = call
        parent = tree.parents[call]
        if isinstance(parent, ast.IfExp) and parent.body is call:
            value, parent = parent, tree.parents[parent]
        values = [value]
        if isinstance(parent, ast.Assign) and len(parent.targets) == 1:
            target = parent.targets[0]
            first = target.elts[0] if isinstance(target, ast.Tuple) and target.elts else target
            scope = tree.scope(parent)
            values += self.facts.reads_in(scope, first.id) if isinstance(first, ast.Name) else ()
        for each in values:
            around = tree.parents[each]
            read = around if isinstance(around, ast.Subscript) and around.value is each else each
            compared = tree.parents[read]
            match compared:
                case ast.Compare(left=left, ops=[ast.Gt() | ast.GtE()]) if left is read:
                    yield compared

    def _if_not(self, node: ast.expr) -> Iterator[str]:
        """Yield the code that runs if the answer to a question is no, or the name of what is true then."""
        tree, code = self.facts.tree, self.context.source.code
        parent = tree.parents[node]
        negated = False
        while isinstance(parent, (ast.BoolOp, ast.UnaryOp)):
            negated ^= isinstance(parent, ast.UnaryOp)
            node, parent = parent, tree.parents[parent]
        match parent:
            case ast.IfExp(test=test, body=body, orelse=otherwise) if test is node:
                yield code(body if negated else otherwise)
            case ast.If(test=test) if test is node:
                block = tree.block(parent)
                following = block[block.index(parent) + 1 :] if returns(parent.body) else []
                yield from map(code, parent.body if negated else parent.orelse or following)
            case ast.keyword(arg=str(name)) | ast.Assign(targets=[ast.Name(id=name)]) if negated:
                yield name
