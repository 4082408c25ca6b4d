"""Record the questions to a project, to check later whether its answers still hold."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar, cast

Question = tuple[str, ...]
Answers = dict[Question, Any]
Method = TypeVar("Method", bound=Callable[..., Any])

QUESTIONS: dict[str, Callable[..., Any]] = {}  # the methods that answer them, by name


class Questions:
    """The questions that were asked.

    Attributes:
        answers: the questions since the last call of `forget`, with their answers.
    """

    def __init__(self) -> None:
        self.answers: Answers = {}
        self._known: Answers = {}

    def forget(self) -> None:
        """Begin a new record of questions; what is known stays known."""
        self.answers = {}

    def agrees(self, answers: Answers) -> bool:
        """Return whether this project gives the same answers as another did."""
        return all(getattr(self, name)(*args) == answer for (name, *args), answer in answers.items())


def remembered(method: Method) -> Method:
    """Record the questions to a project, with its answers."""
    QUESTIONS[method.__name__] = method

    @wraps(method)
    def ask(self: Questions, *args: Any) -> Any:
        question = (method.__name__, *args)
        if question not in self._known:
            self._known[question] = method(self, *args)
        answer = self.answers[question] = self._known[question]
        return answer

    return cast(Method, ask)
