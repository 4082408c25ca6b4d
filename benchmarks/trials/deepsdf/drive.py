"""train_deep_sdf.py learns three spheres and goes on from a snapshot; reconstruct.py fits a latent to one."""

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
for name in ("trimesh", "plyfile"):
    sys.modules[name] = types.ModuleType(name)
RealLoader = torch.utils.data.DataLoader
torch.utils.data.DataLoader = lambda *a, num_workers=0, **k: RealLoader(*a, **k)
specs = {
    "Description": "spheres",
    "DataSource": "data",
    "TrainSplit": "split.json",
    "NetworkArch": "deep_sdf_decoder",
    "NetworkSpecs": {
        "dims": [16, 16, 16],
        "dropout": [0, 1],
        "dropout_prob": 0.2,
        "norm_layers": [0, 1, 2],
        "latent_in": [2],
        "xyz_in_all": False,
        "use_tanh": False,
        "latent_dropout": False,
        "weight_norm": True,
    },
    "CodeLength": 4,
    "NumEpochs": 2,
    "SnapshotFrequency": 2,
    "AdditionalSnapshots": [1],
    "LearningRateSchedule": [
        {"Type": "Step", "Initial": 0.01, "Interval": 2, "Factor": 0.5},
        {"Type": "Step", "Initial": 0.01, "Interval": 2, "Factor": 0.5},
    ],
    "SamplesPerScene": 64,
    "ScenesPerBatch": 3,
    "DataLoaderThreads": 0,
    "ClampingDistance": 0.1,
    "CodeRegularization": True,
    "CodeBound": 1.0,
    "GradientClipNorm": 1.0,
    "LogFrequency": 1,
}
os.makedirs("data/SdfSamples/made/balls")
os.makedirs("run")
rng = np.random.default_rng(0)
for i in range(3):
    points = rng.uniform(-1, 1, (6000, 3))
    distance = np.linalg.norm(points, axis=1) - 0.5 - 0.1 * i
    rows = np.concatenate([points, distance[:, None]], 1).astype(np.float32)
    np.savez(f"data/SdfSamples/made/balls/{i}.npz", pos=rows[distance > 0], neg=rows[distance <= 0])


def write(path, content):
    with open(path, "w") as file:
        json.dump(content, file)


write("split.json", {"made": {"balls": ["0", "1", "2"]}})
write("one.json", {"made": {"balls": ["1"]}})

import deep_sdf.mesh  # noqa: E402

fields = []
real_mesh = deep_sdf.mesh.create_mesh
deep_sdf.mesh.convert_sdf_samples_to_ply = lambda field, *args: fields.append(float(field.abs().sum()))
deep_sdf.mesh.create_mesh = lambda decoder, latent, path, N, max_batch: real_mesh(
    decoder, latent, path, 8, 300
)


def script(*argv):
    for seed in (random.seed, np.random.seed, torch.manual_seed):
        seed(0)
    sys.argv = [*argv, "-e", "run"]
    runpy.run_path(argv[0], run_name="__main__")


write("run/specs.json", specs)
script("train_deep_sdf.py", "--batch_split", "2")
write("run/specs.json", {**specs, "NumEpochs": 4})
script("train_deep_sdf.py", "-c", "latest")
script("reconstruct.py", "-c", "latest", "-d", "data", "-s", "one.json", "--iters", "4")
log = torch.load("run/Logs.pth", map_location="cpu")
latent = torch.load("run/Reconstructions/4/Codes/made/balls/1.pth", map_location="cpu")
state = torch.load("run/ModelParameters/latest.pth", map_location="cpu")["model_state_dict"]


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
                "loss": log["loss"],
                "wrapped": all(key.startswith("module.") for key in state),
                "state": float(sum(v.double().abs().sum() for v in state.values())),
                "latent": float(latent.abs().sum()),
                "field": fields,
            }
        )
    )
)
