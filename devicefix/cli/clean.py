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
        shown = printable_path(folder)
        try:
            gone = caches.remove(folder)
        except OSError as error:
            print_error(folder, error.strerror or str(error))
            failed = True
        else:
            what = f"Removed the cache {shown}" if gone else f"{shown}: kept, because it contains other files"
            click.echo(what, err=True)
    ctx.exit(ERROR if failed else 0)
