"""Infers the depth of a made-up video, evaluates saved depth, and computes the loss of its example."""

import json
import os
import runpy
import sys
from pathlib import Path

import numpy as np
import torch

torch.manual_seed(0)
torch.set_num_threads(1)
rng = np.random.default_rng(0)
sys.path.insert(0, ".")

from video_depth_anything.video_depth import VideoDepthAnything  # noqa: E402

net = VideoDepthAnything(encoder="vits", features=32, out_channels=[16, 24, 32, 32]).eval()
net.to("cuda" if torch.cuda.is_available() else "cpu")
steps = np.linspace(0, 1, 36)[:, None, None, None]
frames = (rng.random((1, 42, 56, 3)) * (1 - steps) + rng.random((1, 42, 56, 3)) * steps) * 255
depth, _ = net.infer_video_depth(frames.astype(np.uint8), 10, input_size=42, fp32=True)

os.makedirs("bench/sintel")
os.makedirs("made/sintel")
images = []
for i in range(3):
    truth = rng.random((20, 24)).astype(np.float32) * 9 + 1
    np.save(f"bench/sintel/gt{i}.npy", truth)
    np.save(f"made/sintel/im{i}.npy", 1 / truth + rng.random((20, 24)).astype(np.float32) * 0.1)
    images.append({"image": f"im{i}.png", "gt_depth": f"gt{i}.npy", "factor": 1.0})
Path("bench/sintel/sintel_video.json").write_text(json.dumps({"sintel": [{"one": images}]}))
sys.path.insert(0, "benchmark/eval")
sys.argv = ["eval.py", "--infer_path", "made", "--benchmark_path", "bench", "--datasets", "sintel"]
runpy.run_path("benchmark/eval/eval.py", run_name="__main__")
written = Path("made/results.txt").read_text()
numbers = [float(word) for word in written.replace(":", " ").split() if word.replace(".", "").isdigit()]

sys.path.insert(0, "loss")
small = Path("loss/test_loss.py").read_text().replace("518", "28").replace("T = 32", "T = 4")
Path("loss/small.py").write_text(small)
loss = runpy.run_path("loss/small.py")["val"]

result = {"depth": 1e6 * float(np.mean(depth)), "change": 1e6 * float(np.abs(np.diff(depth, axis=0)).mean())}
result |= {f"metric {i}": number for i, number in enumerate(numbers)}
result |= {f"loss {name}": float(part) for name, part in loss.items()}
print("RESULT " + json.dumps(result))
