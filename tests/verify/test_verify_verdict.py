"""The verdict of `devicefix verify`, its explanation and its report, from recorded events."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import click
import pytest

from devicefix.verify import report
from devicefix.verify.against_cuda import Comparison
from devicefix.verify.cause import Cause, Explanation
from devicefix.verify.commands import Command, Ended
from devicefix.verify.program import Fixed, Program, Rewritten
from devicefix.verify.runtime.plan import Source
from devicefix.verify.scratch import Scratch
from devicefix.verify.session import Report
from devicefix.verify.verdict import (
    CopyHazard,
    Failure,
    Location,
    Module,
    Request,
    Run,
    Verdict,
    ended_by,
    judge,
)

PROCESS = {"kind": "process"}
PASSED = Ended(status=0, seconds=1.5)


def event(kind: str, **fields: Any) -> dict[str, Any]:
    return {"kind": kind, **fields}


def request(line: int, library: str | None = None, call: str = ".cuda()") -> dict[str, Any]:
    return event("request", file="/home/me/train.py", line=line, library=library, call=call)


def hazard(changed: int | None = 7) -> dict[str, Any]:
    site = {"file": "/home/me/train.py", "line": changed} if changed else None
    moved = {"file": "/home/me/train.py", "line": 5}
    return event("copy", what="tensor", move=".cpu()", moved=moved, changed=site)


def error(kind: str, message: str, *frames: tuple[str, int]) -> dict[str, Any]:
    found = [{"file": file, "line": line, "function": "step"} for file, line in frames]
    return event("error", type=kind, message=message, frames=found)


@pytest.fixture
def program() -> Program:
    fixes = {"/home/me/train.py": [fix(3), fix(8, 2), fix(8)], "/home/me/net.py": [fix(5), fix(6)]}
    modules = {path: Rewritten(path, b"", found, [], b"") for path, found in fixes.items()}
    return Program(("/home/me",), modules)


def fix(line: int, places: int = 1) -> Fixed:
    return Fixed(line, 1, "DF101", ((line, 0, line, 5, 0),) * places)


# --- the verdict ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ended", "events", "verdict", "reason"),
    [
        (PASSED, [PROCESS], Verdict.PASS, ""),
        (PASSED, [PROCESS, request(3, "probing")], Verdict.PASS, ""),
        (PASSED, [PROCESS, request(3)], Verdict.FAIL, "the program still requests CUDA"),
        (
            PASSED, [PROCESS, hazard()], Verdict.FAIL,
            "copy hazard: memory that CUDA would copy is shared and changed on a CPU",
        ),
        (
            PASSED, [PROCESS, event("stopped", steps=3)], Verdict.STOPPED,
            "the run reached the limit on optimizer steps without an error",
        ),
        (
            Ended(-15, 2.4, "timeout"), [PROCESS, request(3)], Verdict.STOPPED,
            "the run reached the timeout limit after 2 s",
        ),
        (Ended(7, 1.0), [PROCESS], Verdict.FAIL, "the program ended with exit status 7"),
        (Ended(1, 1.0), [PROCESS, error("ValueError", "bad\nworse")], Verdict.FAIL, "ValueError: bad"),
        (
            PASSED, [], Verdict.TROUBLE,
            "the command started no Python process that devicefix could watch",
        ),
    ],
)  # fmt: skip
def test_verdict(
    ended: Ended, events: list[dict[str, Any]], verdict: Verdict, reason: str, program: Program
) -> None:
    run = judge(ended, events, program)
    assert (run.verdict, run.reason) == (verdict, reason)


def test_steps_and_warnings_are_collected(program: Program) -> None:
    events = [
        PROCESS,
        event("step", steps=1),
        event("step", steps=2),
        event("trouble", where="copies", message="KeyError: 1"),
        event("trouble", where="copies", message="KeyError: 1"),
    ]
    run = judge(PASSED, events, program)
    assert (run.steps, run.seconds) == (2, 1.5)
    assert run.warnings == ["could not watch copies: KeyError: 1"]


def test_a_line_ran_if_all_that_its_fixes_made_ran(program: Program) -> None:
    train, net = "/home/me/train.py", "/home/me/net.py"
    events = [
        PROCESS,
        event("module", file=train),
        event("module", file=train),
        event("fix", file=train, places=[0, 1]),
        event("fix", file=train, places=[3]),
    ]
    run = judge(PASSED, events, program)
    assert [(m.file, m.imported, m.ran, m.not_run) for m in run.modules] == [
        (net, False, (), (5, 6)),
        (train, True, (3,), (8,)),
    ]
    assert [(one.line, one.ran) for one in run.modules[1].fixes] == [
        (3, (True,)), (8, (True, False)), (8, (True,)),
    ]  # fmt: skip
    assert (run.ran, run.not_run) == ([Location(train, 3)], [Location(train, 8)])
    run = judge(PASSED, [*events, event("fix", file=train, places=[2])], program)
    assert (run.modules[1].ran, run.modules[1].not_run) == ((3, 8), ())
    assert (run.ran, run.not_run) == ([Location(train, 3), Location(train, 8)], [])


def test_equal_requests_and_hazards_are_merged(program: Program) -> None:
    run = judge(PASSED, [PROCESS, request(9), request(3), request(3), hazard(), hazard()], program)
    place = "/home/me/train.py"
    assert run.requests == [
        Request(Location(place, 3), ".cuda()", 2),
        Request(Location(place, 9), ".cuda()", 1),
    ]
    assert run.copies == [CopyHazard("tensor", ".cpu()", Location(place, 5), Location(place, 7))]


def test_a_failure_shows_the_programs_own_frames(program: Program) -> None:
    library = "/home/me/venv/site-packages/lib.py"
    frames = ("/home/me/train.py", 3), (library, 4), ("/usr/lib/other.py", 5), ("<frozen runpy>", 1)
    run = judge(Ended(1, 1.0), [PROCESS, error("KeyError", "'x'", *frames)], program)
    assert run.failure == Failure("KeyError: 'x'", (Location("/home/me/train.py", 3, "step"),), message="'x'")


def test_a_failure_of_a_worker_process_is_read_from_the_message(program: Program) -> None:
    message = (
        "Caught ValueError in DataLoader worker process 0.\n"
        "Original Traceback (most recent call last):\n"
        '  File "/home/me/data.py", line 12, in load\n'
        "ValueError: no image\n"
    )
    run = judge(Ended(1, 1.0), [PROCESS, error("ValueError", message)], program)
    assert run.failure == Failure(
        "ValueError: no image", (Location("/home/me/data.py", 12, "load"),), message=message
    )


@pytest.mark.parametrize(
    ("status", "text"),
    [
        (3, "the program ended with exit status 3"),
        (-9, "the program was terminated by SIGKILL"),
        (139, "the program was terminated by SIGSEGV"),
        (-200, "the program was terminated by signal 200"),
    ],
)
@pytest.mark.skipif(os.name == "nt", reason="signals")
def test_exit_statuses(status: int, text: str) -> None:
    assert ended_by(status) == text


# --- the report ----------------------------------------------------------------------------------------


@pytest.fixture
def shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Report:
    """Return a report with something in every section."""
    monkeypatch.chdir(tmp_path)
    file = str(tmp_path / "train.py")
    Path(file).write_text("one\ntwo\nthree\n")
    run = Run(
        Verdict.FAIL,
        "ValueError: bad",
        seconds=2.0,
        steps=1,
        failure=Failure("ValueError: bad", (Location(file, 2, "step"),)),
        requests=[Request(Location(file, 1), ".cuda()", 2, "lib")],
        copies=[CopyHazard("numpy view", ".cpu()", Location(file, 1), Location(file, 3))],
        modules=[
            Module(str(tmp_path / "all.py"), True, (1, 2), ()),
            Module(str(tmp_path / "never.py"), False, (), (3,)),
            Module(file, True, (1,), (2, 3, 4, 8)),
        ],
        warnings=["could not watch copies: E"],
    )
    comparison = Comparison("simulated", observations=3, on_cpu=["train.py:1: different"], notes=["a note"])
    explanation = Explanation(Cause.MEMORY, "try smaller data", ("no memory is left",))
    return Report(run.verdict, run.reason, run, explanation, comparison)


def test_the_text_has_every_section(shown: Report) -> None:
    assert click.unstyle(report.text(shown)).splitlines() == [
        "verify: fail in 2.0 s, 1 optimizer step: ValueError: bad",
        "    train.py:2 in step: two",
        "  why: the program ran out of memory [out-of-memory]",
        "       train.py:1: different",
        "  do:  try smaller data",
        "  runs           the original on a simulated CUDA machine, "
        "the rewritten program on the same machine and on the CPU",
        "  CUDA requests  train.py:1 .cuda() (2 times), by lib: one",
        "  copy hazards   train.py:1 `.cpu()` copies on CUDA but not on a CPU; "
        "the shared numpy view is changed at train.py:3 while the source and the result are in use",
        "  fixes run      3 of 7 lines in 2 modules; 1 module with 1 line was not imported",
        "                 train.py: 1 of 5 lines",
        "                 all.py: 2 of 2 lines",
        "                 `--verbose` lists the fixed lines that did not run",
        "  notes          a note",
        "  warnings       could not watch copies: E",
    ]


def test_the_lines_that_did_not_run_are_listed_on_demand(shown: Report) -> None:
    lines = click.unstyle(report.text(shown, verbose=True)).splitlines()
    first = next(number for number, line in enumerate(lines) if "fixes run" in line)
    assert lines[first + 1 : first + 5] == [
        "                 all.py: 2 of 2 lines",
        "                 train.py: 1 of 5 lines (not run: 2-4, 8)",
        "                 never.py: not imported (not run: 3)",
        "  notes          a note",
    ]


def test_a_pass_is_short(shown: Report) -> None:
    shown = Report(Verdict.PASS, "", Run(seconds=0.25), comparison=Comparison("cuda", observations=1))
    assert click.unstyle(report.text(shown)).splitlines() == [
        "verify: pass in 0.2 s",
        "  runs           the program, which has no fixes, on CUDA and on the CPU",
        "  numbers        1 value equal",
        "  CUDA requests  none",
        "  copy hazards   none",
        "  fixes          nothing to rewrite",
        "  do:  to compare with the original, run this command on the last commit without the fixes",
    ]


@pytest.mark.parametrize(
    ("limit", "why"),
    [(None, "the others are read only on CUDA"), ("steps", "the run ended before the others")],
)
def test_values_without_a_match_have_a_reason(limit: str | None, why: str) -> None:
    run = Run(seconds=0.25, limit=limit)
    shown = Report(Verdict.PASS, "", run, comparison=Comparison("cuda", observations=3, compared=1))
    assert f"  numbers        1 of 3 values equal; {why}" in click.unstyle(report.text(shown)).splitlines()


def test_a_comparison_of_nothing_says_so() -> None:
    shown = click.unstyle(report.text(Report(Verdict.PASS, "", Run(), comparison=Comparison("cuda"))))
    assert "  numbers        none to compare: the program reads, prints and saves no tensor values\n" in shown


def test_long_sections_are_cut(shown: Report) -> None:
    assert shown.comparison is not None
    shown.comparison.on_cuda = [f"train.py:{line}: other" for line in range(9)]
    shown.run.requests = [Request(Location("x.py", line), "f()", 1) for line in range(12)]
    text = report.text(shown)
    assert "                 and 7 more; `--verbose` shows all\n" in text
    assert "       and 5 more; `--verbose` shows all\n" in text
    assert "train.py:8: other" in report.text(shown, verbose=True)


def test_a_summary_fits_a_small_terminal(shown: Report) -> None:
    lines = click.unstyle(report.text(shown, width=60)).splitlines()
    assert max(map(len, lines)) <= 60 and len(lines) <= 23
    assert "  copy hazards   train.py:1 `.cpu()` copies on CUDA but not" in lines
    assert "                 on a CPU; the shared numpy view is changed" in lines


def test_json_has_plain_values(shown: Report) -> None:
    found = json.loads(report.as_json(shown))
    assert (found["verdict"], found["run"]["verdict"], found["comparison"]["seconds"]) == (
        "fail",
        "fail",
        [0.0, 0.0],
    )
    assert found["run"]["copies"][0]["what"] == "numpy view"


# --- scratch copies ------------------------------------------------------------------------------------


@pytest.fixture
def original(tmp_path: Path) -> Path:
    folder = Path(os.path.realpath(tmp_path)) / "project"
    (folder / ".git").mkdir(parents=True)
    (folder / "train.py").write_text("pass\n")
    return folder


def test_a_scratch_copy_maps_paths_both_ways(original: Path) -> None:
    into = original.parent / "run"
    into.mkdir()
    scratch = Scratch(original, into)
    copy = into / "project"
    script = str(original / "train.py")
    assert sorted(path.name for path in copy.iterdir()) == [".git", "train.py"]
    assert scratch.path(script) == str(copy / "train.py")
    assert scratch.path("--lr") == "--lr"
    assert scratch.path(str(into)) == str(into)
    source = Source("0.py", [(1, 0, 1, 5, 0)], [1, 1], "digest")
    moved = scratch.program(Program((str(original),), rewritten={script: source}))
    there = str(copy / "train.py")
    both = script, there  # Python imports a package that is installed for editing from the original
    assert moved.roots == (str(copy), str(original))
    assert moved.rewritten == dict.fromkeys(both, source)
    recorded = {"file": str(copy / "train.py"), "frames": [{"line": 1, "message": f"in {copy}/x"}]}
    restored = {"file": script, "frames": [{"line": 1, "message": f"in {original}/x"}]}
    assert scratch.restored(recorded) == restored


def test_links_in_a_scratch_copy_lead_into_it_or_out_of_the_folder(original: Path) -> None:
    outside = original.parent / "data"
    outside.mkdir()
    (outside / "set.txt").write_text("data")
    (original / "run").mkdir()
    (original / "run/log.txt").write_text("old")
    targets: dict[str, str | Path] = {
        "relative": "run/log.txt", "absolute": original / "run/log.txt", "folder": original / "run",
        "new": original / "new.txt", "out": "../data", "loop": "loop", "git": ".git",
    }  # fmt: skip
    for name, target in targets.items():
        (original / name).symlink_to(target)
    into = original.parent / "here"
    into.mkdir()
    Scratch(original, into)
    copy = into / "project"
    for name in ("relative", "absolute", "folder/log.txt", "new"):
        (copy / name).write_text("written")
        assert (copy / name).read_text() == "written"
    assert (original / "run/log.txt").read_text() == "old"
    assert not (original / "new.txt").exists()
    assert (copy / "out/set.txt").read_text() == "data"
    assert os.readlink(copy / "relative") == "run/log.txt"
    assert (copy / "loop").is_symlink() and not (copy / "loop").exists()
    assert (copy / "git").is_dir()  # what is not copied is used where it is


@pytest.mark.skipif(os.name == "nt", reason="there are no pipes in folders")
def test_pipes_are_not_copied(original: Path) -> None:
    os.mkfifo(original / "pipe")
    into = original.parent / "here"
    into.mkdir()
    Scratch(original, into)
    assert "pipe" not in os.listdir(into / "project")


def test_a_scratch_copy_keeps_relative_words_of_a_command_that_moves_along(original: Path) -> None:
    into = original.parent / "run"
    into.mkdir()
    scratch = Scratch(original, into)
    script = str(original / "train.py")
    copied = str(into / "project" / "train.py")

    def words(given: list[str], folder: Path) -> list[str]:
        return scratch.command(Command(given, folder)).words

    assert words(["python", script, "data"], original) == ["python", copied, "data"]
    relative = os.path.relpath(script)
    assert words([relative], original) == [relative]
    assert words([relative], original.parent) == [copied]
    assert words(["../run"], original) == [str(into)]
