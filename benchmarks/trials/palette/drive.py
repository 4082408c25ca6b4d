"""Trains an inpainting model, resumes it, tests it, and trains a colorization model, all with run.py."""

import glob
import json
import os
import random
import re
import runpy
import sys

import numpy as np
import torch
from PIL import Image

random.seed(0)
np.random.seed(0)
torch.manual_seed(0)
torch.set_num_threads(1)
np.str = str
real_loader = torch.utils.data.DataLoader
torch.utils.data.DataLoader = lambda *a, num_workers=0, **k: real_loader(*a, **k)

os.makedirs("pictures")
noise = np.random.default_rng(0)
for i in range(6):
    Image.fromarray(noise.integers(0, 256, (32, 32, 3), dtype=np.uint8)).save(f"pictures/{i}.png")
for kind in ("color", "gray"):
    os.makedirs(f"both/{kind}")
    for i in range(4):
        Image.open(f"pictures/{i}.png").save(f"both/{kind}/{str(i).zfill(5)}.png")
np.savetxt("both/list.txt", ["00000", "00001", "00002", "00003"], fmt="%s")

with open("config/inpainting_celebahq.json") as file:
    base = json.loads("".join(line.split("//")[0] + "\n" for line in file))
args = {"batch_size": 2, "num_workers": 0, "shuffle": True, "pin_memory": False, "drop_last": True}
network = base["model"]["which_networks"][0]["args"]
network["unet"].update(inner_channel=32, channel_mults=[1, 2], attn_res=[2], res_blocks=1, image_size=16)
network["beta_schedule"]["train"].update(n_timestep=20, linear_start=1e-3, linear_end=0.2)
network["beta_schedule"]["test"].update(n_timestep=10, linear_start=1e-3, linear_end=0.4)
base["seed"] = 3
base["train"].update(n_epoch=1, val_epoch=1, save_checkpoint_epoch=1, log_iter=2, tensorboard=True)
base["model"]["which_model"]["args"]["sample_num"] = 4
base["model"]["which_model"]["args"]["ema_scheduler"] = {"ema_start": 1, "ema_iter": 1, "ema_decay": 0.9}
base["model"]["which_model"]["args"]["optimizers"] = [{"lr": 1e-3, "weight_decay": 0}]
base["path"]["resume_state"] = None
for phase, length in (("train", 6), ("test", 2)):
    data = base["datasets"][phase]
    data["which_dataset"] = {
        "name": ["data.dataset", "InpaintDataset"],
        "args": {
            "data_root": "pictures",
            "data_len": length,
            "image_size": [16, 16],
            "mask_config": {"mask_mode": "center"},
        },
    }
    data["dataloader"]["args"] = dict(args, shuffle=phase == "train")
base["datasets"]["train"]["dataloader"]["val_args"] = dict(args, batch_size=1, shuffle=False)

scalars = []


class SummaryWriter:
    def __init__(self, folder):
        pass

    def add_scalar(self, name, value, step):
        scalars.append(float(value))

    def add_images(self, name, images, step):
        scalars.append(float(images.mean()))

    def close(self):
        pass


board = type(sys)("tensorboardX")
board.SummaryWriter = SummaryWriter
sys.modules["tensorboardX"] = board


def run(phase, config, name):
    """Run run.py with a configuration: the folder of its experiment."""
    config["name"] = name
    with open(name + ".json", "w") as out:
        json.dump(config, out)
    sys.argv = ["run.py", "-c", name + ".json", "-p", phase]
    runpy.run_path("run.py", run_name="__main__")
    return glob.glob(f"experiments/{phase}_{name}_*")[0]


def numbers(folder, phase, key):
    with open(f"{folder}/{phase}.log") as log:
        return [float(x) for x in re.findall(re.escape(key) + r"\s*: ([-\d.e]+)", log.read())]


def size(path):
    state = torch.load(path, map_location="cpu", weights_only=False)
    return float(sum(v.double().abs().sum() for v in state.values()))


def pixels(folder, start):
    files = sorted(glob.glob(f"{folder}/results/*/*/{start}_*"))
    assert files
    return float(np.mean([np.asarray(Image.open(f), dtype=float).mean() for f in files]))


result = {}
first = run("train", base, "fresh")
losses = numbers(first, "train", "train/mse_loss")
maes = numbers(first, "train", "val/mae")
result.update(
    losses=len(losses),
    first=losses[0],
    last=losses[-1],
    mae=maes[-1],
    net=size(f"{first}/checkpoint/1_Network.pth"),
    out=pixels(first, "Out"),
    ema=size(f"{first}/checkpoint/1_Network_ema.pth"),
    gt=pixels(first, "GT"),
)

base["path"]["resume_state"] = f"{first}/checkpoint/1"
base["train"]["n_epoch"] = 2
second = run("train", base, "again")
losses = numbers(second, "train", "train/mse_loss")
result.update(resumed=losses[0], end=losses[-1], net_end=size(f"{second}/checkpoint/3_Network.pth"))

base["path"]["resume_state"] = f"{second}/checkpoint/3"
third = run("test", base, "tested")
result.update(
    test_mae=numbers(third, "test", "test/mae")[-1],
    test_out=pixels(third, "Out"),
    test_process=pixels(third, "Process"),
)

base["path"]["resume_state"] = None
base["train"]["n_epoch"] = 0
base["model"]["which_model"]["args"]["task"] = "colorization"
network["module_name"] = "sr3"
network["unet"] = {
    "in_channel": 6,
    "out_channel": 3,
    "inner_channel": 32,
    "norm_groups": 8,
    "channel_mults": [1, 2],
    "attn_res": [8],
    "res_blocks": 1,
    "dropout": 0.1,
    "image_size": 16,
}
base["datasets"]["train"]["which_dataset"] = {
    "name": ["data.dataset", "ColorizationDataset"],
    "args": {"data_root": "both", "data_flist": "both/list.txt", "image_size": [16, 16]},
}
base["datasets"]["train"]["dataloader"]["validation_split"] = 1
fourth = run("train", base, "colored")
result.update(
    color=numbers(fourth, "train", "train/mse_loss")[-1],
    color_out=pixels(fourth, "Out"),
    scalars=len(scalars),
    scalar_sum=sum(scalars),
)
print("RESULT " + json.dumps(result))
