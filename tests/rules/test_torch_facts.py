"""The tables of what torch has only with CUDA, compared with the torch that is installed."""

from __future__ import annotations

import pytest

from devicefix.rules.shared.torch_facts import CPU_LACKS, MEMORY_FIGURES


@pytest.mark.needs("torch")
def test_what_torch_cpu_lacks() -> None:
    import torch

    assert {name for name in CPU_LACKS if hasattr(torch.cpu, name)} == set()
    assert {name for name in CPU_LACKS if not hasattr(torch.cuda, name)} == set()


@pytest.mark.needs("torch")
@pytest.mark.filterwarnings("ignore")
def test_figures_of_memory_are_0_without_cuda() -> None:
    import torch

    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    names = [name.rpartition(".")[2] for name in MEMORY_FIGURES if ".memory." not in name]
    assert {getattr(torch.cuda, name)() for name in names} == {0}
