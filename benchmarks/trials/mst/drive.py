"""simulation/train_code/train.py: one epoch on two made-up scenes, with the smallest of its networks."""

import json
import logging
import os
import random
import re
import runpy
import sys

import numpy as np
import scipy.io
import torch

torch.set_num_threads(1)
os.chdir("simulation/train_code")
sys.path.insert(0, os.getcwd())
rng = np.random.default_rng(0)
os.makedirs("made/cave_1024_28")
os.makedirs("made/TSA_simu_data/Truth")


def scene(size):
    coarse = rng.random((size // 20 + 1, size // 20 + 1, 28))
    return coarse.repeat(20, 0).repeat(20, 1)[:size, :size]


for i in (1, 2):
    scipy.io.savemat(f"made/cave_1024_28/scene{i}.mat", {"img": (scene(262) * 65535).astype(np.uint16)})
scipy.io.savemat("made/TSA_simu_data/Truth/scene01.mat", {"img": scene(256)})
mask = rng.integers(0, 2, (256, 256)).astype(np.float64)
shifted = np.zeros((256, 310, 28))
for i in range(28):
    shifted[:, 2 * i : 2 * i + 256, i] = mask
scipy.io.savemat("made/TSA_simu_data/mask.mat", {"mask": mask})
scipy.io.savemat("made/TSA_simu_data/mask_3d_shift.mat", {"mask_3d_shift": shifted})

import architecture  # noqa: E402
import utils  # noqa: E402

real_net, real_mask = architecture.MST, utils.init_mask
architecture.MST = lambda **options: real_net(dim=28, stage=1, num_blocks=[1, 1])
utils.init_mask = lambda path, kind, batch: real_mask(path, kind, 1 if batch == 10 else batch)
said = []
logging.Logger.info = lambda self, text, *args: said.append(text)
for seed in (random.seed, np.random.seed, torch.manual_seed):
    seed(0)
sys.argv = ["train.py", "--data_root", "made", "--outf", "exp/", "--batch_size", "2", "--epoch_sam_num", "2"]
sys.argv += ["--max_epoch", "1", "--learning_rate", "0.01"]
made = runpy.run_path("train.py", run_name="__main__")
numbers = {}
for text in said:
    for name, value in re.findall(r"(Loss|psnr|ssim)[ :=]+([\d.]+)", text):
        numbers.setdefault(name, []).append(float(value.rstrip(".")))
numbers["model"] = float(sum(p.double().abs().sum() for p in made["model"].parameters()))


def numbered(values, name=""):
    """Give each number of a list a name of its own, so that it is compared with a tolerance."""
    if isinstance(values, dict):
        return {k: v for key, each in values.items() for k, v in numbered(each, f"{name} {key}").items()}
    if isinstance(values, (list, tuple)):
        return {k: v for i, each in enumerate(values) for k, v in numbered(each, f"{name} {i}").items()}
    return {name.strip(): values}


print("RESULT " + json.dumps(numbered(numbers)))
