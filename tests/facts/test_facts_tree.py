"""`devicefix.facts.tree`: the nodes of a module, which are walked when something asks for them."""

from __future__ import annotations

import ast
import gc
import weakref

import pytest

from devicefix.facts import Tree

CODE = """\
import torch

@decorate(1)
def f(device, size=(2,
                    3)):
    x = g(size); y = size
    if (x and
            y): return x
    return [each.a.b for each in y if f"{x:{y}}"]


class C(Base, key=f):
    def m(self):
        try:
            self.a.b = size
        except (E, F) as e:
            pass
        match self.a:
            case [1, q] if q.a.b:
                size
            case C(a=size):
                lambda p=y: p
"""


def tree_of(code: str = CODE) -> Tree:
    return Tree(ast.parse(code), code)


def walked(tree: Tree) -> int:
    return sum(nodes is not None for nodes in tree._nodes)


def find(tree: Tree, code: str) -> ast.AST:
    """Return the last node with some source code, found without the tree."""
    nodes = [node for node in ast.walk(tree.module) if isinstance(node, ast.expr | ast.stmt)]
    return [node for node in nodes if ast.get_source_segment(CODE, node) == code][-1]


def test_nothing_is_walked_before_something_asks() -> None:
    assert walked(tree_of()) == 0


def test_all_nodes_come_once_and_in_order() -> None:
    tree = tree_of()
    plain = (ast.expr_context, ast.operator, ast.boolop, ast.cmpop, ast.unaryop)
    everything = [node for node in ast.walk(tree.module) if not isinstance(node, plain)]
    assert len(tree.nodes) == len(set(tree.nodes)) == len(everything)
    assert set(tree.nodes) == set(everything)
    seen: set[ast.AST] = set()
    for node in tree.nodes:
        assert node is tree.module or tree.parents[node] in seen
        seen.add(node)


def test_every_node_has_its_parent_whatever_was_asked_first() -> None:
    module = tree_of().module
    for parent in ast.walk(module):
        for child in ast.iter_child_nodes(parent):
            if not isinstance(child, (ast.expr_context, ast.operator, ast.boolop, ast.cmpop, ast.unaryop)):
                assert Tree(module, CODE).parents.get(child) is parent, ast.dump(child)


def test_a_node_outside_the_tree_has_no_parent() -> None:
    tree = tree_of()
    assert tree.parents.get(ast.parse("x").body[0]) is None
    assert tree.parents.get(tree.module) is None
    assert tree.parents.get(None) is None
    with pytest.raises(KeyError):
        tree.parents[tree.module]


@pytest.mark.parametrize(
    ("path", "lines"),
    [("size", [6, 6, 15, 20]), ("x", [7, 8, 9]),
     ("y", [8, 9, 9, 22]), ("self.a", [15, 18]), ("each.a.b", [9]), ("q.a.b", [19]),
     ("e", []), ("a", []), ("torch", []), ("p", [22])],
)  # fmt: skip
def test_reads(path: str, lines: list[int]) -> None:
    assert [node.lineno for node in tree_of().reads(path)] == lines


def test_reads_walk_only_the_statements_that_hold_the_name() -> None:
    tree = tree_of()
    tree.reads("q.a.b")
    assert walked(tree) <= 5


def test_reads_of_a_name_that_is_spelled_otherwise() -> None:
    assert len(tree_of("ﬁle = 1\nprint(file)\nprint(ﬁle)\n").reads("file")) == 2


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_line_ends(end: str) -> None:
    code = f"a = 1{end}b = 2{end}{end}c = a{end}"
    assert [node.lineno for node in tree_of(code).reads("a")] == [4]


def test_nodes_with() -> None:
    tree = tree_of()
    found = {node.lineno for node in tree.nodes_with("each", "Base") if isinstance(node, ast.Name)}
    assert found == {9, 12}


def test_nodes_at_a_line_are_those_of_all_statements_there() -> None:
    found = [type(node).__name__ for node in tree_of("a = 1; b = (2,\n3); c\n").nodes_at([2])]
    assert found == ["Assign", "Name", "Tuple", "Constant", "Constant", "Expr", "Name"]


def test_nodes_at_line_0_are_the_module() -> None:
    tree = tree_of()
    assert list(tree.nodes_at([0])) == [tree.module]


def test_loads() -> None:
    assert tree_of("a = b\nf(c.d)\n").loads == {"b", "f", "c"}


def test_not_lazy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Tree, "LAZY", False)
    tree = tree_of()
    assert walked(tree) == len(tree._nodes)
    assert list(tree.nodes_with("Base")) == tree.nodes


def test_f_string() -> None:
    tree = tree_of()
    string = next(node for node in ast.walk(tree.module) if isinstance(node, ast.JoinedStr))
    (name,) = (node for node in tree.reads("y") if tree.f_string(node))
    assert tree.f_string(name) is string
    assert tree.f_string(string) is None


def test_ancestors_statement_and_block() -> None:
    tree = tree_of()
    node = find(tree, "each.a.b")
    kinds = [type(parent).__name__ for _, parent in tree.ancestors(node)]
    assert kinds == ["ListComp", "Return", "FunctionDef", "Module"]
    statement = tree.statement(node)
    assert isinstance(statement, ast.Return)
    assert tree.block(statement)[-1] is statement
    handler = find(tree, "pass")
    assert isinstance(handler, ast.stmt)
    assert tree.block(handler) == [handler]


def test_no_circle_keeps_a_tree() -> None:
    gc.disable()
    try:
        tree = tree_of()
        tree.reads("size")
        known = weakref.ref(tree)
        del tree
        assert known() is None
    finally:
        gc.enable()
