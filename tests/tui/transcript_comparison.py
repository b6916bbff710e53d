"""Builds transcripts from events and compares them, ignoring fields that the log does not store."""

from collections.abc import Iterable
from typing import Any

from odin.core.event import AnyEvent, Envelope, Warned
from odin.ui.transcript.blocks import CallBlock, PromptBlock, StreamedBlock, TranscriptBlock
from odin.ui.transcript.model import TranscriptModel, TranscriptModels

_FIELDS_NOT_IN_LOG = {"ts", "version", "folded", "seconds", "started", "ended", "printed", "_text", "_chunks"}


def make_transcript(events: Iterable[AnyEvent]) -> TranscriptModel:
    transcript = TranscriptModel()
    for number, event in enumerate(events):
        transcript.apply(Envelope(number, 1_700_000_000.0 + number, "s", event))
    return transcript


def list_comparable_fields(block: TranscriptBlock) -> dict[str, Any]:
    """Return the fields of a block that are the same live and read from the log."""
    found = {name: getattr(block, name) for name in block.__struct_fields__ if name not in _FIELDS_NOT_IN_LOG}
    if isinstance(block, StreamedBlock):
        found["text"] = block.text
    if not isinstance(block, PromptBlock | CallBlock):
        del found["key"]
    return {"kind": type(block).__name__, **found}


def list_comparable_blocks(transcript: TranscriptModel) -> list[dict[str, Any]]:
    return [list_comparable_fields(block) for block in transcript.blocks]


def make_transcripts(envelopes: Iterable[Envelope]) -> TranscriptModels:
    transcripts = TranscriptModels()
    for envelope in envelopes:
        if not isinstance(envelope.event, Warned):
            transcripts.apply(envelope)
    return transcripts


def find_differences(one: TranscriptModels, other: TranscriptModels) -> list[str]:
    """Describe the differences between two sets of transcripts."""
    found: list[str] = []
    for agent in one.keys() | other.keys():
        left, right = (
            list_comparable_blocks(one[agent]) if agent in one else [],
            list_comparable_blocks(other[agent]) if agent in other else [],
        )
        for number in range(max(len(left), len(right))):
            a = left[number] if number < len(left) else None
            b = right[number] if number < len(right) else None
            if a != b:
                found.append(f"{agent or 'main'} {number}:\n  live {a}\n  log  {b}")
    return found
