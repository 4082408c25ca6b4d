"""Tests of what a long check shows, and of what is left when it is interrupted."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import pytest
from helpers import ProjectFolder
from rich.console import Console

from devicefix.runner import progress
from devicefix.runner.progress import CHECKING, DONE, Progress

pytestmark = pytest.mark.skipif(os.name == "nt", reason="Windows has other terminals and signals")

TIED = "import torch\n\nx = torch.ones(3).cuda()\n"
# One file takes very long, in a worker as well: the pool forks this process, or spawns one that imports it.
SLOW = """
import time
import devicefix.engine.file as module
check = module.File.check
def slow(file, project):
    if "slow" in file.path:
        time.sleep(100)
    return check(file, project)
module.File.check = slow
from devicefix.cli import main
main(prog_name="devicefix")
"""
# More than a pipe holds, for workers that have ended.
LONG = f"{TIED}text = '{'x' * 20_000}'\n"


def press_ctrl_c(program: str, arguments: list[str], folder: Path, ready: bytes) -> tuple[int, str]:
    """Run a program in a terminal, press Ctrl-C when it shows something, and return its status and output."""
    import pty

    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(folder)
        os.environ |= {"TMPDIR": str(folder / "tmp"), "TERM": "xterm", "COLUMNS": "80"}
        os.execv(sys.executable, [sys.executable, "-c", program, *arguments])
    shown, pressed, end = b"", False, time.monotonic() + 60
    try:
        while time.monotonic() < end:
            shown += os.read(terminal, 65536)
            if ready in shown and not pressed:
                pressed = bool(os.write(terminal, b"\x03"))
    except OSError:  # the program has ended
        pass
    finally:
        os.close(terminal)
        ended, status = os.waitpid(pid, os.WNOHANG if time.monotonic() >= end else 0)
        if not ended:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
    with pytest.raises(ProcessLookupError):  # no worker is left
        os.killpg(pid, 0)
    return os.waitstatus_to_exitcode(status), shown.decode(errors="replace")


@pytest.mark.skipif(sys.version_info >= (3, 14), reason="workers are not forked, and lack the slow file")
@pytest.mark.parametrize("arguments", ["check -j2", "check --fix -j2", "rewrite --in-place -j1"])
def test_a_slow_file_is_named_and_ctrl_c_leaves_nothing(arguments: str, project: ProjectFolder) -> None:
    project.write({f"m{number:02}.py": LONG for number in range(64)} | {"m01_slow.py": LONG})
    (project / "tmp").mkdir()
    status, shown = press_ctrl_c(SLOW, arguments.split(), project.path, b"m01_slow.py")
    assert status == 130, shown
    assert "2 s  m01_slow.py" in shown and "Checking" in shown
    assert shown.endswith("Interrupted. Nothing was written; all files are unchanged.\r\n")
    assert "Traceback" not in shown
    assert not list((project / "tmp").iterdir())
    assert {file.read_text() for file in project.path.glob("*.py")} == {LONG}
    assert not [name for name in os.listdir(project.path) if name.startswith(".devicefix-")]


WRITING = """
import time
from devicefix.files import write as files
replace = files.system.replace
def slow(*paths):
    print("writing", flush=True)
    time.sleep(1)
    replace(*paths)
files.system.replace = slow
from devicefix.cli import main
main(prog_name="devicefix")
"""


def test_ctrl_c_between_two_files_says_how_many_are_written(project: ProjectFolder) -> None:
    project.write({"a.py": TIED, "b.py": TIED, "c.py": TIED})
    command = [sys.executable, "-c", WRITING, "check", "--fix", "--no-cache"]
    with subprocess.Popen(
        command, cwd=project.path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None and process.stdout.readline() == "writing\n"
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert errors.splitlines()[-1] == "Interrupted. 1 file written; all others are unchanged."
    assert sorted(os.listdir(project.path)) == ["a.py", "b.py", "c.py"]
    assert [(project / name).read_text() == TIED for name in ("a.py", "b.py", "c.py")] == [False, True, True]


def test_an_estimate_is_shown_once_it_is_known_and_never_stands(monkeypatch: pytest.MonkeyPatch) -> None:
    console = Console(width=80)

    def at(seconds: float, marks: list[int]) -> str:
        monkeypatch.setattr(time, "monotonic", lambda: 1000 + seconds)
        shown.marks[:] = bytes(marks)
        with console.capture() as capture:
            console.print(shown.lines())
        return capture.get()

    with ExitStack() as stack:
        shown = Progress(["a.py", "b.py", "c.py", "d.py"], stack, quiet=False, processes=False)
        assert at(0, [0, 0, 0, 0]) == "Reading 4 files\n"
        shown.sizes.update({"a.py": 100, "b.py": 400, "c.py": 500, "d.py": 0})
        assert "left" not in at(1, [CHECKING, 0, 0, 0])
        assert "left" not in at(30, [DONE, CHECKING, 0, DONE])
        assert "50% about 1 min left" in at(61, [DONE, DONE, CHECKING, DONE])
        later = at(181, [DONE, DONE, CHECKING, DONE])
        assert "50% about 3 min left" in later and " 120 s  c.py" in later


def test_marks_reach_other_processes() -> None:
    from devicefix.runner.processes import Processes, shared_marks

    marks = shared_marks(3)
    with Processes(1, progress.mark_in, marks, spawn=True) as pool:
        pool.submit(mark, 1).result(timeout=60)
    assert list(marks) == [0, DONE, 0]


def mark(number: int) -> None:
    with progress.marked(number):
        pickle.dumps(number)
