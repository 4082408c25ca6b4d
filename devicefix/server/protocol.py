"""Serve an editor on the standard output, which the protocol has to itself; errors are lines of the log."""

from __future__ import annotations

import gc
import logging
import os
import sys
from io import TextIOWrapper

from pygls.lsp.server import LanguageServer

from devicefix.config.printable import printable
from devicefix.runner.pool import collect_less

GC_THRESHOLD = 500_000  # allocations; the syntax tree of a large file does not trigger a collection
_LONGEST_LOG = 1000  # characters of a line in the log


class OneLine(logging.Formatter):
    """Format each entry of the log as one line, whatever is in it, and without a traceback."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        return f"devicefix: {printable(record.getMessage())[:_LONGEST_LOG]}"


def serve(server: LanguageServer) -> None:
    """Serve an editor on the standard input and output, until the editor exits."""
    log = logging.StreamHandler(sys.stderr)
    log.setFormatter(OneLine())
    logging.basicConfig(handlers=[log], level=logging.WARNING)
    logging.getLogger("pygls").setLevel(logging.CRITICAL)  # what matters is given to `report_server_error`
    # Only the protocol may use the standard output: everything else that is printed goes to the log.
    output = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(line_buffering=True)
    collect_less()
    gc.set_threshold(GC_THRESHOLD, 50, 1000)
    server.start_io(sys.stdin.buffer, output)
