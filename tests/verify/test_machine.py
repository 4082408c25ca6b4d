"""The simulated CUDA machine: its answers, its errors, and the events that it records."""

from __future__ import annotations

import inspect
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from running import Ran, run_program

pytestmark = pytest.mark.needs("numpy", "torch")

PRELUDE = """\
import copy, io, json, pickle, sys, threading, warnings
import torch, torch.nn as nn, torch.nn.functional as F
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence
warnings.simplefilter("ignore")

host = torch.ones(2, 2)
gpu = torch.ones(2, 2, device="cuda")
weight = torch.ones(2, requires_grad=True)
cpu, zero, one = torch.device("cpu"), torch.device("cuda", 0), torch.device("cuda", 1)

def saved(value, where=None, **options):
    file = io.BytesIO()
    torch.save(value, file, **options)
    file.seek(0)
    return torch.load(file, where)

def grad_of(call, at=cpu):
    leaf = torch.ones(2, 2, device=at, requires_grad=True)
    call(leaf).sum().backward()
    return leaf.grad

def raised(call):
    try:
        call()
    except Exception as error:
        return f"{type(error).__name__}: {error}"

class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2
    @staticmethod
    def backward(ctx, grad):
        assert grad.is_cuda
        return grad * 2

def in_thread(call):
    found = []
    thread = threading.Thread(target=lambda: found.append(raised(call)))
    thread.start()
    thread.join()
    return found[0]

def stepped(kind, **options):
    torch.manual_seed(0)
    model = nn.Linear(2, 2).cuda()
    optimizer = kind(model.parameters(), lr=0.1, **options)
    for _ in range(2):
        optimizer.zero_grad()
        model(gpu).pow(2).sum().backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    state = [v for s in optimizer.state.values() for v in s.values() if torch.is_tensor(v) and v.dim()]
    return all(t.is_cuda for t in [*model.parameters(), *state])

def scaled():
    model = nn.Linear(2, 2).cuda()
    optimizer, scaler = torch.optim.SGD(model.parameters(), 0.1), torch.cuda.amp.GradScaler()
    with torch.cuda.amp.autocast():
        loss = model(gpu).float().mean()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    return scaler.is_enabled() and scaler.get_scale() == 65536.0

class Named(torch.Tensor):
    # A subclass with methods and attributes.
    unit = "m"
    def doubled(self):
        return self * 2

class Noted(torch.Tensor):
    # A subclass whose results keep an attribute; it notes which functions it sees.
    seen = []
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        cls.seen.append(func)
        out = super().__torch_function__(func, types, args, kwargs or {})
        if isinstance(out, cls):
            out.note = getattr(args[0], "note", None)
        return out

class Wrapped(torch.Tensor):
    # A tensor without memory, which computes with the one inside.
    @staticmethod
    def __new__(cls, inner):
        options = {"dtype": inner.dtype, "device": inner.device, "requires_grad": inner.requires_grad}
        made = torch.Tensor._make_wrapper_subclass(cls, inner.shape, **options)
        made.inner = inner
        return made
    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        unwrap = lambda each: each.inner if isinstance(each, cls) else each
        out = func(*map(unwrap, args), **(kwargs or {}))
        return cls(out) if isinstance(out, torch.Tensor) else out

def noted():
    x = host.as_subclass(Noted)
    x.note = "kept"
    y = x.cuda()
    Noted.seen.clear()
    kept = (y + y.new_zeros(2)).cpu().note, y.device, y.is_cuda
    names = [getattr(func, "__name__", "") for func in Noted.seen]
    return kept == ("kept", zero, True) and names == ["new_zeros", "add", "cpu", "__get__", "__get__"]

def wrapped():
    x = Wrapped(torch.ones(2, device="cuda")).requires_grad_()
    (x * 2).sum().backward()
    y = x.detach().cpu()
    return [each.device for each in (x.grad, x.grad.inner, y, y.inner)] == [zero, zero, cpu, cpu]

def lowered(call, dtype=torch.float16, **options):
    with torch.autocast("cuda", dtype=dtype, **options):
        found = call()
    return [each.dtype for each in found] if isinstance(found, tuple) else found.dtype

def nested():
    found = []
    with torch.autocast("cuda"):
        for dtype, enabled in ((torch.float16, True), (torch.float16, False), (torch.bfloat16, True)):
            with torch.autocast("cuda", dtype=dtype, enabled=enabled):
                found.append((gpu @ gpu).dtype)
        found.append((gpu @ gpu).dtype)
    return [*found, (gpu @ gpu).dtype]

def overflowed():
    model = nn.Linear(1, 1, bias=False).cuda()
    optimizer, scaler = torch.optim.SGD(model.parameters(), 0.1), torch.cuda.amp.GradScaler()
    before = model.weight.tolist()
    with torch.autocast("cuda"):
        loss = model(torch.full((1, 1), 6e4, device="cuda")).sum()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    return scaler.get_scale() == 32768.0 and model.weight.tolist() == before

class Squared(torch.autograd.Function):
    @staticmethod
    @torch.cuda.amp.custom_fwd(cast_inputs=torch.float32)
    def forward(ctx, x):
        return x @ x
    @staticmethod
    @torch.cuda.amp.custom_bwd
    def backward(ctx, grad):
        return grad

class Shifted(nn.Module):
    def forward(self, x):
        return x + torch.zeros(2, device=x.device)

def exported(module):
    program = torch.export.export(module, (gpu,)) if hasattr(torch, "export") else module
    return (program.module() if program is not module else module)(gpu).device

def reloaded(module, **options):
    file = io.BytesIO()
    torch.jit.save(module, file)
    file.seek(0)
    return torch.jit.load(file, **options)

def profiled():
    kinds = torch.profiler.ProfilerActivity
    with torch.profiler.profile(activities=[kinds.CPU, kinds.CUDA]) as profile:
        gpu + gpu
    with torch.autograd.profiler.emit_nvtx():
        gpu + gpu
    return "aten::add" in profile.key_averages().table()

def by_default(call, kind="torch.cuda.FloatTensor"):
    torch.set_default_tensor_type(kind)
    try:
        return call()
    finally:
        torch.set_default_tensor_type("torch.FloatTensor")

def placed(device, call):
    with torch.device(device):
        return call()

def selected(index, call):
    with torch.cuda.device(index):
        return call()

def inferred(call):
    with torch.inference_mode():
        return call(torch.ones(2, 2, device="cuda"))

def written(target, mask):
    target[:, mask[0]] = torch.ones(2, 2)
    return target

def masked(target, mask):
    target[mask] = 0.0
    return target

class Pair:
    # No tensor, but it has functions of torch, by the names that a program has for them.
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        return func is torch.empty_like

def streamed():
    with torch.cuda.stream(torch.cuda.Stream()):
        gpu.record_stream(torch.cuda.current_stream())
    return True

def mixed(**options):
    made = [nn.Parameter(torch.ones(2, device=device)) for device in ("cuda", "cpu")]
    for parameter in made:
        parameter.grad = torch.ones_like(parameter)
    torch.optim.Adam(made, 0.5, **options).step()
    return all((each < 1).all() for each in made)

def rounded(like):
    # by its own kernel: that of its parts rounds each of them
    x = torch.linspace(-3, 3, 96, device=like.device).bfloat16().requires_grad_()
    F.silu(x).sum().backward()
    ratio = torch.sigmoid(x.detach())
    return not torch.equal(x.grad, ratio * (1 + x.detach() * (1 - ratio)))

def seeds():
    torch.manual_seed(1)
    first = torch.rand(3, device="cuda").cpu()
    torch.manual_seed(1)
    torch.cuda.manual_seed_all(7)
    return torch.equal(first, torch.rand(3))
"""

FACTS = [
    # inference mode, in which operations that consist of others arrive whole
    "inferred(lambda x: x.half().device == x.half().float().device == x.t().contiguous().device == zero)",
    "inferred(lambda x: x.t().reshape(-1).is_cuda and x.type_as(x.double()).is_cuda and (x @ x).is_cuda)",
    "inferred(lambda x: x.half().cpu().device == cpu and host.half().cuda().device == zero)",
    "inferred(lambda x: nn.LSTM(2, 2).cuda()(x[None])[0].is_cuda and nn.Linear(2, 2).cuda()(x).is_cuda)",
    "inferred(lambda x: F.dropout(x, 0.5).is_cuda and F.scaled_dot_product_attention(x, x, x).is_cuda)",
    # devices
    "gpu.device == zero and str(gpu.device) == 'cuda:0' and gpu.is_cuda and not gpu.is_cpu",
    "host.device == cpu and not host.is_cuda and host.is_cpu and host.get_device() == -1",
    "(gpu * 2 + gpu[0]).get_device() == 0 and gpu.t().is_cuda and gpu.view(4).is_cuda",
    "gpu.cuda() is gpu and gpu.to('cuda') is gpu and host.cpu() is host and host.to('cpu') is host",
    "host.to(gpu).is_cuda and gpu.type_as(host).device == cpu and gpu.to(torch.float64).is_cuda",
    "gpu.to(bool).is_cuda and gpu.to(dtype=int).is_cuda and host.to('cuda', float).dtype == torch.float64",
    "host.to(torch.float64, device='cuda') if False else host.to('cuda', torch.float64).dtype"
    " == torch.float64",
    "torch.device(1) == one and isinstance(one, torch.device)"
    " and isinstance(torch.device('cpu'), torch.device)",
    "pickle.loads(pickle.dumps(one)) == one and type(one) == torch.device",
    "'cuda:0' in repr(gpu) and 'cuda' not in repr(host)",
    # copies
    "(lambda c: c.data_ptr() != gpu.data_ptr())(gpu.cpu())",
    "(lambda c: (c.fill_(5), host.max() == 1))(host.cuda())[1]",
    # types
    "gpu.type() == 'torch.cuda.FloatTensor' and host.type() == 'torch.FloatTensor'",
    "gpu.type(torch.LongTensor).type() == 'torch.LongTensor'",
    "host.type(torch.cuda.LongTensor).type() == 'torch.cuda.LongTensor'",
    "host.type('torch.cuda.HalfTensor').is_cuda and gpu.type(torch.float64).is_cuda",
    "isinstance(gpu, torch.cuda.FloatTensor) and not isinstance(gpu, torch.FloatTensor)",
    "isinstance(host, torch.FloatTensor) and not isinstance(host, torch.cuda.FloatTensor)",
    "torch.cuda.FloatTensor(2, 3).shape == (2, 3) and torch.cuda.LongTensor([1, 2]).is_cuda",
    "torch.FloatTensor(2).device == cpu and torch.Tensor(2).device == cpu"
    " and torch.FloatTensor([1.5]) == 1.5",
    "gpu.new(3).is_cuda and gpu.new([1.0]).is_cuda and not host.new(3).is_cuda",
    "gpu.new_zeros(2).is_cuda and gpu.new_zeros(2, device='cpu').device == cpu"
    " and gpu.new_tensor([1]).is_cuda",
    "isinstance(torch.autograd.Variable(gpu), torch.autograd.Variable)"
    " and torch.autograd.Variable(gpu).is_cuda",
    "torch.Tensor(gpu).is_cuda and torch.Tensor(gpu).data_ptr() == gpu.data_ptr()",
    # making
    "torch.zeros_like(gpu).is_cuda and torch.zeros_like(gpu, device='cpu').device == cpu",
    "torch.zeros_like(host, device='cuda').is_cuda and torch.randperm(3, device='cuda').is_cuda",
    "torch.tensor([1.0], device='cuda').is_cuda and torch.as_tensor([1.0], device='cuda').is_cuda",
    "torch.as_tensor(gpu) is gpu and torch.asarray([1], device='cuda').is_cuda",
    "F.one_hot(torch.tensor([1, 0]).cuda(), 3).is_cuda and torch.block_diag(gpu, gpu).is_cuda",
    "placed('cuda', lambda: torch.zeros(2).is_cuda and torch.tensor(1.0).is_cuda"
    " and nn.Linear(2, 2).weight.is_cuda)",
    "placed('cuda', lambda: torch.zeros(2, device='cpu').device) == cpu and torch.zeros(2).device == cpu",
    "by_default(lambda: torch.zeros(2).is_cuda and torch.tensor(1.0).is_cuda and torch.Tensor(2).is_cuda)",
    "by_default(lambda: torch.rand(2).dtype, 'torch.cuda.DoubleTensor') == torch.float64",
    "torch.set_default_device('cuda') or torch.ones(1).is_cuda and not torch.Tensor(1).is_cuda"
    " and not torch.set_default_device(None)",
    # modules and gradients
    "(lambda m: m.cuda() is m and all(p.is_cuda and p.is_leaf for p in m.parameters()))(nn.LSTM(2, 3))",
    "nn.BatchNorm2d(2).to(0).running_mean.is_cuda and not nn.Linear(2, 2).cuda().cpu().weight.is_cuda",
    "nn.Parameter(gpu).is_cuda and not nn.Parameter(host).cuda().is_leaf",
    "grad_of(lambda x: x.cuda() * gpu).device == cpu and grad_of(lambda x: x * gpu, zero).is_cuda",
    "grad_of(lambda x: Doubled.apply(x.cuda())).device == cpu",
    "grad_of(lambda x: torch.utils.checkpoint.checkpoint(lambda y: (y * gpu).relu(),"
    " x.cuda())).tolist() == [[1, 1]] * 2",
    "grad_of(lambda x: nn.Conv1d(2, 2, 1).cuda()(x[None])[0], zero).is_cuda",
    "torch.autograd.grad((gpu * (leaf := weight.cuda())).sum(), leaf)[0].is_cuda",
    "(lambda p: (setattr(p, 'data', gpu[0]), p.is_cuda)[1])(nn.Parameter(torch.ones(2)))",
    "stepped(torch.optim.SGD, momentum=0.9) and stepped(torch.optim.Adam)"
    " and stepped(torch.optim.AdamW, fused=True)",
    "stepped(torch.optim.Adam, foreach=False) and stepped(torch.optim.RMSprop, foreach=True)",
    "scaled()",
    "copy.deepcopy(nn.Linear(2, 2).cuda()).weight.is_cuda and copy.deepcopy(gpu).is_cuda",
    # subclasses
    "(lambda x: x.unit == 'm' and x.doubled().device == zero and type(x.cpu()) is Named)"
    "(host.as_subclass(Named).cuda())",
    "Named([1.0]).doubled().tolist() == [2.0] and Named(gpu).is_cuda and type(Named(2, 3).cuda()) is Named",
    "isinstance(gpu.as_subclass(Named).cpu().numpy(), __import__('numpy').ndarray)",
    "noted()",
    "wrapped() and (Wrapped(gpu) @ Wrapped(gpu)).device == zero and Wrapped(host).cuda().inner.is_cuda",
    "lowered(lambda: Wrapped(gpu) @ Wrapped(gpu)) == torch.float16",
    "nn.LazyLinear(2).cuda()(gpu).is_cuda",
    # autocast
    "lowered(lambda: (gpu @ gpu, F.linear(gpu, gpu), torch.einsum('ij,jk', gpu, gpu), gpu.relu()))"
    " == [torch.float16] * 3 + [torch.float32]",
    "lowered(lambda: nn.Conv2d(1, 1, 1).cuda()(gpu[None, None]), torch.bfloat16) == torch.bfloat16",
    "lowered(lambda: (gpu.half().sum(), gpu.half().softmax(0), gpu.half().exp(), gpu.half().norm(),"
    " F.mse_loss(gpu.half(), gpu))) == [torch.float32] * 5",
    "lowered(lambda: (gpu.half().sum(dtype=torch.float64), gpu.half() + 1, gpu.double() @ gpu.double()))"
    " == [torch.float64, torch.float16, torch.float64]",
    "lowered(lambda: (torch.dot(gpu[0].half(), gpu[0]), torch.dot(gpu[0].half(), gpu[0].half()),"
    " torch.cat([gpu, gpu.half()]))) == [torch.float32, torch.float16, torch.float32]",
    "lowered(lambda: (host @ host, host.half().sum())) == [torch.float32, torch.float16]",
    "lowered(lambda: (nn.LSTM(2, 3).cuda()(gpu[None])[0], nn.GRUCell(2, 3).cuda()(gpu)))"
    " == [torch.float16] * 2",
    "lowered(lambda: F.scaled_dot_product_attention(*[gpu[None]] * 3)) == torch.float16",
    "lowered(lambda: Squared.apply(gpu.half())) == torch.float32",
    "lowered(lambda: nn.Linear(2, 2).cuda().bfloat16()(gpu), torch.bfloat16) == torch.bfloat16",
    "nested() == [torch.float16, torch.float32, torch.bfloat16, torch.float16, torch.float32]",
    "grad_of(lambda x: Doubled.apply(x.cuda()) @ gpu).dtype == torch.float32 and overflowed()",
    "lowered(lambda: torch.utils.checkpoint.checkpoint(nn.Linear(2, 2).cuda(), gpu)) == torch.float16",
    "in_thread(lambda: 1 / ((gpu @ gpu).dtype == torch.float32)) is None",
    # compilers, exporters and profilers
    "exported(nn.Linear(2, 2).cuda()) == zero and exported(Shifted()) == zero",
    "reloaded(torch.jit.script(nn.Linear(2, 2).cuda()), map_location='cuda')(gpu).device == zero",
    "reloaded(torch.jit.trace(nn.Linear(2, 2).cuda(), gpu), map_location='cuda')(gpu).device == zero",
    "reloaded(torch.jit.script(nn.Linear(2, 2).cuda()), map_location='cpu')(host).device == cpu",
    "torch.jit.freeze(torch.jit.script(nn.Linear(2, 2).cuda().eval()))(gpu).is_cuda",
    "'aten::linear' in str(torch.jit.script(nn.Linear(2, 2).cuda()).graph)",
    "copy.deepcopy(torch.jit.script(nn.Linear(2, 2).cuda())).weight.is_cuda",
    "profiled()",
    # sequences, sparse tensors, several GPUs
    "nn.LSTM(2, 3).cuda()(torch.ones(4, 1, 2).cuda())[1][0].is_cuda and nn.GRUCell(2, 3).cuda()(gpu).is_cuda",
    "(lambda p: p.is_cuda"
    " and not p.batch_sizes.is_cuda)(pack_padded_sequence(gpu[:, :, None], torch.tensor([2, 1])))",
    "[t.is_cuda for t in pad_packed_sequence(pack_padded_sequence(gpu[:, :, None], [2, 1]))]"
    " == [True, False]",
    "gpu.to_sparse().is_cuda and (gpu.to_sparse() @ gpu).is_cuda and host.to_sparse().cuda().t().is_cuda",
    "torch.sparse_coo_tensor([[0], [1]], [1.0], (2, 2), device='cuda').to_dense().is_cuda",
    "torch.sparse_coo_tensor(indices=[[0], [1]], values=gpu[0, :1], size=(2, 2)).device == zero",
    "torch.sparse_csr_tensor([0, 1, 2], [0, 1], [1.0, 2.0], device='cuda').to_dense().device == zero",
    "torch.sparse_csr_tensor(torch.tensor([0, 1, 2]), torch.tensor([0, 1]), gpu[0], device='cuda').is_cuda",
    "torch.sparse.FloatTensor(torch.tensor([[0], [1]]), torch.ones(1), (2, 2)).cuda().type()"
    " == 'torch.cuda.sparse.FloatTensor'",
    "grad_of(lambda leaf: nn.DataParallel(nn.Linear(2, 2).cuda())(leaf)).device == cpu",
    "nn.DataParallel(nn.Linear(2, 2).cuda())(host).device == zero",
    "gpu[torch.tensor([0])].is_cuda and gpu[gpu > 0].is_cuda and (gpu + torch.tensor(1.0)).is_cuda",
    "torch.linalg.inv(torch.eye(2).cuda()).is_cuda and torch.fft.rfft(gpu).is_cuda"
    " and torch.fft.fftfreq(3).is_cpu",
    "torch.func.grad(lambda x: (x * gpu).sum())(gpu).is_cuda and torch.vmap(lambda x: x * 2)(gpu).is_cuda",
    # files
    "saved(gpu).is_cuda and saved(gpu, 'cpu').device == cpu and saved(gpu, torch.device('cpu')).is_cpu",
    "saved(gpu, lambda storage, _: storage).device == cpu and saved(host, lambda s, _: s.cuda(0)).is_cuda",
    "saved({'w': nn.Linear(2, 2).cuda().state_dict()})['w']['weight'].is_cuda",
    "saved(gpu, _use_new_zipfile_serialization=False).is_cuda and pickle.loads(pickle.dumps(gpu)).is_cuda",
    # torch.cuda
    "torch.cuda.get_device_name(0) and torch.cuda.get_device_capability() >= (7, 0) and torch.version.cuda",
    "torch.cuda.get_device_properties(0).total_memory > 2**30 and torch.cuda.mem_get_info()[0] > 0",
    "torch.cuda.reset_peak_memory_stats() is None and torch.cuda.empty_cache() is None",
    "{type(torch.cuda.nvtx.range_push('x')), type(torch.cuda.nvtx.range_pop())} == {int}",
    "(s := torch.cuda.Stream()).wait_stream(torch.cuda.current_stream()) is None and s.query()"
    " and s.device == zero",
    "streamed()",
    "(e := torch.cuda.Event(enable_timing=True)).record() or e.elapsed_time(e) == 0.0",
    "torch.cuda.set_rng_state(torch.cuda.get_rng_state()) is None and torch.cuda.initial_seed() >= 0",
    "torch.cuda.set_rng_state(new_state=torch.cuda.get_rng_state(device=0), device='cuda') is None",
    "torch.cuda.set_rng_state_all(new_states=torch.cuda.get_rng_state_all()) is None",
    "torch.cuda.current_stream().wait_stream(stream=torch.cuda.Stream()) is None",
    "not hasattr(torch, 'accelerator') or torch.accelerator.is_available() and"
    " torch.accelerator.current_accelerator().type == 'cuda'",
    "torch.backends.cudnn.is_available() and torch.backends.cuda.is_built()"
    " and torch.cuda.is_bf16_supported()",
    "torch.Generator(device='cuda').device.type == 'cuda'"
    " and isinstance(torch.default_generator, torch.Generator)",
    "in_thread(lambda: host + gpu).startswith('RuntimeError: Expected all tensors')",
    "in_thread(lambda: host.cuda() + gpu) is None",
    "len(__import__('torch.utils.cpp_extension').utils.cpp_extension.include_paths(device_type='cuda')) > 1",
    "list(torch.compile(nn.Linear(2, 2)).state_dict()) == ['_orig_mod.weight', '_orig_mod.bias']",
    "torch.compile(nn.Linear(2, 2))(host).shape == (2, 2)",
    "torch.cuda.is_available() and torch.cuda.is_initialized() and torch.cuda.memory_allocated() > 0",
    "torch.cuda.synchronize() is None and torch.cuda.ipc_collect() is None",
    "torch._C._cuda_clearCublasWorkspaces() is None",
    "torch.cuda.manual_seed(5) or torch.cuda.initial_seed() == 5 and len(torch.cuda.get_rng_state_all()) > 0",
    "written(torch.zeros(2, 2), (host > 0).cuda()).sum() == masked(torch.ones(2, 2), gpu < 0).sum() == 4",
    "masked(torch.ones(2, 2), gpu > 0).sum() == 0 and torch.zeros(2).fill_(gpu.sum()).sum() == 8",
    "F.ctc_loss(torch.zeros(4, 1, 3).cuda().log_softmax(-1), *map(torch.tensor, ([[1]], [4], [1]))).is_cuda",
    "torch.Generator('cuda').device == torch.device('cuda') and torch.from_dlpack(gpu).device == zero",
    "torch.backends.cudnn.is_acceptable(gpu) and not torch.backends.cudnn.is_acceptable(host)",
    "mixed() and mixed(fused=True)",
    "torch.empty_like(Pair())",
    "torch.autograd.backward(weight.cuda().sum(), host.sum()) is None",
    "rounded(gpu)",
    "host.pin_memory().is_pinned() and not host.is_pinned() and torch.empty(1, pin_memory=True).is_pinned()",
    "[b.is_pinned() for b in torch.utils.data.DataLoader(host, pin_memory=True)] == [True, True]",
    "gpu.storage().is_cuda and gpu.untyped_storage().device == zero"
    " and gpu.untyped_storage().cpu().device == cpu",
]

TWO_GPUS = [
    "inferred(lambda x: x.to(1).half().device == x.half().cuda(1).device == one)",
    "gpu.to(1).device == one and gpu.cuda(1).cuda().device == zero and host.to(host.new_ones(1)) is host",
    "selected(1, lambda: host.cuda().device) == one and torch.cuda.current_device() == 0",
    "torch.rand(2, device='cuda:1').device == one and torch.arange(3, device=0).is_cuda",
    "grad_of(lambda x: nn.DataParallel(nn.Linear(2, 2).cuda(), [0, 1])(x), zero).device == zero",
    "saved(gpu, {'cuda:0': 'cuda:1'}).device == one and saved(gpu, torch.device('cpu')).device == cpu",
    "torch.cuda.is_available() and torch.cuda.device_count() == 2 and torch.cuda.is_initialized()",
    "torch.cuda.memory_allocated() and torch.cuda.max_memory_allocated(1) and torch.cuda.memory_summary()",
    "torch.cuda.synchronize(1) is None and torch.cuda.ipc_collect() is None",
    "torch.cuda.manual_seed(5) or torch.cuda.initial_seed() == 5"
    " and len(torch.cuda.get_rng_state_all()) == 2",
    "not hasattr(torch, 'accelerator') or torch.accelerator.device_count() == 2 and"
    " torch.accelerator.current_device_index() == 0",
    "type(host.as_subclass(Named).cuda().to(1)) is Named",
    "saved(host, 'cuda:1').device == one and saved(host, lambda s, _: s.cuda(1)).device == one",
]
OF_THE_SIMULATION = [
    "torch.rand(1, device='cuda', generator=torch.Generator('cuda').manual_seed(3)).cpu()"
    " == torch.rand(1, generator=torch.Generator().manual_seed(3))",
    "seeds()",
    "torch.jit.script(Doubled.forward) is Doubled.forward and torch.compile(seeds) is seeds",
    "torch.compile(mode='default')(seeds) is seeds",
]

SAME = "Expected all tensors to be on the same device"
FAILURES = {
    "gpu + host": SAME,
    "gpu @ host": SAME,
    "torch.cat([gpu, host])": SAME,
    "torch.stack([gpu.sum(), host.sum()])": SAME,
    "Wrapped(gpu) + Wrapped(host)": SAME,
    "nn.Linear(2, 2)(gpu)": SAME,
    "nn.Embedding(3, 2).cuda()(torch.tensor([1]))": SAME,
    "F.cross_entropy(gpu, torch.tensor([0, 1]))": SAME,
    "host.sum().add_(gpu.sum())": SAME,
    "gpu.__setitem__(gpu > 0, torch.ones(4))": SAME,
    "torch.add(gpu, gpu, out=host)": SAME,
    "host[torch.tensor([0]).cuda()]": "indices should be either on cpu or on the same device",
    "host[host.cuda() > 0]": "indices should be either on cpu or on the same device",
    "gpu.numpy()": "can't convert cuda:0 device type tensor to numpy",
    "__import__('numpy').asarray(gpu)": "can't convert cuda:0 device type tensor to numpy",
    "gpu.pin_memory()": "cannot pin 'torch.cuda.FloatTensor'",
    "pack_padded_sequence(gpu, torch.tensor([2, 1]).cuda())": "'lengths' argument should be a"
    " 1D CPU int64 tensor",
    "torch.rand(1, device='cuda', generator=torch.Generator())": "Expected a 'cuda' device"
    " type for generator",
    "torch.rand(1, generator=torch.Generator('cuda'))": "Expected a 'cpu' device type for generator",
    "host.cuda(2)": "invalid device ordinal",
    "torch.zeros(1, device='cuda:5')": "invalid device ordinal",
    "torch.cuda.set_device(2)": "invalid device ordinal",
    "torch.cuda.FloatTensor(host)": "legacy constructor expects device type: cuda",
    "torch.FloatTensor(gpu)": "legacy constructor expects device type: cpu",
    "setattr(weight, 'grad', gpu[0])": "attempting to assign a gradient with device type 'cuda'",
    "gpu.clamp(min=host.sum())": SAME,
    "torch.addcdiv(gpu, gpu, host.sum())": SAME,
    "torch.sparse_coo_tensor(torch.zeros(2, 1).long(), gpu[0, :1], (2, 2))": SAME,
    "(weight.cuda() * gpu).backward(host)": "invalid gradient at index 0",
    "host.record_stream(torch.cuda.current_stream())": "Could not run 'aten::record_stream'",
    "torch.cuda.set_device('cuda')": "Expected a torch.device with a specified index or an integer",
    "torch.set_rng_state(torch.get_rng_state().cuda())": "RNG state must be a torch.ByteTensor",
    "torch.cuda.set_rng_state(torch.cuda.get_rng_state().cuda())": "RNG state must be a torch.ByteTensor",
    "saved(gpu, 0)": "'int' object is not callable",
    "lowered(lambda: F.binary_cross_entropy(gpu, gpu))": "unsafe to autocast",
}

FAILURES_OF_TWO_GPUS = {
    "gpu.cuda(1) + gpu": SAME,
    "nn.DataParallel(nn.Linear(2, 2))(host)": "must have its parameters and buffers on device cuda:0",
    "saved(gpu.cuda(1), 'cuda:3')": "device_count() is 2",
}
FAILURES_OF_THE_SIMULATION = {"torch.cuda.CUDAGraph()": "does not support CUDA graphs"}
EXPECTED = {**FAILURES, **FAILURES_OF_TWO_GPUS, **FAILURES_OF_THE_SIMULATION}
ASK = """
answers = {{}}
for line in {lines!r}:
    try:
        answers[line] = str(bool(eval(line)))
    except Exception as error:
        answers[line] = f"{{type(error).__name__}}: {{error}}"
print(json.dumps(answers))
"""


def simulated(folder: Path, code: str, *arguments: str, **plan: Any) -> Ran:
    return run_program(folder, code, *arguments, machine="simulated", copies=False, **plan)


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Evaluate every line in one process with two GPUs, and return the results or errors."""
    ask = ASK.format(lines=[*FACTS, *TWO_GPUS, *OF_THE_SIMULATION, *EXPECTED])
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DEVICEFIX_GPUS", "2")
        ran = simulated(tmp_path_factory.mktemp("answers"), PRELUDE + ask)
    assert ran.status == 0, ran.errors
    found: dict[str, str] = json.loads(ran.output.splitlines()[-1])
    return found


@pytest.fixture(scope="module")
def answers_of_cuda(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Evaluate the lines for one GPU on CUDA itself, if this machine has it."""
    if not os.environ.get("DEVICEFIX_TEST_GPUS"):
        pytest.skip("needs a GPU")
    script = tmp_path_factory.mktemp("cuda") / "lines.py"
    script.write_text(PRELUDE + ASK.format(lines=[*FACTS, *FAILURES]))
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": os.environ["DEVICEFIX_TEST_GPUS"]}
    ran = subprocess.run(
        [sys.executable, script], env=environment, capture_output=True, text=True, check=True
    )
    found: dict[str, str] = json.loads(ran.stdout.splitlines()[-1])
    return found


@pytest.mark.parametrize("line", FACTS)
def test_cuda_reports_what_the_machine_does(line: str, answers_of_cuda: dict[str, str]) -> None:
    assert answers_of_cuda[line] == "True"


@pytest.mark.parametrize("line", FAILURES)
def test_cuda_fails_as_the_machine_does(line: str, answers_of_cuda: dict[str, str]) -> None:
    """The messages vary with the version of torch."""
    assert answers_of_cuda[line] not in ("True", "False")


@pytest.mark.parametrize("line", [*FACTS, *TWO_GPUS, *OF_THE_SIMULATION])
def test_the_machine_reports_what_cuda_does(line: str, answers: dict[str, str]) -> None:
    assert answers[line] == "True"


@pytest.mark.parametrize("line", EXPECTED)
def test_the_machine_fails_as_cuda_does(line: str, answers: dict[str, str]) -> None:
    assert EXPECTED[line] in answers[line]


# --- processes ---------------------------------------------------------------------------------------


def test_an_empty_cuda_visible_devices_of_the_run_is_ignored(tmp_path: Path) -> None:
    ran = simulated(
        tmp_path,
        """
        import os, torch
        print(torch.cuda.device_count(), "CUDA_VISIBLE_DEVICES" in os.environ)
        """,
    )
    assert ran.output == "1 False\n", ran.errors


def test_visible_gpus_are_fixed_at_the_first_request(tmp_path: Path) -> None:
    ran = simulated(
        tmp_path,
        """
        import os, torch
        os.environ["CUDA_VISIBLE_DEVICES"] = "2,3"
        print(torch.cuda.device_count())
        os.environ["CUDA_VISIBLE_DEVICES"] = "0"
        print(torch.cuda.device_count(), torch.ones(1).cuda(1).device)
        """,
    )
    assert ran.output == "2\n2 cuda:1\n", ran.errors


def test_the_fork_of_a_process_that_used_cuda_cannot_use_it(tmp_path: Path) -> None:
    ran = simulated(
        tmp_path,
        """
        import multiprocessing, torch

        def child(queue):
            try:
                torch.ones(1).cuda()
                queue.put("fine")
            except RuntimeError as error:
                queue.put(str(error))

        context = multiprocessing.get_context("fork")
        queue = context.Queue()
        for use in (False, True):
            if use:
                torch.ones(1).cuda()
            else:
                print(torch.cuda.device_count())
            process = context.Process(target=child, args=(queue,))
            process.start()
            print(queue.get())
            process.join()
        """,
    )
    lines = ran.output.splitlines()
    assert lines[:2] == ["1", "fine"] and "Cannot re-initialize CUDA in forked" in lines[2], ran.errors
    assert len(ran.of("operations")) == 3  # also those of children that end by os._exit


def test_the_fork_of_a_process_that_asked_for_cuda_cannot_use_it(tmp_path: Path) -> None:
    ran = simulated(
        tmp_path,
        """
        import os, torch
        torch.manual_seed(2)
        os.environ["CUDA_VISIBLE_DEVICES"] = "0,1"
        print(torch.cuda.is_available(), torch.cuda.is_initialized())
        os.environ["CUDA_VISIBLE_DEVICES"] = "0"
        print(torch.cuda.device_count(), flush=True)
        if os.fork() == 0:
            try:
                torch.ones(1).cuda()
            except RuntimeError as error:
                print(str(error)[:19], flush=True)
            os._exit(0)
        os.wait()
        """,
    )
    assert ran.output.splitlines() == ["True False", "2", "Cannot re-initialize"[:19]], ran.errors


@pytest.mark.slow
def test_tensors_go_to_spawned_processes_and_back(tmp_path: Path) -> None:
    ran = simulated(
        tmp_path,
        """
        import torch
        import torch.multiprocessing as mp

        def child(rank, shared, model, queue):
            print(rank, shared.device, model.weight.device, flush=True)
            shared += 1
            kept = torch.full((2,), 3.0).cuda()
            queue.put(kept)
            queue.join()

        if __name__ == "__main__":
            shared = torch.zeros(1).cuda()
            model = torch.nn.Linear(2, 2).cuda().share_memory()
            queue = mp.get_context("spawn").JoinableQueue()
            context = mp.spawn(child, (shared, model, queue), nprocs=1, join=False)
            got = queue.get()
            print(got.device, got.tolist(), shared.item(), flush=True)
            queue.task_done()
            context.join()
        """,
    )
    assert sorted(ran.output.splitlines()) == ["0 cuda:0 cuda:0", "cuda:0 [3.0, 3.0] 1.0"], ran.errors


def test_processes_that_train_together(tmp_path: Path) -> None:
    ran = simulated(
        tmp_path,
        """
        import os, torch, torch.distributed as dist
        os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0", "RANK": "0", "WORLD_SIZE": "1"}
        store = dist.HashStore()
        dist.init_process_group(backend="nccl", store=store, rank=0, world_size=1)
        torch.cuda.set_device(0)
        model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 2).cuda(), device_ids=[0])
        loss = model(torch.ones(1, 2)).sum()
        loss.backward()
        dist.all_reduce(loss.detach())
        dist.barrier(device_ids=[0])
        print(loss.device, model.module.weight.grad.device, dist.is_nccl_available())
        dist.destroy_process_group()
        """,
    )
    assert ran.output == "cuda:0 cuda:0 True\n", ran.errors


def test_workers_of_a_loader(tmp_path: Path) -> None:
    ran = simulated(
        tmp_path,
        """
        import torch
        from torch.utils.data import DataLoader, TensorDataset
        model = torch.nn.Linear(2, 2).cuda()
        data = TensorDataset(torch.ones(4, 2), torch.arange(4))
        for x, y in DataLoader(data, batch_size=2, num_workers=1, pin_memory=True):
            print(x.is_pinned(), x.device, model(x.cuda(non_blocking=True)).device, y.tolist())
        """,
    )
    assert ran.output.splitlines() == ["True cpu cuda:0 [0, 1]", "True cpu cuda:0 [2, 3]"], ran.errors


def test_samplers_use_the_default_tensor_type(tmp_path: Path) -> None:
    ran = simulated(
        tmp_path,
        """
        import torch
        torch.set_default_tensor_type("torch.cuda.FloatTensor")
        next(iter(torch.utils.data.DataLoader([1, 2], shuffle=True)))
        """,
    )
    assert ran.status == 1 and "Expected a 'cuda' device type for generator but found 'cpu'" in ran.errors


# --- tracebacks --------------------------------------------------------------------------------------


def test_the_traceback_of_the_last_error_shows_no_frames_of_devicefix(tmp_path: Path) -> None:
    ran = simulated(
        tmp_path,
        """
        import torch
        def mixed():
            return torch.ones(2).cuda() + torch.ones(2)
        try:
            mixed()
        except RuntimeError as error:
            raise ValueError("at the end") from error
        """,
    )
    assert ran.status == 1 and ran.errors.count("Expected all tensors to be on the same device") == 1
    assert "at the end" in ran.errors and "verify/runtime" not in ran.errors


# --- recorded events ---------------------------------------------------------------------------------

DRAWS = """
import torch
torch.manual_seed(3)
model = torch.nn.Linear(4, 4).cuda()
for _ in range(2):
    torch.nn.functional.dropout(model(torch.ones(1, 4).cuda()))
noise = {noise}
print(noise.sum().item())
"""


@pytest.mark.slow
def test_random_draws_are_recorded_with_their_lines(tmp_path: Path) -> None:
    program = DRAWS.format(noise="torch.randn(3).cuda()")
    ran = simulated(tmp_path, program)
    draws = [(e["device"], e["op"], e["numel"], e["line"]) for e in ran.of("draw")]
    assert draws == [
        ("cuda:0", "manual_seed", 3, 2),
        ("cpu", "uniform_", 16, 3),
        ("cpu", "uniform_", 4, 3),
        ("cuda:0", "bernoulli_", 4, 5),
        ("cpu", "randn", 3, 6),
    ]
    assert {Path(e["file"]).name for e in ran.of("draw")} == {"program.py"}
    assert [number for e in ran.of("drawn") for number in e["numbers"]] == [0, 1, 2, 3, 3, 4]

    moved = simulated(tmp_path, DRAWS.format(noise="torch.randn(3, device='cuda')"))
    assert [e["device"] for e in moved.of("draw")][-1] == "cuda:0"
    assert moved.output == ran.output  # all use the generator of the CPU

    plain = run_program(tmp_path, program.replace(".cuda()", ""), machine="cuda", copies=False)
    assert plain.output == ran.output, plain.errors


@pytest.mark.slow
def test_round_alike_gives_a_plain_run_the_rounding_of_the_machine(tmp_path: Path) -> None:
    program = """
        import sys, torch
        if "alike" in sys.argv:
            from devicefix.verify.runtime.machine import round_alike
            round_alike()
        torch.manual_seed(0)
        x = torch.rand(1000, 3, requires_grad=True)
        device = "cuda" if torch.cuda.is_available() else "cpu"
        (x.to(device) * 3).prod(1).sum().backward()
        print([hash(value) for value in x.grad.flatten().tolist()])
    """
    here = simulated(tmp_path, program).output
    assert here == run_program(tmp_path, program, "alike", machine="cuda", copies=False).output
    assert here != run_program(tmp_path, program, machine="cuda", copies=False).output


@pytest.mark.parametrize(("fast", "computed"), [(True, "bfloat16"), (False, "float32")])
def test_autocast_computes_in_float32_where_the_cpu_has_no_instructions(
    fast: bool, computed: str, tmp_path: Path
) -> None:
    """The operands and each result are rounded in any case, also those of the backward pass."""
    ran = simulated(
        tmp_path,
        """
        import sys, torch
        from torch.nn import functional as F
        from torch.utils._python_dispatch import TorchDispatchMode

        sys.modules["devicefix.verify.runtime.machine.autocast"]._is_fast = lambda _: sys.argv[1] == "True"
        dtypes = set()

        class Dtypes(TorchDispatchMode):
            def __torch_dispatch__(self, func, types, args=(), kwargs=None):
                if func.__name__.split(".")[0] in ("convolution", "convolution_backward", "mm", "addmm"):
                    dtypes.add(str(args[0].dtype))
                return func(*args, **(kwargs or {}))

        def rounded(x):
            return x.bfloat16().float()

        torch.manual_seed(0)
        x, kernel, weight = torch.randn(2, 3, 8, 8), torch.randn(4, 3, 3, 3), torch.randn(5, 6)
        ones = [each.cuda().requires_grad_() for each in (x, kernel, weight)]
        others = [each.clone().requires_grad_() for each in (x, kernel, weight)]
        with Dtypes():
            with torch.autocast("cuda", dtype=torch.bfloat16):
                y = F.linear(F.conv2d(ones[0], ones[1]), ones[2])
            y.float().sum().backward()
        z = rounded(F.linear(rounded(F.conv2d(*map(rounded, others[:2]))), rounded(others[2])))
        z.sum().backward()
        print(*dtypes, y.dtype, y.device)
        for one, other in zip([y, *(each.grad for each in ones)], [z, *(each.grad for each in others)]):
            one = one.detach().cpu()
            print(torch.equal(rounded(one), one.float()), torch.allclose(one.float(), other, 1e-2, 1e-2))
        """,
        str(fast),
    )
    first, *others = ran.output.splitlines()
    assert first == f"torch.{computed} torch.bfloat16 cuda:0", ran.errors
    assert others == ["True True"] * 4


def test_a_gpu_that_the_program_names_is_there_unless_their_number_is_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = """
        import torch
        torch.save(torch.ones(1).to("cuda:3"), "x.pt")
        print(torch.load("x.pt").device, torch.load("x.pt", "cuda:2").device, torch.cuda.device_count())
        """
    assert simulated(tmp_path, program).output == "cuda:3 cuda:2 1\n"
    monkeypatch.setenv("DEVICEFIX_GPUS", "2")
    few = simulated(tmp_path, program)
    assert few.status == 1 and "invalid device ordinal" in few.errors


def test_functions_take_the_arguments_of_torch_by_name() -> None:
    import torch

    from devicefix.verify.runtime.machine import cuda
    from devicefix.verify.runtime.machine.patches import Patches
    from devicefix.verify.runtime.machine.state import Machine

    real = {
        name: inspect.signature(each) for name, each in vars(torch.cuda).items() if _is_public(name, each)
    }
    patches = Patches()
    try:
        cuda.install(Machine(), patches)
        for name, there in real.items():
            here = inspect.signature(vars(torch.cuda)[name]).parameters
            takes_any = any(each.kind is each.VAR_KEYWORD for each in here.values())
            assert takes_any or there.parameters.keys() <= here.keys(), name
    finally:
        patches.swap()


def _is_public(name: str, value: object) -> bool:
    return inspect.isfunction(value) and not name.startswith("_")


def test_operations_are_counted_where_they_run(tmp_path: Path) -> None:
    program = """
        import torch
        x = torch.ones(2).{move}
        for _ in range(50):
            x = x * 2
    """
    counts = [
        simulated(tmp_path, program.format(move=move)).of("operations")[0] for move in ("cuda()", "cpu()")
    ]
    assert counts[0]["cuda"] >= 50 > counts[0]["cpu"]
    assert counts[1]["cpu"] >= 50 and counts[1]["cuda"] == 0


@pytest.mark.slow
def test_places_of_tensors_do_not_leak_memory(tmp_path: Path) -> None:
    ran = simulated(
        tmp_path,
        """
        import gc, resource, torch
        x = torch.ones(1000).cuda()
        def used():
            gc.collect()
            return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        for round in range(2):
            for _ in range(20000):
                y = x * 2
                z = y.view(10, 100).cpu()
            before, after = (after if round else 0), used()
        print(after - before < 2000, len(gc.get_objects()) < 10**6)
        """,
    )
    assert ran.output == "True True\n", ran.errors
