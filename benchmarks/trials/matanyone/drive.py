"""Evaluates made-up mattes; the place of kornia's filter2d is taken by torch's convolution."""

import concurrent.futures
import json
import os
import runpy
import sys
import types

import cv2
import numpy as np
import torch

torch.set_num_threads(1)
rng = np.random.default_rng(0)
cells = {}


class Executor:
    """Run tasks at once: the emulation of a GPU does not reach other threads."""

    def __init__(self, max_workers):
        pass

    def __enter__(self):
        return self

    def __exit__(self, *error):
        pass

    def submit(self, function, *args):
        made = concurrent.futures.Future()
        made.set_result(function(*args))
        return made


concurrent.futures.ThreadPoolExecutor = Executor


class Sheet:
    def __init__(self, name):
        self.name = name

    def write(self, row, column, value):
        cells[f"{self.name} {row} {column}"] = value

    def write_row(self, row, column, values):
        for i, value in enumerate(values):
            self.write(row, column + i, float(value))


class Workbook:
    def __init__(self, path):
        self.add_worksheet, self.close = Sheet, lambda: None


def filter2d(image, kernel, border_type):
    kernel = kernel.to(image)[None]
    margin = [side // 2 for side in (kernel.shape[3], kernel.shape[3], kernel.shape[2], kernel.shape[2])]
    return torch.nn.functional.conv2d(torch.nn.functional.pad(image, margin, mode=border_type), kernel)


def module(name, **content):
    made = types.ModuleType(name)
    made.__dict__.update(content)
    sys.modules[name] = made
    return made


module("kornia", filters=module("kornia.filters", filter2d=filter2d))
utility = types.SimpleNamespace(xl_col_to_name=str)
module("xlsxwriter", Workbook=Workbook, utility=utility)
for kind in ("motion", "static"):
    for clip in ("0000", "0001"):
        for root in ("true", "pred"):
            os.makedirs(f"{root}/{kind}/{clip}/pha")
        for i in range(3):
            matte = rng.integers(0, 256, (20, 24), dtype=np.uint8)
            cv2.imwrite(f"pred/{kind}/{clip}/pha/{i:04d}.png", matte)
            # The truth has the name of a JPEG, and is read by its content.
            noisy = np.clip(matte.astype(int) + rng.integers(-20, 20, matte.shape), 0, 255).astype(np.uint8)
            coded = cv2.imencode(".png", noisy)[1]
            coded.tofile(f"true/{kind}/{clip}/pha/{i:04d}.jpg")
sys.argv = ["eval_yt_hr.py", "--pred-dir", "pred", "--true-dir", "true", "--num-workers", "1"]
runpy.run_path("evaluation/eval_yt_hr.py", run_name="__main__")
print("RESULT " + json.dumps({k: v for k, v in cells.items() if isinstance(v, float)}))
