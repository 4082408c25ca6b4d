"""Ties to CUDA that a review found to be missed: each is fixed or reported.

The programs are in the folder `review_misses`, by what becomes of them: those in `fixed.txt` fail on a CPU,
and run once they are rewritten; in `reported.txt` a comment ends each line that has a finding; `left.txt` has
none. A header `=== name` begins a program, and `import torch` is added.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from helpers import Cli, ProjectFolder, analyze
from running import forks

from devicefix.rules.shared.library_facts import LIBRARIES

FOLDER = Path(__file__).parent / "review_misses"
_NEEDED = re.compile(r"^(?:from|import) (safetensors)", re.M)
_EXPECTED = re.compile(r"  # (DF\d+)$")
IMPORTS = (
    "flashinfer", "deep_gemm", "sageattention", "gsplat", "torchsparse", "spconv", "pointnet2_ops", "fla",
    "MultiScaleDeformableAttention", "tilelang", "exllamav2", "unsloth", "liger_kernel", "megablocks",
    "cutlass", "adam_atan2",
)  # fmt: skip


def programs(name: str) -> Iterator[object]:
    """Yield the programs of a file as parameters of a test."""
    for text in (FOLDER / f"{name}.txt").read_text(encoding="utf-8").split("=== ")[1:]:
        title, _, body = text.partition("\n")
        yield pytest.param(f"import torch\n{body}", id=title)


def status(source: str, folder: Path) -> tuple[int, str]:
    """Return the exit status of a program on a machine without CUDA, and its standard error."""
    script, output, errors = folder / "program.py", folder / "output.txt", folder / "errors.txt"
    script.write_text(source, encoding="utf-8")
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
    ended = forks().run([str(script)], folder, environment, output, errors)
    return ended, errors.read_text()


@pytest.mark.slow
@pytest.mark.needs("numpy", "torch")
@pytest.mark.parametrize("source", list(programs("fixed")))
def test_it_runs_on_a_cpu_once_it_is_rewritten(source: str, tmp_path: Path) -> None:
    for library in _NEEDED.findall(source):
        pytest.importorskip(library)
    result = analyze(source, fix=True)
    assert result.output is not None
    assert status(source, tmp_path)[0] != 0, "it is no miss: it runs as it is"
    ended, errors = status(result.output.decode(), tmp_path)
    assert ended == 0, f"{result.output.decode()}\n{errors}"


@pytest.mark.parametrize("source", list(programs("reported")))
def test_it_is_reported(source: str) -> None:
    expected = [
        (line, found[1])
        for line, text in enumerate(source.splitlines(), 1)
        if (found := _EXPECTED.search(text))
    ]
    assert sorted((finding.line, finding.code) for finding in analyze(source).findings) == expected


@pytest.mark.parametrize("source", list(programs("left")))
def test_it_is_no_finding(source: str) -> None:
    assert not analyze(source).findings


@pytest.mark.parametrize("library", IMPORTS)
def test_an_import_is_reported_and_a_fact(library: str) -> None:
    assert [finding.code for finding in analyze(f"import torch\nimport {library}\n").findings] == ["DF902"]
    assert library in LIBRARIES


@pytest.mark.parametrize("name", ["requirements.txt", "requirements-dev.in", "Dockerfile", "app.dockerfile"])
def test_a_file_beside_the_code_is_not_read_as_python(name: str, project: ProjectFolder, cli: Cli) -> None:
    project.write({name: "torch==2.0+cu118\n"})
    done = cli("check", project / name)
    assert "error" not in done.stderr
    assert ("DF906" in done.stdout) is name.startswith("requirements")
    assert "DF901" not in done.stdout
    assert cli("check", project.path).exit_code == 0


@pytest.mark.parametrize("name", ["environment.yml", "compose.yaml", "pyproject.toml"])
def test_a_configuration_that_is_named_is_scanned(name: str, project: ProjectFolder, cli: Cli) -> None:
    project.write({name: "device: cuda\n" if name != "pyproject.toml" else 'device = "cuda"\n'})
    assert "DF905" in cli("check", project / name).stdout
