"""The one place where a failure on the way to a model gets its name and its sentence.

HTTP statuses, the error bodies of each API, error events in a stream, and what sockets and TLS report all come here.
A key never appears in a sentence.
"""

import math
import re
import ssl
import time
from collections.abc import Mapping
from typing import Any, cast

import msgspec
from msgspec import Struct

from odin.core.errors import (
    AuthFailed,
    BadReply,
    BadRequest,
    ContextOverflow,
    ModelNotFound,
    Overloaded,
    ProviderError,
    QuotaExhausted,
    RateLimited,
    StreamCut,
    StreamStalled,
    TlsFailed,
    Unreachable,
)
from odin.providers.address import Address, Route


class Peer(Struct, frozen=True):
    """Whom we ask, as sentences need it. `key_places` tells where its key is set, in words."""

    name: str
    url: str
    model: str = ""
    key: str = ""
    key_places: str = ""


class Said(Struct, frozen=True):
    """What an API said about a failure."""

    message: str = ""
    type: str = ""
    code: str = ""


# --- sockets and TLS ---


def unreachable(route: Route, error: BaseException) -> ProviderError:
    """No connection. The sentence names what was tried: the proxy, if there is one, else the address."""
    if isinstance(error, ssl.SSLError):
        return tls_failed(route, error)
    why = _why(error)
    if route.proxy is not None:
        return Unreachable(
            f"Cannot reach the proxy {route.proxy.origin}: {why}.",
            f"Check HTTPS_PROXY, or list {route.to.host} in NO_PROXY.",
        )
    if route.to.is_loopback:
        return Unreachable(f"Cannot reach {route.to.origin}: {why}.", "Is the model server running there?")
    return Unreachable(f"Cannot reach {route.to.origin}: {why}.", "Check the network, the base URL and HTTPS_PROXY.")


def _why(error: BaseException) -> str:
    import socket

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
    return _line(reason).rstrip(".").lower()


def tls_failed(route: Route, error: ssl.SSLError) -> TlsFailed:
    """Only errors that OpenSSL itself reports carry its reasons."""
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


def bad_certificates(path: str, variable: str) -> TlsFailed:
    return TlsFailed(
        f"The certificates in {path} cannot be read.", f"Set {variable} to a readable file of PEM certificates."
    )


def proxy_refused(route: Route, status: int, reason: str) -> ProviderError:
    origin = route.proxy.origin if route.proxy else route.to.origin
    if status == 407:
        return AuthFailed(
            f"The proxy {origin} wants a login.",
            "Write it into HTTPS_PROXY: http://user:password@host:port.",
            status=407,
        )
    return Unreachable(
        f"The proxy {origin} does not connect to {route.to.host}: {status} {reason}".rstrip() + ".",
        f"Check HTTPS_PROXY, or list {route.to.host} in NO_PROXY.",
        status=status,
    )


def no_answer(address: Address, seconds: float) -> StreamStalled:
    return StreamStalled(
        f"{address.origin} did not begin to answer within {seconds:g} s.",
        "Try again; if it repeats, check the connection or raise header_timeout.",
    )


def silent(address: Address, seconds: float) -> StreamStalled:
    return StreamStalled(
        f"The answer of {address.origin} went silent for {seconds:g} s.",
        "Try again; if it repeats, check the connection or raise idle_timeout.",
    )


_CUT_HINT = "Try again; if it repeats, check the connection and any proxy in between."


def cut(address: Address) -> StreamCut:
    return StreamCut(f"The answer of {address.origin} was cut off before it was complete.", _CUT_HINT)


def closed(address: Address) -> StreamCut:
    return StreamCut(f"{address.origin} closed the connection before it answered.", _CUT_HINT)


def garbled(address: Address, what: str) -> BadReply:
    return BadReply(f"{address.origin} does not speak HTTP as it should: {what}.", "Check the base URL.")


# --- answers that are not a stream of events ---


def refused(peer: Peer, status: int, headers: Mapping[str, str], body: bytes) -> ProviderError:
    """The named error for an answer whose status is not 200."""
    if 300 <= status < 400:
        return _redirected(peer, status, headers)
    page = _is_page(headers, body)
    if page and (status < 500 and status != 429):
        return web_page(peer, status)
    said = Said() if page else parse_said(body)
    return name_error(peer, said, status, retry_after(headers, time.time()))


def _redirected(peer: Peer, status: int, headers: Mapping[str, str]) -> ProviderError:
    target = headers.get("location", "")
    place = target.partition("://")[2].partition("/")[0].rpartition("@")[2] or "another path"
    return BadReply(
        f"{peer.name} at {peer.url} redirects to {place}.",
        "Odin does not follow redirects: set the base URL to the final address.",
        status=status,
    )


def web_page(peer: Peer, status: int = 200) -> BadReply:
    return BadReply(
        f"{peer.name} at {peer.url} answered with a web page, not the model API (status {status}).",
        "Check the base URL, and whether a proxy or a login page stands in between.",
        status=status,
    )


def not_a_stream(peer: Peer, body: bytes) -> ProviderError:
    """Status 200, but one JSON object instead of a stream: an error told late, or a server that cannot stream."""
    said = parse_said(body)
    if said.message or said.type or said.code:
        return name_error(peer, said, 0, None)
    return BadReply(
        f"{peer.name} at {peer.url} did not stream its answer.", "Check that the base URL is that of a model API."
    )


def confessed(text: str) -> Said | None:
    """What an answer says that is nothing but the error body of an API; None for any other text."""
    try:
        value: Any = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError):
        return None
    if not isinstance(value, dict) or not cast("dict[str, Any]", value).keys() <= _ERROR_KEYS:
        return None
    error = cast("dict[str, Any]", value).get("error")
    told = cast("dict[str, Any]", error) if isinstance(error, dict) else {}
    named = isinstance(told.get("message"), str) and ("type" in told or "code" in told)
    return said_of(cast("Any", value)) if named else None


_ERROR_KEYS = {"type", "error", "request_id", "status", "code"}


def bad_event(peer: Peer, data: bytes) -> BadReply:
    start = _line(data[:80].decode("utf-8", "replace"))
    return BadReply(
        f"{peer.name} sent something that is not its API: {start!r}.", "Check the base URL and the provider's type."
    )


def incomplete(peer: Peer) -> StreamCut:
    return StreamCut(f"The answer of {peer.name} ended before it was complete.", _CUT_HINT)


# --- what the API says ---

# Patterns are compiled when first used: a start without a failure should not pay for them.
_QUOTA = (
    r"insufficient[ _](quota|balance|credit|funds)|credit balance|exceeded your current quota|billing|payment required"
)
_NO_MODEL = r"model[ _-]?not[ _-]?found|(model|deployment).{0,80}(not exist|not found|unknown)"


def _mentions(pattern: str, text: str) -> bool:
    return re.search(pattern, text, re.IGNORECASE) is not None


_BY_WORD: dict[str, int] = {
    "authentication_error": 401,
    "invalid_api_key": 401,
    "permission_error": 403,
    "billing_error": 402,
    "insufficient_quota": 402,
    "not_found_error": 404,
    "model_not_found": 404,
    "request_too_large": 413,
    "context_length_exceeded": 413,
    "exceed_context_size_error": 413,
    "rate_limit_error": 429,
    "rate_limit_exceeded": 429,
    "overloaded_error": 529,
    "server_error": 500,
    "api_error": 500,
    "internal_server_error": 500,
    "timeout_error": 504,
    "invalid_request_error": 400,
    "invalid_prompt": 400,
}


def reported(peer: Peer, said: Said) -> ProviderError:
    """The named error for an error event in the middle of a stream."""
    return name_error(peer, said, 0, None)


def name_error(peer: Peer, said: Said, status: int, wait: float | None) -> ProviderError:
    """Decide by what the API said first, by the status second."""
    kind, message, hint = _judge(peer, said, status, wait)
    error = kind(_shown(peer, message), hint, status=status, code=said.code, type=said.type, retry_after=wait)
    if isinstance(error, ContextOverflow):
        from odin.providers.overflow import named_limit, named_size

        error.limit, error.size = named_limit(said.message), named_size(said.message)
    return error


def _too_long(said: Said) -> bool:
    from odin.providers.overflow import TOO_LONG

    return _mentions(TOO_LONG, said.message)


def _judge(peer: Peer, said: Said, status: int, wait: float | None) -> tuple[type[ProviderError], str, str]:
    meant = _BY_WORD.get(said.code) or _BY_WORD.get(said.type) or 0
    if said.code.isdigit() and 400 <= int(said.code) < 600:
        meant = meant or int(said.code)
    code = status or meant or 500
    tail = f": {said.message.rstrip('.')}" if said.message else ""
    if 413 in (code, meant) or (code in (400, 422, 500) and _too_long(said)):
        who = peer.model or peer.name
        hint = "Start a new session, or ask for less at once."
        return ContextOverflow, f"The conversation is too long for {who}{tail}.", hint
    if 402 in (code, meant) or (code in (400, 403, 429) and _mentions(_QUOTA, said.message)):
        return QuotaExhausted, f"The quota or credit at {peer.name} is used up{tail}.", "Check the billing there."
    if code in (401, 403):
        return AuthFailed, *_auth(peer, tail)
    if code == 429:
        return RateLimited, *_slow_down(peer, tail, wait)
    if code == 404 or (code == 400 and _mentions(_NO_MODEL, said.message)):
        return ModelNotFound, *_not_found(peer, tail)
    if code >= 500 or code in (408, 425):
        return Overloaded, f"{peer.name} is overloaded or failing (status {code}){tail}.", "Try again in a moment."
    hint = "Check what it names: the model, max_tokens, thinking, or the tools setting of this model."
    if "cache_control" in said.message:
        hint = f"Set providers.{peer.name}.prompt_caching to false."
    return BadRequest, f"{peer.name} refused the request (status {code}){tail}.", hint


def _auth(peer: Peer, tail: str) -> tuple[str, str]:
    places = peer.key_places or f"providers.{peer.name}.api_key"
    if peer.key:
        return f"{peer.name} refused the key{tail}.", f"Check {places}."
    return f"{peer.name} wants a key{tail}.", f"Set {places}."


def _slow_down(peer: Peer, tail: str, wait: float | None) -> tuple[str, str]:
    if wait:
        asked = f"{peer.name} asks to wait {math.ceil(wait)} s{tail}."
        return asked, "Try again after that, or use another model."
    return f"{peer.name} asks to slow down{tail}.", "Try again in a moment, or use another model."


def _not_found(peer: Peer, tail: str) -> tuple[str, str]:
    hint = f"Run `odin models` to see what there is, and check the base URL {peer.url}."
    if peer.model:
        return f"{peer.name} has no model {peer.model!r}{tail}.", hint
    return f"{peer.name} does not know that address{tail}.", hint


def parse_said(body: bytes) -> Said:
    """What an error body says, in any of the shapes in use."""
    try:
        value: Any = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeError):
        return Said(_line(body[:300].decode("utf-8", "replace")))
    return said_of(value)


def said_of(value: Any) -> Said:
    if isinstance(value, list) and value:
        return said_of(cast("list[Any]", value)[0])
    if isinstance(value, str):
        return Said(_line(value))
    if not isinstance(value, dict):
        return Said()
    found = cast("dict[str, Any]", value)
    inner = found.get("error")
    if isinstance(inner, str) and inner:
        return Said(_line(inner), _text(found.get("type")), _text(found.get("code")))
    if isinstance(inner, dict):
        found = cast("dict[str, Any]", inner)
    elif found.get("object") != "error" and found.get("type") != "error" and "detail" not in found:
        return Said() if "message" not in found or "choices" in found else Said(_line(_text(found["message"])))
    message = found.get("message") or found.get("detail") or ""
    kind = _text(found.get("type"))
    return Said(_line(_text(message)), "" if kind == "error" else kind, _text(found.get("code")))


def _text(value: Any) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _line(text: str, limit: int = 300) -> str:
    """One line of at most `limit` characters."""
    flat = " ".join(text.split())
    return flat if len(flat) <= limit else flat[: limit - 1] + "…"


def _shown(peer: Peer, message: str) -> str:
    return message.replace(peer.key, "[key]") if len(peer.key) > 3 else message


def _is_page(headers: Mapping[str, str], body: bytes) -> bool:
    return "html" in headers.get("content-type", "").lower() or looks_like_page(body)


def looks_like_page(body: bytes) -> bool:
    start = body[:512].lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    return start.startswith((b"<!doctype", b"<html", b"<head", b"<body", b"<?xml"))


# --- how long to wait ---


def retry_after(headers: Mapping[str, str], now: float) -> float | None:
    """Seconds the server asks us to wait, or None. Garbage is no answer."""
    milliseconds = _number(headers.get("retry-after-ms", ""))
    if milliseconds is not None:
        return max(0.0, milliseconds / 1000)
    asked = headers.get("retry-after", "").strip()
    if asked:
        seconds = _number(asked)
        return max(0.0, seconds) if seconds is not None else _until_date(asked, now)
    waits = [
        wait
        for name, value in headers.items()
        if "ratelimit" in name and "reset" in name and _is_spent(headers, name)
        for wait in [reset_after(value.strip(), now)]
        if wait is not None
    ]
    return max(waits, default=None)


def _is_spent(headers: Mapping[str, str], reset_name: str) -> bool:
    """Whether the limit this reset belongs to is the one that was hit."""
    left = headers.get(reset_name.replace("reset", "remaining"))
    return left is None or left.strip() == "0"


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if -1e15 < value < 1e15 else None


def _until_date(text: str, now: float) -> float | None:
    from email.utils import parsedate_to_datetime

    try:
        return max(0.0, parsedate_to_datetime(text).timestamp() - now)
    except (ValueError, TypeError, OverflowError):
        return None


_SPAN = r"(\d+(?:\.\d+)?)(ms|s|m|h|d)"
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def reset_after(text: str, now: float) -> float | None:
    """A rate limit's reset: seconds, a moment in seconds or milliseconds, a span like 6m0s, or a date."""
    value = _number(text)
    if value is not None:
        moment = value / 1000 if value > 1e11 else value
        return max(0.0, moment - now if moment > 1e9 else moment)
    if re.fullmatch(f"(?:{_SPAN})+", text):
        return sum(float(amount) * _UNITS[unit] for amount, unit in re.findall(_SPAN, text))
    from datetime import datetime

    try:
        return max(0.0, datetime.fromisoformat(text).timestamp() - now)
    except (ValueError, OverflowError):
        return None
