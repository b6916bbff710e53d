"""Why the provider's cache did not have what it had for the request before."""

from odin.core.call_events import CacheMiss, CacheMissCause, PromptMark, UsageRecorded
from odin.core.message import Usage
from odin.core.provider import SentPrompt

LIFE_S = 300.0
"""The shortest life that a provider documents. What is gone earlier has not expired."""

_LEAST = 512
"""The shortest prompt that a provider caches. Smaller differences come from rounding."""


def make_mark(sent: SentPrompt, at: float) -> PromptMark:
    """Return what the log keeps of a request that was sent at this time."""
    history = sent.messages[-1] if sent.messages else 0
    return PromptMark(round(at, 3), sent.tools, sent.system, sent.settings, len(sent.messages), history)


def find_cache_miss(last: UsageRecorded, model: str, usage: Usage, sent: SentPrompt, at: float) -> CacheMiss | None:
    """Return what a request had to send again although the cache had it, or was given it, with the `last` one."""
    had = last.usage.cache_read + last.usage.cache_write
    missed = min(had - usage.cache_read, usage.input + usage.cache_write)
    return CacheMiss(_find_cause(last, model, sent, at), missed) if missed >= _LEAST else None


def _find_cause(last: UsageRecorded, model: str, sent: SentPrompt, at: float) -> CacheMissCause:
    """Return the first difference, in the order in which caches compare."""
    mark = last.sent
    if last.model != model:
        return "model"
    if mark is None:
        return "dropped"
    if mark.tools != sent.tools:
        return "tools"
    if mark.system != sent.system:
        return "system"
    if mark.settings != sent.settings:
        return "settings"
    if mark.count and sent.messages[mark.count - 1 : mark.count] != (mark.history,):
        return "history"
    return "expired" if at - mark.at >= LIFE_S else "dropped"
