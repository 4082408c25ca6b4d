"""classification_ModelNet40: main.py trains and resumes, voting.py evaluates."""

import json
import os
import runpy
import shutil
import sys
import types

import h5py
import numpy as np
import torch

plain_load = torch.load
torch.load = lambda *a, **k: plain_load(*a, **{**k, "weights_only": False})
plain_loader = torch.utils.data.DataLoader


class Loader(plain_loader):
    def __init__(self, *args, num_workers=0, **kwargs):
        super().__init__(*args, **kwargs)


torch.utils.data.DataLoader = Loader
os.popen = lambda command: types.SimpleNamespace(read=lambda: "24 80")  # the size of the terminal


# ---- the operation that the library has in CUDA only
def furthest_point_sample(points, number):
    rows = torch.arange(points.shape[0], device=points.device)
    far = torch.zeros(points.shape[0], dtype=torch.long, device=points.device)
    near = torch.full(points.shape[:2], 1e10, device=points.device)
    chosen = []
    for _ in range(number):
        chosen.append(far)
        near = torch.minimum(near, ((points - points[rows, far][:, None]) ** 2).sum(-1))
        far = near.argmax(-1)
    return torch.stack(chosen, 1)


ops = types.ModuleType("pointnet2_ops")
ops.pointnet2_utils = types.ModuleType("pointnet2_ops.pointnet2_utils")
ops.pointnet2_utils.furthest_point_sample = furthest_point_sample
sys.modules.update({"pointnet2_ops": ops, "pointnet2_ops.pointnet2_utils": ops.pointnet2_utils})

os.chdir("classification_ModelNet40")
sys.path.insert(0, os.getcwd())
rng = np.random.default_rng(2)
os.makedirs("data/modelnet40_ply_hdf5_2048")
for part, number in (("train", 8), ("test", 4)):
    with h5py.File(f"data/modelnet40_ply_hdf5_2048/ply_data_{part}0.h5", "w") as file:
        label = rng.integers(0, 3, (number, 1))
        file["data"] = rng.normal(size=(number, 64, 3)) * (1 + label[:, :, None] * np.array([1, 0, 2]))
        file["label"] = label

import models  # noqa: E402
from models.pointmlp import Model  # noqa: E402


def small():
    return Model(
        points=64,
        class_num=40,
        embed_dim=8,
        groups=1,
        res_expansion=0.25,
        activation="relu",
        bias=False,
        use_xyz=False,
        normalize="anchor",
        dim_expansion=[2, 2, 2, 1],
        pre_blocks=[1, 1, 1, 1],
        pos_blocks=[1, 1, 1, 1],
        k_neighbors=[4, 4, 4, 4],
        reducers=[2, 2, 2, 2],
    )


models.small = small


def run(script, *flags):
    sys.argv = [script, "--model", "small", "--num_points", "64", "--batch_size", "4", "--seed", "4", *flags]
    return runpy.run_path(script, run_name="__main__")


def saved(name):
    state = torch.load(f"checkpoints/small-made-4/{name}_checkpoint.pth", map_location="cpu")
    return float(sum(value.double().abs().sum() for value in state["net"].values())), state


run("main.py", "--msg", "made", "--epoch", "2")
first, state = saved("last")
run("main.py", "--msg", "made", "--epoch", "3", "--learning_rate", "0.05")
again, later = saved("last")
shutil.copy("checkpoints/small-made-4/last_checkpoint.pth", "checkpoints/small-made-4/best_checkpoint.pth")
run("voting.py", "--msg", "made-4", "--NUM_PEPEAT", "2", "--NUM_VOTE", "2", "--validate")
voted = []
for name in sorted(os.listdir("checkpoints/small-made-4")):
    if "voting" in name:
        with open("checkpoints/small-made-4/" + name) as log:
            voted += log.readlines()
print(
    "RESULT "
    + json.dumps(
        {
            "first": first,
            "again": again,
            "loss": state["best_train_loss"],
            "later loss": later["best_train_loss"],
            "test loss": later["best_test_loss"],
            "epochs": int(later["epoch"]),
            "voted": len(voted),
            "accuracy": voted[-1].strip(),
        }
    )
)
