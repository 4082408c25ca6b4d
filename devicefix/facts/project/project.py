"""Put the facts of all files together."""

from __future__ import annotations

from copy import copy

from devicefix.facts.exports.classes import has_effects, returns_nothing
from devicefix.facts.project.compiled import Compiled
from devicefix.facts.project.flow import Flow
from devicefix.facts.project.programs import Programs
from devicefix.facts.project.questions import remembered


class Project(Flow, Compiled, Programs):
    """The facts of all files together.

    Attributes:
        answers: the questions that were asked of the project, with its answers. With a project that gives
            the same answers, a check has the same result.
    """

    def fresh(self) -> Project:
        """Return the same project with no answers yet."""
        project = copy(self)
        project.answers = {}
        return project

    @remembered
    def has_own_cuda(self) -> bool:
        """Return whether `.cuda()` and `.to(device)` may differ: a class has its own of either."""
        return self.adds_cuda() or bool(self._own_classes)

    @remembered
    def has_cuda_effects(self, used: bool) -> bool:
        """Return whether a `cuda` of the project does more than move, or returns nothing that is used."""
        asked = (has_effects, returns_nothing)[: 1 + used]
        return self.adds_cuda() or any(True for each in asked for _ in self.exporting(each))
