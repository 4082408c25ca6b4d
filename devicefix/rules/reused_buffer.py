from __future__ import annotations

import ast
from collections.abc import Iterator

from devicefix.facts.copies import held_copies
from devicefix.model import Finding
from devicefix.rules.base import Example, Rule
from devicefix.rules.kept_view import changed_and_used, copied, copy_of_array


class ReusedBuffer(Rule):
    """
    ## What it does
    Finds `torch.from_numpy(buffer).cuda()`, `torch.from_numpy(buffer).to(device)`, `torch.as_tensor(buffer,
    device=...)` and `torch.cuda.FloatTensor(buffer)` if the program changes the NumPy array or the tensor in place and
    later uses the other one. The rule follows values only within a file, and not through every call. `devicefix verify`
    can find other cases.

    ## Why it matters
    On a GPU, the tensor is a copy. On a CPU, it shares memory with the array, so the numbers can be wrong without an
    error.

    ## Example
    ```python
    for step in range(steps):
        frame[:] = read()
        frames.append(torch.from_numpy(frame).cuda())
    ```

    ## Use instead
    ```python
    for step in range(steps):
        frame[:] = read()
        frames.append(torch.from_numpy(frame.copy()).to(device))
    ```

    ## Fix safety
    The fix is unsafe: with CUDA, the results stay the same, but a second copy takes time and memory.
    """

    code = "DF803"
    name = "reused-buffer"
    summary = "A tensor shares memory with a NumPy array only on a CPU"
    words = (b"cuda",)
    INVALID = (
        Example(
            "an array of floats that a typed tensor is made of",
            before="""
                import numpy as np
                import torch

                frame = np.ones(3, dtype=np.float32)
                first = torch.cuda.FloatTensor(frame)
                frame += 1
                print(first)
            """,
            after="""
                import numpy as np
                import torch

                frame = np.ones(3, dtype=np.float32)
                first = (torch.cuda.FloatTensor if torch.cuda.is_available() else torch.FloatTensor)(frame.copy())
                frame += 1
                print(first)
            """,
            unsafe=True,
        ),
        Example(
            "a frame that is filled again in a loop",
            before="""
                import torch

                device = torch.device('cuda')


                def play(env, frame):
                    frames = []
                    for _ in range(9):
                        frame[:] = env.read()
                        frames.append(torch.from_numpy(frame).to(device))
                    return frames
            """,
            after="""
                import torch

                device = torch.device('cuda' if torch.cuda.is_available() else 'cpu')


                def play(env, frame):
                    frames = []
                    for _ in range(9):
                        frame[:] = env.read()
                        frames.append(torch.from_numpy(frame.copy()).to(device))
                    return frames
            """,
            unsafe=True,
        ),
        Example(
            "a buffer that is changed between two uses",
            before="""
                import numpy as np
                import torch

                buffer = np.zeros(3, np.float32)
                first = torch.from_numpy(buffer).cuda()
                buffer += 1
                second = torch.from_numpy(buffer).cuda()
                print(second - first)
            """,
            after="""
                import numpy as np
                import torch

                device = torch.device("cuda" if torch.cuda.is_available() else "cpu")

                buffer = np.zeros(3, np.float32)
                first = torch.from_numpy(buffer.copy()).to(device)
                buffer += 1
                second = torch.from_numpy(buffer).to(device)
                print(second - first)
            """,
            unsafe=True,
        ),
    )
    VALID = (
        Example(
            "a new array in every round",
            """
                import torch


                def play(env):  # cuda
                    frames = []
                    for _ in range(9):
                        frame = env.read()
                        frame[0] = 0
                        frames.append(torch.from_numpy(frame).to(device))
                    return frames
            """,
        ),
        Example(
            "used up before the array changes",
            """
                import torch


                def play(model, frame):  # cuda
                    for _ in range(9):
                        x = torch.from_numpy(frame).to(device)
                        frame[:] = model(x)
            """,
        ),
        Example(
            "float copies the array",
            """
                import torch


                def play(model, frame):  # cuda
                    x = torch.from_numpy(frame).float().to(device)
                    frame[:] = 0
                    return x
            """,
        ),
        Example(
            "shared with CUDA as well",
            """
                import torch


                def play(frame):  # no cuda
                    x = torch.from_numpy(frame)
                    frame[:] = 0
                    return x
            """,
        ),
    )

    def visit_Module(self, node: ast.Module) -> Iterator[Finding]:
        for held in held_copies(self.facts):
            if held.copy.source.buffer:
                what, path = changed_and_used(held), held.copy.source.path
                if held.reverse:
                    line = getattr(held.change, "lineno", None)
                    used = f" before line {held.use} uses it" if held.use else ", which may be used again"
                    what = f"{f'line {line}' if line else 'a later change'} also changes `{path}`{used}"
                copy = copy_of_array(self.context, held)
                message = f"this tensor is not a copy on a CPU, so {what}; pass {copy}"
                yield self.finding(held.copy.outer, message, copied(self.context, held))
