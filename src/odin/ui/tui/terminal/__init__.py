"""Terminal input, output and job control."""
