"""Which parameters the models of OpenAI take, each rule beside the page that says so.

This is the judge of Odin's own table (`providers/contracts.py`) and shares nothing with it, so that a mistake in one
shows against the other.
"""

import re
from typing import Any, Literal

from msgspec import Struct

from odin.testing.strict import make_refusal

ToolsInChat = Literal["any", "unset", "none", "never"]
"""Whether Chat Completions takes function tools: with any effort; unless an effort but `none` is set; with the effort
`none` only, because the model reasons by default; or never."""


class OpenAIRule(Struct, frozen=True):
    """What the models take whose names begin with `pattern`. `chat_efforts` are those of Chat Completions."""

    pattern: str
    efforts: str
    page: str
    tools_in_chat: ToolsInChat = "any"
    tools_page: str = ""
    chat_efforts: str = ""


_EFFORT_PAGE = "https://learn.microsoft.com/en-us/javascript/api/@azure/ai-projects/reasoningeffort"
_TOOLS_PAGE = "https://developers.openai.com/api/docs/guides/deployment-checklist"
_CHAT_MAX_PAGE = "https://github.com/BerriAI/litellm-docs/pull/1173"
"""The levels of GPT-6 Astra by API, verified against the live one: Chat Completions has no `max`."""

RULES = (
    OpenAIRule(r"gpt-[34]|chatgpt-|gpt-5[\w.]*-chat|o1-mini|o1-preview", "", _EFFORT_PAGE),
    OpenAIRule("gpt-oss|o[134]", "low medium high", _EFFORT_PAGE),
    OpenAIRule("gpt-5-pro", "high", _EFFORT_PAGE),
    OpenAIRule(r"gpt-5(\.1)?-codex(?!-max)|codex-mini", "low medium high", _EFFORT_PAGE),
    OpenAIRule(r"gpt-5\.\d+-codex", "low medium high xhigh", _EFFORT_PAGE),
    OpenAIRule(r"gpt-5(?!\.)", "minimal low medium high", _EFFORT_PAGE),
    OpenAIRule(r"gpt-5\.1", "none low medium high", _EFFORT_PAGE),
    OpenAIRule(r"gpt-5\.[23]", "none low medium high xhigh", _EFFORT_PAGE),
    OpenAIRule(
        r"gpt-5\.[45]",
        "none low medium high xhigh",
        _EFFORT_PAGE,
        tools_in_chat="unset",
        tools_page="https://github.com/openai/openai-openapi/issues/541",
    ),
    OpenAIRule(
        r"gpt-5\.",
        "none low medium high xhigh max",
        "https://github.com/experientiallabs/experiential/issues/764",
        tools_in_chat="none",
        tools_page="https://github.com/BerriAI/litellm/pull/34569",
        chat_efforts="none low medium high xhigh",  # https://github.com/livekit/agents/pull/7169
    ),
    OpenAIRule(
        r"gpt-6-astra|gpt-6\.1-sol",
        "low medium high xhigh max",
        "https://developers.openai.com/api/docs/guides/latest-model?model=gpt-6.1-sol",
        tools_in_chat="never",
        tools_page=_TOOLS_PAGE,
        chat_efforts="low medium high xhigh",  # _CHAT_MAX_PAGE
    ),
    OpenAIRule(
        r"gpt-6\.2",
        "low medium high xhigh max",
        "https://dev.to/hassann/how-to-use-gpt-62-astra-api-3j9l",
        chat_efforts="low medium high xhigh",
    ),
    OpenAIRule(
        r"gpt-6",
        "none low medium high xhigh max",
        "https://openrouter.ai/docs/cookbook/evaluate-and-optimize/model-migrations/gpt-6.md",
        tools_in_chat="none",
        tools_page=_TOOLS_PAGE,
        chat_efforts="none low medium high xhigh",  # _CHAT_MAX_PAGE
    ),
)
"""The first that matches counts. A model that none matches is that of another vendor, of which nothing is known."""

_ALL_EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")

MAX_CACHE_KEY = 64
"""https://github.com/theopenco/llmgateway/pull/3110 has the answer of the API to a longer one."""


def find_rule(model: str) -> OpenAIRule | None:
    return next((rule for rule in RULES if re.match(rule.pattern, model)), None)


def is_reasoner(model: str) -> bool:
    """True for a reasoning model of the OpenAI API; gpt-oss runs on the servers of others."""
    rule = find_rule(model)
    return rule is not None and bool(rule.efforts) and not model.startswith("gpt-oss")


def check_response_effort(model: str, effort: Any) -> None:
    """Check `reasoning.effort` as the Responses API does."""
    rule = find_rule(model)
    if effort is None or (rule is None and effort in _ALL_EFFORTS):
        return
    known = tuple(rule.efforts.split()) if rule is not None else _ALL_EFFORTS
    if effort in known:
        return
    choices = f"Supported values are: {_list_values(known or _ALL_EFFORTS)}."
    if effort not in _ALL_EFFORTS:
        raise make_refusal(f"Invalid value: '{effort}'. {choices}", "reasoning.effort", "invalid_value")
    if not known:
        text = "Unsupported parameter: 'reasoning.effort' is not supported with this model."
        raise make_refusal(text, "reasoning.effort", "unsupported_parameter")
    # https://github.com/experientiallabs/experiential/issues/764
    text = f"Unsupported value: '{effort}' is not supported with the '{model}' model. {choices}"
    raise make_refusal(text, "reasoning.effort", "unsupported_value")


def _list_values(values: tuple[str, ...]) -> str:
    quoted = [f"'{value}'" for value in values]
    return quoted[0] if len(quoted) == 1 else f"{', '.join(quoted[:-1])}, and {quoted[-1]}"


def check_chat_effort(model: str, effort: Any, *, has_tools: bool) -> None:
    """Check `reasoning_effort` as Chat Completions does, also against the tools of the request."""
    rule = find_rule(model)
    if rule is not None:
        _check_tools_in_chat(rule, model, effort, has_tools=has_tools)
    if effort is None or (rule is None and effort in _ALL_EFFORTS):
        return
    if rule is not None and not rule.efforts:
        raise make_refusal("Unrecognized request argument supplied: reasoning_effort")
    known = tuple((rule.chat_efforts or rule.efforts).split()) if rule is not None else _ALL_EFFORTS
    if effort in known:
        return
    choices = f"Supported values are: {', '.join(map(repr, known))}."
    if effort not in _ALL_EFFORTS:
        raise make_refusal(f"Invalid value: '{effort}'. {choices}", "reasoning_effort", "invalid_value")
    # https://github.com/livekit/agents/pull/7169
    text = f"Unsupported value: 'reasoning_effort' does not support '{effort}' with this model. {choices}"
    raise make_refusal(text, "reasoning_effort", "unsupported_value")


def _check_tools_in_chat(rule: OpenAIRule, model: str, effort: Any, *, has_tools: bool) -> None:
    allowed = {"any": True, "unset": effort in (None, "none"), "none": effort == "none", "never": False}
    if not has_tools or allowed[rule.tools_in_chat]:
        return
    # https://github.com/GEMISIS/leviath/issues/333, https://github.com/Wei-Shaw/sub2api/issues/6740
    text = (
        f"Function tools with reasoning_effort are not supported for {model} in /v1/chat/completions. To use function "
        "tools, use /v1/responses or set reasoning_effort to 'none'."
    )
    raise make_refusal(text, "reasoning_effort")


def check_temperature(model: str, effort: Any, heat: Any) -> None:
    """A model that reasons takes no other temperature than 1: https://developers.openai.com/api/docs/guides/deployment-checklist."""
    if is_reasoner(model) and effort != "none" and heat != 1:
        raise make_refusal(
            f"Unsupported value: 'temperature' does not support {heat} with this model. Only the default (1) value is "
            "supported.",
            "temperature",
            "unsupported_value",
        )


def check_cache_key(key: Any) -> None:
    """Check `prompt_cache_key`, the same for both APIs."""
    if key is None:
        return
    if not isinstance(key, str):
        raise make_refusal(
            "Invalid type for 'prompt_cache_key': expected a string.", "prompt_cache_key", "invalid_type"
        )
    if len(key) > MAX_CACHE_KEY:
        raise make_refusal(
            f"Invalid 'prompt_cache_key': string too long. Expected a string with maximum length {MAX_CACHE_KEY}, but "
            f"got a string with length {len(key)} instead.",
            "prompt_cache_key",
            "string_above_max_length",
        )
