"""Fixtures: sessions are recorded against the scripted server, as in the tests of the engine."""

from tests.engine.conftest import start

__all__ = ["start"]
