"""`devicefix server` as a process, and messages that no editor sends: it answers the next one as always."""

from __future__ import annotations

import json
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("pygls")

URI = "file:///nowhere/a.py"
TEXT = "import torch\nx.cuda()\n"
TIMEOUT = 60


class Session:
    """A server process, and the messages that it sends."""

    def __init__(self) -> None:
        pipe = subprocess.PIPE
        command = [sys.executable, "-m", "devicefix", "server"]
        self.process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe)
        self.sent: queue.Queue[dict[str, Any] | None] = queue.Queue()
        self.log: queue.Queue[bytes] = queue.Queue()
        self.last = 0
        self.opened: list[str] = []
        for read in (self._read, self._read_log):
            threading.Thread(target=read, daemon=True).start()

    def begin(self) -> Session:
        """Begin the session as editors do."""
        self.ask("initialize", {"processId": None, "rootUri": None, "capabilities": {}})
        self.tell("initialized", {})
        return self

    def _read(self) -> None:
        assert self.process.stdout
        while header := self.process.stdout.readline():
            length = int(header.partition(b":")[2])
            while self.process.stdout.readline().strip():
                pass
            self.sent.put(json.loads(self.process.stdout.read(length)))
        self.sent.put(None)

    def _read_log(self) -> None:
        assert self.process.stderr
        for line in self.process.stderr:
            self.log.put(line)

    def write(self, data: bytes) -> None:
        assert self.process.stdin
        self.process.stdin.write(data)
        self.process.stdin.flush()

    def send(self, message: object) -> None:
        data = message if isinstance(message, bytes) else json.dumps(message).encode()
        self.write(b"Content-Length: %d\r\n\r\n%b" % (len(data), data))

    def tell(self, method: str, params: object) -> None:
        self.send({"jsonrpc": "2.0", "method": method, "params": params})

    def ask(self, method: str, params: object) -> dict[str, Any]:
        """Send a request, and return the answer."""
        self.last += 1
        self.send({"jsonrpc": "2.0", "id": self.last, "method": method, "params": params})
        while True:
            answer = self.sent.get(timeout=TIMEOUT)
            assert answer is not None, "the server has ended"
            if answer.get("id") == self.last:
                return answer

    def findings(self, uri: str = URI, text: str = TEXT) -> list[str]:
        """Open a document, and return the messages of its findings."""
        version = self.open(uri, text)
        while True:
            sent = self.sent.get(timeout=TIMEOUT)
            assert sent is not None, "the server has ended"
            shown = sent.get("params") or {}
            if shown.get("uri") == uri and shown.get("version") == version:
                return [item["message"] for item in shown["diagnostics"]]

    def open(self, uri: str, text: str = TEXT) -> int:
        """Open a document, which is closed before if it is open, and return its version."""
        if uri in self.opened:
            self.tell("textDocument/didClose", {"textDocument": {"uri": uri}})
        self.opened.append(uri)
        item = {"uri": uri, "languageId": "python", "version": len(self.opened), "text": text}
        self.tell("textDocument/didOpen", {"textDocument": item})
        return len(self.opened)

    def logged(self) -> list[bytes]:
        """Return the lines of the log since the last time, after the answer to another message."""
        time.sleep(0.05)  # it is another pipe
        return [self.log.get() for _ in range(self.log.qsize())]


@pytest.fixture(scope="module")
def session() -> Iterator[Session]:
    made = Session().begin()
    yield made
    made.process.kill()


def survives(session: Session) -> None:
    """Check that the server works, and has logged a line at most."""
    assert session.findings() == ["`.cuda()` needs CUDA; use `.to(device)`"]
    lines = session.logged()
    assert len(lines) <= 1, lines
    assert all(line.startswith(b"devicefix: ") and line[:-1].decode().isprintable() for line in lines)


NO_MESSAGES = {
    "not json": b'{"jsonrpc": "2.0", "id": 5, "meth',
    "not utf-8": b'{"jsonrpc": "2.0", "method": "\xff"}',
    "nothing": b" ",
    "a list": b"[1, 2]",
    "a number": b"5",
    "null": b"null",
    "nested": b"[" * 100_000,
    "nested params": b'{"jsonrpc": "2.0", "method": "x", "params": %b%b}' % (b"[" * 50_000, b"]" * 50_000),
    "a long number": b'{"jsonrpc": "2.0", "method": "x", "params": %b}' % (b"1" * 5000),
    "no method": b'{"jsonrpc": "2.0", "id": "x"}',
    "no version": b'{"id": "x", "method": "shutdown"}',
    "another version": b'{"jsonrpc": "1.0", "id": "x", "method": "shutdown"}',
    "an object as the id": b'{"jsonrpc": "2.0", "id": {"a": 1}, "method": "shutdown"}',
    "an answer to nothing": b'{"jsonrpc": "2.0", "id": "x", "result": 5}',
    "an error of nothing": b'{"jsonrpc": "2.0", "id": null, "error": 5}',
    "a control character": b'{"jsonrpc": "2.0", "method": "\\u001b[31m\\u009b\\n", "params": []}',
    "a surrogate": b'{"jsonrpc": "2.0", "id": "x", "method": "\\ud800", "params": []}',
}


@pytest.mark.parametrize("name", NO_MESSAGES)
def test_what_is_no_message(session: Session, name: str) -> None:
    session.send(NO_MESSAGES[name])
    survives(session)


HERE = {"uri": URI}
START = {"line": 0, "character": 0}
POSITION = {"line": 1, "character": 1}
WRONG_PARAMS = {
    "other params": {"a": 1},
    "a list": [1],
    "null": None,
    "a word as the line": {"textDocument": HERE, "position": {"line": "a"}},
    "a line below 0": {"textDocument": HERE, "position": {**POSITION, "line": -1}},
    "a huge line": {"textDocument": HERE, "position": {**POSITION, "line": 10**30}},
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG_PARAMS)
def test_wrong_params(session: Session, name: str) -> None:
    session.send({"jsonrpc": "2.0", "id": name, "method": "textDocument/hover", "params": WRONG_PARAMS[name]})
    survives(session)


WRONG_REQUESTS = {
    "unknown": ("nothing/known", {"a": 1}),
    "no action": ("codeAction/resolve", {"title": "x"}),
    "an action of nobody": ("codeAction/resolve", {"title": "x", "data": {"uri": 5}}),
    "an action of nothing": ("codeAction/resolve", {"title": "x", "data": {"uri": URI}}),
    "an action at an object": (
        "codeAction/resolve",
        {"title": "x", "data": {"uri": URI, "does": 1, "at": {}}},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG_REQUESTS)
def test_wrong_requests_are_answered_with_an_error(session: Session, name: str) -> None:
    assert session.ask(*WRONG_REQUESTS[name])["error"]["message"]
    survives(session)


def far(line: int, character: int) -> dict[str, Any]:
    return {"start": {"line": line, "character": character}, "end": {"line": character, "character": line}}


WRONG_NOTIFICATIONS = {
    "unknown": ("nothing/known", {}),
    "cancelling nothing": ("$/cancelRequest", {"id": "x"}),
    "cancelling null": ("$/cancelRequest", {}),
    "closing nothing": ("textDocument/didClose", {"textDocument": {"uri": "file:///nowhere/b.py"}}),
    "changing nothing": (
        "textDocument/didChange",
        {"textDocument": {"uri": "file:///nowhere/b.py", "version": 2}, "contentChanges": [{"text": ""}]},
    ),
    "changing at 0": (
        "textDocument/didChange",
        {"textDocument": {**HERE, "version": 2}, "contentChanges": [{"range": far(-1, 5), "text": "x"}]},
    ),
    "changing far away": (
        "textDocument/didChange",
        {"textDocument": {**HERE, "version": 2}, "contentChanges": [{"range": far(2**30, 7), "text": ""}]},
    ),
    "settings": (
        "workspace/didChangeConfiguration",
        {"settings": {"devicefix": {"select": 5, "exclude": ["!"]}}},
    ),
    "no settings": ("workspace/didChangeConfiguration", {"settings": [[]]}),
    "folders": (
        "workspace/didChangeWorkspaceFolders",
        {"event": {"added": [{"uri": "file:///%00", "name": ""}], "removed": [{"uri": "x", "name": ""}]}},
    ),
    "files": ("workspace/didChangeWatchedFiles", {"changes": [{"uri": "%00", "type": 99}]}),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG_NOTIFICATIONS)
def test_wrong_notifications_change_nothing(session: Session, name: str) -> None:
    survives(session)
    session.tell(*WRONG_NOTIFICATIONS[name])
    survives(session)
    session.tell("workspace/didChangeConfiguration", {"settings": {}})
    session.tell(
        "workspace/didChangeWorkspaceFolders",
        {"event": {"added": [], "removed": [{"uri": "file:///%00", "name": ""}]}},
    )
    survives(session)


@pytest.mark.parametrize(
    "uri",
    ["", "file:", "file://", "http://x/y.py", "%00", "file:///a%00b.py", "file:///%ff.py",
     "file:///" + "a" * 5000, "untitled:x\n.py", "file:///\x1b[31m.py", "file:///a%0ab.py", "[", "file://[",
     "file:///..", "file:///dev/zero"],
)  # fmt: skip
def test_odd_names_of_documents(session: Session, uri: str) -> None:
    session.open(uri)
    assert "error" not in session.ask("textDocument/hover", {"textDocument": {"uri": uri}, "position": START})
    survives(session)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("#" * (17 * 2**20), "the file is larger than 16M"),
        ("a;" * 2_000_000 + "torch.cuda", "the code is larger than 2M"),
        ("# coding: nothing\nimport torch\nx.cuda()", "unknown encoding"),
        ("import torch\nx.cuda()\n\ud800", "this code is not checked"),
        ("import torch\nx.cuda()\n\0", "this code is not checked"),
        ("import torch\nx.cuda()\n" + "(" * 100_000, "this code is not checked"),
    ],
)
def test_odd_documents(session: Session, text: str, message: str) -> None:
    [found] = session.findings(text=text)
    assert message in found
    survives(session)
