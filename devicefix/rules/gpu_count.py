from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from devicefix.devices.context import Context
from devicefix.facts import COUNTS
from devicefix.facts.flow.parameters import argument_at
from devicefix.facts.flow.taken_numbers import is_only_device
from devicefix.facts.values import last_name
from devicefix.model import Edit, Finding, Fix
from devicefix.rules.base import Example, Rule
from devicefix.rules.shared.counts import Counts, Harm, Refused, is_zero
from devicefix.rules.shared.counts.ranges import made_of

# They ask about a function, or replace it.
_NOT_COUNTED = "a number below 1 may be intended here"
_MAY_BE_MEANT = "the loop may be meant to do nothing without a GPU"
_ASKED = "a configuration file may check whether the number is 0"
_ONE_OF_SEVERAL = "without CUDA, the fixed program uses GPU index 0"
_ANY = "torch.accelerator.device_count"
_ASKING = {"callable", "getattr", "hasattr", "isinstance", "object", "patch", "setattr", "signature", "wraps"}


class GpuCount(Rule):
    """
    ## What it does
    Finds code that probably fails or does nothing if `torch.cuda.device_count()` is 0, for example because the count is
    a number of processes, a factor or a divisor. The rule follows the count through variables, arguments and options.

    ## Why it matters
    Without CUDA, the count is 0. A program that starts 0 processes does nothing and exits successfully, a batch size
    becomes 0, and a division fails.

    ## Example
    ```python
    mp.spawn(worker, nprocs=torch.cuda.device_count())
    rank = node * torch.cuda.device_count() + gpu
    ```

    ## Use instead
    ```python
    mp.spawn(worker, nprocs=max(torch.cuda.device_count(), 1))
    rank = node * max(torch.cuda.device_count(), 1) + gpu
    ```

    ## Fix safety
    The fix is usually safe: with CUDA, the count is the same as before. If the program also checks whether the count is
    0, the fix changes only the uses that need at least 1. If a count of 0 always stops the program, the fix usually
    removes the check and uses at least 1.

    The fix is unsafe if:

    - the changed expressions may also get the number from another source, such as a user who chose 0.
    - the program passes `device_count` to OmegaConf's `register_new_resolver`. A configuration file may check for 0.
    - the program computes a GPU index directly from `device_count()`, and passes the index to other code.
    - the program may work without the results of a loop over the GPUs, because the loop may be meant to do nothing
      without a GPU.
    """

    code = "DF402"
    name = "gpu-count"
    summary = "The number of GPUs is used as if it were never 0"
    words = (b"cuda",)
    common_words = (b"device", b"gpu")
    references = COUNTS
    INVALID = (
        Example(
            "any accelerator",
            before="""
                import torch

                batch = 32 // torch.accelerator.device_count()
            """,
            after="""
                import torch

                batch = 32 // max(torch.accelerator.device_count(), 1)
            """,
        ),
        Example(
            "max that is not the builtin",
            before="""
                import torch
                from torch import *

                x = torch.ones(4).chunk(torch.cuda.device_count())
            """,
        ),
        Example(
            "a number that the program refuses to be 0, before what still needs CUDA",
            before="""
                import torch


                def start():
                    n = torch.cuda.device_count()
                    if n == 0:
                        raise RuntimeError("no GPU")
                    return n / torch.cuda.get_device_properties(0).total_memory


                start()
            """,
            after="""
                import torch


                def start():
                    n = max(torch.cuda.device_count(), 1)
                    return n / torch.cuda.get_device_properties(0).total_memory


                start()
            """,
            unsafe=True,
        ),
        Example(
            "a number that the program refuses to be 0",
            before="""
                import torch


                def start():
                    n = torch.cuda.device_count()
                    assert n > 0, "no GPU"
                    return n


                start()
                m = torch.cuda.device_count()
                if m == 0:
                    raise SystemExit("no GPU")
                if m == 1:
                    run()
            """,
            after="""
                import torch


                def start():
                    n = max(torch.cuda.device_count(), 1)
                    return n


                start()
                m = max(torch.cuda.device_count(), 1)
                if m == 1:
                    run()
            """,
        ),
        Example(
            "the number of processes, by a variable",
            before="""
                import torch
                import torch.multiprocessing as mp


                def main():
                    n = torch.cuda.device_count()
                    mp.spawn(work, nprocs=n, args=(n,))
            """,
            after="""
                import torch
                import torch.multiprocessing as mp


                def main():
                    n = max(torch.cuda.device_count(), 1)
                    mp.spawn(work, nprocs=n, args=(n,))
            """,
        ),
        Example(
            "a divisor",
            before="""
                import torch

                n_gpu = torch.cuda.device_count()
                if n_gpu > 0:
                    net.cuda()
                batch = size // n_gpu
            """,
            after="""
                import torch

                n_gpu = torch.cuda.device_count()
                if n_gpu > 0:
                    net.cuda()
                batch = size // max(n_gpu, 1)
            """,
        ),
        Example(
            "a loop that starts processes",
            before="""
                import torch, subprocess

                n = torch.cuda.device_count()
                for i in range(n):
                    subprocess.Popen(line)
            """,
            after="""
                import torch, subprocess

                n = max(torch.cuda.device_count(), 1)
                for i in range(n):
                    subprocess.Popen(line)
            """,
        ),
        Example(
            "a loop that leaves behind what it does on each GPU",
            before="""
                import torch

                total = 0
                for gpu in range(torch.cuda.device_count()):
                    total += rows[gpu].cuda(gpu).sum()
                print(total)
            """,
            after="""
                import torch

                total = 0
                for gpu in range(max(torch.cuda.device_count(), 1)):
                    total += rows[gpu].to(torch.device("cuda", gpu) if torch.cuda.is_available() else "cpu").sum()
                print(total)
            """,
            unsafe=True,
        ),
        Example(
            "a queue of GPUs",
            before="""
                import queue
                import torch

                pool = queue.Queue()
                for i in range(torch.cuda.device_count()):
                    pool.put(i)
                gpu = pool.get()
            """,
            after="""
                import queue
                import torch

                pool = queue.Queue()
                for i in range(max(torch.cuda.device_count(), 1)):
                    pool.put(i)
                gpu = pool.get()
            """,
            unsafe=True,
        ),
        Example(
            "the choices of an option, and a step",
            before="""
                import torch

                parser.add_argument("--gpu", type=int, choices=range(torch.cuda.device_count()))
                own = rows[:: torch.cuda.device_count()]
            """,
            after="""
                import torch

                parser.add_argument("--gpu", type=int, choices=range(max(torch.cuda.device_count(), 1)))
                own = rows[:: max(torch.cuda.device_count(), 1)]
            """,
        ),
        Example(
            "a world size with an option before it",
            before="""
                import torch

                world_size = args.n or torch.cuda.device_count()
                start(nprocs=world_size)
            """,
            after="""
                import torch

                world_size = args.n or max(torch.cuda.device_count(), 1)
                start(nprocs=world_size)
            """,
        ),
        Example(
            "the number of processes, by a minimum",
            before="""
                import torch

                spawn(work, nprocs=min(torch.cuda.device_count(), size))
            """,
            after="""
                import torch

                spawn(work, nprocs=min(max(torch.cuda.device_count(), 1), size))
            """,
        ),
        Example(
            "a factor",
            before="""
                import torch

                batch = 32 * torch.cuda.device_count()
            """,
            after="""
                import torch

                batch = 32 * max(torch.cuda.device_count(), 1)
            """,
        ),
        Example(
            "a world size in an attribute",
            before="""
                import torch

                args.world_size = torch.cuda.device_count()
            """,
            after="""
                import torch

                args.world_size = max(torch.cuda.device_count(), 1)
            """,
        ),
        Example(
            "chunks, a remainder and a size",
            before="""
                import torch

                n = torch.cuda.device_count()
                parts = x.chunk(n)
                gpu = rank % n
                totals = torch.zeros(n, 3)
            """,
            after="""
                import torch

                n = max(torch.cuda.device_count(), 1)
                parts = x.chunk(n)
                gpu = rank % n
                totals = torch.zeros(n, 3)
            """,
        ),
        Example(
            "the first of all devices",
            before="""
                import torch

                first = [torch.device("cuda", i) for i in range(torch.cuda.device_count())][0]
            """,
            after="""
                import torch

                first = [torch.device("cuda", i) if torch.cuda.is_available() else torch.device("cpu") for i in range(
                    max(torch.cuda.device_count(), 1)
                )][0]
            """,
        ),
        Example(
            "the number of devices in a list",
            before="""
                import torch

                ids = list(range(torch.cuda.device_count()))
                share = batch // len(ids)
            """,
            after="""
                import torch

                ids = list(range(max(torch.cuda.device_count(), 1)))
                share = batch // len(ids)
            """,
        ),
        Example(
            "a GPU whose number is also the text of a variable of the environment",
            before="""
                import os
                import torch

                def start(q7):
                    q7.gpu = q7.rank % torch.cuda.device_count()
                    os.environ["LOCAL_RANK"] = str(q7.gpu)
                    torch.cuda.set_device(q7.gpu)
            """,
            after="""
                import os
                import torch

                def start(q7):
                    q7.gpu = q7.rank % max(torch.cuda.device_count(), 1)
                    os.environ["LOCAL_RANK"] = str(q7.gpu)
                    if torch.cuda.is_available():
                        torch.cuda.set_device(q7.gpu)
            """,
        ),
        Example(
            "a number of processes with the world size, and a check for 0",
            before="""
                import torch
                import torch.multiprocessing as mp

                gpus = torch.cuda.device_count()
                if gpus == 0:
                    print("no GPU")
                mp.spawn(work, nprocs=gpus, args=(gpus, 3))
            """,
            after="""
                import torch
                import torch.multiprocessing as mp

                gpus = torch.cuda.device_count()
                if gpus == 0:
                    print("no GPU")
                mp.spawn(work, nprocs=max(gpus, 1), args=(max(gpus, 1), 3))
            """,
        ),
        Example(
            "the replicas of a sampler, and the workers of a pool",
            before="""
                import torch
                from multiprocessing import Pool
                from torch.utils.data import DistributedSampler

                sampler = DistributedSampler(data, num_replicas=torch.cuda.device_count(), rank=0)
                pool = Pool(torch.cuda.device_count())
            """,
            after="""
                import torch
                from multiprocessing import Pool
                from torch.utils.data import DistributedSampler

                sampler = DistributedSampler(data, num_replicas=max(torch.cuda.device_count(), 1), rank=0)
                pool = Pool(max(torch.cuda.device_count(), 1))
            """,
        ),
        Example(
            "a number in an attribute, an argument and an option",
            before="""
                import torch


                class Trainer:
                    def __init__(self):
                        self.q7 = torch.cuda.device_count()

                    def share(self, batch):
                        return batch // self.q7


                def share(batch, parts):
                    return batch / parts


                share(8, torch.cuda.device_count())
                parser.add_argument("--parts", default=torch.cuda.device_count())
                batch //= parser.parse_args().parts
            """,
            after="""
                import torch


                class Trainer:
                    def __init__(self):
                        self.q7 = max(torch.cuda.device_count(), 1)

                    def share(self, batch):
                        return batch // self.q7


                def share(batch, parts):
                    return batch / parts


                share(8, max(torch.cuda.device_count(), 1))
                parser.add_argument("--parts", default=max(torch.cuda.device_count(), 1))
                batch //= parser.parse_args().parts
            """,
        ),
        Example(
            "the last index",
            before="""
                import torch, random

                n = torch.cuda.device_count()
                gpu = random.randint(0, n - 1)
                if rank == n - 1:
                    save(parts[n - 1])
            """,
            after="""
                import torch, random

                n = max(torch.cuda.device_count(), 1)
                gpu = random.randint(0, n - 1)
                if rank == n - 1:
                    save(parts[n - 1])
            """,
        ),
        Example(
            "an argument of a call that another rule guards, too",
            before="""
                import torch

                n = torch.cuda.device_count()
                torch.cuda.set_device(rank % n)
                share = batch // n
            """,
            after="""
                import torch

                n = max(torch.cuda.device_count(), 1)
                if torch.cuda.is_available():
                    torch.cuda.set_device(rank % n)
                share = batch // n
            """,
        ),
        Example(
            "an argument of a library, for which 1 is a GPU",
            before="""
                import torch

                gpus = torch.cuda.device_count()
                trainer = Trainer(gpus=gpus)
                share = batch // gpus
            """,
            after="""
                import torch

                gpus = torch.cuda.device_count()
                trainer = Trainer(gpus=gpus)
                share = batch // max(gpus, 1)
            """,
        ),
        Example(
            "a loop that asks each GPU",
            before="""
                import torch

                gpus = torch.cuda.device_count()
                for i in range(gpus):
                    print(torch.cuda.get_device_properties(i))
                share = batch // gpus
            """,
            after="""
                import torch

                gpus = torch.cuda.device_count()
                for i in range(gpus):
                    print(torch.cuda.get_device_properties(i))
                share = batch // max(gpus, 1)
            """,
        ),
        Example(
            "a number that is 0 by choice, too",
            before="""
                import torch

                gpus = 0 if args.cpu else torch.cuda.device_count()
                if gpus > 0:
                    print("GPUs")
                batch = 8 * gpus
            """,
            after="""
                import torch

                gpus = 0 if args.cpu else torch.cuda.device_count()
                if gpus > 0:
                    print("GPUs")
                batch = 8 * max(gpus, 1)
            """,
            unsafe=True,
        ),
        Example(
            "a minimum that may be 0 on purpose",
            before="""
                import torch

                gpus = min(torch.cuda.device_count(), args.gpus)
                if gpus > 0:
                    print("GPUs")
                share = batch // gpus
            """,
            after="""
                import torch

                gpus = min(torch.cuda.device_count(), args.gpus)
                if gpus > 0:
                    print("GPUs")
                share = batch // max(gpus, 1)
            """,
            unsafe=True,
        ),
        Example(
            "a default of an environment variable",
            before="""
                import os
                import torch

                n = int(os.environ.get("PARTS", torch.cuda.device_count()))
                share = batch // n
            """,
            after="""
                import os
                import torch

                n = int(os.environ.get("PARTS", max(torch.cuda.device_count(), 1)))
                share = batch // n
            """,
        ),
        Example(
            "a number that a pattern gets, one in a dictionary, and one that a call follows",
            before="""
                import torch

                match torch.cuda.device_count():
                    case n:
                        share = batch // n
                n = {"gpus": torch.cuda.device_count()}["gpus"]
                model = torch.cuda.device_count() and make_parallel(model)
            """,
            after="""
                import torch

                match max(torch.cuda.device_count(), 1):
                    case n:
                        share = batch // n
                n = {"gpus": torch.cuda.device_count()}["gpus"]
                model = torch.cuda.device_count() and make_parallel(model)
            """,
        ),
        Example(
            "a list whose elements are used, and which is checked for being empty",
            before="""
                import torch

                q7 = [i for i in range(torch.cuda.device_count())]
                if q7:
                    torch.cuda.synchronize()
                first = names[q7[0]]
            """,
        ),
        Example(
            "a list whose elements are used, and which is checked for more than one",
            before="""
                import torch

                q7 = [torch.device("cuda", i) for i in range(torch.cuda.device_count())]
                if len(q7) > 1:
                    torch.cuda.synchronize()
                x = torch.ones(1, device=q7[0])
            """,
            after="""
                import torch

                q7 = [torch.device("cuda", i) if torch.cuda.is_available() else torch.device("cpu") for i in range(
                    max(torch.cuda.device_count(), 1)
                )]
                if len(q7) > 1:
                    torch.cuda.synchronize()
                x = torch.ones(1, device=q7[0])
            """,
        ),
        Example(
            "a list that is filled in a loop",
            before="""
                import torch

                devices = []
                for i in range(torch.cuda.device_count()):
                    devices.append(torch.device("cuda", i))
                net.to(devices[0])
            """,
            after="""
                import torch

                devices = []
                for i in range(max(torch.cuda.device_count(), 1)):
                    devices.append(torch.device("cuda", i) if torch.cuda.is_available() else torch.device("cpu"))
                net.to(devices[0])
            """,
        ),
        Example(
            "0 without CUDA, by a statement",
            before="""
                import torch

                if torch.cuda.is_available():
                    gpus = torch.cuda.device_count()
                else:
                    gpus = 0
                share = batch // gpus
            """,
            after="""
                import torch

                if torch.cuda.is_available():
                    gpus = torch.cuda.device_count()
                else:
                    gpus = 0
                share = batch // max(gpus, 1)
            """,
        ),
        Example(
            "0 without CUDA, by a choice",
            before="""
                import torch

                n = torch.cuda.device_count() if torch.cuda.is_available() else 0
                share = batch // n
            """,
            after="""
                import torch

                n = max(torch.cuda.device_count() if torch.cuda.is_available() else 0, 1)
                share = batch // n
            """,
        ),
        Example(
            "the function that counts, for a configuration file",
            before="""
                import torch
                from omegaconf import OmegaConf

                OmegaConf.register_new_resolver("gpus", torch.cuda.device_count)
            """,
            after="""
                import torch
                from omegaconf import OmegaConf

                OmegaConf.register_new_resolver("gpus", lambda: max(torch.cuda.device_count(), 1))
            """,
            unsafe=True,
        ),
        Example(
            "the first GPU, which goes out of sight",
            before="""
                import torch

                launch(gpu=list(range(torch.cuda.device_count()))[0])
            """,
            after="""
                import torch

                launch(gpu=list(range(max(torch.cuda.device_count(), 1)))[0])
            """,
            unsafe=True,
        ),
        Example(
            "a loop without which there is an error",
            before="""
                import torch

                def move(x):
                    for i in range(torch.cuda.device_count()):
                        return move_to(x, i)
                    raise RuntimeError("no GPU")
            """,
        ),
        Example(
            "a list in an object, from which an element is used",
            before="""
                import torch, types

                gpus = types.SimpleNamespace(all=[i for i in range(torch.cuda.device_count())]).all
                first = names[gpus[0]]
            """,
        ),
    )
    VALID = (
        Example(
            "loops that ask about GPUs, list them, or whose result is checked",
            """
                import torch

                found, devices, parts, names = [], [], [], ""
                for i in range(torch.cuda.device_count()):
                    properties = torch.cuda.get_device_properties(i)
                    print(properties.name)
                    found.append(properties.name)
                for i in range(torch.cuda.device_count()):
                    with torch.cuda.device(i):
                        found.append(torch.cuda.mem_get_info()[0])
                for i in range(torch.cuda.device_count()):
                    devices.append(torch.device("cuda", i))
                    names += f"{i},"
                for i in range(torch.cuda.device_count()):
                    x = torch.zeros(8).cuda(i)
                    torch.cuda.synchronize(i)
                for i in range(torch.cuda.device_count()):
                    parts.append(net(rows[i].cuda(i)))
                if not parts:
                    parts = [net(rows)]
                print(found, devices, names, parts)
            """,
        ),
        Example(
            "at least one by `or`",
            """
                import torch

                n = torch.cuda.device_count() or 1
                share = batch // n
            """,
        ),
        Example(
            "a list of names, which may be empty",
            """
                import torch

                names = [str(i) for i in range(torch.cuda.device_count())]
                print(names)
            """,
        ),
        Example(
            "a format",
            """
                import torch

                print("%d GPUs" % torch.cuda.device_count())
            """,
        ),
        Example(
            "a comparison",
            """
                import torch

                if torch.cuda.device_count() > 1:
                    net = torch.nn.DataParallel(net)
            """,
        ),
        Example(
            "a text about one GPU or several, and a function that is replaced",
            """
                import torch

                n = torch.cuda.device_count()
                print(f"{n} GPU{'' if n == 1 else 's'}")
                monkeypatch.setattr(torch.cuda, "device_count", torch.cuda.device_count)
            """,
        ),
        Example(
            "a number that is printed",
            """
                import torch

                n = torch.cuda.device_count()
                print(n)
            """,
        ),
        Example(
            "at least one already",
            """
                import torch

                batch = 32 * max(1, torch.cuda.device_count())
            """,
        ),
        Example(
            "under a guard",
            """
                import torch

                if torch.cuda.is_available():
                    batch = size // torch.cuda.device_count()
            """,
        ),
        Example(
            "an argument of a call that another rule guards",
            """
                import torch

                torch.cuda.set_device(rank % torch.cuda.device_count())
            """,
        ),
    )

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._counts = Counts(context.facts)
        self._refused = Refused(context)
        self._reported: set[ast.expr] = set()

    def visit_Call(self, node: ast.Call) -> Iterator[Finding]:
        if self.facts.call(node, *COUNTS):
            for count in self._zeros(node) if self.facts.is_guarded(node) else (node,):
                yield from self._check(count, _problem_of(self.facts.call(node, _ANY)))

    def visit_reference(self, node: ast.Attribute | ast.Name, name: str) -> Iterator[Finding]:
        """Check the function itself, as an argument, such as that of a resolver for configuration files."""
        found = argument_at(self.facts.tree, node)
        if found is not None and last_name(found[0].func) not in _ASKING and not self.facts.is_guarded(node):
            edit = Edit(*self.context.source.span(node), lambda text: f"lambda: max({text}(), 1)")
            resolves = (self.facts.resolve(found[0].func) or "").endswith("OmegaConf.register_new_resolver")
            fix = Fix((edit,), _ASKED) if resolves and self.context.has_builtin(node, "max") else None
            advice = "check that the code using it works without a GPU"
            if fix is not None:
                advice = "pass a function that returns at least 1"
            problem = "may return 0" if name == _ANY else "returns 0 without CUDA"
            yield self.finding(node, f"`{name}` {problem}; {advice}", fix)

    def _check(self, count: ast.expr, problem: str) -> Iterator[Finding]:
        """Check where a number goes that is 0 without CUDA, which is a problem with a place for what it is then."""
        checks = list(self._refused.checks(count))
        if checks:
            self.context.mark_handled(*(check for check, _ in checks))
            yield self._found(count, problem, removed=[edit for _, edits in checks for edit in edits])
            return
        harmed, whole = self._counts.judge(count)
        if count in harmed and self._counts.is_checked(count):
            advice = "check for an empty list wherever the elements are used"
            yield self.finding(count, f"the list built from {problem.format('empty')}; {advice}")
            return
        if whole:
            yield self._found(count, problem)
            return
        for use, harm in harmed.items():
            if use not in self._reported:
                self._reported.add(use)
                known = self._counts.is_natural if harm is Harm.ERROR else self._counts.is_count
                yield self._found(use, problem, "" if known(use) else _NOT_COUNTED)
        uses = self._counts.uses.follow(count).uses
        for use in uses:
            if use not in harmed and self._counts.works(use):
                yield self._found(use, problem, _MAY_BE_MEANT)
        if any(self._counts.escapes(use) for use in uses if use not in harmed):
            advice = "check that the code using it works without a GPU"
            yield self.finding(count, f"{problem.format(0)}; {advice}")

    def _found(self, node: ast.expr, problem: str, why: str = "", removed: Sequence[Edit] = ()) -> Finding:
        number = self._number(node)
        if number is not None and not is_only_device(self.context.forwards, number):
            why = _ONE_OF_SEVERAL
        edit = Edit(*self.context.source.span(node), lambda text: f"max({text}, 1)")
        fix = Fix((edit, *removed), why) if self.context.has_builtin(node, "max") else None
        message = f"{problem.format(0)}; use at least 1"
        return self.finding(node, message, fix, "because `max` may be redefined here")

    def _number(self, count: ast.expr) -> ast.expr | None:
        """Return the number of one GPU that is made of the number of all: `rank % n`, `list(range(n))[0]`."""
        parent = self.facts.tree.parents.get(count)
        match parent:
            case ast.BinOp(op=ast.Mod(), right=right) if right is count:
                return parent
            case ast.Call() if last_name(parent.func) == "range":
                made = made_of(self.facts.tree, parent)
                item = self.facts.tree.parents.get(made) if made is not None else None
                return item if isinstance(item, ast.Subscript) and item.value is made else None
        return None

    def _zeros(self, node: ast.Call) -> Iterator[ast.expr]:
        """Yield what is 0 without CUDA, where a call is evaluated only with it.

        That is `torch.cuda.device_count() if … else 0` around the call, or the 0 that its variable is bound to.
        """
        parent = self.facts.tree.parents.get(node)
        match parent:
            case ast.IfExp(body=body, orelse=orelse) if not self.facts.is_guarded(parent):
                if is_zero(orelse if node is body else body):
                    yield parent
            case ast.Assign(targets=[target]):
                values = [binding.value for binding in self.facts.bindings(target)]
                yield from (value for value in values if value is not None and is_zero(value))


def _problem_of(is_of_any: bool) -> str:
    """Return what is wrong with a number of GPUs, or of accelerators of any kind."""
    return "the number of accelerators may be {}" if is_of_any else "the number of GPUs is {} without CUDA"
