"""`devicefix verify`, and the verification of `devicefix rewrite --verify`."""

from __future__ import annotations

import importlib.util
import shlex
import shutil
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from devicefix.cli.errors import CommandError, missing_package, os_error, print_warning
from devicefix.cli.help import GIVEN, GroupedCommand
from devicefix.cli.options import (
    COUNT,
    FILE,
    common_folder,
    option,
    resolver_for,
    rule_options,
    text_or_json,
    together,
    tolerance_option,
    unsafe_option,
)
from devicefix.cli.output import check_folder
from devicefix.cli.program import Program, program_options
from devicefix.config.printable import printable
from devicefix.config.sizes import size
from devicefix.verify.commands import Limits
from devicefix.verify.runtime.profiles import PROFILES

if TYPE_CHECKING:
    from devicefix.config.resolver import Resolver
    from devicefix.model import Outcome
    from devicefix.verify.program import Rewritten
    from devicefix.verify.runs import Task
    from devicefix.verify.session import Report

STATUSES = {"pass": 0, "fail": 1, "trouble": 2, "stopped": 3}
PROGRESS_INTERVAL = 30  # seconds
_OWN_TORCH = (
    ". If torch is installed in another Python, install psutil here, and select that Python with --python"
)

# The options that are fields of a task.
_RUN_OPTIONS = (
    "steps", "compare", "tolerance", "gpus", "keep_going", "copies", "explain", "triton_interpret",
)  # fmt: skip

_RATHER_OURS = ("--compare", "--unsafe-fixes", "--scratch", "--keep-going")  # few programs have these options

EPILOG = """\
`verify` runs your own program, with all its effects on files, networks and databases. Put devicefix's
options before SCRIPT. Everything after SCRIPT is passed to the program.

Exit status: 0 if the program passes, 1 if it fails, 2 if devicefix cannot verify it ("trouble"), 3 if a
limit ends the run first ("stopped").
"""


def _size(_ctx: click.Context, _param: click.Parameter, value: str | None) -> int | None:
    """Return the number of bytes that a value such as "8G" means."""
    try:
        return None if value is None else size(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


limit_options = together(
    click.option(
        "--timeout",
        type=click.FloatRange(min=0, min_open=True),
        default=600,
        show_default=True,
        metavar="SECONDS",
        help="Stop the program after this many seconds.",
    ),
    click.option(
        "--memory",
        metavar="SIZE",
        callback=_size,
        help="Stop the program when it uses this much memory, such as 8G.",
    ),
    click.option("--steps", type=COUNT, metavar="N", help="Stop the program after N optimizer steps."),
)


@click.command(
    cls=GroupedCommand,
    first=(
        "m", "c", "compare", "accelerator", "unsafe-fixes", "timeout", "steps", "gpus", "scratch",
        "output-format",
    ),
    short_help="Run a rewritten program on a CPU.",
    epilog=EPILOG,
    context_settings={"allow_interspersed_args": False},
)  # fmt: skip
@click.argument("program", metavar="SCRIPT")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED, metavar="[ARGS]...")
@click.option("-m", "as_module", is_flag=True, help="Run SCRIPT as a module, like `python -m`.")
@click.option("-c", "as_command", is_flag=True, help="Run SCRIPT as a command line that starts Python.")
@limit_options
@click.option(
    "--compare",
    is_flag=True,
    help="Compare the results with those of the original program on real or simulated CUDA.",
)
@click.option(
    "--accelerator",
    type=click.Choice([name for name in PROFILES if name != "cuda"]),
    help="Rewrite with `--target accelerator`, and run on a simulated device of this type instead of a CPU.",
)
@tolerance_option
@click.option(
    "--gpus",
    type=COUNT,
    help="The number of GPUs in the simulated CUDA machine. [default: 1, or more if the program needs them]",
)
@click.option(
    "--keep-going", is_flag=True, help="Run CUDA requests on the CPU instead of stopping at the first one."
)
@click.option(
    "--copies/--no-copies",
    default=True,
    show_default=True,
    help="Detect code that relies on copies made only on CUDA.",
)
@click.option(
    "--scratch/--no-scratch",
    default=None,
    help="Run in a copy of the program's folder or repository. [default: only with --compare]",
)
@click.option(
    "--explain/--no-explain",
    default=None,
    help="If the program fails, also run it on a simulated CUDA machine to find the cause."
    " [default: only for short runs in small folders]",
)
@click.option(
    "--triton-interpret", is_flag=True, help="Run Triton kernels on the CPU, in the Triton interpreter."
)
@program_options
@click.option(
    "-v", "--verbose", is_flag=True, help="Show all details, including fixed lines that did not run."
)
@click.option(
    "--coverage-file",
    type=FILE,
    help="If the run passes or stops, record in this file which fixed lines ran.",
)
@text_or_json
@rule_options
@option("target")
@unsafe_option
@click.pass_context
def verify(
    ctx: click.Context,
    /,
    *,
    program: str,
    arguments: tuple[str, ...],
    as_module: bool,
    as_command: bool,
    sources: tuple[Path, ...],
    python: str | None,
    verbose: bool,
    coverage_file: Path | None,
    report_format: str,
    timeout: float,
    memory: int | None,
    scratch: bool | None,
    accelerator: str | None,
    **given: Any,
) -> None:
    """Run SCRIPT on a CPU, with its modules rewritten in memory, and report whether it works.

    Your source files stay unchanged. The report lists the remaining CUDA requests, and code that relies on
    copies made only on CUDA.
    """
    check_packages("verify", "psutil")
    from devicefix.verify.runs import Task

    if coverage_file is not None:
        check_folder(coverage_file)
    if as_module and as_command:
        raise click.UsageError("-m and -c cannot be used together")
    if as_command and python is not None:
        raise click.UsageError("-c and --python cannot be used together")
    if misplaced := [each for each in arguments if each in _RATHER_OURS]:
        hint = "devicefix's options come before SCRIPT"
        print_warning(program, f"`{misplaced[0]}` is passed to the program; {hint}")
    found = Program.of(program, arguments, as_module=as_module, as_command=as_command, python=python)
    if found.python == sys.executable:
        check_packages("verify", "torch")
    options = {name: given.pop(name) for name in _RUN_OPTIONS}
    task = Task(
        command=found.command,
        folder=found.folder,
        root=found.root,
        sources=sources or (found.root,),
        limits=Limits(timeout, memory),
        scratch=options["compare"] if scratch is None else scratch,
        to_stderr=report_format == "json",
        python="" if found.python == sys.executable else found.python,
        notebook=found.notebook,
        coverage=coverage_file,
        accelerator=accelerator or "",
        **options,
    )
    given |= {"target": "accelerator"} if accelerator else {}
    shows_output = options["compare"] and report_format == "text"
    if shows_output:
        click.secho(f"Output of the rewritten {printable(program)}:", bold=True)
    try:
        report = run_task(task, resolver_for(task.sources, None, given))
    except KeyboardInterrupt:
        raise KeyboardInterrupt("The program was ended.") from None
    if shows_output:
        click.echo()
    again = shlex.join(["devicefix", "verify", "--compare", *ctx.meta[GIVEN]])
    apply = shlex.join(["devicefix", "check", *options_of_rewrite(ctx, {*given}), "--fix"])
    show_report(report, report_format, verbose, again, apply)
    ctx.exit(STATUSES[report.verdict.value])


def options_of_rewrite(ctx: click.Context, names: set[str]) -> list[str]:
    """Return the options of the command line that change the rewrite; simulated devices choose its target.

    Args:
        ctx: the context of the command.
        names: the parameters of these options.
    """
    values, _, order = ctx.command.make_parser(ctx).parse_args([*ctx.meta[GIVEN]])
    is_for_any = values.get("accelerator") is not None
    words = ["--target", "accelerator"] if is_for_any else []
    for parameter in dict.fromkeys(order):
        if parameter.name in names and not (is_for_any and parameter.name == "target"):
            value = values[parameter.name]
            flags = parameter.secondary_opts if value is False else parameter.opts
            for each in value if isinstance(value, list) else [value]:
                words += [max(flags, key=len), *([] if isinstance(each, bool) else [each])]
    return words


def verify_outcomes(
    outcomes: Iterable[Outcome], command: str, resolver: Resolver, limits: Limits, steps: int | None
) -> tuple[Report, bool]:
    """Run a command with the results of a rewrite, before they are written.

    Args:
        outcomes: the rewritten files.
        command: a command line that starts Python.
        resolver: the settings of the rewrite.
        limits: the limits of the run.
        steps: after how many optimizer steps it ends, None for no limit.

    Returns:
        The report, and whether the changes may be written: the run passed, or took the requested steps.
    """
    check_packages("verify", "psutil")
    from devicefix.files.discover import root_of
    from devicefix.verify.program import Rewritten
    from devicefix.verify.runs import Task
    from devicefix.verify.startup import shell_command

    rewritten = list(filter(None, map(Rewritten.of, outcomes)))
    root = root_of(Path.cwd())
    task = Task(
        command=shell_command(command),
        folder=Path.cwd(),
        root=root,
        sources=(common_folder(Path(module.path) for module in rewritten), root),
        limits=limits,
        steps=steps,
        explain=False,
    )
    report = run_task(task, resolver, rewritten)
    took_steps = report.verdict.value == "stopped" and report.run.limit == "steps"
    return report, report.verdict.value == "pass" or took_steps


def run_task(task: Task, resolver: Resolver, rewritten: list[Rewritten] | None = None) -> Report:
    """Verify a program, and print the progress of long runs.

    Args:
        task: the program and the conditions of its run.
        resolver: the settings of the rewrite.
        rewritten: the rewritten modules; None to rewrite the task's sources.

    Raises:
        CommandError: the program cannot be started.
    """
    from devicefix.files.documents import NotANotebook
    from devicefix.verify import session

    try:
        return session.verify(task, resolver, progress(), rewritten)
    except NotANotebook as error:
        raise CommandError(f"{task.notebook}:{error.position[0]}: {error}") from None
    except OSError as error:
        raise os_error(error.filename or task.command[0], error) from None


def show_report(
    report: Report, output_format: str = "text", verbose: bool = False, compare: str = "", apply: str = ""
) -> None:
    """Print the report of a verification.

    Args:
        report: the report.
        output_format: `text` or `json`.
        verbose: whether the text has all items of each kind.
        compare: the command that also compares the results.
        apply: the command that applies the fixes, without its paths.
    """
    from devicefix.verify.report import as_json, text

    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else 0
    in_json = output_format == "json"
    click.echo(as_json(report) if in_json else text(report, verbose, width, compare, apply), nl=False)


def check_packages(feature: str, *packages: str) -> None:
    """Refuse to run without packages that only commands which run programs need.

    Args:
        feature: the command, which is also the name of the extra.
        packages: the packages.

    Raises:
        CommandError: one of them is not installed.
    """
    for package in packages:
        if importlib.util.find_spec(package) is None:
            raise missing_package(feature, package, feature, _OWN_TORCH if feature == "verify" else "")


def progress() -> Callable[[str, float], None]:
    """Return a function that prints the time of a run at intervals, on its own line on a terminal."""
    current, last = "", 0.0

    def tick(run: str, seconds: float) -> None:
        nonlocal current, last
        if not sys.stderr.isatty():
            return
        if run != current:
            if current:  # nobody wonders what the first run is
                click.echo(f"devicefix: running {run}", err=True)
            current, last = run, 0.0
        elif seconds - last >= PROGRESS_INTERVAL:
            last = seconds
            click.echo(f"devicefix: {run} has been running for {seconds:.0f} s", err=True)

    return tick
