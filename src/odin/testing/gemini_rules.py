"""How the models of Google may be told to think, each rule beside the page that says so.

This is the judge of Odin's own table (`providers/contracts.py`) and shares nothing with it, so that a mistake in one
shows against the other.
"""

import re
from typing import Any

from msgspec import Struct

from odin.testing.strict import RequestRefused

_LEVELS_PAGE = "https://ai.google.dev/gemini-api/docs/generate-content/thinking#thinking-levels"
_ARGON_PAGE = "https://ai.google.dev/gemini-api/docs/generate-content/latest-model"
_BUDGET_PAGE = "https://ai.google.dev/gemini-api/docs/thinking"


class GeminiRule(Struct, frozen=True):
    """What the models take whose names begin with `pattern`: these levels, and a budget within these limits."""

    pattern: str
    page: str
    levels: str = ""
    budget: tuple[int, int] | None = None


_ANY_BUDGET = (0, 65_536)
"""Gemini 3 still takes a budget, but not beside a level."""

RULES = (
    GeminiRule(r"gemini-3-pro", _LEVELS_PAGE, "low high", _ANY_BUDGET),
    GeminiRule(r"gemini-3\.1-pro", _LEVELS_PAGE, "low medium high", _ANY_BUDGET),
    GeminiRule(r"gemini-3(\.\d)?-flash-lite", _LEVELS_PAGE, "minimal low medium high", _ANY_BUDGET),
    GeminiRule(r"gemini-3(\.5)?-flash", _LEVELS_PAGE, "minimal low medium high", _ANY_BUDGET),
    GeminiRule(r"gemini-3", _LEVELS_PAGE, "low medium high", _ANY_BUDGET),
    GeminiRule(r"gemini-4", _ARGON_PAGE, "low medium high"),
    GeminiRule(r"gemini-2\.5-pro", _BUDGET_PAGE, budget=(128, 32_768)),
    GeminiRule(r"gemini-2\.5-flash-lite", _BUDGET_PAGE, budget=(512, 24_576)),
    GeminiRule(r"gemini-2\.5-flash", _BUDGET_PAGE, budget=(0, 24_576)),
)
"""The first that matches counts. A model that none matches does not think."""


def check_thinking(model: str, level: Any, budget: Any) -> None:
    if level is None and budget is None:
        return
    rule = next((rule for rule in RULES if re.match(rule.pattern, model)), None)
    if rule is None:
        raise RequestRefused("Thinking is not enabled for this model.")
    if level is not None and budget is not None:
        raise RequestRefused("You can only set only one of thinking budget and thinking level.")
    if level is not None:
        _check_level(rule, str(level).lower())
    elif rule.budget is None:
        raise RequestRefused("Thinking budget is not supported for this model.")
    else:
        _check_budget(*rule.budget, budget, is_lite="lite" in model)


def _check_budget(least: int, most: int, budget: Any, *, is_lite: bool) -> None:
    """-1 leaves it to the model; flash-lite may also be told not to think: both pages of `RULES`."""
    if budget == -1 or (budget == 0 and is_lite) or (isinstance(budget, int) and least <= budget <= most):
        return
    if budget == 0:
        raise RequestRefused("Budget 0 is invalid. This model only works in thinking mode.")
    raise RequestRefused(f"The thinking budget {budget} is invalid. Please choose a value between {least} and {most}.")


def _check_level(rule: GeminiRule, level: str) -> None:
    levels = rule.levels.split()
    if not levels:
        raise RequestRefused("Thinking level is not supported for this model.")
    if level not in levels:
        # https://github.com/fishjar/kiss-translator/pull/1051
        raise RequestRefused(
            f"'{level}' is not a supported thinking level for this model. Allowed values are: {', '.join(levels)}."
        )
