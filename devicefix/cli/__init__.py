"""Parse the arguments of each command, call the other rooms, and print the result."""

from __future__ import annotations

import atexit
import errno
import gc
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from io import TextIOWrapper
from typing import Any

import click

from devicefix.cli.errors import INTERRUPTED, CommandError, os_error, written
from devicefix.cli.options import color_option, colour_of_environment
from devicefix.config.printable import printable
from devicefix.config.settings import ConfigError
from devicefix.config.values import nearest
from devicefix.config.version import __version__

# The last collection of garbage would take a twentieth of the time, for memory that ends with the process.
atexit.register(gc.freeze)

# What click 8.2 raises to show the help of a group; before, it showed the help itself.
_HELP: Any = getattr(click.exceptions, "NoArgsIsHelpError", ())

# Each is in a module of its name, which is imported when the command is called.
COMMANDS = (
    "check", "clean", "config", "migrate", "playground", "report", "rewrite", "rule", "run", "server",
    "verify",
)  # fmt: skip

EPILOG = """\
Exit status of check and rewrite: 0 if no findings remain, 1 if findings remain or fixes are shown but not
applied, 2 if an error occurs.

Settings come from the nearest configuration file: a .devicefix.toml, a devicefix.toml, or a
pyproject.toml with a [tool.devicefix] table. Options override or extend them. `devicefix config` shows
the current settings.

\b
To enable completion, add the line for your shell to its startup file:
  bash  eval "$(_DEVICEFIX_COMPLETE=bash_source devicefix)"
  zsh   eval "$(_DEVICEFIX_COMPLETE=zsh_source devicefix)"
  fish  _DEVICEFIX_COMPLETE=fish_source devicefix | source
"""


class Program(click.Group):
    """A group of commands that ends in one line on Ctrl-C, and never with a traceback."""

    def list_commands(self, _ctx: click.Context) -> list[str]:
        """Return the names of the commands."""
        return list(COMMANDS)

    def get_command(self, _ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return the command with a name, None if there is none."""
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = getattr(import_module(f"devicefix.cli.{cmd_name}"), cmd_name)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command that the first argument names, or suggest one with a similar name."""
        name = args[0]
        if name not in COMMANDS and not name.startswith("-") and not ctx.resilient_parsing:
            ctx.fail(f"unknown command {name!r}{nearest(name, COMMANDS)}")
        return super().resolve_command(ctx, args)

    def make_context(self, *args: Any, **options: Any) -> click.Context:
        """Return the context of a command line."""
        with _printable_errors():
            return super().make_context(*args, **options)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command, and turn every error into a message and an exit status."""
        if ctx.color is None:
            ctx.color = colour_of_environment()
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, TextIOWrapper):  # characters outside the terminal's encoding
                stream.reconfigure(errors="backslashreplace")
        from devicefix.files import signals

        try:
            with _printable_errors(), signals.catching():
                return super().invoke(ctx)
        except KeyboardInterrupt as interrupt:
            click.echo(f"Interrupted. {str(interrupt) or written()}", err=True)
            ctx.exit(INTERRUPTED)
        except (click.ClickException, click.exceptions.Exit, click.Abort):
            raise
        except ConfigError as error:
            raise CommandError(str(error)) from None
        except Exception as error:
            if isinstance(error, OSError) and error.errno == errno.EPIPE:
                raise  # click ends the program quietly
            raise _last_error(error) from None


def _last_error(error: Exception) -> CommandError:
    """Return the error that ends the program: what the system refuses, or an internal error."""
    if isinstance(error, OSError) and error.errno == errno.ENOSPC:
        _discard_output()
        return CommandError(str(error.strerror))
    if isinstance(error, OSError) and error.errno == errno.ENAMETOOLONG:
        return os_error(error.filename, error)
    from devicefix.runner.errors import internal_error

    return CommandError(internal_error(error))


@contextmanager
def _printable_errors() -> Iterator[None]:
    """Escape what errors quote of a command line: a shell may have put the names of files there."""
    try:
        yield
    except click.UsageError as error:
        if error.message.isprintable() or isinstance(error, _HELP):
            raise
        raise click.UsageError(printable(error.format_message()), error.ctx) from None


def _discard_output() -> None:
    """Drop what the standard output still holds: at exit, Python would fail to write it again."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@click.group(cls=Program, epilog=EPILOG, context_settings={"help_option_names": ["--help", "-h"]})
@click.version_option(__version__, prog_name="devicefix", message="%(prog)s %(version)s")
@color_option
def main() -> None:
    """Find code tied to CUDA in PyTorch programs, and rewrite it to also run without CUDA."""
