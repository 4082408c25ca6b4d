"""What one run of a program is to be: written by `devicefix verify`, read by every process of the program."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, field
from pathlib import Path

VARIABLE = "DEVICEFIX_PLAN"  # the environment variable that leads a process to its plan


@dataclass(frozen=True, slots=True)
class Plan:
    """One run of the program.

    Attributes:
        folder: where the run's events go; a folder of its own.
        roots: the folders whose modules are the user's own, as real paths.
        machine: "cpu" (CUDA is hidden), "simulated" (CUDA is played) or "cuda" (a real GPU, nothing hidden).
        rewritten: for each module that runs in another form than it stands in the file, by its real
            path: the path of the source to run.
        fixes: for each of these, the lines of the user's file that fixes have changed.
        steps: the number of optimizer steps after which to stop, None for no limit.
        keep_going: whether requests for CUDA are answered with the CPU.
        copies: whether to watch memory that CUDA would have copied.
        observe: whether to write down what the program sees of its tensors.
        seed: what to seed the random generators with as they are imported, None to leave them alone.
    """

    folder: str
    roots: tuple[str, ...]
    machine: str = "cpu"
    rewritten: dict[str, str] = field(default_factory=dict)
    fixes: dict[str, list[int]] = field(default_factory=dict)
    steps: int | None = None
    keep_going: bool = False
    copies: bool = True
    observe: bool = False
    seed: int | None = None

    def store(self) -> str:
        """Write the plan into its folder; the path is what VARIABLE is to hold."""
        path = Path(self.folder, "plan.json")
        path.write_text(json.dumps(asdict(self)), encoding="utf-8")
        return str(path)

    @staticmethod
    def load(path: str) -> Plan:
        """Read what `store` has written."""
        values = json.loads(Path(path).read_text(encoding="utf-8"))
        return Plan(**{**values, "roots": tuple(values["roots"])})

    @property
    def events(self) -> str:
        """The file that the run's events go to."""
        return os.path.join(self.folder, "events.jsonl")
