"""rnn/: train_search.py (plain, gone on with, unrolled), train.py and test.py. The scripts of cnn/ are no longer Python."""

import glob
import json
import os
import random
import re
import runpy
import sys
import types

import torch

# ---- what newer versions have dropped or changed
functional = torch.nn.functional
torch.nn.utils.clip_grad_norm = torch.nn.utils.clip_grad_norm_
plain_load = torch.load
torch.load = lambda *a, **k: plain_load(*a, **{"weights_only": False, **k})
torch.nn.Embedding._backend = types.SimpleNamespace(
    Embedding=types.SimpleNamespace(
        apply=lambda words, weight, padding, *rest: functional.embedding(
            words, weight, None if padding == -1 else padding, *rest
        )
    )
)
plain_nll = functional.nll_loss
functional.nll_loss = lambda *a, **k: plain_nll(*a, **k).view(1)  # a loss has one element, not none
plain_get = torch.Tensor.__getitem__
torch.Tensor.__getitem__ = lambda self, index: (  # and that element is a number
    self.item() if type(index) is int and self.dim() == 1 and self.numel() == 1 else plain_get(self, index)
)


class Variables(type):
    def __instancecheck__(cls, value):
        return isinstance(value, torch.Tensor)

    def __eq__(cls, other):  # type(h) == Variable
        return other is cls or (isinstance(other, type) and issubclass(other, torch.Tensor))

    __hash__ = type.__hash__


class Variable(metaclass=Variables):
    def __new__(cls, data, requires_grad=False, volatile=False):
        return data.detach().requires_grad_(requires_grad)


torch.autograd.Variable = Variable

os.chdir("rnn")
sys.path.insert(0, os.getcwd())
random.seed(0)
WORDS = "we can see the small red house near a river and some old trees stand there".split()
os.makedirs("made")
for part, count in (("train", 26), ("valid", 12), ("test", 6)):
    with open(f"made/{part}.txt", "w") as f:
        for _ in range(count):
            f.write(" ".join(random.choice(WORDS) for _ in range(random.randint(4, 8))) + "\n")

SIZE = ["--data", "made", "--bptt", "8"]
TRAIN = [
    "--emsize",
    "12",
    "--nhid",
    "12",
    "--nhidlast",
    "12",
    "--batch_size",
    "4",
    "--lr",
    "0.5",
    "--log-interval",
    "2",
]


def run(script, *flags):
    for name in ("model", "model_search"):
        sys.modules.pop(name, None)
    torch.manual_seed(0)
    sys.argv = [script, *SIZE, *flags]
    return runpy.run_path(script, run_name="__main__")


def size(folder):
    model = torch.load(f"{folder}/model.pt", map_location="cpu")
    return sum(p.detach().double().abs().sum().item() for p in model.parameters()), model


numbers = {}
ran = run("train_search.py", *TRAIN, "--epochs", "2", "--save", "made")
folder = ran["args"].save
numbers["valid"], numbers["valid last"] = ran["best_val_loss"]
numbers["weight"], model = size(folder)
numbers["alphas"] = model.weights.detach().double().abs().sum().item()
ran = run("train_search.py", *TRAIN, "--epochs", "1", "--save", folder, "--continue_train")
numbers["valid again"] = ran["best_val_loss"][0]
numbers["alphas again"] = size(folder)[1].weights.detach().double().abs().sum().item()
ran = run("train_search.py", *TRAIN, "--epochs", "1", "--save", "unrolled", "--unrolled")
numbers["valid unrolled"] = ran["best_val_loss"][0]
numbers["alphas unrolled"] = size(ran["args"].save)[1].weights.detach().double().abs().sum().item()
ran = run("train.py", *TRAIN, "--epochs", "2", "--save", "made")
folder = ran["args"].save
numbers["found"], numbers["found last"] = ran["best_val_loss"]
numbers["found test"] = ran["test_loss"]
numbers["found weight"] = size(folder)[0]
numbers["tested"] = run("test.py", "--model_path", f"{folder}/model.pt")["test_loss"]
numbers["saved"] = len(glob.glob("*-made-*/*.pt") + glob.glob("*-unrolled-*/*.pt"))
with open(f"{folder}/log.txt") as log:
    numbers["logged"] = len(re.findall(r"valid loss", log.read()))
print("RESULT " + json.dumps(numbers))
