"""The time from a change in an editor to its diagnostics, for one large file with ties to CUDA.

    python benchmarks/server.py [--lines 5000] [--every 25] [--changes 30]

Starts `devicefix server` as an editor does, opens a generated file of so many lines with a tie in every so
many, and types in the middle of the file, at each of the `places`: each change puts something there, or takes
it out again. Prints the median, the fastest and the slowest time, from the moment that the change is
sent to the one that the diagnostics of that version have been received. The client only decodes JSON, so that
what is measured is the server's time. It also prints the processor's time, which says more on a machine that
has other things to do.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import psutil

BLOCK = '''\

class Block{n}(nn.Module):
    """A block of a network."""

    def __init__(self, width: int, depth: int = 3) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(width, width) for _ in range(depth)])
        self.scale = nn.Parameter(torch.ones(width))

    def forward(self, x, mask=None):
        for layer in self.layers:
            x = torch.relu(layer(x)) * self.scale
        if mask is not None:
            x = x.masked_fill(mask == 0, float("-inf"))
        return x


def train_{n}(model, batches, optimizer, epochs=10):
    criterion, history = nn.CrossEntropyLoss(), []
    for epoch in range(epochs):
        total = 0.0
        for step, (inputs, targets) in enumerate(batches):
            loss = criterion(model(inputs), targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
            if step % 100 == 0:
                print(f"epoch {{epoch}}, step {{step}}: {{total / (step + 1):.4f}}")
        history.append(total)
    return history
'''
TIES = (
    "inputs = inputs.cuda()",
    "targets = targets.cuda(non_blocking=True)",
    'weights = torch.load("last.pt")',
    "torch.cuda.synchronize()",
    'noise = torch.randn(16, device="cuda")',
    "zeros = torch.cuda.FloatTensor(16).zero_()",
)


def program(lines: int, every: int) -> str:
    """Return a module of the given length, with a tie to CUDA at regular distances."""
    found = ["import torch", "from torch import nn", ""]
    ties = 0
    while len(found) < lines:
        found += BLOCK.format(n=len(found)).splitlines()
        wanted = range(ties, len(found) // every)
        ties = wanted.stop
        found += ["", "", f"def ties_{len(found)}(inputs, targets):"] if wanted else []
        found += [f"    {TIES[n % len(TIES)]}" for n in wanted]
    return "\n".join(found) + "\n"


class Client:
    """A minimal editor for a language server."""

    def __init__(self, folder: Path) -> None:
        command = [sys.executable, "-m", "devicefix", "server"]
        self.server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=folder)
        self.messages = self._received()
        workspace = [{"uri": folder.as_uri(), "name": folder.name}]
        self.send("initialize", {"processId": None, "capabilities": {}, "workspaceFolders": workspace}, 1)
        next(each for each in self.messages if each.get("id") == 1)
        self.send("initialized", {})

    def send(self, method: str, params: Any, number: int | None = None) -> None:
        """Send a notification, or a request with a number."""
        message = {"jsonrpc": "2.0", "method": method, "params": params}
        data = json.dumps(message if number is None else message | {"id": number}).encode()
        assert self.server.stdin
        self.server.stdin.write(b"Content-Length: %d\r\n\r\n%b" % (len(data), data))
        self.server.stdin.flush()

    def diagnostics(self, version: int) -> list[Any]:
        """Wait for the diagnostics of a version."""
        for message in self.messages:
            if message.get("method") == "textDocument/publishDiagnostics":
                if message["params"]["version"] == version:
                    found: list[Any] = message["params"]["diagnostics"]
                    return found
        raise SystemExit("the server has ended")

    def _received(self) -> Iterator[dict[str, Any]]:
        assert self.server.stdout
        while header := self.server.stdout.readline():
            length = int(header.split(b":")[1])
            while self.server.stdout.readline() != b"\r\n":
                pass
            yield json.loads(self.server.stdout.read(length))

    def processor_time(self) -> float:
        """Return the processor time of the server, in seconds."""
        times = psutil.Process(self.server.pid).cpu_times()
        return float(times.user + times.system)

    def end(self) -> None:
        """Shut down the server."""
        self.send("shutdown", None, 2)
        self.send("exit", None)
        self.server.wait(10)


class Place(NamedTuple):
    """A place where somebody types.

    Attributes:
        line: the line, from 0.
        character: the character in it, from 0.
        text: what is put there and taken out again.
        findings: the number of findings in it.
    """

    line: int
    character: int
    text: str
    findings: int = 0


def places(text: str) -> dict[str, Place]:
    """Return the places by their kinds."""
    lines = text.splitlines()
    half = len(lines) // 2

    def following(words: str) -> int:
        return next(number for number in range(half, len(lines)) if words in lines[number])

    tie = following(".cuda()")
    loss = following("loss = criterion(")
    return {
        "a comment, in lines of its own": Place(following("class "), 0, "# a comment\n"),
        "a name, in a function without ties": Place(loss, lines[loss].index("model"), "my_"),
        "a line, in a function without ties": Place(loss, 0, f"{' ' * 12}inputs = inputs * 2\n"),
        "a name, in a line with a tie": Place(tie, lines[tie].index("="), "= outputs "),
        "a line without a tie, in the module": Place(following("class "), 0, "x = 1\n"),
        "a line with a tie, in the module": Place(following("class "), 0, "x = torch.ones(1).cuda()\n", 1),
    }


def measure(folder: Path, text: str, place: Place, changes: int) -> tuple[int, list[float], float]:
    """Return the number of findings, the seconds of each change, and the processor's seconds for one."""
    file = folder / "program.py"
    file.write_text(text, encoding="utf-8")
    client = Client(folder)
    document = {"uri": file.as_uri(), "languageId": "python", "version": 0, "text": text}
    client.send("textDocument/didOpen", {"textDocument": document})
    count = len(client.diagnostics(0))
    start = {"line": place.line, "character": place.character}
    whole = place.text.endswith("\n")
    width = 0 if whole else place.character + len(place.text)
    end = {"line": place.line + whole, "character": width}
    times = []
    used = client.processor_time()
    for version in range(1, changes + 1):
        put_in = {"range": {"start": start, "end": start}, "text": place.text}
        take_out = {"range": {"start": start, "end": end}, "text": ""}
        begun = time.perf_counter()
        client.send(
            "textDocument/didChange",
            {
                "textDocument": {"uri": file.as_uri(), "version": version},
                "contentChanges": [put_in if version % 2 else take_out],
            },
        )
        found = client.diagnostics(version)
        times.append(time.perf_counter() - begun)
        assert len(found) == count + version % 2 * place.findings, (len(found), count)
    used = client.processor_time() - used
    client.end()
    return count, times, used / changes


def main() -> None:
    """Measure, and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--lines", type=int, default=5000, help="of the file")
    parser.add_argument("--every", type=int, default=25, help="lines there is a tie")
    parser.add_argument("--changes", type=int, default=30)
    arguments = parser.parse_args()
    text = program(arguments.lines, arguments.every)
    for kind, place in places(text).items():
        with tempfile.TemporaryDirectory() as folder:
            path = Path(os.path.realpath(folder))
            count, times, used = measure(path, text, place, arguments.changes)
        median, least, most, used = (
            round(1000 * each) for each in (statistics.median(times), min(times), max(times), used)
        )
        print(f"{arguments.lines} lines, {count} findings, {len(times)} changes of {kind}:", end=" ")
        print(f"median {median} ms ({least} to {most} ms), {used} ms of a processor each")


if __name__ == "__main__":
    main()
