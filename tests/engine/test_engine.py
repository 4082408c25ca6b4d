"""The engine as a whole: bytes, nesting, silencing, devices and what other files say."""

from __future__ import annotations

import ast
from typing import Any

import pytest
from helpers import analyze

from devicefix.config.settings import Settings
from devicefix.engine.check import matters
from devicefix.engine.file import check_file
from devicefix.engine.fix import at_origin
from devicefix.facts.project import Project
from devicefix.files.text import Source
from devicefix.model import Finding, Result, Safety

CHOICE = '"cuda" if torch.cuda.is_available() else "cpu"'
DEVICE = f"device = torch.device({CHOICE})\n"


def rewrite(data: bytes | str, others: dict[str, str] | None = None, **settings: Any) -> Result:
    return analyze(data, path="m.py", others=others, fix=True, **settings)


def text_of(result: Result) -> str:
    assert result.output is not None
    text = result.output.decode()
    ast.parse(text)
    return text


@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
def test_line_ends_are_kept(newline: str) -> None:
    before = "import torch\n\nx = y.cuda()  # there\n\nz = 1".replace("\n", newline)
    after = f"import torch\n\n{DEVICE}\nx = y.to(device)  # there\n\nz = 1".replace("\n", newline)
    assert rewrite(before.encode()).output == after.encode()


def test_byte_order_mark_is_kept() -> None:
    output = rewrite(b"\xef\xbb\xbfimport torch\n\nx = y.cuda()\n").output
    assert output is not None and output.startswith(b"\xef\xbb\xbfimport torch")


@pytest.mark.parametrize("encoding", ["latin-1", "gbk", "shift_jis", "utf-8"])
def test_encoding_is_kept(encoding: str) -> None:
    word = "é" if encoding == "latin-1" else "表"
    before = f"# -*- coding: {encoding} -*-\nimport torch\n\ns = '{word}'; x = y.cuda()  # {word}\n"
    output = rewrite(before.encode(encoding)).output
    assert output is not None
    assert f"s = '{word}'; x = y.to(device)  # {word}\n" in output.decode(encoding)


def test_columns_count_characters() -> None:
    (finding,) = rewrite("import torch\n\ns = 'ééé'; y.cuda()\n").findings
    assert (finding.line, finding.column, finding.end_column) == (3, 12, 20)


@pytest.mark.parametrize(
    ("data", "line", "cause"),
    [
        (b"import torch\nprint 'cuda'\n", 2, "Python 2"),
        (b"# coding: nonsense\nimport torch.cuda\n", 1, "nonsense"),
        (b"import torch.cuda\n\xff\n", 1, "byte 0xff on line 2 is not valid utf-8"),
        (b"import torch.cuda\0\n", 1, "null bytes"),
        (b"import torch.cuda\nx = " + b"(" * 5000 + b")" * 5000, None, ""),
        (b"x = (\n", 1, "'(' was never closed"),
        (b"\x93\xf3", 1, "encoding declaration"),
    ],
)
def test_what_does_not_parse_is_a_finding(data: bytes, line: int | None, cause: str) -> None:
    result = rewrite(data)
    (finding,) = result.findings
    assert finding.code == "DF901" and cause in finding.message
    assert line in (None, finding.line)
    assert result.output is None


def test_a_finding_that_several_parts_of_an_f_string_share_is_one() -> None:
    """Its reason is the first one, and it says where the code is only if that is why nothing is fixed."""
    result = analyze(
        "import torch\na = torch.cuda.Event(enable_timing=True)\nb = torch.cuda.Event(enable_timing=True)\n"
        "print(f'{a.elapsed_time(b):.1f} {a.elapsed_time(b):.2f} {torch.cuda.current_device():>{x}}')\n"
    )
    stated = [each for each in result.findings if each.line == 4]
    assert [each.code for each in stated] == ["DF401", "DF404"]
    assert [each.message.count("(not fixed because") for each in stated] == [1, 1]
    assert "inside an f-string" in stated[1].message


def test_edits_nest() -> None:
    before = "import torch\n\nx = f(y.cuda(), z.cuda(g(torch.load(p)))).cuda()\n"
    after = text_of(rewrite(before))
    assert "f(y.to(device),\n      z.cuda(g(torch.load(p, map_location=None" in after
    assert after.rstrip().endswith(".to(device)")


def test_comments_inside_a_call_survive() -> None:
    call = "    y  # why\n    .cuda(  # there\n        non_blocking=True,  # fast\n    )\n"
    before = f"import torch\n\nx = (\n{call})\n"
    after = text_of(rewrite(before))
    assert ".to(  # there\n        device, non_blocking=True,  # fast\n    )" in after


@pytest.mark.parametrize(
    "comment", ["# noqa", "# noqa: DF101", "# NOQA: E501, DF101", "# devicefix: skip-file"]
)
def test_silenced(comment: str) -> None:
    where = f"\n{comment}\n" if "skip" in comment else f"  {comment}\n"
    assert not rewrite(f"import torch\nx = y.cuda(){where}").findings


def test_silenced_for_another_rule_is_not_silenced() -> None:
    assert rewrite("import torch\nx = y.cuda()  # noqa: DF102\n").findings


def test_unsafe_fix_waits_to_be_asked() -> None:
    late = (
        "import os\nimport torch\n\nDEVICE = 'cuda'\n\n\ndef main():\n"
        "    os.environ['CUDA_VISIBLE_DEVICES'] = '1'\n"
    )
    assert rewrite(late).output is None
    assert "is_available" in text_of(rewrite(late, unsafe_fixes=True))


@pytest.mark.parametrize(
    ("move", "number"),
    [
        ("x.cuda(torch.cuda.current_device(), *more)", 2),
        ("x.cuda(torch.cuda.current_device())", 1),  # the device is a part of the move
        ("x.cuda(f(torch.cuda.get_device_name()))", 2),
        ('x.to_empty(device="cuda")', 1),
    ],
)
def test_finding_inside_another_is_fixable_if_that_is(move: str, number: int) -> None:
    found = rewrite(f"import torch\n\ny = {move}\n").findings
    assert len({finding.fix is None for finding in found}) == 1
    assert len(found) == number


def test_a_finding_of_changed_code_names_lines_of_the_old_code() -> None:
    finding = Finding("DF206", "lines 3 and 5 use `line 3`; set in a.yaml, line 3", 4, 1, 4, 9)
    (found,) = at_origin([finding], Source(b"a\nb\nc = 1\n"), [0, 0, 0, 1, 2, 3])
    assert (found.line, found.column, found.end_column) == (2, 1, 2)
    assert found.message == "lines 1 and 3 use `line 3`; set in a.yaml, line 3"


# -- where the device comes from ---------------------------------------------------------------------


def test_definition_follows_imports_of_several_lines() -> None:
    before = (
        "from __future__ import annotations\nimport torch\nfrom a import (\n    b,\n    c,\n)\nx = y.cuda()\n"
    )
    assert f"    c,\n)\n\n{DEVICE}\nx = y.to(device)" in text_of(rewrite(before))


def test_definition_is_not_made_inside_a_try() -> None:
    before = "import torch\n\ntry:\n    import a\nexcept ImportError:\n    a = None\n\nx = y.cuda()\n"
    assert f"    a = None\n\n{DEVICE}" in text_of(rewrite(before))


def test_local_device_is_used_where_it_is_known() -> None:
    before = (
        "import torch\n\n\ndef f(x):\n"
        '    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")\n    return x.cuda()\n'
    )
    after = text_of(rewrite(before))
    assert after == before.replace("x.cuda()", "x.to(device)")


def test_local_bound_later_is_not_used() -> None:
    before = "import torch\n\n\ndef f(x):\n    x = x.cuda()\n    device = pick()\n    return x.to(device)\n"
    after = text_of(rewrite(before))
    assert f"x = x.to({CHOICE})" in after


def test_parameter_called_device_is_not_trusted() -> None:
    after = text_of(rewrite("import torch\n\n\ndef f(x, device):\n    return x.cuda()\n"))
    assert f"x.to({CHOICE})" in after


def test_indexed_device_is_not_the_current_one() -> None:
    before = (
        'import torch\n\ndevice = torch.device("cuda:0" if torch.cuda.is_available() else "cpu")\n'
        "x = y.cuda()\n"
    )
    assert f"x = y.to({CHOICE})" in text_of(rewrite(before))


def test_device_is_not_used_before_the_module_has_made_it() -> None:
    before = (
        "import torch\n\n\ndef make():\n    return y.cuda()\n\n\nnet = make()\n"
        'device = torch.device("cuda" if torch.cuda.is_available() else "cpu")\n'
    )
    assert f"return y.to({CHOICE})" in text_of(rewrite(before))


def test_torch_is_imported_where_it_is_not() -> None:
    after = text_of(rewrite("from torch import nn\n\nnet = nn.Linear(1, 1).cuda()\n"))
    assert after.startswith(f"import torch\nfrom torch import nn\n\n{DEVICE}")


def test_torch_under_another_name() -> None:
    after = text_of(rewrite("import torch as th\n\nx = y.cuda()\n"))
    assert 'device = th.device("cuda" if th.cuda.is_available() else "cpu")\n' in after


def test_a_replacement_of_a_missing_torch_is_torch() -> None:
    start = "try:\n    import torch\nexcept ImportError:\n    torch = stub\n"
    after = text_of(rewrite(f"{start}x = y.cuda()\n"))
    assert after == f'{start}x = y.to("cuda" if torch.cuda.is_available() else "cpu")\n'


def test_another_torch_is_not_replaced() -> None:
    after = text_of(rewrite("import mock as torch\n\nx = y.cuda()\nprint(torch.cuda.mocked)\n"))
    assert after.startswith("import mock as torch\nimport torch as _torch\n\ndevice = _torch.device(")


def test_device_of_a_star_import_is_used() -> None:
    others = {"utils.py": f"import torch\n\n{DEVICE}"}
    before = "import torch\nfrom utils import *\n\nx = y.cuda()\n"
    assert text_of(rewrite(before, others)) == before.replace(".cuda()", ".to(device)")


def test_new_name_does_not_travel_to_where_it_means_something_else() -> None:
    others = {
        "main.py": "import torch\nfrom m import *\n\ndevice = 3\nprint(device, torch.cuda.device_count())\n"
    }
    after = text_of(rewrite("import torch\n\nx = y.cuda()\n", others))
    assert "\ndevice = " not in after and f"y.to({CHOICE})" in after


def test_late_choice_of_gpus_in_the_same_module() -> None:
    before = "import os\nimport torch\nos.environ['CUDA_VISIBLE_DEVICES'] = '1'\nx = y.cuda()\n"
    after = text_of(rewrite(before))
    assert after.index("environ") < after.index("is_available") < after.index("y.to(device)")


@pytest.mark.parametrize(
    "setting",
    [
        "os.environ['CUDA_DEVICE_ORDER'] = 'PCI_BUS_ID'",
        "os.environ['CUDA_LAUNCH_BLOCKING'] = '1'",
        "os.environ.update(\n    CUDA_MODULE_LOADING='EAGER')",
        "os.environ |= {'CUDA_DEVICE_MAX_CONNECTIONS': '1'}",
        "os.environ.setdefault('PYTORCH_NVML_BASED_CUDA_CHECK', '1')",
        "os.environ['HIP_VISIBLE_DEVICES'] = '1'",
        "del os.environ['CUDA_VISIBLE_DEVICES']",
        "key = 'CUDA_DEVICE_ORDER'\nos.environ[key] = 'PCI_BUS_ID'",
    ],
)
def test_late_setting_of_the_driver(setting: str) -> None:
    after = text_of(rewrite(f"import os\nimport torch\n\n{setting}\n\n\ndef f(x):\n    return x.cuda()\n"))
    assert after.index("environ") < after.index("is_available") < after.index("x.to(device)")


@pytest.mark.parametrize("name", ["CUDA_HOME", "PYTORCH_CUDA_ALLOC_CONF", "OMP_NUM_THREADS"])
def test_variable_that_the_driver_does_not_read(name: str) -> None:
    before = f"import os\nimport torch\n\n\ndef f(x):\n    os.environ['{name}'] = 'a'\n    return x.cuda()\n"
    after = text_of(rewrite(before))
    assert after.index("is_available") < after.index("def f")


def test_late_choice_of_gpus_in_a_function_of_another_module() -> None:
    others = {
        "main.py": "import os\nimport m\n\n\ndef main():\n    os.environ['CUDA_VISIBLE_DEVICES'] = '1'\n"
    }
    after = text_of(rewrite("import torch\n\n\ndef move(x):\n    return x.cuda()\n", others))
    assert "def move(x):\n    device = torch.device(" in after


def test_helper_that_chooses_gpus_makes_its_callers_late() -> None:
    others = {"helper.py": "import os\n\n\ndef cuda(n):\n    os.environ['CUDA_VISIBLE_DEVICES'] = n\n"}
    before = "import torch\nfrom helper import cuda\n\n\ndef main(x):\n    cuda('1')\n    return x.cuda()\n"
    after = text_of(rewrite(before, others))
    assert after.index("def main") < after.index("is_available")


def test_variables_of_a_file_may_choose_gpus() -> None:
    others = {
        "config.py": "import os\n\n\ndef load(lines):\n    for line in lines:\n"
        "        key, _, value = line.partition('=')\n        os.environ.setdefault(key, value)\n",
        "main.py": "import config\nimport m\n\nconfig.load(open('.env'))\nm.Net()\n",
    }
    before = "import torch\n\n\nclass Net:\n    home = torch.device('cuda')\n"
    (finding,) = rewrite(before, others).findings
    assert finding.fix is not None
    assert "before the program sets `CUDA_VISIBLE_DEVICES`" in finding.fix.why


def test_forked_processes_are_not_robbed_of_cuda() -> None:
    before = (
        "import torch\nimport torch.multiprocessing as mp\n\n\ndef work(x):\n    return x.cuda()\n\n\n"
        "if __name__ == '__main__':\n    mp.Process(target=work).start()\n"
    )
    assert "def work(x):\n    device = torch.device(" in text_of(rewrite(before))


# -- guards ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "guard",
    [
        "if torch.cuda.is_available() and flag:",
        "if x.is_cuda:",
        "if device.type == 'cuda':",
        "if torch.cuda.device_count() > 1:",
        "if not (not torch.cuda.is_available() or other):",
    ],
)
def test_guarded_by(guard: str) -> None:
    assert not rewrite(f"import torch\n\n{guard}\n    y = f(x.cuda())\n").findings


@pytest.mark.parametrize(
    "guard",
    [
        "if torch.cuda.is_available() or flag:",
        "if flag:",
        "if not torch.cuda.is_available():",
        "if torch.cuda.device_count() >= 0:",
    ],
)
def test_not_guarded_by(guard: str) -> None:
    assert rewrite(f"import torch\n\n{guard}\n    y = f(x.cuda())\n").findings


def test_flag_that_is_rebound_is_not_a_guard() -> None:
    before = (
        "import torch\n\nuse = torch.cuda.is_available()\n\n\ndef on():\n    global use\n    use = True\n\n\n"
        "def f(x):\n    if use:\n        return g(x.cuda())\n"
    )
    assert "g(x.to(device))" in text_of(rewrite(before))


def test_test_that_is_skipped_without_cuda_is_guarded() -> None:
    skip = "@unittest.skipIf(torch.cuda.device_count() < 2, 'gpus')"
    before = f"import torch, unittest\n\n\n{skip}\ndef test(x):\n    x.cuda()\n"
    assert not rewrite(before).findings


# -- whose cuda() it is --------------------------------------------------------------------------------

LOSS = (
    "import torch\nfrom torch import nn\n\n\nclass Loss(nn.Module):\n    def cuda(self):\n"
    "        self.weight = self.weight.cuda()\n        return super().cuda()\n\n\n"
)


@pytest.mark.parametrize(
    ("use", "after"),
    [
        (
            "loss = build('l').cuda()\n",
            "loss = build('l')\nif torch.cuda.is_available():\n    loss = loss.cuda()\n",
        ),
        (
            "loss = build('l')\nloss = loss.cuda()\n",
            "if torch.cuda.is_available():\n    loss = loss.cuda()\n",
        ),
        ("model.cuda()\n", "if torch.cuda.is_available():\n    model.cuda()\n"),
        ("x = torch.ones(2).float().cuda()\n", "x = torch.ones(2).float().to(device)\n"),
    ],
)
def test_cuda_that_may_be_the_projects_own_is_kept(use: str, after: str) -> None:
    assert text_of(rewrite(LOSS + use)).endswith(after)


def test_own_cuda_of_a_class_is_called_as_before() -> None:
    assert "loss.cuda()\n" in text_of(rewrite(LOSS + "loss = Loss()\nloss.cuda()\n"))


def test_subclass_in_a_file_without_the_word_has_its_bases_cuda() -> None:
    others = {"base.py": LOSS, "sub.py": "from base import Loss\n\n\nclass Sub(Loss):\n    pass\n"}
    result = rewrite("import torch\nfrom sub import Sub\n\nnet = Sub()\nnet.cuda()\n", others)
    assert not result.findings


def test_flag_of_a_base_class_in_another_file_is_a_guard() -> None:
    start = "class A:\n    def __init__(self):\n        self.use_cuda = torch.cuda.is_available()\n"
    others = {"base.py": f"import torch\n\n\n{start}"}
    method = "    def f(self, x):\n        if self.use_cuda:\n            return g(x.cuda())\n"
    before = f"from base import A\n\n\nclass B(A):\n{method}"
    assert not rewrite(before, others).findings


def test_module_of_plain_values_gets_no_import() -> None:
    for imports in ("", "from .data import *\n"):
        result = rewrite(f"{imports}dist_params = dict(backend='nccl')\n")
        assert result.output is None and "this file only contains constants" in result.findings[0].message


def test_neighbours_share_a_guard() -> None:
    before = "import torch\n\ntorch.cuda.synchronize()  # a\ntorch.cuda.init()\n\ntorch.cuda.ipc_collect()\n"
    after = (
        "import torch\n\nif torch.cuda.is_available():\n    torch.cuda.synchronize()  # a\n"
        "    torch.cuda.init()\n\n    torch.cuda.ipc_collect()\n"
    )
    assert text_of(rewrite(before)) == after


def test_guard_is_not_shared_with_what_is_silenced() -> None:
    before = "import torch\n\ntorch.cuda.synchronize()  # noqa\ntorch.cuda.init()\n"
    after = "torch.cuda.synchronize()  # noqa\nif torch.cuda.is_available():\n    torch.cuda.init()\n"
    assert text_of(rewrite(before)).endswith(after)


def test_what_remains_is_reported_without_a_word_of_cuda() -> None:
    function = b"def f(x, y: torch.Tensor):\n    z = x.to(y.get_device())\n    x += 1\n    return z\n"
    before = b"import torch\n\n\n" + function
    settings, project = Settings(fix=True), Project()
    result = check_file(before, "m.py", settings, project)
    assert result.output is not None and not matters(result.output, settings)
    assert [finding.code for finding in result.remaining] == ["DF802"]


def test_the_list_of_devices_of_a_trainer_is_replaced_with_its_accelerator() -> None:
    source = "from lightning.pytorch import Trainer\n\nTrainer(accelerator='gpu', devices=[0])\n"
    (finding,) = rewrite(source).findings
    assert finding.message == "`accelerator='gpu'` needs a GPU; without CUDA, use \"auto\" and `devices=1`"


def test_a_number_on_a_line_without_a_word_is_found_by_its_use() -> None:
    before = "import torch\n\nwhere = 0\nx = torch.ones(2).to(where)\ntorch.cuda.empty_cache()\n"
    assert text_of(rewrite(before)) == before.replace("= 0", '= 0 if torch.cuda.is_available() else "cpu"')


def test_a_move_in_an_interpreter_of_graphs_may_be_a_copy() -> None:
    source = """
import torch
from torch import fx


class Runner(fx.Interpreter):
    def call_function(self, target, args, kwargs):
        return target(*[x.cuda() for x in args], **kwargs).cpu()


def run(target, args):
    return target(*[x.cuda() for x in args]).cpu()
"""
    inside, outside = analyze(source).findings
    assert inside.safety is Safety.UNSAFE
    assert "may change the tensor itself instead of a copy" in inside.message
    assert outside.safety is Safety.SAFE


def test_patterns_are_compared_and_stay() -> None:
    cases = ('"cuda:1"', '{"device": "cuda", **rest}', "torch.cuda.FloatTensor()", '"torch.cuda.HalfTensor"')
    body = "".join(f"    case {case}:\n        y = 1\n" for case in cases)
    result = analyze(f"import torch\n\nmatch d:\n{body}", fix=True, unsafe_fixes=True)
    assert (result.output, [*result.findings]) == (None, [])
