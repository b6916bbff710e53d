"""The composition root: builds a session from options.

It imports every package below it, never `ui`, `commands`, `replay`, `api` or `testing`.
"""

from odin.app.agents import build_standard_registry
from odin.app.compose import open_session

__all__ = ["build_standard_registry", "open_session"]
