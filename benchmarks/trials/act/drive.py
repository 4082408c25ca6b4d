"""imitate_episodes.py: train the ACT policy, roll it out with temporal aggregation."""

import contextlib
import json
import os
import pickle
import runpy
import sys
import types

import h5py
import matplotlib
import numpy as np
import torch
import torchvision

matplotlib.use("Agg")
ipython = types.ModuleType("IPython")
ipython.embed = ipython.get_ipython = lambda: None
ipython.version_info = (9, 0)
sys.modules["IPython"] = ipython
plain_resnet = torchvision.models.resnet18
torchvision.models.resnet18 = lambda pretrained=False, **k: plain_resnet(weights=None, **k)
plain_loader = torch.utils.data.DataLoader


class Loader(plain_loader):
    def __init__(self, *args, num_workers=0, prefetch_factor=None, **kwargs):
        super().__init__(*args, **kwargs)


torch.utils.data.DataLoader = Loader

# ---- a simulator of two arms: the joints go where they are told, the camera sees their sum
TARGETS = []


class World:
    task = types.SimpleNamespace(max_reward=4)

    def observe(self, reward):
        image = np.zeros((64, 96, 3), dtype=np.uint8)
        image[:, :, 0] = np.uint8(np.abs(self.qpos).sum() * 20 % 255)
        image[:32, :, 1] = np.uint8(np.abs(self.qpos[:7]).sum() * 30 % 255)
        return types.SimpleNamespace(
            observation={"qpos": self.qpos.copy(), "images": {"top": image}}, reward=reward
        )

    def reset(self):
        self.qpos = np.concatenate([sim_env.BOX_POSE[0], np.zeros(7)])
        return self.observe(0)

    def step(self, target):
        TARGETS.append(np.array(target))
        self.qpos = 0.5 * self.qpos + 0.5 * target
        return self.observe(int(np.clip(np.abs(target).mean() * 4, 0, 4)))


sim_env = types.ModuleType("sim_env")
sim_env.BOX_POSE = [None]
sim_env.make_sim_env = lambda name: World()
sys.modules["sim_env"] = sim_env

sys.path.append("detr")  # the package is installed from there
import constants  # noqa: E402

constants.SIM_TASK_CONFIGS["sim_transfer_cube_scripted"] = {
    "dataset_dir": "data",
    "num_episodes": 6,
    "episode_len": 4,
    "camera_names": ["top"],
}
os.makedirs("data")
rng = np.random.default_rng(5)
for episode in range(6):
    with h5py.File(f"data/episode_{episode}.hdf5", "w") as root:
        root.attrs["sim"] = True
        root["action"] = rng.normal(size=(4, 14)).astype(np.float32)
        root["observations/qpos"] = rng.normal(size=(4, 14)).astype(np.float32)
        root["observations/qvel"] = rng.normal(size=(4, 14)).astype(np.float32)
        root["observations/images/top"] = rng.integers(0, 256, (4, 64, 96, 3), dtype=np.uint8)


def imitate(folder, *flags):
    sys.argv = [
        "imitate_episodes.py",
        "--task_name",
        "sim_transfer_cube_scripted",
        "--ckpt_dir",
        folder,
        "--batch_size",
        "2",
        "--seed",
        "3",
        "--num_epochs",
        "2",
        "--lr",
        "1e-3",
        *flags,
    ]
    with contextlib.suppress(SystemExit):
        runpy.run_path("imitate_episodes.py", run_name="__main__")


def weights(folder, name):
    state = torch.load(f"{folder}/{name}", map_location="cpu")
    return float(sum(value.double().abs().sum() for value in state.values()))


act = [
    "--policy_class",
    "ACT",
    "--kl_weight",
    "10",
    "--chunk_size",
    "4",
    "--hidden_dim",
    "32",
    "--dim_feedforward",
    "64",
]
imitate("act_run", *act)
imitate("act_run", *act, "--eval", "--temporal_agg")
with open("act_run/dataset_stats.pkl", "rb") as file:
    stats = pickle.load(file)
print(
    "RESULT "
    + json.dumps(
        {
            "act best": weights("act_run", "policy_best.ckpt"),
            "act last": weights("act_run", "policy_last.ckpt"),
            "actions": len(TARGETS),
            "action mean": float(np.abs(TARGETS).mean()),
            "action last": float(TARGETS[-1][3]),
            "normalised": float(stats["action_mean"].sum()),
        }
    )
)
