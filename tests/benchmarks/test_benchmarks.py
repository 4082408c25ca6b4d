"""The programs that measure precision and recall, on a corpus of two files."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import precision
import pytest
import recall
import samples
from samples import Entry, Verdict

TIED = """\
import torch


def main(use_cuda):
    \"\"\"Moves to cuda.\"\"\"
    x = torch.ones(2).cuda()
    y = torch.ones(2).cuda()  # cuda
    return x, y
"""
OTHERS = """\
import torch
from helpers import some_cuda_kernels

torch.cuda.empty_cache()
print("needs cuda")
if torch.cuda.is_available():
    torch.cuda.synchronize()
cost = some_cuda_kernels.run()
torch.cuda.not_known_to_us()
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return a corpus of one package."""
    package = tmp_path / "pack-1.0"
    package.mkdir()
    (package / "tied.py").write_text(TIED)
    (package / "others.py").write_text(OTHERS)
    return tmp_path


def listed(root: Path, *strata: str) -> list[Entry]:
    """Return the entries that recall.py lists."""
    found = samples.entries(root, partial(recall.unfound, root, strata or [recall.LISTED]), 1)
    return [entry for entry in found if entry.kind != recall.FOUND]


def test_findings_have_ids_and_show_their_own_fix(root: Path) -> None:
    first, second = samples.entries(root, partial(precision.findings, root, False), 1)
    assert [first.id, second.id] == ["pack-1.0:tied.py:6:DF101", "pack-1.0:tied.py:7:DF101"]
    assert "-    x = torch.ones(2).cuda()" in first.shown
    assert "+    x = torch.ones(2).to(device)" in first.shown
    assert "+device = torch.device(" in first.shown
    assert first.seen != second.seen


def test_ids_differ() -> None:
    entry = Entry("a:b.py:1:DF101", "b.py", 1, 1, "DF101")
    assert [each.id for each in samples.distinct([entry, entry])] == ["a:b.py:1:DF101", "a:b.py:1:DF101#2"]


def test_a_sample_is_the_same_for_the_same_seed() -> None:
    population = [Entry(f"p:{number:03}", "", 1, 1, "") for number in range(300)]
    chosen = samples.draw(population, 20, 1)
    assert chosen == samples.draw(population[::-1], 20, 1) == sorted(chosen)
    assert chosen != samples.draw(population, 20, 2)
    assert samples.draw(population, 999, 1) == population


def test_a_filled_sheet_is_read_again(root: Path, tmp_path: Path) -> None:
    found = samples.entries(root, partial(precision.findings, root, False), 1)
    known = {found[0].id: Verdict("right", found[0].seen, 'a "note" \\')}
    sheet = "\n".join(samples.sheet(found, known, precision.ALLOWED))
    assert sheet.count("# ===== ") == 2
    kept = tmp_path / "verdicts.toml"
    filled = sheet.replace('verdict = ""', 'verdict = "wrong-fix"')
    kept.write_text("\n".join(line for line in filled.splitlines() if line.startswith('"')))
    verdicts = samples.read_verdicts(kept, precision.ALLOWED)
    assert verdicts == known | {found[1].id: Verdict("wrong-fix", found[1].seen)}
    with pytest.raises(ValueError, match="none of"):
        samples.read_verdicts(kept, ("right",))
    with pytest.raises(FileNotFoundError):
        samples.read_verdicts(tmp_path / "none.toml", ())


def test_a_verdict_on_what_has_changed_is_not_filled_in(root: Path) -> None:
    found = samples.entries(root, partial(precision.findings, root, False), 1)
    sheet = "\n".join(samples.sheet(found, {found[0].id: Verdict("right", "other")}, precision.ALLOWED))
    assert sheet.count('verdict = ""') == 2


def test_precision_is_right_of_judged() -> None:
    now = [Entry("p:a.py:1:DF101", "", 1, 1, "", "new")]
    verdicts = {
        "p:a.py:1:DF101": Verdict("right", "old"),
        "p:a.py:2:DF101": Verdict("right"),
        "p:a.py:3:DF401": Verdict("wrong-fix", mended="it asks first"),
        "p:a.py:3:DF401#2": Verdict("wrong-finding"),
    }
    figures = "\n".join(precision.score(verdicts, now))
    assert "precision 50.0%" in figures
    assert "since: 75.0%" in figures
    assert "DF101: 2 of 2" in figures and "DF401: 0 of 2" in figures
    assert "read it again: p:a.py:1:DF101" in figures
    assert "found no more: p:a.py:2:DF101 (right)" in figures
    assert precision.score({}, None)[-1].split() == ["judged", "0"]


def test_the_list_holds_what_nothing_accounts_for(root: Path) -> None:
    assert [(entry.id, entry.shown) for entry in listed(root)] == [
        ("pack-1.0:others.py:2", "import"),
        ("pack-1.0:others.py:9", "function"),
    ]
    assert [entry.line for entry in listed(root, "guarded")] == [7]
    assert [entry.line for entry in listed(root, "harmless")] == [4, 5, 6, 8, 4]
    assert list(recall.show(listed(root)))[-1].split() == ["listed", "2"]


def test_the_wide_list_holds_what_a_grep_finds(root: Path) -> None:
    (root / "pack-1.0" / "tied.py").unlink()
    (root / "pack-1.0" / "others.py").write_text(
        'def f(device):  # cuda\n    """gpu"""\n    return cuda + half\n'
    )
    assert [(entry.line, entry.kind) for entry in listed(root, *recall.STRATA)] == [
        (1, recall.WORD),
        (3, recall.HARMLESS),
    ]


def test_strata_are_sampled_and_extrapolated_one_by_one() -> None:
    kinds = [kind for kind in recall.STRATA for _ in range(100)]
    population = [Entry(f"p:a.py:{number}", "", number, number, kind) for number, kind in enumerate(kinds)]
    chosen = recall.stratified(population, 60, 1)
    assert [sum(entry.kind == kind for entry in chosen) for kind in recall.STRATA] == [10, 10, 10, 30]
    verdicts = {entry.id: Verdict("harmless") for entry in chosen} | {chosen[0].id: Verdict("missed")}
    figures = "\n".join(recall.score(verdicts, population, 990))
    assert "missed, extrapolated: 10.0" in figures
    assert "recall 99.0%" in figures


def test_recall_extrapolates_from_what_is_still_listed() -> None:
    population = [Entry(f"p:a.py:{number}", "", number, number, "") for number in range(100)]
    verdicts = {f"p:a.py:{number}": Verdict("harmless") for number in range(19)}
    verdicts |= {"p:a.py:50": Verdict("missed"), "p:a.py:999": Verdict("missed")}
    figures = "\n".join(recall.score(verdicts, population, 495))
    assert "missed, extrapolated: 5.0" in figures
    assert "recall 99.0%" in figures
    assert figures.endswith("missed: p:a.py:50")


def test_an_interval_narrows_with_the_trials() -> None:
    low, high = samples.interval(98, 100)
    assert 0.92 < low < 0.98 < high < 1
    assert samples.interval(980, 1000)[0] > low
    assert samples.interval(0, 0) == (0, 1)
