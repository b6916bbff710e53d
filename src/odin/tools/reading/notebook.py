"""Notebooks as their files hold them, nbformat 3 and 4, read into cells. Whatever is missing or odd is left out."""

import re
from typing import Any, Literal, cast

import msgspec
from msgspec import Struct

_ANSI = r"\x1b\[[0-9;?]*[ -/]*[@-~]"
_IMAGE_TYPES = {"image/png": "png", "image/jpeg": "jpeg", "image/gif": "gif", "image/webp": "webp"}
_OTHER_TYPES = {
    "svg": "image/svg+xml",
    "html": "text/html",
    "latex": "text/latex",
    "javascript": "application/javascript",
}


class CellOutput(Struct, frozen=True):
    """One thing a cell put out. An image is base64 in `text`; of what cannot be shown `text` is the name."""

    kind: Literal["text", "error", "image", "skipped"]
    text: str


class NotebookCell(Struct, frozen=True):
    """`count` is the number the notebook gave to its last run, empty when it was not run."""

    kind: str
    source: str
    count: str = ""
    outputs: tuple[CellOutput, ...] = ()


class Notebook(Struct, frozen=True):
    language: str
    cells: tuple[NotebookCell, ...]


def parse_notebook(data: bytes) -> Notebook | None:
    """The notebook, or None when the bytes are none."""
    top = _as_dict(_decode_json(data))
    found = _as_list(top.get("cells"))
    if "cells" not in top:
        sheets = _as_list(top.get("worksheets"))
        if not sheets:
            return None
        found = [cell for sheet in sheets for cell in _as_list(_as_dict(sheet).get("cells"))]
    elif not isinstance(top["cells"], list):
        return None
    about = _as_dict(top.get("metadata"))
    spec, info = _as_dict(about.get("kernelspec")), _as_dict(about.get("language_info"))
    language = spec.get("language") or info.get("name") or ""
    return Notebook(str(language), tuple(_parse_cell(_as_dict(cell)) for cell in found))


def _decode_json(data: bytes) -> Any:
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        import json

        try:
            return json.loads(data.decode("utf-8-sig", "replace"))
        except (ValueError, RecursionError):
            return None


def _parse_cell(cell: dict[str, Any]) -> NotebookCell:
    count = cell.get("execution_count", cell.get("prompt_number"))
    outputs = [shown for output in _as_list(cell.get("outputs")) for shown in _parse_output(_as_dict(output))]
    return NotebookCell(
        kind=str(cell.get("cell_type") or "cell"),
        source=_join_text(cell.get("source", cell.get("input"))),
        count=str(count) if isinstance(count, int) else "",
        outputs=tuple(outputs),
    )


def _parse_output(output: dict[str, Any]) -> list[CellOutput]:
    kind = output.get("output_type")
    if kind == "stream":
        return _make_text_outputs("text", output.get("text"))
    if kind in ("error", "pyerr"):
        trace = "\n".join(_join_text(line) for line in _as_list(output.get("traceback")))
        return _make_text_outputs("error", trace or f"{output.get('ename', 'Error')}: {output.get('evalue', '')}")
    bundle = _collect_media(output)
    images = [CellOutput("image", _join_text(bundle[name])) for name in _IMAGE_TYPES if bundle.get(name)]
    if images:
        return images[:1]
    words = _make_text_outputs("text", bundle.get("text/plain"))
    skipped = [CellOutput("skipped", name) for name in bundle if name != "text/plain"]
    return words or skipped[:1]


def _collect_media(output: dict[str, Any]) -> dict[str, Any]:
    """An output in all the forms it was kept in, by media type. Before format 4 they were keys with short names."""
    if "data" in output:
        return _as_dict(output["data"])
    short = {short: name for name, short in _IMAGE_TYPES.items()} | {"text": "text/plain"} | _OTHER_TYPES
    return {name: output[key] for key, name in short.items() if output.get(key)}


def _make_text_outputs(kind: Literal["text", "error"], value: Any) -> list[CellOutput]:
    text = re.sub(_ANSI, "", _join_text(value)).rstrip("\n")
    return [CellOutput(kind, text)] if text.strip() else []


def _join_text(value: Any) -> str:
    """Text is kept whole or as a list of its lines."""
    return "".join(str(part) for part in _as_list(value)) if isinstance(value, list) else str(value or "")


def _as_dict(value: Any) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _as_list(value: Any) -> list[Any]:
    return cast("list[Any]", value) if isinstance(value, list) else []
