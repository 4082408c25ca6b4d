"""Refusals and guards: each program runs as it is and rewritten, on a simulated GPU and on the CPU."""

from __future__ import annotations

import ast
import json
from collections.abc import Mapping
from textwrap import dedent

import pytest
from helpers import analyze
from running import run_program

from devicefix.model import Safety

# What happens to each program on a CPU once it is rewritten: it "runs" as it does with CUDA, it keeps the
# "path" that it had, which is reported where a caller's handler ("caught") begins it. An error that stays is
# "reported", or "right".
PROGRAMS: Mapping[str, tuple[str, str]] = {
    "names that only a guard defines": (
        "runs",
        """
        cuda = torch.cuda.is_available()
        for batch in [(torch.ones(2), torch.zeros(2))]:
            if cuda:
                x, y = batch[1].cuda(), batch[0].cuda()
            print((x + y).sum().item())
        """,
    ),
    "a name that only the guard of a function defines": (
        "runs",
        """
        def double(batch):
            if torch.cuda.is_available():
                x = batch[0].cuda()
            return x * 2
        print(double([torch.ones(2)]).tolist())
        """,
    ),
    "a name that a flag of the user's guards": (
        "reported",
        """
        def double(batch, cuda):
            if cuda:
                x = batch[0].cuda()
            return x * 2
        print(double([torch.ones(2)], torch.cuda.is_available()).tolist())
        """,
    ),
    "a name of another guard": (
        "path",
        """
        cuda = torch.cuda.is_available()
        if cuda:
            x = torch.ones(2, device="cuda")
        if cuda:
            x = x.cuda()
            print(x.is_cuda)
        """,
    ),
    "an error that begins the CPU's path": (
        "caught",
        """
        x = torch.ones(2)
        try:
            if not torch.cuda.is_available():
                raise RuntimeError("no GPU")
            x = x.cuda() + 1
        except RuntimeError:
            x = x - 1
        print(x.tolist())
        """,
    ),
    "an assert that begins the CPU's path": (
        "path",
        """
        try:
            assert torch.cuda.is_available()
            import json as ops
        except (ImportError, AssertionError):
            ops = None
        print(ops is None)
        """,
    ),
    "an assert in a function that asks": (
        "path",
        """
        def has_gpu():
            try:
                assert torch.cuda.is_available()
                return True
            except:
                return False
        print(has_gpu())
        """,
    ),
    "a refusal whose callers catch it": (
        "caught",
        """
        def check_gpu():
            if not torch.cuda.is_available():
                raise RuntimeError("no GPU")
        try:
            check_gpu()
            name = "GPU"
        except RuntimeError:
            name = "CPU"
        print(name)
        """,
    ),
    "a class whose error is caught": (
        "caught",
        """
        class Fast:
            def __init__(self):
                assert torch.cuda.is_available()
        try:
            model = Fast()
        except Exception:
            model = None
        print(model is None)
        """,
    ),
    "a request that can't be met": (
        "right",
        """
        class args:
            device = "xaduc"[:0:-1]  # as the user gave it
        if args.device == "cuda" and not torch.cuda.is_available():
            raise ValueError("no GPU")
        print(1)
        """,
    ),
    "a request for the CPU before the refusal": (
        "runs",
        """
        def main(where):
            if where == 1:
                return 0
            if not torch.cuda.is_available():
                raise ValueError("no GPU")
            return 1
        print(main(2))
        """,
    ),
    "code that needs xformers": (
        "reported",
        """
        def attend(x):
            if not torch.cuda.is_available():
                raise ValueError(
                    "torch.cuda.is_available() should be True but is False. xformers' memory efficient"
                    " attention is only available for GPU"
                )
            return x
        print(attend(1))
        """,
    ),
    "an error after a branch that returns": (
        "runs",
        """
        def move(x):
            if torch.cuda.is_available():
                return x.cuda()
            raise RuntimeError("no GPU")
        print(move(torch.ones(2)).tolist())
        """,
    ),
    "messages before the exit after a branch that returns": (
        "runs",
        """
        import sys
        def move(x):
            for _ in range(2):
                if torch.cuda.is_available():
                    x = x.cuda()
                    break
                print("no GPU")  # there
                sys.exit("no GPU")
            return x
        print(move(torch.ones(2)).tolist())
        """,
    ),
    "an exit with its import": (
        "runs",
        """
        if not torch.cuda.is_available():
            import sys
            sys.exit("no GPU")
        print(1)
        """,
    ),
    "an assert about where a tensor is": (
        "reported",
        """
        x = torch.ones(2)
        x = x.cuda()
        assert x.is_cuda
        print(x.tolist())
        """,
    ),
    "an assert about the type of its device": (
        "reported",
        """
        x = torch.ones(2).cuda()
        assert x.device.type == "cuda"
        """,
    ),
    "an assert about the type of a device": (
        "reported",
        """
        device_type = torch.ones(2).cuda().device.type
        assert device_type == "cuda"
        """,
    ),
    "an error where a tensor is on the CPU": (
        "reported",
        """
        x = torch.ones(2).cuda()
        if not x.is_cuda:
            raise NotImplementedError
        """,
    ),
    "an exit after messages": (
        "runs",
        """
        if not torch.cuda.is_available():
            print("no GPU")
            for line in ["install", "one"]:
                print(line)
            exit(1)
        print(1)
        """,
    ),
    "an exit by os": (
        "runs",
        """
        import os
        if not torch.cuda.is_available():
            os._exit(1)
        print(1)
        """,
    ),
    "an exit by another name": (
        "runs",
        """
        from sys import exit as leave
        if torch.cuda.device_count() == 0:
            leave(1)
        print(1)
        """,
    ),
    "an error of a parser": (
        "runs",
        """
        import argparse
        parser = argparse.ArgumentParser()
        if not torch.cuda.is_available():
            parser.error("needs CUDA")
        print(1)
        """,
    ),
    "a logged error and SystemExit": (
        "runs",
        """
        import logging
        if not torch.cuda.is_available():
            logging.critical("needs CUDA")
            raise SystemExit
        print(1)
        """,
    ),
    "an exit in an else": (
        "runs",
        """
        if torch.cuda.is_available():
            x = torch.ones(2).cuda()
        else:
            raise SystemExit("no GPU")
        print(x.tolist())
        """,
    ),
    "an exit in an elif": (
        "runs",
        """
        a = not print
        if a:
            print(2)
        elif not torch.cuda.is_available():
            raise SystemExit("no GPU")
        else:
            print(1)
        """,
    ),
    "an exit in a case": (
        "reported",
        """
        match torch.cuda.is_available():
            case False:
                raise SystemExit("no GPU")
        print(1)
        """,
    ),
    "an exit in the case of a number": (
        "reported",
        """
        match torch.cuda.device_count():
            case 0 | False:
                raise SystemExit("no GPU")
            case _:
                print(1)
        """,
    ),
    "parts of a test that are literal": (
        "runs",
        """
        if (not torch.cuda.device_count() > 0 and 1 < 2) or 1 > 2:
            raise RuntimeError("no GPU")
        print(1)
        """,
    ),
    "an exit where the default is not the CPU": (
        "reported",
        """
        def pick(mode="auto"):
            if mode == "cpu":
                where = "cpu"
            elif mode == "no" or not bool(torch.cuda.is_available()):
                raise SystemExit("no GPU")
            else:
                where = "cuda"
            return torch.ones(1).to(where).item()
        print(pick())
        """,
    ),
    "an exit where the user could ask for the CPU": (
        "right",
        """
        def pick(*where):
            if where == ("cpu",):
                return "cpu"
            if where[0] == "cpu":
                found = torch.device("cpu")
            elif torch.cuda.is_available():
                found = torch.device("cuda")
            else:
                raise SystemExit("no GPU")
            return found
        print(pick("cpu"))
        """,
    ),
    "a test that binds a name": (
        "reported",
        """
        assert (count := torch.cuda.device_count())
        print(count)
        """,
    ),
    "a loop that refuses at once": (
        "runs",
        """
        while not torch.cuda.device_count() > 0:
            raise NotImplementedError
        print(1)
        """,
    ),
    "a loop that only a GPU leaves": (
        "reported",
        """
        for _ in range(2):
            if torch.cuda.is_available():
                break
        else:
            raise TimeoutError("no GPU")
        print(1)
        """,
    ),
    "a loop that only a GPU leaves, by a return": (
        "reported",
        """
        def wait(tries):
            while tries:
                if torch.cuda.device_count() >= 1:
                    return "cuda"
                tries -= 1
            raise TimeoutError("no GPU")
        print(wait(2))
        """,
    ),
    "a loop that something else leaves, too": (
        "path",
        """
        def wait(tries):
            while tries:
                if torch.cuda.device_count() >= 1:
                    return 1
                if tries == 1:
                    return 2
                tries -= 1
            raise TimeoutError("no GPU")
        print(wait(2))
        """,
    ),
    "a loop over all GPUs, and an assert": (
        "reported",
        """
        def first():
            for number in range(torch.cuda.device_count()):
                return number
            assert False, "no GPU"
        print(first())
        """,
    ),
    "an error that a function returns": (
        "reported",
        """
        def ensure(count):
            if torch.cuda.device_count() < count:
                return RuntimeError(f"{count} GPUs needed")
            return None
        problem = ensure(1)
        if problem:
            raise problem
        print(1)
        """,
    ),
    "errors that are collected": (
        "reported",
        """
        def check():
            errors = []
            if not torch.cuda.is_available():
                errors.append("no GPU")
            if errors:
                raise SystemExit(errors)
        check()
        print(1)
        """,
    ),
    "errors that are only printed": (
        "path",
        """
        def check():
            errors = []
            if not torch.cuda.is_available():
                errors.append("no GPU")
            return errors
        errors = check()
        if len(errors) > 3:
            raise SystemExit(errors)
        print(1)
        """,
    ),
    "a dictionary of answers": (
        "reported",
        """
        checks = {"cuda": torch.cuda.is_available(), "torch": torch.__version__ > "1"}
        assert all(checks.values())
        print(1)
        """,
    ),
    "a dictionary of answers, of which one is enough": (
        "path",
        """
        checks = {"cuda": torch.cuda.is_available(), "mps": False}
        checks["cpu"] = True
        assert any(checks.values())
        print(1)
        """,
    ),
    "the memory of no GPU": (
        "reported",
        """
        def size(least):
            total = torch.cuda.get_device_properties(0).total_memory if torch.cuda.is_available() else 0
            if total < least:
                raise MemoryError(total)
            return 4
        print(size(10))
        """,
    ),
    "the capability of no GPU": (
        "reported",
        """
        if torch.cuda.get_device_capability()[0] < 1:
            raise RuntimeError("too old")
        print(1)
        """,
    ),
    "a list of some of the GPUs": (
        "runs",
        """
        def pick(limit):
            found = [torch.device("cuda", i) for i in range(min(limit, torch.cuda.device_count()))]
            if not found:
                raise ValueError("no devices")
            return found
        print(torch.ones(1).to(pick(1)[0]).item())
        """,
    ),
    "a list of all GPUs in an object": (
        "reported",
        """
        import dataclasses
        @dataclasses.dataclass
        class Cluster:
            names: list
            @classmethod
            def detect(cls):
                return cls([f"cuda:{i}" for i in range(torch.cuda.device_count())])
        print(torch.ones(1).to(Cluster.detect().names[0]).item())
        """,
    ),
    "an exit in a choice": (
        "reported",
        """
        x = 1 if torch.cuda.is_available() else exit("no GPU")
        print(x)
        """,
    ),
    "an exit behind an or": (
        "runs",
        """
        import sys
        torch.cuda.is_available() or sys.exit()
        print(1)
        """,
    ),
    "an exit behind an and": (
        "runs",
        """
        not torch.cuda.is_available() and exit(1)
        print(1)
        """,
    ),
    "an assert about the number of GPUs": (
        "runs",
        """
        assert torch.cuda.device_count() > 0, "no GPU"
        print(1)
        """,
    ),
    "a number of GPUs": (
        "runs",
        """
        n = torch.cuda.device_count()
        if n < 1:
            raise SystemExit("no GPU")
        print(1)
        """,
    ),
    "a function that ends the program": (
        "runs",
        """
        def stop(why):
            print(why)
            raise SystemExit(why)
        if not torch.cuda.is_available():
            stop("no GPU")
        print(1)
        """,
    ),
    "a function that checks": (
        "runs",
        """
        def check():
            assert torch.cuda.is_available()
        def main():
            check()
            print(1)
        if __name__ == "__main__":
            main()
        """,
    ),
    "a function that is true only with CUDA": (
        "reported",
        """
        def usable():
            return torch.cuda.is_available()
        if not usable():
            raise SystemExit
        print(1)
        """,
    ),
    "a function that may be true without CUDA": (
        "runs",
        """
        def usable(x):
            if x:
                return True
            if not torch.cuda.is_available():
                return False
            return True
        if usable(1):
            torch.cuda.synchronize()
        print(1)
        """,
    ),
    "a device that is not the CPU, nor CUDA": (
        "runs",
        """
        device = ""
        if device != "cpu":
            torch.cuda.synchronize()
        print(1)
        """,
    ),
    "a device is no string": (
        "runs",
        """
        device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        if device != "cpu":
            torch.cuda.synchronize()
        print(1)
        """,
    ),
    "a flag of the same name as a tensor's": (
        "runs",
        """
        class Trainer:
            def __init__(self):
                self.is_cuda = True
            def step(self):
                if self.is_cuda:
                    torch.cuda.synchronize()
        Trainer().step()
        print(1)
        """,
    ),
    "a decorator of the module that is called like a test's": (
        "runs",
        """
        def needs_gpu(function):
            return function
        @needs_gpu
        def step():
            torch.cuda.synchronize()
        step()
        print(1)
        """,
    ),
    "the version of NCCL": (
        "path",
        """
        if torch.version.cuda and torch.cuda.nccl.version() >= (2, 10):
            print("new")
        print(1)
        """,
    ),
}

RUN = """
import contextlib, io, json, os, sys

os._exit = sys.exit  # it would end all programs
for programs in json.load(open("programs.json")):
    found = {}
    for name, code in programs.items():
        output = io.StringIO()
        with contextlib.redirect_stdout(output):
            try:
                exec(compile("import torch\\n" + code, name, "exec"), {"__name__": "__main__"})
            except BaseException as error:
                print(type(error).__name__)
        found[name] = output.getvalue()
    print(json.dumps(found))
"""
DF7 = ("DF701", "DF702", "DF703", "DF704")


def rewritten(code: str) -> str:
    """Return a program as its safe fixes make it."""
    output = analyze(f"import torch\n{code}", fix=True).output
    return output.decode() if output is not None else code


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, str]]:
    """Return what each program prints, with the error that ends it, by machine and state."""
    folder = tmp_path_factory.mktemp("refusals")
    before = {name: dedent(code) for name, (_, code) in PROGRAMS.items()}
    after = {name: rewritten(code) for name, code in before.items()}
    (folder / "programs.json").write_text(json.dumps([before, after]), encoding="utf-8")
    found = {}
    for machine in ("simulated", "cpu"):
        ran = run_program(folder, RUN, machine=machine, copies=False)
        assert ran.status == 0, ran.errors
        for state, printed in zip(("before", "after"), ran.output.splitlines(), strict=True):
            found[f"{state} {machine}"] = json.loads(printed)
    return found


@pytest.mark.needs("numpy", "torch")
@pytest.mark.parametrize("name", PROGRAMS)
def test_program(name: str, outcomes: dict[str, dict[str, str]]) -> None:
    expected, code = PROGRAMS[name]
    gpu, cpu, gpu_before, cpu_before = (
        outcomes[key][name] for key in ("after simulated", "after cpu", "before simulated", "before cpu")
    )
    assert gpu == gpu_before
    findings = analyze(f"import torch\n{rewritten(dedent(code))}").findings
    match expected:
        case "runs":
            assert cpu == gpu
            assert not findings
        case "path" | "caught":
            assert cpu == cpu_before
            assert "Error" not in cpu
            assert bool(findings) is (expected == "caught")
        case "right":
            assert cpu == cpu_before
            assert not findings
        case "reported":
            assert "Error" in cpu or "Exit" in cpu
            assert findings


class Renamed(ast.NodeTransformer):
    """Gives every variable another name."""

    def __init__(self, module: ast.Module) -> None:
        stored = {node.id for node in ast.walk(module) if isinstance(node, ast.Name) and _binds(node)}
        arguments = {node.arg for node in ast.walk(module) if isinstance(node, ast.arg)}
        self.names = {name: f"q{number}" for number, name in enumerate(sorted(stored | arguments), 7)}

    def visit_Name(self, node: ast.Name) -> ast.Name:
        return ast.Name(self.names.get(node.id, node.id), node.ctx)

    def visit_arg(self, node: ast.arg) -> ast.arg:
        return ast.arg(self.names[node.arg])


def _binds(node: ast.Name) -> bool:
    return isinstance(node.ctx, ast.Store)


def safe(code: str) -> list[tuple[str, int]]:
    """Return the safe fixes in a program: the code and the line of each."""
    findings = analyze(f"import torch\n{code}").findings
    return [(each.code, each.line) for each in findings if each.safety is Safety.SAFE]


@pytest.mark.parametrize("name", PROGRAMS)
def test_names_decide_nothing(name: str) -> None:
    module = ast.parse(dedent(PROGRAMS[name][1]))
    before = ast.unparse(module)
    after = ast.unparse(Renamed(module).visit(module))
    assert [fix for fix in safe(after) if fix[0] in DF7] == [fix for fix in safe(before) if fix[0] in DF7]


@pytest.mark.parametrize(
    "test",
    [
        "q.is_cuda and k.is_cuda",
        "q.is_cuda and q.dim() == 1",
        "all(t.is_cuda for t in tensors)",
        "all([t.device.type == 'cuda' for t in tensors])",
        "all([q.is_contiguous(), k.is_cuda])",
        "any([q.is_cuda, k.is_cuda])",
        "q.device.type == 'cuda'",
        "q.device.type in ('cuda',)",
        "'cuda' in str(q.device)",
        "'cpu' not in str(q.device)",
        "str(q.device) in ('cuda:0', 'cuda:1')",
        "all([q.dim(), torch.cuda.is_available()])",
        "str(q.device).startswith('cuda')",
        "q.device == torch.device('cuda:0')",
        "q.device != torch.device('cpu')",
        "not q.is_cpu",
        "q.device.type != 'cpu'",
        "q7 == 'nccl'",
        "q7 in ('nccl', 'ucc')",
        "q7 in ['cuda', 'xpu']",
    ],
)
@pytest.mark.parametrize(
    "form", ["assert {}", "if not ({}):\n    raise ValueError", "if {}:\n    pass\nelse:\n    exit()"]
)
def test_a_check_that_a_value_on_a_cpu_fails_is_reported(form: str, test: str) -> None:
    program = f"import torch\nprint(torch.cuda.is_available())\n{form.format(test)}\n"
    assert [finding.code for finding in analyze(program).findings] == ["DF704"]


@pytest.mark.parametrize(
    "test",
    [
        "q.is_cuda or k",
        "any(t.is_cpu for t in tensors)",
        "q.device == k.device",
        "q.device.type == 'cpu'",
        "q7 in ('nccl', 'gloo')",
        "q7 in ('cuda', 'reference')",
        "q7 != 'nccl'",
        "q.is_cpu",
    ],
)
def test_a_check_that_a_value_on_a_cpu_passes(test: str) -> None:
    assert not analyze(f"import torch\nassert {test}\n").findings


_REFUSING_MODULE = "import torch\nassert torch.cuda.is_available()\nx = 1\n"
_REFUSING_FUNCTION = (
    "import torch\n\n\ndef check():\n    assert torch.cuda.is_available()\n    return 1\n\n\nx = check()\n"
)


@pytest.mark.parametrize(
    ("module", "other", "safe"),
    [
        (_REFUSING_MODULE, "try:\n    import module\nexcept Exception:\n    module = None\n", False),
        (_REFUSING_MODULE, "import torch\ntry:\n    from .module import x\nexcept:\n    x = 'cuda'\n", False),
        (_REFUSING_MODULE, "try:\n    import module\nexcept ImportError:\n    module = None\n", True),
        (_REFUSING_MODULE, "import module\n", True),
        (
            _REFUSING_FUNCTION,
            "import module\ntry:\n    module.check()\nexcept AssertionError:\n    x = 'cuda'\n",
            False,
        ),
        (
            _REFUSING_FUNCTION,
            "import module\ntry:\n    module.other()\nexcept AssertionError:\n    x = 'cuda'\n",
            True,
        ),
        (
            _REFUSING_FUNCTION,
            "import module\ntry:\n    module.check()\nexcept Exception:\n    raise OSError('cuda')\n",
            True,
        ),
    ],
)
def test_a_refusal_that_another_file_catches_is_not_safe_to_remove(
    module: str, other: str, safe: bool
) -> None:
    (found,) = analyze(module, others={"other.py": other}).findings
    assert (found.safety is Safety.SAFE) is safe


@pytest.mark.parametrize("answer", ["torch.cuda.is_available()", "bool(torch.cuda.device_count())"])
def test_a_refusal_that_asks_a_flag_of_another_file_is_reported(answer: str) -> None:
    code = "import torch\nfrom flags import has_gpu\nassert has_gpu\nx = torch.ones(1).cuda()\n"
    found = analyze(code, others={"flags.py": f"import torch\nhas_gpu = {answer}\n"}).findings
    assert [(each.code, each.line) for each in found] == [("DF704", 3), ("DF101", 4)]


@pytest.mark.parametrize(
    "check",
    ["if not torch.cuda.is_available():\n            raise OSError", "assert torch.cuda.is_available()"],
)
def test_nothing_is_found_below_a_check_that_is_right(check: str) -> None:
    code = f"""
import torch
def move(net, where):
    if where == "cuda":
        {check}
        net.to("cuda").cuda()
    return net.cuda()
"""
    assert [(each.code, each.line) for each in analyze(code).findings] == [("DF101", len(code.splitlines()))]


def test_nothing_is_fixed_below_a_check_that_stays() -> None:
    code = """
import torch
import apex

assert torch.cuda.is_available()
torch.cuda.synchronize()
x = x.cuda()


def f():
    torch.cuda.synchronize()
"""
    found = {each.code: each for each in analyze(code).findings}
    assert found["DF701"].message.endswith(" (lines 6 and 7 can be fixed only after this)")
    assert found["DF401"].line == 11
    assert found.keys() == {"DF701", "DF902", "DF401"}
