"""main_moco.py with one process for each GPU: pretrain, resume; then main_lincls.py with what was learned."""

import builtins
import json
import os
import random
import runpy
import socket
import sys
import types

import numpy as np
import timm.layers
import torch
import torchvision
from PIL import Image

torch.set_num_threads(1)
real_print = print
processes, scalars = [], []


class Writer:
    def add_scalar(self, name, value, step):
        scalars.append((name, value))

    def close(self):
        pass


def module(name, **content):
    made = types.ModuleType(name)
    made.__dict__.update(content)
    sys.modules[name] = made


module("torch.utils.tensorboard", SummaryWriter=Writer)
module("timm.models.layers.helpers", to_2tuple=timm.layers.to_2tuple)


def spawn(fn, args=(), nprocs=1, **options):
    """Run the processes here, one after the other."""
    processes.append(nprocs)
    for rank in range(nprocs):
        fn(rank, *args)


torch.multiprocessing.spawn = spawn
RealLoader = torch.utils.data.DataLoader
torch.utils.data.DataLoader = lambda *a, num_workers=0, **k: RealLoader(*a, **k)
real_load = torch.load
torch.load = lambda *a, **k: real_load(*a, **{**k, "weights_only": False})
real_crop = torchvision.transforms.RandomResizedCrop
torchvision.transforms.RandomResizedCrop = lambda size, **k: real_crop(32, **k)
torchvision.transforms.CenterCrop = lambda size: torchvision.transforms.Resize((32, 32))


def tiny(zero_init_residual=False, num_classes=10):
    block = torchvision.models.resnet.BasicBlock
    return torchvision.models.ResNet(block, [1, 1, 1, 1], num_classes, zero_init_residual)


torchvision.models.tinynet = tiny
rng = np.random.default_rng(0)
for split, count in (("train", 5), ("val", 2)):
    for c in range(2):
        base = rng.integers(0, 256, (4, 4, 3), dtype=np.uint8)
        os.makedirs(f"data/{split}/c{c}")
        for i in range(count):
            noisy = np.asarray(Image.fromarray(base).resize((40, 40)), int)
            noisy += rng.integers(-30, 30, (40, 40, 3))
            Image.fromarray(noisy.clip(0, 255).astype(np.uint8)).save(f"data/{split}/c{c}/{i}.png")


def script(*argv):
    builtins.print = real_print
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()
    for seed in (random.seed, np.random.seed, torch.manual_seed):
        seed(0)
    with socket.socket() as s:
        s.bind(("localhost", 0))
        url = f"tcp://localhost:{s.getsockname()[1]}"
    sys.argv = [*argv, "--dist-url", url, "--world-size", "1", "--rank", "0", "--multiprocessing-distributed"]
    sys.argv += ["-a", "tinynet", "-p", "1", "-b", "4", "data"]
    runpy.run_path(argv[0], run_name="__main__")


pretrain = ["main_moco.py", "--moco-dim", "8", "--moco-mlp-dim", "16", "--lr", "8"]
pretrain += ["--optimizer", "lars", "--moco-m-cos"]
script(*pretrain, "--epochs", "1", "--warmup-epochs", "0")
script(*pretrain, "--epochs", "2", "--warmup-epochs", "0", "--resume", "checkpoint_0000.pth.tar")
learned = real_load("checkpoint_0001.pth.tar", map_location="cpu", weights_only=False)
script("main_lincls.py", "--epochs", "1", "--lr", "0.5", "--pretrained", "checkpoint_0001.pth.tar")
probe = real_load("checkpoint.pth.tar", map_location="cpu", weights_only=False)
builtins.print = real_print


def size(state):
    return float(sum(v.double().abs().sum() for v in state.values()))


def numbered(values, name=""):
    """Give each number of a list a name of its own, so that it is compared with a tolerance."""
    if isinstance(values, dict):
        return {k: v for key, each in values.items() for k, v in numbered(each, f"{name} {key}").items()}
    if isinstance(values, (list, tuple)):
        return {k: v for i, each in enumerate(values) for k, v in numbered(each, f"{name} {i}").items()}
    return {name.strip(): values}


print(
    "RESULT "
    + json.dumps(
        numbered(
            {
                "processes": processes,
                "loss": [value for name, value in scalars],
                "wrapped": all(key.startswith("module.") for key in learned["state_dict"]),
                "epoch": learned["epoch"],
                "learned": size(learned["state_dict"]),
                "probe": size(probe["state_dict"]),
                "acc": float(probe["best_acc1"]),
            }
        )
    )
)
