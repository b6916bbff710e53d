"""`odin import`: a conversation from a file as a new session, to be gone on with like any other."""

import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, cast

import msgspec
from msgspec import Struct

from odin.app.secrets import redactor
from odin.app.sessions import checked_title
from odin.config import current_folder, load, make_private, state_dir
from odin.config.read import MAX_DEPTH, deeper_than
from odin.core.errors import UsageError
from odin.core.event import AnyEvent, Envelope, TitleSet, TurnEnded
from odin.core.message import ToolCall, ToolResult
from odin.core.redaction import Redact
from odin.core.text import mended
from odin.session.log import read_header, read_log
from odin.session.messages import StoredMessage, events_of, read_messages
from odin.session.store import Store
from odin.session.transcript import Transcript, read_export, read_lines

MOST = 200_000_000
"""Bytes of a file that is imported."""

_HOW = "Odin reads its own exports (json), its logs (main.jsonl) and the JSON lines of stream-json."


class Imported(Struct, frozen=True):
    """The new session, what it holds, and what of the file was not taken over."""

    session: str
    title: str
    prompts: int
    messages: int
    skipped: dict[str, int]


def import_session(path: str, env: Mapping[str, str], *, cwd: str = "", title: str = "") -> Imported:
    """Raises UsageError when there is no conversation in the file. It is in the list whole, or not at all."""
    folder = os.path.realpath(cwd or current_folder())
    if not Path(folder).is_dir():
        raise UsageError(f"There is no folder {folder}.", "Name an existing one with --cwd.")
    config = load(folder, env)
    store = Store(make_private(state_dir(env)), config.root)
    file = Path(path).expanduser()
    begins = _beginning(file)
    skipped: dict[str, int] = {}
    if b'"odin_log"' in begins.split(b"\n", 1)[0]:
        messages, found_title = _log(file)
    else:
        found = _export(file) if begins.lstrip().startswith(b'{"odin_export"') else _lines(file)
        messages, found_title, skipped = found.messages(), found.title, dict(found.skipped)
    prompts = [message for message in messages if message.role == "user"]
    if not prompts:
        raise UsageError("There is no conversation in that file that could be read.", _HOW)
    redact = redactor(config, env, ())
    messages = [_clean(message, redact) for message in messages]
    named = checked_title(redact(mended(title or found_title or prompts[0].content)).text)
    log = store.create(folder)
    try:
        log.begin_with(_envelopes(named, messages, log.session))
    finally:
        log.close()
    return Imported(log.session, named, len(prompts), len(messages), skipped)


def _beginning(file: Path) -> bytes:
    try:
        if not file.is_file():
            raise UsageError(f"There is no file {file}." if not file.exists() else f"{file} is no file.")
        if file.stat().st_size > MOST:
            raise UsageError(f"{file} is larger than {MOST // 1_000_000} MB.")
        with file.open("rb") as opened:
            return opened.read(2000)
    except OSError as error:
        raise UsageError(f"{file} cannot be read: {error.strerror or error}.") from error


def _export(file: Path) -> Transcript:
    try:
        document = msgspec.json.decode(file.read_bytes())
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise UsageError(f"{file} is no whole export: {error}.") from error
    return read_export(cast("dict[str, Any]", document))


def _lines(file: Path) -> Transcript:
    with file.open("rb") as opened:
        return read_lines(opened)


def _log(file: Path) -> tuple[list[StoredMessage], str]:
    """The messages of a log of Odin and its title. What it allowed, and what it cost, are not taken over."""
    read_header(file)
    titles = [envelope.event.title for envelope in read_log(file) if isinstance(envelope.event, TitleSet)]
    return read_messages(read_log(file)), titles[-1] if titles else ""


def _envelopes(title: str, messages: list[StoredMessage], session: str) -> Iterator[Envelope]:
    turn, names, ended = "", dict[str, str](), True
    events: list[tuple[AnyEvent, float]] = [(TitleSet(title), 0.0)]
    for message in messages:
        if message.role == "user":
            if not ended:
                events.append((TurnEnded(turn, "interrupted"), message.created))
            turn = message.id
        names |= {call.id: call.name for call in message.calls}
        events += [(event, message.created) for event in events_of(message, "edit_mode", turn, names)]
        ended = message.role == "assistant" and not message.calls
    if not ended:
        events.append((TurnEnded(turn, "interrupted"), messages[-1].created))
    ts = next((message.created for message in messages if message.created), time.time())
    for seq, (event, when) in enumerate(events):
        ts = max(ts, when)
        yield Envelope(seq, ts, session, event)


def _clean(message: StoredMessage, redact: Redact) -> StoredMessage:
    """Without secrets that Odin knows or recognises, without letters that cannot be stored, and without pictures.

    Arguments that are nested deeper than anything that means something are left out.
    """

    def clean(value: Any) -> Any:
        if isinstance(value, str):
            return redact(mended(value)).text
        if isinstance(value, list):
            return [clean(item) for item in cast("list[Any]", value)]
        if isinstance(value, dict):
            return {mended(str(key)): clean(item) for key, item in cast("dict[Any, Any]", value).items()}
        return value

    def arguments(args: dict[str, Any]) -> dict[str, Any]:
        return {} if deeper_than(MAX_DEPTH, args) else clean(args)

    return msgspec.structs.replace(
        message,
        content=clean(message.content),
        reasoning=clean(message.reasoning),
        calls=tuple(ToolCall(call.id, call.name, arguments(call.args)) for call in message.calls),
        results=tuple(ToolResult(one.call_id, clean(one.text), one.is_error) for one in message.results),
        images=(),
    )
