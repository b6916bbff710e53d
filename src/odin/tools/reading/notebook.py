"""Notebooks as their files hold them, nbformat 3 and 4, read into cells. Whatever is missing or odd is left out."""

import re
from typing import Any, Literal, cast

import msgspec
from msgspec import Struct

_ANSI = r"\x1b\[[0-9;?]*[ -/]*[@-~]"
_IMAGES = {"image/png": "png", "image/jpeg": "jpeg", "image/gif": "gif", "image/webp": "webp"}
_OTHERS = {"svg": "image/svg+xml", "html": "text/html", "latex": "text/latex", "javascript": "application/javascript"}


class Shown(Struct, frozen=True):
    """One thing a cell put out. An image is base64 in `text`; of what cannot be shown `text` is the name."""

    kind: Literal["text", "error", "image", "skipped"]
    text: str


class Cell(Struct, frozen=True):
    """`count` is the number the notebook gave to its last run, empty when it was not run."""

    kind: str
    source: str
    count: str = ""
    outputs: tuple[Shown, ...] = ()


class Notebook(Struct, frozen=True):
    language: str
    cells: tuple[Cell, ...]


def parse_notebook(data: bytes) -> Notebook | None:
    """The notebook, or None when the bytes are none."""
    top = _object(_decoded(data))
    found = _list(top.get("cells"))
    if "cells" not in top:
        sheets = _list(top.get("worksheets"))
        if not sheets:
            return None
        found = [cell for sheet in sheets for cell in _list(_object(sheet).get("cells"))]
    elif not isinstance(top["cells"], list):
        return None
    about = _object(top.get("metadata"))
    spec, info = _object(about.get("kernelspec")), _object(about.get("language_info"))
    language = spec.get("language") or info.get("name") or ""
    return Notebook(str(language), tuple(_cell(_object(cell)) for cell in found))


def _decoded(data: bytes) -> Any:
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        import json

        try:
            return json.loads(data.decode("utf-8-sig", "replace"))
        except (ValueError, RecursionError):
            return None


def _cell(cell: dict[str, Any]) -> Cell:
    count = cell.get("execution_count", cell.get("prompt_number"))
    outputs = [shown for output in _list(cell.get("outputs")) for shown in _output(_object(output))]
    return Cell(
        kind=str(cell.get("cell_type") or "cell"),
        source=_text(cell.get("source", cell.get("input"))),
        count=str(count) if isinstance(count, int) else "",
        outputs=tuple(outputs),
    )


def _output(output: dict[str, Any]) -> list[Shown]:
    kind = output.get("output_type")
    if kind == "stream":
        return _words("text", output.get("text"))
    if kind in ("error", "pyerr"):
        trace = "\n".join(_text(line) for line in _list(output.get("traceback")))
        return _words("error", trace or f"{output.get('ename', 'Error')}: {output.get('evalue', '')}")
    bundle = _bundle(output)
    images = [Shown("image", _text(bundle[name])) for name in _IMAGES if bundle.get(name)]
    if images:
        return images[:1]
    words = _words("text", bundle.get("text/plain"))
    skipped = [Shown("skipped", name) for name in bundle if name != "text/plain"]
    return words or skipped[:1]


def _bundle(output: dict[str, Any]) -> dict[str, Any]:
    """An output in all the forms it was kept in, by media type. Before format 4 they were keys with short names."""
    if "data" in output:
        return _object(output["data"])
    short = {short: name for name, short in _IMAGES.items()} | {"text": "text/plain"} | _OTHERS
    return {name: output[key] for key, name in short.items() if output.get(key)}


def _words(kind: Literal["text", "error"], value: Any) -> list[Shown]:
    text = re.sub(_ANSI, "", _text(value)).rstrip("\n")
    return [Shown(kind, text)] if text.strip() else []


def _text(value: Any) -> str:
    """Text is kept whole or as a list of its lines."""
    return "".join(str(part) for part in _list(value)) if isinstance(value, list) else str(value or "")


def _object(value: Any) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _list(value: Any) -> list[Any]:
    return cast("list[Any]", value) if isinstance(value, list) else []
