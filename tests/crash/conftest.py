"""The `start` fixture of the engine tests, which opens sessions in this process."""

from ..engine.conftest import start as start
