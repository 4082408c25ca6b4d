"""Plant faults in devicefix, one after the other, and print as JSON what the fuzzer calls them.

A script, since the fuzzer changes the process that it runs in. `benchmarks` must be on Python's path.
"""

from __future__ import annotations

import json
import os
import pkgutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any, NamedTuple
from unittest import mock

import fuzz
from fuzzing.campaign import in_scratch

INPUTS = 90  # one of the first has what the fault needs
REWRITE = "devicefix.engine.fix.fix_until_stable"
NOTEBOOK = "devicefix.files.notebook.document.Notebook.result"
DOCUMENT = "devicefix.files.markdown.document.Docs.result"


class Planted(NamedTuple):
    """A fault.

    Attributes:
        surface: the surface that is to find it.
        target: the function that gets it.
        change: called with the function, and with the arguments of each call.
        limit: a limit of the fuzzer that is another one.
        seconds: its value.
    """

    surface: str
    target: str
    change: Callable[..., Any]
    limit: str = "fuzzing.campaign.HANGS"
    seconds: float = 30


def fails(_old: Any, *_args: Any) -> Any:
    raise LookupError("planted")


def lasts(old: Any, *args: Any) -> Any:
    until = time.process_time() + 0.6
    while time.process_time() < until:
        pass
    return old(*args)


def hangs(old: Any, *args: Any) -> Any:
    time.sleep(2)
    return old(*args)


def writes_outside(old: Any, *args: Any) -> Any:
    Path("../victim.py").write_text("")
    return old(*args)


def lets_git_write_outside(old: Any, *args: Any) -> Any:
    subprocess.run(["git", "init", "-q", "../beside/new"], check=False)
    return old(*args)


def starts_a_program(old: Any, *args: Any) -> Any:
    subprocess.run([sys.executable, "-c", ""], check=False)
    return old(*args)


def runs_the_tree(old: Any, *args: Any) -> Any:
    file = os.path.abspath("own.py")
    Path(file).write_text("1")
    exec(compile("1", file, "exec"))
    return old(*args)


def leaves_a_file(old: Any, *args: Any) -> Any:
    os.close(tempfile.mkstemp()[0])
    return old(*args)


def never_ends(old: Any, findings: Any, devices: Any, *args: Any) -> Any:
    result = old(findings, devices, *args)
    source = devices.facts.source
    return replace(result, output=(result.output or source.encode(source.text)) + b"#\n")


def with_output(change: Callable[[bytes], bytes]) -> Callable[..., Any]:
    """Return a change of what a document becomes."""

    def changed(old: Any, *args: Any) -> Any:
        result = old(*args)
        return replace(result, output=change(result.output)) if result.output else result

    return changed


def with_control_characters(_old: Any, *_args: Any) -> Any:
    yield "\x1b[2J\n"


def without_outcomes(_old: Any, _cache: Any, paths: Iterable[str], around: Iterable[str]) -> Any:
    return []


def adds_a_file(old: Any, *args: Any) -> Any:
    Path("new.txt").write_text("")
    return old(*args)


def breaks_the_code(old: Any, *args: Any) -> Any:
    edits = old(*args)
    for edit in edits:
        edit.new_text += ")"
    return edits


def finds_nothing(_old: Any, *_args: Any) -> Any:
    return []


FAULTS = {
    "LookupError fails": Planted("files", REWRITE, fails),
    "slow: rewrite": Planted("files", REWRITE, lasts, "fuzzing.faults.SLOW", 0.5),
    "hang: no end": Planted("documents", REWRITE, hangs, "fuzzing.campaign.HANGS", 1),
    "written outside: open": Planted("notebooks", REWRITE, writes_outside),
    "written outside: [": Planted("notebooks", REWRITE, lets_git_write_outside),
    "program started": Planted("notebooks", REWRITE, starts_a_program),
    "code of the tree runs": Planted("documents", REWRITE, runs_the_tree),
    "temporary files are left": Planted("documents", REWRITE, leaves_a_file),
    "a second run changes something": Planted("files", REWRITE, never_ends),
    "changed outside of the code": Planted(
        "notebooks", NOTEBOOK, with_output(lambda data: data.replace(b'"cell_type"', b'"cell_type" '))
    ),
    "the code of a cell no longer parses": Planted(
        "notebooks", NOTEBOOK, with_output(lambda data: data.replace(b"import torch", b"import torch ("))
    ),
    "the text has other blocks": Planted(
        "documents", DOCUMENT, with_output(lambda data: data + b"\n```python\nx\n```\n")
    ),
    "control character": Planted(
        "configurations", "devicefix.report.concise.render", with_control_characters
    ),
    "finds something else": Planted(
        "configurations", "devicefix.runner.cache.Cache.outcomes", without_outcomes
    ),
    "makes or removes files": Planted("configurations", "devicefix.files.write.write_each", adds_a_file),
    "an action breaks a document": Planted("messages", "devicefix.server.text.Text.edits", breaks_the_code),
    "the server no longer works": Planted("messages", "devicefix.server.actions.actions", finds_nothing),
}


def kinds(wanted: str, planted: Planted, out: Path) -> list[str]:
    """Return the kinds of the failures that are found, up to the one that is wanted."""
    holder, _, name = planted.target.rpartition(".")
    owner = pkgutil.resolve_name(holder)
    old = getattr(owner, name)

    def changed(*args: Any) -> Any:
        return planted.change(old, *args)

    surface = fuzz.surface(planted.surface, None)
    limited = mock.patch(planted.limit, planted.seconds)
    with mock.patch.object(owner, name, changed), limited, in_scratch(surface, out) as campaign:
        for data in campaign.first_inputs(Random(1), INPUTS):
            campaign(data)
            if any(wanted in kind for kind in campaign.kinds):
                break
    return list(campaign.kinds)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        found = {kind: kinds(kind, FAULTS[kind], Path(folder)) for kind in sys.argv[1:]}
    print(json.dumps(found))
