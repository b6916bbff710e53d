"""The sections of a request to a small model: files, found lines, outputs of commands, and what Odin has computed."""

from collections.abc import Collection, Iterable, Iterator

from odin.providers.whole_files.asked_call import suggest_call
from odin.providers.whole_files.computed_facts import describe_counts, describe_numbers, describe_places, find_scope
from odin.providers.whole_files.prompt_intent import Intent
from odin.providers.whole_files.reply_judgement import cut_text
from odin.providers.whole_files.survey import ProjectSurvey
from odin.providers.whole_files.task_context import LONG_FORMAT, block_of
from odin.providers.whole_files.turn_history import TurnFacts

CHARS_PER_TOKEN = 3


class ContextSections:
    """Chooses and writes the sections. `max_tokens` is how long a reply of the model may be."""

    def __init__(self, survey: ProjectSurvey, max_tokens: int) -> None:
        self._survey = survey
        self._reading = survey.reading
        self._max_tokens = max_tokens

    def list_sections(self, facts: TurnFacts, paths: Iterable[str]) -> list[str]:
        """Return files, the first of them last, next to the task, and what else was gathered."""
        shown = list(paths)
        sections = self._describe_others(facts, shown)
        sections += [
            block_of(path, facts.files[path]) if facts.files[path] else f"{path} is empty." for path in reversed(shown)
        ]
        sections += self._describe_hits(facts)
        sections += [f"Output of {command}:\n{cut_text(facts.outputs[command])}" for command in self._list_shown(facts)]
        long = [path for path, text in facts.files.items() if self._is_long(text)]
        if long and self._survey.can_edit and not self._reading.asks_only:
            sections.append(LONG_FORMAT.format(paths=", ".join(long)))
        needs_counts = not (facts.outputs and self._reading.runs_tests) and not self._reading.changes_code
        counts = describe_counts(self._reading, facts) if needs_counts else []
        computed = [*describe_places(self._reading, facts), *counts, *describe_numbers(self._reading, facts)]
        computed += self._describe_asked_call(facts)
        if computed:
            sections.append("\n".join(computed))
        return sections

    def _describe_asked_call(self, facts: TurnFacts) -> list[str]:
        asked = self._survey.find_asked_call(facts)
        if asked is None:
            can_call = self._survey.can_run and self._reading.is_question and not self._reading.wants_change
            how = suggest_call(self._reading.text, facts.lookup.definitions, facts.files) if can_call else ""
            return [how] if how else []
        if asked.command not in facts.outputs:
            return []
        failed = asked.command in (facts.failed_commands | facts.unavailable)
        return list(filter(None, [asked.describe_result(facts.outputs[asked.command], failed=failed)]))

    def _describe_hits(self, facts: TurnFacts) -> Iterator[str]:
        """Yield the lines that contain the names of the prompt, if it asks for them or no file is shown."""
        if self._reading.changes_code or (not self._reading.counts and not self._reading.locates and facts.files):
            return
        for term, lines in facts.hits.items():
            lines = self._keep_named(lines, facts)
            rows = "\n".join(lines)
            count = facts.hit_counts.get(term, 0) if len(lines) == len(facts.hits[term]) else len(lines)
            found = f"{term} occurs in {count} {'line' if count == 1 else 'lines'}:\n{rows}"
            yield found if lines else f"{term} does not occur in any file."

    def _list_shown(self, facts: TurnFacts) -> list[str]:
        """Return the commands whose outputs the model sees. What could not run is of interest only if it was asked."""
        is_change = self._reading.intent > Intent.EITHER
        asked = [
            command for command in facts.outputs if self._reading.runs_tests or command == self._survey.find_command()
        ]
        return [command for command in asked if not (is_change and command in facts.unavailable)]

    def _keep_named(self, lines: tuple[str, ...], facts: TurnFacts) -> tuple[str, ...]:
        """Return the found lines in the files and folders that the prompt names; all if it names none."""
        scope = tuple(f"{path}:" for path in find_scope(self._reading, facts))
        return tuple(line for line in lines if line.startswith(scope)) if scope else lines

    def _describe_others(self, facts: TurnFacts, shown: Collection[str]) -> list[str]:
        """Return the names of the other files. A small model that is to write files would write these, too."""
        others = [path for path in facts.sizes if path not in shown]
        if not others or (shown and self._reading.only_edits):
            return []
        more = "" if len(others) <= 60 else f" and {len(others) - 60} more"
        return [f"Other files: {', '.join(sorted(others)[:60])}{more}"]

    def _is_long(self, text: str) -> bool:
        """True if the model cannot repeat a file within one reply."""
        return len(text) // CHARS_PER_TOKEN > self._max_tokens * 3 // 4
