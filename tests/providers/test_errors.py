"""Errors of model servers: their types, messages and hints, and how long to wait."""

import base64
import json
import socket
import ssl
from email.utils import formatdate
from typing import Any
from urllib.parse import quote

import pytest

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
)
from odin.providers import errors
from odin.providers.address import Route, parse_address
from odin.providers.errors import (
    ApiErrorInfo,
    ErrorContext,
    make_not_streamed_error,
    make_reported_error,
    make_status_error,
    parse_retry_after,
)
from tests.table import each

KEY = 'sk-very/secret"key+x'
PEER = ErrorContext(
    "anthropic", "https://api.test/v1/messages", "claude-x", KEY, "ANTHROPIC_API_KEY or providers.anthropic.api_key"
)
OPENAI = "You exceeded your current quota, please check your plan and billing details."
NO_CARD = "Rate limit reached. Add a payment method at https://platform.openai.com/account/billing to increase it."


def make_anthropic_error(kind: str, message: str = "why") -> dict[str, Any]:
    return {"type": "error", "error": {"type": kind, "message": message}, "request_id": "req_1"}


def make_openai_error(message: str = "why", kind: str | None = None, code: Any = None) -> dict[str, Any]:
    return {"error": {"message": message, "type": kind, "code": code, "param": None}}


def make_openrouter_error(code: int, raw: Any) -> dict[str, Any]:
    """Return the error of another provider as OpenRouter passes it on."""
    text = raw if isinstance(raw, str) else json.dumps(raw)
    about = {"raw": text, "provider_name": "anthropic"}
    return {"error": {"message": "Provider returned error", "code": code, "metadata": about}, "user_id": "u"}


@each(
    ("status", "body", "error"),
    [
        (401, make_anthropic_error("authentication_error", "invalid x-api-key"), AuthFailed),
        (403, make_anthropic_error("permission_error"), AuthFailed),
        (401, make_openai_error("Incorrect API key provided", "invalid_request_error", "invalid_api_key"), AuthFailed),
        (401, {"detail": "Unauthorized"}, AuthFailed),
        (
            400,
            {"code": "invalid argument", "error": "Incorrect API key provided: xa***."},
            AuthFailed,
        ),
        (400, make_anthropic_error("invalid_request_error", "This organization has been disabled."), AuthFailed),
        (402, {"error": {"message": "Insufficient Balance", "type": "unknown_error"}}, QuotaExhausted),
        (429, make_openai_error(OPENAI, "insufficient_quota", "insufficient_quota"), QuotaExhausted),
        (
            400,
            make_anthropic_error("invalid_request_error", "Your credit balance is too low to access the API."),
            QuotaExhausted,
        ),
        (429, make_anthropic_error("rate_limit_error", "This request would exceed your rate limit"), RateLimited),
        (429, make_openai_error("Rate limit reached for tokens per min", "tokens", "rate_limit_exceeded"), RateLimited),
        (429, make_openai_error(NO_CARD, "requests", "rate_limit_exceeded"), RateLimited),
        (
            429,
            make_openrouter_error(429, "claude-x is temporarily rate-limited upstream. Please retry shortly."),
            RateLimited,
        ),
        (429, b"", RateLimited),
        (404, make_anthropic_error("not_found_error", "model: claude-x"), ModelNotFound),
        (
            404,
            make_openai_error("The model `x` does not exist", "invalid_request_error", "model_not_found"),
            ModelNotFound,
        ),
        (404, {"error": "model 'x' not found"}, ModelNotFound),
        (400, {"object": "error", "message": "model x does not exist", "type": "invalid_model"}, ModelNotFound),
        (413, make_anthropic_error("request_too_large", "Request exceeds the maximum size"), ContextOverflow),
        (
            400,
            make_anthropic_error("invalid_request_error", "prompt is too long: 9 tokens > 8 maximum"),
            ContextOverflow,
        ),
        (
            400,
            make_openrouter_error(400, make_anthropic_error("x", "prompt is too long: 9 tokens > 8 maximum")),
            ContextOverflow,
        ),
        (400, make_openai_error(f"{'Invalid request. ' * 30}The maximum context length is 8 tokens."), ContextOverflow),
        (400, make_openai_error("too big", "invalid_request_error", "context_length_exceeded"), ContextOverflow),
        (400, make_openai_error("This model's maximum context length is 8192 tokens."), ContextOverflow),
        (400, make_openai_error("the request exceeds the room", "exceed_context_size_error", 400), ContextOverflow),
        (500, {"error": {"message": "Context size has been exceeded."}}, ContextOverflow),
        (
            400,
            make_anthropic_error("invalid_request_error", "messages: text content blocks must be non-empty"),
            BadRequest,
        ),
        (422, {"detail": [{"loc": ["body"], "msg": "field required"}]}, BadRequest),
        (400, b"not json at all", BadRequest),
        (418, b"", BadRequest),
        (408, b"", Overloaded),
        (500, make_anthropic_error("api_error"), Overloaded),
        (502, b"<html><h1>502 Bad Gateway</h1></html>", Overloaded),
        (503, make_openai_error("The engine is overloaded", "server_error"), Overloaded),
        (529, make_anthropic_error("overloaded_error", "Overloaded"), Overloaded),
        (404, b"<!DOCTYPE html><title>Not found</title>", BadReply),
        (403, b"<html>blocked by policy</html>", BadReply),
    ],
)
def test_status_and_body_determine_the_error_type(status: int, body: Any, error: type[ProviderError]) -> None:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    found = make_status_error(PEER, status, {}, raw)
    assert type(found) is error
    assert found.status == status
    assert found.hint
    assert "anthropic" in found.describe() or "claude-x" in found.describe()
    assert str(found).endswith(".")
    assert "\n" not in found.describe()


def test_message_of_the_provider_behind_a_gateway_is_shown() -> None:
    body = make_openrouter_error(400, make_anthropic_error("invalid_request_error", f"messages: {'x' * 400}"))
    found = make_status_error(PEER, 400, {}, json.dumps(body).encode())
    assert "(status 400): anthropic: messages: xxx" in str(found)
    assert (found.type, len(str(found)) < 400) == ("invalid_request_error", True)
    empty = make_status_error(PEER, 502, {}, json.dumps(make_openrouter_error(502, "{}")).encode())
    assert "Provider returned error" in str(empty)


@each(
    ("reported", "error"),
    [
        (ApiErrorInfo("Overloaded", "overloaded_error"), Overloaded),
        (ApiErrorInfo("Internal", "api_error"), Overloaded),
        (ApiErrorInfo("slow down", "rate_limit_error"), RateLimited),
        (ApiErrorInfo("why", "", "rate_limit_exceeded"), RateLimited),
        (ApiErrorInfo("why", "", "429"), RateLimited),
        (ApiErrorInfo("why", "", "server_error"), Overloaded),
        (ApiErrorInfo("why", "invalid_request_error"), BadRequest),
        (ApiErrorInfo("why", "", "invalid_prompt"), BadRequest),
        (ApiErrorInfo("why", "", "context_length_exceeded"), ContextOverflow),
        (ApiErrorInfo("why", "", "insufficient_quota"), QuotaExhausted),
        (ApiErrorInfo("why", "authentication_error"), AuthFailed),
        (ApiErrorInfo("prompt is too long: 5 tokens > 4 maximum", "invalid_request_error"), ContextOverflow),
        (ApiErrorInfo("something odd"), Overloaded),
        (ApiErrorInfo(), Overloaded),
    ],
)
def test_error_event_determines_the_error_type(reported: ApiErrorInfo, error: type[ProviderError]) -> None:
    found = make_reported_error(PEER, reported)
    assert type(found) is error
    assert (found.code, found.type) == (reported.code, reported.type)
    assert reported.message in str(found)
    assert found.hint


ADDRESS = parse_address("https://api.test/v1")
DIRECT_ROUTE = Route(ADDRESS)
PROXY_ROUTE = Route(ADDRESS, parse_address("http://proxy.test:3128"))
LOCAL_ROUTE = Route(parse_address("http://127.0.0.1:11434/v1"))


@pytest.mark.parametrize(
    "error",
    [
        *(
            errors.make_unreachable_error(route, error)
            for route in (DIRECT_ROUTE, PROXY_ROUTE, LOCAL_ROUTE)
            for error in (
                TimeoutError(),
                ConnectionRefusedError(),
                socket.gaierror(),
                ConnectionResetError(),
                OSError(),
            )
        ),
        errors.make_unreachable_error(DIRECT_ROUTE, ssl.SSLError()),
        errors.make_tls_error(DIRECT_ROUTE, ssl.SSLCertVerificationError()),
        errors.make_certificate_error("ca.pem", "SSL_CERT_FILE"),
        errors.make_proxy_error(PROXY_ROUTE, 407, "Login"),
        errors.make_proxy_error(PROXY_ROUTE, 503, ""),
        errors.make_header_timeout_error(ADDRESS, 5),
        errors.make_idle_timeout_error(ADDRESS, 5),
        errors.make_cut_error(ADDRESS),
        errors.make_closed_error(ADDRESS),
        errors.make_protocol_error(ADDRESS, "no status"),
        errors.make_web_page_error(PEER),
        make_not_streamed_error(PEER, b"[]"),
        errors.make_bad_event_error(PEER, b"{"),
        errors.make_incomplete_error(PEER),
        *(make_status_error(PEER, 429, {"retry-after": wait}, b"") for wait in ("0", "5", "soon")),
    ],
    ids=lambda error: str(error)[:60],
)
def test_every_error_has_a_hint(error: ProviderError) -> None:
    assert str(error).endswith(".")
    assert error.hint.endswith((".", "?"))


def test_every_status_has_a_hint() -> None:
    assert [status for status in range(300, 600) if not make_status_error(PEER, status, {}, b"").hint] == []


@pytest.mark.parametrize(
    ("headers", "sentence"),
    [
        (
            {"retry-after": "3600"},
            "anthropic: rate limit reached, retry after 3600 s: why. Try again after that, or use another model.",
        ),
        (
            {"retry-after": "0.2"},
            "anthropic: rate limit reached, retry after 1 s: why. Try again after that, or use another model.",
        ),
        ({"retry-after": "0"}, "anthropic: rate limit reached: why. Try again in a moment, or use another model."),
        ({}, "anthropic: rate limit reached: why. Try again in a moment, or use another model."),
    ],
)
def test_rate_limit_message_says_how_long_to_wait(headers: dict[str, str], sentence: str) -> None:
    assert (
        make_status_error(PEER, 429, headers, json.dumps(make_anthropic_error("rate_limit_error")).encode()).describe()
        == sentence
    )


def test_timeout_hint_names_the_setting() -> None:
    stalled: tuple[StreamStalled, ...] = (
        errors.make_idle_timeout_error(ADDRESS, 90),
        errors.make_header_timeout_error(ADDRESS, 120),
    )
    assert ["idle_timeout" in error.hint for error in stalled] == [True, False]
    assert ["header_timeout" in error.hint for error in stalled] == [False, True]
    cuts: tuple[StreamCut, ...] = (
        errors.make_cut_error(ADDRESS),
        errors.make_closed_error(ADDRESS),
        errors.make_incomplete_error(PEER),
    )
    assert all("Try again" in error.hint and "timeout" not in error.hint for error in cuts)


def test_context_overflow_message_says_what_to_do() -> None:
    found = make_status_error(PEER, 413, {}, b"")
    assert found.describe() == (
        "The conversation is too long for claude-x. Start a new session, or ask for less at once."
    )


@each(
    "form",
    [
        base64.b64encode(KEY.encode()).decode(),
        base64.urlsafe_b64encode(f"user:{KEY}".encode()).decode(),
        base64.b64encode(f":{KEY}:x".encode()).decode(),
        quote(KEY, safe=""),
        quote(KEY, safe="").lower(),
        KEY.encode().hex(),
        json.dumps(KEY)[1:-1],
    ],
)
def test_encoded_key_is_hidden(form: str) -> None:
    texts = (f"bad header Basic {form}", f"{'x' * 190} {form}")
    found = [
        make_status_error(PEER, 401, {}, json.dumps(make_openai_error(text, form, form)).encode()) for text in texts
    ]
    found.append(make_status_error(PEER, 302, {"location": f"https://{form}.test/"}, b""))
    for error in found:
        shown = f"{error.describe()} {error.code} {error.type}"
        assert not find_common(shown, form, 8), shown


def find_common(text: str, secret: str, size: int) -> str:
    """Return a part of the secret of this size that the text contains, or ""."""
    return next((secret[at : at + size] for at in range(len(secret) - size + 1) if secret[at : at + size] in text), "")


def test_login_of_a_proxy_is_hidden() -> None:
    route = Route(parse_address("https://api.test/"), parse_address("http://user:Pr0xy-pass-word@proxy.test:3128"))
    login = base64.b64encode(b"user:Pr0xy-pass-word").decode()
    assert not find_common(str(errors.make_proxy_error(route, 502, f"no {login}")), login, 8)


def test_refused_key_is_hidden_and_its_setting_is_named() -> None:
    found = make_status_error(
        PEER, 401, {}, json.dumps(make_openai_error(f"Incorrect API key provided: {KEY}.")).encode()
    )
    assert str(found) == "anthropic refused the key: Incorrect API key provided: [key]."
    assert found.hint == "Check ANTHROPIC_API_KEY or providers.anthropic.api_key."
    assert KEY not in found.describe()


def test_missing_key_is_reported_as_missing() -> None:
    found = make_status_error(ErrorContext("local", "http://x/v1"), 401, {}, b"")
    assert found.describe() == "local requires an API key. Set providers.local.api_key."


def test_unknown_model_error_refers_to_the_model_list() -> None:
    found = make_status_error(
        PEER, 404, {}, json.dumps(make_anthropic_error("not_found_error", "model: claude-x")).encode()
    )
    assert str(found) == "anthropic has no model 'claude-x': model: claude-x."
    assert "`odin models`" in found.hint
    assert PEER.url in found.hint


@pytest.mark.parametrize("location", ["https://login.corp.test/sso?x=1", "//login.corp.test/sso"])
def test_redirect_error_names_the_target(location: str) -> None:
    found = make_status_error(PEER, 302, {"location": location}, b"")
    assert isinstance(found, BadReply)
    assert ("login.corp.test" in str(found)) == location.startswith("https")
    assert "base URL" in found.hint


def test_web_page_instead_of_json_is_reported() -> None:
    found = make_status_error(PEER, 404, {"content-type": "text/html; charset=utf-8"}, b"hello")
    assert "answered with a web page, not the model API" in str(found)
    assert "base URL" in found.hint


def test_gateway_that_cannot_cache_gets_its_own_hint() -> None:
    reported = json.dumps(
        make_anthropic_error("invalid_request_error", "cache_control: Extra inputs are not permitted")
    ).encode()
    assert make_status_error(PEER, 400, {}, reported).hint == "Set providers.anthropic.prompt_caching to false."


def test_long_message_is_truncated() -> None:
    found = make_status_error(PEER, 400, {}, json.dumps(make_openai_error("word\n" * 1000)).encode())
    assert len(str(found)) < 400
    assert "…" in str(found)


def test_json_object_instead_of_a_stream_is_an_error() -> None:
    assert (
        type(make_not_streamed_error(PEER, json.dumps(make_anthropic_error("overloaded_error")).encode())) is Overloaded
    )
    assert type(make_not_streamed_error(PEER, b'{"choices": [{"message": {"content": "hi"}}]}')) is BadReply
    assert type(make_not_streamed_error(PEER, b"[]")) is BadReply


NOW = 1_800_000_000.0


@each(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "3"}, 3.0),
        ({"retry-after": " 0.5 "}, 0.5),
        ({"retry-after": "-4"}, 0.0),
        ({"retry-after": formatdate(NOW + 60, usegmt=True)}, 60.0),
        ({"retry-after": formatdate(NOW - 60, usegmt=True)}, 0.0),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "inf"}, None),
        ({"retry-after": "Wed, 99 Foo 2026 99:99:99 GMT"}, None),
        ({"retry-after-ms": "1500", "retry-after": "9"}, 1.5),
        ({"retry-after-ms": "x", "retry-after": "9"}, 9.0),
        ({"x-ratelimit-reset-requests": "6m0s", "x-ratelimit-remaining-requests": "0"}, 360.0),
        ({"x-ratelimit-reset-tokens": "20ms", "x-ratelimit-remaining-tokens": "0"}, 0.02),
        ({"x-ratelimit-reset-tokens": "20s", "x-ratelimit-remaining-tokens": "77"}, None),
        ({"x-ratelimit-reset": str(int((NOW + 30) * 1000))}, 30.0),
        ({"x-ratelimit-reset": str(int(NOW + 30))}, 30.0),
        ({"x-ratelimit-reset": "12"}, 12.0),
        ({"anthropic-ratelimit-requests-reset": "2027-01-15T08:00:10Z"}, 10.0),
        ({"x-ratelimit-reset": "tomorrow"}, None),
    ],
)
def test_retry_after_is_parsed_from_the_headers(headers: dict[str, str], seconds: float | None) -> None:
    found = parse_retry_after(headers, NOW)
    assert found == (None if seconds is None else pytest.approx(seconds, abs=0.01))


def test_error_carries_the_retry_after() -> None:
    assert make_status_error(PEER, 429, {"retry-after": "7"}, b"").retry_after == 7.0
    assert make_status_error(PEER, 529, {}, b"").retry_after is None
