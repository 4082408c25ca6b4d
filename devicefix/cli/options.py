"""The options that commands share, and the settings that result from them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from devicefix.config import load, values
from devicefix.config.printable import printable
from devicefix.config.resolver import Nearest
from devicefix.config.settings import KEYS, Settings
from devicefix.config.toml import TomlError, parse
from devicefix.config.values import Origin
from devicefix.rules import known_codes

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

STDIN = Path("-")
FILE = click.Path(dir_okay=False, path_type=Path)
COUNT = click.IntRange(min=1)
COUNT.name = "number"  # for the message about what is none

Command = TypeVar("Command", bound=Callable[..., Any])


def _reading(read: Callable[[Any, Origin], Any]) -> Callable[[click.Context, click.Parameter, Any], Any]:
    """Return a callback that reads an option's value as the configuration would; paths start here."""

    def callback(_ctx: click.Context, _param: click.Parameter, given: Any) -> Any:
        try:
            return read(given, Origin(Path(), known_codes, trusted=True)) if given else given
        except ValueError as error:
            raise click.BadParameter(str(error)) from None

    return callback


def _read_patterns(words: Iterable[str], origin: Origin) -> Any:
    parts = [part for word in words for part in word.split(",") if part]
    return values.KINDS["patterns"].read(parts, origin)


def complete_codes(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the completions of the last code in a list of codes."""
    from click.shell_completion import CompletionItem

    from devicefix.rules.registry import RULES

    *before, last = incomplete.split(",")
    rules = (RULES[code] for code in sorted(RULES) if code.startswith(last.upper()))
    return [CompletionItem(",".join([*before, rule.code]), help=rule.summary) for rule in rules]


# The arguments for `click.option` that suit each kind of value.
_OPTIONS: dict[str, dict[str, Any]] = {
    "codes": {
        "multiple": True,
        "metavar": "CODES",
        "callback": _reading(values.read_codes),
        "shell_complete": complete_codes,
    },
    "count": {"type": COUNT},
    "file": {"type": FILE},
    "flag": {"is_flag": True, "default": None},
    "folder": {"type": click.Path(file_okay=False, path_type=Path)},
    "format": {"type": click.Choice(values.FORMATS)},
    "patterns": {"multiple": True, "metavar": "GLOB", "callback": _reading(_read_patterns)},
    "per-file": {"multiple": True, "metavar": "GLOB:CODE", "callback": _reading(values.read_pairs)},
    "size": {"metavar": "SIZE", "callback": _reading(values.KINDS["size"].read)},
    "switch": {"default": None},
    "target": {"type": click.Choice(values.TARGETS)},
    "version": {"metavar": "X.Y", "callback": _reading(values.KINDS["version"].read)},
}


def option(name: str) -> Callable[[Command], Command]:
    """Return the option for a key of the configuration."""
    key = KEYS[name]
    spelled = f"--{name}/--no-{name}" if key.kind == "switch" else f"--{name}"
    short = [key.short] if key.short else []
    return click.option(spelled, *short, help=key.summary, envvar=key.variable, **_OPTIONS[key.kind])


def together(*options: str | Callable[[Command], Command]) -> Callable[[Command], Command]:
    """Return a decorator that adds options to a command, in the order in which its help lists them.

    Args:
        options: the options; the name of a key stands for its option.
    """

    def add(command: Command) -> Command:
        for each in reversed(options):
            command = (option(each) if isinstance(each, str) else each)(command)
        return command

    return add


rule_options = together(
    "select", "extend-select", "ignore", "fixable", "extend-fixable", "unfixable", "per-file-ignores",
    "extend-per-file-ignores", "exclude", "extend-exclude", "max-file-size",
    click.option("--ignore-noqa", is_flag=True, default=None, help="Ignore all `# noqa` comments."),
    "force-exclude", "respect-gitignore",
    click.option(
        "--config",
        "configs",
        multiple=True,
        metavar="FILE|KEY=VALUE",
        help="A configuration file to use for all files, or a TOML `KEY = VALUE` pair that overrides a"
        " setting.",
    ),
    click.option("--isolated", is_flag=True, help="Ignore all configuration files."),
)  # fmt: skip
unsafe_option = option("unsafe-fixes")
baseline_option = option("baseline")
tolerance_option = click.option(
    "--tolerance",
    type=click.FloatRange(min=0),
    default=1e-5,
    show_default=True,
    help="The largest relative difference allowed between compared numbers.",
)
text_or_json = click.option(
    "--output-format",
    "report_format",  # not the key `output-format`, which is for findings
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="The output format.",
)


def _set_colour(ctx: click.Context, _param: click.Parameter, value: str | None) -> None:
    if value is not None:
        ctx.color = {"always": True, "never": False}.get(value, colour_of_environment())


# It overrides NO_COLOR and FORCE_COLOR in the environment.
color_option = click.option(
    "--color",
    type=click.Choice(["auto", "always", "never"]),
    callback=_set_colour,
    expose_value=False,
    help="When to use colors. [default: auto, which respects NO_COLOR and FORCE_COLOR]",
)


def colour_of_environment() -> bool | None:
    """Return the choice of NO_COLOR (no-color.org) or FORCE_COLOR (force-color.org), None without them."""
    if os.environ.get("NO_COLOR"):
        return False
    return True if os.environ.get("FORCE_COLOR") else None


settings_options = together(
    rule_options,
    "config-files", "environment", "docs", "target", "torch-version", "cache-dir",
    click.option("--no-cache", "-n", is_flag=True, default=None, help="Do not read or write the cache."),
    "jobs", "verbose", "quiet",
)  # fmt: skip
# The arguments of every command that checks files.
common_options = together(
    click.argument(
        "paths",
        nargs=-1,
        type=click.Path(exists=True, allow_dash=True, path_type=Path),
        callback=lambda _ctx, _param, given: given or (Path(),),
    ),
    settings_options,
    click.option("--stdin-filename", metavar="FILE", help="The file name to use for standard input."),
    click.option("--exit-zero", "-e", is_flag=True, help="Exit with status 0 even if there are findings."),
    color_option,
)


def resolver_for(paths: Iterable[Path], stdin_filename: str | None, given: Mapping[str, Any]) -> Nearest:
    """Return the settings of a run: the command line's, else the configuration's, else the defaults.

    Args:
        paths: the paths of the run. Its own settings are those of the folder that holds them all.
        stdin_filename: the file name of the standard input.
        given: the options by name; those that are None or () are not given.

    Raises:
        ConfigError: the configuration is invalid.
        UsageError: there are several configuration files.
    """
    source = Source.of(given)
    start = Path(stdin_filename).parent if stdin_filename else common_folder(paths)
    resolver = Nearest(source.settings, start, source.find_in)
    resolver.root.checked()
    if resolver.root.verbose:
        click.echo(f"configuration: {printable(str(resolver.file or 'none'))}", err=True)
    return resolver


@dataclass(frozen=True, slots=True)
class Source:
    """The sources of the settings besides the nearest configuration.

    Attributes:
        file: the configuration of all files; None for the nearest of each.
        isolated: use no configuration file.
        values: values that override those of configurations, by the names of `Settings`.
        options: the command line's options, which override both.
        cached: whether there is a cache.
    """

    file: Path | None
    isolated: bool
    values: Mapping[str, Any]
    options: Mapping[str, Any]
    cached: bool

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Source:
        """Read the values of `--config` and the other options; see `resolver_for`."""
        file: Path | None = None
        values: dict[str, Any] = {}
        for text in given["configs"]:
            if "=" in text and not os.path.exists(text):
                values |= _inline(text)
            elif file is not None:
                raise click.UsageError(f"--config accepts only one file, but was given {file} and {text}")
            else:
                file = Path(text)
                if not file.exists() or file.is_dir():
                    wrong = "is a folder" if file.is_dir() else "does not exist"
                    hint = "specify a file or a TOML `KEY = VALUE` pair"
                    raise click.BadParameter(f"{text!r} {wrong}; {hint}", param_hint="--config")
        if file is not None and given["isolated"]:
            why = "--isolated ignores configuration files"
            raise click.UsageError(f"{why}, so it cannot be used with --config FILE")
        set_ = ((name, value) for name, value in given.items() if value not in (None, ()))
        options = {name: value for name, value in set_ if name not in ("configs", "isolated", "no_cache")}
        if "cache_dir" in options:  # a link that the user names is followed; the cache itself follows none
            options["cache_dir"] = Path(os.path.realpath(options["cache_dir"]))
        return cls(file, given["isolated"], values, options, not given.get("no_cache", True))

    def find_in(self, folder: Path) -> Path | None:
        """Return the configuration for a folder, to be used for the folders below it as well."""
        if self.file is not None or self.isolated:
            return self.file
        return load.find_in(folder)

    def settings(self, file: Path | None) -> Settings:
        """Return the settings that a configuration makes together with the options.

        Raises:
            ConfigError: the configuration is invalid.
        """
        configured = replace(load.load(file, known_codes), **self.values)
        settings = load.combined(configured, self.options)
        given = (*self.options.get("select", ()), *self.options.get("extend_select", ()))
        if values.NEUTRAL not in given:  # else they are asked of the run, and other folders need no target
            settings = settings.checked()
        # The null device is a configuration, too, but nothing is written beside it.
        beside = file.parent if file and file.is_file() else Path()
        cache = (settings.cache_dir or beside / ".devicefix_cache") if self.cached else None
        return replace(settings, cache_dir=cache)


def _inline(text: str) -> dict[str, Any]:
    """Return the values of a TOML `KEY = VALUE`, by the names of `Settings`."""
    try:
        values = load.read_table(parse(text.encode())[1], Origin(Path(), known_codes, trusted=True))
    except TomlError as problem:
        wrong = f"{text!r} is neither a file nor valid TOML: {problem}"
        raise click.BadParameter(wrong, param_hint="--config") from None
    except load.KeyProblem as problem:
        subject = "the configuration " if problem.unknown else ""
        raise click.BadParameter(f"{subject}{problem}", param_hint="--config") from None
    if "extend" in values:
        advice = "`extend` cannot be set here; use --config FILE instead"
        raise click.BadParameter(advice, param_hint="--config")
    return values


def common_folder(paths: Iterable[Path]) -> Path:
    """Return the deepest folder that contains all paths, or the current one if there is none."""
    folders = [path if path.is_dir() else path.parent for path in paths if path != STDIN]
    try:
        return Path(os.path.commonpath([folder.absolute() for folder in folders]))
    except ValueError:  # no folders, or folders on several drives
        return Path()
