"""Trains on made-up puzzles as one process of torchrun, with an evaluation after each epoch.

flash-attn can't be installed here. With CUDA its place is taken by what its documentation says it computes.
"""

import json
import os
import runpy
import socket
import sys
import types

import numpy as np
import torch
import torch.utils.data

torch.set_num_threads(1)
np.random.seed(0)
rng = np.random.default_rng(0)
RealLoader = torch.utils.data.DataLoader
torch.utils.data.DataLoader = lambda data, batch_size, **k: RealLoader(data, batch_size=batch_size)


def module(name, **content):
    made = types.ModuleType(name)
    made.__dict__.update(content)
    sys.modules[name] = made
    return made


def attend(q, k, v, causal=False):
    q, k, v = (each.transpose(1, 2) for each in (q * q.shape[-1] ** -0.5, k, v))
    assert not causal
    return ((q @ k.transpose(-2, -1)).softmax(-1) @ v).transpose(1, 2).contiguous()


if torch.cuda.is_available():
    module("flash_attn", flash_attn_func=attend)


class AdamATan2(torch.optim.Optimizer):
    """The optimizer of adam-atan2, in plain torch."""

    def __init__(self, params, lr, weight_decay, betas):
        super().__init__(params, {"lr": lr, "weight_decay": weight_decay, "betas": betas})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                state = self.state[p]
                m = state.setdefault("m", torch.zeros_like(p))
                v = state.setdefault("v", torch.zeros_like(p))
                m.lerp_(p.grad, 1 - group["betas"][0])
                v.lerp_(p.grad.square(), 1 - group["betas"][1])
                p.mul_(1 - group["lr"] * group["weight_decay"])
                p.add_(torch.atan2(m, v.sqrt()), alpha=-group["lr"])


logged = []
module("adam_atan2", AdamATan2=AdamATan2)
module("coolname", generate_slug=lambda count: "made-up")
run = types.SimpleNamespace(log_code=lambda path: None)
module(
    "wandb",
    run=run,
    init=lambda **k: run,
    Settings=lambda **k: None,
    finish=lambda: None,
    log=lambda values, step: logged.append((step, values)),
)
for split, count in (("train", 8), ("test", 5)):
    folder = f"data/made/{split}"
    os.makedirs(folder)
    arrays = {
        "inputs": rng.integers(1, 6, (count, 9)),
        "labels": rng.integers(1, 6, (count, 9)),
        "puzzle_identifiers": np.arange(1, count + 1),
        "puzzle_indices": np.arange(count + 1),
        "group_indices": np.arange(count + 1),
    }
    for name, values in arrays.items():
        np.save(f"{folder}/all__{name}.npy", values.astype(np.int32))
    facts = {"pad_id": 0, "ignore_label_id": 0, "blank_identifier_id": 0, "vocab_size": 6, "seq_len": 9}
    facts |= {"num_puzzle_identifiers": 9, "total_groups": count, "mean_puzzle_examples": 1, "sets": ["all"]}
    with open(f"{folder}/dataset.json", "w") as file:
        json.dump(facts, file)
with socket.socket() as s:
    s.bind(("localhost", 0))
    port = str(s.getsockname()[1])
os.environ.update(RANK="0", LOCAL_RANK="0", WORLD_SIZE="1", MASTER_ADDR="localhost", MASTER_PORT=port)
os.environ["DISABLE_COMPILE"] = "1"
sys.path.insert(0, ".")
sys.argv = ["pretrain.py", "data_path=data/made", "epochs=2", "eval_interval=1", "global_batch_size=4"]
sys.argv += ["lr=0.001", "lr_warmup_steps=1", "arch.hidden_size=32", "arch.num_heads=2", "arch.H_layers=1"]
sys.argv += ["arch.L_layers=1", "arch.halt_max_steps=3", "+arch.forward_dtype=float32"]
sys.argv += ["+eval_save_outputs=[logits]", "+checkpoint_path=saved"]
runpy.run_path("pretrain.py", run_name="__main__")

result = {}
for step, values in logged:
    for key, value in values.items():
        for name, number in value.items() if isinstance(value, dict) else [("", value)]:
            result[f"{step} {key} {name}"] = float(number)
last = max(name for name in os.listdir("saved") if name.startswith("step_") and "all" not in name)
state = torch.load(f"saved/{last}", map_location="cpu")
result["saved"] = len(os.listdir("saved"))
result["weights"] = float(sum(v.double().abs().sum() for v in state.values()))
print("RESULT " + json.dumps(result))
