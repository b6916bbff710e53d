"""The work of WebFetch: fetch a page, convert it to text, and let the small model answer a question about it.

A page's URL is normalized once, so that the permission rules, the cache and the request agree on the host. HTML is
converted to Markdown in a separate process (`converter.py`), because the native converter blocks the whole process
and its input is untrusted. The small model answers the question about the page, so the main model does not read it.
"""

import asyncio
import codecs
import re
import sys
from pathlib import Path
from urllib.parse import quote, urlsplit, urlunsplit

import msgspec
from msgspec import Struct

from odin.core.background_prompts import WEB_ANSWER_PROMPT, PageQuestion, extract_excerpt
from odin.core.errors import OdinError
from odin.core.profile import READ
from odin.core.provider import Fetch, FetchResponse
from odin.core.tool import AskSmallModel, ToolOutput, fail
from odin.sandbox.runner import ProcessRunner

MAX_URL_CHARS = 8000
_SAFE_CHARS = "/!$&'()*+,;=:@%~?[]"

_MARKS = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))
_HEAD_BYTES = 4096
_CHARSET_DECLARATION = (
    rb"""(?i)<meta[^>]{0,200}charset\s*=\s*["']?\s*([\w.:-]+)|<\?xml[^>]{0,100}encoding\s*=\s*["']([\w.:-]+)"""
)

_WEB_NAMES = {"iso-8859-1": "cp1252", "latin-1": "cp1252", "latin1": "cp1252", "us-ascii": "cp1252", "ascii": "cp1252"}
"""Charsets that browsers decode as windows-1252."""

_REFUSED_CODECS = frozenset(("punycode", "idna", "utf-7", "unicode_escape", "raw_unicode_escape", "unicode-escape"))
"""Codecs that browsers do not support. punycode takes hours for a large page; others produce lone surrogates."""

MAX_TEXT = 200_000
"""Maximum characters kept of one page."""

CONVERT_SECONDS = 30.0
_CONVERTER = Path(__file__).with_name("converter.py")
_TEXT_TYPES = r"text/|application/(?:[\w.+-]*\+)?(?:json|xml|yaml|toml|javascript|x-ndjson|x-sh|sql)$|image/svg\+xml$"
_FEW_CHARS = 200

_SNIFFED_CHARS = 20_000
"""Characters checked for HTML tags in a page without a content type."""

MAX_BYTES = 5_000_000

MAX_MODEL_CHARS = 50_000
"""Maximum characters of a page that the small model reads."""

MAX_FALLBACK_CHARS = 8_000
"""Maximum characters of a page shown when the small model fails."""

_ANSWER_SECONDS = 180.0
_QUOTED_CHARS = 300


class InvalidUrl(ValueError):
    """Not a URL that WebFetch can use. The message says why and never contains credentials."""


def normalize_url(text: str) -> str:
    """Return the URL with a lower-case ASCII host and an encoded path, without fragment. Raise InvalidUrl."""
    text = text.strip()
    if len(text) > MAX_URL_CHARS:
        raise InvalidUrl(f"The URL has {len(text):,} characters; the limit is {MAX_URL_CHARS:,}.")
    try:
        parts = urlsplit(text)
        host, port, login = parts.hostname or "", parts.port, "@" in parts.netloc
    except ValueError:
        raise InvalidUrl("The URL is invalid. Write it like https://example.org/page.") from None
    if parts.scheme not in ("http", "https"):
        problem = f"{parts.scheme}:" if parts.scheme and "." not in parts.scheme else "one without http:// or https://"
        raise InvalidUrl(f"WebFetch reads http and https URLs, not {problem}. Write https://example.org/page.")
    if login:
        raise InvalidUrl("The URL contains a login, which WebFetch does not send. Leave it out.")
    if ":" in host:
        name = f"[{host}]"
    else:
        try:
            name = host.encode("idna").decode("ascii") if not host.isascii() else host
        except UnicodeError:
            name = ""
        name = name.lower().removesuffix(".")
        if not name or not all(char.isalnum() or char in "-._" for char in name):
            raise InvalidUrl("The URL has no valid host. Write it like https://example.org/page.")
    netloc = f"{name}:{port}" if port is not None else name
    return urlunsplit(
        (parts.scheme, netloc, quote(parts.path or "/", safe=_SAFE_CHARS), quote(parts.query, safe=_SAFE_CHARS), "")
    )


def decode_page(body: bytes, content_type: str) -> str:
    """Decode a page by its byte order mark, its declared charset if that fits, else UTF-8, else windows-1252."""
    for mark, name in _MARKS:
        if body.startswith(mark):
            return body[len(mark) :].decode(name, "replace")
    # The charsets declared by the header and the page. A readable declaration of UTF-16 must be wrong.
    header = re.search(r"(?i)charset\s*=\s*[\"']?([\w.:-]+)", content_type)
    declared = re.search(_CHARSET_DECLARATION, body[:_HEAD_BYTES])
    written = (declared[1] or declared[2]).decode("ascii").lower() if declared else ""
    names = [header[1].lower() if header else "", "utf-8" if written.startswith(("utf-16", "utf-32")) else written]
    names = [_WEB_NAMES.get(name.replace("_", "-"), name) for name in names if name]
    for name in (*names, "utf-8"):
        # Decode, ignoring a character cut off at the end; None if the encoding is unknown or does not fit.
        try:
            if codecs.lookup(name).name in _REFUSED_CODECS:
                text = None
            else:
                b" ".decode(name, "replace")  # rejects codecs that turn bytes into bytes
                text = codecs.getincrementaldecoder(name)("strict").decode(body, False)
        except (LookupError, ValueError):
            text = None
        if text is not None:
            return text
    return body.decode("utf-8" if "utf-8" in names else "cp1252", "replace")


class UnreadablePage(Exception):
    """A page without readable text. The message says what it is."""


class WebPage(Struct, frozen=True):
    """A page as text. `total` is its length before it was cut. `needs_scripts`: scripts would fill it in a browser."""

    text: str
    title: str = ""
    total: int = 0
    needs_scripts: bool = False


async def read_page(fetched: FetchResponse, runner: ProcessRunner) -> WebPage:
    """Return the page as text, HTML as Markdown. Raise UnreadablePage if it is not text or cannot be converted."""
    kind = fetched.content_type.partition(";")[0].strip().lower()
    body = fetched.body
    if _is_binary(kind, body):
        size = f"{len(body):,} bytes" if fetched.complete else f"more than {len(body):,} bytes"
        raise UnreadablePage(f"it is not text but {kind or 'of unknown type'} ({size})")
    text = decode_page(body, fetched.content_type)
    if kind in ("text/html", "application/xhtml+xml") or (kind in ("", "text/plain") and _is_html(text)):
        conversion = await runner.run_with_input(
            [sys.executable, "-I", str(_CONVERTER), "html", fetched.url, str(MAX_TEXT)],
            cwd="/",
            timeout=CONVERT_SECONDS,
            stdin=text.encode("utf-8", "replace"),
            env={},
            stop_after=MAX_TEXT * 8,
            profile=READ,
        )
        if conversion.timed_out:
            raise UnreadablePage(f"its HTML could not be converted within {CONVERT_SECONDS:g} s")
        try:
            page = msgspec.json.decode(conversion.data, type=WebPage)
        except msgspec.DecodeError:
            reason = conversion.errors.strip().rsplit("\n", 1)[-1] or f"exit code {conversion.code}"
            raise UnreadablePage(f"its HTML could not be converted ({reason[:200]})") from None
        return msgspec.structs.replace(page, needs_scripts=_needs_scripts(text, page.text))
    text = text.strip()
    return WebPage(text[:MAX_TEXT], total=len(text))


def _is_binary(kind: str, body: bytes) -> bool:
    """True if the page is binary. Bytes count before the content type, which may be wrong; UTF-16 has a BOM."""
    if body.startswith((b"\xff\xfe", b"\xfe\xff")):
        return False
    if b"\0" in body[:8192]:
        return True
    if not kind or kind in ("application/octet-stream", "application/xhtml+xml"):
        return False
    return re.match(_TEXT_TYPES, kind) is None


def _is_html(text: str) -> bool:
    start = text[:_SNIFFED_CHARS].lstrip()
    while start.startswith("<!--"):
        start = start.partition("-->")[2].lstrip()
    return re.match(r"(?i)<(?:!doctype html|html|head|body)\b", start) is not None


def _needs_scripts(html: str, text: str) -> bool:
    """True if the page has hardly any text and scripts that would fill it, or asks to enable JavaScript."""
    if len(text) > _FEW_CHARS or not re.search(r"(?i)<script\b", html):
        return False
    names = "root|app|__next|__nuxt|___gatsby|main|svelte|q-app"
    placeholder = rf"""<div[^<>]{{0,200}}\bid\s{{0,9}}=\s{{0,9}}["']?(?:{names})\b|<app-root\b"""
    notice = r"<noscript\b.{0,2000}?(?:javascript|scripts?\b)"
    return re.search(f"(?is)(?:{placeholder}|{notice})", html) is not None


async def answer_about_page(
    url: str, prompt: str, fetch: Fetch, small_model: AskSmallModel, runner: ProcessRunner
) -> ToolOutput:
    """Return the answer of the small model to the prompt about the page, or the page itself if it fails."""
    if not prompt.strip():
        return fail("The prompt is empty. Say what to find out from the page.")
    try:
        fetched = await fetch(normalize_url(url), limit=MAX_BYTES)
    except InvalidUrl as error:
        return fail(str(error))
    except OdinError as error:
        return fail(error.describe())
    if fetched.location:
        text = (
            f"{fetched.url} redirects to another host, which was not read: {fetched.location}\n"
            "Call WebFetch with that URL to read it."
        )
        return ToolOutput(text=text, note=f"{fetched.url} redirects elsewhere")
    is_ok = 200 <= fetched.status < 300
    try:
        page = await read_page(fetched, runner)
    except UnreadablePage as error:
        if not is_ok:
            return fail(_describe_http_error(fetched, ""))
        advice = "If you need it, download it with ExecuteCommand and read the file."
        return fail(f"{fetched.url} cannot be shown: {error}. {advice}")
    if not is_ok:
        return fail(_describe_http_error(fetched, page.text))
    if not page.text:
        return fail(f"{fetched.url} has no text ({len(fetched.body):,} bytes).{_describe_script_page(page)}")
    return await _ask_small_model(prompt, fetched, page, small_model)


async def _ask_small_model(
    prompt: str, fetched: FetchResponse, page: WebPage, small_model: AskSmallModel
) -> ToolOutput:
    shown = extract_excerpt(page.text, prompt, MAX_MODEL_CHARS)
    question = PageQuestion(fetched.url, prompt, shown, page.title)
    try:
        async with asyncio.timeout(_ANSWER_SECONDS):
            answer = await small_model(WEB_ANSWER_PROMPT, question.render())
        notes: list[str] = []
    except (OdinError, TimeoutError) as error:
        reason = str(error) or f"no answer within {_ANSWER_SECONDS:g} s"
        answer = shown = extract_excerpt(page.text, prompt, MAX_FALLBACK_CHARS)
        notes = [f"The small model failed ({reason}): this is the page itself."]
    notes += _list_caveats(fetched, page, len(shown))
    heading = f"{fetched.url}: {page.title}" if page.title else fetched.url
    text = "\n\n".join([heading, answer, *(f"({note})" for note in notes)])
    return ToolOutput(text=text, note=f"Read {fetched.url}: {len(page.text):,} characters")


def _describe_http_error(fetched: FetchResponse, text: str) -> str:
    quoted = " ".join(text.split())[:_QUOTED_CHARS]
    tail = f" The page says: {quoted}" if quoted else ""
    return f"{fetched.url} returned HTTP status {fetched.status}. Check the URL.{tail}"


def _list_caveats(fetched: FetchResponse, page: WebPage, shown: int) -> list[str]:
    """Return notes about parts of the page that were not read, and doubts about it."""
    notes: list[str] = []
    if not fetched.complete:
        notes.append(f"The page is longer than {MAX_BYTES:,} bytes; the rest was not read.")
    if page.total > len(page.text) or shown < len(page.text):
        limit_note = f", of the first {len(page.text):,}" if page.total > len(page.text) else ""
        notes.append(
            f"{shown:,} of {page.total:,} characters were read: the beginning and what matches the prompt{limit_note}. "
            "For all of it, download the page with ExecuteCommand."
        )
    if page.needs_scripts:
        notes.append(_describe_script_page(page).strip())
    return notes


def _describe_script_page(page: WebPage) -> str:
    if not page.needs_scripts:
        return ""
    return " This page is suspect: it has hardly any text and is filled by scripts, which do not run here."
