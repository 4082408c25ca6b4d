"""Trains with training_loop.py, resumes from its pickle, and samples with gen_images.py."""

import glob
import json
import os
import random
import re
import sys
import types

import numpy as np
import torch
from PIL import Image

random.seed(0)
np.random.seed(0)
torch.manual_seed(0)
torch.set_num_threads(1)
memory = types.SimpleNamespace(rss=0)
sys.modules["psutil"] = types.ModuleType("psutil")
sys.modules["psutil"].Process = lambda pid: types.SimpleNamespace(memory_info=lambda: memory)
sys.modules["requests"] = types.ModuleType("requests")
sys.modules["pkg_resources"] = types.ModuleType("pkg_resources")
sys.modules["pkg_resources"].parse_version = lambda text: tuple(int(x) for x in re.findall(r"\d+", text)[:3])
torch.utils.data.Sampler.__init__ = lambda self, data_source=None: None  # as in older versions


class DataLoader(torch.utils.data.DataLoader):
    def __init__(self, *a, num_workers=0, prefetch_factor=None, **k):
        super().__init__(*a, **k)


torch.utils.data.DataLoader = DataLoader
from torch_utils.ops import bias_act, upfirdn2d  # noqa: E402

for ops in (bias_act, upfirdn2d):
    ops._init = lambda: False  # nothing is compiled here
import dnnlib  # noqa: E402
from training import training_loop  # noqa: E402

rng = np.random.default_rng(0)
os.makedirs("data")
for i in range(8):
    Image.fromarray(rng.integers(0, 256, (16, 16, 3), dtype=np.uint8)).save(f"data/{i}.png")
sizes = {
    "CardinalityPerStage": [4, 4, 4],
    "BlocksPerStage": [1, 1, 1],
    "ExpansionFactor": 2,
    "FP16Stages": [],
}
steps = {"total_nimg": 16}


def train(run_dir, **more):
    os.makedirs(run_dir)
    training_loop.training_loop(
        run_dir=run_dir,
        training_set_kwargs=dnnlib.EasyDict(
            class_name="training.dataset.ImageFolderDataset", path="data", use_labels=False, xflip=True
        ),
        data_loader_kwargs=dnnlib.EasyDict(pin_memory=True),
        G_kwargs=dnnlib.EasyDict(
            class_name="training.networks.Generator", NoiseDimension=8, WidthPerStage=[16, 16, 16], **sizes
        ),
        D_kwargs=dnnlib.EasyDict(
            class_name="training.networks.Discriminator", WidthPerStage=[16, 16, 16], **sizes
        ),
        G_opt_kwargs=dnnlib.EasyDict(class_name="torch.optim.Adam", betas=[0.0, 0.0], eps=1e-8),
        D_opt_kwargs=dnnlib.EasyDict(class_name="torch.optim.Adam", betas=[0.0, 0.0], eps=1e-8),
        loss_kwargs=dnnlib.EasyDict(class_name="training.loss.R3GANLoss"),
        augment_kwargs=dnnlib.EasyDict(
            class_name="training.augment.AugmentPipe", xflip=1, scale=1, rotate=1, brightness=1, cutout=1
        ),
        lr_scheduler={"base_value": 2e-3, "final_value": 5e-4, **steps},
        beta2_scheduler={"base_value": 0.9, "final_value": 0.99, **steps},
        gamma_scheduler={"base_value": 2, "final_value": 0.2, **steps},
        ema_scheduler={"base_value": 0, "final_value": 8, **steps},
        aug_scheduler={"base_value": 0.1, "final_value": 0.5, **steps},
        total_kimg=0.012,
        kimg_per_tick=0.004,
        image_snapshot_ticks=1,
        network_snapshot_ticks=1,
        **more,
    )
    with open(f"{run_dir}/stats.jsonl") as file:
        lines = [json.loads(line) for line in file]
    image = np.asarray(Image.open(sorted(glob.glob(f"{run_dir}/fakes0*.png"))[-1]), dtype=float)
    losses = {k.split("/")[-1]: v["mean"] for k, v in lines[-1].items() if k.startswith("Loss/")}
    return losses, image


result = {}
losses, image = train("one")
result.update(
    {f"one_{name}": value for name, value in losses.items()}, one_mean=image.mean(), one_std=image.std()
)
saved = sorted(glob.glob("one/network-snapshot-*.pkl"))[-1]
losses, image = train("two", resume_pkl=saved, random_seed=1)
result.update({f"two_{name}": value for name, value in losses.items()}, two_mean=image.mean())
import gen_images  # noqa: E402

real_from = np.random.RandomState
np.random.RandomState = lambda seed: types.SimpleNamespace(
    randn=lambda *shape: real_from(seed).randn(*shape).astype(np.float32)
)
sys.argv = ["gen_images.py", "--network", saved, "--seeds", "0-1", "--outdir", "out"]
gen_images.generate_images(standalone_mode=False)
pixels = [np.asarray(Image.open(f), dtype=float) for f in sorted(glob.glob("out/*.png"))]
result.update(images=len(pixels), mean=float(np.mean(pixels)), std=float(np.std(pixels)))
print("RESULT " + json.dumps(result))
