"""The sessions of these tests are recorded against the scripted server, as those of the engine's tests are."""

from tests.engine.conftest import start

__all__ = ["start"]
