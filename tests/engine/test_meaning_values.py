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
}


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
def test_program_is_right_or_reported(judge: Judge, program: str) -> None:
    found = judge(Program({"main": dedent(program).lstrip("\n")}))
    assert found.category in (meaning.FINE, meaning.REPORTED, meaning.ELSEWHERE), meaning.shown(found)
