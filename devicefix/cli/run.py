"""`devicefix run`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from devicefix.cli.errors import CommandError, os_error, print_error
from devicefix.cli.help import GroupedCommand
from devicefix.cli.options import option, resolver_for, rule_options, unsafe_option
from devicefix.cli.program import Program, program_options
from devicefix.config.printable import printable
from devicefix.verify.runtime.profiles import PROFILES

if TYPE_CHECKING:
    from devicefix.verify.verdict import Location

EPILOG = """\
Put devicefix's options before SCRIPT. Everything after SCRIPT is passed to the program.

Exit status: the program's own, or 2 if devicefix cannot run it.
"""
SIGNALLED = 128  # a shell adds it to the number of the signal that ended a program


@click.command(
    cls=GroupedCommand,
    first=("m", "simulate", "cpu", "target", "rewrite", "unsafe-fixes", "select", "source", "python"),
    short_help="Run a program with its code rewritten in memory.",
    epilog=EPILOG,
    context_settings={"allow_interspersed_args": False},
)
@click.argument("program", metavar="SCRIPT")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED, metavar="[ARGS]...")
@click.option("-m", "as_module", is_flag=True, help="Run SCRIPT as a module, like `python -m`.")
@click.option("--cpu", is_flag=True, help="Run on the CPU, even if CUDA is available.")
@click.option(
    "--simulate",
    type=click.Choice(list(PROFILES)),
    help="Use the CPU to simulate a machine with this device.",
)
@click.option(
    "--rewrite/--no-rewrite",
    default=None,
    help="Rewrite the program in memory. [default: on; with --simulate, only for --target accelerator]",
)
@program_options
@rule_options
@option("target")
@unsafe_option
@click.pass_context
def run(
    ctx: click.Context,
    /,
    *,
    program: str,
    arguments: tuple[str, ...],
    as_module: bool,
    cpu: bool,
    simulate: str | None,
    rewrite: bool | None,
    sources: tuple[Path, ...],
    python: str | None,
    **given: Any,
) -> None:
    """Run SCRIPT as `python` does, with its modules rewritten in memory.

    Your source files stay unchanged. Unlike `verify`, `run` does not check what the program does.
    """
    from devicefix.files.documents import NotANotebook
    from devicefix.verify import direct

    accelerator = given["target"] == "accelerator"
    for name, used in {"--target accelerator": accelerator, "--simulate": simulate}.items():
        if cpu and used:
            raise click.UsageError(f"--cpu and {name} cannot be used together")
    if accelerator and rewrite is False:
        raise click.UsageError("--target accelerator and --no-rewrite cannot be used together")
    found = Program.of(program, arguments, as_module=as_module, python=python)
    sources = sources or (found.root,)
    resolver = resolver_for(sources, None, given | {"quiet": True})
    if rewrite is None:
        rewrite = not simulate or resolver.of(program).target == "accelerator"
    machine = ("simulated" if simulate == "cuda" else simulate) or ("cpu" if cpu else "cuda")
    invocation = direct.Invocation(found.command, found.folder, sources, found.notebook, machine, rewrite)
    try:
        ending = direct.run(invocation, resolver)
    except NotANotebook as error:
        raise CommandError(f"{found.notebook}:{error.position[0]}: {error}") from None
    except OSError as error:
        raise os_error(error.filename or found.command[0], error) from None
    for problem in ending.errors:
        path, _, message = problem.partition(": ")
        print_error(path, message)
    if ending.trouble:
        raise CommandError(f"the device cannot be simulated: {ending.trouble}")
    if ending.lacking:
        click.echo(printable(f"devicefix: the simulation lacks {_listed(ending.lacking)}"), err=True)
    ctx.exit(ending.status if ending.status >= 0 else SIGNALLED - ending.status)


def _listed(lacking: dict[str, list[Location]]) -> str:
    """Return what the simulation lacks in one line, each with the first line that uses it."""
    from devicefix.verify.places import place

    found = []
    for what, places in lacking.items():
        more = f" and {len(places) - 1} more" if len(places) > 1 else ""
        found.append(f"{what} ({place(places[0])}{more})")
    return ", ".join(found)
