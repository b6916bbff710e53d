"""The files of the page: public, the same for everybody, and the headers that keep it from loading anything else."""

import mimetypes
from functools import cache
from pathlib import Path

from msgspec import Struct
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

STATIC = Path(__file__).parent / "static"

PAGE_HEADERS = {
    "content-security-policy": "; ".join(
        (
            "default-src 'none'",
            "script-src 'self'",
            "style-src 'self'",
            "img-src 'self' blob: data:",
            "connect-src 'self'",
            "manifest-src 'self'",
            "form-action 'none'",
            "frame-ancestors 'none'",
            "base-uri 'none'",
            "require-trusted-types-for 'script'",
        )
    ),
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "geolocation=(), microphone=(), usb=()",
    "cache-control": "no-cache",
}
"""Everything that a model, a tool or a file says is text; if a mistake made markup of it, this would keep it inert."""


class PageFile(Struct, frozen=True):
    """A file with its media type and ETag. `packed` is the content as gzip, "" for pictures."""

    content: bytes
    packed: bytes
    kind: str
    tag: str


@cache
def _list_files() -> dict[str, PageFile]:
    """Return each file by its path below the folder."""
    import gzip
    from hashlib import sha256

    types = {".js": "text/javascript", ".webmanifest": "application/manifest+json"}
    found: dict[str, PageFile] = {}
    for path in sorted(STATIC.rglob("*")):
        if path.is_file():
            content = path.read_bytes()
            kind = types.get(path.suffix) or mimetypes.guess_type(path.name)[0] or "text/plain"
            tag = f'"{sha256(content).hexdigest()[:16]}"'
            packed = b"" if kind == "image/png" else gzip.compress(content, mtime=0)
            found[path.relative_to(STATIC).as_posix()] = PageFile(content, packed, kind, tag)
    return found


_LATER = ("theme.js", "reports.js", "shared.js", "boards.js")
_PRELOADED = ", ".join(
    (
        "<page/theme.js>; rel=preload; as=script",
        "<page/style.css>; rel=preload; as=style",
        *(
            f"<page/{path.relative_to(STATIC).as_posix()}>; rel=modulepreload"
            for path in sorted(STATIC.rglob("*.js"))
            if path.name not in _LATER
        ),
    )
)
"""What the first paint needs, then the modules that `main.js` imports, not one level after the other."""


def is_page_file(path: str) -> bool:
    """True if this is the path of the page or one of its files."""
    return path in ("", "/") or (path.startswith("/page/") and path.removeprefix("/page/") in _list_files())


async def send_page_file(request: Request) -> Response:
    path = request.scope["path"]
    if not is_page_file(path):
        raise HTTPException(404)
    file = _list_files()[path.removeprefix("/page/").removeprefix("/") or "index.html"]
    headers = {**PAGE_HEADERS, "etag": file.tag, "vary": "accept-encoding"}
    if file.kind == "text/html":
        headers["link"] = _PRELOADED
    if request.headers.get("if-none-match") == file.tag:
        return Response(status_code=304, headers=headers)
    if file.packed and "gzip" in request.headers.get("accept-encoding", ""):
        return Response(file.packed, media_type=file.kind, headers={**headers, "content-encoding": "gzip"})
    return Response(file.content, media_type=file.kind, headers=headers)
