"""Whose `cuda` method a call reaches."""

from __future__ import annotations

import pytest
from contexts import call, context_of

from devicefix.devices.methods import CustomCuda, custom_cuda

CLASS = "import torch\n\n\nclass Batch:\n    def cuda(self):\n        return self\n"


def answer(code: str, receiver: str = "x", others: dict[str, str] | None = None) -> CustomCuda:
    context = context_of(code, {"batch.py": CLASS} if others is None else others)
    node = call(context, f"{receiver}.cuda()").func
    return custom_cuda(context, node.value)  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("receiver", "expected"),
    [
        ("Batch()", CustomCuda.ALWAYS),
        ("batch.Batch.load(path)", CustomCuda.ALWAYS),
        ("Other()", CustomCuda.NEVER),
        ("torch.zeros(1)", CustomCuda.NEVER),
        ("make()", CustomCuda.MAYBE),
        ("np.ones(1)", CustomCuda.NEVER),
        ("data.make()", CustomCuda.NEVER),
    ],
)
def test_the_receiver_is_a_call(receiver: str, expected: CustomCuda) -> None:
    code = f"import torch\nimport numpy as np\nimport batch\n\ny = {receiver}.cuda()\n"
    assert answer(code, receiver) is expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("Batch()", CustomCuda.ALWAYS),
        ("torch.zeros(1)", CustomCuda.NEVER),
        ("make()", CustomCuda.MAYBE),
        ("batches[0]", CustomCuda.NEVER),
        ("Batch() if a else b", CustomCuda.NEVER),
    ],
)
def test_the_receiver_is_a_name(value: str, expected: CustomCuda) -> None:
    assert answer(f"import torch\n\nz = {value}\ny = z.cuda()\n", "z") is expected


def test_one_of_several_values_may_have_it() -> None:
    code = "import torch\n\nz = Batch()\nif a:\n    z = torch.zeros(1)\ny = z.cuda()\n"
    assert answer(code, "z") is CustomCuda.MAYBE


def test_moving_an_object_does_not_show_its_class() -> None:
    assert answer("z = Batch()\nz = z.cuda()\ny = z.cuda()\n", "z") is CustomCuda.ALWAYS
    assert answer("z = Batch()\nz = z.half()\ny = z.cuda()\n", "z") is CustomCuda.MAYBE


def test_self_has_the_method_of_its_class() -> None:
    own = f"{CLASS}\n    def half(self):\n        return self.cuda()\n"
    assert answer(own, "self", {}) is CustomCuda.ALWAYS
    other = f"{CLASS}\n\nclass Other:\n    def half(self):\n        return self.cuda()\n"
    assert answer(other, "self", {}) is CustomCuda.NEVER


def test_a_subclass_inherits_it() -> None:
    code = "import batch\n\n\nclass Sub(batch.Batch):\n    pass\n\n\ny = Sub().cuda()\n"
    assert answer(code, "Sub()") is CustomCuda.ALWAYS


@pytest.mark.parametrize(
    ("code", "receiver", "expected"),
    [
        ("y = loss.cuda()\n", "loss", CustomCuda.NEVER),
        ("loss.cuda()\n", "loss", CustomCuda.MAYBE),
        ("y = self.model.cuda()\n", "self.model", CustomCuda.MAYBE),
        ("y = net.cuda()\n", "net", CustomCuda.MAYBE),
        ("y = (a + b).cuda()\n", "(a + b)", CustomCuda.NEVER),
        ("y = self.batch.cuda()\n", "self.batch", CustomCuda.MAYBE),
    ],
)
def test_an_object_of_unknown_class(code: str, receiver: str, expected: CustomCuda) -> None:
    others = {
        "batch.py": f"{CLASS}\n\nclass Holder:\n    def __init__(self):\n        self.batch = Batch()\n"
    }
    assert answer(f"import torch\n\n{code}", receiver, others) is expected


@pytest.mark.parametrize("receiver", ["make()", "model", "self.net"])
def test_without_such_a_class_torch_has_the_only_method(receiver: str) -> None:
    assert answer(f"import torch\n\n{receiver}.cuda()\n", receiver, {}) is CustomCuda.NEVER
