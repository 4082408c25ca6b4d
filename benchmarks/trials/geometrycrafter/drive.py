"""Evaluates made-up point maps with both scripts of evaluation/."""

import json
import os
import runpy
import sys

import h5py
import numpy as np
import torch

torch.set_num_threads(1)
rng = np.random.default_rng(0)
os.makedirs("truth")
os.makedirs("made")
with open("truth/filename_list.txt", "w") as file:
    for name in ("a", "b"):
        points = rng.random((3, 10, 12, 3)).astype(np.float32) * 5 + 1
        mask = rng.random((3, 10, 12)) > 0.2
        with h5py.File(f"truth/{name}.hdf5", "w") as data:
            data["point_map"], data["valid_mask"] = points, mask
        noisy = points * 0.5 * (1 + rng.random(points.shape).astype(np.float32) * 0.6)
        np.savez(f"made/{name}.npz", point_map=noisy, mask=mask)
        file.write(f"{name}.mp4 {name}.hdf5\n")
sys.path.insert(0, "evaluation")
result = {}
for script, written in (("eval.py", "metrics.json"), ("eval_depth.py", "metrics_depth.json")):
    for flags in ([], ["--use_weight"]):
        sys.argv = [script, "--pred_data_dir", "made", "--gt_data_dir", "truth", *flags]
        runpy.run_path(f"evaluation/{script}", run_name="__main__")
        with open(f"made/{written}") as file:
            values = json.load(file)
        for key, value in values.items():
            for i, each in enumerate(value if isinstance(value, list) else [value]):
                result[f"{script} {len(flags)} {key} {i}"] = each
print("RESULT " + json.dumps(result))
