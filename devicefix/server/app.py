"""The language server: receives the protocol's requests, and answers them from a worker thread."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Coroutine, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar
from urllib.parse import unquote
from weakref import WeakSet

from lsprotocol import types
from pygls.exceptions import JsonRpcContentModified, JsonRpcInvalidParams
from pygls.lsp.server import LanguageServer
from pygls.uris import uri_scheme

from devicefix.config.version import __version__
from devicefix.facts.project import Project
from devicefix.runner.errors import internal_error
from devicefix.server import actions
from devicefix.server.actions import Action
from devicefix.server.documents import Document, Notebook, Part, Snapshot, path_of, put_texts
from devicefix.server.inspect import FixError, Inspection
from devicefix.server.workspace import Workspace

DEBOUNCE = 0.005  # seconds to wait for further changes before checking a document
STACK_SIZE = 64 * 2**20  # bytes, for the parser: the default size of threads is too small on some systems
SCHEMES = ("file", "untitled")
_NOTEBOOKS = types.NotebookDocumentSyncOptions(
    [
        types.NotebookDocumentFilterWithCells(
            [types.NotebookCellLanguage("python")],
            notebook=types.NotebookDocumentFilterNotebookType("jupyter-notebook"),
        )
    ],
    save=True,
)
WATCHED = ("**/*.{py,pyi,ipynb}", "**/{.devicefix,devicefix,pyproject}.toml", "**/.gitignore")

T = TypeVar("T")
logger = logging.getLogger(__name__)


class Server(LanguageServer):
    """The language server, which checks one document at a time in a worker thread."""

    def __init__(self) -> None:
        super().__init__("devicefix", __version__, notebook_document_sync=_NOTEBOOKS)
        self.known = Workspace()
        threading.stack_size(STACK_SIZE)
        self.worker = ThreadPoolExecutor(1, thread_name_prefix="devicefix")
        self._busy: set[str] = set()
        self._again: set[str] = set()
        self._shown: dict[str, Inspection | None] = {}
        self._paths: dict[str, str | None] = {}
        self._notebooks: dict[str, Notebook] = {}
        self._cells: dict[str, set[str]] = {}  # of each notebook, those whose findings are shown
        self._projects: WeakSet[Project] = WeakSet()
        self._tasks: set[asyncio.Task[None]] = set()
        self._register()

    def _register(self) -> None:
        can_do = types.CodeActionOptions(code_action_kinds=actions.KINDS, resolve_provider=True)
        for name, handler in (
            (types.INITIALIZE, self.initialize),
            (types.INITIALIZED, self.initialized),
            (types.SHUTDOWN, self.stop),
            (types.TEXT_DOCUMENT_DID_OPEN, self.did_open),
            (types.TEXT_DOCUMENT_DID_CHANGE, self.did_change),
            (types.TEXT_DOCUMENT_DID_SAVE, self.did_save),
            (types.TEXT_DOCUMENT_DID_CLOSE, self.did_close),
            (types.NOTEBOOK_DOCUMENT_DID_OPEN, self.did_open_notebook),
            (types.NOTEBOOK_DOCUMENT_DID_CHANGE, self.did_change_notebook),
            (types.NOTEBOOK_DOCUMENT_DID_SAVE, self.did_save),
            (types.NOTEBOOK_DOCUMENT_DID_CLOSE, self.did_close_notebook),
            (types.TEXT_DOCUMENT_CODE_ACTION, self.code_action),
            (types.CODE_ACTION_RESOLVE, self.resolve),
            (types.TEXT_DOCUMENT_HOVER, self.hover),
            (types.WORKSPACE_DID_CHANGE_WATCHED_FILES, self.did_change_files),
            (types.WORKSPACE_DID_CHANGE_CONFIGURATION, self.did_change_configuration),
            (types.WORKSPACE_DID_CHANGE_WORKSPACE_FOLDERS, self.did_change_folders),
        ):
            # pygls sets attributes on a handler, which methods do not allow.
            self.feature(name, can_do if name == types.TEXT_DOCUMENT_CODE_ACTION else None)(partial(handler))

    def report_server_error(self, error: Exception, _source: Any) -> None:
        """Log an error, rather than show the user a message at every key press."""
        if not isinstance(error, JsonRpcContentModified):  # which is no error: the user has gone on typing
            logger.error("%s: %s", type(error).__name__, error)

    # -- life cycle ------------------------------------------------------------------------------------

    def initialize(self, params: types.InitializeParams) -> None:
        """Store the workspace folders and the editor's settings."""
        self._take_folders()
        self.known.options = _options(params.initialization_options)

    def initialized(self, _params: types.InitializedParams) -> None:
        """Ask the editor to watch files."""
        if self._watches:
            watchers = [types.FileSystemWatcher(pattern) for pattern in WATCHED]
            options = types.DidChangeWatchedFilesRegistrationOptions(watchers)
            method = types.WORKSPACE_DID_CHANGE_WATCHED_FILES
            registration = types.Registration("devicefix-files", method, options)
            self.client_register_capability(types.RegistrationParams([registration]))

    @property
    def _watches(self) -> bool:
        """Return whether the editor can watch files."""
        workspace = self.client_capabilities.workspace
        watching = workspace and workspace.did_change_watched_files
        return bool(watching and watching.dynamic_registration)

    def stop(self, _params: None) -> None:
        """Cancel all work."""
        for task in self._tasks:
            task.cancel()
        self.worker.shutdown(wait=False, cancel_futures=True)

    # -- changes ---------------------------------------------------------------------------------------

    def did_open(self, params: types.DidOpenTextDocumentParams) -> None:
        """Check a document that was opened."""
        item = params.text_document
        if uri_scheme(item.uri) in SCHEMES:
            put_texts(self.workspace, [item])
            self._schedule([item.uri])

    def did_change(self, params: types.DidChangeTextDocumentParams) -> None:
        """Check a document that changed."""
        self._schedule([params.text_document.uri])

    def did_open_notebook(self, params: types.DidOpenNotebookDocumentParams) -> None:
        """Check a notebook that was opened."""
        uri = params.notebook_document.uri
        put_texts(self.workspace, params.cell_text_documents)
        if uri_scheme(uri) in SCHEMES:
            self._notebooks[unquote(uri)] = Notebook(uri, self.workspace)
            self._schedule([uri])

    def did_change_notebook(self, params: types.DidChangeNotebookDocumentParams) -> None:
        """Check a notebook whose cells changed."""
        structure = params.change.cells and params.change.cells.structure
        if structure:
            put_texts(self.workspace, structure.did_open or ())
        self._schedule([params.notebook_document.uri])

    def did_close_notebook(self, params: types.DidCloseNotebookDocumentParams) -> None:
        """Use the file on disk instead of a notebook that was closed."""
        uri = params.notebook_document.uri
        self._notebooks.pop(unquote(uri), None)
        self._spawn(self._close(uri))

    def did_save(
        self, _params: types.DidSaveTextDocumentParams | types.DidSaveNotebookDocumentParams
    ) -> None:
        """Check all documents again, if the editor does not watch files."""
        if not self._watches:
            self._check_all()

    def did_close(self, params: types.DidCloseTextDocumentParams) -> None:
        """Use the file on disk instead of a document that was closed."""
        self._spawn(self._close(params.text_document.uri))

    def did_change_files(self, _params: types.DidChangeWatchedFilesParams) -> None:
        """Check all documents again after a change on disk."""
        self._check_all()

    def did_change_configuration(self, params: types.DidChangeConfigurationParams) -> None:
        """Check all documents again with the editor's new settings."""
        self.known.options = _options(params.settings)
        self._check_all()

    def did_change_folders(self, _params: types.DidChangeWorkspaceFoldersParams) -> None:
        """Check all documents again with the new workspace folders."""
        self._take_folders()
        self._check_all()

    def _take_folders(self) -> None:
        uris = [folder.uri for folder in self.workspace.folders.values()]
        if not uris and self.workspace.root_uri:
            uris = [self.workspace.root_uri]
        self.known.tops = [path for uri in uris if (path := path_of(uri))]

    def _check_all(self) -> None:
        self.known.stale = True
        self._check_others()

    # -- checking --------------------------------------------------------------------------------------

    def document(self, uri: str) -> Document | Notebook | None:
        """Return the open document with this URI, or with this cell; None if it is not to be checked."""
        try:
            workspace = self.workspace
        except RuntimeError:  # the client has not sent `initialize`
            return None
        notebook = workspace.get_notebook_document(cell_uri=uri)
        if notebook or unquote(uri) in self._notebooks:
            return self._notebooks.get(unquote(notebook.uri if notebook else uri))
        found = workspace.text_documents.get(unquote(uri))
        return found if isinstance(found, Document) and not found.is_json else None

    async def check(self, document: Document | Notebook) -> tuple[Inspection | None, Snapshot]:
        """Return the findings of the current version of a document, and that version."""
        uri, path = document.uri, document.file
        self._paths[uri] = path

        def job() -> tuple[str, Inspection | None]:  # reads the text only when the worker is free
            source = document.snapshot.source
            return source, self.known.look(uri, path, source)

        while True:
            source, inspection = await self.work(job)
            now = document.snapshot
            if source == now.source:
                return inspection, now

    async def work(self, job: Callable[[], T]) -> T:
        """Run a function in the worker thread, and show the warnings that it causes."""
        result = await asyncio.get_running_loop().run_in_executor(self.worker, job)
        warnings, self.known.troubles = self.known.troubles, []
        for warning in warnings:
            self.window_show_message(types.ShowMessageParams(types.MessageType.Warning, warning))
        return result

    def _schedule(self, uris: Iterable[str]) -> None:
        """Check documents soon; one that is already being checked is checked again afterwards."""
        for uri in uris:
            self._again.add(uri)
            if uri not in self._busy:
                self._busy.add(uri)
                self._spawn(self._diagnose(uri))

    async def _diagnose(self, uri: str) -> None:
        """Publish the findings of a document, again if it changes in the meantime."""
        try:
            while uri in self._again:
                await asyncio.sleep(DEBOUNCE)
                self._again.discard(uri)
                if document := self.document(uri):
                    inspection, now = await self.check(document)
                    self._show(document, inspection, now)
                    self._spread(inspection)
        finally:
            self._busy.discard(uri)

    def _show(self, document: Document | Notebook, found: Inspection | None, now: Snapshot) -> None:
        """Publish the findings of a check."""
        uri = document.uri
        if self.document(uri) is not document or (uri in self._shown and self._shown[uri] is found):
            return
        self._shown[uri] = found
        if isinstance(document, Notebook):
            self._clear(uri, {part.uri for part in now.parts})
        findings = found.findings if found else []  # none for an excluded document
        for part in now.parts:
            shown = [actions.diagnostic(each, part.text) for each in actions.findings_in(part, findings)]
            self._publish(part.uri, shown, part.version)
        self.worker.submit(self.known.tidy)

    def _clear(self, uri: str, cells: set[str]) -> None:
        """Remove the findings of the cells of a notebook that it no longer has."""
        for cell in self._cells.pop(uri, set()) - cells:
            self._publish(cell, [])
        if cells:
            self._cells[uri] = cells

    def _publish(self, uri: str, found: list[types.Diagnostic], version: int | None = None) -> None:
        self.text_document_publish_diagnostics(types.PublishDiagnosticsParams(uri, found, version))

    def _spread(self, inspection: Inspection | None) -> None:
        """Check the other documents if the facts of the project have changed."""
        if inspection and inspection.project not in self._projects:
            self._projects.add(inspection.project)
            self._check_others()

    def _check_others(self) -> None:
        self._schedule(list(self._shown))

    async def _close(self, uri: str) -> None:
        path = self._paths.pop(uri, None)
        await self.work(lambda: self.known.close(uri, path))
        self._clear(uri, set())
        if self._shown.pop(uri, None) is not None and self.document(uri) is None:
            self._publish(uri, [])
        self._check_others()

    def _spawn(self, job: Coroutine[Any, Any, None]) -> None:
        """Run a coroutine in the background, and log its failure."""
        task = asyncio.get_running_loop().create_task(job)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()):
            logger.error("%s", internal_error(error) if isinstance(error, Exception) else error)

    # -- requests --------------------------------------------------------------------------------------

    async def hover(self, params: types.HoverParams) -> types.Hover | None:
        """Return the pages of the rules at a position."""
        uri = params.text_document.uri
        document = self.document(uri)
        inspection, now = await self.check(document) if document else (None, None)
        part = now.part(uri) if now else None
        return actions.hover(inspection, part, params.position) if inspection and part else None

    async def code_action(self, params: types.CodeActionParams) -> list[types.CodeAction]:
        """Return the actions for a range."""
        uri = params.text_document.uri
        document = self.document(uri)
        if document is None:
            return []
        inspection, now = await self.check(document)
        part = now.part(uri)
        if inspection is None or part is None:
            return []
        only = params.context.only
        wanted = [str(getattr(kind, "value", kind)) for kind in only] if only is not None else None
        offers = await self.work(lambda: list(actions.actions(inspection, part, params.range, wanted)))
        found = [(action, action.offered(part, params.context.diagnostics)) for action in offers]
        if not self._resolves:
            for action, offered in found:
                offered.edit = await self._edit(action, inspection, now)
        return [offered for _, offered in found if self._resolves or offered.edit]

    async def resolve(self, offered: types.CodeAction) -> types.CodeAction:
        """Return an action with its edit."""
        data: Any = offered.data
        if not isinstance(data, dict) or not isinstance(data.get("uri"), str):
            raise JsonRpcInvalidParams("this is not a devicefix action")
        document = self.document(data["uri"])
        inspection, now = await self.check(document) if document else (None, None)
        action = actions.restored(data, inspection) if inspection else None
        if inspection is None or now is None or action is None:
            raise JsonRpcContentModified("the finding no longer exists")
        offered.edit = await self._edit(action, inspection, now)
        if offered.edit is None:
            raise JsonRpcContentModified("the fix cannot be applied")
        return offered

    async def _edit(
        self, action: Action, inspection: Inspection, now: Snapshot
    ) -> types.WorkspaceEdit | None:
        """Return the edit of an action, None if it cannot be applied."""
        try:
            found = await self.work(lambda: action.edits(inspection, now))
        except FixError as error:
            logger.error("%s", error)
            return None
        workspace = self.client_capabilities.workspace
        edit = workspace and workspace.workspace_edit
        if not (edit and edit.document_changes):
            return types.WorkspaceEdit({part.uri: edits for part, edits in found.items()})
        return types.WorkspaceEdit(document_changes=[_changes(part, edits) for part, edits in found.items()])

    @property
    def _resolves(self) -> bool:
        """Return whether the editor requests the edit of an action only when it is chosen."""
        document = self.client_capabilities.text_document
        can = document and document.code_action and document.code_action.resolve_support
        return bool(can and "edit" in can.properties)


def _changes(part: Part, edits: list[types.TextEdit]) -> types.TextDocumentEdit:
    versioned = types.OptionalVersionedTextDocumentIdentifier(part.uri, part.version)
    return types.TextDocumentEdit(versioned, edits)


def _options(value: Any) -> dict[str, Any]:
    """Return the editor's settings; some editors nest them under `settings` or `devicefix`."""
    for name in ("devicefix", "settings"):
        if isinstance(value, dict) and isinstance(value.get(name), dict):
            value = value[name]
    return value if isinstance(value, dict) else {}
