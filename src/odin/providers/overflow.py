"""What servers say when a request is too long for their model, and the numbers they name."""

import re

TOO_LONG_PATTERN = (
    r"context[ _-]?(length|window|size|limit)|(prompt|input|request|messages?) (is|are) too (long|large)|"
    r"too many (input )?tokens|maximum (context|prompt|input|number of tokens)|exceed_context|reduce the length|"
    r"input length and `?max_tokens|token limit exceeded|exceed(s|ed) (the )?(model )?(token|context|input) limit|"
    r"prompt token count|input token count|max tokens allowed|input length should be|tokens? .{0,40}must be <=|"
    r"exceeds the (limit|available context|maximum)|model_context_window_exceeded|prompt contains \d+ tokens"
)

_NUMBER_PATTERN = r"(\d[\d,_]*)"
_LIMIT_PATTERNS = (
    rf">\s*{_NUMBER_PATTERN}(?: tokens?)? maximum",
    rf"\+ ?{_NUMBER_PATTERN} ?> ?{_NUMBER_PATTERN}",
    rf"maximum (?:context|prompt|input) (?:length|size|window)(?: of this model)?(?: is| of|:)? {_NUMBER_PATTERN}",
    rf"{_NUMBER_PATTERN} maximum context length",
    rf"maximum number of tokens(?: allowed)? \(?{_NUMBER_PATTERN}",
    rf"available context size \({_NUMBER_PATTERN}",
    rf"context (?:length|window|size)(?: of)?(?: only| is|:)? \(?{_NUMBER_PATTERN}",
    rf"must be <= ?{_NUMBER_PATTERN}",
    rf"exceeds the limit of {_NUMBER_PATTERN}",
    rf"token limit:? {_NUMBER_PATTERN}",
    rf"input length should be \[\d+, ?{_NUMBER_PATTERN}\]",
    rf"in the prompt exceeds {_NUMBER_PATTERN}",
    rf'n_ctx"?:? ?{_NUMBER_PATTERN}',
)
_SIZE_PATTERNS = (
    rf"too long: {_NUMBER_PATTERN} tokens",
    rf"resulted in {_NUMBER_PATTERN} tokens",
    rf"requested:?(?: about)? {_NUMBER_PATTERN}(?: tokens)?",
    rf"prompt contains {_NUMBER_PATTERN} tokens",
    rf"request contains {_NUMBER_PATTERN} tokens",
    rf"token count (?:of )?\(?{_NUMBER_PATTERN}",
    rf"given: {_NUMBER_PATTERN}",
    rf'n_prompt_tokens"?:? ?{_NUMBER_PATTERN}',
)


def parse_context_limit(text: str) -> int:
    """The window that an error names, or 0."""
    return _find_first_number(_LIMIT_PATTERNS, text)


def parse_request_size(text: str) -> int:
    """The size of the refused request that an error names, or 0."""
    return _find_first_number(_SIZE_PATTERNS, text)


def _find_first_number(patterns: tuple[str, ...], text: str) -> int:
    for pattern in patterns:
        found = re.search(pattern, text, re.IGNORECASE)
        if found:
            return int(re.sub(r"[,_]", "", found[found.lastindex or 1]) or 0)
    return 0
