"""Where the parts of Odin report what a bug report needs (`--debug FILE`). Without the flag nothing is written."""

from collections.abc import Callable
from typing import Any

write: Callable[[str, dict[str, Any]], None] | None = None
"""Takes the kind of an entry and its fields. Set by `app/debug_log.py` for the whole process."""
