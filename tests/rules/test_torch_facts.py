"""The tables of what torch has only with CUDA, compared with the torch that is installed."""

from __future__ import annotations

import pytest

from devicefix.devices.counterparts import RAISES, function
from devicefix.rules.shared.torch_facts import CPU_LACKS, RAISING


@pytest.mark.needs("torch")
def test_what_torch_cpu_lacks() -> None:
    import torch

    assert {name for name in CPU_LACKS if hasattr(torch.cpu, name)} == set()
    assert {name for name in CPU_LACKS if not hasattr(torch.cuda, name)} == set()


def test_what_raises_errors_agrees_with_the_table_of_counterparts() -> None:
    rows = {name: function(name) for name in RAISING}
    assert {name for name, row in rows.items() if row is not None and row.without != RAISES} == set()
