"""Trains with train.py under torchrun's variables, evaluates in two ways, resumes without torchrun."""

import argparse
import contextlib
import io
import json
import os
import random
import runpy
import socket
import sys
import types

import numpy as np
import torch
import torchmetrics  # noqa: F401 (before a part of it is replaced)
from PIL import Image

torch.set_num_threads(1)
if not hasattr(argparse, "BooleanOptionalAction"):
    raise SystemExit("Python 3.9")
with socket.socket() as s:
    s.bind(("localhost", 0))
    port = s.getsockname()[1]
torchrun = {
    "RANK": "0",
    "WORLD_SIZE": "1",
    "LOCAL_RANK": "0",
    "MASTER_ADDR": "localhost",
    "MASTER_PORT": str(port),
}


# ---- FID of means instead of an Inception network
class FrechetInceptionDistance(torch.nn.Module):
    def __init__(self, reset_real_features=True, normalize=False, **kwargs):
        super().__init__()
        for kind in ("real", "fake"):
            self.add_state(f"{kind}_sum", torch.zeros(3))
            self.add_state(f"{kind}_num", torch.tensor(0))

    def add_state(self, name, default, *args, **kwargs):
        self.register_buffer(name, default)

    def update(self, images, real):
        kind = "real" if real else "fake"
        setattr(self, f"{kind}_sum", getattr(self, f"{kind}_sum") + images.float().mean((2, 3)).sum(0))
        setattr(self, f"{kind}_num", getattr(self, f"{kind}_num") + len(images))

    def compute(self):
        return (self.real_sum / self.real_num - self.fake_sum / self.fake_num).square().sum()

    def reset(self):
        self.fake_sum, self.fake_num = self.fake_sum * 0, self.fake_num * 0


fid = types.ModuleType("torchmetrics.image.fid")
fid.FrechetInceptionDistance = FrechetInceptionDistance
for name in ("torchmetrics.image", "torchmetrics.image.fid"):
    sys.modules[name] = fid
real_loader = torch.utils.data.DataLoader
torch.utils.data.DataLoader = lambda *a, num_workers=0, **k: real_loader(*a, num_workers=0, **k)

rng = np.random.default_rng(0)
for c in "abc":
    os.makedirs(f"data/afhq/{c}")
    for i in range(3):
        base = rng.integers(0, 256, (4, 4, 3), dtype=np.uint8)
        Image.fromarray(base).resize((20, 20)).save(f"data/afhq/{c}/{i}.png")


def script(*argv):
    random.seed(0)
    np.random.seed(0)
    torch.manual_seed(0)
    sys.argv = list(argv)
    runpy.run_path(argv[0], run_name="__main__")
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


shape = [
    "--dataset",
    "afhq",
    "--img_size",
    "16",
    "--patch_size",
    "4",
    "--channels",
    "128",
    "--blocks",
    "2",
    "--layers_per_block",
    "1",
]
torch.manual_seed(0)
stats = FrechetInceptionDistance()
stats.update(torch.rand(8, 3, 16, 16), real=True)
torch.save(stats.state_dict(), "data/afhq_16_fid_stats.pth")
train = [
    "train.py",
    *shape,
    "--batch_size",
    "4",
    "--lr",
    "3e-3",
    "--num_samples",
    "4",
    "--sample_batch_size",
    "2",
    "--drop_label",
    "0.3",
    "--cfg",
    "0.5",
]
losses, scores = [], []

import utils  # noqa: E402

real_print = utils.Metrics.print


def keep(metrics, epoch):
    losses.append(metrics["loss"]) if "loss" in metrics else scores.append(metrics["fid"])
    real_print(metrics, epoch)


utils.Metrics.print = staticmethod(keep)
os.environ.update(torchrun)
script(*train, "--epochs", "2", "--no-nvp")
saved = "runs/afhq_model_4_128_2_1_0.05.pth"
script(
    "evaluate_fid.py",
    *shape,
    "--no-nvp",
    "--ckpt_file",
    saved,
    "--batch_size",
    "4",
    "--num_samples",
    "6",
    "--cfg",
    "1",
)
sampled = np.asarray(Image.open("runs/afhq_samples_4_128_2_1_0.05/samples_cfg1.00.png")).astype(float)
for name in torchrun:
    del os.environ[name]
os.rename("data/afhq", "data/train")
os.makedirs("data/afhq")
os.rename("data/train", "data/afhq/val")
said = io.StringIO()
with contextlib.redirect_stdout(said):
    script(
        "evaluate_bpd.py",
        *shape,
        "--nvp",
        "0",
        "--num_classes",
        "3",
        "--ckpt_file",
        saved,
        "--batch_size",
        "4",
    )
bits = float(said.getvalue().split("BPD: ")[-1])
os.rename("data/afhq/val", "data/train")
os.rmdir("data/afhq")
os.rename("data/train", "data/afhq")
script(*train, "--epochs", "2", "--no-nvp", "--resume", saved, "--noise_type", "uniform")
saved = torch.load("runs/afhq_model_4_128_2_1_uniform.pth", map_location="cpu")
image = np.asarray(Image.open("runs/afhq_samples_4_128_2_1_0.05/samples_002.png")).astype(float)
print(
    "RESULT "
    + json.dumps(
        {
            "logged": len(losses),
            "first": losses[0],
            "second": losses[1],
            "last": losses[-1],
            "fid": scores[0],
            "fid_last": scores[-1],
            "model": float(sum(v.double().abs().sum() for v in saved.values())),
            "pixels": image.mean(),
            "sampled": sampled.mean(),
            "spread": sampled.std(),
            "bits": bits,
        }
    )
)
