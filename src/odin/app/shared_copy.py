"""A copy of a session for others: what was said and done, without secrets and without what only its user needs.

Each event is made anew from the fields that a transcript shows, so that an event or field that is added later is not
shared by accident. Left out are instructions, notes for the model, memory, settings, hooks, permission requests, what
sub-agents did in detail, queued prompts, and everything that was rewound, blocked or removed.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import msgspec
from msgspec import Struct, field

from odin.app.debug_log import make_redactor
from odin.app.text_scrubber import Redaction, TextScrubber
from odin.core.call_events import Replied, SpawnFinished, SpawnStarted, ToolEnded, ToolStarted, UsageRecorded
from odin.core.environment import ExecutionEnvironment
from odin.core.errors import UsageError
from odin.core.event import (
    AgentEnded,
    AgentStarted,
    AnyEvent,
    Compacted,
    ContextAdded,
    Envelope,
    MessageRemoved,
    ModelChanged,
    PromptInjected,
    Redone,
    Rewound,
    SessionOpened,
    TitleSet,
    TurnEnded,
    TurnStarted,
)
from odin.core.event_values import CheckResult, Verification
from odin.core.format import clip_line
from odin.core.message import Image, ReplyMessage, Text, Thinking, ToolCall
from odin.core.path_names import is_secret_path
from odin.core.team import TaskChanged
from odin.core.timeline import PROCESS_END_SUFFIX, LoggedTurn, TurnItems, get_source
from odin.core.tool import get_display_name
from odin.session.export_html import MAX_ALL_IMAGE_BYTES, MAX_IMAGE_BYTES, read_image
from odin.session.log import LOG_FORMAT, LOG_NAME, LogHeader, read_header, read_log

_TITLE_CHARS = 200


class CopyReview(Struct, frozen=True):
    """What a copy shows and what it leaves out. `left_out_images` are those of the session if they were not wanted."""

    title: str
    cwd: str
    model: str
    prompts: int
    answers: int
    results: int
    files: int
    images: int
    left_out_images: int
    left_out_prompts: int
    redactions: tuple[Redaction, ...]


class SharedCopy(Struct, frozen=True):
    """A copy in memory. `images` are the contents of its images by file name, which is their path in the events."""

    header: LogHeader
    envelopes: tuple[Envelope, ...]
    images: Mapping[str, bytes]
    review: CopyReview

    def encode(self) -> bytes:
        """Return the copy as the content of a log."""
        return b"".join(msgspec.json.encode(line) + b"\n" for line in (self.header, *self.envelopes))

    def list_files(self) -> Iterator[tuple[str, bytes]]:
        """Yield name and content of every file of the copy, the log last."""
        yield from self.images.items()
        yield LOG_NAME, self.encode()


def copy_session(
    log: Path, environment: ExecutionEnvironment, *, with_images: bool = False, secrets: Iterable[str] = ()
) -> SharedCopy:
    """Return a copy of the session as it is now. `secrets` are variables that it does not show, whatever their names.

    Raise UsageError if it has no prompt.
    """
    header = read_header(log)
    envelopes = list(read_log(log))
    facts = _read_facts(envelopes)
    if not facts.has_prompt:
        raise UsageError(f"Session {header.session} has no prompt yet.", "Share it when there is something to read.")
    cwd = facts.cwd or header.cwd
    folder = cwd if Path(cwd).is_dir() else environment.cwd
    redactor = make_redactor(folder, environment.variables, secrets)
    scrubber = TextScrubber(redactor, environment)
    builder = _CopyBuilder(facts, scrubber, log.parent, with_images=with_images)
    kept = tuple(builder.build(envelopes, cwd))
    own = LogHeader(LOG_FORMAT, header.session, builder.cwd, header.created)
    return SharedCopy(own, kept, builder.images, builder.review())


class _SessionFacts(Struct):
    """What is known only at the end of the log. `ran` are the arguments with which calls ran; `ended` have a result."""

    cwd: str = ""
    model: str = ""
    title: str = ""
    has_prompt: bool = False
    dropped: set[int] = field(default_factory=set[int])
    dropped_calls: set[str] = field(default_factory=set[str])
    dropped_prompts: int = 0
    ran: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])
    ended: set[str] = field(default_factory=set[str])
    stopped: set[str] = field(default_factory=set[str])
    """Sub-agents that have ended."""
    secret_processes: set[str] = field(default_factory=set[str])
    """Those whose command names a secret file."""


def _read_facts(envelopes: Iterable[Envelope]) -> _SessionFacts:
    facts = _SessionFacts()
    collected = TurnItems[tuple[int, str, tuple[str, ...]]]()
    """Number, prompt and calls of the messages that `MessageRemoved` could remove."""
    turn: LoggedTurn[Any] | None = None
    turns: list[LoggedTurn[Any]] = []
    members: dict[int, LoggedTurn[Any]] = {}
    for envelope in envelopes:
        event = envelope.event
        if not envelope.agent:
            changed = collected.timeline.apply(envelope)
            if isinstance(event, TurnStarted):
                turn = changed[0]
                turns.append(turn)
            elif isinstance(event, Rewound | Redone):
                turn = None
        if turn is not None:
            members[envelope.seq] = turn
        match event:
            case SessionOpened():
                facts.cwd, facts.model = event.cwd, event.model
            case ModelChanged() if not envelope.agent:
                facts.model = event.model
            case TitleSet():
                facts.title = event.title
            case ToolStarted():
                facts.ran[event.call_id] = event.args
            case ToolEnded():
                facts.ended.add(event.call_id)
            case AgentEnded():
                facts.stopped.add(event.id)
            case TurnStarted() | PromptInjected() if not envelope.agent:
                collected.items.append((envelope.seq, event.id, ()))
            case Replied() if not envelope.agent:
                collected.items.append((envelope.seq, "", tuple(call.id for call in event.message.calls)))
            case SpawnStarted() if _names_secret_file({"command": event.command}):
                facts.secret_processes.add(event.id)
            case MessageRemoved() if collected.items:
                seq, prompt, calls = collected.items.pop()
                facts.dropped.add(seq)
                facts.dropped_calls.update(calls)
                facts.dropped_prompts += bool(prompt)
            case _:
                pass
    facts.dropped.update(seq for seq, turn in members.items() if turn.status != "current")
    facts.dropped_prompts += sum(turn.status != "current" for turn in turns)
    facts.has_prompt = any(turn.status == "current" for turn in turns)
    return facts


class _CopyBuilder:
    """Makes the events of a copy. `folder` is that of the session."""

    def __init__(self, facts: _SessionFacts, scrubber: TextScrubber, folder: Path, *, with_images: bool) -> None:
        self.cwd = ""
        self.images: dict[str, bytes] = {}
        self._facts = facts
        self._scrubber = scrubber
        self._folder = folder
        self._with_images = with_images
        self._agents: dict[str, None] = {}
        self._title = self._model = ""
        self._files: set[str] = set()
        self._secret_calls: set[str] = set()
        self._processes: set[str] = set()
        self._prompts = self._answers = self._results = self._left_out_images = 0

    def build(self, envelopes: Sequence[Envelope], cwd: str) -> Iterator[Envelope]:
        scrub, facts, session = self._scrubber.scrub, self._facts, envelopes[0].session
        self._scrubber.place = "folder"
        self.cwd = scrub(cwd)
        self._scrubber.place = "model"
        self._model = scrub(facts.model)
        self._scrubber.place = "title"
        self._title = scrub(facts.title)
        first, last = envelopes[0], envelopes[-1]
        yield Envelope(first.seq, first.ts, session, SessionOpened(self.cwd, self._model, ""))
        if self._title:
            yield Envelope(first.seq, first.ts, session, TitleSet(self._title))
        for envelope in envelopes:
            if envelope.seq in facts.dropped:
                continue
            event = self._copy_agent(envelope) if envelope.agent else self._copy(envelope.event)
            if event is not None:
                yield Envelope(envelope.seq, envelope.ts, session, event, scrub(envelope.agent))
        for agent in self._agents:
            if agent not in facts.stopped:
                yield Envelope(last.seq, last.ts, session, AgentEnded(scrub(agent), "interrupted"))

    def review(self) -> CopyReview:
        return CopyReview(
            self._title,
            self.cwd,
            self._model,
            self._prompts,
            self._answers,
            self._results,
            len(self._files),
            len(self.images),
            self._left_out_images,
            self._facts.dropped_prompts,
            self._scrubber.list_redactions(),
        )

    def _copy_agent(self, envelope: Envelope) -> AnyEvent | None:
        """Return what the card of a sub-agent shows of an event: that it made a call, and the state of its task."""
        event, scrub = envelope.event, self._scrubber.scrub
        if envelope.agent not in self._agents:
            return None
        self._scrubber.place = "sub-agent"
        match event:
            case ToolStarted():
                return ToolStarted(scrub(event.call_id), scrub(event.name), {})
            case TaskChanged():
                return TaskChanged(
                    scrub(event.id), event.state, scrub(event.agent), scrub(event.summary), scrub(event.reason)
                )
            case _:
                return None

    def _copy(self, event: AnyEvent) -> AnyEvent | None:
        match event:
            case TurnStarted() | PromptInjected():
                return self._copy_prompt(event)
            case Replied():
                return self._copy_reply(event)
            case ToolStarted() | ToolEnded():
                if event.call_id not in self._facts.ended or event.call_id in self._facts.dropped_calls:
                    return None
                return self._copy_start(event) if isinstance(event, ToolStarted) else self._copy_result(event)
            case TurnEnded():
                return self._copy_end(event)
            case UsageRecorded():
                purpose = "main" if event.purpose == "main" else "small"
                return UsageRecorded(self._scrubber.scrub(event.model), event.usage, purpose=purpose)
            case _:
                return self._copy_rest(event)

    def _copy_prompt(self, event: TurnStarted | PromptInjected) -> AnyEvent:
        scrub, source = self._scrubber.scrub, get_source(event)
        is_continuation = isinstance(event, TurnStarted) and event.continues
        if source != "mail" and not is_continuation:
            self._prompts += 1
        self._scrubber.place = f"prompt {self._prompts}"
        is_secret = event.id.removesuffix(PROCESS_END_SUFFIX) in self._facts.secret_processes
        prompt, text = scrub(event.id), self._scrubber.hide_file() if is_secret else scrub(event.body)
        self._title = self._title or clip_line(text, _TITLE_CHARS)
        images = self._copy_images(event.images)
        if isinstance(event, PromptInjected):
            return PromptInjected(prompt, text, event.mode, source=source, turn=scrub(event.turn), images=images)
        return TurnStarted(prompt, text, event.mode, source=source, continues=event.continues, images=images)

    def _copy_reply(self, event: Replied) -> Replied | None:
        scrub, message = self._scrubber.scrub, event.message
        self._scrubber.place = f"answer to prompt {self._prompts}"
        parts: list[Text | Thinking | ToolCall] = []
        for part in message.parts:
            match part:
                case Text():
                    parts.append(Text(scrub(part.text)))
                case Thinking():
                    parts.append(Thinking(scrub(part.text)))
                case ToolCall() if part.id in self._facts.ended:
                    # Those of a call that ran are in its `ToolStarted`, maybe changed by the user.
                    args = {} if part.id in self._facts.ran else self._copy_args(part.id, part.name, part.args)
                    parts.append(ToolCall(scrub(part.id), scrub(part.name), args))
                case ToolCall():
                    pass
        self._answers += any(isinstance(part, Text) and part.text.strip() for part in parts)
        if not parts:
            return None
        copied = ReplyMessage(tuple(parts), "", scrub(message.model), message.stop, message.interrupted)
        return Replied(copied)

    def _copy_args(self, call: str, name: str, args: dict[str, Any]) -> dict[str, Any]:
        self._scrubber.place = f"{get_display_name(name)} (prompt {self._prompts})"
        named = (args.get(key) for key in ("file_path", "path"))
        self._files.update(path for path in named if isinstance(path, str) and path)
        if not _names_secret_file(args) and str(args.get("id")) not in self._facts.secret_processes:
            return self._scrubber.scrub_value(args)
        self._secret_calls.add(call)
        return {self._scrubber.scrub(key): self._copy_secret_arg(key, value) for key, value in args.items()}

    def _copy_secret_arg(self, name: str, value: Any) -> Any:
        """Return a path, a number or a command that only reads. Anything else may be content."""
        if isinstance(value, dict):
            items = cast("dict[Any, Any]", value).items()
            return {self._scrubber.scrub(str(key)): self._copy_secret_arg(str(key), item) for key, item in items}
        if isinstance(value, list | tuple):
            return [self._copy_secret_arg(name, item) for item in cast("list[Any]", value)]
        is_shown = not isinstance(value, str) or (_PATH_KEY.search(name) and _PATH.fullmatch(value))
        is_shown = is_shown or (name in _COMMAND_KEYS and _READING.fullmatch(value))
        return self._scrubber.scrub_value(value, name) if is_shown else self._scrubber.hide_file()

    def _copy_start(self, event: ToolStarted) -> ToolStarted:
        scrub = self._scrubber.scrub
        args = self._copy_args(event.call_id, event.name, event.args)
        # The description of a command is the command itself.
        about = "" if event.call_id in self._secret_calls else scrub(event.description)
        return ToolStarted(scrub(event.call_id), scrub(event.name), args, about)

    def _copy_result(self, event: ToolEnded) -> ToolEnded:
        scrub = self._scrubber.scrub
        self._scrubber.place = f"result of {get_display_name(event.name)} (prompt {self._prompts})"
        self._results += 1
        self._files.update(event.files)
        text = event.text if not event.display or event.status != "success" else ""
        is_secret = event.call_id in self._secret_calls or any(map(is_secret_path, event.files))
        if is_secret:
            text, display = self._scrubber.hide_file(), ""
        else:
            text, display = scrub(text), scrub(event.display)
        return ToolEnded(
            scrub(event.call_id),
            scrub(event.name),
            event.status,
            text,
            note="" if is_secret else scrub(event.note),
            display=display,
            for_user="" if is_secret else scrub(event.for_user),
            duration_ms=event.duration_ms,
            images=() if is_secret else self._copy_images(event.images),
            asynchronous=event.asynchronous,
            error_kind=scrub(event.error_kind),
            aside="" if is_secret else scrub(event.aside),
        )

    def _copy_end(self, event: TurnEnded) -> TurnEnded:
        scrub = self._scrubber.scrub
        self._scrubber.place = f"end of prompt {self._prompts}"
        checked = event.verification
        if checked is not None:
            checks = (CheckResult(scrub(item.command), item.outcome, scrub(item.detail)) for item in checked.checks)
            checked = Verification(checked.outcome, tuple(checks), checked.by, checked.rounds)
        return TurnEnded(
            scrub(event.id),
            event.reason,
            steps=event.steps,
            duration_ms=event.duration_ms,
            error=scrub(event.error),
            verification=checked,
        )

    def _copy_rest(self, event: AnyEvent) -> AnyEvent | None:
        scrub = self._scrubber.scrub
        match event:
            case ContextAdded() if event.command:
                self._scrubber.place = f"! command after prompt {self._prompts}"
                is_secret = _names_secret_file({"command": event.command})
                output = self._scrubber.hide_file() if is_secret else scrub(event.content)
                command = self._copy_secret_arg("command", event.command) if is_secret else scrub(event.command)
                return ContextAdded(output, command=command, id=scrub(event.id))
            case Compacted():
                self._scrubber.place = "summary"
                return Compacted(
                    scrub(event.text),
                    event.kept_messages,
                    trigger=event.trigger,
                    tokens_before=event.tokens_before,
                    tokens_after=event.tokens_after,
                )
            case SpawnStarted():
                self._scrubber.place = "background process"
                self._processes.add(event.id)
                is_secret = event.id in self._facts.secret_processes
                command = self._copy_secret_arg("command", event.command) if is_secret else scrub(event.command)
                about = "" if is_secret else scrub(event.description)
                return SpawnStarted(scrub(event.id), scrub(event.call_id), command, about)
            case SpawnFinished() if event.id in self._processes:
                self._scrubber.place = "background process"
                is_secret = event.id in self._facts.secret_processes
                output = self._scrubber.hide_file() if is_secret else scrub(event.output)
                return SpawnFinished(scrub(event.id), event.status, event.code, output)
            case AgentStarted():
                self._agents[event.id] = None
                self._scrubber.place = "sub-agent"
                return AgentStarted(
                    scrub(event.id),
                    scrub(event.task),
                    event.mode,
                    scrub(event.description),
                    scrub(event.call_id),
                    scrub(event.owner),
                    scrub(event.agent_type),
                    scrub(event.task_id),
                    scrub(event.model),
                    scrub(event.continues),
                    scrub(event.color),
                )
            case AgentEnded():
                self._scrubber.place = "sub-agent"
                is_known = event.id in self._agents
                return AgentEnded(scrub(event.id), event.reason, scrub(event.text)) if is_known else None
            case _:
                return None

    def _copy_images(self, images: Iterable[Image]) -> tuple[Image, ...]:
        copied: list[Image] = []
        for image in images:
            room = min(MAX_IMAGE_BYTES, MAX_ALL_IMAGE_BYTES - sum(map(len, self.images.values())))
            data = read_image(image, self._folder, room) if self._with_images else None
            if data is None:
                self._left_out_images += 1
                continue
            name = f"image-{len(self.images) + 1}.{image.media_type.rpartition('/')[2]}"
            self.images[name] = data
            shown = self._scrubber.scrub(image.name or Path(image.path).name)
            copied.append(Image(name, image.media_type, image.width, image.height, shown))
        return tuple(copied)


_WORD_ENDS = re.compile(r"[\s'\"`;|&<>(),=:{}]+")
_PATCH_FILE = re.compile(r"(?m)^(?:\*\*\* \w+ File: |\+\+\+ |--- )(?:[ab]/)?(\S+)")
_COMMAND_KEYS = ("command", "cmd", "script")
_PATH_KEY = re.compile(r"(?i)(?:path|file|uri|glob|folder|dir|^id)(?:s|name)?$")
_PATH = re.compile(r"[^\s=]{1,300}")
_READING = re.compile(r"(?:(?:cat|less|head|tail|ls|wc|sort|stat|cd|source)(?: [\w./~*-]+)*(?: ?[|;&]{1,2} ?|$))+")
"""Commands in which no word can be the content of a file."""


def _names_secret_file(args: Any, name: str = "") -> bool:
    """True if a call names a file that usually holds secrets: its path, a word of its command, a file of its patch."""
    if isinstance(args, dict):
        return any(_names_secret_file(value, str(key)) for key, value in cast("dict[Any, Any]", args).items())
    if isinstance(args, list | tuple):
        return any(_names_secret_file(value, name) for value in cast("list[Any]", args))
    if not isinstance(args, str):
        return False
    if name in _COMMAND_KEYS or ("\n" not in args and len(args) <= 300):
        words = (word.rstrip("*/") for word in _WORD_ENDS.split(args) if "/" in word or "." in word)
    else:
        words = (match[1] for match in _PATCH_FILE.finditer(args))
    return any(map(is_secret_path, words))
