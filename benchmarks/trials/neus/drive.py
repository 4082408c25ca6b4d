"""exp_runner.py learns a ball from three made-up views, validates a picture and a mesh, and goes on."""

import json
import logging
import os
import random
import runpy
import sys
import types

import cv2
import numpy as np
import torch

torch.set_num_threads(1)
scalars, meshes = {}, []


class Conf(dict):
    """Values by dotted names, as pyhocon gives them."""

    def __getitem__(self, name):
        at = self
        for part in name.split("."):
            at = dict.__getitem__(at, part)
        return Conf(at) if isinstance(at, dict) else at

    def __setitem__(self, name, value):
        *path, last = name.split(".")
        at = self
        for part in path:
            at = dict.__getitem__(at, part)
        dict.__setitem__(at, last, value)

    def get(self, name, default=None):
        try:
            return self[name]
        except KeyError:
            return default

    get_int = get_float = get_bool = get_string = get


class Writer:
    def __init__(self, log_dir):
        pass

    def add_scalar(self, name, value, step):
        scalars.setdefault(name.split("/")[1], []).append(float(value))


def module(name, **content):
    made = types.ModuleType(name)
    made.__dict__.update(content)
    sys.modules[name] = made


def marching_cubes(field, threshold):
    meshes.append(float(np.abs(field).mean()))
    return np.zeros((3, 3)), np.array([[0, 1, 2]])


module("pyhocon", ConfigFactory=types.SimpleNamespace(parse_string=lambda text: Conf(json.loads(text))))
module("icecream", ic=print)
module("mcubes", marching_cubes=marching_cubes)
module("trimesh", Trimesh=lambda vertices, faces: types.SimpleNamespace(export=lambda path: None))
module("torch.utils.tensorboard", SummaryWriter=Writer)
real_load = torch.load
torch.load = lambda *a, **k: real_load(*a, **{**k, "weights_only": False})
logging.basicConfig = lambda **options: None
sys.path.insert(0, ".")
size = 16
cameras = {}
for folder in ("image", "mask"):
    os.makedirs(f"made/{folder}")
for i in range(3):
    view = np.zeros((size, size, 3), np.uint8)
    cv2.circle(view, (8, 8), 5, (200, 90 + 40 * i, 60), -1)
    cv2.imwrite(f"made/image/{i}.png", view)
    cv2.imwrite(f"made/mask/{i}.png", (view > 0).astype(np.uint8) * 255)
    turn = np.eye(4)
    turn[:3, :3] = cv2.Rodrigues(np.array([0, 0.3 * i, 0.0]))[0]
    turn[2, 3] = 3
    lens = np.diag([20.0, 20.0, 1, 1])
    lens[:2, 2] = 8
    cameras |= {f"world_mat_{i}": lens @ turn, f"scale_mat_{i}": np.eye(4)}
np.savez("made/cameras.npz", **cameras)
conf = {
    "general": {"base_exp_dir": "exp/CASE_NAME", "recording": ["./", "./models"]},
    "dataset": {
        "data_dir": "made/",
        "render_cameras_name": "cameras.npz",
        "object_cameras_name": "cameras.npz",
    },
    "train": {
        "learning_rate": 0.01,
        "learning_rate_alpha": 0.05,
        "end_iter": 2,
        "batch_size": 16,
        "validate_resolution_level": 4,
        "warm_up_end": 0,
        "anneal_end": 5,
        "use_white_bkgd": True,
        "save_freq": 2,
        "val_freq": 2,
        "val_mesh_freq": 2,
        "report_freq": 100,
        "igr_weight": 0.1,
        "mask_weight": 0.1,
    },
    "model": {
        "nerf": {
            "D": 2,
            "d_in": 4,
            "d_in_view": 3,
            "W": 8,
            "multires": 2,
            "multires_view": 2,
            "output_ch": 4,
            "skips": [4],
            "use_viewdirs": True,
        },
        "sdf_network": {
            "d_out": 9,
            "d_in": 3,
            "d_hidden": 16,
            "n_layers": 2,
            "skip_in": [4],
            "multires": 2,
            "bias": 0.5,
            "scale": 1.0,
            "geometric_init": True,
            "weight_norm": True,
        },
        "variance_network": {"init_val": 0.3},
        "rendering_network": {
            "d_feature": 8,
            "mode": "idr",
            "d_in": 9,
            "d_out": 3,
            "d_hidden": 8,
            "n_layers": 1,
            "weight_norm": True,
            "multires_view": 2,
            "squeeze_out": True,
        },
        "neus_renderer": {
            "n_samples": 4,
            "n_importance": 4,
            "n_outside": 2,
            "up_sample_steps": 2,
            "perturb": 1.0,
        },
    },
}


def script(steps, *flags):
    for seed in (random.seed, np.random.seed, torch.manual_seed):
        seed(0)
    conf["train"]["end_iter"] = steps
    with open("made.conf", "w") as file:
        json.dump(conf, file)
    sys.argv = ["exp_runner.py", "--conf", "made.conf", "--case", "ball", *flags]
    return runpy.run_path("exp_runner.py", run_name="__main__")


script(2)
made = script(4, "--is_continue")
pictures = {}
for folder in ("validations_fine", "normals"):
    for name in sorted(os.listdir(f"exp/ball/{folder}")):
        pictures[f"{folder[:7]} {name[:8]}"] = float(
            cv2.imread(f"exp/ball/{folder}/{name}").astype(float).mean()
        )
runner = made["runner"]


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
                **scalars,
                "meshes": meshes,
                "steps": runner.iter_step,
                "pictures": len(pictures),
                "sdf": float(sum(p.detach().double().abs().sum() for p in runner.sdf_network.parameters())),
            }
        )
    )
)
