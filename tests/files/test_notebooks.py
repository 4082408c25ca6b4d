"""Notebooks: checked and rewritten like modules, and changed only in the lines of a fix."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any

import nbformat
import pytest
from helpers import Cli, Git, analyze_file
from hypothesis import given, settings
from hypothesis import strategies as st
from IPython.core.inputtransformer2 import TransformerManager

from devicefix.files.notebook.cells import Joined, as_python, is_masked
from devicefix.files.notebook.document import Notebook
from devicefix.files.notebook.json_text import Value, with_lines
from devicefix.files.positions import Place, moved_finding
from devicefix.model import Finding, Outcome, SelfCheckError

DEVICE = 'device = torch.device("cuda" if torch.cuda.is_available() else "cpu")'
IMPORT = "import torch"


def code(source: str, **metadata: Any) -> dict[str, Any]:
    return {
        "cell_type": "code",
        "execution_count": 1,
        "metadata": metadata,
        "outputs": [{"name": "stdout", "output_type": "stream", "text": ["x.cuda() \u00e9\n"]}],
        "source": source.splitlines(keepends=True),
    }


def notebook(*cells: str | dict[str, Any], **metadata: Any) -> bytes:
    made = [code(cell) if isinstance(cell, str) else cell for cell in cells]
    content = {"cells": made, "metadata": metadata, "nbformat": 4, "nbformat_minor": 4}
    return (json.dumps(content, indent=1, ensure_ascii=False) + "\n").encode()


def look(data: bytes, **options: Any) -> Outcome:
    return analyze_file(data, "a.ipynb", **options)


def rewritten(data: bytes) -> bytes:
    after = look(data, fix=True).result.output or data
    assert look(after, fix=True).result.output is None  # a second run changes nothing
    return after


def cells(data: bytes) -> list[str]:
    return ["".join(cell["source"]) for cell in json.loads(data)["cells"]]


def places(data: bytes) -> list[str]:
    return [
        f"{finding.cell}:{finding.line}:{finding.column} {finding.code}"
        for finding in look(data).result.findings
    ]


# -- the file --------------------------------------------------------------------------------------------

# Tabs, keys in no order, escapes, a key twice, no final newline: none of it is how Jupyter writes.
ODD = r"""{"nbformat": 4, "metadata": {"kernelspec": {"name": "python3", "language": "python",
    "display_name": "Python 3"}, "\u003cb\u003e": 1e2},
	"cells": [
	{"source": "# \u003ch1\u003e x.cuda()", "cell_type": "markdown", "metadata": {}},
	{"source": "import torch\nx = torch.ones(2)\n", "execution_count": null, "outputs": [],
		"metadata": {}, "cell_type": "code"},
	{"cell_type": "code", "metadata": {"a\/b": [ ]}, "outputs": [ ], "execution_count": 3, "source": [
		"s = 'é \u00e9 \u003c'\n",
		"if len(s) \u003c 3: x = x.cuda() # \u003c é\n" , "x"]}
], "nbformat_minor": 4}"""
ODD_DEVICE = r"device = torch.device('cuda' if torch.cuda.is_available() else 'cpu')\n"
ODD_FIXED = ODD.replace(r"import torch\nx", rf"import torch\n\n{ODD_DEVICE}\nx").replace(
    "= x.cuda()", "= x.to(device)"
)


@pytest.mark.parametrize("end", ["", "\n"])
@pytest.mark.parametrize("newline", ["\n", "\r\n"])
@pytest.mark.parametrize("start", ["", "\ufeff"])
def test_nothing_but_the_fix_changes(start: str, newline: str, end: str) -> None:
    before, after = ((start + text + end).replace("\n", newline).encode() for text in (ODD, ODD_FIXED))
    assert rewritten(before).decode() == after.decode()


def test_jupyter_reads_the_result(tmp_path: Path) -> None:
    data = notebook(
        "import torch", "x = torch.ones(2).cuda()", {"cell_type": "raw", "metadata": {}, "source": []}
    )
    file = tmp_path / "a.ipynb"
    file.write_bytes(rewritten(data))
    read = nbformat.read(file, as_version=4)
    nbformat.validate(read)
    assert [each.source for each in read.cells] == [
        f"import torch\n\n{DEVICE}", "x = torch.ones(2).to(device)", ""
    ]  # fmt: skip
    nbformat.write(read, file)
    assert json.loads(rewritten(data)) == json.loads(file.read_bytes())


LINES = st.lists(st.text(st.sampled_from('ab<é\\"\t🙂\u2028'), max_size=6), max_size=6)


@given(LINES, LINES, st.sampled_from([None, 1, "\t"]), st.booleans(), st.booleans())
@settings(max_examples=300, deadline=None)
def test_text_in_json_is_replaced(
    old: list[str], new: list[str], indent: Any, ascii_only: bool, whole: bool
) -> None:
    before, after = "\n".join(old), "\n".join(new)
    if not before:
        return

    def dumped(text: str) -> str:
        value = text if whole else text.splitlines(keepends=True)
        return json.dumps(["a\n", "b", value, "é"], indent=indent, ensure_ascii=ascii_only)

    text = dumped(before)
    start = text.index('"b"') + 3
    start += len(text[start:]) - len(text[start:].lstrip(", \t\n"))
    value = Value(start, json.JSONDecoder().raw_decode(text, start)[1])
    result = text[:start] + with_lines(text, value, after) + text[value.end :]
    assert json.loads(result) == json.loads(dumped(after))
    assert dumped(before) == text[:start] + with_lines(text, value, before) + text[value.end :]


# -- commands --------------------------------------------------------------------------------------------

COMMANDS = [
    "%matplotlib inline",
    "!pip install torch \\\n    torchvision",
    "!nvidia-smi; echo 'it''s",
    "x = !ls *.cuda",
    "x = %timeit -o f()",
    '%time x = f("?")',
    "%timeit -n 10 -r3 f(x); g()",
    "%time for i in x: f(i)",
    "torch.nn?",
    "f??",
    "?f",
    "%%time\nx = f()",
    "%%capture out\nf()",
    "if x:\n    !ls\n    %time f()\nelse:\n    %cd ..",
    "/f 1 2\n,f a b\n;f a b",
    "%pip install x\n\nimport os",
]
PYTHON = [
    "x = a %b\ny = (a\n  %time)\n",
    "x != y",
    "f(a=1, b=not c)\nx = '''\n%time\n!ls\n'''\ny = \"#?\"  # why?",
    "x = 1 \\\n  % y",
    "print(f'{x!r}', '?')",
    "x = [\n    '?'\n]",
]


@pytest.mark.parametrize("cell", COMMANDS + PYTHON)
def test_commands_are_those_of_ipython(cell: str) -> None:
    ast.parse(as_python(cell))
    found = len(Joined([cell]).magics)
    assert (found > 0) == (cell in COMMANDS)
    body = cell.partition("\n")[2] if cell.startswith("%%") else cell
    theirs = TransformerManager().transform_cell(body)
    if "/f" not in cell:  # these become calls of other functions
        assert found == theirs.count("get_ipython()") + cell.startswith("%%")
    assert ast.dump(ast.parse(theirs)) == ast.dump(ast.parse(body)) if cell in PYTHON else theirs != body


@given(st.lists(st.text(st.sampled_from("ax1 \n\t%!?=;/,.()'\"#\\\r\u2028"), max_size=40)))
def test_masking_loses_nothing(texts: list[str]) -> None:
    joined = Joined(texts)
    assert joined.unmasked(joined.text).cells == texts


@pytest.mark.parametrize("lost", ["__magic_0()", "__magic_1(); ", "\n__cell_0()", "__cell_1()\n", "#\n"])
def test_what_is_masked_must_be_found_again(lost: str) -> None:
    joined = Joined(["!ls\n%time f()", "x"])
    assert lost in joined.text
    with pytest.raises(SelfCheckError):
        joined.unmasked(joined.text.replace(lost, "", 1))


def test_a_cell_declares_no_encoding() -> None:
    data = notebook("# coding: latin-1\nimport torch", "x = 'é' or x.cuda()")
    assert places(data) == ["2:1:12 DF101"]
    assert cells(rewritten(data))[1] == "x = 'é' or x.to(device)"


@given(
    st.lists(st.sampled_from([*COMMANDS, *PYTHON, "import torch", "%%bash\nx.cuda()", "x = x.to(device)"]))
)
@settings(deadline=None)
def test_a_notebook_without_findings_never_changes(texts: list[str]) -> None:
    result = look(notebook(*texts, "# cuda"), fix=True).result
    assert not result.findings and result.output is None


def test_commands_survive_a_rewrite() -> None:
    data = notebook("import torch\n%matplotlib inline", "\n".join([*COMMANDS[:11], "x = x.cuda()"]))
    first, second = cells(rewritten(data))
    assert first.startswith("import torch\n\ndevice = ") and first.endswith("\n%matplotlib inline")
    assert second == "\n".join([*COMMANDS[:11], "x = x.to(device)"])


def test_a_timed_statement_is_checked() -> None:
    data = notebook("import torch", "if x:\n    %time y = x.cuda()\n%timeit -n 3 torch.cuda.synchronize()")
    assert places(data) == ["2:2:15 DF101", "2:3:14 DF401"]
    assert cells(rewritten(data))[1] == (
        "if x:\n    %time y = x.to(device)\n"
        "%timeit -n 3 torch.cuda.synchronize() if torch.cuda.is_available() else None"
    )


def test_a_timed_statement_stays_on_its_line() -> None:
    """A command ends with its line, so that a line break would leave half a statement behind."""
    long = "loss_of_the_whole_batch = criterion(network(images), labels_of_the_images.cuda(gpu))"
    plain, timed = cells(rewritten(notebook(IMPORT, long, f"%time {long}")))[1:]
    assert "\n" in plain and "\n" not in timed
    assert timed.startswith("%time ") and timed.endswith(" else labels_of_the_images)")


@pytest.mark.parametrize(("magic", "left"), [("", ""), ("%%time\n", "%%time\npass")])
@pytest.mark.parametrize("test", ["assert {}", "if not {}:\n    raise RuntimeError('needs a GPU')"])
def test_a_cell_whose_code_goes(test: str, magic: str, left: str) -> None:
    """IPython refuses `%%time` without code."""
    cell = magic + test.format("torch.cuda.is_available()")
    data = rewritten(notebook(IMPORT, cell, "x = x.cuda()"))
    assert cells(data)[1:] == [left, "x = x.to(device)"]
    assert left or b'"source": []' in data


def test_cells_of_other_languages_are_left_alone() -> None:
    for magic in ("%%bash", "%%html", "%%writefile train.py", "%%python", "%%R", "\n%%javascript"):
        assert not places(notebook("import torch", f"{magic}\nx.cuda()"))
    assert places(notebook("import torch", "%%time\nx.cuda()")) == ["2:2:1 DF101"]
    assert is_masked(Joined(["x"]).text)
    assert not places(notebook("import torch", f"x.cuda()\n{Joined(['!ls']).text}"))


# -- where the device goes -------------------------------------------------------------------------------


MOVE = "def f(x):\n    return x.cuda()"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (["%matplotlib inline\n!pip install torch", IMPORT], ["", f"{IMPORT}\n\n{DEVICE}"]),
        (["import os", f"{IMPORT}\nimport sys", "import re"], ["", f"{IMPORT}\nimport sys\n\n{DEVICE}", ""]),
        (["f()\nimport os", f"{IMPORT}\n# so far\nf()"], ["", f"{IMPORT}\n\n{DEVICE}\n\n# so far\nf()"]),
        (["!pip install x\nfrom x import *\ng()"],
         [f"!pip install x\nfrom x import *\nimport torch\n\n{DEVICE}\n\ng()"]),
        (["%%time\nimport torch"], [f"%%time\nimport torch\n\n{DEVICE}"]),
        ([IMPORT, f"# mine\n{DEVICE}"], ["", ""]),
        (["if in_colab():\n    import torch", IMPORT], ["", f"{IMPORT}\n\n{DEVICE}"]),
    ],
)  # fmt: skip
def test_the_device_goes_behind_the_imports(before: list[str], after: list[str]) -> None:
    found = cells(rewritten(notebook(*before, MOVE)))
    assert found == [new or old for old, new in zip(before, after, strict=True)] + [
        MOVE.replace("cuda()", "to(device)")
    ]


LIBRARY = "import transformers"
NEW = f"import torch\n\n{DEVICE}\n\n"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (["import os\nf()", "import y\ny = y.cuda()", IMPORT],
         ["", f"import torch\nimport y\n\n{DEVICE}\n\ny = y.to(device)", ""]),
        (["%%capture\nimport os\n!pip install torch==2.5.1", "x.cuda()"], ["", f"{NEW}x.to(device)"]),
        (["%%time\n!ls", "x.cuda()", LIBRARY], ["", f"{NEW}x.to(device)", ""]),
        (["import os\n!pip install torch\nx.cuda()"], [f"import os\n!pip install torch\n{NEW}x.to(device)"]),
        (["%%capture\nx.cuda()", LIBRARY], [f"%%capture\n{NEW}x.to(device)", ""]),
        (["import os", "%%bash\npip install torch", "x.cuda()"], ["", "", f"{NEW}x.to(device)"]),
        (["import os", "!bash setup.sh", "import re\n%pip install torch", "x.cuda()", "y.cuda()"],
         ["", "", "", f"{NEW}x.to(device)", "y.to(device)"]),
        (["import os\nos.system('pip install torch')\nf()\nx.cuda()"],
         [f"import os\nos.system('pip install torch')\n{NEW}f()\nx.to(device)".replace('"', "'")]),
        (["import sys, subprocess as s\ns.run(['pip', 'install', 'torch'])", "x.cuda()"],
         ["", f"{NEW}x.to(device)".replace('"', "'")]),
        (["f()", "x.cuda()", LIBRARY], ["", f"{NEW}x.to(device)", ""]),
        (["import os\ncuda_version = '12.1'\nprint('for cuda')\n!pip install torch", "x.cuda()"],
         ["", f"{NEW}x.to(device)".replace('"', "'")]),
        (["cuda = '12.1'\n!pip install torch", IMPORT, "x.cuda()"],
         ["", f"{NEW[:-2]}".replace('"', "'"), "x.to(device)"]),
        (["import os\nn = 1\n!pip install torch\nf()\nx.cuda()"],
         [f"import os\nn = 1\n!pip install torch\n{NEW}f()\nx.to(device)"]),
        (["import os\nout = !pip install torch \\\n  torchvision\nf()\nx.cuda()"],
         [f"import os\nout = !pip install torch \\\n  torchvision\n{NEW}f()\nx.to(device)"]),
        (["import sys\nif f():\n    !{sys.executable} -m pip install torch\nx.cuda()"],
         [f"import sys\nif f():\n    !{{sys.executable}} -m pip install torch\n{NEW}x.to(device)"]),
        (["import os\ndef setup():\n    %pip install torch\nsetup()\nx.cuda()"],
         [f"import os\ndef setup():\n    %pip install torch\nsetup()\n{NEW}x.to(device)"]),
        (["import os\nos.system('pip install torch --index-url https://x/cuda')\nx.cuda()"],
         [f"import os\nos.system('pip install torch --index-url https://x/cuda')\n{NEW}x.to(device)"
          .replace('"', "'")]),
        (["import os", "%time x.cuda()"], ["", f"{NEW}%time x.to(device)"]),
    ],
)  # fmt: skip
def test_torch_is_imported_where_the_first_device_is(before: list[str], after: list[str]) -> None:
    """A cell above it may install torch."""
    data = notebook(*before)
    found = cells(rewritten(data))
    assert found == [new or old for old, new in zip(before, after, strict=True)]
    assert rewritten(notebook(*found)) == notebook(*found)


def test_torch_is_not_imported_behind_a_magic() -> None:
    data = notebook("%time x.cuda()", "class C:\n    def cuda(self):\n        return self\n")
    (finding,) = analyze_file(data, "a.ipynb").result.findings
    assert "`torch` might not be imported here" in finding.message


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ([f"{IMPORT}\nv = torch.__version__\n!pip install torch-scatter", f"{IMPORT}\nimport os"],
         ["", f"{IMPORT}\nimport os\n\n{DEVICE}"]),
        ([f"{IMPORT}\nf()\n!uv pip install torch\ng()"],
         [f"{IMPORT}\nf()\n!uv pip install torch\n{DEVICE}\ng()"]),
        ([f"{IMPORT}\n%conda install x", "y.cuda()", IMPORT],
         [f"{IMPORT}\n%conda install x\n{DEVICE}", "y.to(device)", ""]),
    ],
)  # fmt: skip
def test_the_device_is_below_an_installation(before: list[str], after: list[str]) -> None:
    data = notebook(*before, "x.cuda()")
    found = cells(rewritten(data))
    assert found == [new or old for old, new in zip(before, after, strict=True)] + ["x.to(device)"]
    assert rewritten(notebook(*found)) == notebook(*found)


@pytest.mark.parametrize(
    "setting",
    [
        "%env CUDA_VISIBLE_DEVICES=1",
        "%env CUDA_VISIBLE_DEVICES 1",
        "%set_env CUDA_VISIBLE_DEVICES=1",
        "import os\nos.environ['CUDA_VISIBLE_DEVICES'] = '1'",
        "import os\nos.environ.update(CUDA_VISIBLE_DEVICES='1')",
        "import os\nos.environ.setdefault('CUDA_VISIBLE_DEVICES', '1')",
        "import os\nos.putenv('CUDA_VISIBLE_DEVICES', '1')",
        "get_ipython().run_line_magic('env', 'CUDA_VISIBLE_DEVICES=1')",
        "get_ipython().magic('set_env CUDA_VISIBLE_DEVICES 1')",
    ],
)
def test_cuda_is_not_asked_before_a_variable_of_the_driver_is_set(setting: str) -> None:
    found = cells(rewritten(notebook(IMPORT, setting, "x = torch.ones(2).cuda()")))
    assert found[0] == IMPORT
    assert found[1].startswith(f"{setting}\ndevice = ")
    assert found[2] == "x = torch.ones(2).to(device)"


@pytest.mark.parametrize(
    "command", ["%env", "%env CUDA_VISIBLE_DEVICES", "%env A=CUDA", "!export CUDA_VISIBLE_DEVICES=1"]
)
def test_other_commands_set_no_variable_of_the_driver(command: str) -> None:
    found = cells(rewritten(notebook(IMPORT, command, "x = torch.ones(2).cuda()")))
    assert found[0].startswith(f"{IMPORT}\n\ndevice = ")
    assert found[1] == command


# -- what a notebook shows ---------------------------------------------------------------------------------


def test_what_a_cell_shows_stays_the_same() -> None:
    shown = [
        "torch.cuda.get_device_name(0)  # which?",
        "torch.cuda.set_device(0)",
        "torch.cuda.current_device()\nx",
    ]
    shown += [
        "if torch.cuda.is_available():\n    model.cuda()",
        "if torch.cuda.is_available():\n    model = model.cuda()",
        "y = y.cuda()",
    ]
    assert cells(rewritten(notebook(IMPORT, *shown)))[1:] == [
        "torch.cuda.get_device_name(0) if torch.cuda.is_available() else None  # which?",
        "if torch.cuda.is_available():\n    torch.cuda.set_device(0)",
        "if torch.cuda.is_available():\n    torch.cuda.current_device()\nx",
        "model.to(device);",
        "model = model.to(device)",
        "y = y.to(device)",
    ]


def test_the_rewritten_cells_run(tmp_path: Path) -> None:
    from IPython.core.interactiveshell import InteractiveShell

    data = notebook(
        "%config InlineBackend.figure_format = 'retina'\nimport os",
        "import torch\nimport torch.nn as nn",
        "%%capture out\nprint(torch.cuda.get_device_name(0))",
        "net = nn.Linear(2, 3).cuda()\n%time y = net(torch.zeros(1, 2).cuda())\nhere = !echo 1",
        "torch.cuda.synchronize()\ntorch.cuda.get_device_name(0)",
        "assert y.shape == (1, 3) and here == ['1']\ny.device.type",
    )
    shell = InteractiveShell()
    results = [shell.run_cell(cell) for cell in cells(rewritten(data)) if "print" not in cell]
    assert all(each.success for each in results)
    assert [each.result for each in results[-2:]] == [None, "cpu"]


# -- what can't be checked -------------------------------------------------------------------------------


def test_a_broken_cell_is_reported_and_the_others_are_checked() -> None:
    data = notebook(IMPORT, "print 'x'\nx.cuda()", "y = (\n", "\nx = x.cuda()", "x.cuda(1 2)")
    assert places(data) == ["2:1:1 DF901", "4:2:5 DF101", "5:1:8 DF901"]
    assert cells(rewritten(data))[1:] == [
        "print 'x'\nx.cuda()",
        "y = (\n",
        "\nx = x.to(device)",
        "x.cuda(1 2)",
    ]


MARKDOWN = {"cell_type": "markdown", "metadata": {}, "source": "x.cuda()"}


@pytest.mark.parametrize(
    ("data", "found"),
    [
        (b"{x.cuda()}", "1:2 DF901 the notebook is not valid JSON"),
        (b"[1, 'torch.cuda']", "1:5 DF901 the notebook is not valid JSON"),
        (b'["torch.cuda"]', "1:1 DF901 this is not a Jupyter notebook"),
        (b'{"cells": "torch.cuda", "nbformat": 4}', "1:1 DF901 the notebook has no list of cells"),
        (b'{"worksheets": ["torch.cuda"], "nbformat": 3}', "1:1 DF901 the notebook has format 3"),
        (b'{"cells": "torch.cuda \xff", "nbformat": 4}', "1:1 DF901 the notebook is not valid UTF-8"),
        (b"[" * 100_000 + b"torch.cuda", "1:1 DF901"),
        (b'{"cells": [], "x": ' + b"9" * 5000 + b', "y": "torch.cuda"}', "1:1 DF901 too many digits"),
        (b"", "1:1 DF901 the notebook is not valid JSON"),
        (b"{", "1:2 DF901 the notebook is not valid JSON"),
        (b'{"cells": [{"source": 1, "x": "cuda"}, {}], "nbformat": 4, "metadata": []}', ""),
        (notebook("x.cuda()", language_info={"name": "R"}), ""),
        (notebook("x.cuda()", kernelspec={"language": "julia"}), ""),
        (notebook("x.cuda()", kernelspec={"language": "python"}), "1:1 DF101"),
        (notebook(code("x.cuda()", vscode={"languageId": "javascript"})), ""),
        (notebook(code("x.cuda()", tags=["skip-devicefix"])), ""),
        (notebook(code("x.cuda()", tags=["parameters"])), "1:1 DF101"),
        (notebook(MARKDOWN, "torch"), ""),
        (notebook("x.cuda()  # noqa"), ""),
        (notebook("x.cuda()  # noqa: DF2"), "1:1 DF101"),
        (notebook("x.cuda()", "# devicefix: skip-file"), ""),
    ],
)
def test_what_is_not_a_python_notebook(data: bytes, found: str) -> None:
    findings = look(data, fix=True).result.findings
    if not found:
        assert not findings
    else:
        place, code, *words = found.split(" ", 2)
        assert [(f"{finding.line}:{finding.column}", finding.code) for finding in findings] == [(place, code)]
        assert all(word in findings[0].message for word in words)


def test_lines_in_messages_are_those_of_the_cells() -> None:
    guarded = "if torch.cuda.is_available():\n    y = x.cuda() + 1"
    (finding,) = look(notebook(IMPORT, guarded, "f()\nprint(y)")).result.findings
    assert "line 2 of cell 3 also uses it" in finding.message
    (finding,) = look(notebook(IMPORT, "f()", f"{guarded}\nprint(y)")).result.findings
    assert "line 3 also uses it" in finding.message and "cell" not in finding.message


@pytest.mark.parametrize(
    ("message", "there"),
    [
        ("so line 3 also uses it", "so line 13 also uses it"),
        ("(lines 3, 5 and 7 can be fixed", "(lines 13, 15 and 17 can be fixed"),
        ("lines 1, 2, 3, 4, 5 and 2 more can be", "lines 11, 12, 13, 14, 15 and 2 more can be"),
        ("is `cuda` (set in a.yaml, line 3)", "is `cuda` (set in a.yaml, line 3)"),
        ("`line 3` needs CUDA", "`line 3` needs CUDA"),
    ],
)
def test_the_lines_in_a_message_move_with_the_finding(message: str, there: str) -> None:
    finding = Finding("DF101", message, 1, 1, 1, 2)
    assert moved_finding(finding, lambda line, column: Place(line + 10, column), str).message == there


def test_replacements_know_their_cell() -> None:
    data = notebook(IMPORT, "def f(x):\n    x = x.cuda()")
    (finding,) = look(data, replacements=True).result.findings
    assert finding.fix is not None
    assert [
        (replacement.cell, replacement.line, replacement.column, replacement.text)
        for replacement in finding.fix.replacements
    ] == [
        (1, 1, 13, f"\n\n{DEVICE}"),
        (2, 2, 9, "x.to(device)"),
    ]


# -- the command line --------------------------------------------------------------------------------------


def test_a_folder_s_notebooks_are_found(tmp_path: Path, cli: Cli, git: Git) -> None:
    data = notebook(IMPORT, MARKDOWN, "x = x.cuda()")
    (tmp_path / "a.ipynb").write_bytes(data)
    line = "a.ipynb:cell 3:1:5: DF101 [*] `.cuda()` needs CUDA; use `.to(device)`"
    first = cli("check", ".", "--output-format", "concise")
    again = cli("check", ".", "--output-format", "concise")  # from the cache
    assert first.output == again.output and line in first.output.splitlines()
    patch = cli("rewrite", "--no-cache", ".", "-q").stdout
    git("apply", data=patch)
    applied = (tmp_path / "a.ipynb").read_bytes()
    assert (
        applied
        == rewritten(data)
        == cli("rewrite", "--no-cache", "-", "--stdin-filename", "a.ipynb", input=data).stdout_bytes
    )
    (tmp_path / "a.ipynb").write_bytes(data)
    assert "cell 3:1:5: DF101 fixed:" in cli("rewrite", "--no-cache", "-i", ".").output
    assert (tmp_path / "a.ipynb").read_bytes() == applied
    assert cli("check", "--no-cache", ".").exit_code == 0


@pytest.mark.parametrize("own", [True, False])
def test_a_notebook_knows_the_modules_beside_it(tmp_path: Path, cli: Cli, own: bool) -> None:
    file = tmp_path / "a.ipynb"
    file.write_bytes(notebook("import torch\nfrom own import Box", "x = Box().cuda()"))
    if own:
        (tmp_path / "own.py").write_text("class Box:\n    def cuda(self):\n        return self\n")
    cli("rewrite", "--no-cache", "-i", file)
    assert ("Box().cuda()" in file.read_text()) == own


def test_a_form_feed_does_not_begin_a_line() -> None:
    module = Notebook(notebook("import torch\n\x0cx = 1", "y = 2"))
    lines = module.modules[0].decode().split("\n")
    assert [place for line, place in zip(lines, module.lines, strict=False) if " = " in line] == [
        (1, 2),
        (2, 1),
    ]
