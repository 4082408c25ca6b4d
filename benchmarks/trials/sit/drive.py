"""Trains with train.py, samples with sample_ddp.py from its checkpoint, in both modes."""

import json
import os
import random
import runpy
import socket
import sys
import types

import numpy as np
import torch
from PIL import Image
from torch import nn

torch.set_num_threads(1)
with socket.socket() as s:
    s.bind(("localhost", 0))
    port = s.getsockname()[1]
os.environ.update(RANK="0", WORLD_SIZE="1", LOCAL_RANK="0", MASTER_ADDR="localhost", MASTER_PORT=str(port))
os.environ.update(ENTITY="none", PROJECT="none")
real_load = torch.load
torch.load = lambda *a, **k: real_load(*a, **{**k, "weights_only": False})


class DataLoader(torch.utils.data.DataLoader):
    def __init__(self, *a, num_workers=0, prefetch_factor=None, **k):
        super().__init__(*a, **k)


torch.utils.data.DataLoader = DataLoader


class AutoencoderKL(nn.Module):
    """Means of squares in the place of the autoencoder."""

    def __init__(self):
        super().__init__()
        g = torch.Generator().manual_seed(1)
        self.down, self.up = nn.Conv2d(3, 4, 8, 8), nn.ConvTranspose2d(4, 3, 8, 8)
        for p in self.parameters():
            p.data.copy_(torch.randn(p.shape, generator=g) * 0.3)
            p.requires_grad = False

    @classmethod
    def from_pretrained(cls, name):
        return cls()

    def encode(self, x):
        mean = self.down(x)
        return types.SimpleNamespace(
            latent_dist=types.SimpleNamespace(sample=lambda: mean + torch.randn_like(mean))
        )

    def decode(self, z):
        return types.SimpleNamespace(sample=self.up(z))


losses = []
for name, content in (
    ("diffusers", {}),
    ("diffusers.models", {"AutoencoderKL": AutoencoderKL}),
    (
        "wandb_utils",
        {
            "initialize": lambda *a: None,
            "log": lambda values, step: losses.append(values["train loss"]),
            "log_image": lambda image, step: losses.append(image.double().abs().mean().item()),
        },
    ),
):
    sys.modules[name] = types.ModuleType(name)
    sys.modules[name].__dict__.update(content)

import models  # noqa: E402

models.SiT_models["SiT-XL/2"] = lambda learn_sigma=True, **k: models.SiT(
    depth=2, hidden_size=48, patch_size=8, num_heads=3, **k
)
rng = np.random.default_rng(0)
for c in "ab":
    os.makedirs(f"data/{c}")
    for i in range(4):
        Image.fromarray(rng.integers(0, 256, (260, 270, 3), dtype=np.uint8)).save(f"data/{c}/{i}.png")


def script(*argv):
    random.seed(0)
    np.random.seed(0)
    torch.manual_seed(0)
    sys.argv = list(argv)
    runpy.run_path(argv[0], run_name="__main__")


script(
    *"train.py --data-path data --results-dir made --epochs 2 --global-batch-size 4 --log-every 1 --wandb".split(),
    *"--ckpt-every 4 --sample-every 4 --cfg-scale 1.5".split(),
)
saved = "made/000-SiT-XL-2-Linear-velocity-None/checkpoints/0000004.pt"
state = torch.load(saved, map_location="cpu")
common = f"--ckpt {saved} --num-fid-samples 2 --per-proc-batch-size 2 --cfg-scale 1.5 --num-sampling-steps 4".split()
script("sample_ddp.py", "ODE", *common, "--sampling-method", "euler")
script("sample_ddp.py", "SDE", *common)
one, two = (
    np.load(f"samples/{name}.npz")["arr_0"].astype(float)
    for name in (
        "SiT-XL-2-0000004-cfg-1.5-2-ODE-4-euler",
        "SiT-XL-2-0000004-cfg-1.5-2-SDE-4-Euler-sigma-Mean-0.04",
    )
)
print(
    "RESULT "
    + json.dumps(
        {
            "logged": len(losses),
            "first": losses[0],
            "last": losses[3],
            "sampled": losses[-1],
            "model": float(sum(v.double().abs().sum() for v in state["model"].values())),
            "ode": one.mean(),
            "ode_std": one.std(),
            "sde": two.mean(),
            "sde_std": two.std(),
        }
    )
)
