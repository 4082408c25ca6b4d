"""The promises of `import devicefix`."""

from __future__ import annotations

import ast
import dataclasses
import re
import subprocess
import sys
from pathlib import Path

import pytest
from helpers import ROOT

import devicefix
from devicefix import Location, Replacement, api, check_paths, check_source, find_config, rewrite_source
from devicefix.config.settings import KEYS

SOURCE = "import torch\n\nx = torch.ones(1).cuda()\n"
FIXED = """\
import torch

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")

x = torch.ones(1).to(device)
"""
PAGE = ROOT / "docs" / "api.md"

# A user's program that uses all of it.
PROGRAM = """
from pathlib import Path

import devicefix


def codes(source: str) -> list[str]:
    found: list[devicefix.Finding] = devicefix.check_source(source, select=["DF1"], target="accelerator")
    for finding in found:
        fix = finding.fix
        if fix is not None and fix.applicability == "safe":
            where: devicefix.Location = fix.replacements[0].location
            print(where.line + where.column, fix.replacements[0].text.upper(), finding.url or finding.name)
    return [finding.code for finding in found]


def migrate(file: Path) -> bool:
    before = file.read_bytes()
    result = devicefix.rewrite_source(before, filename=file, config=devicefix.find_config(file))
    new: bytes = result.source
    text: str = devicefix.rewrite_source("x", unsafe_fixes=True).source
    return new != before and not result.remaining and bool(text)


def report(folder: Path) -> list[str]:
    try:
        found = devicefix.check_paths([folder], exclude=("docs/",), per_file_ignores={"*": ["DF9"]})
    except devicefix.DevicefixError as problem:
        return [str(problem)]
    return [error.message for error in found.errors] + [finding.message for finding in found.findings]


print(devicefix.__version__.split("."))
"""


def test_check() -> None:
    finding, *others = check_source(SOURCE)
    assert not others
    assert (finding.code, finding.name, finding.filename) == ("DF101", "cuda-call", "source.py")
    assert (finding.location, finding.end_location) == (Location(3, 5), Location(3, 25))
    assert finding.fix is not None and finding.fix.applicability == "safe"
    definition, call = finding.fix.replacements
    assert "device = torch.device(" in definition.text
    assert call == Replacement(Location(3, 5), Location(3, 25), "torch.ones(1).to(device)")
    assert finding.url is not None and finding.url.endswith("/rules/DF101/")


def test_columns_are_characters() -> None:
    finding = check_source(SOURCE.replace("x =", "s = '\N{GRINNING FACE}é'; x ="))[0]
    assert (finding.location.column, finding.end_location.column) == (15, 35)


def test_rewrite() -> None:
    result = rewrite_source(SOURCE)
    assert result.source == FIXED
    assert [(finding.code, finding.location.line) for finding in result.fixed] == [("DF101", 3)]
    assert result.remaining == ()
    assert rewrite_source(FIXED).source is FIXED


def test_unsafe_fixes_are_made_when_asked_for() -> None:
    source = "import torch\n\nself.state = torch.cuda.get_rng_state()\n"
    kept, changed = rewrite_source(source), rewrite_source(source, unsafe_fixes=True)
    assert kept.source == source and kept.remaining[0].fix
    assert kept.remaining[0].fix.applicability == "unsafe"
    assert changed.source != source and not changed.remaining


def test_bytes_keep_their_encoding() -> None:
    text = "# coding: latin-1\r\nimport torch\r\nx = torch.ones(1).cuda()  # é\r\n"
    data = rewrite_source(text.encode("latin-1")).source
    assert data.decode("latin-1") == rewrite_source(text).source
    assert "é\r\n" in data.decode("latin-1") and "to(device)" in rewrite_source(text).source


def test_what_the_declared_encoding_cannot_hold_is_an_error() -> None:
    with pytest.raises(devicefix.DevicefixError, match="'latin-1' codec"):
        check_source("# coding: latin-1\nimport torch  # →\n")


def test_what_does_not_parse_is_a_finding() -> None:
    assert [(each.code, each.location.line) for each in check_source("import torch\nx.cuda(\n")] == [
        ("DF901", 2)
    ]
    assert rewrite_source("x.cuda(").source == "x.cuda("


def test_settings(tmp_path: Path) -> None:
    assert not check_source(SOURCE, ignore=["DF101"])
    assert not check_source(SOURCE, select=("DF2",))
    assert not check_source(SOURCE, filename="tests/a.py", per_file_ignores={"tests/*": ["DF1"]})
    assert check_source(
        "from torch import cuda\ncuda.empty_cache()\n", target="accelerator", select=["DF405"]
    )
    assert check_source(f"{SOURCE}y = 1  # noqa: DF101\n", extend_select=["DF001"])[-1].code == "DF001"
    (tmp_path / "pyproject.toml").write_text('[tool.devicefix]\nignore = ["DF101"]\n')
    file = tmp_path / "package" / "a.py"
    file.parent.mkdir()
    assert find_config(file) == tmp_path / "pyproject.toml"
    assert not check_source(SOURCE, filename=file, config=find_config(file))
    assert check_source(SOURCE, filename=file, config=find_config(file), select=["DF101"])
    assert check_source(SOURCE, filename=file)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"select": ["DF999"]}, "select: no rule has the code or name 'DF999'"),
        ({"select": "DF101"}, "select: must be a list of strings"),
        ({"per_file_ignores": {"*.py": "DF101"}}, "per-file-ignores: '*.py': must be a list of strings"),
        ({"target": "cpu"}, "target: must be one of 'cuda', 'accelerator'"),
        ({"torch_version": 2.6}, 'torch-version: must be a version such as "2.6"'),
        ({"torch_version": "2.1", "target": "accelerator"}, "needs torch 2.6 or newer"),
        ({"config": "nowhere.toml"}, "nowhere.toml: No such file"),
    ],
)
def test_settings_that_make_no_sense_are_an_error(given: dict[str, object], message: str) -> None:
    with pytest.raises(devicefix.DevicefixError, match=re.escape(message)):
        check_source(SOURCE, **given)  # type: ignore[arg-type]


def test_a_source_has_no_project_unless_it_has_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "net.py").write_text(
        "import torch\n\nclass Net(torch.nn.Module):\n    def cuda(self):\n        pass\n"
    )
    source = "import torch\nfrom net import Net\n\nmodel = Net().cuda()\n"
    monkeypatch.chdir(tmp_path)
    assert "to(device)" in rewrite_source(source).source
    assert "to(device)" not in rewrite_source(source, filename=tmp_path / "a.py").source


def test_paths(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(SOURCE)
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "c.py").write_text("import torch\n")
    report = check_paths([tmp_path, tmp_path / "missing.py"])
    assert report.files == (str(tmp_path / "a.py"), str(tmp_path / "b" / "c.py"))
    assert [(finding.filename, finding.location.line) for finding in report.findings] == [
        (report.files[0], 3)
    ]
    assert [each.filename for each in report.errors] == [str(tmp_path / "missing.py")]
    assert check_paths(str(tmp_path), extend_exclude=["a.py"], config_files=True).findings == ()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.py", "b"]  # no cache


def test_a_baseline_is_heeded(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(SOURCE)
    known = '{"version": 1, "findings": {"a.py": {"DF101": ["x = torch.ones(1).cuda()"]}}}'
    (tmp_path / "known.json").write_text(known)
    assert not check_paths([tmp_path], baseline=tmp_path / "known.json").findings


def test_the_page_names_all_of_it_and_nothing_else() -> None:
    named = re.findall(r"^##+ `(?:devicefix\.)?(\w+)", PAGE.read_text(encoding="utf-8"), re.M)
    assert sorted(named) == sorted(devicefix.__all__)


def test_the_page_names_all_attributes_and_arguments() -> None:
    sections = dict(
        re.findall(
            r"^##+ `(?:devicefix\.)?(\w+).*?\n(.*?)(?=^##|\Z)", PAGE.read_text(encoding="utf-8"), re.M | re.S
        )
    )
    classes = [name for name in devicefix.__all__ if dataclasses.is_dataclass(getattr(devicefix, name))]
    assert classes
    for name in classes:
        wanted = {field.name for field in dataclasses.fields(getattr(devicefix, name))}
        cells = " ".join(re.findall(r"^\| (`[^|]+) \|", sections[name], re.M))
        assert set(re.findall(r"`(\w+)`", cells)) == wanted, name
    tree = ast.parse((Path(devicefix.__file__).parent / "api.py").read_text(encoding="utf-8"))
    public = [each for each in tree.body if isinstance(each, ast.FunctionDef) and each.name in sections]
    assert public
    for function in public:
        arguments = {arg.arg for arg in (*function.args.args, *function.args.kwonlyargs)}
        if isinstance(rest := function.args.kwarg and function.args.kwarg.annotation, ast.Subscript):
            arguments |= getattr(api, ast.unparse(rest.slice)).__annotations__.keys()
        missing = {each for each in arguments if f"`{each}`" not in PAGE.read_text(encoding="utf-8")}
        assert not missing, (function.name, missing)


def test_settings_are_those_of_the_table() -> None:
    types = {
        "list[str]": "Sequence[str] | None",
        "dict[str, list[str]]": "Mapping[str, Sequence[str]] | None",
        "bool": "bool | None",
        "int": "int | None",
        "str": "str | None",
        "path": "StrPath | None",
        '"cuda" | "accelerator"': "Target | None",
    }
    for settings in (api.RuleSettings, api.RewriteSettings, api.PathSettings):
        for name, annotation in settings.__annotations__.items():
            assert annotation.__forward_arg__ == types[KEYS[name.replace("_", "-")].type], name


def test_an_unknown_setting_is_a_type_error() -> None:
    with pytest.raises(TypeError, match="unexpected keyword argument 'selct'; did you mean 'select'"):
        check_source(SOURCE, selct=["DF1"])  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="'jobs'"):
        check_source(SOURCE, jobs=2)  # type: ignore[call-arg]


def test_the_rest_is_not_there() -> None:
    assert set(devicefix.__all__) <= set(dir(devicefix))
    with pytest.raises(AttributeError):
        devicefix.Settings  # noqa: B018


def test_the_import_is_cheap() -> None:
    code = (
        "import sys, devicefix; print(sorted(name for name in sys.modules if name.startswith('devicefix')))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "['devicefix', 'devicefix.config', 'devicefix.config.version']\n"


@pytest.mark.slow
@pytest.mark.needs("mypy")
def test_a_users_program_is_typed(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file=", str(program)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stdout
