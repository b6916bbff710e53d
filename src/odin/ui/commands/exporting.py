"""Writing a session to a file: what was typed after /export."""

from odin.core.errors import UsageError
from odin.core.sessions import ExportFormat

_EXPORT_FORMATS: dict[str, ExportFormat] = {
    "json": "json",
    "html": "html",
    "markdown": "markdown",
    "md": "markdown",
}


def parse_export(words: list[str]) -> tuple[ExportFormat, str]:
    """The form and the path, which may be empty. A form is `--json`, or `json` before everything else."""
    rest = list(words)
    chosen: list[ExportFormat] = [
        form for word in words if word.startswith("--") and (form := _EXPORT_FORMATS.get(word[2:]))
    ]
    if not chosen and rest and rest[0] in _EXPORT_FORMATS:
        chosen = [_EXPORT_FORMATS[rest.pop(0)]]
    paths = [word for word in rest if not (word.startswith("--") and word[2:] in _EXPORT_FORMATS)]
    if len(chosen) > 1 or len(paths) > 1 or any(path.startswith("--") for path in paths):
        raise UsageError("That is not understood.", "Write /export [PATH] [--json|--html].")
    path = paths[0] if paths else ""
    return (chosen[0] if chosen else format_of(path)), path


def format_of(path: str) -> ExportFormat:
    """What a file of this name should hold."""
    ending = path.rpartition(".")[2].lower()
    if ending == "json":
        return "json"
    return "html" if ending in ("html", "htm") else "markdown"
