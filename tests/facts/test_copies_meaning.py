"""Copies that a CPU does not make: programs are run on the simulated CUDA machine and on a plain CPU.

With safe fixes alone they compute other numbers on the CPU, which is reported; with unsafe ones the same.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from functools import cache
from textwrap import dedent

import pytest
from _pytest.mark import ParameterSet
from running import run_program

from devicefix.config.settings import Settings
from devicefix.runner.run import check_text

pytestmark = pytest.mark.needs("torch")

COPIES = ("DF801", "DF802", "DF803")
NAMES = ("device", "x", "y", "z", "net", "old", "w", "q7", "labels", "seen", "images", "adv", "batch")

HEAD = """
import torch
import torch.nn.functional as F
from torch import nn
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
"""

DIFFERENT = {
    "what a hook keeps of a layer, behind which the next one works in place": """
        seen = {}
        def save(name):
            def hook(module, inputs, output):
                seen[name] = output.detach().cpu()
            return hook
        net = nn.Sequential(nn.Linear(1, 1, bias=False), nn.ReLU(inplace=True)).cuda()
        nn.init.constant_(net[0].weight, -1.0)
        net[0].register_forward_hook(save("first"))
        net[0].register_forward_hook(hook=lambda *given: None)
        net(torch.ones(1, 1).cuda())
        print(seen["first"].item())
        """,
    "an attack": """
        def attack(images):
            adv = images.cuda()
            adv.add_(0.1)
            return adv - images.cuda()
        print(attack(torch.ones(2)).tolist())
        """,
    "an augmented assignment": """
        x = torch.ones(2)
        y = x.cuda()
        y += 1
        print(x.tolist())
        """,
    "an item": """
        x = torch.ones(2)
        y = x.cuda()
        y[0] = 7
        print(x.tolist())
        """,
    "a method that changes its argument": """
        class Cell:
            def __init__(self):
                self.h = torch.ones(2)
            def change(self, t):
                t.sub_(1)
            def step(self):
                h, _ = self.h . cuda ( ), 1
                self.change(h)
                return h
        cell = Cell()
        print(cell.step().tolist(), cell.h.tolist())
        """,
    "a lambda that changes its argument": """
        x = torch.arange(4.0)
        y = torch.as_tensor(x, device="cuda")
        (lambda t: t.add_(1))(y)
        print(x.tolist(), y.tolist())
        """,
    "the result of a lambda": """
        x = torch.ones(2)
        y = (lambda: x.cuda())()
        y += 1
        print(x.tolist(), y.tolist())
        """,
    "a type of tensors": """
        x = torch.arange(4.0)
        y = x.type(torch.cuda.FloatTensor)
        x.zero_()
        print(x.tolist(), y.tolist())
        """,
    "the attribute of an object": """
        from types import SimpleNamespace
        x = torch.ones(2)
        y = SimpleNamespace(a=x.cuda()).a
        y.add_(1)
        print(x.tolist(), y.tolist())
        """,
    "the parameters that an object keeps": """
        from types import SimpleNamespace
        net = nn.Linear(2, 1).cuda()
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        old = SimpleNamespace(a=[w.detach().cpu() for w in net.parameters()]).a
        nn.MSELoss()(net(torch.ones(4, 2).cuda()), torch.zeros(4, 1).cuda()).backward()
        optimizer.step()
        print([float((w.cpu() - v).abs().sum()) > 0 for w, v in zip(net.parameters(), old)])
        """,
    "an item that is a view": """
        x = torch.ones(3).cuda()
        y = x.cpu()[0]
        x[0] = 7
        print(y, x.tolist())
        """,
    "a capture of a mapping": """
        x = torch.ones(2)
        match {"k": x.cuda()}:
            case {"k": y}: pass
        y.add_(1)
        print(x.tolist(), y.tolist())
        """,
    "the argument of a lambda": """
        x = torch.ones(2).cuda()
        y = (lambda w: w)(x.cpu()[0])
        x += 1
        print(y, x.tolist())
        """,
    "the element of a comprehension": """
        x = torch.ones(2)
        y = [t.cuda() for t in [x]][0]
        x.zero_()
        print(y.tolist(), x.tolist())
        """,
    "the element of a list": """
        x = torch.ones(2)
        y = [x.cuda().cpu()][0]
        x += 1
        print(x.tolist(), y.tolist())
        """,
    "the next element of a list": """
        x = torch.ones(2)
        y = next(iter([x.cuda().cpu()]))
        x += 1
        print(x.tolist(), y.tolist())
        """,
    "pinned memory": """
        x = torch.ones(2)
        y = x.pin_memory()
        y += 1
        print(x.tolist(), y.tolist())
        """,
    "a move under a choice": """
        x = torch.ones(2)
        y = x.cuda() if torch.cuda.is_available() else x
        y += 1
        print(x.tolist(), y.tolist())
        """,
    "an array of floats in a class": """
        import numpy as np
        class Config:
            inputs = np.ones(3, dtype=np.float32)
            y = torch.from_numpy(inputs).float().cuda()
            inputs[0] = 9
            print(y.tolist(), inputs.tolist())
        """,
    "an attribute from call to call": """
        class Cell:
            def __init__(self):
                self.h = torch.ones(2)
            def step(self):
                h = self.h.cuda()
                h += 1
                return h
        cell = Cell()
        cell.step()
        print(cell.step().tolist())
        """,
    "zero_": """
        x = torch.ones(2)
        y = x.to(device)
        y.zero_()
        print(x.tolist())
        """,
    "a CPU's copy": """
        x = torch.ones(2).cuda()
        y = x.cpu()
        y.zero_()
        print(x.tolist())
        """,
    "a device of any name": """
        def clear(x, q7):
            y = x.to(q7)
            y.zero_()
            return x
        print(clear(torch.ones(2), device).tolist())
        """,
    "out=": """
        x = torch.ones(2)
        y = x.to(device)
        torch.add(y, y, out=y)
        print(x.tolist())
        """,
    "a function in place": """
        x = -torch.ones(2)
        y = x.to(device)
        F.relu(y, inplace=True)
        print(x.tolist())
        """,
    "a function with an underscore": """
        x = -torch.ones(2)
        y = x.to(device)
        torch.relu_(y)
        print(x.tolist())
        """,
    "data": """
        x = torch.ones(2)
        y = x.to(device)
        y.data.mul_(2)
        print(x.tolist())
        """,
    "a mask": """
        x = torch.ones(2)
        y = x.to(device)
        y[y > 0] = 0
        print(x.tolist())
        """,
    "a column": """
        x = torch.ones(2, 2)
        y = x.to(device)
        y[:, 0] += 1
        print(x.tolist())
        """,
    "a slice by its name": """
        x = torch.ones(2, 2)
        y = x.to(device)
        z = y[0]
        z.zero_()
        print(x.tolist())
        """,
    "a view by its name": """
        x = torch.ones(2, 2)
        y = x.to(device)
        z = y.view(-1)
        z += 1
        print(x.tolist())
        """,
    "round by round": """
        x = torch.ones(2)
        for _ in range(3):
            adv = x.cuda()
            adv += 1
            print(adv.tolist())
        """,
    "an argument": """
        def f(x):
            x = x.cuda()
            x += 1
            return x
        a = torch.ones(2)
        f(a)
        print(a.tolist())
        """,
    "an item of a batch": """
        def f(batch):
            y = batch["image"].cuda()
            y += 1
            return y
        batch = {"image": torch.ones(2)}
        f(batch)
        print(batch["image"].tolist())
        """,
    "a variable of the module": """
        x = torch.ones(2)
        def f():
            y = x.cuda()
            y += 1
            return y
        f()
        print(f().tolist())
        """,
    "a move that is changed at once": """
        x = torch.ones(2)
        nn.init.zeros_(x.cuda())
        print(x.tolist())
        """,
    "a conversion that does nothing": """
        x = torch.ones(2)
        y = x.float().cuda()
        y += 1
        print(x.tolist())
        """,
    "a conversion behind the move that does nothing": """
        x = torch.ones(2)
        y = x.cuda().float()
        y += 1
        print(x.tolist())
        """,
    "parameters by hand": """
        net = nn.Linear(1, 1).cuda()
        nn.init.ones_(net.weight)
        old = [p.detach().cpu() for p in net.parameters()]
        with torch.no_grad():
            for p in net.parameters():
                p.add_(1)
        print(old[0].tolist())
        """,
    "parameters by a step": """
        net = nn.Linear(1, 1).cuda()
        nn.init.ones_(net.weight)
        q7 = torch.optim.SGD(net.parameters(), lr=0.1)
        old = {n: p.detach().cpu() for n, p in net.named_parameters()}
        net(torch.ones(1, 1).cuda()).sum().backward()
        q7.step()
        print(old["weight"].tolist())
        """,
    "parameters that are loaded": """
        net = nn.Linear(1, 1).cuda()
        nn.init.ones_(net.weight)
        old = tuple(p.detach().cpu() for p in net.parameters())
        net.load_state_dict({"weight": torch.zeros(1, 1), "bias": torch.zeros(1)})
        print(old[0].tolist())
        """,
    "parameters in a list of a generator": """
        net = nn.Linear(1, 1).cuda()
        nn.init.ones_(net.weight)
        old = list(p.detach().cpu() for p in net.parameters())
        nn.init.zeros_(net.weight)
        print(old[0].tolist())
        """,
    "a parameter made of a copy": """
        x = torch.ones(1)
        w = nn.Parameter(x.cuda())
        q7 = torch.optim.SGD([w], lr=0.1)
        w.sum().backward()
        q7.step()
        print(x.tolist())
        """,
    "a tensor of its own class, by copy_": """
        class Labels(torch.Tensor):
            pass
        labels = torch.zeros(1).cuda().as_subclass(Labels)
        seen = []
        for i in range(3):
            labels.copy_(torch.tensor([float(i)]))
            seen.append(labels.cpu().numpy())
        print([float(each[0]) for each in seen])
        """,
    "a star": """
        x = torch.ones(2)
        [y, *_] = [x.cuda(), 1]
        y += 1
        print(x.tolist())
        """,
    "a walrus in a test": """
        x = torch.ones(2)
        if (y := x.cuda()) is not None: pass
        y += 1
        print(x.tolist())
        """,
    "a loop over a display": """
        x = torch.ones(2)
        for y in [x.cuda()]: pass
        y += 1
        print(x.tolist())
        """,
    "a context": """
        x = torch.ones(2)
        import contextlib
        with contextlib.nullcontext(x.cuda()) as y: pass
        y += 1
        print(x.tolist())
        """,
    "a choice": """
        x = torch.ones(2)
        y = x.cuda() if True else None
        y += 1
        print(x.tolist())
        """,
    "an operand of `or`": """
        x = torch.ones(2)
        y = None or x.cuda()
        y += 1
        print(x.tolist())
        """,
    "a function that is called at once": """
        x = torch.ones(2)
        @(lambda f: f())
        def y():
            return x.cuda()
        y += 1
        print(x.tolist())
        """,
    "a function that moves": """
        x = torch.ones(2)
        def moved(t):
            return t.cuda()
        y = moved(x)
        y += 1
        print(x.tolist())
        """,
    "as_tensor": """
        x = torch.ones(2)
        y = torch.as_tensor(x, device='cuda')
        y += 1
        print(x.tolist())
        """,
    "there and back": """
        x = torch.ones(2)
        y = x.cuda().cpu()
        y += 1
        print(x.tolist())
        """,
    "a change by a keyword": """
        x = torch.ones(2)
        y = x.cuda()
        def change(t):
            t.add_(1)
        change(t=y)
        print(x.tolist())
        """,
    "an item that a function sets": """
        x = torch.ones(2)
        y = x.cuda()
        def change(t):
            t[0] = 7
        change(y)
        print(x.tolist())
        """,
    "all items": """
        x = torch.ones(2)
        y = x.cuda()
        y[...] = 5
        print(x.tolist())
        """,
    "an array": """
        import numpy as np
        a = np.ones(2, dtype=np.float32)
        y = torch.from_numpy(a).cuda()
        a += 1
        print(y.tolist())
        """,
    "an array on a device": """
        import numpy as np
        a = np.ones(2, dtype=np.float32)
        y = torch.as_tensor(a, device='cuda')
        a += 1
        print(y.tolist())
        """,
    "an array on a device by asarray": """
        import numpy as np
        a = np.ones(2, dtype=np.float32)
        y = torch.asarray(a, device='cuda')
        a += 1
        print(y.tolist())
        """,
    "the first parameter": """
        net = nn.Linear(1, 1).cuda()
        nn.init.ones_(net.weight)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        old = next(net.parameters()).detach().cpu()
        net(torch.ones(1, 1).cuda()).sum().backward()
        optimizer.step()
        print(old.tolist())
        """,
    "an entry of a state": """
        net = nn.Linear(1, 1).cuda()
        nn.init.ones_(net.weight)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        old = list(net.state_dict().values())[0].cpu().numpy()
        net(torch.ones(1, 1).cuda()).sum().backward()
        optimizer.step()
        print(old.tolist())
        """,
    "a list that gets one more": """
        w, labels, seen, old = torch.ones(1).cuda(), [], (), {}
        for i in range(3):
            w.mul_(0.5)
            labels = [*labels, w.cpu()]
            seen = seen + (w.to("cpu"),)
            old |= {i: w.detach().cpu()}
        print(labels, seen, old)
        """,
    "a list of an object, from call to call": """
        class History:
            def __init__(self, w):
                self.w, self.seen = w, []
            def step(self):
                self.w.mul_(0.5)
                self.seen.append(self.w.cpu())
        h = History(torch.ones(1).cuda())
        h.step(), h.step()
        print(h.seen)
        """,
    "another method that changes what an object has": """
        class State:
            def __init__(self, w):
                self.w = w
            def change(self):
                self.w.mul_(0.5)
            def keep(self):
                self.best = self.w.cpu()
        h = State(torch.ones(1).cuda())
        h.keep(), h.change()
        print(h.best)
        """,
    "parameters that an object keeps of its own model": """
        class Trainer:
            def __init__(self):
                self.net = nn.Linear(1, 1).cuda()
                nn.init.zeros_(self.net.bias)
                self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.1)
            def keep(self):
                self.best = {k: v.cpu() for k, v in self.net.state_dict().items()}
            def train(self):
                self.net(torch.ones(1, 1).cuda()).sum().backward()
                self.optimizer.step()
        trainer = Trainer()
        trainer.keep(), trainer.train()
        print(trainer.best["bias"].tolist(), trainer.net.bias.tolist())
        """,
    "an element that a loop over the keys changes": """
        old, w = {}, {"mean": torch.zeros(1).cuda()}
        old.update(before=w["mean"].cpu())
        for k in w:
            w[k].add_(2)
        print(old)
        """,
    "elements that a loop over the items changes": """
        old, w = {}, {"mean": torch.zeros(1).cuda()}
        for k, v in w.items():
            old[k] = v.cpu()
        for k, v in w.items():
            v += 1
        print(old)
        """,
    "elements of a list of copies": """
        w = [torch.zeros(1), torch.ones(1)]
        z = [t.cuda() for t in w]
        for t, v in zip(z, (3, 4)):
            t += v
        print(w)
        """,
    "a parameter in a dict of copies": """
        net = nn.Linear(2, 1, bias=False)
        nn.init.ones_(net.weight)
        fast = {name: p.cuda() for name, p in net.named_parameters()}
        with torch.no_grad():
            fast["weight"].sub_(0.5)
        print(net.weight.tolist())
        """,
    "a change under another test": """
        def mean(x, y):
            x = x.to(device)
            if y:
                x /= 2
            return x
        z = torch.ones(1)
        print(mean(z, True).tolist(), z)
        """,
    "a heap": """
        import heapq
        seen, w = [], torch.zeros(1).cuda()
        for loss in (3.0, 1.0, 2.0):
            w += 1
            heapq.heappush(seen, (loss, w.cpu()))
        print(seen)
        """,
    "a thread": """
        import threading
        from concurrent.futures import ThreadPoolExecutor
        go, w = threading.Event(), torch.ones(2).cuda()
        def write(t):
            go.wait(5)
            return t.tolist()
        with ThreadPoolExecutor(1) as pool:
            job = pool.submit(write, w.detach().cpu())
            w.zero_()
            go.set()
            print(job.result())
        """,
    "setattr with any keywords": """
        class Cache:
            def keep(self, **kw):
                for k, v in kw.items():
                    setattr(self, k, v.cuda())
        x, cache = torch.zeros(2), Cache()
        cache.keep(key=x)
        x.fill_(4)
        print(cache.key.tolist())
        """,
    "objects of libraries": """
        x, net = torch.zeros(1), nn.Module()
        net.register_buffer("b", x.cuda())
        seen = torch.utils.data.TensorDataset(x.cuda())
        x.add_(1)
        print(net.b.tolist(), seen[0][0].tolist())
        """,
    "the data of a tensor": """
        x, y = torch.zeros(1).cuda(), torch.ones(1)
        y.data = x.cpu()
        x.add_(1)
        print(y)
        """,
    "a parameter that a constructor makes": """
        x = torch.zeros(2)
        class Prompt(nn.Module):
            def __init__(self, init):
                super().__init__()
                self.p = nn.Parameter(init.cuda())
        net = Prompt(x)
        q7 = torch.optim.SGD(net.parameters(), lr=1.0)
        net.p.sum().backward()
        q7.step()
        print(x.tolist())
        """,
    "pretrained vectors": """
        x = torch.ones(3, 2)
        net = nn.Embedding.from_pretrained(x.cuda(), freeze=False)
        q7 = torch.optim.SGD(net.parameters(), lr=0.5)
        net(torch.tensor([1]).cuda()).sum().backward()
        q7.step()
        print(x.tolist())
        """,
    "a module that is called": """
        class Block(nn.Module):
            def forward(self, x):
                return F.relu(x.to("cuda"), inplace=True)
        class Outer(nn.Module):
            def __init__(self):
                super().__init__()
                self.block = Block()
            def forward(self, x):
                return self.block(x) + x.cuda()
        x, net = -torch.ones(2), Block().cuda().eval()
        y = net(x)
        print(x.tolist(), Outer()(-torch.ones(2)).tolist())
        """,
    "a method that keeps what it is given": """
        from collections import namedtuple
        Row = namedtuple("Row", "state reward")
        class Memory:
            def __init__(self):
                self.rows = []
            def push(self, *args):
                self.rows.append(Row(*args))
        w, memory = torch.zeros(1).cuda(), Memory()
        for i in range(3):
            w += 1
            memory.push(w.cpu(), i)
        print(memory.rows)
        """,
    "a copy that keeps its name, and is put into a list": """
        class Agent:
            def __init__(self):
                self.seen = []
            def observe(self, state):
                state = state.cuda()
                self.seen.append(state)
        x, agent = torch.zeros(1), Agent()
        for _ in range(3):
            agent.observe(x)
            x += 1
        print(list(map(float, agent.seen)))
        """,
    "methods of other objects that change them": """
        class World:
            def __init__(self):
                self.state = torch.zeros(1)
            def step(self):
                self.state += 1
        world, seen = World(), []
        for _ in range(3):
            world.step()
            seen.append(world.state.cuda())
        print(list(map(float, seen)))
        """,
    "a variable that a function changes": """
        w, seen = torch.zeros(1).cuda(), []
        def tick():
            w.add_(1)
        for _ in range(3):
            tick()
            seen.append(w.cpu())
        print(seen)
        """,
    "a class body": """
        x = torch.zeros(2).cuda()
        class Kept:
            y = x.cpu()
        x += 1
        print(Kept.y.tolist())
        """,
    "a closure": """
        x = torch.zeros(2).cuda()
        def keep(w):
            y = w.cpu()
            return lambda: y
        get = keep(x)
        x += 1
        print(get().tolist())
        """,
    "parameters in a list in a list, and by a lambda": """
        net = nn.Linear(1, 1).cuda()
        nn.init.ones_(net.weight)
        old = [[p.detach().cpu() for p in net.parameters()]][0]
        seen = (lambda: [p.detach().cpu() for p in net.parameters()])()
        nn.init.zeros_(net.weight)
        print(old[0], seen[0])
        """,
    "a tensor that an optimizer is given": """
        def stylized(images):
            adv = images.to("cuda").requires_grad_(True)
            optimizer = torch.optim.SGD([{"params": [adv]}], lr=0.5)
            adv.sum().backward()
            optimizer.step()
            return adv.detach()
        x = torch.zeros(2)
        print(stylized(x).tolist(), x.tolist())
        """,
    "an attribute that an optimizer is given": """
        class Inversion:
            def __init__(self, x):
                self.start = x
                self.w = x.cuda().requires_grad_(True)
                self.optimizer = torch.optim.SGD([self.w], lr=0.5)
            def step(self):
                self.w.sum().backward()
                self.optimizer.step()
                return (self.w.cpu() - self.start.cpu()).tolist()
        print(Inversion(torch.zeros(2)).step())
        """,
    "what a property returns": """
        class Means:
            def __init__(self, x):
                self.w = x.cuda()
            @property
            def host(self):
                return self.w.detach().cpu()
            def step(self):
                self.w[0] = 7
            def fit(self):
                old = self.host
                self.step()
                return (self.host - old).tolist()
        print(Means(torch.ones(2)).fit())
        """,
    "what a method returns": """
        class Means:
            def __init__(self):
                self.w = torch.zeros(2).cuda()
            def host(self):
                return self.w.cpu()
            def step(self):
                self.w += 1
        h = Means()
        old = h.host()
        h.step()
        print(old.tolist())
        """,
    "an array that a method returns": """
        import numpy as np
        class Env:
            def __init__(self):
                self.s = np.zeros(1, dtype=np.float32)
            def step(self):
                self.s += 1
                return self.s
        env, seen = Env(), []
        for i in range(3):
            seen.append(torch.from_numpy(env.step()).cuda())
        print([t.tolist() for t in seen])
        """,
    "an object that is called": """
        class Cut:
            def __call__(self, images):
                images[0] = 0
                return images
        x, cut = torch.ones(2), Cut()
        print(cut(x.cuda()).tolist(), x.tolist())
        """,
    "weights that are stored, replaced and restored": """
        class Ema:
            def __init__(self, weights):
                self.shadow = [p.detach().clone() for p in weights]
            def store(self, weights):
                self.kept = [p.detach().cpu() for p in weights]
            def copy_to(self, weights):
                for s, p in zip(self.shadow, weights):
                    p.data.copy_(s.data)
            def restore(self, weights):
                for t, p in zip(self.kept, weights):
                    p.data.copy_(t.data)
        net = nn.Linear(1, 1, bias=False).cuda()
        nn.init.zeros_(net.weight)
        ema = Ema(net.parameters())
        nn.init.ones_(net.weight)
        ema.store(net.parameters())
        ema.copy_to(net.parameters())
        ema.restore(net.parameters())
        print(net.weight.tolist())
        """,
    "an average that an object keeps": """
        class Average:
            def __init__(self, weights):
                self.weights, self.average = list(weights), None
            def update(self):
                if self.average is None:
                    self.average = [p.detach().to("cpu") for p in self.weights]
                else:
                    for a, p in zip(self.average, self.weights):
                        a.mul_(0.5).add_(p.detach().cpu() / 2)
        w = torch.ones(1).cuda()
        h = Average([w])
        for _ in range(2):
            h.update()
            w += 1
        print(h.average[0].tolist(), w.tolist())
        """,
    "keywords that are unpacked": """
        class Log:
            def __init__(self):
                self.log = {}
            def record(self, **given):
                self.log = {**self.log, **given}
        w, h = torch.zeros(1).cuda(), Log()
        for i in range(2):
            h.record(**{f"w{i}": w.detach().cpu()})
            w += 1
        print([t.tolist() for t in h.log.values()])
        """,
    "an attribute that another method changes": """
        class Split:
            def __init__(self, x):
                self.x = x
                self.train = torch.utils.data.TensorDataset(x.cuda())
            def center(self):
                self.x -= 1
        h = Split(torch.ones(2))
        h.center()
        print(h.train[0][0].tolist())
        """,
    "an iterator that is collected": """
        class Steps:
            def __init__(self, x):
                self.x = x
            def __iter__(self):
                for i in range(3):
                    self.x.add_(1)
                    yield i, self.x.cpu()
        print([t.tolist() for t in dict(Steps(torch.zeros(1, device="cuda"))).values()])
        """,
}

SAME = {
    "a fresh tensor": """
        y = torch.ones(2).cuda()
        y += 1
        print(y.tolist())
        """,
    "a batch that is not used again": """
        data = torch.utils.data.DataLoader(torch.ones(2, 2))
        for _ in range(2):
            for x in data:
                x = x.cuda()
                x += 1
                print(x.tolist())
        """,
    "an argument that nobody uses again": """
        def f(x):
            x = x.cuda()
            x += 1
            return x
        for i in range(2):
            a = torch.ones(2)
            print(f(a).tolist())
        """,
    "an argument that is rebound": """
        def f(x):
            x = x.cuda()
            x += 1
            return x
        a = torch.ones(2)
        a = f(a)
        print(a.tolist())
        """,
    "another dtype": """
        x = torch.zeros(2)
        y = x.to(device, torch.float64)
        y += 1
        print(x.tolist())
        """,
    "a conversion": """
        x = torch.arange(2)
        y = x.float().cuda()
        y += 1
        print(x.tolist())
        """,
    "copy=True": """
        x = torch.zeros(2)
        y = x.to(device, copy=True)
        y += 1
        print(x.tolist())
        """,
    "clone": """
        x = torch.zeros(2)
        y = x.cuda().clone()
        y += 1
        print(x.tolist())
        """,
    "out of place": """
        x = torch.zeros(2)
        y = x.cuda()
        y = y + 1
        y += 1
        print(x.tolist())
        """,
    "overwritten before it is read": """
        x = torch.zeros(2)
        y = x.cuda()
        y += 1
        x.copy_(y)
        print(x.tolist())
        """,
    "a generator that runs later": """
        net = nn.Linear(1, 1).cuda()
        nn.init.ones_(net.weight)
        old = (p.detach().cpu() for p in net.parameters())
        nn.init.zeros_(net.weight)
        print(next(old).tolist())
        """,
    "a list whose element is replaced": """
        x = torch.zeros(2)
        ys = [x.cuda()]
        ys[0] = 1
        print(x.tolist())
        """,
    "a module": """
        net = nn.Sequential(nn.Identity())
        same = net.cuda()
        same[0] = nn.ReLU()
        net.eval()
        print(net)
        """,
    "moved already": """
        x = torch.zeros(2)
        x = x.to(device)
        y = x.to(device)
        y += 1
        print(x.tolist())
        """,
    "a list as a tensor": """
        a = [1.0, 2.0]
        y = torch.as_tensor(a, device='cuda')
        a[0] = 7
        print(y.tolist())
        """,
    "an array of another type": """
        import numpy as np
        a = np.ones(2)
        y = torch.cuda.FloatTensor(a)
        a += 1
        print(y.tolist())
        """,
    "a type of another dtype": """
        x = torch.zeros(2, dtype=torch.float64)
        y = x.type(torch.cuda.FloatTensor)
        y += 1
        print(x.tolist())
        """,
    "another element of a display": """
        x = torch.zeros(2)
        y = [x.cuda(), torch.ones(2)][1]
        y += 1
        print(x.tolist())
        """,
    "another capture": """
        x = torch.zeros(2)
        match [x.cuda(), torch.ones(2)]:
            case [_, y]: pass
        y += 1
        print(x.tolist())
        """,
    "a copy by a function": """
        def moved(t):
            return t.cuda().clone()
        x = torch.zeros(2)
        y = moved(x)
        y += 1
        print(x.tolist())
        """,
    "an item of a list that a function sets": """
        def change(items):
            items[0] = 7
        x = torch.zeros(2)
        ys = [x.cuda()]
        change(ys)
        print(x.tolist())
        """,
    "a change under the test under which the tensor is made anew": """
        def scaled(x, y):
            if y:
                x = torch.ones(1)
            x = x.to(device)
            if y:
                x /= 4
            return x
        z = torch.ones(1)
        print(scaled(z, False).tolist(), scaled(z, True).tolist(), z)
        """,
    "parameters that are on the GPU": """
        net = nn.Linear(1, 1, bias=False).cuda()
        nn.init.ones_(net.weight)
        w = [p.cuda() for p in net.parameters()]
        with torch.no_grad():
            w[0].sub_(1)
        print(net.weight.tolist())
        """,
    "an attribute that each call binds anew": """
        class State:
            def __init__(self, w):
                self.w = w
            def step(self):
                self.w.mul_(0.5)
                self.y = self.w.cpu()
                return self.y.tolist()
        h = State(torch.ones(1).cuda())
        print(h.step(), h.step())
        """,
    "an attribute that is moved": """
        class Ema:
            def __init__(self):
                self.w, self.y = [torch.zeros(1)], torch.zeros(1)
            def step(self):
                for t in self.w:
                    t.add_(1)
                self.y.add_(1)
            def move(self):
                self.w = [t.to(device) for t in self.w]
                self.y.data = self.y.data.to(device)
        h = Ema()
        h.step(), h.move(), h.step()
        print(h.w[0].tolist(), h.y.tolist())
        """,
    "vectors that are frozen": """
        x = torch.ones(3, 2)
        net = nn.Embedding.from_pretrained(x.cuda())
        q7 = torch.optim.SGD([torch.ones(1, requires_grad=True)], lr=0.5)
        q7.step()
        print(x.tolist())
        """,
    "a function that only shows what it is given": """
        w = torch.zeros(1).cuda()
        def show(name, t):
            print(name, t.tolist())
        for i in range(3):
            w += 1
            show("w", w.cpu())
        """,
    "elements that are replaced": """
        w = [torch.zeros(1), torch.ones(1)]
        z = [t.cuda() for t in w]
        z[0] = z[0] + 1
        print(w)
        """,
    "a tensor of another function than the one that an optimizer is given": """
        def trained():
            y = torch.ones(1, requires_grad=True)
            return y, torch.optim.SGD([y], lr=0.5)
        w, optimizer = trained()
        def looked(x):
            y = x.cuda()
            w.sum().backward()
            optimizer.step()
            return y
        x = torch.ones(1)
        print(looked(x).tolist(), x.tolist())
        """,
    "what a property copies": """
        class Means:
            def __init__(self):
                self.w = torch.zeros(2).cuda()
            @property
            def host(self):
                return self.w.cpu().clone()
            def step(self):
                self.w += 1
        h = Means()
        old = h.host
        h.step()
        print(old.tolist())
        """,
    "an array that a method makes anew": """
        import numpy as np
        class Env:
            def __init__(self):
                self.s = np.zeros(1, dtype=np.float32)
            def step(self):
                self.s += 1
                return self.s.copy()
        env, seen = Env(), []
        for i in range(3):
            seen.append(torch.from_numpy(env.step()).cuda())
        print([t.tolist() for t in seen])
        """,
    "an attribute that another method binds anew": """
        class Split:
            def __init__(self, x):
                self.x = x
                self.train = torch.utils.data.TensorDataset(x.cuda())
            def center(self):
                self.x = self.x - 1
        h = Split(torch.ones(2))
        h.center()
        print(h.train[0][0].tolist())
        """,
    "an iterator whose elements are looked at one by one": """
        class Steps:
            def __init__(self, x):
                self.x = x
            def __iter__(self):
                for i in range(3):
                    self.x.add_(1)
                    yield i, self.x.cpu()
        for i, t in Steps(torch.zeros(1, device="cuda")):
            print(i, t.tolist())
        """,
}

# These always run; the others are slow.
FAST = frozenset((
    "an attack", "an attribute from call to call", "a walrus in a test", "an array on a device",
    "a slice by its name", "the first parameter", "a function that moves", "a change by a keyword", "clone",
    "a fresh tensor", "a list as a tensor", "another capture", "a list that gets one more", "a thread",
    "a list of an object, from call to call", "elements of a list of copies", "a module that is called",
    "what a property returns", "an object that is called",
    "a parameter that a constructor makes", "a method that keeps what it is given",
    "a change under the test under which the tensor is made anew", "an attribute that is moved",
))  # fmt: skip

# Each program in a namespace of its own, and all in one process: starting torch takes most of the time.
RUN = """
import json, sys, types
for name, code in json.load(open("programs.json")):
    module = types.ModuleType("m")
    lines = []
    module.print = lambda *values: lines.append(" ".join(map(str, values)))
    sys.modules["m"] = module
    try:
        exec(compile(code, name, "exec"), vars(module))
    except Exception as error:
        lines.append(repr(error))
    print(json.dumps(lines))
"""


def program(name: str) -> str:
    return HEAD + dedent({**DIFFERENT, **SAME}[name])


@cache
def rewritten(name: str, unsafe: bool = True) -> str:
    """Return a program with its fixes."""
    settings = Settings(fix=True, unsafe_fixes=unsafe)
    after = check_text(program(name).encode(), "m.py", settings).result.output
    return program(name) if after is None else after.decode()


def safely_rewritten(name: str) -> str:
    """Return a program with its safe fixes."""
    return rewritten(name, unsafe=False)


def reported(name: str) -> set[str]:
    """Return the codes of the copies that are reported in a program."""
    outcome = check_text(program(name).encode(), "m.py", Settings())
    return {finding.code for finding in outcome.result.findings if finding.code in COPIES}


@pytest.fixture(scope="module")
def printed(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], dict[str, list[str]]]:
    """Return what a program prints: as it is on CUDA, and with its safe or all fixes on each machine."""

    @cache
    def run(fast: bool, machine: str, *codes: Callable[[str], str]) -> dict[str, list[list[str]]]:
        names = [name for name in (*DIFFERENT, *SAME) if (name in FAST) is fast]
        folder = tmp_path_factory.mktemp("run")
        programs = [(name, code(name)) for code in codes for name in names]
        (folder / "programs.json").write_text(json.dumps(programs))
        ran = run_program(folder, RUN, machine=machine, copies=False)
        assert ran.status == 0, ran.errors
        lines = list(map(json.loads, ran.output.splitlines()))
        return {name: lines[number :: len(names)] for number, name in enumerate(names)}

    def all_runs(name: str) -> dict[str, list[str]]:
        cuda = run(name in FAST, "simulated", program, rewritten)[name]
        cpu = run(name in FAST, "cpu", safely_rewritten, rewritten)[name]
        return dict(zip(("on CUDA", "on CUDA, fixed", "safely fixed", "fixed"), cuda + cpu, strict=True))

    return all_runs


def marked(*names: str) -> list[ParameterSet]:
    """Return names of programs as parameters, of which all but a few are slow."""
    return [pytest.param(name, marks=() if name in FAST else pytest.mark.slow) for name in names]


@pytest.mark.parametrize("name", marked(*DIFFERENT))
def test_a_difference_is_reported_and_mended(
    name: str, printed: Callable[[str], dict[str, list[str]]]
) -> None:
    runs = printed(name)
    assert reported(name)
    assert runs["safely fixed"] != runs["on CUDA"]
    assert runs["fixed"] == runs["on CUDA"] == runs["on CUDA, fixed"]


@pytest.mark.parametrize("name", marked(*SAME))
def test_no_difference_is_reported_where_there_is_none(
    name: str, printed: Callable[[str], dict[str, list[str]]]
) -> None:
    runs = printed(name)
    assert not reported(name)
    assert runs["safely fixed"] == runs["on CUDA"]


@pytest.mark.parametrize("name", marked(*DIFFERENT, *SAME))
def test_the_names_do_not_matter(name: str) -> None:
    code = program(name)
    text = re.sub(rf"(?<!\.)\b({'|'.join(NAMES)})\b(?!=)", r"q_\1", code)
    outcome = check_text(text.encode(), "m.py", Settings())
    codes = {finding.code for finding in outcome.result.findings if finding.code in COPIES}
    assert codes == reported(name)
