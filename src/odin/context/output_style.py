"""Output styles: Markdown files that change how the main agent answers.

Their front matter is that of Claude Code: `name`, `description`, `keep-coding-instructions`. A style replaces what the
system prompt says about tone and, unless it keeps them, the instructions for writing code.
"""

from collections.abc import Callable, Iterable
from pathlib import Path

from odin.context.markdown_folder import MarkdownFolder
from odin.context.system_prompt import OutputStyle
from odin.core.text import to_valid_unicode

DEFAULT_STYLE = "default"

_OWN_FOLDER = str(Path(__file__).with_name("prompts") / "styles")


def find_output_style(name: str, folders: Iterable[tuple[str, str]], warn: Callable[[str], None]) -> OutputStyle | None:
    """Return the style with this name, or None for the default one. `warn` is told if there is no such style.

    `folders` are those of style files, strongest first, each with the folder that its links must not leave, or "".
    Odin's own styles are weaker.
    """
    if name.casefold() == DEFAULT_STYLE:
        return None
    known: dict[str, OutputStyle] = {}
    for folder, within in (*folders, (_OWN_FOLDER, "")):
        for page in MarkdownFolder(folder, within).read_files(warn):
            values = page.front.values
            keeps = str(values.get("keep-coding-instructions", "")).casefold() == "true"
            style = OutputStyle(str(values.get("name") or page.name), to_valid_unicode(page.front.body), keeps)
            known.setdefault(style.name.casefold(), style)
    found = known.get(name.casefold())
    if found is None:
        names = ", ".join(sorted(style.name for style in known.values()))
        warn(f"There is no output style {name!r}. There are: {DEFAULT_STYLE}, {names}.")
    return found
