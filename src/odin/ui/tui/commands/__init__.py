"""The slash commands of the app: done at once, also while Odin works, and never sent to the model."""
