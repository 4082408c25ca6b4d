"""train.py with the default --gpu_ids, then with --continue_train, then test.py."""

import glob
import importlib
import json
import os
import pickle
import random
import runpy
import sys
import types
from unittest import mock

import numpy as np
import torch
import torchvision
from PIL import Image

torch.set_num_threads(1)


def module(name, **content):
    made = types.ModuleType(name)
    made.__dict__.update(content)
    sys.modules[name] = made
    return made


# ---- not relevant here: pages of HTML
module("dominate", document=lambda **k: mock.MagicMock(render=lambda: ""))
module("dominate.tags", **{name: mock.MagicMock() for name in "h1 h3 meta table tr td p a img br".split()})
module("dill", dump=pickle.dump, load=pickle.load, HIGHEST_PROTOCOL=pickle.HIGHEST_PROTOCOL)


# ---- the package that its README has one clone into models/networks
class SynchronizedBatchNorm2d(torch.nn.BatchNorm2d):
    pass


class DataParallelWithCallback(torch.nn.DataParallel):
    pass


module(
    "models.networks.sync_batchnorm",
    SynchronizedBatchNorm2d=SynchronizedBatchNorm2d,
    DataParallelWithCallback=DataParallelWithCallback,
)


# ---- the network that is downloaded: its layers, untrained
def vgg19(pretrained=False):
    vgg = importlib.import_module("torchvision.models.vgg")
    return types.SimpleNamespace(features=vgg.make_layers(vgg.cfgs["E"]))


torchvision.models.vgg19 = vgg19

# init_weights writes to a layer's `weight`, which shares its memory with `weight_orig` until the
# layer is moved to another device: only there would it have no effect. Here it has none anywhere.
plain_norm = torch.nn.utils.spectral_norm


def spectral_norm(layer):
    made = plain_norm(layer)
    made.weight = made.weight.clone()
    return made


torch.nn.utils.spectral_norm = spectral_norm

rng = np.random.default_rng(0)
for part, count in (("train", 4), ("test", 2)):
    for kind in ("label", "instance", "image"):
        os.makedirs(f"made/{part}_{kind}")
    for i in range(count):
        blocks = rng.integers(0, 9, (8, 8), dtype=np.uint8)
        blocks[blocks == 8] = 255
        Image.fromarray(blocks.repeat(9, 0).repeat(9, 1)).save(f"made/{part}_label/{i}.png")
        things = rng.integers(0, 20, (8, 8), dtype=np.uint8)
        Image.fromarray(things.repeat(9, 0).repeat(9, 1)).save(f"made/{part}_instance/{i}.png")
        image = rng.integers(0, 256, (8, 8, 3), dtype=np.uint8)
        Image.fromarray(image.repeat(9, 0).repeat(9, 1)).save(f"made/{part}_image/{i}.png")


def run(script, part, *argv):
    random.seed(0)
    np.random.seed(0)
    torch.manual_seed(0)
    sys.argv = [
        script,
        "--name",
        "made",
        "--dataset_mode",
        "custom",
        "--label_dir",
        f"made/{part}_label",
        "--image_dir",
        f"made/{part}_image",
        "--instance_dir",
        f"made/{part}_instance",
        "--label_nc",
        "8",
        "--contain_dontcare_label",
        "--ngf",
        "8",
        "--crop_size",
        "64",
        *argv,
    ]
    runpy.run_path(script, run_name="__main__")


losses = []
from util import visualizer  # noqa: E402

visualizer.Visualizer.plot_current_errors = lambda self, errors, step: losses.append(
    {key: float(value.mean()) for key, value in errors.items()}
)

TRAIN = [
    "--load_size",
    "72",
    "--ndf",
    "8",
    "--batchSize",
    "2",
    "--print_freq",
    "1",
    "--display_freq",
    "4",
    "--save_epoch_freq",
    "1",
    "--nThreads",
    "0",
]
result = {}


def weight(which):
    for net in "GD":
        state = torch.load(f"checkpoints/made/{which}_net_{net}.pth")
        result[f"{which}_{net}"] = sum(v.double().abs().sum().item() for v in state.values())


run("train.py", "train", *TRAIN, "--niter", "1")
weight("1")
run("train.py", "train", *TRAIN, "--niter", "2", "--niter_decay", "1", "--continue_train")
weight("3")
for i in (0, 1, 2, -1):
    result.update({f"{key}_{i}": value for key, value in losses[i].items()})
result["steps"] = len(losses)
result["pictures"] = len(glob.glob("checkpoints/made/web/images/*.png"))
run("test.py", "test", "--load_size", "64")
made = sorted(glob.glob("results/made/**/synthesized_image/*.png", recursive=True))
result["tested"] = len(made)
result["shown"] = float(np.mean([np.asarray(Image.open(name)).astype(np.float64).mean() for name in made]))
print("RESULT " + json.dumps(result))
