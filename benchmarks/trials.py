"""Run public programs that are tied to CUDA, rewritten by devicefix, on both machines of the trials.

    python benchmarks/trials.py CLONES [--python PYTHON] [--tool COMMAND] [--only NAMES] [--references DIR]

The trials are those in `trials/` and those of `shared/trials/dev`, beside this repository, whose harness
exports, rewrites and runs each program. CLONES has a clone of each repository, named `owner+name`. Each trial
prints one line, and the last line counts those that pass. The exit status is 1 if any fails, other than one
whose `trial.json` says why by `"fails"`.

Processors round differently. A trial whose numbers differ is therefore recorded anew from the untouched
program on this machine, and runs once more. `--references DIR` keeps the recorded numbers for the next run.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
SHARED = ROOT.parent / "shared" / "trials"
MACHINES = ("cpu", "cuda")
Outcome = dict[str, str | bool]


def main() -> int:
    """Run the trials, and return the exit status."""
    arguments = _parser().parse_args()
    names = {each for each in arguments.only.split(",") if each}
    with tempfile.TemporaryDirectory() as scratch:
        folder = arguments.references or Path(scratch, "trials")
        _copy(folder, names)
        found = {outcome["trial"]: outcome for outcome in _run(arguments, folder, names)}
        differing = {str(name) for name, outcome in found.items() if _differs(outcome)}
        if differing:
            print(f"recorded on this machine, and run once more: {', '.join(sorted(differing))}", flush=True)
            _run(arguments, folder, differing, "--record", "--tool", "none")
            found |= {outcome["trial"]: outcome for outcome in _run(arguments, folder, differing)}
    failed = [outcome for outcome in found.values() if not outcome["passed"]]
    known = {str(outcome["trial"]): _reason(folder, str(outcome["trial"])) for outcome in failed}
    for outcome in failed:
        reason = known[str(outcome["trial"])]
        print(f"{'known' if reason else 'FAIL'}  {outcome['trial']:24} {reason or _cause(outcome)}")
    per_machine = ", ".join(
        f"{machine} {sum(outcome.get(machine) == '' for outcome in found.values())}" for machine in MACHINES
    )
    print(f"{len(found) - len(failed)} of {len(found)} pass ({per_machine})")
    return 0 if all(known.values()) else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("clones", type=Path, help="the folder with the clones")
    parser.add_argument("--python", default=sys.executable, help="the Python that runs the programs")
    parser.add_argument("--tool", help="a command with {tree} in it; default: devicefix of this Python")
    parser.add_argument("--only", default="", help="names of trials, separated by commas")
    parser.add_argument("--references", type=Path, help="the folder that keeps the recorded numbers")
    parser.add_argument("--jobs", type=int, default=2, help="how many trials run at a time")
    return parser


def _copy(folder: Path, names: set[str]) -> None:
    """Copy the trials to a folder, but not over numbers that it already has."""
    for source in (SHARED / "dev", ROOT / "benchmarks" / "trials"):
        for trial in sorted(source.glob("*/trial.json")):
            into = folder / trial.parent.name
            if (names and into.name not in names) or into.exists():
                continue
            into.mkdir(parents=True)
            for file in trial.parent.iterdir():
                shutil.copyfile(file, into / file.name)


def _run(arguments: argparse.Namespace, folder: Path, names: set[str], *options: str) -> list[Outcome]:
    """Run the harness on some of the trials, all if no name is given, and return its outcomes."""
    with tempfile.TemporaryDirectory() as scratch:
        outcomes = Path(scratch, "outcomes.json")
        tool = arguments.tool or f"{sys.executable} -m devicefix rewrite --in-place {{tree}}"
        command = [sys.executable, SHARED / "harness.py", "--corpus", arguments.clones, "--trials", folder]
        command += ["--python", arguments.python, "--jobs", str(arguments.jobs), "--json", outcomes]
        command += ["--only", ",".join(sorted(names)), *(options or ("--tool", tool))]
        subprocess.run(command, check=False)
        found: list[Outcome] = json.loads(outcomes.read_text())
        return found


def _differs(outcome: Outcome) -> bool:
    return any(str(outcome.get(machine, "")).startswith("differs") for machine in MACHINES)


def _reason(folder: Path, name: str) -> str:
    """Return why a trial is known to fail, empty if it should pass."""
    reason: str = json.loads((folder / name / "trial.json").read_text()).get("fails", "")
    return reason


def _cause(outcome: Outcome) -> str:
    causes = (f"{part}: {outcome[part]}" for part in ("tool", *MACHINES) if outcome.get(part))
    return "; ".join(causes)


if __name__ == "__main__":
    sys.exit(main())
