"""`devicefix rules` and `devicefix explain`."""

from __future__ import annotations

import sys

import click

from devicefix.cli.options import complete_codes
from devicefix.config import nearest


@click.command()
def rules() -> None:
    """List the rules: the code, the name, and what each finds."""
    from devicefix.rules import RULES

    width = max((len(rule.name) for rule in RULES.values()), default=0)
    for code, rule in sorted(RULES.items()):
        off = "" if rule.default else " (off by default)"
        if "cuda" not in rule.targets:
            off = " (with --target accelerator)"
        click.echo(f"{click.style(code, bold=True)}  {rule.name:{width}}  {rule.summary}{off}")


@click.command()
@click.argument("code", shell_complete=complete_codes)
def explain(code: str) -> None:
    """Print the documentation of the rule with this CODE or name."""
    from inspect import cleandoc

    from devicefix.rules import RULES

    known = {name.lower(): rule for rule in RULES.values() for name in (rule.code, rule.name)}
    rule = known.get(code.lower())
    if rule is None:
        raise click.BadParameter(f"no rule has the code or name {code!r}{nearest(code.lower(), known)}")
    text = f"# {rule.name} ({rule.code})\n\n{cleandoc(rule.__doc__ or rule.summary)}\n"
    if sys.stdout.isatty():
        from rich.console import Console
        from rich.markdown import Markdown

        Console().print(Markdown(text))
    else:
        click.echo(text, nl=False)
