"""`odin import`: create a session from an exported session or a transcript of another agent.

Only messages are imported, not events, so that a file from someone else brings no permissions, rules or costs.
"""

import os
import re
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, cast

import msgspec
from msgspec import Struct

from odin.app.policy import build_redactor
from odin.commands.command_line import Parser, write_json, write_output
from odin.config import get_state_dir, load, make_private_folder, resolve_folder
from odin.config.files import MAX_DEPTH, is_deeper_than
from odin.config.paths import find_worktree_origin
from odin.core.errors import UsageError
from odin.core.event import AnyEvent, Envelope, TitleSet, TurnEnded
from odin.core.format import pluralize
from odin.core.message import ToolCall, ToolResult
from odin.core.policy import Redact
from odin.core.text import to_valid_unicode
from odin.host.stored_sessions import normalize_title
from odin.session.log import read_header, read_log
from odin.session.messages import (
    ImportedTranscript,
    StoredMessage,
    make_events,
    read_export,
    read_json_lines,
    read_messages,
)
from odin.session.store import SessionStore
from odin.ui.terminal import escape_hidden

MAX_IMPORT_BYTES = 200_000_000

_FORMATS_HINT = (
    "Odin imports its JSON exports, its logs (main.jsonl), stream-json lines, transcripts of Claude Code, Codex and "
    "Gemini CLI, and exports of OpenCode."
)


class ImportResult(Struct, frozen=True):
    """The new session. `skipped` counts what was not imported, by kind."""

    session: str
    title: str
    prompts: int
    messages: int
    skipped: dict[str, int]


def import_session(
    path: str, env: Mapping[str, str], *, cwd: str = "", title: str = "", session: str = ""
) -> ImportResult:
    """Create a session from a file, completely or not at all. Raise UsageError if it holds no conversation."""
    folder = resolve_folder(cwd)
    config = load(folder, env)
    state = make_private_folder(get_state_dir(env))
    store = SessionStore(state, find_worktree_origin(config.root, state))
    file = Path(path).expanduser()
    start = _read_start(file)
    skipped: dict[str, int] = {}
    if b'"odin_log"' in start.split(b"\n", 1)[0]:
        # The messages and the title of an Odin log. Its permissions and costs are not imported.
        read_header(file)
        titles = [envelope.event.title for envelope in read_log(file) if isinstance(envelope.event, TitleSet)]
        messages, found_title = read_messages(read_log(file)), titles[-1] if titles else ""
    else:
        is_export = re.match(rb'\s*\{\s*"(odin_export|info)"', start)
        found = _read_export_file(file) if is_export else _read_lines_file(file)
        messages, found_title, skipped = found.build_messages(), found.title, dict(found.skipped)
    prompts = [message for message in messages if message.role == "user"]
    if not prompts:
        raise UsageError("No conversation found in the file.", _FORMATS_HINT)
    redact = build_redactor(config, env, ())
    messages = [_clean_message(message, redact) for message in messages]
    named = normalize_title(redact(to_valid_unicode(title or found_title or prompts[0].content)).text)
    log = store.create(folder, session)
    try:
        log.begin_with(_build_envelopes(named, messages, log.session))
    finally:
        log.close()
    return ImportResult(log.session, named, len(prompts), len(messages), skipped)


def _read_start(file: Path) -> bytes:
    try:
        if not file.is_file():
            raise UsageError(f"File not found: {file}." if not file.exists() else f"Not a file: {file}.")
        if file.stat().st_size > MAX_IMPORT_BYTES:
            raise UsageError(f"{file} is larger than {MAX_IMPORT_BYTES // 1_000_000} MB.")
        with file.open("rb") as opened:
            return opened.read(2000)
    except OSError as error:
        raise UsageError(f"Cannot read {file}: {error.strerror or error}.") from error


def _read_export_file(file: Path) -> ImportedTranscript:
    try:
        document = msgspec.json.decode(file.read_bytes())
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise UsageError(f"{file} is not a complete export: {error}.") from error
    return read_export(cast("dict[str, Any]", document))


def _read_lines_file(file: Path) -> ImportedTranscript:
    with file.open("rb") as opened:
        return read_json_lines(opened)


def _build_envelopes(title: str, messages: list[StoredMessage], session: str) -> Iterator[Envelope]:
    turn, names, ended = "", dict[str, str](), True
    events: list[tuple[AnyEvent, float]] = [(TitleSet(title), 0.0)]
    for message in messages:
        if message.role == "user":
            if not ended:
                events.append((TurnEnded(turn, "interrupted"), message.created))
            turn = message.id
        names |= {call.id: call.name for call in message.calls}
        events += [(event, message.created) for event in make_events(message, "edit_mode", turn, names)]
        ended = message.role == "assistant" and not message.calls
    if not ended:
        events.append((TurnEnded(turn, "interrupted"), messages[-1].created))
    ts = next((message.created for message in messages if message.created), time.time())
    for seq, (event, when) in enumerate(events):
        ts = max(ts, when)
        yield Envelope(seq, ts, session, event)


def _clean_message(message: StoredMessage, redact: Redact) -> StoredMessage:
    """Return the message without secrets, invalid characters and images. Overly nested arguments are dropped."""

    def clean(value: Any) -> Any:
        if isinstance(value, str):
            return redact(to_valid_unicode(value)).text
        if isinstance(value, list):
            return [clean(item) for item in cast("list[Any]", value)]
        if isinstance(value, dict):
            return {to_valid_unicode(str(key)): clean(item) for key, item in cast("dict[Any, Any]", value).items()}
        return value

    def clean_arguments(args: dict[str, Any]) -> dict[str, Any]:
        return {} if is_deeper_than(MAX_DEPTH, args) else clean(args)

    return msgspec.structs.replace(
        message,
        content=clean(message.content),
        reasoning=clean(message.reasoning),
        calls=tuple(ToolCall(call.id, call.name, clean_arguments(call.args)) for call in message.calls),
        results=tuple(ToolResult(one.call_id, clean(one.text), one.is_error) for one in message.results),
        images=(),
    )


_ABOUT = (
    "Create a session from an Odin export (JSON or main.jsonl), a transcript in JSON lines (Claude Code, Codex, "
    "Gemini CLI, stream-json), or an export of OpenCode."
)


def run_import(argv: list[str]) -> int:
    parser = Parser(prog="odin import", description=_ABOUT)
    add = parser.add_argument
    add("file", metavar="FILE", help="file to import")
    add("--title", default="", metavar="TEXT", help="title of the session")
    parser.add_common_flags()
    args = parser.parse_args(argv)
    result = import_session(args.file, os.environ, cwd=args.cwd, title=args.title)
    if args.json:
        return write_json(result)
    lines = [
        f"Session {result.session}: {escape_hidden(result.title)}" if result.title else f"Session {result.session}",
        f"Imported {pluralize(result.prompts, 'prompt')}. Continue with: odin --resume {result.session}",
        *(f"Skipped: {escape_hidden(what)} ({count})" for what, count in result.skipped.items()),
    ]
    return write_output("\n".join(lines) + "\n")
