"""Record the questions to a project, to check later whether its answers still hold."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import Any, TypeVar, cast

Question = tuple[str, ...]
Answers = dict[Question, Any]
Method = TypeVar("Method", bound=Callable[..., Any])

_DEEP = 8  # questions, each of which leads to the next
_EMPTY: dict[str, Any] = {"bool": False, "int": 0, "str": "", "list": [], "dict": {}}

QUESTIONS: dict[str, Callable[..., Any]] = {}  # the methods that answer them, by name


@dataclass(slots=True)
class Partial:
    """An answer for which a question was taken as unknown that is still being asked.

    Attributes:
        answer: the answer.
        depth: how many questions led to it; with fewer, more is known.
        lowest: the position of the first question that it depends on, of those that are being asked.
    """

    answer: Any
    depth: int
    lowest: int


class Questions:
    """The questions that were asked.

    A question may lead back to itself. What is found meanwhile is used again, or the time would be
    exponential, and is forgotten when the question has its answer (as in Tarjan's algorithm for components).

    Attributes:
        answers: the questions since the last call of `forget`, with their answers.
    """

    def __init__(self) -> None:
        self.answers: Answers = {}
        self._known: Answers = {}
        self._asking: list[Question] = []
        self._partial: dict[Question, Partial] = {}
        self._order: list[Question] = []  # of the partial answers
        self._lowest = 0  # the position of the first question that the current answer depends on

    def forget(self) -> None:
        """Begin a new record of questions; what is known stays known."""
        self.answers = {}

    def _answer(self, question: Question, method: Callable[..., Any]) -> Any:
        """Return the answer to a question; nothing is known where it leads back to itself, or too far."""
        if question in self._known:
            return self._known[question]
        depth, partial = len(self._asking), self._partial.get(question)
        if partial is not None and partial.depth <= depth:
            self._lowest = min(self._lowest, partial.lowest)
            return partial.answer
        if question in self._asking or depth > _DEEP:
            lowest = self._asking.index(question) if question in self._asking else 0
            self._lowest = min(self._lowest, lowest)
            return _EMPTY[method.__annotations__["return"].partition("[")[0]]
        outer, self._lowest, start = self._lowest, depth, len(self._order)
        self._asking.append(question)
        try:
            answer = method(self, *question[1:])
        finally:
            self._asking.pop()
            lowest, self._lowest = self._lowest, min(outer, self._lowest)
        self._keep(question, Partial(answer, depth, lowest), start)
        return answer

    def _keep(self, question: Question, found: Partial, start: int) -> None:
        """Keep an answer, and update the partial answers on the way to it, those from `start` on."""
        inner = self._order[start:]
        if found.lowest == found.depth:  # it depends on no question that is still being asked
            self._known[question] = found.answer
            for each in inner:
                self._partial.pop(each, None)
            del self._order[start:]
            return
        for partial in (self._partial[each] for each in inner if each in self._partial):
            partial.lowest = min(partial.lowest, found.lowest)
        self._partial[question] = found
        self._order.append(question)

    def agrees(self, answers: Answers) -> bool:
        """Return whether this project gives the same answers as another did."""
        return all(getattr(self, name)(*args) == answer for (name, *args), answer in answers.items())


def remembered(method: Method) -> Method:
    """Record the questions to a project, with its answers."""
    QUESTIONS[method.__name__] = method

    @wraps(method)
    def ask(self: Questions, *args: Any) -> Any:
        question = (method.__name__, *args)
        answer = self._answer(question, method)
        if not self._asking:  # what another question leads to is a part of its answer
            self.answers[question] = answer
        return answer

    return cast(Method, ask)
