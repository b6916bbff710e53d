"""Calls that begin while the reply is still being written."""
