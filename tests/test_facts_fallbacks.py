"""`devicefix.facts.fallbacks`: handlers that are the program's own path without CUDA."""

from __future__ import annotations

import ast
from textwrap import dedent

import pytest
from helpers import analyze

from devicefix.facts import Facts
from devicefix.facts.fallbacks import Fallback, Fallbacks

PROBE = "torch.ones(1).cuda()"


def found(code: str) -> Fallback | None:
    """Return the path without CUDA of the first line that holds a probe."""
    facts = Facts.read(f"import torch\n{dedent(code)}".encode())
    calls = (node for node in ast.walk(facts.tree.module) if isinstance(node, ast.Call))
    probe = next(node for node in calls if facts.source.code(node) in (PROBE, "torch.device('cuda')"))
    return Fallbacks(facts, facts.guards.refusals).of(probe)


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (f"try:\n    {PROBE}\n    kind = 'gpu'\nexcept Exception:\n    kind = 'cpu'", Fallback(5, True)),
        (f"try:\n    x = {PROBE}\nexcept:\n    x = x.cpu()", Fallback(4, True)),
        (f"try:\n    x = {PROBE}\nexcept RuntimeError:\n    x = x.cpu()", Fallback(4, False)),
        (f"try:\n    {PROBE}\nexcept Exception:\n    on = False\nelse:\n    on = True", Fallback(4, True)),
        (f"try:\n    {PROBE}\n    def f(): ...\nexcept Exception:\n    f = 'cpu'", Fallback(5, True)),
        (f"def f():\n    try:\n        {PROBE}\n        return True\n    except Exception:\n        pass\n",
         Fallback(6, False)),
        (f"try:\n    x = train({PROBE})\nexcept Exception:\n    x = None", Fallback(4, False)),
        (f"with suppress(Exception):\n    {PROBE}\n    on = True", Fallback(2, False)),
        (f"def f():\n    {PROBE}\ndef g():\n    f()\ntry:\n    g()\n    on = True\nexcept Exception:\n"
         "    on = False", Fallback(9, True)),
        ("q7 = torch.device('cuda')\ntry:\n    x.to(q7)\nexcept Exception:\n    q7 = 'cpu'",
         Fallback(5, True)),
        (f"try:\n    x = {PROBE}\nexcept KeyError:\n    x = 'cpu'", None),
        (f"try:\n    x = {PROBE}\nexcept Exception:\n    print('failed')", None),
        (f"try:\n    x = {PROBE}\nexcept RuntimeError as e:\n    if 'memory' in str(e):\n        x = None\n"
         "    else:\n        raise", None),
        (f"try:\n    x = {PROBE}\nexcept Exception:\n    sys.exit(1)", None),
        (f"try:\n    x = 1\nexcept Exception:\n    x = {PROBE}", None),
        (f"with suppress(Exception):\n    x = {PROBE}", None),
        (f"def f():\n    {PROBE}\n    f()\nf()", None),
    ],
)  # fmt: skip
def test_the_path_without_cuda(code: str, expected: Fallback | None) -> None:
    assert found(code) == expected


@pytest.mark.parametrize(
    "probe",
    [
        "torch.ones(1).cuda()",
        "torch.cuda.current_device()",
        "torch.cuda.get_device_name(0)",
        "torch.cuda.init()",
        "torch.zeros(1, device='cuda')",
        "torch.zeros(1).to('cuda')",
        "torch.cuda.FloatTensor([1.0])",
        "torch.cuda.synchronize()",
        "torch.cuda.Stream()",
    ],
)
@pytest.mark.parametrize("error", ["Exception", "(AssertionError, RuntimeError)"])
def test_a_probe_is_left_to_its_handler(probe: str, error: str) -> None:
    code = f"import torch\ntry:\n    {probe}\n    q7 = 'gpu'\nexcept {error}:\n    q7 = 'cpu'\n"
    result = analyze(code, fix=True)
    assert not result.findings
    assert result.output is None


def test_a_path_that_may_be_for_the_cpu_is_reported() -> None:
    code = "import torch\ntry:\n    x = f(torch.ones(1).cuda())\nexcept Exception:\n    x = None\n"
    (finding,) = analyze(code, fix=True).remaining
    assert finding.message.endswith("(not fixed because the handler on line 4 is the CPU path)")


@pytest.mark.parametrize(("also", "expected"), [("", 0), ("\nprobe()\n", 1)])
def test_a_function_that_is_also_called_elsewhere_is_reported(also: str, expected: int) -> None:
    code = (
        "import torch\n\n\ndef probe():\n    torch.ones(1).cuda()\n\n\n"
        f"try:\n    probe()\n    q7 = 'gpu'\nexcept Exception:\n    q7 = 'cpu'\n{also}"
    )
    assert len(analyze(code).findings) == expected


def test_a_variable_that_is_also_read_outside_of_the_handled_code_is_reported() -> None:
    text = """\
import torch
y = x.cuda()
try:
    y = y + 1
except (RuntimeError, AssertionError):
    y = x.cpu()
print(y + 2)


def other(x):
    y = x.cuda()
    return y
"""
    found = [finding for finding in analyze(text).findings if finding.code == "DF101"]
    assert [(finding.line, finding.fix is None) for finding in found] == [(2, True), (11, False)]
