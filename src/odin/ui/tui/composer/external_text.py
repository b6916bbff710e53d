"""Text and images from outside the composer: pastes, dropped files, the system clipboard and the external editor."""

import os
import re
import stat
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from msgspec import Struct
from textual.app import App, SuspendNotSupported

from odin.core.errors import UsageError
from odin.core.message import MAX_IMAGE_BYTES, Attachment, detect_image_kind
from odin.sandbox.terminal import TerminalPrograms, make_terminal_programs
from odin.ui.terminal import find_editor

MAX_CHARS = 2_000_000
"""Longer pastes are refused; no model could read them."""

_MAX_PATHS_CHARS = 8_192
_IMAGE_SUFFIXES = (".png", ".jpg", ".jpeg", ".gif", ".webp")
_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")


def clean_text(text: str) -> str:
    """Return the text with `\\n` line ends and without escape sequences and control characters."""
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    return _CONTROL.sub("", _ESCAPES.sub("", text))


def explain_too_long(text: str) -> str:
    """Return why a paste is refused, or "" if it is accepted."""
    if len(text) <= MAX_CHARS:
        return ""
    return (
        f"The paste has {len(text):,} characters, more than any model can read, so it was left out. "
        "Save it to a file and mention the file with @."
    )


def find_image_paths(text: str) -> list[str]:
    """Return the image paths if the paste consists of nothing else, else [].

    Terminals paste the paths of dropped files: quoted, escaped or as file: URLs, one or several.
    """
    text = text.strip()
    if not text or len(text) > _MAX_PATHS_CHARS or not any(ending in text.casefold() for ending in _IMAGE_SUFFIXES):
        return []
    # Split into one path per line; spaces are part of the path.
    lines = [line.strip() for line in text.split("\n") if line.strip()]
    for words in (_split_path_words(text), [] if any("\\" in line or line[0] in "'\"" for line in lines) else lines):
        paths = [_parse_path(word) for word in words]
        if paths and all(path.startswith(("/", "~/", "./", "../")) and has_image_suffix(path) for path in paths):
            return paths
    return []


def has_image_suffix(path: str) -> bool:
    return path.casefold().endswith(_IMAGE_SUFFIXES)


def _split_path_words(text: str) -> list[str]:
    import shlex

    try:
        return shlex.split(text)
    except ValueError:
        return []


def _parse_path(word: str) -> str:
    if not word.casefold().startswith("file:"):
        return word
    return unquote(urlsplit(word).path)


def read_image(path: str) -> Attachment:
    """Read an image file. Raise UsageError if it is not a readable image. Blocks, so call it in a thread."""
    name = Path(path).name
    try:
        fd = os.open(Path(path).expanduser(), os.O_RDONLY | os.O_NONBLOCK | getattr(os, "O_CLOEXEC", 0))
        with os.fdopen(fd, "rb") as file:
            info = os.fstat(fd)
            if not stat.S_ISREG(info.st_mode):
                raise UsageError(f"{name} is not a regular file.")
            if info.st_size > MAX_IMAGE_BYTES:
                raise UsageError(_explain_too_large(name, info.st_size))
            data = file.read(MAX_IMAGE_BYTES + 1)
    except OSError as error:
        raise UsageError(f"{name} cannot be read ({error.strerror}).") from error
    return make_image(data, name)


def make_image(data: bytes, name: str) -> Attachment:
    """Raise UsageError if the data is not an image in a supported format and size."""
    if len(data) > MAX_IMAGE_BYTES:
        raise UsageError(_explain_too_large(name, len(data)))
    kind = detect_image_kind(data[:12])
    if not kind:
        raise UsageError(f"{name} is not a supported image (PNG, JPEG, GIF or WebP).")
    return Attachment(name, data=data, media_type=f"image/{kind}", name=name)


def _explain_too_large(name: str, size: int) -> str:
    limit = MAX_IMAGE_BYTES // 1_000_000
    return f"{name} has {size / 1e6:.1f} MB; the limit for images is {limit} MB. Make it smaller first."


_TIMEOUT_S = 3.0
"""Time limit for a clipboard program; it hangs if the owner of the selection is gone."""

_IMAGE_TYPES = ("image/png", "image/jpeg", "image/gif", "image/webp")
_MAX_BYTES = 2 * MAX_IMAGE_BYTES + 100_000
_MACOS_PNG = re.compile(rb"\xc2\xabdata PNGf([0-9A-Fa-f]+)\xc2\xbb")


class ClipboardContent(Struct, frozen=True):
    """An image or text; both are empty if nothing could be read."""

    image: bytes = b""
    text: str = ""


async def read_clipboard(programs: TerminalPrograms, timeout: float = _TIMEOUT_S) -> ClipboardContent:
    """Read the system clipboard with wl-paste, xclip or the macOS tools, whichever is installed."""

    async def run(*argv: str) -> bytes:
        return await programs.capture(argv, timeout=timeout, max_bytes=_MAX_BYTES)

    async def read_offered(kinds: bytes, command: Sequence[str], type_option: str, *text: str) -> ClipboardContent:
        offered = kinds.decode("utf-8", "replace").split()
        kind = next((kind for kind in _IMAGE_TYPES if kind in offered), "")
        if kind and (data := await run(*command, type_option, kind)):
            return ClipboardContent(data)
        return ClipboardContent(text=(await run(*command, *text)).decode("utf-8", "replace"))

    if programs.env.get("WAYLAND_DISPLAY") and (program := programs.find("wl-paste")):
        kinds = await run(program, "--list-types")
        return await read_offered(kinds, [program, "--no-newline"], "--type", "--type", "text")
    if programs.env.get("DISPLAY") and (program := programs.find("xclip")):
        plain = [program, "-selection", "clipboard", "-o"]
        return await read_offered(await run(*plain, "-t", "TARGETS"), plain, "-t")
    if (program := programs.find("pngpaste")) and (data := await run(program, "-")):
        return ClipboardContent(data)
    if sys.platform != "darwin" and not program:
        return ClipboardContent()
    if program := programs.find("osascript"):
        found = _MACOS_PNG.search(await run(program, "-e", "the clipboard as «class PNGf»"))
        if found is not None:
            return ClipboardContent(bytes.fromhex(found[1].decode()))
    if program := programs.find("pbpaste"):
        return ClipboardContent(text=(await run(program)).decode("utf-8", "replace"))
    return ClipboardContent()


_FALLBACK_EDITOR = "vi"


def choose_editor() -> list[str]:
    return find_editor() or [_FALLBACK_EDITOR]


async def edit_in_editor(app: App[Any], text: str) -> str:
    """Return the text after the user edited it in $VISUAL or $EDITOR. Raise UsageError if that fails."""
    command = choose_editor()
    with make_terminal_programs(getattr(app, "info", None), os.environ).open_scratch() as folder:
        path = folder / "prompt.md"
        path.write_text(f"{text}\n" if text else "", encoding="utf-8")
        code = await run_in_terminal(app, [*command, str(path)])
        if code:
            raise UsageError(f"The editor {command[0]} exited with code {code}; the prompt is unchanged.")
        try:
            edited = path.read_text(encoding="utf-8")
        except (OSError, UnicodeError) as error:
            raise UsageError(f"The edited file cannot be read ({error}); the prompt is unchanged.") from error
    if reason := explain_too_long(edited):
        raise UsageError(reason)
    return clean_text(edited).removesuffix("\n")


async def run_in_terminal(app: App[Any], command: list[str]) -> int:
    """Suspend the app, run a program in the terminal and return its exit code. Raise UsageError if it cannot start.

    Nothing is drawn meanwhile, but the session continues; its events are shown afterwards.
    """
    programs, ending = make_terminal_programs(getattr(app, "info", None), os.environ), getattr(app, "ending", None)
    try:
        with app.batch_update(), app.suspend():
            return await programs.run(command, until=ending)
    except SuspendNotSupported:
        raise UsageError("This terminal does not support running another program.") from None
    except OSError as error:
        raise UsageError(
            f"{command[0]} cannot be started ({error.strerror or error}).",
            "Set $VISUAL or $EDITOR, or $PAGER for the pager.",
        ) from error
    finally:
        app.refresh(layout=True)
