"""Tests of the files that say what a project installs: findings, safe fixes, and the files for a CPU."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest
import yaml
from helpers import Cli, ProjectFolder, replaced
from packaging.requirements import Requirement
from packaging.version import Version

from devicefix.config.settings import Settings
from devicefix.engine.file import check_file
from devicefix.facts.project import Project
from devicefix.files.kinds import Environment, Kind, environment_of, kind_of
from devicefix.migrate.environment import environment
from devicefix.rules.environment.examine import for_cpu

INDEX = "--extra-index-url https://download.pytorch.org/whl/cpu"


def fixed(text: str, name: str = "requirements.txt") -> str:
    """Return the text of a file with its safe fixes, which is also that with their replacements."""
    result = check_file(text.encode(), name, Settings(fix=True), Project())
    new = text if result.output is None else result.output.decode()
    fixes = [finding.fix for finding in result.fixed]
    assert replaced(text, [each for fix in fixes if fix for each in fix.replacements]) == new
    return new


def cpu(text: str, name: str = "requirements.txt") -> str | None:
    """Return the text of the file to install from without CUDA."""
    new = for_cpu(text.encode(), name)
    return None if new is None else new.decode()


REQUIREMENTS = [
    # before, with the safe fix, on a CPU ("" if the line becomes a comment)
    ("torch==2.0.1+cu118", "torch==2.0.1", "torch==2.0.1"),
    ("torch == 1.12.1+cu113  # as tested", "torch == 1.12.1  # as tested", "torch == 1.12.1  # as tested"),
    ("torch===2.1.0+cu121", "torch===2.1.0", "torch===2.1.0"),
    ("torchvision[gdown]==0.15.2+cu118", "torchvision[gdown]==0.15.2", "torchvision[gdown]==0.15.2"),
    ('torch==2.0.1+cu118 ; sys_platform == "linux"', 'torch==2.0.1 ; sys_platform == "linux"', None),
    ("torch-scatter==2.1.1+pt20cu118", None, "torch-scatter==2.1.1"),
    ("nvidia-cublas-cu12==12.1.3.1", 'nvidia-cublas-cu12==12.1.3.1 ; sys_platform != "darwin"', ""),
    ("flash-attn>=2.5", 'flash-attn>=2.5 ; sys_platform != "darwin"', ""),
    ("Flash_Attn", 'Flash_Attn ; sys_platform != "darwin"', ""),
    ('flash-attn; platform_system == "Linux"', None, ""),
    ("onnxruntime-gpu==1.16.1", 'onnxruntime-gpu==1.16.1 ; sys_platform != "darwin"', "onnxruntime==1.16.1"),
    ("git+https://github.com/NVIDIA/apex.git@0da3ffb", None, ""),
    ("git+https://github.com/NVlabs/tiny-cuda-nn/#subdirectory=bindings/torch", None, ""),
    ("-e ./submodules/diff-gaussian-rasterization", None, ""),
    ("submodules/simple-knn/", None, ""),
    ("flash-attn @ git+https://github.com/Dao-AILab/flash-attention@v2.5.8", None, ""),
    (
        "torch @ https://download.pytorch.org/whl/cu118/torch-2.0.1%2Bcu118-cp310-cp310-linux_x86_64.whl",
        None,
        "torch==2.0.1",
    ),
    (
        "flash-attn-3 @ https://x.org/flash_attn_3-3.0.0%2B20260318.cu128torch2100.8af-cp39-abi3-linux_x86_64.whl",
        None,
        "",
    ),
    (
        "https://x.org/torch_scatter-2.1.2+pt20cu118-cp310-cp310-linux_x86_64.whl",
        None,
        "torch_scatter==2.1.2",
    ),
    (
        "https://download.pytorch.org/whl/cu111/torch-1.8.1%2Bcu111-cp38-cp38-linux_x86_64.whl",
        None,
        "torch==1.8.1",
    ),
    (
        "--extra-index-url https://download.pytorch.org/whl/cu118",
        None,
        "--extra-index-url https://download.pytorch.org/whl/cpu",
    ),
    ("-i https://download.pytorch.org/whl/cu118", None, "-i https://download.pytorch.org/whl/cpu"),
    (
        "--find-links=https://data.pyg.org/whl/torch-2.0.0+cu118.html",
        None,
        "--find-links=https://data.pyg.org/whl/torch-2.0.0+cpu.html",
    ),
    ("--extra-index-url https://pypi.ngc.nvidia.com", None, ""),
    ("torch==2.0.1+cu118 --hash=sha256:00", None, "torch==2.0.1 --hash=sha256:00"),
]


@pytest.mark.parametrize(("before", "safe", "on_cpu"), REQUIREMENTS, ids=lambda value: str(value)[:40])
def test_a_requirement(before: str, safe: str | None, on_cpu: str | None) -> None:
    text = f"numpy\n{before}\ntqdm>=4\n"
    assert fixed(text) == f"numpy\n{safe or before}\ntqdm>=4\n"
    assert fixed(fixed(text)) == fixed(text)
    index = f"{INDEX}\n" if before.startswith(("torch=", "torch =", "torchvision")) else ""
    if on_cpu == "":
        assert cpu(text) == f"numpy\n# {before}\ntqdm>=4\n"
    elif on_cpu is not None and "--hash" not in before:
        assert cpu(text) == f"{index}numpy\n{on_cpu}\ntqdm>=4\n"


@pytest.mark.parametrize("line", ["torch", "torch>=2.0.1", "Torchvision"])
def test_torch_without_an_index_comes_from_that_for_the_cpu(line: str) -> None:
    assert not check_file(f"{line}\n".encode(), "requirements.txt", Settings(), Project()).findings
    assert cpu(f"{line}\n") == f"{INDEX}\n{line}\n"
    assert cpu(f"{line}\n", "constraints.txt") is None


@pytest.mark.parametrize(
    "line",
    [
        "torch==2.0.1+cpu",
        "nvidia-ml-py",
        "pynvml",
        "triton==2.1.0; sys_platform == 'linux'",
        "bitsandbytes",
        "# torch==2.0.1+cu118",
        "-f https://download.pytorch.org/whl/torch_stable.html",
        "--extra-index-url https://download.pytorch.org/whl/cpu",
        "-e .",
        "--no-binary :all:",
        "torch==2.0.1+cu118  # noqa: DF906",
        "<<<<<<< HEAD",
        "${CUDA_PACKAGE}",
    ],
)
def test_a_line_that_is_left_alone(line: str) -> None:
    assert not check_file(f"{line}\n".encode(), "requirements.txt", Settings(), Project()).findings
    assert cpu(f"{line}\n") is None or "noqa" in line


def test_line_ends_and_encodings_stay() -> None:
    text = "\ufefftorch==2.0.1+cu118\r\nflash-attn\r\n"
    result = check_file(text.encode(), "requirements.txt", Settings(fix=True), Project())
    assert (
        result.output
        == text.replace("+cu118", "").replace("flash-attn", 'flash-attn ; sys_platform != "darwin"').encode()
    )


@pytest.mark.parametrize(
    ("versions", "chosen"), [(("2.0.1", "2.0.1+cu118"), "2.0.1+cu118"), (("2.0.1",), "2.0.1")]
)
def test_an_index_for_cuda_still_provides_the_build(versions: tuple[str, ...], chosen: str) -> None:
    """The fixed requirement accepts the build, which pip prefers (PEP 440)."""
    wanted = Requirement(fixed("torch==2.0.1+cu118\n").strip()).specifier
    assert str(max(map(Version, filter(wanted.contains, versions)))) == chosen


def test_pip_still_installs_the_build(tmp_path: Path) -> None:
    """Pip takes the build from a folder that has both, as from an index for CUDA beside PyPI."""
    for version in ("2.0.1", "2.0.1+cu118"):
        with ZipFile(tmp_path / f"torch-{version}-py3-none-any.whl", "w") as wheel:
            folder = f"torch-{version}.dist-info"
            wheel.writestr(f"{folder}/METADATA", f"Metadata-Version: 2.1\nName: torch\nVersion: {version}\n")
            wheel.writestr(
                f"{folder}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
            )
            wheel.writestr(f"{folder}/RECORD", "")
    (tmp_path / "requirements.txt").write_text(fixed("torch==2.0.1+cu118\n"))
    command = [sys.executable, "-m", "pip", "install", "--dry-run", "--ignore-installed", "--no-index"]
    done = subprocess.run(
        [*command, "--find-links", tmp_path, "-r", tmp_path / "requirements.txt"],
        capture_output=True,
        text=True,
        check=True,
        env={"PATH": "", "PIP_CONFIG_FILE": "/dev/null"},
    )
    assert "Would install torch-2.0.1+cu118" in done.stdout


CONDA = """\
name: demo
channels:
  - pytorch
  - nvidia
dependencies:
  - python=3.9
  - pytorch=1.12.1=py3.9_cuda11.3_cudnn8.3.2_0
  - pytorch::torchvision==0.13.1
  - cudatoolkit=11.3  # for the GPU
  - pytorch-cuda = 11.7
  - faiss-gpu>=1.7
  - cuda-nvcc
  - pip
  - pip:
    - --extra-index-url https://download.pytorch.org/whl/cu113
    - "torch==1.12.1+cu113"
    - flash-attn
    - numpy
"""


def test_an_environment_of_conda() -> None:
    new = cpu(CONDA, "environment.yml")
    assert new is not None
    content = yaml.safe_load(new)
    assert content["dependencies"] == [
        "python=3.9",
        "pytorch=1.12.1",
        "pytorch::torchvision==0.13.1",
        "cpuonly",
        "faiss-cpu>=1.7",
        "pip",
        {"pip": ["--extra-index-url https://download.pytorch.org/whl/cpu", "torch==1.12.1", "numpy"]},
    ]
    assert new.count("\n") == CONDA.count("\n")
    safe = yaml.safe_load(fixed(CONDA, "environment.yml"))
    assert safe["dependencies"][:-1] == yaml.safe_load(CONDA)["dependencies"][:-1]
    assert safe["dependencies"][-1]["pip"][1:3] == ["torch==1.12.1", 'flash-attn ; sys_platform != "darwin"']


@pytest.mark.parametrize(
    "text",
    [
        "a: [", "- torch", "dependencies: cuda", "device: cuda\n", "!!x {}", "", "[" * 2000,
        '["\\UFFFFFFFF"]', "? [cuda]\n: 1", f"%YAML {'1' * 5000}.1\n--- a", "dependencies: &a [*a]",
        "dependencies:\n- &a b\n- *a",
    ],
)  # fmt: skip
def test_what_is_no_environment_of_conda(text: str) -> None:
    assert not check_file(text.encode(), "environment.yml", Settings(environment=True), Project()).findings


PROJECT = """\
[project]
name = "demo"
dependencies = [
    "torch==2.0.1+cu118",  # a comment
    'flash-attn>=2',
    "numpy",
]
[project.optional-dependencies]
gpu = ["triton", "torch==2.0.1+cu118"]
[dependency-groups]
dev = ["xformers; python_version < '3.12'"]
[tool.uv.sources]
torch = { index = "pytorch-cu118" }
[[tool.uv.index]]
name = "pytorch-cu118"
url = "https://download.pytorch.org/whl/cu118"
[tool.demo]
text = "torch==2.0.1+cu118 is old"
"""


def test_a_project() -> None:
    assert fixed(PROJECT, "pyproject.toml") == PROJECT.replace(
        '"torch==2.0.1+cu118",', '"torch==2.0.1",'
    ).replace("'flash-attn>=2'", "'flash-attn>=2 ; sys_platform != \"darwin\"'")
    found = check_file(PROJECT.encode(), "pyproject.toml", Settings(), Project()).findings
    assert [(each.code, each.line) for each in found] == [("DF906", 4), ("DF906", 5), ("DF907", 16)]


@pytest.mark.parametrize(
    ("name", "text", "places"),
    [
        ("setup.cfg", "[options]\ninstall_requires =\n    numpy\n    torch==1.9.0+cu111\n", [(4, 5)]),
        ("Dockerfile", "FROM nvidia/cuda:11.8.0-devel-ubuntu22.04 AS base\n", [(1, 6)]),
        ("Dockerfile.train", "FROM --platform=linux/amd64 nvcr.io/nvidia/pytorch:23.10-py3\n", [(1, 29)]),
        ("train.dockerfile", "ARG BASE=nvidia/cuda:12.1.1-base-ubuntu22.04\n", [(1, 10)]),
        ("Dockerfile", "FROM python:3.11\nRUN pip install torch xformers && echo flash-attn\n", []),
        (
            "Dockerfile",
            'RUN pip3 install -r a.txt flash-attn "torch==2.1.0+cu121" \\\n'
            " --extra-index-url https://download.pytorch.org/whl/cu121\n"
            "RUN conda install -c nvidia -y cudatoolkit=11.3 pytorch\n",
            [(1, 27), (1, 39), (2, 2), (3, 32)],
        ),
        (
            "install.sh",
            '# pip install triton==2.0 apex\necho "pip install flash-attn"\n'
            "pip install flash-attn\necho done; python -m pip install torch==2.1.0+cu121\n",
            [(3, 13), (4, 34)],
        ),
        ("Makefile", "install:\n\tpip install torch==2.0.1+cu118 numpy\n", [(2, 14)]),
        (".github/workflows/ci.yml", "jobs:\n  a:\n    - run: pip install flash-attn\n", [(3, 24)]),
        ("workflows/ci.yml", "jobs:\n  a:\n    - run: pip install flash-attn\n", []),
        ("compose.yaml", "services:\n  a:\n    runtime: nvidia\n", [(3, 5)]),
        ("docker-compose.yml", "services:\n  a:\n    x:\n      - driver: nvidia\n", [(4, 9)]),
        ("compose.yaml", "a:\n  runtime: nvidia\n", []),
        ("requirements/base.txt", "flash-attn\n", [(1, 1)]),
        ("requirements/gpu.txt", "flash-attn\n", []),
        ("requirements-cu118.txt", "flash-attn\n", []),
        ("compose.gpu.yaml", "services:\n  a:\n    runtime: nvidia\n", []),
        ("pyproject.toml", "not toml = = \ntorch==1+cu118\n", []),
    ],
)
def test_other_files(name: str, text: str, places: list[tuple[int, int]]) -> None:
    found = check_file(text.encode(), name, Settings(environment=True), Project()).findings
    assert [(each.line, each.column) for each in found] == places


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("requirements.txt", Environment.REQUIREMENTS),
        ("requirements-dev.txt", Environment.REQUIREMENTS),
        ("dev_requirements.in", Environment.REQUIREMENTS),
        ("requirements/base.txt", Environment.REQUIREMENTS),
        ("constraints.txt", Environment.REQUIREMENTS),
        ("environment.yml", Environment.CONDA),
        ("conda_env.yaml", Environment.CONDA),
        ("scripts/train.slurm", Environment.SCRIPT),
        ("Makefile", Environment.SCRIPT),
        (".github/workflows/test.yml", Environment.WORKFLOW),
        (".circleci/config.yml", Environment.WORKFLOW),
        (".github/dependabot.yml", None),
        ("notes.txt", None),
        ("config.yaml", None),
        ("requirements.py", None),
    ],
)
def test_the_kind_is_decided_by_the_name(name: str, kind: Environment | None) -> None:
    assert environment_of(name) is kind
    assert (kind_of(name) is Kind.ENVIRONMENT) is (kind is not None)


@pytest.mark.parametrize("mark", ["!", "%"])
def test_a_notebook_that_installs_packages(mark: str) -> None:
    cell = f"{mark}pip install numpy flash-attn\n{mark}pip install triton apex  # noqa: DF906\nimport torch"
    cells: list[dict[str, Any]] = [
        {"cell_type": "code", "source": cell, "outputs": [], "metadata": {}, "execution_count": None}
    ]
    data = json.dumps({"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}).encode()
    found = check_file(data, "demo.ipynb", Settings(environment=True), Project()).findings
    assert [(each.code, each.cell, each.line, each.column) for each in found] == [("DF906", 1, 1, 20)]
    assert not check_file(data, "demo.ipynb", Settings(config_files=True), Project()).findings


def test_folders_are_searched_with_the_option(cli: Cli, project: ProjectFolder) -> None:
    project.write({"requirements.txt": "torch==2.0.1+cu118\n", "a.py": "print()\n"})
    assert "Nothing found in 1 file" in cli("check", project.path).output
    done = cli("check", "--environment", project.path)
    assert "requirements.txt:1:1: DF906 [*]" in done.output
    assert "requirements.txt:1:1: DF906 [*]" in cli("check", project / "requirements.txt").output


def test_a_named_file_is_never_taken_for_python(cli: Cli, project: ProjectFolder) -> None:
    project.write({"requirements.txt": "flash-attn\n", "Dockerfile": "FROM nvidia/cuda:12\n"})
    done = cli("check", project / "requirements.txt", project / "Dockerfile")
    assert "DF901" not in done.output
    assert done.output.count("DF90") == 2


def test_a_file_that_includes_another(project: ProjectFolder) -> None:
    paths = project.write(
        {
            "requirements.txt": "-r requirements/base.txt\nnumpy\n",
            "requirements/base.txt": "-c ../constraints.txt\ntorch==2.0.1+cu118\n",
            "constraints.txt": "numpy<2\n",
        }
    )
    found = {
        Path(each.path).relative_to(project.path).as_posix(): each.content.decode()
        for each in environment(paths)
    }
    assert found == {
        "requirements-cpu.txt": "-r requirements/base-cpu.txt\nnumpy\n",
        "requirements/base-cpu.txt": f"{INDEX}\n-c ../constraints.txt\ntorch==2.0.1\n",
    }


@pytest.mark.needs("psutil")
def test_migrate_writes_the_files_for_a_cpu(cli: Cli, project: ProjectFolder) -> None:
    project.write({"requirements.txt": "torch==2.0.1+cu118\nflash-attn\n", "a.py": "print()\n"})
    done = cli("migrate", project.path, "--in-place")
    assert f"pip install -r {project / 'requirements-cpu.txt'}" in done.output
    assert project.read("requirements-cpu.txt") == f"{INDEX}\ntorch==2.0.1\n# flash-attn\n"
    assert project.read("requirements.txt") == "torch==2.0.1+cu118\nflash-attn\n"
    again = cli("migrate", project.path, "--in-place")
    assert "requirements-cpu.txt already exists" in again.output
    assert project.read("requirements-cpu.txt") == f"{INDEX}\ntorch==2.0.1\n# flash-attn\n"


def test_a_file_for_cuda_only_matters_if_there_is_no_other(project: ProjectFolder) -> None:
    conda = "dependencies:\n  - pytorch-cuda=12.4\n  - numpy\n"
    paths = project.write(
        {
            "env_cu121.yml": conda,
            "env_cu124.yml": conda,
            "requirements-gpu.txt": "torch\n",
            "requirements.txt": "numpy\n",
        }
    )
    found = {Path(each.path).name: each.content.decode() for each in environment(paths)}
    assert found == {"env-cpu.yml": "dependencies:\n  # - pytorch-cuda=12.4\n  - numpy\n"}
