"""The migration report: its figures, its safety with untrusted code, and its behaviour in a browser."""

from __future__ import annotations

import html
import json
import os
import re
import shutil
import stat
import subprocess
import sys
import zipfile
from base64 import b64encode
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

import pytest
from helpers import ROOT, Cli, CliResult, Git, replaced

from devicefix.config.installation import install_command
from devicefix.config.settings import Settings
from devicefix.engine.file import check_file
from devicefix.facts.project import Project
from devicefix.files.text import LINE_END, Source
from devicefix.model import Finding, Fix, Replacement
from devicefix.report import side_by_side
from devicefix.rules.base import Rule
from devicefix.rules.categories import category
from devicefix.rules.registry import RULES
from devicefix.runner.coverage import Entry, Seen, add, digest

pytestmark = pytest.mark.needs("jinja2", "markdown_it")

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

PAGE = "devicefix-report.html"
NET = (
    "import torch\nfrom model import Net\n\nnet = Net().cuda()\nx = torch.zeros(2).cuda()\nimport apex.amp\n"
)
STATE = "import torch\n\nstate = torch.cuda.get_rng_state()\n"
HOSTILE = "a</script><img src=x onerror=alert(1)>\u202e'\"`&.py"
HOSTILE_CODE = (
    "import torch\n\n"
    "# </script><script>document.title = 'pwned'</script> \u202e right to left \x07\n"
    "x = f('</script><!--<script>', '''\u2066' \"''').cuda()\n"
)

Report = Callable[..., CliResult]


@pytest.fixture
def report(cli: Cli, tmp_path: Path) -> Report:
    """Return `devicefix report`, in a folder with some code."""
    grow(tmp_path)
    return lambda *arguments, **options: cli("report", *arguments, **options)


def grow(folder: Path) -> None:
    """Write a small project: three safe fixes, one unsafe, one tie for people, in three files of four."""
    for name, text in {
        "train.py": NET,
        "lib/state.py": STATE,
        "lib/free.py": "import torch\n",
        f"lib/{HOSTILE}": HOSTILE_CODE,
    }.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")


def figures(page: str) -> dict[str, str]:
    """Return the headline figures of a page."""
    found = re.findall(r"<dt>(.*?)</dt><dd>(.*?)</dd>", page)
    return {" ".join(re.sub("<[^>]*>", "", name).split()): number for name, number in found}


def test_the_fixes_that_ran_are_shown(report: Report, tmp_path: Path) -> None:
    def entry(name: str, *fixes: Seen) -> Entry:
        return Entry(digest((tmp_path / name).read_bytes()), "new", fixes)

    ran, missed = Seen(4, 7, "DF101", (True, True)), Seen(5, 5, "DF101", (True, False))
    net, x = (finding for finding in check_file(NET.encode(), "train.py", Settings(), Project()).findings[:2])
    assert [(fix.line, fix.column, fix.code) for fix in (ran, missed)] == [
        (each.line, each.column, each.code) for each in (net, x)
    ]
    file = tmp_path / "runs.json"
    add(file, {"train.py": entry("train.py", ran, missed)}, ())
    done = report("--coverage-file", "runs.json", ".")
    assert (done.exit_code, done.stderr) == (0, "")
    page = Path(PAGE).read_text(encoding="utf-8")
    assert figures(page)["fixes that ran"] == "1"
    assert "<strong>1 of 3 fixes</strong> ran" in page and "1 of 2 ran" in page and "0 of 1 ran" in page
    found = re.findall(r'data-rule="(\w+)"[^>]*data-safety="(\w+)"(?: data-run="(\w+)")?>', page)
    assert sorted(found) == sorted(
        [("DF101", "safe", "ran"), *[("DF101", "safe", "missed")] * 2, *_without_run(page)]
    )
    (tmp_path / "train.py").write_text(NET + "\n")
    done = report("--coverage-file", "runs.json", ".")
    assert "1 file changed since the runs in runs.json" in done.stderr
    assert figures(Path(PAGE).read_text(encoding="utf-8"))["fixes that ran"] == "0"
    file.write_text("{}")
    done = report("--coverage-file", "runs.json", ".")
    assert done.exit_code == 2 and "runs.json: not a coverage file: it has no" in done.stderr
    report(".")
    assert "data-run=" not in Path(PAGE).read_text(encoding="utf-8")


def _without_run(page: str) -> list[tuple[str, str, str]]:
    """Return the findings of a page whose fixes no run can verify: they have no fix, or an unsafe one."""
    found = re.findall(r'data-rule="(\w+)"[^>]*data-safety="(unsafe|left)">', page)
    assert len(found) == 2
    return [(code, safety, "") for code, safety in found]


def test_the_figures_are_those_of_check(cli: Cli, report: Report) -> None:
    done = report(".")
    assert (done.exit_code, done.output) == (0, f"Wrote the report to {PAGE}\n")
    assert figures(Path(PAGE).read_text(encoding="utf-8")) == {
        "files checked": "4",
        "files with findings": "3",
        "findings": "5",
        "fixed by a rewrite": "3",
        "fixed with --unsafe-fixes": "1",
        "left to fix by hand": "1",
    }
    checked = cli("check").output
    assert "Found 5 findings in 3 of 4 files.\n[*] 3 fixable" in checked


def test_a_reason_and_a_way_out_for_what_is_left(report: Report) -> None:
    page = report("train.py", "-o", "-").stdout
    assert "use <code>torch.autocast(" in page
    advice = RULES["DF902"].__doc__.partition("## Use instead")[2].split()[:4]  # type: ignore[union-attr]
    assert f"<h4>Use instead</h4>\n<p>{' '.join(advice)}" in page


def test_options(report: Report) -> None:
    page = report("--select", "DF9", "--exclude", "lib", "--title", "A <b>", "--quiet", "-o", "-").stdout
    assert figures(page)["findings"] == "1"
    assert "<h1>A &lt;b&gt;</h1>" in page
    assert "UTC" not in page
    assert re.search(r"\d{4}-\d\d-\d\d \d\d:\d\d UTC", report("--timestamp", "-o", "-").stdout)


def test_a_report_without_findings(report: Report) -> None:
    page = report("lib/free.py", "-o", "-").stdout
    assert figures(page)["findings"] == "0"
    assert "No code tied to CUDA was found." in page


def test_standard_input(cli: Cli) -> None:
    page = cli("report", "-", "-o", "-", input=NET).stdout
    assert [4, ["net = Net().", "cuda(", ")"], 6, ["net = Net().", "to(device", ")"]] in code(page)[0]


def test_the_same_input_gives_the_same_page(report: Report) -> None:
    assert report("-o", "-").stdout == report("-o", "-", "-j", "2", "--no-cache").stdout


def test_the_page_names_the_revision(report: Report, git: Git, tmp_path: Path) -> None:
    git.commit_all()
    head = git("rev-parse", "HEAD")
    assert f"revision {head[:12]}</p>" in report("-o", "-").stdout
    (tmp_path / "train.py").write_text(NET + "#\n")
    assert f"revision {head[:12]}, with uncommitted changes</p>" in report("-o", "-").stdout


def test_an_existing_page_is_replaced_atomically(report: Report, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    page.write_text("old")
    page.chmod(0o640)
    with page.open() as reader:
        assert report("-o", "page.html").exit_code == 0
        assert reader.read() == "old"
    assert stat.S_IMODE(page.stat().st_mode) == 0o640
    assert page.read_text(encoding="utf-8").startswith("<!doctype html>")
    assert sorted(os.listdir(tmp_path)) == [".devicefix_cache", "lib", "page.html", "train.py"]


@pytest.mark.parametrize(
    ("output", "words"),
    [
        ("none/page.html", "the folder 'none' does not exist"),
        ("lib", "is a directory"),
        ("l/p", "the folder 'l' does not exist"),
    ],
)
def test_an_unwritable_output_is_an_error(report: Report, output: str, words: str) -> None:
    done = report("-o", output)
    assert done.exit_code == 2
    assert words in done.stderr


def test_without_the_template_library(report: Report, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jinja2", None)
    for module in ("environment", "migration_page"):
        monkeypatch.delitem(sys.modules, f"devicefix.report.{module}", raising=False)
    monkeypatch.delattr("devicefix.report.migration_page", raising=False)
    done = report()
    assert done.exit_code == 2
    assert done.stderr == f"Error: report needs jinja2: {install_command('report')}\n"


def test_untrusted_code_is_escaped(report: Report) -> None:
    page = report("-o", "-").stdout
    scripts = re.findall(r"<script\b[^>]*>", page)
    assert scripts == ['<script type="application/json">'] * 3 + ["<script>"]
    assert page.count("</script") == len(scripts)
    assert not re.search(r"<img|<!--", page)
    assert all(character.isprintable() or character == "\n" for character in page)
    assert "a&lt;/script&gt;&lt;img src=x onerror=alert(1)&gt;\\u202e&#39;&#34;`&amp;.py" in page
    (changed,) = [row for row in code(page)[0] if len(row) == 4]
    parts = changed[1]
    assert isinstance(parts, list)
    assert "".join(parts) == HOSTILE_CODE.splitlines()[-1]


def test_only_the_pages_own_script_and_style_may_run(report: Report) -> None:
    page = report("-o", "-").stdout
    (policy,) = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]*)"', page)
    assert html.unescape(policy).startswith("default-src 'none'; base-uri 'none'; form-action 'none'; ")
    for element in ("script", "style"):
        (text,) = re.findall(rf"<{element}>(.*?)</{element}>", page, re.S)
        digest = b64encode(sha256(text.encode()).digest()).decode()
        assert f"{element}-src 'sha256-{digest}'" in html.unescape(policy)
    assert not re.search(
        r'\bstyle="|\son\w+="|https?://', re.sub(r"<script>.*?</script>", "", page, flags=re.S)
    )


def test_a_notebook_shows_the_code_of_the_cell(report: Report, tmp_path: Path) -> None:
    cells: list[dict[str, Any]] = [
        {"cell_type": kind, "metadata": {}, "source": source, "outputs": [], "execution_count": None}
        for kind, source in (
            ("markdown", ["# Title\n", "x"]),
            ("code", "import torch"),
            ("code", ["# so\n", "x.cuda()"]),
        )
    ]
    notebook = {"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": cells}
    (tmp_path / "play.ipynb").write_text(json.dumps(notebook))
    page = report("play.ipynb", "-o", "-").stdout
    assert ">cell 3:2:1</a>" in page
    assert code(page) == [[[1, 1, ["# so"]], [2, ["x.", "cuda(", ")"], 2, ["x.", "to(device", ")"]]]]


def code(page: str) -> list[list[side_by_side.Row]]:
    """Return the rows of each finding, from the data in the page."""
    data = re.findall(r'<script type="application/json">(.*?)</script>', page)
    return [rows for each in data for rows in json.loads(each)[1]]


@pytest.mark.parametrize(
    "rule", [rule for rule in RULES.values() if rule.INVALID and not rule.needs_run], ids=lambda r: r.code
)
def test_rows_show_what_the_file_holds_and_what_the_fix_makes(rule: type[Rule]) -> None:
    selected = ("DF",) if rule.code == "DF001" else (rule.code,)
    settings = Settings(select=selected, target=rule.targets[0], replacements=True)
    count = 0
    for example in rule.INVALID:
        source = Source(example.before.encode())
        lines: dict[int | None, list[str]] = {None: LINE_END.split(source.text)}
        for finding in check_file(example.before.encode(), "module.py", settings, Project()).findings:
            count += 1
            after = replaced(source.text, finding.fix.replacements) if finding.fix else source.text
            shown = side_by_side.rows(finding, lines.__getitem__)
            hold(shown, source.text, after)
            assert any(len(row) == (4 if after != source.text else 2) for row in shown)
    assert count


def hold(rows: list[side_by_side.Row], before: str, after: str) -> None:
    """Fail unless the rows hold the lines of the texts with their numbers."""
    old, new = (re.split("\r\n|\r|\n", text) for text in (before, after))
    for row in rows:
        numbers = [field for field in row if isinstance(field, int)]
        texts = ["".join(field) for field in row if isinstance(field, list)]
        if len(row) == 2:
            assert texts == [old[numbers[0] - 1]]
        elif len(row) == 3:
            assert texts == [old[numbers[0] - 1]] == [new[numbers[1] - 1]]
        elif len(row) == 4:
            assert texts == [
                lines[number - 1] if number else "" for lines, number in zip((old, new), numbers, strict=True)
            ]


def test_long_code_is_shortened() -> None:
    text = "x(\n" + "    1,\n" * 300 + ")  # " + "z" * 1000 + "\n"
    finding = Finding("DF902", "m", 1, 1, 302, 2)
    rows = side_by_side.rows(finding, lambda _: text.split("\n"))
    assert len(rows) == side_by_side.MAX_ROWS + 1
    assert rows[20] == [302 - side_by_side.MAX_ROWS]
    assert max(len(part) for row in rows for field in row if isinstance(field, list) for part in field) < 170


def test_a_file_that_changed_since_the_check_is_shown_without_code() -> None:
    fix = Fix((), replacements=(Replacement(9, 1, 9, 2, "x"),))
    assert side_by_side.rows(Finding("DF101", "m", 9, 1, 9, 2, fix), lambda _: ["x", ""]) == []


def test_every_rule_belongs_to_a_family_with_a_name() -> None:
    assert all(category(code).summary for code in RULES)
    assert category("XY101") == ("XY1", "XY1", "")


@pytest.mark.slow
def test_the_wheel_contains_the_templates(tmp_path: Path) -> None:
    """The wheel is made from the source distribution."""
    for name in ("devicefix", "pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md"):
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, tmp_path / name)
    subprocess.run(
        [sys.executable, "-m", "build", "-o", "dist"], cwd=tmp_path, check=True, capture_output=True
    )
    (wheel,) = (tmp_path / "dist").glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert {f"devicefix/report/templates/report.{end}" for end in ("css", "js", "html.jinja")} <= set(names)


# -- in a browser -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Write a page, and return its address."""
    folder = tmp_path_factory.mktemp("report")
    (folder / "code").mkdir()
    grow(folder / "code")
    output = folder / "page.html"
    assert Cli()("report", folder / "code", "-o", output).exit_code == 0
    return output.as_uri()


@pytest.fixture(scope="module")
def team_address(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Write a page with owners, an earlier report and many findings, and return its address."""
    folder = tmp_path_factory.mktemp("team") / "code"
    folder.mkdir()
    grow(folder)
    (folder / "CODEOWNERS").write_text("* @org/everybody\n/lib/ @org/library @sam\n/train.py\n")
    lines = "".join(f"    torch.cuda.synchronize()\n    print({number})\n" for number in range(40))
    for number in range(3):
        (folder / f"lib/long{number}.py").write_text(f"import torch\n\ndef f():\n{lines}")
    assert Cli()("report", folder, "-o", folder / "old.json", "--timestamp").exit_code == 0
    (folder / "lib/long2.py").write_text(
        f"import torch\n\ndef f():\n{lines}".replace("synchronize", "init", 3)
    )
    (folder / "lib/state.py").write_text("import torch\n")
    (folder / f"lib/{HOSTILE}").unlink()
    output = folder.parent / "page.html"
    done = Cli()("report", folder, "-o", output, "--since", folder / "old.json")
    assert (done.exit_code, done.stderr) == (0, "")
    return output.as_uri()


@pytest.fixture
def page(browser: Browser, address: str) -> Iterator[Page]:
    """Return the opened page."""
    yield from opened(browser, address)


@pytest.fixture
def team_page(browser: Browser, team_address: str) -> Iterator[Page]:
    """Return the opened page with owners and an earlier report."""
    yield from opened(browser, team_address)


def opened(browser: Browser, address: str) -> Iterator[Page]:
    """Yield an opened page. Any error, console message or other request fails the test."""
    context = browser.new_context(color_scheme="light", viewport={"width": 1280, "height": 900})
    page = context.new_page()
    trouble: list[str] = []
    page.on("console", lambda message: trouble.append(message.text))
    page.on("pageerror", lambda error: trouble.append(str(error)))
    page.on(
        "request", lambda request: None if request.url.startswith(address) else trouble.append(request.url)
    )
    page.goto(address)
    yield page
    context.close()
    assert trouble == []


def shown(page: Page) -> list[str]:
    """Return the rules of the visible findings."""
    return [
        item.get_attribute("data-rule") or ""
        for item in page.locator("li[data-rule]").all()
        if item.is_visible()
    ]


def expect_shown(page: Page, count: str) -> None:
    """Wait until the page shows this count."""
    from playwright.sync_api import expect

    expect(page.locator("#shown")).to_contain_text(count)


@pytest.mark.slow
def test_filters_and_search(page: Page) -> None:
    assert len(shown(page)) == 5  # few enough to be open
    page.select_option("[name=safety]", "safe")
    expect_shown(page, "3 findings of 5, in 2 files")
    page.select_option("[name=package]", "lib/a<")
    expect_shown(page, "1 finding of 5, in 1 file")
    assert page.url.endswith("#safety=safe&package=lib%2Fa%3C")
    page.select_option("[name=rule]", "DF401")
    expect_shown(page, "0 findings of 5")
    page.click("text=Show all")
    expect_shown(page, "5 findings of 5, in 3 files")
    for words, rules in (
        ("ZEROS(2)", ["DF101"]),
        ("lib rng_state", ["DF401"]),
        ("apex autocast", ["DF902"]),
        ("nowhere", []),
    ):
        page.fill("[type=search]", words)
        page.wait_for_url(f"**/*#{urlencode({'text': words})}")
        assert shown(page) == rules
    assert page.is_visible("text=Nothing matches.")


@pytest.mark.slow
def test_a_link_opens_what_it_names(team_page: Page) -> None:
    page = team_page
    assert page.locator("details.file[open]").count() == 0  # too many findings
    page.click("#people h3 a >> text=DF902")
    expect_shown(page, "1 finding of")
    assert page.locator("details.file[open] .path").all_text_contents() == ["train.py"]
    assert shown(page) == ["DF902"]
    page.reload()
    expect_shown(page, "1 finding of")
    assert shown(page) == ["DF902"]
    assert page.locator("li[data-rule=DF902] table.code").is_visible()
    page.evaluate("location.hash = '#rule=DF401'")  # 120 findings in three files
    expect_shown(page, "in 3 files")
    assert page.locator("details.file[open] >> visible=true").count() == 3


@pytest.mark.slow
def test_filter_by_owner_and_since(team_page: Page) -> None:
    page = team_page
    page.click("#owners a >> text=@sam")
    expect_shown(page, "120 findings of")
    assert page.url.endswith("#owner=%40sam") and page.input_value("[name=owner]") == "@sam"
    page.click("#owners a >> text=no owner")
    expect_shown(page, "3 findings of 123")
    assert page.locator("details.file .path >> visible=true").all_text_contents() == ["train.py"]
    page.select_option("[name=owner]", "@org/library")
    page.select_option("[name=status]", "new")
    expect_shown(page, "3 findings of 123, in 1 file")
    assert page.locator("li[data-status=new] .mark.new").count() == 3
    page.click("#since summary >> text=fixed findings")
    fixed = page.locator("#since .gone-list").first.locator("li").all_text_contents()
    assert len(fixed) == 4 and fixed[0].startswith("lib/")


@pytest.mark.slow
@pytest.mark.parametrize("width", [390, 1280])
def test_owners_and_progress_fit_the_screen(team_page: Page, width: int) -> None:
    team_page.set_viewport_size({"width": width, "height": 800})
    assert team_page.evaluate("document.documentElement.scrollWidth") <= width


@pytest.mark.slow
def test_charts_lead_to_the_findings_and_back(page: Page) -> None:
    page.click("#categories >> text=Outside the code")
    expect_shown(page, "1 finding")
    assert shown(page) == ["DF902"]
    page.click("#people .places a >> nth=0")
    page.wait_for_url("**/*#tie-*")
    page.go_back()
    page.wait_for_url("**/*#category=DF9")
    assert page.input_value("[name=category]") == "DF9"
    page.evaluate("location.hash = '#package=lib&safety=unsafe'")
    expect_shown(page, "1 finding")
    assert shown(page) == ["DF401"]


@pytest.mark.slow
def test_code_before_and_after_with_the_changed_parts_marked(page: Page) -> None:
    code = page.locator("li[data-rule=DF101]").filter(has_text="5:5").locator("table.code")
    assert code.locator("del").all_text_contents() == ["cuda("]
    assert code.locator("ins").all_text_contents() == ["to(device"]
    assert code.locator("td.gone").get_attribute("data-line") == "5"
    assert code.locator("td.made").get_attribute("data-line") == "7"
    hostile = page.locator("details.file").filter(has_text="onerror")
    assert "\\u202e" in hostile.locator(".escape").all_text_contents()
    assert "</script><!--<script>" in (hostile.locator("td.gone").text_content() or "")
    assert page.title().startswith("code:")


@pytest.mark.slow
def test_works_by_keyboard(page: Page) -> None:
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    page.keyboard.press("Enter")
    file = page.locator("details.file").first
    file.locator("summary").focus()
    page.keyboard.press("Enter")
    assert file.get_attribute("open") is None
    page.keyboard.press("Space")
    assert file.get_attribute("open") is not None


@pytest.mark.slow
def test_light_and_dark(page: Page) -> None:
    def paper() -> str:
        return str(page.evaluate("getComputedStyle(document.body).backgroundColor"))

    light = paper()
    page.emulate_media(color_scheme="dark")
    dark = paper()
    assert light != dark
    page.select_option("#theme", "light")
    assert paper() == light
    page.reload()
    assert paper() == light
    page.emulate_media(color_scheme="light")
    page.select_option("#theme", "dark")
    assert paper() == dark


@pytest.mark.slow
def test_prints_with_everything_open(page: Page) -> None:
    page.click("text=Close them")
    assert page.pdf().startswith(b"%PDF")
    assert page.locator("details[open]").count() == 0  # as it was
    page.evaluate("window.dispatchEvent(new Event('beforeprint'))")
    page.emulate_media(media="print", color_scheme="dark")
    assert page.locator("details:not([open])").count() == 0
    assert page.locator("li[data-rule] table.code").count() == 5
    assert page.locator("nav").is_hidden()
    assert (
        page.evaluate("getComputedStyle(document.querySelector('td.made')).backgroundColor")
        == "rgb(236, 246, 241)"
    )


@pytest.mark.slow
@pytest.mark.parametrize("width", [320, 390, 1280])
def test_fits_the_screen(page: Page, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 800})
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    outside = """() => [...document.querySelectorAll('main *, header *')].filter((each) => {
        const box = each.getBoundingClientRect();
        return box.width && box.right > innerWidth + 1 && !each.closest('.unseen, pre');
    }).map((each) => each.outerHTML.slice(0, 80))"""
    assert page.evaluate(outside) == []


@pytest.mark.slow
def test_nothing_is_fetched_or_run_from_elsewhere(browser: Browser, address: str) -> None:
    page = browser.new_page()
    page.goto(address)
    refused = """() => new Promise((done) => {
        document.addEventListener('securitypolicyviolation', (event) => done(event.effectiveDirective));
        fetch('https://example.org').catch(() => setTimeout(done, 100, 'no network'));
    })"""
    assert page.evaluate(refused) == "connect-src"
    add = """() => {
        const added = document.createElement('script');
        added.textContent = 'window.ran = 1';
        document.body.append(added);
    }"""
    page.evaluate(add)
    assert page.evaluate("window.ran") is None
    page.close()


@pytest.mark.slow
def test_without_javascript(browser: Browser, address: str) -> None:
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(address)
    assert page.locator(".figures dd").all_text_contents() == ["4", "3", "5", "3", "1", "1"]
    assert page.locator("#filter").is_hidden()
    assert page.locator("noscript p").is_visible()
    page.locator("details.file summary").last.click()
    assert page.locator("li[data-rule] .message").last.is_visible()
    context.close()


@pytest.mark.slow
def test_two_thousand_findings(browser: Browser, cli: Cli, tmp_path: Path) -> None:
    body = "".join(
        f"\n\ndef step{each}(x, net):\n    # {each}\n    return net(x.cuda())\n" for each in range(20)
    )
    for number in range(100):
        folder = tmp_path / f"package{number % 12}"
        folder.mkdir(exist_ok=True)
        (folder / f"module{number}.py").write_text(f"import torch\n{body}")
    assert cli("report", "-q").exit_code == 0
    assert os.path.getsize(PAGE) < 2_000_000
    page = browser.new_page()
    page.goto((tmp_path / PAGE).as_uri())
    assert page.inner_text("#shown") == "2,000 findings of 2,000, in 100 files"
    took = page.evaluate("""async () => {
        const start = performance.now();
        location.hash = '#text=package7';
        await new Promise((done) => setTimeout(done));
        await new Promise((done) => requestAnimationFrame(() => setTimeout(done)));
        return performance.now() - start;
    }""")
    assert page.inner_text("#shown") == "160 findings of 2,000, in 8 files"
    assert took < 2000
    assert page.locator("details.file[open]").count() == 5  # the first ones, with the 100 findings
    assert page.locator("table.code tbody").count() == 100  # the others are made as they are needed
    page.evaluate("window.dispatchEvent(new Event('beforeprint'))")
    assert page.locator("table.code tbody").count() == 160
    page.close()
