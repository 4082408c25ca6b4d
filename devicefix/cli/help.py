"""The help of commands with many options: those that people use first, and by group, all of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

_GROUPS = {
    "Rule selection": (
        "select", "extend-select", "ignore", "fixable", "extend-fixable", "unfixable", "per-file-ignores",
        "extend-per-file-ignores", "ignore-noqa", "target", "torch-version",
    ),
    "File selection": (
        "exclude", "extend-exclude", "force-exclude", "respect-gitignore", "config-files",
        "environment", "docs", "max-file-size", "stdin-filename",
    ),
    "Miscellaneous": (
        "config", "isolated", "cache-dir", "no-cache", "jobs", "executor", "verbose", "quiet", "color",
        "help", "help-all",
    ),
}  # fmt: skip
_OTHERS = "Options"
_SHOWS_ALL = "devicefix.shows_all_options"
GIVEN = "devicefix.given"  # the key of the words behind the command's name in `Context.meta`
_GROUP_OF = {f"--{name}": group for group, names in _GROUPS.items() for name in names}


def _show_all(ctx: click.Context, _param: click.Parameter, value: bool) -> None:
    if value:
        ctx.meta[_SHOWS_ALL] = True
        click.echo(ctx.get_help(), color=ctx.color)
        ctx.exit()


class GroupedCommand(click.Command):
    """A command with two kinds of help.

    Args:
        first: the options, without `--`, that `--help` shows in this order; `--help-all` shows all by group.
        settings: the arguments of `click.Command`.
    """

    def __init__(self, *, first: Sequence[str], **settings: Any) -> None:
        super().__init__(**settings)
        self.first = tuple(
            f"{'-' if len(name) == 1 else '--'}{name}" for name in (*first, "help", "help-all")
        )
        self.params.append(
            click.Option(
                ["--help-all"],
                is_flag=True,
                is_eager=True,
                expose_value=False,
                callback=_show_all,
                help="Show all options.",
            )
        )

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the command line; what follows a program are the options of the program."""
        ctx.meta[GIVEN] = [*args]
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            if ctx.allow_interspersed_args:
                raise
            advice = f"{error.format_message()} Put the options of the program after SCRIPT."
            raise click.UsageError(advice, ctx) from None

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the first options, or all of them; those of no group come first."""
        options = [each for each in self.get_params(ctx) if isinstance(each, click.Option)]
        by_name = {name: option for option in options for name in option.opts}
        sections: dict[str, list[tuple[str, str]]] = {group: [] for group in (_OTHERS, *_GROUPS)}
        is_short = _SHOWS_ALL not in ctx.meta
        for option in [by_name[name] for name in self.first] if is_short else options:
            group = next((_GROUP_OF[name] for name in option.opts if name in _GROUP_OF), _OTHERS)
            record = option.get_help_record(ctx)
            if record is not None:
                sections[_OTHERS if is_short else group].append(record)
        for group, records in sections.items():
            if records:
                with formatter.section(group):
                    formatter.write_dl(records)
