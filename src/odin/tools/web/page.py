"""What a web server sent, made readable: HTML as Markdown, other text as it is, and a sentence for everything else."""

import asyncio
import os
import re
import sys
from pathlib import Path

import msgspec
from msgspec import Struct

from odin.core.tool import FetchResponse
from odin.policy.process.runner import ProcessRunner
from odin.tools.web.charset import decode_page

MAX_TEXT = 200_000
"""Characters kept of one page."""

CONVERT_SECONDS = 30.0
_MARKDOWN_PROGRAM = Path(__file__).with_name("web_markdown.py")
_TEXT_TYPES = r"text/|application/(?:[\w.+-]*\+)?(?:json|xml|yaml|toml|javascript|x-ndjson|x-sh|sql)$|image/svg\+xml$"
_FEW_CHARS = 200
_SNIFFED_CHARS = 20_000
"""Characters in which a page without a type shows that it is HTML."""


class UnreadablePage(Exception):
    """A page without text that could be shown. The message says what it is."""


class WebPage(Struct, frozen=True):
    """A page as text. `total` is how long the text was before it was cut; `shell` says that scripts would fill it."""

    text: str
    title: str = ""
    total: int = 0
    needs_scripts: bool = False


async def read_page(fetched: FetchResponse, runner: ProcessRunner) -> WebPage:
    """Raises Unreadable when it is not text, or its HTML cannot be converted."""
    kind = fetched.content_type.partition(";")[0].strip().lower()
    body = fetched.body
    if _is_binary(kind, body):
        size = f"{len(body):,} bytes" if fetched.complete else f"more than {len(body):,} bytes"
        raise UnreadablePage(f"it is not text but {kind or 'of no stated type'} ({size})")
    text = decode_page(body, fetched.content_type)
    if kind in ("text/html", "application/xhtml+xml") or (kind in ("", "text/plain") and _is_html(text)):
        return await _convert_html(text, fetched.url, runner)
    text = text.strip()
    return WebPage(text[:MAX_TEXT], total=len(text))


def _is_binary(kind: str, body: bytes) -> bool:
    """By the bytes first: a type may be wrong or missing. Text in 16-bit characters has its mark or its charset."""
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


async def _convert_html(html: str, address: str, runner: ProcessRunner) -> WebPage:
    import tempfile

    handle, name = tempfile.mkstemp(prefix="odin-page-", suffix=".html")
    try:
        with os.fdopen(handle, "w", encoding="utf-8", errors="replace") as file:
            await asyncio.to_thread(file.write, html)
        argv = [sys.executable, "-I", str(_MARKDOWN_PROGRAM), name, address, str(MAX_TEXT)]
        done = await runner.capture(argv, cwd=str(Path(name).parent), timeout=CONVERT_SECONDS, stop_after=MAX_TEXT * 8)
    finally:
        Path(name).unlink(missing_ok=True)
    if done.timed_out:
        raise UnreadablePage(f"its HTML could not be converted within {CONVERT_SECONDS:g} s")
    try:
        page = msgspec.json.decode(done.data, type=WebPage)
    except msgspec.DecodeError:
        reason = done.errors.strip().rsplit("\n", 1)[-1] or f"exit code {done.code}"
        raise UnreadablePage(f"its HTML could not be converted ({reason[:200]})") from None
    return msgspec.structs.replace(page, shell=_needs_scripts(html, page.text))


def _needs_scripts(html: str, text: str) -> bool:
    """Hardly any text, scripts, and an empty place for them to fill, or a note that asks to switch them on."""
    if len(text) > _FEW_CHARS or not re.search(r"(?i)<script\b", html):
        return False
    names = "root|app|__next|__nuxt|___gatsby|main|svelte|q-app"
    place = rf"""<div[^<>]{{0,200}}\bid\s{{0,9}}=\s{{0,9}}["']?(?:{names})\b|<app-root\b"""
    asks = r"<noscript\b.{0,2000}?(?:javascript|scripts?\b)"
    return re.search(f"(?is)(?:{place}|{asks})", html) is not None
