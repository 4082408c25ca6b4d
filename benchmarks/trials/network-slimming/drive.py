"""Trains with sparsity, prunes and fine-tunes: VGG and ResNet, and the variant with masks."""

import builtins
import json
import os
import random
import runpy
import sys

import numpy as np
import PIL.Image
import torch
import torchvision

torch.set_num_threads(1)

# ---- of older versions: the number in a tensor without dimensions is its [0]; volatile=
plain_getitem = torch.Tensor.__getitem__
torch.Tensor.__getitem__ = lambda self, i: (
    self if type(i) is int and i == 0 and self.dim() == 0 else plain_getitem(self, i)
)
plain_variable = torch.autograd.Variable
torch.autograd.Variable = lambda data, volatile=False: plain_variable(data)

plain_loader = torch.utils.data.DataLoader


class Loader(plain_loader):
    def __init__(self, *args, num_workers=0, **kwargs):
        super().__init__(*args, **kwargs)


torch.utils.data.DataLoader = Loader


class Made:
    def __init__(self, root, train=True, download=False, transform=None):
        rng = np.random.default_rng(1 if train else 2)
        count = 24 if train else 12
        self.labels = rng.integers(0, 10, count)
        self.images = rng.integers(0, 256, (count, 32, 32, 3), dtype=np.uint8)
        self.transform = transform

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, i):
        return self.transform(PIL.Image.fromarray(self.images[i])), int(self.labels[i])


torchvision.datasets.CIFAR10 = torchvision.datasets.CIFAR100 = Made


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
    sys.path.insert(0, os.path.dirname(os.path.abspath(script)))
    for name in [n for n in sys.modules if n.split(".")[0] == "models"]:
        del sys.modules[name]  # mask-impl has its own
    builtins.print = note
    try:
        runpy.run_path(script, run_name="__main__")
    finally:
        builtins.print = plain_print
        del sys.path[0]
    return [float(line.split("Loss: ")[1]) for line in lines if "Loss: " in line]


def weight(path):
    state = torch.load(path)
    total = sum(v.double().abs().sum().item() for v in state["state_dict"].values())
    return total, state.get("cfg")


COMMON = ["--dataset", "cifar10"]
TRAIN = [*COMMON, "--batch-size", "8", "--lr", "0.02", "--log-interval", "1"]
result = {}


def note(name, losses, path=None):
    result.update({f"{name}_{i}": loss for i, loss in enumerate(losses)})
    if path:
        result[f"{name}_norm"], cfg = weight(path)
        if cfg:
            result[f"{name}_cfg"] = str(cfg)


for arch, depth, script, percent in (
    ("vgg", "11", "vggprune.py", "0.3"),
    ("resnet", "11", "resprune.py", "0.2"),
):
    net = ["--arch", arch, "--depth", depth]
    logs = f"logs-{arch}"
    note(arch, run("main.py", "-sr", "--s", "0.001", *TRAIN, *net, "--epochs", "1", "--save", logs))
    note(
        arch + "_more",
        run(
            "main.py",
            "-sr",
            "--s",
            "0.001",
            *TRAIN,
            *net,
            "--epochs",
            "2",
            "--save",
            logs,
            "--resume",
            logs + "/checkpoint.pth.tar",
        ),
        logs + "/checkpoint.pth.tar",
    )
    run(
        script,
        *COMMON,
        "--depth",
        depth,
        "--percent",
        percent,
        "--save",
        logs,
        "--model",
        logs + "/checkpoint.pth.tar",
    )
    note(arch + "_pruned", [], logs + "/pruned.pth.tar")
    note(
        arch + "_tuned",
        run(
            "main.py",
            *TRAIN,
            *net,
            "--epochs",
            "1",
            "--save",
            logs + "-tuned",
            "--refine",
            logs + "/pruned.pth.tar",
        ),
        logs + "-tuned/checkpoint.pth.tar",
    )

net = ["--arch", "vgg", "--depth", "11"]
run(
    "mask-impl/prune_mask.py",
    *COMMON,
    *net,
    "--percent",
    "0.3",
    "--save",
    "logs-mask",
    "--model",
    "logs-vgg/checkpoint.pth.tar",
)
note(
    "mask",
    run(
        "mask-impl/main_mask.py",
        *TRAIN,
        *net,
        "--epochs",
        "1",
        "--save",
        "logs-masked",
        "--refine",
        "logs-mask/pruned.pth.tar",
    ),
    "logs-masked/checkpoint.pth.tar",
)
print("RESULT " + json.dumps(result))
