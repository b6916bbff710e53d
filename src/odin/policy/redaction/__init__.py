"""How secrets are recognised in a text: by their shape, by what they are assigned to, and by their known values."""

SHORTEST = 8
"""What is shorter is no secret."""
