"""`devicefix server`."""

from __future__ import annotations

import click

from devicefix.cli.errors import missing_package


@click.command(short_help="Run the language server.")
def server() -> None:
    """Run the language server on standard input and output.

    Editors start the server themselves. To set up your editor, see
    https://devicefix.github.io/devicefix/editors/.
    """
    try:
        from devicefix.server.app import Server
        from devicefix.server.protocol import serve
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("devicefix"):
            raise
        raise missing_package("server", error.name, "server") from None
    serve(Server())
