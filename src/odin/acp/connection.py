"""JSON-RPC over two pipes: requests of the editor are carried out at once, and it is asked in turn."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from typing import Any, cast

import msgspec
from msgspec import UNSET, Struct, UnsetType

from odin.acp.protocol import (
    CANCELLED,
    INTERNAL_ERROR,
    INVALID_PARAMS,
    INVALID_REQUEST,
    PARSE_ERROR,
    RpcError,
)
from odin.core.errors import OdinError, UsageError
from odin.core.text import to_valid_unicode_all
from odin.ui.pipes import PipeWriter

MAX_LINE_BYTES = 64 * 1024 * 1024
"""A prompt carries its images."""

RequestId = str | int | None


class _Message(Struct, frozen=True):
    """A line of the editor: a request, a notification, or an answer."""

    jsonrpc: str = ""
    id: str | int | UnsetType | None = UNSET
    method: str | UnsetType = UNSET
    params: Any = None
    result: Any = UNSET
    error: Any = UNSET


class _ErrorFields(Struct, frozen=True, omit_defaults=True):
    code: int
    message: str
    data: Any = UNSET


class _Request(Struct, frozen=True, tag_field="jsonrpc", tag="2.0"):
    id: int
    method: str
    params: Any


class _Notification(Struct, frozen=True, tag_field="jsonrpc", tag="2.0"):
    method: str
    params: Any


class _Result(Struct, frozen=True, tag_field="jsonrpc", tag="2.0"):
    id: RequestId
    result: Any


class _Failure(Struct, frozen=True, tag_field="jsonrpc", tag="2.0"):
    id: RequestId
    error: _ErrorFields


class EditorRefused(OdinError):
    """The editor answered a request with an error."""


class EditorConnection:
    """`handle` carries out a request and returns its result; `notice` takes a notification."""

    def __init__(
        self,
        output: PipeWriter,
        handle: Callable[[str, Any, RequestId], Awaitable[Any]],
        notice: Callable[[str, Any], Awaitable[None]],
        report: Callable[[Exception], str],
    ) -> None:
        self._output = output
        self._handle = handle
        self._notice = notice
        self._report = report
        self._asked: dict[int, asyncio.Future[Any]] = {}
        self._count = 0
        self._tasks: set[asyncio.Task[Any]] = set()
        self._is_closed = False

    def spawn(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._finish_task)
        return task

    def _finish_task(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and isinstance(error := task.exception(), Exception):
            self._report(error)

    # --- lines in ---

    async def serve(self, lines: AsyncIterator[bytes]) -> None:
        """Handle lines until the input ends."""
        async for line in lines:
            if line.strip():
                self._take(line)

    def _take(self, line: bytes) -> None:
        number: RequestId = None
        try:
            raw = _read_json(line)
            number = _find_id(raw)
            message = _read_message(raw)
        except RpcError as error:
            self._send(_Failure(number, _describe(error)))
            return
        if isinstance(message.method, str):
            if isinstance(message.id, UnsetType):
                self.spawn(self._take_notice(message.method, message.params))
            else:
                self.spawn(self._answer(message.method, message.params, message.id))
        elif isinstance(message.id, int) and (waiting := self._asked.pop(message.id, None)) is not None:
            if waiting.done():
                return
            if message.error is UNSET:
                waiting.set_result(None if message.result is UNSET else message.result)
            else:
                waiting.set_exception(EditorRefused(_read_error(message.error)))

    async def _answer(self, method: str, params: Any, id: RequestId) -> None:
        try:
            answer = _Result(id, await self._handle(method, params, id))
        except RpcError as error:
            answer = _Failure(id, _describe(error))
        except UsageError as error:
            answer = _Failure(id, _ErrorFields(INVALID_PARAMS, error.describe()))
        except OdinError as error:
            answer = _Failure(id, _ErrorFields(INTERNAL_ERROR, error.describe()))
        except asyncio.CancelledError:
            self._send(_Failure(id, _ErrorFields(CANCELLED, "Odin is exiting.")))
            raise
        except Exception as error:  # one request must not end all sessions
            answer = _Failure(id, _ErrorFields(INTERNAL_ERROR, self._report(error)))
        self._send(answer)

    async def _take_notice(self, method: str, params: Any) -> None:
        with contextlib.suppress(OdinError):  # nobody waits for an answer
            await self._notice(method, params)

    # --- lines out ---

    def _send(self, message: Struct) -> None:
        if self._is_closed:
            return
        try:
            data = msgspec.json.encode(message)
        except UnicodeEncodeError:
            data = msgspec.json.encode(to_valid_unicode_all(msgspec.to_builtins(message)))
        self._output.write(data + b"\n")

    def notify(self, method: str, params: Any) -> None:
        self._send(_Notification(method, params))

    async def drain(self) -> None:
        """Wait until the editor has read everything."""
        await self._output.drain()

    async def ask(self, method: str, params: Any) -> Any:
        """Send a request and return its result. Raise EditorRefused.

        If this is cancelled, the editor is told that the answer is not needed any more.
        """
        self._count += 1
        number, waiting = self._count, asyncio.get_running_loop().create_future()
        self._asked[number] = waiting
        self._send(_Request(number, method, params))
        try:
            return await waiting
        except asyncio.CancelledError:
            self._asked.pop(number, None)
            self.notify("$/cancel_request", {"requestId": number})
            raise

    async def close(self) -> None:
        """End all requests, and write what is not written yet unless the editor is gone."""
        tasks, self._tasks = self._tasks - {asyncio.current_task()}, set()  # pyright: ignore[reportOperatorIssue, reportAttributeAccessIssue]
        self._is_closed = True
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _describe(error: RpcError) -> _ErrorFields:
    return _ErrorFields(error.code, error.describe(), error.data)


def _read_error(raw: Any) -> str:
    message: Any = cast("dict[str, Any]", raw).get("message") if isinstance(raw, dict) else None
    return message if isinstance(message, str) and message else "The editor could not answer."


def _read_json(line: bytes) -> Any:
    if len(line) > MAX_LINE_BYTES:
        limit = MAX_LINE_BYTES // 1024**2
        raise RpcError(PARSE_ERROR, f"The line is longer than {limit} MiB.", "Name large files instead.")
    try:
        return msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise RpcError(PARSE_ERROR, f"The line is not valid JSON in UTF-8: {error}.") from None
    except RecursionError:
        raise RpcError(PARSE_ERROR, "The line is nested too deeply.") from None


def _find_id(raw: Any) -> RequestId:
    """Return the id of what may be no valid request."""
    found: Any = cast("dict[str, Any]", raw).get("id") if isinstance(raw, dict) else None
    return found if isinstance(found, str | int) and not isinstance(found, bool) else None


def _read_message(raw: Any) -> _Message:
    if isinstance(raw, list):
        raise RpcError(INVALID_REQUEST, "Batches are not supported.", "Send each request in a line of its own.")
    try:
        message = msgspec.convert(raw, _Message)
    except msgspec.ValidationError as error:
        raise RpcError(INVALID_REQUEST, f"The line is no JSON-RPC message: {error}.") from None
    if message.jsonrpc != "2.0" or (message.method is UNSET and message.id is UNSET):
        raise RpcError(INVALID_REQUEST, "The line is no JSON-RPC 2.0 message.", 'It needs "jsonrpc" and "method".')
    return message
