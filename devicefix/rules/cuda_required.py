from __future__ import annotations

import ast
from collections.abc import Iterator

from devicefix.facts import refuses
from devicefix.model import Edit, Finding, Fix
from devicefix.rewrite.blocks import remove, without_branch
from devicefix.rules.base import Changed, Rule

MESSAGE = "refuses to run without CUDA"


class CudaRequired(Rule):
    """
    ## What it does
    Finds what refuses to run without CUDA: `assert torch.cuda.is_available()`, and an error or an exit where
    it is not available.

    ## Why it matters
    It forbids the CPU and does nothing where there is CUDA. Once the rest of the program runs on a CPU,
    there is nothing left for it to protect.

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
    Safe: with CUDA the assertion always holds, and the branch is never taken.
    """

    code = "DF701"
    name = "cuda-required"
    summary = "The program refuses to run without CUDA"
    MATCHES = (
        Changed(
            'import torch\n\n\ndef main():\n    assert torch.cuda.is_available(), "needs a GPU"\n    run()\n',
            "import torch\n\n\ndef main():\n    run()\n",
        ),
        Changed(
            "import torch\n\n\ndef main():\n    assert torch.cuda.is_available()\n",
            "import torch\n\n\ndef main():\n    pass\n",
        ),
        Changed("import torch\n\nassert torch.cuda.device_count() > rank\n", None),
        Changed(
            "import torch\n\nassert torch.cuda.is_available() and torch.cuda.device_count() >= n\n", None
        ),
        Changed("import torch\n\nassert device in ['cuda', 'npu']\n", None),
        Changed("import torch\n\nif not x.is_cuda:\n    raise NotImplementedError\n", None),
        Changed(
            "import torch\n\nassert torch.cuda.is_available() and args.data\n",
            "import torch\n\nassert args.data\n",
        ),
        Changed(
            "import torch\n\nassert not args.cuda or torch.cuda.is_available()\nrun()\n",
            "import torch\n\nrun()\n",
        ),
        Changed(
            "import torch\n\nif not torch.cuda.is_available():\n    print('no GPU')\n    sys.exit(1)\nnet.cuda()\n",
            "import torch\n\ndevice = torch.device('cuda' if torch.cuda.is_available() else 'cpu')\n\nnet.to(device)\n",
        ),
        Changed(
            "import torch\n\nif torch.cuda.is_available():\n    # the first\n    d = torch.device('cuda')\n    net.to(d)\n"
            "else:\n    raise RuntimeError('no GPU')\nrun()\n",
            "import torch\n\n# the first\nd = torch.device('cuda' if torch.cuda.is_available() else 'cpu')\nnet.to(d)\nrun()\n",
        ),
        Changed(
            "import torch\n\nif a:\n    run(1)\nelif torch.cuda.is_available():\n    run(2)\nelse:\n    sys.exit(1)\nrun(3)\n",
            "import torch\n\nif a:\n    run(1)\nelse:\n    run(2)\nrun(3)\n",
        ),
        Changed(
            "import torch\n\nif a:\n    run(1)\nelif not torch.cuda.is_available():\n    sys.exit(1)\nelif b:\n    run(2)\n",
            "import torch\n\nif a:\n    run(1)\nelif b:\n    run(2)\n",
        ),
        Changed(
            "import torch\n\nif a:\n    run(1)\nelif not torch.cuda.is_available():\n    raise OSError\nrun(3)\n",
            "import torch\n\nif a:\n    run(1)\nrun(3)\n",
        ),
    )
    LEAVES = (
        "import torch\n\nassert args.data\n",
        "import torch\n\nassert not torch.cuda.is_available()\n",
        "import torch\n\nif not torch.cuda.is_available():\n    args.cuda = False\n",
        "import torch\n\nif args.gpu >= torch.cuda.device_count():\n    raise ValueError(args.gpu)\n",
        "import torch\n\nif not torch.cuda.is_available():\n    raise unittest.SkipTest('no GPU')\n",
    )

    def visit_Assert(self, node: ast.Assert) -> Iterator[Finding]:
        guards = self.facts.guards
        if guards.settled(node.test):
            self.context.mark_handled(node)
            yield self.finding(node, MESSAGE, Fix((remove(self.facts, node),)))
        elif _lists_no_cpu(node.test):
            yield self.finding(node, "the CPU is not among the devices that are allowed here: add it")
        elif self._counts(node.test):
            yield self.finding(node, f"{MESSAGE}, or with too few GPUs: ask only where there are any")
        elif isinstance(node.test, ast.BoolOp) and isinstance(node.test.op, ast.And):
            kept = [value for value in node.test.values if not guards.settled(value)]
            if any(guards.implies(value) or self._counts(value) for value in kept):
                yield self.finding(node, f"{MESSAGE}, or with too few GPUs: ask only where there are any")
            elif kept and len(kept) < len(node.test.values):
                yield self.finding(node, MESSAGE, Fix(self._only(node.test, kept)))

    def visit_If(self, node: ast.If) -> Iterator[Finding]:
        refusal = self.facts.guards.refusal(node)
        if refusal is not None:
            yield self.finding(node.test, MESSAGE, Fix(without_branch(self.facts, node, refusal)))
        elif refuses(node.body) and _asks_for_gpu(node.test) and not self.facts.is_guarded(node):
            yield self.finding(node.test, "refuses what is on a CPU: give it a way of its own")

    def _counts(self, test: ast.expr) -> bool:
        """Whether a test compares with the number of GPUs."""
        return isinstance(test, ast.Compare) and any(
            map(self.facts.guards.counts_gpus, (test.left, *test.comparators))
        )

    def _only(self, test: ast.BoolOp, kept: list[ast.expr]) -> tuple[Edit, ...]:
        """The edits that leave some of the parts of a test; what stands in them may change as well."""
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
    """`not x.is_cuda`."""
    match test:
        case ast.UnaryOp(op=ast.Not(), operand=ast.Attribute(attr="is_cuda")):
            return True
    return False


def _lists_no_cpu(test: ast.expr) -> bool:
    """`device in ["cuda", "npu"]`."""
    match test:
        case ast.Compare(
            ops=[ast.In()], comparators=[ast.List(elts=elts) | ast.Tuple(elts=elts) | ast.Set(elts=elts)]
        ):
            names = {each.value for each in elts if isinstance(each, ast.Constant)}
            return "cuda" in names and "cpu" not in names
    return False
