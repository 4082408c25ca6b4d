"""The web server of the playground.

It listens on the loopback address only, refuses requests that name another host, as those of DNS rebinding
do, and checks code only if the request has the token of the address. It serves a fixed set of pages, so that
no path in a request is opened on disk.
"""

from __future__ import annotations

import faulthandler
import json
import os
import secrets
from collections.abc import Mapping
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from tempfile import TemporaryDirectory
from threading import Lock
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from devicefix.config.version import __version__
from devicefix.playground.check import InvalidRequest, Request, answer
from devicefix.rules.pages import url
from devicefix.rules.registry import RULES
from devicefix.runner.errors import internal_error
from devicefix.runner.processes import Processes, follow_parent

ADDRESS = "127.0.0.1"
HOSTS = (ADDRESS, "localhost")
LARGEST = 8 << 20  # bytes of a request
SECONDS = 30  # for the check of a request
_IDLE = 10  # seconds to wait for the next bytes of a request

_HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self';"
    " img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


class Page(NamedTuple):
    """A page that the server has.

    Attributes:
        type: its media type.
        content: its bytes.
    """

    type: str
    content: bytes


class Refused(Exception):
    """A request that is not served.

    Args:
        status: the status of the response.
        message: why not, and what to do.
    """

    def __init__(self, status: HTTPStatus, message: str) -> None:
        super().__init__(message)
        self.status = status


def pages() -> Mapping[str, Page]:
    """Return all pages by their paths."""
    folder = files("devicefix.playground") / "page"
    rules = [
        {
            "code": rule.code,
            "name": rule.name,
            "summary": rule.summary,
            "url": url(rule),
            "target": None if "cuda" in rule.targets else "accelerator",
        }
        for rule in RULES.values()
    ]
    about = {"version": __version__, "largest": LARGEST, "rules": rules}
    return {
        "/": Page("text/html; charset=utf-8", (folder / "playground.html").read_bytes()),
        "/playground.css": Page("text/css; charset=utf-8", (folder / "playground.css").read_bytes()),
        "/playground.js": Page("text/javascript; charset=utf-8", (folder / "playground.js").read_bytes()),
        "/about.json": Page("application/json", json.dumps(about).encode()),
    }


class Checker:
    """Checks one request at a time, in a process that ends if a check takes too long.

    Args:
        folder: an empty folder.
        seconds: the time limit.
    """

    def __init__(self, folder: str, seconds: float = SECONDS) -> None:
        self._folder = folder
        self._seconds = seconds
        self._turn = Lock()
        self._processes: Processes | None = None

    def check(self, request: Request) -> dict[str, Any]:
        """Return the answer to a request.

        Raises:
            Refused: the check takes too long.
        """
        with self._turn:
            if self._processes is None:
                self._processes = Processes(1, follow_parent, spawn=True)
            try:
                return self._processes.submit(_limited, request, self._folder, self._seconds).result()
            except BrokenProcessPool:
                self.close()
                limits = f"more than {self._seconds:g} seconds or too much memory"
                why = f"the check took {limits}; try less code"
                raise Refused(HTTPStatus.SERVICE_UNAVAILABLE, why) from None

    def close(self) -> None:
        """End the process, and the check that it is busy with."""
        if self._processes is not None:
            self._processes.end()
            self._processes = None


def _limited(request: Request, folder: str, seconds: float) -> dict[str, Any]:
    """Answer a request, or end this process after a time."""
    with open(os.devnull, "w", encoding="utf-8") as nowhere:
        faulthandler.dump_traceback_later(seconds, exit=True, file=nowhere)
        try:
            return answer(request, folder)
        finally:
            faulthandler.cancel_dump_traceback_later()


class Playground(ThreadingHTTPServer):
    """The server; `with` it, its process and its folder are cleaned up.

    Args:
        port: the port to listen on; 0 for a free one.
        seconds: the time limit of a check.

    Raises:
        OSError: the port is taken.
    """

    daemon_threads = True

    def __init__(self, port: int = 0, seconds: float = SECONDS) -> None:
        self._opened = ExitStack()  # what `server_close` cleans up, also if the port is taken
        super().__init__((ADDRESS, port), _Handler)
        self.token = secrets.token_urlsafe(16)
        self.pages = pages()
        folder = self._opened.enter_context(TemporaryDirectory(prefix="devicefix-"))
        self.checker = Checker(folder, seconds)
        self._opened.callback(self.checker.close)

    @property
    def address(self) -> str:
        """The address to open. Browsers keep the part after `#`, the token, to themselves."""
        return f"http://{ADDRESS}:{self.server_port}/#{self.token}"

    def server_close(self) -> None:
        """Stop listening, and clean up."""
        super().server_close()
        self._opened.close()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore that a browser closed the connection; other errors are responses."""


class _Handler(BaseHTTPRequestHandler):
    """Answers one request."""

    server: Playground
    timeout = _IDLE
    server_version, sys_version = "devicefix", ""

    def do_GET(self) -> None:
        """Serve a page."""
        try:
            self._check_origin()
            page = self.server.pages.get(urlsplit(self.path).path)
            if page is None:
                raise Refused(HTTPStatus.NOT_FOUND, "there is no such page; open /")
            self._respond(HTTPStatus.OK, page)
        except Refused as refused:
            self._refuse(refused)

    def do_POST(self) -> None:
        """Check the code in the request."""
        try:
            self._respond(HTTPStatus.OK, _json(self.server.checker.check(self._request())))
        except Refused as refused:
            self._refuse(refused)
        except OSError:
            raise
        except Exception as error:
            self._refuse(Refused(HTTPStatus.INTERNAL_SERVER_ERROR, internal_error(error)))

    def log_message(self, *_: object) -> None:
        """Log nothing: a line for each request would hide the address."""

    def _check_origin(self) -> None:
        """Refuse what comes from another website."""
        host = self.headers.get("Host", "")
        if host.partition(":")[0] not in HOSTS or self.headers.get("Origin") not in (None, f"http://{host}"):
            raise Refused(HTTPStatus.FORBIDDEN, "open the address that devicefix printed")

    def _request(self) -> Request:
        self._check_origin()
        if self.path != "/check":
            raise Refused(HTTPStatus.NOT_FOUND, "POST to /check")
        expected = f"Bearer {self.server.token}".encode()
        if not secrets.compare_digest(self.headers.get("Authorization", "").encode(), expected):
            advice = "open the complete address that devicefix printed, including the part after #"
            raise Refused(HTTPStatus.UNAUTHORIZED, advice)
        length = self.headers.get("Content-Length", "")
        if not (length.isascii() and length.isdigit()):
            raise Refused(HTTPStatus.LENGTH_REQUIRED, "the request must have a Content-Length")
        if len(length) > 12 or int(length) > LARGEST:
            problem = f"there is more than {LARGEST >> 20} MiB of code; use `devicefix rewrite`"
            raise Refused(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, problem)
        try:
            return Request.read(self.rfile.read(int(length)))
        except InvalidRequest as error:
            raise Refused(HTTPStatus.BAD_REQUEST, str(error)) from None

    def _refuse(self, refused: Refused) -> None:
        self._respond(refused.status, _json({"error": str(refused)}))

    def _respond(self, status: HTTPStatus, page: Page) -> None:
        self.send_response(status)
        for name, value in _HEADERS.items():
            self.send_header(name, value)
        self.send_header("Content-Type", page.type)
        self.send_header("Content-Length", str(len(page.content)))
        self.end_headers()
        self.wfile.write(page.content)


def _json(values: Mapping[str, Any]) -> Page:
    return Page("application/json", json.dumps(values).encode())
