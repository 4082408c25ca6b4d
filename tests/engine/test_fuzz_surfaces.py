"""A short run of `benchmarks/fuzz.py` on each surface, the same each time, and faults that it must find."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from helpers import ROOT
from planted_faults import FAULTS

SERVER = pytest.mark.needs("pygls")
RUNS = [
    ("files", 50),
    ("notebooks", 120),
    ("documents", 100),
    ("configurations", 15),
    pytest.param("messages", 30, marks=SERVER),
    pytest.param("frames", 5, marks=SERVER),
]


def ran(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *map(str, arguments)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "benchmarks")}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.slow
@pytest.mark.parametrize(("surface", "runs"), RUNS)
def test_no_input_fails(surface: str, runs: int, tmp_path: Path) -> None:
    done = ran(
        *(ROOT / "benchmarks/fuzz.py", "--surface", surface, "--out", tmp_path),
        *("--unguided", "--seed", 1, "--runs", runs),
    )
    assert done.returncode == 0, done.stdout + done.stderr
    counts = dict(each.split() for each in done.stdout.partition(": ")[2].split(", "))
    assert int(counts["inputs"]) == runs and int(counts["fruitful"]) >= runs / 10


@pytest.mark.slow
def test_planted_faults_are_found() -> None:
    wanted = {kind for kind, each in FAULTS.items() if each.surface != "messages" or find_spec("pygls")}
    if not hasattr(signal, "setitimer"):
        wanted.remove("hang: no end")
    done = ran(ROOT / "tests/planted_faults.py", *wanted)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert {kind for kind in wanted if any(kind in each for each in found[kind])} == wanted
