from __future__ import annotations

import ast
from collections.abc import Iterator

from devicefix.facts import refuses
from devicefix.model import Edit, Finding, Fix
from devicefix.rewrite.blocks import remove, without_branch
from devicefix.rules.base import Example, Rule

MESSAGE = "stops the program without CUDA"


class CudaRequired(Rule):
    """
    ## What it does
    Finds code that stops the program without CUDA: `assert torch.cuda.is_available()`, and an error or an exit if
    it is not available.

    ## Why it matters
    The check forbids the CPU, and has no effect with CUDA. Once the rest of the program runs on a CPU, the check
    has no purpose.

    ## Example
    ```python
    assert torch.cuda.is_available(), "needs a GPU"

    if not torch.cuda.is_available():
        sys.exit("no GPU")

    if torch.cuda.is_available():
        device = torch.device("cuda")
    else:
        raise NotImplementedError("needs a GPU")
    ```

    ## Use instead
    ```python
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    ```

    ## Fix safety
    Safe: with CUDA the assertion always holds, and the branch never runs.
    """

    code = "DF701"
    name = "cuda-required"
    summary = "The program stops without CUDA"
    words = (b"cuda",)
    common_words = (b"device", b"gpu")
    INVALID = (
        Example(
            "an assert with a message",
            before="""
                import torch


                def main():
                    assert torch.cuda.is_available(), "needs a GPU"
                    run()
            """,
            after="""
                import torch


                def main():
                    run()
            """,
        ),
        Example(
            "an assert alone in a function",
            before="""
                import torch


                def main():
                    assert torch.cuda.is_available()
            """,
            after="""
                import torch


                def main():
                    pass
            """,
        ),
        Example(
            "an assert about the number of GPUs",
            before="""
                import torch

                assert torch.cuda.device_count() > rank
            """,
        ),
        Example(
            "an assert about availability and the number of GPUs",
            before="""
                import torch

                assert torch.cuda.is_available() and torch.cuda.device_count() >= n
            """,
        ),
        Example(
            "an assert about the name of a device",
            before="""
                import torch

                assert device in ['cuda', 'npu']
            """,
        ),
        Example(
            "a tensor that has to be on a GPU",
            before="""
                import torch

                if not x.is_cuda:
                    raise NotImplementedError
            """,
        ),
        Example(
            "an assert about something else as well",
            before="""
                import torch

                assert torch.cuda.is_available() and args.data
            """,
            after="""
                import torch

                assert args.data
            """,
        ),
        Example(
            "an assert that an option implies availability",
            before="""
                import torch

                assert not args.cuda or torch.cuda.is_available()
                run()
            """,
            after="""
                import torch

                run()
            """,
        ),
        Example(
            "an exit without CUDA",
            before="""
                import torch

                if not torch.cuda.is_available():
                    print('no GPU')
                    sys.exit(1)
                net.cuda()
            """,
            after="""
                import torch

                device = torch.device('cuda' if torch.cuda.is_available() else 'cpu')

                net.to(device)
            """,
        ),
        Example(
            "an error in the branch without CUDA",
            before="""
                import torch

                if torch.cuda.is_available():
                    # the first
                    d = torch.device('cuda')
                    net.to(d)
                else:
                    raise RuntimeError('no GPU')
                run()
            """,
            after="""
                import torch

                # the first
                d = torch.device('cuda' if torch.cuda.is_available() else 'cpu')
                net.to(d)
                run()
            """,
        ),
        Example(
            "an exit in the last branch of several",
            before="""
                import torch

                if a:
                    run(1)
                elif torch.cuda.is_available():
                    run(2)
                else:
                    sys.exit(1)
                run(3)
            """,
            after="""
                import torch

                if a:
                    run(1)
                else:
                    run(2)
                run(3)
            """,
        ),
        Example(
            "an exit in a branch between others",
            before="""
                import torch

                if a:
                    run(1)
                elif not torch.cuda.is_available():
                    sys.exit(1)
                elif b:
                    run(2)
            """,
            after="""
                import torch

                if a:
                    run(1)
                elif b:
                    run(2)
            """,
        ),
        Example(
            "an error in a last elif",
            before="""
                import torch

                if a:
                    run(1)
                elif not torch.cuda.is_available():
                    raise OSError
                run(3)
            """,
            after="""
                import torch

                if a:
                    run(1)
                run(3)
            """,
        ),
    )
    VALID = (
        Example(
            "an assert about something else",
            """
                import torch

                assert args.data
            """,
        ),
        Example(
            "an assert that there is no CUDA",
            """
                import torch

                assert not torch.cuda.is_available()
            """,
        ),
        Example(
            "a branch that copes without CUDA",
            """
                import torch

                if not torch.cuda.is_available():
                    args.cuda = False
            """,
        ),
        Example(
            "an invalid number of a GPU",
            """
                import torch

                if args.gpu >= torch.cuda.device_count():
                    raise ValueError(args.gpu)
            """,
        ),
        Example(
            "a skipped test",
            """
                import torch

                if not torch.cuda.is_available():
                    raise unittest.SkipTest('no GPU')
            """,
        ),
    )

    def visit_Assert(self, node: ast.Assert) -> Iterator[Finding]:
        guards = self.facts.guards
        if guards.settled(node.test):
            self.context.mark_handled(node)
            yield self.finding(node, f"{MESSAGE}; remove the check", Fix((remove(self.facts, node),)))
        elif _lists_no_cpu(node.test):
            yield self.finding(node, "does not allow the CPU as a device; add it")
        elif self._counts(node.test):
            yield self.finding(node, f"{MESSAGE}, or with too few GPUs; check only if CUDA is available")
        elif isinstance(node.test, ast.BoolOp) and isinstance(node.test.op, ast.And):
            kept = [value for value in node.test.values if not guards.settled(value)]
            if any(guards.implies(value) or self._counts(value) for value in kept):
                yield self.finding(node, f"{MESSAGE}, or with too few GPUs; check only if CUDA is available")
            elif kept and len(kept) < len(node.test.values):
                yield self.finding(
                    node, f"{MESSAGE}; remove this part of the check", Fix(self._only(node.test, kept))
                )

    def visit_If(self, node: ast.If) -> Iterator[Finding]:
        refusal = self.facts.guards.refusal(node)
        if refusal is not None:
            yield self.finding(
                node.test, f"{MESSAGE}; remove the check", Fix(without_branch(self.facts, node, refusal))
            )
        elif refuses(node.body) and _asks_for_gpu(node.test) and not self.facts.is_guarded(node):
            yield self.finding(node.test, "rejects CPU tensors; add a CPU path")

    def _counts(self, test: ast.expr) -> bool:
        """Return whether a test compares with the number of GPUs."""
        return isinstance(test, ast.Compare) and any(
            map(self.facts.guards.counts_gpus, (test.left, *test.comparators))
        )

    def _only(self, test: ast.BoolOp, kept: list[ast.expr]) -> tuple[Edit, ...]:
        """Return the edits that keep some parts of a test, which other edits may change."""
        source = self.context.source
        (start, end), first, last = source.span(test), source.span(kept[0])[0], source.span(kept[-1])[1]
        around = source.text[start:first], source.text[last:end]
        together = test.values[test.values.index(kept[0]) : test.values.index(kept[-1]) + 1] == kept
        if together and all(text.count("(") == text.count(")") for text in around):
            cut = (Edit(start, first, ""), Edit(last, end, ""))
            return tuple(edit for edit in cut if edit.start < edit.end)
        return (Edit(start, end, " and ".join(map(self._code, kept))),)

    def _code(self, node: ast.expr) -> str:
        code = self.context.source.code(node)
        return f"({code})" if isinstance(node, (ast.BoolOp, ast.IfExp, ast.Lambda)) else code


def _asks_for_gpu(test: ast.expr) -> bool:
    """Return whether a test is `not x.is_cuda`."""
    match test:
        case ast.UnaryOp(op=ast.Not(), operand=ast.Attribute(attr="is_cuda")):
            return True
    return False


def _lists_no_cpu(test: ast.expr) -> bool:
    """Return whether a test is `device in ["cuda", "npu"]`, without the CPU."""
    match test:
        case ast.Compare(
            ops=[ast.In()], comparators=[ast.List(elts=elts) | ast.Tuple(elts=elts) | ast.Set(elts=elts)]
        ):
            names = {element.value for element in elts if isinstance(element, ast.Constant)}
            return "cuda" in names and "cpu" not in names
    return False
