"""`devicefix rules` and `devicefix explain`."""

from __future__ import annotations

import sys

import click

from devicefix.cli.options import complete_codes
from devicefix.config.values import nearest


@click.command()
def rules() -> None:
    """List all rules."""
    from devicefix.rules.registry import PLUGINS, RULES

    origins = {rule.code: f" [{plugin}]" for plugin in PLUGINS for rule in plugin.rules}
    code_width, name_width = max(map(len, RULES)), max(len(rule.name) for rule in RULES.values())
    for code, rule in sorted(RULES.items()):
        note = "" if rule.default else " (off by default)"
        if "cuda" not in rule.targets:
            note = " (with --target accelerator)"
        shown = click.style(f"{code:{code_width}}", bold=True)
        click.echo(f"{shown}  {rule.name:{name_width}}  {rule.summary}{note}{origins.get(code, '')}")


@click.command()
@click.argument("code", shell_complete=complete_codes)
def explain(code: str) -> None:
    """Explain the rule with this CODE or name."""
    from devicefix.rules.pages import page
    from devicefix.rules.registry import RULES

    known = {name.lower(): rule for rule in RULES.values() for name in (rule.code, rule.name)}
    rule = known.get(code.lower())
    if rule is None:
        raise click.BadParameter(f"no rule has the code or name {code!r}{nearest(code.lower(), known)}")
    show_markdown(page(rule))


def show_markdown(text: str) -> None:
    """Print Markdown, rendered if the output is a terminal."""
    if sys.stdout.isatty():
        from rich.console import Console
        from rich.markdown import Markdown

        Console().print(Markdown(text))
    else:
        click.echo(text, nl=False)
