"""What a look at a file gives: what is to say of it, and what the look at others needs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from devicefix.facts.exports import Summary
    from devicefix.facts.project import Answers
    from devicefix.model import Outcome


Stamp = list[int]


@dataclass(frozen=True, slots=True)
class FirstPass:
    """What a look at a file gives that knows of no other.

    Attributes:
        digest: of the file's content.
        stamp: the time of the file's last change in ns, and its size, before it was read.
        summary: its facts, for the others.
        outcome: what is to say of it, None for nothing.
        answers: what it asked of the project, and was told: where the others make no difference to that,
            they make none to the outcome.
    """

    digest: str = ""
    stamp: Stamp | None = None
    summary: Summary | None = None
    outcome: Outcome | None = None
    answers: Answers = field(default_factory=dict)
