"""A standalone program that converts documents for Odin to text, as JSON on standard output.

    python converter.py pdf < FILE.pdf               a line with the number of pages or the error, then a line per page
    python converter.py html URL LIMIT < PAGE.html   one object with the title and the page as Markdown

Documents are untrusted: one can take forever, fill the memory or block the whole process. Unlike a thread, this process
can be killed. This file imports nothing of Odin.
"""

import contextlib
import json
import re
import sys
from html import unescape
from typing import Any

MEMORY = 2_000_000_000
PAGE_CHARS = 1_000_000


def main(form: str, *args: str) -> None:
    with contextlib.suppress(ImportError, ValueError, OSError):
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    if form == "pdf":
        convert_pdf()
    else:
        address, limit = args
        convert_html(address, int(limit))


def convert_pdf() -> None:
    """Print the text of the PDF on standard input page by page."""
    import logging

    logging.disable(logging.CRITICAL)
    sys.setrecursionlimit(5000)
    try:
        pages = _open_pages()
    except Exception as error:
        print_json({"fault": "broken", "reason": f"{type(error).__name__}: {error}"[:200]})
        return
    if pages is None:
        return
    print_json({"pages": len(pages)})
    for page in pages:
        try:
            print_json({"text": page.extract_text()[:PAGE_CHARS]})
        except Exception as error:
            print_json({"text": "", "reason": type(error).__name__})


def _open_pages() -> list[Any] | None:
    """Return the pages, or None after printing why there are none."""
    try:
        from pypdf import PdfReader
    except ImportError:
        print_json({"fault": "no pypdf"})
        return None
    reader = PdfReader(sys.stdin.buffer, strict=False)
    if reader.is_encrypted and not _try_unlock(reader):
        print_json({"fault": "encrypted"})
        return None
    return list(reader.pages)


def _try_unlock(reader: Any) -> bool:
    """Try the empty password, which opens many encrypted files. False if the cipher is not available."""
    try:
        return bool(reader.decrypt(""))
    except Exception:
        return False


def print_json(value: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(value) + "\n")
    sys.stdout.flush()


def convert_html(address: str, limit: int) -> None:
    """Print an HTML page as Markdown, at most `limit` characters."""
    from html_to_markdown import ConversionOptions, PreprocessingOptions, convert

    options = ConversionOptions(
        preprocessing=PreprocessingOptions(remove_navigation=True, remove_forms=False),  # some pages are one big form
        extract_metadata=False,
        inline_data_media="alt_text_only",
        exclude_selectors=["svg", "script", "style"],
        compact_tables=True,
        base_url=address,
    )
    html = sys.stdin.buffer.read().decode("utf-8")
    text = (convert(html, options).content or "").strip()
    result = json.dumps({"title": find_title(html), "text": text[:limit], "total": len(text)}, ensure_ascii=False)
    sys.stdout.buffer.write(result.encode("utf-8", "replace"))


def find_title(html: str) -> str:
    match = re.search(r"(?is)<title[^<>]{0,500}>(.{0,2000}?)</title", html)
    return " ".join(unescape(match[1]).split()) if match else ""


if __name__ == "__main__":
    main(*sys.argv[1:])
