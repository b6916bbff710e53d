"""Odin as a part of other programs: the stream-json protocol."""
