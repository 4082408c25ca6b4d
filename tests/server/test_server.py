"""`devicefix server`, with the capabilities that three editors send."""

from __future__ import annotations

import asyncio
import gc
import re
import sys
import weakref
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import pytest_lsp
from helpers import runner
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from lsprotocol import types
from pygls.workspace import PositionCodec
from pytest_lsp import ClientServerConfig, LanguageClient, client_capabilities, make_test_lsp_client

from devicefix import check_paths, rewrite_source
from devicefix.cli import main
from devicefix.config.installation import install_command
from devicefix.server.text import Text, lines_of
from devicefix.server.workspace import Workspace

pytestmark = pytest.mark.asyncio(loop_scope="module")


def config(*command: str) -> ClientServerConfig:
    """Return how to start a server, and a client that can watch files."""

    def client() -> LanguageClient:
        made = make_test_lsp_client()
        made.feature(types.CLIENT_REGISTER_CAPABILITY)(lambda params: REGISTERED.extend(params.registrations))
        return made

    return ClientServerConfig(server_command=[sys.executable, *command], client_factory=client)


REGISTERED: list[types.Registration] = []
SERVER = config("-m", "devicefix", "server")
TIMEOUT = 60
SOURCE = "import torch\n\nx = torch.ones(1).cuda()\ny = torch.ones(1).cuda()\nz = torch.device('cuda')\n"
UNSAFE = "import torch\n\nself.state = torch.cuda.get_rng_state()\n"
NET = "import torch\n\nclass Net(torch.nn.Module):\n    def cuda(self):\n        return self\n"
USE = "import torch\nfrom net import Net\n\nmodel = Net().cuda()\n"
ENCODINGS = {"utf-8": "utf-8", "utf-16": "utf-16-le", "utf-32": "utf-32-le"}
UNITS = {"utf-8": 1, "utf-16": 2, "utf-32": 4}


class Editor:
    """An editor with one workspace folder, in which each test has its own project."""

    def __init__(self, client: LanguageClient, top: Path, encoding: str) -> None:
        self.client = client
        self.top = top
        self.encoding = encoding
        self.texts: dict[str, str] = {}
        self.versions: dict[str, int] = {}
        self.published: list[types.PublishDiagnosticsParams] = []
        self._listen()

    def _listen(self) -> None:
        """Store every message, since waiting for the next one misses the second of two that come together."""
        handle = self.client.protocol._handle_notification

        def keep(method: str, params: Any) -> None:
            if method == types.TEXT_DOCUMENT_PUBLISH_DIAGNOSTICS:
                self.published.append(params)
            handle(method, params)

        self.client.protocol._handle_notification = keep  # type: ignore[method-assign]

    def project(self, name: str, settings: str = "", **files: str) -> Path:
        """Create a folder with its own settings and with files."""
        folder = self.top / name
        folder.mkdir()
        (folder / "devicefix.toml").write_text(settings)
        for stem, text in files.items():
            (folder / f"{stem}.py").write_text(text)
        return folder

    def open(self, file: Path, text: str | None = None) -> str:
        """Open a file, perhaps with unsaved text."""
        self.published.clear()
        uri = file.as_uri()
        self.texts[uri] = file.read_text() if text is None else text
        self.versions[uri] = 1
        item = types.TextDocumentItem(uri, "python", 1, self.texts[uri])
        self.client.text_document_did_open(types.DidOpenTextDocumentParams(item))
        return uri

    def type(self, uri: str, line: int, character: int, text: str, removed: int = 0) -> None:
        """Replace a number of units in a line with text."""
        self.published.clear()
        start, end = types.Position(line, character), types.Position(line, character + removed)
        self.texts[uri] = self.applied(uri, [types.TextEdit(types.Range(start, end), text)])
        self.versions[uri] += 1
        self.client.text_document_did_change(
            types.DidChangeTextDocumentParams(
                types.VersionedTextDocumentIdentifier(version=self.versions[uri], uri=uri),
                [types.TextDocumentContentChangePartial(range=types.Range(start, end), text=text)],
            )
        )

    async def shown(self, uri: str) -> Sequence[types.Diagnostic]:
        """Wait for the findings of the current version."""

        async def next_one() -> Sequence[types.Diagnostic]:
            while True:
                while self.published:
                    found = self.published.pop(0)
                    if (found.uri, found.version) == (uri, self.versions[uri]):
                        return list(found.diagnostics)
                await asyncio.sleep(0.005)

        return await asyncio.wait_for(next_one(), TIMEOUT)

    async def until(self, uri: str, holds: Callable[[Sequence[types.Diagnostic]], bool]) -> None:
        """Wait until the latest findings satisfy a condition."""

        async def satisfied() -> None:
            while not holds(self.client.diagnostics.get(uri, ())):
                await asyncio.sleep(0.02)

        await asyncio.wait_for(satisfied(), TIMEOUT)

    async def offers(
        self, uri: str, line: int, character: int = 0, only: list[str] | None = None
    ) -> dict[str, types.CodeAction]:
        """Return the actions at a position, by title."""
        here = types.Range(types.Position(line, character), types.Position(line, character))
        context = types.CodeActionContext([], only)
        asked = types.CodeActionParams(types.TextDocumentIdentifier(uri), here, context)
        found = await asyncio.wait_for(self.client.text_document_code_action_async(asked), TIMEOUT)
        return {each.title: each for each in found or () if isinstance(each, types.CodeAction)}

    async def chosen(self, uri: str, action: types.CodeAction) -> str:
        """Return the text after an action."""
        if action.edit is None:
            asked = self.client.code_action_resolve_async(action)
            action = await asyncio.wait_for(asked, TIMEOUT)
        assert action.edit is not None
        if action.edit.changes is not None:
            return self.applied(uri, action.edit.changes[uri])
        (change,) = action.edit.document_changes or ()
        assert isinstance(change, types.TextDocumentEdit)
        assert (change.text_document.uri, change.text_document.version) == (uri, self.versions[uri])
        return self.applied(uri, [edit for edit in change.edits if isinstance(edit, types.TextEdit)])

    def applied(self, uri: str, edits: Sequence[types.TextEdit]) -> str:
        """Return the text with edits applied as the protocol defines."""
        text = self.texts[uri]
        for edit in sorted(edits, key=lambda each: (each.range.start.line, each.range.start.character))[::-1]:
            start, end = (self.offset(text, each) for each in (edit.range.start, edit.range.end))
            text = text[:start] + edit.new_text + text[end:]
        return text

    def offset(self, text: str, position: types.Position) -> int:
        """Return the index of the character at a position."""
        lines = re.split("(?<=\n)", text)
        line = lines[position.line].encode(ENCODINGS[self.encoding])
        before = line[: position.character * UNITS[self.encoding]].decode(ENCODINGS[self.encoding])
        return sum(map(len, lines[: position.line])) + len(before)

    async def hover(self, uri: str, line: int, character: int) -> str | None:
        """Return the hover text at a position."""
        asked = types.HoverParams(types.TextDocumentIdentifier(uri), types.Position(line, character))
        found = await asyncio.wait_for(self.client.text_document_hover_async(asked), TIMEOUT)
        if found is None:
            return None
        assert isinstance(found.contents, types.MarkupContent)
        assert found.contents.kind is types.MarkupKind.Markdown
        return found.contents.value

    def changed_on_disk(self, *files: Path) -> None:
        """Notify the server of changed files."""
        self.published.clear()
        events = [types.FileEvent(file.as_uri(), types.FileChangeType.Changed) for file in files]
        self.client.workspace_did_change_watched_files(types.DidChangeWatchedFilesParams(events))


async def begin(client: LanguageClient, top: Path, name: str) -> Editor:
    folder = types.WorkspaceFolder(top.as_uri(), "top")
    capabilities = client_capabilities(name)
    if capabilities.workspace is not None:
        capabilities.workspace.diagnostics = types.DiagnosticWorkspaceClientCapabilities(refresh_support=True)
    params = types.InitializeParams(capabilities, workspace_folders=[folder])
    result = await client.initialize_session(params)
    encoding = result.capabilities.position_encoding
    return Editor(client, top, str(getattr(encoding, "value", encoding)))


EDITORS: dict[LanguageClient, Editor] = {}


@pytest_lsp.fixture(scope="module", config=SERVER)
async def code_client(
    lsp_client: LanguageClient, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[None]:
    EDITORS[lsp_client] = await begin(lsp_client, tmp_path_factory.mktemp("code"), "visual-studio-code")
    yield
    await lsp_client.shutdown_session()


@pytest_lsp.fixture(scope="module", config=SERVER)
async def neovim_client(
    lsp_client: LanguageClient, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[None]:
    EDITORS[lsp_client] = await begin(lsp_client, tmp_path_factory.mktemp("neovim"), "neovim@0.11")
    yield
    await lsp_client.shutdown_session()


@pytest_lsp.fixture(scope="module", config=SERVER)
async def emacs_client(
    lsp_client: LanguageClient, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[None]:
    EDITORS[lsp_client] = await begin(lsp_client, tmp_path_factory.mktemp("emacs"), "emacs")
    yield
    await lsp_client.shutdown_session()


@pytest.fixture
def code(code_client: LanguageClient) -> Editor:
    """Return VS Code, which receives diagnostics, counts in UTF-16, and requests edits of actions later."""
    return EDITORS[code_client]


@pytest.fixture
def neovim(neovim_client: LanguageClient) -> Editor:
    """Return Neovim, which requests diagnostics, and counts in UTF-8."""
    return EDITORS[neovim_client]


@pytest.fixture
def emacs(emacs_client: LanguageClient) -> Editor:
    """Return Emacs, which counts in characters, and receives the edits with the actions."""
    return EDITORS[emacs_client]


@pytest.fixture
def editors(code: Editor, neovim: Editor, emacs: Editor) -> dict[str, Editor]:
    """Return all three editors, by name."""
    return {"code": code, "neovim": neovim, "emacs": emacs}


def codes(found: Sequence[types.Diagnostic]) -> list[tuple[Any, int]]:
    return [(each.code, each.range.start.line) for each in found]


async def test_findings_while_one_types(code: Editor) -> None:
    uri = code.open(code.project("typing") / "new.py", "import torch\n\n")  # which is not on disk
    assert await code.shown(uri) == []
    code.type(uri, 2, 0, "x = torch.ones(1).cuda(")
    assert codes(await code.shown(uri)) == [("DF901", 2)]
    code.type(uri, 2, 23, ")\n")
    (finding,) = await code.shown(uri)
    assert finding.range == types.Range(types.Position(2, 4), types.Position(2, 24))
    assert (finding.source, finding.severity) == ("devicefix", types.DiagnosticSeverity.Warning)
    assert finding.code_description is not None and finding.code_description.href.endswith("/rules/DF101/")
    assert finding.data == {"name": "cuda-call", "fix": "safe"}
    code.type(uri, 1, 0, "\f\n")  # not a line in the protocol
    code.type(uri, 3, 17, ".cpu()", removed=7)
    assert await code.shown(uri) == []
    assert code.texts[uri] == "import torch\n\f\n\nx = torch.ones(1).cpu()\n"


async def test_the_last_of_many_changes_is_published(code: Editor) -> None:
    uri = code.open(code.project("many") / "a.py", SOURCE)
    await code.shown(uri)
    for n in range(40):
        code.type(uri, 1, 0, f"v{n} = torch.ones({n}).cuda()\n")
        await asyncio.sleep(0.01 * (n % 3))
    await code.until(uri, lambda found: len(found) == 43)
    settings = code.top / "many" / "devicefix.toml"
    for n in range(40):
        settings.write_text('ignore = ["DF1"]\n' if n % 2 else 'ignore = ["DF1", "DF2"]\n')
        code.changed_on_disk(settings)
        await asyncio.sleep(0.01 * (n % 3))
    await code.until(uri, lambda found: codes(found) == [("DF201", 44)])


async def test_diagnostics_equal_the_findings_of_check(code: Editor) -> None:
    folder = code.project("folder", net=NET, use=USE, a=SOURCE, b="print 1  # cuda\n")
    for file in sorted(folder.glob("*.py")):
        wanted = [
            (each.code, each.message, each.location.line - 1, each.location.column - 1)
            for each in check_paths([folder], config=folder / "devicefix.toml").findings
            if each.filename == str(file)
        ]
        uri = code.open(file)
        found = [
            (each.code, each.message, each.range.start.line, each.range.start.character)
            for each in await code.shown(uri)
        ]
        assert found == wanted


async def test_unsaved_documents_belong_to_the_project(code: Editor) -> None:
    folder = code.project("unsaved", net=NET.replace("cuda", "gpu"), use=USE)
    use = code.open(folder / "use.py")
    assert codes(await code.shown(use)) == [("DF101", 3)]
    net = code.open(folder / "net.py", NET)
    assert await code.shown(use) == []
    code.type(net, 3, 8, "gpu", removed=4)
    assert codes(await code.shown(use)) == [("DF101", 3)]


async def test_a_value_that_changes_in_another_document(code: Editor) -> None:
    number = (
        "import os\n\n\ndef get():\n    rank = int(os.environ['LOCAL_RANK'])\n"
        "    name = str(rank)\n    return rank\n"
    )
    use = "import torch\nfrom number import get\n\ndevice = get()\nx = torch.ones(2).to(device)\n"
    folder = code.project("value", number=number, use=use)
    other = code.open(folder / "number.py")
    await code.shown(other)
    reader = code.open(folder / "use.py")
    assert codes(await code.shown(reader)) == [("DF205", 3)]
    code.type(other, 6, 11, "name", removed=4)  # no name is new, and none is gone
    assert await code.shown(reader) == []


async def test_files_that_change_on_disk(code: Editor) -> None:
    assert any("pyproject" in str(each.register_options) for each in REGISTERED)
    folder = code.project("disk", use=USE)
    uri = code.open(folder / "use.py")
    before = await code.shown(uri)
    (folder / "net.py").write_text(NET)
    code.changed_on_disk(folder / "net.py")
    assert await code.shown(uri) != before
    (folder / "devicefix.toml").write_text('ignore = ["DF1"]\n')
    code.changed_on_disk(folder / "devicefix.toml")
    assert await code.shown(uri) == []


async def test_an_invalid_configuration_is_shown_once_and_the_last_one_stays_active(code: Editor) -> None:
    folder = code.project("broken", 'ignore = ["DF101"]\n', a=SOURCE)
    uri = code.open(folder / "a.py")
    assert codes(await code.shown(uri)) == [("DF201", 4)]
    (folder / "devicefix.toml").write_text('ignor = ["DF201"]\n')
    notification = code.client.wait_for_notification(types.WINDOW_SHOW_MESSAGE)
    code.changed_on_disk(folder / "devicefix.toml")
    message = (await asyncio.wait_for(notification, TIMEOUT)).message
    assert message.startswith(f"{folder / 'devicefix.toml'}:1:1: ")
    assert message.endswith("; did you mean 'ignore'? (the last valid settings stay active)")
    code.type(uri, 1, 0, "\n")
    assert codes(await code.shown(uri)) == [("DF201", 5)]


async def test_the_editors_settings(code: Editor) -> None:
    uri = code.open(code.project("settings", a=SOURCE) / "a.py")
    assert len(await code.shown(uri)) == 3
    settings = {"devicefix": {"ignore": ["DF101"]}}
    code.client.workspace_did_change_configuration(types.DidChangeConfigurationParams(settings))
    assert codes(await code.shown(uri)) == [("DF201", 4)]
    notification = code.client.wait_for_notification(types.WINDOW_SHOW_MESSAGE)
    wrong = types.DidChangeConfigurationParams({"targte": "cuda"})
    code.client.workspace_did_change_configuration(wrong)
    message = (await asyncio.wait_for(notification, TIMEOUT)).message
    assert message == (
        "there is no setting 'targte'; did you mean 'target'? (the editor's settings are ignored)"
    )
    assert len(await code.shown(uri)) == 3
    code.client.workspace_did_change_configuration(types.DidChangeConfigurationParams({}))


async def test_excluded_documents(code: Editor, tmp_path: Path) -> None:
    settings = 'exclude = ["old/"]\nper-file-ignores = { "b.py" = ["DF"] }\nbaseline = "known.json"\n'
    folder = code.project("left_out", settings, a=SOURCE, b=SOURCE)
    known = '{"version": 1, "findings": {"a.py": {"DF201": ["z = torch.device(\'cuda\')"]}}}'
    (folder / "known.json").write_text(known)
    (folder / "old").mkdir()
    for file in (folder / "old" / "a.py", folder / "old" / "new.py", folder / "b.py"):
        assert await code.shown(code.open(file, SOURCE)) == []
    assert codes(await code.shown(code.open(folder / "a.py"))) == [("DF101", 2), ("DF101", 3)]
    outside = tmp_path / "outside.py"
    (tmp_path / "net.py").write_text(NET)
    outside.write_text(f"{USE}x = torch.ones(1).cuda()\n")
    assert codes(await code.shown(code.open(outside))) == [("DF101", 4)]


async def test_a_closed_file_has_no_findings(code: Editor) -> None:
    uri = code.open(code.project("closed", a=SOURCE) / "a.py")
    assert await code.shown(uri)
    closed = types.DidCloseTextDocumentParams(types.TextDocumentIdentifier(uri))
    notification = code.client.wait_for_notification(types.TEXT_DOCUMENT_PUBLISH_DIAGNOSTICS)
    code.client.text_document_did_close(closed)
    found = await asyncio.wait_for(notification, TIMEOUT)
    assert (found.uri, list(found.diagnostics)) == (uri, [])


async def test_an_editor_that_could_pull_gets_diagnostics(neovim: Editor) -> None:
    folder = neovim.project("pull", net=NET.replace("cuda", "gpu"), use=USE)
    uri = neovim.open(folder / "use.py")
    assert codes(await neovim.shown(uri)) == [("DF101", 3)]
    neovim.type(uri, 3, 0, "# ")
    assert await neovim.shown(uri) == []
    neovim.type(uri, 3, 0, "", removed=2)
    assert codes(await neovim.shown(uri)) == [("DF101", 3)]
    (folder / "devicefix.toml").write_text('ignore = ["DF1"]\n')
    saved = types.DidSaveTextDocumentParams(types.TextDocumentIdentifier(uri))
    neovim.client.text_document_did_save(saved)  # it watches no files
    await neovim.until(uri, lambda found: not found)


STOPPED = """\
import torch

def stop():
    print("no")

if not torch.cuda.is_available():
    stop()
x = torch.ones(1).cuda()
"""


async def test_findings_follow_what_is_typed(code: Editor) -> None:
    uri = code.open(code.project("pause") / "a.py", STOPPED)

    async def end_with(
        *expected: tuple[str, int],
    ) -> None:  # how many are shown before depends on the machine
        await code.until(uri, lambda found: codes(found) == list(expected))

    await end_with(("DF101", 7))
    code.type(uri, 3, 0, "    # why\n")
    await end_with(("DF101", 8))
    code.type(uri, 4, 4, "raise SystemExit", removed=len('print("no")'))
    await end_with(("DF701", 6), ("DF101", 8))
    code.type(uri, 3, 0, "", removed=9)
    code.type(uri, 2, 0, "# and\n")
    await end_with(("DF701", 7), ("DF101", 9))
    titles = await code.offers(uri, 9, 5)
    assert any("DF101" in title and "Disable" not in title for title in titles)


@pytest.mark.parametrize("name", ["code", "neovim", "emacs"])
async def test_positions_and_edits_in_the_editors_units(name: str, editors: dict[str, Editor]) -> None:
    editor = editors[name]
    text = "import torch\n\ns = 'é\N{GRINNING FACE}'; x = torch.ones(1).cuda()  # é\N{GRINNING FACE}\n"
    uri = editor.open(editor.project("units") / "a.py", text)
    (finding,) = await editor.shown(uri)
    start, end = (editor.offset(text, each) for each in (finding.range.start, finding.range.end))
    assert text[start:end] == "torch.ones(1).cuda()"
    assert finding.range.start.character == {"code": 15, "neovim": 18, "emacs": 14}[name]
    offers = await editor.offers(uri, 2, finding.range.start.character + 3)
    fix = offers["devicefix (DF101): Replace with `torch.ones(1).to(device)`"]
    assert await editor.chosen(uri, fix) == rewrite_source(text).source
    editor.type(uri, 2, finding.range.end.character - 7, ".cpu()", removed=7)
    assert editor.texts[uri] == text.replace("cuda", "cpu")
    assert not await editor.shown(uri)


@pytest.mark.parametrize("name", ["code", "emacs"])
async def test_quick_fixes(name: str, editors: dict[str, Editor]) -> None:
    editor = editors[name]
    uri = editor.open(editor.project("fixes") / "a.py", SOURCE)
    await editor.shown(uri)
    offers = await editor.offers(uri, 2, 10)
    assert list(offers) == [
        "devicefix (DF101): Replace with `torch.ones(1).to(device)`",
        "devicefix (DF101): Fix all 2 findings in this file",
        "devicefix: Apply all safe fixes in this file",
        "devicefix (DF101): Disable for this line",
    ]
    this, rule, everything, noqa = [await editor.chosen(uri, value) for value in offers.values()]
    assert [this.count(".to(device)"), rule.count(".to(device)")] == [1, 2]
    assert "z = torch.device('cuda')\n" in rule
    assert everything == rewrite_source(SOURCE).source
    assert noqa == SOURCE.replace("x = torch.ones(1).cuda()", "x = torch.ones(1).cuda()  # noqa: DF101")
    first = next(iter(offers.values()))
    assert first.is_preferred and first.kind == types.CodeActionKind.QuickFix
    (elsewhere,) = (await editor.offers(uri, 0)).values()
    assert elsewhere.kind == "source.fixAll.devicefix"


async def test_fix_all_on_save(code: Editor) -> None:
    folder = code.project("save", 'unsafe-fixes = true\nselect = ["DF101", "DF401"]\n')
    text = UNSAFE + SOURCE.partition("\n")[2]
    uri = code.open(folder / "a.py", text)
    await code.shown(uri)
    for only in (["source.fixAll.devicefix"], ["source.fixAll"], ["source"]):
        (action,) = (await code.offers(uri, 0, only=only)).values()
        assert action.kind == "source.fixAll.devicefix"
        assert await code.chosen(uri, action) == rewrite_source(text, select=["DF101"]).source
    assert await code.offers(uri, 0, only=["source.fixAll.other"]) == {}
    assert await code.offers(uri, 0, only=["source.organizeImports"]) == {}


async def test_unsafe_fixes_are_marked(code: Editor) -> None:
    uri = code.open(code.project("unsafe") / "a.py", UNSAFE)
    (finding,) = await code.shown(uri)
    assert finding.data == {"name": "cuda-function", "fix": "unsafe"}
    offers = await code.offers(uri, 2, 20)
    first, second = offers.values()
    assert first.title.endswith(" (unsafe: may change the program's behavior)") and not first.is_preferred
    assert await code.chosen(uri, first) == rewrite_source(UNSAFE, unsafe_fixes=True).source
    assert second.title == "devicefix (DF401): Disable for this line"


async def test_an_outdated_action_is_an_error(code: Editor) -> None:
    uri = code.open(code.project("outdated") / "a.py", SOURCE)
    await code.shown(uri)
    offers = await code.offers(uri, 2, 10)
    code.type(uri, 1, 0, "\n")
    with pytest.raises(Exception, match="no longer exists"):
        await code.chosen(uri, next(iter(offers.values())))


async def test_hover(code: Editor) -> None:
    text = f"{SOURCE}w = torch.ones(1).cuda()  # noqa: E501, DF101\n"
    uri = code.open(code.project("hover") / "a.py", text)
    await code.shown(uri)
    page = await code.hover(uri, 2, 10)
    assert page is not None and page.startswith("# cuda-call (DF101)") and "## Fix safety" in page
    assert await code.hover(uri, 5, text.splitlines()[5].index("DF101") + 1) == page
    assert await code.hover(uri, 5, 10) is None
    assert await code.hover(uri, 0, 3) is None


async def test_tags_and_severities(code: Editor) -> None:
    folder = code.project("tags", 'extend-select = ["DF001"]\n')
    text = "import torch\n\nx = torch.cuda.FloatTensor(1)\ny = 1  # noqa: DF101\n"
    uri = code.open(folder / "a.py", text)
    deprecated, unnecessary = await code.shown(uri)
    assert deprecated.tags == (types.DiagnosticTag.Deprecated,)
    assert unnecessary.tags == (types.DiagnosticTag.Unnecessary,)
    (broken,) = await code.shown(code.open(folder / "b.py", "import torch\nx.cuda(\n"))
    assert (broken.code, broken.severity) == ("DF901", types.DiagnosticSeverity.Error)


BUG = """
import devicefix.engine.check as engine

def check_module(facts, *rest, real=engine.check_module):
    print("what a careless library prints")
    if "bug" in facts.source.text:
        raise LookupError("a bug of ours")
    return real(facts, *rest)

engine.check_module = check_module
from devicefix.cli import main
main(["server"])
"""


@pytest_lsp.fixture(config=config("-c", BUG))
async def buggy_client(lsp_client: LanguageClient, tmp_path: Path) -> AsyncIterator[None]:
    EDITORS[lsp_client] = await begin(lsp_client, tmp_path, "visual-studio-code")
    yield
    await lsp_client.shutdown_session()


@pytest.mark.asyncio
async def test_a_bug_is_logged_and_nothing_else_is_written(
    buggy_client: LanguageClient, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    editor = EDITORS[buggy_client]
    uri = editor.open(editor.project("bug") / "a.py", f"{SOURCE}# bug\n")
    assert await editor.shown(uri) == []
    editor.type(uri, 5, 0, "# no", removed=5)
    assert len(await editor.shown(uri)) == 3
    await asyncio.sleep(0.1)
    logged = capfdbinary.readouterr().err.decode()
    assert "internal error; please report it: LookupError: a bug of ours" in logged
    assert "what a careless library prints" in logged


@pytest.mark.asyncio
async def test_without_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "devicefix.server.app", raising=False)
    monkeypatch.setitem(sys.modules, "pygls", None)
    monkeypatch.setitem(sys.modules, "lsprotocol", None)
    result = runner().invoke(main, ["server"])
    assert (result.exit_code, result.stdout) == (2, "")
    assert re.fullmatch(rf"Error: server needs \w+: {re.escape(install_command('server'))}\n", result.stderr)


TEXTS = st.lists(st.sampled_from(["a", "b", "\n", "\r\n", "\r", "é", "\N{GRINNING FACE}", "\f", "x = 1\n"]))


# A busy machine is slow, and not the strategy.
@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(TEXTS, TEXTS)
def _edits(old: list[str], new: list[str]) -> None:
    before, after = "".join(old), "".join(new)
    text = Text(before, PositionCodec())
    assert "".join(text.lines) == before
    parts, at = [], 0
    for edit in text.edits(after):
        start, end = (_offset(text.lines, place) for place in (edit.range.start, edit.range.end))
        assert at <= start <= end
        parts += [before[at:start], edit.new_text]
        at = end
    assert "".join([*parts, before[at:]]) == after


def _offset(lines: list[str], position: types.Position) -> int:
    units = lines[position.line].encode("utf-16-le")[: 2 * position.character]
    assert not lines[position.line].startswith("\r\n", len(units.decode("utf-16-le")) - 1)
    return sum(map(len, lines[: position.line])) + len(units.decode("utf-16-le"))


@pytest.mark.asyncio
async def test_edits_turn_one_text_into_another() -> None:
    _edits()
    assert lines_of("a\r\n\fb\rc") == ["a\r\n", "\fb\r", "c"]


@pytest.mark.asyncio
@pytest.mark.parametrize("names", [("untitled:1", "untitled:2"), ("a.py", "link.py")])
async def test_two_texts_of_one_file_do_not_change_each_others_facts(
    tmp_path: Path, names: tuple[str, str]
) -> None:
    """If they did, each check of one would make the other one be checked again, without an end."""
    (tmp_path / "a.py").write_text(USE)
    (tmp_path / "link.py").symlink_to("a.py")
    known = Workspace()
    known.tops = [str(tmp_path)]
    texts = dict(zip(names, (NET, USE), strict=True))

    def look(name: str) -> Any:
        path = None if name.startswith("untitled:") else str(tmp_path / name)
        inspection = known.look(name, path, texts[name])
        assert inspection is not None
        return inspection.project

    for name in names:
        look(name)
    assert look(names[0]) is look(names[1]) is look(names[0])
    known.close(names[0], None if ":" in names[0] else str(tmp_path / names[0]))
    assert look(names[1]) is look(names[1])


@pytest.mark.asyncio
async def test_a_baseline_that_is_missing_is_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    known = Workspace()
    known.options = {"baseline": "none.json"}
    assert known.look("file:///a.py", str(tmp_path / "a.py"), SOURCE) is None
    assert [re.sub(r"^.*none", "none", trouble) for trouble in known.troubles] == [
        "none.json: No such file or directory; create it with --write-baseline"
    ]
    assert not caplog.records


def _tree(known: Workspace, path: Path, text: str) -> weakref.ref[Any]:
    """Check a document, and return a reference to its syntax tree."""
    inspection = known.look("file:///a.py", str(path), text)
    assert inspection is not None and inspection.devices is not None
    return weakref.ref(inspection.devices.facts.tree)


@pytest.mark.asyncio
async def test_outdated_trees_are_freed(tmp_path: Path) -> None:
    """The syntax trees are freed without the garbage collector, which the server runs rarely."""
    known = Workspace()
    gc.disable()
    try:
        trees = []
        for text in (USE, f"{USE}model.cuda()\n", f"{USE}model.cuda()\n\n"):
            trees.append(_tree(known, tmp_path / "a.py", text))
            known.tidy()
        assert [tree() is None for tree in trees] == [True, True, False]
    finally:
        gc.enable()
