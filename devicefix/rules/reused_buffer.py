from __future__ import annotations

import ast
from collections.abc import Iterator

from devicefix.facts.copies import held_copies
from devicefix.model import Finding
from devicefix.rules.base import Changed, Rule
from devicefix.rules.kept_view import changed_and_used, copied


class ReusedBuffer(Rule):
    """
    ## What it does
    Finds `torch.from_numpy(buffer).cuda()`, `.to(device)` and `torch.as_tensor(buffer, device=...)` whose
    tensor is used again after the NumPy array has been changed in place.

    ## Why it matters
    `torch.from_numpy` shares the array's memory. On a GPU the move behind it copies; on a CPU it does
    nothing, so that the tensor changes along with the array. Nothing fails; the numbers are wrong.

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
    Unsafe: with CUDA it costs a second copy. The numbers stay the same there.
    """

    code = "DF803"
    name = "reused-buffer"
    summary = "A tensor made of a NumPy array is used after the array has changed"
    MATCHES = (
        Changed(
            "import torch\n\ndevice = torch.device('cuda')\n\n\ndef play(env, frame):\n    frames = []\n    for _ in range(9):\n        frame[:] = env.read()\n"
            "        frames.append(torch.from_numpy(frame).to(device))\n    return frames\n",
            "import torch\n\ndevice = torch.device('cuda' if torch.cuda.is_available() else 'cpu')\n\n\ndef play(env, frame):\n    frames = []\n    for _ in range(9):\n        frame[:] = env.read()\n"
            "        frames.append(torch.from_numpy(frame.copy()).to(device))\n    return frames\n",
            unsafe=True,
        ),
        Changed(
            "import numpy as np\nimport torch\n\nbuffer = np.zeros(3, np.float32)\nfirst = torch.from_numpy(buffer).cuda()\nbuffer += 1\nsecond = torch.from_numpy(buffer).cuda()\nprint(second - first)\n",
            "import numpy as np\nimport torch\n\n"
            'device = torch.device("cuda" if torch.cuda.is_available() else "cpu")\n\n'
            "buffer = np.zeros(3, np.float32)\nfirst = torch.from_numpy(buffer.copy()).to(device)\nbuffer += 1\nsecond = torch.from_numpy(buffer).to(device)\nprint(second - first)\n",
            unsafe=True,
        ),
    )
    LEAVES = (
        # A new array in every round.
        "import torch\n\n\ndef play(env):  # cuda\n    frames = []\n    for _ in range(9):\n        frame = env.read()\n        frame[0] = 0\n"
        "        frames.append(torch.from_numpy(frame).to(device))\n    return frames\n",
        # Used up before the array changes.
        "import torch\n\n\ndef play(model, frame):  # cuda\n    for _ in range(9):\n        x = torch.from_numpy(frame).to(device)\n        frame[:] = model(x)\n",
        # `float()` copies what is not float32 already.
        "import torch\n\n\ndef play(model, frame):  # cuda\n    x = torch.from_numpy(frame).float().to(device)\n    frame[:] = 0\n    return x\n",
        # Shared with CUDA as well.
        "import torch\n\n\ndef play(frame):  # no cuda\n    x = torch.from_numpy(frame)\n    frame[:] = 0\n    return x\n",
    )

    def visit_Module(self, node: ast.Module) -> Iterator[Finding]:
        for held in held_copies(self.facts):
            if held.source.buffer:
                what = changed_and_used(held)
                if held.reverse:
                    line = getattr(held.change, "lineno", None)
                    what = f"is changed in line {line}, and the array is used after that (line {held.use})"
                message = (
                    f"this tensor is a copy on a GPU only: on a CPU `{held.holder}` shares the memory of"
                    f" `{held.source.path}`, {what}; hand over `{held.source.path}.copy()`"
                )
                yield self.finding(held.outer, message, copied(self.context, held))
