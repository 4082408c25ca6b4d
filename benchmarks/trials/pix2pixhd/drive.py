"""train.py (global generator with an instance encoder; resumed; local enhancer from it), then test.py."""

import fractions
import json
import math
import os
import random
import runpy
import sys
import types

import numpy as np
import torch
import torch.utils.data
import torchvision
from PIL import Image

# ---- what newer versions have dropped; loaders without worker processes
fractions.gcd = math.gcd
if "scipy.misc" not in sys.modules:
    sys.modules["scipy.misc"] = types.ModuleType("scipy.misc")
plain_np_load = np.load
np.load = lambda *a, **k: plain_np_load(*a, **{**k, "allow_pickle": True})
plain_loader = torch.utils.data.DataLoader


class Loader(plain_loader):
    def __init__(self, *args, num_workers=0, **kwargs):
        super().__init__(*args, **kwargs)


torch.utils.data.DataLoader = Loader


# ---- in place of the pretrained VGG, a narrow one of the same layers
def vgg19(pretrained=False):
    torch.manual_seed(11)
    layers, width = [], 3
    for v in [4, 4, "M", 8, 8, "M", 8, 8, 8, 8, "M", 16, 16, 16, 16, "M", 16, 16, 16, 16, "M"]:
        if v == "M":
            layers.append(torch.nn.MaxPool2d(2, 2))
        else:
            layers += [torch.nn.Conv2d(width, v, 3, padding=1), torch.nn.ReLU(inplace=True)]
            width = v
    return types.SimpleNamespace(features=torch.nn.Sequential(*layers))


torchvision.models.vgg19 = vgg19

# ---- made-up streets
rng = np.random.RandomState(0)
LABELS = 6
for phase, count in (("train", 4), ("test", 2)):
    for kind in ("label", "inst", "img"):
        os.makedirs(f"made/{phase}_{kind}")
    for n in range(count):
        label = np.kron(rng.randint(0, LABELS, (4, 4)), np.ones((8, 8))).astype(np.uint8)
        Image.fromarray(label).save(f"made/{phase}_label/{n}.png")
        inst = label.astype(np.uint16)
        inst[:16] *= 1000  # some are one of several
        Image.fromarray(inst).save(f"made/{phase}_inst/{n}.png")
        Image.fromarray(rng.randint(0, 255, (32, 32, 3), dtype=np.uint8)).save(f"made/{phase}_img/{n}.png")

COMMON = [
    "--dataroot",
    "made",
    "--label_nc",
    str(LABELS),
    "--loadSize",
    "32",
    "--n_downsample_global",
    "2",
    "--n_blocks_global",
    "1",
    "--n_blocks_local",
    "1",
    "--nef",
    "4",
    "--n_downsample_E",
    "2",
]
TRAIN = [
    "--ndf",
    "4",
    "--batchSize",
    "2",
    "--print_freq",
    "1",
    "--display_freq",
    "2",
    "--save_latest_freq",
    "2",
    "--save_epoch_freq",
    "1",
]


def run(script, *flags):
    sys.argv = [script, *COMMON, *flags]
    random.seed(2)
    np.random.seed(2)
    torch.manual_seed(2)
    runpy.run_path(script, run_name="__main__")


def weight(path):
    return sum(v.double().abs().sum().item() for v in torch.load(path, map_location="cpu").values())


FEATURES = ["--name", "city", "--ngf", "8", "--instance_feat"]
PLAIN = ["--name", "plain", "--ngf", "8"]
run("train.py", *FEATURES, *TRAIN, "--niter", "1", "--niter_decay", "1")
run("train.py", *FEATURES, *TRAIN, "--niter", "2", "--niter_decay", "1", "--continue_train", "--no_vgg_loss")
run(
    "train.py",
    *PLAIN,
    *TRAIN,
    "--niter",
    "1",
    "--niter_decay",
    "0",
    "--pool_size",
    "3",
    "--no_ganFeat_loss",
    "--no_vgg_loss",
)
LARGE = ["--name", "large", "--ngf", "4", "--netG", "local"]
run(
    "train.py",
    *LARGE,
    *TRAIN,
    "--niter",
    "2",
    "--niter_decay",
    "0",
    "--no_vgg_loss",
    "--no_ganFeat_loss",
    "--niter_fix_global",
    "1",
    "--load_pretrain",
    "checkpoints/plain",
)
np.save(
    "checkpoints/city/features_clustered_010.npy",
    {i: np.random.RandomState(i).randn(3, 3) / 2 for i in range(LABELS)},
)
run("test.py", *FEATURES, "--use_encoded_image")
run("test.py", *FEATURES, "--results_dir", "sampled")
run("test.py", *LARGE)

numbers = {}
for name in ("city", "plain", "large"):
    logged = [
        float(line.split(key + ": ")[1].split()[0])
        for line in open(f"checkpoints/{name}/loss_log.txt")
        for key in ("G_GAN", "D_real", "D_fake")
        if key + ": " in line
    ]
    numbers[f"{name} logged"] = sum(logged)
    numbers[f"{name} lines"] = len(logged)
for path in (
    "city/1_net_G",
    "city/2_net_D",
    "city/3_net_G",
    "city/3_net_E",
    "plain/latest_net_D",
    "large/2_net_G",
):
    numbers[path] = weight(f"checkpoints/{path}.pth")
for folder in ("results/city", "sampled/city", "results/large"):
    pictures = sorted(n for n in os.listdir(f"{folder}/test_latest/images") if "synthesized" in n)
    pixels = [
        np.asarray(Image.open(f"{folder}/test_latest/images/{n}")).astype(float).mean() for n in pictures
    ]
    numbers[folder] = round(sum(pixels), 1)
    numbers[folder + " number"] = len(pixels)
print("RESULT " + json.dumps(numbers))
