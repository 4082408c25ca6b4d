"""Trains one agent on a made-up task, saves it, evaluates it; then a multi-task agent offline."""

import json
import os
import sys
import types

import gymnasium
import numpy as np
import torch
from omegaconf import OmegaConf
from tensordict import TensorDict

torch.set_num_threads(1)
os.chdir("tdmpc2")
sys.path.insert(0, os.getcwd())


def module(name, **content):
    made = types.ModuleType(name)
    made.__dict__.update(content)
    sys.modules[name] = made


# ---- torchrl's buffer in a few lines: slices of one episode, stored where the program wants them
class Storage:
    def __init__(self, capacity, device):
        self.device = device


class ReplayBuffer:
    def __init__(self, storage, sampler, pin_memory, prefetch, batch_size):
        self.storage, self.slices, self.size = storage, sampler, batch_size
        self.all = []

    def extend(self, td):
        self.all.append(td.to(self.storage.device))

    def sample(self):
        td = torch.cat(self.all)
        length = self.size // self.slices
        episode = td["episode"].cpu()
        starts = [i for i in range(len(td) - length + 1) if episode[i] == episode[i + length - 1]]
        chosen = torch.randint(len(starts), (self.slices,))
        rows = torch.cat([torch.arange(starts[i], starts[i] + length) for i in chosen.tolist()])
        return td[rows.to(td.device)]


module("torchrl")
module("torchrl.data")
module("torchrl.data.replay_buffers", ReplayBuffer=ReplayBuffer, LazyTensorStorage=Storage)
module("torchrl.data.replay_buffers.samplers", SliceSampler=lambda num_slices, **_: num_slices)


gymnasium.logger.set_level = lambda level: None  # the interface of gymnasium 0.29
gymnasium.Wrapper.__getattr__ = lambda self, name: getattr(self.__dict__["env"], name)


# ---- this torch moves no parameters of the meta device; the program keeps some as placeholders
real_apply = torch.nn.Module._apply


def apply_to_real(self, fn, recurse=True):
    placeholder = any(p is not None and p.is_meta for p in self._parameters.values())
    return self if placeholder else real_apply(self, fn, recurse)


torch.nn.Module._apply = apply_to_real


# ---- a task: bring a point to the origin
class Point(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-2, 2, (3,), np.float32)
    action_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)
    max_episode_steps = 6

    def __init__(self, cfg):
        self.noise = np.random.RandomState(3)
        self.action_space.seed(3)

    def reset(self, **_):
        self.t, self.at = 0, self.noise.randn(3).astype(np.float32)
        return self.at

    def step(self, action):
        self.t += 1
        self.at = self.at * 0.9 + 0.1 * np.resize(action, 3).astype(np.float32)
        reward = -float(np.abs(self.at).sum())
        return self.at, reward, self.t == self.max_episode_steps, {"success": 0.0, "terminated": False}

    def render(self):
        return np.zeros((4, 4, 3), np.uint8)


def no_task(cfg):
    raise ValueError


module("envs.dmcontrol", make_env=Point)
for name in ("maniskill", "metaworld", "myosuite", "mujoco"):
    module("envs." + name, make_env=no_task)


def hydra_main(config_name, config_path):
    return lambda function: function


module("hydra", main=hydra_main, utils=types.SimpleNamespace(get_original_cwd=os.getcwd))
module("imageio", mimsave=lambda *args, **kwargs: None)

import envs  # noqa: E402

real_make = envs.make_env


def make_env(cfg):
    env = real_make(cfg)
    cfg.seed_steps = 12
    return env


envs.make_env = make_env


def settings(**more):
    cfg = OmegaConf.load("config.yaml")
    del cfg["defaults"]
    tiny = {
        "compile": False,
        "enable_wandb": False,
        "save_video": False,
        "steps": 20,
        "batch_size": 4,
        "num_samples": 12,
        "num_elites": 4,
        "num_pi_trajs": 2,
        "iterations": 2,
        "eval_episodes": 1,
        "eval_freq": 10,
        "mlp_dim": 16,
        "latent_dim": 16,
        "enc_dim": 8,
        "num_bins": 11,
        "wandb_project": "none",
        "wandb_entity": "none",
        "data_dir": "none",
        "checkpoint": "none",
        "model_size": None,
        "obs_shapes": None,
        "action_dims": None,
        "episode_lengths": None,
        "obs_shape": None,
        "action_dim": None,
        "episode_length": None,
        "seed_steps": None,
        "work_dir": None,
        "task_title": None,
        "multitask": None,
        "tasks": None,
        "bin_size": None,
    }
    return OmegaConf.merge(cfg, tiny | more)


import common.logger  # noqa: E402
import train  # noqa: E402

logged = []
real_log = common.logger.Logger.log


def log(self, d, category="train"):
    logged.append((category, {k: float(v) for k, v in d.items() if "time" not in k and "second" not in k}))
    return real_log(self, d, category)


common.logger.Logger.log = log
agents = []


class Kept(train.TDMPC2):
    def __init__(self, cfg):
        super().__init__(cfg)
        agents.append(self)


train.TDMPC2 = Kept
train.train(settings(task="point-go"))
agent = agents[-1]
agent.save("agent.pt")

import evaluate  # noqa: E402

acts = []
real_act = train.TDMPC2.act


def act(self, *args, **kwargs):
    action = real_act(self, *args, **kwargs)
    acts.append(action)
    return action


evaluate.TDMPC2.act = act
evaluate.evaluate(settings(task="point-go", checkpoint="agent.pt", eval_episodes=2))

# ---- two tasks at once: the discounts and masks of several tasks, a buffer filled from a file
import common  # noqa: E402

common.TASK_SET["pair"] = ["one", "two"]
cfg = settings(task="pair", task_dim=4)
from common.parser import parse_cfg  # noqa: E402
from common.seed import set_seed  # noqa: E402

cfg = parse_cfg(cfg)
set_seed(1)
env = make_env(cfg)
both, buffer = train.TDMPC2(cfg), train.Buffer(cfg)
g = torch.Generator().manual_seed(5)


def rows(*shape):
    return torch.randn(4, 7, *shape, generator=g)


buffer.load(
    TensorDict(
        {
            "obs": rows(3),
            "action": rows(2).tanh(),
            "reward": rows(),
            "task": torch.arange(4)[:, None].expand(4, 7) % 2,
        },
        batch_size=(4, 7),
    )
)
updates = [both.update(buffer) for _ in range(3)]

kinds = [d for kind, d in logged if kind == "train"]
evals = [d for kind, d in logged if kind == "eval"]


def total(module):
    return float(sum(p.detach().double().abs().sum() for p in module.parameters() if not p.is_meta))


print(
    "RESULT "
    + json.dumps(
        {
            "logs": len(kinds),
            "loss": kinds[-1]["total_loss"],
            "value": kinds[-1]["value_loss"],
            "grad": kinds[-1]["grad_norm"],
            "pi": kinds[-1]["pi_loss"],
            "scale": kinds[-1]["pi_scale"],
            "reward": evals[-1]["episode_reward"],
            "weights": total(agent.model),
            "acts": len(acts),
            "acted": float(sum(a.abs().sum() for a in acts)),
            "pair_loss": float(updates[-1]["total_loss"]),
            "pair_weights": total(both.model),
        }
    )
)
