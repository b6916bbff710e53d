"""The terminal below the app: what is read from it, what is written to it, and how it is given back."""
