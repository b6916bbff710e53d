"""The terminal app, driven by Textual's pilot over a real session and the scripted model server."""
