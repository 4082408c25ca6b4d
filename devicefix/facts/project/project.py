"""Put the facts of all files together."""

from __future__ import annotations

from collections.abc import Iterable
from copy import copy

from devicefix.facts.exports import Summary
from devicefix.facts.project.compiled import Compiled
from devicefix.facts.project.names import SharedNames
from devicefix.facts.project.questions import remembered
from devicefix.facts.project.values import Values


class Project(SharedNames, Values, Compiled):
    """The facts of all files together.

    Attributes:
        answers: the questions that were asked of the project, with its answers. With a project that gives
            the same answers, a check has the same result.
    """

    def __init__(self, summaries: Iterable[Summary] = (), supposed_own_cuda: bool = False) -> None:
        super().__init__(summaries)
        self._supposed_own_cuda = supposed_own_cuda

    @classmethod
    def of(cls, summaries: Iterable[Summary | None]) -> Project:
        """Put the files' summaries together."""
        return cls(summary for summary in summaries if summary is not None)

    @classmethod
    def alone(cls, summary: Summary, among: int) -> Project:
        """Return the project of one file, before the others are known.

        Args:
            summary: the file's.
            among: how many files there are. Among many, some class mostly defines `cuda`; where that
                turns out to be wrong, the file is checked again.
        """
        return cls([summary], supposed_own_cuda=among > 500)

    def fresh(self) -> Project:
        """Return the same project with no answers yet."""
        project = copy(self)
        project.answers = {}
        return project

    @remembered
    def has_own_cuda(self) -> bool:
        """Return whether `.cuda()` and `.to(device)` may differ: a class has its own of either."""
        return self._supposed_own_cuda or self._adds_cuda or bool(self._own_classes)
