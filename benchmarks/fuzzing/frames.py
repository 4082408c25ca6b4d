"""The language server as a process: sessions in frames, some of which are broken, on its standard input."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from random import Random

from fuzzing.faults import Fault
from fuzzing.messages import ROOT, Messages
from fuzzing.mutation import bytes_changed
from fuzzing.programs import LONGEST
from fuzzing.scratch import Scratch

PATIENCE = 20  # seconds from the start of the process to its end
_FRAME = re.compile(rb"Content-Length: (\d+)\r\n(?:[\w-]+: [^\r\n]*\r\n)*\r\n")
_HEADERS = (
    b"Content-Length: %d\r\n\r\n", b"Content-Length: %d\n\n", b"content-length: %d\r\n\r\n",
    b"Content-Length: -%d\r\n\r\n", b"Content-Length: 9%d\r\n\r\n", b"Content-Length: 0\r\n\r\n",
    b"Content-Length: %d\r\nContent-Type: x\r\n\r\n", b"Content-Length: 99999999999999999999%d\r\n\r\n",
    b"Content-Length:%d\r\n\r\n", b"\r\n\r\n", b"%d", b"Content-Length: 1\r\n\r\n",
    b"Content-Length: x%d\r\n\r\n", b"GET / HTTP/1.1\r\nHost: %d\r\n\r\n", b"\xff\xfe%d\r\n\r\n",
)  # fmt: skip
# What is said of bytes that are no frames, and of an error that nothing handles.
_REFUSED = re.compile(r"^Error: the input does not follow the Language Server Protocol: .*\s*\Z", re.M)
_SIGNS = ("internal error", "Exception in thread", "Exception in callback", "never retrieved")


class Frames:
    """The input of a process; see `Surface`."""

    suffix = ".bin"

    def __init__(self, corpus: Path | None) -> None:
        self._sessions = Messages(corpus)

    def seeds(self) -> Iterable[bytes]:
        """Return nothing: a corpus has no sessions."""
        return ()

    def fresh(self, random: Random) -> bytes:
        """Return a session with a frame that is broken; what follows may be read with it."""
        lines = self._sessions.fresh(random).replace(ROOT.encode(), b"file:///nowhere").split(b"\n")
        broken = random.randrange(len(lines))
        parts = []
        for number, line in enumerate(lines):
            header = random.choice(_HEADERS) if number == broken else _HEADERS[0]
            parts.append((header % len(line) if b"%d" in header else header) + line)
        return b"".join(parts)[:LONGEST]

    def changed(self, random: Random, data: bytes) -> bytes:
        """Return other bytes, most often around a header."""
        headers = [match.start() for match in _FRAME.finditer(data)]
        if not headers or random.random() < 0.3:
            return bytes_changed(random, data)[:LONGEST]
        at = random.choice(headers)
        return (data[:at] + bytes_changed(random, data[at : at + 40]) + data[at + 40 :])[:LONGEST]

    def attempt(self, data: bytes, _choice: int, scratch: Scratch) -> bool:
        """Let a process read the bytes up to their end, and expect it to end as well."""
        program = f"import sys; sys.path[:0] = {sys.path!r}; from devicefix.cli import main; main()"
        with scratch.unwatched():
            try:
                done = subprocess.run(
                    [sys.executable, "-c", program, "server"],
                    input=data,
                    capture_output=True,
                    timeout=PATIENCE,
                    check=False,
                )
            except subprocess.TimeoutExpired:
                raise Fault(f"hang: the process does not end in {PATIENCE} s") from None
        errors = done.stderr.decode(errors="replace")
        if done.returncode not in (0, 1) and not _REFUSED.search(errors):
            raise Fault(f"the process ends with {done.returncode}: {errors}")
        for sign in _SIGNS:
            if sign in errors:
                raise Fault(f"{sign}: {errors}")
        return _number(done.stdout) > 0


def _number(output: bytes) -> int:
    """Return the number of frames in an output, each of which must hold JSON."""
    at = number = 0
    while at < len(output):
        frame = _FRAME.match(output, at)
        if frame is None:
            raise Fault("something else than a message is on the standard output")
        at = frame.end() + int(frame[1])
        json.loads(output[frame.end() : at])
        number += 1
    return number
