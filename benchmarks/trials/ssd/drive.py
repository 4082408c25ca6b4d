"""train.py from a base network, resumed from what it saved (--resume), then test.py."""

import builtins
import json
import os
import random
import re
import runpy
import shutil
import sys

import cv2
import numpy as np
import torch
import torch.utils.data
import torchvision  # noqa: F401

# ---- what newer versions have dropped or changed
plain_choice = np.random.choice
np.random.choice = lambda a, *rest, **k: (
    a[np.random.randint(len(a))] if isinstance(a, tuple) else plain_choice(a, *rest, **k)
)
plain_loader = torch.utils.data.DataLoader


class Loader(plain_loader):
    def __init__(self, *args, num_workers=0, **kwargs):
        super().__init__(*args, **kwargs)


torch.utils.data.DataLoader = Loader
plain_permutation = torch.randperm  # newer loaders shuffle by a generator of the CPU, whatever the default is
torch.randperm = lambda *args, **kwargs: plain_permutation(*args, **{"device": "cpu", **kwargs})


def as_before(loss):  # losses have one element, not none
    return lambda *args, **kwargs: loss(*args, **kwargs).view(1)


for name in ("smooth_l1_loss", "cross_entropy"):
    setattr(torch.nn.functional, name, as_before(getattr(torch.nn.functional, name)))
plain_set, plain_type = torch.Tensor.__setitem__, torch.Tensor.type


def set_item(self, index, value):  # a mask may have another shape than what it masks
    if isinstance(index, torch.Tensor) and index.dtype == torch.bool and index.numel() == self.numel():
        index = index.view(self.size())
    return plain_set(self, index, value)


def to_type(self, kind=None, *args, **kwargs):  # torch.Tensor stands for the type that is the default
    if kind is torch.Tensor:
        return self.type_as(torch.empty(0))
    return plain_type(self, *args, **kwargs) if kind is None else plain_type(self, kind, *args, **kwargs)


torch.Tensor.__setitem__, torch.Tensor.type = set_item, to_type


# the program looks for its data in the user's folder
os.environ["HOME"] = os.getcwd()
os.makedirs("data/coco")
shutil.copy("data/coco_labels.txt", "data/coco")


class Function:  # one with a forward that isn't static
    def __call__(self, *tensors):
        with torch.no_grad():
            return self.forward(*[each.detach() for each in tensors])


plain_function, torch.autograd.Function = torch.autograd.Function, Function
import layers  # noqa: E402,F401

torch.autograd.Function = plain_function

# ---- a narrow network for three steps
import data  # noqa: E402
import ssd  # noqa: E402

ssd.base["300"] = [8, 8, "M", 8, 8, "M", 16, 16, 16, "C", 16, 16, 512, "M", 16, 16, 512]
data.voc["max_iter"] = 3

# ---- made-up pictures with a bright box each
rng = np.random.RandomState(0)
XML = """<annotation><object><name>{name}</name><difficult>0</difficult><bndbox><xmin>{0}</xmin>
<ymin>{1}</ymin><xmax>{2}</xmax><ymax>{3}</ymax></bndbox></object></annotation>"""
for year, sets in (("2007", ("trainval", "test")), ("2012", ("trainval",))):
    root = f"data/VOCdevkit/VOC{year}"
    for folder in ("Annotations", "JPEGImages", "ImageSets/Main"):
        os.makedirs(f"{root}/{folder}")
    for part in sets:
        names = [f"{part}{i}" for i in range(2 if part == "test" else 4)]
        with open(f"{root}/ImageSets/Main/{part}.txt", "w") as f:
            f.write("\n".join(names) + "\n")
        for i, name in enumerate(names):
            picture = rng.randint(0, 120, (90, 120, 3)).astype(np.uint8)
            box = [10 + 5 * i, 15, 60 + 5 * i, 70]
            picture[box[1] : box[3], box[0] : box[2]] += 100
            cv2.imwrite(f"{root}/JPEGImages/{name}.jpg", picture)
            with open(f"{root}/Annotations/{name}.xml", "w") as f:
                f.write(XML.format(*box, name=("cat", "dog", "car", "sofa")[i]))

said = []
plain_print = builtins.print


def note(*args, **kwargs):
    said.append(" ".join(str(a) for a in args))
    plain_print(*args, **kwargs)


def run(script, *flags):
    sys.argv = [script, *flags]
    random.seed(7)
    np.random.seed(7)
    torch.manual_seed(7)
    builtins.print = note
    try:
        runpy.run_path(script, run_name="__main__")
    finally:
        builtins.print = plain_print


def weight(state):
    return sum(v.double().abs().sum().item() for v in state.values())


os.makedirs("weights")
torch.manual_seed(1)
torch.save(torch.nn.ModuleList(ssd.vgg(ssd.base["300"], 3)).state_dict(), "weights/vgg16_reducedfc.pth")
COMMON = ["--batch_size", "2", "--lr", "0.0005"]
run("train.py", *COMMON)
first = torch.load("weights/VOC.pth", map_location="cpu")
run("train.py", *COMMON, "--resume", "weights/VOC.pth", "--start_iter", "1")
again = torch.load("weights/VOC.pth", map_location="cpu")
# three steps find nothing: let one class be likely
for name, value in again.items():
    if re.fullmatch(r"conf\.[2345]\.bias", name):
        value[8::21] += 8
torch.save(again, "weights/likely.pth")
run("test.py", "--trained_model", "weights/likely.pth")

found, corners = 0, 0.0
for line in open("eval/test1.txt"):
    if re.match(r"\d+ label", line):
        found += 1
        corners += sum(float(x) for x in line.split(")")[-1].split("||"))
losses = [float(line.split("Loss: ")[1].split()[0]) for line in said if "Loss: " in line]
print(
    "RESULT "
    + json.dumps(
        {
            "loss": losses[0],
            "losses": len(losses),
            "weight": weight(first),
            "weight again": weight(again),
            "boxes": sum(v.double().abs().sum().item() for k, v in again.items() if k.startswith("loc.")),
            "found": found,
            "corners": round(corners, 1),
            "tested": sum("Testing image" in line for line in said),
        }
    )
)
