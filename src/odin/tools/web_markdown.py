"""A standalone program that converts an HTML file to Markdown and prints it as one JSON object.

    python web_markdown.py PAGE.html URL LIMIT

The native converter blocks the whole process while it works, and its input is untrusted, so it runs in its own process,
which can be killed. This file imports nothing of Odin.
"""

import contextlib
import json
import re
import sys
from html import unescape
from pathlib import Path

MEMORY = 2_000_000_000


def main(path: str, address: str, limit: int) -> None:
    with contextlib.suppress(ImportError, ValueError, OSError):
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    from html_to_markdown import ConversionOptions, PreprocessingOptions, convert

    options = ConversionOptions(
        preprocessing=PreprocessingOptions(remove_navigation=True, remove_forms=False),  # some pages are one big form
        extract_metadata=False,
        inline_data_media="alt_text_only",
        exclude_selectors=["svg", "script", "style"],
        compact_tables=True,
        base_url=address,
    )
    html = Path(path).read_text(encoding="utf-8")
    text = (convert(html, options).content or "").strip()
    result = json.dumps({"title": title_of(html), "text": text[:limit], "total": len(text)}, ensure_ascii=False)
    sys.stdout.buffer.write(result.encode("utf-8", "replace"))


def title_of(html: str) -> str:
    match = re.search(r"(?is)<title[^<>]{0,500}>(.{0,2000}?)</title", html)
    return " ".join(unescape(match[1]).split()) if match else ""


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
