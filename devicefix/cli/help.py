"""The help of commands with many options, which are grouped as in ruff's."""

from __future__ import annotations

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
        "help",
    ),
}  # fmt: skip
_OTHERS = "Options"
_GROUP_OF = {f"--{name}": group for group, names in _GROUPS.items() for name in names}


class GroupedCommand(click.Command):
    """A command whose help lists its options by group."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options, those of no group first."""
        sections: dict[str, list[tuple[str, str]]] = {group: [] for group in (_OTHERS, *_GROUPS)}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is not None and isinstance(parameter, click.Option):
                group = next((_GROUP_OF[name] for name in parameter.opts if name in _GROUP_OF), _OTHERS)
                sections[group].append(record)
        for group, records in sections.items():
            if records:
                with formatter.section(group):
                    formatter.write_dl(records)
