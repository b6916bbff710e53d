"""Answers the background prompts that can be answered without a model: a title, and extracts instead of a summary.

Everything else raises NeedsModel. Who asked then goes on without the answer: WebFetch returns the page itself, EditTool
relies on its own checks.
"""

import re

from odin.core.background_prompts import CONTEXT_SUMMARY_PROMPT, ITEM_MARK, TITLE_PROMPT
from odin.core.errors import NeedsModel
from odin.core.format import clip
from odin.core.message import PromptMessage
from odin.core.provider import Request

TITLE_CHARS = 60
SUMMARY_CHARS = 6000
MIN_ITEM_CHARS = 160


def is_background(request: Request) -> bool:
    """True if the request is not a prompt of a session."""
    return any(block.startswith("odin-job: ") for block in request.system)


def answer_background(request: Request) -> str:
    """Return the answer to a background prompt."""
    text = "\n\n".join(message.text for message in request.messages if isinstance(message, PromptMessage))
    if request.system == TITLE_PROMPT.system:
        return make_title(text)
    if request.system == CONTEXT_SUMMARY_PROMPT.system:
        return extract_summary(text)
    raise NeedsModel("No model is connected that could do this.", "Set `small_model` in odinconfig.json.")


def make_title(prompt: str) -> str:
    """Return the first line of a prompt without polite words, cut after a word."""
    line = next((line for line in prompt.splitlines() if line.strip()), "")
    line = re.sub(r"[`*_#]+", "", " ".join(line.split()))
    line = re.sub(r"^(?:(?:please|hi|hello|hey|can you|could you|would you)[,!]? )+", "", line, flags=re.IGNORECASE)
    line = line.strip(" .!?,;:\"'")
    if not line:
        return "New session"
    line = line[0].upper() + line[1:]
    if len(line) > TITLE_CHARS:
        cut = line[: TITLE_CHARS - 1]
        line = (cut.rsplit(" ", 1)[0] if " " in cut[20:] else cut).rstrip(" ,;:-") + "…"
    return line


def extract_summary(collected: str) -> str:
    """Return the beginning of each collected item, in equal shares."""
    _, *items = f"\n{collected}".split(f"\n{ITEM_MARK} ")
    share = max(MIN_ITEM_CHARS, SUMMARY_CHARS // max(1, len(items)))
    extracts = [f"- {clip(item.strip(), share)}" for item in items]
    return "\n".join(["(No model summarized this: the lines below are extracts.)", *extracts])
