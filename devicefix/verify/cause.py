"""The causes of a verdict that is not a pass: a closed set, which people and programs can rely on."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from devicefix.model import Finding
from devicefix.verify.verdict import Location


class Cause(str, Enum):
    """The cause of a verdict. The values are stable: JSON has them, and `docs/verify.md` lists them."""

    summary: str

    def __new__(cls, value: str, summary: str = "") -> Cause:
        """Return the member with this value, and with its summary in one sentence."""
        member = str.__new__(cls, value)
        member._value_, member.summary = value, summary
        return member

    ORIGINAL = "original-fails", "the original program fails in the same way, so the rewrite is not the cause"
    TIE = "finding-left", "code tied to CUDA remains"
    FIX = "wrong-fix", "a fix is wrong"
    CPU = "cpu-difference", "CPUs and CUDA differ here, and no fix can change that"
    COPY = "shared-copy", "the program relies on a copy that only CUDA makes"
    DATA = "missing-data", "data is missing"
    PACKAGE = "missing-package", "a package is missing"
    ENVIRONMENT = "environment", "the environment lacks something that the program needs"
    MEMORY = "out-of-memory", "the program ran out of memory"
    TRITON = "triton", "Triton needs a GPU or its interpreter"
    LIMIT = "limit", "the run reached a limit"
    ENDED = "ended-from-outside", "an external signal ended the program"
    UNWATCHED = "unwatched", "devicefix could not watch the run"
    CHANGES_CUDA = "changes-cuda", "the rewrite changes what the program does on CUDA"
    DIFFERS_ON_CPU = (
        "differs-on-cpu",
        "the rewritten program matches the original on CUDA, but not on the CPU",
    )
    DIFFERS_ON_ACCELERATOR = (
        "differs-on-accelerator",
        "the rewritten program behaves differently on the accelerator than the original on CUDA",
    )
    ORIGINAL_ON_CUDA = (
        "original-fails-on-cuda",
        "the original program fails on CUDA, so there is nothing to compare with",
    )
    UNKNOWN = "unknown", "the cause is unknown"


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
        findings: the findings that are left at the lines that took part.
    """

    cause: Cause
    advice: str
    evidence: tuple[str, ...] = ()
    findings: tuple[Tie, ...] = ()
