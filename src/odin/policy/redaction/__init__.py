"""How secrets are recognised in a text: by their shape, by what they are assigned to, and by their known values."""

MIN_SECRET_CHARS = 8
"""What is shorter is no secret."""
