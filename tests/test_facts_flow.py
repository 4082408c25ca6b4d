"""`devicefix.facts.flow`: the order in which the statements of a function may run."""

from __future__ import annotations

import ast

import pytest

from devicefix.facts.flow import Flow, Point, own_nodes, path_of, without_index


def flow_of(code: str) -> Flow:
    return Flow(ast.parse(code))


def at(flow: Flow, name: str) -> Point:
    """Return the point that evaluates a name."""
    (found,) = (
        point
        for point in flow.points
        if any(isinstance(node, ast.Name) and node.id == name for node in point.nodes)
    )
    return found


def reached(code: str, start: str = "start") -> set[str]:
    """Return the names of one letter that may be evaluated after a point, and `EXIT`."""
    flow = flow_of(code)
    everything = {*flow.points, flow.exit}
    points = set(flow.reachable([at(flow, start)], everything))
    names = {
        node.id for point in points for node in point.nodes if isinstance(node, ast.Name) if len(node.id) == 1
    }
    return names | ({"EXIT"} if flow.exit in points else set())


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("a\nstart\nb", {"b", "EXIT"}),
        ("start\nif a:\n    b\nelse:\n    c\nd", {"a", "b", "c", "d", "EXIT"}),
        ("if a:\n    start\nelse:\n    c\nd", {"d", "EXIT"}),
        ("if a:\n    start\nelif b:\n    c\nelse:\n    d", {"EXIT"}),
        ("if start:\n    b\nelif c:\n    d\nelse:\n    e", {"b", "c", "d", "e", "EXIT"}),
        ("start\nreturn a\nb", {"a", "EXIT"}),
        ("if start:\n    return a\nb", {"a", "b", "EXIT"}),
        ("start\nraise a\nb", {"a"}),
        ("while a:\n    start\n    b\nc", {"a", "b", "c", "EXIT"}),
        ("while True:\n    start\n    a\nb", {"a"}),
        ("while True:\n    start\n    if a: break\nb", {"a", "b", "EXIT"}),
        ("while a:\n    start\n    break\n    b\nc", {"c", "EXIT"}),
        ("while a:\n    start\n    continue\n    b\nc", {"a", "c", "EXIT"}),
        ("while start:\n    b\nelse:\n    c", {"b", "c", "EXIT"}),
        ("while a:\n    start\n    break\nelse:\n    c", {"EXIT"}),
        ("for a in b:\n    start\n    c\nd", {"c", "d", "EXIT"}),
        ("for a in start:\n    b\nelse:\n    c\nd", {"b", "c", "d", "EXIT"}),
        ("for x in y:\n    for z in w:\n        start\n        break\n    a\nb", {"w", "a", "b", "EXIT"}),
        ("with a as b:\n    start\n    c\nd", {"c", "d", "EXIT"}),
        ("with start:\n    c\nd", {"c", "d", "EXIT"}),
        ("try:\n    start\n    a\nexcept b:\n    c\nelse:\n    d\nfinally:\n    e\nf",
         {"a", "b", "c", "d", "e", "f", "EXIT"}),
        ("try:\n    a\nexcept b:\n    start\nelse:\n    d\nfinally:\n    e", {"e", "EXIT"}),
        ("try:\n    a\nfinally:\n    start\nb", {"b", "EXIT"}),
        ("match start:\n    case 1:\n        a\n    case _:\n        b\nc", {"a", "b", "c", "EXIT"}),
        ("match x:\n    case 1:\n        start\n    case _:\n        b\nc", {"c", "EXIT"}),
        ("start\ndef f():\n    a\nb", {"b", "EXIT"}),
        ("start\nbreak\na", set()),
    ],
)  # fmt: skip
def test_what_may_run_afterwards(code: str, expected: set[str]) -> None:
    assert reached(code) == expected


def test_reachable_ends_at_its_ends_and_stays_among() -> None:
    flow = flow_of("start\na\nb\nc")
    start, a, b, c = flow.points
    everything = {*flow.points, flow.exit}
    assert set(flow.reachable([start], everything, {b})) == {a, b}
    assert set(flow.reachable([start], everything, {c}, {a})) == {a}
    assert set(flow.reachable([start], {a, c})) == {a}


def test_before() -> None:
    flow = flow_of("if a:\n    b\nc")
    test, body, after = flow.points
    assert flow.before[after] == [test, body]
    assert flow.before[test] == []


@pytest.mark.parametrize(
    ("code", "reads"),
    [
        ("f(x.y)", {"f", "x", "x.y"}),
        ("x.append(y)", {"y"}),
        ("x.append.z(y)", {"x", "x.append", "x.append.z", "y"}),
        ("len(x)", set()),
        ("len(f(x))", {"len", "f", "x"}),
        ("x is None", set()),
        ("x is not None", set()),
        ("x == y", {"x", "y"}),
        ("x.shape", set()),
        ("x.size(0)", set()),
        ("x[i] = y", {"i", "y"}),
        ("x += y", {"x", "y"}),
        ("x += [y]", {"y"}),
        ("x = y", {"y"}),
        ("del x", set()),
        ("def f():\n    x", set()),
    ],
)
def test_reads(code: str, reads: set[str]) -> None:
    flow = flow_of(code)
    if code.startswith("def"):
        reads = {"x"}  # what a function reads when it is called
    assert set().union(*(point.reads for point in flow.points)) == reads
    assert set(flow.readers) == reads


@pytest.mark.parametrize(
    ("code", "bound"),
    [
        ("x = y = 1", {"x", "y"}),
        ("x, *y = z", {"x", "y"}),
        ("x.y = 1", {"x.y"}),
        ("x.data = 1", {"x"}),
        ("x['a'] = 1", {"x['a']"}),
        ("x[0] = 1", set()),
        ("x: int = 1", {"x"}),
        ("x: int", set()),
        ("for x in y: pass", {"x"}),
        ("with a as x: pass", {"x"}),
        ("del x", {"x"}),
        ("f(x := 1)", {"x"}),
        ("import a.b", {"a"}),
        ("import a.b as c", {"c"}),
        ("from a import b", {"b"}),
        ("def f(): ...", {"f"}),
        ("class C: ...", {"C"}),
        ("x += 1", set()),
    ],
)
def test_bound(code: str, bound: set[str]) -> None:
    assert set(flow_of(code).binders) == bound


@pytest.mark.parametrize(
    ("code", "cleared"),
    [
        ("x.clear()", {"x"}),
        ("del x", {"x"}),
        ("del x[0]", {"x"}),
        ("del x.y[:]", {"x.y"}),
        ("x.pop()", set()),
    ],
)
def test_cleared(code: str, cleared: set[str]) -> None:
    assert set(flow_of(code).clearers) == cleared


def test_own_nodes_leave_out_what_runs_later() -> None:
    nodes = own_nodes(ast.parse("f(lambda: x, [y for y in z])"))
    assert {node.id for node in nodes if isinstance(node, ast.Name)} == {"f", "y", "z"}


@pytest.mark.parametrize(
    ("code", "path"),
    [
        ("a", "a"),
        ("a.b.c", "a.b.c"),
        ("a['b'].c", "a['b'].c"),
        ("a[0]", None),
        ("a.data", None),
        ("a()", None),
    ],
)
def test_path_of(code: str, path: str | None) -> None:
    assert path_of(ast.parse(code, mode="eval").body) == path


def test_without_index() -> None:
    assert ast.unparse(without_index(ast.parse("a[0].b[1][2]", mode="eval").body)) == "a[0].b"
