"""The comparison of two runs, with generated events and with two real runs."""

from __future__ import annotations

import math
import random
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from running import run_program

from devicefix.verify.compare.alignment import common, differences, unsteady
from devicefix.verify.compare.devices import as_on_cuda
from devicefix.verify.compare.difference import ONLY_CPU, ONLY_CUDA, Difference, Place
from devicefix.verify.compare.wording import describe
from devicefix.verify.runtime.profiles import PROFILES

Event = dict[str, Any]


def scalar(item: Any, device: str = "cuda:0", dtype: str = "float32") -> dict[str, Any]:
    return {"dtype": dtype, "shape": [], "device": device, "item": item}


def tensor(*sample: float, digest: str = "a", device: str = "cuda:0") -> dict[str, Any]:
    mean, size = sum(sample) / len(sample), sum(map(abs, sample)) / len(sample)
    value = {"dtype": "float32", "shape": [len(sample)], "device": device, "digest": digest}
    return {**value, "sample": list(sample), "mean": mean, "abs": size}


def event(kind: str, pid: int = 1, process: str = "train.py", **fields: Any) -> Event:
    return {"kind": kind, "pid": pid, "process": process, **fields}


def seen(line: int, value: dict[str, Any], what: str = "item", pid: int = 1, **fields: Any) -> Event:
    return event("seen", pid, file="train.py", line=line, what=what, value=value, **fields)


def ended(*events: Event) -> list[Event]:
    pids = {each["pid"]: each["process"] for each in events}
    return [*events, *(event("ended", pid, process) for pid, process in pids.items())]


def same_machine(one: list[Event], other: list[Event], tolerance: float = 0) -> list[Difference]:
    return differences(one, other, same_machine=True, tolerance=tolerance)


def on_a_cpu(one: list[Event], other: list[Event], tolerance: float = 1e-5) -> list[Difference]:
    return differences(one, other, same_machine=False, tolerance=tolerance)


numbers = st.one_of(st.floats(), st.integers(-5, 5), st.booleans())
values = st.one_of(
    numbers.map(scalar), st.lists(st.floats(), min_size=2, max_size=3).map(lambda sample: tensor(*sample))
)
streams = st.lists(st.tuples(st.integers(1, 4), values, st.sampled_from([(1, "train.py"), (2, "worker")])))


def stream(drawn: list[tuple[int, dict[str, Any], tuple[int, str]]]) -> list[Event]:
    events = [seen(line, value, pid=pid, process=process) for line, value, (pid, process) in drawn]
    return ended(event("process"), *events)


def copied(value: Any) -> Any:
    """Return a deep copy with new number objects, as after reading JSON, so that NaN is not identical."""
    if isinstance(value, float):
        return float(repr(value))
    if isinstance(value, dict):
        return {key: copied(each) for key, each in value.items()}
    return [copied(each) for each in value] if isinstance(value, list) else value


@given(streams, st.sampled_from([0, 1e-5]), st.booleans())
def test_equal_streams_have_no_differences(drawn: Any, tolerance: float, same: bool) -> None:
    one = stream(drawn)
    assert differences(one, copied(one), same_machine=same, tolerance=tolerance) == []


@given(streams, st.randoms())
def test_the_order_between_processes_does_not_matter(drawn: Any, random: random.Random) -> None:
    one = stream(drawn)
    queues = {pid: [each for each in one if each["pid"] == pid] for pid in (1, 2)}
    other = []
    while any(queues.values()):
        other.append(queues[random.choice([pid for pid in queues if queues[pid]])].pop(0))
    assert same_machine(one, other) == []


@given(streams, st.data())
def test_a_changed_value_is_found(drawn: Any, data: st.DataObject) -> None:
    one = stream([(0, scalar(1.0), (1, "train.py")), *drawn])
    i = data.draw(st.sampled_from([i for i, each in enumerate(one) if each["kind"] == "seen"]))
    other = [*one[:i], {**one[i], "value": scalar(12345.0)}, *one[i + 1 :]]
    (found,) = same_machine(one, other)
    assert found.kind in ("value", "shape")
    assert (found.line, found.process, found.position) == (one[i]["line"], one[i]["process"], i)
    at_line = [j for j, each in enumerate(one) if each == one[i] or _key(each) == _key(one[i])]
    assert at_line[found.number - 1] == i


def _key(event: Event) -> tuple[Any, ...]:
    return event["kind"], event.get("line"), event["pid"]


@given(streams, st.data())
def test_a_missing_observation_is_found(drawn: Any, data: st.DataObject) -> None:
    one = stream([(0, scalar(1.0), (1, "train.py")), *drawn])
    i = data.draw(st.sampled_from([i for i, each in enumerate(one) if each["kind"] == "seen"]))
    other = one[:i] + one[i + 1 :]
    for left, right in ((one, other), (other, one)):
        found = same_machine(left, right)
        assert {each.kind for each in found} & {"count", "missing"}
        assert {each.line for each in found} == {one[i]["line"]}


@given(streams, st.data())
def test_only_the_common_part_of_an_interrupted_run_is_compared(drawn: Any, data: st.DataObject) -> None:
    one = stream(drawn)
    kept = data.draw(st.integers(1, len(one)))
    cut = [each for each in one[:kept] if each["kind"] != "ended"]
    assert same_machine(one, cut) == []
    assert same_machine(cut, one) == []


@given(streams)
def test_every_difference_has_a_description_in_one_line(drawn: Any) -> None:
    one = stream(drawn)
    for found in (*same_machine(one, ended(seen(9, scalar(1)))), *same_machine(one, stream(drawn[::-1]))):
        assert "\n" not in describe(found)


def test_the_earliest_difference_is_first() -> None:
    one = ended(*(seen(line, scalar(1.0)) for line in (30, 10, 20, 10, 20)))
    other = ended(
        *(seen(line, scalar(n)) for line, n in ((30, 1.0), (10, 1.0), (20, 2.0), (10, 3.0), (20, 2.0)))
    )
    assert [(each.line, each.number) for each in same_machine(one, other)] == [(20, 1), (10, 2)]


def test_lines_of_the_second_run_alone_are_sorted_among_the_others() -> None:
    one = ended(seen(1, scalar(1)), seen(2, scalar(1)), seen(3, scalar(1)))
    other = ended(seen(1, scalar(1)), seen(9, scalar(1)), seen(2, scalar(1)), seen(3, scalar(2)))
    assert [(each.kind, each.line) for each in same_machine(one, other)] == [("missing", 9), ("value", 3)]


@pytest.mark.parametrize(
    ("left", "right", "tolerance", "same"),
    [
        (scalar(1.0), scalar(1.0 + 1e-7), 1e-6, True),
        (scalar(1.0), scalar(1.0 + 1e-7), 0, False),
        (scalar(1.0), scalar(1.001), 1e-6, False),
        (scalar(1e-9), scalar(0.0), 1e-5, True),
        (scalar(math.nan), scalar(float("nan")), 0, True),
        (scalar(math.nan), scalar(0.0), 1.0, False),
        (scalar(math.inf), scalar(-math.inf), 1.0, False),
        (scalar(math.inf), scalar(1.0), 1.0, False),
        (scalar(True), scalar(False), 1.0, False),
        (tensor(1.0, 2.0), tensor(1.0, 2.0, digest="b"), 1e-6, True),
        (tensor(1.0, 2.0), tensor(1.0, 2.0, digest="b"), 0, False),
        (tensor(1e-9, 2.0), tensor(0.0, 2.0, digest="b"), 1e-6, True),
        (tensor(1.0, 2.0), tensor(2.0, 1.0, digest="b"), 1e-6, False),
        ({**tensor(1.0, 2.0), "nonfinite": 1}, tensor(1.0, 2.0, digest="b"), 1.0, False),
        ({"tensors": {"x": scalar(1)}}, {"tensors": {"x": scalar(1)}}, 0, True),
        ({"tensors": {"x": scalar(1)}}, {"tensors": {"x": scalar(2)}}, 0, False),
        ({"tensors": {"x": scalar(1)}}, {"tensors": {}}, 0, False),
    ],
)
def test_within_a_tolerance(left: Any, right: Any, tolerance: float, same: bool) -> None:
    one, other = ended(seen(1, left)), ended(seen(1, right))
    assert (not same_machine(one, other, tolerance)) == same
    assert (not same_machine(other, one, tolerance)) == same


def test_devices_are_compared_on_the_same_machine_only() -> None:
    one = ended(seen(1, scalar(1.0)), seen(1, scalar(2.0)))
    other = ended(seen(1, scalar(1.0, "cpu")), seen(1, scalar(3.0, "cpu")))
    assert [(each.kind, each.number) for each in same_machine(one, other)] == [("device", 1), ("value", 2)]
    assert [(each.kind, each.number) for each in on_a_cpu(one, other)] == [("value", 2)]


def test_guarded_lines_are_expected_differences() -> None:
    one = ended(seen(1, scalar(1)), seen(2, scalar(1)))
    other = ended(seen(1, scalar(1)), seen(3, scalar(1)))
    found = on_a_cpu(one, other)
    assert {(each.kind, each.line, each.expected) for each in found} == {
        (ONLY_CPU, 3, True),
        (ONLY_CUDA, 2, True),
    }
    assert [(each.kind, each.expected) for each in same_machine(one, other)] == [("missing", False)] * 2


def test_counts_are_compared_on_a_cpu_too() -> None:
    one, other = ended(*[seen(1, scalar(1))] * 3), ended(*[seen(1, scalar(1))] * 2)
    (found,) = on_a_cpu(one, other)
    assert (found.kind, found.one, found.other, found.number) == ("count", 3, 2, 3)


def test_a_missing_process() -> None:
    """Another process may do its work, as with fewer workers, or none, as with a world size of 0."""
    main, spawned = event("process"), seen(5, scalar(1), pid=2, process="SpawnProcess-1")
    assert [each.kind for each in on_a_cpu(ended(main, spawned), ended(main))] == ["missing"]
    (found,) = on_a_cpu(ended(main, spawned), ended(seen(5, scalar(1))))[:1]
    assert (found.kind, found.process) in [(ONLY_CPU, "train.py"), (ONLY_CUDA, "SpawnProcess-1")]
    assert [each.kind for each in same_machine(ended(main), ended(main, spawned))] == ["missing"]
    assert same_machine(ended(main, spawned), [main]) == []  # the other run was interrupted before


def test_what_is_ignored_is_not_counted() -> None:
    one = ended(*(seen(line, scalar(1)) for line in (1, 1, 1, 2, 3)))
    other = ended(*(seen(line, scalar(1)) for line in (1, 1, 3)))
    assert common(one, other, frozenset()) == 3
    place = Place("value", "train.py", "train.py", 1, "item")
    assert common(one, other, frozenset({place._replace(number=2)})) == 2
    assert common(one, other, frozenset({place._replace(number=3)})) == 3  # the other run does not make it


def test_forks_with_the_same_name() -> None:
    one = ended(*(seen(1, scalar(pid), pid=pid) for pid in (1, 2, 3)))
    other = ended(*(seen(1, scalar(pid), pid=10 * pid) for pid in (1, 2, 3)))
    assert same_machine(one, other) == []


def draw(number: int, op: str = "normal_", device: str = "cuda:0") -> Event:
    place: dict[str, Any] = {"file": "train.py", "line": 10 * number}
    return event("draw", number=number, device=device, op=op, numel=4, **place)


def drawn(*numbers: int) -> Event:
    return event("drawn", numbers=list(numbers))


def test_random_draws() -> None:
    one = [draw(0), seen(2, scalar(1)), draw(1, "uniform_")]
    run = ended(*one, drawn(0, 0), drawn(1, 0))
    assert same_machine(run, copied(run)) == []
    for changed in (draw(1, "bernoulli_"), draw(1, "uniform_", device="cpu")):
        other = ended(*one[:2], changed, drawn(0, 0, 1, 0))
        (found,) = same_machine(run, other)
        assert (found.kind, found.number, found.line, found.position) == ("draw", 3, 10, 2)
        assert on_a_cpu(run, other) == []
    (found,) = same_machine(run, ended(*one, drawn(0, 1, 0, 0)))
    assert describe(found) == (
        "train.py:10: the 2nd random draw was `normal_` of 4 on cuda:0 (line 0) in the original"
        " and `uniform_` of 4 on cuda:0 in the rewritten program"
    )
    for numbers, number in (((0, 0, 1), 4), ((0, 0, 1, 0, 0), 5)):
        assert [each.number for each in same_machine(run, ended(*one, drawn(*numbers)))] == [number]


def test_random_draws_of_an_interrupted_run() -> None:
    one = [draw(0), seen(2, scalar(1)), draw(1, "uniform_"), seen(3, scalar(1))]
    run = ended(*one, drawn(0, 1))
    assert same_machine(run, one[:2]) == []
    assert [each.number for each in same_machine(run, [*one[:2], draw(1, "normal_", "cpu")])] == [2]


def test_operations_on_cuda() -> None:
    def run(cuda: int) -> list[Event]:
        return ended(event("operations", cuda=cuda, cpu=5))

    assert same_machine(run(100), run(90)) == []
    (found,) = same_machine(run(100), run(89))
    assert describe(found) == "89 operations ran on CUDA in the rewritten program, and 100 in the original"
    assert on_a_cpu(run(100), run(0)) == []


def test_autocast_and_gradient_scalers() -> None:
    def run(what: str, steps: int = 3, device: str = "cuda") -> list[Event]:
        line: Any = {"file": "train.py", "line": 4}
        state = f"the scale 65536 for {steps} steps"
        uses = event("autocast", device=device, what=what, **line)
        return ended(uses, event("scaler", state=state, file="train.py", line=3))

    assert same_machine(run("float16"), run("float16")) == []
    (found,) = same_machine(run("float16"), run("off"))
    assert describe(found).endswith(
        "train.py:4: autocast in float16 for cuda in the original, and autocast off for cuda in the rewritten"
        " program"
    )
    (found,) = same_machine(run("float16"), run("float16", 2))
    assert "ended with the scale 65536 for 3 steps in the original, and with the scale" in describe(found)
    assert same_machine(run("off"), ended(*run("off")[1:2])) == []
    assert on_a_cpu(run("float16"), run("off")) == []


def test_devices_of_other_types_stand_for_those_of_cuda() -> None:
    def run(device: str, *options: str) -> list[Event]:
        way: Any = {"source": "cpu", "target": device, "options": [*options], "file": "train.py", "line": 5}
        return ended(seen(1, scalar(1, f"{device}:0")), event("move", **way))

    xpu, mps = as_on_cuda(run("xpu"), PROFILES["xpu"]), as_on_cuda(run("mps"), PROFILES["mps"])
    assert xpu == mps == run("cuda")
    pinned = run("cuda", "pinned memory")
    assert same_machine(pinned, xpu) and not same_machine(as_on_cuda(pinned, PROFILES["mps"]), mps)


def test_a_run_that_ended_in_an_error() -> None:
    error = event("error", type="KeyError", message="'x'", frames=[{"file": "train.py", "line": 7}])
    one = ended(seen(1, scalar(1)), seen(2, scalar(1)))
    (found,) = on_a_cpu(one, ended(seen(1, scalar(1)), error))
    assert describe(found) == (
        "train.py:7: the program ended without an error on CUDA, and with an error (KeyError: 'x') on the CPU"
    )
    assert same_machine(ended(error), ended(error)) == []


def test_observations_of_which_some_are_recorded() -> None:
    def often(last: float, count: int) -> list[Event]:
        counted = event("counted", file="train.py", line=1, what="item", count=count)
        return ended(seen(1, scalar(1.0)), seen(1, scalar(last), number=1100), counted)

    one = often(0.5, 1120)
    assert common(one, one, frozenset()) == 1120
    assert same_machine(one, often(0.5, 1120)) == []
    (found,) = same_machine(one, often(0.6, 1120))
    assert describe(found) == (
        "train.py:1: `.item()` returned 0.5 in the original and 0.6 in the rewritten program"
        " (1,100th time at this line)"
    )
    (found,) = same_machine(one, often(0.5, 1119))
    assert (found.kind, found.one, found.other) == ("count", 1120, 1119)
    assert same_machine(one, often(0.5, 1119)[:2]) == []


@pytest.mark.parametrize(
    ("left", "right", "text"),
    [
        (
            scalar(0.69314), scalar(0.70123),
            "`.item()` returned 0.6931 on CUDA and 0.7012 on the CPU (1st time at this line)",
        ),
        (
            scalar(1.0), scalar(1.0001, "cpu"),
            "`.item()` returned 1 on CUDA and 1.0001 on the CPU (1st time at this line)",
        ),
        (
            scalar(True), scalar(False),
            "`.item()` returned True on CUDA and False on the CPU (1st time at this line)",
        ),
        (
            tensor(1.0, 2.0), tensor(1.0, 2.5, digest="b"),
            "`.item()` returned float32[2] with 2 as its 2nd sample on CUDA"
            " and 2.5 on the CPU (1st time at this line)",
        ),
        (
            scalar(1, dtype="int64"), scalar(1.0),
            "`.item()` returned a tensor of int64 on CUDA and of float32 on the CPU (1st time at this line)",
        ),
        (
            tensor(1.0), tensor(1.0, 1.0),
            "`.item()` returned shape (1,) on CUDA and (2,) on the CPU (1st time at this line)",
        ),
    ],
)  # fmt: skip
def test_descriptions(left: Any, right: Any, text: str) -> None:
    (found,) = on_a_cpu(ended(seen(52, left)), ended(seen(52, right)))
    assert describe(found) == f"train.py:52: {text}"


def test_descriptions_of_saved_tensors() -> None:
    one = ended(seen(1, {"tensors": {"model.weight": scalar(1.0)}}, "save"))
    (found,) = same_machine(one, ended(seen(1, {"tensors": {"model.weight": scalar(1.0, "cpu")}}, "save")))
    assert describe(found) == (
        "train.py:1: `torch.save()` wrote `model.weight`: a tensor on cuda:0 in the original"
        " and on cpu in the rewritten program (1st time at this line)"
    )
    (found,) = same_machine(one, ended(seen(1, {"tensors": {}}, "save")))
    assert describe(found) == (
        "train.py:1: `torch.save()` wrote `model.weight` in the original,"
        " but not in the rewritten program (1st time at this line)"
    )


def test_many_events_take_linear_time() -> None:
    def run(device: str) -> list[Event]:
        return ended(*(seen(i % 100, scalar(0.1 * i, device)) for i in range(100_000)))

    one, other = run("cuda:0"), run("cpu")
    start = time.process_time()
    assert on_a_cpu(one, other) == []
    assert time.process_time() - start < 5


@pytest.mark.slow
def test_two_runs_of_a_program(tmp_path: Path) -> None:
    program = """
        import os, sys, torch
        rate = float(sys.argv[1])
        model = torch.nn.Linear(2, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=rate)
        for _ in range(3):
            loss = model(torch.ones(4, 2)).pow(2).mean()
            print(loss.item())
            loss.backward()
            optimizer.step()
        torch.save(model.state_dict(), os.devnull)
    """
    one, same, other = (
        run_program(tmp_path, program, rate, observe=True, copies=False, seed=1).events
        for rate in ("0.1", "0.1", "0.2")
    )
    assert common(one, one, frozenset()) == 4
    assert same_machine(one, same) == []
    found = on_a_cpu(one, other)
    assert [(each.what, each.line, each.number) for each in found] == [("item", 7, 2), ("save", 10, 1)]
    assert found[1].path == "weight"


# --- numbers that differ between two runs of the original ---------------------------------------------


def test_times_are_not_compared_and_the_other_numbers_of_their_line_are() -> None:
    """A meter that averages losses and seconds alike, as in many programs."""

    def run(loss: float, seconds: float) -> list[Event]:
        return ended(seen(1, scalar(loss)), seen(1, scalar(seconds)), seen(1, scalar(2 * seconds)))

    original, again = run(2.0, 0.25), run(2.0, 0.75)
    ignored = unsteady(original, again, tolerance=0)
    assert len(ignored) == 2
    for same in (True, False):
        equal = differences(original, run(2.0, 0.5), same_machine=same, tolerance=0, ignored=ignored)
        assert not equal
        (found,) = differences(original, run(3.0, 0.5), same_machine=same, tolerance=0, ignored=ignored)
        assert (found.kind, found.number, found.one["item"], found.other["item"]) == ("value", 1, 2.0, 3.0)
    assert not unsteady(original, original, tolerance=0)


def test_what_varies_is_not_compared_and_the_rest_is() -> None:
    """How often a line runs, and how much is drawn, may depend on the time."""

    def run(times: int, loss: float = 1.0) -> list[Event]:
        return ended(draw(0), drawn(*[0] * times), *[seen(1, scalar(loss))] * times, seen(2, scalar(loss)))

    original, again = run(3), run(5)
    ignored = unsteady(original, again, tolerance=0)
    assert {each.kind for each in ignored} == {"count", "draw"}
    for same in (True, False):
        assert not differences(original, run(4), same_machine=same, tolerance=0, ignored=ignored)
        found = differences(original, run(4, 2.0), same_machine=same, tolerance=0, ignored=ignored)
        assert [(each.kind, each.line) for each in found] == [("value", 1), ("value", 2)]


def test_the_device_of_times_is_compared() -> None:
    original, again = ended(seen(1, scalar(0.25))), ended(seen(1, scalar(0.75)))
    ignored = unsteady(original, again, tolerance=0)
    moved = ended(seen(1, scalar(0.5, "cpu")))
    (found,) = differences(original, moved, same_machine=True, tolerance=0, ignored=ignored)
    assert found.kind == "device"


def test_a_module_that_is_wrapped_on_cuda_only_is_saved_alike() -> None:
    def saved(name: str, item: float) -> list[Event]:
        return ended(seen(1, {"tensors": {name: scalar(item)}}, "save"))

    one = saved("net.module.weight", 1.0)
    assert not on_a_cpu(one, saved("net.weight", 1.0))
    assert [each.kind for each in on_a_cpu(one, saved("net.weight", 2.0))] == ["value"]
    assert [each.kind for each in on_a_cpu(one, saved("net.bias", 1.0))] == ["missing"]
    assert [each.kind for each in same_machine(one, saved("net.weight", 1.0))] == ["missing"]


# --- moves -----------------------------------------------------------------------------------------------


def move(*options: str, line: int = 3, target: str = "cuda:0") -> Event:
    place: dict[str, Any] = {"file": "train.py", "line": line}
    return event("move", source="cpu", target=target, options=list(options), **place)


def test_a_line_that_moves_in_another_way_differs() -> None:
    (found,) = same_machine(ended(move("non_blocking=True")), ended(move()))
    assert (found.kind, found.line) == ("move", 3)
    assert describe(found).endswith(
        "a tensor moved from cpu to cuda:0 with non_blocking=True in the original and without options in the "
        "rewritten program"
    )


def test_a_line_may_move_less_and_elsewhere() -> None:
    one = ended(move(), move("non_blocking=True"))
    for other in (ended(move()), ended(move("pinned memory", line=4)), [event("ended")]):
        assert not same_machine(one, other)
    assert not on_a_cpu(one, ended(move("pinned memory")))


def test_a_run_that_was_interrupted_may_lack_a_way_to_move() -> None:
    assert not same_machine([move()], ended(move("pinned memory")))
