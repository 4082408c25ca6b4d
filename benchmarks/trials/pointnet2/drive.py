"""Part segmentation and classification: each trains, goes on from its best model, and is tested."""

import builtins
import json
import os
import random
import re
import runpy
import sys

import numpy as np
import torch

torch.set_num_threads(1)
np.float = float  # of older numpy
plain_load = torch.load
torch.load = lambda *a, **k: plain_load(*a, **{**k, "weights_only": False})
plain_loader = torch.utils.data.DataLoader


class Loader(plain_loader):
    def __init__(self, *args, num_workers=0, **kwargs):
        super().__init__(*args, **kwargs)


torch.utils.data.DataLoader = Loader

rng = np.random.default_rng(0)
# ---- ModelNet10's files
root = "data/modelnet40_normal_resampled/"
names = [f"kind_{c}" for c in "abcdefghij"]
os.makedirs(root)
with open(root + "modelnet10_shape_names.txt", "w") as f:
    f.write("\n".join(names) + "\n")
for part, count in (("train", 16), ("test", 10)):
    with open(root + f"modelnet10_{part}.txt", "w") as f:
        for i in range(count):
            name = names[i % 10]
            f.write(f"{name}_{part}{i}\n")
            os.makedirs(root + name, exist_ok=True)
            points = rng.normal(size=(64, 6)) * (1 + np.arange(6) * (i % 10) / 5)
            np.savetxt(f"{root}{name}/{name}_{part}{i}.txt", points, delimiter=",", fmt="%.5f")
# ---- ShapeNet's parts
root = "data/shapenetcore_partanno_segmentation_benchmark_v0_normal/"
parts = {"Airplane": range(4), "Bag": range(4, 6), "Cap": range(6, 8)}
os.makedirs(root + "train_test_split")
with open(root + "synsetoffset2category.txt", "w") as f:
    for i, name in enumerate(parts):
        f.write(f"{name}\t0{i}\n")
for part, count in (("train", 6), ("val", 3), ("test", 3)):
    listed = []
    for i in range(count):
        folder, labels = f"0{i % 3}", list(parts.values())[i % 3]
        os.makedirs(root + folder, exist_ok=True)
        label = rng.choice(labels, (64, 1))
        np.savetxt(
            f"{root}{folder}/{part}{i}.txt", np.hstack([rng.normal(size=(64, 6)) + label, label]), fmt="%.5f"
        )
        listed.append(f"shape_data/{folder}/{part}{i}")
    with open(root + f"train_test_split/shuffled_{part}_file_list.json", "w") as f:
        json.dump(listed, f)


def run(script, *argv):
    random.seed(0)
    np.random.seed(0)
    torch.manual_seed(0)
    lines = []
    plain_print = builtins.print

    def note(*args, **kwargs):
        lines.append(" ".join(str(a) for a in args))
        plain_print(*args, **kwargs)

    sys.argv = [script, *argv]
    builtins.print = note
    try:
        runpy.run_path(script, run_name="__main__")
    finally:
        builtins.print = plain_print
    return lines


result = {}


def report(name, lines, found):
    result[name + "_pretrained"] = sum("Use pretrain model" in line for line in lines)
    result[name] = [float(x) for line in lines for x in re.findall(found, line)][-1]


def best(name, path):
    state = torch.load(f"log/{path}/checkpoints/best_model.pth")
    result[name + "_epoch"] = int(state["epoch"])
    result[name + "_norm"] = float(sum(v.double().abs().sum() for v in state["model_state_dict"].values()))


for model in ("pointnet_cls", "pointnet2_cls_ssg"):
    common = ["--num_category", "10", "--num_point", "64", "--batch_size", "8", "--log_dir", model]
    for i, epochs in enumerate(("1", "2")):
        said = run("train_classification.py", "--model", model, "--epoch", epochs, *common)
        report(f"{model}_{i}", said, r"Train Instance Accuracy: ([\d.]+)")
        best(f"{model}_{i}", "classification/" + model)
    report(model + "_test", run("test_classification.py", *common), r"Test Instance Accuracy: ([\d.]+)")

common = ["--batch_size", "3", "--log_dir", "parts"]
for i, epochs in enumerate(("2", "3")):
    said = run("train_partseg.py", "--epoch", epochs, "--npoint", "64", *common)
    report(f"parts_{i}", said, r"Train accuracy is: ([\d.]+)")
    best(f"parts_{i}", "part_seg/parts")
report("parts_test", run("test_partseg.py", "--num_point", "64", *common), r"Accuracy is: ([\d.]+)")
print("RESULT " + json.dumps(result))
