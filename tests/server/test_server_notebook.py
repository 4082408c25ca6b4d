"""Notebooks in `devicefix server`, with the messages that an editor sends for them."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import pytest_lsp
from lsprotocol import types
from pytest_lsp import ClientServerConfig, LanguageClient, client_capabilities

from devicefix import check_source, rewrite_source
from devicefix.server.text import lines_of

pytestmark = pytest.mark.asyncio(loop_scope="module")

SERVER = ClientServerConfig(server_command=[sys.executable, "-m", "devicefix", "server"])
TIMEOUT = 60
MARKDOWN = "# x.cuda()"
CELLS = ["%env A=1\nimport torch", MARKDOWN, "x = torch.ones(1).cuda()\n!ls\ny = x.cuda()", "z = y.cuda()"]
DEVICE = 'device = torch.device("cuda" if torch.cuda.is_available() else "cpu")'


class Editor:
    """An editor with notebooks."""

    def __init__(self, client: LanguageClient, top: Path) -> None:
        self.client = client
        self.top = top
        self.version = 0
        self.texts: dict[str, str] = {}
        self.uri = ""

    def open(self, name: str, cells: Sequence[str], tags: dict[int, list[str]] | None = None) -> list[str]:
        """Open a notebook, and return the URIs of its cells."""
        self.uri = (self.top / name).as_uri()
        self.version = 1
        uris = [self.cell(name, number) for number in range(len(cells))]
        self.texts = dict(zip(uris, cells, strict=True))
        metadata: dict[int, Any] = {
            number: {"metadata": {"tags": each}} for number, each in (tags or {}).items()
        }
        notebook = types.NotebookDocument(
            self.uri, "jupyter-notebook", 1,
            [types.NotebookCell(self.kind(cell), uri, metadata.get(number))
             for number, (uri, cell) in enumerate(self.texts.items())],
        )  # fmt: skip
        items = [types.TextDocumentItem(uri, "python", 1, cell) for uri, cell in self.texts.items()]
        self.client.notebook_document_did_open(types.DidOpenNotebookDocumentParams(notebook, items))
        return uris

    def cell(self, name: str, number: int) -> str:
        """Return the URI of a cell, as VS Code names it."""
        return (self.top / name).as_uri().replace(
            "file:", "vscode-notebook-cell:"
        ) + f"#W{number}sZmlsZQ%3D%3D"

    @staticmethod
    def kind(cell: str) -> types.NotebookCellKind:
        return types.NotebookCellKind.Markup if cell == MARKDOWN else types.NotebookCellKind.Code

    def change(self, **cells: Any) -> None:
        """Send a change of cells."""
        self.version += 1
        changed = types.NotebookDocumentChangeEvent(cells=types.NotebookDocumentCellChanges(**cells))
        identifier = types.VersionedNotebookDocumentIdentifier(version=self.version, uri=self.uri)
        self.client.notebook_document_did_change(types.DidChangeNotebookDocumentParams(identifier, changed))

    def type(self, uri: str, text: str) -> None:
        """Replace the text of a cell."""
        self.texts[uri] = text
        whole = types.TextDocumentContentChangeWholeDocument(text)
        document = types.VersionedTextDocumentIdentifier(version=self.version + 1, uri=uri)
        self.change(text_content=[types.NotebookDocumentCellContentChanges(document, [whole])])

    def close(self) -> None:
        """Close the notebook."""
        identifiers = [types.TextDocumentIdentifier(uri) for uri in self.texts]
        notebook = types.NotebookDocumentIdentifier(self.uri)
        self.client.notebook_document_did_close(types.DidCloseNotebookDocumentParams(notebook, identifiers))

    async def shown(self, expected: dict[str, list[tuple[str, int]]]) -> None:
        """Wait until the cells have these codes in these lines, from 0."""

        async def satisfied() -> None:
            while self.found(expected) != expected:
                await asyncio.sleep(0.02)

        try:
            await asyncio.wait_for(satisfied(), TIMEOUT)
        except asyncio.TimeoutError:
            assert self.found(expected) == expected

    def found(self, uris: Any) -> dict[str, list[tuple[Any, int]]]:
        """Return the codes and lines of the findings in cells."""
        known = self.client.diagnostics
        return {uri: [(each.code, each.range.start.line) for each in known.get(uri, ())] for uri in uris}

    async def offers(self, uri: str, line: int, *only: str) -> dict[str, types.CodeAction]:
        """Return the actions at a line of a cell, by title."""
        here = types.Range(types.Position(line, 0), types.Position(line, 99))
        asked = types.CodeActionParams(
            types.TextDocumentIdentifier(uri), here, types.CodeActionContext([], only or None)
        )
        found = await asyncio.wait_for(self.client.text_document_code_action_async(asked), TIMEOUT)
        return {each.title: each for each in found or () if isinstance(each, types.CodeAction)}

    async def chosen(self, action: types.CodeAction) -> list[str]:
        """Return the texts of the cells after an action."""
        if action.edit is None:
            action = await asyncio.wait_for(self.client.code_action_resolve_async(action), TIMEOUT)
        assert action.edit is not None
        texts = dict(self.texts)
        for change in action.edit.document_changes or ():
            assert isinstance(change, types.TextDocumentEdit)
            edits = [edit for edit in change.edits if isinstance(edit, types.TextEdit)]
            texts[change.text_document.uri] = applied(texts[change.text_document.uri], edits)
        return list(texts.values())


def applied(text: str, edits: Sequence[types.TextEdit]) -> str:
    """Return a text of ASCII with edits applied as the protocol defines."""
    starts = [0]
    for line in lines_of(text):
        starts.append(starts[-1] + len(line))
    for edit in sorted(edits, key=lambda each: (each.range.start.line, each.range.start.character))[::-1]:
        start, end = (starts[at.line] + at.character for at in (edit.range.start, edit.range.end))
        text = text[:start] + edit.new_text + text[end:]
    return text


@pytest_lsp.fixture(scope="module", config=SERVER)
async def client(lsp_client: LanguageClient, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[None]:
    top = tmp_path_factory.mktemp("notebooks")
    (top / "devicefix.toml").write_text('exclude = ["gone*"]\n')
    capabilities = client_capabilities("visual-studio-code")
    assert capabilities.workspace is not None
    capabilities.workspace.did_change_watched_files = None
    sync = types.NotebookDocumentSyncClientCapabilities()
    capabilities.notebook_document = types.NotebookDocumentClientCapabilities(sync)
    folder = types.WorkspaceFolder(top.as_uri(), "top")
    params = types.InitializeParams(capabilities, workspace_folders=[folder])
    result = await lsp_client.initialize_session(params)
    assert result.capabilities.notebook_document_sync is not None
    EDITORS[lsp_client] = Editor(lsp_client, top)
    yield
    await lsp_client.shutdown_session()


EDITORS: dict[LanguageClient, Editor] = {}


@pytest.fixture
def editor(client: LanguageClient) -> Editor:
    """Return an editor."""
    return EDITORS[client]


def as_file(cells: Sequence[str]) -> str:
    """Return a notebook as a file."""
    kinds = ["markdown" if cell == MARKDOWN else "code" for cell in cells]
    made = [
        {"cell_type": kind, "metadata": {}, "source": cell} for kind, cell in zip(kinds, cells, strict=True)
    ]
    return json.dumps({"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": made})


async def test_findings_are_those_of_check(editor: Editor) -> None:
    uris = editor.open("a.ipynb", CELLS)
    expected: dict[str, list[tuple[str, int]]] = {uri: [] for uri in uris}
    for finding in check_source(as_file(CELLS), filename="a.ipynb"):
        assert finding.cell is not None
        expected[uris[finding.cell - 1]].append((finding.code, finding.location.line - 1))
    assert sum(map(len, expected.values())) == 3
    await editor.shown(expected)


async def test_fixes_change_the_right_cells(editor: Editor) -> None:
    uris = editor.open("b.ipynb", CELLS)
    await editor.shown({uris[3]: [("DF101", 0)]})
    offers = await editor.offers(uris[2], 2)
    (one,) = (title for title in offers if ".to(device)" in title)
    after = await editor.chosen(offers[one])
    assert after[0] == f"{CELLS[0]}\n\n{DEVICE}"
    assert after[2] == CELLS[2].replace("y = x.cuda()", "y = x.to(device)")
    assert after[1::2] == CELLS[1::2]
    (every,) = (title for title in offers if "Apply all safe fixes" in title)
    rewritten = json.loads(rewrite_source(as_file(CELLS), filename="b.ipynb").source)
    assert await editor.chosen(offers[every]) == [cell["source"] for cell in rewritten["cells"]]
    (saved,) = (await editor.offers(uris[2], 0, "notebook.source.fixAll")).values()
    assert await editor.chosen(saved) == [cell["source"] for cell in rewritten["cells"]]
    (same,) = (title for title in offers if "Fix all 3" in title)
    assert await editor.chosen(offers[same]) == [cell["source"] for cell in rewritten["cells"]]


async def test_a_comment_silences_a_finding_in_its_cell(editor: Editor) -> None:
    cells = [
        "import torch\nx = torch.ones(1).cuda()",
        "!ls \\\n  -l\n\x0c\n%time x = torch.ones(1).cuda()\ny = f(x.cuda(), '''\n''')\r\nz = 1",
    ]
    uris = editor.open("silenced.ipynb", cells)
    await editor.shown({uris[0]: [("DF101", 1)], uris[1]: [("DF101", 3), ("DF101", 4)]})
    for number, line, end in ((0, 1, "cuda()"), (1, 3, "torch.ones(1).cuda()"), (1, 4, "''')")):
        action = (await editor.offers(uris[number], line))["devicefix (DF101): Disable for this line"]
        expected = [*cells]
        expected[number] = cells[number].replace(end, f"{end}  # noqa: DF101")
        assert await editor.chosen(action) == expected
        left = [
            (each.cell, each.location.line)
            for each in check_source(as_file(expected), filename="silenced.ipynb")
        ]
        assert len(left) == 2 and (number + 1, line + 1) not in left


async def test_no_comment_is_offered_for_what_is_not_python(editor: Editor) -> None:
    (editor.top / "shell").mkdir()
    (editor.top / "shell" / "devicefix.toml").write_text("config-files = true\n")
    uris = editor.open("shell/a.ipynb", ["import torch", "!python a.py \\\n --device cuda", "print 'cuda'"])
    await editor.shown({uris[1]: [("DF905", 1)], uris[2]: [("DF901", 0)]})
    for uri, line in ((uris[1], 1), (uris[2], 0)):
        assert not any("Disable" in title for title in await editor.offers(uri, line))


async def test_hover(editor: Editor) -> None:
    uris = editor.open("c.ipynb", CELLS)
    asked = types.HoverParams(types.TextDocumentIdentifier(uris[3]), types.Position(0, 5))
    found = await asyncio.wait_for(editor.client.text_document_hover_async(asked), TIMEOUT)
    assert found is not None
    assert isinstance(found.contents, types.MarkupContent)
    assert found.contents.value.startswith("# cuda-call (DF101)")
    asked = types.HoverParams(types.TextDocumentIdentifier(uris[0]), types.Position(0, 0))
    assert await asyncio.wait_for(editor.client.text_document_hover_async(asked), TIMEOUT) is None


async def test_cells_are_typed_in_added_moved_and_removed(editor: Editor) -> None:
    uris = editor.open("d.ipynb", ["import torch", "x = torch.ones(1)", "y = x.cuda()"])
    await editor.shown({uris[1]: [], uris[2]: [("DF101", 0)]})
    editor.type(uris[1], "\x0c\nx = torch.ones(1).cuda()")
    await editor.shown({uris[1]: [("DF101", 1)], uris[2]: [("DF101", 0)]})
    new = editor.cell("d.ipynb", 9)
    array = types.NotebookCellArrayChange(1, 0, [types.NotebookCell(types.NotebookCellKind.Code, new)])
    opened = [types.TextDocumentItem(new, "python", 1, "w = torch.ones(2)\n\nw.cuda()")]
    editor.change(structure=types.NotebookDocumentCellChangeStructure(array, did_open=opened))
    await editor.shown({new: [("DF101", 2)], uris[1]: [("DF101", 1)], uris[2]: [("DF101", 0)]})
    closed = [types.TextDocumentIdentifier(uris[1])]
    array = types.NotebookCellArrayChange(2, 1)
    editor.change(structure=types.NotebookDocumentCellChangeStructure(array, did_close=closed))
    await editor.shown({new: [("DF101", 2)], uris[1]: [], uris[2]: [("DF101", 0)]})
    editor.texts = {uris[0]: "", new: "", uris[2]: ""}
    editor.close()
    await editor.shown({new: [], uris[1]: [], uris[2]: []})


async def test_cells_that_are_not_checked(editor: Editor) -> None:
    cells = ["import torch", "%%bash\nx.cuda()", "x.cuda()", "y = x.cuda(", "z.cuda()"]
    uris = editor.open("e.ipynb", cells, {2: ["skip-devicefix"]})
    await editor.shown({uris[1]: [], uris[2]: [], uris[3]: [("DF901", 0)], uris[4]: [("DF101", 0)]})


async def test_excluded_and_unsaved_notebooks(editor: Editor) -> None:
    gone = editor.open("gone.ipynb", CELLS)
    editor.open("f.ipynb", CELLS)
    await editor.shown({editor.cell("f.ipynb", 3): [("DF101", 0)]})
    assert not editor.client.diagnostics.get(gone[3])


async def test_a_module_of_the_project_counts(editor: Editor) -> None:
    (editor.top / "net.py").write_text("class Net:\n    def cuda(self):\n        return self\n")
    cells = ["import torch\nfrom net import Net", "model = Net().cuda()", "x = torch.ones(1).cuda()"]
    uris = editor.open("g.ipynb", cells)
    await editor.shown({uris[1]: [], uris[2]: [("DF101", 0)]})
