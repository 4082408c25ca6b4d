"""`devicefix.facts.scopes`: what is bound where, and in which scope a name is looked up."""

from __future__ import annotations

import ast
import sys

import pytest

from devicefix.facts import Scope, Tree, dotted, with_defaults


def tree_of(code: str) -> Tree:
    return Tree(ast.parse(code), code)


def place(tree: Tree, name: str) -> ast.Name:
    """Return the last place that reads a name."""
    (*_, node) = tree.reads(name)
    assert isinstance(node, ast.Name)
    return node


def values(scope: Scope, name: str) -> list[str | None]:
    """Return the values that a name is bound to."""
    found = [binding.value for binding in scope.bindings.get(name, [])]
    return [None if value is None else ast.unparse(value) for value in found]


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("x = 1", ["1"]),
        ("x = y = 1", ["1"]),
        ("x, y = 1, 2", ["1"]),
        ("[y, x] = (1, 2)", ["2"]),
        ("(y, (x, z)) = 1, (2, 3)", ["2"]),
        ("x, y = z", [None]),
        ("x, y = 1, 2, 3", [None]),
        ("x, *y = 1, 2", [None]),
        ("y, *x = 1, 2", [None]),
        ("x: int = 1", ["1"]),
        ("x: int", [None]),
        ("x += 1", [None]),
        ("for x in y: ...", [None]),
        ("async def f():\n    async for x in y: ...", []),
        ("with a as x: ...", [None]),
        ("with a as (x, y): ...", [None]),
        ("try: ...\nexcept E as x: ...", [None]),
        ("def x(): ...", [None]),
        ("async def x(): ...", [None]),
        ("class x: ...", [None]),
        ("del x", [None]),
        ("print(x := 1)", ["1"]),
        ("y = [(x := z) for z in a]", ["z"]),
        ("y = lambda: (x := 1)", []),
        ("y = [x for x in z]", []),
        ("y = lambda x: 1", []),
        ("match y:\n    case x: ...", ["y"]),
        ("match y:\n    case 1 | (2 as x): ...", ["y"]),
        ("match y, 2:\n    case [_, x]: ...", ["2"]),
        ("match y, 2:\n    case [_, *x]: ...", [None]),
        ("match y, *z:\n    case [_, x]: ...", [None]),
        ("match y:\n    case [1, *x]: ...", [None]),
        ("match y:\n    case {'a': 1, **x}: ...", [None]),
        ("match y:\n    case C(a=1) as x: ...", ["y"]),
        ("match y:\n    case C(a=x): ...", [None]),
        ("match y:\n    case x.y: ...", []),
        ("def f():\n    x = 1", []),
        ("def f():\n    global x\n    x = 1", ["1"]),
        ("x = 1\nx = 2", ["1", "2"]),
        ("x.y = 1", []),
        ("x[0] = 1", []),
    ],
)
def test_bindings_of_the_module(code: str, expected: list[str | None]) -> None:
    assert values(tree_of(code).root, "x") == expected


@pytest.mark.parametrize(
    ("code", "name", "imported"),
    [
        ("import torch", "torch", "torch"),
        ("import torch.cuda", "torch", "torch"),
        ("import torch.cuda as tc", "tc", "torch.cuda"),
        ("from torch import cuda", "cuda", "torch.cuda"),
        ("from torch import cuda as c", "c", "torch.cuda"),
        ("from . import x", "x", ".x"),
        ("from ..a import x", "x", "..a.x"),
    ],
)
def test_imports(code: str, name: str, imported: str) -> None:
    tree = tree_of(code)
    assert [binding.imported for binding in tree.root.bindings[name]] == [imported]
    assert tree.imports == tree.module.body


def test_star_imports() -> None:
    tree = tree_of("from a import *\nfrom ..b import *\nfrom c import d\n")
    assert tree.star_imports == ["a", "..b"]
    assert list(tree.root.bindings) == ["d"]


def test_attributes() -> None:
    tree = tree_of("args.cuda = 1\nself.a.b, x = 2, 3\nf().c = 4\nfor args.cuda in y: ...\n")
    assert {path: len(found) for path, found in tree.attributes.items()} == {"args.cuda": 2, "self.a.b": 1}


def test_parameters() -> None:
    tree = tree_of("def f(a, /, b=1, *c, d, e=2, **g): ...\n")
    scope = tree.scopes[tree.module.body[0]]
    assert list(scope.bindings) == ["a", "b", "d", "e", "c", "g"]
    assert all(binding.parameter for found in scope.bindings.values() for binding in found)
    defaults = {name: found[0].default for name, found in scope.bindings.items()}
    assert {name: ast.unparse(node) for name, node in defaults.items() if node} == {"b": "1", "e": "2"}


def test_with_defaults() -> None:
    function = ast.parse("def f(a, b=1, *, c, d=2): ...").body[0]
    assert isinstance(function, ast.FunctionDef)
    found = [(arg.arg, default and ast.unparse(default)) for arg, default in with_defaults(function.args)]
    assert found == [("a", None), ("b", "1"), ("c", None), ("d", "2")]


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("x = 1\nx", ast.Module),
        ("x = 1\ndef f():\n    x", ast.Module),
        ("x = 1\ndef f():\n    x = 2\n    x", ast.FunctionDef),
        ("x = 1\ndef f(x):\n    x", ast.FunctionDef),
        ("x = 1\nasync def f(x):\n    x", ast.AsyncFunctionDef),
        ("x = 1\ndef f(y=x): ...", ast.Module),
        ("x = 1\nclass C:\n    x = 2\n    x", ast.ClassDef),
        ("x = 1\nclass C:\n    x = 2\n    def f(self):\n        x", ast.Module),
        ("x = 1\nclass C(x):\n    x = 2", ast.Module),
        ("x = 1\n@x\ndef x(): ...", ast.Module),
        ("x = 1\ny = lambda x: x", ast.Lambda),
        ("x = 1\ny = lambda z: x", ast.Module),
        ("y = [x for x in z]", ast.ListComp),
        ("y = {x: 1 for x, w in z}", ast.DictComp),
        ("y = {x for x in z}", ast.SetComp),
        ("y = f(x for x in z)", ast.GeneratorExp),
        ("x = 1\ndef f():\n    global x\n    x = 2\n    x", ast.Module),
        ("x = 1\ndef f():\n    x = 2\n    def g():\n        x", ast.FunctionDef),
        ("y", None),
    ],
)
def test_lookup(code: str, kind: type[ast.AST] | None) -> None:
    tree = tree_of(code)
    node = place(tree, "x" if kind else "y")
    found = tree.scope(node).lookup(node.id)
    assert (found and type(found[0].node)) == kind


def test_the_default_of_a_lambda_is_outside_it() -> None:
    tree = tree_of("y = lambda x=x: 1")
    assert tree.scope(place(tree, "x")) is tree.root


def test_declared_elsewhere() -> None:
    tree = tree_of("def f():\n    global a\n    def g():\n        nonlocal b\n")
    assert tree.declared_elsewhere == {"a", "b"}
    assert tree.scopes[tree.module.body[0]].elsewhere == {"a"}


@pytest.mark.parametrize(
    "code",
    [
        "def f():\n    x = 0\n    def g():\n        nonlocal x\n        x = 1",
        "def f():\n    def g():\n        nonlocal x\n        x = 1\n    x = 0",
        "def f():\n    x = 0\n    class C:\n        nonlocal x\n        x = 1",
        "def f():\n    x = 0\n    def h():\n        def g():\n            nonlocal x\n            x = 1",
        "def f():\n    x = 0\n    def g():\n        nonlocal x\n        y = (x := 1)",
    ],
)
def test_a_nonlocal_name_is_bound_in_the_function_around_that_binds_it(code: str) -> None:
    tree = tree_of(f"x = 2\n{code}\n")
    assert values(tree.root, "x") == ["2"]
    assert values(tree.scopes[tree.module.body[1]], "x") == ["0", "1"]
    assert [name for scope in tree.scopes.values() for name in scope.bindings if name == "x"] == ["x", "x"]


def test_scope_of_functions() -> None:
    tree = tree_of("class C:\n    def f(self):\n        def g():\n            x\ny\n")
    inner = tree.scope(place(tree, "x"))
    assert inner.function is not None
    assert inner.function.node.name == "f"  # type: ignore[attr-defined]
    assert [type(scope.node) for scope in inner.chain()] == [ast.FunctionDef, ast.FunctionDef, ast.Module]
    assert tree.root.function is None
    assert tree.root.is_module
    assert tree.scopes[tree.module.body[0]].is_class


@pytest.mark.parametrize(
    ("code", "expected"), [("a", "a"), ("a.b.c", "a.b.c"), ("a().b", None), ("a[0]", None), ("1", None)]
)
def test_dotted(code: str, expected: str | None) -> None:
    assert dotted(ast.parse(code, mode="eval").body) == expected


@pytest.mark.skipif(sys.version_info < (3, 12), reason="type parameters are not parsed")
@pytest.mark.parametrize(
    "code",
    [
        "def f[q7](x): ...",
        "class A[q7]: ...",
        "type q7 = int",
        "type A[q7] = int",
        "async def f[q7: int]() -> q7: ...",
    ],
)
def test_type_parameters_and_aliases_are_bound(code: str) -> None:
    assert values(tree_of(code).root, "q7") == [None]
