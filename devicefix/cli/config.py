"""`devicefix config`."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from devicefix.cli.options import (
    baseline_option,
    combined,
    common_folder,
    settings_options,
    text_or_json,
    unsafe_option,
)
from devicefix.cli.rules import show_markdown
from devicefix.config import load
from devicefix.config.load import Document
from devicefix.config.printable import printable, printable_json
from devicefix.config.settings import KEYS, Key, Selection, Settings
from devicefix.config.values import Exclusion, PerFileIgnores, nearest

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

_ADDING = ("extend-exclude", "extend-per-file-ignores")


@dataclass(frozen=True, slots=True)
class Setting:
    """A setting in force.

    Attributes:
        key: the name of the key.
        value: its value.
        origin: `file`, an option, an environment variable, or `default`.
        file: the configuration file, if that is the origin.
        line: the line in the file, if known.
    """

    key: str
    value: Any
    origin: str
    file: str | None = None
    line: int | None = None

    @property
    def where(self) -> str:
        """The origin as text."""
        place = f"{self.file}:{self.line}" if self.line else self.file
        return self.origin if place is None else printable(place)


def _complete(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    from click.shell_completion import CompletionItem

    return [
        CompletionItem(key.name, help=key.summary) for key in KEYS.values() if key.name.startswith(incomplete)
    ]


@click.command(short_help="Show the settings in force, or explain one.")
@click.argument("key", required=False, shell_complete=_complete)
@click.option(
    "--path",
    "start",
    type=click.Path(exists=True, path_type=Path),
    default=".",
    help="The file or folder whose settings to show. [default: the current folder]",
)
@text_or_json
@settings_options
@unsafe_option
@baseline_option
@click.pass_context
def config(
    ctx: click.Context,
    /,
    key: str | None,
    start: Path,
    report_format: str,
    config_file: Path | None,
    **given: Any,
) -> None:
    """Show the settings in force and their origins, or explain KEY.

    Accepts the options of the other commands, and shows the settings that result from them.
    """
    if key is not None and key not in KEYS:
        hint = nearest(key, KEYS, "; `devicefix config` lists all keys")
        raise click.BadParameter(f"unknown key {key!r}{hint}", param_hint="KEY")
    file = config_file or load.find(common_folder([start]))
    document = load.read(file) if file else None
    combined(document, dict(given))  # raises an error if a value is invalid
    settings = [setting for setting in in_force(ctx, document) if key in (None, setting.key)]
    if report_format == "json":
        click.echo(json.dumps(_as_json(key, settings), indent=2))
    elif key is not None:
        show_markdown(page(KEYS[key], settings))
    else:
        click.echo(f"# configuration: {printable(str(file or 'none'))}")
        lines = [f"{setting.key} = {toml(setting.value)}" for setting in settings]
        width = min(max(map(len, lines)), 60)
        for line, setting in zip(lines, settings, strict=True):
            click.echo(f"{line:{width}}  # {click.style(setting.where, dim=setting.origin == 'default')}")


def in_force(ctx: click.Context, document: Document | None) -> Iterator[Setting]:
    """Yield the settings; a key that the command line extends comes twice."""
    table = document.table if document else {}
    replaced = Selection._fields if ctx.params["select"] else ()
    for key in KEYS.values():
        given = ctx.params.get(key.field)
        if given is None and key.variable:  # the command may lack the option
            given = os.environ.get(key.variable)
        option = _plain(given) if given not in (None, (), "") else None
        if key.field == "cache_dir" and ctx.params["no_cache"]:
            yield Setting(key.name, None, "--no-cache")
            continue
        adds = key.name in _ADDING or (key.field in Selection._fields and not replaced)
        in_file = key.name in table and key.field not in replaced and (option is None or adds)
        if in_file and document:
            yield Setting(key.name, table[key.name], "file", str(document.file), document.line(key.name))
        if option is not None:
            yield Setting(key.name, option, _origin(ctx, key, option))
        elif not in_file:
            default = {} if key.type.startswith("dict") else _plain(getattr(Settings(), key.field))
            yield Setting(key.name, default, "default")


def _origin(ctx: click.Context, key: Key, value: Any) -> str:
    if key.variable and ctx.get_parameter_source(key.field) is not ParameterSource.COMMANDLINE:
        return f"${key.variable}"
    return f"--no-{key.name}" if value is False else f"--{key.name}"


def _plain(value: Any) -> Any:
    """Return a value of `Settings` as a configuration holds it."""
    if isinstance(value, Path):
        return str(value)
    if not isinstance(value, tuple):
        return value
    if value and all(isinstance(item, PerFileIgnores) for item in value):
        return {item.pattern: list(item.codes) for item in value}
    if value and all(isinstance(item, int) for item in value):
        return ".".join(map(str, value))
    return [item.pattern if isinstance(item, Exclusion) else item for item in value]


def toml(value: Any) -> str:
    """Return a value as TOML, or `<none>`."""
    if value is None:
        return "<none>"
    if isinstance(value, dict):
        return (
            f"{{ {', '.join(f'{toml(key)} = {toml(item)}' for key, item in value.items())} }}"
            if value
            else "{}"
        )
    return printable_json(json.dumps(value, ensure_ascii=False))


def page(key: Key, settings: list[Setting]) -> str:
    """Return the page of a key, as Markdown."""
    lines = "".join(f"- `{toml(setting.value)}`, from: {setting.where}\n" for setting in settings)
    details = f"\n{key.details}\n" if key.details else ""
    return (
        f"# {key.name}\n\n{key.summary}\n{details}\n"
        f"- Type: `{key.type}`\n- Default: `{key.default}`\n\n"
        f"## Example\n\n```toml\n{key.example}\n```\n\n## In force\n\n{lines}"
    )


def _as_json(key: str | None, settings: list[Setting]) -> Any:
    if key is None:
        return [asdict(setting) for setting in settings]
    known = KEYS[key]
    about = {
        name: getattr(known, name) for name in ("name", "type", "default", "summary", "details", "example")
    }
    return about | {"in_force": [asdict(setting) for setting in settings]}
