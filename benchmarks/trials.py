"""Run public programs that are tied to CUDA, rewritten by devicefix, on both machines of the trials.

    python benchmarks/trials.py CLONES [--python PYTHON] [--tool COMMAND] [--only NAMES] [--references DIR]
                                       [--accelerator] [--logs DIR]

The trials are those in `trials/` and those of `shared/trials/dev`, beside this repository, whose harness
exports, rewrites and runs each program. CLONES has a clone of each repository, named `owner+name`. Each trial
prints one line, and the last line counts those that pass. The exit status is 1 if any fails, other than one
whose `trial.json` says why by `"fails"`, or that needs what the simulated device lacks (`GAPS`).

Processors round differently. A trial whose numbers differ is therefore recorded anew from the untouched
program on this machine, and runs once more. `--references DIR` keeps the recorded numbers for the next run.

`--accelerator` rewrites with `--target accelerator`, and runs the program on a made-up accelerator too
(`tests/accelerator_machine.py`), with `--machines xpu,mps` on those that devicefix simulates: numbers are
compared, parameters and most products have to be there, and the states of autocast and scalers as on CUDA.
`--logs DIR` keeps what programs print, and what ran where.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
SHARED = ROOT.parent / "shared" / "trials"
SIMULATED = ("xpu", "mps")
MACHINES = ("cpu", "cuda", "accelerator", *SIMULATED)
ORACLE = ROOT / "tests" / "accelerator_machine.py"
DRIVE = """
sys.path[0] = "."; sys.argv = ["_drive.py"]
runpy.run_path("_drive.py", run_name="__main__")"""
STARTS = {  # what runs a program on a machine that the harness does not have
    "cuda": "import accelerator_on_cuda; accelerator_on_cuda.install({record!r})" + DRIVE,
    "accelerator": """sys.argv = [{oracle!r}, "--exact", "--record", {record!r}, "_drive.py"]
runpy.run_path({oracle!r}, run_name="__main__")""",
    **dict.fromkeys(
        SIMULATED, "import accelerator_simulated; accelerator_simulated.install({record!r})" + DRIVE
    ),
}
GAPS = {  # what a device, or the backend in Python, cannot do, by the end of the error
    "accelerator": (
        "implement `getPinnedMemoryAllocator` at the same time for PrivateUse1.",
        "a backend in Python has no pinned memory",
    ),
    "xpu": ("has no attribute '_scatter'", "DataParallel does not work on XPU (pytorch/issues/143239)"),
    "mps": ("framework doesn't support float64.", "MPS has no float64"),
}
ERROR = re.compile(r"(\[rank\d+\]: )?[\w.]*(Error|Exception)\b")
Outcome = dict[str, str | bool]


def main() -> int:
    """Run the trials, and return the exit status."""
    arguments = _parser().parse_args()
    names = {each for each in arguments.only.split(",") if each}
    machines = set(arguments.machines.split(","))
    with tempfile.TemporaryDirectory() as scratch:
        folder = arguments.references or Path(scratch, "trials")
        _copy(folder, names)
        if "cpu" in machines or not arguments.accelerator:
            found = {outcome["trial"]: outcome for outcome in _run(arguments, folder, names)}
        else:
            found = {name: {"trial": name} for name in sorted(names or os.listdir(folder))}
        differing = {str(name) for name, outcome in found.items() if _differs(outcome)}
        if differing:
            print(f"recorded on this machine, and run once more: {', '.join(sorted(differing))}", flush=True)
            _run(arguments, folder, differing, "--record", "--tool", "none")
            found |= {outcome["trial"]: outcome for outcome in _run(arguments, folder, differing)}
        if arguments.accelerator:
            for name, outcome in sorted(found.items()):
                for machine in [each for each in STARTS if each in machines]:
                    outcome[machine] = _on_accelerator(arguments, folder / str(name), machine)
                    mark = "FAIL" if outcome[machine] else "pass"
                    print(f"{mark}  {name:24} {machine:12} {outcome[machine]}", flush=True)
                outcome["passed"] = not any(outcome.get(part) for part in ("tool", *MACHINES))
        failed = [outcome for outcome in found.values() if not outcome["passed"]]
        known = {
            str(outcome["trial"]): _reason(folder, str(outcome["trial"])) or _gap(outcome)
            for outcome in failed
        }
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
    parser.add_argument("--accelerator", action="store_true", help="rewrite for every accelerator")
    parser.add_argument("--machines", default="cpu,cuda,accelerator", help="those to run with --accelerator")
    parser.add_argument("--logs", type=Path, help="the folder for logs and records of the accelerator")
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
        tool = _tool(arguments)
        command = [sys.executable, SHARED / "harness.py", "--corpus", arguments.clones, "--trials", folder]
        command += ["--python", arguments.python, "--jobs", str(arguments.jobs), "--json", outcomes]
        command += ["--only", ",".join(sorted(names)), *(options or ("--tool", tool))]
        if arguments.accelerator and not options:  # the other machines are those of STARTS
            command += ["--machines", "cpu"]
        subprocess.run(command, check=False)
        found: list[Outcome] = json.loads(outcomes.read_text())
        return found


def _tool(arguments: argparse.Namespace) -> str:
    target = " --target accelerator" if arguments.accelerator else ""
    return arguments.tool or f"{sys.executable} -m devicefix rewrite --in-place{target} {{tree}}"


def _on_accelerator(arguments: argparse.Namespace, folder: Path, machine: str) -> str:
    """Run a rewritten trial on one of STARTS, and return what is wrong, empty if nothing is."""
    sys.path.insert(0, str(SHARED))
    import harness  # type: ignore[import-not-found]

    trial = json.loads((folder / "trial.json").read_text())
    if not (folder / "reference-cuda.json").exists():  # the untouched program needs its tensors on a CPU
        return ""
    reference = folder / ("reference-cuda.json" if machine == "cuda" else "reference.json")
    with tempfile.TemporaryDirectory(prefix="trial-") as scratch:
        logs = (arguments.logs or Path(scratch)).resolve()
        logs.mkdir(parents=True, exist_ok=True)
        record, output = logs / f"{folder.name}-{machine}.json", logs / f"{folder.name}-{machine}.log"
        record.unlink(missing_ok=True)
        path = [str(SHARED), str(ORACLE.parent), str(ROOT / "benchmarks")]
        code = f"import runpy, sys; sys.path[:0] = {path}\n"
        if machine != "cuda" and trial.get("checkpoints") == "cuda":
            code += "import saved_on_cuda; saved_on_cuda.install()\n"
        code += STARTS[machine].format(oracle=str(ORACLE), record=str(record))
        where = argparse.Namespace(corpus=arguments.clones.resolve())
        tree = harness.fresh(folder, trial, where, harness.command(_tool(arguments)), scratch, machine)
        environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
        environment |= {"PYTHONHASHSEED": "0", "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
        command = [arguments.python, "-c", code]
        if machine in SIMULATED:
            Path(tree, "_start.py").write_text(code)
            environment["PYTHONPATH"] = str(ROOT)
            command = [sys.executable, "-m", "devicefix", "run", "--simulate", machine, "--no-rewrite"]
            command += ["--python", arguments.python, "_start.py"]
        with output.open("w") as log:
            done = subprocess.run(
                ["timeout", "900", *command],
                cwd=tree,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                check=False,
            )
        printed = output.read_text(errors="replace")
        if done.returncode:
            lines = [line for line in printed.splitlines() if line.strip()]
            errors = [line for line in lines if ERROR.match(line)]  # something may be printed after it
            return f"exit {done.returncode}: {(errors or lines or ['no output'])[-1][:200]}"
        wrong: str = harness.compare(harness.result_of(printed), "no RESULT line", reference)
        if wrong or machine == "cuda":
            return wrong
        found, on_cuda = json.loads(record.read_text()), logs / f"{folder.name}-cuda.json"
        there = json.loads(on_cuda.read_text()) if on_cuda.exists() else found
        return _unused(found) or _not_as(found, there, "npu" if machine == "accelerator" else machine)


def _unused(record: dict[str, dict[str, int]]) -> str:
    """Return what shows that a program left the accelerator unused."""
    for kind in ("parameters", "products"):
        here = sum(count for name, count in record[kind].items() if name.split()[0] != "cpu")
        if here < 0.4 * sum(record[kind].values()):  # some programs train there, and then infer on the CPU
            return f"not used: {kind} {record[kind]}"
    return ""


def _not_as(record: dict[str, Any], on_cuda: dict[str, Any], device: str) -> str:
    """Return what is not as on CUDA: the states of autocast and of scalers."""
    for kind in ("autocast entered", "scalers"):
        here, there = (json.dumps(each[kind], sort_keys=True) for each in (record, on_cuda))
        here, there = (each.replace("float32 on", "float32 off") for each in (here, there))  # casts nothing
        if here.replace(device, "cuda") != there.replace(device, "cuda"):
            return f"not as on CUDA: {kind} {here}, not {there}"
    return ""


def _differs(outcome: Outcome) -> bool:
    return any(str(outcome.get(machine, "")).startswith("differs") for machine in MACHINES)


def _reason(folder: Path, name: str) -> str:
    """Return why a trial is known to fail, empty if it should pass."""
    reason: str = json.loads((folder / name / "trial.json").read_text()).get("fails", "")
    return reason


def _gap(outcome: Outcome) -> str:
    """Return why a trial fails only where the real device would fail too, empty if there is more."""
    wrong = {part: str(outcome[part]) for part in ("tool", *MACHINES) if outcome.get(part)}
    gaps = [GAPS[part][1] for part, text in wrong.items() if part in GAPS and text.endswith(GAPS[part][0])]
    return "; ".join(gaps) if len(gaps) == len(wrong) else ""


def _cause(outcome: Outcome) -> str:
    causes = (f"{part}: {outcome[part]}" for part in ("tool", *MACHINES) if outcome.get(part))
    return "; ".join(causes)


if __name__ == "__main__":
    sys.exit(main())
