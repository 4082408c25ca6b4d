"""Tests of configuration files and scripts next to the code."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from textwrap import dedent
from time import process_time
from typing import Any

import pytest
from helpers import Cli
from hypothesis import given
from hypothesis import strategies as st

from devicefix.config.settings import Settings
from devicefix.files.kinds import Kind, kind_of
from devicefix.rules.config_file.examine import LARGEST, check
from devicefix.rules.config_file.notebook import check_notebook
from devicefix.rules.config_file.shell import makefile_pairs, shell_pairs
from devicefix.rules.config_file.structured import Pair, json_pairs, toml_pairs, yaml_pairs

READERS = (json_pairs, toml_pairs, yaml_pairs, shell_pairs, makefile_pairs)


def ties(path: str, text: str) -> list[tuple[int, int, str]]:
    """Return line, column and code of each finding."""
    findings = check(dedent(text).encode(), path, Settings()).findings
    assert all(finding.code == "DF905" and finding.fix is None for finding in findings)
    return [(finding.line, finding.column, finding.message.split("`")[1]) for finding in findings]


SLURM = """\
#!/bin/bash
#SBATCH --job-name=train
#SBATCH --gres=gpu:4
#SBATCH --gpus-per-node 2
# SBATCH --gres=gpu:1
srun python train.py
torchrun --nproc_per_node=gpu train.py
torchrun --nproc_per_node auto train.py
"""


def test_slurm() -> None:
    found = [(3, 9, "--gres=gpu:4"), (4, 9, "--gpus-per-node 2"), (7, 10, "--nproc_per_node=gpu")]
    assert ties("job.slurm", SLURM) == ties("job.sh", SLURM) == found


YAML = """\
# device: cuda
device: cuda  # the first one
model:
  device: "cuda:1"
  dist_backend: nccl
  note: run it on cuda
  help: |
    device: cuda
  quoted: "device:
    cuda"
train: {gpu_ids: [0, 1], accelerator: gpu, map_location: cuda:0}
gpus:
  - 0
  - 1
use_cuda: yes
no_cuda: false
tasks:
- name: cuda
  gpus: 2
- name: cpu
  gpus: 0
devices: [cpu, cuda]
cuda_device: -1
useGpu: True
nvidia.com/gpu: 1
environment:
  - CUDA=1
"""


def test_yaml() -> None:
    assert ties("a.yaml", YAML) == [
        (2, 1, "device: cuda"),
        (4, 3, 'device: "cuda:1"'),
        (5, 3, "dist_backend: nccl"),
        (11, 9, "gpu_ids: [0, 1]"),
        (11, 26, "accelerator: gpu"),
        (11, 44, "map_location: cuda:0"),
        (12, 1, "gpus: - 0 - 1"),
        (15, 1, "use_cuda: yes"),
        (19, 3, "gpus: 2"),
        (24, 1, "useGpu: True"),
        (25, 1, "nvidia.com/gpu: 1"),
    ]


def test_yaml_of_a_template_is_read_as_far_as_it_goes() -> None:
    assert ties("a.yml", "{{- if .Values.gpu }}\ndevice: cuda\nname: {{ x }\n{{- end }}\ngpu_id: 0\n") == [
        (2, 1, "device: cuda"),
        (5, 1, "gpu_id: 0"),
    ]


def test_json() -> None:
    text = """\
    {
    \t"device": "cuda", // "device": "cuda"
    \t"dist_backend":
    \t\t"nccl",
      "text": "device: cuda, \\"gpu\\": 0",
      "num_gpus": 0, "n_gpu": 4, "gpu_ids": "0,1", "gpus": ["0"],
      "trainer": {"cuda_device": 0, "use_gpu": true, "cuda": false},
      "vocabulary": {"gpu": 1234, "gpus": null}
    }
    """
    assert ties("a.json", text) == [
        (2, 2, '"device": "cuda"'),
        (3, 2, '"dist_backend": "nccl"'),
        (6, 18, '"n_gpu": 4'),
        (6, 30, '"gpu_ids": "0,1"'),
        (6, 48, '"gpus": ["0"]'),
        (7, 15, '"cuda_device": 0'),
        (7, 33, '"use_gpu": true'),
    ]


def test_toml() -> None:
    text = '''\
    # device = "cuda"
    keywords = ["cuda"]
    train.device = "cuda:0"
    text = """
    device = "cuda"
    """
    [run]
    gpus = [
        0,  # the first
        1,
    ]
    backend = { name = "x", type = 'nccl' }
    '''
    assert ties("a.toml", text) == [
        (3, 1, 'train.device = "cuda:0"'),
        (8, 1, "gpus = [ 0, # the first 1, ]"),
        (12, 25, "type = 'nccl'"),
    ]


SHELL = """\
#!/bin/bash
# CUDA_VISIBLE_DEVICES=0 python train.py --gpu 0
export CUDA_VISIBLE_DEVICES=0,1
CUDA_VISIBLE_DEVICES= python test.py --device cpu --no-cuda
CUDA_VISIBLE_DEVICES=$1 python train.py \\
    --gpu 0 \\
    --device=cuda:1 --cuda --batch 4 --use-gpu data.txt
echo "use --gpu 0 or --cuda" --cuda
while [ $# -gt 0 ]; do
  case $1 in
    --gpu) GPU=$2; shift 2 ;;
    --cuda|-c) CUDA=yes ;;
  esac
done
cat <<EOF > run.py
device: --cuda
EOF
ARGS=(
  --gpus 0 1
  --dist-backend nccl
)
sbatch --wrap="python train.py --device cuda"
python train.py trainer.accelerator=gpu device=cuda seed=1
srun --gres=gpu:4 python train.py --gpu $GPU
python bench.py --gpu_name 0 --cuda 0
"""


def test_shell() -> None:
    assert ties("train.sh", SHELL) == [
        (3, 8, "CUDA_VISIBLE_DEVICES=0,1"),
        (5, 1, "CUDA_VISIBLE_DEVICES=$1"),
        (6, 5, "--gpu 0"),
        (7, 5, "--device=cuda:1"),
        (7, 21, "--cuda"),
        (7, 38, "--use-gpu"),
        (12, 16, "CUDA=yes"),
        (19, 3, "--gpus 0 1"),
        (20, 3, "--dist-backend nccl"),
        (22, 32, "--device cuda"),
        (23, 17, "trainer.accelerator=gpu"),
        (23, 41, "device=cuda"),
        (24, 6, "--gres=gpu:4"),
    ]


def test_makefile() -> None:
    text = (
        "GPU ?= 0\nFLAGS := --lr 1 \\\n\t--device cuda\n\n"
        "train: data\n\t@CUDA_VISIBLE_DEVICES=0 python t.py --gpus 1\n\t@echo --cuda\n"
    )
    assert ties("Makefile", text) == [
        (1, 1, "GPU ?= 0"),
        (3, 2, "--device cuda"),
        (6, 3, "CUDA_VISIBLE_DEVICES=0"),
        (6, 38, "--gpus 1"),
    ]


def test_a_line_or_a_file_can_be_silenced() -> None:
    assert ties("a.yaml", "device: cuda  # noqa: DF905\ngpu: 0\n") == [(2, 1, "gpu: 0")]
    assert ties("a.sh", "# devicefix: skip-file\npython t.py --cuda\n") == []


@pytest.mark.parametrize(
    ("path", "data"),
    [
        ("a.yaml", b"\xff\xfe\0device: cuda"),
        ("a.yaml", b"device: cuda\n" + b"#" * LARGEST),
        ("a.json", b""),
        ("a.toml", b"# coding: nonsense\n"),
    ],
)
def test_binary_and_large_files_are_left_alone(path: str, data: bytes) -> None:
    assert check(data, path, Settings()).findings == []


@pytest.mark.parametrize("data", [b"device: cuda # \xe9\n", b"# coding: klingon\ndevice: cuda\n"])
def test_another_encoding_does_not_matter(data: bytes) -> None:
    assert [finding.message.split("`")[1] for finding in check(data, "a.yaml", Settings()).findings] == [
        "device: cuda"
    ]


@pytest.mark.parametrize("pairs", READERS)
@given(text=st.text(st.sampled_from("ab-=:#'\"\\[]{}()$ \t\r\n,|>&!0<E@`cuda"), max_size=60))
def test_nothing_crashes_them(pairs: Callable[[str], Any], text: str) -> None:
    for pair in pairs(text):
        assert isinstance(pair, Pair) and 0 <= pair.start < pair.end <= len(text)


@pytest.mark.parametrize("pairs", READERS)
@pytest.mark.parametrize(
    "piece", ['k: "a\n', "k: [a\n", "k: {'", "a" + " " * 50, "_", "'", '"', "<<A\n", "((", "\\", "$", "a="]
)
def test_nothing_keeps_them_busy(pairs: Callable[[str], Any], piece: str) -> None:
    text = piece * (50_000 // len(piece))
    begun = process_time()
    assert all(pair.end <= len(text) for pair in pairs(text))
    assert process_time() - begun < 5  # a tenth of a second; some minutes if each character is read again


TEXTS = st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=8)
JSONS = st.recursive(
    st.none() | st.booleans() | st.integers() | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=12,
)


@given(st.dictionaries(TEXTS, JSONS, max_size=4), st.sampled_from([None, 1, "\t"]))
def test_json_has_the_pairs_that_a_parser_finds(value: dict[str, Any], indent: int | str | None) -> None:
    text = json.dumps(value, indent=indent)
    found = [pair.key for pair in json_pairs(text) if not pair.several]
    assert sorted(found) == sorted(leaves(value))


def leaves(value: Any) -> list[str]:
    """Return the keys of single values that a reader of pairs must find, in order."""
    if isinstance(value, list):
        return [key for inner in value for key in leaves(inner)]
    if not isinstance(value, dict):
        return []
    found = []
    for key, inner in value.items():
        if not isinstance(inner, (dict, list)):
            found.append(key)
        found += leaves(inner)
    return found


def test_yaml_has_the_pairs_that_a_parser_finds() -> None:
    yaml = pytest.importorskip("yaml")
    found = {(pair.key, *pair.values) for pair in yaml_pairs(YAML)}
    wanted: set[tuple[str, ...]] = set()

    def walk(node: Any) -> None:
        for item in node.value if isinstance(node.value, list) else ():
            if not isinstance(item, tuple):
                walk(item)
                continue
            key, value = item
            inner = value.value if isinstance(value.value, list) else [value]
            if getattr(value, "style", None) != "|" and not any(
                isinstance(statement, tuple) for statement in inner
            ):
                if all(isinstance(statement.value, str) for statement in inner):
                    wanted.add((key.value, *(statement.value for statement in inner)))
            walk(value)

    walk(yaml.compose(YAML))
    assert {pair for pair in found if pair[0] != "quoted"} == {pair for pair in wanted if pair[0] != "quoted"}


@pytest.mark.parametrize(
    ("path", "is_one"),
    [
        ("a.YAML", True),
        ("x/Makefile", True),
        ("a.mk", True),
        ("a.py", False),
        ("make", False),
        ("a.ipynb", False),
    ],
)
def test_which_files(path: str, is_one: bool) -> None:
    assert (kind_of(path) in (Kind.CONFIG, Kind.ENVIRONMENT)) is is_one


def test_the_option_and_the_key_take_them_in(tmp_path: Path, cli: Cli) -> None:
    (tmp_path / "a.yaml").write_text("device: cuda\n")
    (tmp_path / "b.py").write_text("import torch\n\nx = torch.ones(2).cuda()\n")

    def lines(*arguments: str) -> list[str]:
        done = cli(*arguments)
        return [line.split(" ")[1] for line in done.stdout.splitlines() if " DF" in line]

    assert lines("check") == ["DF101"]
    assert lines("check", "--config-files") == ["DF905", "DF101"]
    assert lines("check", "a.yaml") == ["DF905"]
    assert lines("check", "--config-files", "--ignore", "DF905") == ["DF101"]
    (tmp_path / "pyproject.toml").write_text("[tool.devicefix]\nconfig-files = true\n")
    assert lines("check") == ["DF905", "DF101"]
    assert lines("check", "--no-config-files") == ["DF101"]
    before = (tmp_path / "a.yaml").read_bytes()
    cli("rewrite", "--in-place")
    assert (tmp_path / "a.yaml").read_bytes() == before
    assert "cuda()" not in (tmp_path / "b.py").read_text()


def test_many_files_in_processes(tmp_path: Path, cli: Cli) -> None:
    for number in range(50):
        (tmp_path / f"{number:02}.yaml").write_text("device: cuda\n")
    done = cli("check", "--config-files", "-j2", tmp_path)
    assert done.stdout.count("DF905") == 50


# -- notebooks -----------------------------------------------------------------------------------------


def notebook(*cells: str, **metadata: object) -> bytes:
    made = [{"cell_type": "code", "metadata": {}, "source": cell.splitlines(True)} for cell in cells]
    return json.dumps({"cells": made, "metadata": metadata, "nbformat": 4}, indent=1).encode()


@pytest.mark.parametrize(
    ("cell", "found"),
    [
        ("!nvidia-smi", [(1, 2, "nvidia-smi")]),
        ("import os\ngpu_info = !nvidia-smi -L", [(2, 13, "nvidia-smi")]),
        ("!!nvcc --version", [(1, 3, "nvcc")]),
        ("!python train.py --device cuda --lr 1", [(1, 18, "--device cuda")]),
        ("!CUDA_VISIBLE_DEVICES=0 \\\n  python x.py", [(1, 2, "CUDA_VISIBLE_DEVICES=0")]),
        ("!python train.py \\\n  --gpu 0", [(2, 3, "--gpu 0")]),
        ("%%bash\npython train.py --device cuda", [(2, 17, "--device cuda")]),
        ("%%cu\n#include <stdio.h>", [(1, 1, "%%cu")]),
        ("%load_ext nvcc4jupyter", [(1, 1, "%load_ext nvcc4jupyter")]),
        ("!python train.py --device cuda  # noqa: DF905", []),
        ("!python train.py --device cpu\n!ls\nx = '!nvidia-smi'\n# !nvidia-smi", []),
        ("%%bash\n# nvidia-smi\necho nvidia-smi is a tool", []),
        ("print('''\nnvidia-smi''')", []),
    ],
)
def test_commands_in_notebooks(cell: str, found: list[tuple[int, int, str]]) -> None:
    findings = check_notebook(notebook("import torch", cell), Settings(config_files=True))
    assert [(each.line, each.column, each.message.split("`")[1]) for each in findings] == found
    assert {(each.code, each.cell, each.fix) for each in findings} <= {("DF905", 2, None)}


@pytest.mark.parametrize(
    ("metadata", "code"),
    [
        ({"accelerator": "GPU", "colab": {"gpuType": "T4"}}, '"accelerator": "GPU"'),
        (
            {"kaggle": {"accelerator": "nvidiaTeslaT4", "isGpuEnabled": True}},
            '"accelerator": "nvidiaTeslaT4"',
        ),
        ({"kaggle": {"isGpuEnabled": True}}, '"isGpuEnabled": true'),
        ({"accelerator": "TPU"}, None),
        ({"kaggle": {"accelerator": "none", "isGpuEnabled": False}}, None),
        ({}, None),
    ],
)
def test_a_notebook_that_asks_for_a_gpu(metadata: dict[str, object], code: str | None) -> None:
    data = notebook("import torch", **metadata)
    found = check_notebook(data, Settings(config_files=True))
    assert [each.message.split("`")[1] for each in found] == ([code] if code else [])
    for each in found:
        line = data.decode().splitlines()[each.line - 1]
        assert line[each.column - 1 : each.end_column - 1] == code


@pytest.mark.parametrize(
    "data", [b"", b"[]", b"{}", b'{"cells": 1}', b'{"cells": [1], "metadata": {}}', b"\xff", b"[" * 100_000]
)
def test_what_is_no_notebook_holds_nothing(data: bytes) -> None:
    assert check_notebook(data, Settings(config_files=True)) == []


def test_notebooks_need_the_option(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "a.ipynb").write_bytes(notebook("!nvidia-smi", "import torch", accelerator="GPU"))
    assert cli("check", ".").exit_code == 0
    done = cli("check", "--config-files", "--output-format", "concise", ".")
    places = [line.split(": ")[0] for line in done.stdout.splitlines()[:2]]
    assert places == ["a.ipynb:19:3", "a.ipynb:cell 1:1:2"]
    assert cli("check", "--config-files", "--ignore", "DF905", ".").exit_code == 0
    data = (tmp_path / "a.ipynb").read_bytes()
    assert cli("rewrite", "--in-place", "--config-files", ".").exit_code == 1
    assert (tmp_path / "a.ipynb").read_bytes() == data
