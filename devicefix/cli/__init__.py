"""Parse the arguments of each command, call the rooms below, and print the result."""

from __future__ import annotations

import errno
import sys
from importlib import import_module
from io import TextIOWrapper
from typing import Any

import click

from devicefix.cli.options import Trouble, color_option, colour_of_environment
from devicefix.config.settings import ConfigError
from devicefix.config.version import __version__

INTERRUPTED = 130

# Where each command is; it is imported when it is called.
COMMANDS = {
    "check": "devicefix.cli.check",
    "config": "devicefix.cli.config",
    "explain": "devicefix.cli.rules",
    "report": "devicefix.cli.report",
    "rewrite": "devicefix.cli.rewrite",
    "rules": "devicefix.cli.rules",
    "server": "devicefix.cli.server",
    "verify": "devicefix.cli.verify",
}

EPILOG = """\
Exit status: 0 nothing is left to do, 1 findings remain, 2 devicefix could not do its work.

Settings are read from the nearest devicefix.toml, or from [tool.devicefix] in the nearest pyproject.toml:
`devicefix config` lists them, and shows what is in force. An option on the command line takes the place of
its key.

\b
Completion, in the start-up file of the shell:
  bash  eval "$(_DEVICEFIX_COMPLETE=bash_source devicefix)"
  zsh   eval "$(_DEVICEFIX_COMPLETE=zsh_source devicefix)"
  fish  _DEVICEFIX_COMPLETE=fish_source devicefix | source
"""


class Program(click.Group):
    """A group of commands that ends quietly on Ctrl-C, and in no case with a traceback."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names of the commands."""
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of a name, None where there is none."""
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = getattr(import_module(COMMANDS[cmd_name]), cmd_name)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command that the first word names; where none has that name, say which was perhaps meant."""
        name = args[0]
        if name not in COMMANDS and not name.startswith("-") and not ctx.resilient_parsing:
            from devicefix.config.values import nearest

            ctx.fail(f"there is no command {name!r}{nearest(name, COMMANDS)}")
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command that the arguments name."""
        if ctx.color is None:
            ctx.color = colour_of_environment()
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, TextIOWrapper):  # what the terminal has no letters for
                stream.reconfigure(errors="backslashreplace")
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            ctx.exit(INTERRUPTED)
        except (click.ClickException, click.exceptions.Exit, click.Abort):
            raise
        except ConfigError as problem:
            raise Trouble(str(problem)) from None
        except Exception as problem:
            if isinstance(problem, OSError) and problem.errno == errno.EPIPE:
                raise  # who reads has seen enough; click ends the program
            if isinstance(problem, OSError) and problem.errno == errno.ENOSPC:
                raise Trouble(str(problem.strerror)) from None
            from devicefix.runner.errors import internal_error

            raise Trouble(internal_error(problem)) from None


@click.group(cls=Program, epilog=EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="devicefix")
@color_option
def main() -> None:
    """Find code tied to CUDA in PyTorch programs, and rewrite it to run on any device."""
