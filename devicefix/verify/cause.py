"""The causes of a verdict that is not a pass: a closed set, which people and programs can rely on."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from devicefix.model import Finding
from devicefix.verify.verdict import Location


class Cause(str, Enum):
    """The cause of a verdict. The values are stable: JSON has them, and `docs/verify.md` lists them."""

    ORIGINAL = "original-fails"
    TIE = "tie-left"
    FIX = "wrong-fix"
    CPU = "cpu-difference"
    COPY = "shared-copy"
    DATA = "missing-data"
    PACKAGE = "missing-package"
    ENVIRONMENT = "environment"
    MEMORY = "out-of-memory"
    TRITON = "triton"
    LIMIT = "limit"
    ENDED = "ended-from-outside"
    UNWATCHED = "unwatched"
    CHANGES_CUDA = "changes-cuda"
    DIFFERS_ON_CPU = "differs-on-cpu"
    ORIGINAL_ON_CUDA = "original-fails-on-cuda"
    UNKNOWN = "unknown"

    @property
    def summary(self) -> str:
        """The cause in one sentence."""
        return _SUMMARIES[self]


_SUMMARIES = {
    Cause.ORIGINAL: "the original program fails in the same way; the rewrite is not the cause",
    Cause.TIE: "a tie to CUDA remains",
    Cause.FIX: "a fix is wrong",
    Cause.CPU: "CPUs and CUDA differ here, and no fix can change that",
    Cause.COPY: "the program relies on a copy that only CUDA makes",
    Cause.DATA: "data is missing",
    Cause.PACKAGE: "a package is missing",
    Cause.ENVIRONMENT: "the environment lacks something that the program needs",
    Cause.MEMORY: "the program ran out of memory",
    Cause.TRITON: "Triton needs a GPU or its interpreter",
    Cause.LIMIT: "the run reached a limit",
    Cause.ENDED: "an external signal ended the program",
    Cause.UNWATCHED: "devicefix could not watch the run",
    Cause.CHANGES_CUDA: "the rewrite changes what the program does on CUDA",
    Cause.DIFFERS_ON_CPU: "the rewritten program matches the original on CUDA, but not on the CPU",
    Cause.ORIGINAL_ON_CUDA: "the original program fails on CUDA, so there is nothing to compare with",
    Cause.UNKNOWN: "the cause is unknown",
}


@dataclass(frozen=True, slots=True)
class Tie:
    """A finding at a line that took part in a failure.

    Attributes:
        place: the line.
        finding: the finding that `devicefix check` reports there.
        advice: why it has no fix here, and what to do about it.
    """

    place: Location
    finding: Finding
    advice: str


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why a verdict is not a pass.

    Attributes:
        cause: the cause.
        advice: what to do.
        evidence: what shows the cause.
        ties: the findings that are left at the lines that took part.
    """

    cause: Cause
    advice: str
    evidence: tuple[str, ...] = ()
    ties: tuple[Tie, ...] = ()
