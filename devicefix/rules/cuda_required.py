from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence

from devicefix.devices.context import Context
from devicefix.facts.copies.views import given_to
from devicefix.facts.effects import has_effects
from devicefix.facts.path_conditions import branches
from devicefix.facts.refused_devices import missing_device
from devicefix.facts.scopes import dotted
from devicefix.facts.texts import text_of
from devicefix.facts.values import cuda_string, last_name
from devicefix.model import Edit, Finding, Fix
from devicefix.rewrite.blocks import can_unwrap, operand, remove, unwrap, without_branch
from devicefix.rewrite.lines import ends_its_lines
from devicefix.rules.base import Example, Rule
from devicefix.rules.shared.checks import Checks
from devicefix.rules.shared.refusals import PERHAPS, Refusals, Verdict


class CudaRequired(Rule):
    """
    ## What it does
    Finds code that stops the program without CUDA, such as `assert torch.cuda.is_available()`, a branch that raises an
    error or exits, or a call to a function that ends the program.

    The rule ignores checks of explicit requests, as in `args.device == "cuda" and not torch.cuda.is_available()`, and
    checks whose error leads to the CPU's own code.

    ## Why it matters
    With CUDA, the check has no effect. Without CUDA, it stops even a program that could run on a CPU.

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
    The fix removes the check, or selects the CPU instead. This is usually safe: with CUDA, the assertion always holds,
    and the error branch never runs.

    The fix is unsafe if:

    - the check depends on an option or setting that may request a GPU and whose default is unknown.
    - a caller catches the error and continues.
    - the check rejects only some uses, as in `fused and not torch.cuda.is_available()`, or is in a function that only
      validates requirements of other code.
    - code after the check still needs CUDA, and has no safe fix.

    There is no fix in tests, or if the code may need a library that works only with CUDA.
    """

    code = "DF701"
    name = "cuda-required"
    summary = "The program stops without CUDA"
    words = (b"cuda", b"'cu'", b'"cu"', b"nccl", b"NCCL", b"is_cpu")
    common_words = (b"device", b"gpu")
    INVALID = (
        Example(
            "an assert with a message",
            before="""
                import torch


                def main():
                    assert torch.cuda.is_available(), "needs a GPU"
                    run()


                main()
            """,
            after="""
                import torch


                def main():
                    run()


                main()
            """,
        ),
        Example(
            "a function whose result is the status of the program",
            before="""
                import sys
                import torch


                def main():
                    if not torch.cuda.is_available():
                        print("no GPU")
                        return 1
                    return run()


                sys.exit(main())
            """,
            after="""
                import sys
                import torch


                def main():
                    return run()


                sys.exit(main())
            """,
        ),
        Example(
            "a wait for CUDA, and a refusal below a choice that is not the CPU by default",
            before="""
                import time
                import torch

                while not torch.cuda.is_available():
                    time.sleep(1)


                def pick(mode="auto"):
                    if mode == "cpu":
                        name = mode
                    elif torch.cuda.is_available():
                        name = "cuda" if torch.cuda.is_available() else "cpu"
                    else:
                        raise RuntimeError("no GPU")
                    return name
            """,
            after="""
                import time
                import torch


                def pick(mode="auto"):
                    if mode == "cpu":
                        name = mode
                    else:
                        name = "cuda" if torch.cuda.is_available() else "cpu"
                    return name
            """,
        ),
        Example(
            "an assert in a function whose name a method has as well",
            before="""
                import torch


                def check(model):
                    model.train()


                def train(model):
                    assert torch.cuda.is_available()
                    check(model)


                train(make())
            """,
            after="""
                import torch


                def check(model):
                    model.train()


                def train(model):
                    check(model)


                train(make())
            """,
        ),
        Example(
            "an assert alone in a function",
            before="""
                import torch


                def main():
                    assert torch.cuda.is_available()


                main()
            """,
            after="""
                import torch


                def main():
                    pass


                main()
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
            "an error before a line that is never reached",
            before="""
                import torch
                import torch.distributed as dist

                if torch.cuda.is_available():
                    backend = "nccl"
                else:
                    raise NotImplementedError("CUDA was not found")
                    backend = "gloo"
                dist.init_process_group(backend)
            """,
            after="""
                import torch
                import torch.distributed as dist

                backend = "nccl" if torch.cuda.is_available() else "gloo"
                dist.init_process_group(backend)
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
        Example(
            "an error after a branch that returns",
            before="""
                import torch


                def move(x):
                    if torch.cuda.is_available():
                        return x.cuda()
                    raise RuntimeError("no GPU")


                move(torch.ones(1))
            """,
            after="""
                import torch


                def move(x):
                    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
                    return x.to(device)


                move(torch.ones(1))
            """,
        ),
        Example(
            "an exit with its import",
            before="""
                import torch

                if not torch.cuda.is_available():
                    import sys

                    sys.exit("no GPU")
                run()
            """,
            after="""
                import torch

                run()
            """,
        ),
        Example(
            "an exit with its import, before the first move",
            before="""
                import torch

                if not torch.cuda.is_available():
                    import sys

                    sys.exit("no GPU")
                net.cuda()
            """,
            after="""
                import torch

                device = torch.device("cuda" if torch.cuda.is_available() else "cpu")

                net.to(device)
            """,
        ),
        Example(
            "an exit by a function of the module",
            before="""
                import torch


                def stop(message):
                    print(message)
                    raise SystemExit(message)


                if torch.cuda.device_count() < 1:
                    stop("no GPU")
                run()
            """,
            after="""
                import torch


                def stop(message):
                    print(message)
                    raise SystemExit(message)


                run()
            """,
        ),
        Example(
            "an exit behind an or",
            before="""
                import torch

                torch.cuda.is_available() or exit("no GPU")
                run()
            """,
            after="""
                import torch

                run()
            """,
        ),
        Example(
            "an exit in a choice",
            before="""
                import torch

                device = "cuda" if torch.cuda.is_available() else exit("no GPU")
            """,
        ),
        Example(
            "an exit in a case",
            before="""
                import torch

                match torch.cuda.is_available():
                    case True:
                        run()
                    case _:
                        raise OSError
            """,
        ),
        Example(
            "an error of a parser",
            before="""
                import argparse
                import torch

                parser = argparse.ArgumentParser()
                if not torch.cuda.is_available():
                    parser.error("needs CUDA")
                run()
            """,
            after="""
                import argparse
                import torch

                parser = argparse.ArgumentParser()
                run()
            """,
        ),
        Example(
            "an assert about availability before a compiled extension",
            before="""
                import torch

                from . import _C


                def main():
                    assert torch.cuda.is_available()
                    return _C.double(torch.ones(1))


                main()
            """,
        ),
        Example(
            "a function whose callers are not known",
            before="""
                import torch


                def train():
                    assert torch.cuda.is_available()
                    run()
            """,
            after="""
                import torch


                def train():
                    run()
            """,
        ),
        Example(
            "a function whose error is caught",
            before="""
                import torch


                def check():
                    if not torch.cuda.is_available():
                        raise RuntimeError
                    run()


                try:
                    x = check()
                except RuntimeError:
                    x = run(1)
            """,
            after="""
                import torch


                def check():
                    run()


                try:
                    x = check()
                except RuntimeError:
                    x = run(1)
            """,
            unsafe=True,
        ),
        Example(
            "an error that ends the program",
            before="""
                import torch

                try:
                    assert torch.cuda.is_available()
                except AssertionError:
                    exit(1)
            """,
        ),
        Example(
            "code that needs a library",
            before="""
                import torch


                def attend(x):
                    if not torch.cuda.is_available():
                        raise ValueError("memory efficient attention of xformers is only available for GPU")
                    return run(x)


                attend(1)
            """,
        ),
        Example(
            "a library that is only there with CUDA",
            before="""
                import torch

                try:
                    import flash_attn
                except ImportError:
                    flash_attn = None


                def attend(x):
                    assert torch.cuda.is_available()
                    return flash_attn.run(x)


                attend(1)
            """,
        ),
        Example(
            "a test",
            before="""
                import pytest
                import torch


                def test_move():
                    assert torch.cuda.is_available()
                    run()
            """,
        ),
        Example(
            "an error that says the import failed",
            before="""
                import torch

                if not torch.cuda.is_available():
                    raise ImportError
            """,
        ),
        Example(
            "an assert under a condition",
            before="""
                import torch

                if train:
                    assert torch.cuda.is_available()
                run()
            """,
            after="""
                import torch

                run()
            """,
        ),
        Example(
            "an option that asks for CUDA by default",
            before="""
                import argparse
                import torch

                parser = argparse.ArgumentParser()
                parser.add_argument("--cuda", default=True)
                args = parser.parse_args()
                assert not args.cuda or torch.cuda.is_available()
                run()
            """,
            after="""
                import argparse
                import torch

                parser = argparse.ArgumentParser()
                parser.add_argument("--cuda", default=True)
                args = parser.parse_args()
                run()
            """,
        ),
        Example(
            "a setting that may ask for CUDA",
            before="""
                import torch

                assert not config.cuda or torch.cuda.is_available()
                run()
            """,
            after="""
                import torch

                run()
            """,
            unsafe=True,
        ),
        Example(
            "a function that only validates requirements of other code",
            before="""
                import torch


                class Quantizer:
                    def validate(self, config):
                        if not torch.cuda.is_available():
                            raise RuntimeError("a GPU is needed for quantization")
                        if config.bits not in (4, 8):
                            raise ValueError(config.bits)
            """,
            after="""
                import torch


                class Quantizer:
                    def validate(self, config):
                        if config.bits not in (4, 8):
                            raise ValueError(config.bits)
            """,
            unsafe=True,
        ),
        Example(
            "some uses",
            before="""
                import torch

                fused = pick()
                if fused and not torch.cuda.is_available():
                    raise RuntimeError
                run(fused)
            """,
            after="""
                import torch

                fused = pick()
                run(fused)
            """,
            unsafe=True,
        ),
        Example(
            "a list of GPUs",
            before="""
                import torch


                def move(net, gpu_ids=[]):
                    if len(gpu_ids) > 0:
                        assert torch.cuda.is_available()
                        net.cuda(gpu_ids[0])
                    return net
            """,
            after="""
                import torch


                def move(net, gpu_ids=[]):
                    if len(gpu_ids) > 0 and torch.cuda.is_available():
                        net.cuda(gpu_ids[0])
                    return net
            """,
        ),
        Example(
            "a check of what still needs CUDA, also in a function that is called there",
            before="""
                import torch


                def free():
                    return torch.cuda.get_device_properties(0).total_memory


                def main():
                    assert torch.cuda.is_available()
                    return run(free)


                def train(x):
                    if not torch.cuda.is_available():
                        raise RuntimeError("no GPU")
                    for _ in range(2):
                        x = x / torch.cuda.get_device_properties(0).total_memory
                    return x


                main()
            """,
            after="""
                import torch


                def free():
                    return torch.cuda.get_device_properties(0).total_memory


                def main():
                    return run(free)


                def train(x):
                    for _ in range(2):
                        x = x / torch.cuda.get_device_properties(0).total_memory
                    return x


                main()
            """,
            unsafe=True,
        ),
        Example(
            "what needs CUDA, but does not always run after a check",
            before="""
                import torch


                def main(report):
                    assert torch.cuda.is_available()
                    try:
                        share = 1 / torch.cuda.get_device_properties(0).total_memory
                    except RuntimeError:
                        print("unknown")
                    if report:
                        return 1 / torch.cuda.get_device_properties(0).total_memory


                main(False)
            """,
            after="""
                import torch


                def main(report):
                    try:
                        share = 1 / torch.cuda.get_device_properties(0).total_memory
                    except RuntimeError:
                        print("unknown")
                    if report:
                        return 1 / torch.cuda.get_device_properties(0).total_memory


                main(False)
            """,
        ),
        Example(
            "a condition that leads to a process group, and so asks for that",
            before="""
                import torch
                import torch.distributed as dist


                def connect(rank, count, backend):
                    assert torch.cuda.is_available(), "the distributed mode needs CUDA"
                    print("connecting")
                    dist.init_process_group(backend=backend, rank=rank, world_size=count)


                def main(options):
                    if options.several:
                        connect(0, 1, "gloo")


                main(parse())
            """,
            after="""
                import torch
                import torch.distributed as dist


                def connect(rank, count, backend):
                    print("connecting")
                    dist.init_process_group(backend=backend, rank=rank, world_size=count)


                def main(options):
                    if options.several:
                        connect(0, 1, "gloo")


                main(parse())
            """,
        ),
        Example(
            "the end of a choice of accelerators",
            before="""
                import torch


                def choose(rank):
                    if torch.cuda.is_available():
                        device = torch.device(f"cuda:{rank}")
                    elif torch.backends.mps.is_available():
                        device = torch.device("mps")
                    else:
                        raise ValueError("no GPU")
                    return device
            """,
            after="""
                import torch


                def choose(rank):
                    if torch.cuda.is_available():
                        device = torch.device(f"cuda:{rank}")
                    elif torch.backends.mps.is_available():
                        device = torch.device("mps")
                    else:
                        device = torch.device("cpu")
                    return device
            """,
        ),
        Example(
            "a choice with settings of torch",
            before="""
                import torch

                if torch.cuda.is_available():
                    device = torch.device("cuda")
                    if torch.cuda.get_device_properties(0).major >= 8:
                        torch.backends.cuda.matmul.allow_tf32 = True
                elif torch.backends.mps.is_available():
                    device = torch.device("mps")
                else:
                    raise RuntimeError("no GPU")
            """,
            after="""
                import torch

                if torch.cuda.is_available():
                    device = torch.device("cuda")
                    if torch.cuda.get_device_properties(0).major >= 8:
                        torch.backends.cuda.matmul.allow_tf32 = True
                elif torch.backends.mps.is_available():
                    device = torch.device("mps")
                else:
                    device = torch.device("cpu")
            """,
        ),
        Example(
            "a choice of more than the device",
            before="""
                import torch

                if torch.cuda.is_available():
                    size = 8
                    device = "cuda"
                elif torch.backends.mps.is_available():
                    size = 4
                    device = "mps"
                else:
                    raise RuntimeError("no GPU")
            """,
        ),
    )
    VALID = (
        Example(
            "a result that is no status, and the status 0",
            """
                import sys
                import torch


                def count():
                    if not torch.cuda.is_available():
                        return 1
                    return run()


                def main():
                    if not torch.cuda.is_available():
                        return 0
                    return run(count())


                sys.exit(main())
            """,
        ),
        Example(
            "a check that a user of the function asks for",
            """
                import torch


                def check_install(cuda=False):
                    if cuda:
                        assert torch.cuda.is_available()
                        print("found")
            """,
        ),
        Example(
            "a choice between two errors",
            """
                import torch

                try:
                    import fused
                except ImportError:
                    if torch.cuda.is_available():
                        raise ImportError("compile the kernel")
                    else:
                        raise ImportError("the kernel does not support CPUs")
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
            "a skipped test",
            """
                import torch

                if not torch.cuda.is_available():
                    raise unittest.SkipTest('no GPU')
            """,
        ),
        Example(
            "an option that asks for CUDA",
            """
                import argparse
                import torch

                parser = argparse.ArgumentParser()
                parser.add_argument("--cuda", action="store_true")
                args = parser.parse_args()
                assert not args.cuda or torch.cuda.is_available()
            """,
        ),
        Example(
            "an option that asks for a GPU by its number",
            """
                import argparse
                import torch

                parser = argparse.ArgumentParser()
                parser.add_argument("--gpu", type=int, default=-1)
                args = parser.parse_args()
                if args.gpu >= 0:
                    assert torch.cuda.is_available()
                    torch.cuda.set_device(args.gpu)
            """,
        ),
        Example(
            "a request that can't be met",
            """
                import torch

                if args.device == "cuda" and not torch.cuda.is_available():
                    raise ValueError("no GPU")
            """,
        ),
        Example(
            "a request and then a check",
            """
                import torch

                if "cuda" in device:
                    assert torch.cuda.is_available()
            """,
        ),
        Example(
            "an error after the other choice",
            """
                import torch


                def main():
                    if args.cpu:
                        return run()
                    if not torch.cuda.is_available():
                        raise ValueError("no GPU: use --cpu")
            """,
        ),
        Example(
            "an error that begins the CPU's path",
            """
                import torch

                try:
                    if not torch.cuda.is_available():
                        raise RuntimeError
                    torch.cuda.synchronize()
                except RuntimeError:
                    x = 1
            """,
        ),
        Example(
            "an assert that begins the CPU's path",
            """
                import torch


                def has_gpu():
                    try:
                        assert torch.cuda.is_available()
                    except AssertionError:
                        return False
                    return True
            """,
        ),
        Example(
            "a logged error",
            """
                import torch

                if not torch.cuda.is_available():
                    logger.error("no GPU")
            """,
        ),
    )

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._guards = self.facts.guards
        self._ends = self._guards.refusals
        self._refusals = Refusals(context)
        self._checks = Checks(context)

    def visit_Assert(self, node: ast.Assert) -> Iterator[Finding]:
        test = node.test
        if self._guards.settled(test):
            self.context.mark_handled(node)
            verdict = self._refusals.verdict(node, (test, False), "AssertionError")
            yield from self._judged(node, verdict, (remove(self.facts, node),), self.facts.tree.after(node))
        elif not missing_device(self.facts, test, True) and (parts := self._checks.parts(test)):
            gone, kept = parts
            assert isinstance(test, ast.BoolOp)
            verdict = self._refusals.verdict(node, (gone, False), "AssertionError")
            yield from self._judged(node, verdict, self._only(test, kept))

    def visit_If(self, node: ast.If) -> Iterator[Finding]:
        refusal = self._guards.refusal(node)
        if refusal is not None:
            condition = node.test, refusal is node.body
            verdict = self._refusals.verdict(node, condition, self._ends.error_of(self._ends.last(refusal)))
            other = node.orelse or self.facts.tree.after(node) if refusal is node.body else node.body
            yield from self._judged(node.test, verdict, self._without(node, refusal), other)
        elif self._guards.implies(node.test):
            yield from self._end_of_choice(node)

    def _end_of_choice(self, node: ast.If) -> Iterator[Finding]:
        """Report the error that ends a choice between CUDA and other devices: it becomes the CPU."""
        *bodies, rest = branches(node)
        last = self._ends.last(rest)
        of_cuda = [each for each in node.body if any(map(cuda_string, ast.walk(each)))]
        chosen = [{self._device_chosen(each) for each in body} for body in (of_cuda, *bodies)]
        device = min(set.intersection(*chosen) - {""}, default="")
        if len(bodies) > 1 and len(rest) == 1 and last is not None and device:
            verdict = self._refusals.verdict(rest[0], (node.test, False), self._ends.error_of(last))
            if verdict is not None and verdict.removable:
                fix = self.context.replace_statement(rest[0], device, verdict.why)
                others = [each for body in bodies for each in body if self._device_chosen(each) != device]
                unless = (
                    "because the other branches assign more than the device" if self._binds(others) else ""
                )
                yield self.finding(
                    rest[0], f"{PERHAPS}; use the CPU instead", None if unless else fix, unless
                )

    def _binds(self, statements: Iterable[ast.stmt]) -> bool:
        """Return whether statements bind anything but settings of torch."""
        nodes = (node for each in statements for node in ast.walk(each) if isinstance(node, ast.expr))
        bound = (node for node in nodes if isinstance(getattr(node, "ctx", None), ast.Store))
        return any(not (self.facts.resolve(node) or "").startswith("torch.") for node in bound)

    def _device_chosen(self, statement: ast.stmt) -> str:
        """Return the code that chooses the CPU in place of another device, empty if a statement chooses none."""
        match statement:
            case ast.Assign(targets=[ast.Name() | ast.Attribute() as target], value=value):
                if self.facts.call(value, "torch.device") and isinstance(value, ast.Call):
                    return f'{dotted(target)} = {self.context.source.code(value.func)}("cpu")'
                return f'{dotted(target)} = "cpu"' if text_of(value) is not None else ""
        return ""

    def visit_While(self, node: ast.While) -> Iterator[Finding]:
        leaves = any(isinstance(inner, (ast.Break, ast.Return)) for inner in ast.walk(node))
        if self._guards.settled(node.test) is False and not (leaves or node.orelse):
            raised = next((inner for inner in ast.walk(node) if isinstance(inner, ast.Raise)), None)
            verdict = self._refusals.verdict(node, (node.test, True), self._ends.error_of(raised))
            yield from self._judged(node.test, verdict, (remove(self.facts, node),))

    def visit_Expr(self, node: ast.Expr) -> Iterator[Finding]:
        call = node.value
        own = self._ends.own_function(call.func) if isinstance(call, ast.Call) else None
        if own is None or not isinstance(call, ast.Call):
            return
        match own.body:
            case [*before, ast.If(test=ast.UnaryOp(op=ast.Not(), operand=test), body=body, orelse=[])]:
                given, last = given_to(self.facts, call, own, last_name(test)), self._ends.last(body)
                if given and last is not None and self._guards.settled(given[0]):
                    verdict = self._refusals.verdict(node, (given[0], False), self._ends.error_of(last))
                    does_more = any(has_effects(self.facts, each) for each in ast.iter_child_nodes(call))
                    alone = not (before or own.decorator_list or does_more)
                    edits = (remove(self.facts, node),) if alone else ()
                    yield from self._judged(
                        node, verdict, edits, unless="because the call may do more than check for CUDA"
                    )

    def visit_BoolOp(self, node: ast.BoolOp) -> Iterator[Finding]:
        *tests, last = node.values
        decisive = isinstance(node.op, ast.Or)  # the value after which nothing is evaluated
        if self._ends.ends(last) and decisive in map(self._guards.settled, tests):
            yield from self._ended(node, (ast.BoolOp(node.op, tests), not decisive), last)

    def visit_IfExp(self, node: ast.IfExp) -> Iterator[Finding]:
        answer = self._guards.settled(node.test)
        if answer is not None:
            last, other = (node.orelse, node.body) if answer else (node.body, node.orelse)
            if self._ends.ends(last):
                condition = node.test, last is node.body
                yield from self._ended(node, condition, last, removable=isinstance(other, ast.Constant))

    def visit_Match(self, node: ast.Match) -> Iterator[Finding]:
        answer = self._guards.settled(node.subject)
        if answer is None:
            return
        for case in node.cases:
            parts = (part for part in ast.walk(case.pattern) if hasattr(part, "value"))
            values = [getattr(part.value, "value", part.value) for part in parts]
            is_wildcard = isinstance(case.pattern, ast.MatchAs) and case.pattern.pattern is None
            never = values and not any(bool(value) is answer for value in values)
            last = self._ends.last(case.body)
            if (never or is_wildcard) and last is not None:
                error = self._ends.error_of(last)
                verdict = self._refusals.verdict(node, (node.subject, not answer), error)
                yield from self._judged(node.subject, verdict, ())

    def _judged(
        self,
        place: ast.expr | ast.stmt,
        verdict: Verdict | None,
        edits: tuple[Edit, ...],
        other: Sequence[ast.stmt] = (),
        unless: str = "because the statement contains other code",
    ) -> Iterator[Finding]:
        """Yield the finding of a refusal that only a machine without CUDA reaches.

        Args:
            place: where to report it.
            verdict: what to do with it; None where it is right.
            edits: what takes it away; nothing where a person has to do it.
            other: what runs where it does not refuse, and so only with CUDA if it stays.
            unless: why there are no edits, where the refusal can go.
        """
        if verdict is None:
            self.context.mark_handled(*(part for each in other for part in ast.walk(each)))
            return
        if not verdict.removable:
            yield self.finding(place, verdict.message)
        elif not edits:
            yield self.finding(place, verdict.message).unfixed(unless)
        elif self._is_tried_alone(self.facts.tree.statement(place)):
            yield self.finding(place, f"{verdict.message} and the error handler")
        else:
            doubts = (verdict.why, self.devices.why_kept(place))
            yield self.finding(place, verdict.message, Fix(edits, "; ".join(filter(None, doubts))))

    def _is_tried_alone(self, statement: ast.stmt) -> bool:
        """Return whether a statement is all that a `try` statement runs."""
        around = self.facts.tree.parents.get(statement)
        return isinstance(around, ast.Try) and around.body == [statement]

    def _ended(
        self, node: ast.expr, condition: tuple[ast.expr, bool], last: ast.expr, removable: bool = True
    ) -> Iterator[Finding]:
        """Yield the finding of an expression that ends the program, such as `… or sys.exit()`."""
        statement = self.facts.tree.statement(node)
        alone = isinstance(statement, ast.Expr) and statement.value is node and removable
        verdict = self._refusals.verdict(node, condition, self._ends.error_of(ast.Expr(last)))
        yield from self._judged(node, verdict, (remove(self.facts, statement),) if alone else ())

    def _without(self, node: ast.If, refusal: list[ast.stmt]) -> tuple[Edit, ...]:
        """Return the edits that take away the statements that refuse, and the test that is then needless."""
        if refusal is node.body or refusal is node.orelse:
            return without_branch(self.facts, node, refusal)
        source = self.context.source
        shared = len(refusal) > 1 and not all(ends_its_lines(source, statement) for statement in refusal)
        if shared or not can_unwrap(source, node):
            return ()
        return unwrap(self.facts, node), *(remove(self.facts, statement) for statement in refusal)

    def _only(self, test: ast.BoolOp, kept: list[ast.expr]) -> tuple[Edit, ...]:
        """Return the edits that keep some parts of a test, which other edits may change."""
        source = self.context.source
        (start, end), first, last = source.span(test), source.span(kept[0])[0], source.span(kept[-1])[1]
        around = source.text[start:first], source.text[last:end]
        together = test.values[test.values.index(kept[0]) : test.values.index(kept[-1]) + 1] == kept
        if together and all(text.count("(") == text.count(")") for text in around):
            cut = (Edit(start, first, ""), Edit(last, end, ""))
            return tuple(edit for edit in cut if edit.start < edit.end)
        return (Edit(start, end, " and ".join(operand(source.code(each)) for each in kept)),)
