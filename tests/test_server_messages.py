"""What the language server does with messages that no editor sends."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

pytestmark = pytest.mark.needs("pygls")


def framed(content: object) -> bytes:
    """Return a message with its header."""
    data = content if isinstance(content, bytes) else json.dumps(content).encode()
    return b"Content-Length: %d\r\n\r\n" % len(data) + data


def called(number: int | None, method: str, params: object) -> bytes:
    """Return a request with a number, or a notification without one."""
    message = {"jsonrpc": "2.0", "method": method, "params": params}
    return framed(message if number is None else {**message, "id": number})


INITIALIZE = called(1, "initialize", {"processId": None, "rootUri": None, "capabilities": {}})


def opened(uri: str) -> bytes:
    """Return the notification that a document is opened."""
    document = {"uri": uri, "languageId": "python", "version": 1, "text": "import torch\nx.cuda()\n"}
    return called(None, "textDocument/didOpen", {"textDocument": document})


def served(data: bytes) -> subprocess.CompletedProcess[bytes]:
    """Run the server with an input."""
    command = [sys.executable, "-m", "devicefix", "server"]
    return subprocess.run(command, input=data, capture_output=True, timeout=60, check=False)


def test_no_message_ends_the_server() -> None:
    place = {"line": 2**40, "character": -1}
    change = {
        "range": {"start": {"line": 9**5, "character": 5}, "end": {"line": 1, "character": 3}},
        "text": "x",
    }
    versioned = {"uri": "file:///nowhere/a.py", "version": 2}
    odd = [
        opened("file:///a%00b.py"),
        opened("file:///nowhere/a.py"),
        *map(framed, (b'{"jsonrpc": "2.0", ', b"\xff\xfe", [], None, {}, 5)),
        called(None, "textDocument/didChange", {"textDocument": versioned, "contentChanges": [change]}),
        called(None, "textDocument/didChange", {"textDocument": 5}),
        called(None, "no/such", {}),
        called(7, "no/such", {}),
        called(8, "textDocument/hover", {"textDocument": versioned, "position": place}),
    ]
    done = served(INITIALIZE + b"".join(odd) + called(99, "shutdown", None) + called(None, "exit", None))
    assert done.returncode == 0
    assert b'"id": 99, "jsonrpc": "2.0", "result": null' in done.stdout
    logged = done.stderr.decode().splitlines()
    assert all(line.startswith("devicefix: ") for line in logged), logged
    assert not any(word in done.stderr.decode() for word in ("Traceback", "internal error"))


@pytest.mark.parametrize("size", [2**40, 10**30])
def test_an_absurd_size_of_a_message_is_an_error(size: int) -> None:
    done = served(INITIALIZE + b"Content-Length: %d\r\n\r\n{}" % size)
    assert (done.returncode, done.stderr.decode()) == (
        2,
        f"Error: a message of {size} bytes is too large; this is no input for a language server\n",
    )
