from __future__ import annotations

import ast
from collections.abc import Iterator

from devicefix.facts.values import cuda_device, cuda_string, device_name, integer
from devicefix.finding import Finding
from devicefix.rule import Changed, Rule
from devicefix.rules.to_cuda import gpu_number, named_device

# Not where tensors go but what for: on a CPU they switch themselves off.
_OFF_BY_THEMSELVES = (
    "torch.autocast",
    "torch.amp.autocast",
    "torch.amp.GradScaler",
    "torch.amp.autocast_mode.autocast",
)
# Rules of their own look at these.
_OTHER_RULES = ("torch.device", "torch.load", "torch.jit.load", "torch.hub.load_state_dict_from_url")


class DeviceArgument(Rule):
    """
    ## What it does
    Finds CUDA devices handed to a call: `device="cuda"`, `device=0`, `map_location="cuda:0"`,
    `torch.Generator("cuda")`, `torch.set_default_device("cuda")`.

    ## Why it matters
    The call fails without CUDA, or makes tensors where there is nothing.

    ## Example
    ```python
    noise = torch.randn(4, 3, device="cuda")
    encoder = Encoder(device="cuda")
    ```

    ## Use instead
    ```python
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")

    noise = torch.randn(4, 3, device=device)
    encoder = Encoder(device="cuda" if torch.cuda.is_available() else "cpu")
    ```

    ## Fix safety
    Safe. A function of torch takes a device as well as its name; any other function is handed what it was
    handed before, a string or a number.
    """

    code = "DF202"
    name = "device-argument"
    summary = "A call is handed a CUDA device"
    MATCHES = (
        Changed(
            'import torch\n\nx = torch.randn(4, device="cuda")\n',
            'import torch\n\ndevice = torch.device("cuda" if torch.cuda.is_available() else "cpu")\n\n'
            "x = torch.randn(4, device=device)\n",
        ),
        Changed(
            "import torch\n\nencoder = Encoder(device='cuda:0', depth=2)\n",
            "import torch\n\nencoder = Encoder(device='cuda:0' if torch.cuda.is_available() else 'cpu', depth=2)\n",
        ),
        Changed(
            "import torch\n\ngenerate = pipeline(device=0)\n",
            'import torch\n\ngenerate = pipeline(device=0 if torch.cuda.is_available() else "cpu")\n',
        ),
        Changed(
            'import torch\n\ntorch.set_default_device("cuda")\n',
            'import torch\n\ndevice = torch.device("cuda" if torch.cuda.is_available() else "cpu")\n\n'
            "torch.set_default_device(device)\n",
        ),
    )
    LEAVES = (
        'import torch\n\nwith torch.autocast(device_type="cuda"):\n    pass\n',
        "import torch\n\nx = torch.randn(4, device=device)\n",
        "import cv2\n\ncamera = cv2.VideoCapture(0)\n",
    )

    def visit_Call(self, node: ast.Call) -> Iterator[Finding]:
        name = self.facts.resolve(node.func) or ""
        if name in _OFF_BY_THEMSELVES or name in _OTHER_RULES:
            return
        of_torch = name.startswith("torch.")
        arguments = [each.value for each in node.keywords if each.arg and takes_device(each.arg)]
        if name in ("torch.Generator", "torch.set_default_device"):
            arguments += node.args[:1]
        for value in arguments:
            device = self.facts.call(value, "torch.device") and cuda_device(self.facts, value)
            if not (device or cuda_string(value) or integer(value) or (of_torch and gpu_number(value))):
                continue
            if self.facts.guarded(value):
                continue
            takes_object = of_torch or device
            fix = (
                named_device(self.context, value)
                if takes_object
                else self.context.conditional(value, '"cpu"')
            )
            if fix is None:
                continue  # put together from parts: the rule for torch.device sees to it
            self.context.claim(value)
            yield self.finding(
                value,
                f"`{self.context.source.code(value)}` is handed on as a device: there may be no CUDA",
                fix,
            )


def takes_device(keyword: str) -> bool:
    """Whether an argument of this name is a device."""
    return keyword == "map_location" or device_name(keyword)
