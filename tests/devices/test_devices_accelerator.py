"""The uses of CUDA that any accelerator supports."""

from __future__ import annotations

import ast

import pytest
from contexts import context_of, expression

from devicefix.devices.accelerator import Accelerator
from devicefix.devices.counterparts import COUNTERPARTS

DEVICE = "torch.accelerator.current_accelerator()"


def accelerator(code: str, version: tuple[int, int] | None = None) -> Accelerator:
    return Accelerator(context_of(code).facts, version)


@pytest.mark.parametrize(
    ("code", "name", "expected"),
    [
        ("import torch\n\ntorch.cuda.synchronize()\n", "torch.cuda.synchronize", "synchronize"),
        ("from torch import cuda\n\ncuda.synchronize()\n", "cuda.synchronize", "synchronize"),
        ("from torch.cuda import Event as E\n\nE()  # cuda\n", "E", "Event"),
        ("import torch\n\ntorch.cuda.streams.Event()\n", "torch.cuda.streams.Event", "Event"),
        ("from torch.cuda.amp.autocast_mode import autocast as a\n\na()  # cuda\n", "a", "amp.autocast"),
        ("import torch\n\ntorch.cuda.nvtx.mark('a')\n", "torch.cuda.nvtx.mark", "nvtx.mark"),
        ("import torch\n\ntorch.cuda.synchronize()\n", "torch.cuda", None),
        ("import torch\n\ntorch.zeros(1).cuda()\n", "torch.zeros", None),
        ("import torch\n\ns = torch.cuda.Stream()\ns.query()  # cuda\n", "s", None),
        ("import torch\n\ns = torch.cuda.Stream()\ns.cuda.query()\n", "s.cuda.query", None),
    ],
)  # fmt: skip
def test_a_reference_is_a_name_in_torch_cuda(code: str, name: str, expected: str | None) -> None:
    found = accelerator(code)
    assert found.reference(expression(found, name)) == expected


def test_the_references_of_a_site() -> None:
    found = accelerator("import torch\n\nf(torch.cuda.synchronize(), torch.cuda.empty_cache())\n")
    site = expression(found, "f(torch.cuda.synchronize(), torch.cuda.empty_cache())")
    assert [found.reference(each) for each in found.references(site)] == ["synchronize", "empty_cache"]


@pytest.mark.parametrize(
    ("call", "version", "expected"),
    [
        ("torch.cuda.synchronize()", None, "accelerator.synchronize"),
        ("torch.cuda.synchronize()", (2, 5), None),
        ("torch.cuda.set_device(1)", (2, 7), "accelerator.set_device_index"),
        ("torch.cuda.set_device(1)", (2, 6), "accelerator.set_device_index"),
        ("torch.cuda.set_device(device=1)", None, "accelerator.set_device_index"),
        ("torch.cuda.set_device(1, 2)", None, None),
        ("torch.cuda.set_device(index=1)", None, None),
        ("torch.cuda.set_device(*a)", None, None),
        ("torch.cuda.set_device(**a)", None, None),
        ("torch.cuda.memory_allocated()", (2, 8), "get_device_module().memory_allocated"),
        ("torch.cuda.nvtx.mark(a)", None, None),
        ("torch.cuda.device(1)", None, None),
        ("torch.cuda.amp.GradScaler(1, 2)", None, "amp.GradScaler"),
        ("torch.cuda.amp.autocast(True)", None, "amp.autocast"),
    ],
)
def test_the_counterpart_of_a_call(call: str, version: tuple[int, int] | None, expected: str | None) -> None:
    found = accelerator(f"import torch\n\n{call}\n", version)
    counterpart = found.counterpart(expression(found, call.partition("(")[0]))
    assert (counterpart.name if counterpart else None) == expected


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("with torch.cuda.device(1):\n    pass\n", "accelerator.device_index"),
        ("with torch.cuda.device(i):\n    pass\n", None),
    ],
)
def test_a_device_is_entered_by_a_literal_index(code: str, expected: str | None) -> None:
    found = accelerator(f"import torch\n\n{code}")
    counterpart = found.counterpart(expression(found, "torch.cuda.device"))
    assert (counterpart.name if counterpart else None) == expected


def test_only_a_question_has_a_counterpart_without_a_call() -> None:
    found = accelerator("import torch\n\nf(torch.cuda.is_available, torch.cuda.synchronize)\n")
    assert found.counterpart(expression(found, "torch.cuda.is_available")) is not None
    assert found.counterpart(expression(found, "torch.cuda.synchronize")) is None
    found = accelerator('import torch\n\nf(f"{torch.cuda.is_available()}")\n')
    assert not any(map(found.counterpart, ast.walk(found.facts.tree.module)))


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ('"nccl"', '"nccl"'),
        ('"torch.cuda.FloatTensor"', '"torch.cuda.FloatTensor"'),
        ('"cuda"', None),
        ("f(x.cuda())", "x.cuda()"),
        ("torch.backends.cuda.preferred_blas_library()", "torch.backends.cuda.preferred_blas_library"),
        ("torch.version.cuda", "torch.version.cuda"),
        ("torch.cuda.nvtx.mark(1)", "torch.cuda.nvtx.mark"),
        ("torch.cuda.synchronize()", None),
        ("torch.cuda.manual_seed(1)", None),
        ("torch.cuda.memory_stats()", None),
    ],
)
def test_what_only_cuda_supports(code: str, expected: str | None) -> None:
    found = accelerator(f"import torch\n\nf({code})  # cuda\n")
    site = found.only_cuda(expression(found, code))
    assert (found.facts.source.code(site) if isinstance(site, ast.expr) else None) == expected


@pytest.mark.parametrize(
    ("code", "new"),
    [
        ('"cuda"', f"{DEVICE}.type"),
        ("'cuda:1'", f"f'{{{DEVICE}.type}}:1'"),
        ('f"cuda:{i}"', f'f"{{{DEVICE}.type}}:{{i}}"'),
        ('"cuda:%d" % i', f'{DEVICE}.type + ":%d" % i'),
        ('"cuda:" + i', f'{DEVICE}.type + ":" + i'),
        ('torch.device("cuda")', DEVICE),
        ('torch.device("cuda:1")', f'torch.device(f"{{{DEVICE}.type}}:1")'),
        ('torch.device("cuda", i)', f"torch.device({DEVICE}.type, i)"),
        ('torch.device(f"cuda:{i}")', f'torch.device(f"{{{DEVICE}.type}}:{{i}}")'),
        ("torch.device(1)", None),
        ("torch.device(i)", None),
        ('torch.device(type="cuda")', None),
        ('torch.device("cuda:1", i)', None),
        ('torch.device(f"cuda:{i}x")', None),
        ('f"""cuda:{i}"""', f'f"""{{{DEVICE}.type}}:{{i}}"""'),
        ('"cpu"', None),
        ("x", None),
    ],
)
def test_a_cuda_device_is_translated(code: str, new: str | None) -> None:
    found = accelerator(f"import torch\n\nx.to({code})  # cuda\n")
    change = found.translation(expression(found, code), "torch")
    assert (change(code) if change else None) == new


def test_the_translation_of_a_call_keeps_the_rest_of_it() -> None:
    code = 'torch.device( "cuda:%d" % i )'
    found = accelerator(f"import torch\n\nx.to({code})\n")
    change = found.translation(expression(found, code), "torch")
    assert change is not None
    # An inner edit may have changed the argument.
    assert change(code.replace("i )", "index )")) == f'torch.device( {DEVICE}.type + ":%d" % index )'


def test_the_translation_of_a_call_keeps_its_second_argument() -> None:
    code = 'torch.device( "cuda", i)'
    found = accelerator(f"import torch\n\nx.to({code})\n")
    change = found.translation(expression(found, code), "torch")
    assert change is not None
    # An inner edit may have changed it.
    assert change(code.replace("i)", "index)")) == f"torch.device( {DEVICE}.type, index)"


MADE = "import torch\n\ns = torch.cuda.Stream()\n"


@pytest.mark.parametrize(
    ("code", "can"),
    [
        (f"{MADE}with torch.cuda.stream(s):\n    pass\n", True),
        (f"{MADE}torch.cuda.current_stream().wait_stream(s)\n", True),
        (f"{MADE}e = s.record_event()\nx.record_stream(s)\n", True),
        (f"{MADE}if s is not None:\n    s.synchronize()\n", True),
        ("import torch\n\ns = torch.cuda.Stream() if a else None\ns.query()\n", True),
        ("import torch\n\ns, e = torch.cuda.Stream(), torch.cuda.Event()\ne.record(s)\n", True),
        (f"{MADE}s.cuda_stream\n", False),
        (f"{MADE}f(s)\n", False),
        (f"{MADE}with torch.cuda.stream(s) as t:\n    pass\n", False),
        (f"{MADE}with torch.cuda.stream(t):\n    pass\n", False),
        (f"{MADE}torch.cuda.default_stream()\n", False),
        ("import torch\n\ns = torch.cuda.Stream(1, 2)\n", False),
        ("import torch\n\ns = torch.cuda.Stream(*a)\n", False),
        ("import torch\n\ne = torch.cuda.Event(enable_timing=True)\n", True),
        ("import torch\n\ne = torch.cuda.Event(interprocess=True)\n", False),
        ("import torch\n\nf(torch.cuda.Stream())\n", False),
        ("import torch\n\nf(torch.cuda.Stream)\n", False),
    ],
)
def test_streams_are_replaced_where_all_uses_are_portable(code: str, can: bool) -> None:
    assert accelerator(code).can_replace_streams is can


def test_an_older_torch_does_not_enter_streams() -> None:
    code = f"{MADE}with torch.cuda.stream(s):\n    pass\n"
    assert not accelerator(code, (2, 12)).can_replace_streams
    found = accelerator(code, (2, 12))
    assert found.counterpart(expression(found, "torch.cuda.Stream")) is None
    found = accelerator(code)
    assert found.counterpart(expression(found, "torch.cuda.Stream")) is not None


def test_a_stream_that_is_not_replaced_is_cudas() -> None:
    kept = accelerator(f"{MADE}f(s.cuda_stream)\n")
    assert kept.only_cuda(expression(kept, "s.cuda_stream")) is not None
    replaced = accelerator(f"{MADE}s.query()  # cuda\n")
    assert replaced.only_cuda(expression(replaced, "s.query()")) is None


def test_the_newest_counterpart_comes_first() -> None:
    for counterparts in COUNTERPARTS.values():
        assert list(counterparts) == sorted(counterparts, key=lambda each: each.since, reverse=True)
