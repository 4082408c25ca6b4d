"""The commands and options that messages name."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache

import click
import pytest
from helpers import ROOT, analyze

from devicefix.cli import COMMANDS, main

# Options of other programs: jupyter nbconvert, git diff, git fetch, git submodule, torchrun.
FOREIGN = {
    "--to", "--inplace", "--force", "--git", "--unshallow", "--nproc-per-node", "--epochs", "--platform",
    "--init",
    # pip's, in files of requirements
    "--config-settings", "--constraint", "--editable", "--extra-index-url", "--find-links",
    "--global-option", "--hash", "--index-url", "--requirement",
}  # fmt: skip
OPTION = re.compile(r"(?<![\w-])--[a-z](?:[a-z-]*[a-z])?(?![a-z-])")
COMMAND = re.compile(r"`devicefix (\w+)")


@cache
def strings() -> list[tuple[str, str]]:
    """Return the strings in the code that may be shown to users, each with its place."""
    found = []
    for file in sorted((ROOT / "devicefix").rglob("*.py")):
        tree = ast.parse(file.read_text(encoding="utf-8"))
        documented = (ast.Module, ast.ClassDef, ast.FunctionDef)
        skipped = {
            id(node.body[0].value)
            for node in ast.walk(tree)
            if isinstance(node, documented) and node.body and isinstance(node.body[0], ast.Expr)
        }
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in skipped:
                found.append((f"{file.relative_to(ROOT)}:{node.lineno}", node.value))
    return found


def messages() -> Iterator[tuple[str, str]]:
    """Yield the strings that are neither examples of rules, which span lines, nor arguments for git."""
    for place, text in strings():
        if "\n    " not in text and " " in text.strip():
            yield place, text


def options() -> set[str]:
    """Return the options of all commands."""
    context = click.Context(main)
    commands = [main, *(main.get_command(context, name) for name in COMMANDS)]
    return {
        option
        for command in commands
        if command
        for parameter in command.params
        for option in (*parameter.opts, *parameter.secondary_opts)
    }


def test_messages_name_options_that_exist() -> None:
    known = options() | FOREIGN | {"--help"}
    named = [(place, option) for place, text in messages() for option in OPTION.findall(text)]
    assert len(named) > 50
    assert [(place, option) for place, option in named if option not in known] == []


def test_messages_name_commands_that_exist() -> None:
    named = [(place, command) for place, text in strings() for command in COMMAND.findall(text)]
    assert len(named) > 10
    assert [(place, command) for place, command in named if command not in COMMANDS] == []


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_a_command_has_each_option_once(command: str) -> None:
    found = main.get_command(click.Context(main), command)
    assert found
    names = [name for parameter in found.params for name in (*parameter.opts, *parameter.secondary_opts)]
    assert sorted(names) == sorted(set(names))


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("torch.cuda.manual_seed_all(0)", "(unsafe: other code may use the CPU generator)"),
        ("torch.cuda.set_device(gpu := 0)", "(not fixed because the call's arguments have side effects)"),
        ("torch.cuda.nvtx.mark('a')", "raises an error in CPU builds of torch; call it only if CUDA"),
        (
            "x = 1 / torch.cuda.memory_stats()['a']",
            "; use `.get()` with a default that works here (not fixed",
        ),
        ("torch.accelerator.empty_cache()", "` may raise an error"),
        ("torch.accelerator.synchronize()", "` raises an error"),
        ("OmegaConf.register_new_resolver('n', torch.cuda.device_count)", "; pass a function that returns"),
        ("torch.distributed.rpc.send(torch.cuda.device_count)", "; check that the code using it works"),
        ("x = torch.cuda.FloatTensor([1.0])", "; specify a dtype and a device instead"),
        ("x = torch.cuda.FloatTensor(n)", "; use it only if CUDA is available"),
        ("move = operator.methodcaller('cuda')", "; use a function that calls `.to(device)`"),
        (
            "torch.cuda.set_rng_state(torch.cuda.get_rng_state())",
            "_state` cannot restore a state without CUDA",
        ),
        ("for d in {f'cuda:{i}' for i in n}: x.to(d)", "(unsafe: on a CPU, this element may equal"),
        ("d = {f'cuda:{i}': 1 for i in n}; x.to([*d][0])", "(unsafe: line 5 distinguishes this device"),
        ("reader = library.Reader(gpu=True)", "`gpu=True` may make the library use CUDA"),
        ("library.load(device_map='cuda')", "`device_map='cuda'` may select CUDA"),
        ("library.load(attn_implementation='flash_attention_2')", "_2'` may need CUDA"),
        ("library.load(max_memory={0: '9GB'})", '; without CUDA, use only the key "cpu"'),
        ("torch.backends.cuda.preferred_linalg_library(n)", "_library` may raise an error in builds"),
        ("torch.backends.cuda.preferred_linalg_library('magma')", "_library` raises an error in builds"),
        ("new = torch.version.cuda >= '11'", "; use `(torch.version.cuda or '0.0')`"),
        ("new = float(torch.version.cuda)", '; use `torch.version.cuda or "0.0"`'),
        ("print(scaler.state_dict()['growth_factor'])", "`growth_factor`; check for the key first"),
        ("from xformers.ops import unbind\nunbind(x, 0)", "; without CUDA, use `torch.unbind`"),
    ],
)
def test_the_message_says_what_the_fix_does(line: str, expected: str) -> None:
    source = f"import operator, library\nimport torch\nfrom omegaconf import OmegaConf\n\n{line}\n"
    message = next(finding.message for finding in analyze(source).findings if expected in finding.message)
    assert "; line 5" not in message


# Code, and a part of the message about it: the same rule says other things of other code.
TRUE_OF = {
    "cuda": [
        ("if fused and not torch.cuda.is_available(): raise OSError", "the program may stop here"),
        ("try:\n    assert torch.cuda.is_available()\nexcept Exception: print(1)", "this check fails if"),
        ("try:\n    assert torch.cuda.is_available()\nexcept Exception: exit(1)", "the program stops here"),
        (
            "def f():\n    assert torch.cuda.is_available()\n    run(a.xformers)",
            "this code may need `xformers`",
        ),
        (
            "def f(x):\n    log()\n    if not x: exit(1)\nf(torch.cuda.is_available())",
            "because the call may do more",
        ),
        ("if torch.cuda.is_available(): x = 1\nprint(x)", "`x` is defined only with CUDA"),
        ("if torch.cuda.is_available(): x = 1\nprint(x)\nx = 2", "`x` may be undefined without CUDA"),
        ("if q7: x = y.cuda()\nprint(x)", "also uses it if `q7` is false; define it in that case"),
        ("if q7: x = y.cuda()\nprint(x)\nx = 2", "`x` may be undefined if `q7` is false"),
        ("torch.ones(1).cuda(-1)", "rejects a negative index"),
        ("torch.load(p, map_location=None)", "; pass another `map_location`"),
        (
            "def f(b):\n    t = torch.from_numpy(b[0]).cuda()\n    b += 1\n    return t",
            "; pass `b[0].copy()`",
        ),
        (
            "class A:\n  def f(self):\n    t = torch.from_numpy(self.b).cuda()\n    t.mul_(2)\n    return t",
            "line 6 also changes `self.b`, which may be used again;",
        ),
        (
            "def f(m):\n    w = m.weight.cpu()\n    w.add_(1)\n    return w, m.weight  # cuda",
            "also changes `m`; add",
        ),
        ("torch.nn.Module.cuda(net)", "`torch.nn.Module.cuda` needs CUDA"),
        ("x.to((torch.cuda.\n    current_device()))", "`.to(torch.cuda. current_device())` needs CUDA"),
        ('getattr(x, "cuda")()', '`getattr(..., "cuda")(...)` needs CUDA'),
        (
            "q7 = torch.ones(2).untyped_storage()\ngetattr(q7, 'cuda')()",
            "may need CUDA; for a tensor or module, use `.to(device)`",
        ),
        ("x.to(gpu_ids[0])", "`.to(gpu_ids[0])` may need CUDA; without CUDA, use the CPU"),
        ("x = 3 // torch.accelerator.device_count()", "the number of accelerators may be 0; use"),
        ("x = 3 // torch.cuda.device_count()", "the number of GPUs is 0 without CUDA; use"),
        ("assert torch.cuda.device_count() == 2", "there are too few or too many GPUs; check"),
        ("assert torch.cuda.device_count() >= 2", "there are too few GPUs; check"),
        (
            "class A:\n    def f(self):\n        if len(self.gpus) > torch.cuda.device_count():\n"
            "            self.wrong.append(1)\n\n    def g(self):\n        if self.wrong:\n"
            "            raise ValueError",
            "this check fails if CUDA is not available or there are too few GPUs",
        ),
        ("dist.init_process_group('nccl')", "CUDA; without CUDA, use `gloo`"),
        ("def f(backend='nccl'):\n    return backend == 'nccl'", "; add a `gloo` case if needed"),
        (
            "def f(backend='nccl'):\n    match backend:\n        case 'nccl':\n            pass",
            "; add a `gloo` case if needed",
        ),
        (
            "if torch.cuda.is_available():\n    import cupy\nx = cupy.ones(2)",
            "imported only under a check (see line 4), but this line uses it without that check; "
            "use NumPy or torch operators, or use it only if",
        ),
    ],
    "accelerator": [
        (
            "def f(b):\n    if torch.cuda.is_available():\n        x = b[0].cuda()\n    return x",
            "without CUDA, this check leaves `x` undefined; use `.to(device)`",
        ),
        ("dist.init_process_group('nccl')", "use the accelerator's own backend"),
        ("x = torch.ones(1).cuda(1)", "`.cuda(...)` needs CUDA; use an accelerator if one is available"),
        (
            "def f(gpu):\n    return torch.device('cuda' if gpu else 'cpu')",
            "available; use an accelerator if",
        ),
        ("dist.init_process_group(device_id=0)", "on MPS; pass devices only on other accelerators"),
        (
            "torch.distributed.fsdp.FullyShardedDataParallel(n, sync_module_states=True)",
            "(unsafe: without an accelerator, processes may",
        ),
        ("x = torch.ones(1)\ny = x.cuda(f())", "`.cuda(...)` needs CUDA; without CUDA, use the CPU"),
    ],
}


@pytest.mark.parametrize(
    ("target", "code", "expected"), [(target, *case) for target, cases in TRUE_OF.items() for case in cases]
)
def test_the_message_is_true_of_the_code(target: str, code: str, expected: str) -> None:
    found = analyze(f"import torch\nimport torch.distributed as dist\n{code}\n", target=target).findings
    messages = [finding.message for finding in found]
    assert any(expected in message for message in messages), messages
