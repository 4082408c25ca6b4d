"""`devicefix rule`."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from devicefix.cli.options import complete_codes, text_or_json
from devicefix.config.values import Origin, read_codes
from devicefix.rules import known_codes

if TYPE_CHECKING:
    from devicefix.rules.base import Rule


@click.command(short_help="Explain a rule, or list all rules.")
@click.argument("name", metavar="[CODE]", required=False, shell_complete=complete_codes)
@click.option("--all", "explain_all", is_flag=True, help="Explain all rules.")
@text_or_json
def rule(name: str | None, explain_all: bool, report_format: str) -> None:
    """Explain the rule whose code or name is CODE, or list the rules whose codes start with CODE.

    Without CODE, list all rules.
    """
    from devicefix.rules.pages import as_json, page
    from devicefix.rules.registry import RULES

    if name is not None and explain_all:
        raise click.UsageError("--all cannot be used with CODE")
    rules = [RULES[code] for code in sorted(RULES)] if name is None else _named(name)
    is_one = name is not None and len(rules) == 1
    if report_format == "json":
        found = [as_json(each) for each in rules]
        click.echo(json.dumps(found[0] if is_one else found, indent=2))
    elif not is_one and not explain_all:
        _list(rules)
    else:
        show_markdown("\n".join(map(page, rules)))


def _named(name: str) -> list[type[Rule]]:
    """Return the rules with a name, a code or the beginning of one.

    Raises:
        BadParameter: there is none.
    """
    from devicefix.rules.registry import RULES

    try:
        codes = read_codes([name], Origin(Path(), known_codes))
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="CODE") from None
    return [RULES[code] for code in sorted(RULES) if code.startswith(codes)]


def _list(rules: list[type[Rule]]) -> None:
    """Print a line for each rule."""
    from devicefix.rules.registry import PLUGINS

    names = [(rule.code, rule.name) for rule in rules]
    origins = {rule.code: f" [{plugin}]" for plugin in PLUGINS for rule in plugin.rules}
    code_width, name_width = (max(map(len, words)) for words in zip(*names, strict=True))
    for rule in rules:
        note = "" if rule.default else " (off by default)"
        if "cuda" not in rule.targets:
            note = " (with --target accelerator)"
        shown = click.style(f"{rule.code:{code_width}}", bold=True)
        click.echo(f"{shown}  {rule.name:{name_width}}  {rule.summary}{note}{origins.get(rule.code, '')}")


def show_markdown(text: str) -> None:
    """Print Markdown, rendered if the output is a terminal."""
    if sys.stdout.isatty():
        from rich.console import Console
        from rich.markdown import Markdown

        Console().print(Markdown(text))
    else:
        click.echo(text, nl=False)
