"""train.py --cuda from nothing, again from what it saved (--pretrained), then demo.py."""

import argparse
import builtins
import collections
import collections.abc
import io
import json
import os
import random
import runpy
import sys
import types

import lmdb
import numpy as np
import torch
import torch.utils.data
from PIL import Image

# ---- what newer versions have dropped or changed
collections.Iterable = collections.abc.Iterable
# the options are called trainRoot and valRoot, and read as trainroot and valroot
argparse.Namespace.__getattr__ = lambda self, name: (
    next(v for k, v in vars(self).items() if k.lower() == name)
    if name.endswith("root")
    else object.__getattribute__(self, name)
)
plain_loader = torch.utils.data.DataLoader


class Batches:
    def __init__(self, batches):
        self.batches = batches

    def __iter__(self):
        return self

    def __next__(self):
        return next(self.batches)

    next = __next__


class Loader(plain_loader):
    """Takes a sampler and shuffle=True, as old versions did; its iterator has next(); no workers."""

    def __init__(self, dataset, shuffle=False, sampler=None, num_workers=0, **kwargs):
        super().__init__(dataset, shuffle=shuffle and sampler is None, sampler=sampler, **kwargs)

    def __iter__(self):
        return Batches(super().__iter__())


torch.utils.data.DataLoader = Loader
plain_squeeze = torch.Tensor.squeeze
torch.Tensor.squeeze = lambda self, *dim: self if dim and dim[0] >= self.dim() else plain_squeeze(self, *dim)


# ---- the extension that it computes its loss with
class CTCLoss(torch.nn.Module):
    def forward(self, acts, labels, act_lens, label_lens):
        labels, act_lens, label_lens = (
            each.long().to(acts.device) for each in (labels, act_lens, label_lens)
        )
        loss = torch.nn.functional.ctc_loss(
            acts.log_softmax(2), labels, act_lens, label_lens, reduction="sum"
        )
        return loss.view(1)


sys.modules["warpctc_pytorch"] = types.ModuleType("warpctc_pytorch")
sys.modules["warpctc_pytorch"].CTCLoss = CTCLoss

# filling a buffer through .data no longer changes its size
import utils  # noqa: E402

utils.loadData = lambda v, data: v.resize_(data.size()).copy_(data)

# ---- made-up data; keys and labels are text in the program
import dataset  # noqa: E402

rng = np.random.RandomState(1)


class Transaction:
    def __init__(self, txn):
        self.txn = txn

    def __enter__(self):
        return self

    def __exit__(self, *end):
        self.txn.abort()

    def get(self, key):
        found = self.txn.get(key.encode())
        return found.decode() if key.startswith("label") else found


real_open = lmdb.open
opened = []


def open_text(*args, **kwargs):
    env = real_open(*args, **kwargs)
    opened.append(env)
    return types.SimpleNamespace(begin=lambda write: Transaction(env.begin(write=write)))


dataset.lmdb = types.SimpleNamespace(open=open_text)


def picture():
    return Image.fromarray(rng.randint(0, 255, (32, 100), dtype=np.uint8))


def database(folder, count):
    with real_open(folder, map_size=1 << 22) as env, env.begin(write=True) as txn:
        txn.put(b"num-samples", str(count).encode())
        for i in range(1, count + 1):
            buf = io.BytesIO()
            picture().save(buf, "PNG")
            txn.put(b"image-%09d" % i, buf.getvalue())
            txn.put(b"label-%09d" % i, "".join("0123abcxyz"[k] for k in rng.randint(0, 10, 4)).encode())


database("made_train", 8)
database("made_val", 4)
os.makedirs("data", exist_ok=True)
picture().save("data/demo.png")

said = []
plain_print = builtins.print


def note(*args, **kwargs):
    said.append(" ".join(str(a) for a in args))
    plain_print(*args, **kwargs)


def run(script, *flags):
    del said[:]
    while opened:
        opened.pop().close()
    sys.argv = [script, *flags]
    for name in ("models.crnn", "models"):
        sys.modules.pop(name, None)
    random.seed(5)
    torch.manual_seed(5)
    builtins.print = note
    try:
        runpy.run_path(script, run_name="__main__")
    finally:
        builtins.print = plain_print
    return list(said)


COMMON = [
    "--trainRoot",
    "made_train",
    "--valRoot",
    "made_val",
    "--cuda",
    "--batchSize",
    "4",
    "--nepoch",
    "2",
    "--displayInterval",
    "1",
    "--valInterval",
    "2",
    "--saveInterval",
    "2",
]


def losses(lines):
    return [float(line.split("Loss: ")[1]) for line in lines if "] Loss: " in line]


def tests(lines):
    return [float(line.split("loss: ")[1].split(",")[0]) for line in lines if line.startswith("Test loss")]


def weight(path):
    return sum(v.double().abs().sum().item() for v in torch.load(path, map_location="cpu").values())


first = run("train.py", *COMMON, "--adadelta")
state = torch.load("expr/netCRNN_1_2.pth", map_location="cpu")
plain = {
    name[len("module.") :] if name.startswith("module.") else name: value for name, value in state.items()
}
torch.save(plain, "data/crnn.pth")
again = run(
    "train.py", *COMMON, "--adam", "--lr", "0.0001", "--pretrained", "data/crnn.pth", "--expr_dir", "more"
)
demo = run("demo.py")

numbers = {
    "saved": weight("expr/netCRNN_1_2.pth"),
    "saved again": weight("more/netCRNN_1_2.pth"),
    "demo": len(demo[-1].split("=>")[0].strip()),
    "files": len(os.listdir("expr")) + len(os.listdir("more")),
}
for name, lines in (("first", first), ("again", again)):
    for i, value in enumerate(losses(lines)):
        numbers[f"{name} {i}"] = value
    for i, value in enumerate(tests(lines)):
        numbers[f"{name} test {i}"] = value
print("RESULT " + json.dumps(numbers))
