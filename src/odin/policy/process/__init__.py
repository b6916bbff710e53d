"""Processes that Odin starts: bounded, owned, and ended as a group."""
