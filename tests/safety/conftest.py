"""Sessions against the scripted server, as in the engine's tests."""

from tests.engine.conftest import start

__all__ = ["start"]
