"""Grad-TTS/train.py for two epochs on made-up tones, then inference.py speaks with what it has saved."""

import json
import os
import random
import runpy
import sys
import types

import numpy as np
import scipy.io.wavfile
import torch
import torch.utils.data

torch.set_num_threads(1)
os.chdir("Grad-TTS")
for folder in ("", "hifi-gan"):
    sys.path.insert(0, os.path.join(os.getcwd(), folder))
scalars, waves = {}, {}


class Writer:
    def __init__(self, log_dir):
        os.makedirs(log_dir, exist_ok=True)

    def add_scalar(self, name, value, global_step):
        scalars.setdefault(name, []).append(float(value))

    def add_image(self, *args, **kwargs):
        pass


def module(name, **content):
    made = types.ModuleType(name)
    made.__dict__.update(content)
    sys.modules[name] = made


def aligned(path, value, x_lengths, y_lengths):
    """Spread the frames evenly over the sounds."""
    for row, (x, y) in enumerate(zip(x_lengths, y_lengths, strict=True)):
        for t in range(y):
            path[row, t * x // y, t] = 1


def load(path):
    rate, wave = scipy.io.wavfile.read(path)
    return torch.from_numpy(wave.astype(np.float32) / 32768)[None], rate


def mel(y, n_fft, n_mels, *options, center):
    _, hop, win, *_ = options
    frames = torch.stft(y, n_fft, hop, win, torch.hann_window(win), return_complex=True).abs()[:, :n_mels]
    return torch.log(frames + 1e-5)


module("torchaudio", load=load)
module("torch.utils.tensorboard", SummaryWriter=Writer)
module("model.model.monotonic_align.core", maximum_path_c=aligned)
module("model.monotonic_align.model.monotonic_align.core", maximum_path_c=aligned)
module("meldataset", mel_spectrogram=mel)
module("unidecode", unidecode=lambda text: text)
module("inflect", engine=lambda: None)
RealLoader = torch.utils.data.DataLoader
torch.utils.data.DataLoader = lambda *a, num_workers=0, **k: RealLoader(*a, **k)
rng = np.random.default_rng(0)
with open("made.txt", "w") as file:
    for i in range(4):
        t = np.arange(9000 + 500 * i) / 22050
        wave = 8000 * np.sin(2 * np.pi * (200 + 80 * i) * t) + rng.normal(0, 200, len(t))
        scipy.io.wavfile.write(f"{i}.wav", 22050, wave.astype(np.int16))
        file.write(f"{i}.wav|one more {'word ' * i}here\n")

import params  # noqa: E402

params.train_filelist_path = params.valid_filelist_path = "made.txt"
params.n_enc_channels, params.filter_channels, params.filter_channels_dp = 16, 16, 16
params.n_enc_layers, params.dec_dim, params.batch_size, params.test_size = 1, 8, 2, 1
params.n_epochs, params.learning_rate, params.out_size = 2, 0.01, 16

import utils  # noqa: E402

utils.plot_tensor = utils.save_plot = lambda *args: None
scipy.io.wavfile.write = lambda path, rate, wave: waves.update({path: wave})


def script(*argv):
    for seed in (random.seed, np.random.seed, torch.manual_seed):
        seed(0)
    sys.argv = list(argv)
    return runpy.run_path(argv[0], run_name="__main__")


made = script("train.py")
with open("speak.txt", "w") as file:
    file.write("one word\n")
config = {
    "resblock": "2",
    "upsample_rates": [16, 16],
    "upsample_kernel_sizes": [32, 32],
    "upsample_initial_channel": 8,
    "resblock_kernel_sizes": [3],
    "resblock_dilation_sizes": [[1, 3]],
}
os.makedirs("checkpts", exist_ok=True)
with open("checkpts/hifigan-config.json", "w") as file:
    json.dump(config, file)
sys.path.insert(0, os.path.join(os.getcwd(), "hifi-gan"))

from env import AttrDict  # noqa: E402
from models import Generator  # noqa: E402

torch.manual_seed(0)
torch.save({"generator": Generator(AttrDict(config)).state_dict()}, "checkpts/hifigan.pt")
os.makedirs("out", exist_ok=True)
script("inference.py", "-f", "speak.txt", "-c", "logs/new_exp/grad_2.pt", "-t", "3")
(wave,) = waves.values()
numbers = {name.split("/")[1]: values for name, values in scalars.items()}
numbers["model"] = float(sum(p.double().abs().sum() for p in made["model"].parameters()))
numbers["samples"], numbers["wave"] = len(wave), float(np.abs(wave.astype(float)).mean())


def numbered(values, name=""):
    """Give each number of a list a name of its own, so that it is compared with a tolerance."""
    if isinstance(values, dict):
        return {k: v for key, each in values.items() for k, v in numbered(each, f"{name} {key}").items()}
    if isinstance(values, (list, tuple)):
        return {k: v for i, each in enumerate(values) for k, v in numbered(each, f"{name} {i}").items()}
    return {name.strip(): values}


print("RESULT " + json.dumps(numbered(numbers)))
