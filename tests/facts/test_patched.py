"""Functions of torch that tests of the project replace: a fix that does not call them changes the tests."""

from __future__ import annotations

import pytest
from helpers import analyze

CODE = {
    "get_device_capability": "new = torch.cuda.get_device_capability() >= (8, 0)",
    "synchronize": "torch.cuda.synchronize()",
    "is_available": "if torch.cuda.is_available():\n    x = x.cuda()\n    y = y.cuda()",
    "cuda": "x = torch.ones(1).cuda()",
    "device_count": "share = 8 // torch.cuda.device_count()",
}
PATCHES = (
    '@mock.patch("torch.cuda.{}", return_value=(9, 0))\ndef test(): ...',
    'with mock.patch("package.module.torch.cuda.{}"): ...',
    'with mock.patch.object(torch.cuda, "{}"): ...',
    'def test(monkeypatch):\n    monkeypatch.setattr(torch.cuda, "{}", fake)',
    'def test(monkeypatch):\n    monkeypatch.setattr("torch.cuda.{}", fake)',
    "with patch.multiple(torch.cuda, {}=fake): ...",
    "torch.cuda.{} = fake",
)


def output(name: str, test: str, *, unsafe: bool = False) -> bytes | None:
    others = {"test_module.py": f"import module, torch\nfrom unittest import mock\n\n{test}\n"}
    return analyze(f"import torch\n\n{CODE[name]}\n", others=others, fix=True, unsafe_fixes=unsafe).output


@pytest.mark.parametrize("patch", PATCHES)
@pytest.mark.parametrize("name", ["get_device_capability", "synchronize", "is_available"])
def test_a_fix_that_bypasses_a_replaced_function_is_unsafe(name: str, patch: str) -> None:
    assert output(name, patch.format(name)) is None
    assert output(name, patch.format(name), unsafe=True)
    assert output(name, patch.format("device_count"))


@pytest.mark.parametrize("owner", ["torch.Tensor", "torch.nn.Module"])
def test_a_fix_that_bypasses_a_replaced_method_is_unsafe(owner: str) -> None:
    assert output("cuda", f'mock.patch.object({owner}, "cuda")') is None
    assert output("cuda", f'mock.patch.object({owner}, "cpu")')


def test_a_fix_that_still_calls_a_replaced_function_is_safe() -> None:
    assert output("device_count", PATCHES[0].format("device_count"))


def test_the_reason_is_given() -> None:
    others = {"test_module.py": 'import module\n\nmonkeypatch.setattr(torch.cuda, "synchronize", fake)\n'}
    (finding,) = analyze("import torch\n\ntorch.cuda.synchronize()\n", others=others).findings
    assert "patches `synchronize`" in finding.message


@pytest.mark.parametrize(
    ("others", "is_safe"),
    [
        ({"test_other.py": "import other\n{}"}, True),
        ({"test_module.py": "import helpers, module", "helpers.py": "{}"}, False),
        ({"tests/conftest.py": "{}", "tests/test_module.py": "import module"}, False),
        ({"tests/conftest.py": "{}", "other/test_module.py": "import module"}, True),
        ({"conftest.py": "{}", "tests/test_module.py": "import module"}, False),
    ],
)
def test_only_what_runs_with_the_replacement_is_unsafe(others: dict[str, str], is_safe: bool) -> None:
    patch = 'import torch\nfrom unittest import mock\nmock.patch("torch.cuda.synchronize")\n'
    files = {path: text.format(patch) for path, text in others.items()}
    found = analyze("import torch\n\ntorch.cuda.synchronize()\n", others=files, fix=True)
    assert (found.output is not None) is is_safe
