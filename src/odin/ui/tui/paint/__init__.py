"""Blocks of the story as lines of a screen."""
