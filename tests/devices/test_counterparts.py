"""The table of what there is for torch.cuda on other devices, compared with the torch that is installed.

If the environment variable TORCH_FILES is the folder `torch` of an unpacked wheel, names are compared with
that one, and nothing is called: `nox -s facts` does so for releases that it can't install.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
from torch_names import names

from devicefix.devices import counterparts
from devicefix.devices.counterparts import DEVICES, FUNCTIONS, NEWEST, SOURCES, TARGETS, function, version

FILES = os.environ.get("TORCH_FILES")
TYPES = ("*Tensor", "*Storage")
# What the table has without being a counterpart of a function of torch.cuda.
OTHERS = {"get_device_module", "distributed.get_default_backend_for_device"}

# Print what each call of a JSON object does.
CALLS = """
import importlib, json, sys, warnings
import torch
warnings.simplefilter("ignore")

def result(name, call, expected):
    try:
        importlib.import_module(f"torch.{name}".rpartition(".")[0])
    except ImportError:
        pass  # the last part but one is a class
    try:
        if call.startswith("with "):
            exec(call)
            value = None
        else:
            value = eval(call)
    except Exception as problem:
        return "raises"
    if expected == "object" or expected != "raises" and value == eval(expected):
        return expected
    return repr(value)

calls = json.load(sys.stdin)
has = torch.accelerator.is_available()
chosen = {} if has else calls[torch.version.cuda is not None]
results = {name: result(name, *about) for name, about in chosen.items()}
print(json.dumps([has, results]))
"""


@pytest.fixture(scope="module")
def torch_files() -> Path:
    """The folder of torch: that of the variable, or the installed one."""
    found = find_spec("torch")
    if FILES is None and found is None:
        pytest.skip("needs torch")
    return Path(FILES or str(Path(str(found and found.origin)).parent))


@pytest.fixture(scope="module")
def release(torch_files: Path) -> counterparts.Version:
    """The release of torch in this folder."""
    found = re.search(r"__version__ = '(.+)'", (torch_files / "version.py").read_text())
    assert found is not None
    return version(found[1])


def test_the_table_is_consistent() -> None:
    rows = [row.devices for row in FUNCTIONS.values()] + [row.devices for row in TARGETS.values()]
    cells = [cell for row in rows for cell in row.values()]
    assert {cell.how for cell in cells} <= {"same", "adapted", "none", "unknown"}
    assert all(cell.since is None for cell in cells if cell.how in ("none", "unknown"))
    assert all(tuple(target.devices) == DEVICES and target.source in SOURCES for target in TARGETS.values())
    used = {row.counterpart.name for row in FUNCTIONS.values() if row.counterpart}
    assert {name for name in TARGETS if not name.startswith("accelerator.")} <= used | OTHERS
    assert used | OTHERS <= set(TARGETS)


def test_a_row_says_what_works_on_a_device() -> None:
    on_mps = TARGETS["accelerator.empty_cache"].devices["mps"]
    assert (on_mps, on_mps.at((2, 12)), on_mps.at((2, 13))) == (
        counterparts.Support("same", (2, 13)),
        False,
        True,
    )
    assert str(on_mps) == "same 2.13"
    assert function("memory.empty_cache") is FUNCTIONS["empty_cache"]
    assert function("amp.autocast_mode.autocast") is FUNCTIONS["amp.autocast"]
    assert function("tunable.enable") is FUNCTIONS["tunable.*"]
    assert function("unheard_of") is None


def test_all_of_torch_cuda_has_a_row(torch_files: Path, release: counterparts.Version) -> None:
    if release > NEWEST:
        pytest.skip("newer than the table")
    there = names(torch_files / "cuda")
    assert {name for name in there if (row := function(name)) is None or not _has(row, release)} == set()
    shorts = {row.name for name in there if (row := function(name)) is not None}
    missing = {name for name, row in FUNCTIONS.items() if name not in shorts and _has(row, release)}
    assert missing == {"OutOfMemoryError"}  # public, but in no `__all__`


def _has(row: counterparts.Function, release: counterparts.Version) -> bool:
    """Return whether a release has a function of torch.cuda according to its row."""
    return (row.since or release) <= release <= (row.until or release)


def test_counterparts_are_there_since_the_release_of_the_table(
    torch_files: Path, release: counterparts.Version
) -> None:
    there = {f"accelerator.{name}" for name in names(torch_files / "accelerator")}
    there -= {name for name in there if re.match(r"accelerator\.(memory|graphs)\.", name)}
    assert there == {
        name for name, row in TARGETS.items() if name.startswith("accelerator.") and row.since <= release
    }


@pytest.mark.parametrize("device", ["xpu", "mps"])
def test_modules_of_devices_have_what_the_table_says(
    device: str, torch_files: Path, release: counterparts.Version
) -> None:
    there = {row.name for name in names(torch_files / device) if (row := function(name)) is not None} - {
        *TYPES
    }
    cells = {name: row.devices[device] for name, row in FUNCTIONS.items()}
    assert there == {name for name, cell in cells.items() if cell.since is not None and cell.since <= release}


@pytest.mark.needs("torch")
@pytest.mark.skipif(FILES is not None, reason="the files of a wheel can't be called")
def test_calls_without_an_accelerator_do_what_the_table_says(
    torch_files: Path, release: counterparts.Version
) -> None:
    there = names(torch_files / "cuda")
    targets = [row for row in TARGETS.values() if row.since <= release]
    expected = [
        {
            **dict(_functions(there, release)),
            **{row.name: (row.call, row.result(release)) for row in targets},
        },
        {row.name: (row.call, row.result(release, driverless=True)) for row in targets},  # in a CUDA build
    ]
    command = [sys.executable, "-c", CALLS]
    run = subprocess.run(command, input=json.dumps(expected), capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    has, results = json.loads(run.stdout)
    if has:
        pytest.skip("needs a machine without an accelerator")
    wanted = next(each for each in expected if each.keys() == results.keys())
    assert results == {name: without for name, (_, without) in wanted.items()}


def _functions(there: set[str], release: counterparts.Version) -> Iterator[tuple[str, tuple[str, str]]]:
    """Yield what to call in torch.cuda, with what that does."""
    for name in there:
        row = function(name)
        if row is None or row.without == "unknown" or row.name in ("gds.*", "tunable.*"):
            continue
        yield f"cuda.{name}", (row.call or f"torch.cuda.{name}()", row.without)
