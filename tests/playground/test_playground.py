"""The playground: what it answers, whom it answers, and its page in a browser."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from http.client import HTTPConnection
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from helpers import Cli, ProjectFolder

from devicefix import rewrite_source
from devicefix.playground import serve
from devicefix.playground.check import InvalidRequest, Request, answer
from devicefix.playground.serve import Playground

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

CODE = (
    'import torch\n\nnet = torch.nn.Linear(2, 2).cuda()\nx = torch.ones(2, device="cuda")\nimport apex.amp\n'
)
UNSAFE = "import torch\n\ntorch.backends.cudnn.benchmark = True\nx = torch.load('x.pt')\n"
NOTEBOOK = json.dumps(
    {
        "cells": [
            {"cell_type": "markdown", "id": "a", "metadata": {}, "source": ["# Demo"]},
            {"cell_type": "code", "execution_count": None, "id": "b", "metadata": {}, "outputs": [],
             "source": ["import torch\n", "x = torch.ones(2)"]},
            {"cell_type": "code", "execution_count": None, "id": "c", "metadata": {}, "outputs": [],
             "source": ["y = 1\n", "x = x.cuda()"]},
        ],
        "metadata": {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}},
        "nbformat": 4,
        "nbformat_minor": 5,
    },
    indent=1,
)  # fmt: skip


def request(source: str = CODE, **changes: Any) -> Request:
    return Request(**{"source": source, "notebook": False, "target": "cuda", "unsafe": False, **changes})


def body(source: str = CODE, **changes: Any) -> bytes:
    values = {"source": source, "notebook": False, "target": "cuda", "unsafe": False, **changes}
    return json.dumps(values).encode()


# What it answers


def test_findings_and_the_rewritten_code(tmp_path: Path) -> None:
    found = answer(request(), str(tmp_path))
    assert found["source"] == rewrite_source(CODE).source
    assert [(each["code"], each["line"], each["fix"]) for each in found["findings"]] == [
        ("DF101", 3, "safe"),
        ("DF202", 4, "safe"),
        ("DF902", 5, None),
    ]
    assert (found["fixed"], found["remaining"]) == (2, 1)
    (after,) = found["after"]
    assert "\n".join(after["lines"]) == found["source"]
    assert {after["lines"][number - 1] for number in after["changed"]} == {
        "",
        'device = torch.device("cuda" if torch.cuda.is_available() else "cpu")',
        "net = torch.nn.Linear(2, 2).to(device)",
        "x = torch.ones(2, device=device)",
    }


def test_the_switches(tmp_path: Path) -> None:
    code = "import torch\n\ntorch.cuda.synchronize()\n"
    assert "torch.accelerator" in answer(request(code, target="accelerator"), str(tmp_path))["source"]
    assert "torch.accelerator" not in answer(request(code), str(tmp_path))["source"]
    code = "import torch\n\nx.to(gpu_ids[0])\n"
    safe, unsafe = (answer(request(code, unsafe=each), str(tmp_path)) for each in (False, True))
    assert [each["fix"] for each in safe["findings"]] == ["unsafe"]
    assert (safe["source"], safe["fixed"]) == (code, 0)
    assert (unsafe["source"] != code, unsafe["fixed"]) == (True, 1)


def test_a_notebook_is_rewritten_as_on_the_command_line(
    cli: Cli, project: ProjectFolder, tmp_path_factory: pytest.TempPathFactory
) -> None:
    found = answer(request(NOTEBOOK, notebook=True), str(tmp_path_factory.mktemp("empty")))
    project.write({"demo.ipynb": NOTEBOOK})
    assert cli("rewrite", "--in-place", "demo.ipynb").exit_code == 0
    assert found["source"] == project.read("demo.ipynb") != NOTEBOOK
    assert [(each["cell"], each["line"]) for each in found["findings"]] == [(3, 2)]
    assert [part["cell"] for part in found["before"]] == [part["cell"] for part in found["after"]] == [2, 3]
    assert found["after"][1]["changed"] == [2]


@pytest.mark.parametrize(
    "text",
    [
        "torch.cuda",
        '{"torch.cuda"',
        '["torch.cuda"]',
        '{"torch.cuda": 1, "cells": [3]}',
        '{"torch.cuda": 1, "cells": [{}]}',
    ],
)
def test_what_is_no_notebook(tmp_path: Path, text: str) -> None:
    found = answer(request(text, notebook=True), str(tmp_path))
    assert [each["code"] for each in found["findings"]] == ["DF901"]
    assert found["source"] == text


def test_what_is_no_python(tmp_path: Path) -> None:
    found = answer(request("import torch\nx = (torch.cuda\n"), str(tmp_path))
    assert [each["code"] for each in found["findings"]] == ["DF901"]
    found = answer(request("import torch\nx = '\ud800'.cuda()\n"), str(tmp_path))
    assert [each["code"] for each in found["findings"]] == ["DF901"]


def test_invisible_characters_are_shown_as_escapes(tmp_path: Path) -> None:
    found = answer(request("import torch\n\tx = 'a\u202eb'\n"), str(tmp_path))
    assert found["after"][0]["lines"][1] == "\tx = 'a\\u202eb'"
    assert "\u202e" in found["source"]


def test_no_file_beside_the_code_is_read(project: ProjectFolder, tmp_path_factory: Any) -> None:
    """The current folder of the server may hold anything."""
    project.write({"other.py": "class Net:\n    def cuda(self): ...\n", "config.yaml": "device: cuda\n"})
    code = "from other import Net\nimport yaml\n\nNet().cuda()\nopen('config.yaml')\n"
    empty = str(tmp_path_factory.mktemp("empty"))
    assert answer(request(code), empty) == answer(request(code), str(tmp_path_factory.mktemp("other")))
    assert answer(request(code), empty)["findings"] != answer(request(code), str(project.path))["findings"]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"\xff", "not JSON"),
        (b"[" * 200_000, "not JSON"),
        (b"[]", "must have the keys source, notebook, target, unsafe"),
        (b"{}", "must have the keys"),
        (body(extra=1), "must have the keys"),
        (body(notebook=1), "the type of 'notebook' must be bool"),
        (body(target="tpu"), "the target must be one of cuda, accelerator"),
    ],
)  # fmt: skip
def test_requests_that_the_page_would_not_send(data: bytes, message: str) -> None:
    with pytest.raises(InvalidRequest, match=re.escape(message)):
        Request.read(data)


# Whom it answers


@pytest.fixture(scope="module")
def server() -> Iterator[Playground]:
    """Return a running server."""
    yield from running(Playground())


def running(server: Playground) -> Iterator[Playground]:
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


def ask(
    server: Playground, method: str, path: str, data: bytes = b"", **headers: str | None
) -> tuple[int, Any, Any]:
    """Send a request as the page does; a header that is None is left out."""
    host = f"127.0.0.1:{server.server_port}"
    sent = {"Host": host, "Authorization": f"Bearer {server.token}", "Content-Length": str(len(data))}
    for name, value in headers.items():
        sent[name.replace("_", "-")] = value or ""
        if value is None:
            del sent[name.replace("_", "-")]
    connection = HTTPConnection("127.0.0.1", server.server_port, timeout=60)
    connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
    for name, value in sent.items():
        connection.putheader(name, value)
    connection.endheaders(data)
    response = connection.getresponse()
    content = response.read()
    connection.close()
    return response.status, response.headers, content


def test_it_checks_code(server: Playground) -> None:
    status, headers, content = ask(server, "POST", "/check", body())
    assert (status, headers["Content-Type"]) == (200, "application/json")
    assert json.loads(content)["source"] == rewrite_source(CODE).source


@pytest.mark.parametrize("path", ["/", "/playground.css", "/playground.js", "/about.json", "/?x=1"])
def test_it_serves_its_pages(server: Playground, path: str) -> None:
    status, headers, content = ask(server, "GET", path, Authorization=None)
    assert status == 200
    assert content
    assert "default-src 'none'" in headers["Content-Security-Policy"]
    assert "unsafe" not in headers["Content-Security-Policy"]
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert server.token.encode() not in content


@pytest.mark.parametrize(
    "path", ["/serve.py", "/../serve.py", "/page/playground.html", "//etc/passwd", "/%2e%2e/x", "/check", "*"]
)
def test_no_path_is_opened(server: Playground, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        pytest.fail("a file is opened")

    monkeypatch.setattr("builtins.open", refuse)
    monkeypatch.setattr("io.open", refuse)
    monkeypatch.setattr("os.open", refuse)
    status, _, content = ask(server, "GET", path)
    assert status == 404
    assert b"there is no such page" in content


@pytest.mark.parametrize(
    ("headers", "status", "message"),
    [
        ({"Host": "evil.example"}, 403, "open the address that devicefix printed"),
        ({"Host": "127.0.0.1.evil.example:80"}, 403, "open the address"),
        ({"Host": None}, 403, "open the address"),
        ({"Origin": "https://evil.example"}, 403, "open the address"),
        ({"Origin": "null"}, 403, "open the address"),
        ({"Authorization": None}, 401, "open the complete address"),
        ({"Authorization": "Bearer é"}, 401, "open the complete address"),
        ({"Content_Length": None}, 411, "must have a Content-Length"),
        ({"Content_Length": "-1"}, 411, "must have a Content-Length"),
        ({"Content_Length": "1" * 5000}, 413, "more than 8 MiB"),
        ({"Content_Length": str(serve.LARGEST + 1)}, 413, "more than 8 MiB"),
    ],
)
def test_requests_of_others(
    server: Playground, headers: dict[str, str | None], status: int, message: str
) -> None:
    got, _, content = ask(server, "POST", "/check", b"", **headers)
    assert (got, message in json.loads(content)["error"]) == (status, True)
    if status == 403:
        assert ask(server, "GET", "/", b"", **headers)[0] == 403


def test_other_requests(server: Playground) -> None:
    assert ask(server, "POST", "/")[0] == 404
    assert ask(server, "POST", "/check", b"{}")[0] == 400
    assert ask(server, "PUT", "/check")[0] == 501
    assert ask(server, "OPTIONS", "/check")[0] == 501  # so no other website may send the token
    own = f"http://localhost:{server.server_port}"
    assert ask(server, "POST", "/check", body(), Host=own[7:], Origin=own)[0] == 200


def test_it_listens_on_the_loopback_address_only(server: Playground) -> None:
    assert server.server_address[0] == "127.0.0.1"


def test_each_server_has_its_own_token(server: Playground) -> None:
    with Playground() as other:
        assert other.token != server.token
        assert len(other.token) > 20
        assert other.address.endswith(f"/#{other.token}")


def test_a_client_that_goes_away(server: Playground, capfd: pytest.CaptureFixture[str]) -> None:
    with socket.create_connection(("127.0.0.1", server.server_port)) as client:
        client.sendall(b"POST /check HTTP/1.0\r\nHost: localhost\r\nContent-Length: 100\r\n")
    with socket.create_connection(("127.0.0.1", server.server_port)) as client:
        client.sendall(b"\x16\x03\x01 garbage\r\n\r\n")
    assert ask(server, "POST", "/check", body())[0] == 200
    assert capfd.readouterr().err == ""


@pytest.mark.slow
def test_a_check_that_takes_too_long_ends(tmp_path: Path) -> None:
    for server in running(Playground(seconds=3)):
        long = "import torch\n" + "x = torch.ones(2).cuda()\n" * 50_000
        start = time.monotonic()
        status, _, content = ask(server, "POST", "/check", body(long))
        assert status == 503
        assert "took more than 3 seconds" in json.loads(content)["error"]
        assert time.monotonic() - start < 15
        assert ask(server, "POST", "/check", body())[0] == 200


# The command


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[[], tuple[subprocess.Popen[str], str]]]:
    """Return a function that starts the command and returns it with the address that it prints."""
    started: list[subprocess.Popen[str]] = []
    (tmp_path / "temporary").mkdir()

    def run() -> tuple[subprocess.Popen[str], str]:
        command = [sys.executable, "-c", "from devicefix.cli import main; main()", "playground"]
        process = subprocess.Popen(
            command,
            cwd=tmp_path,
            env={**os.environ, "TMPDIR": str(tmp_path / "temporary")},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        assert process.stdout is not None
        address = process.stdout.readline().removeprefix("Open ").strip()
        assert process.stdout.readline() == "Press Ctrl+C to stop.\n"
        return process, address

    yield run
    for process in started:
        process.kill()
        process.communicate()


@pytest.mark.skipif(os.name == "nt", reason="signals are sent differently there")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_stops_quietly_and_leaves_nothing(
    start: Callable[[], tuple[subprocess.Popen[str], str]], tmp_path: Path, number: int
) -> None:
    process, address = start()
    base, token = address.split("#")
    connection = HTTPConnection(base.removeprefix("http://").rstrip("/"), timeout=60)
    connection.request("POST", "/check", body(), {"Authorization": f"Bearer {token}"})
    assert connection.getresponse().status == 200
    assert len(list((tmp_path / "temporary").iterdir())) == 1
    process.send_signal(number)
    out, err = process.communicate(timeout=30)
    assert (process.returncode, out, err) == (0, "", "")
    assert not list((tmp_path / "temporary").iterdir())
    assert os.listdir(tmp_path) == ["temporary"]


@pytest.mark.skipif(os.name == "nt", reason="signals are sent differently there")
def test_it_does_not_wait_for_a_check(start: Callable[[], tuple[subprocess.Popen[str], str]]) -> None:
    process, address = start()
    base, token = address.split("#")
    connection = HTTPConnection(base.removeprefix("http://").rstrip("/"), timeout=60)
    long = "import torch\n" + "x = torch.ones(2).cuda()\n" * 50_000
    connection.request("POST", "/check", body(long), {"Authorization": f"Bearer {token}"})
    time.sleep(3)
    began = time.monotonic()
    process.send_signal(signal.SIGINT)
    assert process.communicate(timeout=60) == ("", "")
    assert time.monotonic() - began < 10
    connection.close()


@pytest.mark.needs("psutil")
@pytest.mark.skipif(os.name == "nt", reason="signals are sent differently there")
def test_killed_it_leaves_no_process(start: Callable[[], tuple[subprocess.Popen[str], str]]) -> None:
    import psutil

    process, address = start()
    base, token = address.split("#")
    connection = HTTPConnection(base.removeprefix("http://").rstrip("/"), timeout=60)
    connection.request("POST", "/check", body(), {"Authorization": f"Bearer {token}"})
    assert connection.getresponse().status == 200
    workers = psutil.Process(process.pid).children(recursive=True)
    assert workers
    process.kill()
    assert psutil.wait_procs(workers, timeout=10)[1] == []


def test_a_port_that_is_taken(cli: Cli) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = cli("playground", "--port", str(port))
    assert done.exit_code == 2
    assert f"cannot listen on 127.0.0.1:{port}: " in done.stderr
    assert "choose another --port" in done.stderr


# In a browser


@pytest.fixture
def page(browser: Browser, server: Playground) -> Iterator[Page]:
    """Return the opened page. An error, a console message or a request elsewhere fails the test."""
    context = browser.new_context(color_scheme="light", viewport={"width": 1280, "height": 900})
    page = context.new_page()
    trouble: list[str] = []
    base = server.address.partition("#")[0]
    page.on("console", lambda message: trouble.append(message.text))
    page.on("pageerror", lambda error: trouble.append(str(error)))
    page.on(
        "request",
        lambda sent: None if sent.url.startswith((base, "data:", "blob:")) else trouble.append(sent.url),
    )
    page.goto(server.address)
    yield page
    context.close()
    assert trouble == []


def expect_status(page: Page, text: str) -> None:
    from playwright.sync_api import expect

    expect(page.locator("#status")).to_have_text(text, timeout=20_000)


def drop(page: Page, name: str, content: bytes) -> None:
    """Drop a file on the page."""
    page.evaluate(
        """([name, bytes]) => {
            const data = new DataTransfer();
            data.items.add(new File([new Uint8Array(bytes)], name));
            const how = { dataTransfer: data, bubbles: true, cancelable: true };
            document.body.dispatchEvent(new DragEvent("drop", how));
        }""",
        [name, list(content)],
    )


def selected(page: Page) -> str:
    """Return the text that is selected in the box with the focus."""
    box = "document.activeElement"
    text: str = page.evaluate(f"{box}.value.slice({box}.selectionStart, {box}.selectionEnd)")
    return text


def downloaded(page: Page) -> tuple[str, bytes]:
    with page.expect_download() as download:
        page.click("#save")
    return download.value.suggested_filename, Path(download.value.path()).read_bytes()


@pytest.mark.slow
def test_code_is_checked_while_it_is_typed(page: Page) -> None:
    expect_status(page, "5 findings: 3 fixed, 2 left")
    page.get_by_role("textbox", name="Before").fill(CODE)
    expect_status(page, "3 findings: 2 fixed, 1 left")
    made = page.locator("#after .made").all_inner_texts()
    assert "net = torch.nn.Linear(2, 2).to(device)" in made
    assert page.locator(".mark").all_inner_texts() == ["safe fix", "safe fix", "no fix"]
    link = page.get_by_role("link", name="DF101").first
    assert (link.get_attribute("href") or "").endswith("/rules/DF101/")
    page.get_by_role("button", name="line 4").click()
    assert selected(page) == '"cuda")'
    assert downloaded(page) == ("rewritten.py", rewrite_source(CODE).source.encode())
    page.get_by_role("button", name="Clear").click()
    expect_status(page, "Nothing found")


@pytest.mark.slow
def test_the_switches_of_the_page(page: Page) -> None:
    page.get_by_role("textbox", name="Before").fill("import torch\n\nx.to(gpu_ids[0])\n")
    expect_status(page, "1 finding: 0 fixed, 1 left")
    page.get_by_label("Apply unsafe fixes").check()
    expect_status(page, "1 finding: 1 fixed, 0 left")
    page.get_by_label("Target").select_option("accelerator")
    page.get_by_text("torch.accelerator").first.wait_for()


@pytest.mark.slow
def test_files_come_back_byte_for_byte(page: Page) -> None:
    crlf = b"\xef\xbb\xbf" + CODE.replace("\n", "\r\n").encode()
    for name, content in (("net.py", crlf), ("demo.ipynb", NOTEBOOK.encode())):
        drop(page, name, content)
        page.get_by_text(name).wait_for()
        expect_status(
            page, "3 findings: 2 fixed, 1 left" if name == "net.py" else "1 finding: 1 fixed, 0 left"
        )
        assert downloaded(page) == (name, rewrite_source(content, filename=name).source)
    assert page.get_by_role("textbox", name="Before").input_value().startswith("# cell 2\nimport torch\n")
    assert page.get_by_role("textbox", name="Before").get_attribute("readonly") is not None
    page.get_by_role("button", name="cell 3, line 2").click()
    assert selected(page) == "x.cuda()"
    page.set_input_files("#file", {"name": "a.py", "mimeType": "text/x-python", "buffer": b"x = 1\n"})
    expect_status(page, "Nothing found")
    for name, content in (("a.txt", b""), ("a.py", b"\xff")):
        drop(page, name, content)
        page.get_by_role("alert").get_by_text(name).wait_for()


@pytest.mark.slow
def test_code_that_wants_to_be_html(page: Page) -> None:
    page.get_by_role("textbox", name="Before").fill(
        "import torch\nx = '<img src=x onerror=alert(1)>', torch.ones(2).cuda()\n"
    )
    expect_status(page, "1 finding: 1 fixed, 0 left")
    assert page.locator("img").count() == 0
    assert "<img src=x onerror=alert(1)>" in page.locator("#after").inner_text()


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
def test_the_page_fits_and_every_control_has_a_name(page: Page, width: int, scheme: str) -> None:
    page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
    page.set_viewport_size({"width": width, "height": 900})
    expect_status(page, "5 findings: 3 fixed, 2 left")
    page.get_by_text("All rules").click()
    page.get_by_text("DF902").last.wait_for()
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    row = page.locator("#after .made").first  # its background is as wide as its text
    assert row.evaluate("each => each.scrollWidth <= each.clientWidth")
    controls = page.locator("button, input, select, textarea")
    named = "all => all.filter(each => each.labels?.length || each.textContent).length"
    assert controls.evaluate_all(named) == controls.count() > 10
    if folder := os.environ.get("DEVICEFIX_SCREENSHOTS"):
        page.screenshot(path=Path(folder, f"playground-{width}-{scheme}.png"), full_page=True)
    before = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert before == ("rgb(22, 24, 27)" if scheme == "dark" else "rgb(253, 253, 252)")


@pytest.mark.slow
def test_it_works_by_keyboard(page: Page) -> None:
    expect_status(page, "5 findings: 3 fixed, 2 left")
    reached = []
    for _ in range(9):
        page.keyboard.press("Tab")
        reached.append(page.evaluate("document.activeElement.id || document.activeElement.className"))
    assert reached == ["file", "target", "unsafe", "clear", "before", "copy", "save", "after", "place"]


@pytest.mark.slow
def test_without_the_token_the_page_says_what_to_do(browser: Browser, server: Playground) -> None:
    page = browser.new_page()
    page.goto(server.address.partition("#")[0])
    page.get_by_role("alert").get_by_text("open the complete address that devicefix printed").wait_for()
    page.close()
