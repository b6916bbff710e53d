"""The terminal app.

Textual imports its command palette with the widgets in it, and the folders of the user, which take a tenth of the time
in which the app starts. Odin uses neither.
"""

import sys
from types import ModuleType


class _UnusedModule(ModuleType):
    """A module of which every attribute is a class without content."""

    def __getattr__(self, name: str) -> object:
        if name.startswith("__"):
            raise AttributeError(name)
        return object


def _import_textual() -> None:
    unused = {name: _UnusedModule(name) for name in ("textual.command", "platformdirs") if name not in sys.modules}
    sys.modules.update(unused)
    try:
        import textual.app  # noqa: F401  # pyright: ignore[reportUnusedImport]
    finally:
        for name in unused:
            del sys.modules[name]


_import_textual()
