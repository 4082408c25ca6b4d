"""Two single-file algorithms of offline RL: td3_bc.py, which then goes on from its checkpoint, and dt.py."""

import inspect
import json
import os
import random
import runpy
import sys
import types
import uuid

import numpy as np
import torch
import torch.utils.data

torch.set_num_threads(1)
logged, options = {}, {}


def module(name, **content):
    made = types.ModuleType(name)
    made.__dict__.update(content)
    sys.modules[name] = made
    return made


class Space:
    def __init__(self, size):
        self.shape, self.high = (size,), np.ones(size)

    def seed(self, seed):
        pass


class Env:
    """A point that an action pushes about, six steps long."""

    observation_space, action_space = Space(3), Space(2)

    def seed(self, seed):
        pass

    def reset(self):
        self.at, self.steps = np.zeros(3, np.float32), 0
        return self.at

    def step(self, action):
        self.steps += 1
        self.at = (self.at + np.append(action, action[0])).astype(np.float32)
        return self.at, float(self.at.sum()), self.steps == 6, {}

    def get_normalized_score(self, score):
        return score / 10

    def get_dataset(self):
        rng = np.random.default_rng(0)
        actions = rng.uniform(-1, 1, (60, 2)).astype(np.float32)
        states = np.cumsum(np.concatenate([actions, actions[:, :1]], 1), 0).astype(np.float32)
        done = np.arange(60) % 12 == 11
        return {
            "observations": states,
            "next_observations": np.roll(states, -1, 0),
            "actions": actions,
            "rewards": actions.sum(1),
            "terminals": done,
            "timeouts": done & False,
        }


class Observed(Env):
    def __init__(self, env, change):
        self.change = change

    def reset(self):
        return self.change(super().reset())

    def step(self, action):
        state, *rest = super().step(action)
        return self.change(state), *rest


class Rewarded(Env):
    def __init__(self, env, change):
        self.env, self.change = env, change

    def reset(self):
        return self.env.reset()

    def step(self, action):
        state, reward, *rest = self.env.step(action)
        return state, self.change(reward), *rest


def wrap():
    def decorate(function):
        (config,) = inspect.signature(function).parameters.values()
        return lambda: function(config.annotation(**options))

    return decorate


def log(numbers, step):
    for name, value in numbers.items():
        logged.setdefault(name, []).append(float(value))


wrappers = types.SimpleNamespace(TransformObservation=Observed, TransformReward=Rewarded)
module("gym", Env=Env, make=lambda name: Env(), wrappers=wrappers)
module("d4rl", qlearning_dataset=lambda env: env.get_dataset())
module("pyrallis", wrap=wrap, dump=lambda config, file: None)
module("wandb", init=lambda **options: None, log=log, run=types.SimpleNamespace(save=lambda: None))
uuid.uuid4 = lambda: "0" * 8
RealLoader = torch.utils.data.DataLoader
torch.utils.data.DataLoader = lambda *a, num_workers=0, **k: RealLoader(*a, **k)


def script(name, **chosen):
    for seed in (random.seed, np.random.seed, torch.manual_seed):
        seed(0)
    options.clear()
    options.update(chosen)
    sys.modules[name] = types.ModuleType(name)
    runpy.run_path(f"algorithms/offline/{name}.py", run_name="__main__")


def size(state):
    return float(sum(v.double().abs().sum() for v in state.values()))


td3 = {"max_timesteps": 4, "buffer_size": 100, "batch_size": 8, "eval_freq": 2, "n_episodes": 1}
script("td3_bc", checkpoints_path="one", **td3)
(folder,) = os.listdir("one")
script("td3_bc", load_model=f"one/{folder}/checkpoint_3.pt", normalize=False, **td3)
actor = torch.load(f"one/{folder}/checkpoint_3.pt", map_location="cpu")["actor"]
script(
    "dt",
    checkpoints_path="two",
    embedding_dim=8,
    num_layers=1,
    seq_len=4,
    episode_len=12,
    batch_size=4,
    update_steps=3,
    warmup_steps=2,
    eval_episodes=1,
    target_returns=(4.0, 2.0),
    eval_every=2,
    num_workers=0,
    learning_rate=0.01,
)
(folder,) = os.listdir("two")
saved = torch.load(f"two/{folder}/dt_checkpoint.pt", map_location="cpu", weights_only=False)["model_state"]


def numbered(values, name=""):
    """Give each number of a list a name of its own, so that it is compared with a tolerance."""
    if isinstance(values, dict):
        return {k: v for key, each in values.items() for k, v in numbered(each, f"{name} {key}").items()}
    if isinstance(values, (list, tuple)):
        return {k: v for i, each in enumerate(values) for k, v in numbered(each, f"{name} {i}").items()}
    return {name.strip(): values}


print("RESULT " + json.dumps(numbered({**logged, "actor": size(actor), "transformer": size(saved)})))
