"""Tests of the terminal app, driven by Textual's pilot over real or fake sessions."""
