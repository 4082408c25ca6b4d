"""diffwave.__main__ trains for a few steps, and diffwave.inference synthesizes."""

import json
import os
import random
import runpy
import sys
import types

import numpy as np
import scipy.io.wavfile
import torch

torch.set_num_threads(1)
scalars, saved = [], {}


def module(name, **content):
    made = types.ModuleType(name)
    made.__dict__.update(content)
    sys.modules[name] = made


class Writer:
    def __init__(self, *args, **kwargs):
        pass

    def add_audio(self, name, audio, *args, **kwargs):
        scalars.append(float(audio.abs().mean()))

    def add_image(self, name, image, *args):
        scalars.append(float(image.mean()))

    def add_scalar(self, name, value, step):
        scalars.append(float(value))

    def flush(self):
        pass


def load(path):
    rate, wave = scipy.io.wavfile.read(path)
    return torch.from_numpy(wave.astype(np.float32) / 32768)[None], rate


module("torchaudio", load=load, save=lambda path, wave, sample_rate: saved.update({path: wave.numpy()}))
module("torch.utils.tensorboard", SummaryWriter=Writer)
RealLoader = torch.utils.data.DataLoader
torch.utils.data.DataLoader = lambda *a, num_workers=0, **k: RealLoader(*a, **k)
real_load = torch.load
torch.load = lambda *a, **k: real_load(*a, **{**k, "weights_only": False})
sys.path.insert(0, "src")

from diffwave.params import params  # noqa: E402

sizes = {"batch_size": 2, "residual_layers": 2, "residual_channels": 8, "crop_mel_frames": 4}
params.override({**sizes, "learning_rate": 0.01})
os.mkdir("waves")
rng = np.random.default_rng(0)
for i in range(5):
    scipy.io.wavfile.write(f"waves/{i}.wav", 22050, (rng.normal(0, 3000, 256 * 8)).astype(np.int16))
    np.save(f"waves/{i}.wav.spec.npy", rng.random((80, 8), dtype=np.float32))
np.save("one.npy", rng.random((80, 3), dtype=np.float32))


def script(name, *argv):
    for seed in (random.seed, np.random.seed, torch.manual_seed):
        seed(0)
    sys.argv = [name, *argv]
    runpy.run_module("diffwave." + name, run_name="__main__")


script("__main__", "model", "waves", "--max_steps", "3")
script("__main__", "model", "waves", "--max_steps", "6")
script("inference", "model", "--fast", "-s", "one.npy", "-o", "fast.wav")
state = real_load("model/weights.pt", map_location="cpu", weights_only=False)
wave = saved["fast.wav"]


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
                "scalars": scalars,
                "step": state["step"],
                "model": float(sum(v.double().abs().sum() for v in state["model"].values())),
                "wave": float(np.abs(wave).mean()),
                "samples": int(wave.size),
            }
        )
    )
)
