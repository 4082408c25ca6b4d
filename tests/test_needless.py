"""Code that no fix is needed for: it never runs without CUDA, or does the same there."""

from __future__ import annotations

from textwrap import dedent

import pytest
from helpers import analyze

# Programs by name; a comment `# DF101` names the finding of a line, if it has one.
PROGRAMS = {
    "a list of all GPUs, which may be empty": """
        import torch

        gpus = [torch.device("cuda:%d" % i) for i in range(torch.cuda.device_count())]
        if len(gpus) > 1:
            spread(model)
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
