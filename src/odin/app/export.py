"""Exports a session to a Markdown, JSON or HTML file.

The log is read twice, once for the overview and once to write the entries, so that a long session needs little memory.
"""

import contextlib
import os
from collections.abc import Mapping
from pathlib import Path

from odin.app.policy import build_redactor
from odin.config import load
from odin.config.paths import make_environment
from odin.core.client import ExportFormat
from odin.core.environment import ExecutionEnvironment
from odin.core.errors import OdinError, StateUnwritable, UsageError
from odin.core.path_names import make_temporary_name
from odin.core.policy import Redact
from odin.policy.paths import OpenFolder, follow_links, open_folder
from odin.policy.secrets import Redactor
from odin.session.export_entries import EXPORT_VERSION, build_entries, build_overview, write_json
from odin.session.export_html import write_html
from odin.session.export_markdown import write_markdown
from odin.session.log import read_header, read_log
from odin.tools.atomic_write import create_locked, sweep_leftovers

_SUFFIXES: dict[ExportFormat, str] = {"markdown": ".md", "json": ".json", "html": ".html"}
_FORMATS_BY_SUFFIX: dict[str, ExportFormat] = {
    **{suffix: form for form, suffix in _SUFFIXES.items()},
    ".htm": "html",
    ".markdown": "markdown",
}
_EXPORT_HEADERS = ("<!-- odin session ", "<!doctype html>\n<!-- odin session ", '{"odin_export":')
"""The first characters of an export; only such files are overwritten."""


def choose_format(path: str, form: str = "") -> ExportFormat:
    """Return the format: `form` if given, else from the suffix of the path, else Markdown. Raise UsageError."""
    if form:
        name = {"md": "markdown", "htm": "html"}.get(form, form)
        if name not in _SUFFIXES:
            raise UsageError(f"Unknown export format {form!r}.", "Use markdown, json or html.")
        return name
    return _FORMATS_BY_SUFFIX.get(Path(path).suffix.lower(), "markdown")


def export_session(
    log_path: str | Path,
    form: str = "",
    path: str = "",
    *,
    overwrite: bool = False,
    environment: ExecutionEnvironment | None = None,
    redact: Redact | None = None,
) -> str:
    """Export the session of this log and return the full path of the file.

    Without a path the file is put in the current directory; for a folder the file gets its default name. An existing
    file is replaced only if it is an earlier export, unless `overwrite` is set. `redact` replaces the redactor of the
    session's project.
    """
    environment = environment or make_environment(cwd="/")
    log = Path(log_path)
    session = read_header(log).session
    chosen = choose_format(path, form)
    target = _resolve_target(session, chosen, environment.expand_home(path or "."))
    if not overwrite:
        _refuse_foreign_file(target)
    temporary = make_temporary_name(target.name)
    try:
        with open_folder(follow_links(str(target.parent)), create=True, mode=0o700) as folder:
            sweep_leftovers(folder)
            try:
                _write_export(log, session, chosen, folder, temporary, environment, redact)
                folder.rename(temporary, target.name)
            finally:
                folder.unlink(temporary, missing_ok=True)
    except OSError as error:
        raise StateUnwritable(
            f"Cannot write the export ({target}: {error.strerror or error}).", "Use another path."
        ) from error
    return str(target)


def _resolve_target(session: str, form: ExportFormat, path: str) -> Path:
    name = f"odin-{session}{_SUFFIXES[form]}"
    given = Path(path).absolute()
    return given / name if given.is_dir() or path.endswith("/") else given


def _refuse_foreign_file(target: Path) -> None:
    if not os.path.lexists(target):
        return
    with contextlib.suppress(OSError), target.open("rb") as file:
        start = file.read(64).decode("utf-8", "replace")
        if target.is_file() and not target.is_symlink() and start.startswith(_EXPORT_HEADERS):
            return
    raise UsageError(f"{target} exists and is not an Odin export.", "Use another path, or remove the file.")


def _write_export(
    log: Path,
    session: str,
    form: ExportFormat,
    folder: OpenFolder,
    name: str,
    environment: ExecutionEnvironment,
    redact: Redact | None,
) -> None:
    about = build_overview(read_log(log))
    redact = redact or _make_redactor(log, about.cwd, environment.variables)
    about.title, about.cwd, about.model = (redact(text).text for text in (about.title, about.cwd, about.model))
    for turn in about.turns:
        turn.first = redact(turn.first).text
    entries = build_entries(read_log(log), about, redact)
    comment = f"<!-- odin session {session} -->"
    fd = create_locked(folder, name, private=True)
    with os.fdopen(fd, "w", encoding="utf-8", errors="replace", newline="\n") as file:

        def write(text: str) -> None:
            file.write(text)

        if form == "json":
            write_json(about, entries, f'{{"odin_export":{EXPORT_VERSION},', write)
        elif form == "html":
            write_html(about, entries, comment, write, log.parent)
        else:
            write_markdown(about, entries, comment, write)
        file.flush()
        os.fsync(fd)


def _make_redactor(log: Path, cwd: str, env: Mapping[str, str]) -> Redact:
    """Return a redactor for the whole export: the log redacts results, but not prompts and arguments."""
    try:
        return build_redactor(load(cwd, env), env, read_log(log))
    except (OdinError, OSError, ValueError):
        return Redactor(env)
