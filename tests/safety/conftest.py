"""The `start` fixture of the engine's tests, which opens a session against the scripted server."""

from tests.engine.conftest import start

__all__ = ["start"]
