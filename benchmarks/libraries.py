"""Run what other libraries do on a machine without CUDA, and compare it with what the rules say.

python benchmarks/libraries.py DIR [--only TEXT]

DIR gets an environment, made if it is not there. The programs are in `libraries.toml`, the facts in
`devicefix/rules/shared/library_facts.toml`. The table has a `!` where they differ; then the exit status is 1.
A program that can't be run says why, and where this is written. Needs a machine without CUDA.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import venv
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from devicefix.rules.shared import library_facts as facts

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

# Import a library once, and fork for each program: one may change the library for the next.
_DRIVER = """
import importlib.metadata, json, os, runpy, signal, sys, traceback
def run(path):
    try:
        runpy.run_path(path)
        return "runs", ""
    except BaseException as error:
        frames = traceback.extract_tb(error.__traceback__)
        own = [frame for frame in frames if frame.filename == path][-1:] or frames
        outcome = "import fails" if own[-1].line.startswith(("import ", "from ")) else "call fails"
        if isinstance(error, AssertionError) and frames[-1].filename == path:
            outcome = "computes something else"
        return outcome, f"{type(error).__name__}: {error}"
try:
    version = importlib.metadata.version(sys.argv[1])
except importlib.metadata.PackageNotFoundError:
    version = ""
try:
    exec(sys.argv[2])
except Exception:
    pass  # the programs show it
for path in sys.argv[3:]:
    child = os.fork()
    if not child:
        signal.alarm(240)
        outcome, text = run(path)
        with open(path + ".json", "w") as file:
            json.dump([outcome, text, version], file)
        os._exit(0)
    os.waitpid(child, 0)
"""

# The rules have no finding for these: they run on a CPU, or have a build that does.
RUNNING = {
    "bitsandbytes": "0.50.2",
    "warp": "1.19.0",
    "cuequivariance_torch": "0.13.0",
    "vector_quantize_pytorch": "1.32.0",
    "optimum.quanto": "0.2.7",
    "hqq": "0.2.8.post1",
    "torchao": "0.18.0",
    "ctranslate2": "4.8.5",
    "onnxruntime": "1.32.0",
    "deepspeed": "",  # its documentation says so; not seen
    "torch_scatter": "",
    "MinkowskiEngine": "",
    "pytorch3d": "",
    "natten": "",
    "gptqmodel": "",
    "vllm": "",
    "sglang": "",
}


@dataclass
class Program:
    """One row of `libraries.toml`.

    Attributes:
        name: the library, or the library and an option.
        package: the distribution.
        also: further distributions that it needs.
        setup: what several programs import at the start.
        code: what is run.
        outcome: what happens, if the facts don't say.
        why: why it can't be run.
        source: where this is written.
    """

    name: str
    package: str = ""
    also: tuple[str, ...] = ()
    setup: str = ""
    code: str = ""
    outcome: str = ""
    why: str = ""
    source: str = ""


def read() -> tuple[list[str], list[Program]]:
    """Return what is installed for all programs, and the programs."""
    data = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))
    return data["base"], [
        Program(**{**data["kinds"].get(row.get("kind"), {}), **_row(row)}) for row in data["program"]
    ]


def expected() -> dict[str, tuple[str, str]]:
    """Return what the rules say of each library and option: the outcome, and the version that was tried."""
    said = {name: (fact.outcome, fact.tried) for name, fact in facts.LIBRARIES.items()}
    said |= {name: ("runs", tried) for name, tried in (*RUNNING.items(), *facts.COPING.items())}
    said |= {f"{library}.{name}": ("call fails", fact.tried) for (library, name), fact in facts.CALLS.items()}
    said |= {f"{name} {option}": ("call fails", tried) for (name, option), tried in facts.SWITCHES.items()}
    for fact in facts.ARGUMENTS:
        said[f"{fact.libraries[0]} {fact.option}={fact.values[0]}"] = fact.outcome, fact.tried
    return said


def run(programs: list[Program], base: list[str], place: Path) -> dict[str, tuple[str, str, str]]:
    """Run programs in an environment, and return the outcome, the error and the version of each."""
    python = place / "bin" / "python"
    if not python.exists():
        venv.create(place, with_pip=True)
        _install(python, "--quiet", *base)
    seen = {}
    groups: dict[tuple[str, tuple[str, ...], str], list[Program]] = defaultdict(list)
    for program in programs:
        groups[program.package, tuple(program.also), program.setup].append(program)
    for (package, also, setup), group in groups.items():
        folder = place / "libraries" / package
        if package not in {name.partition("=")[0] for name in base} and not folder.exists():
            _install(python, "--quiet", "--no-deps", "--target", str(folder), package, *also)
        with tempfile.TemporaryDirectory() as scratch:
            paths = [Path(scratch, f"program{number}.py") for number in range(len(group))]
            for path, program in zip(paths, group, strict=True):
                path.write_text(program.code, "utf-8")
            subprocess.run(
                [python, "-W", "ignore", "-c", _DRIVER, package, setup, *paths],
                env={"PATH": f"{place / 'bin'}:/usr/bin:/bin", "PYTHONPATH": str(folder), "HOME": scratch},
                cwd=scratch, capture_output=True, check=False,
            )  # fmt: skip
            for path, program in zip(paths, group, strict=True):
                result = Path(f"{path}.json")
                seen[program.name] = (
                    tuple(json.loads(result.read_text())) if result.exists() else ("no result", "", "")
                )
    return seen


def rows(programs: list[Program], seen: dict[str, tuple[str, str, str]]) -> Iterator[tuple[bool, str]]:
    """Yield the lines of the table, with whether the outcome is what the rules say."""
    said = expected()
    for program in programs:
        outcome, tried = said.get(program.name, (program.outcome, ""))
        if not program.code:
            yield True, f"| | {program.name} | {outcome} | not run: {program.why} | {program.source} |"
            continue
        observed, error, version = seen[program.name]
        same = observed == outcome
        error = error.replace("\n", " ").replace("|", "/")[:90]
        versions = version if tried in ("", version) else f"{version}, was {tried}"
        yield (
            same,
            f"| {'' if same else '!'} | {program.name} | {outcome} | {observed} | {versions} {error} |",
        )


def main() -> int:
    """Print the table, and return 1 if something differs."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("place", type=Path)
    parser.add_argument("--only", default="", help="run only the programs whose names hold this text")
    options = parser.parse_args()
    base, programs = read()
    programs = [program for program in programs if options.only in program.name]
    seen = run([program for program in programs if program.code], base, options.place.resolve())
    table = list(rows(programs, seen))
    print("| | Library or option | The rules say | On this machine | Version, error or source |")
    print("| --- | --- | --- | --- | --- |")
    print(*(line for _, line in table), sep="\n")
    return int(not all(same for same, _ in table))


def _row(row: dict[str, str]) -> dict[str, str]:
    return {key: value for key, value in row.items() if key != "kind"}


def _install(python: Path, *arguments: str) -> None:
    subprocess.run([python, "-m", "pip", "install", *arguments], check=True)


if __name__ == "__main__":
    sys.exit(main())
