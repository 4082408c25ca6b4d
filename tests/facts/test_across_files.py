"""Fixes whose meaning depends on another file of the project: all files are rewritten and run on the CPU."""

from __future__ import annotations

import runpy
import sys
from textwrap import dedent

import pytest
from helpers import ProjectFolder, analyze

from devicefix.config.settings import Settings
from devicefix.engine.file import check_file
from devicefix.facts.project import Project, ProjectFile
from devicefix.model import Result, Safety

RANK = """
    import os
    import torch

    rank = int(os.environ.get("LOCAL_RANK", 0))

    def put(x):
        return x.to(rank)
"""
ENGINE = """
    import torch

    class Engine:
        def __init__(self):
            self.side = torch.cuda.Stream()

        def run(self, x):
            with torch.cuda.stream(self.side):
                return x + 1
"""
RUN = {
    "a number that is passed to an object": (
        {
            "enc.py": """
                import torch

                class Enc:
                    def __call__(self, texts, device):
                        return torch.zeros(len(texts)).to(device)

                class Net(torch.nn.Module):
                    def forward(self, x, device):
                        return x.to(device)  # cuda
            """,
            "main.py": """
                import torch
                from enc import Enc, Net

                class Own:
                    def __call__(self, x, device):
                        return x.to(device)

                class Run:
                    def __init__(self):
                        self.net = Net().eval()

                    def work(self, gpu):
                        torch.cuda.set_device(gpu)
                        enc = Enc()
                        x = enc(["a"], gpu) + Enc()(["b"], device=gpu)
                        return Own()(self.net(x, gpu), gpu)

                print(Run().work(0).tolist())
            """,
        },
        "[0.0]",
    ),
    "a number that one caller passes for a device, and a device that another one does": (
        {
            "net.py": """
                import torch

                class Net:
                    def __init__(self, device="cuda"):
                        self.mean = torch.ones(2, device=device)
            """,
            "main.py": """
                import torch
                from net import Net

                class Base:
                    def __init__(self, number=0):
                        self.device = torch.device(f"cuda:{number}")
                        self.net = Net(device=self.device)

                def run(gpu):
                    torch.cuda.set_device(gpu)
                    return Net(device=gpu)

                print(Base().net.mean.tolist(), run(0).mean.tolist())
            """,
        },
        "[1.0, 1.0] [1.0, 1.0]",
    ),
    "a rank that another file imports": (
        {
            "env.py": RANK,
            "main.py": """
                import torch
                from env import put, rank

                print(put(torch.ones(2)).tolist(), [3, 4][rank])
            """,
        },
        "[1.0, 1.0] 3",
    ),
    "a rank that another file reads as an attribute": (
        {
            "env.py": RANK,
            "main.py": """
                import torch
                import env as e

                print(e.put(torch.ones(2)).tolist(), [3, 4][e.rank])
            """,
        },
        "[1.0, 1.0] 3",
    ),
    "a rank by a star import, through a package": (
        {
            "ranks/__init__.py": "from .env import *",
            "ranks/env.py": RANK,
            "main.py": """
                import torch
                from ranks import (
                    put,  # moves
                    rank,
                )

                print(put(torch.ones(2)).tolist(), [3, 4][rank])
            """,
        },
        "[1.0, 1.0] 3",
    ),
    "a rank of the package itself": (
        {
            "ranks/__init__.py": RANK,
            "ranks/pick.py": """
                from . import rank

                def pick(xs):
                    return xs[rank]
            """,
            "main.py": """
                import torch
                from ranks import put
                from ranks.pick import pick

                print(put(torch.ones(2)).tolist(), pick([3, 4]))
            """,
        },
        "[1.0, 1.0] 3",
    ),
    "a function that another file spawns": (
        {
            "work.py": """
                import torch

                def work(q7, n):
                    torch.cuda.set_device(q7)
                    return torch.ones(n).to(q7)
            """,
            "main.py": """
                import torch.multiprocessing as mp
                import work

                if __name__ == "__main__":
                    mp.spawn(work.work, args=(2,), nprocs=2)
                print(work.work(0, 2).tolist())
            """,
        },
        "[1.0, 1.0]",
    ),
    "a rank that reaches a file without a word of CUDA, also by an attribute called device": (
        {
            "ops.py": """
                import torch

                def stack(xs, q9):
                    return torch.stack(xs).to(q9)
            """,
            "model.py": """
                import torch
                from ops import stack

                class Model:
                    def __init__(self, size, device):
                        torch.cuda.synchronize()
                        self.device = device
                        self.size = size

                    def run(self, x):
                        return stack([x] * self.size, q9=self.device)
            """,
            "main.py": """
                import torch
                from model import Model
                from ops import stack

                rank = torch.cuda.current_device()
                if rank == 0:
                    x = Model(1, rank).run(torch.ones(2))
                    print(x.tolist(), stack([torch.ones(1)], rank).tolist())
            """,
        },
        "[[1.0, 1.0]] [[1.0]]",
    ),
    "a rank that goes from file to file, and into an attribute": (
        {
            "engine.py": """
                import torch
                from net import build

                class Engine:
                    def __init__(self, q7):
                        self.own_rank = q7
                        self.net = build(self.own_rank)

                    def run(self):
                        if self.own_rank == 0:
                            x = torch.ones(2, device=self.own_rank)
                            print(self.net(x).tolist(), [3, 4][self.own_rank])
            """,
            "net.py": """
                import torch

                def build(q9):
                    torch.cuda.synchronize()
                    return torch.nn.Identity().to(q9)
            """,
            "work.py": """
                import torch.distributed as dist
                from engine import Engine

                def work(rank):
                    Engine(rank).run()

                def rank_of_group():
                    return dist.get_rank()
            """,
            "main.py": """
                import os
                from work import work

                local_rank = int(os.environ.get("LOCAL_RANK", 0))
                work(local_rank)
            """,
        },
        "[1.0, 1.0] 3",
    ),
    "the number of the current GPU, which another file compares": (
        {
            "work.py": """
                import torch

                def work(q7, n):
                    torch.cuda.synchronize()
                    if q7 == 0:
                        print(torch.ones(n, device=q7).tolist())
            """,
            "main.py": """
                import torch
                import work

                def start():
                    n, rank = 2, torch.cuda.current_device()
                    return n, rank

                n, rank = start()
                work.work(rank, n)
            """,
        },
        "[1.0, 1.0]",
    ),
    "a device that a circular star import does not bring yet": (
        {
            "first.py": """
                import torch
                from second import *

                def g():
                    return h(torch.ones(2)).cuda()

                device = torch.device("cuda")
            """,
            "second.py": """
                import torch
                from first import *

                def h(x):
                    return x.cuda()

                z = h(torch.ones(2))
            """,
            "main.py": """
                import first

                print(first.g().tolist())
            """,
        },
        "[1.0, 1.0]",
    ),
    "a device that `__all__` leaves out": (
        {
            "moves.py": """
                import torch

                __all__ = ["f"]
                device = torch.device("cuda")

                def f(x):
                    return x.to(device)
            """,
            "main.py": """
                import torch
                from moves import *

                def g(x):
                    return x.cuda()

                print(f(g(torch.ones(2))).tolist())
            """,
        },
        "[1.0, 1.0]",
    ),
    "the number of a rank, which a file without a word of CUDA moves to": (
        {
            "step.py": """
                import torch

                def step(batch, where):
                    return batch.to(where)
            """,
            "main.py": """
                import os
                import torch
                from step import step

                def run(batch):
                    device = int(os.environ.get("LOCAL_RANK", 0))
                    return step(batch, where=device)

                print(run(torch.ones(2)).tolist())
            """,
        },
        "[1.0, 1.0]",
    ),
}  # fmt: skip
CONVERT = """
    import torch

    class Converter:
        def convert(self, x, q7=0):
            return x.to(q7)
"""
REPORTED = {
    "a rank, beside what another file passes": {
        "put.py": """
            import torch

            def put(x, rank):
                return x.to(rank)
        """,
        "main.py": """
            import os
            from put import put

            put([], int(os.environ["RANK"]))
            local_rank = int(os.environ["LOCAL_RANK"])
            put([], local_rank)
        """,
        "other.py": """
            import torch
            from put import put

            def other(x, device):
                return put(x.cuda(), device)
        """,
        "third.py": """
            import torch
            from other import other

            device = torch.get_default_device()
            other(torch.ones(2), device)
        """,
    },
    "a parameter that is a dtype in another file": {
        "convert.py": CONVERT,
        "main.py": """
            import torch
            from convert import Converter

            Converter().convert(torch.ones(2), torch.float16)
        """,
    },
    "a keyword that is a dtype in another file": {
        "convert.py": CONVERT,
        "main.py": """
            import torch
            from convert import Converter

            Converter().convert(torch.ones(2), q7=torch.float16)
        """,
    },
    "a parameter that is another accelerator in another file": {
        "convert.py": CONVERT,
        "main.py": """
            from convert import Converter

            Converter().convert(f(1, [2, 3]), "mps")
        """,
    },
    "a device whose number another file takes": {
        "config.py": """
            import torch

            DEVICE = "cuda:1"
            x = torch.ones(2).to(DEVICE)
        """,
        "main.py": """
            from config import DEVICE

            number = int(DEVICE.split(":")[1])
        """,
    },
    "an attribute whose number another file takes": {
        "config.py": """
            import torch

            class Config:
                device = "cuda:1"
        """,
        "main.py": """
            import torch
            from config import Config

            number = int(Config.device[5:])
            x = torch.ones(2).to(Config.device)
        """,
    },
    "a stream that another file reads": {
        "engine.py": ENGINE,
        "main.py": """
            import torch
            from engine import Engine

            engine = Engine()
            engine.side.synchronize()
        """,
    },
    "a stream that a subclass in another file reads": {
        "engine.py": ENGINE,
        "main.py": """
            from engine import Engine

            class Another(Engine):
                def go(self, x):
                    self.side.synchronize()
        """,
    },
    "a stream that another file imports": {
        "engine.py": "import torch\nside = torch.cuda.Stream()",
        "main.py": "from engine import side\nside.synchronize()",
    },
    "a stream that another file gets": {
        "engine.py": """
            import torch
            from base import Engine

            engine = Engine()
            engine.side = torch.cuda.Stream()
        """,
        "base.py": """
            class Engine:
                side = None

                def run(self, x):
                    self.side.synchronize()
        """,
    },
}

DETECTOR = """
    import torch


    class Detector:
        def __init__(self, size, place="cpu"):
            if place == "cpu":
                self.model = None
            else:
                self.model = build(size).to(place)

        def run(self, x):
            if self.model is None:
                raise NotImplementedError("there is no detection on the CPU")
            return self.model(x)


    class Processor:
        def __init__(self, where):
            self.detector = Detector(3, place=where)


    def checked(x, where):
        device = torch.device(where)
        if device.type != "cuda":
            raise ValueError(where)
        return x.to(device)


    def moved(x, where):
        return x.to(where)
"""
REFUSED = {
    "the keyword of a class whose method needs what the CPU has not": "Detector(3, place='cuda')",
    "an argument that another class passes on": "Processor('cuda:1')",
    "an argument of a function": "checked(x, 'cuda')",
    "a variable": "print(where := 'cuda')\nchecked(x, where)",
    "the default of a parameter": "def run(where='cuda'):\n    return Processor(where)",
    "a device": "checked(x, torch.device('cuda'))",
}
MOVES = """
    import torch

    class Net(torch.nn.Module):
        def forward(self, x):
            return move(x)

    def move(x):
        return x.cuda() + 1
"""
SCRIPTED = {
    "a module": {
        "net.py": MOVES,
        "main.py": """
            import torch
            import net

            print(torch.jit.script(net.Net()))
        """,
    },
    "a module in a variable": {
        "net.py": MOVES,
        "main.py": """
            import torch
            from net import Net

            model = Net()
            scripted = torch.jit.script(model)
        """,
    },
    "what a function makes": {
        "net.py": f"{MOVES}\n    def build():\n        return Net()",
        "main.py": """
            import torch
            from net import build

            scripted = torch.jit.script(build())
        """,
    },
    "a function": {
        "net.py": MOVES,
        "main.py": """
            import torch
            from net import move

            move = torch.jit.script(move)
        """,
    },
    "a function of a compiled one": {
        "net.py": MOVES,
        "main.py": """
            import torch
            from net import move

            @torch.jit.script
            def f(x):
                return move(x)
        """,
    },
    "a function of a compiled module of a third file": {
        "package/net.py": MOVES,
        "package/outer.py": """
            import torch
            from . import net

            class Outer(torch.nn.Module):
                def forward(self, x):
                    return net.move(x)
        """,
        "package/main.py": """
            import torch
            from package.outer import Outer

            torch.jit.script(Outer())
        """,
    },
    "a parameter": {
        "net.py": MOVES,
        "export.py": """
            import torch

            def export(model):
                return torch.jit.script(model)
        """,
        "main.py": """
            from export import export
            from net import Net

            export(Net())
        """,
    },
}


def rewritten(files: dict[str, str]) -> tuple[dict[str, str], dict[str, Result]]:
    """Return the files of a project as the safe fixes leave them, and their results."""
    data = {name: dedent(text).strip().encode() + b"\n" for name, text in files.items()}
    project = Project(ProjectFile(content, name) for name, content in data.items())
    results = {
        name: check_file(content, name, Settings(fix=True), project.fresh()) for name, content in data.items()
    }
    return {name: (result.output or data[name]).decode() for name, result in results.items()}, results


@pytest.mark.needs("torch")
@pytest.mark.parametrize(("files", "printed"), RUN.values(), ids=RUN.keys())
def test_they_run_on_a_cpu(
    files: dict[str, str],
    printed: str,
    project: ProjectFolder,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    output, _ = rewritten(files)
    project.write(output)
    monkeypatch.syspath_prepend(project.path)
    names = {name.removesuffix(".py").partition("/")[0] for name in files}
    for name in [each for each in sys.modules if each.partition(".")[0] in names]:
        monkeypatch.delitem(sys.modules, name)
    try:
        runpy.run_path(str(project / "main.py"))
    finally:
        for name in [each for each in sys.modules if each.partition(".")[0] in names]:
            del sys.modules[name]
    assert capsys.readouterr().out.strip() == printed


@pytest.mark.parametrize("files", REPORTED.values(), ids=REPORTED.keys())
def test_they_are_reported(files: dict[str, str]) -> None:
    first, *_ = files
    _, results = rewritten(files)
    assert not results[first].fixed
    assert results[first].remaining


@pytest.mark.parametrize("files", SCRIPTED.values(), ids=SCRIPTED.keys())
def test_what_torchscript_compiles_is_reported(files: dict[str, str]) -> None:
    first, *_ = files
    output, results = rewritten(files)
    assert "x.cuda() + 1" in output[first]
    assert "TorchScript compiles this" in results[first].remaining[0].message


def test_what_torchscript_does_not_compile_is_fixed() -> None:
    main = "import torch\nimport net\nprint(torch.jit.script(net.Net()))"
    output, _ = rewritten(
        {"net.py": f"{MOVES}\n    def other(x):\n        return x.cuda() - 1", "main.py": main}
    )
    assert "x.to(device) - 1" in output["net.py"]


def test_a_stream_of_a_class_of_the_same_attribute_in_another_file_is_fixed() -> None:
    other = "class Other:\n    def go(self):\n        return self.side.synchronize()"
    output, _ = rewritten({"engine.py": ENGINE, "main.py": other})
    assert "torch.cuda.Stream() if torch.cuda.is_available() else None" in output["engine.py"]


def test_an_imported_value_that_is_moved_to_its_own_name() -> None:
    source = "import torch\nfrom models import model\n\nmodel = model.cuda()\n"
    assert [finding.code for finding in analyze(source).findings] == ["DF101"]


@pytest.mark.parametrize("code", REFUSED.values(), ids=REFUSED.keys())
def test_a_device_that_another_file_refuses_to_be_the_cpu_is_unsafe(code: str) -> None:
    imports = "import torch\nfrom detector import Detector, Processor, checked, moved\n"
    _, results = rewritten({"main.py": imports + code, "detector.py": DETECTOR})
    [finding] = results["main.py"].findings
    assert finding.fix is not None and finding.fix.safety is Safety.UNSAFE
    assert "does not allow the CPU" in finding.message


def test_a_device_that_no_other_file_refuses_is_fixed() -> None:
    main = "from detector import moved\nmoved(x, 'cuda')"
    output, _ = rewritten({"main.py": main, "detector.py": DETECTOR})
    assert "is_available()" in output["main.py"]


def test_a_method_of_the_same_name_in_another_file_passes_no_number() -> None:
    own = """
        import torch

        class Grid:
            def ids(self, count, number):
                return torch.zeros(count) + number

            def run(self, rank):
                local_rank = int(rank)
                return self.ids(1, local_rank)
    """
    other = """
        import torch

        class Image:
            def ids(self, image, device):
                torch.cuda.empty_cache()
                return image.to(device)
    """
    _, results = rewritten({"grid.py": own, "image.py": other})
    assert not any(result.findings for result in results.values())


def test_another_name_of_a_class_is_no_object_of_it() -> None:
    files = {
        "net.py": """
            import torch

            class Net(torch.nn.Module):
                def forward(self, x):
                    return self.scale.to(x)  # cuda
        """,
        "main.py": """
            from net import Net

            Other = Net
            net = Other(len("cuda"), 2)
            net(x)
        """,
    }
    assert not any(each.fixed or each.remaining for each in rewritten(files)[1].values())


def test_a_number_that_becomes_the_cpu_where_another_file_binds_it_needs_no_other_fix() -> None:
    files = {
        "net.py": """
            import torch

            def sample(device=None):
                if device is None:
                    device = next(model.parameters()).device
                return torch.zeros(2, device=device)
        """,
        "one.py": """
            import torch
            from net import sample

            device = "cuda" if torch.cuda.is_available() else "cpu"
            sample(device=device)
        """,
        "many.py": """
            import torch
            from net import sample

            device = rank % torch.cuda.device_count()
            torch.cuda.set_device(device)
            sample(device=device)
        """,
    }
    output, results = rewritten(files)
    assert not results["net.py"].fixed + results["net.py"].remaining
    assert (
        'device = rank % torch.cuda.device_count() if torch.cuda.is_available() else "cpu"'
        in output["many.py"]
    )


def test_a_value_that_is_imported_or_returned_is_a_number_in_a_file_without_a_word_of_cuda() -> None:
    config = "WHERE = 0\n\ndef pick(): return int('1')"
    moved = "import torch\nfrom config import {0}\n\ndef move(x): return x.to({1})"
    files = {"a.py": moved.format("WHERE", "WHERE"), "b.py": moved.format("pick", "pick()")}
    _, results = rewritten({"config.py": config, **files})
    assert [len(results[name].findings) for name in files] == [1, 1]


def test_a_number_is_passed_by_a_file_without_a_word_of_cuda() -> None:
    move = "import torch\n\ndef move(x, device): return x.to(device)\n"
    _, results = rewritten({"move.py": move, "main.py": "from move import move\nmove(x, 0)\n"})
    assert [finding.code for finding in results["move.py"].findings] == ["DF102"]


def test_a_backend_in_an_object_of_parameters_is_fixed() -> None:
    head = "import torch\nfrom library import HParams\n\n"
    make = f"{head}def make():\n    return HParams(dist_backend='nccl')\n"
    head = "import torch.distributed as dist\n\n"
    start = f"{head}def start(options):\n    dist.init_process_group(options.dist_backend)\n"
    output, _ = rewritten({"make.py": make, "main.py": start})
    assert "dist_backend='nccl' if torch.cuda.is_available() else 'gloo'" in output["make.py"]


@pytest.mark.parametrize(("package", "found"), [(True, ["DF902"]), (False, [])])
def test_a_library_is_not_a_file_of_the_same_name_in_a_package(package: bool, found: list[str]) -> None:
    files = {"net/main.py": "import triton\n", "net/triton.py": "x = 1\n"}
    _, results = rewritten({**files, "net/__init__.py": "import torch\n"} if package else files)
    assert [finding.code for finding in results["net/main.py"].findings] == found


@pytest.mark.parametrize(
    ("file", "use"),
    [
        ("def f(): return 0, 1", "q7, q8 = f()\nx.to(q8)"),
        ("K = namedtuple('K', 'n d')\ndef f(): return K(2, 0)", "x.to(f().d)"),
        ("K = namedtuple('K', 'n d')\ndef f(): return K(2, 'cuda')", "x.to(f().d)"),
        ("def f(): return {'n': 2, 'd': 'cuda'}", "torch.zeros(2, device=f()['d'])"),
        ("def f():\n    for q7 in (0,): yield q7", "for q8 in f(): x.to(q8)"),
        ("q7 = None\ndef f():\n    global q7\n    q7 = 1", "x.to(a.q7)"),
        ("def f(g): return g('cuda')", "f(lambda q7: x.to(q7))"),
    ],
)
def test_a_device_that_comes_out_of_another_file(file: str, use: str) -> None:
    main = f"import torch\nimport a\nfrom a import f\n\nx = torch.zeros(2)\n{use}\n"
    _, results = rewritten(
        {"a.py": f"import torch\nfrom collections import namedtuple\n{file}\n", "main.py": main}
    )
    assert sum(len(result.findings) for result in results.values()) == 1


@pytest.mark.parametrize(
    ("use", "safe"),
    [
        ("print(len({a, b}))", False),
        ("print({a: 1, b: 2})", False),
        ("print(a == b)", False),
        ("print({a: 1}, a == c)", True),
        ("print(torch.zeros(2).to(a))", True),
    ],
)
def test_devices_that_another_file_tells_apart(use: str, safe: bool) -> None:
    devices = "import torch\na, b = torch.device('cuda:0'), torch.device('cuda:1')\n"
    _, results = rewritten(
        {"devices.py": devices, "main.py": f"import torch\nfrom devices import a, b\n{use}\n"}
    )
    assert [found.safety is Safety.SAFE for found in results["devices.py"].findings] == [safe, safe]


@pytest.mark.parametrize(
    ("method", "use", "safe"),
    [
        ("self.x = self.x.cuda()", "return q7.cuda()", False),
        ("self.x = self.x.cuda(); return self", "return q7.cuda()", True),
        ("raise NotImplementedError", "return q7.cuda()", True),
        ("self.x = self.x.cuda()", "q7 = q7.cuda()", True),
        ("self.x = self.x.cuda()", "q7.cuda()", True),
        ("self.x = self.x.cuda()", "return q7.cuda().x", True),
        ("self.x = self.x.cuda()", "return torch.nn.DataParallel(q7.cuda())", True),
        ("self.x = self.x.cuda()", "return g(q7.cuda())", False),
    ],
)
def test_a_cuda_that_returns_nothing_where_its_result_is_used(method: str, use: str, safe: bool) -> None:
    batch = f"import torch\n\nclass Batch:\n    def cuda(self): {method}\n"
    _, results = rewritten(
        {"batch.py": batch, "main.py": f"import torch\nfrom batch import g\n\ndef f(q7):\n    {use}\n"}
    )
    assert [found.safety is Safety.SAFE for found in results["main.py"].findings] == [safe]


def test_models_that_other_files_define_and_settings_that_they_read_are_of_the_library() -> None:
    output, _ = rewritten(
        {
            "net.py": "import torch\nfrom transformers import LlamaModel\n\nclass Base(LlamaModel): pass\n",
            "model.py": "import torch\nfrom net import Base\n\nclass Net(Base):\n    pass\n",
            "options.py": "import torch\n\nclass Options:\n    attention: str = 'flash_attention_2'\n",
            "main.py": """
                import torch
                from model import Net
                from options import Options
                from transformers import AutoModel

                a = Net.from_pretrained("a", attn_implementation="flash_attention_2", device_map={"": 1})
                b = AutoModel.from_pretrained("b", attn_implementation=Options().attention)
                c = other.from_pretrained("c", attn_implementation="flash_attention_2", device_map={"": 1})
            """,
        }
    )
    assert (
        "attention: str = 'flash_attention_2' if torch.cuda.is_available() else 'sdpa'"
        in output["options.py"]
    )
    assert output["main.py"].count('"sdpa"') == output["main.py"].count("1 if torch.cuda.is_available()") == 1
    assert (
        'c = other.from_pretrained("c", attn_implementation="flash_attention_2", device_map={"": 1})'
        in output["main.py"]
    )


@pytest.mark.parametrize(
    ("main", "found"),
    [
        ("import pkg.tools\npkg.tools.move(x)", 1),
        ("from .pkg import tools as t\nt.move(x)", 1),
        ("import pkg.tools\nother.move(x)", 0),
    ],
)
def test_a_function_that_is_guarded_here_may_be_called_in_another_file(main: str, found: int) -> None:
    tools = """
        import torch

        def move(x):
            return x.cuda()

        if torch.cuda.is_available():
            move(y)
    """
    _, results = rewritten({"pkg/tools.py": tools, "main.py": main})
    assert len(results["pkg/tools.py"].fixed) == found
