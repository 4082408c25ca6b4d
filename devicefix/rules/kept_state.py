from __future__ import annotations

import ast
from collections.abc import Iterator

from devicefix.facts.copies import held_copies
from devicefix.model import Finding
from devicefix.rules.base import Changed, Rule
from devicefix.rules.kept_view import copied, remedy


class KeptState(Rule):
    """
    ## What it does
    Finds parameters of a model that are moved to the CPU (or a GPU) to be kept while training goes on:
    `best = {k: v.cpu() for k, v in model.state_dict().items()}`.

    ## Why it matters
    On a GPU `.cpu()` copies. On a CPU it returns the parameter itself, which the next step of the optimizer
    changes: `best` is always the last state, not the best. Nothing fails; the result is wrong.

    ## Example
    ```python
    for epoch in range(epochs):
        train(model, optimizer)
        if accuracy(model) > highest:
            best = {k: v.cpu() for k, v in model.state_dict().items()}
    model.load_state_dict(best)
    ```

    ## Use instead
    ```python
            best = {k: v.cpu().clone() for k, v in model.state_dict().items()}
    ```

    ## Fix safety
    Unsafe: with CUDA it costs a second copy. The numbers stay the same there.
    """

    code = "DF801"
    name = "kept-state"
    summary = "Parameters are kept without a copy while training goes on"
    MATCHES = (
        Changed(
            "def fit(model, optimizer, loader):  # on cuda\n    best = None\n    for x in loader:\n        model(x).backward()\n        optimizer.step()\n"
            "        if better(model):\n            best = {k: v.cpu() for k, v in model.state_dict().items()}\n    model.load_state_dict(best)\n",
            "def fit(model, optimizer, loader):  # on cuda\n    best = None\n    for x in loader:\n        model(x).backward()\n        optimizer.step()\n"
            "        if better(model):\n            best = {k: v.cpu().clone() for k, v in model.state_dict().items()}\n    model.load_state_dict(best)\n",
            unsafe=True,
        ),
        Changed(
            "from collections import OrderedDict\n\n\nclass Stopping:  # on cuda\n    def __call__(self, loss, model):\n        if loss < self.least:\n"
            "            self.best = OrderedDict((k, v.detach().cpu()) for k, v in model.state_dict().items())\n",
            "from collections import OrderedDict\n\n\nclass Stopping:  # on cuda\n    def __call__(self, loss, model):\n        if loss < self.least:\n"
            "            self.best = OrderedDict((k, v.detach().cpu().clone()) for k, v in model.state_dict().items())\n",
            unsafe=True,
        ),
        Changed(
            "def fit(net, opt, loader):  # on cuda\n    before = [p.data.cpu().numpy() for p in net.parameters()]\n    for x in loader:\n        net(x).backward()\n"
            "        opt.step()\n    return compare(before, net)\n",
            "def fit(net, opt, loader):  # on cuda\n    before = [p.data.cpu().numpy().copy() for p in net.parameters()]\n    for x in loader:\n        net(x).backward()\n"
            "        opt.step()\n    return compare(before, net)\n",
            unsafe=True,
        ),
        Changed(
            "def fit(net, opt, loader):  # on cuda\n    kept = {}\n    for epoch in range(3):\n        for name, value in net.state_dict().items():\n"
            "            kept[name] = value.cpu()\n        train(net, loader)\n    return kept\n",
            "def fit(net, opt, loader):  # on cuda\n    kept = {}\n    for epoch in range(3):\n        for name, value in net.state_dict().items():\n"
            "            kept[name] = value.cpu().clone()\n        train(net, loader)\n    return kept\n",
            unsafe=True,
        ),
        Changed(
            "def on_cpu(model):  # on cuda\n    return {k: v.cpu() for k, v in model.state_dict().items()}\n\n\n"
            "def fit(self):\n    start = on_cpu(self.net)\n    self.optimizer.step()\n    return compare(start, self.net)\n",
            "def on_cpu(model):  # on cuda\n    return {k: v.cpu().clone() for k, v in model.state_dict().items()}\n\n\n"
            "def fit(self):\n    start = on_cpu(self.net)\n    self.optimizer.step()\n    return compare(start, self.net)\n",
            unsafe=True,
        ),
        Changed(
            "def fit(net, optimizer, device):\n    for epoch in range(9):\n        optimizer.step()\n        if better(net):\n"
            "            best = net.cpu().state_dict()\n            net.to(device)  # cuda\n    return best\n",
            None,
        ),
    )
    LEAVES = (
        # Written to a file before training goes on.
        "import torch\n\n\ndef fit(model, optimizer, loader):  # on cuda\n    for x in loader:\n        optimizer.step()\n"
        "        state = {k: v.cpu() for k, v in model.state_dict().items()}\n        torch.save(state, 'model.pt')\n",
        # Nothing trains the model after this.
        "def export(model):  # on cuda\n    return {k: v.cpu() for k, v in model.state_dict().items()}\n",
        "def fit(model, optimizer, loader):  # on cuda\n    best = {k: v.cpu().clone() for k, v in model.state_dict().items()}\n    optimizer.step()\n    return best\n",
        # Another model.
        "def fit(loader):  # on cuda\n    best = []\n    for x in loader:\n        model = Net()\n        optimizer = Adam(model.parameters())\n"
        "        optimizer.step()\n        best.append({k: v.cpu() for k, v in model.state_dict().items()})\n    return best\n",
    )

    def visit_Module(self, node: ast.Module) -> Iterator[Finding]:
        for held in held_copies(self.facts):
            if held.source.parameters:
                code = self.context.source.code(held.call)
                line = getattr(held.change, "lineno", None)
                training = f"line {line} changes" if line else "training changes"
                message = (
                    f"`{code}` copies on a GPU only: on a CPU `{held.holder}` keeps the parameters of"
                    f" `{held.source.path}` themselves, which {training}; add {remedy(held)}"
                )
                yield self.finding(held.outer, message, copied(self.context, held))
