"""The composition root: the only room that knows everyone. It turns options into a session that front ends can use."""

from odin.app.compose import open_session, standard_registry

__all__ = ["open_session", "standard_registry"]
