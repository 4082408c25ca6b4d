"""Search for programs that devicefix fails on, led by the coverage of its code.

    python benchmarks/fuzz.py CORPUS [--minutes N] [--out DIR]

needs atheris (pip install atheris). The seeds are the small files in the folder CORPUS that can matter, and
programs of `tests/patterns.py`. A mutation puts statements and expressions of the seeds into each other,
changes the form of a program, or its bytes. Each input is checked and rewritten, and must have the properties
of `tests/properties.py`, with one of four settings, which its checksum chooses.

The run does not stop at a failure. For each kind of failure the shortest input goes to DIR, named by a
checksum of the kind, next to a text with the traceback; `statistics.txt` says how far the run has come.
"""

from __future__ import annotations

import argparse
import hashlib
import re
import sys
import tempfile
import time
import traceback
import zlib
from pathlib import Path
from random import Random

import atheris

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parents[1] / "tests")]

with atheris.instrument_imports(include=["devicefix"]):
    import patterns
    import properties

    from devicefix.facts.prefilter import may_matter

LONGEST = 20_000  # bytes of a seed
SLOW = 5.0  # seconds for one input: a failure, too


def seeds(folder: Path) -> list[bytes]:
    """Return the small files in a folder that can matter."""
    found = [path.read_bytes() for path in sorted(folder.rglob("*.py")) if path.is_file()]
    return [data for data in found if len(data) < LONGEST and may_matter(data)]


class Mutator:
    """Makes a program of another one."""

    def __init__(self, contents: list[bytes]) -> None:
        texts = [data.decode(errors="ignore") for data in contents]
        real, own = patterns.fragments_of(texts), patterns.fragments()
        pairs = zip(real, own, strict=True)
        self.pieces = patterns.Fragments(*(tuple(dict.fromkeys((*a, *b))) for a, b in pairs))
        self.ways = (self.fresh, self.formed, self.with_statement, self.with_expression, self.shorter)

    def __call__(self, data: bytes, longest: int, seed: int) -> bytes:
        """Return a mutation of the data, as libFuzzer asks for it."""
        random = Random(seed)
        if random.random() < 0.1:
            return bytes(atheris.Mutate(data, longest))
        text = data.decode(errors="ignore").replace("\r\n", "\n")
        for _ in range(5):
            new = random.choice(self.ways)(random, text)
            if new != text and patterns.parses(new):
                text = new
                if random.random() < 0.4:
                    break
        return text.encode()[:longest]

    def fresh(self, random: Random, text: str) -> str:
        """Return a new program, sometimes with the old one after it."""
        new = patterns.program(random, self.pieces).decode()
        return new + text if random.random() < 0.2 else new

    def formed(self, random: Random, text: str) -> str:
        """Return the same program in another form."""
        return patterns.formed(random, text)

    def with_statement(self, random: Random, text: str) -> str:
        """Insert a statement between two lines, indented as the next one."""
        lines = text.split("\n")
        at = random.randrange(len(lines))
        indentation = re.match(r"\s*", lines[at])
        new = random.choice(self.pieces.statements or ("x.cuda()",))
        lines[at:at] = [(indentation.group() if indentation else "") + line for line in new.split("\n")]
        return "\n".join(lines)

    def with_expression(self, random: Random, text: str) -> str:
        """Replace a name or the arguments of a call by an expression."""
        places = list(re.finditer(r"(?<![\w.])[a-z]\w*(?![\w=])|(?<=\()[^()]*(?=\))", text))
        if not places:
            return text
        place = random.choice(places)
        return text[: place.start()] + random.choice(self.pieces.expressions) + text[place.end() :]

    def shorter(self, random: Random, text: str) -> str:
        """Remove some lines of the program."""
        lines = text.split("\n")
        at = random.randrange(len(lines))
        del lines[at : at + random.choice((1, 2, 5, 20))]
        return "\n".join(lines)


def kind_of(problem: Exception) -> str:
    """Return what failures of one cause have in common: type, place, and first rule or words."""
    frame = traceback.extract_tb(problem.__traceback__)[-1]
    code = re.search(r"DF\d+", str(problem))
    words = code.group() if code else re.sub(r"\d+|'[^']*'.*", "", str(problem))[:80]
    return f"{type(problem).__name__} {frame.name}:{frame.lineno} {words}"


class Target:
    """Tries inputs, and keeps what fails."""

    def __init__(self, out: Path) -> None:
        self.out = out
        self.started = time.monotonic()
        self.inputs = self.parsed = self.rewritten = self.failed = 0
        self.shortest: dict[str, int] = {}

    def __call__(self, data: bytes) -> None:
        """Try one input."""
        settings = properties.SETTINGS[zlib.crc32(data) % len(properties.SETTINGS)]
        self.inputs += 1
        self.parsed += patterns.parses(data.decode(errors="replace"))
        started = time.monotonic()
        try:
            self.rewritten += properties.hold(data, settings)
            if time.monotonic() - started > SLOW:
                raise TimeoutError("slow")
        except Exception as problem:
            self.keep(data, problem, f"target={settings.target} unsafe_fixes={settings.unsafe_fixes}")
        if self.inputs % 50 == 0:
            self.write_statistics()

    def keep(self, data: bytes, problem: Exception, settings: str) -> None:
        """Keep an input that fails, if it is the shortest of its kind."""
        self.failed += 1
        kind = kind_of(problem)
        if len(data) < self.shortest.get(kind, sys.maxsize):
            self.shortest[kind] = len(data)
            name = hashlib.sha256(kind.encode()).hexdigest()[:12]
            (self.out / f"{name}.py").write_bytes(data)
            trace = "".join(traceback.format_exception(problem))
            (self.out / f"{name}.txt").write_text(f"{kind}\n{settings}\n\n{trace}")

    def write_statistics(self) -> None:
        """Write down how far the run has come."""
        kinds = "\n".join(sorted(self.shortest))
        (self.out / "statistics.txt").write_text(
            f"seconds {time.monotonic() - self.started:.0f}\ninputs {self.inputs}\nparsed {self.parsed}\n"
            f"rewritten {self.rewritten}\nfailed {self.failed}\nkinds {len(self.shortest)}\n{kinds}\n"
        )


def main() -> None:
    """Fuzz until the time is over."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--out", type=Path, default=Path("fuzz-failures"))
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    contents = seeds(given.corpus)
    print(f"{len(contents)} files of the corpus are seeds", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        contents += [patterns.program(Random(seed)) for seed in range(500)]
        for number, data in enumerate(contents):
            (Path(folder) / f"{number:05}").write_bytes(data)
        seconds = f"-max_total_time={given.minutes * 60:.0f}"
        limits = [seconds, f"-max_len={LONGEST}", "-timeout=60", "-rss_limit_mb=6000"]
        limits.append(f"-artifact_prefix={given.out}/")  # for what hangs, or ends the process
        atheris.Setup([sys.argv[0], folder, *limits], Target(given.out), custom_mutator=Mutator(contents))
        atheris.Fuzz()


if __name__ == "__main__":
    main()
