"""What the tools that run commands share."""
