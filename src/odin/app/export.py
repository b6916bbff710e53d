"""Writing a session to a file: Markdown, JSON, or one HTML page."""

import contextlib
import os
from pathlib import Path

from odin.app.policy import build_redactor
from odin.config import load
from odin.core.client import ExportFormat
from odin.core.errors import OdinError, StateUnwritable, UsageError
from odin.core.policy import Redact
from odin.policy.secrets import Redactor
from odin.session.export.entries import EXPORT_VERSION, build_entries, build_overview, write_json
from odin.session.export.html import write_html
from odin.session.export.markdown import write_markdown
from odin.session.log import read_header, read_log
from odin.tools.atomic_write import create_locked, make_sibling_name, sweep_leftovers

EXPORT_FOLDER = "exports"
_SUFFIXES: dict[ExportFormat, str] = {"markdown": ".md", "json": ".json", "html": ".html"}
_FORMATS_BY_SUFFIX: dict[str, ExportFormat] = {
    **{suffix: form for form, suffix in _SUFFIXES.items()},
    ".htm": "html",
    ".markdown": "markdown",
}
_EXPORT_HEADERS = ("<!-- odin session ", "<!doctype html>\n<!-- odin session ", '{"odin_export":')
"""How a file begins that an export has written."""


def format_of(path: str, form: str = "") -> ExportFormat:
    """The form that was named, else the one the path's ending means, else Markdown. Raises UsageError."""
    if form:
        found = {"md": "markdown", "htm": "html"}.get(form, form)
        if found not in _SUFFIXES:
            raise UsageError(f"There is no export format {form!r}.", "The formats are markdown, json and html.")
        return found
    return _FORMATS_BY_SUFFIX.get(Path(path).suffix.lower(), "markdown")


def export_session(log_path: str | Path, form: str = "", path: str = "", *, overwrite: bool = False) -> str:
    """Write the session of this log to a file and give its full path.

    Without a path the file lies in `exports` beside the log; a folder gets the file by its usual name. A file that is
    there already is replaced only when it is an earlier export, unless `overwrite`.
    """
    log = Path(log_path)
    session = read_header(log).session
    chosen = format_of(path, form)
    target = _resolve_target(log, session, chosen, path)
    if not overwrite:
        _refuse_foreign_file(target)
    temporary = Path(make_sibling_name(str(target)))
    try:
        target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        sweep_leftovers(str(target.parent))
        _write_export(log, session, chosen, temporary)
        temporary.replace(target)
    except OSError as error:
        raise StateUnwritable(
            f"The export cannot be written ({target}: {error.strerror or error}).", "Name another path."
        ) from error
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
    return str(target)


def _resolve_target(log: Path, session: str, form: ExportFormat, path: str) -> Path:
    name = f"{session}{_SUFFIXES[form]}"
    if not path:
        return log.parent / EXPORT_FOLDER / name
    given = Path(path).expanduser().absolute()
    return given / name if given.is_dir() or path.endswith("/") else given


def _refuse_foreign_file(target: Path) -> None:
    if not os.path.lexists(target):
        return
    with contextlib.suppress(OSError), target.open("rb") as file:
        begins = file.read(64).decode("utf-8", "replace")
        if target.is_file() and not target.is_symlink() and begins.startswith(_EXPORT_HEADERS):
            return
    raise UsageError(f"{target} exists already and is no export of Odin.", "Name another path, or remove it first.")


def _write_export(log: Path, session: str, form: ExportFormat, path: Path) -> None:
    about = build_overview(read_log(log))
    redact = _redactor_of(log, about.cwd)
    about.title, about.cwd, about.model = (redact(text).text for text in (about.title, about.cwd, about.model))
    for turn in about.turns:
        turn.first = redact(turn.first).text
    told = build_entries(read_log(log), about, redact)
    comment = f"<!-- odin session {session} -->"
    fd = create_locked(str(path), private=True)
    with os.fdopen(fd, "w", encoding="utf-8", errors="replace", newline="\n") as file:

        def write(text: str) -> None:
            file.write(text)

        if form == "json":
            write_json(about, told, f'{{"odin_export":{EXPORT_VERSION},', write)
        elif form == "html":
            write_html(about, told, comment, write, log.parent)
        else:
            write_markdown(about, told, comment, write)
        file.flush()
        os.fsync(fd)


def _redactor_of(log: Path, cwd: str) -> Redact:
    """The log holds no secrets of results; arguments and prompts are as they were given, so all is looked at again."""
    try:
        return build_redactor(load(cwd, os.environ), os.environ, read_log(log))
    except (OdinError, OSError, ValueError):
        return Redactor(os.environ)
