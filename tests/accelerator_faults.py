"""Programs for an accelerator, right and with one planted fault, to try machines on that claim to find it.

A machine finds a fault if the faulty program fails there or does something else than the right one: other
devices or types, mixed precision off, a call left out, other numbers. A fault of `machine` "cpu" shows only
where there is no accelerator, one of "unpinned" only where the accelerator has no pinned memory, as MPS.

    python accelerator_faults.py

runs all of them on the accelerator of the tests, and prints by name what is wrong with the right program, and
what shows the fault, as JSON; both are empty if there is nothing.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import signal
import sys
import tempfile
import traceback
from pathlib import Path
from typing import Any, NamedTuple

START = """\
import torch
import torch.nn.functional as F
from torch import nn
device = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else torch.device("cpu")
torch.manual_seed(0)
"""
GROUP = """\
import os
import torch.distributed as dist
os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0", "RANK": "0", "WORLD_SIZE": "1"}
store = dist.HashStore()
backend = dist.get_default_backend_for_device(device)
"""
INIT = "dist.init_process_group(HERE, store=store, rank=0, world_size=1)\n"
SCALED = """\
scaler.scale(model(torch.ones(1, 4, device=device)).sum()).backward()
scaler.step(optimizer)
scaler.update()
"""
STEP = """\
model = nn.Linear(4, 2).to(device)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
"""
SAVED = """\
import io, torch.serialization
file = io.BytesIO()
tag = torch.serialization.location_tag
torch.serialization.location_tag = lambda storage: "cuda:0"
torch.save({"weight": torch.ones(2, 4)}, file)
torch.serialization.location_tag = tag
file.seek(0)
"""


class Fault(NamedTuple):
    """A fault: its name, the program without and with it, and the machine that shows it."""

    name: str
    right: str
    faulty: str
    machine: str = "accelerator"


def _fault(name: str, program: str, right: str, faulty: str, machine: str = "accelerator") -> Fault:
    """Return a program with HERE replaced by the right line and by the faulty one."""
    return Fault(
        name, START + program.replace("HERE", right), START + program.replace("HERE", faulty), machine
    )


FAULTS = [
    _fault(
        "nccl left",
        GROUP + INIT +
        "x = torch.ones(2, device=device)\ndist.all_reduce(x)\nprint(x.sum().item())\n",
        "backend",
        '"nccl"',
    ),
    _fault(
        "nccl or gloo",
        GROUP + INIT +
        "x = torch.ones(2, device=device)\ndist.all_reduce(x)\nprint(x.sum().item())\n",
        "backend",
        '"nccl" if torch.cuda.is_available() else "gloo"',
    ),
    _fault(
        "mesh of cuda",
        GROUP + INIT.replace("HERE", "backend") +
        "mesh = dist.init_device_mesh(HERE, (1,))\nprint(torch.ones(2).to(mesh.device_type).sum().item())\n",
        "device.type",
        '"cuda"',
    ),
    _fault(
        "tensor on cuda",
        STEP + "print(model(torch.ones(1, 4, device=HERE)).sum().item())\n",
        "device",
        '"cuda"',
    ),
    _fault(
        "device of a question about accelerators",
        "device = HERE\n" + STEP + "print(model(torch.ones(1, 4, device=device)).sum().item())\n",
        "device",
        'torch.device("cuda" if torch.accelerator.is_available() else "cpu")',
    ),
    _fault(
        "tensor left on the CPU",
        STEP + "print((model(torch.ones(1, 4, device=device)) * HERE).sum().item())\n",
        "torch.tensor([1.0, 0.0], device=device)",
        "torch.tensor([1.0, 0.0])",
    ),
    _fault(
        "model left on the CPU",
        "model = nn.Linear(4, 2)\nif HERE.is_available():\n    model.to(device)\n"
        "print(model(torch.ones(1, 4).to(model.weight.device)).sum().item())\n",
        "torch.accelerator",
        "torch.cuda",
    ),
    _fault(
        "autocast of cuda",
        STEP + "with torch.autocast(HERE, dtype=torch.bfloat16):\n"
        "    print(model(torch.ones(1, 4, device=device)).float().sum().item())\n",
        "device.type",
        '"cuda"',
    ),
    _fault(
        "autocast of cuda or cpu",
        STEP + "with torch.autocast(HERE, dtype=torch.bfloat16):\n"
        "    print(model(torch.ones(1, 4, device=device)).float().sum().item())\n",
        "device.type",
        '"cuda" if torch.cuda.is_available() else "cpu"',
    ),
    _fault(
        "scaler of cuda",
        STEP + "scaler = torch.amp.GradScaler(HERE)\n"
        + SCALED,
        "device.type",
        '"cuda"',
    ),
    _fault(
        "scaler of no device",
        STEP + "scaler = HERE\n"
        + SCALED,
        "torch.amp.GradScaler(device.type)",
        "torch.amp.GradScaler()",
    ),
    _fault(
        "custom_fwd of cuda",
        "class Double(torch.autograd.Function):\n"
        "    @staticmethod\n    @torch.amp.custom_fwd(device_type=HERE, cast_inputs=torch.float32)\n"
        "    def forward(ctx, x):\n        return x @ x\n"
        "x = torch.eye(3, device=device)\nwith torch.autocast(device.type, dtype=torch.bfloat16):\n"
        "    print(Double.apply(x).float().sum().item())\n",
        "device.type",
        '"cuda"',
    ),
    _fault(
        "question about autocast of cuda",
        "x = torch.eye(3, device=device)\nwith torch.autocast(device.type, dtype=torch.bfloat16):\n"
        "    x = x.bfloat16() if HERE else x\nprint((x @ x).float().sum().item())\n",
        "torch.is_autocast_enabled(device.type)",
        "torch.is_autocast_enabled()",
    ),
    _fault(
        "pinned where nothing pins",
        "x = torch.ones(4, pin_memory=HERE)\nprint(x.to(device, non_blocking=True).sum().item())\n",
        "torch.cuda.is_available()",
        "torch.accelerator.is_available()",
        "unpinned",
    ),
    _fault(
        "pin_memory() where nothing pins",
        "x = torch.ones(4)\nif HERE:\n    x = x.pin_memory()\n"
        "print(x.to(device, non_blocking=True).sum().item())\n",
        'device.type == "cuda"',
        'device.type != "cpu"',
        "unpinned",
    ),
    _fault(
        "no accelerator is None",
        "device = HERE\nprint(torch.ones(2, device=device.type).sum().item())\n",
        "device",
        "torch.accelerator.current_accelerator()",
        "cpu",
    ),
    _fault(
        "synchronize unguarded",
        "x = torch.ones(2, device=device)\nHERE\nprint(x.sum().item())\n",
        "if torch.accelerator.is_available(): torch.accelerator.synchronize()",
        "torch.accelerator.synchronize()",
        "cpu",
    ),
    _fault(
        "memory asked unguarded",
        "print(float(HERE >= 0))\n",
        "(torch.accelerator.max_memory_allocated() if torch.accelerator.is_available() else 0)",
        "torch.accelerator.max_memory_allocated()",
        "cpu",
    ),
    _fault(
        "number of a device",
        "print(torch.ones(2).to(HERE).sum().item())\n",
        "device",
        "0",
        "cpu",
    ),
    _fault(
        "synchronize of cuda",
        "x = torch.ones(2, device=device)\nif HERE.is_available():\n    HERE.synchronize()\n"
        "print(x.sum().item())\n",
        "torch.accelerator",
        "torch.cuda",
    ),
    _fault(
        "memory of cuda",
        "x = torch.ones(2, device=device)\nprint(float(HERE.max_memory_allocated() > 0))\n",
        "torch.accelerator",
        "torch.cuda",
    ),
    _fault(
        "is_cuda",
        "x = torch.ones(2, device=device)\nif HERE:\n    torch.accelerator.synchronize()\n"
        "print(x.sum().item())\n",
        'x.device.type != "cpu"',
        "x.is_cuda",
    ),
    _fault(
        "type of a device is cuda",
        'dtype = torch.bfloat16 if HERE else torch.float32\nmodel = nn.Linear(4, 2).to(device, dtype)\n'
        "print(model(torch.ones(1, 4, device=device, dtype=dtype)).float().sum().item())\n",
        'device.type != "cpu"',
        'device.type == "cuda"',
    ),
    _fault(
        "map_location cuda",
        SAVED + STEP + "model.weight.data = torch.load(file, map_location=HERE)['weight']\n"
        "print(model(torch.ones(1, 4, device=device)).sum().item())\n",
        "device",
        '"cuda"',
    ),
    _fault(
        "map_location None",
        SAVED + STEP + "model.weight.data = torch.load(file, map_location=HERE)['weight']\n"
        "print(model(torch.ones(1, 4, device=device)).sum().item())\n",
        "None if torch.cuda.is_available() else device",
        'None if torch.accelerator.is_available() else "cpu"',
    ),
    _fault(
        "map_location cpu",
        SAVED + STEP + "weight = torch.load(file, map_location=HERE)['weight']\n"
        "print((model.weight * weight).sum().item())\n",
        "device",
        'None if torch.cuda.is_available() else "cpu"',
    ),
    _fault(
        "fork_rng of cuda",
        "with HERE:\n    torch.rand(3, device=device)\nprint(torch.rand(3, device=device).sum().item())\n",
        "torch.random.fork_rng(device_type=device.type)",
        'torch.random.fork_rng(device_type="cuda")',
    ),
    _fault(
        "random state of cuda",
        "state = HERE\ntorch.rand(3, device=device)\n"
        "if state is not None:\n    torch.get_device_module(device).set_rng_state(state)\n"
        "print(torch.rand(3, device=device).sum().item())\n",
        "torch.get_device_module(device).get_rng_state()",
        "torch.cuda.get_rng_state() if torch.cuda.is_available() else None",
    ),
    _fault(
        "seed of cuda",
        "HERE.manual_seed(7)\nprint(torch.rand(3, device=device).sum().item())\n",
        "torch.get_device_module(device)",
        "torch.cuda",
    ),
    _fault(
        "generator of the CPU",
        "generator = HERE.manual_seed(3)\n"
        "print(torch.rand(3, generator=generator, device=device).sum().item())\n",
        "torch.Generator(device)",
        "torch.Generator()",
    ),
    _fault(
        "event of cuda",
        "start, end = HERE(enable_timing=True), HERE(enable_timing=True)\nstart.record()\nend.record()\n"
        "torch.accelerator.synchronize()\nassert start.elapsed_time(end) >= 0\n",
        "torch.Event",
        "torch.cuda.Event",
    ),
    _fault(
        "numpy of a tensor on the device",
        "x = torch.ones(2, device=device)\nprint(float(HERE.sum()))\n",
        "x.cpu().numpy()",
        "(x.cpu() if x.is_cuda else x).numpy()",
    ),
]  # fmt: skip


def outcome(program: str, machine: str) -> dict[str, Any]:
    """Run a program on a machine in a process of its own, and return what it did there."""
    with tempfile.TemporaryDirectory() as scratch:
        into = Path(scratch, "outcome.json")
        child = os.fork()
        if not child:
            signal.alarm(60)
            try:
                into.write_text(json.dumps(_run(program, machine)))
            finally:
                os._exit(0)
        os.waitpid(child, 0)
        found: dict[str, Any] = json.loads(into.read_text()) if into.exists() else {"failed": "it died"}
        return found


def _run(program: str, machine: str) -> dict[str, Any]:
    import accelerator_machine

    made = accelerator_machine.Machine(own_random=True, pins=machine != "unpinned")
    if machine != "cpu":
        made.install()
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        made.record.start()
        try:
            exec(compile(program, "program", "exec"), {"__name__": "__main__"})
        except Exception:
            return {"failed": traceback.format_exc().strip().splitlines()[-1]}
    found = made.record.found()
    del found["operations"]
    found["calls"] = {
        name: count for name, count in found["calls"].items() if name.startswith("accelerator.")
    }
    return found


def main() -> None:
    """Print what shows each fault."""
    import accelerator_machine  # noqa: F401 - once, not in each process
    import torch._dynamo  # noqa: F401

    shown = {}
    for fault in FAULTS:
        right, faulty = (outcome(program, fault.machine) for program in (fault.right, fault.faulty))
        differs = [
            f"{kind} {faulty.get(kind)}, not {right[kind]}"
            for kind in right
            if right[kind] != faulty.get(kind)
        ]
        shown[fault.name] = [right.get("failed", ""), faulty.get("failed", "") or "; ".join(differs)]
    json.dump(shown, sys.stdout, indent=1)


if __name__ == "__main__":
    main()
