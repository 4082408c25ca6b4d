"""The plan of a run, which `devicefix verify` writes and every process of the program reads."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

VARIABLE = "DEVICEFIX_PLAN"  # the environment variable with the path of the plan
Use = tuple[str, int, str]


class Source(NamedTuple):
    """The source to run instead of a module.

    Attributes:
        path: its path.
        places: what the fixes made: the first line and column and the last ones, as `ast` counts, and the
            column of the finding. Without extent it is where something was removed.
        origins: the line of the user's file, from 1, for each line.
        digest: the SHA-256 digest of the user's file.
    """

    path: str
    places: list[Sequence[int]]
    origins: list[int]
    digest: str


@dataclass(frozen=True, slots=True)
class Plan:
    """The plan of one run.

    Attributes:
        folder: the folder for the run's events.
        roots: the folders that hold the user's own modules, as real paths.
        machine: "cpu" (CUDA is hidden), "cuda" (a real GPU), "simulated" (the simulated CUDA machine), or the
            type of the devices of another simulated machine, such as "xpu".
        rewritten: the source to run instead of each rewritten module, by the module's real path.
        notebook: the notebook to run, if there is one: its `path`, the `source` of its cells as one module,
            the number of the cell and the line in it for each of the `lines`, the `commands` of IPython that
            are masked in it, and the texts of its `cells` by their numbers.
        steps: the number of optimizer steps to stop after, or None.
        keep_going: whether to answer requests for CUDA with the CPU.
        copies: whether to look for copy hazards.
        observe: whether to record the tensor values that the program reads.
        autocast: where a run on a CPU uses autocast or a gradient scaler, each with its file, line and what
            it is, if the simulated CUDA machine is to have the precision of a CPU; None for that of CUDA.
        seed: the seed for the random generators, or None to leave them alone.
        watch: whether to record what happens; without that, processes only run the rewritten modules.
    """

    folder: str
    roots: tuple[str, ...]
    machine: str = "cpu"
    rewritten: dict[str, Source] = field(default_factory=dict)
    notebook: dict[str, Any] = field(default_factory=dict)
    steps: int | None = None
    keep_going: bool = False
    copies: bool = True
    observe: bool = False
    autocast: Sequence[Use] | None = None
    seed: int | None = None
    watch: bool = True

    def store(self) -> str:
        """Write the plan into its folder, and return the path for VARIABLE."""
        Path(self.path).write_text(json.dumps(asdict(self)), encoding="utf-8")
        return self.path

    @staticmethod
    def load(path: str) -> Plan:
        """Read a plan that `store` has written."""
        values = json.loads(Path(path).read_text(encoding="utf-8"))
        rewritten = {path: Source(*source) for path, source in values["rewritten"].items()}
        return Plan(**{**values, "roots": tuple(values["roots"]), "rewritten": rewritten})

    @property
    def simulated(self) -> str:
        """The type of the simulated devices; empty if none are simulated."""
        return {"cpu": "", "cuda": "", "simulated": "cuda"}.get(self.machine, self.machine)

    @property
    def path(self) -> str:
        """The path of the plan itself."""
        return os.path.join(self.folder, "plan.json")

    @property
    def events(self) -> str:
        """The path of the file with the run's events."""
        return os.path.join(self.folder, "events.jsonl")
