"""Panels around the transcript: activity, status, todos, cost, agents and edited files."""
