"""`devicefix version`."""

from __future__ import annotations

import json
import platform

import click

from devicefix.cli.options import text_or_json
from devicefix.config.version import __version__


@click.command()
@text_or_json
def version(report_format: str) -> None:
    """Show the devicefix version."""
    if report_format == "json":
        click.echo(json.dumps({"version": __version__, "python": platform.python_version()}, indent=2))
    else:
        click.echo(f"devicefix {__version__}")
