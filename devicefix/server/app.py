"""The language server: what the protocol asks for, handed on to a thread that knows the files."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import sys
import threading
from collections.abc import Callable, Coroutine, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar
from urllib.parse import unquote
from weakref import WeakSet

from lsprotocol import types
from pygls.exceptions import JsonRpcContentModified
from pygls.lsp.server import LanguageServer
from pygls.uris import to_fs_path, uri_scheme

from devicefix.config.version import __version__
from devicefix.facts.project import Project
from devicefix.runner.pool import collect_less
from devicefix.server import actions
from devicefix.server.actions import Action
from devicefix.server.inspect import FixError, Inspection
from devicefix.server.text import Document, Text
from devicefix.server.workspace import Workspace

PAUSE = 0.005  # seconds; changes that come together are looked at once
STACK = 64 * 2**20  # bytes, for the parser: some systems give threads little
ALLOCATIONS = 500_000  # more than those of a large file, whose tree goes without the garbage collector
SCHEMES = ("file", "untitled")
WATCHED = ("**/*.{py,pyi,ipynb}", "**/{.devicefix,devicefix,pyproject}.toml", "**/.gitignore")

T = TypeVar("T")
logger = logging.getLogger(__name__)


class Server(LanguageServer):
    """A language server, which looks at one file after the other in a thread of its own."""

    def __init__(self) -> None:
        super().__init__("devicefix", __version__)
        self.known = Workspace()
        threading.stack_size(STACK)
        self.worker = ThreadPoolExecutor(1, thread_name_prefix="devicefix")
        self._busy: set[str] = set()
        self._again: set[str] = set()
        self._shown: dict[str, Inspection | None] = {}
        self._projects: WeakSet[Project] = WeakSet()
        self._tasks: set[asyncio.Task[None]] = set()
        self._register()

    def _register(self) -> None:
        report = types.DiagnosticOptions(True, False, identifier="devicefix")
        can_do = types.CodeActionOptions(code_action_kinds=actions.KINDS, resolve_provider=True)
        for name, handler, options in (
            (types.INITIALIZE, self.initialize, None),
            (types.INITIALIZED, self.initialized, None),
            (types.SHUTDOWN, self.stop, None),
            (types.TEXT_DOCUMENT_DID_OPEN, self.did_open, None),
            (types.TEXT_DOCUMENT_DID_CHANGE, self.did_change, None),
            (types.TEXT_DOCUMENT_DID_SAVE, self.did_save, None),
            (types.TEXT_DOCUMENT_DID_CLOSE, self.did_close, None),
            (types.TEXT_DOCUMENT_DIAGNOSTIC, self.diagnostic, report),
            (types.TEXT_DOCUMENT_CODE_ACTION, self.code_action, can_do),
            (types.CODE_ACTION_RESOLVE, self.resolve, None),
            (types.TEXT_DOCUMENT_HOVER, self.hover, None),
            (types.WORKSPACE_DID_CHANGE_WATCHED_FILES, self.did_change_files, None),
            (types.WORKSPACE_DID_CHANGE_CONFIGURATION, self.did_change_configuration, None),
            (types.WORKSPACE_DID_CHANGE_WORKSPACE_FOLDERS, self.did_change_folders, None),
        ):
            self.feature(name, options)(partial(handler))  # pygls makes notes on it, which no method takes

    def report_server_error(self, error: Exception, source: Any) -> None:
        """A bug is something for the log, and no reason to bother the user at every key."""
        logger.error("%s", error)

    # -- the beginning and the end ---------------------------------------------------------------------

    def initialize(self, params: types.InitializeParams) -> None:
        """Take note of what the editor has opened, and of its settings."""
        self._take_folders()
        self.known.options = _options(params.initialization_options)

    def initialized(self, params: types.InitializedParams) -> None:
        """Ask to be told of files that change."""
        if self._watches:
            watchers = [types.FileSystemWatcher(pattern) for pattern in WATCHED]
            registration = types.Registration(
                "devicefix-files",
                types.WORKSPACE_DID_CHANGE_WATCHED_FILES,
                types.DidChangeWatchedFilesRegistrationOptions(watchers),
            )
            self.client_register_capability(types.RegistrationParams([registration]))

    @property
    def _watches(self) -> bool:
        """Whether the editor can be asked to tell of files that change."""
        workspace = self.client_capabilities.workspace
        watching = workspace and workspace.did_change_watched_files
        return bool(watching and watching.dynamic_registration)

    def stop(self, params: None) -> None:
        """Take on no more work."""
        for task in self._tasks:
            task.cancel()
        self.worker.shutdown(wait=False, cancel_futures=True)

    # -- what has changed ------------------------------------------------------------------------------

    def did_open(self, params: types.DidOpenTextDocumentParams) -> None:
        """Look at a text that has been opened."""
        item, codec = params.text_document, self.workspace.position_codec
        if uri_scheme(item.uri) in SCHEMES:
            document = Document(item.uri, item.text, item.version, item.language_id, position_codec=codec)
            self.workspace.text_documents[unquote(item.uri)] = document
            self._schedule([item.uri])

    def did_change(self, params: types.DidChangeTextDocumentParams) -> None:
        """Look at a text that has changed."""
        self._schedule([params.text_document.uri])

    def did_save(self, params: types.DidSaveTextDocumentParams) -> None:
        """Look again at everything, if the editor tells of no other files that change."""
        if not self._watches:
            self._everything_anew()

    def did_close(self, params: types.DidCloseTextDocumentParams) -> None:
        """From now on, a file is what is on disk."""
        uri = params.text_document.uri
        self._spawn(self._close(uri))

    def did_change_files(self, params: types.DidChangeWatchedFilesParams) -> None:
        """Look again at everything, since files have changed on disk."""
        self._everything_anew()

    def did_change_configuration(self, params: types.DidChangeConfigurationParams) -> None:
        """Look again at everything with the editor's new settings."""
        self.known.options = _options(params.settings)
        self._everything_anew()

    def did_change_folders(self, params: types.DidChangeWorkspaceFoldersParams) -> None:
        """Look again at everything, since it belongs to other folders."""
        self._take_folders()
        self._everything_anew()

    def _take_folders(self) -> None:
        uris = [folder.uri for folder in self.workspace.folders.values()]
        if not uris and self.workspace.root_uri:
            uris = [self.workspace.root_uri]
        self.known.tops = [path for uri in uris if (path := _path(uri))]

    def _everything_anew(self) -> None:
        self.known.stale = True
        self._look_at_others()

    # -- looking ---------------------------------------------------------------------------------------

    def document(self, uri: str) -> Document | None:
        """A text that the editor has opened, if it is one to look at."""
        found = self.workspace.text_documents.get(unquote(uri))
        return found if isinstance(found, Document) else None

    async def look(self, document: Document) -> tuple[Inspection | None, Text]:
        """What is found in a document as it is now, and its text."""
        uri, path = document.uri, _path(document.uri)

        def job() -> tuple[str, Inspection | None]:  # of what there is when its turn comes
            text = document.source
            return text, self.known.look(uri, path, text)

        while True:
            text, look = await self.work(job)
            if text == document.source:
                return look, Text(text, document.position_codec)

    async def work(self, job: Callable[[], T]) -> T:
        """Do something in the thread that knows the files, and tell what there is to tell of it."""
        result = await asyncio.get_running_loop().run_in_executor(self.worker, job)
        troubles, self.known.troubles = self.known.troubles, []
        for trouble in troubles:
            self.window_show_message(types.ShowMessageParams(types.MessageType.Warning, trouble))
        return result

    @property
    def _pulls(self) -> bool:
        """Whether the editor asks for diagnostics itself."""
        capabilities = self.client_capabilities.text_document
        return capabilities is not None and capabilities.diagnostic is not None

    def _schedule(self, uris: Iterable[str]) -> None:
        """Look at documents soon. One that is being looked at is so once more afterwards."""
        if self._pulls:
            return
        for uri in uris:
            self._again.add(uri)
            if uri not in self._busy:
                self._busy.add(uri)
                self._spawn(self._diagnose(uri))

    async def _diagnose(self, uri: str) -> None:
        """Show what is found in a document, until it has not changed meanwhile."""
        try:
            while uri in self._again:
                await asyncio.sleep(PAUSE)
                self._again.discard(uri)
                if document := self.document(uri):
                    look, text = await self.look(document)
                    self._show(document, look, text)
        finally:
            self._busy.discard(uri)

    def _show(self, document: Document, look: Inspection | None, text: Text) -> None:
        uri = document.uri
        if self.document(uri) is not document or (uri in self._shown and self._shown[uri] is look):
            return
        self._shown[uri] = look
        self._publish(uri, actions.diagnostics(look, text), document.version)
        self.worker.submit(self.known.tidy)
        self._spread(look)

    def _publish(self, uri: str, found: list[types.Diagnostic], version: int | None = None) -> None:
        self.text_document_publish_diagnostics(types.PublishDiagnosticsParams(uri, found, version))

    def _spread(self, look: Inspection | None) -> None:
        """Look at the other documents, where the facts of this one have changed."""
        if look and look.project not in self._projects:
            self._projects.add(look.project)
            self._look_at_others()

    def _look_at_others(self) -> None:
        if not self._pulls:
            self._schedule(list(self._shown))
            return
        workspace = self.client_capabilities.workspace
        if workspace and workspace.diagnostics and workspace.diagnostics.refresh_support:
            self.workspace_diagnostic_refresh(None)

    async def _close(self, uri: str) -> None:
        await self.work(lambda: self.known.close(uri, _path(uri)))
        if self._shown.pop(uri, None) is not None and self.document(uri) is None:
            self._publish(uri, [])
        self._look_at_others()

    def _spawn(self, job: Coroutine[Any, Any, None]) -> None:
        """Do something beside the rest; if it fails, the log says so."""
        task = asyncio.get_running_loop().create_task(job)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (problem := task.exception()):
            logger.error("%s", problem, exc_info=problem)

    # -- requests --------------------------------------------------------------------------------------

    async def diagnostic(self, params: types.DocumentDiagnosticParams) -> types.DocumentDiagnosticReport:
        """What is found in a document."""
        document = self.document(params.text_document.uri)
        if document is None:
            return types.RelatedFullDocumentDiagnosticReport([])
        look, text = await self.look(document)
        self.worker.submit(self.known.tidy)
        self._spread(look)
        return types.RelatedFullDocumentDiagnosticReport(actions.diagnostics(look, text))

    async def hover(self, params: types.HoverParams) -> types.Hover | None:
        """The pages of the rules that have found something at a place."""
        document = self.document(params.text_document.uri)
        look, text = await self.look(document) if document else (None, None)
        return actions.hover(look, text, params.position) if look and text else None

    async def code_action(self, params: types.CodeActionParams) -> list[types.CodeAction]:
        """What can be done about findings."""
        document = self.document(params.text_document.uri)
        if document is None:
            return []
        look, text = await self.look(document)
        if look is None:
            return []
        only = params.context.only
        wanted = [str(getattr(kind, "value", kind)) for kind in only] if only is not None else None
        offers = await self.work(lambda: list(actions.actions(look, text, params.range, wanted)))
        found = [(each, self._offered(each, document, text, params.context.diagnostics)) for each in offers]
        if not self._resolves:
            for each, offered in found:
                offered.edit = await self._edit(each, document, look, text)
        return [offered for _, offered in found if self._resolves or offered.edit]

    def _offered(
        self, action: Action, document: Document, text: Text, about: Iterable[types.Diagnostic]
    ) -> types.CodeAction:
        about = [each for each in about if actions.is_about(action, each, text)]
        return types.CodeAction(
            action.title,
            action.kind,
            diagnostics=about or None,
            is_preferred=action.preferred or None,
            data={"uri": document.uri, **action.data},
        )

    async def resolve(self, offered: types.CodeAction) -> types.CodeAction:
        """What an action changes."""
        data: Any = offered.data
        document = self.document(data["uri"])
        look, text = await self.look(document) if document else (None, None)
        action = actions.again(data, look) if look else None
        if document is None or look is None or text is None or action is None:
            raise JsonRpcContentModified("what this was about is no longer there")
        offered.edit = await self._edit(action, document, look, text)
        if offered.edit is None:
            raise JsonRpcContentModified("this can't be done")
        return offered

    async def _edit(
        self, action: Action, document: Document, look: Inspection, text: Text
    ) -> types.WorkspaceEdit | None:
        """What an action changes, None where it can't be done."""
        try:
            edits = await self.work(lambda: action.edits(look, text))
        except FixError as problem:
            logger.error("%s", problem)
            return None
        workspace = self.client_capabilities.workspace
        edit = workspace and workspace.workspace_edit
        if not (edit and edit.document_changes):
            return types.WorkspaceEdit({document.uri: edits})
        versioned = types.OptionalVersionedTextDocumentIdentifier(document.uri, document.version)
        return types.WorkspaceEdit(document_changes=[types.TextDocumentEdit(versioned, edits)])

    @property
    def _resolves(self) -> bool:
        """Whether the editor asks for what an action changes when it is chosen."""
        document = self.client_capabilities.text_document
        can = document and document.code_action and document.code_action.resolve_support
        return bool(can and "edit" in can.properties)


def _path(uri: str) -> str | None:
    """Where a file is, None for one that is not saved."""
    if uri_scheme(uri) != "file":
        return None
    path = to_fs_path(uri)
    return os.path.normpath(path) if path else None


def _options(value: Any) -> dict[str, Any]:
    """The settings that an editor sends, perhaps under the name of devicefix or as all of its settings."""
    for name in ("devicefix", "settings"):
        if isinstance(value, dict) and isinstance(value.get(name), dict):
            value = value[name]
    return value if isinstance(value, dict) else {}


def serve() -> None:
    """Serve an editor at the standard input and output, until it ends that."""
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format="devicefix: %(message)s")
    # The protocol has the standard output for itself: what anything else prints goes to the log.
    output = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    collect_less()
    gc.set_threshold(ALLOCATIONS, 50, 1000)
    Server().start_io(sys.stdin.buffer, output)
