"""`devicefix.facts.copies`: copies that only a GPU makes, kept while what was copied changes."""

from __future__ import annotations

import ast

import pytest

from devicefix.facts import Facts
from devicefix.facts.copies import Place, held_copies
from devicefix.facts.copies.bodies import Tensors
from devicefix.facts.copies.moves import moves
from devicefix.facts.copies.views import copy_of, place_of, views
from devicefix.facts.flow.binding import contents
from devicefix.facts.flow.order import Flow
from devicefix.facts.flow.points import root, starts_of
from devicefix.facts.flow.tensors import changes_numbers, in_place


def parsed(code: str) -> tuple[Facts, ast.expr]:
    """Return the facts of a module and the expression that is its last statement."""
    facts = Facts.read(f"import torch\n{code}\n".encode())
    statement = facts.tree.module.body[-1]
    assert isinstance(statement, ast.Expr)
    return facts, statement.value


def held(code: str) -> list[tuple[str, str, int | None, int | None]]:
    """Return the source, the holder, and the lines of the change and the use of the copies that are kept."""
    facts = Facts.read(f"import torch  # cuda\n{code}\n".encode())
    return [
        (found.copy.source.path, found.holder, getattr(found.change, "lineno", None), found.use)
        for found in held_copies(facts)
    ]


HELD = {
    "y = x.cpu()\nx.zero_()\nprint(y)": [("x", "y", 3, 4)],
    "y = x.cpu().numpy()\nx += 1\nprint(y)": [("x", "y", 3, 4)],
    "y = x.to('cpu')\nx[0] = 1\nprint(y)": [("x", "y", 3, 4)],
    "y = x.detach().cpu()\nx.fill_(1)\nprint(y)": [("x", "y", 3, 4)],
    "y = x.data.cpu()\nx.fill_(1)\nprint(y)": [("x", "y", 3, 4)],
    "ys.append(x.cpu())\nx.zero_()\nprint(ys)": [("x", "ys", 3, 4)],
    "y = {'a': x.cpu()}\nx.zero_()\nprint(y)": [("x", "y", 3, 4)],
    "for i in z:\n    ys.append(x.cpu())\n    x += 1\nprint(ys)": [("x", "ys", 4, 5)],
    "y = x.cpu()\nif a:\n    x.zero_()\nprint(y)": [("x", "y", 4, 5)],
    "y = x.cpu()\nz = y\nx.zero_()\nprint(z)": [("x", "y", 4, 5)],
    "x.cpu().mul_(2)\nprint(x)": [("x", "x", 2, 3)],
    "def f(x):\n    x.cuda().mul_(2)\na = g()\nf(a)\nprint(a)": [("x", "x", 3, 6)],
    "y = x.cuda()\ntorch.add(a, b, out=x)\nprint(y)": [("x", "y", 3, 4)],
    "def change(t):\n    t.zero_()\ny = x.cpu()\nchange(x)\nprint(y)": [("x", "y", 5, 6)],
    "y = b['k'].cpu()\nb['k'].zero_()\nprint(y)": [("b['k']", "y", 3, 4)],
    "def f(self, x):\n    self.y = x.cpu()\n    x.zero_()": [("x", "self.y", 4, None)],
    "y = net.cpu().state_dict()\noptimizer.step()\nprint(y)": [("net", "y", 3, 4)],
    "y = (z := {'a': x.cpu()})\nx.zero_()\nprint(y)": [("x", "y", 3, 4)],
    "w = torch.nn.Linear(2, 1).weight\nx = w.cuda()\nx.mul_(2)": [("w", "w", 4, None)],
    "class A:\n    def __init__(self, x): self.x = x.cuda()\n    def f(self): self.x -= 1\n"
    "w = torch.nn.Parameter(y)\nA(w).f()": [("x", "x", 4, None)],
    "class A:\n    def __init__(self, x): self.x = x.cuda()\n    def f(self): self.x -= 1\nA(w).f()": [],
}  # fmt: skip


@pytest.mark.parametrize("code", HELD)
def test_held(code: str) -> None:
    assert held(code) == HELD[code]


@pytest.mark.parametrize(
    "code",
    [
        "y = x.cpu()\nprint(y)\nx.zero_()",
        "y = x.cpu().clone()\nx.zero_()\nprint(y)",
        "y = x.cpu()\nx.zeros()\nprint(y)",
        "y = x.cpu()\nx = z\nx.zero_()\nprint(y)",
        "y = x.cpu()\ny = z\nx.zero_()\nprint(y)",
        "y, x = x.cpu(), z\nx.zero_()\nprint(y)",
        "x = x.cpu()\nx.zero_()\nprint(x)",
        "y = x.cpu()\nx.zero_()\nprint(y.shape)",
        "y = x.cpu()\nx.detach_()\nprint(y)",
        "y = x.to(torch.float)\nx.zero_()\nprint(y)",
        "y = x.to('cpu', copy=True)\nx.zero_()\nprint(y)",
        "ys.append(x.cpu())\nys.clear()\nx.zero_()\nprint(ys)",
        "y = x.cpu()\nif torch.cuda.is_available():\n    x.zero_()\nprint(y)",
        "if torch.cuda.is_available():\n    y = x.cpu()\nx.zero_()\nprint(y)",
        "x = torch.zeros(3)\ny = x.cpu()\nx.zero_()\nprint(y)",
        "def f(x):\n    y = x.cpu()\n    x.zero_()",
        "y = x.cpu()\nother(x)\nprint(y)",
        "def send(t):\n    t.zero_()\nsend(x.cuda())\nprint(x)",
    ],
)
def test_not_held(code: str) -> None:
    assert held(code) == []


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("x", Place("x")),
        ("x.y['k']", Place("x.y['k']")),
        ("x.data", Place("x")),
        ("x.view(2).t()", Place("x")),
        ("x.cpu()", Place("x")),
        ("x.zero_()", Place("x")),
        ("x[0]", Place("x", indexed=True)),
        ("x[1:]", Place("x")),
        ("x[mask]", None),
        ("torch.from_numpy(x)", Place("x", buffer=True)),
        ("x + 1", None),
        ("f(x)", None),
    ],
)
def test_place_of(code: str, expected: Place | None) -> None:
    assert place_of(*parsed(code)) == expected


def test_a_name_that_is_bound_to_itself_ends() -> None:
    facts = Facts.read(b"y = [x.cpu() for z in w for x in [x]]")
    (call,) = (node for node in facts.tree.nodes_with("x.cpu()") if isinstance(node, ast.Call))
    assert place_of(facts, call) is not None


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("x.cpu()", True),
        ("x.cpu(memory_format)", False),
        ("x.cuda()", True),
        ("torch.cuda()", False),
        ("x.to('cuda')", True),
        ("x.to('cpu')", True),
        ("x.to(device)", True),
        ("x.to(device=args.gpu)", True),
        ("x.to(torch.float)", False),
        ("x.to(y)", True),
        ("x.to(x.dtype)", False),
        ("x.to(device, torch.float)", False),  # a conversion, which copies on every machine
        ("torch.arange(3).to(device, torch.float)", False),
        ("x.long().to(device, dtype=torch.float)", False),
        ("x.to(device, copy=True)", False),
        ("x.to(device, dtype=d)", True),
        ("x.to('cuda', d)", True),
        ("torch.as_tensor(x, device='cuda')", False),  # x may be a list
        ("torch.as_tensor(torch.ones(1), device='cuda')", True),
        ("torch.as_tensor(x, device='cpu')", False),
        ("torch.as_tensor(x)", False),
        ("x.item()", False),
    ],
)
def test_moves(code: str, expected: bool) -> None:
    facts, node = parsed(code)
    assert isinstance(node, ast.Call)
    assert moves(facts, node) is expected


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("x.cpu()", "x"),
        ("x.cpu().numpy()", "x"),
        ("x[0].cpu()", "x"),
        ("layer.weight.cpu()", "layer"),
        ("x.cpu() + 1", None),
        ("x", None),
    ],
)
def test_copy(code: str, expected: str | None) -> None:
    copy = copy_of(*parsed(code))
    assert (copy and copy.source.path) == expected


@pytest.mark.parametrize(
    ("code", "path", "changed"),
    [
        ("x.zero_()", "x", True),
        ("x.zero_()", "y", False),
        ("x.sort()", "x", True),
        ("x += 1", "x", True),
        ("x += [1]", "x", False),
        ("x[0] = 1", "x", True),
        ("x['k'] = 1", "x", False),
        ("x = 1", "x", False),
        ("import random\nrandom.shuffle(x)", "x", True),
        ("torch.nn.init.normal_(x)", "x", True),
        ("torch.relu(x, inplace=True)", "x", True),
        ("torch.relu(x, inplace=False)", "x", False),
        ("f(x)", "x", False),
    ],
)
def test_changes(code: str, path: str, changed: bool) -> None:
    facts = Facts.read(f"import torch\n{code}\n".encode())
    body = Tensors(facts, facts.tree.module)
    assert list(body.changes(Place(path))) == body.flow.points[-1:] * changed


@pytest.mark.parametrize(
    ("method", "inside", "numbers"),
    [("add_", True, True), ("detach_", True, False), ("add", False, False), ("__add__", False, False),
     ("_add_", False, False)],
)  # fmt: skip
def test_in_place(method: str, inside: bool, numbers: bool) -> None:
    assert (in_place(method), changes_numbers(method)) == (inside, numbers)


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("x", ["x"]),
        ("[a, (b, c)]", ["a", "b", "c"]),
        ("{'k': a, **b}", ["a", "b"]),
        ("[a for b in c]", ["a"]),
        ("(a for b in c)", []),
        ("{k: a for k in c}", ["a"]),
        ("dict(k=a, l=b)", ["a", "b"]),
        ("OrderedDict(a)", ["a"]),
        ("a if b else c", ["a", "c"]),
        ("f(a)", ["f(a)"]),
    ],
)
def test_contents(code: str, expected: list[str]) -> None:
    assert [ast.unparse(node) for node, _ in contents(*parsed(code))] == expected


@pytest.mark.parametrize(
    ("code", "expected"),
    [("x.T", "x"), ("x.view(1)", "x"), ("Variable(x)", "x"), ("np.asarray(x)", "x"), ("x[0]", "x"),
     ("x['k']", None), ("[x.cuda()][0]", "x"), ("[x, y][0]", None), ("(lambda y: y)(x)", "x"),
     ("x.y", None), ("x.clone()", None), ("x", None)],
)  # fmt: skip
def test_viewed(code: str, expected: str | None) -> None:
    inner = list(views(*parsed(f"from torch.autograd import Variable\nimport numpy as np\n{code}")))[-1]
    assert ast.unparse(inner) == (expected or code)


def test_paths() -> None:
    assert root("a.b['c']") == root("a['c']") == root("a") == "a"
    assert starts_of("a.b['c']") == ["a", "a.b", "a.b['c']"]


@pytest.mark.parametrize(
    ("path", "lines"), [("x", [2, 3, 4]), ("x.y", [2, 3, 4]), ("z", [2, 3, 4, 5]), ("b['k']", [2, 3, 4, 5])]
)
def test_what_may_run_before_a_name_is_bound_again(path: str, lines: list[int]) -> None:
    flow = Flow(ast.parse("x = 1\nif y:\n    print(x)\nx = 2\nprint(x)\n"))
    found = flow.before_rebinding(flow.points[0], path)
    assert sorted({getattr(point.node, "lineno", 0) for point in found} - {0}) == lines


@pytest.mark.parametrize(
    ("code", "path", "is_read"),
    [
        ("f(b['k'])", "b['k']", True),
        ("f(b['k'].x)", "b['k']", True),
        ("f(b['other'])", "b['k']", False),
        ("f(b)", "b['k']", True),
        ("f(b['other'])", "b", True),
        ("b['other'] = 1", "b['k']", False),
    ],
)
def test_readers_of_an_item(code: str, path: str, is_read: bool) -> None:
    flow = Flow(ast.parse(code))
    assert list(flow.reading(path)) == flow.points * is_read
