"""Fetch public packages that are tied to CUDA, and check what devicefix makes of them.

    python benchmarks/corpus.py fetch [DIR]
    python benchmarks/corpus.py report [DIR]
    python benchmarks/corpus.py compare BASE [DIR ...]
    python benchmarks/corpus.py walks [DIR ...]
    python benchmarks/corpus.py comments [DIR ...]
    python benchmarks/corpus.py reasons [DIR ...]

The packages, which `corpus.toml` lists, are unpacked to DIR/<name>-<version>/ and read as text: nothing
of them is built, installed, imported or run.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import stat
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

import corpus_comments
import corpus_compare
import corpus_reasons

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parents[1]
PINS = Path(__file__).with_name("corpus.toml")
WALK_EVERYTHING = """
from devicefix.cli import main
from devicefix.facts.tree import Tree

Tree.LAZY = False
main()
"""
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "devicefix-corpus"


@dataclass(frozen=True)
class Package:
    """One pinned wheel. `python` and `platform` say which one, where a release has several."""

    name: str
    version: str
    sha256: str
    python: str = "3.10"
    platform: str = ""

    @property
    def folder(self) -> str:
        """The folder that it is unpacked to."""
        return f"{self.name}-{self.version}"

    @property
    def requirement(self) -> str:
        """Its line in a requirements file."""
        return f"{self.name}=={self.version} --hash=sha256:{self.sha256}\n"


def read_pins(path: Path = PINS) -> list[Package]:
    """Return the packages of `corpus.toml`."""
    return [Package(**entry) for entry in tomllib.loads(path.read_text("utf-8"))["package"]]


# --- fetch ---


def fetch(root: Path, packages: Iterable[Package]) -> None:
    """Download and unpack the packages that `root` does not hold yet."""
    root.mkdir(parents=True, exist_ok=True)
    missing = [package for package in packages if not (root / package.folder).is_dir()]
    with tempfile.TemporaryDirectory(prefix=".fetch-", dir=root) as name:
        temporary = Path(name)
        for target in sorted({(package.python, package.platform) for package in missing}):
            download(
                [package for package in missing if (package.python, package.platform) == target], temporary
            )
        wheels = {sha256(path): path for path in temporary.glob("*.whl")}
        for package in missing:
            unpack(wheels[package.sha256], temporary / package.folder)
            (temporary / package.folder).rename(root / package.folder)
            print(f"fetched {package.folder}", file=sys.stderr)


def download(packages: list[Package], into: Path) -> None:
    """Let pip download wheels for one Python and platform, and nothing that they depend on."""
    requirements = into / "requirements.txt"
    requirements.write_text("".join(package.requirement for package in packages), "utf-8")
    python, platform = packages[0].python, packages[0].platform
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"]
    command += ["--no-deps", "--only-binary=:all:", "--require-hashes", f"--python-version={python}"]
    command += [f"--platform={platform}", "--abi=cp" + python.replace(".", "")] if platform else []
    subprocess.run([*command, f"--dest={into}", f"--requirement={requirements}"], check=True)


def sha256(path: Path) -> str:
    """Return the hexadecimal sha256 of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def unpack(wheel: Path, into: Path) -> None:
    """Unpack the regular files of `wheel` to the new folder `into`; links and odd names are left out."""
    into.mkdir()
    with zipfile.ZipFile(wheel) as archive:
        for entry in archive.infolist():
            target = inside(entry, into)
            if target is None:
                print(f"left out: {entry.filename!r} of {wheel.name}", file=sys.stderr)
            elif not entry.is_dir():
                target.parent.mkdir(parents=True, exist_ok=True)
                with archive.open(entry) as source, target.open("xb") as sink:
                    shutil.copyfileobj(source, sink)


def inside(entry: zipfile.ZipInfo, folder: Path) -> Path | None:
    """Return where in `folder` an entry goes; None for a link, or for a name that leads elsewhere."""
    name = PurePosixPath(entry.filename)
    mode = stat.S_IFMT(entry.external_attr >> 16)
    odd = name.is_absolute() or ".." in name.parts or any(sign in entry.filename for sign in "\\:\0")
    return None if odd or mode not in (0, stat.S_IFREG, stat.S_IFDIR) else folder.joinpath(*name.parts)


# --- commands ---


def report(arguments: argparse.Namespace) -> int:
    """Print what devicefix makes of the corpus."""
    sys.path.insert(0, str(ROOT))  # the devicefix of this checkout, installed or not
    import corpus_report

    from devicefix.config.settings import Settings

    settings = Settings(fix=True, unsafe_fixes=arguments.unsafe_fixes, target=arguments.target)
    return corpus_report.report(arguments.dir, settings, arguments.jobs, arguments.diff)


def compare(arguments: argparse.Namespace) -> int:
    """Print what differs between a revision and the working tree."""
    with corpus_compare.checkout(arguments.base) as tree:
        old, new = version(arguments, tree), version(arguments, ROOT)
        return corpus_compare.compare(old, new, arguments.dirs or [CACHE], messages=arguments.messages)


def walks(arguments: argparse.Namespace) -> int:
    """Print what differs if expressions are walked before anything asks for them."""
    arguments.jobs = 1  # other processes would not know the setting
    lazy = version(arguments, ROOT)
    full = replace(lazy, program=("-c", WALK_EVERYTHING))
    return corpus_compare.compare(lazy, full, arguments.dirs or [CACHE], messages=True)


def comments(arguments: argparse.Namespace) -> int:
    """Print the comments that rewriting loses."""
    return corpus_comments.report(version(arguments, ROOT), arguments.dirs or [CACHE])


def reasons(arguments: argparse.Namespace) -> int:
    """Print why findings have no safe fix."""
    return min(corpus_reasons.run(version(arguments, ROOT), arguments.dirs or [CACHE]), 1)


def version(arguments: argparse.Namespace, tree: Path) -> corpus_compare.Version:
    """Return the version of devicefix in `tree`, with the options of the command line."""
    unsafe = ("--unsafe-fixes",) if arguments.unsafe_fixes else ()
    options = (f"--target={arguments.target}", f"--jobs={arguments.jobs}")
    return corpus_compare.Version(tree, options, unsafe)


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    folder = argparse.ArgumentParser(add_help=False)
    folder.add_argument(
        "dir", nargs="?", type=Path, default=CACHE, help="the corpus (default: in the user's cache)"
    )
    folders = argparse.ArgumentParser(add_help=False)
    folders.add_argument("dirs", nargs="*", type=Path, help="folders of packages (default: the corpus)")
    options = argparse.ArgumentParser(add_help=False)
    options.add_argument("--unsafe-fixes", action="store_true", help="apply the unsafe fixes too")
    options.add_argument("--target", choices=("cuda", "accelerator"), default="cuda", help="as for devicefix")
    options.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="number of processes")

    result = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    commands = result.add_subparsers(dest="command", required=True)
    command = commands.add_parser("fetch", parents=[folder], help="download and unpack the packages")
    command.set_defaults(call=lambda arguments: fetch(arguments.dir, read_pins()))
    command = commands.add_parser(
        "report", parents=[folder, options], help="check and rewrite them, and print the figures"
    )
    command.add_argument("--diff", type=Path, help="a file to write the rewrites to")
    command.set_defaults(call=report)
    command = commands.add_parser(
        "compare", parents=[options], help="print the findings and rewrites that differ from a revision's"
    )
    command.add_argument("base", help="the revision to compare the working tree with, such as `main`")
    command.add_argument("dirs", nargs="*", type=Path, help="folders of packages (default: the corpus)")
    command.add_argument("--messages", action="store_true", help="compare the messages too")
    command.set_defaults(call=compare)
    command = commands.add_parser(
        "walks", parents=[folders, options], help="compare the lazy walk of expressions with the full one"
    )
    command.set_defaults(call=walks)
    command = commands.add_parser(
        "comments", parents=[folders, options], help="print the comments that rewriting loses"
    )
    command.set_defaults(call=comments)
    command = commands.add_parser(
        "reasons", parents=[folders, options], help="print why findings have no safe fix"
    )
    command.set_defaults(call=reasons)
    return result


def main() -> int:
    """Run the command that was asked for."""
    arguments = parser().parse_args()
    return int(arguments.call(arguments) or 0)


if __name__ == "__main__":
    sys.exit(main())
