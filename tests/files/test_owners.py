"""The owners of files, as GitHub and GitLab read a CODEOWNERS file."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from devicefix.files.owners import LARGEST, PLACES, Owners, read

GITHUB = r"""
# a comment
*       @all @second
*.js    @js  # and @nobody
/build/logs/ @doctocat
docs/*  docs@example.com
apps/   @octocat
/scripts/ @doctocat @octocat
**/logs @logs
/apps/github
/apps/github/deep @doctocat
!/kept.py @never
[ab].py @literal
/spaced\ name/ @org/team-name
/direct/* @direct
/*.toml @top
"""


@pytest.mark.parametrize(
    ("path", "owners"),
    [
        ("a.py", "@all @second"),
        ("deep/below/a.py", "@all @second"),
        ("web/a.js", "@js"),
        ("build/logs/x.py", "@logs"),  # the last pattern that matches
        ("docs/start.md", "docs@example.com"),
        ("docs/deep/start.md", "@all @second"),
        ("src/apps/x/y.py", "@octocat"),
        ("apps/github/x.py", ""),  # a pattern without owners
        ("apps/github/deep/x.py", "@doctocat"),
        ("apps/github/deeper", ""),
        ("scripts/x.py", "@doctocat @octocat"),
        ("src/scripts/x.py", "@all @second"),
        ("kept.py", "@all @second"),
        ("[ab].py", "@literal"),
        ("spaced name/x.py", "@org/team-name"),
        ("direct/x.py", "@direct"),
        ("direct/deep/x.py", "@all @second"),
        ("pyproject.toml", "@top"),
        ("src/pyproject.toml", "@all @second"),
    ],
)
def test_github(path: str, owners: str) -> None:
    assert " ".join(Owners("CODEOWNERS", GITHUB, gitlab=False).of(path)) == owners


GITLAB = r"""
* @general
*.rb @ruby
\#file.rb @pound
/docs/ @all-docs
/docs/* @root-docs
/docs/**/*.md @md
lib/ @lib
src/core @not-a-folder
[ab].py @range

[Documentation] @docs-team
guide/
README.md @readme jane@example.com

^[Data base][2] @data
model/db/
!model/db/free.py

[documentation]
guide/last.md @last @@maintainer
"""


@pytest.mark.parametrize(
    ("path", "owners"),
    [
        ("x.py", "@general"),
        ("deep/x.rb", "@ruby"),
        ("#file.rb", "@pound"),
        ("docs/a.txt", "@root-docs"),
        ("docs/deep/a.txt", "@all-docs"),
        ("docs/deep/a.md", "@md"),
        ("x/lib/y/z.py", "@lib"),
        ("src/core/x.py", "@general"),  # a whole path
        ("x/src/core", "@not-a-folder"),  # from any folder
        ("a.py", "@range"),
        ("guide/x.md", "@general @docs-team"),  # one of each section
        ("guide/last.md", "@general @last @@maintainer"),
        ("README.md", "@general @readme jane@example.com"),
        ("model/db/x.py", "@general @data"),
        ("model/db/free.py", "@general"),
    ],
)
def test_gitlab(path: str, owners: str) -> None:
    assert " ".join(Owners("CODEOWNERS", GITLAB, gitlab=True).of(path)) == owners


def write(folder: Path, name: str, text: str) -> None:
    """Write a file and its folder."""
    (folder / name).parent.mkdir(exist_ok=True)
    (folder / name).write_text(text, encoding="utf-8")


def test_the_first_place_counts(tmp_path: Path) -> None:
    assert read(tmp_path) is None
    for place in reversed(PLACES):
        owner = f"@{place.partition('/')[0].strip('.')}"
        write(tmp_path, place, f"* {owner}")
        found = read(tmp_path)
        assert found is not None and found.file == place
        assert found.of("x.py") == (owner,)


@pytest.mark.parametrize(
    ("place", "text", "other", "gitlab"),
    [
        ("CODEOWNERS", "* @a", None, False),
        ("CODEOWNERS", "* @a", ".gitlab-ci.yml", True),
        ("CODEOWNERS", "* @a\n^[Part][2] @b", None, True),
        ("docs/CODEOWNERS", "[Part]\n* @a", None, True),
        (".github/CODEOWNERS", "* @a", ".gitlab-ci.yml", False),
        (".gitlab/CODEOWNERS", "* @a", None, True),
    ],
)
def test_who_reads_the_file(tmp_path: Path, place: str, text: str, other: str | None, gitlab: bool) -> None:
    write(tmp_path, place, text)
    if other:
        write(tmp_path, other, "")
    found = read(tmp_path)
    assert found is not None and found.gitlab is gitlab


def test_hostile_files(tmp_path: Path) -> None:
    start = time.monotonic()
    many = "\n".join(f"/{number}/*a*b @x{number}" for number in range(20_000))
    odd = f"{'*a' * 3000} @many\n\0 @zero\n{'x' * 50_000} @long\n* * *"
    owners = Owners("CODEOWNERS", f"{many}\n/{odd}", gitlab=False)
    assert owners.of("3/" + "a" * 200) == ()
    assert owners.of("3/" + "a" * 200 + "b") == ("@x3",)  # the last lines are too long or not valid
    assert time.monotonic() - start < 30
    write(tmp_path, "CODEOWNERS", "#" * (3 * 2**20 + 1))
    with pytest.raises(OSError, match=f"larger than {LARGEST}"):
        read(tmp_path)
