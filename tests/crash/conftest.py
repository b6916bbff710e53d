"""Sessions in this process, as the tests of the engine have them."""

from ..engine.conftest import start as start
