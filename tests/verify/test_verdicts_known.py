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
    """A program, the arguments of verify, and the cause of its verdict, empty for a pass."""

    code: str
    arguments: tuple[str, ...] = ()
    cause: str = ""


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
        "tie-left",
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
        "tie-left",
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


@pytest.mark.parametrize("known", KNOWN.values(), ids=KNOWN)
def test_verdict(known: Known, tmp_path: Path) -> None:
    folder = ProgramFolder(tmp_path)
    folder.write(main="import torch\n" + dedent(known.code).lstrip("\n") + "\n")
    done = folder.verify(*known.arguments, "main.py")
    found = (done.report.get("explanation") or {}).get("cause", "")
    assert found == known.cause, (
        f"{done.report.get('reason')}\n{done.report.get('explanation')}\n{done.errors}"
    )
    assert done.report["verdict"] == ("pass" if not known.cause else done.report["verdict"])
