"""Compiled CUDA extensions: what a `setup.py` of the project builds, and what imports it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from helpers import analyze

from devicefix import check_paths, rewrite_source

SETUP = """\
from setuptools import setup
from torch.utils.cpp_extension import BuildExtension, CUDAExtension, CppExtension

setup(
    name="sparse_ops",
    ext_modules=[
        CUDAExtension(name="fast_ops", sources=["fast.cpp", "fast.cu"]),
        CUDAExtension("sparse_ops._C", ["ops.cu"]),
        CppExtension("slow_ops", ["slow.cpp"]),
    ],
    cmdclass={"build_ext": BuildExtension},
)
"""
CHOICE = """\
from torch.utils.cpp_extension import CUDA_HOME, CUDAExtension, CppExtension

if CUDA_HOME is None:
    ext = CppExtension("fast_ops", ["fast.cpp"])
else:
    ext = CUDAExtension("fast_ops", ["fast.cpp", "fast.cu"])
"""


def reported(
    code: str, path: str = "sparse_ops/layers/conv.py", setup: str = SETUP, **others: str
) -> list[str]:
    """Return the codes of the findings in a module of a project with a `setup.py`."""
    files = {"setup.py": setup, **others}
    return [finding.code for finding in analyze(f"import torch\n{code}\n", path=path, others=files).findings]


@pytest.mark.parametrize(
    "code",
    [
        "import fast_ops",
        "import fast_ops as ops",
        "from fast_ops import run",
        "from sparse_ops import _C",
        "import sparse_ops._C as ops",
        "from .. import _C",
        "from .._C import run",
    ],
)
def test_imports_of_an_extension(code: str) -> None:
    assert reported(code) == ["DF902"]


@pytest.mark.parametrize(
    "code",
    [
        "import fast_ops_of_others",
        "import slow_ops",
        "from other import _C",
        "from . import _C",
        "try:\n    import fast_ops\nexcept ImportError:\n    fast_ops = None",
        "if torch.cuda.is_available():\n    import fast_ops",
    ],
)
def test_other_imports(code: str) -> None:
    assert reported(code) == []


def test_extension_that_is_built_on_a_condition_only_with_cuda() -> None:
    setup = CHOICE.replace('ext = CppExtension("fast_ops", ["fast.cpp"])', "ext = None")
    assert reported("import fast_ops", setup=setup) == ["DF902"]


def test_extension_with_a_version_for_the_cpu() -> None:
    assert reported("import fast_ops", setup=CHOICE) == []


def test_relative_import_in_a_folder_that_is_called_as_the_extension() -> None:
    assert reported("from .launch import run", path="csrc/fast_ops/test.py") == []


def test_file_without_a_word_of_cuda_is_found(tmp_path: Path) -> None:
    (tmp_path / "setup.py").write_text(SETUP)
    (tmp_path / "run.py").write_text("import torch\nimport fast_ops\n\nprint(fast_ops.run(torch.ones(1)))\n")
    (tmp_path / "skipped.py").write_text("# devicefix: skip-file\nimport torch\nimport fast_ops\n")
    found = check_paths([tmp_path]).findings
    assert {(Path(finding.filename).name, finding.code) for finding in found} == {
        ("setup.py", "DF909"),
        ("run.py", "DF902"),
    }


@pytest.mark.slow
def test_a_package_installs_without_the_toolkit(tmp_path: Path) -> None:
    if shutil.which("nvcc") or os.path.exists("/usr/local/cuda"):
        pytest.skip("this machine has the toolkit")
    script = tmp_path / "setup.py"
    script.write_text(
        "from setuptools import setup\n"
        "from torch.utils.cpp_extension import BuildExtension, CUDAExtension\n\n"
        "setup(\n"
        '    name="ops",\n'
        '    py_modules=["ops"],\n'
        '    ext_modules=[CUDAExtension("ops_cuda", ["ops.cu"])],\n'
        '    cmdclass={"build_ext": BuildExtension},\n'
        ")\n"
    )
    (tmp_path / "ops.py").write_text("def scale(x):\n    return 2 * x\n")

    def build() -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "setup.py", "-q", "build"], cwd=tmp_path, capture_output=True, text=True
        )

    assert "CUDA_HOME environment variable is not set" in build().stderr
    script.write_text(rewrite_source(script.read_text()).source)
    assert build().returncode == 0
    assert (tmp_path / "build" / "lib" / "ops.py").exists()


@pytest.mark.parametrize(("line", "fixed"), [("from . import _C", False), ("import torch", True)])
def test_a_package_that_is_nothing_without_its_extension(line: str, fixed: bool) -> None:
    setup = SETUP.replace('    name="sparse_ops",', '    packages=["sparse_ops"],')
    setup = "\n".join(
        each for each in setup.splitlines() if "fast_ops" not in each and "slow_ops" not in each
    )
    result = analyze(setup, path="setup.py", others={"sparse_ops/__init__.py": f"{line}\n"})
    assert [(each.code, each.fix is not None) for each in result.findings] == [("DF909", fixed)]
