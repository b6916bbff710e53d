"""Builds transcripts from events and compares them, ignoring what the log does not store."""

from collections.abc import Iterable
from dataclasses import fields
from typing import Any

from odin.core.event import AnyEvent, Envelope, Warned
from odin.ui.tui.blocks import CallBlock, PromptBlock, StreamedBlock, TranscriptBlock
from odin.ui.tui.transcript_model import TranscriptModel, TranscriptModels

_NOT_IN_THE_LOG = {"ts", "version", "folded", "seconds", "started", "ended", "printed", "_text", "_chunks"}


def story_of(events: Iterable[AnyEvent]) -> TranscriptModel:
    story = TranscriptModel()
    for number, event in enumerate(events):
        story.apply(Envelope(number, 1_700_000_000.0 + number, "s", event))
    return story


def known(block: TranscriptBlock) -> dict[str, Any]:
    """The fields of a block that do not depend on when it was seen."""
    found = {field.name: getattr(block, field.name) for field in fields(block) if field.name not in _NOT_IN_THE_LOG}
    if isinstance(block, StreamedBlock):
        found["text"] = block.text
    if not isinstance(block, PromptBlock | CallBlock):
        del found["key"]
    return {"kind": type(block).__name__, **found}


def told(story: TranscriptModel) -> list[dict[str, Any]]:
    return [known(block) for block in story.blocks]


def stories_of(envelopes: Iterable[Envelope]) -> TranscriptModels:
    stories = TranscriptModels()
    for envelope in envelopes:
        if not isinstance(envelope.event, Warned):
            stories.apply(envelope)
    return stories


def differences(one: TranscriptModels, other: TranscriptModels) -> list[str]:
    """Describe the differences between two sets of transcripts."""
    found: list[str] = []
    for agent in one.keys() | other.keys():
        left, right = told(one[agent]) if agent in one else [], told(other[agent]) if agent in other else []
        for number in range(max(len(left), len(right))):
            a = left[number] if number < len(left) else None
            b = right[number] if number < len(right) else None
            if a != b:
                found.append(f"{agent or 'main'} {number}:\n  live {a}\n  log  {b}")
    return found
