"""Numbers and moments as every export writes them."""

import re
import time

from odin.core.message import Image, Usage
from odin.session.export.story import EndEntry

_CONTROL_CODES = re.compile("\x1b\\[[0-?]*[ -/]*[@-~]|\x1b\\][^\x07\x1b]*(?:\x07|\x1b\\\\)|[\x00-\x08\x0b-\x1f\x7f]")


def strip_control_codes(text: str) -> str:
    """Without what would steer a terminal or has no picture."""
    return _CONTROL_CODES.sub("", text.replace("\r\n", "\n"))


def image_name_of(image: Image) -> str:
    """What people call a picture."""
    return image.name or image.path.rpartition("/")[2]


def format_time(ts: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(ts))


def format_tokens(usage: Usage) -> str:
    parts = [f"{usage.input + usage.cache_read + usage.cache_write:,} tokens in", f"{usage.output:,} out"]
    if usage.cache_read:
        parts.append(f"{usage.cache_read:,} of the input cached")
    if usage.reasoning:
        parts.append(f"{usage.reasoning:,} reasoning")
    return ", ".join(parts)


def format_dollars(cost: float) -> str:
    return f"${cost:.4f}" if cost < 1 else f"${cost:.2f}"


def format_duration(ms: int) -> str:
    return f"{ms / 1000:.1f} s" if ms >= 100 else f"{ms} ms"


def describe_end(entry: EndEntry) -> str:
    """One line for the end of a turn."""
    facts = [] if entry.reason == "end_turn" else [f"ended: {entry.reason}"]
    if entry.error:
        facts.append(entry.error)
    facts.append(format_duration(entry.duration_ms))
    if entry.usage.total:
        facts.append(format_tokens(entry.usage))
    if entry.cost_usd:
        facts.append(format_dollars(entry.cost_usd))
    return " · ".join(facts)


def language_of(name: str, view: str) -> str:
    """What a view is written in, for whoever colours it."""
    return "diff" if view.startswith(("--- ", "@@ ", "diff ")) or "\n@@ " in view[:2000] else ""
