"""Maps every failure of a model request to a named error with a clear message.

HTTP statuses, the error bodies of each API, error events in a stream, and socket and TLS errors all end up here. A key
never appears in a message.
"""

import math
import re
import socket
import sys
import time
from collections.abc import Mapping
from datetime import datetime
from typing import Any, cast

import msgspec
from msgspec import Struct

from odin.core.errors import (
    AuthFailed,
    BadReply,
    BadRequest,
    ContextOverflow,
    EmptyReply,
    ModelNotFound,
    Overloaded,
    ProviderError,
    QuotaExhausted,
    RateLimited,
    ReplyBlocked,
    StreamCut,
    StreamStalled,
    TlsFailed,
    Unreachable,
)
from odin.core.format import clip_line
from odin.core.policy import hide_key
from odin.core.provider import EFFORTS
from odin.providers.address import Address, Route

TOO_LONG_PATTERN = (
    r"context[ _-]?(length|window|size|limit)|(prompt|input|request|messages?) (is|are) too (long|large)|"
    r"too many (input )?tokens|maximum (context|prompt|input|number of tokens)|exceed_context|reduce the length|"
    r"input length and `?max_tokens|token limit exceeded|exceed(s|ed) (the )?(model )?(token|context|input) limit|"
    r"prompt token count|input token count|max tokens allowed|input length should be|(?<!_)tokens? .{0,40}must be <=|"
    r"exceeds the (limit|available context|maximum)|model_context_window_exceeded|prompt contains \d+ tokens|"
    r"greater than the context length|n_keep .{0,20}n_ctx|message size \d+ exceeds limit|context window exceeds limit"
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
    rf'n_ctx"?:? ?\(?{_NUMBER_PATTERN}',
    rf"\(TPM\): Limit {_NUMBER_PATTERN}",
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
    """Return the context window named in an error text, or 0."""
    return _find_first_number(_LIMIT_PATTERNS, text)


def parse_request_size(text: str) -> int:
    """Return the size of the rejected request named in an error text, or 0."""
    return _find_first_number(_SIZE_PATTERNS, text)


_SPLIT_PATTERNS = (
    # OpenRouter: https://github.com/MoonshotAI/kimi-code/issues/476; vLLM and DeepSeek: …/DeepSeek-Reasonix/issues/8004
    rf"\((?:about )?{_NUMBER_PATTERN} (?:of|in the) (?:text input|input|messages|prompt)"
    rf"(?:, {_NUMBER_PATTERN} of tool input)?, {_NUMBER_PATTERN} in the (?:output|completion)",
    # Newer vLLM: https://github.com/AIDotNet/OpenCowork/issues/82
    rf"output tokens and your prompt contains at least {_NUMBER_PATTERN} input tokens()()",
    # Anthropic: https://github.com/anthropics/claude-code/issues/476
    rf"context limit: {_NUMBER_PATTERN}() \+ {_NUMBER_PATTERN}",
)
"""The parts of a request as an error text counts them: its input, its tools, and the limit of the reply."""

_LEAST_ROOM = 1024
_MARGIN = 0.01
"""A reply with less room is not worth a request. The counts of the input are estimates."""


def parse_reply_room(text: str) -> int:
    """Return how many tokens a reply may have, if an error text says that only its limit is too high; else 0."""
    limit = parse_context_limit(text)
    for pattern in _SPLIT_PATTERNS:
        if found := re.search(pattern, text, re.IGNORECASE):
            size, tools, _ = (int(re.sub(r"[,_]", "", part or "0") or 0) for part in found.groups())
            room = limit - size - tools - int(limit * _MARGIN)
            return room if room >= _LEAST_ROOM else 0
    return 0


_EFFORT_PATTERN = r"effort|thinking.?level"
_NAMED_PATTERN = r"(?:supported|allowed|valid|possible) values(?: are)?:?(.*)|must be one of:?(.*)|set \S*effort to(.*)"
_NO_EFFORT_PATTERN = r"(unrecognized|unknown|unsupported|unexpected|extra|not support|not permitted|not allowed)"


def parse_lowest_effort(text: str) -> str | None:
    """Return the lowest effort that a refusal names as supported; "" if it says that there is none, None if it is about
    something else."""
    if found := re.search(_NAMED_PATTERN, text, re.IGNORECASE | re.DOTALL):
        words = set(re.findall(r"\w+", (found[1] or found[2] or found[3]).lower()))
        if named := [effort for effort in EFFORTS if effort in words]:
            return named[0]
    return "" if _has_pattern(_EFFORT_PATTERN, text) and _has_pattern(_NO_EFFORT_PATTERN, text) else None


def _find_first_number(patterns: tuple[str, ...], text: str) -> int:
    for pattern in patterns:
        found = re.search(pattern, text, re.IGNORECASE)
        if found:
            return int(re.sub(r"[,_]", "", found[found.lastindex or 1]) or 0)
    return 0


class ErrorContext(Struct, frozen=True):
    """The server as named in messages. `key_places` says where its key can be set."""

    name: str
    url: str
    model: str = ""
    key: str = ""
    key_places: str = ""


class ApiErrorInfo(Struct, frozen=True):
    """What an API reported about a failure: one line of text, of which only the start is shown.

    `wait` is the delay it asks for, in seconds.
    """

    message: str = ""
    type: str = ""
    code: str = ""
    wait: float | None = None


# --- sockets and TLS ---


def make_unreachable_error(route: Route, error: BaseException) -> ProviderError:
    """Return a connection error that names the proxy, if there is one, or the address."""
    if (tls_error := make_tls_error(route, error)) is not None:
        return tls_error
    why = _explain_connect_error(error)
    if route.proxy is not None:
        return Unreachable(
            f"Cannot reach the proxy {route.proxy.origin}: {why}.",
            f"Check HTTPS_PROXY, or list {route.to.host} in NO_PROXY.",
        )
    if route.to.is_loopback:
        return Unreachable(f"Cannot reach {route.to.origin}: {why}.", "Is the model server running there?")
    return Unreachable(f"Cannot reach {route.to.origin}: {why}.", "Check the network, the base URL and HTTPS_PROXY.")


def _explain_connect_error(error: BaseException) -> str:
    if isinstance(error, TimeoutError):
        return "it did not answer in time"
    if isinstance(error, ConnectionRefusedError):
        return "connection refused"
    if isinstance(error, socket.gaierror):
        return "the name is not known"
    if isinstance(error, ConnectionError):
        return "the connection was closed"
    reason = getattr(error, "strerror", "") or str(error) or type(error).__name__
    if "Connect call failed" in str(error) and "Multiple exceptions" in str(error):
        reason = "connection refused"
    return clip_line(reason).rstrip(".").lower()


def make_tls_error(route: Route, error: BaseException) -> TlsFailed | None:
    """Return the error for what OpenSSL reported; None for any other failure. Only https requests import `ssl`."""
    ssl = sys.modules.get("ssl")
    if ssl is None or not isinstance(error, ssl.SSLError):
        return None
    if isinstance(error, ssl.SSLCertVerificationError):
        why = getattr(error, "verify_message", "") or "verification failed"
        return TlsFailed(
            f"The certificate of {route.to.host} cannot be trusted: {why}.",
            "If your network uses its own certificate authority, set SSL_CERT_FILE to its certificate file.",
        )
    reason = (getattr(error, "reason", "") or "handshake failed").replace("_", " ").lower()
    return TlsFailed(
        f"No secure connection to {route.to.host}: {reason}.", "Check that the address speaks https, and HTTPS_PROXY."
    )


def make_certificate_error(path: str, variable: str) -> TlsFailed:
    return TlsFailed(
        f"The certificates in {path} cannot be read.", f"Set {variable} to a readable file of PEM certificates."
    )


def make_proxy_error(route: Route, status: int, reason: str) -> ProviderError:
    origin, login = (route.proxy.origin, route.proxy.login) if route.proxy else (route.to.origin, "")
    if status == 407:
        return AuthFailed(
            f"The proxy {origin} requires a login.",
            "Write it into HTTPS_PROXY: http://user:password@host:port.",
            status=407,
        )
    return Unreachable(
        f"The proxy {origin} does not connect to {route.to.host}: {status} {hide_key(reason, login)}".rstrip() + ".",
        f"Check HTTPS_PROXY, or list {route.to.host} in NO_PROXY.",
        status=status,
    )


def make_header_timeout_error(address: Address, seconds: float) -> StreamStalled:
    return StreamStalled(
        f"{address.origin} did not begin to answer within {seconds:g} s.",
        "Try again; if it repeats, check the connection or raise header_timeout.",
    )


def make_idle_timeout_error(address: Address, seconds: float) -> StreamStalled:
    return StreamStalled(
        f"The answer of {address.origin} went silent for {seconds:g} s.",
        "Try again; if it repeats, check the connection or raise idle_timeout.",
    )


_CUT_HINT = "Try again; if it repeats, check the connection and any proxy in between."


def make_cut_error(address: Address) -> StreamCut:
    return StreamCut(f"The answer of {address.origin} was cut off before it was complete.", _CUT_HINT)


def make_closed_error(address: Address) -> StreamCut:
    return StreamCut(f"{address.origin} closed the connection before it answered.", _CUT_HINT)


def make_protocol_error(address: Address, what: str) -> BadReply:
    return BadReply(f"{address.origin} does not speak HTTP as it should: {what}.", "Check the base URL.")


# --- responses that are not event streams ---


def make_status_error(context: ErrorContext, status: int, headers: Mapping[str, str], body: bytes) -> ProviderError:
    """Return the error for a response whose status is not 200."""
    if 300 <= status < 400:
        target = headers.get("location", "")
        place = hide_key(target.partition("://")[2].partition("/")[0].rpartition("@")[2], context.key) or "another path"
        return BadReply(
            f"{context.name} at {context.url} redirects to {place}.",
            "Odin does not follow redirects: set the base URL to the final address.",
            status=status,
        )
    page = "html" in headers.get("content-type", "").lower() or is_web_page(body)
    if page and (status < 500 and status != 429):
        return make_web_page_error(context, status)
    rendered = ApiErrorInfo() if page else parse_error_body(body)
    wait = parse_retry_after(headers, time.time())
    return make_api_error(context, rendered, status, rendered.wait if wait is None else wait)


def make_web_page_error(context: ErrorContext, status: int = 200) -> BadReply:
    return BadReply(
        f"{context.name} at {context.url} answered with a web page, not the model API (status {status}).",
        "Check the base URL, and whether a proxy or a login page stands in between.",
        status=status,
    )


def make_not_streamed_error(context: ErrorContext, body: bytes) -> ProviderError:
    """Return the error for status 200 with one JSON object: a late error, or a server that cannot stream."""
    rendered = parse_error_body(body)
    if rendered.message or rendered.type or rendered.code:
        return make_api_error(context, rendered, 0, rendered.wait)
    return BadReply(
        f"{context.name} at {context.url} did not stream its answer.", "Check that the base URL is that of a model API."
    )


_REPLY_KEYS = {"choices", "output", "candidates"}


def is_reply_object(body: bytes) -> bool:
    """True if the body is one JSON object that may be a reply of an API."""
    try:
        value: Any = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeError):
        return False
    return isinstance(value, dict) and not _REPLY_KEYS.isdisjoint(cast("dict[str, Any]", value))


def parse_error_text(text: str) -> ApiErrorInfo | None:
    """Return the error if the text consists of nothing but an API's error body, else None."""
    try:
        value: Any = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError):
        return None
    if not isinstance(value, dict) or not cast("dict[str, Any]", value).keys() <= _ERROR_KEYS:
        return None
    error = cast("dict[str, Any]", value).get("error")
    fields = cast("dict[str, Any]", error) if isinstance(error, dict) else {}
    named = isinstance(fields.get("message"), str) and ("type" in fields or "code" in fields)
    return parse_error_info(cast("Any", value)) if named else None


_ERROR_KEYS = {"type", "error", "request_id", "status", "code"}


def make_bad_event_error(context: ErrorContext, data: bytes) -> BadReply:
    start = clip_line(data[:80].decode("utf-8", "replace"))
    return BadReply(
        f"{context.name} sent something that is not its API: {start!r}.", "Check the base URL and the provider's type."
    )


def make_incomplete_error(context: ErrorContext) -> StreamCut:
    return StreamCut(f"The answer of {context.name} ended before it was complete.", _CUT_HINT)


# --- API errors ---

# Patterns are compiled on first use, to keep start-up fast.
_QUOTA_PATTERN = (
    r"insufficient[ _](quota|balance|credit|funds)|credit balance|exceeded (your )?current quota|余额不足|"
    r"(used all|out of) (available )?credits|spending limit|budget has been exceeded|(crossed|exceeded|over) budget|"
    r"reached your specified api usage limits|(extra usage is|usage credits are) required|account in good standing|"
    r"account is in good standing|, limit: 0\b|per-day"
)
_BILLING_PATTERN = r"billing|payment required"
_BAD_KEY_PATTERN = (
    r"(incorrect|invalid|expired) (x-)?api[ _-]?key|api[ _-]?key (is |has )?(not valid|invalid|incorrect|expired)|"
    r"organi[sz]ation has been disabled"
)
_MAX_JUDGED_CHARS = 2000
"""How much of a message is searched for what it is about. Some servers repeat the whole request in theirs."""

_NO_MODEL_PATTERN = r"model[ _-]?not[ _-]?found|(model|deployment).{0,80}(not exist|not found|unknown)"


def _has_pattern(pattern: str, text: str) -> bool:
    return re.search(pattern, text, re.IGNORECASE) is not None


_CODES = {
    400: "invalid_request_error invalid_prompt INVALID_ARGUMENT FAILED_PRECONDITION",
    401: "authentication_error invalid_api_key API_KEY_INVALID UNAUTHENTICATED",
    402: "billing_error insufficient_quota billing_not_active exceeded_current_quota_error budget_exceeded Arrearage",
    403: "permission_error PERMISSION_DENIED",
    404: "not_found_error model_not_found NOT_FOUND",
    413: "request_too_large context_length_exceeded exceed_context_size_error",
    429: "rate_limit_error rate_limit_exceeded RESOURCE_EXHAUSTED",
    500: "server_error api_error internal_server_error INTERNAL",
    503: "UNAVAILABLE",
    504: "timeout_error DEADLINE_EXCEEDED",
    529: "overloaded_error",
}
_STATUS_BY_CODE = {code: status for status, codes in _CODES.items() for code in codes.split()}
"""What error codes and types of the APIs mean. Those in capitals are Google's."""


def make_reported_error(context: ErrorContext, rendered: ApiErrorInfo) -> ProviderError:
    """Return the error for an error event in the middle of a stream."""
    return make_api_error(context, rendered, 0, rendered.wait)


def make_api_error(context: ErrorContext, rendered: ApiErrorInfo, status: int, wait: float | None) -> ProviderError:
    """Choose the error by what the API reported, then by status."""
    wait = parse_text_wait(rendered.message, time.time()) if wait is None else wait
    kind, message, hint = _classify_error(context, rendered, status, wait)
    code, type_ = (hide_key(text, context.key) for text in (rendered.code, rendered.type))
    error = kind(message, hint, status=status, code=code, type=type_, retry_after=wait)
    if isinstance(error, ContextOverflow):
        said = rendered.message
        error.limit, error.size = parse_context_limit(said), parse_request_size(said)
        error.room = parse_reply_room(said)
    return error


def _classify_error(
    context: ErrorContext, rendered: ApiErrorInfo, status: int, wait: float | None
) -> tuple[type[ProviderError], str, str]:
    meant = _STATUS_BY_CODE.get(rendered.code) or _STATUS_BY_CODE.get(rendered.type) or 0
    if rendered.code.isdigit() and 400 <= int(rendered.code) < 600:
        meant = meant or int(rendered.code)
    code = status or meant or 500
    said = clip_line(hide_key(rendered.message, context.key)).rstrip(".")
    tail = f": {said}" if said else ""
    if rendered.code == "tool_use_failed":
        return EmptyReply, f"{context.name} could not read a tool call of the model{tail}.", _OTHER_MODEL_HINT
    if rendered.code == "content_filter":
        return ReplyBlocked, f"{context.name} blocked the prompt{tail}.", "Rephrase it, or use another model."
    if _is_too_long(rendered.message, code, meant):
        model = context.model or context.name
        hint = "Start a new session, or ask for less at once."
        return ContextOverflow, f"The conversation is too long for {model}{tail}.", hint
    is_limit = meant == 429 or (code == 429 and wait is not None)
    if 402 in (code, meant) or (code in _QUOTA_STATUSES and _is_quota_spent(rendered, is_limit=is_limit)):
        return QuotaExhausted, f"The quota or credit at {context.name} is used up{tail}.", "Check the billing there."
    if code in (401, 403) or meant == 401 or (code == 400 and _has_pattern(_BAD_KEY_PATTERN, rendered.message)):
        return AuthFailed, *_describe_auth_error(context, tail)
    if code == 429:
        return RateLimited, *_describe_rate_limit(context, tail, wait)
    if code == 404 or (code == 400 and _has_pattern(_NO_MODEL_PATTERN, rendered.message)):
        return ModelNotFound, *_describe_not_found(context, tail)
    if code >= 500 or code in (408, 425):
        return Overloaded, f"{context.name} is overloaded or failing (status {code}){tail}.", "Try again in a moment."
    hint = "Check what it names: the model, max_tokens, thinking, or the tools setting of this model."
    if "cache_control" in rendered.message:
        hint = f"Set providers.{context.name}.prompt_caching to false."
    return BadRequest, f"{context.name} refused the request (status {code}){tail}.", hint


_OTHER_MODEL_HINT = "Try again, or use another model."

_QUOTA_STATUSES = (400, 403, 412, 429, 500)
"""With which servers say that there is no credit, besides 402: MiniMax with 500, Fireworks with 412."""


def _is_too_long(message: str, code: int, meant: int) -> bool:
    """True if a shorter request would pass: one alone may be too large for a rate limit, too."""
    if 413 in (code, meant) or (code in (400, 422, 500) and _has_pattern(TOO_LONG_PATTERN, message)):
        return True
    return code == 429 and _has_pattern(r"request too large for", message)


def _is_quota_spent(rendered: ApiErrorInfo, *, is_limit: bool) -> bool:
    """True if waiting a minute does not help. Google reports every limit as an exceeded quota and names it.

    `is_limit`: the API calls it a rate limit. Its text may then name the page that raises it, that of the billing.
    """
    if rendered.type == "RESOURCE_EXHAUSTED":
        spent = r"credits? .{0,20}(depleted|used up)|, limit: 0\b"
        return "PerDay" in rendered.code or _has_pattern(spent, rendered.message)
    if not is_limit and _has_pattern(_BILLING_PATTERN, rendered.message):
        return True
    return _has_pattern(_QUOTA_PATTERN, rendered.message)


def _describe_auth_error(context: ErrorContext, tail: str) -> tuple[str, str]:
    places = context.key_places or f"providers.{context.name}.api_key"
    if context.key:
        return f"{context.name} refused the key{tail}.", f"Check {places}."
    return f"{context.name} requires an API key{tail}.", f"Set {places}."


def _describe_rate_limit(context: ErrorContext, tail: str, wait: float | None) -> tuple[str, str]:
    if wait:
        limited = f"{context.name}: rate limit reached, retry after {math.ceil(wait)} s{tail}."
        return limited, "Try again after that, or use another model."
    return f"{context.name}: rate limit reached{tail}.", "Try again in a moment, or use another model."


def _describe_not_found(context: ErrorContext, tail: str) -> tuple[str, str]:
    hint = f"Run `odin models` to see what there is, and check the base URL {context.url}."
    if context.model:
        return f"{context.name} has no model {context.model!r}{tail}.", hint
    return f"{context.name} does not know that address{tail}.", hint


def parse_error_body(body: bytes) -> ApiErrorInfo:
    """Return the error in a response body, in any of the formats in use."""
    try:
        value: Any = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeError):
        return ApiErrorInfo(_get_message(body[:_MAX_JUDGED_CHARS].decode("utf-8", "replace")))
    return parse_error_info(value)


def parse_error_info(value: Any) -> ApiErrorInfo:
    if isinstance(value, list) and value:
        return parse_error_info(cast("list[Any]", value)[0])
    if isinstance(value, str):
        return ApiErrorInfo(_get_message(value))
    if not isinstance(value, dict):
        return ApiErrorInfo()
    found = cast("dict[str, Any]", value)
    inner = found.get("error")
    if isinstance(inner, str) and inner:
        return ApiErrorInfo(_get_message(inner), _get_text(found.get("type")), _get_text(found.get("code")))
    if isinstance(inner, dict):
        found = cast("dict[str, Any]", inner)
    elif found.get("object") != "error" and found.get("type") != "error" and "detail" not in found:
        return (
            ApiErrorInfo()
            if "message" not in found or "choices" in found
            else ApiErrorInfo(_get_message(found["message"]))
        )
    message = _get_message(found.get("message") or found.get("detail") or "")
    if isinstance(found.get("status"), str) and "type" not in found:
        return _read_google_error(found, message)
    kind = _get_text(found.get("type"))
    outer = ApiErrorInfo(message, "" if kind == "error" else kind, _get_text(found.get("code")))
    details = found.get("metadata")
    raw = cast("dict[str, Any]", details).get("raw") if isinstance(details, dict) else None
    return _read_wrapped_error(outer, cast("dict[str, Any]", details), raw) if raw else outer


def _read_wrapped_error(outer: ApiErrorInfo, details: dict[str, Any], raw: Any) -> ApiErrorInfo:
    """Return what the provider behind a gateway reported: OpenRouter passes it on as JSON text, or as a sentence."""
    inner = parse_error_body(raw.encode()) if isinstance(raw, str) else parse_error_info(raw)
    if not inner.message:
        return outer
    name = _get_text(details.get("provider_name"))
    return ApiErrorInfo(
        _get_message(f"{name}: {inner.message}" if name else inner.message),
        inner.type or outer.type,
        inner.code or outer.code,
        inner.wait,
    )


def _read_google_error(found: dict[str, Any], message: str) -> ApiErrorInfo:
    """Return an error in the form of `google.rpc.Status`: its details name the reason, the quota and the delay."""
    code, wait = "", None
    for detail in cast("list[Any]", found["details"]) if isinstance(found.get("details"), list) else []:
        fields = cast("dict[str, Any]", detail) if isinstance(detail, dict) else {}
        violations = cast("list[Any]", fields.get("violations")) if isinstance(fields.get("violations"), list) else []
        quotas = [_get_text(cast("dict[str, Any]", one).get("quotaId")) for one in violations if isinstance(one, dict)]
        code = code or _get_text(fields.get("reason")) or next((one for one in quotas if "PerDay" in one), "")
        code = code or next(iter(quotas), "")
        delay = fields.get("retryDelay")
        wait = parse_reset_delay(delay, 0.0) if isinstance(delay, str) else wait
    return ApiErrorInfo(message, found["status"], code or _get_text(found.get("code")), wait)


def _get_message(value: Any) -> str:
    return clip_line(_get_text(value), _MAX_JUDGED_CHARS)


def _get_text(value: Any) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def is_web_page(body: bytes) -> bool:
    start = body[:512].lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    return start.startswith((b"<!doctype", b"<html", b"<head", b"<body", b"<?xml"))


# --- retry delays ---


def parse_retry_after(headers: Mapping[str, str], now: float) -> float | None:
    """Return the delay the server asks for in seconds, or None if absent or invalid."""
    milliseconds = _parse_number(headers.get("retry-after-ms", ""))
    if milliseconds is not None:
        return max(0.0, milliseconds / 1000)
    asked = headers.get("retry-after", "").strip()
    if asked:
        seconds = _parse_number(asked)
        return max(0.0, seconds) if seconds is not None else _parse_date_delay(asked, now)
    waits = [
        wait
        for name, value in headers.items()
        if "ratelimit" in name and "reset" in name and _is_exhausted(headers, name)
        for wait in [parse_reset_delay(value.strip(), now)]
        if wait is not None
    ]
    return max(waits, default=None)


def _is_exhausted(headers: Mapping[str, str], reset_name: str) -> bool:
    """True if this reset belongs to the limit that was hit."""
    left = headers.get(reset_name.replace("reset", "remaining"))
    return left is None or left.strip() == "0"


def _parse_number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if -1e15 < value < 1e15 else None


def _parse_date_delay(text: str, now: float) -> float | None:
    from email.utils import parsedate_to_datetime

    try:
        return max(0.0, parsedate_to_datetime(text).timestamp() - now)
    except (ValueError, TypeError, OverflowError):
        return None


_TIME_SPAN = r"(\d+(?:\.\d+)?)(ms|s|m|h|d)"
_SECONDS_BY_UNIT = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


_TEXT_WAITS = (
    r"(?:try again|retry) in ((?:\d+(?:\.\d+)?(?:ms|s|m|h|d))+)",
    r"retry after (\d+(?:\.\d+)?) seconds",
    r"resets at (\d{4}-\d\d-\d\dT[\d:.]+(?:Z|[+-]\d\d:\d\d))",
)


def parse_text_wait(text: str, now: float) -> float | None:
    """Return the delay that an error text asks for, in seconds; None if it names none."""
    for pattern in _TEXT_WAITS:
        if found := re.search(pattern, text, re.IGNORECASE):
            return parse_reset_delay(found[1], now)
    return None


def parse_reset_delay(text: str, now: float) -> float | None:
    """Return the seconds until a rate limit resets, from seconds, a timestamp, a span like 6m0s, or a date."""
    value = _parse_number(text)
    if value is not None:
        moment = value / 1000 if value > 1e11 else value
        return max(0.0, moment - now if moment > 1e9 else moment)
    if re.fullmatch(f"(?:{_TIME_SPAN})+", text):
        return sum(float(amount) * _SECONDS_BY_UNIT[unit] for amount, unit in re.findall(_TIME_SPAN, text))
    try:
        return max(0.0, datetime.fromisoformat(text).timestamp() - now)
    except (ValueError, OverflowError):
        return None
