"""Many files are replaced together, or not at all."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from devicefix.files import commit
from devicefix.files.commit import CommitError, replace_all
from devicefix.files.write import Change

OLD, NEW = b"old\n", b"new\n" * 50_000


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    made = [tmp_path / f"{number}.py" for number in range(8)]
    for file in made:
        file.write_bytes(OLD)
    return made


def changes(files: list[Path]) -> list[Change]:
    return [Change(str(file), OLD, NEW) for file in files]


def test_all_files_are_replaced(files: list[Path]) -> None:
    commit.commit(changes(files))
    assert {file.read_bytes() for file in files} == {NEW}
    assert sorted(files[0].parent.iterdir()) == files


def test_a_file_that_someone_else_has_changed_stops_all(files: list[Path]) -> None:
    files[5].write_bytes(b"mine\n")
    with pytest.raises(CommitError, match=r"5\.py: changed in the meantime"):
        commit.commit(changes(files))
    assert [file.read_bytes() for file in files] == [OLD] * 5 + [b"mine\n"] + [OLD] * 2
    assert sorted(files[0].parent.iterdir()) == files


def test_a_failure_on_the_way_restores_what_was_done(
    files: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    replace, count = os.replace, 0

    def failing(source: str, target: Path) -> None:
        nonlocal count
        count += 1
        if count == 4:
            raise OSError(28, "No space left on device", str(target))
        replace(source, target)

    monkeypatch.setattr(os, "replace", failing)
    assert "No space left on device" in replace_all(changes(files))
    assert {file.read_bytes() for file in files} == {OLD}
    assert sorted(files[0].parent.iterdir()) == files


@pytest.mark.parametrize(
    ("where", "call", "expected"),
    [("write.os.fsync", 5, OLD), ("system.replace", 1, NEW), ("system.replace", 5, NEW), ("settle", 1, NEW)],
)
def test_if_the_process_that_writes_is_killed_the_first_one_completes_its_work(
    files: list[Path], where: str, call: int, expected: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    fault = (
        "import os, signal; from devicefix.files import commit, system, write; import itertools;"
        f"real, calls = commit.{where} if 'write' not in {where!r} else {where}, itertools.count(1);"
        f"new = lambda *a: os.kill(os.getpid(), signal.SIGKILL) if next(calls) == {call} else real(*a);"
    )
    owner, _, name = where.rpartition(".")
    fault += f"setattr({owner or 'commit'}, {name!r}, new);"
    monkeypatch.setattr(
        commit, "_START", commit._START.replace("from devicefix", f"{fault} from devicefix", 1)
    )
    if expected == OLD:
        with pytest.raises(CommitError, match="ended with status -9"):
            commit.commit(changes(files))
    else:
        commit.commit(changes(files))
    assert {file.read_bytes() for file in files} == {expected}
    assert sorted(files[0].parent.iterdir()) == files


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_ended_at_any_moment_all_files_are_old_or_all_are_new(
    files: list[Path], number: signal.Signals
) -> None:
    """The whole group gets the signal, as from Ctrl-C, at 20 moments, then at once until it came first."""
    code = (
        "import sys; from devicefix.files.commit import Change, commit; print(flush=True)\n"
        f"commit(Change(f, {OLD!r}, {NEW[:4]!r} * 50_000) for f in sys.argv[1:])"
    )
    seen = set()
    for attempt in range(100):
        if attempt >= 20 and (OLD in seen or number == signal.SIGINT):
            break
        for file in files:
            file.write_bytes(OLD)
        process = subprocess.Popen(
            [sys.executable, "-c", code, *map(str, files)],
            start_new_session=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(random.Random(attempt).uniform(0, 0.25) if attempt < 20 else 0)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        process.communicate()
        _wait_for_commits()
        content = {file.read_bytes() for file in files}
        assert len(content) == 1, (attempt, number)
        assert sorted(files[0].parent.iterdir()) == files
        seen |= content
    assert OLD in seen or number == signal.SIGINT


@pytest.mark.slow
def test_killed_in_the_midst_it_is_finished(tmp_path: Path) -> None:
    files = [tmp_path / f"{number:04}.py" for number in range(1000)]
    code = (
        "import sys; from pathlib import Path; from devicefix.files.commit import Change, commit\n"
        f"commit(Change(str(f), {OLD!r}, b'new') for f in Path(sys.argv[1]).iterdir())"
    )
    errors = b""
    for _ in range(5):  # on a busy machine, it may be killed too late
        for file in files:
            file.write_bytes(OLD)
        process = subprocess.Popen(
            [sys.executable, "-c", code, str(tmp_path)], start_new_session=True, stderr=subprocess.PIPE
        )
        while all(file.stat().st_size == len(OLD) for file in files[:3] + files[-3:]):
            assert process.poll() is None
        os.killpg(process.pid, signal.SIGKILL)
        _, errors = process.communicate()  # until the process that replaces the files has ended, too
        if errors:
            break
    assert errors == b"devicefix: all 1000 files are rewritten\n"
    assert {file.read_bytes() for file in files} == {b"new"}
    assert sorted(tmp_path.iterdir()) == files


def _wait_for_commits() -> None:
    end = time.monotonic() + 20
    while any(commit.__name__ in (p.info["cmdline"] or []) for p in psutil.process_iter(["cmdline"])):
        assert time.monotonic() < end
        time.sleep(0.02)
