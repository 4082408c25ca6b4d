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
}


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
def test_program_is_right_or_reported(judge: Judge, program: str) -> None:
    found = judge(Program({"main": dedent(program).lstrip("\n")}))
    assert found.category in (meaning.FINE, meaning.REPORTED, meaning.ELSEWHERE), meaning.shown(found)
