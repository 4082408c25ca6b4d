"""Search for inputs that devicefix fails on.

    python benchmarks/fuzz.py [CORPUS] [--surface NAME] [--minutes N] [--runs N] [--seed N] [--out DIR]
    python benchmarks/fuzz.py --surface NAME --again FILE

The surfaces:

    files           Python files
    notebooks       Jupyter notebooks
    documents       Markdown and reStructuredText
    configurations  folders with settings, .gitignore, noqa comments, a baseline, a cache
    messages        what an editor sends to the language server
    frames          the bytes on the language server's standard input
    all             each of them in turn, with an equal part of the time

The seeds are the small files in the folder CORPUS that can matter, and inputs made of our own patterns:
those of `tests/patterns.py`, and those of each surface in `benchmarks/fuzzing/`. With atheris (pip install
atheris), the coverage of devicefix's code leads the search. Without it, or with --unguided, the inputs depend
on the seed only.

A fault is an internal error, an operation that takes over two seconds, something written outside of the
folder that is checked, a program or code of that folder that runs, a rewrite that does not parse, that a
second run changes, or that changes anything but the code, and a control character in what is printed. Each
surface says what else it expects.

The run does not stop at a failure. For each kind of failure an input goes to DIR/NAME, as short as it can be
made, next to a text with the traceback; `statistics.txt` says how far the run has come. The exit status is 1
if anything failed.
"""

from __future__ import annotations

import argparse
import importlib
import os
import pkgutil
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fuzzing.kept import Kept
    from fuzzing.surface import Surface

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parents[1] / "tests")]

SURFACES = ("files", "notebooks", "documents", "configurations", "messages", "frames")
UNGUIDED = ("frames",)  # another process does the work
SHORTENING = 20  # seconds for each kind of failure
INSTRUMENTED = 5  # how much longer everything takes where the coverage is recorded
WITHOUT = ("devicefix.__main__", "devicefix.codemod", "devicefix.verify")  # no surface needs them


def parsed() -> argparse.Namespace:
    """Return the options."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("corpus", type=Path, nargs="?", help="a folder of files; else our own patterns only")
    parser.add_argument("--surface", choices=[*SURFACES, "all"], default="all")
    parser.add_argument("--minutes", type=float, help="how long; by default 30, or as long as --runs takes")
    parser.add_argument("--runs", type=int, help="how many inputs of each surface at most")
    parser.add_argument("--seed", type=int, default=1, help="chooses the inputs")
    parser.add_argument("--out", type=Path, default=Path("fuzz-failures"), help="the folder for what fails")
    parser.add_argument("--unguided", action="store_true", help="do not use atheris")
    parser.add_argument("--again", type=Path, metavar="FILE", help="try one input that was kept")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)  # in this process
    return parser.parse_args()


def main() -> int:
    """Fuzz each surface in a process of its own, and print what was found."""
    given = parsed()
    if given.again:
        return again(given.surface, given.again)
    if given.here:
        fuzz(given)
        return 0
    names = SURFACES if given.surface == "all" else (given.surface,)
    minutes = given.minutes or (None if given.runs else 30)
    options = [
        *(["--seed", str(given.seed)]),
        *(["--unguided"] * given.unguided),
        *(["--runs", str(given.runs)] if given.runs else []),
        *(["--minutes", str(minutes / len(names))] if minutes else []),
        *([str(given.corpus)] if given.corpus else []),
    ]
    return int(sum(faults(name, given.out / name, options) for name in names) > 0)


def faults(name: str, out: Path, options: list[str]) -> int:
    """Fuzz a surface, print what was found, made shorter, and return the number of faults."""
    from fuzzing import kept

    out.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, __file__, "--here", "--surface", name, "--out", str(out), *options]
    with tempfile.TemporaryDirectory() as folder:  # atheris leaves files behind
        environment = {**os.environ, "TMPDIR": folder, "TEMP": folder, "TMP": folder}
        status = subprocess.run(command, env=environment, check=False).returncode
    counts, failures = kept.statistics(out)
    print(f"{name}: {counts}", flush=True)
    if failures:
        shorten(name, out, failures)
    for each in failures:
        print(f"  {each.file}  {each.kind}", flush=True)
    if status:
        print(f"  the process ended with {status}: see {out / 'last'}", flush=True)
    return len(failures) + (status != 0)


def shorten(name: str, out: Path, failures: list[Kept]) -> None:
    """Make inputs that fail shorter."""
    from fuzzing.campaign import in_scratch
    from fuzzing.kept import shortened

    files = [(each.file.absolute(), each.kind, each.choice) for each in failures]
    with in_scratch(surface(name, None), out) as campaign:
        for file, kind, choice in files:

            def fails(data: bytes, kind: str = kind, choice: int = choice) -> bool:
                return campaign.kind(data, choice) == kind

            file.write_bytes(shortened(file.read_bytes(), fails, SHORTENING))


def again(name: str, file: Path) -> int:
    """Try an input that was kept; it fails with a traceback."""
    from fuzzing.campaign import in_scratch
    from fuzzing.kept import read

    kept, data = read(file), file.read_bytes()
    with tempfile.TemporaryDirectory() as out, in_scratch(surface(name, None), Path(out)) as campaign:
        campaign.attempt(data, kept.choice)
    return 0


def surface(name: str, corpus: Path | None) -> Surface:
    """Return a surface by its name."""
    found: Surface = getattr(importlib.import_module(f"fuzzing.{name}"), name.capitalize())(corpus)
    return found


def fuzz(given: argparse.Namespace) -> None:
    """Fuzz one surface in this process, led by coverage where that is wanted and possible."""
    seconds = given.minutes * 60 if given.minutes else sys.maxsize
    if not given.unguided and given.surface not in UNGUIDED and find_spec("atheris"):
        led_by_coverage(given, seconds)
        return
    from fuzzing.campaign import in_scratch

    with in_scratch(surface(given.surface, given.corpus), given.out) as campaign:
        campaign.unguided(given.seed, given.runs or sys.maxsize, seconds)


def led_by_coverage(given: argparse.Namespace, seconds: float) -> None:
    """Let atheris choose the inputs; this ends the process."""
    import atheris

    with atheris.instrument_imports(include=["devicefix"]):
        import devicefix

        for module in pkgutil.walk_packages(devicefix.__path__, "devicefix."):
            if not module.name.startswith(WITHOUT):
                importlib.import_module(module.name)

    from fuzzing import campaign as campaigns
    from fuzzing import faults
    from fuzzing.programs import LONGEST

    faults.SLOW *= INSTRUMENTED
    made = surface(given.surface, given.corpus)

    def mutated(data: bytes, longest: int, seed: int) -> bytes:
        random = Random(seed)
        if random.random() < 0.1:
            return bytes(atheris.Mutate(data, longest))
        return made.changed(random, data)[:longest]

    limits = ["-verbosity=0", f"-max_len={LONGEST}", "-timeout=120", "-rss_limit_mb=6000"]
    limits += [
        f"-seed={given.seed}",
        f"-artifact_prefix={given.out.absolute()}/",
    ]  # for what ends the process
    limits += [f"-runs={given.runs}"] if given.runs else []
    limits += [f"-max_total_time={seconds:.0f}"] if given.minutes else []
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        campaign = stack.enter_context(campaigns.in_scratch(made, given.out))
        for number, data in enumerate(campaign.first_inputs(Random(given.seed), campaigns.FRESH)):
            (folder / f"{number:05}").write_bytes(data)
        atheris.Setup([sys.argv[0], str(folder), *limits], campaign, custom_mutator=mutated)
        atheris.Fuzz()


if __name__ == "__main__":
    sys.exit(main())
