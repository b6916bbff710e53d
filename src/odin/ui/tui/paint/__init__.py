"""Paints the blocks of the transcript as lines."""
