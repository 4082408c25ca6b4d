"""Observations of the tensor values that a program reads, which do not change the program."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from running import Ran, run_program

from devicefix.verify.runtime.observe import EACH, FULL, tensors
from devicefix.verify.runtime.summary import summarize

pytestmark = pytest.mark.needs("numpy", "torch")

PROGRAM = """
    import copy, io, logging, os, random, sys, threading, warnings
    import numpy, torch
    from dataclasses import dataclass
    from torch.utils.data import DataLoader, Dataset

    print(random.random(), numpy.random.rand(), torch.rand(1).tolist())  # draws
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    s = x.sum()
    s.item()  # item
    float(s)  # float
    int(s)  # int
    x.tolist()  # tolist
    x.detach().numpy()  # numpy
    numpy.asarray(x.detach())  # array
    print(x, file=sys.stderr)  # print
    str(torch.nn.Parameter(x))  # parameter
    f"{s:.2f} {x}"  # format
    logging.getLogger().warning("%s", s)  # logged
    if 2.0 in x: pass  # torch's own
    torch.optim.Adam([x], foreach=False).step()  # torch's own
    bool(s), s + 1, x[0], copy.deepcopy(x.detach())  # unseen

    class Tied:
        def __reduce__(self):
            return float, (s.item(),)  # nested

    torch.save({"x": x, "list": [(s,)], "tied": Tied()}, io.BytesIO())  # save
    print(numpy.sqrt(x.detach()).shape)  # array again
    try:
        x.numpy()  # raises
    except RuntimeError as error:
        print(error)

    class Counting(torch.overrides.TorchFunctionMode):
        seen = []
        def __torch_function__(self, function, types, args=(), kwargs=None):
            self.seen.append(function)
            return function(*args, **(kwargs or {}))

    with Counting():
        x.tolist()  # under a mode
    print(Counting.seen == [torch.Tensor.tolist])

    thread = threading.Thread(target=lambda: s.item())  # thread
    thread.start(); thread.join()

    class Numbers(Dataset):
        def __len__(self): return 2
        def __getitem__(self, i): return torch.tensor(i).item()  # worker

    list(DataLoader(Numbers(), num_workers=1))

    y, total = torch.tensor(0.5), 0.0
    for i in range(2000):
        total += y.item()  # often
    if os.fork() == 0:
        y.item()  # child
        for i in range(1001):
            y.item()  # child often
        os._exit(0)
    os.wait()
    print(total, torch.rand(1).tolist())  # end
    sys.stdout.flush()
    os._exit(3)
"""


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    return run_program(tmp_path_factory.mktemp("observe"), PROGRAM, observe=True, copies=False, seed=7)


@pytest.fixture(scope="module")
def unwatched(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    return run_program(tmp_path_factory.mktemp("plain"), PROGRAM, copies=False, seed=7)


def line(comment: str) -> int:
    lines = inspect.cleandoc(PROGRAM).splitlines()
    return next(i for i, text in enumerate(lines, 1) if text.endswith(f"  # {comment}"))


def seen(ran: Ran, comment: str) -> list[dict[str, Any]]:
    return [event for event in ran.of("seen") if event["line"] == line(comment)]


def test_observation_does_not_change_the_program(ran: Ran, unwatched: Ran) -> None:
    assert ran.status == unwatched.status == 3, ran.errors
    assert ran.output == unwatched.output
    assert "\nTrue\n" in ran.output
    assert not ran.of("trouble")
    assert not unwatched.of("seen")


def test_reads_by_torch_itself_are_not_recorded(ran: Ran) -> None:
    unseen = {"torch's own", "unseen", "nested", "raises"}
    assert not [comment for comment in unseen if seen(ran, comment)]
    assert {os.path.basename(event["file"]) for event in ran.of("seen")} == {"program.py"}


@pytest.mark.parametrize("what", ["item", "float", "int", "tolist", "numpy", "array", "print", "save"])
def test_each_way_to_read_a_tensor_is_recorded_once(ran: Ran, what: str) -> None:
    (event,) = seen(ran, what)
    assert event["what"] == what


def test_values(ran: Ran) -> None:
    (scalar,) = seen(ran, "item")
    assert scalar["value"] == {"dtype": "float32", "shape": [], "device": "cpu", "item": 3.0}
    (vector,) = seen(ran, "tolist")
    assert vector["value"].pop("digest")
    assert vector["value"] == {
        "dtype": "float32", "shape": [2], "device": "cpu", "sample": [1.0, 2.0], "mean": 1.5, "abs": 1.5,
    }  # fmt: skip
    (saved,) = seen(ran, "save")
    assert list(saved["value"]["tensors"]) == ["x", "list.0.0"]


def test_a_read_that_calls_another_is_recorded_once(ran: Ran) -> None:
    assert [event["what"] for event in seen(ran, "format")] == ["format", "format"]
    assert [event["what"] for event in seen(ran, "parameter")] == ["print"]
    assert [event["what"] for event in seen(ran, "logged")] == ["print"]
    assert [event["what"] for event in seen(ran, "under a mode")] == ["tolist"]


def test_threads_and_workers(ran: Ran) -> None:
    assert [event["value"]["item"] for event in seen(ran, "thread")] == [3.0]
    worker = seen(ran, "worker")
    assert [event["value"]["item"] for event in worker] == [0, 1]
    assert {event["pid"] for event in worker}.isdisjoint({event["pid"] for event in seen(ran, "item")})


@pytest.mark.parametrize(("comment", "count"), [("often", 2000), ("child often", 1001)])
def test_a_line_that_runs_often(ran: Ran, comment: str, count: int) -> None:
    numbers = [event["number"] for event in seen(ran, comment)]
    assert numbers == [*range(1, FULL + 1), *range(FULL + EACH, count + 1, EACH)]
    line = seen(ran, comment)[0]["line"]
    assert [event["count"] for event in ran.of("counted") if event["line"] == line] == [count]


def test_the_end_of_each_process_is_recorded(ran: Ran) -> None:
    ended = [event["pid"] for event in ran.of("ended")]
    assert len(ended) == len(set(ended)) == 3  # the worker, the child, the program


def test_the_seed_applies_to_all_generators(ran: Ran, tmp_path: Path) -> None:
    seeded = ran.output.splitlines()[0]
    code = """
        import random, torch, numpy
        random.seed(7), torch.manual_seed(7), numpy.random.seed(7)
        print(random.random(), numpy.random.rand(), torch.rand(1).tolist())
    """
    assert run_program(tmp_path, code, copies=False).output.splitlines()[0] == seeded


def test_an_error_inside_is_recorded_once(tmp_path: Path) -> None:
    code = """
        import torch
        from devicefix.verify.runtime import observe
        observe.summarize = lambda *_: 1 / 0
        x = torch.tensor(2.0)
        print(x.item(), x.item())
    """
    ran = run_program(tmp_path, code, observe=True, copies=False)
    assert ran.output == "2.0 2.0\n"
    (trouble,) = ran.of("trouble")
    assert trouble["where"] == "observe"
    assert "ZeroDivisionError" in trouble["message"]


def test_the_watch_of_copies_hides_no_read(tmp_path: Path) -> None:
    """`uniform_` calls `float()` for bounds that are tensors, as in `RandomResizedCrop` of torchvision."""
    code = """
        import torch
        bounds = torch.tensor([0.5, 0.9])
        torch.empty(1).uniform_(bounds[0], bounds[1]).item()
    """
    runs = [run_program(tmp_path, code, observe=True, copies=copies) for copies in (False, True)]
    plain, watched = ([event["what"] for event in ran.of("seen")] for ran in runs)
    assert plain == watched == ["float", "float", "item"]


def test_devices_are_as_the_program_sees_them(tmp_path: Path) -> None:
    code = """
        import os, torch
        x = torch.arange(3.0).cuda()
        x.tolist()
        x.sum().item()
        x.cpu().numpy()
        torch.save({"x": x, "y": x.cpu()}, os.devnull)
        print(x.device)
    """
    ran = run_program(tmp_path, code, observe=True, copies=False, machine="simulated")
    assert ran.output == "cuda:0\n", ran.errors
    values = [event["value"] for event in ran.of("seen")]
    assert [value["device"] for value in values[:3]] == ["cuda:0", "cuda:0", "cpu"]
    saved = values[3]["tensors"]
    assert {path: value["device"] for path, value in saved.items()} == {"x": "cuda:0", "y": "cpu"}
    assert values[0]["digest"] == values[2]["digest"] == saved["x"]["digest"]


@pytest.mark.slow
def test_compiled_code_compiles_as_before(tmp_path: Path) -> None:
    code = """
        import torch
        torch._dynamo.config.capture_scalar_outputs = True
        x = torch.tensor(0.5)
        whole = torch.compile(lambda x: x * x.item() + float(x), backend="eager", fullgraph=True)
        print(float(whole(x)))
        torch._dynamo.config.capture_scalar_outputs = False
        torch._dynamo.reset()
        broken = torch.compile(lambda x: x * x.item() + x.numpy(), backend="eager")
        print(float(broken(x)))
    """
    ran = run_program(tmp_path, code, observe=True, copies=False)
    assert ran.output == "0.75\n0.75\n", ran.errors
    assert "does not know how to trace" not in ran.errors
    assert not ran.of("trouble")


LAYOUTS: dict[str, tuple[Callable[[], torch.Tensor], dict[str, Any]]] = {
    "empty": (lambda: torch.empty(0, 3), {"shape": [0, 3]}),
    "meta": (lambda: torch.empty(2, device="meta"), {"device": "meta", "shape": [2]}),
    "bool": (lambda: torch.tensor([True, False]), {"sample": [1.0, 0.0], "mean": 0.5}),
    "complex": (lambda: torch.tensor([1 + 2j]).conj(), {"sample": [1.0, -2.0], "abs": 1.5}),
    "negative": (lambda: torch.tensor([1 + 2j, 3 + 4j]).conj().imag, {"sample": [-2.0, -4.0]}),
    "half": (lambda: torch.ones(3).bfloat16(), {"dtype": "bfloat16", "mean": 1.0}),
    "sparse": (lambda: torch.eye(2).to_sparse(), {"shape": [2, 2], "sample": [1.0, 1.0]}),
    "nan": (lambda: torch.tensor([1.0, float("nan"), float("inf")]), {"mean": 1.0, "nonfinite": 2}),
    "large": (lambda: torch.full((3, 50_000), 2.0).t(), {"mean": 2.0, "shape": [50_000, 3]}),
    "wide": (lambda: torch.arange(100_000).expand(2, -1), {"sample": [
        0.0, 28571.0, 57142.0, 85713.0, 14285.0, 42856.0, 71427.0, 99999.0,
    ]}),
}  # fmt: skip


@pytest.mark.parametrize("name", LAYOUTS)
def test_summaries(name: str) -> None:
    make, expected = LAYOUTS[name]
    summary = summarize(make())
    assert {key: summary.get(key) for key in expected} == expected


def test_a_digest_is_exact_whatever_the_strides() -> None:
    x = torch.rand(300, 201)
    views = [x.t(), x[:, ::2], x[::3], x.unsqueeze(1).expand(-1, 2, -1), x.view(-1)[5:]]
    for view in views:
        assert summarize(view)["digest"] == summarize(view.contiguous())["digest"]
    before = summarize(x)["digest"]
    x[-1, -1] = x[-1, -1].nextafter(torch.tensor(2.0))
    assert summarize(x)["digest"] != before


def test_a_summary_has_no_side_effects() -> None:
    x = torch.rand(3, requires_grad=True)
    state, version = torch.get_rng_state(), x._version
    summarize(x * 2)
    summarize(x.detach()[::2])
    assert torch.equal(state, torch.get_rng_state())
    assert x._version == version


def test_saved_objects_are_searched_for_tensors() -> None:
    class Slots:
        __slots__ = ("unset", "x")

        def __init__(self) -> None:
            self.x = torch.ones(1)

        def __getattr__(self, name: str) -> Any:
            raise AssertionError("the search must run no code of the program")

    model = torch.nn.Sequential(torch.nn.Linear(1, 1))
    optimizer = torch.optim.SGD(model.parameters(), momentum=0.9)
    model(torch.ones(1, 1)).sum().backward()
    optimizer.step()
    circle: dict[str, Any] = {"model": model, "optimizer": optimizer, "slots": Slots(), "epoch": 3}
    circle["self"] = circle
    assert [path for path, _ in tensors(circle)] == [
        "model.0.weight",
        "model.0.bias",
        "optimizer.state.[0].momentum_buffer",
        "optimizer.state.[1].momentum_buffer",
        "optimizer.param_groups.0.params.0",
        "optimizer.param_groups.0.params.1",
        "slots.x",
    ]
