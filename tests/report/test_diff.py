"""The patch of `devicefix rewrite`, applied by `git apply`."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from helpers import Cli, Git
from hypothesis import example, given, settings
from hypothesis import strategies as st

from devicefix.report import diff

TIED = b"import torch\n\nx = torch.ones(2).cuda()\n"
CONTENTS = {
    "plain.py": TIED,
    "no end.py": TIED.rstrip(),
    "windows\r.py": TIED.replace(b"\n", b"\r\n"),
    "mixed.py": TIED.replace(b"\n", b"\r\n", 1),
    "bom.py": b"\xef\xbb\xbf" + TIED,
    "latin\xe9.py": b"# -*- coding: latin-1 -*-\ns = '\xe9\xff'\n" + TIED,
    "feeds.py": b"import torch\n\x0c\ns = '\x0b \x1c \xc2\x85 \xe2\x80\xa8'\nx = torch.ones(2).cuda()",
    'quote"back\\slash.py': TIED,
    "tab\there\nand line.py": TIED,
    os.fsdecode(b"b\xffd.py"): TIED,
    "deep/er/a b.py": TIED,
    "-dash.py": TIED,
}


def rewrite(folder: Path, *arguments: str | Path) -> bytes:
    """Return the output of `devicefix rewrite` in a folder."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        return Cli()("rewrite", *arguments).stdout_bytes


def fill(folder: Path) -> None:
    """Write the files to rewrite."""
    for name, data in CONTENTS.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)


def contents(folder: Path) -> dict[str, bytes]:
    """Return the content of all files, by name."""
    return {os.fspath(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*.py")}


def test_git_apply_gives_the_same_result_as_in_place(tmp_path: Path) -> None:
    patched, written = tmp_path / "patched", tmp_path / "written"
    for folder in (patched, written):
        folder.mkdir()
        fill(folder)
    Git(patched)("init", "-q")
    Git(patched)("apply", data=rewrite(patched))
    rewrite(written, "--in-place")
    assert contents(patched) == contents(written)
    assert all(b".cuda()" not in data for data in contents(patched).values())


@pytest.mark.parametrize("arguments", [["pack"], ["."], ["pack/a.py"]])
@pytest.mark.parametrize("under_git", [False, True])
def test_a_patch_applies_in_the_folder_where_it_was_made(
    tmp_path: Path, arguments: list[str], under_git: bool
) -> None:
    if under_git:
        Git(tmp_path)("init", "-q")
    here = tmp_path / "pack"
    (here / "pack").mkdir(parents=True)
    (here / "pack" / "a.py").write_bytes(TIED)
    (here / "a.py").write_bytes(b"# another\n" + TIED)
    Git(here)("apply", data=rewrite(here, *arguments))
    assert b".cuda()" not in (here / "pack" / "a.py").read_bytes()


@pytest.mark.parametrize("under_git", [False, True])
def test_a_patch_of_another_folder_applies_there(tmp_path: Path, under_git: bool) -> None:
    tree, elsewhere = tmp_path / "tree", tmp_path / "elsewhere"
    (tree / "sub").mkdir(parents=True)
    elsewhere.mkdir()
    if under_git:
        Git(tree)("init", "-q")
    (tree / "sub" / "a.py").write_bytes(TIED)
    Git(tree)("apply", data=rewrite(elsewhere, str(tree)))
    assert b".cuda()" not in (tree / "sub" / "a.py").read_bytes()


def test_a_link_is_followed_to_the_file(tmp_path: Path) -> None:
    (tmp_path / "real").write_bytes(TIED)
    (tmp_path / "link.py").symlink_to("real")
    Git(tmp_path)("init", "-q")
    Git(tmp_path)("apply", data=rewrite(tmp_path, "link.py"))
    assert b".cuda()" not in (tmp_path / "real").read_bytes()


LINES = st.lists(st.sampled_from([b"a", b"b", b"", b"\r", b"\xff", b"-- x", b"\\ No newline"]), max_size=12)
ENDS = st.sampled_from([b"", b"\n", b"\r\n"])


@settings(max_examples=40, deadline=None)
@given(LINES, ENDS, LINES, ENDS)
@example([b"a"], b"\n", [b"a"], b"")
@example([b"a"], b"", [b"a"], b"\n")
def test_patches_of_arbitrary_bytes_apply(
    tmp_path_factory: pytest.TempPathFactory,
    old: list[bytes],
    old_end: bytes,
    new: list[bytes],
    new_end: bytes,
) -> None:
    before, after = b"\n".join(old) + old_end, b"\n".join(new) + new_end
    if before == after or not before or not after:  # of no file git makes no patch, and `rewrite` neither
        return
    folder = tmp_path_factory.mktemp("patch")
    (folder / "a.py").write_bytes(before)
    Git(folder)("apply", "--whitespace=nowarn", data=diff.unified("a.py", before, after))
    assert (folder / "a.py").read_bytes() == after


def test_colours_only_add_escape_sequences() -> None:
    patch = diff.unified("a.py", b"a\nb\r\nc", b"a\nd\r\nc\n")
    coloured = diff.coloured(patch.decode())
    for code in ("\x1b[1m", "\x1b[31m", "\x1b[32m", "\x1b[36m", "\x1b[m"):
        assert code in coloured
        coloured = coloured.replace(code, "")
    assert coloured.encode() == patch
