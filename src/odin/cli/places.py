"""The flags that move Odin's folders. They hold for every command, wherever they stand on its line."""

from collections.abc import MutableMapping
from pathlib import Path

from odin.core.errors import UsageError

FOLDER_FLAGS = {
    "--config-dir": "ODIN_CONFIG_DIR",
    "--state-dir": "ODIN_STATE_DIR",
    "--cache-dir": "ODIN_CACHE_DIR",
}
"""Each flag with the variable it stands for. A flag wins over the environment."""


def extract_folder_flags(argv: list[str], env: MutableMapping[str, str]) -> list[str]:
    """The line without these flags, which are put into the environment. What comes after `--` is left alone."""
    kept: list[str] = []
    words = iter(argv)
    for word in words:
        if word == "--":
            return [*kept, word, *words]
        flag, equals, value = word.partition("=")
        if flag not in FOLDER_FLAGS:
            kept.append(word)
            continue
        value = value if equals else next(words, "")
        if not value.strip():
            raise UsageError(f"{flag} needs a folder.", "See `odin --help`.")
        env[FOLDER_FLAGS[flag]] = str(Path(value).expanduser().absolute())
    return kept
