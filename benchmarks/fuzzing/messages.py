"""The language server: sessions of an editor, played to the protocol's object in this process.

An input is a session: a message a line, as JSON. `ROOT` in it is the URI of the folder that the editor has
open.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import patterns
from lsprotocol import types
from pygls.exceptions import JsonRpcException, JsonRpcInternalError

from devicefix.config.settings import KEYS
from devicefix.server.app import Server
from devicefix.server.documents import Document
from devicefix.server.text import lines_of
from fuzzing.configurations import value_of
from fuzzing.documents import nothing_else_changes
from fuzzing.faults import Fault, quick
from fuzzing.mutation import ODD_VALUES, bytes_changed, lines_changed, value_changed
from fuzzing.programs import LONGEST, Programs, found, text_of
from fuzzing.scratch import Scratch

PATIENCE = 10  # seconds for the answer to one message
ROOT = "ROOT"
_FILES = ("a.py", "b.py", "p/c.py", "d.md", "n.ipynb", "c.yaml", "devicefix.toml")
_URIS = (
    *(f"{ROOT}/{name}" for name in _FILES), "untitled:Untitled-1", "untitled:a.py", f"{ROOT}/a%20b.py",
    f"{ROOT}", "file:///none", "file://host/a.py", "a.py", "", "vscode-notebook-cell:/n.ipynb#X",
    f"{ROOT}/../a.py", f"{ROOT}/é.py", "git:/a.py", "C:\\a.py",
)  # fmt: skip


class Messages:
    """Sessions; see `Surface`."""

    suffix = ".jsonl"

    def __init__(self, corpus: Path | None) -> None:
        self._programs = Programs(found(corpus, "*.py"))

    def seeds(self) -> Iterable[bytes]:
        """Return nothing: a corpus has no sessions."""
        return ()

    def fresh(self, random: Random) -> bytes:
        """Return a session with some documents."""
        return _joined(list(_Session(random, self._programs).messages()))[:LONGEST]

    def changed(self, random: Random, data: bytes) -> bytes:
        """Return a session with other messages, other values in them, or other bytes."""
        lines = data.split(b"\n")
        at = random.randrange(len(lines))
        way = random.random()
        if way < 0.15:
            lines[at] = bytes_changed(random, lines[at])
        elif way < 0.3:
            lines.insert(at, lines[random.randrange(len(lines))])
        elif way < 0.4:
            del lines[at]
        elif way < 0.6:
            session = _Session(random, self._programs)
            lines[at:at] = _joined(list(session.some())).split(b"\n")
        else:
            try:
                message = json.loads(lines[at])
                part = message["params"] if random.random() < 0.9 else message
                value_changed(random, part)
                lines[at] = json.dumps(message).encode()
            except (ValueError, KeyError, TypeError):
                lines[at] = bytes_changed(random, lines[at])
        return b"\n".join(lines)[:LONGEST]

    def attempt(self, data: bytes, choice: int, scratch: Scratch) -> bool:
        """Play a session, and then expect the server to work as if nothing had been."""
        scratch.fill({"a.py": b"import torch\nx.cuda()\n", "b.py": b"from a import *\nx.cuda()\n"})
        text = data.decode(errors="replace").replace(ROOT, scratch.folder.as_uri())
        return asyncio.run(_Player(choice).play(text.split("\n")))


def _joined(messages: list[Any]) -> bytes:
    return "\n".join(map(json.dumps, messages)).encode()


# -- making sessions -------------------------------------------------------------------------------------


class _Session:
    """Makes the messages of an editor."""

    def __init__(self, random: Random, programs: Programs) -> None:
        self._random = random
        self._programs = programs
        self._texts: dict[str, str] = {}
        self._ids = 0

    def messages(self) -> Iterator[Any]:
        yield self._request(types.INITIALIZE, self._initialize())
        yield self._notification(types.INITIALIZED, {})
        yield self._open()
        for _ in range(self._random.randint(1, 8)):
            yield from self.some()

    def some(self) -> Iterator[Any]:
        """Yield a message, or some that belong together."""
        random = self._random
        uri = random.choice([*self._texts, *self._texts, random.choice(_URIS)])
        document = {"uri": uri}
        way = random.randrange(12)
        if way == 0:
            yield self._open()
        elif way <= 3:
            yield self._change(uri)
        elif way == 4:
            yield self._request(
                types.TEXT_DOCUMENT_HOVER, {"textDocument": document, "position": self._position(uri)}
            )
        elif way <= 6:
            context = {
                "diagnostics": [],
                "only": random.choice((None, [], ["quickfix"], ["source"], ["source.fixAll"])),
            }
            params = {"textDocument": document, "range": self._range(uri), "context": context}
            yield self._request(types.TEXT_DOCUMENT_CODE_ACTION, params)
        elif way == 7:
            yield self._request(types.TEXT_DOCUMENT_DIAGNOSTIC, {"textDocument": document})  # not served
        elif way == 8:
            at = random.choice((None, ["DF101", 3, 5], ["DF101", 10**9, -1], [], "x"))
            data = {"uri": uri, "does": random.choice(("fix", "noqa", "rule", "all", "x")), "at": at}
            params = {"title": "x", "data": random.choice((data, data, None, random.choice(ODD_VALUES)))}
            yield self._request(types.CODE_ACTION_RESOLVE, params)
        elif way == 9:
            key = random.choice(list(KEYS.values()))
            settings = {key.name: value_of(random, key.kind)}
            nested = random.choice(
                (settings, {"devicefix": settings}, {"settings": settings}, random.choice(ODD_VALUES))
            )
            yield self._notification(types.WORKSPACE_DID_CHANGE_CONFIGURATION, {"settings": nested})
        elif way == 10:
            yield self._notification(types.TEXT_DOCUMENT_DID_SAVE, {"textDocument": document})
            changes = [{"uri": uri, "type": random.randint(1, 3)}]
            yield self._notification(types.WORKSPACE_DID_CHANGE_WATCHED_FILES, {"changes": changes})
        else:
            yield self._notification(types.TEXT_DOCUMENT_DID_CLOSE, {"textDocument": document})
            folder = {"uri": random.choice(_URIS), "name": "x"}
            event = random.choice(({"added": [folder], "removed": []}, {"added": [], "removed": [folder]}))
            yield self._notification(types.WORKSPACE_DID_CHANGE_WORKSPACE_FOLDERS, {"event": event})

    def _initialize(self) -> Any:
        random = self._random
        document = {"diagnostic": {}, "codeAction": {"resolveSupport": {"properties": ["edit"]}}}
        kept = {key: value for key, value in document.items() if random.random() < 0.5}
        encodings = random.choice((["utf-8"], ["utf-16"], ["utf-32"], None))
        workspace = {
            "didChangeWatchedFiles": {"dynamicRegistration": random.random() < 0.5},
            "workspaceEdit": {"documentChanges": random.random() < 0.5},
            "diagnostics": {"refreshSupport": random.random() < 0.5},
        }
        capabilities = {
            "textDocument": kept,
            "workspace": workspace,
            "general": {"positionEncodings": encodings},
        }
        return {
            "processId": None,
            "rootUri": random.choice((ROOT, None)),
            "workspaceFolders": random.choice(([{"uri": ROOT, "name": "x"}], [], None)),
            "capabilities": random.choice((capabilities, capabilities, {})),
            "initializationOptions": random.choice(
                (None, {"settings": {"select": ["DF1"]}}, random.choice(ODD_VALUES))
            ),
        }

    def _open(self) -> Any:
        uri = self._random.choice(_URIS)
        text = text_of(self._programs.fresh(self._random).encode())
        if uri.endswith(".md"):
            text = f"# A\n\n```python\n{text}\n```\n"
        text = text.replace("\n", self._random.choice(("\n", "\n", "\r\n", "\r"))).replace("é", "🙂")
        self._texts[uri] = text
        item = {
            "uri": uri,
            "languageId": self._random.choice(("python", "markdown", "x")),
            "version": 1,
            "text": text,
        }
        return self._notification(types.TEXT_DOCUMENT_DID_OPEN, {"textDocument": item})

    def _change(self, uri: str) -> Any:
        random = self._random
        text = random.choice(
            ("", "\n", "x", "  x.cuda()\n", "🙂", "\r", "(", "'''", "\f", self._programs.fresh(random))
        )
        if random.random() < 0.2:
            change: Any = {"text": lines_changed(random, self._texts.get(uri, ""))}
        else:
            change = {"range": self._range(uri), "text": text}
        document = {"uri": uri, "version": random.randint(0, 9)}
        params = {"textDocument": document, "contentChanges": [change] * random.choice((1, 1, 2, 0))}
        return self._notification(types.TEXT_DOCUMENT_DID_CHANGE, params)

    def _range(self, uri: str) -> Any:
        start, end = self._position(uri), self._position(uri)
        if (start["line"], start["character"]) > (
            end["line"],
            end["character"],
        ) and self._random.random() < 0.9:
            start, end = end, start
        return {"start": start, "end": end}

    def _position(self, uri: str) -> Any:
        lines = self._texts.get(uri, "").count("\n")
        odd = self._random.choice((0, 10**6, 2**31 - 1))
        line = self._random.randint(0, lines + 1) if self._random.random() < 0.95 else odd
        return {"line": line, "character": self._random.choice((0, 1, 4, 8, 12, 30, odd))}

    def _request(self, method: str, params: Any) -> Any:
        self._ids += 1
        return {"jsonrpc": "2.0", "id": self._ids, "method": method, "params": params}

    def _notification(self, method: str, params: Any) -> Any:
        return {"jsonrpc": "2.0", "method": method, "params": params}


# -- what must hold --------------------------------------------------------------------------------------


class _Player:
    """Plays a session to a server."""

    def __init__(self, choice: int) -> None:
        self._random = Random(choice)
        self._server = Server()
        self._sent: list[Any] = []
        self._log = _Log()
        self._resolved = 0

    async def play(self, lines: list[str]) -> bool:
        """Play the session, and return whether anything was found.

        Raises:
            Fault: the server fails, or answers what cannot be.
        """
        self._server.protocol.set_writer(self, include_headers=False)
        root = logging.getLogger()
        root.addHandler(self._log)
        try:
            for line in lines:
                await self._tell(line)
            fruitful = any("diagnostics" in (message.get("params") or {}) for message in self._sent)
            await self._still_works()
            return fruitful
        finally:
            root.removeHandler(self._log)
            self._server.worker.shutdown(wait=True, cancel_futures=True)
            if self._server._thread_pool:
                self._server._thread_pool.shutdown()

    def write(self, data: bytes) -> None:
        """Take a message of the server; see pygls."""
        self._sent.append(json.loads(data))

    def close(self) -> None:
        """Do nothing; see pygls."""

    async def _tell(self, line: str) -> None:
        """Send a message as pygls does, and wait until all is done."""
        before = len(self._sent)
        protocol = self._server.protocol
        message: Any = None
        with quick(f"a message {line[:40]}"):
            try:
                message = json.loads(line, object_hook=protocol.structure_message)
                if self._wants_exit(message):
                    return
                protocol.handle_message(message)
            except Exception:  # pygls logs it, and reads the next message
                logging.getLogger("pygls").debug("not handled", exc_info=True)
            await self._settled()
        if self._log.texts:
            raise Fault(self._log.texts[0])
        for sent in self._sent[before:]:
            self._fits(sent)
            await self._resolve(sent)

    def _wants_exit(self, message: Any) -> bool:
        return getattr(message, "method", None) in (types.EXIT, types.SHUTDOWN)

    async def _settled(self) -> None:
        """Wait until nothing is left to do."""
        loop = asyncio.get_running_loop()
        until = loop.time() + PATIENCE
        while loop.time() < until:
            await loop.run_in_executor(self._server.worker, int)
            others = asyncio.all_tasks() - {asyncio.current_task()}
            if not others:
                await asyncio.sleep(0)
                return
            await asyncio.wait(others, timeout=0.01)
        raise Fault("hang: a message is never done with")

    async def _still_works(self) -> None:
        """Expect a finding in a new document, whatever was before."""
        uri = "file:///none/last.py"
        item = {"uri": uri, "languageId": "python", "version": 1, "text": "import torch\nx.cuda()\n"}
        await self._ask("last-1", types.INITIALIZE, {"processId": None, "rootUri": None, "capabilities": {}})
        opened = {"jsonrpc": "2.0", "method": types.TEXT_DOCUMENT_DID_OPEN, "params": {"textDocument": item}}
        await self._tell(json.dumps(opened))
        where = {"start": {"line": 1, "character": 0}, "end": {"line": 1, "character": 0}}
        asked = {"textDocument": {"uri": uri}, "range": where, "context": {"diagnostics": []}}
        answer = await self._ask("last-2", types.TEXT_DOCUMENT_CODE_ACTION, asked)
        if not answer.get("result"):
            raise Fault(f"the server no longer works: {answer}")

    async def _ask(self, name: str, method: str, params: Any) -> Any:
        """Send a request, and return the answer."""
        await self._tell(json.dumps({"jsonrpc": "2.0", "id": name, "method": method, "params": params}))
        answer = next((sent for sent in self._sent if sent.get("id") == name and "method" not in sent), None)
        if answer is None:
            raise Fault(f"no answer to {method}")
        return answer

    def _fits(self, sent: Any) -> None:
        """Expect diagnostics at places inside of their document."""
        params = sent.get("params") or {}
        document = self._server.document(str(params.get("uri"))) if "diagnostics" in params else None
        if not isinstance(document, Document):
            return
        for each in params["diagnostics"]:
            start, end = (_offset(document, each["range"][side]) for side in ("start", "end"))
            if start > end:
                raise Fault("a diagnostic ends before it starts")

    async def _resolve(self, sent: Any) -> None:
        """Choose some of the offered actions, and expect edits that can be made."""
        offered = sent.get("result")
        if not isinstance(offered, list) or not all(
            isinstance(each, dict) and "data" in each for each in offered
        ):
            return
        for action in self._random.sample(offered, min(len(offered), 3)):
            answer = action
            if "edit" not in action:
                self._resolved += 1
                answer = await self._ask(f"resolve-{self._resolved}", types.CODE_ACTION_RESOLVE, action)
                answer = answer.get("result") or {}
            edit = answer.get("edit") or {}
            changes = dict(edit.get("changes") or {})
            for each in edit.get("documentChanges") or ():
                changes[each["textDocument"]["uri"]] = each["edits"]
            for uri, edits in changes.items():
                document = self._server.document(uri)
                if isinstance(document, Document):
                    _can_be_made(document, edits)


def _can_be_made(document: Document, edits: list[Any]) -> None:
    """Expect edits that do not overlap, and after which the document parses if it did."""
    text = document.source
    spans = sorted(
        (*(_offset(document, edit["range"][side]) for side in ("start", "end")), edit["newText"])
        for edit in edits
    )
    parts, at = [], 0
    for start, end, new in spans:
        if not at <= start <= end:
            raise Fault("the edits of an action overlap")
        parts += [text[at:start], new]
        at = end
    after = "".join([*parts, text[at:]])
    if after == text:
        raise Fault("an action that changes nothing")
    if document.uri.endswith(".py") and patterns.parses(text) and not patterns.parses(after):
        raise Fault("an action breaks a document")
    if document.uri.endswith(".md"):
        nothing_else_changes(text.encode(errors="replace"), after.encode(errors="replace"), document.uri)


_UNITS = {
    types.PositionEncodingKind.Utf8: ("utf-8", 1),
    types.PositionEncodingKind.Utf16: ("utf-16-le", 2),
    types.PositionEncodingKind.Utf32: ("utf-32-le", 4),
}


def _offset(document: Document, position: Any) -> int:
    """Return the offset of a position, which must be inside of the document."""
    lines = lines_of(document.source)
    if not 0 <= position["line"] < len(lines):
        raise Fault("a line that the document does not have")
    units, size = _UNITS[types.PositionEncodingKind(document.position_codec.encoding)]
    data = lines[position["line"]].rstrip("\r\n").encode(units, errors="surrogatepass")
    if not 0 <= position["character"] * size <= len(data):
        raise Fault("a column that the line does not have")
    before = data[: position["character"] * size].decode(units, errors="surrogatepass")
    return sum(map(len, lines[: position["line"]])) + len(before)


_OURS = re.compile(r'File "[^"]*/devicefix/\w+/(\w+\.py)", line (\d+)')


class _Log(logging.Handler):
    """Keeps the internal errors: what is logged with a traceback that leads through devicefix."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a record if it is one."""
        error = record.exc_info[1] if record.exc_info else None
        if isinstance(error, JsonRpcException) and not isinstance(error, JsonRpcInternalError):
            return  # raised on purpose: the request cannot be fulfilled
        text = logging.Formatter().format(record)
        ours = _OURS.findall(text.replace("\\", "/"))
        if "internal error" in text or "Error sending data" in text:
            self.texts.append(text)
        elif ours:
            what = text.rstrip().rpartition("\n")[2]
            self.texts.append(f"internal error: {what} ({':'.join(ours[-1])})\n{text}")
