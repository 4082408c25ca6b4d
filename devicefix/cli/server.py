"""`devicefix server`."""

from __future__ import annotations

import click

from devicefix.cli.options import Trouble


@click.command(short_help="Serve an editor, by the language server protocol.")
def server() -> None:
    """Serve an editor by the language server protocol, over the standard input and output.

    Editors start it themselves; docs/editors.md says how to set them up.
    """
    try:
        from devicefix.server.app import serve
    except ModuleNotFoundError as problem:
        if (problem.name or "").startswith("devicefix"):
            raise
        raise Trouble(f"server needs {problem.name}: pip install 'devicefix[server]'") from None
    serve()
