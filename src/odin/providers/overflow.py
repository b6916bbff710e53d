"""What servers say when a request is too long for their model, and the numbers they name."""

import re

TOO_LONG = (
    r"context[ _-]?(length|window|size|limit)|(prompt|input|request|messages?) (is|are) too (long|large)|"
    r"too many (input )?tokens|maximum (context|prompt|input|number of tokens)|exceed_context|reduce the length|"
    r"input length and `?max_tokens|token limit exceeded|exceed(s|ed) (the )?(model )?(token|context|input) limit|"
    r"prompt token count|input token count|max tokens allowed|input length should be|tokens? .{0,40}must be <=|"
    r"exceeds the (limit|available context|maximum)|model_context_window_exceeded|prompt contains \d+ tokens"
)

_NUMBER = r"(\d[\d,_]*)"
_LIMITS = (
    rf">\s*{_NUMBER}(?: tokens?)? maximum",
    rf"\+ ?{_NUMBER} ?> ?{_NUMBER}",
    rf"maximum (?:context|prompt|input) (?:length|size|window)(?: of this model)?(?: is| of|:)? {_NUMBER}",
    rf"{_NUMBER} maximum context length",
    rf"maximum number of tokens(?: allowed)? \(?{_NUMBER}",
    rf"available context size \({_NUMBER}",
    rf"context (?:length|window|size)(?: of)?(?: only| is|:)? \(?{_NUMBER}",
    rf"must be <= ?{_NUMBER}",
    rf"exceeds the limit of {_NUMBER}",
    rf"token limit:? {_NUMBER}",
    rf"input length should be \[\d+, ?{_NUMBER}\]",
    rf"in the prompt exceeds {_NUMBER}",
    rf'n_ctx"?:? ?{_NUMBER}',
)
_SIZES = (
    rf"too long: {_NUMBER} tokens",
    rf"resulted in {_NUMBER} tokens",
    rf"requested:?(?: about)? {_NUMBER}(?: tokens)?",
    rf"prompt contains {_NUMBER} tokens",
    rf"request contains {_NUMBER} tokens",
    rf"token count (?:of )?\(?{_NUMBER}",
    rf"given: {_NUMBER}",
    rf'n_prompt_tokens"?:? ?{_NUMBER}',
)


def named_limit(text: str) -> int:
    """The window that an error names, or 0."""
    return _first(_LIMITS, text)


def named_size(text: str) -> int:
    """The size of the refused request that an error names, or 0."""
    return _first(_SIZES, text)


def _first(patterns: tuple[str, ...], text: str) -> int:
    for pattern in patterns:
        found = re.search(pattern, text, re.IGNORECASE)
        if found:
            return int(re.sub(r"[,_]", "", found[found.lastindex or 1]) or 0)
    return 0
