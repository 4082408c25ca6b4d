"""The parts of `devicefix.verify.runtime` that need no process of their own."""

from __future__ import annotations

import ast
import os
import sys
from pathlib import Path
from typing import Any

import numpy
import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from devicefix.config.settings import Settings
from devicefix.runner.run import check_text
from devicefix.verify.compare.streams import streams_of
from devicefix.verify.compare.values import is_close, same_numbers, unlike
from devicefix.verify.program import Rewritten
from devicefix.verify.runtime import lines
from devicefix.verify.runtime.answers import Nothing
from devicefix.verify.runtime.copies.following import read_follows
from devicefix.verify.runtime.copies.functions import Kind, kind_of, name_of, targets_of
from devicefix.verify.runtime.copies.intent import ACCELERATOR, HOST, SAME, Module, Named
from devicefix.verify.runtime.copies.memory import Move, Region, Replica, between, digest
from devicefix.verify.runtime.errors import emit
from devicefix.verify.runtime.events import Events, read
from devicefix.verify.runtime.imported import when_imported
from devicefix.verify.runtime.machine.patches import Patches
from devicefix.verify.runtime.machine.state import Machine
from devicefix.verify.runtime.plan import Plan, Source
from devicefix.verify.runtime.site import Site, Sites

# A busy machine makes no test fail.
QUIET = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])

# --- lines ---------------------------------------------------------------------------------------------


def origins(text: str) -> list[tuple[str, str]]:
    """Return the lines of a rewritten program, each with the line of the program that it corresponds to."""
    outcome = check_text(text.encode(), "program.py", Settings(fix=True))
    module = Rewritten.of(outcome)
    assert module is not None
    old, new = text.split("\n"), module.content.decode().split("\n")
    assert len(module.origins) == len(new)
    assert module.origins == sorted(module.origins)
    return [(line, old[origin - 1]) for line, origin in zip(new, module.origins, strict=True)]


def test_lines_correspond_by_the_edits() -> None:
    ones, zeros = (f"print(torch.{name}(3).cuda().sum().item())" for name in ("ones", "zeros"))
    found = origins(f"import torch\n{ones}\n{zeros}\n")
    assert found == [
        ("import torch", "import torch"),
        ("", "import torch"),
        ('device = torch.device("cuda" if torch.cuda.is_available() else "cpu")', "import torch"),
        ("", "import torch"),
        (ones.replace("cuda()", "to(device)"), ones),
        (zeros.replace("cuda()", "to(device)"), zeros),
        ("", ""),
    ]


def test_lines_correspond_where_all_are_alike_and_several_rounds_fix_them() -> None:
    text = (
        "import torch\n"
        + "x = f(x).cuda()\n" * 5
        + "\f\nif torch.cuda.is_available():\n    x = x.cuda()\ny = 1\n"
    )
    found = origins(text)
    assert [new for new, old in found if old == "x = f(x).cuda()" and "f(x)" in new] == [
        "x = f(x).to(device)"
    ] * 5
    assert [(new, old) for new, old in found if old in ("y = 1", "\f")] == [("\f", "\f"), ("y = 1", "y = 1")]


def test_a_line_behind_one_that_is_gone_keeps_its_line() -> None:
    check = "assert torch.cuda.is_available()\n"
    found = origins(f"import torch\n{check}x = 1\nfor _ in []:\n    {check}    y = 1\nz = 1\n")
    assert [(new, old) for new, old in found if "= 1" in new] == [
        (line, line) for line in ("x = 1", "    y = 1", "z = 1")
    ]


def test_restored_positions_are_those_of_the_users_file() -> None:
    old = ["import torch", "x = f()", "y = x.cuda() + g(1)"]
    new = ["import torch", "device = 'cpu'", "x = f()", "y = x.to(device) + g(1)"]
    tree = ast.parse("\n".join(new))
    lines.restore(tree, [1, 2, 2, 3], old, new)
    first, inserted, same, changed = tree.body
    assert [node.lineno for node in (first, inserted, same, changed)] == [1, 2, 2, 3]
    assert isinstance(same, ast.Assign) and isinstance(changed, ast.Assign)
    assert (same.value.col_offset, same.value.end_col_offset) == (4, 7)
    assert (changed.value.col_offset, changed.value.end_col_offset) == (0, len(old[2]))
    compile(tree, "x.py", "exec")


# --- plans and events ----------------------------------------------------------------------------------


def test_a_plan_survives_its_file(tmp_path: Path) -> None:
    plan = Plan(
        str(tmp_path),
        ("/a", "/b"),
        "simulated",
        {"/a/x.py": Source("/tmp/0.py", [[1, 2, 1, 5, 0]], [1, 1, 2], "digest")},
        steps=3,
        seed=0,
    )
    assert Plan.load(plan.store()) == plan
    assert plan.events == os.path.join(tmp_path, "events.jsonl")


def test_events_are_read_in_order_without_broken_lines(tmp_path: Path) -> None:
    path = str(tmp_path / "events.jsonl")
    assert list(read(path)) == []
    events = Events(path)
    events.emit("one", x=1)
    os.write(events._file, b'{"kind": "brok\n')
    events.emit("two", text="ä\n")
    found = list(read(path))
    assert [(event["kind"], event["pid"]) for event in found] == [("one", os.getpid()), ("two", os.getpid())]
    assert found[1]["text"] == "ä\n"


def test_events_survive_a_program_that_closes_the_file(tmp_path: Path) -> None:
    path = str(tmp_path / "events.jsonl")
    events = Events(path)
    os.close(events._file)
    events.emit("late")
    assert [event["kind"] for event in read(path)] == ["late"]


def test_an_error_is_recorded_once_with_its_frames(tmp_path: Path) -> None:
    path = str(tmp_path / "events.jsonl")
    events = Events(path)
    for problem in (ValueError("bad"), SystemExit(0), SystemExit("no data"), GeneratorExit()):
        try:
            raise problem
        except BaseException as caught:
            emit(events, caught)
            emit(events, caught)
    emit(events, SyntaxError("broken", ("x.py", 4, 1, "x =")))
    found = [(event["type"], event["message"].split(" (")[0]) for event in read(path)]
    assert found == [("ValueError", "bad"), ("SystemExit", "no data"), ("SyntaxError", "broken")]
    first, _, syntax = read(path)
    assert [frame["file"] for frame in first["frames"]] == [__file__]
    assert syntax["frames"] == [{"file": "x.py", "line": 4, "function": ""}]


def test_a_callback_runs_after_the_import(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "imported_later.py").write_text("x = 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path])
    seen: list[int] = []
    when_imported("imported_later", lambda: seen.append(sys.modules["imported_later"].x))
    assert seen == []
    import imported_later  # type: ignore[import-not-found]

    assert seen == [imported_later.x]
    when_imported("imported_later", lambda: seen.append(2))
    assert seen == [1, 2]


def test_sites_find_the_users_line_and_the_library(tmp_path: Path) -> None:
    library = tmp_path / "site-packages" / "probing" / "inner.py"
    names: dict[str, Any] = {"sites": Sites((str(tmp_path / "home"),))}
    exec(compile("def probe(): return sites.current()", str(library), "exec"), names)
    exec(
        compile("\ndef direct(): return sites.current()", str(tmp_path / "home" / "train.py"), "exec"), names
    )
    exec(compile("\n\ndef call(): return probe()", str(tmp_path / "home" / "train.py"), "exec"), names)
    train = str(tmp_path / "home" / "train.py")
    assert names["direct"]() == Site(train, 2)
    assert names["call"]() == Site(train, 3, "probing")
    assert names["sites"].is_project(train) and not names["sites"].is_project(str(library))


def test_patches_are_undone_and_redone() -> None:
    class Owner:
        old = 1

    patches, table = Patches(), {"a": 1}
    patches.set(Owner, "old", 2)
    patches.set(Owner, "new", 3)
    patches.set(table, "a", 5)
    patches.set(table, "b", 6)
    assert (Owner.old, Owner.new, table) == (2, 3, {"a": 5, "b": 6})  # type: ignore[attr-defined]
    patches.swap()
    assert (Owner.old, hasattr(Owner, "new"), table) == (1, False, {"a": 1})
    patches.swap()
    assert (Owner.old, Owner.new, table) == (2, 3, {"a": 5, "b": 6})  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("gpus", "named", "visible"),
    [
        (None, None, [0]),
        (3, None, [0, 1, 2]),
        (4, "2,3", [2, 3]),
        (2, "1,2,0", [1]),
        (None, "0,0", [0]),
        (None, "GPU-1234,GPU-5678", [0, 1]),
        (None, "", []),
        (None, "-1", []),
    ],
)
def test_visible_gpus(
    gpus: int | None, named: str | None, visible: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.delenv("DEVICEFIX_GPUS", raising=False)
    if named is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", named)
    machine = Machine(gpus=gpus)
    assert machine.visible == visible
    assert machine.is_explicit == (gpus is not None or named is not None)


def test_a_missing_gpu_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    with pytest.raises(RuntimeError, match="No CUDA GPUs are available"):
        Machine().gpu()
    with pytest.raises(ValueError, match="Expected a cuda device, but got: cpu"):
        Machine(gpus=2).gpu("cpu")


def test_a_placeholder_does_nothing() -> None:
    nothing = Nothing()
    with nothing as entered:
        assert entered is nothing
    assert (nothing.record(), nothing.query(), nothing.elapsed_time(nothing)) == (None, True, 0.0)
    assert not hasattr(nothing, "__len__")


# --- copies --------------------------------------------------------------------------------------------

TENSOR: Any = torch.Tensor  # whose attributes are descriptors
BASE = torch.zeros(4, 6)
REGIONS = {
    "all": BASE,
    "row 0": BASE[0],
    "row 1": BASE[1],
    "column 0": BASE[:, 0],
    "column 1": BASE[:, 1],
    "block": BASE[1:3, 1:3],
    "rows 1-2": BASE[1:3],
}


@pytest.mark.parametrize("one", REGIONS)
@pytest.mark.parametrize("other", REGIONS)
def test_regions_overlap_where_their_elements_do(one: str, other: str) -> None:
    left, right = Region.of(REGIONS[one]), Region.of(REGIONS[other])
    elements = [
        set(torch.arange(24).as_strided(r.size, r.stride, r.offset).flatten().tolist()) for r in (left, right)
    ]
    assert left.overlaps(right) == bool(elements[0] & elements[1])
    if left.covers(right):
        assert elements[0] >= elements[1]


def test_a_dense_region_covers_its_parts() -> None:
    everything, row = Region.of(BASE), Region.of(BASE[1])
    assert everything.covers(row) and not row.covers(everything)


def test_a_digest_depends_on_the_region_alone() -> None:
    base = torch.zeros(3, 4)
    region = Region.of(base[1])
    before = digest(region, base)
    base[0] = 1
    assert digest(region, base) == before
    base[1, 2] = 1
    assert digest(region, base) != before
    assert digest(region, base.double()) is None
    assert digest(None, base) is None


def test_the_move_between_two_replicas_is_the_one_on_the_path() -> None:
    def move(line: int) -> Move:
        return Move(Site("train.py", line), ".cpu()")

    root = Replica(HOST, None)
    child = Replica(ACCELERATOR, None, move(1), root)
    grandchild = Replica(HOST, None, move(2), child)
    sibling = Replica(ACCELERATOR, None, move(3), root)
    assert between(root, grandchild) == move(1)
    assert between(child, grandchild) == move(2)
    assert between(grandchild, root) == move(2)
    assert between(sibling, grandchild) == move(3)


@pytest.mark.parametrize(
    ("function", "kind"),
    [
        (torch.Tensor.size, Kind.ASKS),
        (torch.Tensor.is_contiguous, Kind.ASKS),
        (torch.Tensor.add, Kind.READS),
        (torch.Tensor.add_, Kind.WRITES),
        (torch.Tensor.__iadd__, Kind.WRITES),
        (torch.Tensor.__add__, Kind.READS),
        (torch.Tensor.zero_, Kind.FILLS),
        (torch.Tensor.__setitem__, Kind.FILLS),
        (torch.zeros_like, Kind.LOOKS),
        (torch.Tensor.new_zeros, Kind.LOOKS),
        (torch.Tensor.detach, Kind.DETACHES),
        (TENSOR.data.__get__, Kind.DETACHES),
        (TENSOR.data.__set__, Kind.SETS_DATA),
        (TENSOR.device.__get__, Kind.DEVICE),
        (torch.Tensor.cpu, Kind.MOVES),
        (torch.as_tensor, Kind.MOVES),
        (torch.Tensor.numpy, Kind.EXPORTS),
        (torch.Tensor.resize_, Kind.ALTERS),
    ],
    ids=lambda value: getattr(value, "__qualname__", None) or value.name,
)
def test_kinds_of_functions(function: Any, kind: Kind) -> None:
    assert kind_of(function) is kind
    assert kind_of(function) is kind  # from the cache


def test_names_of_functions() -> None:
    assert name_of(torch.Tensor.add) == "add"
    assert name_of(TENSOR.grad.__set__) == "grad"
    assert name_of(object()) == ""  # type: ignore[arg-type]


def test_targets_of_calls() -> None:
    x, mean, var = torch.ones(1), torch.ones(2), torch.ones(3)
    batch_norm = torch.nn.functional.batch_norm
    assert targets_of(Kind.WRITES, torch.Tensor.add_, (x, 1), {}) == (None, x)
    assert targets_of(Kind.READS, torch.add, (x, 1), {"out": mean}) == (mean,)
    assert targets_of(Kind.READS, batch_norm, (x, mean, var), {}) == (None,)
    assert targets_of(Kind.READS, batch_norm, (x, mean, var), {"training": True}) == (None, mean, var)
    arguments = (x, None, None, mean, var, True)
    assert targets_of(Kind.READS, torch.batch_norm, arguments, {}) == (None, mean, var)


@pytest.mark.parametrize(
    ("line", "meant"),
    [
        ("x.to(device)", Named("device")),
        ("x.cuda()", ACCELERATOR),
        ("x.to('cpu')", HOST),
        ("x.to(host)", HOST),
        ("x.to(other.device)", SAME),
        ("x.to('cuda' if ok else 'cpu')", ACCELERATOR),
        ("torch.zeros(2, device=host)", HOST),
        ("torch.load(f, map_location='cpu')", HOST),
        ("x.type(torch.cuda.FloatTensor)", ACCELERATOR),
        ("x.type(torch.float32)", None),
        ("f(x)", None),
        ("x.to('cpu') + y.to(device)", None),
    ],
)
def test_the_device_that_a_line_means(line: str, meant: str | Named | None, tmp_path: Path) -> None:
    file = tmp_path / "module.py"
    file.write_text(f"host = torch.device('cpu')\nz = {line}\n")
    assert Module(str(file)).at(2, None) == meant


def test_the_position_of_a_call_decides_between_several(tmp_path: Path) -> None:
    file = tmp_path / "module.py"
    file.write_text("x.to('cpu') + y.to(device)\n")
    module = Module(str(file))
    assert module.at(1, (1, 1, 0, 11)) == HOST
    assert module.at(1, (1, 1, 14, 26)) == Named("device")


def test_a_file_that_does_not_parse_means_no_device(tmp_path: Path) -> None:
    file = tmp_path / "module.py"
    file.write_text("x.to('cpu'\n")
    assert Module(str(file)).at(1, None) is None


# --- comparison ----------------------------------------------------------------------------------------

FLOATS = st.floats(allow_nan=False, allow_infinity=False, width=32)


@QUIET
@given(FLOATS, FLOATS, st.sampled_from([0.0, 1e-5, 0.1]))
def test_closeness_is_symmetric_and_agrees_with_numpy(one: float, other: float, tolerance: float) -> None:
    assert is_close(one, other, tolerance) == is_close(other, one, tolerance)
    largest = max(abs(one), abs(other), 1e-3)
    assert is_close(one, other, tolerance) == (
        one == other or bool(np.abs(one - other) <= tolerance * largest)
    )


def test_numbers_with_and_without_a_digest_differ() -> None:
    item, digested = {"item": 1.0}, {"digest": "a", "mean": 1.0, "abs": 1.0}
    assert not same_numbers(item, digested, 1.0)
    assert same_numbers(digested, dict(digested), 0.0)
    assert not same_numbers(digested, {"mean": 1.0, "abs": 1.0}, 1.0)


def test_the_first_difference_in_form_hides_that_in_value() -> None:
    one = {"dtype": "float32", "shape": [], "device": "cuda:0", "item": 1.0}
    other = {**one, "dtype": "int64", "device": "cpu", "item": 2}
    kinds = [kind for kind, *_ in unlike(one, other, same_machine=True, tolerance=0)]
    assert kinds == ["device", "dtype"]
    assert [kind for kind, *_ in unlike(one, other, same_machine=False, tolerance=0)] == ["dtype"]


def test_processes_of_one_name_are_numbered_in_order() -> None:
    names = [(1, "main"), (2, "worker"), (3, "worker"), (2, "worker")]
    events = [{"kind": "process", "pid": pid, "process": name} for pid, name in names]
    assert list(streams_of(events)) == [("main", 0), ("worker", 0), ("worker", 1)]


def test_draws_are_restored_from_their_kinds() -> None:
    def draw(number: int) -> dict[str, Any]:
        return {"kind": "draw", "pid": 1, "process": "main", "number": number}

    drawn = {"kind": "drawn", "pid": 1, "process": "main", "numbers": [0, 1, 0]}
    (stream,) = streams_of([draw(0), draw(1), drawn]).values()
    assert [(position, event["number"]) for position, event in stream.sequence()] == [(0, 0), (1, 1), (1, 0)]
    assert not stream.complete and not stream.seen


@pytest.mark.parametrize(
    ("text", "follows"),
    [
        ("look(); print(before)", True),
        ("look(); total = before + 1", True),
        ("for _ in range(3):\n    look()\nprint(before)", True),
        ("look(); before.shape", None),
        ("look(); before = 0; print(before)", None),
        ("look(); before[0] = 1", None),
        ("look()\nif look:\n    print(before)", None),
        ("for _ in range(2):\n    print(before)\n    look()", None),
        ("print(before)\nlook()", False),
    ],
)
def test_reads_of_arrays_that_follow(text: str, follows: bool | None) -> None:
    found = []

    def look() -> None:
        found.append(read_follows(lambda value: type(value) is numpy.ndarray, lambda file: file == "user.py"))

    exec(compile(text, "user.py", "exec"), {"look": look, "before": numpy.zeros(3), "print": str})
    assert found[-1] is follows
