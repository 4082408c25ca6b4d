"""train.py as MUNIT (fresh, then resumed; with the VGG loss) and as UNIT; test.py on both."""

import glob
import json
import os
import random
import runpy
import sys
import types

import numpy as np
import torch
import torch.utils.serialization
import yaml
from PIL import Image

torch.set_num_threads(1)

scalars = {}


class SummaryWriter:
    def __init__(self, *args, **kwargs):
        pass

    def add_scalar(self, name, value, step):
        scalars.setdefault(step, {})[name] = float(value)


def module(name, **content):
    made = types.ModuleType(name)
    made.__dict__.update(content)
    sys.modules[name] = made


module("tensorboardX", SummaryWriter=SummaryWriter)
SHAPES = [
    (64, 3),
    (64, 64),
    (128, 64),
    (128, 128),
    (256, 128),
    (256, 256),
    (256, 256),
    (512, 256),
    (512, 512),
    (512, 512),
    (512, 512),
    (512, 512),
    (512, 512),
]


class LuaNetwork:  # in place of the VGG network that is downloaded
    def parameters(self):
        rng = np.random.default_rng(5)
        made = []
        for out, into in SHAPES:
            made.append(
                torch.from_numpy(rng.normal(0, (2 / into / 9) ** 0.5, (out, into, 3, 3)).astype(np.float32))
            )
            made.append(torch.zeros(out))
        return made, None


torch.utils.serialization.load_lua = lambda path: LuaNetwork()
os.makedirs("models")
open("models/vgg16.t7", "w").close()
plain_yaml = yaml.load
yaml.load = lambda stream, Loader=yaml.SafeLoader: plain_yaml(stream, Loader)  # older ones ask for no loader

rng = np.random.default_rng(0)
for folder in ("trainA", "trainB", "testA", "testB"):
    os.makedirs("made/" + folder)
    for i in range(3):
        image = rng.integers(0, 256, (9, 9, 3), dtype=np.uint8).repeat(8, 0).repeat(8, 1)
        Image.fromarray(image).save(f"made/{folder}/{i}.png")

config = yaml.safe_load(open("configs/edges2shoes_folder.yaml"))
config.update(
    image_save_iter=2,
    image_display_iter=2,
    display_size=2,
    snapshot_save_iter=1,
    log_iter=1,
    num_workers=0,
    new_size=64,
    crop_image_height=64,
    crop_image_width=64,
    data_root="made",
    recon_x_cyc_w=10,
)
config["gen"].update(dim=8, mlp_dim=16, n_res=2)
config["dis"].update(dim=8, n_layer=3, num_scales=2, gan_type="nsgan")


def settings(name, **changes):
    with open(name + ".yaml", "w") as f:
        yaml.safe_dump({**config, **changes}, f)


def run(*argv):
    random.seed(0)
    np.random.seed(0)
    torch.manual_seed(0)
    sys.argv = list(argv)
    try:
        runpy.run_path(argv[0], run_name="__main__")
    except SystemExit as end:
        if end.code != "Finish training":
            raise


result = {}


def note(name):
    for step in scalars:
        for key in ("loss_gen_total", "loss_dis_total", "loss_gen_vgg_a", "loss_gen_recon_x_b"):
            if key in scalars[step]:
                result[f"{name}_{step}_{key}"] = scalars[step][key]
    scalars.clear()


def pictures(name, pattern):
    files = sorted(glob.glob(pattern))
    result[name + "_n"] = len(files)
    result[name] = float(np.mean([np.asarray(Image.open(f)).astype(np.float64).mean() for f in files]))


def weight(name, path):
    state = torch.load(path)
    result[name] = sum(v.double().abs().sum().item() for half in state.values() for v in half.values())


settings("m", max_iter=2, vgg_w=0.1)
run("train.py", "--config", "m.yaml")
note("first")
weight("first_norm", "outputs/m/checkpoints/gen_00000002.pt")
settings("m", max_iter=3, vgg_w=0.1)
run("train.py", "--config", "m.yaml", "--resume")
note("resumed")
weight("resumed_norm", "outputs/m/checkpoints/gen_00000003.pt")
pictures("shown", "outputs/m/images/*.jpg")
test = [
    "test.py",
    "--config",
    "m.yaml",
    "--checkpoint",
    "outputs/m/checkpoints/gen_00000003.pt",
    "--input",
    "made/testA/0.png",
]
run(*test, "--output_folder", "many", "--num_style", "2")
pictures("many", "many/*.jpg")
run(*test, "--output_folder", "styled", "--style", "made/testB/1.png")
pictures("styled", "styled/*.jpg")

# UNIT's keys, as in its own configurations
settings("u", max_iter=2, recon_kl_w=0.01, recon_kl_cyc_w=0.01)
run("train.py", "--config", "u.yaml", "--trainer", "UNIT")
note("unit")
weight("unit_norm", "outputs/u/checkpoints/gen_00000002.pt")
run(
    "test.py",
    "--config",
    "u.yaml",
    "--trainer",
    "UNIT",
    "--checkpoint",
    "outputs/u/checkpoints/gen_00000002.pt",
    "--input",
    "made/testB/0.png",
    "--output_folder",
    "unit",
    "--a2b",
    "0",
)
pictures("unit", "unit/*.jpg")
print("RESULT " + json.dumps(result))
