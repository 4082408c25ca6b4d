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

import pytest

from devicefix.cli.changes import write_all
from devicefix.cli.errors import UNCHANGED, CommandError
from devicefix.files import commit
from devicefix.files.commit import CommitError
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


@pytest.mark.parametrize("restores", [True, False])
def test_a_failure_on_the_way_restores_what_was_done(
    files: list[Path], monkeypatch: pytest.MonkeyPatch, restores: bool
) -> None:
    replace, count = os.replace, 0

    def failing(source: str, target: Path) -> None:
        nonlocal count
        count += 1
        if count == 4 or (count > 4 and not restores):
            raise OSError(28, "No space left on device", str(target))
        replace(source, target)

    monkeypatch.setattr(os, "replace", failing)
    with pytest.raises(CommandError, match="No space left on device") as raised:
        write_all(changes(files))
    new = [str(file) for file in files if file.read_bytes() == NEW]
    assert len(new) == (0 if restores else 3)
    more = raised.value.message.splitlines()[1]
    told = f"These files were rewritten and could not be restored: {', '.join(new)}"
    assert more == (UNCHANGED if restores else told)
    assert sorted(files[0].parent.iterdir()) == files


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
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
        content = {file.read_bytes() for file in files}
        assert len(content) == 1, (attempt, number)
        assert sorted(files[0].parent.iterdir()) == files
        seen |= content
    assert OLD in seen or number == signal.SIGINT
