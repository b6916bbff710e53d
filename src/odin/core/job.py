"""The small jobs of the lesser model. Each has a marker by which the offline planner knows what it stands in for."""

from typing import Any

from msgspec import Struct


class Job(Struct, frozen=True):
    name: str
    instructions: str
    max_tokens: int = 1024
    schema: dict[str, Any] | None = None

    @property
    def marker(self) -> str:
        return f"odin-job: {self.name}"

    @property
    def system(self) -> tuple[str, ...]:
        return (f"{self.marker}\n{self.instructions}",)


TITLE = Job(
    "title",
    "Give the conversation that begins with this prompt a title: at most eight plain words, no quotes, no full stop.",
    max_tokens=64,
)

SUMMARY = Job(
    "summary",
    "Summarise the text for an engineer who will not see it. Keep names, paths, numbers, decisions. Plain sentences.",
)

SUFFICIENCY = Job(
    "edit-sufficiency",
    "You are given a requested edit and the parts of the file that have been read. Decide whether they contain enough "
    "to make the edit safely: the old text, enough around it to tell it from other places, nothing important outside. "
    'When in doubt, ask for more. Answer with JSON only: {"is_sufficient": bool, "explanation": str, '
    '"suggested_line_ranges": [{"start_line": int, "end_line": int, "reason": str}]}.',
)
