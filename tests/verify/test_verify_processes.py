"""Tests of what surrounds a program: signals, the standard input, and scratch copies."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
import torch
from running import ProgramFolder

from devicefix.verify import copying
from devicefix.verify.commands import Command, Limits
from devicefix.verify.copying import copy_folder, place
from devicefix.verify.launch import run_command
from devicefix.verify.runtime.plan import Plan
from devicefix.verify.stdin import Input

VERIFY = [sys.executable, "-m", "devicefix", "verify"]


# --- signals ------------------------------------------------------------------------------------------

STUBBORN = """
import os, signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)', sys.argv[1]], start_new_session=True)
open(sys.argv[2], 'w').close()
time.sleep(600)
"""


def marked(mark: str) -> list[psutil.Process]:
    """Return the processes that have a word in their command."""
    return [found for found in psutil.process_iter(["cmdline"]) if mark in (found.info["cmdline"] or [])]


@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP", "SIGINT"])
def test_a_signal_ends_the_program_its_children_and_the_copy(name: str, folder: ProgramFolder) -> None:
    folder.write(train=STUBBORN)
    temporary = folder.path / "tmp"
    temporary.mkdir()
    mark, started = f"mark-{os.getpid()}-{name}", folder.path / "started"
    process = subprocess.Popen(
        [*VERIFY, "--scratch", "train.py", mark, str(started)],
        cwd=folder.path,
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env={**os.environ, "TMPDIR": str(temporary)},
    )
    while not started.exists():
        time.sleep(0.05)
        assert process.poll() is None
    assert len(list(temporary.iterdir())) == 2  # the copy, and the run's own files
    for _ in range(3):  # those after the first interrupt nothing
        process.send_signal(getattr(signal, name))
        time.sleep(0.3)
    try:
        _, errors = process.communicate(timeout=60)
    finally:
        left = marked(mark)
        for found in left:
            found.kill()
    assert process.returncode == (130 if name == "SIGINT" else 128 + getattr(signal, name)), errors
    assert b"Traceback" not in errors
    assert (b"Interrupted. The program was ended.\n" in errors) == (name == "SIGINT")
    assert not left
    assert not list(temporary.iterdir())


def test_a_signal_that_is_ignored_stays_ignored(folder: ProgramFolder) -> None:
    folder.write(train="import time, pathlib\nopen('started', 'w').close()\ntime.sleep(2)\n")
    process = subprocess.Popen(
        ["nohup", *VERIFY, "train.py"],
        cwd=folder.path,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    while not (folder.path / "started").exists():
        time.sleep(0.05)
    process.send_signal(signal.SIGHUP)
    output, _ = process.communicate(timeout=60)
    assert (process.returncode, b"verify: pass" in output) == (0, True)


# --- the standard input -------------------------------------------------------------------------------


@pytest.fixture
def stdin() -> Iterator[int]:
    """Return a pipe that is the standard input of this process, as the descriptor to write to."""
    before = os.dup(0)
    source, target = os.pipe()
    os.dup2(source, 0)
    os.close(source)
    yield target
    os.dup2(before, 0)
    os.close(before)


def read_by(code: str, given: Input, folder: Path) -> str:
    """Return what a program makes of the standard input."""
    plan = Plan(folder=str(folder), roots=())
    run = [sys.executable, "-S", "-c", f"import sys; text = {code}; open('read', 'w').write(text)"]
    assert run_command(Command(run, folder, stdin=given), plan, Limits(30), lambda _: None).status == 0
    return (folder / "read").read_text()


def test_a_pipe_reaches_the_first_run(stdin: int, tmp_path: Path) -> None:
    given = Input()
    os.write(stdin, b"one\ntwo\n")
    os.close(stdin)
    assert read_by("sys.stdin.read()", given, tmp_path) == "one\ntwo\n"
    assert read_by("sys.stdin.read()", given, tmp_path) == ""


def test_each_run_reads_a_file_from_where_it_was(tmp_path: Path, stdin: int) -> None:
    os.close(stdin)
    (tmp_path / "input.txt").write_text("one\ntwo\nthree\n")
    with (tmp_path / "input.txt").open("rb", buffering=0) as file:
        file.readline()
        os.dup2(file.fileno(), 0)
        given = Input()
        for _ in range(2):
            assert read_by("sys.stdin.read()", given, tmp_path) == "two\nthree\n"


def test_a_closed_standard_input_is_empty(folder: ProgramFolder) -> None:
    folder.write(train="import sys\nassert sys.stdin.read() == ''\n")
    done = subprocess.run(
        ["sh", "-c", f"{' '.join(VERIFY)} train.py <&-"], cwd=folder.path, capture_output=True, check=False
    )
    assert done.returncode == 0, done


@pytest.mark.slow
def test_each_run_of_a_comparison_reads_the_standard_input(folder: ProgramFolder) -> None:
    folder.write(
        train="import torch\nprint(torch.tensor([float(input()), float(input())]).cuda().sum().item())\n"
    )
    (folder.path / "input.txt").write_text("1\n2\n")
    command = f"{' '.join(VERIFY)} --compare train.py < input.txt"
    done = subprocess.run(["sh", "-c", command], cwd=folder.path, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "1 value equal" in done.stdout, done


# --- scratch copies -----------------------------------------------------------------------------------


def test_what_a_copy_contains(tmp_path: Path) -> None:
    original, copy = tmp_path / "original", tmp_path / "copy"
    (original / "data").mkdir(parents=True)
    (original / "data" / "a.bin").write_bytes(b"x" * 100)
    os.utime(original / "data" / "a.bin", (1, 1))
    (original / "link").symlink_to("data/a.bin")
    (original / "run.sh").write_text("true")
    (original / "run.sh").chmod(0o555)
    for left_out in ("__pycache__", ".mypy_cache"):
        (original / left_out).mkdir()
    (original / "env" / "bin").mkdir(parents=True)
    (original / "env" / "pyvenv.cfg").write_text("")
    os.mkfifo(original / "pipe")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(os.path.relpath(original / "socket"))
        copy_folder(original, copy)
    assert sorted(os.listdir(copy)) == ["data", "env", "link", "run.sh"]
    assert os.readlink(copy / "link") == "data/a.bin"
    assert os.readlink(copy / "env") == str(original / "env")
    copied = copy / "data" / "a.bin"
    assert (copied.read_bytes(), copied.stat().st_mtime) == (b"x" * 100, 1)
    assert (copy / "run.sh").stat().st_mode & 0o777 == 0o555
    copied.write_bytes(b"other")
    assert (original / "data" / "a.bin").read_bytes() == b"x" * 100


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux shares content so")
def test_copies_share_their_content_where_the_file_system_can(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Test the choice of the place with a file system that can only share beside the original."""
    shared: list[str] = []
    original = tmp_path / "original"
    original.mkdir()
    (original / "a.txt").write_text("text")

    def clone(old: int, new: int) -> bool:
        path = os.readlink(f"/proc/self/fd/{new}")
        if not path.startswith(str(tmp_path)):
            return False
        shared.append(path)
        return os.sendfile(new, old, 0, 1 << 20) > 0

    assert place(original) == tempfile.gettempdir()  # if tests run where temporary files are
    monkeypatch.setattr(copying, "clone", clone)
    monkeypatch.setattr(tempfile, "tempdir", "/dev/shm")
    assert place(original) == str(tmp_path)
    copy_folder(original, tmp_path / "copy")
    assert (tmp_path / "copy" / "a.txt").read_text() == "text"
    assert shared[-1] == str(tmp_path / "copy" / "a.txt")


def test_git_works_in_a_copy_and_changes_nothing_in_the_original(folder: ProgramFolder) -> None:
    folder.write(
        train="""
        import subprocess
        def git(*words):
            return subprocess.run(['git', *words], check=True, capture_output=True, text=True).stdout
        assert git('log', '--format=%s') == 'first\\n'
        assert git('status', '--short') == '', git('status', '--short')
        git('-c', 'user.name=a', '-c', 'user.email=b', 'commit', '--allow-empty', '-m', 'second')
        """
    )
    for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "first"]):
        identity = ["-c", "user.name=a", "-c", "user.email=b"]
        subprocess.run(["git", *identity, *words], cwd=folder.path, check=True)
    before = folder.content()
    done = folder.verify("--scratch", "train.py", process=True)
    assert done.status == 0, done.errors
    assert folder.content() == before


def test_an_environment_in_the_folder_works_in_a_copy(folder: ProgramFolder) -> None:
    subprocess.run(
        [sys.executable, "-m", "venv", "--without-pip", "--symlinks", folder.path / "env"], check=True
    )
    folder.write(train="import sys\nfrom os.path import samefile\nassert samefile(sys.prefix, sys.argv[1])\n")
    real = str(folder.path.resolve() / "env")
    for python in ("env/bin/python", f"{folder.path}/env/bin/python"):
        done = folder.verify("--scratch", "--python", python, "train.py", real)
        assert done.status == 0, done.errors


def test_a_package_that_is_installed_for_editing_is_rewritten_in_a_scratch_run(folder: ProgramFolder) -> None:
    folder.write(
        **{"src/net": "import torch\ndef make():\n    return torch.ones(1).cuda()\n"},
        train="import sys\nsys.path.insert(0, sys.argv[1])\nimport net\nnet.make()\n",
    )
    # as the path in a `.pth` file, which no word of the command names
    (folder.path / "run.sh").write_text(f'{sys.executable} train.py "{folder.path}/src"\n')
    done = folder.verify("--scratch", "-c", "sh run.sh")
    assert done.status == 0, (done.report, done.errors)


@pytest.mark.slow
def test_the_copies_of_a_comparison_do_not_exist_at_once_and_the_time_of_all_runs_is_reported(
    folder: ProgramFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder.write(
        train="""
        import glob, os, sys
        copies = os.path.join(os.path.dirname(os.path.dirname(os.getcwd())), 'devicefix-*', '*', 'train.py')
        assert len(glob.glob(copies)) == 1, glob.glob(copies)
        """
    )
    (folder.path / "tmp").mkdir()
    monkeypatch.setenv("TMPDIR", str(folder.path / "tmp"))
    done = folder.verify("--compare", "train.py", process=True)
    assert done.status in (0, 2), (done.report, done.errors)
    assert done.report["run"]["failure"] is None
    assert done.report["run"]["seconds"] < done.report["seconds"]


# --- the Python of the program ------------------------------------------------------------------------


def make_environment(folder: Path, with_torch: bool = True) -> Path:
    """Make a virtual environment, which shares the torch of this one."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    packages = next(folder.glob("[Ll]ib*/**/site-packages"))
    if with_torch:
        (packages / "base.pth").write_text(f"{Path(torch.__file__).parents[1]}\n")
    return folder


@pytest.mark.slow
def test_the_environment_of_the_program_is_found(folder: ProgramFolder) -> None:
    folder.write(**{"deep/train": "import sys\nprint('prefix', sys.prefix, file=sys.stderr)\n"})
    active, beside, above = (
        make_environment(folder.path / name) for name in ("active", "deep/.venv", "deep/venv")
    )
    conda = make_environment(folder.path / "conda")
    empty = make_environment(folder.path / "empty", with_torch=False)

    def used(**variables: str) -> str:
        done = folder.verify("deep/train.py", variables=variables)
        assert done.status == 0, (done.report, done.errors)
        prefix = done.errors.splitlines()[-1].removeprefix("prefix ")
        assert done.report["python"] == ("" if prefix == sys.prefix else f"{prefix}/bin/python")
        return prefix

    assert used(VIRTUAL_ENV=str(active), CONDA_PREFIX=str(conda)) == str(active)
    assert used(VIRTUAL_ENV=sys.prefix) == sys.prefix
    assert used(VIRTUAL_ENV=str(empty)) == str(beside)
    shutil.rmtree(beside)
    assert used(CONDA_PREFIX=str(conda)) == str(above)
    shutil.rmtree(above)
    assert used(CONDA_PREFIX=str(conda)) == str(conda)
    assert used(CONDA_PREFIX=str(folder.path / "gone")) == sys.prefix


def test_the_python_is_named_in_the_summary(folder: ProgramFolder) -> None:
    folder.write(train="")
    python = make_environment(folder.path / "other") / "bin" / "python"
    assert (
        f"  python         {python}\n" in folder.verify("--python", str(python), "train.py", text=True).output
    )
    assert "  python  " not in folder.verify("train.py", text=True).output


# --- many modules -----------------------------------------------------------------------------------------


@pytest.mark.slow
def test_modules_that_are_not_imported_are_counted_apart(folder: ProgramFolder) -> None:
    tied = "import torch\n\ndef make():\n    return torch.ones(2).cuda()\n"
    folder.write(**{f"lib/m{number}": tied for number in range(60)})
    text = folder.verify("--verbose", "-m", "lib.m3", text=True).output
    assert "0 of 1 line in 1 module; 59 modules with 59 lines were not imported" in text
    assert f"{Path('lib', 'm40.py')}: not imported (not run: 4)" in text
