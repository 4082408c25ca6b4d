"""The kinds of value that an expression can have."""

from __future__ import annotations

import ast

import pytest
from contexts import context_of, expression

from devicefix.facts.flow.kinds import Kind, Kinds

K = Kind


def kinds(code: str, of: str = "q7") -> Kinds:
    """Return the kinds of the last expression of a module that has this code."""
    context = context_of(f"import torch\nfrom torch import nn\n{code}\n")
    return context.facts.kinds.of(expression(context, of))


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("q7 = 0\nf(q7)", {K.INDEX}),
        ("q7 = None\nf(q7)", {K.NONE}),
        ("q7 = True\nf(q7)", {K.OTHER}),
        ("q7 = 'cuda:1'\nf(q7)", {K.CUDA}),
        ("q7 = f'cuda:{i}'\nf(q7)", {K.CUDA}),
        ("q7 = 'cpu'\nf(q7)", {K.CPU}),
        ("q7 = 'nccl'\nf(q7)", {K.STRING}),
        ("q7 = -1\nf(q7)", {K.OTHER}),
        ("q7 = 1 if a else None\nf(q7)", {K.INDEX, K.NONE}),
        ("q7 = None or 'cuda'\nf(q7)", {K.CUDA}),
        ("q7 = int(os.environ['LOCAL_RANK'])\nf(q7)", {K.INDEX}),
        ("q7 = torch.distributed.get_rank() % torch.cuda.device_count()\nf(q7)", {K.INDEX}),
        ("q7 = unknown % torch.cuda.device_count()\nf(q7)", {K.INDEX}),
        ("q7 = torch.cuda.device_count()\nf(q7)", {K.COUNT}),
        ("q7 = torch.device('cuda', 1)\nf(q7)", {K.CUDA}),
        ("q7 = torch.device('cpu')\nf(q7)", {K.CPU}),
        ("q7 = torch.device(name)\nf(q7)", {K.DEVICE}),
        ("q7 = torch.float16\nf(q7)", {K.DTYPE}),
        ("q7 = torch.zeros(2).float()[0]\nf(q7)", {K.TENSOR}),
        ("q7 = torch.zeros(2)\nq7 = q7.cuda()\nf(q7)", {K.TENSOR}),
        ("q7 = torch.rand(2) < p\nf(q7)", {K.TENSOR}),
        ("q7 = p is torch.rand(2)\nf(q7)", {K.OTHER}),
        ("q7 = p < 2\nf(q7)", {K.OTHER}),
        ("q7 = nn.Linear(1, 1).cuda()\nf(q7)", {K.MODULE}),
        ("class A(nn.Module): ...\nq7 = A()\nf(q7)", {K.MODULE}),
        ("class A: ...\nclass B(A): ...\nq7 = B()\nf(q7)", {K.OBJECT}),
        ("q7 = torch.cuda.current_stream()\nf(q7)", {K.STREAM}),
        ("q7 = torch.cuda.Event()\nf(q7)", {K.EVENT}),
        ("for q7 in range(3):\n    f(q7)", {K.INDEX}),
        ("for q7 in [0, 'cuda']:\n    f(q7)", {K.INDEX, K.CUDA}),
        ("for q7 in ([0, 1] if several else []):\n    f(q7)", {K.INDEX}),
        ("for q7 in ([0] if several else ['cuda']):\n    f(q7)", {K.INDEX, K.CUDA}),
        ("for q7 in ([0, 1] if several else several):\n    f(q7)", None),
        ("for q7 in (several or [0]):\n    f(q7)", None),
        ("for q7, x in enumerate(xs):\n    f(q7)", {K.INDEX}),
        ("for i, q7 in enumerate([0, 1]):\n    f(q7)", {K.INDEX}),
        ("for x, q7 in zip(xs, [0, 1]):\n    f(q7)", {K.INDEX}),
        ("x = [f(q7) for q7 in (0, 1)]", {K.INDEX}),
        ("class A(OSError): ...\ntry: g()\nexcept A as q7: f(q7)", {K.OBJECT}),
        ("(q7 := 1)\nf(q7)", {K.INDEX}),
        (
            "def g():\n    q7 = 0\n    def h():\n        nonlocal q7\n        q7 = torch.half\n    f(q7)",
            {K.INDEX, K.DTYPE},
        ),
        (
            "q7 = 0\ndef g():\n    q7 = None\n    def h():\n        nonlocal q7\n        q7 = 'cpu'\nf(q7)",
            {K.INDEX},
        ),
        ("a, q7 = 'cuda', 3\nf(q7)", {K.INDEX}),
        ("q7: int = get()\nf(q7)", None),
        ("def g():\n    return 0\nq7 = g()\nf(q7)", {K.INDEX}),
        ("def g():\n    yield 0\nq7 = g()\nf(q7)", None),
        ("q7 = get()\ntorch.cuda.set_device(q7)\nf(q7)", {K.INDEX, K.CUDA}),
        ("q7 = get()\ntorch.cuda.set_device(q7)\nif x:\n    f(q7)", {K.INDEX, K.CUDA}),
        ("q7 = get()\nif x:\n    torch.cuda.set_device(q7)\nf(q7)", None),
        ("torch.cuda.set_device(q7)\nq7 = get()\nf(q7)", None),
        ("q7 = get()\ntorch.cuda.set_device(q7)\nq7 = get()\nf(q7)", None),
        ("def g(q7: int):\n    f(q7)", {K.INDEX}),
        ("def g(q7: int | None = None):\n    f(q7)", {K.INDEX, K.NONE}),
        ("from typing import Optional\ndef g(q7: Optional[int]):\n    f(q7)", {K.INDEX, K.NONE}),
        ("def g(q7: 'torch.device'):\n    f(q7)", {K.DEVICE}),
        ("def g(q7: torch.Tensor):\n    f(q7)", {K.TENSOR}),
        ("match x:\n    case {'device': q7}:\n        f(q7)", None),
        ("match x:\n    case [q7, *_]:\n        f(q7)", None),
        ("with open(p) as q7:\n    f(q7)", None),
        ("def g(*q7):\n    f(q7)", {K.COLLECTION}),
        ("q7 = 0\nq7 = torch.device('cuda', q7)\nf(q7)", {K.CUDA}),
        ("q7 = 0\nif a:\n    q7 = torch.device('cuda')\nf(q7)", {K.INDEX, K.CUDA}),
        ("q7 = 0\nfor i in x:\n    f(q7)\n    q7 = 'cuda'", {K.INDEX, K.CUDA}),
        ("q7 = 0\nf(q7)\nq7 = 'cuda'", {K.INDEX}),
        ("q7 = f(q7)\nf(q7)", None),
        ("q7 = x * 2\nf(q7)", None),
        ("q7 = 0\nif a:\n    q7 = get()\nf(q7)", None),
        ("for q7 in x:\n    f(q7)", None),
        ("def g(q7: str):\n    f(q7)", {K.STRING}),
    ],
)
def test_certain_kinds(code: str, expected: set[Kind] | None) -> None:
    found = kinds(code)
    if expected is None:
        assert found.unknown or found.open
    else:
        assert set(found.seen) == expected
        assert found.are(expected)


@pytest.mark.parametrize(
    ("code", "of", "expected"),
    [
        ("p.add_argument('--q', type=int)\nf(args.q)", "args.q", {K.INDEX, K.NONE}),
        ("class A:\n    q7: int = 0\n    def m(self):\n        f(self.q7)", "self.q7", {K.INDEX}),
        ("class A:\n    def __init__(self):\n        self.q7 = 0\n        f(self.q7)", "self.q7", {K.INDEX}),
        ("args.q = 0\nf(args.q)", "args.q", {K.INDEX}),
        ("p.add_argument('-r', dest='q', type=int)\nf(args.q)", "args.q", {K.INDEX, K.NONE}),
        ("x = torch.zeros(1)\nf(x.device)", "x.device", {K.DEVICE}),
        ("x = [0, 1]\nf(x[0])", "x[0]", {K.INDEX}),
        ("x = {'a': 0}\nf(x['a'])", "x['a']", {K.INDEX}),
    ],
)
def test_kinds_of_paths(code: str, of: str, expected: set[Kind]) -> None:
    assert kinds(code, of).are(expected)


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("def g(q7=0):\n    f(q7)", {K.INDEX}),
        ("def g(q7):\n    f(q7)\ng(0)\ng(q7='cuda')", {K.INDEX, K.CUDA}),
        ("class A:\n    def __init__(self, x, q7):\n        f(q7)\nA(1, 2)", {K.INDEX}),
        ("class A:\n    def m(self, q7):\n        f(q7)\nA().m(2)", {K.INDEX}),
        ("class A:\n    @staticmethod\n    def m(x, q7):\n        f(q7)\nA().m('cuda', 2)", {K.INDEX}),
        ("class A:\n    @staticmethod\n    def m(q7, x):\n        f(q7)\nA.m(2, 'cuda')", {K.INDEX}),
        ("class A:\n    @classmethod\n    def m(cls, q7):\n        f(q7)\nA.m(2)", {K.INDEX}),
        ("import torch.multiprocessing as mp\ndef g(q7, n):\n    f(q7)\nmp.spawn(g, nprocs=2)", {K.INDEX}),
        ("def g(q7):\n    f(q7)", set()),
    ],
)
def test_kinds_of_parameters_are_open(code: str, expected: set[Kind]) -> None:
    found = kinds(code)
    assert set(found.seen) == expected
    assert found.open
    assert found.shown(expected) is bool(expected)
    assert not found.are(expected)


def test_a_circle_of_bindings() -> None:
    code = "p.add_argument('--q', type=int)\ndef g(q7):\n    args.q = q7\n    f(q7)\ng(args.q)"
    assert kinds(code).shown({K.INDEX, K.NONE})
    assert kinds(code, "args.q").shown({K.INDEX, K.NONE})
    assert kinds("q7 = 0\nfor i in x:\n    q7 = h(q7)\nf(q7)").unknown


def test_a_value_for_a_part_of_an_array_is_no_element() -> None:
    code = "def g(v):\n    v[v < 3, :] = 0\n    v[1:] = 0\n    q7 = v[2]\n    f(q7)"
    assert not kinds(code).seen
    assert kinds(code.replace("v[1:]", "v['n', 1]")).seen


def test_three_answers() -> None:
    found = kinds("q7 = 0\nf(q7)")
    assert found.can_be(K.INDEX) is True
    assert found.can_be(K.CUDA) is False
    assert kinds("q7 = get()\nf(q7)").can_be(K.CUDA) is None
    assert isinstance(found.seen[K.INDEX], ast.Constant)


@pytest.mark.parametrize(
    "code",
    [
        "with nullcontext(0) as q7:\n    f(q7)",
        "match (0, a):\n    case (q7, b):\n        f(q7)",
        "match {'k': 0}:\n    case {'k': q7}:\n        f(q7)",
        "*_, q7 = a, 0\nf(q7)",
        "q7, *_ = [0, a]\nf(q7)",
        "for q7, _ in [(0, a)]:\n    f(q7)",
        "q7 = next(iter([0]))\nf(q7)",
        "q7 = (lambda w: w)(0)\nf(q7)",
        "q7 = (lambda: 0)()\nf(q7)",
        "g = lambda t, q7: f(q7)\ng(x, 0)",
        "x = list(map(lambda q7: f(q7), [0]))",
        "def g(*v):\n    q7 = v[0]\n    f(q7)\ng(0)",
        "options = SimpleNamespace(q7=0)\nf(options.q7)",
        "class A:\n    def __init__(self):\n        self.q7 = 0\nf(make().q7)",
        "def g():\n    q7 = None\n    def h():\n        nonlocal q7\n        q7 = 0\n    h()\n    f(q7)",
        "q7 = max(0, -1)\nf(q7)",
        "q7 = SimpleNamespace(a=0).a\nf(q7)",
        "def g(**v):\n    q7 = v['k']\n    f(q7)\ng(k=0)",
        "match [a, 0]:\n    case [_, *q7]:\n        q7 = q7[0]\n        f(q7)",
        "async def g():\n    return 0\nq7 = asyncio.run(g())\nf(q7)",
        "q7 = torch.device('cuda:1').index\nf(q7)",
        "@cache\ndef g():\n    return 0\nq7 = g()\nf(q7)",
    ],
)
def test_a_number_is_seen_where_a_value_is_taken_apart(code: str) -> None:
    of = {"options.q7": "options.q7", "make().q7": "make().q7"}
    name = next((each for each in of if f"f({each})" in code), "q7")
    assert kinds(code, name).can_be(K.INDEX)


def test_an_unpacked_value_has_the_kind_of_its_place() -> None:
    assert kinds("n, q7 = *x.shape, torch.device('cpu')\nf(q7)").are({K.CPU})
    assert kinds("n, q7, *more = 0, 'cpu', 1\nf(q7)").are({K.CPU})
