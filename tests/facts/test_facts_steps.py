"""The steps of values forwards, and the parameters that they come from."""

from __future__ import annotations

import ast
from textwrap import dedent

import pytest

from devicefix.facts import Facts
from devicefix.facts.flow.parameters import described
from devicefix.facts.flow.sources import How, Sources
from devicefix.facts.flow.steps import Steps

MODULE = """
    class Base:
        def __init__(self, size, *, place="cpu"):
            self.place = place

        def move(self, x):
            return x.to(self.place)

    class Net(Base):
        def run(self, x, *rest, **options):
            return self.move(x)

        @staticmethod
        def scale(x, by):
            return x * by

    class Other:
        def move(self, x):
            return self.place

    def make(place):
        return Net(3, place=place)

    Net.scale(1, 2)
    make("cuda").move(1)
    """


def read(code: str) -> Facts:
    return Facts.read(dedent(code).encode())


def function(facts: Facts, name: str) -> ast.FunctionDef:
    return next(each for each in facts.tree.nodes if isinstance(each, ast.FunctionDef) and each.name == name)


def called(facts: Facts, code: str) -> ast.expr:
    """Return the function of a call of the module."""
    calls = (node for node in facts.tree.nodes if isinstance(node, ast.Call))
    return next(node.func for node in calls if ast.unparse(node.func) == code)


@pytest.mark.parametrize(
    ("name", "parameter", "expected"),
    [
        ("make", "place", ("make", ("place", 0))),
        ("__init__", "size", ("Base", ("size", 0))),
        ("__init__", "place", ("Base", ("place", -1))),
        ("run", "x", ("run", ("x", 0))),
        ("scale", "by", ("scale", ("by", 1))),
    ],
)
def test_a_parameter_is_described_as_calls_see_it(name: str, parameter: str, expected: object) -> None:
    facts = read(MODULE)
    assert described(facts.tree, function(facts, name), parameter) == expected


@pytest.mark.parametrize(
    ("place", "expected"),
    [(0, ("x", ())), (1, ("rest", ("0",))), ("x", ("x", ())), ("more", ("options", ("more",)))],
)
def test_the_parameter_of_an_argument(place: int | str, expected: object) -> None:
    facts = read(MODULE)
    found = Steps(facts).parameter(function(facts, "run"), place)
    assert found is not None and found[1:] == expected


def test_a_call_reaches_one_function_certainly_or_several_perhaps() -> None:
    facts = read(MODULE)
    steps = Steps(facts)
    assert steps.function(called(facts, "make")) is function(facts, "make")
    assert steps.function(called(facts, "self.move")) is None  # of a base class
    assert len(list(steps.functions(called(facts, "self.move")))) == 2
    assert [call.lineno for call in steps.calls_of(function(facts, "make"))] == [25]


def test_the_reads_of_an_attribute_are_those_of_its_class_and_of_related_ones() -> None:
    facts = read(MODULE)
    reads = list(Steps(facts).attribute_reads("place"))
    assert [read.lineno for read in reads] == [7, 19]
    owner = next(each for each in facts.tree.nodes if isinstance(each, ast.ClassDef) and each.name == "Net")
    assert [read.lineno for read in Steps(facts).attribute_reads("place", owner)] == [7]


def test_a_value_comes_from_the_parameters_of_the_functions_that_pass_it_on() -> None:
    facts = read(MODULE)
    expressions = (node for node in facts.tree.nodes if isinstance(node, ast.expr))
    read_there = next(node for node in expressions if ast.unparse(node) == "self.place")
    found = Sources(facts, How.BOUND | How.PASSED, 3).parameters([read_there])
    assert found == {("Base", ("place", -1))}
