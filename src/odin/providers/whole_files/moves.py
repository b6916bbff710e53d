"""Chooses the next move of a turn: look, ask the model, act on its reply, verify, or end.

A move depends only on the request, so the same history always gives the same move.
"""

import itertools
import re
from collections.abc import Iterable, Iterator, Mapping

from msgspec import Struct

from odin.core.errors import NoProgress
from odin.core.message import Message, PromptMessage, ReplyMessage, Text
from odin.core.provider import Request
from odin.providers.whole_files.context_sections import CHARS_PER_TOKEN, ContextSections
from odin.providers.whole_files.file_change import make_calls
from odin.providers.whole_files.project_tests import (
    WrongValue,
    find_wrong_values,
    has_new_failure,
    is_module_still_missing,
    is_test,
)
from odin.providers.whole_files.prompt_intent import Intent, PromptReading, read_prompt
from odin.providers.whole_files.rename import (
    Rename,
    describe_leftovers,
    find_rename,
    is_method_name,
    list_leftovers,
    rename_in_project,
    replace_name,
)
from odin.providers.whole_files.reply_judgement import Calls, ReplyJudge, ReplyOutcome, ToolUse, cut_text
from odin.providers.whole_files.survey import (
    CODE_ENDINGS,
    MAX_LOOKUPS,
    ProjectSurvey,
    describe_missing_module,
    describe_missing_value,
    describe_unused_name,
)
from odin.providers.whole_files.task_context import (
    CHANGE_FORMAT,
    EDIT_FORMAT,
    READ_FORMAT,
    block_of,
    build_examples,
    find_words,
    format_outputs,
    format_task,
    is_partner,
)
from odin.providers.whole_files.turn_history import (
    FoundLine,
    HistoryTurn,
    Step,
    TurnFacts,
    apply_call,
    is_denied,
    read_turns,
)

MAX_FAILURES = 3
"""Replies in a turn that may fail: invalid files, refused edits, failed tests."""
MAX_FAULTS = 3
"""Replies in a row that come to nothing. The engine ends a turn after as many, without saying what was wrong."""
MAX_ASKS = 6
_MAX_EARLIER = 2
_MAX_CORRECTIONS = 8
"""Runs of a new test after which Odin corrects the values that it expects."""
_REPLY_TOKENS = 700
_CHECK_NOTE = re.compile(r"Its checks: (.*?)\.(?: Run| \()", re.DOTALL)
_TIMES = re.compile(r"\d+(?:\.\d+)? ?(?:ms|s)\b|0x[0-9a-f]+")
"""What differs between two outputs although nothing has changed."""
_ABOUT_BUG = re.compile(r"\b(?:bugs?|wrong\w*|reproduc\w*|regressions?|incorrect\w*)\b", re.IGNORECASE)
"""A test that is to show a bug must not expect what the code returns."""
_HINT = "Try a smaller step, name the files and what to change in them, or use a larger model with --model."


class Move(Struct, frozen=True):
    """What happens next: calls of the planner (`prefix` starts their ids), an answer, or a request to the model."""

    calls: Calls = ()
    prefix: str = ""
    answer: str = ""
    ask: Request | None = None


class TurnPlanner:
    """Everything that is known about the running turn of one request."""

    def __init__(self, request: Request, context: int) -> None:
        turns = read_turns(request.messages)
        self._request = request
        self._earlier = turns[:-1]
        self._turn = turns[-1] if turns else HistoryTurn("")
        self._offered = {tool.name for tool in request.tools}
        self.reading: PromptReading = read_prompt(self._turn.prompt)
        self.facts = self._make_facts()
        self._survey = ProjectSurvey(self.reading, self.facts, context, can_edit=self.can_edit, can_run=self.can_run)
        self._failures: list[str] = []
        self._dialog: list[Message] = []
        is_change = self.can_edit and self.reading.intent > Intent.EITHER
        self._rename = find_rename(self.reading.text) if is_change else None
        self._gap_step: Step | None = None
        self._correction = ""
        self._doubted_step: Step | None = None
        self._unshown = ""
        for step in self._turn.steps:
            self._add_step(step)

    @property
    def can_edit(self) -> bool:
        return "WriteFile" in self._offered

    @property
    def can_run(self) -> bool:
        return "ExecuteCommand" in self._offered

    def _make_facts(self) -> TurnFacts:
        reading = self.reading
        return TurnFacts(prompt=reading.text, named=reading.paths, words=find_words(reading.text, reading.terms))

    # --- what has happened ---

    def _add_step(self, step: Step) -> None:
        """Fold one step: first what the model was told, then what came of it."""
        is_unfinished = step.is_by_model and step.message.stop == "unfinished"
        outcome = self._judge_again(step.message.text) if is_unfinished else None
        before = dict(self.facts.files)
        self.facts.add_step(step)
        if step.is_gathering:
            feedback = self._describe_unshown(before) or self._describe_effect() if self._dialog else ""
        elif step.is_by_model:
            self._dialog.append(_reply(_render_reply(step, before)))
            self._unshown = outcome.unshown if outcome else ""
            feedback = self._describe_fault(outcome) if outcome else self._describe_results(step)
        else:
            feedback = self._describe_checks(step)
        if self._gap_step is None and self._is_settled(step) and (gap := self._describe_gap()):
            self._gap_step = step
            feedback = f"{gap}\n\nTask: {self._turn.prompt}"
        if step.note.startswith("Odin ran the project's checks"):
            feedback = f"{feedback}\n\n{step.note}".strip()
        self._note_correction(step, feedback)
        if not feedback:
            return
        if self._dialog and isinstance(self._dialog[-1], PromptMessage):
            self._dialog[-1] = PromptMessage(f"{self._dialog[-1].text}\n\n{feedback}")
        else:
            self._dialog.append(PromptMessage(feedback))

    def _note_correction(self, step: Step, feedback: str) -> None:
        """Keep what was wrong with the last change: the next request is a new one, with the files as they are then.

        In a long conversation a small model repeats its instructions instead of correcting a file.
        """
        if step.is_by_model and any(call.name == "ExecuteCommand" for call in step.message.calls):
            self._correction = ""
        elif feedback and not step.is_gathering:
            self._correction = feedback.removesuffix(f"Task: {self._turn.prompt}").strip()

    def _describe_results(self, step: Step) -> str:
        """Return what the model reads about its calls; note the failures among them."""
        parts: list[str] = []
        outputs: list[tuple[str, str]] = []
        for call, result in step.list_results():
            if call.name == "ExecuteCommand":
                command = str(call.args.get("command"))
                outputs.append((command, cut_text(result.text)))
                if command in self.facts.failed_commands:
                    self._failures.append(f"{command}: {result.text}")
            elif result.is_error:
                path = call.args.get("file_path") or call.args.get("paths")
                self._failures.append(f"{path}: {result.text}")
                parts.append(f"{path} was not changed: {result.text}")
        if outputs:
            parts.append(format_outputs(outputs, self._turn.prompt))
        elif parts:
            parts.append(f"Task: {self._turn.prompt}")
        return "\n\n".join(parts)

    def _describe_unshown(self, before: Mapping[str, str]) -> str:
        """Return the file that the model wanted to write without having seen it, once it has been read."""
        path = self._unshown
        return block_of(path, self.facts.files[path]) if path in self.facts.files and path not in before else ""

    def _describe_effect(self) -> str:
        """Return what the model reads if its command has changed nothing, although the task wants a change."""
        if self.facts.has_changes or not self.facts.model_commands or not self.reading.wants_change:
            return ""
        return "This command has changed no file."

    def _describe_checks(self, step: Step) -> str:
        """Return what the model reads about the checks of its change; note the failures among them."""
        failed = list(self._list_failed_checks(step))
        if not failed:
            return ""
        found = "\n\n".join(f"{command} fails:\n{cut_text(text)}" for command, text in failed)
        for value in self._find_wrong_values(failed):
            found += f"\n\n{value.code} is {value.actual}: line {value.line} of {value.path} expects a wrong value."
        if all(self._is_doubtful(command, text) for command, text in failed):
            self._doubted_step = step
            again = "It failed before, too. If the task is about it, write the complete files again."
            return f"{found}\n\n{again}\n\nTask: {self._turn.prompt}"
        self._failures += [f"{command}: {text}" for command, text in failed]
        self.facts.failing_check = failed[0][0]
        return f"{found}\n\nTask: {self._turn.prompt}"

    def _find_wrong_values(self, failed: Iterable[tuple[str, str]]) -> list[WrongValue]:
        """Return which values a new test expects wrongly. The code that it tests has not changed."""
        done = {*self.facts.created, *self.facts.changed}
        is_about_bug = self.reading.reports_failure or _ABOUT_BUG.search(self.reading.text) is not None
        if not self.reading.mentions_tests or is_about_bug or not all(map(is_test, done)):
            return []
        texts = {path: self.facts.files[path] for path in done if path in self.facts.files}
        before = self._gather_first_facts().files
        values = [value for _, output in failed for value in find_wrong_values(output, texts)]
        return [value for value in values if value.source not in before.get(value.path, "").splitlines()]

    def _list_failed_checks(self, step: Step) -> Iterator[tuple[str, str]]:
        """Yield the commands with their outputs that show that the change does not work.

        What failed before the change, too, is no fault of it, unless the task is about the failure.
        """
        for call, result in step.list_results():
            command = str(call.args.get("command"))
            if not result.is_error or command not in self.facts.failed_commands:
                continue
            is_told = self._doubted_step not in (None, step)
            if self._is_blamed(command, result.text) or (self._is_doubtful(command, result.text) and not is_told):
                yield command, result.text

    def _is_blamed(self, command: str, output: str) -> bool:
        """True if a failure is the fault of the change, or what the task is about."""
        before = self.facts.baseline.get(command)
        is_task = self.reading.reports_failure or (self.reading.repairs and self._is_about_task(output))
        is_excused = before is not None and (not is_task or is_module_still_missing(before, output))
        return not is_excused or has_new_failure(before, output)

    def _is_doubtful(self, command: str, output: str) -> bool:
        """True if something fails as it did before, and the task may be about it: the model is told once."""
        before = self.facts.baseline.get(command, "")
        is_excused = is_module_still_missing(before, output) or self._is_blamed(command, output)
        return self.reading.repairs and not is_excused

    def _is_about_task(self, output: str) -> bool:
        """True if an output mentions a name of the prompt: then it failed before because the task was not done."""
        names = {*self.reading.terms, *self.facts.lookup.definitions}
        return any(re.search(rf"(?<![^\W_]){re.escape(name)}(?![^\W_])", output) for name in names)

    def _is_settled(self, step: Step) -> bool:
        """True if a change was made, and what checks it has run without a failure."""
        if step.is_verifying:
            return not any(self._list_failed_checks(step))
        is_edit = step.is_by_model and any(call.name != "ExecuteCommand" for call in step.message.calls)
        return (
            is_edit and not any(result.is_error for _, result in step.list_results()) and not self._list_open_checks()
        )

    def _describe_gap(self) -> str:
        """Return what a change has left out for certain. The model is told once: it may have its reasons."""
        if not self.facts.has_changes:
            return ""
        is_by_model = any(step.is_by_model for step in self._turn.steps)
        left = self._list_leftovers() if is_by_model and not self._finishes_rename else []
        if self._rename is not None and left:
            return describe_leftovers(self._rename, left)
        prompt = self.reading.text
        return (
            describe_missing_value(prompt, self.facts)
            or describe_unused_name(prompt, self.facts)
            or describe_missing_module(prompt, self.facts)
        )

    @property
    def _finishes_rename(self) -> bool:
        """True if Odin may rename the rest itself: the name is certain, and the prompt means the whole project."""
        rename = self._rename
        return rename is not None and rename.is_certain and (rename.everywhere or not self.reading.paths)

    def _list_leftovers(self) -> list[FoundLine]:
        """Return the uses of a name that the model should have renamed, as far as they were searched for."""
        rename = self._rename
        if rename is None or not self.facts.has_changes or rename.pattern not in self.facts.fresh:
            return []
        is_method = is_method_name(rename.old, self._gather_first_facts().files.values())
        return list_leftovers(rename, self.facts.list_hits(rename.old), self._list_named(), is_method=is_method)

    def _list_named(self) -> list[str]:
        return [found for path in self.reading.paths if (found := self.facts.project.resolve(path))]

    # --- the next move ---

    def choose_move(self) -> Move:
        """Return the next move. Raise NoProgress if the model fails again and again."""
        steps = self._turn.steps
        if not steps:
            return Move(self._survey.look_around(), "gather_")
        if all(step.is_gathering for step in steps) and (first := self._prepare()):
            return first
        last = steps[-1]
        if last is self._gap_step:
            return self._ask()
        if last.is_gathering:
            return self._go_on()
        if not last.is_verifying and any(is_denied(result) for _, result in last.list_results()):
            return self._end_denied()
        if last.note.startswith("Odin ran the project's checks"):
            return self._ask_again()
        if last.is_verifying:
            return self._judge_checks(last)
        if last.is_finishing:
            has_error = any(result.is_error for _, result in last.list_results())
            return self._ask() if has_error else self._verify_or_end()
        if last.message.calls:
            return self._follow_up(last)
        if last.message.stop == "unfinished":
            return self._ask_after_fault()
        if checks := self._list_wanted_checks(last.note):
            return Move(checks, "verify_")
        return Move(answer=last.message.text) if last.note else self._ask()

    def _judge_checks(self, last: Step) -> Move:
        if any(self._list_failed_checks(last)):
            return self._correct_values() or self._ask_again()
        return self._finish_rename() or self._end()

    def _ask_after_fault(self) -> Move:
        if self._unshown and self._unshown not in self.facts.tried:
            return Move(self._survey.read([self._unshown]), "gather_")
        return self._correct_values() or self._ask_again()

    def _prepare(self) -> Move | None:
        """Return the calls that gather context or make a certain rename; None if it is time to ask the model."""
        calls = self._survey.gather()
        return Move(calls, "gather_") if calls else self._rename_alone()

    def _go_on(self) -> Move:
        """Return what comes after looking. A command that the prompt asks for and that may not run ends the turn."""
        is_asked = self.reading.runs_tests or self._survey.find_command() in self.facts.refused
        if self.facts.refused and is_asked and self.reading.intent <= Intent.EITHER and not self.facts.model_commands:
            return self._end_denied()
        if self._finishes_rename and self._list_leftovers():
            return self._finish_rename() or self._end()
        return self._verify_or_end() if self._has_command_changed() else self._ask()

    def _follow_up(self, last: Step) -> Move:
        """Return what comes after calls of the model: verification, or another question."""
        ran = [str(call.args.get("command")) for call in last.message.calls if call.name == "ExecuteCommand"]
        has_edits = len(ran) < len(last.message.calls)
        has_error = any(result.is_error and call.name != "ExecuteCommand" for call, result in last.list_results())
        if has_error or any(command in self.facts.failed_commands for command in ran):
            return self._ask_again()
        if has_edits:
            return self._verify_or_end()
        if self.reading.mentions_tests and any(command in self.facts.unavailable for command in ran):
            tests = self._survey.find_tests()
            if tests and tests not in self.facts.fresh:
                return Move((("ExecuteCommand", {"command": tests}),), "verify_")
        survey = self._survey.look_again() if self.reading.intent > Intent.EITHER else ()
        return Move(survey, "gather_") if survey else self._ask()

    def _has_command_changed(self) -> bool:
        """True if a command of the model has changed what the prompt names, or anything if it names nothing."""
        done = {path.rstrip("/") for path in (*self.facts.changed, *self.facts.created, *self.facts.deleted)}
        named = {self.facts.project.resolve(path) or path for path in self.reading.paths}
        return bool(done & named if named else done) and bool(self.facts.model_commands)

    def _verify_or_end(self) -> Move:
        calls = self._list_open_checks()
        return Move(calls, "verify_") if calls else self._end()

    def _list_open_checks(self) -> Calls:
        """Return what has to run after a change and has not run since: tests, and the search for an old name."""
        commands = self._survey.list_checks() if self._has_changed_code() else []
        calls: list[ToolUse] = [("ExecuteCommand", {"command": one}) for one in commands if one not in self.facts.fresh]
        if self._rename is not None and self._rename.pattern not in self.facts.fresh:
            calls.append(self._search_old_name(self._rename))
        return tuple(calls)

    def _search_old_name(self, rename: Rename) -> ToolUse:
        return "Grep", {"pattern": rename.pattern, "head_limit": MAX_LOOKUPS}

    def _rename_alone(self) -> Move | None:
        """Do a rename that is the whole task without the model: search, read, then change exactly."""
        rename, facts = self._rename, self.facts
        if rename is None or not rename.is_all:
            return None
        if rename.pattern not in facts.fresh:
            new = ("Grep", {"pattern": rf"\b{rename.new}\b", "head_limit": MAX_LOOKUPS})
            return Move((self._search_old_name(rename), new), "gather_")
        if any(line.path.endswith(CODE_ENDINGS) for line in facts.list_hits(rename.new)):
            return None
        paths = dict.fromkeys(line.path for line in facts.list_hits(rename.old))
        if facts.hit_counts[rename.old] > MAX_LOOKUPS:
            return None
        if unread := [path for path in paths if path not in facts.tried]:
            return Move(self._survey.read(unread), "gather_")
        if not all(path in facts.files for path in paths):
            return None
        texts = rename_in_project(rename, {path: facts.files[path] for path in paths}, self._list_named())
        if not texts:
            return None
        calls = tuple(make_calls(path, text, facts.files[path]) for path, text in texts.items())
        return Move(calls, "finish_")

    def _correct_values(self) -> Move | None:
        """Let a new test expect what the code returns, if the model was told and cannot: small models compute badly."""
        checks = [step for step in self._turn.steps if step.is_verifying and any(self._list_failed_checks(step))]
        asked = sum(step.is_by_model for step in self._turn.steps)
        if asked < 2 or not 0 < len(checks) <= _MAX_CORRECTIONS:
            return None
        values = self._find_wrong_values(self._list_failed_checks(checks[-1]))
        texts = {value.path: self.facts.files[value.path] for value in values}
        for value in values:
            texts[value.path] = value.correct(texts[value.path])
        calls = tuple(make_calls(path, text, self.facts.files[path]) for path, text in texts.items())
        return Move(calls, "finish_") if calls else None

    def _finish_rename(self) -> Move | None:
        """Rename what the model has left out: read the files that it was not shown, then change them exactly."""
        rename = self._rename
        paths = dict.fromkeys(line.path for line in self._list_leftovers()) if self._finishes_rename else {}
        if rename is None or not paths:
            return None
        if unread := [path for path in paths if path not in self.facts.tried]:
            return Move(self._survey.read(unread), "gather_")
        known = {path: self.facts.files[path] for path in paths if path in self.facts.files}
        calls = tuple(make_calls(path, replace_name(text, rename), text) for path, text in known.items())
        return Move(calls, "finish_") if calls else None

    def _end_denied(self) -> Move:
        """End after a refusal: asking the model again would not help. Raise NoProgress if no user was asked."""
        lines = self.facts.denied or [f"{command}: {text}" for command, text in self.facts.refused.items()]
        text = "\n".join(["Not done:", *(f"- {line}" for line in dict.fromkeys(lines))])
        if any("requires confirmation" in line for line in lines):
            raise NoProgress(text)
        return Move(answer=text)

    def _has_changed_code(self) -> bool:
        return any(path.endswith(CODE_ENDINGS) for path in (*self.facts.changed, *self.facts.created))

    def _end(self) -> Move:
        """End the turn with what was done, in the model's words if it had any."""
        facts = self.facts
        said = next(
            (step.message.text for step in reversed(self._turn.steps) if step.is_by_model and step.message.calls), ""
        ).strip()
        if any(step.is_finishing for step in self._turn.steps):
            tests = ", ".join(path for path in dict.fromkeys((*facts.created, *facts.changed)) if is_test(path))
            adapted = f"{tests} now expects what the code returns. Check that these values are right."
            said = (
                f"{said}\n\n{adapted}".strip()
                if self._rename is None
                else said or f"Renamed {self._rename.old} to {self._rename.new}."
            )
        changed = [path for path in facts.changed if path not in facts.created]
        lists = (("Created", facts.created), ("Changed", changed), ("Deleted", facts.deleted))
        done = " ".join(f"{verb} {', '.join(dict.fromkeys(paths))}." for verb, paths in lists if paths)
        ran = next(reversed(facts.commands), "")
        is_asked = self.reading.mentions_tests or ran == self._survey.find_command() or ran in facts.model_commands
        output = f"`{ran}`:\n{cut_text(facts.outputs[ran])}" if ran in facts.fresh and is_asked else ""
        if not output and (red := sorted(facts.failed_commands & facts.fresh)):
            output = f"`{red[0]}` fails, as it did before."
        return Move(answer="\n\n".join(part for part in (said, done, output) if part) or "Done.")

    def _ask_again(self) -> Move:
        """Ask again after a failure. Raise NoProgress after two identical ones, or too many."""
        last = [_TIMES.sub("#", failure) for failure in self._failures[-2:]]
        if len(last) > 1 and last[0] == last[1]:
            raise self._make_error("twice in the same way")
        if len(self._failures) > MAX_FAILURES:
            raise self._make_error(f"{len(self._failures)} times")
        return self._ask()

    def check_patience(self) -> None:
        """Raise NoProgress if the model has written nothing usable for the third time in a row."""
        faulty = itertools.takewhile(lambda step: step.message.stop == "unfinished", reversed(self._turn.steps))
        if sum(1 for _ in faulty) >= MAX_FAULTS - 1:
            raise self._make_error(f"{MAX_FAULTS} times in a row")

    def _make_error(self, times: str) -> NoProgress:
        done = " ".join(self._end().answer.split()) if self.facts.has_changes else "No file was changed."
        failed = cut_text(self._failures[-1], 600) if self._failures else "no usable reply"
        return NoProgress(f"The model failed {times}: {failed}\n{done}", _HINT)

    def _ask(self) -> Move:
        asked = sum(step.is_by_model for step in self._turn.steps)
        if asked >= MAX_ASKS:
            raise NoProgress(f"The model has not finished after {asked} replies. {self._end().answer}", _HINT)
        return Move(ask=self._build_request())

    def _list_wanted_checks(self, note: str) -> Calls:
        """Return the checks of the project that Odin reminds of and that have not run yet."""
        found = _CHECK_NOTE.search(note) if note.startswith("You changed") else None
        commands = re.findall(r"`([^`]+)`", found[1]) if found and self.can_run else []
        return tuple(("ExecuteCommand", {"command": one}) for one in commands if one not in self.facts.commands)

    # --- asking ---

    def _build_request(self) -> Request:
        """Return the request. After a reply that came to nothing, the other format may lead to another one."""
        only_edits = self.can_edit and self.reading.only_edits and not self.facts.rejected % 2
        form = CHANGE_FORMAT if only_edits else EDIT_FORMAT if self.can_edit else READ_FORMAT
        shown = ContextSections(self._survey, self._request.max_tokens)
        if self._correction:
            sections = [*shown.list_sections(self.facts, self._list_concerned()), self._correction]
            dialog = []
        else:
            first = self._gather_first_facts()
            sections = shown.list_sections(first, first.files)
            dialog = self._dialog
        task = format_task(sections, self._turn.prompt, self._list_notes())
        messages: list[Message] = [*build_examples(can_edit=self.can_edit, can_run=self.can_run and not only_edits)]
        for turn in self._earlier[-_MAX_EARLIER:]:
            answer = next((step.message.text for step in reversed(turn.steps) if step.message.text.strip()), "")
            messages += [PromptMessage(f"Task: {cut_text(turn.prompt)}"), _reply(cut_text(answer) or "Done.")]
        messages += [PromptMessage(task), *dialog]
        request = self._request
        return Request(
            model=request.model,
            messages=tuple(messages),
            system=(*request.system, form),
            max_tokens=min(request.max_tokens, self._limit_reply()),
            temperature=0.0 if request.temperature is None else request.temperature,
            agent=request.agent,
        )

    def _limit_reply(self) -> int:
        """Return the tokens that a reply may have: all shown files again, and something more."""
        return _REPLY_TOKENS + sum(len(text) for text in self.facts.files.values()) // CHARS_PER_TOKEN

    def _list_notes(self) -> list[str]:
        """Return what Odin says about the prompt, without facts that a small model does not need."""
        return [note for note in self._turn.notes if not note.startswith(("Cached files:", "Working directory:"))]

    def _gather_first_facts(self) -> TurnFacts:
        """Return what was known when the model was asked for the first time."""
        facts = self._make_facts()
        for step in itertools.takewhile(lambda step: step.is_gathering, self._turn.steps):
            facts.add_step(step)
        return facts

    def _list_concerned(self) -> list[str]:
        """Return the files that a correction is about, those that the turn has changed first.

        Other files distract: a small model writes them again instead.
        """
        facts = self.facts
        hits = {path for paths in facts.find_hit_files().values() for path in paths}
        changed = dict.fromkeys((*facts.created, *facts.changed))
        leads = {*self._list_named(), *hits}
        others = [
            path
            for path in facts.files
            if path in leads or path.rpartition("/")[2] in self._correction or is_partner(path, changed)
        ]
        return [path for path in dict.fromkeys((*changed, *others)) if path in facts.files] or list(facts.files)

    # --- judging a reply ---

    def judge_reply(self, text: str, *, is_cut: bool) -> ReplyOutcome:
        """Return what a reply of the model comes to; note a fault as a failure. `is_cut`: it was too long."""
        outcome = ReplyJudge(self.reading, self.facts, self._offered).judge_reply(text, is_cut=is_cut)
        if outcome.fault:
            self._failures.append(outcome.fault)
        return outcome

    def is_repeating(self, text: str) -> bool:
        """True if a reply that is being written only repeats what is known."""
        return ReplyJudge(self.reading, self.facts, self._offered).is_repeating(text)

    def _judge_again(self, text: str) -> ReplyOutcome:
        """Return why a reply was not accepted. If nothing else is wrong with it, it was too long."""
        outcome = self.judge_reply(text, is_cut=False)
        return outcome if outcome.fault else self.judge_reply(text, is_cut=True)

    def _describe_fault(self, outcome: ReplyOutcome) -> str:
        told = outcome.told or f"{outcome.fault} {outcome.advice}".rstrip()
        return f"{told}\n\nTask: {self._turn.prompt}"


def _render_reply(step: Step, files: dict[str, str]) -> str:
    """Return a reply of the model as it was written, more or less, from the calls made of it."""
    parts = [step.message.text.strip()]
    for call in step.message.calls:
        if call.name == "ExecuteCommand":
            parts.append(f"RUN {call.args.get('command')}")
        elif call.name == "Delete":
            parts += [f"DELETE {path}" for path in call.args.get("paths", ())]
        else:
            path = str(call.args.get("file_path"))
            parts.append(block_of(path, apply_call(call, files.get(path)) or ""))
    return "\n\n".join(part for part in parts if part)


def _reply(text: str) -> ReplyMessage:
    return ReplyMessage((Text(text),))
