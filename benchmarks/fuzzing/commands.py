"""The commands of devicefix, in this process, and what must be true of each of them."""

from __future__ import annotations

import json
import re
import subprocess
from typing import NamedTuple
from xml.etree import ElementTree

from click.testing import CliRunner

from devicefix.cli import main
from devicefix.config.settings import Settings
from fuzzing.faults import Fault, quick
from fuzzing.scratch import Scratch

FORMATS = (
    "full", "concise", "grouped", "json", "json-lines", "sarif", "github", "gitlab", "junit", "html",
)  # fmt: skip
_STYLE = re.compile(r"\x1b\[[\d;]*m")  # devicefix's own colours; no input has that form
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


class Ran(NamedTuple):
    """The result of a command: its exit status, its standard output, and its errors and warnings."""

    status: int
    data: bytes
    errors: str

    @property
    def output(self) -> str:
        """The standard output as text."""
        return self.data.decode(errors="replace")


def run(*arguments: str, raw: bool = False) -> Ran:
    """Run a command in the current folder.

    Args:
        arguments: the command and its arguments.
        raw: whether the output is for programs, and holds lines of files as they are.

    Raises:
        Fault: it fails in another way than by a message.
    """
    with quick(" ".join(arguments[:1])):
        done = CliRunner().invoke(main, ["--color", "never" if raw else "always", *arguments])
    ran = Ran(done.exit_code, done.stdout_bytes, done.stderr)
    if done.exception and not isinstance(done.exception, SystemExit):
        raise done.exception
    if "internal error" in ran.errors:
        raise Fault(ran.errors)
    if ran.status not in (0, 1, 2):
        raise Fault(f"exit status {ran.status}")
    if ran.status == 2 and not ran.errors.strip():
        raise Fault("exit status 2 without a message")
    if _CONTROL.search(_STYLE.sub("", ran.errors)):
        raise Fault(f"control character in the errors of {arguments[0]}: {ran.errors!r}")
    if not raw and _CONTROL.search(_STYLE.sub("", ran.output)):
        raise Fault(f"control character in the output of {' '.join(arguments[:3])}: {ran.output!r}")
    return ran


def report(choice: int, *arguments: str) -> Ran:
    """Run `check` with the output format that a number chooses, and read the output as programs do.

    Raises:
        Fault: they can't.
    """
    form = FORMATS[choice % len(FORMATS)]
    ran = run("check", "--output-format", form, *arguments)
    try:
        if ran.status == 2 and not ran.output:
            return ran
        if form in ("json", "sarif", "gitlab"):
            json.loads(ran.output)
        elif form == "json-lines":
            list(map(json.loads, ran.output.splitlines()))
        elif form == "junit":
            ElementTree.fromstring(ran.output)
    except (ValueError, ElementTree.ParseError) as problem:
        raise Fault(f"output of {form} cannot be read: {problem}") from None
    return ran


def round_trip(name: str, data: bytes, output: bytes | None, options: Settings, scratch: Scratch) -> None:
    """Rewrite a file by the command, and expect what the engine makes of it.

    Args:
        name: the name of the file.
        data: its content.
        output: what the engine makes of it, None if nothing.
        options: the settings of the rewrite.
        scratch: the folder for it.

    Raises:
        Fault: the command writes something else.
    """
    wanted = data if output is None else output
    given = ["--no-cache", "--target", options.target, *["--unsafe-fixes"] * options.unsafe_fixes, name]
    scratch.fill({name: data})
    patch = run("rewrite", *given, raw=True)
    if scratch.files() != {name: data}:
        raise Fault("a patch was asked for, and a file is changed")
    for _ in range(2):
        run("rewrite", "--in-place", *given)
        if scratch.files() != {name: wanted}:
            raise Fault("the command does not write what the engine makes")
    if output is not None:
        _applies(patch.data, name, data, wanted, scratch)


def _applies(patch: bytes, name: str, data: bytes, wanted: bytes, scratch: Scratch) -> None:
    """Expect that git makes the same of a file by the patch."""
    scratch.fill({name: data})
    done = subprocess.run(["git", "apply", "-"], input=patch, capture_output=True, check=False)
    if done.returncode or scratch.files() != {name: wanted}:
        raise Fault(f"git cannot apply the patch: {done.stderr.decode(errors='replace')}")
