"""`devicefix verify`: the arguments, and the runs that they ask for."""

from __future__ import annotations

import importlib.util
import os
import shlex
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from devicefix.cli.options import Trouble, common_folder, rule_options, settings_for, unsafe_option

if TYPE_CHECKING:
    from devicefix.config.settings import Settings
    from devicefix.model import Outcome
    from devicefix.verify.program import New
    from devicefix.verify.runs import Task
    from devicefix.verify.session import Report

STATUSES = {"pass": 0, "fail": 1, "trouble": 2, "stopped": 3}
_UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}

EPILOG = """\
It runs your own program: what that does to files, networks and databases it does here too. Put devicefix's
options before SCRIPT; what follows belongs to the program.

Exit status: 0 pass, 1 fail, 2 devicefix could not do its work, 3 stopped at a limit without an error.
"""


def _size(ctx: click.Context, param: click.Parameter, word: str | None) -> int | None:
    """The bytes that "8G" means."""
    if word is None:
        return None
    number, unit = word.upper().rstrip("IB"), ""
    if number[-1:] in _UNITS:
        number, unit = number[:-1], number[-1]
    try:
        return int(float(number) * _UNITS[unit])
    except ValueError:
        raise click.BadParameter(f"{word!r} is no size such as 8G or 500M") from None


def limit_options(command: Any) -> Any:
    """The options that limit a run."""
    for option in (
        click.option(
            "--steps", type=click.IntRange(min=1), metavar="N", help="Stop after N optimizer steps."
        ),
        click.option("--memory", metavar="SIZE", callback=_size, help="Stop at so much memory, such as 8G."),
        click.option(
            "--timeout",
            type=click.FloatRange(min=0, min_open=True),
            default=600,
            show_default=True,
            metavar="SECONDS",
            help="Stop after so many seconds.",
        ),
    ):
        command = option(command)
    return command


@click.command(
    short_help="Run a program, rewritten in memory, on a CPU.",
    epilog=EPILOG,
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
)
@click.argument("program", metavar="SCRIPT")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED, metavar="[ARGS]...")
@click.option("-m", "as_module", is_flag=True, help="SCRIPT is a module, as for `python -m`.")
@click.option("-c", "as_command", is_flag=True, help="SCRIPT is a command line that starts Python.")
@limit_options
@click.option(
    "--compare", is_flag=True, help="Compare the numbers with the original's on CUDA, or a simulated one."
)
@click.option(
    "--tolerance", type=click.FloatRange(min=0), default=1e-5, show_default=True, help="Of --compare."
)
@click.option("--gpus", type=click.IntRange(min=1), help="Of the simulated CUDA machine; by default one.")
@click.option("--keep-going", is_flag=True, help="Answer requests for CUDA with the CPU, and list them all.")
@click.option("--copies/--no-copies", default=True, help="Watch memory that only CUDA copies (on).")
@click.option(
    "--scratch/--no-scratch", default=None, help="Run in a copy of the folder (with --compare: on)."
)
@click.option(
    "--source",
    "sources",
    multiple=True,
    type=click.Path(exists=True, path_type=Path),
    help="Rewrite what is here.",
)
@click.option("--python", default=sys.executable, help="The Python to run it with.")
@click.option("--output-format", type=click.Choice(["text", "json"]), default="text", show_default=True)
@rule_options
@unsafe_option
@click.pass_context
def verify(
    ctx: click.Context,
    /,
    program: str,
    arguments: tuple[str, ...],
    as_module: bool,
    as_command: bool,
    sources: tuple[Path, ...],
    python: str,
    output_format: str,
    config_file: Path | None,
    timeout: float,
    memory: int | None,
    steps: int | None,
    compare: bool,
    tolerance: float,
    gpus: int | None,
    keep_going: bool,
    copies: bool,
    scratch: bool | None,
    **given: Any,
) -> None:
    """Run SCRIPT with its modules rewritten in memory, on a CPU, and tell whether that works.

    No file is changed but by the program itself. The verdict is pass, fail or stopped; every request for
    CUDA that is left is listed, and so is memory that CUDA would have copied.
    """
    _need(python)
    from devicefix.verify import session
    from devicefix.verify.launch import Limits
    from devicefix.verify.runs import Task

    if as_module and as_command:
        raise click.UsageError("-m and -c do not go together")
    script = None if as_module or as_command else _script(program)
    root = session.root_of(script)
    task = Task(
        command=_command(program, arguments, script, python, as_module, as_command),
        folder=Path.cwd(),
        root=root,
        sources=sources or (root,),
        limits=Limits(timeout, memory),
        steps=steps,
        keep_going=keep_going,
        copies=copies,
        compare=compare,
        tolerance=tolerance,
        gpus=gpus,
        scratch=compare if scratch is None else scratch,
        to_stderr=output_format == "json",
    )
    settings = settings_for(task.sources, config_file, None, given)
    report = perform(task, settings)
    show(report, output_format)
    ctx.exit(STATUSES[report.verdict.value])


def perform_for(
    changed: Iterable[Outcome],
    command: str,
    settings: Settings,
    timeout: float,
    memory: int | None,
    steps: int | None,
) -> tuple[Report, bool]:
    """Run a command with files as they are to become.

    Args:
        changed: what has become of the files.
        command: a command line that starts Python.
        settings: those that they were rewritten with.
        timeout: in seconds; with `memory` in bytes and the optimizer `steps`, the limits of the run.

    Returns:
        What has come of it, and whether it counts: it has passed, or taken the steps asked for.
    """
    _need(sys.executable)
    from devicefix.verify import session
    from devicefix.verify.launch import Limits
    from devicefix.verify.runs import Task

    changed = list(changed)
    task = Task(
        command=_command(command, (), None, sys.executable, False, True),
        folder=Path.cwd(),
        root=session.root_of(None),
        sources=(common_folder(Path(each.path) for each in changed), session.root_of(None)),
        limits=Limits(timeout, memory),
        steps=steps,
    )
    rewritten = [
        (each.path, each.result.output or b"", [finding.line for finding in each.result.fixed])
        for each in changed
    ]
    report = perform(task, settings, rewritten=rewritten)
    return report, report.verdict.value == "pass" or (
        report.verdict.value == "stopped" and report.run.limit == "steps"
    )


def perform(task: Task, settings: Settings, rewritten: list[New] | None = None) -> Report:
    """Do what a task asks for, with a word now and then of how far it is."""
    from devicefix.report.wording import printable
    from devicefix.verify import session

    try:
        with progress(task) as tick:
            return session.verify(task, settings, tick, rewritten)
    except OSError as problem:
        what = problem.filename or task.command[0]
        raise Trouble(f"{printable(str(what))}: {problem.strerror or problem}") from None


def show(report: Report, output_format: str = "text") -> None:
    """Print what has come of a verification."""
    from devicefix.verify import report as verification

    click.echo(
        verification.as_json(report) if output_format == "json" else verification.text(report), nl=False
    )


def _script(program: str) -> Path:
    path = Path(program)
    if path.is_dir() and (path / "__main__.py").is_file():
        return path / "__main__.py"
    if not path.is_file():
        raise click.UsageError(f"{program}: no such file; a module needs -m, a command line -c")
    return path


def _command(
    program: str, arguments: tuple[str, ...], script: Path | None, python: str, module: bool, line: bool
) -> list[str]:
    if line:
        text = " ".join([program, *map(shlex.quote, arguments)])
        return ["cmd", "/c", text] if os.name == "nt" else ["/bin/sh", "-c", text]
    return [python, *(["-m", program] if module else [str(script)]), *arguments]


def _need(python: str) -> None:
    """End the program where a package is missing that only verify needs."""
    for package in ("psutil", "torch") if python == sys.executable else ("psutil",):
        if importlib.util.find_spec(package) is None:
            raise Trouble(f"verify needs {package}: pip install 'devicefix[verify]'")


@contextmanager
def progress(task: Task) -> Iterator[Any]:
    """A line on the terminal every half a minute, so that it does not mix with the program's own output."""
    told = 0.0

    def tick(what: str, seconds: float) -> None:
        nonlocal told
        if sys.stderr.isatty() and seconds - told >= 30:
            told = seconds
            click.echo(f"devicefix: {what} has been running for {seconds:.0f} s", err=True)

    yield tick
