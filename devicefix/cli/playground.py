"""`devicefix playground`."""

from __future__ import annotations

import signal
from contextlib import suppress

import click

from devicefix.cli.errors import CommandError


@click.command(short_help="Try devicefix in a browser.")
@click.option("--port", type=click.IntRange(1024, 65535), help="The port to listen on. [default: a free one]")
def playground(port: int | None) -> None:
    """Serve a page to try devicefix in a browser on this machine.

    Paste code, or drop a notebook or a Python file on the page. It shows the findings and the rewritten code
    side by side. No other machine can open the page, and nothing is written to disk.
    """
    from devicefix.playground.serve import ADDRESS, Playground

    try:
        server = Playground(port or 0)
    except OSError as error:
        raise CommandError(
            f"cannot listen on {ADDRESS}:{port or 0}: {error.strerror or error}; choose another --port"
        ) from None
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with server, suppress(KeyboardInterrupt):
        click.echo(f"Open {server.address}\nPress Ctrl+C to stop.")
        server.serve_forever()
