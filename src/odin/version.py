"""The version of Odin, in a module of its own: everything may import it."""

__version__ = "0.1.0"
