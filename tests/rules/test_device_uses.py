"""Devices that a function of the module compares with others."""

from __future__ import annotations

import pytest
from helpers import analyze

from devicefix.model import Safety

PROGRAM = """import torch


def moved(x, here, there):
    return x if {test} else x.to(there)


first, second = "cuda:0", "cuda:1"
print(moved(torch.ones(2, device=first), first, second))
"""


@pytest.mark.parametrize(
    ("test", "safe"),
    [("here == there", False), ("there != here", False), ('there == "cuda"', True), ('here == "cpu"', True)],
)
def test_only_devices_that_become_the_same_must_not_be_compared(test: str, safe: bool) -> None:
    findings = [found for found in analyze(PROGRAM.format(test=test)).findings if found.code == "DF203"]
    assert len(findings) == 2
    assert all(found.safety is Safety.SAFE for found in findings) is safe


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ('if __name__ == "__main__":\n    device = "cuda"\n    print(torch)\n', 0),
        ('if __name__ == "__main__":\n    device = "cuda"\n    run(device)\n', 1),
        ('if __name__ == "__main__":\n    print(torch)\nelse:\n    device = "cuda"\n', 1),
        ('if __name__ != "__main__":\n    device = "cuda"\n', 1),
        ('device = "cuda"\n', 1),
    ],
)
def test_name_that_only_the_program_itself_binds_is_read_by_no_other_file(code: str, found: int) -> None:
    findings = analyze(f"import torch\n\n{code}").findings
    assert [each.code for each in findings] == ["DF203"] * found


@pytest.mark.parametrize(
    ("uses", "safe"),
    [
        ("torch.load(p, {'cuda:0': place})", True),
        ("places = {'cuda:0': place}\ntorch.load(p, places)", True),
        ("places = {'cuda:0': place}\ntorch.load(p, places)\nrun(places)", False),
    ],
)
def test_a_checkpoint_takes_no_number_out_of_its_locations(uses: str, safe: bool) -> None:
    code = f"import torch\n\nint(device.split(':')[1])\nplace = f'cuda:{{rank}}'\n{uses}\n"
    (found,) = (each for each in analyze(code).findings if each.code == "DF203")
    assert (found.safety is Safety.SAFE) is safe


@pytest.mark.parametrize(
    ("number", "taken"),
    [
        ("int(str(device).split(':')[1])", True),
        ("int(str(device).split(':')[1]) if ':' in str(device) else 0", False),
        ("int(device.split(':')[1]) if ':' in device else 0", False),
    ],
)
def test_a_number_that_is_asked_for_first_is_not_needed(number: str, taken: bool) -> None:
    findings = analyze(f"import torch\n\ndef f(device='cuda:1'):\n    return {number}\n").findings
    (found,) = (each for each in findings if each.code == "DF203")
    assert ("line 4 needs the device index" in found.message) is taken
