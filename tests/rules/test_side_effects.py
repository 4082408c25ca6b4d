"""What a fix skips without CUDA has no side effects, or the fix is unsafe or missing, whatever the rule."""

from __future__ import annotations

from typing import Any

import pytest
from helpers import analyze

PICKED = "import torch\n\ndef pick():\n    print('picked')\n    return 0\n\n"
OWN_CUDA = "import torch\n\nclass Layer:\n    @decorate\n    def cuda(self):\n        self.moved = 1\n\n"
ACCELERATOR: dict[str, Any] = {"target": "accelerator", "torch_version": (2, 12)}


@pytest.mark.parametrize("target", [{}, ACCELERATOR])
@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (f"{PICKED}torch.cuda.set_device(0)", "safe"),
        (f"{PICKED}torch.cuda.set_device(pick())", "unsafe"),
        (f"{PICKED}torch.cuda.manual_seed(pick())", "unsafe"),
        (f"{PICKED}torch.backends.cuda.preferred_linalg_library(pick() or 'magma')", "unsafe"),
        (f"{PICKED}torch.cuda.set_device(gpu := 0)", None),
        (f"{PICKED}torch.cuda.manual_seed(seed := 3)", None),
        (f"{OWN_CUDA}torch.cuda.set_device(0)", "safe"),
    ],
)
def test_skipped_code_has_no_side_effects(code: str, expected: str | None, target: dict[str, Any]) -> None:
    for finding in analyze(code, **target).findings:
        assert (finding.safety and finding.safety.value) == expected, finding.message
