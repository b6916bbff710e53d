"""One session in one line, folded from its log: what a list shows of it.

A log that grew is read from where it was left. Only lines that matter here are decoded: most of a log is replies and
results, which are passed over by their first bytes.
"""

from pathlib import Path
from typing import Any

import msgspec

from odin.core.errors import PromptBlocked
from odin.core.event import (
    AnyEvent,
    Compacted,
    ContextSummarized,
    Envelope,
    ModelChanged,
    PromptJoined,
    Redone,
    Rewound,
    SessionOpened,
    TitleSet,
    TurnEnded,
    TurnStarted,
    UsageRecorded,
)
from odin.core.message import Usage
from odin.core.spent import Spent
from odin.session.log import FORMAT, Header
from odin.session.spending import Spending, add

PREVIEW = 80
_SUMMARY = 2_000
_HEAD = 400
"""The type of an event stands within so many bytes of its line: number, time and session come before it."""

_MARK = b'"event":{"type":"'
_WANTED = {
    kind.__name__.encode(): kind
    for kind in (
        SessionOpened,
        TitleSet,
        ModelChanged,
        TurnStarted,
        TurnEnded,
        PromptJoined,
        Compacted,
        ContextSummarized,
        Rewound,
        Redone,
        UsageRecorded,
    )
}
_decoder = msgspec.json.Decoder(Envelope)
_header = msgspec.json.Decoder(Header)


class Digest(msgspec.Struct, array_like=True, gc=False):
    """What is known of a log up to `offset`. `size` and `mtime_ns` are the file's when it was read.

    `readable` is false for a file that is no log of ours, or of a version to come.
    """

    id: str
    size: int = 0
    mtime_ns: int = 0
    offset: int = 0
    readable: bool = True
    created: float = 0.0
    cwd: str = ""
    forked_from: str = ""
    key: str = ""
    title: str = ""
    first: str = ""
    original: str = ""
    summary: str = ""
    turns: int = 0
    model: str = ""
    usage: Usage = Usage()
    cost_usd: float = 0.0
    forked_seq: int = -1
    spending: Spending = msgspec.field(default_factory=dict[str, Spent])
    """Without what was copied from another session, where it counts already."""


class _Again(Exception):
    """The conversation went back, so what was left out of the digest is needed: read the log from its beginning."""


class _Fold:
    """Adds events to a digest. The prompts are known only when the log is read from its beginning."""

    def __init__(self, digest: Digest) -> None:
        self._digest = digest
        self._whole = digest.offset == 0
        self._prompts: list[tuple[str, str]] = []
        self._undone: list[tuple[list[tuple[str, str]], str]] = []

    def line(self, line: bytes) -> None:
        at = line.find(_MARK, 0, _HEAD)
        if at < 0:
            return
        start = at + len(_MARK)
        kind = _WANTED.get(line[start : line.find(b'"', start)])
        if kind is None:
            return
        try:
            envelope = _decoder.decode(line)
        except (msgspec.MsgspecError, UnicodeError):
            return
        if isinstance(envelope.event, UsageRecorded):
            self._count(envelope.event, envelope)
        elif not envelope.agent:
            self._add(envelope.event)

    def _add(self, event: AnyEvent) -> None:
        step = _STEPS.get(type(event))
        if step is not None:
            step(self, event)

    def _count(self, event: UsageRecorded, envelope: Envelope) -> None:
        self._digest.usage += event.usage
        self._digest.cost_usd += event.cost_usd
        if envelope.seq > self._digest.forked_seq:
            add(self._digest.spending, envelope, event)

    def _opened(self, event: SessionOpened) -> None:
        self._digest.cwd, self._digest.model = event.cwd, event.model

    def _titled(self, event: TitleSet) -> None:
        self._digest.title = event.title

    def _model(self, event: ModelChanged) -> None:
        self._digest.model = event.model

    def _started(self, event: TurnStarted) -> None:
        if event.continues:
            return
        self._undone.clear()
        self._prompt(event.id, event.shown or event.text)

    def _joined(self, event: PromptJoined) -> None:
        if not self._digest.turns:
            self._prompt(event.id, event.shown or event.text)

    def _prompt(self, prompt: str, text: str) -> None:
        shown = preview(text)
        if self._whole:
            self._prompts.append((prompt, shown))
        self._digest.turns += 1
        self._digest.first = self._digest.first or shown
        self._digest.original = self._digest.original or shown

    def _ended(self, event: TurnEnded) -> None:
        if event.error_kind == PromptBlocked.__name__:
            self._need_all()
            self._keep(self._prompts[:-1])

    def _compacted(self, event: Compacted) -> None:
        self._need_all()
        self._digest.summary = event.text[:_SUMMARY]
        if event.users:
            self._digest.first = preview(event.users[0])
        elif self._prompts:
            self._digest.first = self._prompts[-1][1]

    def _summarized(self, event: ContextSummarized) -> None:
        self._digest.summary = event.text[:_SUMMARY]

    def _rewound(self, event: Rewound) -> None:
        self._need_all()
        at = [number for number, (prompt, _) in enumerate(self._prompts) if prompt == event.turn]
        self._undone.append((list(self._prompts), self._digest.first))
        if event.chat and at:
            self._keep(self._prompts[: at[-1]])

    def _redone(self, event: Redone) -> None:
        self._need_all()
        if self._undone:
            prompts, first = self._undone.pop()
            self._keep(prompts)
            self._digest.first = first

    def _need_all(self) -> None:
        if not self._whole:
            raise _Again

    def _keep(self, prompts: list[tuple[str, str]]) -> None:
        self._prompts = prompts
        self._digest.turns = len(prompts)
        if not any(shown == self._digest.first for _, shown in prompts):
            self._digest.first = prompts[0][1] if prompts else ""


_STEPS: dict[type[AnyEvent], Any] = {
    SessionOpened: _Fold._opened,
    TitleSet: _Fold._titled,
    ModelChanged: _Fold._model,
    TurnStarted: _Fold._started,
    TurnEnded: _Fold._ended,
    PromptJoined: _Fold._joined,
    Compacted: _Fold._compacted,
    ContextSummarized: _Fold._summarized,
    Rewound: _Fold._rewound,
    Redone: _Fold._redone,
}


def preview(text: str) -> str:
    line = " ".join(text[: 4 * PREVIEW].split())
    return line if len(line) <= PREVIEW else line[: PREVIEW - 1] + "…"


def digest_of(session: str, path: str | Path, size: int, mtime_ns: int, known: Digest | None = None) -> Digest:
    """The digest of a log as it is now, from the one before when the log has only grown since."""
    if known is not None and known.readable and 0 < known.offset <= known.size < size:
        try:
            return _read(msgspec.structs.replace(known), path, size, mtime_ns)
        except _Again:
            pass
    return _read(Digest(session), path, size, mtime_ns)


def _read(digest: Digest, path: str | Path, size: int, mtime_ns: int) -> Digest:
    fold = _Fold(digest)
    digest.size, digest.mtime_ns = size, mtime_ns
    try:
        with Path(path).open("rb") as file:
            if digest.offset:
                file.seek(digest.offset)
            elif not _begin(digest, file.readline()):
                return digest
            else:
                digest.offset = file.tell()
            for line in file:
                if not line.endswith(b"\n"):
                    break
                fold.line(line)
                digest.offset += len(line)
    except OSError:
        digest.readable = False
    return digest


def _begin(digest: Digest, line: bytes) -> bool:
    """Take what the header says; False when it is none of ours."""
    try:
        header = _header.decode(line)
    except (msgspec.MsgspecError, UnicodeError):
        header = None
    if header is None or header.odin_log > FORMAT:
        digest.readable = False
        return False
    digest.created, digest.cwd = header.created, header.cwd
    digest.forked_from, digest.forked_seq, digest.key = header.forked_from, header.forked_seq, header.key
    return True
