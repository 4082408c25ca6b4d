"""Programs in which it matters when a fix asks for CUDA, or which names it binds.

Each is right on simulated CUDA and on a CPU, or a finding covers it. The simulated machine fixes the GPUs at
the first question, and refuses CUDA in a fork after it.
"""

from __future__ import annotations

from textwrap import dedent

import meaning
import pytest
from meaning import Judge
from meaning_programs import Program

from devicefix.config.settings import Settings
from devicefix.engine.file import check_file
from devicefix.facts.project import Project

pytestmark = pytest.mark.needs("numpy", "torch")

SETS = "import os\n\nos.environ['CUDA_VISIBLE_DEVICES'] = '1'\n"
USE = "import torch\nprint(torch.ones(2, device='cuda').sum().item())\n"

BEFORE_THE_SETTING = {
    "a device": "d = torch.device('cuda')",
    "a default": "def f(x, device=torch.device('cuda')):\n    return x.to(device)",
    "an attribute of a class": "class A:\n    where = torch.device('cuda')\n    t = torch.cuda.FloatTensor",
    "a key of a dictionary": "settings = dict(device=torch.device('cuda'), map_location='cuda')",
    "an alias": "sync, Float = torch.cuda.synchronize, torch.cuda.FloatTensor",
    "a field": "import dataclasses as c\n@c.dataclass\nclass A:\n    d: object = torch.device('cuda')",
    "a partial function": "import functools\nmake = functools.partial(torch.zeros, 2, device='cuda')",
    "an option": "import argparse as a\na.ArgumentParser().add_argument('--d', default=torch.device('cuda'))",
    "a number": "gpu, n = torch.cuda.device_count, 3\nd = torch.device('cuda', 0)",
    "a default device": "torch.set_default_device('cuda')",
    "an event": "e = torch.cuda.Event",
    "a function that is called first": "def f():\n    return torch.device('cuda')\nd = f()",
    "defaults in a function": "import argparse as a\ndef f():\n    p = a.ArgumentParser()\n"
    "    p.set_defaults(device=torch.device('cuda'))\n    return p\nf()",
}


@pytest.mark.parametrize("code", BEFORE_THE_SETTING.values(), ids=BEFORE_THE_SETTING)
def test_no_question_before_the_gpus_are_chosen(judge: Judge, code: str) -> None:
    for files in (
        {"main": f"import torch\n{code}\n{SETS}{USE}"},
        {"main": f"import other\n{SETS}{USE}", "other": f"import torch\n{code}\n"},
        {
            "main": f"import other\nif __name__ == '__main__':\n{indented(SETS + USE)}",
            "other": f"import torch\n{code}\n",
        },
    ):
        expect_right(judge, files)


def test_no_question_before_a_function_inside_chooses_the_gpus(judge: Judge) -> None:
    main = """
        import os
        import torch

        def train():
            def run():
                os.environ["CUDA_VISIBLE_DEVICES"] = "1"
                return torch.ones(2).cuda()
            print(run())
        train()
    """
    expect_right(judge, {"main": main})


def test_a_question_that_chose_the_gpus_is_kept(judge: Judge) -> None:
    main = """
        import os
        import torch

        class Check:
            @property
            def ready(self):
                assert torch.cuda.is_available()
        Check().ready

        def train():
            os.environ["CUDA_VISIBLE_DEVICES"] = "1"
            return torch.ones(2).cuda()
        print(train())
    """
    expect_right(judge, {"main": main})


def test_a_question_below_the_choice_of_the_gpus_is_removed() -> None:
    code = b"""
import os, torch
def main():
    assert torch.cuda.is_available()
    print(torch.ones(1).cuda())
if __name__ == "__main__":
    os.environ["CUDA_VISIBLE_DEVICES"] = "1"
    main()
"""
    output = check_file(code, "main.py", Settings(fix=True), Project()).output
    assert output is not None
    assert b"assert" not in output


def test_no_question_in_the_main_block_before_a_function_below_chooses_the_gpus(judge: Judge) -> None:
    main = """
        import torch
        if __name__ == "__main__":
            move = lambda x, to="cuda": x.to(to)
            import other
            print(move(torch.ones(1)))
        def train():
            other.choose()
        train()
    """
    other = f"import os\nos.environ['CUDA_VISIBLE_DEVICES'] = '1'\ndef choose():\n{indented(SETS)}"
    expect_right(judge, {"main": main, "other": other})


def test_pinned_memory_starts_cuda_in_both_forms(judge: Judge) -> None:
    expect_right(judge, {"main": "import torch\nx = torch.ones(2).pin_memory()\nprint(x)\n"})


FORKS = {
    "a pool": """
        import torch
        from multiprocessing import Pool
        where = torch.device("cuda")
        def work(i):
            return float(torch.ones(2, device=where).sum() * i)
        if __name__ == "__main__":
            with Pool(1) as pool:
                print(pool.map(work, range(2)))
    """,
    "a default of a process": """
        import torch
        import torch.multiprocessing as mp
        class Actor(mp.Process):
            def __init__(self, queue, dev="cuda"):
                super().__init__()
                self.queue, self.dev = queue, dev
            def run(self):
                try:
                    self.queue.put(float(torch.ones(2, device=self.dev).sum()))
                except (AssertionError, RuntimeError) as error:
                    self.queue.put(str(error))
        if __name__ == "__main__":
            queue = mp.SimpleQueue()
            actor = Actor(queue)
            actor.start()
            print(queue.get())
            actor.join()
    """,
    "a context": """
        import multiprocessing
        import torch
        kind = torch.cuda.FloatTensor
        def work(to):
            to.send(torch.ones(2).type(kind).sum().item())
        context = multiprocessing.get_context("fork")
        start, end = context.Pipe()
        process = context.Process(target=work, args=(end,))
        process.start()
        process.join()
        print(start.recv() if start.poll() else "failed")
    """,
    "processes of torch": """
        import torch
        import torch.multiprocessing as mp
        def work(i, q):
            q.put(float(torch.ones(2).cuda().sum()) + i)
        q = mp.get_context("fork").SimpleQueue()
        mp.start_processes(work, args=(q,), nprocs=1, start_method="fork")
        print(q.get())
    """,
    "a collate function": """
        import torch
        from torch.utils.data import DataLoader
        def collate(batch):
            return (torch.stack(batch).cuda() + 1).sum().item()
        for value in DataLoader([torch.ones(1)] * 2, num_workers=1, batch_size=2, collate_fn=collate):
            print(value)
    """,
    "a dataset": """
        import torch
        from torch.utils.data import DataLoader, Dataset
        class Ones(Dataset):
            def __len__(self):
                return 2
            def __getitem__(self, i):
                return torch.ones(1).cuda().item()
        data = Ones()
        print([batch.tolist() for batch in DataLoader(data, num_workers=1)])
    """,
    "a pool in the main block": """
        import torch
        if __name__ == "__main__":
            where = "cuda:0"
            def work(n):
                return float((torch.ones(2, device=where) * n).sum())
            import concurrent.futures, multiprocessing
            with concurrent.futures.ProcessPoolExecutor(1, multiprocessing.get_context("fork")) as pool:
                print(pool.submit(work, 3).result())
    """,
    "a device of an outer function": """
        import torch
        def run():
            def step():
                import multiprocessing
                options = dict(device=torch.device(0))
                def work(n):
                    return float((torch.ones(2, **options) * n).sum())
                value = multiprocessing.Value("d")
                def target():
                    value.value = work(2)
                process = multiprocessing.Process(target=target)
                process.start()
                process.join()
                print(value.value)
            return step
        run()()
    """,
    "a loader in the main block": """
        import torch
        if __name__ == "__main__":
            where = torch.device(type="cuda")
            def one(n):
                return float((torch.ones(2, device=where) * n).sum())
            from torch.utils.data import DataLoader, Dataset
            class Ones(Dataset):
                def __len__(self):
                    return 2
                def __getitem__(self, i):
                    return one(i)
            for value in DataLoader(Ones(), batch_size=None, num_workers=2):
                print(value)
    """,
    "os.fork": """
        import os
        import torch
        where = torch.device("cuda")
        r, w = os.pipe()
        if os.fork() == 0:
            try:
                os.write(w, str(torch.ones(1).to(where).item()).encode())
            except BaseException:
                os.write(w, b"failed")
            os._exit(0)
        print(os.read(r, 20).decode())
    """,
}


@pytest.mark.parametrize("program", FORKS.values(), ids=FORKS)
def test_no_question_before_a_fork(judge: Judge, program: str) -> None:
    expect_right(judge, {"main": program})


NAMES = {
    "a name that another file sets": {
        "main": "import torch, other\nother.device = 'cpu'\nprint(other.move(torch.ones(1)).device)\n",
    },
    "a name that setattr sets": {
        "main": "import torch, other\nfor k in ('device', 'lr'): setattr(other, k, 'cpu')\n"
        "print(other.move(torch.ones(1)).device)\n",
    },
    "names that are updated": {
        "main": "import torch, other\nvars(other).update(device=2)\nx = torch.ones(1)\n"
        "print(other.move(x).device)\n",
    },
    "names that are listed": {
        "main": "import torch, other\nprint(sorted(n for n in dir(other) if n[0] != '_'))\n"
        "print(other.move(torch.ones(1)).device)\n",
    },
    "names that a star import carries to where they are listed": {
        "main": "import torch, between\nprint(sorted(n for n in vars(between) if n[0] != '_'))\n"
        "print(between.move(torch.ones(1)).device)\n",
        "between": "from other import *\n",
    },
    "a function that is taken out of its module": {
        "main": "import torch, other, types\nf = types.FunctionType(other.move.__code__, {'torch': torch})\n"
        "print(f(torch.ones(1)).device)\n",
    },
    "a name that is set on what import_module returns": {
        "main": "import importlib, torch\nimportlib.import_module('other').device = 'cpu'\n"
        "from other import move\nprint(move(torch.ones(1)).device)\n",
    },
    "names that are set on a module that a call passes": {
        "main": "import torch, other\nfrom between import configure\nconfigure(other)\n"
        "print(other.move(torch.ones(1)).device)\n",
        "between": "def configure(module):\n    for k in ('device', 'lr'): setattr(module, k, 'cpu')\n",
    },
    "names that a function lists of a module that a call passes": {
        "main": "import torch, other\ndef dump(m):\n    return sorted(n for n in m.__dict__ if n[0] != '_')\n"
        "print(dump(other), other.move(torch.ones(1)).device)\n",
    },
    "the code of a function": {
        "main": "import marshal, torch, types\ndef f(x):\n    return x.cuda()\n"
        "code = marshal.loads(marshal.dumps(f.__code__))\n"
        "print(types.FunctionType(code, {})(torch.ones(1)).device)\n",
    },
    "a function that works with the names of another file": {
        "main": "import torch, types\nfrom other import move\ncode = move.__code__\n"
        "print(types.FunctionType(code, globals())(torch.ones(1)).device)\n",
        "other": "def move(x):\n    return x.to('cuda')\n",
    },
    "a name that star imports carry over two files": {
        "main": "import torch\nx = torch.ones(1).cuda()\nfrom between import *\nprint(x.device)\nx.cuda()\n",
        "between": "from other import *\n",
        "other": "from torch.cuda import *\n",
    },
    "a new name that star imports carry over two files": {
        "main": "device = 'cpu'\nfrom between import *\nimport torch\n"
        "print(move(torch.ones(1)).device, device)\n",
        "between": "from other import *\n",
    },
    "the source of a function": {
        "main": "import inspect, torch, other\ncode = inspect.getsource(other.move) if 0 else ''\n"
        "print(code, other.move(torch.ones(1)).device)\n",
    },
}


@pytest.mark.parametrize("files", NAMES.values(), ids=NAMES)
def test_no_new_name_that_others_see(judge: Judge, files: dict[str, str]) -> None:
    expect_right(judge, {"other": "import torch\ndef move(x):\n    return x.cuda()\n", **files})


OWN_NAMES = {
    "a configuration that is executed": """
        import torch
        def move(x):
            return x.cuda()
        exec("device = 'cpu'\\nlr = 2")
        print(move(torch.ones(1)).device)
    """,
    "all global names": """
        import torch
        def move(x):
            return x.cuda()
        print(sorted(k for k in globals() if k[0] != "_"), move(torch.ones(1)).device)
    """,
    "the names of the program's module": """
        import sys, torch
        main = sys.modules["__main__"]
        def f(x):
            return x.cuda()
        print(sorted(n for n in dir(main) if "dev" in n), f(torch.ones(1)).device)
    """,
    "a question about a global name": """
        import torch
        x = torch.ones(1).cuda()
        if "device" in globals():
            print("configured")
        print(x.device)
    """,
    "another answer": """
        import torch
        torch.cuda.is_available = lambda: False
        where = torch.device("cuda")
        print(torch.ones(1).to(where).device, torch.ones(1).cuda().device)
    """,
}


@pytest.mark.parametrize("program", OWN_NAMES.values(), ids=OWN_NAMES)
def test_no_new_name_that_the_module_sees(judge: Judge, program: str) -> None:
    expect_right(judge, {"main": program})


def test_another_answer_in_another_file(judge: Judge) -> None:
    main = "import torch, other\nprint(torch.ones(1).cuda().device)\n"
    expect_right(judge, {"main": main, "other": "import torch\ntorch.cuda.is_available = lambda: False\n"})


def expect_right(judge: Judge, files: dict[str, str]) -> None:
    """Expect that the rewrite of a program is right, or a finding covers it."""
    found = judge(Program({name: dedent(code).lstrip("\n") for name, code in files.items()}))
    assert found.category in (meaning.FINE, meaning.REPORTED, meaning.ELSEWHERE), meaning.shown(found)


def indented(code: str) -> str:
    return "".join(f"    {line}\n" for line in code.splitlines())
