"""Keeping commands in: what a sandbox shows and hides, and the programs that make one."""
