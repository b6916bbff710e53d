"""A standalone program that prints the text of a PDF on its standard input page by page as JSON lines.

A PDF can take forever or fill the memory, and unlike a thread this process can be killed. The first line has the number
of pages or the error; each further line the text of one page. This file imports nothing of Odin.
"""

import contextlib
import json
import logging
import sys
from typing import Any

MEMORY = 2_000_000_000
PAGE_CHARS = 1_000_000


def main() -> None:
    with contextlib.suppress(ImportError, ValueError, OSError):
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
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


if __name__ == "__main__":
    main()
