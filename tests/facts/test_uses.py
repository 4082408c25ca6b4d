"""Values that are None, 0, "cpu" or {} without CUDA: their uses follow, or the code is reported.

Each program is rewritten and run with torch, on the CPU.
"""

from __future__ import annotations

import contextlib
import io
import warnings
from textwrap import dedent

import pytest

from devicefix.config.settings import Settings
from devicefix.engine.file import check_file
from devicefix.facts.project import Project, ProjectFile
from devicefix.model import Result, Safety

RUN = {
    "a current stream that is recorded": (
        """
        x = torch.ones(2)
        s = torch.cuda.current_stream()
        x.record_stream(s)
        print(x.tolist())
        """,
        "[1.0, 1.0]",
    ),
    "events with the name of a loop variable elsewhere": (
        """
        def measure():
            start = torch.cuda.Event(enable_timing=True)
            end = torch.cuda.Event(enable_timing=True)
            start.record()
            end.record()
            torch.cuda.synchronize()
            return start.elapsed_time(end) / 1000


        def every_other(xs):
            for start in range(0, len(xs), 2):
                yield xs[start]


        print(measure(), list(every_other("abcd")))
        """,
        "nan ['a', 'c']",
    ),
    "a time where float is no builtin": (
        """
        from torch import *

        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        end.record()
        print(start.elapsed_time(end))
        """,
        "nan",
    ),
    "a list of figures that is sorted, and whose last one changes": (
        """
        names = []
        for i in range(torch.cuda.device_count()):
            name = torch.cuda.get_device_name(i)
            if name not in names:
                names.append(name)
        names = sorted(names)
        names[-1] += "+PTX"
        print(names)
        """,
        "['cpu+PTX']",
    ),
    "a stream that waits, is entered, asked and kept": (
        """
        class Prefetcher:
            def __init__(self):
                self.stream = torch.cuda.Stream()

            def run(self, x):
                self.stream.wait_stream(torch.cuda.current_stream())
                with torch.cuda.stream(self.stream):
                    x = x + 1
                done = self.stream.record_event()
                while not done.query():
                    pass
                torch.cuda.current_stream().wait_event(done)
                before = torch.cuda.current_stream()
                torch.cuda.set_stream(self.stream)
                torch.cuda.set_stream(before)
                return x, [self.stream.synchronize() for _ in range(2)]


        print(Prefetcher().run(1))
        """,
        "(2, [None, None])",
    ),
    "counts": (
        """
        n = torch.cuda.device_count()
        batch = 8 * n
        batch //= n
        print(len(torch.ones(4).chunk(n)), batch, 3 % n, torch.zeros(n, 2).tolist(), [5, 6][n - 1])
        """,
        "1 8 0 [[0.0, 0.0]] 5",
    ),
    "the first of all devices": (
        """
        print([torch.device("cuda", i) for i in range(torch.cuda.device_count())][0])
        """,
        "cpu",
    ),
    "a number of processes and a world size": (
        """
        def spawn(work, nprocs, args):
            for rank in range(nprocs):
                work(rank, *args)


        def work(rank, world_size):
            print(rank, world_size)


        def main():
            q7 = torch.cuda.device_count()
            if q7 == 0:
                print("no GPU")
            spawn(work, nprocs=q7, args=(q7,))


        main()
        """,
        "no GPU\n0 1",
    ),
    "replicas": (
        """
        from torch.utils.data import DataLoader, DistributedSampler

        sampler = DistributedSampler([1, 2, 3], num_replicas=torch.cuda.device_count(), rank=0, shuffle=False)
        loader = DataLoader([1], num_workers=torch.cuda.device_count(), persistent_workers=True)
        print(list(sampler), loader.num_workers)
        """,
        "[0, 1, 2] 1",
    ),
    "a process group": (
        """
        import os
        import torch.distributed as dist

        kind = "gloo" if os.name == "nt" else "nccl"
        device = torch.device("cuda", 0)
        dist.init_process_group(kind, store=dist.HashStore(), rank=0, world_size=1, device_id=device)
        print(dist.get_backend())
        dist.destroy_process_group()
        """,
        "gloo",
    ),
    "the backends of two types of device": (
        """
        import torch.distributed as dist

        dist.init_process_group("cpu:gloo,cuda:nccl", store=dist.HashStore(), rank=0, world_size=1)
        print(dist.get_world_size())
        dist.destroy_process_group()
        """,
        "1",
    ),
    "the scale of a scaler, in a class around it": (
        """
        class Scaler:
            def __init__(self):
                self._scaler = torch.cuda.amp.GradScaler()

            def state_dict(self):
                return self._scaler.state_dict()


        loss_scaler = Scaler()
        print(loss_scaler.state_dict()["scale"])
        """,
        "1.0",
    ),
    "a device with an index put behind it": (
        """
        device = "cuda"
        print(torch.ones(1, device=f"{device}:0").to(device + ":1").tolist())
        """,
        "[1.0]",
    ),
}

# Without a safe fix, each with the rule that reports it.
REPORTED = {
    "half of a pair": (
        """
        start, end = torch.cuda.Event(True), torch.cuda.Event(True)
        events = {"start": start}
        end.record()
        print(start.elapsed_time(end))
        """,
        "DF404",
    ),
    "a number out of a string": ('device = "cuda:1"\nn = int(device.split(":")[1])\n', "DF203"),
    "an end of a string": ('device = "cuda:1"\nn = int(device[5:])\n', "DF203"),
    "a unit of a string": ('device = "cuda:1"\nn = device.replace("cuda:", "")\n', "DF203"),
    "the last part of a string": ('device = "cuda:1"\nn = device.split(":")[-1]\n', "DF203"),
    "two parts of a string": ('device = "cuda:1"\nkind, n = device.split(":")\n', "DF203"),
    "a pattern": ('import re\ndevice = "cuda:1"\nn = re.match("cuda:(.)", device)[1]\n', "DF203"),
    "the last character, for the environment": (
        'import os\ndevice = "cuda:1"\nos.environ["CUDA_VISIBLE_DEVICES"] = device[-1]\n',
        "DF203",
    ),
    "a number out of a default": (
        """
        def number(device="cuda:1"):
            return device[5:]
        """,
        "DF203",
    ),
    "a number out of an option": (
        """
        import argparse

        parser = argparse.ArgumentParser()
        parser.add_argument("--device", default="cuda:0")
        n = int(parser.parse_args().device.split(":")[1])
        """,
        "DF203",
    ),
    "the last character of a device's name": (
        """
        device = torch.device("cuda:0")
        n = int(str(device)[-1])
        m = int(f"{device}"[5:])
        """,
        "DF201",
    ),
    "a number out of a device in a loop": (
        """
        for device in [torch.device("cuda:0")]:
            n = device.index + 1
        """,
        "DF201",
    ),
    "a number out of a device that a pattern captures": (
        """
        match torch.device("cuda:0"):
            case device:
                n = device.index + 1
        """,
        "DF201",
    ),
    "the state of a scaler that a pattern captures": (
        """
        match torch.cuda.amp.GradScaler():
            case q7:
                print(q7.state_dict()["growth_factor"])
        """,
        "DF410",
    ),
    "the type of an accelerator in a loop": (
        """
        for i, device in enumerate([torch.accelerator.current_accelerator()]):
            print(i, device.type)
        """,
        "DF413",
    ),
    "a number out of an attribute": (
        """
        class Net:
            def __init__(self):
                self.device = torch.device("cuda:1")

            def next(self):
                return self.device.index + 1
        """,
        "DF201",
    ),
    "a number that a user may have set": (
        """
        n = args.n or torch.cuda.device_count()
        if n > 0:
            pass
        share = 8 * n
        """,
        "DF402",
    ),
}


@pytest.mark.needs("torch")
@pytest.mark.parametrize(("code", "printed"), RUN.values(), ids=RUN)
def test_rewritten_program_runs(code: str, printed: str) -> None:
    result = _rewritten(code)
    assert result.output is not None
    output = io.StringIO()
    with warnings.catch_warnings(), contextlib.redirect_stdout(output):
        warnings.simplefilter("ignore")
        exec(compile(result.output, "program.py", "exec"), {"__name__": "program"})
    assert output.getvalue().strip() == printed, result.output.decode()


@pytest.mark.parametrize(("code", "rule"), REPORTED.values(), ids=REPORTED)
def test_unfixed_use_is_reported(code: str, rule: str) -> None:
    result = _rewritten(code)
    found = [finding for finding in result.findings if finding.code == rule]
    assert found
    assert not any(finding.fix is not None and finding.fix.safety is Safety.SAFE for finding in found)
    assert result.output is None


def test_key_nccl_of_a_dictionary_is_left() -> None:
    result = _rewritten('cuda = {"nccl": 1}\nport = cuda["nccl"]\n')
    assert not result.findings
    assert result.output is None


def _rewritten(code: str) -> Result:
    data = f"import torch\n\n{dedent(code).strip()}\n".encode()
    return check_file(data, "module.py", Settings(fix=True), Project([ProjectFile(data, "module.py")]))
