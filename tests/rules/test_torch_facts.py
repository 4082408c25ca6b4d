"""The tables of what torch has only with CUDA, compared with the torch that is installed."""

from __future__ import annotations

import pytest

from devicefix.rules.shared.torch_facts import CPU_LACKS


@pytest.mark.needs("torch")
def test_what_torch_cpu_lacks() -> None:
    import torch

    assert {name for name in CPU_LACKS if hasattr(torch.cpu, name)} == set()
    assert {name for name in CPU_LACKS if not hasattr(torch.cuda, name)} == set()
