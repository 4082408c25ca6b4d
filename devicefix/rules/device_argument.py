from __future__ import annotations

import ast
from collections.abc import Iterator

from devicefix.devices.arguments import device_fix, device_of_tensor, is_gpu_index
from devicefix.facts.values import cuda_device, cuda_string, device_name, integer, last_name
from devicefix.model import Finding
from devicefix.rules.base import Changed, Rule

# Not where tensors go but what for: on a CPU they switch themselves off.
_OFF_BY_THEMSELVES = (
    "torch.autocast",
    "torch.amp.autocast",
    "torch.amp.GradScaler",
    "torch.amp.autocast_mode.autocast",
)
# Rules of their own look at these, or they ignore their devices on a CPU.
_OTHER_RULES = (
    "torch.device",
    "torch.load",
    "torch.jit.load",
    "torch.hub.load_state_dict_from_url",
    "torch.nn.DataParallel",
    "torch.nn.parallel.DataParallel",
    "torch.nn.parallel.DistributedDataParallel",
    "torch.nn.parallel.distributed.DistributedDataParallel",
)


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
            "import torch\n\nx = torch.zeros(3, device=y.get_device())\n",
            "import torch\n\nx = torch.zeros(3, device=y.device)\n",
        ),
        Changed(
            "import torch\n\ngenerate = pipeline(device=0)\n",
            'import torch\n\ngenerate = pipeline(device=0 if torch.cuda.is_available() else "cpu")\n',
        ),
        Changed(
            "import torch\n\n\ndef loaders(device, size):\n    pass\n\n\ndef worker(gpu):\n    loaders(gpu, 3)\n    loaders('cuda:0', 3)\n",
            "import torch\n\n\ndef loaders(device, size):\n    pass\n\n\ndef worker(gpu):\n"
            "    loaders(gpu if torch.cuda.is_available() else 'cpu', 3)\n"
            "    loaders('cuda:0' if torch.cuda.is_available() else 'cpu', 3)\n",
        ),
        Changed(
            'import torch\n\ntorch.set_default_device("cuda")\n',
            'import torch\n\ndevice = torch.device("cuda" if torch.cuda.is_available() else "cpu")\n\n'
            "torch.set_default_device(device)\n",
        ),
    )
    LEAVES = (
        "import torch\n\nevaluator = Evaluator(device=gpu_id)\n",
        "import torch\n\n\ndef run(device):\n    return device >= 0\n\n\nrun(device=args.gpu)\ncuda = 1\n",
        "import torch\n\nnet = torch.nn.DataParallel(net, device_ids=[0], output_device=0)\n",
        "import torch\n\ndetector = Detector(path, device_id=0)\n",
        'import torch\n\nwith torch.autocast(device_type="cuda"):\n    pass\n',
        "import torch\n\nx = torch.randn(4, device=device)\n",
        "import cv2\n\ncamera = cv2.VideoCapture(0)\n",
    )

    def visit_Call(self, node: ast.Call) -> Iterator[Finding]:
        name = self.facts.resolve(node.func) or ""
        if name in _OFF_BY_THEMSELVES or name in _OTHER_RULES or name.startswith("torch.cuda."):
            return
        of_torch = name.startswith("torch.")
        for value in self._devices(node, name):
            device = self.facts.call(value, "torch.device") and cuda_device(self.facts, value)
            number = integer(value) or (is_gpu_index(value) and (of_torch or self._number_of_gpu(value)))
            place = of_torch and device_of_tensor(self.context, value) is not None
            if not (device or cuda_string(value) or number or place):
                continue
            if self.facts.is_guarded(value):
                continue
            takes_object = of_torch or device
            fix = device_fix(self.context, value) if takes_object else self.context.when_cuda(value, '"cpu"')
            if fix is None:
                continue  # put together from parts: the rule for torch.device sees to it
            self.context.mark_handled(value)
            yield self.finding(
                value,
                f"`{self.context.source.code(value)}` is handed on as a device: there may be no CUDA",
                fix,
            )

    def _number_of_gpu(self, value: ast.expr) -> bool:
        """Whether a number can be replaced by the name of a device: it is no list, and never -1."""
        if self.facts.torch_name(value) is None:
            return False
        values = [binding.value for binding in self.facts.bindings(value)]
        return not any(isinstance(each, (ast.List, ast.UnaryOp, ast.Call)) for each in values)

    def _devices(self, node: ast.Call, name: str) -> Iterator[ast.expr]:
        """The arguments that are devices: by their keyword, or by the parameter of the project's own function."""
        function = last_name(node.func)
        for each in node.keywords:
            if each.arg is None or not takes_device(each.arg):
                continue
            if name.startswith("torch.") or cuda_string(each.value):
                yield each.value
            elif not (integer(each.value) or self._may_be_device(each.value)):
                continue
            elif self.context.project.has_function(function):
                if self.context.project.takes_device_called(function, each.arg):
                    yield each.value
            elif each.arg == "device" and not is_gpu_index(each.value):
                yield each.value  # `device_id=0` of another library is a number on a CPU too
        if name in ("torch.Generator", "torch.set_default_device"):
            yield from node.args[:1]
        elif (
            function != "to"
            and not name.startswith("torch.")
            and not any(isinstance(arg, ast.Starred) for arg in node.args)
        ):
            for position, value in enumerate(node.args):
                if self._may_be_device(value) and self.context.project.takes_device(function, position):
                    yield value

    def _may_be_device(self, value: ast.expr) -> bool:
        """Whether a value is one that this rule has something to say about, where it is a device."""
        if integer(value):
            return False
        return cuda_string(value) or is_gpu_index(value) or self.facts.call(value, "torch.device")


def takes_device(keyword: str) -> bool:
    """Whether an argument of this name is a device."""
    return keyword == "map_location" or device_name(keyword)
