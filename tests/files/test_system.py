"""The differences of Windows and macOS, simulated: their paths, links, locks and command lines."""

from __future__ import annotations

import json
import ntpath
import os
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from helpers import Cli, ProjectFolder

from devicefix.files import discover, system, write
from devicefix.files.write import Change
from devicefix.verify import startup
from devicefix.verify.verdict import ended_by


@pytest.fixture
def windows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(system, "WINDOWS", True)


def lent(monkeypatch: pytest.MonkeyPatch, times: int) -> None:
    """Let another program have the target open the first times that it is replaced."""
    replace, left = os.replace, iter(range(times))

    def refusing(source: str, target: Path) -> None:
        if next(left, None) is not None:
            raise PermissionError(13, "Access is denied", str(target))
        replace(source, target)

    monkeypatch.setattr(os, "replace", refusing)


@pytest.mark.usefixtures("windows")
def test_a_file_that_a_scanner_has_open_is_replaced_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "a.py"
    file.write_bytes(b"old")
    lent(monkeypatch, 3)
    write.write(Change(str(file), b"old", b"new"))
    assert (file.read_bytes(), list(tmp_path.iterdir())) == (b"new", [file])


@pytest.mark.usefixtures("windows")
def test_a_file_that_stays_open_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "a.py"
    file.write_bytes(b"old")
    lent(monkeypatch, 1_000_000)
    monkeypatch.setattr(system, "_PATIENCE", 0.05)
    with pytest.raises(PermissionError):
        write.write(Change(str(file), b"old", b"new"))
    assert (file.read_bytes(), list(tmp_path.iterdir())) == (b"old", [file])


def test_elsewhere_no_permission_is_an_error_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "a.py"
    file.write_bytes(b"old")
    lent(monkeypatch, 1)
    with pytest.raises(PermissionError):
        write.write(Change(str(file), b"old", b"new"))


@pytest.fixture
def junctions(monkeypatch: pytest.MonkeyPatch, windows: None) -> set[str]:
    """Return the paths of folders to take for junctions."""
    paths: set[str] = set()
    lstat = os.lstat

    def marked(path: Any) -> Any:
        status = lstat(path)
        if os.fspath(path) not in paths:
            return status
        return SimpleNamespace(st_mode=status.st_mode, st_reparse_tag=0xA0000003)

    monkeypatch.setattr(os, "lstat", marked)
    return paths


def test_junctions_are_not_followed(project: ProjectFolder, junctions: set[str]) -> None:
    files = project.write({"a.py": "", "b/c.py": "", "up/a.py": ""})
    assert discover.find([project.path]) == files
    junctions.add(str(project / "up"))
    assert discover.find([project.path]) == files[:2]


def test_a_copy_has_links_for_junctions(
    project: ProjectFolder, junctions: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from devicefix.verify.copying import copy_folder

    project.write({"top/a.py": "1", "top/up/a.py": "2"})
    junctions.add(str(project / "top" / "up"))
    monkeypatch.setattr(os, "readlink", lambda path: {project / "top" / "up": ".."}[Path(path)])
    copy_folder(project / "top", project / "copy")
    assert (project / "copy" / "up").is_symlink()
    assert project.read("copy/up/copy/a.py") == "1"


@pytest.mark.usefixtures("windows")
def test_where_links_need_rights_there_are_junctions_and_copies(
    project: ProjectFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refusing(*_: Any, **__: Any) -> None:
        raise OSError(22, "A required privilege is not held by the client")

    made = []
    monkeypatch.setattr(os, "symlink", refusing)
    junction = SimpleNamespace(CreateJunction=lambda source, place: made.append((source, place)))
    monkeypatch.setitem(sys.modules, "_winapi", junction)
    file, _ = project.write({"a.txt": "1", "env/b.txt": ""})
    system.make_link("a.txt", project / "copy.txt", str(file))
    system.make_link("env", project / "other", str(project / "env"))
    assert project.read("copy.txt") == "1"
    assert made == [(os.path.realpath(project / "env"), str(project / "other"))]


@pytest.mark.skipif(os.name == "nt", reason="there, names that differ in case are one file")
def test_names_that_differ_in_case_are_one_file_if_the_file_system_says_so(
    project: ProjectFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    project.write({"src/a.py": "", "SRC/A.py": "", "SRC/b.py": ""})
    paths = [Path("src/a.py"), Path("SRC/A.py"), Path("SRC/b.py")]
    assert discover.find(paths) == sorted(paths)
    monkeypatch.setattr(os.path, "samefile", lambda one, other: one.lower() == other.lower())
    assert discover.find(paths) == sorted([paths[0], paths[2]])


@pytest.mark.skipif(os.name == "nt", reason="there, names that differ in case are one file")
def test_hard_links_that_differ_in_case_are_two_files(project: ProjectFolder) -> None:
    project.write({"a.py": ""})
    os.link(project / "a.py", project / "A.py")
    assert discover.find([Path("a.py"), Path("A.py")]) == [Path("A.py"), Path("a.py")]


def test_folders_on_several_drives(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(os, "path", ntpath)
        folders = system.common_folders([r"C:\a\x.py", r"c:\a\b\y.py", r"D:\z.py"])
        relative = [system.relative(r"C:\a\x.py", "C:\\a"), system.relative(r"D:\z.py", "C:\\a")]
    assert [folder.lower() for folder in folders] == [r"c:\a", "d:\\"]
    assert relative == ["x.py", r"D:\z.py"]


@pytest.mark.parametrize("option", ["check", "rewrite"])
def test_files_on_several_drives_are_checked(
    option: str, project: ProjectFolder, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Let paths in `d/` be on another drive than all others."""
    relpath, commonpath, splitdrive = os.path.relpath, os.path.commonpath, os.path.splitdrive
    drive = os.path.join(project.path, "d", "")

    def on_d(path: Any) -> bool:
        return os.path.join(os.path.abspath(path), "").startswith(drive)

    def relative(path: Any, start: Any = os.curdir) -> Any:
        if on_d(path) != on_d(start):
            raise ValueError("path is on mount 'D:', start on mount 'C:'")
        return relpath(path, start)

    def common(paths: Any) -> Any:
        paths = list(paths)
        if len(set(map(on_d, paths))) > 1:
            raise ValueError("Paths don't have the same drive")
        return commonpath(paths)

    monkeypatch.setattr(os.path, "relpath", relative)
    monkeypatch.setattr(os.path, "commonpath", common)
    monkeypatch.setattr(os.path, "splitdrive", lambda path: ("D:", path) if on_d(path) else splitdrive(path))
    tied = "import torch\nimport base\n\nx = torch.ones(2).cuda()\ny = open('c.yaml')\n"
    project.write({"c/a.py": tied, "c/base.py": "", "d/b.py": tied, "d/c.yaml": "device: cuda\n"})
    done = cli(option, "--no-cache", "c/a.py", "d/b.py")
    assert done.exit_code == 1, done.output
    assert "internal error" not in done.output and done.output.count("cuda()") >= 2


@pytest.mark.usefixtures("windows")
def test_cmd_gets_its_line_as_it_is() -> None:
    command = startup.shell_command("python train.py", ["--name", 'a "b"'])
    line = r'cmd /d /s /c "python train.py --name "a \"b\"""'
    assert startup.for_system(command) == line
    assert startup.for_system(["python", "a b.py"]) == ["python", "a b.py"]


@pytest.mark.skipif(os.name == "nt", reason="cmd has other quotes")
def test_the_shell_takes_arguments_as_they_are() -> None:
    set_first = startup.shell_command("PYTHONPATH=. python a.py; export PYTHONPATH='b c'; MYPYTHONPATH=d")
    assert set_first[-1] == (
        'PYTHONPATH="$DEVICEFIX_STARTUP":. python a.py; export PYTHONPATH="$DEVICEFIX_STARTUP":\'b c\';'
        " MYPYTHONPATH=d"
    )
    command = startup.shell_command("printf '%s,' a", ["b c", "$HOME"])
    done = subprocess.run(startup.for_system(command), capture_output=True, text=True, check=True)
    assert done.stdout == "a,b c,$HOME,"


def test_the_number_of_an_access_violation_is_hexadecimal() -> None:
    assert ended_by(0xC0000005) == "the program ended with exit status 0xC0000005"


def test_processes_on_windows_take_turns_to_record_events(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from devicefix.verify.runtime import events

    calls, held = [], threading.Lock()

    def locking(file: int, mode: int, count: int) -> None:
        calls.append((mode, count, os.lseek(file, 0, os.SEEK_CUR)))
        if mode == 1:
            assert held.acquire(blocking=False)
        else:
            held.release()

    monkeypatch.setattr(events, "_WINDOWS", True)
    monkeypatch.setitem(sys.modules, "msvcrt", SimpleNamespace(locking=locking, LK_LOCK=1, LK_UNLCK=0))
    recorder = events.Events(str(tmp_path / "events"))
    recorder.emit("one")
    recorder.emit("two")
    assert [json.loads(line)["kind"] for line in (tmp_path / "events").open()] == ["one", "two"]
    assert calls == [(1, 1, 0), (0, 1, 0)] * 2


def test_windows_has_no_forks(monkeypatch: pytest.MonkeyPatch) -> None:
    from devicefix.verify.runtime.ending import after_fork

    monkeypatch.delattr(os, "register_at_fork", raising=False)
    after_fork(lambda: None)


def test_a_work_tree_names_files_with_slashes(monkeypatch: pytest.MonkeyPatch) -> None:
    from devicefix.runner.worktree import name_in

    with monkeypatch.context() as patched:
        patched.setattr(os, "path", ntpath)
        patched.setattr(os, "sep", "\\")
        name = name_in("C:\\top", r"C:\top\sub\a.py")
    assert name == b"sub/a.py"
