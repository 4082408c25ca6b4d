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
        ("spaced name/x.py", "@org/team-name"),
        ("direct/x.py", "@direct"),
        ("direct/deep/x.py", "@all @second"),
        ("pyproject.toml", "@top"),
        ("src/pyproject.toml", "@all @second"),
    ],
)
def test_github(path: str, owners: str) -> None:
    assert " ".join(Owners("CODEOWNERS", GITHUB).of(path)) == owners


GITLAB = r"""
* @general
*.rb @ruby
\#file.rb @pound
/docs/ @all-docs
/docs/* @root-docs
/docs/**/*.md @md
lib/ @lib
src/core @folder
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
        ("src/core/x.py", "@folder"),
        ("x/src/core", "@general"),
        ("a.py", "@range"),
        ("guide/x.md", "@general @docs-team"),  # one of each section
        ("guide/last.md", "@general @last @@maintainer"),
        ("README.md", "@general @readme jane@example.com"),
        ("model/db/x.py", "@general @data"),
        ("model/db/free.py", "@general"),
    ],
)
def test_gitlab(path: str, owners: str) -> None:
    assert " ".join(Owners("CODEOWNERS", GITLAB).of(path)) == owners


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


def test_hostile_files(tmp_path: Path) -> None:
    start = time.monotonic()
    many = "\n".join(f"/{number}/*a*b @x{number}" for number in range(20_000))
    odd = f"{'*a' * 3000} @many\n\0 @zero\n{'x' * 50_000} @long\n* * *"
    owners = Owners("CODEOWNERS", f"{many}\n/{odd}")
    assert owners.of("3/" + "a" * 200) == ()
    assert owners.of("3/" + "a" * 200 + "b") == ("@x3",)  # the last lines are too long or not valid
    assert time.monotonic() - start < 30
    write(tmp_path, "CODEOWNERS", "#" * (3 * 2**20 + 1))
    with pytest.raises(OSError, match=f"larger than {LARGEST}"):
        read(tmp_path)
