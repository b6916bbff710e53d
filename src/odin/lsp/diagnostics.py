"""Adds the errors that language servers find in an edited file to the result of the edit.

The edit is made already when they are asked, so nothing here can fail it: a server that is missing, slow or broken only
means that its errors are not in the result. What arrives too late is the state that the next edit is compared with.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Coroutine, Sequence
from typing import Any

from msgspec import Struct

from odin.core.format import count_of
from odin.core.path_names import contains
from odin.lsp.documents import ERROR, Diagnostic
from odin.lsp.protocol import ServerFault
from odin.lsp.server import LanguageServer
from odin.lsp.servers import LanguageServers
from odin.tools.files import to_printable

COLD_WAIT_S = 1.5
WARM_WAIT_S = 0.3
PATIENCE = 3
"""After this many reviews without an answer in time, a server is not waited for until it answers."""

MAX_ERRORS = 10
MAX_MESSAGE_CHARS = 300
MAX_FILES = 8
MAX_WARM_UPS = 40


_running: set[asyncio.Task["FileReview | None"]] = set()
"""Reviews in progress, also those that no edit waits for any more: the event loop alone would not keep them."""


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


async def review_files(servers: LanguageServers, paths: Sequence[str]) -> ErrorReport:
    """Return the errors in these files, as far as they are known in time."""
    servers.report_changes()
    began = time.monotonic()
    asked = [(server, path) for path in paths[:MAX_FILES] for server in servers.list_for(path)]
    waits = {_keep_running(_review_file(server, path)): (server, _wait_for(server)) for server, path in asked}
    for wait in sorted({wait for _, wait in waits.values()}):
        group = [task for task, (_, own) in waits.items() if own == wait]
        await asyncio.wait(group, timeout=max(0.0, wait - (time.monotonic() - began)))
    late = {server.spec.name: server for task, (server, _) in waits.items() if not task.done()}
    for server in late.values():
        server.note_unanswered()
    reviews = [review for task in waits if task.done() and not task.cancelled() and (review := task.result())]
    return _report_reviews(reviews, servers.root)


def warm_up(servers: LanguageServers, path: str) -> None:
    """Start the servers of a file that was read, and let them look at it before it is changed."""
    for server in servers.list_for(path):
        if server.find_document(path) is None and len(_running) < MAX_WARM_UPS:
            _keep_running(_warm_up_server(server, path))


async def _warm_up_server(server: LanguageServer, path: str) -> FileReview | None:
    """Review one file after the other, so that the review of an edit does not wait for those of many reads."""
    async with server.warming_up:
        return await _review_file(server, path)


def _wait_for(server: LanguageServer) -> float:
    if server.unanswered >= PATIENCE:
        return 0.0
    return WARM_WAIT_S if server.is_warm else COLD_WAIT_S


def _keep_running(review: Coroutine[Any, Any, FileReview | None]) -> "asyncio.Task[FileReview | None]":
    task = asyncio.create_task(review)
    _running.add(task)
    task.add_done_callback(_running.discard)
    return task


async def _review_file(server: LanguageServer, path: str) -> FileReview | None:
    try:
        await server.get_ready()
        known = server.find_document(path)
        earlier = known.diagnostics if known is not None else None
        document = server.follow(path)
        if document is None:
            return None
        await server.review(document)
    except ServerFault:
        return None
    errors = tuple(item for item in document.diagnostics or () if item.severity == ERROR)
    return FileReview(path, errors, earlier)


def _report_reviews(reviews: Sequence[FileReview], root: str) -> ErrorReport:
    found = [(not is_new, review.path, item) for review in reviews for is_new, item in review.list_errors()]
    found = list(dict.fromkeys(sorted(found, key=lambda one: (one[0], one[1], one[2].line, one[2].column))))
    if not found:
        return ErrorReport()
    lines = [_format_error(path, item, root, is_new=not old) for old, path, item in found[:MAX_ERRORS]]
    more = len(found) - MAX_ERRORS
    rest = [f"... and {count_of(more, 'more error')}"] if more > 0 else []
    text = "\n".join(["Errors found by language servers after this change:", *lines, *rest])
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
