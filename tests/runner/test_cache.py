"""The cache changes how long a run takes, and nothing else."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, get_args, get_origin

import pytest
from helpers import devicefix

from devicefix.config.resolver import Everywhere
from devicefix.config.settings import Settings
from devicefix.facts.exports import EXPORTS
from devicefix.facts.project import TREES, Project, ProjectFile
from devicefix.facts.project.questions import QUESTIONS
from devicefix.model import Outcome
from devicefix.rules.registry import RULES
from devicefix.runner import cache
from devicefix.runner import run as runner
from devicefix.runner.record import Record
from devicefix.runner.run import Content, Task, check_files

FILES = 50  # enough for a pool, and for outcomes to be kept as a whole


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Return modules with many patterns of the rules, and one whose findings depend on another."""
    return made(tmp_path / "tree")


def made(folder: Path) -> Path:
    folder.mkdir()
    examples = [example.before for rule in RULES.values() for example in (*rule.INVALID, *rule.VALID)]
    for number in range(FILES):
        some = examples[number :: FILES * 6]
        (folder / f"m{number}.py").write_text("\n".join(some), encoding="utf-8")
    (folder / "batch.py").write_text("class Batch:\n    def cuda(self):\n        return self\n")
    both = "import torch\n\nmake(1, torch.float16)\nmake(1, x=torch.float16)\n"  # by position and by name
    (folder / "both.py").write_text(both)
    (folder / "use.py").write_text("import torch\nfrom batch import Batch\n\nb = Batch().cuda()\n")
    old(folder.iterdir())
    return folder


def old(files: Iterable[Path]) -> None:
    """Make files older than those that a cache does not trust yet."""
    for file in files:
        os.utime(file, (1e9, 1e9))


def found(folder: Path, settings: Settings) -> list[str]:
    outcomes = check_files(sorted(folder.glob("*.py")), Everywhere(settings))
    assert not any(outcome.error for outcome in outcomes)
    return listed(outcomes)


def listed(outcomes: Iterable[Outcome]) -> list[str]:
    """Return the findings of files as text."""
    return [
        f"{outcome.path} {finding.line} {finding.column} {finding.code} {finding.message} {finding.safety}"
        for outcome in outcomes
        for finding in outcome.result.findings
    ]


def test_all_ways_of_running_find_the_same(tree: Path, tmp_path: Path) -> None:
    """Run in one process and in eight, without a cache, with a fresh one, and with a warm one."""
    plain = found(tree, Settings(jobs=1, quiet=True))
    assert len(plain) > 50
    cached = Settings(quiet=True, cache_dir=tmp_path / "cache")
    for settings in (
        Settings(jobs=8, quiet=True),
        cached,
        cached,
        replace(cached, jobs=1),
        replace(cached, cache_dir=tmp_path / "other", jobs=8),
    ):
        assert found(tree, settings) == plain


def test_one_file_has_the_findings_that_it_has_in_the_whole(tree: Path) -> None:
    settings = Settings(jobs=1, quiet=True)
    (tree / ".git").mkdir()
    whole = found(tree, settings)
    for file in [*sorted(tree.glob("*.py"))[:12], tree / "use.py"]:
        (outcome,) = check_files([file], Everywhere(settings))
        assert listed([outcome]) == [line for line in whole if line.startswith(f"{file} ")]


def test_a_warm_run_looks_at_nothing(tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = Settings(quiet=True, cache_dir=tmp_path / "cache")
    plain = found(tree, settings)
    monkeypatch.setattr(runner, "_checked", None)
    assert found(tree, settings) == plain


def test_only_changed_files_are_checked(tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = Settings(quiet=True, jobs=1, cache_dir=tmp_path / "cache")
    found(tree, settings)
    (tree / "m1.py").write_text("import torch\n\nx = x.cuda()\n")
    (tree / "m2.py").touch()  # another time, the same content
    looked, checked = [], runner._checked

    def counted(project: Project, task: Task, sent: Content) -> Record:
        looked.append(task.path)
        return checked(project, task, sent)

    monkeypatch.setattr(runner, "_checked", counted)
    changed = found(tree, settings)
    assert looked == [str(tree / "m1.py")]
    assert changed == found(tree, Settings(quiet=True, jobs=1))


def test_a_file_that_changes_during_a_run_is_checked_again(
    tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = Settings(quiet=True, jobs=1, cache_dir=tmp_path / "cache")
    changed, plain, checked = tree / "batch.py", (tree / "batch.py").read_text(), runner._checked

    def changing(project: Project, task: Task, sent: Content) -> Record:
        if task.path == str(changed):
            changed.write_text("class Batch:\n    pass\n\n\nBatch().cuda()\n")
        return checked(project, task, sent)

    monkeypatch.setattr(runner, "_checked", changing)
    found(tree, settings)
    monkeypatch.undo()
    assert found(tree, settings) == found(tree, replace(settings, cache_dir=None))
    changed.write_text(plain)
    assert found(tree, settings) == found(tree, replace(settings, cache_dir=None))


def test_no_room_for_parsed_files_makes_no_difference(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = found(tree, Settings(quiet=True, jobs=1))
    for room in (0, 2_000):
        monkeypatch.setattr(TREES, "room", room)
        assert found(tree, Settings(quiet=True, jobs=1)) == plain


def test_what_one_file_says_of_another_is_not_forgotten(tree: Path, tmp_path: Path) -> None:
    """`Batch().cuda()` must not become `.to(device)`, as long as Batch defines `cuda`."""
    settings = Settings(quiet=True, cache_dir=tmp_path / "cache")
    before = [line for line in found(tree, settings) if "use.py" in line]
    (tree / "batch.py").write_text("class Batch:\n    pass\n")
    after = [line for line in found(tree, settings) if "use.py" in line]
    assert before != after
    assert after == [line for line in found(tree, Settings(quiet=True)) if "use.py" in line]
    (tree / "batch.py").unlink()
    assert found(tree, settings) == found(tree, Settings(quiet=True))


def test_configuration_files_that_the_code_names(
    tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Change them one by one; a run after which nothing changed looks at nothing."""
    settings = Settings(quiet=True, cache_dir=tmp_path / "cache")
    (tree / "program.py").write_text(
        "import torch\nimport yaml\n\n"
        "one = yaml.safe_load(open('set/main.yaml'))\nmany = yaml.safe_load(open(f'set/conf/{n}/net.yaml'))\n"
        "torch.ones(1).to(one['device'])\ntorch.ones(1).to(many['gpu'])\n"
        "parser.add_argument('--config')\n"
    )
    changes = [
        ("set/unrelated", ""),
        ("set/main.yaml", "device: cuda\n"),
        ("set/main.yaml", "device: 'cpu'\n"),
        ("set/conf/a/net.yaml", "gpu: cuda\n"),
        ("set/conf/a/net.yaml", "gpu: 'cpu'\n"),
        ("set/conf/a/net.yaml", None),
        ("set/conf/a/net.yaml", "x: 1\ngpu: cuda\n"),
        ("set/other.yaml", "device: cuda:1\n"),
        ("scripts/run.sh", "python program.py --config set/other.yaml\n"),
        ("scripts/run.sh", "python program.py\n"),
        ("README.md", "python program.py --config set/other.yaml\n"),
        ("set/other.yaml", None),
    ]
    lines = set()
    for number, (name, text) in enumerate(changes):
        file = tree / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.unlink() if text is None else file.write_text(text)
        for each in [tree, *tree.rglob("*")]:
            if each.stat().st_mtime > 1e9 + FILES:
                os.utime(each, (1e9 + number, 1e9 + number))
        plain = found(tree, settings)
        assert plain == found(tree, replace(settings, cache_dir=None))
        lines.add("\n".join(line for line in plain if "program.py" in line))
        with monkeypatch.context() as patch:
            patch.setattr(runner, "_projects", None)
            assert found(tree, settings) == plain
    assert len(lines) > 3


def test_a_change_within_the_clocks_tick_is_seen(tree: Path, tmp_path: Path) -> None:
    settings = Settings(quiet=True, cache_dir=tmp_path / "cache")
    file = tree / "m1.py"
    file.write_text("import torch\n\nx = x.cuda()\n")
    found(tree, settings)
    status = file.stat()
    file.write_text("import torch\n\nx = y.numpy()\n"[: status.st_size])
    os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert found(tree, settings) == found(tree, Settings(quiet=True))


def test_a_change_during_a_run_is_seen_by_the_next(
    tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = Settings(quiet=True, cache_dir=tmp_path / "cache")
    changed, checked = tree / "m1.py", runner._checked

    def changing(project: Project, task: Task, sent: Content) -> Record:
        record = checked(project, task)
        if task.path == str(changed):
            changed.write_text("import torch\n\nx = x.cuda()\ny = y.cuda()\n")
            os.utime(changed, (0, 0))  # as a copy that keeps the time
        return record

    monkeypatch.setattr(runner, "_checked", changing)
    found(tree, replace(settings, jobs=1))
    monkeypatch.undo()
    assert found(tree, settings) == found(tree, Settings(quiet=True))


@pytest.mark.parametrize(
    "change", [{"select": ("DF101",)}, {"ignore": ("DF1",)}, {"target": "accelerator"}], ids=str
)
def test_other_settings_are_another_cache(change: dict[str, object], tree: Path, tmp_path: Path) -> None:
    settings = Settings(quiet=True, cache_dir=tmp_path / "cache")
    found(tree, settings)
    other = replace(settings, **change)  # type: ignore[arg-type]
    assert found(tree, other) == found(tree, replace(other, cache_dir=None))


@dataclass(frozen=True)
class Kept:
    """A folder of modules, what is found in it, and the file of its cache."""

    tree: Path
    found: list[str]
    file: Path


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Kept:
    top = tmp_path_factory.mktemp("kept")
    tree = made(top / "tree")
    plain = found(tree, Settings(quiet=True, cache_dir=top / "cache"))
    (file,) = (top / "cache").glob("*/*.json")
    return Kept(tree, plain, file)


def without_half(first: bytes, rest: bytes) -> bytes:
    return first + b"\n" + rest[: len(rest) // 2]


def with_wrong_export(first: bytes, rest: bytes) -> bytes:
    entries = json.loads(rest)
    for _, exports, *_ in entries.values():
        exports.update({key: [[]] for key in exports})
    return first + b"\n" + json.dumps(entries).encode()


def with_wrong_question(*question: object) -> Callable[[bytes, bytes], bytes]:
    """Return a change of a cache: what a file asked is something else."""

    def changed(first: bytes, rest: bytes) -> bytes:
        entries = json.loads(rest)
        for entry in entries.values():
            entry[3] = [[list(question), True]]
        return first + b"\n" + json.dumps(entries).encode()

    return changed


def with_wrong_place(first: bytes, rest: bytes) -> bytes:
    entries = json.loads(rest)
    for entry in entries.values():
        for finding in entry[2] or ():
            finding[2] = float("inf")
    return first + b"\n" + json.dumps(entries).encode()


def with_wrong_code(first: bytes, rest: bytes) -> bytes:
    return first + b"\n" + rest.replace(b'"DF101"', b'"DF\\u001b[2J"')


def with_wrong_begin(first: bytes, rest: bytes) -> bytes:
    return json.dumps(json.loads(first) | {"begun": float("inf")}).encode() + b"\n" + rest


@pytest.mark.parametrize(
    "content",
    [
        with_wrong_question("is_late", 1), with_wrong_question("is_late"), with_wrong_question("agrees", "a"),
        with_wrong_question("is_late", "a", "b"), with_wrong_question("__init__"), with_wrong_question(),
        with_wrong_place, with_wrong_code, with_wrong_begin, b"[" * 100_000, b"{}\n" + b"[" * 100_000,
        b"", b"\n", b"{}\n{}", b"[1, 2]\n[3]", b"\xff\xfe\n", b'{"begun": "x"}\n', b"null\nnull",
        b"\x00" * 10, without_half, with_wrong_export,
    ],
)  # fmt: skip
def test_a_broken_cache_is_ignored(
    content: bytes | Callable[[bytes, bytes], bytes], kept: Kept, tmp_path: Path
) -> None:
    file = tmp_path / "cache" / kept.file.parent.name / kept.file.name
    file.parent.mkdir(parents=True)
    (tmp_path / "cache" / "CACHEDIR.TAG").touch()
    if not isinstance(content, bytes):
        first, rest = kept.file.read_bytes().split(b"\n", 1)
        content = content(first.replace(b'"paths":[', b'"paths":["x",'), rest)
    file.write_bytes(content)
    assert found(kept.tree, Settings(quiet=True, cache_dir=tmp_path / "cache")) == kept.found
    assert len(file.read_bytes()) > 1000  # it has been written anew


def test_where_no_cache_can_be_written_there_is_none(tree: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    settings = Settings(quiet=True, cache_dir=tmp_path / "file" / "cache")
    assert found(tree, settings) == found(tree, settings)


@pytest.mark.slow
def test_runs_at_the_same_time_do_no_harm(tree: Path, tmp_path: Path) -> None:
    def run(_: int) -> str:
        return devicefix("check", "-q", "--cache-dir", tmp_path / "cache", tree).stdout

    with ThreadPoolExecutor(4) as pool:
        assert len(set(pool.map(run, range(8)))) == 1
    assert [file.suffix for file in (tmp_path / "cache").glob("*/*")] == [".json"]


def test_the_command_line(tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    command = ("check", "-q", tree)
    monkeypatch.delenv("DEVICEFIX_CACHE_DIR", raising=False)
    plain = devicefix(*command, "--no-cache", cwd=tmp_path)
    assert not (tmp_path / cache.NAME).exists()
    assert devicefix(*command, cwd=tmp_path).stdout == plain.stdout
    assert (tmp_path / cache.NAME / ".gitignore").read_text() == "*\n"
    assert devicefix(*command, cwd=tmp_path).stdout == plain.stdout


def test_every_fact_of_a_file_is_read_back() -> None:
    file = ProjectFile(
        b"import torch.cuda\nfrom net import Net, f\n__all__ = ['a']\na.b\nself.c\nx.split(':')[1]\n"
        b"torch.jit.script(Net())\ntorch.multiprocessing.spawn(f)\ng(1, torch.half)\n",
        "x.py",
    )
    for export in EXPORTS.values():
        file.export(export)
    names = ("public_names", "attributes_read", "scripted")
    assert all(file.known[name] for name in names)
    record = Record("digest", None, exports=file.known)
    assert cache._record("x.py", None, json.loads(json.dumps(cache._plain(record)))).exports == file.known


@pytest.mark.parametrize("name", QUESTIONS)
def test_every_question_is_read_back(name: str) -> None:
    *kinds, _ = cache._kinds(QUESTIONS[name]).values()
    values = [
        next(value for value in ("x", 1, True) if type(value) in (get_args(kind) or (kind,)))
        for kind in kinds
    ]
    assert cache._question(name, *values) == (name, *values)


VALUES = [
    (bool, True), (dict[str, bool], {"a": True}), (dict[str, tuple[str, ...]], {"a": ("b", "c")}),
    (frozenset[str], frozenset("ab")), (tuple[str, ...], ("a", "b")),
    (frozenset[tuple[str, tuple[int | str, str]]], frozenset({("a", (1, "b")), ("a", ("c", "b"))})),
    (tuple[tuple[str, int, str], ...], (("a", 1, "b"),)),
]  # fmt: skip
WRONG = [
    1,
    1.5,
    "ab",
    None,
    ["a", 1],
    [["a", 1]],
    [["a", [1]]],
    [["a", "b", "c"]],
    {"a": "b"},
    {"a": [1]},
    [None],
]


@pytest.mark.parametrize(("kind", "value"), VALUES)
def test_a_value_is_read_as_its_type(kind: Any, value: Any) -> None:
    plain = json.loads(json.dumps(value, default=list))
    assert cache._read(kind, plain) == value
    for wrong in WRONG:
        with pytest.raises((TypeError, ValueError)):
            cache._read(kind, wrong)


def test_the_types_of_all_facts_are_known() -> None:
    kinds = {export.kind for export in EXPORTS.values()}
    shapes = {get_origin(kind) or kind for kind in kinds}
    assert shapes <= {get_origin(kind) or kind for kind, _ in VALUES}
