"""The last bound on what a result may add to the context.

What came of a call becomes its result: without secrets, bounded, seen by hooks, and then part of the log.

redact → bound → remarks → before_tool_result_append hooks → record
"""

from collections.abc import Callable, Iterable

import msgspec

from odin.core.event import CachedFile, CallStatus, ContextSummarized, FileCached, TodosChanged, ToolEnded
from odin.core.policy import Redact
from odin.core.text import to_valid_unicode
from odin.core.tool import ToolOutput
from odin.engine.call_types import AdmittedCall, CallScope, RefusedCall, describe_change
from odin.engine.hooks import ToolHooks
from odin.engine.recorder import Recorder

MAX_CHARS = 51_200
MAX_LINES = 2_000
_HEAD_SHARE = 0.4
_LINE_BREAK_SHARE = 0.8
_EXTRA_LINES = 10
"""Lines a tool may add to a full page to say what it left out."""


def bound_text(text: str, save: Callable[[str], str] | None = None) -> str:
    """Head and tail, and a line that says what is missing. `save` keeps the whole and says where."""
    lines = text.count("\n") + 1
    if len(text) <= MAX_CHARS and lines <= MAX_LINES + _EXTRA_LINES:
        return text
    head, tail = _head_of(text), _tail_of(text)
    kept = ""
    if save is not None:
        try:
            kept = f"; the full text: {save(text)}"
        except OSError as error:
            kept = f"; the full text could not be saved ({error.strerror or error})"
    shown = f"the first {len(head)} and the last {len(tail)} of {len(text)} characters ({lines} lines) are shown{kept}"
    return f"{head}\n\n[... result cut: {shown} ...]\n\n{tail}"


def _head_of(text: str) -> str:
    """The beginning that is shown, to the end of a line unless that would cost much of it."""
    part = "\n".join(text[: int(MAX_CHARS * _HEAD_SHARE)].split("\n")[: int(MAX_LINES * _HEAD_SHARE)])
    end = part.rfind("\n")
    return part[:end] if end > len(part) * _LINE_BREAK_SHARE else part


def _tail_of(text: str) -> str:
    part = "\n".join(text[-int(MAX_CHARS * (1 - _HEAD_SHARE)) :].split("\n")[-int(MAX_LINES * (1 - _HEAD_SHARE)) :])
    start = part.find("\n") + 1
    return part[start:] if 0 < start < len(part) * (1 - _LINE_BREAK_SHARE) else part


UNSUPPORTED_MEDIA = "[Unsupported tool result type]"


class ResultRecorder:
    """`save` keeps the whole of a text that is too long for the model and says where; it only gets redacted text."""

    def __init__(
        self,
        *,
        recorder: Recorder,
        hooks: ToolHooks,
        redact: Redact,
        seen_files: Callable[[], Iterable[CachedFile]],
        save: Callable[[str], str] | None,
    ) -> None:
        self._recorder = recorder
        self._hooks = hooks
        self._redact = redact
        self._seen_files = seen_files
        self._save = save

    async def record(
        self, item: AdmittedCall | RefusedCall, output: ToolOutput, took_ms: int, scope: CallScope
    ) -> None:
        ended = await self._build_event(item, output, took_ms, scope)
        emit = self._recorder.emit
        emit(ended, scope.agent)
        if output.summary:
            emit(ContextSummarized(self._redact_text(output.summary), output.covers), scope.agent)
        if output.todos is not None:
            emit(TodosChanged(output.todos), scope.agent)
        for file in self._seen_files():
            emit(FileCached(msgspec.structs.replace(file, path=to_valid_unicode(file.path))), scope.agent)

    async def _build_event(
        self, item: AdmittedCall | RefusedCall, output: ToolOutput, took_ms: int, scope: CallScope
    ) -> ToolEnded:
        output, found = self._redact_and_bound(output)
        output = msgspec.structs.replace(output, text=self._add_remarks(output.text, item, found))
        if isinstance(item, AdmittedCall):
            told = await self._hooks.fire_before_append(item.tool, item.call, item.args, output, scope)
            if told is not output:
                output, more = self._redact_and_bound(told)
                found = tuple(dict.fromkeys((*found, *more)))
        return ToolEnded(
            call_id=item.call.id,
            name=item.tool.name if isinstance(item, AdmittedCall) else item.call.name,
            status=_status_of(item, output),
            text=to_valid_unicode(output.text),
            note=to_valid_unicode(output.note),
            display=to_valid_unicode(output.view),
            for_user="" if output.silent else to_valid_unicode(output.for_user),
            files=tuple(to_valid_unicode(path) for path in output.files),
            duration_ms=took_ms,
            images=output.images,
            asynchronous=output.asynchronous,
            audit=item.audit,
            redacted=found,
            error_kind=item.error_kind if isinstance(item, RefusedCall) else output.error_kind,
        )

    def _redact_and_bound(self, output: ToolOutput) -> tuple[ToolOutput, tuple[str, ...]]:
        """The output without its secrets and no longer than the model may read, and what was taken out."""
        clean = [self._redact(text) for text in (output.text, output.note, output.view, output.for_user)]
        found = tuple(dict.fromkeys(secret for one in clean for secret in one.secrets))
        text, note, view, for_user = (one.text for one in clean)
        text = UNSUPPORTED_MEDIA if output.media else bound_text(text, self._save)
        return msgspec.structs.replace(output, text=text, note=note, view=view, for_user=for_user), found

    def _add_remarks(self, text: str, item: AdmittedCall | RefusedCall, found: tuple[str, ...]) -> str:
        """What the model must know of the way this result took."""
        if isinstance(item, AdmittedCall) and item.audit is not None:
            text = f"{text}\n\n{self._redact_text(describe_change(item.audit))}"
        return f"{text}\n\n[redacted: {', '.join(found)}]" if found else text

    def _redact_text(self, text: str) -> str:
        return to_valid_unicode(self._redact(text).text)


def _status_of(item: AdmittedCall | RefusedCall, output: ToolOutput) -> CallStatus:
    if isinstance(item, RefusedCall):
        return item.status
    return "error" if output.is_error else "success"
