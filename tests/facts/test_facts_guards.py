"""`devicefix.facts.guards`: which tests imply CUDA, which refuse to run without it, and what is guarded."""

from __future__ import annotations

import ast

import pytest
from helpers import analyze

from devicefix.facts import Facts, of_any_count, returns
from devicefix.facts.others import Others

AVAILABLE = "torch.cuda.is_available()"
COUNT = "torch.cuda.device_count()"


def parsed(test: str, before: str = "") -> tuple[Facts, ast.expr]:
    """Return the facts of a module whose last statement is a test, and the test."""
    facts = Facts.read(f"import torch\n{before}\n{test}\n".encode())
    statement = facts.tree.module.body[-1]
    assert isinstance(statement, ast.Expr)
    return facts, statement.value


def guarded(code: str) -> bool:
    """Return whether the call of `run` in a module is guarded."""
    facts = Facts.read(f"import torch\n{code}".encode())
    (call,) = (
        node
        for node in ast.walk(facts.tree.module)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "run"
    )
    return facts.is_guarded(call)


# What is implied by a test that is true, and by one that is false.
IMPLIES = {
    AVAILABLE: (True, False),
    f"not {AVAILABLE}": (False, True),
    f"not not {AVAILABLE}": (True, False),
    "torch.accelerator.is_available()": (True, False),
    "torch.cuda.is_initialized()": (True, False),
    COUNT: (True, False),
    "torch.cuda.synchronize()": (False, False),
    "torch.backends.mps.is_available()": (False, False),
    f"bool({AVAILABLE})": (True, False),
    f"{AVAILABLE} and x": (True, False),
    f"{AVAILABLE} or x": (False, False),
    f"{AVAILABLE} or {COUNT}": (True, False),
    f"not {AVAILABLE} or x": (False, True),
    f"not {AVAILABLE} and x": (False, False),
    f"(x := {AVAILABLE})": (True, False),
    f"{AVAILABLE} is True": (True, False),
    f"{AVAILABLE} is False": (False, True),
    f"{AVAILABLE} == True": (True, False),
    f"{AVAILABLE} is not True": (False, True),
    f"{AVAILABLE} != False": (True, False),
    f"{AVAILABLE} < True": (False, False),
    f"{COUNT} > 0": (True, False),
    f"{COUNT} > 1": (True, False),
    f"{COUNT} > -1": (False, False),
    f"{COUNT} >= 1": (True, False),
    f"{COUNT} >= 0": (False, False),
    f"{COUNT} != 0": (True, False),
    f"{COUNT} != 1": (False, False),
    f"{COUNT} == 0": (False, True),
    f"{COUNT} == 1": (False, False),
    f"{COUNT} < 1": (False, True),
    f"{COUNT} < 0": (False, False),
    f"{COUNT} <= 0": (False, True),
    f"{COUNT} <= -1": (False, False),
    f"{COUNT} in 3": (False, False),
    f"len(range({COUNT})) > 1": (True, False),
    f"len([i for i in range({COUNT}) if i]) == 0": (False, True),
    f"list(range({COUNT}))": (True, False),
    f"len([i for i in range({COUNT} + 1)]) > 0": (False, False),
    "len(names) > 1": (False, False),
    f"max({COUNT}, 1) > 1": (True, False),
    f"max({COUNT}, 1) > 0": (False, False),
    f"max({COUNT}, 1) == 1": (False, True),
    f"max({COUNT}, 2) > 1": (False, False),
    f"len([i for i in range(max({COUNT}, 1))]) >= 2": (True, False),
    "x.is_cuda": (True, False),
    "x.is_cpu": (False, True),
    "x.device == torch.device('cuda:0')": (True, False),
    "x.device != torch.device('cpu')": (True, False),
    "device != torch.device('cpu')": (False, False),
    "any(x.is_cuda for x in y)": (True, False),
    "all(x.is_cuda for x in y)": (False, False),
    "all(x.is_cpu for x in y)": (False, True),
    "all([x.is_cuda, y])": (True, False),
    "any([x.is_cuda, y])": (False, False),
    "all({1: x.is_cuda, 2: y}.values())": (True, False),
    "all(values())": (False, False),
    "x.device.type.startswith('cuda')": (True, False),
    "x.device.type == 'cuda'": (True, False),
    "x.device.type != 'cuda'": (False, True),
    "x.device.type == 'cpu'": (False, True),
    "x.device.type != 'cpu'": (True, False),
    "x.device.type == 'mps'": (False, False),
    "device == 'cuda'": (True, False),
    "args.device_type == 'cuda'": (True, False),
    "str(device) == 'cuda'": (True, False),
    "name == 'cuda'": (False, False),
    "'cuda' in device": (True, False),
    "'cuda' not in device": (False, True),
    "'cuda' in names": (False, False),
    "'cpu' in device": (False, False),
    "'nccl' in str(torch.distributed.get_backend()).lower()": (True, False),
    "torch.distributed.get_backend() == 'nccl'": (True, False),
    "torch.distributed.get_backend() != 'nccl'": (False, True),
    "torch.distributed.get_backend() == torch.distributed.Backend.NCCL": (True, False),
    "torch.distributed.get_backend() != torch.distributed.distributed_c10d.Backend.NCCL": (False, True),
    "torch.distributed.get_backend() == torch.distributed.Backend.GLOO": (False, False),
    "get_backend() == 'nccl'": (False, False),
    "backend == 'nccl'": (False, False),
    "backend == torch.distributed.Backend.NCCL": (False, False),
    f"{AVAILABLE} if x else False": (True, False),
    f"{AVAILABLE} if x else y": (False, False),
    f"x if {AVAILABLE} else False": (True, False),
    f"False if {AVAILABLE} else x": (False, False),
    "isinstance(x, torch.cuda.FloatTensor)": (True, False),
    "isinstance(x, torch.FloatTensor)": (False, False),
    "isinstance(x, torch.cuda.Stream)": (False, False),
    "x": (False, False),
    "x[0]": (False, False),
}


@pytest.mark.parametrize("test", IMPLIES)
def test_implied_by_test(test: str) -> None:
    facts, node = parsed(test)
    assert (facts.guards.implies(node), facts.guards.implies(node, False)) == IMPLIES[test]


@pytest.mark.parametrize(
    ("before", "expected"),
    [
        (f"flag = {AVAILABLE}", True),
        (f"flag = {AVAILABLE} and args.cuda", True),
        (f"flag = False\nif {AVAILABLE}:\n    flag = True", True),
        (f"flag = False\nif not {AVAILABLE}:\n    flag = True", False),
        ("flag = False", False),
        ("flag = True", False),
        (f"flag = {AVAILABLE}\nflag = args.cuda", False),
        (f"flag = args.cuda\nflag = {AVAILABLE}", True),
        (f"flag = args.cuda\nif a:\n    flag = {AVAILABLE}", False),
        (f"other = {AVAILABLE}\nflag = other\ndel other", True),
        (f"other = {AVAILABLE}\nflag = other", True),
        ("flag = flag", False),
        (f"flag: bool = {AVAILABLE}", True),
        (f"def f(flag={AVAILABLE}): ...", False),
        (f"for flag in [{AVAILABLE}]: ...", False),
        ("from somewhere import flag", False),
    ],
)
def test_flag(before: str, expected: bool) -> None:
    facts, node = parsed("flag", before)
    assert facts.guards.implies(node) is expected
    assert not facts.guards.implies(node, False)


@pytest.mark.parametrize(
    ("asserted", "expected"),
    [
        ("assert q7 in ['gloo', 'nccl']", (True, False)),
        ("assert q7 in ('nccl', dist.Backend.GLOO)", (True, False)),
        ("assert q7 in ['gloo', 'nccl', 'mpi']", (False, False)),
        ("assert q7 not in ['gloo', 'nccl']", (False, False)),
        ("q7 in ['gloo', 'nccl']", (False, False)),
        ("q8 = 'mpi'\nassert q8 in ['gloo', 'nccl']", (False, False)),
    ],
)
def test_a_backend_that_is_asserted_to_be_one_of_two(asserted: str, expected: tuple[bool, bool]) -> None:
    before = f"import torch.distributed as dist\nq7 = dist.get_backend()\n{asserted}"
    facts, node = parsed("q7 != 'gloo'", before)
    assert (facts.guards.implies(node), facts.guards.implies(node, False)) == expected


def test_flags_of_flags_are_followed_only_so_far() -> None:
    chain = "\n".join(f"f{number + 1} = f{number}" for number in range(20))
    near, far = (parsed(name, f"f0 = {AVAILABLE}\n{chain}") for name in ("f5", "f20"))
    assert near[0].guards.implies(near[1])
    assert not far[0].guards.implies(far[1])


def test_flags_that_depend_on_each_other() -> None:
    circle = f"a = b and {AVAILABLE}\nb = a or x"
    facts, node = parsed("a", circle)
    assert facts.guards.implies(node)
    facts, node = parsed("b", circle)
    assert not facts.guards.implies(node)


@pytest.mark.parametrize(
    ("test", "value"),
    {
        "n > 1": "n = 4\nn = max(n, 1) if n > 1 else n",
        "n is None": "n = 3 if n is None else n",
        "n == 'cuda'": "n = 'cuda' if n == 'cuda' else n",
        "n[0] > 1": "n = (1, 2)[0] if n[0] > 1 else n",
        "n() > 1": "def n():\n    return 1 if n() > 1 else 0",
        "n() is None": "def n():\n    return 1 if n() is None else None",
    }.items(),
)
def test_values_that_depend_on_themselves(test: str, value: str) -> None:
    facts, node = parsed(test, value)
    assert not facts.guards.implies(node)
    assert facts.guards.settled(node) is None
    facts, node = parsed(f"{test} and {AVAILABLE}", value)
    assert facts.guards.implies(node)


@pytest.mark.parametrize(("known", "expected"), [({"use_cuda"}, True), (set(), False)])
def test_flag_of_another_file(known: set[str], expected: bool) -> None:
    others = Others()
    others.is_flag = known.__contains__  # type: ignore[assignment, method-assign]
    facts, node = parsed("self.use_cuda")
    facts = facts.informed(others)
    assert facts.guards.implies(node) is expected
    facts, node = parsed("args.use_cuda")
    assert not facts.informed(others).guards.implies(node)


@pytest.mark.parametrize(
    ("before", "expected"),
    [
        (f"n = {COUNT}", True),
        (f"n = 0\nif x:\n    n = {COUNT}", True),
        (f"n = {COUNT}\nn = 8", False),
        (f"n = {COUNT}\nn += 1", False),
        ("n = 0", False),
        ("n = None", False),
        ("n = 4", False),
    ],
)
def test_number_of_gpus(before: str, expected: bool) -> None:
    facts, node = parsed("n", before)
    assert facts.guards.counts_gpus(node) is expected


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (f"if not {AVAILABLE}:\n        return False\n    return x", True),
        (f"if not {AVAILABLE}:\n        raise OSError\n    return x", True),
        (f"if not {AVAILABLE}:\n        return x\n    return x", False),
        (f"if {AVAILABLE}:\n        return False\n    return x", False),
        ("return x", False),
    ],
)
def test_own_function(body: str, expected: bool) -> None:
    facts, node = parsed("has_cuda()", f"def has_cuda():\n    {body}\n")
    assert facts.guards.implies(node) is expected


@pytest.mark.parametrize(
    ("decorator", "body", "expected"),
    [
        ("property", f"return self.amp and {AVAILABLE}", True),
        ("functools.cached_property", "return bool(self.amp) and self._device.type == 'cuda'", True),
        ("property", "return self.amp", False),
        ("property", f"return {AVAILABLE} or self.use_amp", False),
        ("property", "return self.use_amp", False),
        ("staticmethod", f"return {AVAILABLE}", False),
    ],
)
def test_own_property(decorator: str, body: str, expected: bool) -> None:
    text = f"class A:\n    @{decorator}\n    def use_amp(self):\n        {body}\n\n"
    facts = Facts.read(
        f"import torch, functools\n{text}    def run(self):\n        return self.use_amp\n".encode()
    )
    (node,) = (each for each in facts.tree.reads("self.use_amp") if facts.tree.statement(each).lineno == 8)
    assert facts.guards.implies(node) is expected
    assert not facts.guards.implies(node, False)


@pytest.mark.parametrize(
    ("test", "expected"),
    [
        (AVAILABLE, True),
        (f"not {AVAILABLE}", False),
        (COUNT, True),
        (f"{COUNT} > 0", True),
        (f"{COUNT} == 0", False),
        (f"{COUNT} > 1", None),
        (f"{AVAILABLE} or x", True),
        (f"not {AVAILABLE} or x", None),
        (f"not {AVAILABLE} and x", False),
        (f"{AVAILABLE} and x", None),
        (f"{AVAILABLE} and {COUNT}", True),
        (f"{AVAILABLE} is False", False),
        (f"{AVAILABLE} == True", True),
        ("flag", True),
        ("n > 0", None),
        ("x", None),
        ("x is True", None),
        ("not x", None),
        ("f()", None),
    ],
)
def test_settled_on_every_machine_with_cuda(test: str, expected: bool | None) -> None:
    facts, node = parsed(test, f"flag = {AVAILABLE}\nn = {COUNT}\nx = y")
    assert facts.guards.settled(node) is expected


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (f"if not {AVAILABLE}:\n    raise OSError\n", "body"),
        (f"if {AVAILABLE}:\n    run()\nelse:\n    raise OSError\n", "orelse"),
        (f"if {AVAILABLE}:\n    raise OSError\n", None),
        (f"if {AVAILABLE}:\n    run()\n", None),
        (f"if not {AVAILABLE}:\n    return\n", None),
        ("if not x:\n    raise OSError\n", None),
    ],
)
def test_refusal(code: str, expected: str | None) -> None:
    module = ast.parse(code)
    facts = Facts.read(f"import torch\n{ast.unparse(module)}\n".encode())
    node = facts.tree.module.body[-1]
    assert isinstance(node, ast.If)
    assert facts.guards.refusal(node) is (getattr(node, expected) if expected else None)


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("raise OSError", True),
        ("print('no')\nraise OSError", True),
        ("message = 'no'\nraise OSError(message)", True),
        ("sys.exit(1)", True),
        ("exit()", True),
        ("os._exit(1)", True),
        ("if torch.cuda.is_available():\n    x()\nraise OSError", True),
        ("if x:\n    y()\nraise OSError", True),
        ("for x in y: ...\nraise OSError", True),
        ("if x:\n    return\nraise OSError", False),
        ("if x:\n    exit()\nelse:\n    raise OSError", True),
        ("if x:\n    exit()", False),
        ("yield\nraise OSError", False),
        ("import sys\nsys.exit('no')", True),
        ("from sys import exit as die\ndie()", True),
        ("def exit(): ...\nexit()", False),
        ("def die():\n    exit(1)\ndie()", True),
        ("def die():\n    die()\ndie()", False),
        ("import argparse\nq7 = argparse.ArgumentParser()\nq7.error('no')", True),
        ("import logging\nlogger = logging.getLogger()\nlogger.error('no')", False),
        ("raise SystemExit('skip this')", True),
        ("raise unittest.SkipTest", False),
        ("log.exit()", False),
        ("print('no')", False),
    ],
)
def test_refuses(code: str, expected: bool) -> None:
    facts = Facts.read(code.encode())
    assert facts.guards.refusals.refuses(facts.tree.module.body) is expected


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("return", True),
        ("continue", True),
        ("x()\nbreak", True),
        ("self.skipTest('no')", True),
        ("pytest.skip('no')", True),
        ("queue.skip('no')", False),
        ("raise unittest.SkipTest", True),
        ("raise OSError", False),
        ("x()", False),
        ("return\nx()", False),
    ],
)
def test_returns(code: str, expected: bool) -> None:
    assert returns(ast.parse(code).body) is expected


@pytest.mark.parametrize(
    ("test", "expected"),
    [("n > 0", True), ("n != 0", True), ("n >= 1", True), ("n == 0", False), ("n <= 0", False),
     ("n < 1", False), ("n > 1", None), ("n == 1", None), ("n < 2", None)],
)  # fmt: skip
def test_of_any_count(test: str, expected: bool | None) -> None:
    node = ast.parse(test, mode="eval").body
    assert isinstance(node, ast.Compare)
    assert isinstance(node.comparators[0], ast.Constant)
    value = node.comparators[0].value
    assert isinstance(value, int)
    assert of_any_count(node.ops[0], value) is expected


PARAMETRIZED = "@pytest.mark.parametrize('b, a', ["
SKIPPED = "pytest.mark.skipif(torch.cuda.device_count() < 1, reason='no')"
TEST = "def test_f(b, a):\n    if a:\n        run()\n"
KEPT = f"args.cuda = {AVAILABLE}\nclass C:\n    def __init__(self, args):\n        "
GUARDED = [
    f"if {AVAILABLE}:\n    run()\n",
    f"if not {AVAILABLE}:\n    x()\nelse:\n    run()\n",
    f"if x:\n    y()\nelif {AVAILABLE}:\n    run()\n",
    f"while {AVAILABLE}:\n    run()\n",
    f"if {AVAILABLE}:\n    for x in y:\n        z(run())\n",
    f"x = run() if {AVAILABLE} else y\n",
    f"x = y if not {AVAILABLE} else run()\n",
    f"x = {AVAILABLE} and run()\n",
    f"x = not {AVAILABLE} or run()\n",
    f"x = y and {AVAILABLE} and run()\n",
    f"x = [run() for y in z if {AVAILABLE}]\n",
    f"def f():\n    if not {AVAILABLE}:\n        return\n    run()\n",
    f"def f():\n    if not {AVAILABLE}:\n        return\n    else:\n        x()\n    run()\n",
    f"def f(x):\n    if not {AVAILABLE}:\n        return\n    elif x:\n        return\n    run()\n",
    f"for x in y:\n    if not {AVAILABLE}:\n        continue\n    run()\n",
    "@pytest.mark.skipif(not torch.cuda.is_available(), reason='no')\ndef f():\n    run()\n",
    "@pytest.mark.skipif(not HAS_FA3, reason='no')\ndef f():\n    run()\n",
    f"{PARAMETRIZED}pytest.param(1, True, marks={SKIPPED}), (x, 0)])\n{TEST}",
    f"{PARAMETRIZED}pytest.param(x, 1, marks=[y, {SKIPPED}])])\n{TEST}",
    f"@pytest.mark.parametrize('a', [False, pytest.param(1, marks={SKIPPED})])\n{TEST}",
    f"f([pytest.param(run(), marks={SKIPPED})])\n",
    "@unittest.skipUnless(has_triton(), 'no')\nclass A:\n    def f(self):\n        run()\n",
    "@unittest.skipUnless(torch.cuda.is_available(), 'no')\ndef f():\n    run()\n",
    "@RunIf(min_cuda_gpus=2)\ndef f():\n    run()\n",
    "@require_cuda\ndef f():\n    run()\n",
    "@requires_gpu()\nclass C:\n    def f(self):\n        run()\n",
    "@pytest.mark.gpu\ndef test_f():\n    run()\n",
    "@pytest.mark.multi_gpu(2)\ndef test_f():\n    run()\n",
    "pytestmark = [pytest.mark.slow, pytest.mark.gpu]\ndef test_f():\n    run()\n",
    f"def _f():\n    run()\nif {AVAILABLE}:\n    _f()\n",
    f"def _f():\n    run()\ndef _g():\n    _f()\nx = {AVAILABLE} and _g()\n",
    f"class C:\n    def _f(self):\n        run()\n    def g(self):\n        {AVAILABLE} and self._f()\n",
    f"class _C(B):\n    def f(self):\n        run()\nif {AVAILABLE}:\n    x = _C()\n",
    f"def f():\n    def g():\n        run()\n    if {AVAILABLE}:\n        g()\n",
    f"def f(a, b):\n    if b:\n        run()\nc = {AVAILABLE}\nf(1, c)\nf(2, b=x and {AVAILABLE})\n",
    f"def train(a):\n    if a:\n        run()\ntrain({AVAILABLE} and vars(x))\nf(join(x, 'train'))\n",
    f"class _C:\n    def f(self):\n        run()\nif {AVAILABLE}:\n    _C()\nnet.eval('_C', net.modules())\n",
    f"def f():\n    def g():\n        run()\n    if {AVAILABLE}:\n        g('g')\n",
    f"{KEPT}self.args = args\n    def f(self):\n        if self.args.cuda:\n            run()\n",
    "from transformers.utils import is_torch_cuda_available as f\nif f():\n    run()\n",
]
OPEN = [
    "run()\n",
    f"if {AVAILABLE}:\n    x()\nelse:\n    run()\n",
    f"if {AVAILABLE}:\n    x()\nrun()\n",
    f"if x or {AVAILABLE}:\n    run()\n",
    f"if run() and {AVAILABLE}:\n    x()\n",
    f"x = y if {AVAILABLE} else run()\n",
    f"x = run() and {AVAILABLE}\n",
    "x = torch.cuda.is_available(run()) and y\n",
    f"x = {AVAILABLE} or run()\n",
    f"x = [y for y in z if run() or {AVAILABLE}]\n",
    f"x = [run() for y in z if y or {AVAILABLE}]\n",
    f"if not {AVAILABLE}:\n    raise OSError\nelse:\n    run()\n",  # the guard goes, with the refusal
    f"def f():\n    run()\n    if not {AVAILABLE}:\n        return\n",
    f"def f():\n    if {AVAILABLE}:\n        return\n    run()\n",
    f"def f():\n    if not {AVAILABLE}:\n        x()\n    run()\n",
    "@pytest.mark.skipif(torch.cuda.is_available(), reason='no')\ndef f():\n    run()\n",
    "@pytest.mark.skipif(HAS_FA3, reason='no')\ndef f():\n    run()\n",
    "@pytest.mark.skipif(not has_nutritional, reason='no')\ndef f():\n    run()\n",
    f"{PARAMETRIZED}pytest.param(1, True, marks={SKIPPED}), (x, y)])\n{TEST}",
    f"{PARAMETRIZED}pytest.param(1, True, marks=slow)])\n{TEST}",
    f"{PARAMETRIZED}pytest.param(0)])\n{TEST}",
    "@unittest.skipUnless(x, 'no')\ndef f():\n    run()\n",
    "@cached\ndef f():\n    run()\n",
    "@pytest.mark.no_gpu\ndef test_f():\n    run()\n",
    "@pytest.mark.gpu\ndef test_f(): ...\ndef test_g():\n    run()\n",
    f"def f():\n    run()\nif {AVAILABLE}:\n    f()\n",  # others may call it
    f"def _f():\n    run()\nif {AVAILABLE}:\n    _f()\nx = _f\n",
    f"def _f(x=run()): ...\nif {AVAILABLE}:\n    _f()\n",
    "def _f():\n    run()\n    _f()\n",
    f"@register\ndef _f():\n    run()\nif {AVAILABLE}:\n    _f()\n",
    "a = b\nb = a\nif not a:\n    run()\n",
    f"def _f():\n    run()\nif {AVAILABLE}:\n    _f()\nglobals()['_f']()\n",
    f"def _f():\n    run()\nif {AVAILABLE}:\n    _f()\nvars()['_f']()\n",
    f"def _f():\n    run()\nif {AVAILABLE}:\n    _f()\neval('_f')()\n",
    f"def _f():\n    run()\nif {AVAILABLE}:\n    _f()\ngetattr(sys.modules[__name__], '_f')()\n",
    f"def _f():\n    run()\nif {AVAILABLE}:\n    _f()\nf.__globals__['_f']()\n",
    f"class C:\n    def _f(self):\n        run()\n    def g(self):\n        {AVAILABLE} and self._f()\n'_f'",
    f"{KEPT}self.args = make(args)\n    def f(self):\n        if self.args.cuda:\n            run()\n",
    f"{KEPT}self.args = a or args\n    def f(self):\n        if self.args.cuda:\n            run()\n",
    f"class C(B):\n    def _f(self):\n        run()\n    def g(self):\n        {AVAILABLE} and self._f()\n",
    f"def f(a):\n    if a:\n        run()\nf({AVAILABLE})\nf(x)\n",
    f"def f(a):\n    if a:\n        run()\nf({AVAILABLE})\nmap(f, x)\n",
    f"def f(a):\n    if a:\n        run()\n    f(True)\nf({AVAILABLE})\n",
    f"def f(a):\n    if not a:\n        a = x\n    if a:\n        run()\nf({AVAILABLE})\n",
    f"def f(a, b=True):\n    if b:\n        run()\nf(*x, {AVAILABLE})\nf(1)\n",
    f"@click.command()\ndef f(a):\n    if a:\n        run()\nf({AVAILABLE})\n",
    "def f(a):\n    if a:\n        run()\n",
]


@pytest.mark.parametrize("code", GUARDED)
def test_guarded(code: str) -> None:
    assert guarded(code)


@pytest.mark.parametrize("code", OPEN)
def test_not_guarded(code: str) -> None:
    assert not guarded(code)


def test_a_flag_that_another_file_may_pass_is_no_guard() -> None:
    code = (
        f"import torch\n\n\ndef train(x, cuda):\n    if cuda:\n        x.cuda()\n\n\ntrain(x, {AVAILABLE})\n"
    )
    for other, found in {"from main import train": ["DF101"], "model.train()": []}.items():
        result = analyze(code, path="main.py", others={"other.py": f"{other}\n"})
        assert [finding.code for finding in result.findings if finding.code == "DF101"] == found


def test_flags_that_are_set_under_each_other_are_followed_without_end() -> None:
    parts = [
        f"def f{i}(self):\n    if not g{i}():\n        return\n"
        f"    if self.a{i}:\n        self.a{i + 1} = self.a{i}\n"
        f"def g{i}():\n    return a.a{i + 1}\n"
        for i in range(60)
    ]
    code = "import torch\n" + "".join(parts) + "def h(self):\n    if self.a60:\n        x.cuda()\n"
    result = analyze(code)
    assert [finding.code for finding in result.findings] == ["DF101"]


def test_options_of_an_object_that_another_file_may_make_are_no_guard() -> None:
    method = "def f(self, x):\n        if self.args.cuda:\n            x.cuda()\n"
    code = f"import torch\n\n\n{KEPT}self.args = args\n\n    {method}"
    for other, found in {"from main import C": ["DF101"], "from other import C": []}.items():
        result = analyze(code, path="main.py", others={"other.py": f"{other}\n"})
        assert [finding.code for finding in result.findings if finding.code == "DF101"] == found
