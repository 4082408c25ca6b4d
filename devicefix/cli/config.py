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

from devicefix.cli.help import GroupedCommand
from devicefix.cli.options import (
    Source,
    baseline_option,
    common_folder,
    settings_options,
    text_or_json,
    unsafe_option,
)
from devicefix.cli.rule import show_markdown
from devicefix.config import load
from devicefix.config.load import Document
from devicefix.config.printable import printable, printable_json
from devicefix.config.resolver import Nearest
from devicefix.config.settings import KEYS, Key, Settings
from devicefix.config.values import Exclusion, PerFileIgnores, nearest
from devicefix.rules import known_codes

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

# The keys to which several sources add, and for some of them the key with which a source starts afresh.
_REPLACED_BY = {
    **dict.fromkeys(("select", "extend-select", "ignore"), "select"),
    **dict.fromkeys(("fixable", "extend-fixable", "unfixable"), "fixable"),
}
_ADDING = {*_REPLACED_BY, "extend-exclude", "extend-per-file-ignores"}


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

    found = (key for key in KEYS.values() if key.name.startswith(incomplete))
    return [CompletionItem(key.name, help=key.summary) for key in found]


@click.command(
    cls=GroupedCommand,
    first=("path", "output-format", "config", "isolated"),
    short_help="Show the current settings, or explain one.",
)
@click.argument("key", required=False, shell_complete=_complete)
@click.option(
    "--path",
    "start",
    type=click.Path(exists=True, path_type=Path),
    default=".",
    help="Show the settings for this file or folder. [default: the current folder]",
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
    **given: Any,
) -> None:
    """Show the current settings and where each one comes from, or explain KEY.

    To see how options such as --select change the settings, pass them to this command.
    """
    if key is not None and key not in KEYS:
        hint = nearest(key, KEYS, "; `devicefix config` lists all keys")
        raise click.BadParameter(f"unknown key {key!r}{hint}", param_hint="KEY")
    source = Source.of(given)
    file = Nearest(source.settings, common_folder([start]), source.find_in).file
    settings = [setting for setting in _in_force(ctx, file, source) if key in (None, setting.key)]
    if report_format == "json":
        click.echo(json.dumps(_as_json(key, settings), indent=2))
    elif key is not None:
        show_markdown(page(KEYS[key], settings))
    else:
        _show(file, settings)


def _show(file: Path | None, settings: list[Setting]) -> None:
    """Print settings with their origins."""
    click.echo(f"# configuration: {printable(str(file or 'none'))}")
    lines = [f"{setting.key} = {toml(setting.value)}" for setting in settings]
    width = min(max(map(len, lines)), 60)
    for line, setting in zip(lines, settings, strict=True):
        click.echo(f"{line:{width}}  # {click.style(setting.where, dim=setting.origin == 'default')}")


def _in_force(ctx: click.Context, file: Path | None, source: Source) -> Iterator[Setting]:
    """Yield the settings; a key to which several sources add comes once for each.

    Args:
        ctx: the command, which may lack some of the options.
        file: the configuration, if there is one.
        source: the other sources of the settings.
    """
    levels = _levels(ctx, file, source)
    for key in KEYS.values():
        if key.field == "cache_dir" and not source.cached:
            yield Setting(key.name, None, "--no-cache")
            continue
        found = []
        for level in levels:
            if key.name in level:
                found.append(level[key.name])
            if (found and key.name not in _ADDING) or _REPLACED_BY.get(key.name) in level:
                break
        if not found:
            default = {} if key.type.startswith("dict") else _plain(getattr(Settings(), key.field))
            found = [Setting(key.name, default, "default")]
        yield from reversed(found)


def _levels(ctx: click.Context, file: Path | None, source: Source) -> list[dict[str, Setting]]:
    """Return the settings of each source, those first that override or extend the others."""
    options = {}
    for key in KEYS.values():
        given = ctx.params.get(key.field)
        if given is None and key.variable:  # the command may lack the option
            given = os.environ.get(key.variable)
        if given not in (None, (), ""):
            value = _plain(given)
            options[key.name] = Setting(key.name, value, _origin(ctx, key, value))
    files = load.chain(file, known_codes)
    documents = [{name: _in_file(document, name) for name in document.table} for document, _ in files]
    if source.values:
        given = ((key.name, source.values[key.field]) for key in KEYS.values() if key.field in source.values)
        inline = {name: Setting(name, _plain(value), "--config") for name, value in given}
        documents[:1] = [{**(documents[0] if documents else {}), **inline}]
    return [options, *documents]


def _in_file(document: Document, name: str) -> Setting:
    return Setting(name, document.table[name], "file", str(document.file), document.line(name))


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
        return {item.pattern: [code or "ALL" for code in item.codes] for item in value}
    if value and all(isinstance(item, int) for item in value):
        return ".".join(map(str, value))
    return [item.pattern if isinstance(item, Exclusion) else item or "ALL" for item in value]


def toml(value: Any) -> str:
    """Return a value as TOML, or `<none>`."""
    if value is None:
        return "<none>"
    if isinstance(value, dict):
        items = ", ".join(f"{toml(key)} = {toml(item)}" for key, item in value.items())
        return f"{{ {items} }}" if items else "{}"
    return printable_json(json.dumps(value, ensure_ascii=False))


def page(key: Key, settings: list[Setting]) -> str:
    """Return the page of a key, as Markdown."""
    lines = "".join(f"- `{toml(setting.value)}` (source: {setting.where})\n" for setting in settings)
    details = f"\n{key.details}\n" if key.details else ""
    return (
        f"# {key.name}\n\n{key.summary}\n{details}\n"
        f"- Type: `{key.type}`\n- Default: `{key.default}`\n\n"
        f"## Example\n\n```toml\n{key.example}\n```\n\n## Current value\n\n{lines}"
    )


def _as_json(key: str | None, settings: list[Setting]) -> Any:
    if key is None:
        return [asdict(setting) for setting in settings]
    known = KEYS[key]
    names = ("name", "type", "default", "summary", "details", "example")
    about = {name: getattr(known, name) for name in names}
    return about | {"in_force": [asdict(setting) for setting in settings]}
