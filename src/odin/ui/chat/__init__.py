"""The conversation on a terminal, and its commands."""
