"""The coverage file of `devicefix verify`: runs that add up, code that has changed, and broken files."""

from __future__ import annotations

import json
import os
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from devicefix.config.settings import ConfigError
from devicefix.model import Finding, Fix, Safety
from devicefix.runner import coverage
from devicefix.runner.coverage import Entry, Seen

ONE = Entry("old", "new", (Seen(3, 1, "DF101", (True, False)), Seen(4, 1, "DF101", (False,))))
TWO = Entry("old", "new", (Seen(3, 1, "DF101", (False, True)), Seen(4, 1, "DF101", (False,))))
BOTH = Entry("old", "new", (Seen(3, 1, "DF101", (True, True)), Seen(4, 1, "DF101", (False,))))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Return the path of a coverage file that does not exist yet."""
    return tmp_path / "coverage.json"


def test_runs_add_up(file: Path) -> None:
    assert coverage.add(file, {"train.py": ONE}, ()).entries == {"train.py": ONE}
    added = coverage.add(file, {"train.py": TWO, "test.py": ONE}, ())
    assert (added.entries, added.dropped) == ({"train.py": BOTH, "test.py": ONE}, [])
    assert coverage.read(file) == added.entries
    assert added.entries["train.py"].lines == {3: True, 4: False}
    assert coverage.add(file, {}, ()).entries == added.entries


def test_a_line_ran_if_all_its_fixes_ran() -> None:
    fixes = (
        Seen(3, 1, "DF101", (True,)),
        Seen(3, 1, "DF401", (False,)),
        Seen(4, 1, "DF101", (True,)),
        Seen(5, 1, "X", ()),
    )
    assert Entry("", "", fixes).lines == {3: False, 4: True, 5: False}


def test_whether_the_fix_of_a_finding_ran() -> None:
    def finding(line: int, column: int, safety: Safety | None = Safety.SAFE, code: str = "DF101") -> Finding:
        fix = Fix((), "why" if safety is Safety.UNSAFE else "") if safety else None
        return Finding(code, "", line, column, line, column, fix)

    fixes = (Seen(3, 5, "DF101", (True,)), Seen(4, 5, "DF101", (True,)), Seen(4, 9, "DF101", (True, False)))
    entry = Entry("", "", fixes)
    assert entry.is_seen(finding(3, 5)) is True
    assert entry.is_seen(finding(4, 5)) is False  # of one line, all must have run
    assert entry.is_seen(finding(3, 5, code="DF401")) is False
    assert entry.is_seen(finding(5, 5)) is False
    assert entry.is_seen(finding(3, 5, None)) is None
    assert entry.is_seen(finding(3, 5, Safety.UNSAFE)) is True  # made with --unsafe-fixes
    assert entry.is_seen(finding(3, 9, Safety.UNSAFE)) is None


@pytest.mark.parametrize(
    "changed",
    [
        ONE._replace(source="other"),
        ONE._replace(rewrite="other"),
        ONE._replace(devicefix="0.0"),
        ONE._replace(fixes=ONE.fixes[:1]),
        ONE._replace(fixes=(Seen(3, 1, "DF101", (False,)), ONE.fixes[1])),
    ],
)
def test_runs_of_code_that_has_changed_are_dropped(file: Path, changed: Entry) -> None:
    coverage.add(file, {"a/train.py": ONE, "other.py": ONE}, ())
    added = coverage.add(file, {"a/train.py": changed}, ())
    assert (added.entries, added.dropped) == ({"a/train.py": changed, "other.py": ONE}, ["a/train.py"])
    assert coverage.read(file) == added.entries


def test_runs_of_files_without_fixes_are_dropped(file: Path) -> None:
    coverage.add(file, {"a.py": ONE, "b.py": ONE}, ())
    added = coverage.add(file, {}, {"a.py", "c.py"})
    assert (added.entries, added.dropped) == ({"b.py": ONE}, ["a.py"])


def _add(file: Path, number: int) -> None:
    fixes = tuple(Seen(line, 1, "DF101", (line == number,)) for line in range(1, 21))
    coverage.add(file, {"train.py": Entry("old", "new", fixes), f"{number}.py": ONE}, ())


@pytest.mark.skipif(os.name != "posix", reason="there are no locks")
def test_runs_that_end_together_lose_nothing(file: Path) -> None:
    with ProcessPoolExecutor(4) as pool:
        list(pool.map(_add, [file] * 20, range(1, 21)))
    found = coverage.read(file)
    assert all(found.pop("train.py").lines.values())
    assert set(found) == {f"{number}.py" for number in range(1, 21)}
    assert [each.name for each in file.parent.iterdir()] == [file.name]


GOOD: dict[str, Any] = {"devicefix": "1", "source": "a", "rewrite": "b", "fixes": [[1, 5, "DF101", [True]]]}


@pytest.mark.parametrize(
    ("document", "why"),
    [
        ("", "coverage.json:1:1: not a coverage file: Expecting value"),
        ('{"a": 1,\n x}', "coverage.json:2:2: not a coverage file: "),
        ("[" * 100_000, "not a coverage file: "),
        ("\xff", "not a coverage file: "),
        ([], 'it has no "version"'),
        ({"version": 2, "files": {}}, "its version is 2, but this devicefix supports only version 1"),
        ({"version": 1}, '"files" must be an object'),
        ({"version": 1, "files": []}, '"files" must be an object'),
        ({"version": 1, "files": {"a.py": 3}}, "\"files\", 'a.py' must have"),
        ({"version": 1, "files": {"a.py": {**GOOD, "source": 1}}}, "\"files\", 'a.py' must have"),
        (
            {"version": 1, "files": {"a.py": {**GOOD, "fixes": [1]}}},
            '"files", \'a.py\', "fixes" must contain',
        ),
        ({"version": 1, "files": {"a.py": {**GOOD, "fixes": [["1", 1, "X", []]]}}}, '"fixes" must contain'),
        ({"version": 1, "files": {"a.py": {**GOOD, "fixes": [[1, "X", []]]}}}, '"fixes" must contain'),
        ({"version": 1, "files": {"a.py": {**GOOD, "fixes": [[1, 1, "X", [1]]]}}}, '"fixes" must contain'),
    ],
)
def test_a_file_that_is_broken_is_an_error_and_stays(file: Path, document: Any, why: str) -> None:
    data = document if isinstance(document, str) else json.dumps(document)
    file.write_bytes(data.encode("latin-1"))
    with pytest.raises(ConfigError) as caught:
        coverage.read(file)
    assert why in str(caught.value)
    with pytest.raises(ConfigError) as caught:
        coverage.add(file, {"train.py": ONE}, ())
    assert why in str(caught.value)
    assert file.read_bytes() == data.encode("latin-1")


def test_a_file_that_is_missing_large_or_special(file: Path) -> None:
    with pytest.raises(ConfigError, match="create it with `devicefix verify --coverage-file`"):
        coverage.read(file)
    with file.open("wb") as large:
        large.truncate(2**24 + 1)
    with pytest.raises(ConfigError, match="larger than 16M"):
        coverage.read(file)
    file.unlink()
    os.mkfifo(file)
    with pytest.raises(ConfigError, match="this is a pipe"):
        coverage.read(file)
    with pytest.raises(ConfigError, match="this is a pipe"):
        coverage.add(file, {}, ())


def test_links(file: Path) -> None:
    file.symlink_to(file.parent / "missing.json")
    with pytest.raises(OSError, match="symbolic link whose target does not exist"):
        coverage.add(file, {"train.py": ONE}, ())
    assert not (file.parent / "missing.json").exists()
    (file.parent / "missing.json").write_bytes(coverage.written({"train.py": TWO}))
    coverage.add(file, {"train.py": ONE}, ())
    assert file.is_symlink() and coverage.read(file.parent / "missing.json") == {"train.py": BOTH}


def test_paths_in_the_file_are_not_opened(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = ["/etc/passwd", "../../secret.py", "\u202e\x1b[31m.py", "a\0b", "\udcff.py"]
    file.write_bytes(coverage.written(dict.fromkeys(paths, ONE)))
    opened: list[str] = []
    monkeypatch.setattr(
        "devicefix.config.sizes.open", lambda path, *a, **k: _note(opened, path, *a, **k), raising=False
    )
    assert set(coverage.read(file)) == set(paths)
    assert set(coverage.add(file, {}, {"a.py"}).entries) == set(paths)
    assert set(opened) == {str(file)}


def _note(opened: list[str], path: Any, *arguments: Any, **options: Any) -> Any:
    opened.append(str(path))
    return open(path, *arguments, **options)
