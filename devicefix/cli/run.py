"""`devicefix run`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from devicefix.cli.errors import CommandError, os_error, print_error
from devicefix.cli.help import GroupedCommand
from devicefix.cli.options import resolver_for, rule_options, unsafe_option
from devicefix.cli.program import Program, program_options

EPILOG = """\
Put devicefix's options before SCRIPT. Everything after SCRIPT is passed to the program. To find
out where a program still requests CUDA, use `devicefix verify`.

Exit status: the program's own, or 2 if devicefix cannot run it.
"""
SIGNALLED = 128  # a shell adds it to the number of the signal that ended a program


@click.command(
    cls=GroupedCommand,
    short_help="Run a program with its code rewritten in memory.",
    epilog=EPILOG,
    context_settings={"allow_interspersed_args": False},
)
@click.argument("program", metavar="SCRIPT")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED, metavar="[ARGS]...")
@click.option("-m", "as_module", is_flag=True, help="Run SCRIPT as a module, like `python -m`.")
@click.option("--cpu", is_flag=True, help="Run on the CPU, even if CUDA is available.")
@click.option(
    "--accelerator",
    is_flag=True,
    help="Use any accelerator that torch supports, like `rewrite --target accelerator`.",
)
@program_options
@rule_options
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
    accelerator: bool,
    sources: tuple[Path, ...],
    python: str | None,
    **given: Any,
) -> None:
    """Run SCRIPT like `python` does, with its modules rewritten in memory.

    Your source files stay unchanged. Unlike `verify`, `run` does not check what the program does.
    """
    from devicefix.files.documents import NotANotebook
    from devicefix.verify import direct

    if cpu and accelerator:
        raise click.UsageError("--cpu and --accelerator cannot be used together")
    found = Program.of(program, arguments, as_module=as_module, python=python)
    target = {"target": "accelerator"} if accelerator else {}
    sources = sources or (found.root,)
    resolver = resolver_for(sources, None, given | target | {"quiet": True})
    invocation = direct.Invocation(found.command, found.folder, sources, found.notebook, cpu)
    try:
        ending = direct.run(invocation, resolver)
    except NotANotebook as error:
        raise CommandError(f"{found.notebook}:{error.position[0]}: {error}") from None
    except OSError as error:
        raise os_error(error.filename or found.command[0], error) from None
    for problem in ending.errors:
        path, _, message = problem.partition(": ")
        print_error(path, message)
    ctx.exit(ending.status if ending.status >= 0 else SIGNALLED - ending.status)
