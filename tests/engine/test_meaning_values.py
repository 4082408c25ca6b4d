"""Programs about random states, methods `cuda`, timers, leaves and decorators.

Each is right on simulated CUDA and on a CPU, or a finding covers it.
"""

from __future__ import annotations

from textwrap import dedent

import meaning
import pytest
from meaning import Judge
from meaning_programs import Program

pytestmark = pytest.mark.needs("numpy", "torch")

PROGRAMS = {
    "a random state that replays draws": """
        import torch
        x = torch.ones(4).cuda()
        state = torch.cuda.get_rng_state()
        first = torch.rand_like(x)
        torch.cuda.set_rng_state(state)
        print(torch.equal(first, torch.rand_like(x)))
    """,
    "a random state in an attribute": """
        import torch
        class Noise:
            def __init__(self):
                self.state = torch.cuda.get_rng_state("cuda")
            def draw(self):
                torch.cuda.set_rng_state(self.state, "cuda")
                return torch.rand(2, device="cuda")
        noise = Noise()
        print(torch.equal(noise.draw(), noise.draw()))
    """,
    "random states of both generators": """
        import torch
        states = torch.get_rng_state(), torch.cuda.get_rng_state()
        first = torch.rand(2), torch.rand(2).cuda()
        torch.set_rng_state(states[0])
        torch.cuda.set_rng_state(states[1])
        print(torch.equal(first[0], torch.rand(2)))
    """,
    "a generator method": """
        import torch
        class Loader:
            def __init__(self, xs):
                self.xs = xs
            def cuda(self):
                for x in self.xs:
                    yield x.cuda()
        def run(loader):
            return [batch.item() for batch in loader.cuda()]
        print(run(Loader([torch.ones(1)])))
    """,
    "a method that returns a text": """
        import torch
        class Config:
            def cuda(self):
                return "moved"
        def show(c):
            return c.cuda().upper()
        print(show(Config()))
    """,
    "a method of a batch, which moves": """
        import torch
        class Batch(dict):
            def cuda(self):
                return Batch({k: v.cuda() for k, v in self.items()})
        def total(b):
            return sum(v.sum().item() for v in b.cuda().values())
        print(total(Batch(a=torch.ones(2), b=torch.ones(3))))
    """,
    "the fastest of several": """
        import torch
        a, b = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        best, pick = float("inf"), None
        for f in (torch.ones, torch.zeros):
            a.record()
            f(1).cuda()
            b.record()
            torch.cuda.synchronize()
            t = a.elapsed_time(b)
            if t < best:
                best, pick = t, f
        print(pick is not None)
    """,
    "sorted times": """
        import torch
        def time(f):
            a, b = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            a.record()
            f()
            b.record()
            b.synchronize()
            return a.elapsed_time(b)
        print(max(time(torch.cuda.synchronize), 1e-6) > 0)
    """,
    "devices as keys": """
        import torch
        d0, d1 = torch.device("cuda:0"), torch.device("cuda:1")
        print(len({d0: "encoder", d1: "decoder"}), d0 != d1)
    """,
    "devices in a set": """
        import torch
        devices = {torch.device("cuda"), torch.device("cpu")}
        for d in devices:
            torch.ones(1).to(d)
        print(len(devices))
    """,
    "members of an enumeration": """
        import enum
        import torch
        class Place(enum.Enum):
            FAST = torch.device("cuda")
            SLOW = torch.device("cpu")
        print(len(Place), torch.ones(1).to(Place.FAST.value).sum().item())
    """,
    "a leaf that is changed": """
        import torch
        w = torch.zeros(2, requires_grad=True)
        x = w.cuda()
        x += 1
        print(x.tolist())
    """,
    "a leaf that is asked about": """
        import torch
        w = torch.randn(2).requires_grad_()
        print(w.cuda().is_leaf)
        x = w.cuda()
        x.retain_grad()
        x.sum().backward()
        print(x.is_leaf)
    """,
    "all names of torch.cuda": """
        import torch
        from torch.cuda import *
        synchronize()
        set_device(0)
        print(torch.ones(1).cuda().item())
    """,
    "a timer as a decorator": """
        import functools
        import torch
        def timed(fn):
            @functools.wraps(fn)
            def inner(*a):
                out = fn(*a)
                if torch.cuda.is_available():
                    torch.cuda.synchronize()
                return out
            return inner
        @timed
        def train(x):
            return x.cuda() + 1
        print(train(torch.ones(1)).item())
    """,
    "a timer with arguments": """
        import torch
        def timed(name):
            def deco(fn):
                def inner(*a):
                    if torch.cuda.is_available():
                        torch.cuda.synchronize()
                    return fn(*a)
                return inner
            return deco
        @timed("train")
        def train(x):
            return x.cuda() + 1
        x = train(torch.ones(1)).item()
    """,
    "a decorator that refuses": """
        import torch
        def needs_gpu(fn):
            def inner(*a):
                if not torch.cuda.is_available():
                    raise RuntimeError("no GPU")
                return fn(*a)
            return inner
        @needs_gpu
        def train(x):
            return x.cuda() + 1
        print(train(torch.ones(1)).item())
    """,
    "a decorator that skips": """
        import torch
        def only_gpu(fn):
            def inner(*a):
                return fn(*a) if torch.cuda.is_available() else None
            return inner
        @only_gpu
        def warm_up(x):
            x.cuda()
        warm_up(torch.ones(1))
    """,
    "pinned memory by an argument": """
        import torch
        x = torch.ones(2).pin_memory()
        print(x)
    """,
    "a generator of a GPU": """
        import torch
        torch.cuda.init()
        g = torch.cuda.default_generators[0]
        g.set_state(g.get_state())
        print(torch.ones(2, device="cuda").sum().item())
    """,
    "random states of all GPUs that functions keep and restore": """
        import torch
        def capture():
            return {"cuda": torch.cuda.get_rng_state_all()}
        def restore(state):
            torch.cuda.set_rng_state_all(state["cuda"])
        state = capture()
        first = torch.rand(2, device="cuda").tolist()
        restore(state)
        print(first == torch.rand(2, device="cuda").tolist())
    """,
    "a method that computes before it moves": """
        import torch
        class Image:
            def __init__(self, data):
                self.data = data
            def cuda(self):
                return Image(self.data.float().div(255).cuda())
        def mean(items):
            return [item.cuda().data.mean().item() for item in items]
        print(mean([Image(torch.full((2,), 255, dtype=torch.uint8))]))
    """,
    "a method that stacks, and then moves": """
        import torch
        class Batch:
            def __init__(self, rows):
                self.rows = rows
            def cuda(self):
                self.x = torch.stack(self.rows).cuda()
                return self
        def total(batches):
            return sum(batch.cuda().x.sum().item() for batch in batches)
        print(total([Batch([torch.ones(2), torch.ones(2)])]))
    """,
    "a copy of a parameter": """
        import torch
        w = torch.nn.Parameter(torch.ones(2))
        v = w.cuda()
        print(v.is_leaf)
    """,
    "a leaf whose name gets the moved tensor": """
        import torch
        def embedding(n, d):
            table = torch.ones(n, d, requires_grad=True)
            table = table.to("cuda")
            table[0].zero_()
            return table
        print(embedding(3, 2).sum().item())
    """,
    "devices that a function compares": """
        import torch
        def transfer(x, src, dst):
            if src == dst:
                return x, 0
            return x.to(dst), x.numel()
        main, side = torch.device("cuda", 0), torch.device("cuda", 1)
        y, copied = transfer(torch.ones(3, device=main), main, side)
        print(y.sum().item(), copied)
    """,
    "a random state under a guard": """
        import torch
        if torch.cuda.is_available():
            state = torch.cuda.get_rng_state()
        x = torch.rand(2, device="cuda")
        if torch.cuda.is_available():
            torch.cuda.set_rng_state(state)
        print(torch.equal(x, torch.rand(2, device="cuda")))
    """,
    "the random states of each GPU": """
        import torch
        states = [torch.cuda.get_rng_state(n) for n in range(torch.cuda.device_count())]
        x = torch.rand(2, device="cuda")
        for n, state in enumerate(states):
            torch.cuda.set_rng_state(state, n)
        print(torch.equal(x, torch.rand(2, device="cuda")))
    """,
    "a type of a star import": """
        import torch
        from torch.cuda import *
        print(FloatTensor([1.0]).sum())
    """,
    "torch.cuda in a class": """
        import torch
        class Accelerator:
            backend = torch.cuda
            def finish(self, x):
                self.backend.synchronize()
                return x.cpu()
        print(Accelerator().finish(torch.ones(2).cuda()).sum())
    """,
    "a random state that is None at first, as in blocks that can be reversed": """
        import torch
        class Replay:
            def __init__(self):
                self.state = None
            def save(self):
                self.state = torch.cuda.get_rng_state()
            def restore(self):
                torch.cuda.set_rng_state(self.state)
        replay = Replay()
        replay.save()
        first = torch.rand(2, device="cuda")
        replay.restore()
        print(torch.equal(first, torch.rand(2, device="cuda")))
    """,
    "a method cuda that sets an item": """
        import torch
        class Batch:
            def __init__(self, tokens, mask=None):
                self.tokens, self.mask = tokens, mask
            def cuda(self):
                moved = {"tokens": self.tokens.cuda()}
                moved["mask"] = torch.arange(3, device="cuda") < 2
                return Batch(**moved)
        def loader():
            yield Batch(torch.ones(3))
        for batch in loader():
            batch = batch.cuda()
            print((batch.tokens * batch.mask).sum().item())
    """,
    "a capability that an assertion demands": """
        import torch
        major, minor = torch.cuda.get_device_capability()
        assert major >= 7, "too old"
        print(torch.ones(1).cuda().item())
    """,
    "a capability without which the program ends": """
        import torch
        capability = torch.cuda.get_device_capability()
        if not capability[0] >= 7:
            raise SystemExit("too old")
        print(torch.ones(1).cuda().item())
    """,
    "free memory of which a step is made": """
        import torch
        def size(most=4):
            free, total = torch.cuda.mem_get_info()
            return min(int(free * 0.9) // 2**20, most)
        print(len(range(0, 10, size())))
    """,
    "a time that ends a loop": """
        import torch
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        total, runs = 0.0, 0
        while total < 0.001:
            start.record()
            torch.ones(2).cuda()
            end.record()
            end.synchronize()
            total += start.elapsed_time(end)
            runs += 1
            assert runs < 100000
        print(runs > 0)
    """,
    "times of which logarithms are taken": """
        import math
        import torch
        times = []
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end))
        print(math.exp(sum(math.log(each) for each in times)) > 0)
    """,
    "two star imports": """
        from torch import *
        from torch.cuda import *
        x = ones(2).cuda()
        synchronize()
        print(x.sum().item())
    """,
    "a function that a match names": """
        import torch
        match torch.cuda.synchronize:
            case sync:
                pass
        sync()
    """,
    "the devices of tensors in a set": """
        import torch
        one = torch.ones(1).cuda(0).device
        other = torch.ones(1).cuda(1).device
        print(len({one, other}))
    """,
    "the device of a tensor on a CPU in an Enum": """
        import enum
        import torch
        one, other = torch.ones(1).cuda().device, torch.ones(1).device
        class Where(enum.Enum):
            A = one
            B = other
        print(len(Where), Where.B.name)
    """,
    "a random state that a loop binds": """
        import torch
        for state in [torch.cuda.get_rng_state()]:
            pass
        x = torch.rand(2, device="cuda")
        torch.cuda.set_rng_state(state)
        print(x, torch.rand(2, device="cuda"))
    """,
    "a random state in a name that was None": """
        import torch
        state = None
        state = torch.cuda.get_rng_state()
        x = torch.rand(2, device="cuda")
        torch.cuda.set_rng_state(state)
        print(x, torch.rand(2, device="cuda"))
    """,
    "a random state that is restored under a condition": """
        import torch
        state = torch.cuda.get_rng_state()
        x = torch.rand(2, device="cuda")
        if torch.cuda.is_available():
            torch.cuda.set_rng_state(state)
        print(x, torch.rand(2, device="cuda"))
    """,
}


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
def test_program_is_right_or_reported(judge: Judge, program: str) -> None:
    found = judge(Program({"main": dedent(program).lstrip("\n")}))
    assert found.category in (meaning.FINE, meaning.REPORTED, meaning.ELSEWHERE), meaning.shown(found)


def test_functions_that_another_file_imports_are_reported(judge: Judge) -> None:
    tools = "import torch\nfrom torch.cuda import set_device, synchronize as sync\n"
    main = "import torch\nfrom tools import set_device, sync\nset_device(0)\nsync()\nprint(torch.ones(1))\n"
    found = judge(Program({"main": main, "tools": tools}))
    assert found.category == meaning.REPORTED, meaning.shown(found)
