"""`devicefix.facts.project.questions`: questions that lead to each other, and back to themselves."""

from __future__ import annotations

import random
from itertools import permutations

import pytest

from devicefix.facts.project.questions import Questions

Graph = dict[str, list[str]]


class Reached(Questions):
    """Ask which nodes of a graph can be reached from one."""

    def __init__(self, graph: Graph) -> None:
        super().__init__()
        self.graph = graph
        self.calls = 0

    def ask(self, node: str) -> list[str]:
        """Return the nodes, in the order of the alphabet."""
        return sorted(self._answer(("reached", node), Reached.reached))

    def reached(self, node: str) -> list[str]:
        """Return the answer, by what can be reached from the nodes behind this one."""
        self.calls += 1
        return list({node}.union(*(self.ask(each) for each in self.graph[node])))


def reachable(graph: Graph, node: str) -> list[str]:
    found, todo = set[str](), [node]
    while todo:
        if (each := todo.pop()) not in found:
            found.add(each)
            todo += graph[each]
    return sorted(found)


@pytest.mark.parametrize("seed", range(30))
def test_answers_do_not_depend_on_what_was_asked_before(seed: int) -> None:
    choose = random.Random(seed)
    graph = {node: choose.sample("abcde", choose.randint(0, 3)) for node in "abcde"}
    for order in permutations("abcde"):
        asked = Reached(graph)
        assert [asked.ask(each) for each in order] == [reachable(graph, each) for each in order]


def test_the_number_of_questions_is_not_exponential() -> None:
    nodes = [f"n{number:02}" for number in range(20)]
    asked = Reached(dict.fromkeys(nodes, nodes))
    assert asked.ask("n00") == nodes
    assert asked.calls < 10 * len(nodes)  # up to once for each depth
