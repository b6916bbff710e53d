"""Blocks as the page gets them: their fields, and what the cards of the app say about them. No text of it is markup."""

from collections.abc import Sequence
from typing import Any

import msgspec

from odin.core.message import Image
from odin.core.tool import get_display_name
from odin.ui.clean_text import sanitize, strip_escapes
from odin.ui.transcript.blocks import (
    AgentBlock,
    AnswerBlock,
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
from odin.ui.transcript.words import (
    ShownFolders,
    describe_agent_status,
    describe_call,
    describe_process,
    describe_prompt,
    describe_state,
    describe_summary,
    describe_thinking,
    describe_turn,
    get_mark,
    has_error,
    is_diff,
    is_folded,
    list_remarks,
)

_KINDS: dict[type[TranscriptBlock], tuple[str, str]] = {
    PromptBlock: ("prompt", "Your prompt"),
    ReasoningBlock: ("reasoning", "Reasoning"),
    AnswerBlock: ("answer", "Answer"),
    CallBlock: ("call", ""),
    CommandBlock: ("command", "Your command"),
    AgentBlock: ("agent", "Sub-agent"),
    ProcessBlock: ("process", "Background process"),
    NoticeBlock: ("notice", "Notice"),
    SummaryBlock: ("summary", "Summary"),
    EndBlock: ("end", "End of the turn"),
}
"""The kind of each block, and what a screen reader calls it."""

_TAIL_LINES = 5
"""The newest lines of output that are shown while a call runs, as in the app."""


def encode_block(block: TranscriptBlock, folders: ShownFolders) -> dict[str, Any]:
    """Return the block as JSON values, with escape sequences removed and deceptive characters escaped."""
    fields = {
        name: clean(getattr(block, name))
        for name in type(block).__struct_fields__
        if not name.startswith("_") and name not in ("version", "folded")
    }
    (kind, label), (mark, tone) = _KINDS[type(block)], get_mark(block)
    fields |= {"kind": kind, "label": label, "mark": mark, "tone": tone, "is_folded": is_folded(block)}
    match block:
        case PromptBlock():
            fields["remark"] = describe_prompt(block)
        case AnswerBlock():
            fields["text"] = sanitize(block.text)
        case ReasoningBlock():
            fields |= {"text": sanitize(block.text), "status": describe_thinking(block)}
        case CallBlock():
            about = describe_call(block, folders)
            title = sanitize(get_display_name(block.name))
            fields["tail"] = fields["tail"][-_TAIL_LINES:]
            fields |= {
                "label": f"{title} {about}, {block.state}",
                "title": title,
                "about": about,
                "is_foldable": block.is_over,
                "since": block.started if block.is_animated else 0,
                "status": describe_state(block, about, folders, folded=True),
                "open_status": describe_state(block, about, folders, folded=False),
                "remarks": list_remarks(block),
                "is_diff": is_diff(block.view or block.result),
            }
        case CommandBlock():
            fields["tail"] = fields["tail"][-_TAIL_LINES:]
            fields |= {
                "title": fields["command"],
                "status": "running" if block.live else "",
                "is_foldable": not block.live,
                "since": block.ts if block.live else 0,
            }
        case AgentBlock():
            fields |= {
                "label": f"{label} {fields['key']}",
                "title": fields["key"],
                "about": fields["description"] or fields["task"],
                "status": describe_agent_status(block),
                "is_foldable": True,
                "since": block.ts if block.is_animated else 0,
            }
        case ProcessBlock():
            fields |= {
                "label": f"{label} {fields['key']}",
                "title": fields["key"],
                "about": fields["description"] or fields["command"],
                "status": describe_process(block),
                "is_foldable": True,
            }
        case NoticeBlock():
            fields["line"] = fields["text"]
        case EndBlock() if has_error(block):
            fields |= {"line": fields["error"], "remark": f"{fields['hint']} {fields['next_step']}".strip()}
        case EndBlock():
            fields["line"] = describe_turn(block)
        case SummaryBlock():
            fields["status"] = describe_summary(block)
        case _:
            pass
    return fields


def clean(value: Any) -> Any:
    """Return JSON values with escape sequences removed and deceptive characters escaped.

    An image is what is told of it: where its file lies is the machine's affair.
    """
    match value:
        case str():
            return sanitize(strip_escapes(value))
        case Image():
            name = value.name or value.path.rpartition("/")[2]
            return {
                "name": sanitize(name),
                "width": value.width,
                "height": value.height,
                "media_type": value.media_type,
            }
        case list() | tuple():
            return [clean(item) for item in value]  # pyright: ignore[reportUnknownVariableType]
        case dict():
            return {sanitize(str(key)): clean(item) for key, item in value.items()}  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
        case _:
            return msgspec.to_builtins(value)


def compare_blocks(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any] | None:
    """Return what turns one form of a block into another: fields to `set`, and text to `append`; None if nothing."""
    changed = {name: value for name, value in new.items() if old.get(name) != value}
    if not changed:
        return None
    change: dict[str, Any] = {"key": new["key"]}
    before, text = old.get("text"), changed.get("text")
    if isinstance(before, str) and isinstance(text, str) and before and text.startswith(before):
        change["append"] = {"text": changed.pop("text")[len(before) :]}
    if changed:
        change["set"] = changed
    return change


def find_splice(old: Sequence[str], new: Sequence[str]) -> tuple[int, int, int]:
    """Return what turns one order of keys into another: from index `start` to `old_end` stands now `start:new_end`."""
    start, old_end, new_end = 0, len(old), len(new)
    while start < old_end and start < new_end and old[start] == new[start]:
        start += 1
    while old_end > start and new_end > start and old[old_end - 1] == new[new_end - 1]:
        old_end -= 1
        new_end -= 1
    return start, old_end, new_end
