"""`devicefix.facts.fallbacks`: handlers that are the program's own path without CUDA."""

from __future__ import annotations

import ast
from textwrap import dedent

import pytest
from helpers import analyze

from devicefix.facts import Facts

PROBE = "torch.ones(1).cuda()"
CERTAIN, UNCERTAIN = True, False

# Programs, each with the certainty of the handler that serves a machine without CUDA, None if there is none.
PROGRAMS: dict[str, tuple[str, bool | None]] = {
    "a flag": ("try:\n PROBE\n kind = 'gpu'\nexcept Exception:\n kind = 'cpu'", CERTAIN),
    "a flag in the handler": ("try:\n PROBE\nexcept Exception:\n args.cpu = True", CERTAIN),
    "a flag behind it": ("try:\n PROBE\nexcept Exception:\n on = False\nelse:\n on = True", CERTAIN),
    "a flag before it": ("on = 0\ntry:\n x = PROBE\n y = x + x\n on = 1\nexcept Exception: pass", CERTAIN),
    "a function": ("try:\n PROBE\n def f(): ...\nexcept Exception:\n f = 'cpu'", CERTAIN),
    "a returned answer": ("def f():\n try:\n  PROBE\n  return True\n except: return False", CERTAIN),
    "one of two errors": ("try:\n PROBE\n on = True\nexcept RuntimeError:\n on = False", UNCERTAIN),
    "a try of a model": ("try:\n model(PROBE)\n on = True\nexcept Exception:\n on = False", CERTAIN),
    "an answer of CUDA": (
        "try:\n if n: PROBE\n with torch.no_grad(): name = torch.cuda.get_device_name()\nexcept:\n name = ''",
        CERTAIN,
    ),
    "suppressed errors": ("with suppress(Exception):\n PROBE\n on = True", UNCERTAIN),
    "a pattern": ("try:\n PROBE\n match {'k': 1}:\n  case {'k': on}: pass\nexcept: on = 0", CERTAIN),
    "a loop of constants": ("try:\n PROBE\n for on in [1]: pass\nexcept Exception:\n on = 0", CERTAIN),
    "a number of GPUs": ("n = 0\ntry:\n PROBE\n n += 1\nexcept Exception:\n n = -1", CERTAIN),
    "a size that grows": ("n = 1\ntry:\n PROBE\n n *= 2\n o.n = n\nexcept Exception:\n o.n = -1", None),
    "a size that grows after it": (
        "n = 1\nwhile 1:\n try: model(PROBE)\n except Exception: break\n best, n = n, n * 2",
        None,
    ),
    "a number of GPUs after it": ("n = 0\nwhile 1:\n try: PROBE\n except Exception: break\n n += 1", CERTAIN),
    "a message about what a model does": (
        "try:\n model(PROBE)\n o.warm = True\nexcept Exception:\n log.exception('cold')",
        None,
    ),
    "a message about what torch does": (
        "try:\n PROBE\n o.on = True\nexcept Exception:\n log.exception('no GPU')",
        CERTAIN,
    ),
    "suppressed errors of a model": ("with suppress(Exception):\n model(PROBE)\n on = True", None),
    "the CPU": ("try:\n x = PROBE\nexcept:\n x = x.cpu()", None),
    "the CPU for one of two errors": ("try:\n x = PROBE\nexcept RuntimeError:\n x = x.cpu()", None),
    "a message": ("try:\n PROBE\nexcept Exception:\n print('failed')", None),
    "a result": ("try:\n x = train(PROBE)\nexcept Exception:\n x = None\nprint(x)", None),
    "a tensor": ("try:\n x = PROBE\nexcept Exception:\n x = None\nprint(x)", None),
    "work": ("try:\n PROBE\n train(net)\n on = True\nexcept Exception:\n on = False", None),
    "a loop": (
        "try:\n for e in range(3): train(net)\n PROBE\nexcept (RuntimeError, KeyboardInterrupt):\n save()",
        None,
    ),
    "a caller": ("def f():\n PROBE\ntry:\n f()\n on = 1\nexcept Exception:\n on = 0", None),
    "another error": ("try:\n PROBE\n on = True\nexcept KeyError:\n on = False", None),
    "an error again": (
        "try:\n PROBE\n on = True\nexcept RuntimeError as e:\n if 'memory' in str(e): on = 0\n else: raise",
        None,
    ),
    "an exit": ("try:\n PROBE\n on = True\nexcept Exception:\n sys.exit(1)", None),
    "in the handler": ("try:\n x = 1\nexcept Exception:\n x = PROBE", None),
    "suppressed errors and a tensor": ("with suppress(Exception):\n x = PROBE\nprint(x)", None),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_handler_that_serves_a_machine_without_cuda(name: str) -> None:
    code, certain = PROGRAMS[name]
    facts = Facts.read(f"import torch\n{code.replace('PROBE', PROBE)}".encode())
    calls = (node for node in ast.walk(facts.tree.module) if isinstance(node, ast.Call))
    probe = next(node for node in calls if facts.source.code(node) == PROBE)
    found = facts.guards.fallbacks.of(probe)
    assert (found and found.certain) is certain


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
    misses = probe.endswith("FloatTensor([1.0])") and error != "Exception"  # a build without CUDA: TypeError
    assert [finding.fix for finding in result.remaining] == [None] * misses
    assert result.output is None


def test_a_probe_whose_handler_misses_an_error_is_reported() -> None:
    code = "import torch\ntry:\n    torch.ones(1).cuda()\n    on = 1\nexcept RuntimeError:\n    on = 0\n"
    (finding,) = analyze(code, fix=True).remaining
    assert finding.message.endswith(
        "(not fixed because this code only tests for CUDA, and line 5 handles the error)"
    )


@pytest.mark.parametrize(
    "handler",
    ["log.exception('failed')\n        return None", "return {'ok': False}", "best = step", "net.train()"],
)
def test_a_handler_of_errors_does_not_stop_a_fix(handler: str) -> None:
    code = f"""
import torch


def step(net, x):
    try:
        net.cuda().load_state_dict(torch.load("a.pt"))
        return net(x.cuda())
    except Exception:
        {handler}
"""
    result = analyze(code, fix=True)
    assert [finding.code for finding in result.fixed] == ["DF101", "DF501", "DF101"]
    assert not result.remaining


def test_a_caller_that_notes_what_fitted_does_not_stop_a_fix() -> None:
    trainer = """
        import torch
        import torch.distributed as dist


        class Trainer:
            def __init__(self):
                self.device_id = dist.get_rank() % torch.cuda.device_count()
                self.model = torch.nn.Linear(4, 2).to(self.device_id)
                self.largest = {}

            def loss(self, batch):
                return self.model(batch.to(self.device_id)).mean()

            def probe(self, task):
                size = 1
                try:
                    while size < 8:
                        self.loss(torch.zeros(size, 4)).backward()
                        size *= 2
                    self.largest[task] = size
                except Exception as problem:  # out of memory
                    self.largest[task] = size
                    print(problem)
    """
    result = analyze(dedent(trainer), fix=True)
    assert [finding.code for finding in result.fixed] == ["DF205"]
    assert not result.remaining
