"""Where a person writes: the text, what is folded into it, what completes it, and what was written before."""
