"""The protocol's messages: those that are wrong get an error as the answer, and the server goes on."""

from __future__ import annotations

import gc
import logging
import os
import re
import sys
from io import TextIOWrapper
from typing import IO, Any, BinaryIO, cast

from lsprotocol import types
from pygls.exceptions import (
    JsonRpcException,
    JsonRpcInvalidParams,
    JsonRpcInvalidRequest,
    JsonRpcServerNotInitialized,
)
from pygls.lsp.server import LanguageServer
from pygls.protocol import LanguageServerProtocol

from devicefix.config.printable import printable
from devicefix.config.sizes import shown
from devicefix.runner.pool import collect_less

LONGEST = 128 * 2**20  # bytes of a message; a file of 16M may take six times as many in JSON
GC_THRESHOLD = 500_000  # allocations; the syntax tree of a large file does not trigger a collection
_LONGEST_HEADER = 1000  # bytes of a line
_MOST_HEADERS = 20
_LONGEST_LOG = 1000  # characters of a line in the log
_HEADER = re.compile(rb"([\w-]+):[ \t]*([^\r\n]*?)[ \t]*\r?\n")


class Protocol(LanguageServerProtocol):
    """The protocol, which answers wrong requests."""

    def structure_message(self, data: dict[str, Any]) -> Any:
        """Return the message that an object of JSON is, or the object if it is only part of one.

        Raises:
            JsonRpcException: the message is wrong.
        """
        try:
            return super().structure_message(data)
        except JsonRpcException:
            error = JsonRpcInvalidParams(f"the message {str(data.get('method', ''))!r} is not valid")
            self._refuse(data, error)
            raise error from None

    def handle_message(self, message: Any) -> None:
        """Handle a message.

        Raises:
            JsonRpcException: it is none, or comes before `initialize`.
        """
        if not hasattr(message, "jsonrpc"):
            error = JsonRpcInvalidRequest("this is not a JSON-RPC 2.0 message")
            self._refuse(message, error)
            raise error
        method = getattr(message, "method", types.INITIALIZE)
        if self._workspace is None and method not in (types.INITIALIZE, types.EXIT):
            early = JsonRpcServerNotInitialized(f"{method} was sent before {types.INITIALIZE}")
            if hasattr(message, "id"):
                self._send_response(message.id, error=early.to_response_error())
            raise early
        super().handle_message(message)

    def _refuse(self, message: Any, error: JsonRpcException) -> None:
        """Answer a message with an error if it is a request."""
        if isinstance(message, dict) and "method" in message and isinstance(message.get("id"), (int, str)):
            self._send_response(message["id"], error=error.to_response_error())


class Frames:
    """A stream of messages, each with a header that says how long it is.

    A message whose length is not known can't be skipped: there the stream ends.

    Args:
        stream: the bytes.

    Attributes:
        lost: why the stream ends before its end; empty if it does not.
    """

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self._in_header = False
        self.lost = ""

    def readline(self) -> bytes:
        """Return the header of the next message, then the empty line below it; nothing at the end."""
        if self._in_header:
            self._in_header = False
            return b"\r\n"
        length = self._length()
        if length is None:
            return b""
        self._in_header = True
        return b"Content-Length: %d\r\n" % length

    def read(self, length: int) -> bytes:
        """Return a message."""
        return self._stream.read(length)

    def _length(self) -> int | None:
        """Return the length of the next message."""
        headers: dict[bytes, bytes] = {}
        number = 0
        while (line := self._stream.readline(_LONGEST_HEADER)).strip():
            match = _HEADER.fullmatch(line)
            number += 1
            if match is None or number > _MOST_HEADERS:
                self.lost = f"{line[:40]!r} is not a message header"
                return None
            headers[match[1].lower()] = match[2]
        if not line and not headers:
            return None
        length = headers.get(b"content-length", b"")
        if not length.isdigit():
            self.lost = f"the header of a message has no valid Content-Length: {length[:40]!r}"
            return None
        if len(length) > len(str(LONGEST)) or int(length) > LONGEST:
            self.lost = f"a message is longer than {shown(LONGEST)}: Content-Length is {length[:40].decode()}"
            return None
        return int(length)


class OneLine(logging.Formatter):
    """Format each entry of the log as one line, whatever is in it, and without a traceback."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        return f"devicefix: {printable(record.getMessage())[:_LONGEST_LOG]}"


def serve(server: LanguageServer) -> str:
    """Serve an editor on the standard input and output, until the editor exits.

    Returns:
        Why the server ends before that; else nothing.
    """
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
    frames = Frames(sys.stdin.buffer)
    server.start_io(cast(BinaryIO, frames), output)
    return frames.lost
