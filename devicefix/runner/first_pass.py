"""The result of checking a file alone."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from devicefix.facts.exports import Summary
    from devicefix.facts.project import Answers
    from devicefix.model import Outcome

Stamp = list[int]  # the time of a file's last change in ns, and its size


@dataclass(frozen=True, slots=True)
class FirstPass:
    """The result of checking a file as if it were the whole project.

    Attributes:
        digest: the digest of the file's content.
        stamp: taken before the file was read.
        summary: what the other files need to know of this one.
        outcome: None if there is nothing to report.
        answers: what the check asked of the project, with the answers. Where the whole project gives the
            same answers, it makes no difference to the outcome.
    """

    digest: str = ""
    stamp: Stamp | None = None
    summary: Summary | None = None
    outcome: Outcome | None = None
    answers: Answers = field(default_factory=dict)
