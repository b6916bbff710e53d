"""What becomes of a web page before a model reads it."""
