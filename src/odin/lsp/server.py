"""One language server: its process, its view of the files, and what it is asked.

The files on the disk are the truth: before every question the open documents are compared with them, so that edits,
commands, undo and discarded speculative edits all reach the server in the same way. A server that crashes is started
again with the next question, a few times; one that breaks the protocol is ended.
"""

import asyncio
import os
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Generator, Iterable, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Literal, cast

from odin.core.path_names import contains
from odin.core.profile import WritableFolders
from odin.core.timing import DEFAULT_TIMING, Timing
from odin.lsp.detection import ServerSpec, plan_launch
from odin.lsp.documents import (
    ERROR,
    WARNING,
    Channel,
    OpenDocument,
    SourceText,
    WatchedChange,
    make_file_key,
    parse_diagnostics,
    read_source,
)
from odin.lsp.protocol import (
    JsonRpcConnection,
    PositionEncoding,
    PositionMap,
    RequestOvertaken,
    ServerFault,
    UnknownMethod,
    path_to_uri,
    uri_to_path,
)
from odin.sandbox.output import HeadTailBuffer, InputPipe
from odin.sandbox.process import RunningProcess, describe_exit
from odin.sandbox.runner import ProcessRunner, SandboxUnavailable
from odin.tools.files import to_printable

START_TIMEOUT_S = 30.0
REQUEST_TIMEOUT_S = 30.0

MAX_OPEN_DOCUMENTS = 40
MAX_STARTS = 3
"""How often a server is started until the user restarts it."""

_MAX_STDERR_CHARS = 4_000
_MAX_REFRESHED = 8
"""Documents that are reviewed again when the server says that its diagnostics have changed."""

_MAX_PROGRESS = 100

_RETRY_PAUSES_S = (0.1, 0.2, 0.4, 0.8, 1.6)
"""Pauses before a request is repeated that the server gave up."""

ProcessStatus = Literal["idle", "starting", "ready", "failed"]


class LanguageServer:
    """A server, for all sessions of a workspace. `users` are called when its status or its counts change.

    `can_confine` finds out whether the sandbox works: without it, programs in `writable` folders are not started.
    """

    def __init__(
        self,
        spec: ServerSpec,
        root: str,
        runner: ProcessRunner,
        *,
        env: Mapping[str, str],
        writable: WritableFolders,
        can_confine: Callable[[], Awaitable[bool]],
        timing: Timing = DEFAULT_TIMING,
    ) -> None:
        self.spec = spec
        self.timing = timing
        self.users: set[Callable[[], None]] = set()
        self.status: ProcessStatus = "idle"
        self.detail = ""
        self.start_ms = 0
        self.has_answered = False
        self.unanswered = 0
        self.warming_up = asyncio.Lock()
        self._root = root
        self._runner = runner
        self._env = env
        self._writable = writable
        self._can_confine = can_confine
        self._starts = 0
        self._starting: asyncio.Task[None] | None = None
        self._running: RunningProcess | None = None
        self._pipe: InputPipe | None = None
        self._connection: JsonRpcConnection | None = None
        self._errors = HeadTailBuffer(_MAX_STDERR_CHARS)
        self._options: dict[str, Any] = spec.options
        self._capabilities: dict[str, Any] = {}
        self._encoding: PositionEncoding = "utf-16"
        self._pulls = False
        self._is_settled = False
        self._loaded = asyncio.Event()
        self._loaded.set()
        self._in_progress: set[str] = set()
        self._refresh_timer: asyncio.TimerHandle | None = None
        self._unused_timer: asyncio.TimerHandle | None = None
        self._used_at = 0.0
        self._uses = 0
        self._documents: OrderedDict[str, OpenDocument] = OrderedDict()

    # --- the process ---

    @property
    def can_start(self) -> bool:
        return self.status in ("idle", "starting", "ready") or (self.status == "failed" and self._starts < MAX_STARTS)

    @property
    def is_warm(self) -> bool:
        return self.status == "ready" and self.has_answered

    async def get_ready(self) -> None:
        """Start the server if it does not run. Raise ServerFault if it cannot be used."""
        with self.keep():
            if self.status == "ready":
                return
            if not self.can_start:
                raise ServerFault(self.detail)
            if self._starting is None or self._starting.done():
                self._starting = asyncio.create_task(self._start())
            await asyncio.wait([self._starting])
            if self._connection is None:
                raise ServerFault(self.detail or f"{self.spec.name} was stopped")

    @contextmanager
    def keep(self) -> Generator[None]:
        """Do not take the server for unused while the body asks it something, however long the answer takes."""
        self._uses += 1
        try:
            yield
        finally:
            self._uses -= 1
            self._used_at = asyncio.get_running_loop().time()

    async def _start(self) -> None:
        self._starts += 1
        self._change_status("starting")
        began = time.monotonic()
        try:
            await self._open_process()
            assert self._connection is not None
            result = await self._connection.request("initialize", self._build_initialize(), START_TIMEOUT_S)
            found = cast("dict[str, Any]", result).get("capabilities") if isinstance(result, dict) else None
            self._capabilities = cast("dict[str, Any]", found) if isinstance(found, dict) else {}
            encoding = self._capabilities.get("positionEncoding")
            self._encoding = encoding if encoding in ("utf-8", "utf-16", "utf-32") else "utf-16"
            self._pulls = self.supports("diagnosticProvider")
            self._connection.notify("initialized", {})
            if self._options:
                self._connection.notify("workspace/didChangeConfiguration", {"settings": self._options})
        except ServerFault as fault:
            if self.status == "starting":
                self._fail(self._describe_failure(str(fault)))
            return
        except OSError as error:
            why = str(error) if isinstance(error, SandboxUnavailable) else error.strerror or str(error)
            self._fail(f"{self.spec.programs[0]} cannot be started: {why}")
            return
        except BaseException:
            self._end_process()
            raise
        self.start_ms = int((time.monotonic() - began) * 1000)
        self._change_status("ready")
        self._end_if_unused()

    def _end_if_unused(self) -> None:
        loop, limit = asyncio.get_running_loop(), self.timing.lsp_unused_s
        left = limit if self.is_loading or self._uses else self._used_at + limit - loop.time()
        if left > 0:
            self._unused_timer = loop.call_later(left, self._end_if_unused)
        else:
            self.stop()

    async def _open_process(self) -> None:
        is_confined = await self._can_confine()
        launch = plan_launch(self.spec, self._root, self._env, writable=self._writable, is_confined=is_confined)
        self._options = launch.options
        self._errors = HeadTailBuffer(_MAX_STDERR_CHARS)
        connection = self._connection = JsonRpcConnection(
            self._write, self._on_notification, self._answer, lambda reason: self._on_broken(connection, reason)
        )
        running, self._pipe = await self._runner.start_connected(
            launch.argv,
            cwd=self._root,
            env=launch.env,
            on_output=connection.receive,
            errors=self._errors,
            profile=launch.profile,
        )
        self._running = running
        self._pipe.on_lost = lambda: self._on_unread(connection)
        running.done.add_done_callback(lambda _: self._on_exit(running))

    def _write(self, data: bytes) -> None:
        if self._pipe is not None:
            self._pipe.write(data)

    def _build_initialize(self) -> dict[str, Any]:
        folder = {"uri": path_to_uri(self._root), "name": Path(self._root).name}
        return {
            "processId": None,  # its process namespace is another one
            "clientInfo": {"name": "odin"},
            "rootUri": folder["uri"],
            "rootPath": self._root,
            "workspaceFolders": [folder],
            "initializationOptions": self._options,
            "capabilities": _CAPABILITIES,
        }

    def supports(self, capability: str) -> bool:
        """True if the server does this, such as `definitionProvider`. Its value may be an empty object."""
        return self._capabilities.get(capability) not in (None, False)

    def _on_exit(self, running: RunningProcess) -> None:
        if running is self._running and self.status in ("starting", "ready"):
            self._fail(self._describe_failure(f"it ended ({describe_exit(running.code)})"))

    def _on_unread(self, connection: JsonRpcConnection) -> None:
        """Its input is closed: give it up, unless it turns out that the process has ended, which says more."""
        why = "it does not read what it is sent"
        asyncio.get_running_loop().call_later(self.timing.lsp_exit_s, self._on_broken, connection, why)

    def _on_broken(self, connection: JsonRpcConnection, reason: str) -> None:
        if connection is self._connection and self.status in ("starting", "ready"):
            self._fail(reason)

    def _describe_failure(self, reason: str) -> str:
        lines = [line.strip() for line in self._errors.render_text()[0].splitlines() if line.strip()]
        said = next((line for line in lines if line.lower().startswith("error")), lines[-1] if lines else "")
        return f"{reason}: {said[:200]}" if said else reason

    def _fail(self, reason: str) -> None:
        self._end_process(reason)
        self._change_status("failed", to_printable(reason))

    def _end_process(self, reason: str = "the server was stopped") -> None:
        running, pipe, connection = self._running, self._pipe, self._connection
        self._running = self._pipe = self._connection = None
        for document in self._documents.values():
            document.published.set()
        self._documents.clear()
        self.has_answered = self._is_settled = False
        self._loaded.set()
        self._in_progress.clear()
        self.unanswered = 0
        if self._unused_timer is not None:
            self._unused_timer.cancel()
        if connection is not None:
            connection.close(reason)
        if pipe is not None:
            pipe.close()
        if running is not None:
            self._runner.kill_process(running)

    def join(self, user: Callable[[], None]) -> None:
        """Enable it in a session. What failed before is tried again."""
        if self.status == "failed":
            self.stop()
        self.users.add(user)

    def leave(self, user: Callable[[], None]) -> None:
        """Disable it in a session. It ends with the last one."""
        if self.users == {user}:
            self.stop()
        self.users.discard(user)

    def stop(self) -> None:
        """End the process. It starts again with the next question."""
        self._end_process()
        if self._starting is not None:
            self._starting.cancel()
        self._starting = None
        self._starts = 0
        self._change_status("idle")

    def _change_status(self, status: ProcessStatus, detail: str = "") -> None:
        if (status, detail) != (self.status, self.detail):
            self.status, self.detail = status, detail
            self._report_change()

    def _report_change(self) -> None:
        for report in tuple(self.users):
            report()

    # --- its view of the files ---

    def report_changes(self, changes: Iterable[WatchedChange]) -> None:
        """Tell the server about files that changed on the disk."""
        found = [
            {"uri": path_to_uri(item.path), "type": item.kind} for item in changes if contains(self._root, item.path)
        ]
        if found and self._connection is not None:
            self._connection.notify("workspace/didChangeWatchedFiles", {"changes": found})

    def follow(self, path: str, *, is_changed: bool = False) -> OpenDocument | None:
        """Bring all open documents up to date and open this one. None if the file cannot be given to the server.

        `is_changed`: it was changed on the disk, also if the server sees it for the first time.
        """
        for document in list(self._documents.values()):
            if document.path != path and self._refresh(document):
                self._start_review(document)
        known = self._documents.get(path)
        if known is not None:
            self._refresh(known)
        elif (source := read_source(path)) is not None:
            document = self._open(path, source)
            if is_changed:
                self._report_saved(document)
        if path in self._documents:
            self._documents.move_to_end(path)
        return self._documents.get(path)

    def find_document(self, path: str) -> OpenDocument | None:
        return self._documents.get(path)

    def find_last_document(self) -> OpenDocument | None:
        return next(reversed(self._documents.values()), None)

    def map_positions(self, text: str) -> PositionMap:
        return PositionMap(text, self._encoding)

    def _notify(self, method: str, params: Any) -> None:
        if self._connection is not None:
            self._connection.notify(method, params)

    def _open(self, path: str, source: SourceText) -> OpenDocument:
        while len(self._documents) >= MAX_OPEN_DOCUMENTS:
            self._close(next(iter(self._documents.values())))
        document = self._documents[path] = OpenDocument(path, source)
        self._notify("textDocument/didOpen", {"textDocument": document.describe()})
        return document

    def _close(self, document: OpenDocument) -> None:
        del self._documents[document.path]
        document.published.set()
        self._notify("textDocument/didClose", {"textDocument": {"uri": document.uri}})

    def _refresh(self, document: OpenDocument) -> bool:
        """Give the server the text on the disk. True if it is another one."""
        try:
            if make_file_key(os.lstat(document.path)) == document.source.key:
                return False
        except OSError:
            self._close(document)
            return False
        source = read_source(document.path)
        if source is None:
            self._close(document)
            return False
        changed = source.text != document.source.text
        document.source = source
        if changed:
            # Send the whole text: it is as fast as a difference for files of this size, and cannot go wrong.
            document.version += 1
            document.published.clear()
            if self._get_sync_options().get("change") in (1, 2):
                changes = [{"text": document.source.text}]
                identifier = {"uri": document.uri, "version": document.version}
                self._notify("textDocument/didChange", {"textDocument": identifier, "contentChanges": changes})
            else:
                self._notify("textDocument/didClose", {"textDocument": {"uri": document.uri}})
                self._notify("textDocument/didOpen", {"textDocument": document.describe()})
            self._report_saved(document)
        return changed

    def _get_sync_options(self) -> dict[str, Any]:
        sync = self._capabilities.get("textDocumentSync")
        return cast("dict[str, Any]", sync) if isinstance(sync, dict) else {"change": sync, "save": True}

    def _report_saved(self, document: OpenDocument) -> None:
        """Tell the server that the file was saved: some look at it only then, or start a compiler."""
        save = self._get_sync_options().get("save")  # may be an empty object
        if save not in (None, False):
            wants_text = isinstance(save, dict) and cast("dict[str, Any]", save).get("includeText")
            more = {"text": document.source.text} if wants_text else {}
            self._notify("textDocument/didSave", {"textDocument": {"uri": document.uri}, **more})

    # --- diagnostics ---

    async def review(self, document: OpenDocument) -> None:
        """Wait for the diagnostics of the document as it is now. Raise ServerFault if they do not come."""
        running = document.review
        if running is None or running.done() or document.reviewed_version != document.version:
            running = self._start_review(document)
        await asyncio.shield(running)

    @property
    def is_loading(self) -> bool:
        """True while the server says that it does not know the whole project yet."""
        return not self._loaded.is_set()

    async def settle(self, document: OpenDocument) -> None:
        """Wait until the server knows the project: earlier answers may be incomplete.

        It has to look at a file, once after its start, and some servers tell when they have loaded the project.
        """
        if self._is_settled and not self.is_loading:
            return
        with suppress(ServerFault, TimeoutError):
            async with asyncio.timeout(self.timing.lsp_settle_s):
                if not self._is_settled:
                    self._is_settled = True
                    await self.review(document)
                await self._loaded.wait()

    def _start_review(self, document: OpenDocument) -> "asyncio.Task[None]":
        """Bring the diagnostics of a file up to date. It may be that no call waits for them."""
        document.review = asyncio.create_task(self._review(document))
        document.review.add_done_callback(lambda task: task.cancelled() or task.exception())
        return document.review

    async def _review(self, document: OpenDocument) -> None:
        document.reviewed_version = document.version
        try:
            if not self._pulls and not document.published.is_set():
                async with asyncio.timeout(REQUEST_TIMEOUT_S):
                    await document.published.wait()
            if self._pulls:
                version = document.version
                result = await self.ask("textDocument/diagnostic", {"textDocument": {"uri": document.uri}})
                items = cast("dict[str, Any]", result).get("items") if isinstance(result, dict) else None
                if document.version == version and isinstance(items, list):
                    self._keep_diagnostics(document, "pulled", cast("list[Any]", items))
        except TimeoutError:
            raise ServerFault(f"no diagnostics within {REQUEST_TIMEOUT_S:g} s") from None
        self.has_answered = self.status == "ready"
        if self.unanswered:
            self.unanswered = 0
            self._report_change()

    def note_unanswered(self) -> None:
        """An edit has stopped waiting for this server."""
        self.unanswered += 1
        self._report_change()

    def _keep_diagnostics(self, document: OpenDocument, channel: Channel, items: list[Any]) -> None:
        before = document.diagnostics
        document.keep(channel, parse_diagnostics(items, document.map_positions(self._encoding), self.spec.name))
        if before != document.diagnostics:
            self._report_change()

    def _review_again(self) -> None:
        """Review the documents used last: the server says that its diagnostics have changed."""
        self._refresh_timer = None
        for document in list(self._documents.values())[-_MAX_REFRESHED:] if self._pulls else ():
            if document.review is None or document.review.done():
                self._start_review(document)

    def count_problems(self) -> tuple[int, int]:
        """Return the errors and warnings in the open documents."""
        found = [item.severity for document in self._documents.values() for item in document.diagnostics or ()]
        return found.count(ERROR), found.count(WARNING)

    # --- questions ---

    async def ask(self, method: str, params: dict[str, Any], timeout: float = REQUEST_TIMEOUT_S) -> Any:
        """Send a request to a server that is ready, again if it gives it up. Raise ServerFault."""
        for pause in _RETRY_PAUSES_S:
            try:
                return await self._request(method, params, timeout)
            except RequestOvertaken:
                await asyncio.sleep(pause)
        return await self._request(method, params, timeout)

    async def _request(self, method: str, params: dict[str, Any], timeout: float) -> Any:
        if self._connection is None:
            raise ServerFault(self.detail or f"{self.spec.name} is not running")
        with self.keep():
            return await self._connection.request(method, params, timeout)

    def _on_notification(self, method: str, params: Any) -> None:
        fields = cast("dict[str, Any]", params) if isinstance(params, dict) else {}
        if method == "textDocument/publishDiagnostics":
            self._receive_diagnostics(fields)
        elif method == "textDocument/clangd.fileStatus":
            # clangd first publishes what it finds with the headers as they were, and again when it has read them.
            # Between the two it may be idle for a moment.
            document = self._documents.get(uri_to_path(fields.get("uri")))
            if document is not None:
                document.is_busy = True
                if document.idle_timer is not None:
                    document.idle_timer.cancel()
                if fields.get("state") == "idle":
                    loop = asyncio.get_running_loop()
                    document.idle_timer = loop.call_later(self.timing.lsp_idle_s, document.end_busy)
        elif method == "experimental/serverStatus":  # rust-analyzer
            self._note_loading(is_loading=fields.get("quiescent") is False)
        elif method == "$/progress" and self.spec.indexes:
            token, value = str(fields.get("token")), fields.get("value")
            kind = cast("dict[str, Any]", value).get("kind") if isinstance(value, dict) else None
            if kind == "begin" and len(self._in_progress) < _MAX_PROGRESS:
                self._in_progress.add(token)
            elif kind == "end":
                self._in_progress.discard(token)
            self._note_loading(is_loading=bool(self._in_progress))

    def _note_loading(self, *, is_loading: bool) -> None:
        if is_loading == self.is_loading:
            return
        if is_loading:
            self._loaded.clear()
        else:
            self._loaded.set()
        self._report_change()

    def _receive_diagnostics(self, fields: dict[str, Any]) -> None:
        document = self._documents.get(uri_to_path(fields.get("uri")))
        items, version = fields.get("diagnostics"), fields.get("version")
        if document is None or not isinstance(items, list):
            return
        if isinstance(version, int) and version < document.version:
            return
        self._keep_diagnostics(document, "pushed", cast("list[Any]", items))
        if document.is_reviewed or not any(item.severity == ERROR for item in document.diagnostics or ()):
            document.published.set()

    def _answer(self, method: str, params: Any) -> Any:
        fields = cast("dict[str, Any]", params) if isinstance(params, dict) else {}
        match method:
            case "workspace/configuration":
                items = fields.get("items")
                asked = cast("list[Any]", items) if isinstance(items, list) else []
                return [self._find_setting(item) for item in asked]
            case "client/registerCapability":
                if "textDocument/diagnostic" in str(fields.get("registrations")):
                    # The server wants to be asked for diagnostics. It may say so only after the first document.
                    self._pulls = True
                    for document in self._documents.values():
                        document.published.set()
                return None
            case "workspace/workspaceFolders":
                return [{"uri": path_to_uri(self._root), "name": Path(self._root).name}]
            case "workspace/applyEdit":
                return {"applied": False, "failureReason": "Odin edits files itself."}
            case "window/showDocument":
                return {"success": False}
            case "workspace/diagnostic/refresh":
                if self._refresh_timer is None:
                    loop = asyncio.get_running_loop()
                    self._refresh_timer = loop.call_later(self.timing.lsp_refresh_s, self._review_again)
                return None
            case (
                "client/unregisterCapability"
                | "window/workDoneProgress/create"
                | "window/showMessageRequest"
                | "workspace/semanticTokens/refresh"
                | "workspace/inlayHint/refresh"
                | "workspace/codeLens/refresh"
            ):
                return None
            case _:
                raise UnknownMethod(method)

    def _find_setting(self, item: Any) -> Any:
        """Return the section of the options that the server asks for, such as `python.analysis`."""
        section = cast("dict[str, Any]", item).get("section") if isinstance(item, dict) else None
        value: Any = self._options
        for name in section.split(".") if isinstance(section, str) and section else ():
            value = cast("dict[str, Any]", value).get(name) if isinstance(value, dict) else None
        return value


_CAPABILITIES: dict[str, Any] = {
    "general": {"positionEncodings": ["utf-32", "utf-8", "utf-16"]},
    "textDocument": {
        "synchronization": {"didSave": True},
        "publishDiagnostics": {"versionSupport": True},
        "diagnostic": {"dynamicRegistration": True},
        "definition": {"linkSupport": False},
        "implementation": {"linkSupport": False},
        "references": {},
        "hover": {"contentFormat": ["plaintext", "markdown"]},
        "documentSymbol": {"hierarchicalDocumentSymbolSupport": True},
        "rename": {},
    },
    "workspace": {
        "configuration": True,
        "workspaceFolders": True,
        "didChangeConfiguration": {},
        "didChangeWatchedFiles": {"dynamicRegistration": True, "relativePatternSupport": True},
        "symbol": {},
        "workspaceEdit": {"documentChanges": True},
        "diagnostics": {"refreshSupport": True},
    },
    "window": {"workDoneProgress": True},
    "experimental": {"serverStatusNotification": True},
}
