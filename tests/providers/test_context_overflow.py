"""Refusals of requests that are too long, in the words of each server, and the limits they state."""

import pytest

from odin.core.errors import ContextOverflow
from odin.providers.errors import ApiErrorInfo, ErrorContext, make_api_error
from tests.table import each

PEER = ErrorContext("p", "http://127.0.0.1/v1", "m")

REFUSALS: list[tuple[str, int, int]] = [
    ("prompt is too long: 215000 tokens > 200000 maximum", 200_000, 215_000),
    ("input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000, decrease input length", 200_000, 0),
    (
        "This model's maximum context length is 8192 tokens. However, your messages resulted in 9001 tokens. "
        "Please reduce the length of the messages.",
        8_192,
        9_001,
    ),
    (
        "This endpoint's maximum context length is 128000 tokens. However, you requested about 130000 tokens "
        "(120000 of text input, 10000 in the output).",
        128_000,
        130_000,
    ),
    ("Your input exceeds the context window of this model. Please adjust your input and try again.", 0, 0),
    ("the request exceeds the available context size (4096 tokens), try increasing it", 4_096, 0),
    ("The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).", 1_048_576, 1_200_000),
    (
        "Prompt contains 40000 tokens and 0 draft tokens, too large for model with 32768 maximum context length",
        32_768,
        40_000,
    ),
    ("This model's maximum prompt length is 131072 but the request contains 150000 tokens.", 131_072, 150_000),
    ("Input is too long for requested model.", 0, 0),
    (
        "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4097. Given: 5000 `inputs` tokens",
        4_097,
        5_000,
    ),
    (
        "Trying to keep the first 5000 tokens when context the overflows. However, the model is loaded with context "
        "length of only 4096 tokens, which is not enough",
        4_096,
        0,
    ),
    ("too many tokens: total number of tokens in the prompt exceeds 4081.", 4_081, 0),
    ("Range of input length should be [1, 98304]", 98_304, 0),
    ("Invalid request: Your request exceeded model token limit: 262144 (requested: 300000)", 262_144, 300_000),
    ("prompt token count of 150000 exceeds the limit of 128000", 128_000, 150_000),
    ("tokens in request more than max tokens allowed", 0, 0),
]


@each(("words", "limit", "size"), REFUSALS)
def test_overflow_is_recognized_and_its_numbers_are_read(words: str, limit: int, size: int) -> None:
    error = make_api_error(PEER, ApiErrorInfo(words), 400, None)
    assert isinstance(error, ContextOverflow)
    assert (error.limit, error.size) == (limit, size)


@pytest.mark.parametrize(
    "words",
    [
        "max_tokens: 100000 > 64000, which is the maximum allowed number of output tokens for this model",
        "messages.3: tool_use ids were found without tool_result blocks",
        "temperature must be <= 2",
        "max_completion_tokens must be <= 32768",
    ],
)
def test_other_refusals_are_not_context_overflows(words: str) -> None:
    assert not isinstance(make_api_error(PEER, ApiErrorInfo(words), 400, None), ContextOverflow)
