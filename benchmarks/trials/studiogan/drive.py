"""Trains with src/main.py, evaluates, resumes from the checkpoint, and interpolates."""

import glob
import json
import logging
import random
import re
import runpy
import sys
import types

import numpy as np
import torch
from PIL import Image
from torch import nn

random.seed(0)
np.random.seed(0)
torch.manual_seed(0)
torch.set_num_threads(1)


class DataLoader(torch.utils.data.DataLoader):
    def __init__(self, *a, num_workers=0, persistent_workers=False, **k):
        super().__init__(*a, **k)


torch.utils.data.DataLoader = DataLoader
real_load = torch.load
torch.load = lambda *a, **k: real_load(*a, **{**k, "weights_only": False})


def module(name, **content):
    made = types.ModuleType(name)
    made.__dict__.update(content)
    sys.modules[name] = made
    return made


logged = []
module(
    "wandb",
    init=lambda **k: None,
    log=lambda values, step=None: logged.append(values),
    finish=lambda: None,
    Image=lambda images: images.double().abs().mean().item(),
)
module("seaborn")
module("kornia")
module("kornia.filters", get_gaussian_kernel2d=None, filter2d=None)
module("pkg_resources", parse_version=lambda text: tuple(int(x) for x in re.findall(r"\d+", text)[:3]))


class Features(nn.Module):
    """A fixed small network in the place of Inception."""

    def __init__(self, resize_input, normalize_input):
        super().__init__()
        g = torch.Generator().manual_seed(4)
        self.layer, self.head = nn.Conv2d(3, 6, 16, 32), nn.Linear(6, 5)
        for p in self.parameters():
            p.data.copy_(torch.randn(p.shape, generator=g) * 0.1)

    def forward(self, x):
        out = self.layer(x).mean((2, 3))
        return out, self.head(out)


sys.path.insert(0, "src")
import metrics  # noqa: E402

metrics.inception_net = module("metrics.inception_net", InceptionV3=Features)


class Pictures:
    def __init__(self, root, train, download):
        noise = np.random.default_rng(int(train))
        self.items = [
            (Image.fromarray(noise.integers(0, 256, (32, 32, 3), dtype=np.uint8)), i % 3) for i in range(16)
        ]

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        return self.items[i]


import torchvision.datasets  # noqa: E402

torchvision.datasets.CIFAR10 = Pictures

import worker  # noqa: E402
import yaml  # noqa: E402

worker.WORKER.run_linear_interpolation.__defaults__ = (1,)  # pictures of each kind

with open("src/configs/CIFAR10/ReACGAN-DiffAug.yaml") as file:
    config = yaml.safe_load(file)
config["MODEL"].update(
    d_embed_dim=16, z_dim=8, g_shared_dim=8, g_conv_dim=8, d_conv_dim=8, g_ema_start=1, g_ema_decay=0.9
)
config["OPTIMIZATION"].update(batch_size=8, total_steps=2, d_updates_per_step=2, g_lr=0.001, d_lr=0.001)
with open("tiny.yaml", "w") as file:
    yaml.safe_dump(config, file)


def run(*argv):
    logging.getLogger().handlers.clear()
    for name in list(logging.Logger.manager.loggerDict):
        logging.getLogger(name).handlers.clear()
    logged.clear()
    sys.argv = ["main.py", "-data", "data", "-save", "made", "--seed", "3", "--num_workers", "0", *argv]
    runpy.run_path("src/main.py", run_name="__main__")
    return {
        key: [values[key] for values in logged if key in values]
        for key in (
            "gen_loss",
            "dis_loss",
            "cls_loss",
            "FID score",
            "IS score",
            "Density",
            "generated_images",
        )
    }


def size(start):
    (path,) = glob.glob(f"made/checkpoints/*/{start}-weights-step*.pth")
    state = torch.load(path, map_location="cpu")["state_dict"]
    return float(sum(v.double().abs().sum() for v in state.values()))


seen = run(
    "-t",
    "-cfg",
    "tiny.yaml",
    "-metrics",
    "fid",
    "is",
    "prdc",
    "-mpc",
    "--print_freq",
    "1",
    "--save_freq",
    "3",
)
result = {
    "steps": len(seen["gen_loss"]),
    "gen": seen["gen_loss"][-1],
    "dis": seen["dis_loss"][-1],
    "cls": seen["cls_loss"][-1],
    "fid": float(seen["FID score"][-1]),
    "is": float(seen["IS score"][-1]),
    "shown": seen["generated_images"][-1],
    "G": size("model=G-best"),
    "D": size("model=D-best"),
    "ema": size("model=G_ema-best"),
}

config["OPTIMIZATION"]["total_steps"] = 5
with open("tiny.yaml", "w") as file:
    yaml.safe_dump(config, file)
(folder,) = glob.glob("made/checkpoints/*")
seen = run(
    "-t",
    "-cfg",
    "tiny.yaml",
    "-metrics",
    "fid",
    "-mpc",
    "--print_freq",
    "1",
    "--save_freq",
    "3",
    "-ckpt",
    folder,
    "-best",
    "-sf",
    "-sf_num",
    "8",
    "-std_stat",
    "-std_max",
    "8",
    "-std_step",
    "2",
    "-itp",
    "-v",
)
made = [
    np.asarray(Image.open(f), dtype=float)
    for f in sorted(glob.glob("made/samples/*/**/*.png", recursive=True))
]
figures = [
    np.asarray(Image.open(f), dtype=float).mean()
    for f in sorted(glob.glob("made/figures/**/*.png", recursive=True))
]
result.update(
    steps_end=len(seen["gen_loss"]),
    gen_resumed=seen["gen_loss"][0],
    gen_end=seen["gen_loss"][-1],
    fid_end=float(seen["FID score"][-1]),
    samples=len(made),
    sample_mean=float(np.mean(made)),
    figures=len(figures),
    figure_mean=float(np.mean(figures)),
)
print("RESULT " + json.dumps(result))
