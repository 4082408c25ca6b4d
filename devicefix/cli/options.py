"""The options that the commands share, and the settings that come of them."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from devicefix.config import load, values
from devicefix.config.settings import KEYS, Settings
from devicefix.config.values import Kind, Origin
from devicefix.rules import known_codes

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

STDIN = Path("-")
TROUBLE = 2  # the exit status of a run that could not do its work

Command = TypeVar("Command", bound=Callable[..., Any])


class Trouble(click.ClickException):
    """An error that ends the run, told in one line."""

    exit_code = TROUBLE


def _reading(read: Callable[[Any, Origin], Any]) -> Callable[[click.Context, click.Parameter, Any], Any]:
    """Return a callback that reads an option's value as the configuration would; paths start here."""

    def callback(ctx: click.Context, param: click.Parameter, given: Any) -> Any:
        try:
            return read(given, Origin(Path(), known_codes)) if given else given
        except ValueError as problem:
            raise click.BadParameter(str(problem)) from None

    return callback


def _how(kind: Kind) -> dict[str, Any]:
    """Return the arguments for `click.option` that suit a kind of value."""
    repeated = {"multiple": True}
    found: dict[Kind, dict[str, Any]] = {
        values.CODES: {
            **repeated,
            "metavar": "CODES",
            "callback": _reading(values.read_codes),
            "shell_complete": complete_codes,
        },
        values.PER_FILE: {**repeated, "metavar": "GLOB:CODE", "callback": _reading(values.read_pairs)},
        values.PATTERNS: {**repeated, "metavar": "GLOB"},
        values.EXCLUSIONS: {
            **repeated,
            "metavar": "GLOB",
            "callback": _reading(lambda words, origin: kind.read(list(words), origin)),
        },
        values.FILE: {"type": click.Path(dir_okay=False, path_type=Path)},
        values.FOLDER_INSIDE: {"type": click.Path(file_okay=False, path_type=Path)},
        values.VERSION: {"metavar": "X.Y", "callback": _reading(kind.read)},
        values.TARGET: {"type": click.Choice(values.TARGETS)},
        values.FORMAT: {"type": click.Choice(values.FORMATS)},
        values.COUNT: {"type": click.IntRange(min=1)},
        values.FLAG: {"is_flag": True, "default": None},
        values.SWITCH: {"default": None},
    }
    return found[kind]


def _option(name: str) -> Callable[[Command], Command]:
    """Return the option for a key of the configuration."""
    key = KEYS[name]
    spelled = f"--{name}/--no-{name}" if key.kind is values.SWITCH else f"--{name}"
    short = [key.short] if key.short else []
    return click.option(spelled, *short, help=key.summary, envvar=key.variable, **_how(key.kind))


def complete_codes(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """What the codes that are being typed can become."""
    from click.shell_completion import CompletionItem

    from devicefix.rules.registry import RULES

    *before, last = incomplete.split(",")
    return [
        CompletionItem(",".join([*before, code]), help=rule.summary)
        for code, rule in sorted(RULES.items())
        if code.startswith(last.upper())
    ]


def rule_options(command: Command) -> Command:
    """The options that say which rules are on, for which files, and which of their fixes are wanted."""
    return _with(
        command,
        _option("select"),
        _option("extend-select"),
        _option("ignore"),
        _option("per-file-ignores"),
        _option("extend-per-file-ignores"),
        _option("exclude"),
        _option("extend-exclude"),
        click.option(
            "--config",
            "config_file",
            type=click.Path(exists=True, dir_okay=False, path_type=Path),
            help="Read the settings from this file, not from the nearest pyproject.toml or devicefix.toml.",
        ),
    )


def unsafe_option(command: Command) -> Command:
    """The option that lets in fixes that are not safe."""
    return _option("unsafe-fixes")(command)


def executor_option(command: Command) -> Command:
    """The option that names other machines to do the work."""

    def address(ctx: click.Context, param: click.Parameter, word: str | None) -> str | None:
        if word is not None and not re.fullmatch(r"dask://([\w.-]+|\[[\da-fA-F:.]+\]):\d+", word):
            raise click.BadParameter("must be dask://HOST:PORT, the address of a dask scheduler")
        return word

    return click.option(
        "--executor",
        metavar="dask://HOST:PORT",
        callback=address,
        help="Spread the files over the workers of this dask cluster, not over the cores of this machine.",
    )(command)


def baseline_option(command: Command) -> Command:
    """The option that names what is known already."""
    return _option("baseline")(command)


def adopting_options(command: Command) -> Command:
    """The options that help to take up devicefix where there are findings already."""
    return _with(
        command,
        baseline_option,
        click.option("--write-baseline", is_flag=True, help="Write what is found into the --baseline."),
        click.option("--add-noqa", is_flag=True, help="Silence what is found by comments in the files."),
    )


def output_options(command: Command) -> Command:
    """The options that say how to tell what was found, and where."""
    return _with(
        command,
        _option("output-format"),
        click.option(
            "--output-file",
            "-o",
            type=click.Path(dir_okay=False, allow_dash=True, path_type=Path),
            envvar="DEVICEFIX_OUTPUT_FILE",
            help="Write what was found into this file.",
        ),
        click.option("--statistics", is_flag=True, help="Tell only how much each rule has found."),
    )


def color_option(command: Command) -> Command:
    """The option for colours, which goes before NO_COLOR and FORCE_COLOR in the environment."""

    def heed(ctx: click.Context, param: click.Parameter, word: str | None) -> None:
        if word is not None:
            ctx.color = {"always": True, "never": False}.get(word, colour_of_environment())

    return click.option(
        "--color",
        type=click.Choice(["auto", "always", "never"]),
        callback=heed,
        expose_value=False,
        help="When to use colours: by default on a terminal, unless NO_COLOR or FORCE_COLOR is set.",
    )(command)


def colour_of_environment() -> bool | None:
    """What the environment says of colours (no-color.org, force-color.org), None for nothing."""
    if os.environ.get("NO_COLOR"):
        return False
    return True if os.environ.get("FORCE_COLOR") else None


def common(command: Command) -> Command:
    """The arguments of every command that looks at files."""
    paths = click.argument(
        "paths",
        nargs=-1,
        default=(".",),
        type=click.Path(exists=True, allow_dash=True, path_type=Path),
    )
    command = _with(
        command,
        click.option("--stdin-filename", metavar="FILE", help="What to call the standard input (-)."),
        click.option("--exit-zero", "-e", is_flag=True, help="Exit with 0 also when there are findings."),
        color_option,
    )
    return paths(settings_options(command))


def settings_options(command: Command) -> Command:
    """The options that take the place of keys of the configuration."""
    command = _with(
        command,
        _option("config-files"),
        _option("docs"),
        _option("target"),
        _option("torch-version"),
        _option("cache-dir"),
        click.option("--no-cache", is_flag=True, default=None, help="Neither use nor write the cache."),
        _option("jobs"),
        _option("verbose"),
        _option("quiet"),
    )
    return rule_options(command)


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
    file = config_file or load.find(start)
    settings = combined(load.read(file) if file else None, given)
    if settings.verbose:
        click.echo(f"configuration: {file or 'none'}", err=True)
    return settings


def combined(document: load.Document | None, given: dict[str, Any]) -> Settings:
    """Return the settings of a configuration and the options; see `settings_for`."""
    settings = load.settings_of(document, known_codes) if document else Settings()
    uncached = given.pop("no_cache", True)
    options = {name: value for name, value in given.items() if value not in (None, ())}
    settings = load.with_options(settings, options)
    beside = (document.file.parent if document else Path()) / ".devicefix_cache"
    return replace(settings, cache_dir=None if uncached else settings.cache_dir or beside)


def common_folder(paths: Iterable[Path]) -> Path:
    """The nearest folder that holds all of the paths; the current one for the standard input."""
    folders = [path if path.is_dir() else path.parent for path in paths if path != STDIN]
    try:
        return Path(os.path.commonpath([folder.absolute() for folder in folders]))
    except ValueError:  # none, or on several drives
        return Path()
