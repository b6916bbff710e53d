"""The composition root: builds a session from options. The only package that imports all others."""

from odin.app.compose import build_standard_registry, open_session

__all__ = ["build_standard_registry", "open_session"]
