"""`devicefix.facts.project`: the facts of several files together."""

from __future__ import annotations

import pickle

import pytest

from devicefix.facts import Facts
from devicefix.facts.backends import allows_gloo
from devicefix.facts.project import Project, ProjectFile, candidates


def project(**files: str) -> Project:
    """Return the project of some files; `__` in a name is a slash."""
    made = []
    for name, code in files.items():
        path = f"/p/{name.replace('__', '/')}.py"
        made.append(ProjectFile(f"# cuda\n{code}".encode(), path))
    return Project(made)


@pytest.mark.parametrize(
    ("module", "expected"),
    [
        (".c", ["/p/a/c.py", "/p/a/c/__init__.py"]),
        ("..c", ["/p/c.py", "/p/c/__init__.py"]),
        ("c.d", ["/p/a/c/d.py", "/p/a/c/d/__init__.py", "/p/c/d.py", "/p/c/d/__init__.py", "/c/d.py",
                 "/c/d/__init__.py"]),
        (".", ["/p/a/__init__.py"]),
    ],
)  # fmt: skip
def test_candidates(module: str, expected: list[str]) -> None:
    assert list(candidates("/p/a/b.py", module)) == expected


@pytest.mark.parametrize(
    ("module", "expected"),
    [
        ("m", "/p/a/m.py"),
        (".m", "/p/a/m.py"),
        ("..m", "/p/m.py"),
        ("a.m", "/p/a/m.py"),
        ("a", None),
        ("z", None),
    ],
)
def test_find_the_nearest(module: str, expected: str | None) -> None:
    found = project(m="x = 1", a__m="x = 1", a__b="x = 1").find("/p/a/b.py", module)
    assert (found and found.path) == expected


def test_own_cuda() -> None:
    files = project(
        a="class A:\n    def cuda(self): ...\n",
        b="class B(a.A): ...\nclass C(B): ...\nclass D(E): ...\nx = C()",
    )
    assert files.has_own_cuda()
    assert [files.is_cuda_class(name) for name in "ABCDE"] == [True, True, True, False, False]
    assert [files.may_be_own(name) for name in "ABCDE"] == [True, True, True, False, False]
    assert not project(a="class A: ...").has_own_cuda()


def test_own_to() -> None:
    method = "    def to(self, form): ...\n"
    files = project(a=f"class A(nn.Module):\n{method}class B(A): ...\nclass C(nn.Linear): ...\n")
    assert files.has_own_cuda()
    assert [files.may_be_own(name) for name in ("A", "B", "C", "Module")] == [True, True, False, True]
    assert not any(map(files.is_cuda_class, "ABC"))
    plain = project(a=f"class A:\n{method}class B(dict):\n{method}class C(A):\n{method}")
    assert plain.has_own_to()
    assert not plain.has_own_cuda()  # no torch class is among the bases: there is no `cuda` to replace


def test_own_loading() -> None:
    assert project(a="class A(Net):\n    def load_state_dict(self, state): ...\n").has_own_loading()
    assert project(a="class A(Net):\n    def set_extra_state(self, state): ...\n").has_own_loading()
    assert project(a="net.register_load_state_dict_pre_hook(keep)").has_own_loading()
    assert not project(a="net.load_state_dict(torch.load(path))").has_own_loading()


@pytest.mark.parametrize("word", ["", "# cuda"])
def test_own_to_beside_a_class_of_the_standard_library(word: str) -> None:
    def has_own(code: str) -> bool:
        method = f"{word}\n    def to(self, form): ...\n"
        return Project([ProjectFile(f"{code}{method}".encode(), "/p/a.py")]).has_own_cuda()

    assert not has_own("from typing import Any, NamedTuple\nclass A(NamedTuple):")
    assert not has_own("import abc, enum\nclass A(abc.ABC, enum.Enum):")
    assert not has_own("from collections import UserDict\nclass A(UserDict):")
    assert not has_own("from collections.abc import Mapping\nclass A(Mapping):")
    assert not has_own("import collections.abc\nclass A(collections.abc.Mapping):")
    assert has_own("from .typing import NamedTuple\nclass A(NamedTuple):")
    assert has_own("from typing import NamedTuple\nfrom b import NamedTuple\nclass A(NamedTuple):")
    assert has_own("import b as abc\nclass A(abc.ABC):")


@pytest.mark.parametrize(
    ("code", "allowed"),
    [
        ("assert backend == 'nccl'", False),
        ("from torch.distributed import Backend\nassert backend in ('nccl', Backend.GLOO)", True),
        ("assert comm == 'nccl'", True),
        ("parser.add_argument('--backend', choices=['nccl'])", False),
    ],
)
def test_a_module_that_compares_a_backend_only_with_nccl_does_not_allow_gloo(
    code: str, allowed: bool
) -> None:
    assert allows_gloo(Facts.read(code.encode()), "backend") is allowed


def test_subclasses_are_followed_through_files_without_cuda() -> None:
    whole = ProjectFile(b"class A:\n    def cuda(self): ...\n", "/p/a.py")
    light = ProjectFile(b"from a import A\nclass B(A): pass\n", "/p/b.py")
    assert Project([whole, light]).is_cuda_class("B")


def test_integer_options() -> None:
    files = project(
        a="p.add_argument('--x', type=int)\np.add_argument('--y', type=int)", b="p.add_argument('--y')"
    )
    assert files.is_integer_option("x")
    assert not files.is_integer_option("y")


def test_flags() -> None:
    right, wrong = "self.use_cuda = torch.cuda.is_available()", "self.use_cuda = x"
    assert project(a=right).is_flag("use_cuda")
    assert not project(a=right, b=wrong).is_flag("use_cuda")
    assert not project(a=right).is_flag("gpu")


_ASKED = "import torch\nif torch.cuda.is_available():\n    import fast.kernel\n"


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"main": _ASKED}, True),
        ({"main": "import fast.kernel"}, False),
        ({"main": _ASKED, "other": "import fast.kernel"}, False),
        ({"main": _ASKED, "other": "from fast import kernel"}, False),
        ({"main": _ASKED, "other": "import fast.deep"}, False),  # runs `fast/__init__.py`, which imports it
        ({"main": _ASKED, "fast__run": "x = 1"}, False),  # a program
        ({"main": f"{_ASKED}import other", "other": "x = 1"}, True),
        ({"main": f"{_ASKED}import fast"}, False),
        ({}, False),
    ],
)
def test_a_module_that_is_only_imported_with_cuda(files: dict[str, str], expected: bool) -> None:
    package = {"fast__kernel": "from .deep import g", "fast__deep": "x = 1"}
    first = ProjectFile(b"from .kernel import f", "/p/fast/__init__.py")
    made = Project([first, *project(**package, **files).files.values()])
    assert [made.is_guarded(f"/p/fast/{name}.py") for name in ("kernel", "deep")] == [expected] * 2
    assert not made.is_guarded("/p/main.py")


def test_a_module_that_runs_by_itself_is_not_guarded() -> None:
    assert not project(main=_ASKED, fast__kernel="if __name__ == '__main__': ...").is_guarded(
        "/p/fast/kernel.py"
    )


def test_mentioned() -> None:
    files = project(a="def _f(): ...", b="a._f()")
    assert files.is_mentioned("/p/a.py", "_f")
    assert not files.is_mentioned("/p/b.py", "a")


def test_a_name_counts_in_files_that_are_used_together() -> None:
    files = project(a="import u", b="import u\nseed()", c="seed()", u="x = 1")
    around = [files.is_mentioned_around(f"/p/{name}.py", "seed") for name in "abcu"]
    assert around == [False, False, False, True]


def test_a_number_of_a_file_without_cuda_is_known() -> None:
    light = ProjectFile(b"WHERE = 0\n", "/p/config.py")
    assert Project([light]).kinds_of("/p/main.py", "config.WHERE", "") == ["INDEX"]


def test_who_imports_a_late_file_is_late() -> None:
    setting = "def choose():\n    os.environ['CUDA_VISIBLE_DEVICES'] = '0'"
    files = project(main="import gpu, model", gpu=setting, model="x = 1", other="x = 1")
    assert [files.is_late(f"/p/{name}.py") for name in ("main", "model", "other")] == [True, True, False]


_SET = "    os.environ['CUDA_VISIBLE_DEVICES'] = '0'\n"


@pytest.mark.parametrize(
    ("gpu", "main", "train", "late"),
    [
        (f"def choose():\n{_SET}", "", "import gpu\ngpu.choose()", False),
        (f"def choose():\n{_SET}", "gpu.choose()", "import gpu\ngpu.choose()", True),
        (f"def choose():\n{_SET}", "from gpu import choose as f\nf()", "import gpu\ngpu.choose()", True),
        (
            f"def choose():\n{_SET}",
            "def f(x: choose): pass",
            "import gpu\ngpu.choose()",
            False,
        ),
        (f"def choose():\n{_SET}", "f = getattr(gpu, 'choose')", "", True),
        (f"def choose():\n{_SET}", "f = getattr(gpu, name)", "import gpu\ngpu.choose()", True),
        (f"def choose():\n{_SET}", "import importlib\nimportlib.import_module(name)", "gpu.choose()", True),
        (f"@command\ndef choose():\n{_SET}", "", "import gpu\ngpu.choose()", True),
        (f"class A:\n  def run(self):\n{_SET}class B(A): pass", "", "import gpu\ngpu.B().run()", True),
        (f"class A:\n  def run(self):\n{_SET}", "", "import gpu\ngpu.A().run()", False),
        (f"class A:\n  def __init__(self):\n{_SET}def f():\n    A()", "", "import gpu\ngpu.f()", False),
        (f"class A:\n  def __init__(self):\n{_SET}def f():\n    A()", "gpu.f()", "", True),
        (f"class A:\n  def __init__(self):\n{_SET}def f():\n    A()", "", "", True),
    ],
)
def test_a_setting_in_a_function_counts_for_programs_that_may_call_it(
    gpu: str, main: str, train: str, late: bool
) -> None:
    files = project(gpu=gpu, main=f"import gpu\n{main}", train=train)
    assert files.is_late("/p/main.py") is late


_MP = "import multiprocessing as mp\nimport a\n"
_WORK = "def work(x):\n    return x.cuda()\n"
FORKING = {
    "a process": "mp.Process(target=a.move)",
    "a process by position": "mp.Process(None, a.move)",
    "an imported class": "from multiprocessing import Process as P\nP(target=a.move)",
    "another name of the class": "P = None\nif mp:\n    P = mp.Process\nP(target=a.move)",
    "what is not known": "a.move(2)\nmp.Pool(2)",
    "a map": "mp.Pool().map(a.move, x)",
    "a map of a function with a bound argument": "mp.Pool().map(functools.partial(a.move, 2), x)",
    "a function that calls it": "def f(x):\n    a.move(1)\nmp.Pool().map(f, x)",
    "a function of the file": f"{_WORK}mp.Pool().map(work, x)",
    "a variable": f"{_WORK}jobs = [len, work]\nmp.Pool().map(jobs[1], x)",
    "a lambda": "job = lambda: a.move(2)\nmp.Process(target=job)",
    "a method": "class W:\n    def f(self):\n        a.move(2)\nw = W()\nmp.Process(target=w.f)",
    "a method of the object": "class W:\n    def f(self):\n        mp.Process(target=self.g)\n"
    "    def g(self):\n        a.move(2)",
    "a method of an imported class": "w = a.Work()\nmp.Process(target=w.run)",
    "a class of processes": "class W(mp.Process):\n    def run(self):\n        a.move(2)",
    "a helper that is given it": "def start(f):\n    mp.Process(target=f)\nstart(a.move)",
    "an initializer": "mp.Pool(2, a.move)",
    "an argument": "def f(where):\n    return len(x.to(where))\nmp.Process(target=f, args=(0,))",
    "an attribute of an argument": "def f(args):\n    x.to(args.device)\nmp.Process(target=f, args=(args,))",
    "a context": "mp.get_context('fork').Process(target=a.move)",
    "a pool with a context": "import concurrent.futures as c\nmp.set_start_method('spawn')\n"
    "with c.ProcessPoolExecutor(1, mp.get_context('fork')) as e:\n    e.submit(a.move)",
    "start_processes": "import torch\ntorch.multiprocessing.start_processes(a.move, start_method='fork')",
    "os.fork": "import os\nos.fork()\na.move(2)",
    "os.fork in a function": "import os\ndef f(g):\n    if not os.fork():\n        g()\nf(lambda: a.move(2))",
    "a value of an outer function": "def f():\n    with open(torch.device(0)) as v:\n        pass\n"
    "    def g():\n        torch.ones(2, device=v)\n    mp.Process(target=g)",
}
NOT_FORKING = {
    "no CUDA": "def f(x):\n    return len(x)\nmp.Pool().map(f, x)",
    "CUDA beside it": f"{_WORK}mp.Pool().map(len, x)",
    "a method without CUDA": "class W:\n    def f(self):\n        mp.Process(target=self.g)\n"
    "        a.move(2)\n    def g(self):\n        len(2)",
    "a device that is none of CUDA": "def f(device):\n    x.to(device)\nd = 'mps'\n"
    "mp.Process(target=f, args=(d,))",
    "a seed": "import torch\ndef f(i):\n    torch.cuda.manual_seed(i)\nmp.Pool(2, f)",
    "an annotation": "def f(x: a.Work):\n    return isinstance(x, a.Work)\nmp.Process(target=f)",
    "a way that does not fork": f"{_WORK}mp.set_start_method('spawn')\nmp.Process(target=work)",
    "a context that does not": f"{_WORK}mp.get_context('forkserver').Process(target=work)",
    "start_processes": f"{_WORK}import torch\ntorch.multiprocessing.start_processes(work)",
    "a class of another library": f"{_WORK}import psutil\npsutil.Process(work)",
    "a comment": "# mp.Process(target=a.move)",
    "a method of the program called fork": "import torch\n\nx = torch.ones(1).cuda()\nchild = parent.fork(1)",
}
_A = "def move(x):\n    return x.cuda()\nclass Work:\n    def run(self):\n        move(2)\n"


@pytest.mark.parametrize(
    ("code", "forked"),
    [*((each, True) for each in FORKING.values()), *((each, False) for each in NOT_FORKING.values())],
    ids=[*FORKING, *NOT_FORKING],
)
def test_forked_processes_that_use_cuda(code: str, forked: bool) -> None:
    assert project(main=_MP + code, a=_A).is_forked("/p/a.py") is forked


_DATA = "from torch.utils.data import DataLoader, Dataset\nimport a\n"
LOADING = {
    "a dataset": "DataLoader(a.Ones(), num_workers=2)",
    "some workers": "DataLoader(a.Ones(), num_workers=n)",
    "workers by position": "DataLoader(a.Ones(), 2, False, None, None, 1)",
    "options": "o = (lambda w: w)(dict(batch_size=2, num_workers=1))\nDataLoader(a.Ones(), **o)",
    "a collate function": "DataLoader(x, num_workers=2, collate_fn=a.move)",
    "a collate function by position": "DataLoader(x, 2, False, None, None, 1, a.move)",
    "an initializer": "DataLoader(x, num_workers=2, worker_init_fn=lambda i: a.move(i))",
    "a class in a function": "def f():\n    from a import move\n    class D(Dataset):\n"
    "        def __iter__(self):\n            yield move(2)\n    DataLoader(D(), num_workers=2)",
    "a function that makes it": "def make():\n    x = a.Ones()\n    return x\n"
    "DataLoader(make(), num_workers=2)",
    "a parameter": "def load(x, workers=1):\n    return DataLoader(x, num_workers=workers)\nload(a.Ones())",
    "a part of a dataset": "def load(x):\n    return DataLoader(x, num_workers=1)\nclass D(Dataset):\n"
    "    def __init__(self, t):\n        self.t = t\n    def __getitem__(self, i):\n"
    "        return self.t(i)\nload(D(a.move))",
    "an attribute": "class L:\n    def __init__(self, x):\n        self.x = x\n"
    "    def load(self):\n        DataLoader(self.x, num_workers=1)\nL(a.Ones())",
    "a base of another file": "class D(a.Ones):\n    pass\nDataLoader(D(), num_workers=2)",
    "a device of the dataset": "class D(Dataset):\n    def __getitem__(self, i):\n"
    "        return x.to(self.gpu)\nDataLoader(D(), num_workers=2)",
}
NOT_LOADING = {
    "no workers": "DataLoader(a.Ones())\nDataLoader(a.Ones(), num_workers=0)",
    "a context that does not fork": "DataLoader(a.Ones(), num_workers=2, multiprocessing_context='spawn')",
    "a sampler": "DataLoader(x, num_workers=2, sampler=a.Ones())",
    "a constructor": "class D(Dataset):\n    def __init__(self):\n        a.move(2)\n"
    "    def __getitem__(self, i):\n        return i\nDataLoader(D(), num_workers=2)",
    "a function that makes it": "def make():\n    a.move(2)\n    return [2]\n"
    "DataLoader(make(), num_workers=2)",
    "a type": "class D(Dataset):\n    def __getitem__(self, i):\n        return x[i].to(self.dtype)\n"
    "DataLoader(D(), num_workers=2)",
}
_ONES = (
    "class Ones:\n    def __getitem__(self, i):\n        return self.x.cuda()\ndef move(x):\n    x.cuda()\n"
)


@pytest.mark.parametrize(
    ("code", "forked"),
    [*((each, True) for each in LOADING.values()), *((each, False) for each in NOT_LOADING.values())],
    ids=[*LOADING, *NOT_LOADING],
)
def test_workers_of_data_loaders_that_use_cuda(code: str, forked: bool) -> None:
    assert project(main=_DATA + code, a=_ONES).is_forked("/p/a.py") is forked


def test_only_files_that_run_together_are_forked() -> None:
    start = "from multiprocessing import Process\nimport model\nProcess(target=model.f)"
    files = project(main=start, model="def f():\n    x.to(y)", other="x = x.to(y)")
    assert [files.is_forked(f"/p/{name}.py") for name in ("main", "model", "other")] == [True, True, False]
    assert not files.is_late("/p/main.py")


@pytest.mark.parametrize(("imports", "forked"), [("numpy", False), ("net", True)])
def test_forks_use_cuda_if_their_file_mentions_devices(imports: str, forked: bool) -> None:
    pool = f"from multiprocessing import Pool\nfrom {imports} import f\nworkers = Pool(2)\nprint(f(2))"
    code = {"pool": pool, "main": "import pool\nx.cuda()", "net": "def f(x):\n    x.cuda()"}
    files = Project(ProjectFile(text.encode(), f"/p/{name}.py") for name, text in code.items())
    assert files.is_forked("/p/main.py") is forked


def test_star_names() -> None:
    files = project(a="from b import *", b="device = 'cuda'\nx = 1\n_y = 2", c="x = 1")
    assert files.star_names("/p/a.py") == {"device": True, "x": False}
    assert files.star_names("/p/c.py") == {}
    assert files.star_names("/p/z.py") == {}


@pytest.mark.parametrize(
    ("name", "expected"), [("bound", True), ("read", True), ("other", False), ("_read", False)]
)
def test_carried(name: str, expected: bool) -> None:
    files = project(a="x = 1", b="from a import *\nbound = 1\nprint(read, _read)")
    assert files.carried("/p/a.py", name) is expected
    assert not files.carried("/p/b.py", name)


def test_has_module() -> None:
    files = project(a="x = 1", b="x = 1")
    assert files.has_module("/p/a.py", "b")
    assert not files.has_module("/p/a.py", "torch")


@pytest.mark.parametrize("order", [("json", "other"), ("other", "json")])
def test_a_file_never_imports_itself_whichever_is_asked_about_first(order: tuple[str, str]) -> None:
    files = project(json="import json", other="import json")
    found = {name: files.has_module(f"/p/{name}.py", "json") for name in order}
    assert found == {"json": False, "other": True}


def test_answers_are_remembered_and_compared() -> None:
    one, other = project(a="self.use_cuda = torch.cuda.is_available()"), project(a="self.use_cuda = x")
    assert one.is_flag("use_cuda")
    assert one.answers == {("is_flag", "use_cuda"): True}
    assert one.agrees(one.answers)
    assert not other.agrees(one.answers)
    assert other.agrees({})


def test_a_project_that_was_asked_goes_to_another_process() -> None:
    loader = "from torch.utils.data import DataLoader\nimport data\nDataLoader(data.Rows(), num_workers=2)\n"
    asked = project(use=loader, data="class Rows:\n    def __getitem__(self, i):\n        return i.cuda()\n")
    assert asked.is_forked("/p/use.py")
    for file in asked.files.values():
        asked.informed(file)
    assert pickle.loads(pickle.dumps(asked)).is_forked("/p/use.py")
