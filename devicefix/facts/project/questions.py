"""Record the questions to a project, to check later whether its answers still hold."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar, cast

Question = tuple[str, ...]
Answers = dict[Question, Any]
Method = TypeVar("Method", bound=Callable[..., Any])

_DEEP = 8  # questions, each of which leads to the next
_EMPTY: dict[str, Any] = {"bool": False, "int": 0, "str": "", "list": [], "dict": {}}

QUESTIONS: dict[str, Callable[..., Any]] = {}  # the methods that answer them, by name


class Questions:
    """The questions that were asked.

    Attributes:
        answers: the questions since the last call of `forget`, with their answers.
    """

    def __init__(self) -> None:
        self.answers: Answers = {}
        self._known: Answers = {}
        self._asking: list[Question] = []
        self._is_cut = False

    def forget(self) -> None:
        """Begin a new record of questions; what is known stays known."""
        self.answers = {}

    def _answer(self, question: Question, method: Callable[..., Any]) -> Any:
        """Return the answer to a question; nothing is known where it leads back to itself, or too far."""
        if question in self._known:
            return self._known[question]
        if question in self._asking or len(self._asking) > _DEEP:
            self._is_cut = True
            return _EMPTY[method.__annotations__["return"].partition("[")[0]]
        was_cut, self._is_cut = self._is_cut, False
        self._asking.append(question)
        try:
            answer = method(self, *question[1:])
        finally:
            self._asking.pop()
        if not (self._is_cut and self._asking):
            self._known[question] = answer
        self._is_cut = self._is_cut or was_cut
        return answer

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
