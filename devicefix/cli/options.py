"""The options that the commands share, and the settings that come of them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from devicefix import config
from devicefix.config import Settings

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

STDIN = Path("-")
TROUBLE = 2  # the exit status of a run that could not do its work

Command = TypeVar("Command", bound=Callable[..., Any])


class Trouble(click.ClickException):
    """An error that ends the run, told in one line."""

    exit_code = TROUBLE


def _codes(ctx: click.Context, param: click.Parameter, words: tuple[str, ...]) -> tuple[str, ...]:
    """The codes in what was typed, each of which some rule has."""
    try:
        return config.codes(words)
    except ValueError as problem:
        raise click.BadParameter(str(problem)) from None


def _version(ctx: click.Context, param: click.Parameter, word: str | None) -> tuple[int, int] | None:
    """The version that was typed."""
    try:
        return config.version(word) if word else None
    except ValueError as problem:
        raise click.BadParameter(str(problem)) from None


def complete_codes(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """What the codes that are being typed can become."""
    from click.shell_completion import CompletionItem

    from devicefix.rules import RULES

    *before, last = incomplete.split(",")
    return [
        CompletionItem(",".join([*before, code]), help=rule.summary)
        for code, rule in sorted(RULES.items())
        if code.startswith(last.upper())
    ]


def rule_options(command: Command) -> Command:
    """The options that say which rules are on, for which files, and which of their fixes are wanted."""
    codes: dict[str, Any] = {
        "multiple": True,
        "metavar": "CODES",
        "callback": _codes,
        "shell_complete": complete_codes,
    }
    return _with(
        command,
        click.option("--select", **codes, help="Only the rules with these codes: DF101,DF2 and so on."),
        click.option("--ignore", **codes, help="Not the rules with these codes: DF101,DF2 and so on."),
        click.option(
            "--exclude", multiple=True, metavar="GLOB", help="Leave files out; a pattern as in .gitignore."
        ),
        click.option(
            "--config",
            "config_file",
            type=click.Path(exists=True, dir_okay=False, path_type=Path),
            help="Read the settings from this file, not from the nearest pyproject.toml.",
        ),
    )


def unsafe_option(command: Command) -> Command:
    """The option that lets in fixes that are not safe."""
    return _with(
        command,
        click.option(
            "--unsafe-fixes/--no-unsafe-fixes", default=None, help="Apply also what may change a run on CUDA."
        ),
    )


def common(command: Command) -> Command:
    """The arguments of every command that looks at files."""
    command = _with(
        command,
        click.option(
            "--config-files/--no-config-files",
            default=None,
            help="Look at YAML, JSON, TOML and shell scripts in folders, too; they are never changed.",
        ),
        click.option(
            "--target",
            type=click.Choice(config.TARGETS),
            help="What to run on besides the CPU: CUDA (the default), or whatever torch.accelerator finds.",
        ),
        click.option(
            "--torch-version",
            metavar="X.Y",
            callback=_version,
            help="The oldest torch that the result must run with: what --target accelerator may use.",
        ),
        click.option("--stdin-filename", metavar="FILE", help="What to call the standard input (-)."),
        click.option(
            "--cache-dir",
            type=click.Path(file_okay=False, path_type=Path),
            envvar="DEVICEFIX_CACHE_DIR",
            help="Where to keep what was found; by default .devicefix_cache beside the configuration.",
        ),
        click.option("--no-cache", is_flag=True, default=None, help="Neither use nor write the cache."),
        click.option("--jobs", "-j", type=click.IntRange(min=1), help="Processes; by default one a core."),
        click.option("--exit-zero", "-e", is_flag=True, help="Exit with 0 also when there are findings."),
        click.option("--verbose", "-v", is_flag=True, default=None, help="Tell what is looked at."),
        click.option("--quiet", "-q", is_flag=True, default=None, help="Only findings and errors."),
    )
    paths = click.argument(
        "paths",
        nargs=-1,
        default=(".",),
        type=click.Path(exists=True, allow_dash=True, path_type=Path),
    )
    return paths(rule_options(command))


def _with(command: Command, *options: Callable[[Command], Command]) -> Command:
    """A command with options, which its help lists in this order."""
    for option in reversed(options):
        command = option(command)
    return command


def settings_for(
    paths: Iterable[Path], config_file: Path | None, stdin_filename: str | None, given: dict[str, Any]
) -> Settings:
    """The settings of a run: the command line's, else the configuration's, else the default.

    Args:
        paths: what the run is about; the configuration is the one nearest to it.
        config_file: the configuration to read instead.
        stdin_filename: where the standard input belongs.
        given: the options by name; None and () are options not given.

    Raises:
        ConfigError: the configuration cannot be used.
    """
    start = Path(stdin_filename).parent if stdin_filename else common_folder(paths)
    file = config_file or config.find(start)
    settings = config.load(Settings(), file) if file else Settings()
    beside = (file.parent if file else Path()) / ".devicefix_cache"
    kept = None if given.pop("no_cache", True) else given.pop("cache_dir", None) or beside
    options = {name: value for name, value in given.items() if value not in (None, ())}
    if "exclude" in options:
        options["root"] = Path()
    options.pop("cache_dir", None)
    settings = config.checked(replace(settings, **options, cache_dir=kept))
    if settings.verbose:
        click.echo(f"configuration: {file or 'none'}", err=True)
    return settings


def common_folder(paths: Iterable[Path]) -> Path:
    """The nearest folder that holds all of the paths; the current one for the standard input."""
    folders = [path if path.is_dir() else path.parent for path in paths if path != STDIN]
    try:
        return Path(os.path.commonpath([folder.absolute() for folder in folders]))
    except ValueError:  # none, or on several drives
        return Path()
