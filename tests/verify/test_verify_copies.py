"""Copy hazards: which are reported, which programs have none, and that the watch has no side effects."""

from __future__ import annotations

import textwrap
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from running import run_program

pytestmark = pytest.mark.needs("numpy", "torch")

HEAD = """
import copy, io, os, pickle, sys, threading
import numpy as np
import torch
from torch import nn
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
cases = []
"""

# The line that copies with CUDA ends in "# moved", and the line of the change in "# changed" if it is known.
HAZARDS = {
    "tensor: the best weights": """
        model = nn.Linear(2, 2).to(device)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        best = {k: v.cpu() for k, v in model.state_dict().items()}  # moved
        model(torch.ones(1, 2).to(device)).sum().backward()
        optimizer.step()  # changed
        model.load_state_dict(best)
        """,
    "tensor: the best weights, by Adam": """
        model = nn.Linear(2, 2).cpu().to(device)
        optimizer = torch.optim.Adam(model.parameters(), lr=0.1, foreach=True)
        best = {k: v.to("cpu") for k, v in model.state_dict().items()}  # moved
        model(torch.ones(1, 2).to(device)).sum().backward()
        optimizer.step()  # changed
        torch.save(best, io.BytesIO())
        """,
    "tensor: running statistics": """
        norm = nn.BatchNorm1d(2).to(device)
        mean = norm.running_mean.cpu()  # moved
        norm(torch.randn(4, 2).to(device))  # changed
        mean.tolist()
        """,
    "tensor: the host's side is changed": """
        x = torch.ones(3)
        y = x.to(device)  # moved
        x.add_(1)  # changed
        y.sum()
        """,
    "tensor: the accelerator's side is changed": """
        x = torch.ones(3)
        y = x.to(device)  # moved
        y -= 1  # changed
        x.sum()
        """,
    "tensor: part of a data set": """
        data = torch.arange(12.0).view(4, 3)
        for epoch in range(2):
            batch = data[1:3].to(device)  # moved
            batch.div_(2)  # changed
        """,
    "tensor: the changed side is gone": """
        x = torch.ones(3)
        y = x.to(device)  # moved
        x.add_(1)  # changed
        del x
        y.sum()
        """,
    "tensor: by index": """
        x = torch.ones(4, 3)
        y = x[1].to(device)  # moved
        x[:2] = 5  # changed
        y + 1
        """,
    "tensor: by out=": """
        x = torch.ones(3)
        y = x.to(device)  # moved
        torch.add(x, 1, out=x)  # changed
        y + 1
        """,
    "tensor: by data": """
        x = nn.Parameter(torch.ones(3).to(device))
        y = x.data.cpu()  # moved
        x.data.mul_(3)  # changed
        y + 1
        """,
    "tensor: by relu in place": """
        x = torch.full((3,), -1.0)
        y = x.to(device)  # moved
        nn.functional.relu(y, inplace=True)  # changed
        x.sum()
        """,
    "tensor: through views": """
        x = torch.ones(3, 2)
        y = x.to(device).t()  # moved
        x.view(-1)[3:].zero_()  # changed
        y.reshape(-1)[-1].item()
        """,
    "tensor: from the device of another": """
        w = torch.ones(3).to(device)
        x = torch.ones(3)
        y = x.to(w.device)  # moved
        x.zero_()  # changed
        y.sum()
        """,
    "tensor: at a second move": """
        x = torch.ones(3).to(device)
        y = x.cpu()  # moved
        x.zero_()  # changed
        z = y.to(device)
        """,
    "tensor: in a graph, detached": """
        w = nn.Parameter(torch.ones(3)); m = nn.Module(); m.w = w; m.to(device)
        before = w.cpu().detach()  # moved
        with torch.no_grad():
            w.add_(1)  # changed
        before.sum()
        """,
    "tensor: gradients are summed up": """
        w = nn.Parameter(torch.ones(3)); m = nn.Module(); m.w = w; m.to(device)
        w.sum().backward()
        grad = w.grad.cpu()  # moved
        w.sum().backward()
        grad.sum()
        """,
    "tensor: in another thread": """
        x = torch.ones(3)
        def work():
            y = x.to(device)  # moved
            y.add_(1)  # changed
        thread = threading.Thread(target=work); thread.start(); thread.join()
        x.sum()
        """,
    "tensor: read by a separate function": """
        class Double(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                return x * 2
            @staticmethod
            def backward(ctx, g):
                return g * 2
        x = torch.ones(3)
        y = x.to(device)  # moved
        x.add_(1)  # changed
        Double.apply(y)
        """,
    "numpy view: labels that are refilled": """
        labels = torch.zeros(3, device=device)
        y = []
        for i in range(3):
            labels.copy_(torch.full((3,), float(i)))  # changed
            y += [labels.cpu().numpy()]  # moved
        np.concatenate(y)
        """,
    "numpy view: two batches": """
        labels = torch.zeros(3).to(device)
        y = []
        for i in range(2):
            labels.fill_(i)  # changed
            y.append(np.asarray(labels.detach().cpu()))  # moved
        """,
    "numpy view: before and after": """
        model = nn.Linear(2, 2).to(device)
        before = model.weight.detach().cpu().numpy()  # moved
        torch.nn.init.ones_(model.weight)  # changed
        after = model.weight.detach().cpu().numpy()
        """,
    "numpy view: changed by NumPy": """
        x = torch.ones(3).to(device)
        image = x.cpu().numpy()  # moved
        image *= 255
        x.sum()
        """,
    "numpy buffer: reused": """
        buffer = np.zeros(3, dtype=np.float32)
        xs = []
        for i in range(2):
            buffer[:] = i
            xs.append(torch.from_numpy(buffer).to(device))  # moved
        torch.stack(xs)
        """,
    "numpy buffer: of other shape": """
        frames = np.zeros((2, 4, 4), dtype=np.float32)
        x = torch.from_numpy(frames[0]).permute(1, 0).unsqueeze(0).to(device)  # moved
        frames += 1
        x.sum()
        """,
    "numpy buffer: as_tensor": """
        buffer = np.zeros(3)
        x = torch.as_tensor(buffer, device=device)  # moved
        buffer[0] = 1
        x.sum()
        """,
    "numpy buffer: changed by the tensor": """
        data = np.ones((4, 3), dtype=np.float32)
        for epoch in range(2):
            for i in range(4):
                x = torch.from_numpy(data[i]).to(device)  # moved
                x.div_(2)  # changed
        """,
    "tensor: of a class of its own": """
        class Mine(torch.Tensor):
            def double(self):
                return self * 2
        x = torch.ones(3).to(device).as_subclass(Mine)
        y = x.cpu()  # moved
        x.add_(1)  # changed
        assert type(y) is Mine and y.double().sum() is not None
        """,
    "tensor: of a class that overrides functions": """
        class Counted(torch.Tensor):
            calls = []
            @classmethod
            def __torch_function__(cls, function, types, args=(), kwargs=None):
                cls.calls.append(function)
                return super().__torch_function__(function, types, args, kwargs or {})
        x = torch.Tensor._make_subclass(Counted, torch.ones(3).to(device))
        y = x.cpu()  # moved
        x.mul_(2)  # changed
        z = y + 1
        assert Counted.calls == [torch.Tensor.cpu, torch.Tensor.mul_, torch.Tensor.add], Counted.calls
        """,
    "tensor: with attributes": """
        class Named(torch.Tensor):
            pass
        x = torch.ones(3).to(device).as_subclass(Named)
        x.title = "x"
        y = x.cpu()  # moved
        assert y.title == "x"
        x[0] = 5  # changed
        y.max()
        """,
    "numpy view: of a class of its own": """
        class Mine(torch.Tensor):
            pass
        x = torch.zeros(3).to(device).as_subclass(Mine)
        kept = []
        for i in range(3):
            x.fill_(i)  # changed
            kept.append(x.cpu().numpy())  # moved
        np.stack(kept)
        """,
    "tensor: a frozen parameter": """
        weight = nn.Parameter(torch.ones(3).to(device), requires_grad=False)
        before = weight.cpu()  # moved
        weight.mul_(2)  # changed
        before.sum()
        """,
    "tensor: backup and restore by data": """
        weight = nn.Parameter(torch.ones(3).to(device))
        backup = weight.data.cpu()  # moved
        weight.data.add_(1)  # changed
        weight.data.copy_(backup)
        """,
    "tensor: restored by data, then changed": """
        weight = nn.Parameter(torch.ones(3).to(device))
        backup = weight.data.cpu()  # moved
        weight.data.copy_(backup)
        weight.data.mul_(2)  # changed
        backup.sum()
        """,
    "tensor: an average of weights by data": """
        model = nn.Linear(2, 2).to(device)
        shadow = [p.data.cpu() for p in model.parameters()]  # moved
        for p in model.parameters():
            p.data.add_(1)  # changed
        sum(average.sum() for average in shadow)
        """,
    "tensor: through data, read through detach": """
        x = torch.ones(3).to(device)
        y = x.detach().cpu()  # moved
        x.data.zero_()  # changed
        y.detach().sum()
        """,
    "tensor: an optimizer's step": """
        model = nn.Linear(2, 2).to(device)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        before = [p.detach().cpu() for p in model.parameters()]  # moved
        model(torch.ones(1, 2).to(device)).sum().backward()
        optimizer.step()  # changed
        sum((p.detach().cpu() - old).abs().sum() for p, old in zip(model.parameters(), before))
        """,
    "tensor: printed": """
        x = torch.ones(3).to(device)
        y = x.cpu()  # moved
        x.add_(1)  # changed
        repr(y)
        """,
    "tensor: converted to text": """
        x = torch.ones(3).to(device)
        y = x.cpu()  # moved
        x.add_(1)  # changed
        str(y)
        """,
    "tensor: formatted": """
        x = torch.ones(1).to(device)
        y = x.cpu()  # moved
        x.add_(1)  # changed
        f"{y[0]:.3f}"
        """,
    "tensor: a condition": """
        x = torch.ones(1).to(device)
        y = x.cpu()  # moved
        x.sub_(1)  # changed
        bool(y)
        """,
    "tensor: a replay buffer": """
        from collections import deque
        replay, state = deque(maxlen=4), torch.zeros(2).to(device)
        for i in range(3):
            replay.append(state.cpu())  # moved
            state += 1  # changed
        torch.stack(list(replay))
        """,
    "tensor: a hook that keeps activations": """
        kept = []
        layer = nn.Linear(2, 2).to(device)
        layer.register_forward_hook(lambda _, x, y: kept.append(y.detach().cpu()))  # moved
        with torch.no_grad():
            out = layer(torch.ones(1, 2).to(device))
            out.mul_(2)  # changed
        kept[0].sum()
        """,
    "tensor: a collated buffer whose batches are kept": """
        buffer = torch.zeros(2)
        def collate(items):
            for i, item in enumerate(items):
                buffer[i] = item  # changed
            return buffer
        loader = torch.utils.data.DataLoader(range(4), batch_size=2, collate_fn=collate)
        batches = [batch.to(device) for batch in loader]  # moved
        torch.cat(batches)
        """,
    "tensor: a dictionary of states": """
        states = {"h": torch.zeros(2).to(device)}
        saved = {name: value.cpu() for name, value in states.items()}  # moved
        states["h"].add_(1)  # changed
        torch.save(saved, io.BytesIO())
        """,
    "tensor: clamped in place": """
        image = torch.rand(3, 4, 4).to(device)
        shown = image.cpu()  # moved
        image.clamp_(0, 0.5)  # changed
        shown.mean()
        """,
    "tensor: through a slice of a view": """
        x = torch.zeros(4, 4).to(device)
        y = x.cpu()  # moved
        x[1:3].view(-1)[2:4].fill_(7)  # changed
        y.sum()
        """,
    "tensor: masked": """
        x = torch.arange(4.0).to(device)
        y = x.cpu()  # moved
        x[x > 0.5] = 0  # changed
        y.sum()
        """,
    "tensor: scattered": """
        x = torch.zeros(4).to(device)
        y = x.cpu()  # moved
        x.index_add_(0, torch.tensor([1]).to(device), torch.ones(1).to(device))  # changed
        y.sum()
        """,
    "tensor: moved by a dtype and a device": """
        x = torch.ones(3).to(device)
        y = x.to("cpu", torch.float32)  # moved
        x.add_(1)  # changed
        y.sum()
        """,
    "tensor: a buffer of a module": """
        module = nn.Module()
        module.register_buffer("count", torch.zeros(1))
        module.to(device)
        before = module.count.cpu()  # moved
        module.count += 1  # changed
        before.item()
        """,
    "tensor: gradients that are clipped": """
        w = nn.Parameter(torch.ones(3).to(device))
        (w * 5).sum().backward()
        grad = w.grad.cpu()  # moved
        nn.utils.clip_grad_norm_([w], 1.0)  # changed
        grad.norm()
        """,
    "tensor: assigned to data": """
        source, target = nn.Linear(1, 1).to(device), nn.Linear(1, 1)
        target.weight.data = source.weight.data.cpu()  # moved
        with torch.no_grad():
            source.weight.add_(1)  # changed
        target.weight.sum()
        """,
    "tensor: restored by an assignment to data": """
        weight = nn.Parameter(torch.ones(2).to(device))
        backup = weight.data.clone().cpu()
        weight.data = backup.to(device)  # moved
        weight.data.add_(1)  # changed
        backup.sum()
        """,
    "tensor: copied from a vector of weights": """
        model, vector = nn.Linear(1, 1, bias=False).to(device), torch.ones(1)
        nn.utils.vector_to_parameters(vector.to(device), model.parameters())  # moved
        model.weight.data.add_(1)  # changed
        vector.sum()
        """,
    "tensor: the weights before a module moves": """
        model = nn.Linear(1, 1)
        before = model.state_dict()
        model.to(device)  # moved
        with torch.no_grad():
            model.weight.add_(1)  # changed
        model.load_state_dict(before)
        """,
    "tensor: a table that a module trains": """
        table = torch.ones(2, 2)
        model = nn.Embedding.from_pretrained(table, freeze=False).to(device)  # moved
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        model(torch.tensor([0]).to(device)).sum().backward()
        optimizer.step()  # changed
        table.sum()
        """,
    "tensor: a buffer that two modules share": """
        shared = torch.zeros(2)
        first, second = nn.Module(), nn.Module()
        first.register_buffer("shared", shared)
        second.register_buffer("shared", shared)
        first.to(device)  # moved
        first.shared += 1  # changed
        second.shared.sum()
        """,
    "tensor: a variable": """
        x = torch.zeros(2)
        v = torch.autograd.Variable(x.to(device))  # moved
        v.data.add_(1)  # changed
        x.sum()
        """,
    "tensor: a variable's copy": """
        v = torch.autograd.Variable(torch.zeros(2).to(device))
        kept = v.data.cpu()  # moved
        v.data.add_(1)  # changed
        kept.sum()
        """,
    "tensor: by the type of another one": """
        x = torch.zeros(2)
        y = x.type_as(torch.zeros(1).to(device))  # moved
        y += 1  # changed
        x.sum()
        """,
    "tensor: to the CPU by an argument": """
        def move(value, *, where):
            return [v.to(where) for v in value]  # moved
        x = torch.zeros(2).to(device)
        y, = move([x], where="cpu")
        x += 1  # changed
        y.sum()
        """,
    "tensor: to a device by an argument of an argument": """
        class Mover:
            def move(self, values, where):
                return [self.one(value, where) for value in values]
            def one(self, value, where):
                return value.to(where)  # moved
        x = torch.zeros(2)
        y, = Mover().move([x], device)
        y += 1  # changed
        x.sum()
        """,
    "tensor: to the CPU by a default": """
        def move(value, *, where="cpu"):
            return value.to(where)  # moved
        x = torch.zeros(2).to(device)
        y = move(x)
        x += 1  # changed
        y.sum()
        """,
    "tensor: to the CPU by a default of a method": """
        class Mover:
            def move(self, value, copy=False, where=torch.device("cpu")):
                return value.to(where)  # moved
        x = torch.zeros(2).to(device)
        y = Mover().move(x)
        x += 1  # changed
        y.sum()
        """,
    "tensor: to a device whose name is a CPU's elsewhere": """
        def other():
            target = torch.device("cpu")
            return target
        target = device
        x = torch.zeros(2)
        y = x.to(target)  # moved
        y += 1  # changed
        x.sum()
        """,
    "tensor: filled by index": """
        x = torch.zeros(4, 2).to(device)
        kept = x[:2].cpu()  # moved
        x.index_fill_(0, torch.tensor([1]).to(device), 5.0)  # changed
        kept.sum()
        """,
    "tensor: scattered into a column": """
        x = torch.zeros(2, 4).to(device)
        kept = x[:, 2].cpu()  # moved
        x.scatter_(1, torch.tensor([[0], [2]]).to(device), 1.0)  # changed
        kept.sum()
        """,
    "tensor: masked a second time": """
        x = torch.arange(4.0).to(device)
        kept = x[:2].cpu()  # moved
        x[x > 1.5] = 0
        x[x > 0.5] = 0  # changed
        kept.sum()
        """,
    "numpy view: one array": """
        w = nn.Parameter(torch.ones(2).to(device))
        before = w.data.cpu().numpy()  # moved
        w.data += 1  # changed
        before.tolist()
        """,
    "numpy view: one array in an expression": """
        x = torch.ones(2).to(device)
        a = np.asarray(x.cpu())  # moved
        x += 1  # changed
        print(a.shape, len(a), file=open(os.devnull, "w"))
        b = a.T + 1
        """,
    "numpy view: one array, changed in a loop": """
        x = torch.ones(2).to(device)
        a = x.cpu().numpy()  # moved
        for i in range(3):
            x += 1  # changed
        if x.sum() > 100:
            x.zero_()
        with torch.no_grad():
            np.mean(a.reshape(-1))
        """,
    "numpy view: a part that is changed": """
        x = torch.ones(4).to(device)
        a = x.cpu().numpy()[:2]  # moved
        x[0] += 1  # changed
        a.tolist()
        """,
    "numpy buffer: one array": """
        a = np.ones(3, dtype=np.float32)
        x = torch.from_numpy(a).to(device)  # moved
        x *= 2  # changed
        a.tolist()
        """,
    "numpy buffer: one array by as_tensor": """
        a = np.zeros(3, dtype=np.float32)
        x = torch.as_tensor(a, device=device)  # moved
        x += 1  # changed
        f"{a.sum()}"
        """,
    "numpy buffer: the rows of an array": """
        base = np.ones((2, 3), dtype=np.float32)
        row = base[0]
        x = torch.from_numpy(row).to(device)  # moved
        x.div_(2)  # changed
        base.tolist()
        """,
    "numpy buffer: the caller's array": """
        def scale(t):
            return t.div_(2)  # changed
        a = np.ones(3, dtype=np.float32)
        t = torch.from_numpy(a).to(device)  # moved
        y = scale(t)
        a.sum()
        """,
    "numpy buffer: the caller refills it": """
        def move(buffer):
            return torch.from_numpy(buffer).to(device)  # moved
        buffer = np.zeros(3, dtype=np.float32)
        x = move(buffer)
        buffer[:] = 5
        x.tolist()
        """,
}

HARMLESS = {
    "a loop variable": """
        buffer = torch.zeros(3)
        for i in range(5):
            buffer.zero_()
            buffer[0] = i
            x = buffer.to(device)
            x.sum()
        """,
    "an array in a loop": """
        labels = torch.zeros(3).to(device)
        for i in range(5):
            labels.zero_()
            labels[0] = i
            y = labels.cpu().numpy()
            y.sum()
        """,
    "a buffer of an environment": """
        buffer = np.zeros(3, dtype=np.float32)
        for i in range(5):
            buffer += 1
            x = torch.from_numpy(buffer).to(device)
            x.sum()
            buffer += 1
        """,
    "both on the accelerator": """
        x = torch.ones(3).to(device)
        h = (x + 1).to(device)
        h2 = torch.zeros(3, device=device)
        y, y2 = h.to(device), h2.cuda() if device.type == "cuda" else h2.to(device)
        h.add_(1); h2.add_(1)
        y.sum(); y2.sum()
        """,
    "both on the host": """
        x = torch.ones(3)
        y, z = x.cpu(), x.to("cpu")
        a = y.numpy()
        x.add_(1)
        (y + z).sum()
        """,
    "a deliberate CPU": """
        cpu_device = torch.device("cpu")
        x = torch.ones(3)
        y, z = x.to(cpu_device), x.to(torch.device("cpu"))
        w = torch.zeros(3, device="cpu").cpu()
        x.add_(1)
        (y + z).sum()
        """,
    "other elements": """
        data = torch.zeros(4, 3)
        y, column = data[1].to(device), data[:, 0].to(device)
        data[2, 1:] = 5
        data[2:, 1] = 7
        y.sum() + column.sum()
        """,
    "filled anew": """
        x = torch.ones(3)
        y = x.to(device)
        x.add_(1)
        y.copy_(torch.zeros(3))
        y.sum()
        """,
    "a copy": """
        x = torch.ones(3)
        y, z, u = x.to(device).clone(), x.to(device, torch.float64), x.to(device, copy=True)
        x.add_(1)
        (y + z + u).sum()
        """,
    "only the shape": """
        x = torch.ones(3)
        y = x.to(device)
        y.add_(1)
        torch.zeros_like(x), x.shape, x.new_zeros(2), x.device, len(x), x.type()
        """,
    "training": """
        head = nn.Sequential(nn.Flatten(), nn.Linear(8, 2))
        model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.ReLU(True), head)
        model = model.to(device)
        optimizer = torch.optim.Adam(model.parameters())
        data = torch.utils.data.TensorDataset(torch.randn(8, 1, 4, 4), torch.randint(2, (8,)))
        losses, predicted = [], []
        for epoch in range(2):
            for x, y in torch.utils.data.DataLoader(data, 4, shuffle=True):
                x, y = x.to(device), y.to(device)
                loss = nn.functional.cross_entropy(model(x), y)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                losses.append(loss.cpu().item())
            with torch.no_grad():
                predicted.append(model(x).argmax(1).cpu().numpy())
            torch.save({k: v.cpu() for k, v in model.state_dict().items()}, io.BytesIO())
            copy.deepcopy(model), pickle.loads(pickle.dumps(model))
            model.cpu(); model.to(device)
        np.concatenate(predicted)
        """,
    "attacks": """
        for i in range(3):
            x = torch.rand(2, 3)
            adversary = x.to(device)
            adversary.requires_grad_()
            (adversary ** 2).sum().backward()
        """,
    "classes of their own": """
        class Mine(torch.Tensor):
            def double(self):
                return self * 2
        x = torch.ones(3).to(device).as_subclass(Mine)
        y = x.cpu()
        y.double().sum().item()
        x.add_(1)
        x.double().cpu().tolist()
        z = x.cpu().clone()
        x.add_(1)
        z.sum()
        """,
    "a collated buffer that nobody keeps": """
        buffer = torch.zeros(2)
        def collate(items):
            for i, item in enumerate(items):
                buffer[i] = item
            return buffer
        total = 0
        for batch in torch.utils.data.DataLoader(range(6), batch_size=2, collate_fn=collate):
            total += batch.to(device).sum().item()
        """,
    "backup by clone, restored by data": """
        weight = nn.Parameter(torch.ones(3).to(device))
        backup = weight.data.clone()
        weight.data.add_(1)
        weight.data.copy_(backup)
        saved = weight.data.cpu().clone()
        weight.data.mul_(2)
        weight.data.copy_(saved)
        """,
    "restored from what has not changed": """
        weight = nn.Parameter(torch.ones(3).to(device))
        backup = weight.data.cpu()
        weight.data.copy_(backup)
        weight.data = backup.to(device)
        """,
    "storages that are freed": """
        for i in range(60):
            x = torch.full((100,), float(i)).to(device)
            y = x.cpu()
            y.sum().item()
            del x, y
            z = torch.zeros(100)
            z.add_(1)
            z.sum()
        """,
    "an array of storages that are freed": """
        for i in range(60):
            x = torch.full((100,), float(i)).to(device)
            y = x.cpu().numpy()
            y.sum()
            del x, y
            z = np.zeros(100, dtype=np.float32)
            z += 1
            torch.from_numpy(z).sum()
        """,
    "a list of losses": """
        losses = []
        w = torch.ones(2, device=device, requires_grad=True)
        for i in range(3):
            loss = (w * i).sum()
            losses.append(loss.detach().cpu())
            loss.backward()
            with torch.no_grad():
                w -= 0.1 * w.grad
        torch.stack(losses).sum()
        """,
    "an average that is printed": """
        total = torch.zeros(1).to(device)
        for i in range(3):
            total += i
            print(f"{total.cpu().item():.1f}", total.cpu(), file=open(os.devnull, "w"))
        """,
    "metrics by batch": """
        predicted = []
        for i in range(3):
            x = torch.rand(4).to(device)
            predicted += x.cpu().numpy().tolist()
            x.zero_()
        """,
    "the best weights, cloned": """
        model = nn.Linear(2, 2).to(device)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        best = {k: v.detach().cpu().clone() for k, v in model.state_dict().items()}
        model(torch.ones(1, 2).to(device)).sum().backward()
        optimizer.step()
        model.load_state_dict(best)
        """,
    "the best weights, deep copied": """
        model = nn.Linear(2, 2).to(device)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        best = copy.deepcopy(model.state_dict())
        model(torch.ones(1, 2).to(device)).sum().backward()
        optimizer.step()
        model.load_state_dict(best)
        """,
    "an average of weights on the accelerator": """
        model = nn.Linear(2, 2).to(device)
        shadow = [p.clone().detach() for p in model.parameters()]
        for step in range(3):
            with torch.no_grad():
                for p in model.parameters():
                    p.add_(1)
                for average, p in zip(shadow, model.parameters()):
                    average.mul_(0.9).add_(p, alpha=0.1)
        """,
    "augmented in place before the move": """
        for i in range(3):
            image = torch.rand(2, 2)
            image.clamp_(0, 0.5)
            batch = image.to(device)
            batch.mean().item()
        """,
    "pinned, or moved without blocking": """
        for i in range(3):
            x = torch.ones(3) * i
            y = x.to(device, non_blocking=True)
            (y + 1).sum().item()
        """,
    "a queue of copies": """
        from collections import deque
        replay, state = deque(maxlen=4), torch.zeros(2).to(device)
        for i in range(3):
            replay.append(state.cpu().clone())
            state += 1
        torch.stack(list(replay))
        """,
    "a tensor that is bound anew": """
        state, kept = torch.zeros(2).to(device), []
        for i in range(3):
            kept.append(state.cpu())
            state = state + 1
        torch.stack(kept)
        """,
    "changed on both sides and never read": """
        x = torch.ones(3).to(device)
        y = x.cpu()
        x.add_(1)
        del y
        x.sum()
        """,
    "a frozen parameter that does not change": """
        weight = nn.Parameter(torch.ones(3).to(device), requires_grad=False)
        kept = weight.cpu()
        (weight * 2).sum() + kept.sum()
        """,
    "views by data that are moved again": """
        total = torch.zeros(1).to(device)
        for i in range(3):
            total += 1
            now = total.data.cpu().numpy()
            now.sum()
        """,
    "modules that move": """
        model = nn.Sequential(nn.LSTM(2, 2), nn.utils.weight_norm(nn.Linear(2, 2)))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for i in range(2):
            model.to(device)
            out = model[1](model[0](torch.ones(1, 1, 2).to(device))[0])
            optimizer.zero_grad()
            out.sum().backward()
            optimizer.step()
            model.cpu()
            sum(p.sum() for p in model.parameters())
        """,
    "tied weights that move": """
        model = nn.Sequential(nn.Embedding(2, 2), nn.Linear(2, 2))
        model[1].weight = model[0].weight
        model.to(device)
        with torch.no_grad():
            model[0].weight.add_(1)
        model[1].weight.sum()
        """,
    "weights assigned to data on one device": """
        first, second = nn.Linear(1, 1).to(device), nn.Linear(1, 1).to(device)
        second.weight.data = first.weight.data
        first.weight.data.add_(1)
        second.weight.sum()
        """,
    "the CPU by a name that is an accelerator's elsewhere": """
        def other():
            host = torch.zeros(1).to(device)
            return host
        other()
        host = torch.device("cpu")
        x = torch.zeros(2)
        y = x.to(host)
        y += 1
        x.sum()
        """,
    "the CPU by an argument, not by the default": """
        def move(value, where=device):
            return value.to(where)
        x = torch.zeros(2)
        y = move(x, "cpu")
        x += 1
        y.sum()
        """,
    "other elements by index": """
        x = torch.zeros(4, 4).to(device)
        row, column = x[:2, :2].cpu(), x.t()[1].cpu()
        last = torch.tensor([3]).to(device)
        x.index_copy_(0, last, torch.ones(1, 4).to(device) * (torch.arange(4).to(device) != 1))
        x.index_fill_(1, last, 5.0)
        x[2:].scatter_(1, torch.tensor([[0], [2]]).to(device), 1.0)
        row.sum() + column.sum()
        """,
    "other elements by a mask": """
        x = torch.arange(4.0).to(device)
        x[0] = float("nan")
        kept = x[:2].cpu()
        x.masked_fill_(x > 2.5, 0)
        x[x > 1.5] = 0
        kept.isnan()
        y = torch.zeros(4)
        z = y[2:].to(device)
        y.index_add_(0, torch.tensor([0]), torch.ones(1))
        z.sum()
        """,
    "leaves of which there is a copy": """
        w = torch.ones(2, requires_grad=True)
        v, ws = w.to(device), [w]
        (v * 2).sum().backward()
        w.is_leaf, w.grad
        w = w.to(device)
        ws[0].is_leaf
        class Box:
            def __init__(self):
                self.w = nn.Parameter(torch.ones(2))
            def get(self):
                return self.w
        box = Box()
        (box.get().to(device) + box.w.to(device)).sum().backward()
        box.w.grad
        module = nn.Module()
        parameter = nn.Parameter(torch.ones(2))
        moved = parameter.to(device)
        module.parameter = parameter
        optimizer = torch.optim.SGD([parameter], lr=1.0)
        parameter.to(device).sum().backward()
        optimizer.step()
        """,
    "leaves of which nothing else is asked": """
        w = torch.zeros(3, requires_grad=True).to(device)
        w.sum().backward()
        torch.autograd.grad(w.sum(), w), w.requires_grad
        w.retain_grad()
        w.sum().backward()
        w.grad
        v = torch.zeros(3, requires_grad=True).to(device).detach_()
        v.is_leaf
        u = torch.zeros(3).to(device).requires_grad_()
        torch.optim.SGD([u], lr=1.0), u.is_leaf
        with torch.no_grad():
            z = torch.zeros(3, requires_grad=True).to(device)
        z.is_leaf
        """,
    "arrays that are not read again": """
        def early(x):
            a = x.cpu().numpy()
            x += 1
            if x.sum() > 0:
                return
            a.sum()
        def branch(x):
            a = x.cpu().numpy()
            x += 1
            if x.sum() < 0:
                a.sum()
            True or a.sum()
            later = lambda: a.sum()
        def shape(x):
            a = x.cpu().numpy()
            a.sum()
            x += 1
            a.shape, len(a), np.zeros_like(a), a is None
        def other(x):
            kept = [np.ones(2), x.cpu().numpy()]
            x += 1
            kept[0].sum()
        def dropped(x):
            kept = [x.cpu().numpy()]
            x += 1
            kept.clear()
            np.array(kept)
        def caught(x):
            a = x.cpu().numpy()
            try:
                x += 1
                raise ValueError
                a.sum()
            except ValueError:
                pass
        for function in (early, branch, shape, other, dropped, caught):
            function(torch.ones(2).to(device))
        """,
    "arrays that are bound or filled anew": """
        def bound(x):
            a = x.cpu().numpy()
            x += 1
            a = np.zeros(2)
            a.sum()
        def by_another(x):
            a = x.cpu().numpy()
            def bind():
                nonlocal a
                a = np.zeros(2)
            x += 1
            bind()
            a.sum()
        def filled(x):
            a = x.cpu().numpy()
            x += 1
            a[:] = 0
            a.sum()
        def by_name(x):
            a = np.ones(2, dtype=np.float32)
            b = a
            moved = torch.from_numpy(a).to(device)
            moved.div_(2)
            b[:] = 7
            a.sum()
        def by_function(x):
            a = np.ones(2, dtype=np.float32)
            def fill():
                a[:] = 7
            moved = torch.from_numpy(a).to(device)
            moved.div_(2)
            fill()
            a.sum()
        def by_owner(x):
            class Environment:
                def __init__(self):
                    self.observed = np.ones((2, 3), dtype=np.float32)
                def step(self):
                    self.observed[:] = 7
            environment = Environment()
            whole, row = environment.observed, environment.observed[0]
            moved = torch.from_numpy(row).to(device)
            moved.div_(2)
            environment.step()
            row.sum() + whole.sum()
        def by_keyword(x):
            values = {"a": np.ones(3, dtype=np.float32)}
            def fill():
                values["a"][:] = 7
            a = values["a"]
            moved = torch.from_numpy(a).to(device)
            moved.div_(2)
            fill()
            a.sum()
        def by_base(x):
            def step(environment):
                environment.observed[:] = 7
            environment = threading.local()
            environment.observed = np.ones((2, 3), dtype=np.float32)
            row = environment.observed[0]
            moved = torch.from_numpy(row).to(device)
            moved.div_(2)
            step(environment)
            row.sum()
        def by_log(x):
            class Log:
                def reset(self):
                    self.kept[0][:] = 7
            log = Log()
            kept = log.kept = [x.cpu().numpy()]
            x += 1
            log.reset()
            kept[0].tolist()
        by = by_name, by_function, by_owner, by_keyword, by_base, by_log
        for function in (bound, by_another, filled, *by):
            function(torch.ones(2).to(device))
        """,
    "other elements of an array": """
        x = torch.arange(4.0).to(device)
        a = x.cpu().numpy()[:2]
        x[2:] += 1
        x[x > 1.5] = 0
        a.tolist()
        """,
    "the CPU by an argument": """
        def move(value, where):
            if isinstance(value, dict):
                return {k: move(v, where) for k, v in value.items()}
            return value.to(where)
        batch = {"x": torch.zeros(2)}
        moved = move(batch, torch.device("cpu"))
        moved["x"] += 1
        batch["x"].sum()
        """,
    "variables": """
        for i in range(2):
            v = torch.autograd.Variable(torch.ones(2).to(device))
            (v * 2).data.cpu().numpy().tolist()
        """,
    "unwatchable tensors": """
        sparse = torch.eye(3).to_sparse().to(device)
        sparse.cpu()
        with torch.inference_mode():
            x = torch.ones(3).to(device)
            x.cpu().add_(1)
        torch.vmap(lambda x: x.to(device).cpu() * 2)(torch.ones(2, 3))
        torch.zeros(0).to(device).cpu()
        torch.jit.trace(lambda x: x.to(device) + 1, torch.ones(3))
        nn.utils.rnn.pack_sequence([torch.ones(3, 1)]).to(device)
        nn.LSTM(2, 2).to(device)(torch.ones(3, 1, 2).to(device))
        class Mine(torch.Tensor):
            pass
        torch.ones(3).as_subclass(Mine).to(device)
        """,
}  # fmt: skip

COMPILED = {
    "a compiled module": """
        compiled = torch.compile(nn.Linear(2, 2).to(device))
        compiled(torch.ones(1, 2).to(device))
        assert list(compiled.state_dict()) == ["_orig_mod.weight", "_orig_mod.bias"]
        """,
}


def program(cases: dict[str, str]) -> str:
    functions = []
    for number, code in enumerate(cases.values()):
        body = textwrap.indent(textwrap.dedent(code).strip("\n"), "    ")
        functions.append(f"def case{number}():\n{body}\n\ncase{number}()\n")
    return HEAD.lstrip("\n") + "\n".join(functions)


def marked(lines: list[str], mark: str) -> int | None:
    """Return the number of the line with a mark."""
    return next((number for number, line in enumerate(lines, 1) if f"# {mark}" in line), None)


@pytest.fixture(scope="module")
def hazards(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[tuple[Any, ...]]]:
    """For each hazard, return the reports between its lines, and then the expected report."""
    source = program(HAZARDS)
    ran = run_program(tmp_path_factory.mktemp("hazards"), source)
    assert ran.status == 0, ran.errors
    assert not ran.of("trouble")
    lines = source.split("\n")
    starts = [number for number, line in enumerate(lines, 1) if line.startswith("def case")] + [len(lines)]
    found: dict[str, list[tuple[Any, ...]]] = {}
    for name, (start, end) in zip(HAZARDS, pairwise(starts), strict=True):
        found[name] = [
            (e["what"], e["moved"]["line"], e["changed"] and e["changed"]["line"])
            for e in ran.of("copy")
            if start <= e["moved"]["line"] < end
        ]
        case = [""] * (start - 1) + lines[start - 1 : end - 1]
        found[name].append((name.split(":")[0], marked(case, "moved"), marked(case, "changed")))
    return found


@pytest.mark.parametrize("name", HAZARDS)
def test_a_hazard_is_reported_once_with_its_lines(
    hazards: dict[str, list[tuple[Any, ...]]], name: str
) -> None:
    *found, expected = hazards[name]
    assert found == [expected]


@pytest.mark.parametrize("cases", [HARMLESS, pytest.param(COMPILED, marks=pytest.mark.slow)])
def test_harmless_copies_are_not_reported(cases: dict[str, str], tmp_path: Path) -> None:
    source = program(cases)
    ran = run_program(tmp_path, source)
    assert ran.status == 0, ran.errors
    lines = source.split("\n")
    assert [(e["what"], lines[e["moved"]["line"] - 1].strip(), e["changed"]) for e in ran.of("copy")] == []
    assert not ran.of("trouble")


MODULE = """
import numpy as np
import torch
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
weight = torch.ones(2).to(device)
before = weight.cpu().numpy()
data = np.ones(2, dtype=np.float32)
print(before.mean(), data.mean())
for i in range(3):
    weight.mul_(2)
moved = torch.from_numpy(data).to(device)
moved.mul_(2)
"""
UNREAD = {
    "nothing": ("", []),
    "bound anew": ("before = data = None", []),
    "changed": ("before += 1; data += 1", ["numpy buffer", "numpy view"]),
    "read": ("print(before.mean(), data.mean())", ["numpy buffer", "numpy view"]),
    "perhaps read": ("if weight.sum() < 0: print(before, data)", ["numpy buffer", "numpy view"]),
    "read by a function": ("def show(): return before + data\nshow()", ["numpy buffer", "numpy view"]),
    "kept": ("everything = [before, data]", ["numpy buffer", "numpy view"]),
}


@pytest.mark.parametrize("name", UNREAD)
def test_an_array_of_a_module_is_reported_unless_it_is_certainly_not_read(name: str, tmp_path: Path) -> None:
    code, expected = UNREAD[name]
    ran = run_program(tmp_path, MODULE + code)
    assert ran.status == 0, ran.errors
    assert sorted(event["what"] for event in ran.of("copy")) == expected
    assert not ran.of("trouble")


def test_possible_unseen_reads_are_reported_at_the_exit_of_every_process(tmp_path: Path) -> None:
    ran = run_program(
        tmp_path,
        """
        import multiprocessing, sys
        import numpy as np
        import torch

        device = torch.device("cuda" if torch.cuda.is_available() else "cpu")

        def work(name):
            x = torch.ones(3).to(device)
            kept[name] = x.cpu().numpy()
            x.add_(1)
            data = np.ones(3, dtype=np.float32)
            torch.from_numpy(data).to(device).mul_(2)
            kept[name + "data"] = data
            return x

        class Data(torch.utils.data.Dataset):
            def __len__(self):
                return 2
            def __getitem__(self, i):
                x = torch.ones(3)
                y = x.to(device)
                x += 1
                return y

        kept = {}
        if __name__ == "__main__":
            x = work("main")
            for method in ("fork", "spawn"):
                child = multiprocessing.get_context(method).Process(target=work, args=("child",))
                child.start()
                child.join()
            list(torch.utils.data.DataLoader(Data(), num_workers=1))
        """,
    )
    assert ran.status == 0, ran.errors
    found = sorted(
        (e["process"], e["what"], e["moved"]["line"], e["changed"]["line"]) for e in ran.of("copy")
    )
    kept = [("numpy buffer", 12, 12), ("numpy view", 9, 10)]
    for process in ("MainProcess", "Process-1", "Process-2"):
        assert [event[1:] for event in found if process in event[0]] == kept
    assert [event[1:] for event in found if event[1] == "tensor"] == [("tensor", 21, 22)]
    assert not ran.of("trouble")


BEHAVIOUR = """
import gc, io, os, pickle, sys, threading, weakref
import torch
from torch import nn

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
torch.manual_seed(0)

encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 2).to(device).eval()
with torch.no_grad():
    print(encoder(torch.randn(2, 3, 8).to(device)).sum().item().hex())

x = torch.ones(3).to(device)
x.mine = 5
print(pickle.loads(pickle.dumps(x)).__dict__, sorted(vars(torch.ones(3).to(device))))
saved = io.BytesIO()
torch.save(nn.Linear(2, 2).to(device).state_dict(), saved)
print(len(saved.getvalue()))

w = nn.Parameter(torch.ones(3).to(device))
print(w.to(device) is w, w.to(device).is_leaf, w.to(device).requires_grad)
h = (w * 2).to(device).cpu()
h.sum().backward()
print(h.grad_fn.name(), w.grad.tolist())

gone = []
for i in range(100):
    y = torch.full((3,), float(i)).to(device).cpu()
    a = y.numpy()
    weakref.finalize(y, gone.append, i)
del y, a
gc.collect()
print(len(gone))

try:
    torch.ones(3).to(device) + torch.ones(4).to(device)
except RuntimeError as error:
    print(error)

script = torch.jit.script(nn.Linear(2, 2).to(device))
print(tuple(script(torch.ones(1, 2).to(device)).shape))
print(torch.func.grad(lambda t: (t.to(device) ** 2).sum())(torch.ones(2)))
"""


@pytest.mark.slow
def test_the_watch_does_not_change_the_program(tmp_path: Path) -> None:
    outputs = []
    for copies in (False, True):
        ran = run_program(tmp_path, BEHAVIOUR, copies=copies)
        assert ran.status == 0, ran.errors
        assert not ran.of("trouble") and not ran.of("copy")
        outputs.append(ran.output)
    assert outputs[0] == outputs[1]


def test_tensors_can_be_swapped(tmp_path: Path) -> None:
    """`swap_tensors` refuses tensors with weak references, as the watch has."""
    ran = run_program(
        tmp_path,
        HEAD
        + """
torch.__future__.set_swap_module_params_on_conversion(True)
model = nn.Linear(2, 1).to(device)
kept = model.weight.detach().cpu()
with torch.no_grad():
    model.weight += 1
print(kept.sum().item())
""",
        copies=True,
    )
    assert ran.status == 0, ran.errors
    assert not ran.of("trouble")


@pytest.mark.slow
def test_the_ledger_does_not_grow(tmp_path: Path) -> None:
    ran = run_program(
        tmp_path,
        """
        import gc, torch
        from devicefix.verify.runtime.copies.ledger import Ledger

        device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        ledger, = (thing for thing in gc.get_objects() if isinstance(thing, Ledger))
        base = torch.ones(2000, 3)
        tags = len(ledger.tags)
        for i in range(2000):
            x = base[i].to(device)
            x.add_(1)
            y = torch.zeros(3).to(device).cpu().numpy()
            z = torch.zeros(3).to(device)
        del x, y, z
        gc.collect()
        ledger._sweep()
        print(len(ledger.tags) - tags, len(ledger.memories), len(ledger._of), len(ledger.arrays))
        print(len(next(iter(ledger.memories.values())).root.behind) < 20)
        del base
        ledger._sweep()
        print(len(ledger.memories))
        """,
    )
    assert ran.output.split("\n") == ["0 1 1 0", "True", "0", ""], ran.errors


def test_an_error_in_the_watch_is_recorded_once_and_does_not_reach_the_program(tmp_path: Path) -> None:
    ran = run_program(
        tmp_path,
        """
        import torch
        from devicefix.verify.runtime.copies.ledger import Ledger

        def fail(*args, **kwargs):
            raise RuntimeError("a fault")

        device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        x = torch.ones(3).to(device)
        y = x.cpu()
        Ledger.link = Ledger.read = Ledger.write = Ledger.show = Ledger.side = fail
        z = torch.ones(3).to(device)
        x.add_(1)
        print((x + y + z).sum().item())
        """,
    )
    assert (ran.status, ran.output) == (0, "15.0\n"), ran.errors
    assert [(e["where"], e["message"]) for e in ran.of("trouble")] == [("copies", "RuntimeError: a fault")]
