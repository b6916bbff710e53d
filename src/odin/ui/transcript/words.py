"""What cards say in the app and on the page: the subject of a call, its outcome, how an agent or a turn ended."""

from typing import Any

from msgspec import Struct

from odin.core.format import format_duration, format_seconds, format_usd, get_model_name, pluralize
from odin.core.team import ENDED_STATES, STATE_WORDS
from odin.ui.clean_text import sanitize, sanitize_line, strip_escapes
from odin.ui.slash_commands.processes import describe_port
from odin.ui.transcript.blocks import (
    AgentBlock,
    CallBlock,
    CommandBlock,
    EndBlock,
    NoticeBlock,
    ProcessBlock,
    PromptBlock,
    ReasoningBlock,
    SummaryBlock,
    TranscriptBlock,
)

_SUBJECT_ARGUMENTS = ("command", "description", "path", "pattern", "query", "url", "name", "id", "prompt")
"""Words in the names of arguments that identify a call to users, in order of preference."""

_END_REASONS = {
    "end_turn": "",
    "interrupted": "– interrupted",
    "aborted": "stopped",
    "max_turns": "stopped: step limit reached",
    "error_max_budget_usd": "stopped: budget used up",
    "error_max_structured_output_retries": "failed: the answer does not match the JSON schema",
    "max_tokens": "stopped: the answer was too long",
    "loop_detected": "stopped: it repeated itself",
    "error": "failed",
}


_CALL_MARKS = {
    "writing": ("·", "dim"),
    "queued": ("○", "dim"),
    "asking": ("?", "warn"),
    "running": ("◐", "accent"),
    "success": ("✓", "good"),
    "error": ("✗", "bad"),
    "cancelled": ("–", "warn"),
    "denied": ("⊘", "warn"),
    "discarded": ("–", "dim"),
}
_LEVEL_MARKS = {"info": ("·", "dim"), "warn": ("!", "warn"), "error": ("✗", "bad")}
_MODE_WORDS = {"ask_mode": "ask", "plan_mode": "plan", "edit_mode": ""}


class ShownFolders(Struct, frozen=True):
    """The folders that paths are shown relative to: the working directory and the home directory."""

    cwd: str = ""
    home: str = ""

    def shorten(self, text: str) -> str:
        """Return the text with paths below these folders made relative."""
        if self.cwd and self.cwd != "/":
            if text == self.cwd:
                return "."
            text = text.replace(f"{self.cwd}/", "")
        if self.home and self.home != "/":
            text = text.replace(f"{self.home}/", "~/")
        return text


def get_mark(block: TranscriptBlock) -> tuple[str, str]:
    """Return the sign that a card begins with and its tone: good, bad, warn, accent or dim; "" is that of text."""
    match block:
        case CallBlock():
            return _CALL_MARKS[block.state]
        case NoticeBlock():
            return _LEVEL_MARKS[block.level]
        case CommandBlock():
            return "◐" if block.live else "!", "accent"
        case ProcessBlock() if block.status:
            return ("✗", "bad") if block.status in ("failed", "timed_out") else ("■", "dim")
        case ProcessBlock():
            return "▶", "accent"
        case AgentBlock():
            is_good = describe_agent(block)[1]
            if is_good is not None:
                return ("✓", "good") if is_good else ("✗", "bad")
            if block.reason:
                return "•", "dim"
            if block.state == "waiting_main":
                return "?", "warn"
            return "◐" if block.is_animated else "•", "accent"
        case EndBlock() if has_error(block):
            return "✗", "bad"
        case EndBlock():
            return "", "warn" if describe_end(block) else "dim"
        case PromptBlock():
            return "←" if block.is_mail else "›", ""
        case _:
            return "", ""


def has_error(block: EndBlock) -> bool:
    return bool(block.error) and block.reason != "interrupted"


def describe_prompt(block: PromptBlock) -> str:
    """Return what is remarked below a prompt: its mode, and that it came while Odin was working."""
    injected = "sent while Odin was working" if block.is_injected else ""
    return " · ".join(filter(None, (_MODE_WORDS[block.mode], injected)))


def describe_call(block: CallBlock, folders: ShownFolders) -> str:
    """Return the subject of a tool call: its description, or else its most telling argument."""
    return folders.shorten(sanitize_line(block.description) or _get_main_argument(block.args))


def _get_main_argument(args: dict[str, Any]) -> str:
    for word in _SUBJECT_ARGUMENTS:
        for name, value in args.items():
            if word in name and isinstance(value, str) and value.strip():
                return sanitize_line(value)
            if word in name and isinstance(value, list) and value and all(isinstance(item, str) for item in value):  # pyright: ignore[reportUnknownVariableType]
                return sanitize_line(", ".join(value))  # pyright: ignore[reportUnknownArgumentType]
    return next((sanitize_line(value) for value in args.values() if isinstance(value, str) and value.strip()), "")


def describe_outcome(block: CallBlock, about: str, folders: ShownFolders) -> str:
    """Return the outcome of a call: its note without the subject, or else the first line of its result."""
    note = folders.shorten(sanitize_line(block.note))
    if note:
        if about not in note:
            note = note.replace("'", "") if about in note.replace("'", "") else note
        before, found, after = note.rpartition(about) if about else ("", "", "")
        if before.endswith("(") and after == ")":
            return before.rstrip(" (")
        outcome = (after if found and after.strip() else note if not found else "").rstrip(" :,.'\"").lstrip(" :,'\"")
        outcome = outcome.removeprefix(". ")
        if outcome.startswith("(") and outcome.endswith(")"):
            outcome = outcome[1:-1]
        if outcome and outcome != about:
            return outcome
    lines = strip_escapes(block.result).strip().split("\n")
    first = sanitize_line(lines[0])
    more = f" (+{pluralize(len(lines) - 1, 'line')})" if len(lines) > 1 else ""
    return first + more if first else ""


def describe_state(block: CallBlock, about: str, folders: ShownFolders, *, folded: bool, elapsed: str = "") -> str:
    """Return what a call does, or how it ended; `elapsed` is how long it runs."""
    took = format_duration(block.duration_ms / 1000) if block.duration_ms >= 100 else ""
    is_told = block.state in ("success", "error") and (folded or block.note)
    outcome = describe_outcome(block, about, folders) if is_told else ""
    early = "early" if block.is_speculative and not block.is_over else ""
    words = {
        "writing": ("writing", f"{block.chars:,} chars" if block.chars else ""),
        "asking": ("waiting for your answer",),
        "running": ("running", elapsed, early),
        "success": (outcome, took, "continues in the background" if block.background else ""),
        "error": ("failed", outcome, took),
        "cancelled": ("cancelled", took),
    }
    return " · ".join(filter(None, words.get(block.state, (block.state,))))


def list_remarks(block: CallBlock) -> list[tuple[str, bool]]:
    """Return what there is to say about a call besides its result, and whether it is a warning."""
    if not block.is_over:
        return []
    editor = "you" if block.changed_by == "user" else sanitize_line(block.changed_by)
    remarks = (
        (sanitize_line(block.explanation) if block.state in ("denied", "discarded") else "", True),
        (sanitize(block.for_user), True),
        (sanitize(block.aside), False),
        (f"Arguments changed by {editor}." if editor else "", True),
        (f"Redacted from the result: {sanitize_line(', '.join(block.redacted))}." if block.redacted else "", True),
    )
    return [remark for remark in remarks if remark[0]]


def describe_thinking(block: ReasoningBlock, elapsed: str = "") -> str:
    if block.live:
        return f"Thinking… {elapsed}".rstrip()
    if block.seconds <= 0:
        return "Thought"
    return f"Thought for {format_seconds(round(block.seconds)) if block.seconds >= 1 else 'less than a second'}"


def is_diff(text: str) -> bool:
    return text.startswith("--- ") and "\n@@ -" in text[:4000]


def was_cut_off(block: CallBlock) -> bool:
    """True for an interrupted call that had produced an output."""
    return block.state == "cancelled" and block.duration_ms > 0


def should_fold_call(block: CallBlock) -> bool:
    """Fold finished calls, except failures, those with a diff or image, and interrupted ones that have an output.

    Todo lists are folded: they have a panel.
    """
    if block.state == "error" or not block.is_over or was_cut_off(block):
        return False
    if "todos" in block.args:
        return True
    return not (block.view or block.images)


def is_folded(block: TranscriptBlock) -> bool:
    """True if the block is folded, by the user's choice or by the default of its kind."""
    if block.folded is not None:
        return block.folded
    if isinstance(block, CallBlock):
        return should_fold_call(block)
    if isinstance(block, ProcessBlock):
        return block.status != "failed"
    return isinstance(block, ReasoningBlock | SummaryBlock | CommandBlock | AgentBlock | PromptBlock)


def describe_agent(block: AgentBlock) -> tuple[str, bool | None]:
    """Return the state of a sub-agent in words, and whether it ended well; None while it has not ended."""
    if not block.reason or (block.task_id and block.state not in ENDED_STATES):
        return STATE_WORDS[block.state], None
    if block.task_id:
        return STATE_WORDS[block.state], block.state == "completed"
    is_good = block.reason == "end_turn"
    return "done" if is_good else _END_REASONS.get(block.reason, block.reason), is_good


def describe_agent_status(block: AgentBlock, elapsed: str = "") -> str:
    """Return the state of a sub-agent, how long it works, and what it is."""
    took = format_duration(block.ended - block.ts) if block.reason else elapsed
    calls = pluralize(block.calls, "call") if block.calls else ""
    denied = f"{block.denied} denied" if block.denied else ""
    kind = sanitize_line(block.type) if not block.key.startswith(f"{block.type}-") else ""
    model = sanitize_line(get_model_name(block.model))
    return " · ".join(filter(None, (describe_agent(block)[0], took, calls, denied, kind, model)))


def describe_summary(block: SummaryBlock) -> str:
    return f"Conversation compacted: {block.tokens_before:,} → {block.tokens_after:,} tokens"


def describe_process(block: ProcessBlock) -> str:
    if block.status:
        code = f" with exit code {block.code}" if block.status == "failed" else ""
        return f"{block.status.replace('_', ' ')}{code} · {format_duration(block.ended - block.ts)}"
    if block.urls:
        return " · ".join(describe_port(block.key, port, url) for port, url in block.urls.items())
    return "running in the background"


def describe_end(block: EndBlock) -> str:
    """Return why a turn ended; "" if the model had finished."""
    return _END_REASONS.get(block.reason, block.reason.replace("_", " "))


def describe_turn(block: EndBlock) -> str:
    """Return why a turn ended, its duration and its cost; "" after a short, free one."""
    took = format_duration(block.duration_ms / 1000) if block.duration_ms >= 1_000 else ""
    cost = format_usd(block.cost_usd) if block.cost_usd else ""
    return " · ".join(filter(None, (describe_end(block), took, cost)))
