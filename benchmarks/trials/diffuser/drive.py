"""Trains scripts/train.py and train_values.py on made-up episodes; plan_guided.py plans with both."""

import collections
import collections.abc
import json
import os
import random
import runpy
import sys
import types

import numpy as np
import torch
import torch.utils.data

torch.set_num_threads(1)
collections.Mapping = collections.abc.Mapping
np.int, np.float, np.NaN = int, float, np.nan
pictures = []


class Tap:
    """The few things that the program uses of typed-argument-parser."""

    def parse_args(self, known_only):
        self.extra_args = sys.argv[1:]
        for each in reversed(type(self).__mro__):
            for name in getattr(each, "__annotations__", {}):
                setattr(self, name, getattr(each, name))
        self.dataset = "points"
        return self

    def save(self, path, skip_unpicklable):
        pass


class Env:
    """Episodes of a point that is pushed about."""

    _max_episode_steps = 12

    def __init__(self):
        self.unwrapped = self

    def seed(self, seed):
        self.generator = np.random.default_rng(0)

    def get_dataset(self):
        rng = np.random.default_rng(1)
        actions = rng.normal(0, 0.3, (48, 2)).astype(np.float32)
        done = np.arange(48) % 12 == 11
        return {
            "observations": np.cumsum(np.concatenate([actions, actions[:, :1]], 1), 0).astype(np.float32),
            "actions": actions,
            "rewards": actions.sum(1),
            "terminals": done & False,
            "timeouts": done,
        }

    def reset(self):
        self.at = np.zeros(3)
        return self.at

    def step(self, action):
        self.at = self.at + np.append(action, action[0])
        return self.at, float(action.sum()), False, {}

    def state_vector(self):
        return self.at

    def get_normalized_score(self, total):
        return total / 10


def module(name, **content):
    made = types.ModuleType(name)
    made.__dict__.update(content)
    sys.modules[name] = made


module("gym", make=lambda name: Env())
for name in ("d4rl", "mujoco_py", "git", "skvideo", "skvideo.io"):
    module(name)
module("tap", Tap=Tap)
RealLoader = torch.utils.data.DataLoader
torch.utils.data.DataLoader = lambda *a, num_workers=0, **k: RealLoader(*a, **k)
sys.path.insert(0, ".")

import diffuser.environments  # noqa: E402
import diffuser.models  # noqa: E402
import diffuser.utils  # noqa: E402
from diffuser.utils import rendering  # noqa: E402

for name in ("composite", "render_plan", "render_rollout"):
    setattr(
        rendering.MuJoCoRenderer,
        name,
        lambda self, path, *seen, **options: pictures.append(float(np.abs(np.asarray(seen[0])).mean())),
    )
rendering.MuJoCoRenderer.__init__ = lambda self, env: None
losses = []
real_loss = diffuser.models.GaussianDiffusion.loss


def loss(self, *args):
    found = real_loss(self, *args)
    losses.append(float(found[0]))
    return found


diffuser.models.GaussianDiffusion.loss = loss
from config import locomotion  # noqa: E402

for kind in ("diffusion", "values"):
    locomotion.base[kind].update(
        dim_mults=(1, 2), horizon=8, n_diffusion_steps=4, max_path_length=12, n_train_steps=2
    )
    locomotion.base[kind].update(
        n_steps_per_epoch=2, batch_size=2, n_saves=1, save_freq=1, seed=0, prefix=kind + "/"
    )
locomotion.base["diffusion"].update(sample_freq=1, n_reference=2)
locomotion.base["plan"].update(
    horizon=8, n_diffusion_steps=4, batch_size=3, max_episode_length=2, seed=0, discount=0.99
)
locomotion.base["plan"].update(
    diffusion_loadpath="f:diffusion/_H{horizon}_T{n_diffusion_steps}",
    value_loadpath="f:values/_H{horizon}_T{n_diffusion_steps}_d{discount}",
    t_stopgrad=1,
)


def script(name):
    for seed in (random.seed, np.random.seed, torch.manual_seed):
        seed(0)
    sys.argv = [name]
    return runpy.run_path(name, run_name="__main__")


made = script("scripts/train.py")
value = script("scripts/train_values.py")
plan = script("scripts/plan_guided.py")


def size(model):
    return float(sum(p.double().abs().sum() for p in model.parameters()))


print(
    "RESULT "
    + json.dumps(
        {
            "losses": losses,
            "pictures": pictures,
            "model": size(made["trainer"].model),
            "values": size(value["trainer"].model),
            "reward": float(plan["total_reward"]),
            "saved": sorted(
                name for _, _, names in os.walk("logs") for name in names if name.endswith(".pt")
            ),
        }
    )
)
