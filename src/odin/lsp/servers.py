"""The language servers of one folder, and the errors that they find in an edited file, added to the result of the edit.

The edit is made already when they are asked, so nothing here can fail it: a server that is missing, slow or broken only
means that its errors are not in the result. What arrives later is told with the next request (`LateErrors`), and is
what the next edit is compared with.
"""

import asyncio
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Coroutine, Iterable, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct

from odin.core.event_values import LanguageServerState
from odin.core.format import pluralize
from odin.core.path_names import contains
from odin.lsp.detection import find_for_project, list_files
from odin.lsp.documents import ERROR, Diagnostic, ErrorIdentity, OpenDocument, WatchedChange
from odin.lsp.protocol import ServerFault
from odin.lsp.server import LanguageServer
from odin.tools.files import to_printable

MAX_UNANSWERED = 3
"""After this many reviews without an answer in time, a server is not waited for until it answers."""

MAX_ERRORS = 10
MAX_MESSAGE_CHARS = 300
MAX_FILES = 8
MAX_WARM_UPS = 40

MAX_EDITED = 40
"""Files of a turn whose later errors are told."""
MAX_NOTES = 3
"""Notes about one edit of a file: a server whose errors are other ones each time is not repeated for ever."""

HEADING = "Errors found by language servers after this change:"
LATE_HEADING = "Errors found by language servers in files you changed, after the results of those changes:"

FoundErrors = tuple[Diagnostic, ...] | None


class LanguageServers:
    """The servers of one folder as a session uses them, started when a file of their kind is read or changed.

    Paths are shown relative to `shown_from`. `take_changes` returns the files that the session has changed since the
    last call; `on_change` is called when the status or the counts of a server change.
    """

    def __init__(
        self,
        root: str,
        servers: Iterable[LanguageServer],
        *,
        shown_from: str = "",
        take_changes: Callable[[], Iterable[WatchedChange]] = tuple,
        on_change: Callable[[], None] = lambda: None,
    ) -> None:
        self.root = root
        self.shown_from = shown_from or root
        self.reviews: set[asyncio.Task[FoundErrors]] = set()
        """Those in progress, also if no edit waits for them any more: the event loop alone would not keep them."""
        self._take_changes = take_changes
        self._on_change = on_change
        self.all = tuple(servers)
        for server in self.all:
            server.join(on_change)

    def is_enabled(self, server: LanguageServer) -> bool:
        return self._on_change in server.users

    def _can_use(self, server: LanguageServer) -> bool:
        return server.can_start and self.is_enabled(server)

    def start_review(self, review: Coroutine[Any, Any, FoundErrors]) -> "asyncio.Task[FoundErrors]":
        task = asyncio.create_task(review)
        self.reviews.add(task)
        task.add_done_callback(self.reviews.discard)
        return task

    def list_for(self, path: str) -> tuple[LanguageServer, ...]:
        """Return the servers for a file of the project, which may have to be started."""
        if not contains(self.root, path):
            return ()
        return tuple(server for server in self.all if self._can_use(server) and server.spec.covers(path))

    def report_changes(self) -> None:
        """Tell the running servers what has changed on the disk."""
        changes = tuple(self._take_changes())
        for server in self.all if changes else ():
            if server.status == "ready":
                server.report_changes(changes)

    async def find_navigator(self, path: str) -> LanguageServer:
        """Return a server that finds definitions in this file. Raise ServerFault if there is none."""
        fitting = [server for server in self.all if server.spec.navigates and server.spec.covers(path)]
        if not contains(self.root, path):
            raise ServerFault(f"{path} is outside the project, so no language server handles it")
        if not fitting:
            raise ServerFault(f"no language server handles {Path(path).name}")
        usable = [server for server in fitting if self._can_use(server)]
        if not usable and not self.is_enabled(fitting[0]):
            raise ServerFault(f"{fitting[0].spec.name} is disabled")
        faults: list[ServerFault] = []
        for server in sorted(usable or fitting[:1], key=lambda server: server.status != "ready"):
            try:
                await server.get_ready()
            except ServerFault as fault:
                faults.append(fault)
            else:
                return server
        raise faults[0]

    def list_navigators(self) -> tuple[LanguageServer, ...]:
        """Return the servers that know the symbols of the project: those that run, and those it has use for."""
        navigators = [server for server in self.all if server.spec.navigates and self._can_use(server)]
        idle = (server.spec for server in navigators if server.status != "ready")
        used = {spec.name for spec in find_for_project(idle, self.root)}
        return tuple(server for server in navigators if server.status == "ready" or server.spec.name in used)

    async def load_project(self, server: LanguageServer) -> None:
        """Start a server and give it a file, without which some do not look at the project. Raise ServerFault."""
        await server.get_ready()
        self.report_changes()
        document = server.find_last_document()
        if document is None:
            path = next((path for path in list_files(self.root) if server.spec.covers(path)), "")
            document = server.follow(path) if path else None
        if document is not None:
            await server.settle(document)

    def list_states(self) -> tuple[LanguageServerState, ...]:
        return tuple(map(self._describe, self.all))

    def _describe(self, server: LanguageServer) -> LanguageServerState:
        if not self.is_enabled(server):
            return LanguageServerState(server.spec.name, "disabled", file_types=server.spec.file_types)
        errors, warnings = server.count_problems()
        status = server.status
        if status == "ready":
            status = "starting" if server.is_loading else "slow" if server.unanswered else status
        return LanguageServerState(
            server.spec.name, status, server.detail, server.spec.file_types, errors, warnings, server.start_ms
        )

    def find(self, name: str) -> LanguageServer | None:
        return next((server for server in self.all if server.spec.name == name), None)

    def close(self) -> None:
        """Leave the servers; those that no other session uses end."""
        for review in self.reviews:
            review.cancel()
        for server in self.all:
            server.leave(self._on_change)


# --- errors after an edit ---


class FileReview(Struct, frozen=True):
    """The errors of one file. `earlier` is everything known before the edit; None if nothing is."""

    path: str
    errors: tuple[Diagnostic, ...]
    earlier: tuple[Diagnostic, ...] | None

    def list_errors(self) -> list[tuple[bool, Diagnostic]]:
        """Return the errors, each with whether it is new."""
        known = Counter(item.identity for item in self.earlier or ())
        found: list[tuple[bool, Diagnostic]] = []
        for item in self.errors:
            found.append((self.earlier is not None and not known[item.identity], item))
            known[item.identity] -= 1 if known[item.identity] else 0
        return found


class ErrorReport(Struct, frozen=True):
    """The errors in the files of an edit: lines to add to its result, and how many there are."""

    text: str = ""
    count: int = 0


class ReviewedEdit(Struct):
    """A file that was changed in this turn, for one server. `told` counts the errors that the model knows."""

    server: LanguageServer
    path: str
    earlier: tuple[Diagnostic, ...] | None
    told: Counter[ErrorIdentity]
    notes_left: int = MAX_NOTES

    def take_errors(self) -> FileReview | None:
        """Return the errors that the model does not know, once. None as long as there are none."""
        document = self.server.find_document(self.path)
        if not self.notes_left or document is None or not document.is_current:
            return None
        errors = _list_errors(document)
        left = self.told.copy()
        left.subtract(item.identity for item in errors)
        self.told |= Counter(item.identity for item in errors)
        fresh: list[Diagnostic] = []
        for item in reversed(errors):  # of equal ones, the last are those that are not known
            if left[item.identity] < 0:
                left[item.identity] += 1
                fresh.append(item)
        self.notes_left -= bool(fresh)
        return FileReview(self.path, tuple(fresh), self.earlier) if fresh else None


class LateErrors:
    """The errors that servers report after the results of an agent's edits, as notes for its next requests.

    A server may have just started, or report what its compiler finds only when that is done.
    """

    def __init__(self) -> None:
        self._turn = ""
        self._files: OrderedDict[tuple[str, str], ReviewedEdit] = OrderedDict()

    def follow_turn(self, turn: str) -> None:
        """Forget the files of earlier turns."""
        if turn != self._turn:
            self._turn = turn
            self._files.clear()

    def add(self, file: ReviewedEdit) -> None:
        """Replace what is known of the file: the result of the newest edit is what the model has read."""
        key = file.server.spec.name, file.path
        self._files[key] = file
        self._files.move_to_end(key)
        while len(self._files) > MAX_EDITED:
            self._files.popitem(last=False)

    def take_note(self, root: str) -> str:
        """Return a note with the errors that the model does not know, each once; "" if there are none."""
        reviews = [review for file in self._files.values() if (review := file.take_errors())]
        return _report_reviews(reviews, root, LATE_HEADING).text


async def review_files(servers: LanguageServers, paths: Sequence[str], late: LateErrors | None = None) -> ErrorReport:
    """Return the errors in these files, as far as they are known in time. Later ones can be taken from `late`."""
    servers.report_changes()
    began = time.monotonic()
    asked = [(server, path) for path in paths[:MAX_FILES] for server in servers.list_for(path)]
    files = [ReviewedEdit(server, path, _list_known(server, path), Counter()) for server, path in asked]
    reviews = {servers.start_review(_review_file(file.server, file.path, is_changed=True)): file for file in files}
    waits = {task: (file, _wait_for(file.server)) for task, file in reviews.items()}
    for wait in sorted({wait for _, wait in waits.values()}):
        group = [task for task, (_, own) in waits.items() if own == wait]
        await asyncio.wait(group, timeout=max(0.0, wait - (time.monotonic() - began)))
    for server in {file.server.spec.name: file.server for task, (file, _) in waits.items() if not task.done()}.values():
        server.note_unanswered()
    found: list[FileReview] = []
    for task, file in reviews.items():
        errors = task.result() if task.done() and not task.cancelled() else None
        if errors is not None:
            found.append(FileReview(file.path, errors, file.earlier))
            file.told.update(item.identity for item in errors)
        if late is not None:
            late.add(file)
    return _report_reviews(found, servers.shown_from, HEADING)


def warm_up(servers: LanguageServers, path: str) -> None:
    """Start the servers of a file that was read, and let them look at it before it is changed."""
    for server in servers.list_for(path):
        if server.find_document(path) is None and len(servers.reviews) < MAX_WARM_UPS:
            servers.start_review(_warm_up_server(server, path))


async def _warm_up_server(server: LanguageServer, path: str) -> FoundErrors:
    """Review one file after the other, so that the review of an edit does not wait for those of many reads."""
    async with server.warming_up:
        return await _review_file(server, path)


def _wait_for(server: LanguageServer) -> float:
    if server.unanswered >= MAX_UNANSWERED:
        return 0.0
    return server.timing.lsp_warm_s if server.is_warm else server.timing.lsp_cold_s


def _list_known(server: LanguageServer, path: str) -> tuple[Diagnostic, ...] | None:
    document = server.find_document(path)
    return document.diagnostics if document is not None else None


async def _review_file(server: LanguageServer, path: str, *, is_changed: bool = False) -> FoundErrors:
    """Return the errors of a file; None if the server does not tell."""
    try:
        with server.keep():
            await server.get_ready()
            document = server.follow(path, is_changed=is_changed)
            if document is None:
                return None
            await server.review(document)
    except ServerFault:
        return None
    return _list_errors(document)


def _list_errors(document: OpenDocument) -> tuple[Diagnostic, ...]:
    return tuple(item for item in document.diagnostics or () if item.severity == ERROR)


def _report_reviews(reviews: Sequence[FileReview], root: str, heading: str) -> ErrorReport:
    found = [(not is_new, review.path, item) for review in reviews for is_new, item in review.list_errors()]
    found = list(dict.fromkeys(sorted(found, key=lambda one: (one[0], one[1], one[2].line, one[2].column))))
    if not found:
        return ErrorReport()
    lines = [_format_error(path, item, root, is_new=not old) for old, path, item in found[:MAX_ERRORS]]
    more = len(found) - MAX_ERRORS
    rest = [f"... and {pluralize(more, 'more error')}"] if more > 0 else []
    text = "\n".join([heading, *lines, *rest])
    return ErrorReport(text, len(found))


def _format_error(path: str, item: Diagnostic, root: str, *, is_new: bool) -> str:
    message = " ".join(item.message.split())
    message = message if len(message) <= MAX_MESSAGE_CHARS else f"{message[:MAX_MESSAGE_CHARS]}..."
    origin = f"{item.source} {item.code}".strip()
    mark = "new: " if is_new else ""
    return to_printable(f"{shorten_path(path, root)}:{item.line}:{item.column}: {mark}{message} [{origin}]")


def shorten_path(path: str, root: str) -> str:
    """Return a path relative to the project, or as it is outside of it."""
    return path[len(root.rstrip("/")) + 1 :] if contains(root, path) and path != root else path
