"""Hooks: what is declared, whom it is meant for, how it is run, and what it says."""
