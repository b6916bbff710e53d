"""`odin` in a real terminal: a pseudo-terminal with an emulator behind it."""
