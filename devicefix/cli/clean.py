"""`devicefix clean`."""

from __future__ import annotations

import os

import click

from devicefix.cli.errors import ERROR, print_error
from devicefix.config.printable import printable_path


@click.command()
@click.pass_context
def clean(ctx: click.Context) -> None:
    """Remove the caches in the current folder and its subfolders."""
    from devicefix.runner import clean as caches

    failed = False
    for folder in caches.find(os.curdir):
        try:
            gone = caches.remove(folder)
        except OSError as error:
            print_error(folder, error.strerror or str(error))
            failed = True
            continue
        kept = "" if gone else ", except for files that devicefix did not write"
        click.echo(f"Removed the cache {printable_path(folder)}{kept}", err=True)
    ctx.exit(ERROR if failed else 0)
