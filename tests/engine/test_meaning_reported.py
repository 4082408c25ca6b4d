"""Programs that the search of `benchmarks/meaning.py` found: each is right on a CPU, or a finding covers it.

Every program runs as it is on the simulated CUDA machine, and rewritten there and on the CPU.
"""

from __future__ import annotations

from textwrap import dedent

import meaning
import pytest
from meaning import Judge
from meaning_programs import Program

pytestmark = pytest.mark.needs("numpy", "torch")


PROGRAMS = {
    "a comparison with a name that has a number": """
        import torch
        x = 'cuda:0'
        if x == 'cuda:0' or x == 'cuda:1': print(torch.ones(1).to(x))
        else: print('other')
    """,
    "an assertion about the start of a name": """
        import torch
        x = 'cuda:0'
        assert x.startswith('cuda:')
        print(torch.ones(1).to(x))
    """,
    "a number used beside a device": """
        import torch
        c9 = 3 % torch.cuda.device_count()
        torch.cuda.set_device(torch.device('cuda', c9))
        print(torch.ones(1).cuda(), c9 + 1)
    """,
    "a number in a dictionary": """
        import torch
        stream = {'k': 3 % torch.cuda.device_count()}['k']
        print(torch.ones(1).cuda(stream), stream + 1)
    """,
    "the number of a property": """
        import torch as th
        class Z77:
            def f98(self):
                print(th.randn(2, device=self.local_rank), th.ones(1).cuda())
            @__import__('functools').cached_property
            def local_rank(self):
                return 0
        Z77().f98()
    """,
    "super() in a choice": """
        import torch
        class F4(torch.nn.Module):
            def __init__(self):
                super().__init__()
            def forward(self, x):
                pass
            def cuda(self, device=None):
                self.moved = True
                return (super() if True else None).cuda(device)
        q1 = F4().cuda()
        print(q1.moved, q1(torch.ones(1, 2).cuda()))
    """,
    "super() in a list": """
        import torch
        class E20(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.lin = torch.nn.Linear(2, 2)
            def forward(self, x):
                return self.lin(x)
            def cuda(self, device=None):
                self.moved = True
                return [t.cuda(device) for t in [super()]][0]
        rank = E20().cuda()
        print(rank.moved, rank(torch.ones(1, 2).cuda()))
    """,
    "the number of GPUs in an object": """
        import torch
        def train():
            import types
            t61 = types.SimpleNamespace(a=torch.cuda.device_count()).a
            print(7 % t61 >= 0)
        train()
    """,
    "the number of GPUs from an iterator": """
        import torch
        n = next(iter([torch.cuda.device_count()]))
        print(torch.ones(4).tensor_split(n)[0].numel() > 0)
    """,
    "the number of GPUs from a function that is called at once": """
        import torch
        @(lambda f: f())
        def ngpus(): return torch.cuda.device_count()
        print(len(torch.utils.data.DistributedSampler(range(4), num_replicas=ngpus, rank=0)) > 0)
    """,
    "a class method that is called cuda": """
        import torch
        class Model:
            @classmethod
            def cuda(cls):
                print(torch.ones(1).cuda())
        Model.cuda()
    """,
    "a name that is not defined": """
        import torch
        class Own:
            def cuda(self): return self
        try:
            undefined.cuda()
        except NameError:
            print('no name')
    """,
    "a number that a pattern takes out": """
        import torch as torch
        match (None or 0, 1):
            case [f22, 2] | [f22, 1]:
                q57 = torch.randn(2, device=f22)  # cuda
    """,
    "a number that a generator yields": """
        import torch
        def r51():
            yield int('1')
        model = next(r51())
        h = torch.ones(2)
        if model is not None: h = h.to(model)
        print(h)  # cuda
    """,
    "a device of unpacked arguments": """
        import torch
        [device, _] = [torch.device(*('cuda', 0)), 1]
        print(torch.device(device))
        print(torch.empty(2, device=device).fill_(3))
    """,
    "a name from a function that is called at once": """
        import torch
        @(lambda f: f())
        def compute():
            return str(torch.device('cuda:1'))
        x = int(compute[-1])
        print(x)
    """,
    "a name set by setattr": """
        import torch as th
        class F95:
            def __init__(self):
                setattr(self, 'use_cuda', 'cuda:1')
            def train(self):
                if self.use_cuda == 'cuda:0' or self.use_cuda == 'cuda:1': print(th.ones(1).to(self.use_cuda))
                else: print('other')
        F95().train()
    """,
    "a name in an error": """
        import torch
        try:
            raise ValueError('cuda:1')
        except ValueError as e:
            map_location = next(iter([e.args[0]]))
            opt, _, w96 = map_location.partition(':')
            print(torch.ones(1).to(opt), int(w96 or 0) >= 0)
    """,
    "a name from __getattr__": """
        import torch
        import torch as th
        class Config:
            def __getattr__(self, name):
                return 'cuda:%d' % 0
            def build(self):
                x = int(self.t62[5:])
                print(th.ones(2)[x - x].item(), th.ones(1).to(self.t62))
        Config().build()
    """,
    "a function of CUDA in a tuple": """
        import torch
        def p26(_=None):
            g29, _ = torch.cuda.synchronize, 1
            g29()
            print('end')
        p26()
    """,
    "a scaler by a walrus": """
        import torch
        def sync():
            y = (_ := torch.cuda.amp.GradScaler())
            print(y.state_dict()['scale'] > 0)
        sync()
    """,
    "a name in two pieces": """
        import torch
        def out():
            w65 = 'cu' + 'da'
            q41 = dict(device=w65)
            print(torch.ones(2, **q41))
        out()
    """,
    "a generator's device in two pieces": """
        import torch
        class Config:
            def __init__(self):
                cfg = torch.Generator(('cu' + 'da')).manual_seed(1)
                print(torch.rand(2, generator=cfg, device='cuda'))
        Config()
    """,
    "a comparison with a name in two pieces": """
        import torch
        images = torch.device('cuda')
        assert images.type == ('cu' + 'da')
        print(torch.ones(2).cuda())
    """,
    "an unpacked number": """
        import torch
        batch = torch.randperm(4).float().to(*[max(0, -1)])
        print(batch.cuda().sum())
    """,
    "a number set by setattr": """
        import torch
        class C38:
            def c47(self):
                print(torch.ones(2).to(self.q15, torch.float64), torch.ones(2).cuda(self.q15))
            def __init__(self):
                setattr(self, 'q15', int('1'))
        C38().c47()
    """,
    "a number in unpacked arguments": """
        import torch
        def a48(i):
            print(torch.randn(2, device=i), i * 2)  # cuda
        a48(**{'i': 0})
    """,
    "a device in the body of a class": """
        import torch
        import asyncio
        async def run():
            class P52:
                DEVICE = (lambda: 'cuda')()
            h = torch.ones(2)
            h = h.to(P52.DEVICE)
            print(h)
        asyncio.run(run())
    """,
    "a definition behind a removed block": """
        import torch as torch
        if not torch.cuda.is_available():
            import sys
            sys.exit(1)
        w21 = torch.nn.Parameter(torch.ones(2).cuda(), requires_grad=False)
    """,
    "a name that a pattern keeps in a dictionary": """
        import torch as torch
        def sync():
            match {'k': 'cuda:%d' % 0, 'j': 1}:
                case {'j': _, **gpu}:
                    gpu = gpu['k']
                    x, idx = gpu.split(':')
                    print(torch.ones(1).to(torch.device(x, int(idx))))
        sync()
    """,
    "a number in the body of a class": """
        import torch
        class Trainer:
            idx = (_ := int('1'))
        print(torch.ones(2).to(Trainer.idx, torch.float64), torch.ones(2).cuda(Trainer.idx))
    """,
    "a module by a name that is put together": """
        import torch

        def run():
            module = getattr(torch, 'cu' + 'da')
            module.synchronize()
        run()
        print(torch.ones(1).cuda())
    """,
    "a backend through a lambda that is called at once": """
        import torch.distributed as dist
        opt = (lambda w: w)('nccl')
        dist.init_process_group(opt, rank=0, world_size=1, store=dist.HashStore())
    """,
    "a device that a statement binds to a number": """
        import contextlib
        import torch

        def run():
            device = torch.device('cuda' if torch.cuda.is_available() else 'cpu')
            with contextlib.nullcontext(len([0])) as device:
                pass
            print(torch.nn.Linear(1, 1).to(device)(torch.ones(1).cuda(device)))
        run()
    """,
    "a path without CUDA, beside a lambda that is called at once": """
        import torch
        try:
            (lambda t: t.cuda())(torch.ones(1))
            torch.zeros(1, device=(lambda: 'cuda')())
            out = 'gpu'
        except Exception:
            out = 'cpu'
        print('path', out)
    """,
    "a number that a function is mapped over": """
        import torch

        def train(map_location):
            print(torch.nn.Linear(2, 2).to(map_location).weight.device)
        list(map(train, [0]))
    """,
    "a number of a function that takes the place of a value": """
        import torch
        device = 'cpu'

        def device():
            yield int('1')
        where = next(device())
        print(torch.ones(1).to(where))
    """,
    "a number that a lambda gets, under a name that an expression binds": """
        import torch

        def where():
            stream = int('1')
            return stream
        if (h := (lambda t, w: t.to(w))) is not None:
            print(h(torch.ones(2), where()))
    """,
    "a copy of an array, and a module of that name elsewhere": """
        import numpy as np
        import torch

        data = np.ones(3, dtype=np.float32)
        copy = torch.from_numpy(data).cuda()
        data[0] = 9
        print(copy.tolist(), data.tolist(), copy.device)

        def train(state):
            data = torch.nn.Linear(2, 2).cuda()
            data.load_state_dict(state)
    """,
    "a number in a dataclass": """
        import torch
        import dataclasses
        @dataclasses.dataclass
        class Net:
            i: object = None
        n_gpu = Net(len([0]))
        print(torch.nn.Linear(1, 1).to(n_gpu.i)(torch.ones(1).cuda(n_gpu.i)))
    """,
    "a number in a dictionary, by get": """
        import torch
        args = {'local_rank': 0}
        print(torch.ones(2).to(args.get('local_rank')), torch.ones(2).cuda(args.get('local_rank')))
    """,
    "a number in an error": """
        import torch
        try:
            raise ValueError((None or 0))
        except ValueError as e:
            dev, _ = e.args[0], 1
            print(torch.tensor([1.0], device=dev).device)  # cuda
    """,
    "a copy of a tensor that an operator changes": """
        import torch as th
        def stream():
            source = th.ones(3)
            for _ in range(2):
                kept = th.as_tensor(source, device='cuda')
                source *= 2
            print(source.tolist(), kept.tolist())
        stream()
    """,
    "a copy of what may be a tensor": """
        import torch
        import types
        h = types.SimpleNamespace(a=torch.arange(4.0)).a
        c17 = torch.as_tensor(h, device='cuda')
        c17 += 1
        print(h.tolist(), c17.tolist())
    """,
    "a copy of the array of a tensor": """
        import torch
        a = torch.ones(2)
        q = torch.as_tensor(a.numpy(), device='cuda')
        a += 1
        print(a.tolist(), q.tolist())
    """,
    "a device of a name, by another name of a function": """
        import torch
        def run(dev):
            print(torch.device(dev))
        u28 = run
        u28('cuda:' + str(0))
    """,
    "a device of a name that goes out of sight": """
        import asyncio
        import torch as th
        async def step():
            return 'cuda'
        device = asyncio.run(step())
        print(th.device(device))
    """,
    "a device that gets a number": """
        import os
        import torch
        idx = 1
        print(torch.device(os.environ.get('NO_SUCH', 'cuda'), idx))
    """,
    "a flag that is another thing later": """
        import torch
        stream = bool(torch.cuda.device_count())
        if not stream:
            raise SystemExit('no GPU')
        async def stream():
            pass
    """,
    "a flag that is deleted": """
        import torch
        answer = torch.cuda.is_available()
        c47 = answer
        del answer
        assert c47
    """,
    "a refusal that compares with the type of a device": """
        import argparse
        import torch
        stream = argparse.Namespace(device='cuda')
        if stream.device == torch.device('cuda').type and not torch.cuda.is_available():
            raise ValueError('no GPU')
        stream = argparse.Namespace(device='cpu')
        if stream.device == torch.device('cuda').type and not torch.cuda.is_available():
            raise ValueError('no GPU')
    """,
    "a device that a check refuses": """
        import torch
        s58 = torch.device('cuda')
        assert s58.type == 'cuda'
    """,
    "the number of a device that is None": """
        import torch
        gpu = [torch.device('cuda:1').index][0]
        print(gpu + 0 >= 0, torch.ones(1, device=torch.device('cuda', gpu)))
    """,
    "the number of the first GPU that a pattern captures": """
        import torch, types
        match types.SimpleNamespace(k=list(range(torch.cuda.device_count()))[0]):
            case object(k=use_cuda):
                y = (lambda: torch.Generator(device=use_cuda))()
    """,
    "the number of the first GPU from a coroutine": """
        import asyncio
        import torch
        async def g49():
            return list(range(torch.cuda.device_count()))[0]
        n_gpu = lambda t, w: t.to(w)
        print(n_gpu(torch.ones(2), asyncio.run(g49())))
    """,
    "an argument that draws random numbers": """
        import torch
        print([x.cuda(next(torch.nn.Linear(1, 1).cuda().parameters()).device) for x in (torch.zeros(2),)])
        print(torch.rand(2).cuda())
    """,
    "a device that a lambda returns": """
        import torch
        class use_cuda:
            cuda = True
        z88 = (lambda w: w)({True: 'cuda', False: 'cpu'}[use_cuda.cuda])
        w98 = torch.ones(2).cuda() if use_cuda.cuda else torch.ones(2)
        print(w98, w98.to(z88).device)
    """,
    "a device that a check compares with an unknown name": """
        import os
        import torch
        device = torch.device('cuda')
        assert device.type == os.environ.get('NO_SUCH', 'cuda')
        name = 'cuda'
        if name != os.environ.get('NO_SUCH', 'cuda'):
            raise ValueError(name)
        print(torch.ones(1).to(name), torch.ones(1).to(device))
    """,
    "a device that a check compares with another name": """
        import torch
        wanted = 'cuda'
        device = torch.device('cuda')
        assert wanted and device.type == wanted
        other = torch.device('cuda')
        if not other == torch.device('cuda'):
            raise ValueError(other)
        print(torch.ones(1).to(device), torch.ones(1).to(other))
    """,
    "a missing method in a lambda, whose error is caught": """
        import torch

        class Batch:
            def to(self, device): return self
        try:
            (lambda batch: batch.cuda())(Batch())
        except AttributeError:
            print('no attribute')
    """,
    "a number that is drawn": """
        import torch
        print(torch.ones(2).cuda(int(torch.rand(2)[0])), torch.rand(2))
    """,
    "a number of a property that draws": """
        import torch
        class Place:
            @property
            def number(self):
                return int(torch.rand(2)[0])
        place = Place()
        where = place.number if torch.rand(1) < 2 else 0
        print(torch.ones(2).cuda(int(place.number)), torch.rand(2), where)
    """,
    "the number of a tensor's device, from a property, a method, and a field": """
        import dataclasses
        import torch
        class Shard:
            @property
            def place(self):
                return torch.ones(1).cuda().get_device()
            def index(self):
                return torch.ones(1).cuda().get_device()
        @dataclasses.dataclass
        class Entry:
            number: int
        print([5, 6][Shard().place])
        print([5, 6][Shard().index()])
        print([5, 6][Entry(torch.ones(1).cuda().get_device()).number])
    """,
    "a number of a factory that is a function": """
        import dataclasses
        import torch
        def first():
            return 0
        @dataclasses.dataclass
        class Options:
            place: int = dataclasses.field(default_factory=first)
        print(torch.ones(1).to(Options().place))
    """,
    "a device that replaces the one of a field": """
        import collections
        import dataclasses
        import torch
        @dataclasses.dataclass(frozen=True)
        class Options:
            place: str = 'cpu'
        options = dataclasses.replace(Options(), place='cuda')
        print(torch.ones(1).to(options.place))
        Pair = collections.namedtuple('Pair', 'spot count')
        pair = Pair('cpu', 1)._replace(spot='cuda')
        print(torch.ones(pair.count).to(pair.spot))
    """,
    "a device of a factory that is a function, and of a cached property": """
        import dataclasses
        import functools
        import torch
        def first():
            return 'cuda:1'
        @dataclasses.dataclass
        class Options:
            place: str = dataclasses.field(default_factory=first)
            @functools.cached_property
            def other(self):
                return 'cuda'
        print(torch.ones(1).to(Options().place), torch.ones(1).to(Options().other))
    """,
    "the type of an accelerator in a field": """
        import dataclasses
        import torch
        @dataclasses.dataclass
        class Options:
            place: object = None
        options = Options(torch.accelerator.current_accelerator())
        print(torch.ones(1, device=options.place))
        print(options.place.type)
    """,
    "the type of a tensor that a methodcaller moves": """
        import operator
        import torch
        x = operator.methodcaller('cuda')(torch.ones(2))
        print(x * 2 if x.type() == 'torch.cuda.FloatTensor' else 0)
        y = getattr(torch.ones(2), 'cuda')()
        print(y * 2 if isinstance(y, torch.cuda.FloatTensor) else 0)
    """,
    "a name that is bound under a guard, and again after its use": """
        import torch
        data = torch.ones(2)
        if torch.cuda.is_available():
            moved = {'k': data.cuda()}['k']
        print(moved * 1)

        @lambda function: function()
        def moved():
            pass
    """,
    "a device made of no accelerator": """
        import torch
        def choose():
            global where
            where = torch.accelerator.current_accelerator()
        choose()
        def use():
            with torch.autocast(torch.device(where).type):
                print(torch.ones(1, device=where).sum())
        use()
    """,
    "the name of a device that gets a number, in an object": """
        import torch
        import types
        options = types.SimpleNamespace(device='cuda', index=1)
        print(torch.device(options.device, options.index))
    """,
    "an average of parameters that a constructor copies": """
        import torch
        class Average:
            def __init__(self, net):
                self.kept = [p.data.cpu() for p in net.parameters()]
            def step(self, net):
                for kept, p in zip(self.kept, net.parameters()):
                    kept.mul_(0.5).add_(p.data.cpu(), alpha=0.5)
        net = torch.nn.Linear(1, 1).cuda()
        with torch.no_grad():
            net.weight.fill_(1)
            net.bias.fill_(1)
        average = Average(net)
        with torch.no_grad():
            net.weight.fill_(3)
        average.step(net)
        print(average.kept, net.weight.sum().item())
    """,
    "a number of a partial function": """
        import functools
        import torch
        def same(value): return value
        number = functools.partial(same, 1)
        print(torch.ones(2).to(number()))
    """,
    "a device of a special method": """
        import torch
        class Places:
            def __iter__(self):
                yield 'cuda:1'
        place, = Places()
        print(torch.ones(1).to(place))
    """,
}

# Programs of two files: the main one, and the module `other`.
TWO_FILES = {
    "the number of a tensor's device": (
        """
        import torch
        from other import place
        print(torch.nn.Linear(1, 1).to(place).weight.device)
        """,
        """
        import torch
        place = torch.ones(1).cuda().get_device()
        """,
    ),
    "the number of a tensor's device, from a function": (
        """
        import torch, other
        spot = other.find()
        print(torch.ones(2).to(spot))
        """,
        """
        import torch
        def find():
            return torch.ones(1).cuda().get_device()
        """,
    ),
    "a number from a function": (
        """
        import torch
        from other import find
        spot = find()
        print(torch.ones(2).to(spot))
        """,
        """
        import os
        def find():
            return int(os.environ.get('LOCAL_RANK', 0))
        """,
    ),
    "a number by a star import": (
        """
        import torch
        from other import *
        print(torch.nn.Linear(1, 1).to(SPOT).weight.device)
        """,
        """
        SPOT = 1
        """,
    ),
}


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
def test_program_is_right_or_reported(judge: Judge, program: str) -> None:
    found = judge(Program({"main": dedent(program).lstrip("\n")}))
    assert found.category in (meaning.FINE, meaning.REPORTED), meaning.shown(found)


@pytest.mark.parametrize(("main", "other"), TWO_FILES.values(), ids=TWO_FILES)
def test_two_files_are_right_or_reported(judge: Judge, main: str, other: str) -> None:
    files = {"main": dedent(main).lstrip("\n"), "other": dedent(other).lstrip("\n")}
    found = judge(Program(files))
    assert found.category in (meaning.FINE, meaning.REPORTED), meaning.shown(found)
