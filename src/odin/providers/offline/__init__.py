"""The built-in planner for when no model is configured, and the stand-in for the lesser model."""

from odin.providers.offline.jobs import (
    JOB_SUFFICIENCY,
    JOB_SUMMARY,
    JOB_TITLE,
    make_offline_summary,
    make_offline_title,
)
from odin.providers.offline.planner import OfflinePlanner

__all__ = [
    "JOB_SUFFICIENCY",
    "JOB_SUMMARY",
    "JOB_TITLE",
    "OfflinePlanner",
    "make_offline_summary",
    "make_offline_title",
]
