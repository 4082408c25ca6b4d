"""Code that no fix is needed for: it never runs without CUDA, or does the same there."""

from __future__ import annotations

from textwrap import dedent

import pytest
from helpers import analyze

# Programs by name; a comment `# DF101` names the finding of a line, if it has one.
PROGRAMS = {
    "the current GPU as the device of a sharded model, which is one finding": """
        import torch
        from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

        net = FSDP(net, device_id=torch.cuda.current_device())  # DF415
    """,
    "the current GPU, which calls pass on to functions": """
        import torch


        def sample(place, x, y):
            y = torch.tensor(y).to(place)
            return x + y + torch.zeros(2, device=place)


        def step(place, x):
            z = sample(place, x, 1)
            place = z.device
            return z.to(place)


        def main(net):
            place = torch.cuda.current_device()  # DF401
            net = net.to(place)
            step(place, torch.ones(2, device=place))
    """,
    "the current GPU, or another number, which calls pass on": """
        import torch


        def step(place, x):
            return torch.tensor(x).to(place)  # DF102


        def main(net, rank):
            place = torch.cuda.current_device()  # DF401
            net = net.to(place)
            return step(place, 1), step(rank, 1)
    """,
    "names of devices that are only read with CUDA": """
        import torch

        name = f"cuda:{gpu}" if gpu else "cuda"
        if torch.cuda.is_available():
            net.to(name)


        def pick(on, number):
            one = f"cuda:{number}" if on else "cuda"
            other = "cuda:1" if on else "cpu"  # DF204
            device = torch.device(one) if torch.cuda.is_available() else torch.device("cpu")
            return device, torch.ones(2, device=other)
    """,
    "a scaler of gradients, which is off without CUDA": """
        import torch

        scaler = torch.GradScaler("cuda", enabled=True)
    """,
    "a function of a library that is called as a method": """
        import torch
        import torch.distributed as dist


        class Strategy:
            def all_reduce(self, data):
                data = data.to(torch.cuda.current_device())  # DF102
                data /= 2
                dist.all_reduce(data)
                return data.cpu()
    """,
    "a list of all GPUs, which may be empty": """
        import torch

        gpus = [torch.device("cuda:%d" % i) for i in range(torch.cuda.device_count())]
        if len(gpus) > 1:
            spread(model)
    """,
    "the current GPU in an attribute that is only a device": """
        import torch


        class Trainer:
            def __init__(self, net):
                self.place = torch.cuda.current_device()  # DF401
                self.net = net.to(self.place)


        class Tester(Trainer):
            def step(self, x):
                return self.net(x.to(device=self.place)), torch.zeros(2, device=self.place)


        class Other:
            def __init__(self, rank):
                self.place = int(rank)

            def step(self, x):
                return x.to(self.place)  # DF102
    """,
    "the current GPU, or another number, in an attribute": """
        import torch


        class Trainer:
            def __init__(self, net):
                self.place = torch.cuda.current_device()  # DF401
                self.net = net.to(self.place)  # DF102

            def use(self, rank):
                self.place = int(rank)
    """,
    "a list of all GPUs of which one is used": """
        import torch

        gpus = [torch.device("cuda:%d" % i) for i in range(torch.cuda.device_count())]  # DF201 DF402
        model.to(gpus[0])
    """,
    "a loop over all GPUs": """
        import torch

        count = torch.cuda.device_count()
        for i in range(count):
            x = torch.ones(2, device="cuda").cuda(i)
        else:
            x = x.cuda()  # DF101
    """,
    "a loop over all GPUs that starts processes": """
        import subprocess
        import torch

        count = torch.cuda.device_count()
        for i in range(count):  # DF402
            print(torch.cuda.get_device_name(i))  # DF401
            subprocess.Popen(["worker", str(i)])
    """,
    "a loop over all GPUs that some statement needs": """
        import torch


        def first(x):
            for i in range(torch.cuda.device_count()):  # DF402
                return x.cuda(i)  # DF101
            raise RuntimeError("no GPU")
    """,
    "a loop over a number that may be another one": """
        import torch

        count = 4 if args.all else torch.cuda.device_count()
        for i in range(count):
            x.cuda(i)  # DF101
    """,
    "conditions of a comprehension over all GPUs": """
        import torch

        found = {i: x.cuda(i) for i in range(torch.cuda.device_count()) if x.cuda(i) > 0}
        other = [x.cuda() for x in xs for i in range(torch.cuda.device_count())]
        outer = [i for x in [y.cuda()] for i in range(torch.cuda.device_count())]  # DF101
    """,
    "a list of figures that is read in the loop that fills it": """
        import torch


        def memory():
            used, each = 0, []
            for i in range(torch.cuda.device_count()):
                free, total = torch.cuda.mem_get_info(i)
                each.append(total - free)
                used += each[-1]
            return used, each
    """,
    "a list of figures that is read in another loop over all GPUs": """
        import torch

        names = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
        for i in range(torch.cuda.device_count()):
            print(names[i], torch.cuda.mem_get_info(i))
    """,
    "a list of figures that is read in another loop over all GPUs, and after it": """
        import torch

        sizes = [torch.cuda.mem_get_info(i)[0] for i in range(torch.cuda.device_count())]  # DF401 DF402
        for i in range(torch.cuda.device_count()):
            print(sizes[i])
        print(min(sizes))
    """,
    "a loaded tensor that becomes an array": """
        import torch

        a = torch.load("a.pt").float().numpy()  # DF501
        b = torch.load("b.pt").cpu().numpy()  # DF501
        c = torch.load("c.pt")["c"].numpy()  # DF501
        d = torch.load("d.pt", map_location="cuda").numpy()  # DF501
    """,
    "a flag that is set where the function has returned without CUDA": """
        import os
        import torch

        initialized = False


        def initialize():
            if not torch.cuda.is_available():
                print("no CUDA")
                return
            elif "RANK" not in os.environ:
                return
            global initialized
            initialized = True


        def reduce(x):
            return x.cuda() if initialized else x


        def gather(x):
            if initialized:
                x = x.cuda()
            else:
                x = x.cuda()  # DF101
            return x
    """,
    "a flag that is also set without CUDA": """
        import torch

        initialized = False


        def initialize():
            global initialized
            if torch.cuda.is_available():
                initialized = True
            initialized = True


        def reduce(x):
            return x.cuda() if initialized else x  # DF101
    """,
    "a flag that another function sets": """
        import torch

        initialized = False


        def initialize():
            global initialized
            if torch.cuda.is_available():
                initialized = True


        def force():
            global initialized
            initialized = True


        def reduce(x):
            return x.cuda() if initialized else x  # DF101
    """,
    "a flag of an object that is set with CUDA": """
        import torch


        class Mesh:
            ready = False

            def __init__(self):
                self.fast = False

            def start(self):
                if not torch.cuda.is_available():
                    return
                self.ready = self.fast = True

            def reduce(self, x, y):
                return (x.cuda() if self.ready else x), (y.cuda() if self.fast else y)
    """,
    "what a program asks for in the environment": """
        import os
        import torch

        os.environ["RUN"] = "cuda"  # DF203
        os.environ.setdefault("MODE", "cuda")  # DF203
        if os.environ["RUN"] == "cuda":
            x = torch.ones(1, device="cuda")  # DF202
        if os.environ["MODE"] == "cuda":
            x = torch.ones(1, device="cuda")  # DF202
        if os.getenv("KERNELS", "cuda") == "cuda":  # DF203
            x = x.cuda()  # DF101
        if os.getenv("KERNELS", default) == "cuda":
            x = x.cuda()  # DF101
    """,
    "a library that the user asks for by the name of what it holds": """
        import torch

        try:
            from apex.optimizers import FusedAdam
        except ImportError:
            FusedAdam = None


        def make(name, parameters):
            if name == "fused_adam":
                return FusedAdam(parameters)
            return torch.optim.SGD(parameters)
    """,
    "a library that the default asks for": """
        import torch

        try:
            from apex.optimizers import FusedAdam
        except ImportError:
            FusedAdam = None


        def make(parameters, name="fused_adam"):
            if name == "fused_adam":
                return FusedAdam(parameters)  # DF902
            return torch.optim.SGD(parameters)
    """,
    "checks in a function that is only called for CUDA tensors": """
        import torch


        def fast(x):
            assert x.is_cuda
            if not x.is_cuda:
                raise ValueError("no CUDA")
            return x * 2


        def slow(x):
            assert x.is_cuda  # DF704
            return x * 2


        def run(x):
            return fast(x) if x.is_cuda else slow(x)
    """,
    "a function that is only called with CUDA, by others": """
        import torch

        def inner():
            torch.cuda.synchronize()

        def outer():
            inner()

        def again(n):
            torch.cuda.synchronize()  # DF401
            again(n - 1)

        @register
        def registered():
            torch.cuda.synchronize()  # DF401

        if torch.cuda.is_available():
            outer()
            again(1)
            registered()
    """,
    "a module whose tests are skipped": """
        import pytest
        import torch

        available = torch.cuda.is_available()
        pytestmark = [pytest.mark.slow, pytest.mark.skipif(not available, reason="needs CUDA")]
        KIND = "cuda"
        OTHER = torch.device("cuda")
        BOTH = "cuda"  # DF203
        START = torch.ones(3).cuda()  # DF101

        def build(seed):
            return torch.ones(1, device=KIND), torch.ones(seed, device=OTHER), torch.ones(2, device=BOTH)

        def test_build():
            START.add_(build(3)[0].cuda())

        class TestBuild:
            def test_more(self):
                build(3)[0].cuda()

        print(BOTH)
        print(torch.ones(3).cuda())  # DF101
    """,
    "devices that nothing uses": """
        import torch

        KEPT = torch.device("cuda")  # DF201


        def make(n, q7=torch.device("cuda"), r8="cuda"):
            where = torch.device("cuda")
            return torch.ones(n)


        def named(n):
            where = torch.device("cuda")  # DF201
            print(where)


        def inner(n):
            where = torch.device("cuda")  # DF201

            def fill(n):
                return torch.ones(n, device=where)

            return fill
    """,
    "devices that only functions of torch.cuda take": """
        import torch


        def start(rank, place="cuda:0"):
            device = torch.device("cuda", rank)
            torch.cuda.set_device(device)  # DF401
            torch.cuda.set_device(place)  # DF401
            print(torch.cuda.memory_allocated(device))


        def start_all(rank, place="cuda:0"):  # DF203
            torch.cuda.set_device(place)  # DF401
            build(place)
    """,
    "a parameter that becomes a flag": """
        import torch

        def timed(function, flag=True):
            flag = flag and torch.cuda.is_available()
            if flag:
                start = torch.cuda.Event(enable_timing=True)
                start.record()
            result = function()
            if flag:
                torch.cuda.synchronize()
            return result

        def sometimes(x, flag=True):
            if x is not None:
                flag = flag and torch.cuda.is_available()
            if flag:
                x = x.cuda()  # DF101
            return x

        def later(xs, flag=True):
            for x in xs:
                if flag:
                    x.cuda()  # DF101
                flag = flag and torch.cuda.is_available()
    """,
    "a default that is only read with CUDA": """
        import torch
        import torch.distributed as dist

        def initialize(fork=False, backend="nccl", kind="cuda", start=torch.ones(1).cuda()):  # DF101
            if not torch.cuda.is_available():
                return
            dist.init_process_group(backend=backend)
            start.to(kind)

        def always(kind="cuda"):  # DF203
            x = torch.ones(1, device=kind)
            if torch.cuda.is_available():
                x.to(kind)
    """,
    "a class whose tests are skipped": """
        import pytest
        import torch

        class TestFast:
            pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")

            def test_it(self):
                torch.ones(3).cuda()

            def helper(self):
                return torch.ones(3).cuda()  # DF101

        class TestSlow:
            pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="is for the CPU")

            def test_it(self):
                torch.ones(3).cuda()  # DF101
    """,
}


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
def test_findings(program: str) -> None:
    source = dedent(program).lstrip("\n")
    expected = {
        number: set(comment.split())
        for number, line in enumerate(source.splitlines(), 1)
        if (comment := line.partition("  # ")[2])
    }
    found: dict[int, set[str]] = {}
    for finding in analyze(source).findings:
        found.setdefault(finding.line, set()).add(finding.code)
    assert found == expected


def test_a_check_in_a_function_that_another_file_calls() -> None:
    source = dedent(PROGRAMS["checks in a function that is only called for CUDA tensors"])
    other = "from module import fast\n\nfast(x)\n"
    assert len(analyze(source, others={"other.py": other}).findings) == 2


def test_a_function_that_another_file_calls_without_a_guard() -> None:
    source = dedent(PROGRAMS["a function that is only called with CUDA, by others"])
    other = "from module import inner\n\ninner()\n"
    assert len(analyze(source, others={"other.py": other}).findings) == 3


def test_the_current_gpu_that_calls_pass_on_is_not_all_that_another_file_may_pass() -> None:
    source = dedent(PROGRAMS["the current GPU, which calls pass on to functions"])
    found = analyze(source, path="a.py", others={"b.py": "from a import step\n\nstep(0, 1)\n"}).findings
    assert [(finding.code, finding.line) for finding in found] == [("DF102", 6), ("DF202", 7), ("DF401", 17)]


def test_fixes_that_ask_a_replaced_function_are_unsafe() -> None:
    source = """
        import torch
        from unittest import mock

        @mock.patch("torch.cuda.is_available", return_value=True)
        def test_patched(available):
            start(backend="nccl")
            torch.distributed.init_process_group("nccl")

        def test_within():
            with mock.patch.object(torch.cuda, "is_available"):
                torch.distributed.init_process_group("nccl")

        def test_plain():
            torch.distributed.init_process_group("nccl")
    """
    result = analyze(dedent(source), fix=True)
    assert [finding.line for finding in result.fixed] == [15]
    assert {finding.line for finding in result.findings} >= {8, 12}


def test_an_option_of_another_file_is_no_attribute_of_tensors() -> None:
    source = dedent("""
        import torch


        def noise(x, y):
            return y.to(x.device) + torch.randn(3, device=x.device)
    """)
    option = dedent("""
        import argparse
        import torch


        def main(options):
            torch.cuda.empty_cache()
            model.to(options.device)


        parser = argparse.ArgumentParser()
        parser.add_argument("--device", type=int, default=0)
        main(parser.parse_args())
    """)
    assert analyze(source, others={"other.py": option}).findings == []
    assert [finding.code for finding in analyze(option).findings] == ["DF102"]


def test_a_device_of_unknown_objects_is_none_of_the_numbers_of_a_class() -> None:
    source = dedent("""
        import torch


        class Runner:
            def __init__(self, model, device=0):
                self.model = model
                self.device = device

            def run(self):
                self.model.to(self.device)


        def embed(weight, ids):
            return weight.to(ids.device) + torch.arange(3, device=weight.device)


        def setup():
            return 0, torch.device("cuda" if torch.cuda.is_available() else "cpu")


        def main(model):
            rank, device = setup()
            model.to(device)
            Runner(model, rank).run()
    """)
    findings = analyze(source).findings
    assert [(finding.code, finding.line) for finding in findings] == [("DF102", 11)]


def test_a_loop_binds_its_variable_again_for_its_own_body() -> None:
    source = dedent("""
        import torch


        def spread(model, count):
            devices = []
            for i in range(count):
                devices.append(model.layers[i].weight.device)
            current = devices[0]
            for number, i in enumerate(devices):
                if current != i:
                    torch.zeros(number, device=current)
                    current = i
            return torch.zeros(count, device=current)


        def ranks():
            for i in [torch.device("cpu")]:
                pass
            for i in range(torch.cuda.device_count()):
                yield torch.zeros(2, device=i)
            for i in [0, 1]:
                yield torch.zeros(2, device=i)
    """)
    assert [(finding.code, finding.line) for finding in analyze(source).findings] == [("DF202", 23)]


def test_no_version_is_made_up_in_a_script_that_builds() -> None:
    source = "import torch\nfrom packaging.version import parse\n\nversion = parse(torch.version.cuda)\n"
    (left,) = analyze(source, path="setup.py").findings
    assert (left.code, left.fix) == ("DF403", None)
    assert left.message.endswith(
        "is None in a build without CUDA; choose what `setup.py` builds in that case"
    )
    assert analyze(source, path="utils.py").findings[0].fix is not None
