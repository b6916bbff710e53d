"""The composition root: the only room that knows everyone. It turns options into a session that front ends can use."""

from odin.app.compose import build_standard_registry, open_session

__all__ = ["build_standard_registry", "open_session"]
