"""`devicefix playground`."""

from __future__ import annotations

import signal
from contextlib import suppress

import click

from devicefix.cli.errors import CommandError


@click.command(short_help="Try devicefix in a browser.")
@click.option(
    "--port", type=click.IntRange(1024, 65535), help="The port to listen on. [default: any free port]"
)
def playground(port: int | None) -> None:
    """Serve a web page where you can try devicefix.

    Paste code, or drop a Python file or notebook, to see its findings and fixes. Only this machine can open
    the page. Your code is not saved.
    """
    from devicefix.playground.serve import ADDRESS, Playground

    try:
        server = Playground(port or 0)
    except OSError as error:
        raise CommandError(
            f"cannot listen on {ADDRESS}:{port or 0}: {error.strerror or error}; choose another --port"
        ) from None
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with suppress(KeyboardInterrupt), server:
        click.echo(f"Open {server.address}\nPress Ctrl+C to stop.")
        server.serve_forever()
