"""main.py trains and tests, and goes on from what it saved; then Test_img.py."""

import json
import os
import random
import runpy
import sys
import types

import numpy as np
import torch
from PIL import Image

torch.set_num_threads(1)
random.seed(0)

chardet = types.ModuleType("chardet")  # asked for the encoding of a PFM file's header
chardet.detect = lambda header: {"encoding": "ascii"}
sys.modules["chardet"] = chardet

plain_loader = torch.utils.data.DataLoader


class Loader(plain_loader):
    def __init__(self, *args, num_workers=0, **kwargs):
        super().__init__(*args, **kwargs)


torch.utils.data.DataLoader = Loader

# the network is deep: layer2 has sixteen blocks where two will do
from models import submodule  # noqa: E402

make_layer = submodule.feature_extraction._make_layer
submodule.feature_extraction._make_layer = lambda self, block, planes, blocks, *a: make_layer(
    self, block, planes, min(blocks, 2), *a
)

rng = np.random.default_rng(0)


def pair(height, width):
    wide = (
        rng.integers(0, 256, (height // 8 + 1, width // 8 + 2, 3), dtype=np.uint8).repeat(8, 0).repeat(8, 1)
    )
    return wide[:height, :width], wide[:height, 4 : width + 4]


def stereo(left, right, height, width):
    for path, image in zip((left, right), pair(height, width)):
        os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
        Image.fromarray(image).save(path)


def disparity(path, height, width):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as f:
        f.write(b"Pf\n%d %d\n-1.0\n" % (width, height))
        f.write(rng.uniform(1, 20, (height, width)).astype("<f4").tobytes())


# ---- Scene Flow's folders, all but two of them empty
for sub in ("35mm", "15mm"):
    for scene in ("backwards", "forwards"):
        for speed in ("fast", "slow"):
            for side in ("left", "right"):
                os.makedirs(f"data/driving_frames_cleanpass/{sub}_focallength/scene_{scene}/{speed}/{side}")
for kind in ("driving_disparity", "monkaa_disparity", "frames_disparity", "monkaa_frames_cleanpass"):
    os.makedirs("data/" + kind)
for part in ("TRAIN", "TEST"):
    for sub in "ABC":
        os.makedirs(f"data/frames_cleanpass/{part}/{sub}")
folder = "data/monkaa_frames_cleanpass/one/"
stereo(folder + "left/0000.png", folder + "right/0000.png", 256, 512)
disparity("data/monkaa_disparity/one/left/0000.pfm", 256, 512)
folder = "data/frames_cleanpass/TEST/A/0000/"
for name in ("0006", "0007"):
    stereo(f"{folder}left/{name}.png", f"{folder}right/{name}.png", 252, 256)
    disparity(f"data/frames_disparity/TEST/A/0000/left/{name}.pfm", 252, 256)


def run(script, *argv):
    sys.argv = [script, *argv]
    return runpy.run_path(script, run_name="__main__")


def saved(name):
    return torch.load(name)


def weight(state):
    return sum(v.double().abs().sum().item() for v in state["state_dict"].values())


SMALL = ["--maxdisp", "16"]
os.makedirs("first")
os.makedirs("second")
run("main.py", *SMALL, "--datapath", "data/", "--epochs", "2", "--savemodel", "first/")
run(
    "main.py",
    *SMALL,
    "--datapath",
    "data/",
    "--epochs",
    "1",
    "--savemodel",
    "second/",
    "--loadmodel",
    "first/checkpoint_1.tar",
)
first, later, again = (
    saved(f"{name}.tar") for name in ("first/checkpoint_0", "first/checkpoint_1", "second/checkpoint_0")
)

stereo("left.png", "right.png", 250, 260)
run(
    "Test_img.py",
    *SMALL,
    "--loadmodel",
    "second/checkpoint_0.tar",
    "--leftimg",
    "left.png",
    "--rightimg",
    "right.png",
)
shown = np.asarray(Image.open("Test_disparity.png")).astype(np.float64)
print(
    "RESULT "
    + json.dumps(
        {
            "loss_0": float(first["train_loss"]),
            "loss_1": float(later["train_loss"]),
            "loss_2": float(again["train_loss"]),
            "norm_0": weight(first),
            "norm_1": weight(later),
            "norm_2": weight(again),
            "test_0": float(saved("first/testinformation.tar")["test_loss"]),
            "test_1": float(saved("second/testinformation.tar")["test_loss"]),
            "shown": shown.mean(),
            "shown_n": shown.size,
        }
    )
)
