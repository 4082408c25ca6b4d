"""Programs whose verdict is known: `devicefix verify` finds it, with the cause."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent
from typing import NamedTuple

import pytest
from running import ProgramFolder

pytestmark = [pytest.mark.slow, pytest.mark.needs("numpy", "torch")]

COMPARED = ("--compare",)
UNSAFE = ("--compare", "--unsafe-fixes")


class Known(NamedTuple):
    """A program, the arguments of verify, and the cause of its verdict, empty for a pass.

    There may be other files, arguments of the program, and a part of the advice.
    """

    code: str
    arguments: tuple[str, ...] = ()
    cause: str = ""
    files: dict[str, str] = {}  # noqa: RUF012 (never changed)
    options: tuple[str, ...] = ()
    advice: str = ""


KNOWN = {
    "equal numbers": Known("x = torch.ones(3).cuda()\nprint((x * 2).sum().item())", COMPARED),
    "a training loop": Known(
        """
        model = torch.nn.Linear(3, 1).cuda()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(3):
            loss = model(torch.ones(2, 3).cuda()).sum()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            print(loss.item())
        """,
        COMPARED,
    ),
    "the time": Known("import time\nprint(torch.tensor([time.time() % 1000]).cuda().item())", COMPARED),
    "the process": Known("import os\nprint(torch.tensor([os.getpid() / 7]).cuda().item())", COMPARED),
    "a random identifier": Known(
        "import uuid\nprint(torch.tensor([uuid.uuid4().int % 997]).cuda().item())", COMPARED
    ),
    "numbers without a seed": Known(
        "import numpy as np\nprint(torch.from_numpy(np.random.rand(3)).cuda().sum().item())", COMPARED
    ),
    "some numbers that vary": Known(
        "import time\nprint(torch.ones(2).cuda().sum().item())\n"
        "print(torch.tensor([time.time() % 99]).cuda().item())",
        COMPARED,
    ),
    "another GPU": Known(
        "import os\nd = torch.device('cuda')\nos.environ['CUDA_VISIBLE_DEVICES'] = '1'\n"
        "print(torch.ones(1, device=d).item())",
        UNSAFE,
        "changes-cuda",
    ),
    "a question before a fork": Known(
        """
        import os
        d = torch.device("cuda")
        if os.fork() == 0:
            os._exit(int(torch.ones(1, device=d).item()) - 1)
        assert os.wait()[1] == 0
        print(torch.ones(2).sum().item())
        """,
        UNSAFE,
        "changes-cuda",
    ),
    "two GPUs by an assertion": Known(
        "assert torch.cuda.device_count() >= 2, 'two GPUs'\nprint(torch.ones(1).cuda(1).item())",
        (),
        "finding-left",
    ),
    "two GPUs that are simulated": Known(
        "n = torch.cuda.device_count()\nprint(torch.ones(max(n, 1)).cuda().sum().item() > 0)", ("--gpus", "2")
    ),
    "a segmentation fault": Known(
        "import os, signal\nprint(torch.ones(2).cuda().sum().item())\nos.kill(os.getpid(), signal.SIGSEGV)",
        (),
        "original-fails",
    ),
    "a mistake of the program": Known(
        "x = torch.ones(2).cuda()\nprint(x.sum().item() + y)", (), "original-fails"
    ),
    "a wrong shape": Known(
        "a, b = torch.ones(2).cuda(), torch.ones(3).cuda()\nprint(a + b)", (), "original-fails"
    ),
    "an exit status": Known(
        "import sys\nprint(torch.ones(2).cuda().sum())\nsys.exit(3)", (), "original-fails"
    ),
    "a missing file": Known("print(torch.load('weights.pt', map_location='cuda'))", (), "missing-data"),
    "a missing package": Known("import not_there\nprint(torch.ones(2).cuda())", (), "missing-package"),
    "a tie that is left": Known(
        "def where():\n    return input.__name__.replace('input', 'cuda')\nprint(torch.ones(2).to(where()))",
        (),
        "finding-left",
    ),
    "an error that is caught": Known(
        "try:\n    raise ValueError('a')\nexcept ValueError:\n    print(torch.ones(2).cuda().sum().item())",
        COMPARED,
    ),
    "an error of a thread": Known(
        """
        import threading
        out = []
        t = threading.Thread(target=lambda: out.append(torch.ones(2).cuda().sum().item()))
        t.start()
        t.join()
        print(out[0])
        """,
        COMPARED,
    ),
    "the end of the program": Known(
        "import atexit\natexit.register(lambda: print(torch.ones(2).cuda().sum().item()))", COMPARED
    ),
    "a shared copy": Known(
        """
        w = torch.zeros(1).cuda()
        class Record:
            def keep(self, w):
                self.best = w.cpu()
        r = Record()
        for i in range(3):
            w += 1
            if i == 0:
                r.keep(w)
        print(r.best.item())
        """,
        COMPARED,
        "shared-copy",
    ),
    "random states": Known(
        """
        x = torch.ones(4).cuda()
        state = torch.cuda.get_rng_state()
        first = torch.rand_like(x)
        torch.cuda.set_rng_state(state)
        print(torch.equal(first, torch.rand_like(x)))
        """,
        COMPARED,
    ),
    "a seed": Known("torch.cuda.manual_seed_all(3)\nprint(torch.ones(2).cuda().sum().item())", COMPARED),
    "half precision": Known("print(torch.ones(2).cuda().half().sum().item())", COMPARED),
    "a limit": Known("print(torch.ones(2).cuda())\nwhile True:\n    pass", ("--timeout", "4"), "limit"),
    "an interrupt": Known(
        "import os, signal\nprint(torch.ones(2).cuda())\nos.kill(os.getpid(), signal.SIGTERM)",
        (),
        "ended-from-outside",
    ),
    "pinned memory": Known("print(torch.ones(2).pin_memory().cuda().sum().item())", COMPARED),
    "a stream": Known(
        "s = torch.cuda.Stream()\nwith torch.cuda.stream(s):\n    x = torch.ones(2).cuda()\nprint(x.sum())",
        COMPARED,
    ),
    "a decorator that asks": Known(
        """
        def timed(f):
            def inner(*a):
                out = f(*a)
                if torch.cuda.is_available():
                    torch.cuda.synchronize()
                return out
            return inner
        @timed
        def train(x):
            return x.cuda() + 1
        print(train(torch.ones(1)).item())
        """,
        COMPARED,
    ),
}


MORE = {
    "threads in any order": Known(
        """
        import random, threading
        draw = random.SystemRandom()
        out, lock = [], threading.Lock()
        model = torch.nn.Linear(4, 1).cuda()
        order = list(range(8))
        draw.shuffle(order)
        def work(i):
            loss = model(torch.full((1, 4), float(i)).cuda()).sum()
            with lock:
                out.append(loss.item())
        for t in [threading.Thread(target=work, args=(i,)) for i in order]:
            t.start(); t.join()
        print(out)
        """,
        COMPARED,
        "",
    ),
    "a choice that varies": Known(
        """
        import random
        seed = random.SystemRandom().randrange(1000)
        print(torch.tensor([seed]).cuda().item())
        """,
        COMPARED,
        "",
    ),
    "steps that vary": Known(
        """
        import random
        model = torch.nn.Linear(3, 1).cuda()
        for _ in range(random.SystemRandom().randrange(1, 60)):
            print(model(torch.ones(1, 3).cuda()).sum().item())
        """,
        COMPARED,
        "",
    ),
    "a size that varies": Known(
        """
        import numpy as np
        rng = np.random.default_rng()
        batch = torch.from_numpy(rng.random(int(rng.integers(2, 500)))).cuda()
        print(batch.shape, batch.sum().item())
        torch.save(batch.cpu(), "batch.pt")
        """,
        COMPARED,
        "",
    ),
    "numpy that shuffles": Known(
        """
        import numpy as np
        x = torch.arange(10.).cuda()
        for i in np.random.default_rng().permutation(10)[:4]:
            print(x[int(i)].item())
        print(x.sum().item())
        """,
        COMPARED,
        "",
    ),
    "draws that vary": Known(
        """
        import random
        for _ in range(random.SystemRandom().randrange(2000)):
            torch.rand(3, device="cuda")
        print(torch.rand(2).cuda().sum().item())
        """,
        COMPARED,
        "",
    ),
    "two GPUs or an exit": Known(
        """
        import sys
        if torch.cuda.device_count() < 2:
            sys.exit("this program needs two GPUs")
        print(torch.ones(1).cuda(1).item())
        """,
        (),
        "finding-left",
    ),
    "two GPUs that are unpacked": Known(
        """
        first, second = (torch.device("cuda", i) for i in range(torch.cuda.device_count()))
        a = torch.nn.Linear(2, 2).to(first)
        b = torch.nn.Linear(2, 2).to(second)
        print(b(a(torch.ones(1, 2, device=first)).to(second)).sum().item())
        """,
        (),
        "finding-left",
        advice="fewer GPUs",
    ),
    "four GPUs in a list": Known(
        """
        places = [f"cuda:{i}" for i in range(torch.cuda.device_count())]
        def place(layer):
            return places[layer % 4]
        model = [torch.nn.Linear(2, 2).to(place(i)) for i in range(4)]
        x = torch.ones(1, 2)
        for i, layer in enumerate(model):
            x = layer(x.to(place(i)))
        print(x.sum().item())
        """,
        (),
        "finding-left",
    ),
    "a multiple of four GPUs": Known(
        """
        def world():
            count = torch.cuda.device_count()
            if count % 4:
                raise ValueError(f"the number of processes must be a multiple of 4, not {count}")
            return count
        def main():
            print(torch.ones(world()).cuda().sum().item())
        main()
        """,
        (),
        "finding-left",
    ),
    "two GPUs for processes": Known(
        """
        import torch.multiprocessing as mp
        def work(rank, world):
            torch.cuda.set_device(rank)
            x = torch.ones(2).cuda()
            print(rank, world, (x * rank).sum().item())
        def main():
            world = torch.cuda.device_count()
            assert world >= 2, f"needs at least 2 GPUs, found {world}"
            mp.spawn(work, args=(world,), nprocs=world)
        if __name__ == "__main__":
            main()
        """,
        COMPARED,
        "finding-left",
    ),
    "two GPUs on CUDA only": Known(
        """
        if torch.cuda.is_available():
            assert torch.cuda.device_count() >= 2, "two GPUs"
        x = torch.ones(1).cuda()
        print(x.item())
        """,
        COMPARED,
    ),
    "four GPUs by name": Known(
        """
        stages = [torch.nn.Linear(2, 2).to(f"cuda:{i}") for i in range(4)]
        x = torch.ones(1, 2, device="cuda:0")
        for i, stage in enumerate(stages):
            x = stage(x.to(f"cuda:{i}"))
        print(x.sum().item())
        """,
        COMPARED,
        "",
    ),
    "an abort": Known(
        """
        import os
        x = torch.ones(2).cuda()
        print(x.sum().item(), flush=True)
        os.abort()
        """,
        (),
        "original-fails",
    ),
    "a segmentation fault in C": Known(
        """
        import ctypes
        x = torch.ones(2).cuda()
        print(x.sum().item(), flush=True)
        ctypes.string_at(0)
        """,
        COMPARED,
        "original-fails",
    ),
    "a child that dies": Known(
        """
        import subprocess, sys
        print(torch.ones(2).cuda().sum().item())
        subprocess.run([sys.executable, "-c", "import os; os.abort()"], check=True)
        """,
        (),
        "original-fails",
    ),
    "a queue that nobody fills": Known(
        """
        import queue
        q = queue.Queue()
        q.put(torch.ones(2).cuda())
        print(q.get().sum().item())
        print(q.get().sum().item())
        """,
        ("--timeout", "5"),
        "limit",
    ),
    "the environment is set in main": Known(
        """
        import argparse, os
        def main():
            parser = argparse.ArgumentParser()
            parser.add_argument("--gpu", default="1")
            args = parser.parse_args()
            os.environ["CUDA_VISIBLE_DEVICES"] = args.gpu
            model = torch.nn.Linear(2, 1).cuda()
            x = torch.ones(1, 2, device="cuda")
            print(model(x).sum().item())
        if __name__ == "__main__":
            main()
        """,
        COMPARED,
        "",
    ),
    "the environment is set late": Known(
        """
        import os
        DEVICE = "cuda"
        def main():
            os.environ["CUDA_VISIBLE_DEVICES"] = "1"
            print(torch.ones(2).to(DEVICE).sum().item())
        main()
        """,
        UNSAFE,
        "changes-cuda",
    ),
    "a question of the original before a fork": Known(
        """
        import os
        print("GPU" if torch.cuda.is_available() else "CPU", flush=True)
        if os.fork() == 0:
            try:
                os._exit(int(torch.ones(1).cuda().item()) - 1)
            except RuntimeError:
                os._exit(5)
        assert os.wait()[1] == 0
        print(torch.ones(2).sum().item())
        """,
        COMPARED,
        "original-fails-on-cuda",
    ),
    "workers that fork": Known(
        """
        import multiprocessing as mp
        def work(q):
            x = torch.ones(3).cuda()
            q.put(float(x.sum()))
        if __name__ == "__main__":
            mp = mp.get_context("fork")
            q = mp.Queue()
            p = mp.Process(target=work, args=(q,))
            p.start()
            print(torch.tensor([q.get()]).item())
            p.join()
            assert p.exitcode == 0
        """,
        COMPARED,
        "",
    ),
    "workers that collate on a GPU": Known(
        """
        from torch.utils.data import DataLoader

        class Data:
            def __len__(self):
                return 4

            def __getitem__(self, i):
                return torch.ones(2, device="cuda") * i

        if __name__ == "__main__":
            for batch in DataLoader(Data(), batch_size=2, num_workers=1, multiprocessing_context="spawn"):
                print(batch.sum().item())
        """,
        COMPARED,
    ),
    "a configuration": Known(
        """
        import json
        def nested(config, path):
            for part in path.split("."):
                config = config[part]
            return config
        with open("config.json") as file:
            config = json.load(file)
        model = torch.nn.Linear(2, 1).to(nested(config, "training.device"))
        print(model.weight.shape)
        """,
        (),
        "finding-left",
        files={"config.json": '{"training": {"device": "cuda", "steps": 3}}'},
        advice="`training.device=cpu`",
    ),
    "a configuration as arguments": Known(
        """
        import yaml
        config = yaml.safe_load(open("config.yaml"))
        def build(**options):
            return torch.ones(2, **options)
        print(build(**config["tensor"]).sum())
        """,
        (),
        "finding-left",
        files={"config.yaml": "train:\n  steps: 3\ntensor:\n  device: cuda:0\n"},
        advice="`tensor.device` to `cpu`",
    ),
    "a key of the command line": Known(
        """
        import sys
        class Config(dict):
            pass
        config = Config(word.split("=", 1) for word in sys.argv[1:])
        class Trainer:
            def __init__(self, config):
                self.device = config.get("training.device", "cpu")
            def run(self):
                return torch.ones(2).to(self.device).sum().item()
        print(Trainer(config).run())
        """,
        (),
        "finding-left",
        options=("training.device=cuda:0", "training.steps=3"),
        advice="pass `training.device=cpu`",
    ),
    "an argument": Known(
        """
        import argparse
        parser = argparse.ArgumentParser()
        parser.add_argument("--device", default="cpu")
        args = parser.parse_args()
        print(torch.ones(2).to(args.device).sum().item())
        """,
        (),
        "finding-left",
        options=("--device", "cuda"),
        advice="pass `--device cpu`",
    ),
    "half precision in training": Known(
        """
        model = torch.nn.Linear(8, 1).cuda()
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
        scaler = torch.cuda.amp.GradScaler()
        for _ in range(3):
            with torch.cuda.amp.autocast():
                loss = model(torch.ones(4, 8, device="cuda")).pow(2).mean()
            optimizer.zero_grad()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            print(f"{loss.item():.4f}")
        """,
        COMPARED,
        "",
    ),
    "half precision that a CPU lacks": Known(
        """
        x = torch.ones(8).cuda().half()
        print(torch.fft.rfft(x).abs().sum().item())
        """,
        (),
        "cpu-difference",
    ),
    "no network": Known(
        """
        import urllib.request
        urllib.request.urlopen("http://localhost:9/weights-cuda.pt", timeout=2)
        print(torch.ones(2).cuda().mean().item())
        """,
        (),
        "environment",
    ),
    "a child process": Known(
        """
        import subprocess, sys
        done = subprocess.run([sys.executable, "worker.py", "3"], check=True, capture_output=True, text=True)
        print(torch.tensor([float(done.stdout)]).item())
        """,
        COMPARED,
        "",
        files={
            "worker.py": "import sys\nimport torch\nprint(torch.ones(int(sys.argv[1])).cuda().sum().item())\n"
        },
    ),
    "a child process with a tie": Known(
        """
        import subprocess, sys
        subprocess.run([sys.executable, "worker.py"], check=True)
        print(torch.ones(2).sum().item())
        """,
        (),
        "finding-left",
        files={
            "worker.py": "import torch\nprint(torch.ones(2).to(input.__name__.replace('input', 'cuda')))\n"
        },
    ),
    "a message at the end": Known(
        """
        import sys
        loss = torch.ones(2).cuda().sum().item()
        if loss > 1:
            sys.exit(f"diverged: {loss}")
        """,
        (),
        "original-fails",
    ),
    "numbers in a file": Known(
        """
        model = torch.nn.Linear(3, 1).cuda()
        model(torch.ones(2, 3).cuda()).sum().backward()
        torch.save({"model": model.state_dict(), "grad": model.weight.grad}, "model.pt")
        """,
        COMPARED,
        "",
    ),
    "wrong numbers in a file": Known(
        """
        class Average:
            def __init__(self, model):
                self.kept = {k: v.detach().cpu() for k, v in model.state_dict().items()}
        model = torch.nn.Linear(3, 1).cuda()
        average = Average(model)
        with torch.no_grad():
            for p in model.parameters():
                p.add_(1)
        torch.save(average.kept, "average.pt")
        """,
        COMPARED,
        "shared-copy",
    ),
    "times": Known(
        """
        import time
        start = time.perf_counter()
        a, b = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        a.record()
        x = torch.ones(100, 100).cuda()
        print((x @ x).sum().item())
        b.record()
        torch.cuda.synchronize()
        seconds = a.elapsed_time(b) / 1000
        print(f"{seconds:.3f} s of {time.perf_counter() - start:.3f} s")
        """,
        COMPARED,
        "",
    ),
    "two devices that become one": Known(
        """
        weights = {torch.device("cuda:0"): 1.0, torch.device("cpu"): 2.0}
        print(torch.tensor(list(weights.values())).cuda().sum().item())
        """,
        UNSAFE,
        "differs-on-cpu",
    ),
    "a leaf": Known(
        """
        w = torch.zeros(2, requires_grad=True)
        x = w.cuda()
        x += 1
        print(x.sum().item())
        """,
        COMPARED,
        "finding-left",
        advice="--unsafe-fixes",
    ),
    "what torch refuses": Known(
        """
        def load(data, where):
            return torch.serialization.default_restore_location(data.untyped_storage(), where)
        print(load(torch.ones(2), "cuda:" + str(0)))
        """,
        (),
        "finding-left",
    ),
}


@pytest.mark.parametrize("known", [*KNOWN.values(), *MORE.values()], ids=[*KNOWN, *MORE])
def test_verdict(known: Known, tmp_path: Path) -> None:
    folder = ProgramFolder(tmp_path)
    folder.write(main="import torch\n" + dedent(known.code).lstrip("\n") + "\n")
    for name, text in known.files.items():
        (tmp_path / name).write_text(text)
    done = folder.verify(*known.arguments, "main.py", *known.options)
    explanation = done.report.get("explanation") or {}
    found = explanation.get("cause", "")
    assert found == known.cause, f"{done.report.get('reason')}\n{explanation}\n{done.errors}"
    assert done.report["verdict"] == ("pass" if not known.cause else done.report["verdict"])
    assert known.advice in explanation.get("advice", "")
    says_so = any(" requests CUDA" in each for each in explanation.get("evidence", ()))
    assert done.run["requests"] or not says_so  # else the report says "CUDA requests  none"
