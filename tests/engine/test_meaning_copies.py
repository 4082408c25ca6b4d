"""Programs that keep a copy which only a GPU makes, or refuse a CPU.

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
    "a change right of the copy": """
        import torch
        w = torch.zeros(1).cuda()
        before, after = w.cpu(), w.add_(1).cpu()
        print(before.item())
    """,
    "a class body": """
        import torch
        class K:
            a = torch.zeros(1)
            b = a.cuda()
            a.add_(2)
        print(K.b.item())
    """,
    "a module that works in place": """
        import torch
        x = -torch.ones(1)
        y = torch.nn.ReLU(inplace=True).cuda()(x.cuda())
        print(x.item())
    """,
    "an attribute that a method sets": """
        import torch
        class Record:
            def keep(self, w):
                self.best = w.cpu()
        r = Record()
        w = torch.zeros(1).cuda()
        for i in range(3):
            w += 1
            if i == 0:
                r.keep(w)
        print(r.best.item())
    """,
    "a list of what a generator yields": """
        import torch
        def steps(w):
            for i in range(3):
                w += 1
                yield w.cpu()
        print([x.item() for x in list(steps(torch.zeros(1).cuda()))])
    """,
    "a nonlocal name": """
        import torch
        def run():
            best = None
            w = torch.zeros(1).cuda()
            def keep():
                nonlocal best
                best = w.cpu()
            keep()
            w += 1
            return best.item()
        print(run())
    """,
    "the default of a parameter": """
        import torch
        def run():
            w = torch.zeros(1).cuda()
            def get(t=w.cpu()):
                return t
            w += 1
            return get().item()
        print(run())
    """,
    "the default of a lambda": """
        import torch
        def run():
            w = torch.zeros(1).cuda()
            get = lambda t=w.cpu(): t
            w += 1
            return get().item()
        print(run())
    """,
    "an array of the module that a function moves": """
        import numpy as np
        import torch
        numbers = np.zeros(3, dtype=np.float32)
        def load():
            return torch.from_numpy(numbers).cuda()
        x = load()
        numbers[0] = 1
        print(x.sum().item())
    """,
    "a buffer of bytes": """
        import torch
        data = bytearray(4)
        x = torch.frombuffer(data, dtype=torch.uint8).cuda()
        data[0] = 1
        print(x.sum().item())
    """,
    "a choice that is not the CPU": """
        import torch
        mode = "auto"
        if mode == "cpu":
            d = "cpu"
        elif torch.cuda.is_available():
            d = "cuda"
        else:
            raise ValueError("no GPU")
        print(torch.ones(1).to(d).item())
    """,
    "a test of a device as text": """
        import torch
        x = torch.ones(2).cuda()
        if str(x.device) == "cuda:0":
            k = 1
        else:
            raise ValueError(x.device)
        print(k)
    """,
    "a wait for CUDA": """
        import time
        import torch
        while not torch.cuda.is_available():
            time.sleep(1)
        print(torch.ones(1).cuda().item())
    """,
    "a field of a dataclass": """
        from dataclasses import dataclass
        import torch
        @dataclass
        class Snapshot:
            step: int
            w: torch.Tensor
        w = torch.ones(2, device="cuda")
        taken = Snapshot(0, w=w.to("cpu"))
        w *= 3
        print(taken.w.sum().item())
    """,
    "a named tuple": """
        from collections import namedtuple
        import torch
        Step = namedtuple("Step", "obs action")
        obs, memory = torch.zeros(2), []
        for a in (0, 1):
            obs[a] += 1
            memory.append(Step(obs.cuda(), a))
        print([step.obs.tolist() for step in memory])
    """,
    "an argument of a partial function": """
        import functools
        import torch
        base = torch.ones(3)
        total = functools.partial(torch.sum, base.cuda())
        base.zero_()
        print(total().item())
    """,
    "a cache": """
        import torch
        cache = {}
        def cached(key, t):
            return cache.setdefault(key, t.cuda())
        buffer = torch.zeros(2)
        a = cached("x", buffer)
        buffer.fill_(4)
        print(a.sum().item())
    """,
    "a queue": """
        import queue
        import torch
        q = queue.Queue()
        x = torch.zeros(1).cuda()
        def read():
            return [q.get().item() for _ in range(3)]
        for _ in range(3):
            q.put(x.cpu())
            x += 1
        print(read())
    """,
    "what a generator yields, unpacked": """
        import torch
        def snapshots(w, n):
            for _ in range(n):
                yield w.cpu()
                w.add_(1)
        first, *rest = snapshots(torch.zeros(1, device="cuda"), 3)
        print(first.item(), [r.item() for r in rest])
    """,
    "arguments with a star": """
        import torch
        def snapshots(w, n):
            for _ in range(n):
                yield w.cpu()
                w.add_(1)
        print(torch.cat([*snapshots(torch.zeros(1, device="cuda"), 3)]).tolist())
    """,
    "too few GPUs": """
        import torch
        def needs_gpus(n):
            found = torch.cuda.device_count()
            if found < n:
                raise SystemExit(f"{n} GPUs are needed")
        needs_gpus(1)
        print(torch.ones(2, device="cuda").sum().item())
    """,
    "more than the GPUs": """
        import torch
        def check(n=1):
            if n > torch.cuda.device_count():
                raise SystemExit(f"{n} GPUs are needed")
        check()
        print(torch.ones(2, device="cuda").sum().item())
    """,
    "the number of a CPU": """
        import torch
        def kernel(x):
            index = x.get_device()
            if index < 0:
                raise ValueError("a CPU tensor")
            return x.cumsum(0)
        print(kernel(torch.ones(3).cuda()).tolist())
    """,
    "an error below what returns": """
        import torch
        class Env:
            @property
            def gpu(self):
                return torch.cuda.is_available()
            def ensure(self):
                if self.gpu:
                    return self
                raise OSError("gpu missing")
        Env().ensure()
        print(torch.ones(4).cuda().mean().item())
    """,
    "a type of tensors as text": """
        import torch
        def fused(x):
            assert x.type().startswith("torch.cuda")
            if "cuda" not in x.type():
                raise TypeError
            if x.type() != "torch.cuda.FloatTensor":
                raise TypeError
            return x * 2
        print(fused(torch.ones(2).cuda()).tolist())
    """,
    "a function that checks": """
        import sys
        import torch
        def require(condition, message):
            if not condition:
                print(message)
                sys.exit(1)
        require(torch.cuda.is_available(), "a GPU is needed")
        require(torch.__version__ > "1", "a newer torch is needed")
        print(torch.ones(2).cuda().sum().item())
    """,
    "a function that checks, with a call as an argument": """
        import torch
        def require(condition, message):
            if not condition:
                raise RuntimeError(message)
        def text():
            print("asked")
            return "no GPU"
        require(torch.cuda.is_available(), text())
        print(torch.ones(2).cuda().sum().item())
    """,
    "a function that checks, and does more": """
        import sys
        import torch
        def require(condition):
            print("checked")
            if not condition:
                sys.exit(1)
        require(torch.cuda.is_available())
        print(torch.ones(2).cuda().sum().item())
    """,
    "a leaf that a function of torch changes in place": """
        import torch
        w = torch.ones(2, requires_grad=True)
        print(torch.nn.functional.relu(w.cuda(), inplace=True).shape)
    """,
    "a leaf that a function changes": """
        import torch
        w = torch.nn.Parameter(torch.ones(2))
        def train(x):
            x = x.cuda()
            x += 1
        train(w)
    """,
    "a leaf in a list": """
        import torch
        w = next(iter([torch.ones(2).requires_grad_()]))
        item = [w.cuda()]
        item[0] += 1
    """,
    "a leaf that a lambda returns": """
        import torch
        w = (lambda w: w)(torch.ones(2).requires_grad_())
        x = w.to("cuda")
        (x * 3).sum().backward()
        print(x.grad is None)
    """,
    "a leaf whose function is asked for": """
        import torch
        w = torch.ones(2, requires_grad=True)
        print(w.cuda(0).grad_fn is None)
    """,
    "a leaf that an optimizer changes": """
        import torch
        w = torch.ones(2, requires_grad=True)
        before = w.cuda()
        optimizer = torch.optim.SGD([w], lr=0.1)
        (before * 3).sum().backward()
        optimizer.step()
        print((before - w.to(before.device)).abs().sum() > 0)
    """,
    "the next of what a generator yields": """
        import torch
        model = torch.zeros(2).cuda()
        def stream(w):
            for _ in range(2):
                yield w.to("cpu")
        kept = next(stream(model))
        model.fill_(3)
        print(kept.tolist())
    """,
    "a name in globals()": """
        import torch
        x = torch.zeros(2)
        globals()["kept"] = x.cuda()
        x.add_(1)
        print(kept.tolist())
    """,
    "an array by a choice": """
        import numpy as np
        import torch
        images = np.ones(3, dtype=np.float32)
        x = (torch.from_numpy(images) if len(images) else None).cuda()
        images.fill(2)
        print(x.tolist())
    """,
}


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
def test_program_is_right_or_reported(judge: Judge, program: str) -> None:
    found = judge(Program({"main": dedent(program).lstrip("\n")}))
    assert found.category in (meaning.FINE, meaning.REPORTED, meaning.ELSEWHERE), meaning.shown(found)
