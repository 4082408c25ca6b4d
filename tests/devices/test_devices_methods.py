"""Whose `cuda` method a call reaches."""

from __future__ import annotations

from typing import Any

import pytest
from contexts import call, context_of
from helpers import analyze

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
        ("np.ones(1)", CustomCuda.MAYBE),
        ("data.make()", CustomCuda.MAYBE),
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
        ("batches[0]", CustomCuda.MAYBE),
        ("Batch() if a else b", CustomCuda.MAYBE),
    ],
)
def test_the_receiver_is_a_name(value: str, expected: CustomCuda) -> None:
    assert answer(f"import torch\n\nz = {value}\ny = z.cuda()\n", "z") is expected


def test_one_of_several_values_may_have_it() -> None:
    code = "import torch\n\nz = Batch()\nif a:\n    z = torch.zeros(1)\ny = z.cuda()\n"
    assert answer(code, "z") is CustomCuda.MAYBE


def test_moving_an_object_does_not_show_its_class() -> None:
    assert answer("z = Batch()\nz = z.cuda()\ny = z.cuda()\n", "z") is CustomCuda.MAYBE
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
        ("y = loss.cuda()\n", "loss", CustomCuda.MAYBE),
        ("loss.cuda()\n", "loss", CustomCuda.MAYBE),
        ("y = self.model.cuda()\n", "self.model", CustomCuda.MAYBE),
        ("y = net.cuda()\n", "net", CustomCuda.MAYBE),
        ("y = (a + b).cuda()\n", "(a + b)", CustomCuda.MAYBE),
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


OWN = """
import contextlib
import dataclasses
import functools
from typing import Any

import torch
from torch import nn

calls = []


class Own:
    def cuda(self, *args, **kwargs):
        calls.append(self)
        return self

    def cpu(self):
        return self

    def __enter__(self):
        return self

    def __exit__(self, *args):
        pass


class Module(nn.Linear):
    def __init__(self):
        super().__init__(1, 1)

    def cuda(self, *args, **kwargs):
        calls.append(self)
        return self


class Sub(Own):
    pass


def make():
    return Own()


"""
FORMS = [
    "for b in [Own()]:\n    b = b.cuda()",
    "c = [b.cuda() for b in [Own()]]",
    "c = {b: b.cuda() for b in (Own(),)}",
    "f = lambda b: b.cuda()\nf(Own())",
    "(lambda m: m.cuda())(Module())",
    "def f(o):\n    return o.cuda()\n\n\nf(Own())",
    "def f(o: Own):\n    return o.cuda()\n\n\nf(Own())",
    "def f(o: Any = None):\n    return (o or make()).cuda()\n\n\nf()",
    "def f(*os):\n    return os[0].cuda()\n\n\nf(Own())",
    "def f(**os):\n    return os['o'].cuda()\n\n\nf(o=Own())",
    "def f(o):\n    o.cuda()\n\n\nf(Own())",
    "d = {'o': Own()}\nd['o'].cuda()",
    "l = [Own()]\nl[0].cuda()",
    "with Own() as o:\n    o.cuda()",
    "(o := Own()).cuda()",
    "make().cuda()",
    "Own().cuda()",
    "Sub().cuda()",
    "Module().cuda()",
    "model = Module()\nmodel.cuda()",
    "model = Module()\nmodel = model.cuda()",
    "match {'o': Own()}:\n    case {'o': o}:\n        o.cuda()",
    "match [Own()]:\n    case [o, *_]:\n        o = o.cuda()",
    "a, b = Own(), torch.ones(1)\na.cuda()",
    "a, *b = [Own(), Own()]\nb[0].cuda()",
    "o = torch.ones(1) if calls else Own()\no = o.cuda()",
    "o = None\nfor o in map(lambda _: Own(), range(1)):\n    pass\no.cuda()",
    "class Holder:\n    def __init__(self, o):\n        self.o = o\n\n    def move(self):\n"
    "        self.o = self.o.cuda()\n\n\nHolder(Own()).move()",
    "class Holder:\n    o = Own()\n\n    def move(self):\n        self.o.cuda()\n\n\nHolder().move()",
    "@dataclasses.dataclass\nclass Holder:\n    o: Any\n\n\nh = Holder(Own())\nh.o.cuda()",
    "def f():\n    yield Own()\n\n\nfor o in f():\n    o.cuda()",
    "o = next(iter([Own()]))\no = o.cuda()",
    "def f():\n    o = Own()\n\n    def g():\n        return o.cuda()\n\n    return g\n\n\nf()()",
    "def f():\n    global o\n    o = Own()\n\n\nf()\no.cuda()",
    "tensor = torch.ones(1)\ntensor = Own()\ntensor.cuda()",
    "functools.reduce(lambda a, b: b.cuda(), [Own(), Own()])",
    "try:\n    raise ValueError(Own())\nexcept ValueError as e:\n    e.args[0].cuda()",
    "f = lambda: Own()\ngetattr(f(), 'cuda')()",
    "import operator\noperator.methodcaller('cuda')(Own())",
    "def f(m: nn.Module):\n    return m.cuda()\n\n\nf(Module())",
    "class Tensor(torch.Tensor):\n    cuda = Own.cuda\n\n\ndef f(x: torch.Tensor):\n    return x.cuda()\n\n\n"
    "f(torch.ones(1).as_subclass(Tensor))",
]


@pytest.mark.parametrize("available", [True, False])
@pytest.mark.parametrize("form", FORMS)
def test_an_own_cuda_is_called_where_cuda_is_available(
    form: str, available: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch = pytest.importorskip("torch")
    result = analyze(OWN + form + "\n", fix=True)
    code = (result.output or (OWN + form).encode()).decode()
    monkeypatch.setattr(torch.cuda, "is_available", lambda: available)
    names: dict[str, Any] = {"__name__": __name__}
    exec(compile(code, "program.py", "exec"), names)
    assert names["calls"] or not available
    assert ".to(" not in code


CUDA = "lambda self, *args, **kwargs: calls.append(self) or self"
DYNAMIC = [
    f"class Late:\n    pass\n\n\nLate.cuda = {CUDA}",
    f"class Late:\n    pass\n\n\nsetattr(Late, 'cuda', {CUDA})",
    f"Late = type('Late', (), {{'cuda': {CUDA}}})",
    f"Late = type('Late', (), dict(cuda={CUDA}))",
    f"def add(cls):\n    cls.cuda = {CUDA}\n    return cls\n\n\n@add\nclass Late:\n    pass",
    "class Meta(type):\n    def __new__(meta, name, bases, namespace):\n"
    f"        namespace['cuda'] = {CUDA}\n        return super().__new__(meta, name, bases, namespace)\n\n\n"
    "class Late(metaclass=Meta):\n    pass",
    "class Late:\n    def __getattr__(self, name):\n        if name != 'cuda':\n"
    f"            raise AttributeError(name)\n        return functools.partial({CUDA}, self)",
    "class Late:\n    def __init__(self):\n        self.cuda = self.move\n\n    def move(self, *args):\n"
    "        calls.append(self)\n        return self",
    "class Late:\n    if True:\n        def cuda(self, *args):\n            calls.append(self)\n"
    "            return self",
    "class Late:\n    def cuda(self, *args):\n        calls.append(self)\n        return self\n\n"
    "    def to(self, form):\n        return {}[form]",
]


@pytest.mark.parametrize("available", [True, False])
@pytest.mark.parametrize("definition", DYNAMIC)
@pytest.mark.parametrize(
    "use", ["for o in [Late()]:\n    o = o.cuda()", "Late().cuda()", "o = Late()\no.cuda()"]
)
def test_a_cuda_that_is_no_method_in_the_body_of_a_class(
    definition: str, use: str, available: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    test_an_own_cuda_is_called_where_cuda_is_available(f"{definition}\n\n\n{use}", available, monkeypatch)


def test_a_module_with_a_to_of_its_own_keeps_the_cuda_of_torch() -> None:
    code = (
        "import torch\n\n\nclass Net(torch.nn.Module):\n    def to(self, form):\n        return str(form)\n"
        "\n\nfor net in [Net()]:\n    net.cuda()\n"
    )
    result = analyze(code, fix=True)
    assert result.output is not None
    assert "if torch.cuda.is_available():\n        net.cuda()" in result.output.decode()
    (finding,) = analyze(code).findings
    assert "its own `cuda` or `to`" in finding.message


@pytest.mark.parametrize(
    ("code", "receiver", "expected"),
    [
        ("net = net.eval().cuda()", "net.eval()", CustomCuda.NEVER),
        ("for p in net.parameters():\n    p\nf(net.cuda())", "net", CustomCuda.NEVER),
        ("net = net.half().cuda()", "net.half()", CustomCuda.MAYBE),  # the class has one, too
        ("net = eval(net).cuda()", "eval(net)", CustomCuda.MAYBE),
        ("import nets\nnet = nets.eval(a).cuda()", "nets.eval(a)", CustomCuda.MAYBE),
        ("net = net.run().cuda()", "net.run()", CustomCuda.MAYBE),  # which may return anything
        ("if a:\n    net.eval()\nf(net.cuda())", "net", CustomCuda.MAYBE),
        ("a and net.eval()\nf(net.cuda())", "net", CustomCuda.MAYBE),
        ("net.eval()\nnet = make()\nf(net.cuda())", "net", CustomCuda.MAYBE),
        ("f(net.cuda())\nnet.eval()", "net", CustomCuda.MAYBE),
        ("net.eval\nf(net.cuda())", "net", CustomCuda.MAYBE),
    ],
)
def test_a_method_that_no_class_with_its_own_cuda_has_shows_another_class(
    code: str, receiver: str, expected: CustomCuda
) -> None:
    own = f"{CLASS}\n    def half(self):\n        return self\n"
    assert answer(f"net = make()\n{code}\n", receiver, {"batch.py": own}) is expected


@pytest.mark.parametrize(
    "own",
    [
        "class Batch(torch.nn.Module):\n    def cuda(self):\n        return self\n",
        f"{CLASS}\n    eval = print\n",
        f"{CLASS}\n    def __getattr__(self, name):\n        return print\n",
        f"{CLASS}\nclass Sub(Batch, Base):\n    pass\n",
        f"{CLASS}\nMore.cuda = move\n",
    ],
)
def test_a_class_with_its_own_cuda_may_have_the_method(own: str) -> None:
    code = "net = net.eval().cuda()\n"
    assert (
        answer(code, "net.eval()", {"batch.py": f"import torch\n\ndef move(x): return x\n{own}"})
        is CustomCuda.MAYBE
    )


@pytest.mark.parametrize(
    ("own", "expected"),
    [
        ("def cuda(self): return self", CustomCuda.NEVER),
        ("def cuda(self, **how): return self", CustomCuda.MAYBE),
        ("cuda = move", CustomCuda.MAYBE),
    ],
)
def test_a_call_with_arguments_does_not_reach_a_method_without(own: str, expected: CustomCuda) -> None:
    code = "f(net.cuda(non_blocking=True))\n"
    context = context_of(code, {"batch.py": f"import torch\n\nclass Batch:\n    {own}\n"})
    node = call(context, "net.cuda(non_blocking=True)").func
    assert custom_cuda(context, node.value) is expected  # type: ignore[attr-defined]
