"""Runs train.py on made-up images under torchrun's variables; saves and resumes."""

import json
import os
import random
import runpy
import socket
import sys
import types

import numpy as np
import torch
import torch.utils.data
import torchvision
from PIL import Image

torch.set_num_threads(1)
np.int = int


def module(name, **content):
    made = types.ModuleType(name)
    made.__dict__.update(content)
    sys.modules[name] = made


module("thinplate")
module("git")
module("util.logger", TensorboardLogger=lambda *args: types.SimpleNamespace(log_string=lambda *text: None))
real_resize, real_crop = torchvision.transforms.Resize, torchvision.transforms.RandomCrop
torchvision.transforms.Resize = lambda size, *a, **k: real_resize(64, *a, **k)
torchvision.transforms.RandomCrop = lambda size, **k: real_crop((64, 64), **k)
RealLoader = torch.utils.data.DataLoader
torch.utils.data.DataLoader = lambda *a, num_workers=0, worker_init_fn=None, **k: RealLoader(*a, **k)


from dataset import static_dataset  # noqa: E402
from model import losses, mod_resnet, modules  # noqa: E402

static_dataset.random_tps_warp = lambda image, mask, scale: (image, mask)
real_zeros = np.zeros


def zeros(shape, *args, **kwargs):
    return real_zeros((3, 64, 64) if shape == (3, 384, 384) else shape, *args, **kwargs)


np.zeros = zeros
mod_resnet.model_zoo.load_url = lambda url: torchvision.models.resnet18().state_dict()
modules.models.resnet50 = lambda pretrained: torchvision.models.ResNet(
    torchvision.models.resnet.Bottleneck, [1, 1, 1, 1]
)
steps = []
real_compute = losses.LossComputer.compute


def compute(self, data, it):
    found = real_compute(self, data, it)
    steps.append(float(found["total_loss"]))
    return found


losses.LossComputer.compute = compute
rng = np.random.default_rng(0)
for name in ("fss/c0", "DUTS-TR", "DUTS-TE", "ecssd", "BIG_small", "HRSOD_small"):
    os.makedirs(f"static/{name}")
    for i in range(1):
        mask = np.zeros((72, 80), np.uint8)
        mask[15:50, 20 + i : 60] = 255
        noise = rng.integers(0, 100, (72, 80, 3))
        Image.fromarray((noise + mask[..., None] // 2).astype(np.uint8)).save(f"static/{name}/{i}.jpg")
        Image.fromarray(mask).save(f"static/{name}/{i}.png")


def script(*flags):
    for seed in (random.seed, np.random.seed, torch.manual_seed):
        seed(0)
    with socket.socket() as s:
        s.bind(("localhost", 0))
        os.environ.update(
            RANK="0", WORLD_SIZE="1", MASTER_ADDR="localhost", MASTER_PORT=str(s.getsockname()[1])
        )
    sys.argv = ["train.py", "--static_root", "static", "-b", "2", "--lr", "1e-4", *flags]
    return runpy.run_path("train.py", run_name="__main__")


def size(state):
    return float(sum(v.double().abs().sum() for v in state.values()))


made = script("-i", "2")
model = made["model"]
model.save_path = "saves/one"
model.save(2)
made = script("-i", "3", "--load_model", "saves/one_checkpoint.pth", "--no_amp")
resumed = made["model"].STCN.module.state_dict()


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
                "steps": steps,
                "iterations": made["total_iter"],
                "resumed": size(resumed),
            }
        )
    )
)
