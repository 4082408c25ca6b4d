"""scripts/train.py trains the vocoder on noise and goes on from what it saved; then a wave is vocoded."""

import json
import os
import pathlib
import random
import runpy
import sys
import types

import numpy as np
import scipy.io.wavfile
import torch
import yaml

torch.set_num_threads(1)
scalars = {}


def module(name, **content):
    made = types.ModuleType(name)
    made.__dict__.update(content)
    sys.modules[name] = made
    return made


class Writer:
    def __init__(self, *args):
        pass

    def add_scalar(self, name, value, step):
        scalars.setdefault(name, []).append(float(value))

    def add_audio(self, name, audio, *args, **kwargs):
        scalars.setdefault("audio", []).append(float(torch.as_tensor(audio).abs().mean()))


def load(path, sr=22050):
    return scipy.io.wavfile.read(path)[1].astype(np.float32) / 32768, sr


def mel(rate, n_fft, n_mels, low, high):
    return np.random.RandomState(0).rand(n_mels, n_fft // 2 + 1).astype(np.float32)


core = module("librosa.core", load=load)
module("librosa.util", normalize=lambda x: x / np.abs(x).max())
module("librosa.filters", mel=mel)
module("librosa", core=core)
module("torch.utils.tensorboard", SummaryWriter=Writer)
# old-torch behaviour: real-valued stft
real_stft = torch.stft
torch.stft = lambda *a, **k: torch.view_as_real(real_stft(*a, return_complex=True, **k))
yaml.FullLoader = yaml.UnsafeLoader
RealLoader = torch.utils.data.DataLoader
torch.utils.data.DataLoader = lambda *a, num_workers=0, **k: RealLoader(*a, **k)
sys.path.insert(0, ".")
rng = np.random.default_rng(0)
os.mkdir("waves")
for part, count in (("train", 4), ("test", 2)):
    names = []
    for i in range(count):
        names.append(f"{part}{i}.wav")
        scipy.io.wavfile.write(f"waves/{names[-1]}", 22050, rng.normal(0, 3000, 4096).astype(np.int16))
    pathlib.Path(f"waves/{part}_files.txt").write_text("\n".join(names))


def script(*argv):
    for seed in (random.seed, np.random.seed, torch.manual_seed):
        seed(0)
    sys.argv = list(argv)
    runpy.run_path(argv[0], run_name="__main__")


train = ["scripts/train.py", "--data_path", "waves", "--ngf", "4", "--num_D", "1", "--n_residual_layers", "1"]
train += ["--batch_size", "2", "--seq_len", "4096", "--epochs", "1", "--save_interval", "2"]
train += ["--n_test_samples", "2", "--log_interval", "1"]
script(*train, "--save_path", "one")
script(*train, "--save_path", "two", "--load_path", "one")

from mel2wav import MelVocoder  # noqa: E402

vocoder = MelVocoder("two")
wave = vocoder.inverse(vocoder(torch.from_numpy(load("waves/test0.wav")[0])[None])).cpu().numpy()
state = torch.load("two/netG.pt", map_location="cpu")
scalars["generator"] = float(sum(v.double().abs().sum() for v in state.values()))
scalars["wave"] = float(np.abs(wave).mean())


def numbered(values, name=""):
    """Give each number of a list a name of its own, so that it is compared with a tolerance."""
    if isinstance(values, dict):
        return {k: v for key, each in values.items() for k, v in numbered(each, f"{name} {key}").items()}
    if isinstance(values, (list, tuple)):
        return {k: v for i, each in enumerate(values) for k, v in numbered(each, f"{name} {i}").items()}
    return {name.strip(): values}


print("RESULT " + json.dumps(numbered(scalars)))
