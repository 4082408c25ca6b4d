"""train.py for two epochs on made-up slices, then test.py on a made-up volume."""

import json
import logging
import os
import random
import runpy
import sys
import types

import h5py
import numpy as np
import torch
import torch.utils.data

torch.set_num_threads(1)
scalars, written, measured = {}, {}, []


class Writer:
    def __init__(self, *args):
        pass

    def add_scalar(self, name, value, step):
        scalars.setdefault(name, []).append(float(value))

    def close(self):
        pass


class ConfigDict(dict):
    __getattr__, __setattr__ = dict.__getitem__, dict.__setitem__


class Image:
    def __init__(self, array):
        self.array = array

    def SetSpacing(self, spacing):
        self.spacing = spacing


def module(name, **content):
    made = types.ModuleType(name)
    made.__dict__.update(content)
    sys.modules[name] = made
    return made


def overlap(a, b):
    measured.append(2 * (a * b).sum() / (a.sum() + b.sum()))
    return measured[-1]


binary = module("medpy.metric.binary", dc=overlap, hd95=lambda a, b: float(abs(a - b).sum()))
module("medpy", metric=module("medpy.metric", binary=binary))
module("ml_collections", ConfigDict=ConfigDict)
module(
    "SimpleITK",
    GetImageFromArray=Image,
    WriteImage=lambda image, path: written.update({os.path.basename(path): float(image.array.sum())}),
)
module("tensorboardX", SummaryWriter=Writer)
RealLoader = torch.utils.data.DataLoader
torch.utils.data.DataLoader = lambda *a, num_workers=0, **k: RealLoader(*a, **k)
tree = os.getcwd()
sys.path.insert(0, tree)
os.mkdir("work")
os.chdir("work")  # the scripts write beside the folder that they run in

from networks import vit_seg_modeling  # noqa: E402

config = vit_seg_modeling.CONFIGS["ViT-B_16"]
config.hidden_size = 16
config.transformer.update(mlp_dim=32, num_heads=2, num_layers=2)
config.decoder_channels = (8, 8, 8, 8)
vit_seg_modeling.VisionTransformer.load_from = lambda self, weights: None
real_np_load = np.load
np.load = lambda path, *a, **k: None if "vit_checkpoint" in str(path) else real_np_load(path, *a, **k)
rng = np.random.default_rng(0)
for folder in ("../data/Synapse/train_npz", "../data/Synapse/test_vol_h5", "lists/lists_Synapse"):
    os.makedirs(folder, exist_ok=True)
label = np.zeros((40, 40), np.float32)
label[5:20, 5:20], label[22:36, 8:30] = 1, 3


def image():
    return (label / 3 + rng.normal(0, 0.1, label.shape)).astype(np.float32)


for i in range(4):
    np.savez(f"../data/Synapse/train_npz/slice{i}.npz", image=image(), label=label)
with h5py.File("../data/Synapse/test_vol_h5/case1.npy.h5", "w") as file:
    file["image"], file["label"] = np.stack([image(), image()]), np.stack([label, label])
for name, lines in (("train", [f"slice{i}" for i in range(4)]), ("test_vol", ["case1"])):
    with open(f"lists/lists_Synapse/{name}.txt", "w") as file:
        file.write("\n".join(lines))


def script(name, *flags):
    logging.getLogger().handlers.clear()
    sys.argv = [name, "--vit_name", "ViT-B_16", "--n_skip", "0", "--img_size", "32", "--max_epochs", "2"]
    sys.argv += ["--max_iterations", "30000", "--batch_size", "2", *flags]
    for seed in (random.seed, np.random.seed, torch.manual_seed):
        seed(0)
    runpy.run_path(f"{tree}/{name}", run_name="__main__")


script("train.py")
saved = [
    os.path.join(at, name) for at, _, names in os.walk("../model") for name in names if name.endswith(".pth")
]
script("test.py", "--is_savenii")
state = torch.load(saved[0], map_location="cpu")


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
                "loss": scalars["info/total_loss"],
                "saved": len(saved),
                "state": float(sum(v.double().abs().sum() for v in state.values())),
                "written": written,
                "measured": [float(x) for x in measured],
            }
        )
    )
)
