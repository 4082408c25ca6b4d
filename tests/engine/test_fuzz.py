"""Random programs, and those that failed once: the properties that hold for every file.

The programs are the same each time, so that a failure belongs to the change under test.
`DEVICEFIX_FUZZ=20000 pytest tests/engine/test_fuzz.py` tries that many programs a test, new ones each time.
"""

from __future__ import annotations

import os
from random import Random

import patterns
import properties
import pytest
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st

from devicefix.config.settings import Settings
from devicefix.rules.registry import RULES

MANY = int(os.environ.get("DEVICEFIX_FUZZ", "0"))
NEW = pytest.mark.skipif(not MANY, reason="DEVICEFIX_FUZZ is not set: new programs may show old faults")
PROFILE = settings(
    max_examples=MANY or 200,
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
)
IDS = [f"{each.target}-{'unsafe' if each.unsafe_fixes else 'safe'}" for each in properties.SETTINGS]

# The smallest programs of what has been found; each once broke a property, with some settings at least.
FAILED = {
    "an argument of a function that is left, inside of a move": (
        "import torch\nwith torch.cuda.set_device(torch.cuda.device(k)).f.cuda():\n    pass\n"
    ),
    "a device of the accelerator's type and a number beside a string": (
        'import torch\ndef f(x):\n    d = torch.device("cuda:%d" % x.get_device())[0]\n'
        '    return lambda i: f"cuda:{i}"\n'
    ),
    "a test of a value that gets a guard": (
        "def f():\n    if isinstance(x, torch.cuda.FloatTensor):\n        ()\nx = x.cuda(n)\n"
    ),
    "a tensor that is moved to a number of bytes": (
        "import torch\nx = y = torch.cuda.memory_reserved()\nz = f(x.to(y))\n"
    ),
    "a refusal of two statements in one line": (
        "import torch\ndef move(x):\n    if torch.cuda.is_available():\n        return x.cuda()\n"
        "    raise OSError; x = 1\n"
    ),
    "a form feed in front of what gets a guard": (
        "import torch\n\ftorch.backends.cuda.preferred_blas_library(backend='cublaslt')\n"
    ),
    "a form feed in an indentation": ("import torch\nif x:\n  \f  torch.cuda.synchronize()\n"),
    "super() of an object that is not called self": (
        "import torch\nclass A(torch.nn.Module):\n    def cuda(this, device=None):\n"
        "        return super().cuda(device)\n"
    ),
    "super() outside of a class": (
        "import torch\nsuper().cuda(device=device)\nx = super().cuda()\nwith super().cuda() as c:\n    pass\n"
    ),
    "a variable that is called as a function": (
        "import torch\ndef start():\n    if torch.cuda.device_count() == 0:\n        raise OSError\n"
        "def n():\n    start = torch.cuda.Event()\n    start.record()\n"
    ),
    "an argument that may be unbound": "import torch\nif a:\n    args = ()\nx = f().cuda(args)\n",
    "a device whose uses get a guard": "import torch\ndef f():\n"
    "    t.init_process_group(b, device_id=device)\n"
    "for v in a:\n    device = 'cuda'\n",
    "a figure that is 0 without CUDA": "import torch\nassert torch.cuda.memory_reserved()\n",
    "a finding of the module, and a handler": (
        "import torch\ntry:\n    x.cuda()\nexcept a:\n    pass\ny = 1 / torch.cuda.memory_reserved()\n"
    ),
    "a constant that is called": 'import torch\nif n:\n    ("") if () else None().cuda(x="")\n',
    "an f-string that is not a device": 'import torch\ntorch.cuda.set_device(f"on {a.cuda}")\n',
    "a device inside a device": "import torch\ntorch.cuda.set_device(torch.device('cuda:0'))\n",
    "devices in a dictionary": "import torch\noptions = {'device_ids': [a]}\nx.cuda\n",
    "SyncBatchNorm": "import torch\nwith torch.nn.SyncBatchNorm.convert_sync_batchnorm(a) as c:\n    pass\n",
    "a called choice": "import torch\ntorch.cuda.FloatTensor(a if torch.cuda.is_available() else a)\n",
    "a fix that relies on another": "x = x.cuda(torch.cuda.current_device())\n",
    "spaces in an attribute": "import torch\nx += a.cuda(a . get_device())\n",
    "a continued attribute": "import torch\nx = torch.zeros(3, device=y \\\n    .get_device())\n",
    "a continued argument": "import torch\na = a.cuda(a \\\n    .get_device())\n",
    "a choice behind two stars": 'import torch\nx = {**"torch.cuda.FloatTensor"}\n',
    "guards of two blocks": "import torch\nwith a:\n    torch.cuda.set_device(a)\ntorch.cuda.synchronize()\n",
    "an insertion behind a semicolon": 'import os; x = "nccl" if a(\n) else "gloo"\n',
    "a device behind a semicolon": "import torch; x = a \\\n  (); x.cuda(\n)",
    "mixed line ends in a guard that goes": "import torch\n\ndef f(x):\r\n"
    "    if torch.cuda.is_available():\r\n        x = x.cuda()\r\n    return x\r\n",
    "a header of several lines": "import torch\nif (torch.cuda.is_available()\n):\n    a()\nelse: raise a\n",
    "a remark in a header": "import torch\nif (torch.cuda.is_available()  #:\n):\n    a()\nelse: raise a\n",
    "a type that is replaced": "import torch\ntorch.cuda.HalfTensor = a\n",
    "a string that is not a device yet": "import torch\na = 'cuda'\nx.cuda()\n",
    "a fix inside another's argument": "import torch\nx = torch.Tensor.cuda(torch.load(p))\n",
    "a refusal that gets a guard": "import torch\nif not x.is_cuda:\n"
    "    torch.cuda.synchronize()\n    raise a\n",
    "a refusal of any accelerator": "import torch\nassert torch.cuda.device_count() > rank\n",
    "a name that a guard goes round": "import torch\nif x.is_cuda:\n    a = 1\n"
    "b = torch.cuda.get_rng_state(a)\n",
    "a copy to where another tensor is": "import torch\ndef f(x, y):\n    a.b = x.to(y.get_device())\n"
    "    x += 1\n    return a.b\n",
    "an array that is used for its place": "import torch\ndef f(a):\n    for _ in range(9):\n"
    "        x = torch.from_numpy(a).to(device)\n        a[:] = b(x)\n    y.cuda(x.data.get_device())\n",
    "a torch in place of a missing one": "try:\n    import torch\n"
    "except ImportError:\n    torch = a\nx.cuda()\n",
    "a short blank line at the start of a branch": "import torch\nif a:\n    if torch.cuda.is_available():\n"
    "   \n         x = x.cuda()\n",
    "a parameter in brackets": "import torch  # cuda\nfrom torch import nn\n"
    "self.a = (nn.Parameter(a + b, requires_grad=True).to(device\n))\n",
    "a dictionary of devices where torch may be missing": "try:\n    import torch\nexcept ImportError:\n"
    "    torch = None\nimport torch\nuse = torch.cuda\n\ndef f(p, rank):\n    place = f'cuda:{rank}'\n"
    "    return torch.load(p, map_location={'cuda:0': place})\n",
    "a method of a torch that may be missing": "try:\n    import torch as th\nexcept ImportError:\n    pass\n"
    "th.Tensor.cuda(x)\ny = th.nn.Module.cuda(net)\n",
    "a torch that is changed": "import torch\ntorch = a(torch)\nx.cuda()\n",
    "a torch of a function's own": "import torch\ndef f():\n    torch = a\n    x.cuda()\n",
    "a torch that is a parameter": "import torch\ndef f(torch):\n    x.cuda(1)\n    y.cuda()\n",
    "an attribute of a function": "import torch\nx = torch.cuda.is_available\nx.cuda\n",
    "a test that becomes a guard": "import torch\ndef f():\n    if torch.cuda.get_rng_state():\n"
    "        x = a.pin_memory()\n",
    "a library without torch": "import apex.parallel\nfrom a import *\nif b:\n    c()\n"
    "elif torch.cuda.is_available():\n    d()\nelse:\n    sys.exit(1)\n",
    "code before the imports": "net.cuda()\nimport os\n",
    "a block as deep as the one behind": "import torch\nif a:\n    if b:\n        c(torch.cuda.HalfTensor)\n"
    "        x.cuda()\n    torch.cuda.synchronize()\n    if a.pin_memory():\n        a\n",
    "a stream behind what becomes a guard": "import torch\nx = torch.cuda.empty_cache() and f("
    "torch.cuda.Stream())\n",
    "a name bound in a condition": "import torch\nfor i in range((n := a)):\n    pass\nx.cuda()\n",
    "a remark above a branch that goes": "import torch\nif a:\n    b\n# why\n"
    "elif not torch.cuda.is_available():\n    raise a  # there\n",
    "another torch": "import th as torch\nx.cuda()\ny = f'{1 // torch.cuda.device_count()}'\n",
    "a device of a class": "import torch\nclass Net(nn.Module):\n    if device:\n        x.cuda()\n"
    "    device = 'cuda'\n",
    "a test by a string": "import torch\nif 'cuda:1':\n    a()\nelif b:\n    x = x.cuda()\n"
    "if c:\n    device = torch.device('cuda')\ny = y.cuda()\n",
    "a comment inside a test": "import torch\ny = x \\\n  .cuda()"
    " if torch.cuda.is_available(  # why (\n) else x\n",
    "a comment at the start of its line": "import torch\ndef f():\n    if torch.cuda.is_available():\n# why\n"
    "        net.to(d)\n    else:\n        raise a\n",
    "a comment that is less deep than the block": "import torch\nif not torch.cuda.is_available():\n"
    "    raise RuntimeError\n  # comment 0\n",
    "a comment that is deeper than the block": "import torch\nif not torch.cuda.is_available():\n"
    "    raise RuntimeError\n\t# comment 0\n",
    "a handler that becomes a choice": "import torch\nx = torch.randn(3).cuda(1)\ntry:\n"
    "    x = x.cuda()  # noqa: DF101, DF102\nexcept x.cuda:\n    logger.info(torch.cuda.get_device_name(0))\n"
    "    x = x.cuda()  # noqa: DF101, DF102\n",
    "a constant with the name of a device": "import torch, os\ndef f(x):\n    device = 1\n"
    "    parser.add_argument('--device', default='cuda')\n    x.to(**{'device': 'cuda'})\nf(3)\n"
    "os.environ['CUDA_VISIBLE_DEVICES'] = '1'\n",
    "code below a check that only an unsafe fix removes": (
        "import torch\ndef f(x):\n    if fused and not torch.cuda.is_available():\n        raise OSError\n"
        "    return x / torch.cuda.get_device_properties(0).total_memory\n"
    ),
    "a device in a dictionary of locations, and a number that is taken elsewhere": (
        'import torch\nint(device.split(":")[-1])\nplace = f"cuda:{rank}"\n'
        'torch.load(path, map_location={"cuda:0": place})\n'
    ),
    "an import of torch.cuda that binds torch": (
        "from torch import device\nimport torch.cuda\nimport torch.nn as nn\ndef f(x):\n    x.cuda()\n"
    ),
    "an autocast of a device that a fix would choose": (
        'import torch\nif x.is_cuda:\n    device = "cuda"\ndef f(x):\n    raise OSError\n'
        '    torch.autocast(device_type="cuda", dtype=torch.bfloat16)\n    x.bfloat16()\n'
    ),
    "a guard that joins a test, or becomes one, and reads what may be unbound": (
        "import torch\nif a:\n    getattr(torch, self.kind).empty_cache()\nif b:\n    a = 1\nelse:\n"
        "    getattr(torch, self.kind).empty_cache()\n"
    ),
    "a default of a parameter, in a program for other accelerators as well": (
        'import torch\nnet = nn.DataParallel(["cuda", "npu"])\ny = torch.zeros(2).to(device)\n'
        'def load(name, device_map="cuda"):\n'
        "    return AutoModel.from_pretrained(name, device_map=device_map)\nassert x.is_cuda\n"
    ),
    "a method that is the only use of torch": "import torch\nprint(list(map(torch.Tensor.cuda, xs)))\n"
    'x = init_device_mesh("cuda", (2,))\n',
}


@pytest.mark.parametrize("program", FAILED.values(), ids=FAILED)
def test_what_failed_once(program: str) -> None:
    properties.hold_for_all(program.encode())


def test_no_device_is_defined_behind_its_use() -> None:
    program = b"import torch; x = a(\n); y.cuda(\n)"
    output = properties.run_one(program, Settings(fix=True)).output
    assert output is not None and b"device =" not in output


@pytest.mark.parametrize(
    "first", [pytest.param(seed, marks=[pytest.mark.slow] * (seed > 0)) for seed in range(0, 300, 30)]
)
def test_the_same_programs_each_time(first: int) -> None:
    for seed in range(first, first + 30):
        properties.hold_for_all(patterns.program(Random(seed), size=1 + seed % 4))


@pytest.mark.slow
def test_the_fixes_of_one_rule_hide_nothing_of_the_others() -> None:
    for rule in RULES.values():
        for example in rule.INVALID:
            properties.hide_nothing(example.before.encode())
    for seed in range(10):
        properties.hide_nothing(patterns.program(Random(seed), size=1 + seed % 4))


@pytest.mark.slow
def test_the_same_bytes_each_time() -> None:
    """Insert bytes into programs: mostly they no longer parse, which is a finding."""
    for seed in range(300):
        random = Random(seed)
        program = patterns.program(random)
        at = random.randint(0, len(program))
        properties.hold(program[:at] + random.randbytes(random.randint(0, 20)) + program[at:])


@NEW
@pytest.mark.parametrize("options", properties.SETTINGS, ids=IDS)
@PROFILE
@given(random=st.randoms(use_true_random=False), size=st.integers(1, 4))
def test_random_programs(random: Random, size: int, options: Settings) -> None:
    program = patterns.program(random, size=size)
    note(program.decode())
    properties.hold(program, options)


@NEW
@PROFILE
@given(data=st.binary(max_size=200), at=st.integers(0, 10**6), seed=st.integers(0, 10**6))
def test_random_bytes(data: bytes, at: int, seed: int) -> None:
    """Insert bytes into a program: mostly it no longer parses, which is a finding."""
    program = patterns.program(Random(seed))
    at %= len(program) + 1
    note(repr(program[:at] + data + program[at:]))
    properties.hold(program[:at] + data + program[at:])


def test_most_random_programs_are_rewritten() -> None:
    programs = [patterns.program(Random(seed)) for seed in range(100)]
    assert sum(properties.run_one(each, Settings(fix=True)).output is not None for each in programs) > 50
    assert len({*programs}) > 90
