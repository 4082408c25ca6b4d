"""Low precision: autocast that is off on a CPU, and questions whose answer changes the dtype there."""

from __future__ import annotations

from textwrap import dedent
from typing import Any

import pytest
from helpers import analyze

from devicefix.model import Safety

EMBEDDING = "import torch\n\n\ndef embed(n):\n    return torch.nn.Embedding(n, 4).to(torch.bfloat16)\n"
TRAIN = """\
import torch
from model import embed

with torch.autocast("cuda", dtype=torch.bfloat16):
    y = torch.nn.Linear(4, 4)(embed(5)(torch.tensor([1])))
"""


def codes(source: str, **others: str) -> list[str]:
    named = {f"{name}.py": text for name, text in others.items()}
    return [finding.code for finding in analyze(source, path="train.py", others=named).findings]


def test_low_precision_counts_in_the_files_that_are_used_together() -> None:
    assert codes(TRAIN) == []
    assert codes(TRAIN, model=EMBEDDING) == ["DF407"]
    assert codes(TRAIN, model="from deeper import embed\n", deeper=EMBEDDING) == ["DF407"]
    assert codes(TRAIN.replace("from model", "# from model"), main=f"import train\n{EMBEDDING}") == ["DF407"]
    assert codes(TRAIN, unrelated=EMBEDDING) == []


@pytest.mark.filterwarnings("ignore:CUDA is not available")
def test_what_is_reported_fails_on_a_cpu_and_what_is_not_runs() -> None:
    torch = pytest.importorskip("torch")
    with pytest.raises(RuntimeError, match="dtype"):
        exec(TRAIN.replace("from model import embed", EMBEDDING), {})
    exec(TRAIN.replace("from model import embed", EMBEDDING).replace('"cuda"', '"cpu"'), {})
    exec(TRAIN.replace("from model import embed", EMBEDDING.replace(".to(torch.bfloat16)", "")), {})
    assert not torch.is_autocast_enabled("cuda")


@pytest.mark.parametrize(
    ("line", "is_low"),
    [
        ("net = net.half()", True),
        ("net.to(device=device, dtype=torch.float16)", True),
        ("pipe = load(path, torch_dtype=torch.bfloat16)", True),
        ("weight_dtype = torch.half", True),
        ("x = torch.HalfTensor(3)", True),
        ("n = n.half().float()", False),
        ("assert x.dtype == torch.half", False),
        ("with torch.autocast(device.type, dtype=(torch.bfloat16)): pass", False),
        ("half = n // 2", False),
        ("assert x.dtype in (torch.float16, torch.bfloat16)", False),
        ("for dtype in (torch.float16, torch.float32): net.to(dtype)", True),
        ("dtype = torch.bfloat16\nscope = torch.autocast(device.type, dtype=dtype)", False),
        ("dtype = torch.bfloat16\nscope = torch.autocast(device.type, dtype=dtype)\nnet.to(dtype)", True),
        (
            "dtype = options['dtype']\nif dtype == 'half':\n    dtype = torch.half\nprint(f'{dtype}')\n"
            "scope = torch.autocast(device.type, dtype=dtype)",
            False,
        ),
        ("def f(x, dtype=torch.half):\n    return torch.autocast(device.type, dtype=dtype)", False),
        ("self.dtype = torch.half\nscope = torch.autocast(device.type, dtype=self.dtype)", False),
        (
            "self.dtype = torch.half\nscope = torch.autocast(kind, dtype=self.dtype)\nx.to(self.dtype)",
            True,
        ),
        ("def f(x, dtype=torch.half):\n    return torch.autocast(device.type, dtype=dtype), dtype", True),
        ("def f(x): return torch.autocast(device.type, dtype=x), x.to(dtype=torch.half)", True),
        (
            "options = dict(enabled=on, dtype=torch.half)\nwith torch.autocast('cuda', **options): run()",
            False,
        ),
        ("options = dict(enabled=on, dtype=torch.half)\nx.to(options['dtype'])", True),
        ("options = dict(device=here, dtype=torch.half)\nx.to(**options)", True),
        ("same = torch.cuda.HalfTensor in buckets", False),
        ("step(x)  # dtype=torch.bfloat16", False),
        ("step('#', x.half())  # not in float32", True),
        ('step("it\'s #", x.half())', True),
    ],
)
def test_what_low_precision_is(line: str, is_low: bool) -> None:
    source = f"import torch\n\n{line}\nwith torch.autocast('cuda'):\n    y = net(x)\n"
    assert ("DF407" in codes(source)) is is_low


def test_a_cpu_answers_no_but_has_bfloat16() -> None:
    torch = pytest.importorskip("torch")
    assert not torch.cuda.is_bf16_supported()
    assert (torch.ones(2, dtype=torch.bfloat16) @ torch.ones(2, dtype=torch.bfloat16)).item() == 2


# Programs that compute in low precision and float32 under autocast for CUDA, each with a number as `result`.
PROGRAMS = {
    "a network with embeddings in bfloat16 that is trained": """
        import torch
        from torch import nn
        from torch.nn import functional as F


        class Block(nn.Module):
            def __init__(self, n):
                super().__init__()
                self.qkv = nn.Linear(n, 3 * n, bias=False)
                self.proj = nn.Linear(n, n, bias=False)

            def forward(self, x):
                q, k, v = self.qkv(F.layer_norm(x, (x.size(-1),))).chunk(3, -1)
                return x + self.proj(F.scaled_dot_product_attention(q, k, v, is_causal=True))


        class Decoder(nn.Module):
            def __init__(self, n=8):
                super().__init__()
                self.parts = nn.ModuleDict(dict(tokens=nn.Embedding(16, n), blocks=nn.ModuleList([Block(n)])))
                self.out = nn.Linear(n, 16)

            def start(self):
                nn.init.normal_(self.parts.tokens.weight)
                self.parts.tokens.to(dtype=torch.bfloat16)

            def forward(self, tokens):
                x = self.parts.tokens(tokens)
                for block in self.parts.blocks:
                    x = block(x)
                return F.cross_entropy(self.out(x).float().flatten(0, 1), tokens.flatten())


        torch.manual_seed(0)
        context = torch.amp.autocast(device_type="cuda", dtype=torch.bfloat16)
        model = Decoder()
        model.to("cuda")
        model.start()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(3):
            with context:
                loss = model(torch.randint(16, (2, 5)).cuda())
            loss.backward()
            optimizer.step()
        result = loss.item()
    """,
    "an encoder in half precision, and a projector": """
        import torch
        from torch import nn


        class Encoder(nn.Module):
            def __init__(self):
                super().__init__()
                self.patches = nn.Conv2d(3, 8, 4, stride=4)

            def forward(self, images):
                return self.patches(images).flatten(2).transpose(1, 2)


        class Describer(nn.Module):
            def __init__(self):
                super().__init__()
                self.tower = Encoder()
                self.tower.half()
                self.projector = nn.Sequential(nn.Linear(8, 8), nn.GELU(), nn.Linear(8, 8))

            def encode(self, images):
                return self.projector(self.tower(images))


        torch.manual_seed(0)
        model = Describer().cuda().eval()
        images = torch.rand(1, 3, 8, 8).half().cuda()
        with torch.inference_mode(), torch.autocast("cuda"):
            result = model.encode(images).float().mean().item()
    """,
    "a memory in bfloat16, in a method with a decorator": """
        import torch
        from torch import nn


        class Tracker:
            def __init__(self):
                self.encoder = nn.Linear(6, 8).cuda()
                self.mixer = nn.Linear(8, 8).cuda()

            @torch.inference_mode()
            @torch.cuda.amp.autocast(dtype=torch.bfloat16)
            def track(self, frames):
                memory = []
                for frame in frames:
                    x = self.encoder(frame)
                    if memory:
                        past = torch.cat(memory[-2:], 0).to(torch.bfloat16)
                        x = x + self.mixer(past).mean(0)
                    memory.append(x)
                return x.float().mean().item()


        torch.manual_seed(0)
        result = Tracker().track(torch.randn(3, 2, 6).cuda())
    """,
    "adapters in float32 around a layer in bfloat16": """
        import torch
        from torch import nn


        class Adapted(nn.Module):
            def __init__(self, layer):
                super().__init__()
                self.layer = layer
                self.down, self.up = nn.Linear(8, 2), nn.Linear(2, 8)

            def forward(self, x):
                return self.layer(x) + self.up(self.down(x))


        torch.manual_seed(0)
        model = Adapted(nn.Linear(8, 8).to(torch.bfloat16)).cuda()
        x = torch.randn(4, 8, device="cuda", dtype=torch.bfloat16)
        lora = nn.Linear(8, 8).cuda()
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = (lora(model.layer(x)) - x).float().pow(2).mean()
        loss.backward()
        result = loss.item()
    """,
    "a buffer in bfloat16, and a context in an attribute": """
        import torch
        from torch import nn


        class Turned(nn.Module):
            def __init__(self, d):
                super().__init__()
                self.register_buffer("table", torch.linspace(0, 1, d).bfloat16()[None].repeat(d, 1))

            def forward(self, x):
                return x @ self.table


        class Trainer:
            def __init__(self):
                self.context = torch.amp.autocast(device_type="cuda", dtype=torch.bfloat16)
                self.model = Turned(4).cuda()

            def step(self, x):
                with self.context:
                    return self.model(x).float().sum().item()


        torch.manual_seed(0)
        result = Trainer().step(torch.randn(2, 4).cuda())
    """,
    "experts under autocast, and a router without": """
        import torch
        from torch import nn


        class Experts(nn.Module):
            def __init__(self):
                super().__init__()
                self.embed = nn.Embedding(8, 4).to(torch.bfloat16)
                self.router = nn.Linear(4, 2)
                self.experts = nn.ModuleList([nn.Linear(4, 4) for _ in range(2)])

            def forward(self, tokens):
                x = self.embed(tokens)
                with torch.autocast("cuda", enabled=False):
                    weights = self.router(x.float())
                assert weights.dtype == torch.float32
                outs = torch.stack([expert(x) for expert in self.experts], -1)
                return (outs * weights.unsqueeze(-2)).sum()


        torch.manual_seed(0)
        model = Experts().cuda()
        with torch.no_grad(), torch.autocast("cuda", dtype=torch.bfloat16):
            result = model(torch.tensor([1, 2]).cuda()).item()
    """,
    "functions that a partial one starts": """
        import torch
        from functools import partial
        from torch.nn import functional as F

        autocast = partial(torch.autocast, "cuda", dtype=torch.bfloat16)


        def project(x, weight):
            return F.linear(x, weight)


        torch.manual_seed(0)
        with torch.no_grad(), autocast():
            y = project(torch.ones(2, 4).cuda(), torch.randn(3, 4).bfloat16().cuda())
        result = y.float().sum().item()
    """,
}


def rewritten(source: str, **others: str) -> str:
    named = {f"{name}.py": text for name, text in others.items()}
    output = analyze(source, path="train.py", others=named, fix=True, unsafe_fixes=True).output
    return source if output is None else output.decode()


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.filterwarnings("ignore")
def test_a_program_that_fails_without_autocast_runs_with_that_of_the_cpu(name: str) -> None:
    torch = pytest.importorskip("torch")
    source = dedent(PROGRAMS[name])
    without_cuda = source.replace(".cuda()", "").replace('.to("cuda")', "").replace(', device="cuda"', "")
    with pytest.raises(RuntimeError, match=r"dtype|scalar type|same type"):
        exec(without_cuda, {"__name__": "program"})
    expected: dict[str, Any] = {"__name__": "program"}
    on_cpu = without_cuda.replace('torch.autocast("cuda")', 'torch.autocast("cpu", torch.half)')
    exec(on_cpu.replace("cuda.amp.autocast(", "autocast('cpu', ").replace('"cuda"', '"cpu"'), expected)
    found: dict[str, Any] = {"__name__": "program"}
    exec(rewritten(source), found)
    assert found["result"] == expected["result"]
    assert torch.isfinite(torch.tensor(found["result"]))


def safety_of(source: str, unsafe_fixes: bool = False, **others: str) -> list[Safety | None]:
    named = {f"{name}.py": text for name, text in others.items()}
    found = analyze(source, path="train.py", others=named, unsafe_fixes=unsafe_fixes).findings
    return [finding.safety for finding in found if finding.code == "DF407"]


OFF = """\
import torch


class Head(torch.nn.Module):
    def forward(self, x):
        with torch.autocast("cuda", enabled=False):
            return self.last(x.float())
"""
AROUND = (
    "import torch\nfrom train import Head\n\n\ndef run(net, x, device, amp):\n    with {}:\n        net(x)\n"
)


@pytest.mark.parametrize(
    ("around", "is_found"),
    [
        ("torch.autocast(device_type=device, enabled=amp)", True),
        ("torch.autocast(device.type, dtype=torch.bfloat16)", True),
        ("torch.autocast('cpu', dtype=torch.bfloat16)", True),
        ("torch.autocast(device.type, enabled=False)", False),
        ("torch.autocast('cuda')", False),
        ("torch.cuda.amp.autocast()", False),
        ("torch.no_grad()", False),
    ],
)
def test_autocast_that_is_off_names_the_device_of_that_in_another_file(around: str, is_found: bool) -> None:
    main = AROUND.format(around)
    assert safety_of(OFF, main=main) == ([Safety.SAFE] if is_found else [])
    assert safety_of(OFF, main=main.replace("from train", "from other")) == []
    assert ("autocast(device, enabled=False)" in rewritten(OFF, main=main)) is is_found


def test_autocast_that_is_off_changes_with_the_unsafe_fix_of_one_for_cuda_in_another_file() -> None:
    main = AROUND.format("torch.autocast('cuda')")
    low = f"{main}\n\nnet = net.half()\n"
    assert safety_of(OFF, unsafe_fixes=True, main=low) == [Safety.SAFE]
    flagged = low.replace("'cuda')", "'cuda', enabled=amp)")
    assert safety_of(OFF, unsafe_fixes=True, main=flagged) == [Safety.SAFE]
    assert safety_of(OFF, main=low) == safety_of(OFF, unsafe_fixes=True, main=main) == []


@pytest.mark.filterwarnings("ignore")
def test_a_cpu_keeps_its_autocast_where_that_for_cuda_is_off_and_has_none_to_float32() -> None:
    torch = pytest.importorskip("torch")
    net, x = torch.nn.Linear(2, 2), torch.ones(1, 2)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        with torch.autocast("cuda", enabled=False):
            assert net(x).dtype == torch.bfloat16
        with torch.autocast("cpu", enabled=False):
            assert net(x).dtype == torch.float32
    with torch.autocast("cpu", dtype=torch.float32), pytest.raises(RuntimeError, match="dtype"):
        net(x.bfloat16())


PRODUCT = "y = torch.ones(2, 2) @ torch.ones(2, 2).half()\n"
TYPE, HALF = "device.type", "dtype=torch.float16"


@pytest.mark.parametrize(
    ("call", "new"),
    [
        ("torch.autocast('cuda')", f"torch.autocast({TYPE}, {HALF})"),
        ("torch.autocast('cuda', torch.half, True)", f"torch.autocast({TYPE}, torch.half, True)"),
        (
            "torch.amp.autocast(enabled=x, device_type='cuda')",
            f"torch.amp.autocast(enabled=x, device_type={TYPE}, {HALF})",
        ),
        ("torch.cuda.amp.autocast()", f"torch.autocast({TYPE}, {HALF})"),
        ("torch.cuda.amp.autocast(flag)", f"torch.autocast({TYPE}, {HALF}, enabled=flag)"),
        (
            "torch.cuda.amp.autocast(True, torch.half, False)",
            f"torch.autocast({TYPE}, enabled=True, dtype=torch.half, cache_enabled=False)",
        ),
        (
            "torch.cuda.amp.autocast(cache_enabled=False)",
            f"torch.autocast({TYPE}, {HALF}, cache_enabled=False)",
        ),
        ("torch.autocast('cuda', dtype=None)", None),
        ("torch.autocast('cuda', dtype=torch.float32)", None),
        ("torch.autocast(*options, device_type='cuda')", None),
        ("torch.autocast('cuda', **options)", None),
        ("torch.autocast('cuda', enabled=torch.cuda.is_available())", None),
        ("torch.cuda.amp.autocast(flag and device.type == 'cuda')", None),
    ],
)
def test_every_argument_is_kept_and_the_dtype_is_spelled_out(call: str, new: str | None) -> None:
    head = 'import torch\n\ndevice = torch.device("cuda" if torch.cuda.is_available() else "cpu")\n'
    source = f"{head}with {call}:\n    {PRODUCT}"
    assert rewritten(source) == (source if new is None else f"{head}with {new}:\n    {PRODUCT}")


def test_there_is_no_fix_for_a_dtype_that_autocast_for_the_cpu_does_not_have() -> None:
    for dtype, safety in (("torch.float32", None), ("None", None), ("kind", Safety.UNSAFE)):
        source = f"import torch\n\nwith torch.autocast('cuda', dtype={dtype}):\n    {PRODUCT}"
        assert safety_of(source) == [safety]


@pytest.mark.parametrize(("passed", "is_wide"), [("VAE(net)", True), ("VAE(net, torch.bfloat16)", False)])
def test_a_dtype_that_an_attribute_or_a_choice_holds(passed: str, is_wide: bool) -> None:
    source = """
        import torch


        class VAE:
            def __init__(self, net, dtype=torch.float):
                self.net = net.half()
                self.dtype = dtype if net else torch.float32

            def encode(self, x):
                with torch.autocast("cuda", dtype=self.dtype):
                    return self.net(x)
    """
    other = {"b.py": f"import torch\nfrom a import VAE\n\n{passed}\n"}
    (finding,) = analyze(dedent(source), path="a.py", others=other).findings
    assert ("autocast to float32 is off" in finding.message) is is_wide


def test_a_call_with_arguments_by_position_keeps_a_partial_one() -> None:
    source = "import torch\nfrom functools import partial\n\nscope = partial(torch.cuda.amp.autocast)\n"
    source += f"with scope(True):\n    {PRODUCT}"
    assert rewritten(source) == source


DREAM = """\
import torch
from torch import nn


class Dreamer(nn.Module):
    def __init__(self, amp=True):
        super().__init__()
        self.amp = amp
        self.dtype = torch.bfloat16 if self.amp else torch.float32
        self.step = nn.Linear(4, 4)

    @torch.no_grad()
    def dream(self, n):
        buffer = torch.zeros(2, n + 1, 4, dtype=self.dtype, device="cuda")
        for i in range(n):
            with torch.autocast("cuda", dtype=torch.bfloat16, enabled=self.amp):
                buffer[:, i + 1] = self.step(buffer[:, i])
        return buffer


print(Dreamer().cuda().dream(3).dtype)
"""


def test_a_layer_that_fails_without_autocast_makes_the_fix_safe(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("torch")
    result = analyze(DREAM, path="train.py", fix=True)
    exec((result.output or b"").decode(), {"__name__": "program"})
    assert capsys.readouterr().out == "torch.bfloat16\n"


SHOWN, STEP = [Safety.SAFE], "self.step(buffer[:, i])"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("enabled=self.amp", "enabled=True"),  # with another condition, everything may be in float32
        ("self.amp = amp", "self.amp = amp\n        self.amp = not amp"),
        ("nn.Linear(4, 4)", "nn.Linear(4, 4, dtype=torch.bfloat16)"),
        ("nn.Linear(4, 4)", "Step()"),
        (STEP, f"{STEP} if n > 2 else 0"),
        (STEP, "self.step(given)"),
        ("Dreamer().cuda()", "Dreamer().bfloat16().cuda()"),
        ("Dreamer().cuda()", "Dreamer().to(torch.bfloat16).cuda()"),
    ],
)
def test_what_does_not_show_that_autocast_is_needed(old: str, new: str) -> None:
    assert safety_of(DREAM) == safety_of(DREAM.replace("torch.float32", "torch.get_default_dtype()")) == SHOWN
    assert safety_of(DREAM.replace(old, new)) == [Safety.UNSAFE]


def test_another_file_may_convert_the_layer() -> None:
    assert safety_of(DREAM, main="from train import Dreamer\n\nDreamer().half()\n") == [Safety.UNSAFE]
    assert safety_of(DREAM, main="from train import Dreamer\n\nDreamer().float()\n") == SHOWN


CAPABILITY = "import torch\n\nmajor, minor = torch.cuda.get_device_capability()\n"


@pytest.mark.parametrize(
    ("code", "has_bfloat16"),
    [
        ("dtype = torch.bfloat16 if major >= 8 else torch.float16\n", True),
        ("dtype = 'fp16' if major < 8 else 'bf16'\n", True),
        (
            "if major > 7:\n    x = x.to(torch.bfloat16)\nelse:\n    x = x.half()\n",
            False,
        ),  # it may do anything
        ("if major > 7:\n    x = x.to(torch.bfloat16)\nelse:\n    x = x.to(torch.half)\n", True),
        ("_own = major >= 8\nif x.dtype == dtype and not _own:\n    x = x.to(torch.float16)\n", True),
        ("dtype = torch.bfloat16 if major >= 8 else torch.float16\nif major >= 9:\n    import fast\n", False),
        ("dtype = torch.bfloat16 if major >= 8 else torch.float16\nrun(major)\n", False),
        ("if major >= 8:\n    torch.backends.cuda.matmul.allow_tf32 = True\n", False),
        ("attention = 'flash' if major >= 8 else 'math'\n", False),
        ("dtype = torch.float16 if major >= 7 else torch.float32\n", False),
        ("print(major)\n", False),
    ],
)
def test_a_cpu_has_bfloat16_where_a_capability_decides_only_that(code: str, has_bfloat16: bool) -> None:
    result = analyze(CAPABILITY + code, fix=True)
    shown = "(8, 0)" if has_bfloat16 else "(0, 0)"
    assert f"is_available() else {shown}\n" in (result.output or b"").decode()
    assert [each.message.endswith(f", and use {shown} on a CPU") for each in result.fixed] == [True]


def test_a_flag_that_another_file_reads_may_decide_more() -> None:
    flag = f"{CAPABILITY}flag = major >= 8\nif flag:\n    dtype = torch.bfloat16\n"
    assert "(8, 0)" in rewritten(flag)
    assert "(8, 0)" not in rewritten(flag, main="from train import flag\n\nif flag:\n    import flash\n")


def test_a_program_keeps_the_dtype_of_todays_gpus() -> None:
    torch = pytest.importorskip("torch")
    found: dict[str, Any] = {}
    question = "if torch.cuda.get_device_capability()[0] < 8:\n        return torch.float16\n"
    exec(rewritten(f"import torch\n\n\ndef dtype():\n    {question}    return torch.bfloat16\n"), found)
    assert found["dtype"]() == torch.bfloat16


@pytest.mark.parametrize(
    ("code", "safety"),
    [
        ("device = torch.device('cuda')\nwith torch.autocast(device.type):\n    pass\n", Safety.SAFE),
        ("kind = 'cuda'\nscope = torch.autocast(kind, enabled=True)\n", None),  # it names CUDA
        ("device = torch.device('cuda:1')\nscope = torch.autocast(device.type, torch.half)\n", None),
        ("with torch.autocast(torch.device(net.device).type, enabled=True):\n    pass\n", None),
        ("x = x.half()  # cuda\nscope = torch.autocast(torch.device(net.device).type)\n", Safety.UNSAFE),
        ("x = x.half()\nscope = torch.autocast('mps')  # not cuda\n", None),
        ("x = x.half()\nscope = torch.autocast(**options)  # cuda\n", None),
        ("x = x.half()\nscope = torch.autocast(enabled=amp)  # cuda\n", None),
        ("def run(x, kind='cuda'):\n    scope = torch.autocast(kind)\n", None),
        (
            "def own():\n    if torch.cuda.is_available():\n        return torch.device('cuda')\n"
            "    return torch.device('cpu')\n\n\nx = x.half()\nscope = torch.autocast(own().type)\n",
            None,
        ),
        (
            "x = x.half()\ndevice = torch.device('cuda' if torch.cuda.is_available() else 'cpu')\n"
            "scope = torch.autocast(device.type)\n",
            None,
        ),
    ],
)
def test_the_default_dtype_of_autocast(code: str, safety: Safety | None) -> None:
    assert safety_of(f"import torch\n\n{code}") == ([safety] if safety else [])


def test_a_device_that_becomes_the_cpu_keeps_the_dtype_of_autocast() -> None:
    torch = pytest.importorskip("torch")
    found: dict[str, Any] = {}
    line = "y = torch.ones(2, 2, device=device) @ torch.ones(2, 2, device=device)"
    scope = f"with torch.autocast(device.type):\n    {line}\n"
    exec(rewritten(f'import torch\n\ndevice = torch.device("cuda")\n{scope}'), found)
    assert found["y"].dtype == torch.float16
