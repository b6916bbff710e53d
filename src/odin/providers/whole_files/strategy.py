"""Chooses the next action of a turn: look, ask the model, act on its reply, verify, or end.

An action depends only on the request, so the same history always gives the same action.
"""

import itertools
import re
from collections.abc import Iterator

from msgspec import Struct

from odin.core.errors import NoProgress
from odin.core.message import CACHED_FILES_NOTE, ENVIRONMENT_NOTE, Message, PromptMessage
from odin.core.provider import Request
from odin.providers.whole_files.context_choice import CODE_ENDINGS, Calls, ContextChoice, is_related_file
from odin.providers.whole_files.project_state import ProjectState, apply_call, find_words
from odin.providers.whole_files.project_tests import has_new_failure, is_module_still_missing
from odin.providers.whole_files.prompt_features import classify_prompt
from odin.providers.whole_files.reply_judgement import ReplyJudge, ReplyOutcome
from odin.providers.whole_files.request_text import (
    CHANGE_FORMAT,
    CHARS_PER_TOKEN,
    EDIT_FORMAT,
    READ_FORMAT,
    build_examples,
    cut_text,
    format_file,
    format_outputs,
    format_task,
    list_sections,
    make_reply,
)
from odin.providers.whole_files.turn_history import (
    GATHER_PREFIX,
    VERIFY_PREFIX,
    HistoryTurn,
    Step,
    TurnFacts,
    read_turns,
)

MAX_FAILURES = 3
"""Replies in a turn that may fail: invalid files, refused edits, failed tests."""
MAX_ERRORS = 3
"""Replies in a row with errors. The engine ends a turn after as many, without saying what was wrong."""
MAX_ASKS = 6
_MAX_EARLIER = 2
_REPLY_TOKENS = 700
_TIMES = re.compile(r"\d+(?:\.\d+)? ?(?:ms|s)\b|0x[0-9a-f]+")
"""What differs between two outputs although nothing has changed."""
_HINT = "Try a smaller step, name the files and what to change in them, or use a larger model with --model."


class Action(Struct, frozen=True):
    """What happens next: calls of Odin itself (`prefix` starts their ids), an answer, or a request to the model."""

    calls: Calls = ()
    prefix: str = ""
    answer: str = ""
    request: Request | None = None


class WholeFileStrategy:
    """Everything that is known about the running turn of one request."""

    def __init__(self, request: Request, context: int) -> None:
        turns = read_turns(request.messages)
        self._request = request
        self._earlier = turns[:-1]
        self._turn = turns[-1] if turns else HistoryTurn("")
        self._offered = {tool.name for tool in request.tools}
        self._can_edit = "WriteFile" in self._offered
        self._can_run = "ExecuteCommand" in self._offered
        self._features = classify_prompt(self._turn.prompt)
        self._facts = self._make_facts()
        self._choice = ContextChoice(
            self._features, self._facts, context, can_edit=self._can_edit, can_run=self._can_run
        )
        self._failures: list[str] = []
        self._dialog: list[Message] = []
        """The commands of the model and their outputs."""
        self._correction = ""
        """What is wrong with the last reply or change."""
        self._unread_path = ""
        for step in self._turn.steps:
            self._add_step(step)

    def _make_facts(self) -> TurnFacts:
        words = find_words(self._features.text, self._features.terms)
        return TurnFacts(self._features.text, ProjectState(self._features.paths, words))

    # --- what has happened ---

    def _add_step(self, step: Step) -> None:
        """Update the state with the result of one step and with what the model reads about it."""
        outcome = self._judge_again(step.message.text) if step.is_unfinished else None
        before = dict(self._facts.project.files)
        self._facts.add_step(step)
        if outcome is not None:
            self._facts.refused_texts.update(outcome.lossy_texts)
            self._unread_path = outcome.unread_path
            self._correction = outcome.message or f"{outcome.error} {outcome.hint}".rstrip()
        elif step.is_verifying:
            self._correction = self._describe_checks(step)
        elif step.is_by_model:
            self._add_results(step, before)
            if step.note is not None and step.note.origin == "checks":
                self._correction = step.note.text
                self._failures.append(step.note.text)

    def _add_results(self, step: Step, before: dict[str, str]) -> None:
        """Note the results of the model's calls. After a command, the conversation goes on with its output.

        After anything else that went wrong the next request is a new one, with the files as they are then: in a long
        conversation a small model repeats its instructions instead of correcting a file.
        """
        refused: list[str] = []
        outputs: list[tuple[str, str]] = []
        for call, result in step.list_results():
            if call.name == "ExecuteCommand":
                command = str(call.args.get("command"))
                outputs.append((command, cut_text(result.text)))
                if command in self._facts.commands.failed:
                    self._failures.append(f"{command}: {result.text}")
            elif result.is_error:
                path = call.args.get("file_path") or call.args.get("paths")
                refused.append(f"{path} was not changed: {result.text}")
                self._failures.append(f"{path}: {result.text}")
        self._correction = "\n\n".join(refused) if not outputs else ""
        if outputs:
            said = format_outputs(outputs, self._turn.prompt)
            self._dialog += [
                make_reply(_render_reply(step, before)),
                PromptMessage("\n\n".join((*refused, said))),
            ]

    def _describe_checks(self, step: Step) -> str:
        """Return what the model reads about the checks of its change; note the failures among them."""
        failed = list(self._list_failed_checks(step))
        self._failures += [f"{command}: {text}" for command, text in failed]
        self._facts.failing_check = failed[0][0] if failed else ""
        return "\n\n".join(f"{command} fails:\n{cut_text(text)}" for command, text in failed)

    def _list_failed_checks(self, step: Step) -> Iterator[tuple[str, str]]:
        """Yield the commands with their outputs that show that the change does not work.

        What failed before the change, too, is not its fault, unless the task is about the failure.
        """
        for call, result in step.list_results():
            command = str(call.args.get("command"))
            before = self._facts.commands.first_failures.get(command)
            if command not in self._facts.commands.failed:
                continue
            is_task = self._features.reports_failure or (self._features.repairs and self._is_about_task(result.text))
            is_excused = before is not None and (not is_task or is_module_still_missing(before, result.text))
            if not is_excused or has_new_failure(before, result.text):
                yield command, result.text

    def _is_about_task(self, output: str) -> bool:
        """True if an output mentions a name of the prompt: then it failed before because the task was not done."""
        names = {*self._features.terms, *self._facts.project.lookup.definitions}
        return any(re.search(rf"(?<![^\W_]){re.escape(name)}(?![^\W_])", output) for name in names)

    # --- the next action ---

    def choose_next_action(self) -> Action:
        """Return the next action. Raise NoProgress if the model fails again and again."""
        steps = self._turn.steps
        if not steps:
            return Action(self._choice.look_around(), GATHER_PREFIX)
        if all(step.is_gathering for step in steps) and (calls := self._choice.gather()):
            return Action(calls, GATHER_PREFIX)
        last = steps[-1]
        if last.is_gathering:
            return self._go_on()
        if not last.is_verifying and any(result.is_denied for _, result in last.list_results()):
            return self._end_denied()
        if last.is_verifying:
            return self._ask_again() if self._correction else self._end()
        if last.message.calls:
            return self._follow_up(last)
        if self._unread_path and self._unread_path not in self._facts.project.read_paths:
            return Action(self._choice.read([self._unread_path]), GATHER_PREFIX)
        if last.is_unfinished or self._correction:
            return self._ask_again()
        return Action(answer=last.message.text)

    def _go_on(self) -> Action:
        """Return what comes after looking. A command that the prompt asks for and that may not run ends the turn."""
        commands = self._facts.commands
        is_asked = self._features.runs_tests or self._choice.find_command() in commands.refused
        if commands.refused and is_asked and self._features.is_question and not commands.by_model:
            return self._end_denied()
        return self._verify_or_end() if commands.by_model and self._has_named_change() else self._ask()

    def _follow_up(self, last: Step) -> Action:
        """Return what comes after calls of the model: verification, or another question."""
        has_error = any(result.is_error and call.name != "ExecuteCommand" for call, result in last.list_results())
        if has_error or self._facts.commands.failed.intersection(last.commands):
            return self._ask_again()
        if len(last.commands) < len(last.message.calls):
            return self._verify_or_end()
        looks = () if self._features.is_question else self._choice.look_again()
        return Action(looks, GATHER_PREFIX) if looks else self._ask()

    def _has_named_change(self) -> bool:
        """True if a command of the model has changed what the prompt names, or anything if it names nothing."""
        project = self._facts.project
        done = {path.rstrip("/") for path in (*project.written, *project.deleted)}
        named = {project.resolve(path) or path for path in self._features.paths}
        return bool(done & named if named else done)

    def _verify_or_end(self) -> Action:
        """Run what shows whether the change works and has not run since; else end."""
        has_code = any(path.endswith(CODE_ENDINGS) for path in self._facts.project.written)
        commands = self._choice.list_checks() if has_code else []
        open_checks = [one for one in commands if one not in self._facts.commands.fresh]
        calls = tuple(("ExecuteCommand", {"command": one}) for one in open_checks)
        return Action(calls, VERIFY_PREFIX) if calls else self._end()

    def _end_denied(self) -> Action:
        """End after a denial: asking the model again would not help. Raise NoProgress if no user could be asked."""
        refused = self._facts.commands.refused
        lines = self._facts.denied or [f"{command}: {text}" for command, text in refused.items()]
        text = "\n".join(["Not done:", *(f"- {line}" for line in dict.fromkeys(lines))])
        if self._facts.needs_user:
            raise NoProgress(text)
        return Action(answer=text)

    def _end(self) -> Action:
        """End the turn with what was done, in the model's words if it had any."""
        project, commands = self._facts.project, self._facts.commands
        acted = [step for step in self._turn.steps if step.is_by_model and step.message.calls]
        said = acted[-1].message.text.strip() if acted else ""
        changed = [path for path in project.changed if path not in project.created]
        lists = (("Created", project.created), ("Changed", changed), ("Deleted", project.deleted))
        done = " ".join(f"{verb} {', '.join(dict.fromkeys(paths))}." for verb, paths in lists if paths)
        ran = next(reversed(commands.outputs), "")
        is_asked = self._features.mentions_tests or ran == self._choice.find_command() or ran in commands.by_model
        output = f"`{ran}`:\n{cut_text(commands.outputs[ran])}" if ran in commands.fresh and is_asked else ""
        if not output and (failed := sorted(commands.failed & commands.fresh)):
            output = f"`{failed[0]}` fails, as it did before."
        return Action(answer="\n\n".join(part for part in (said, done, output) if part) or "Done.")

    def _ask_again(self) -> Action:
        """Ask again after a failure. Raise NoProgress after two identical ones, or too many."""
        last = [_TIMES.sub("#", failure) for failure in self._failures[-2:]]
        if len(last) > 1 and last[0] == last[1]:
            raise self._make_error("twice in the same way")
        if len(self._failures) > MAX_FAILURES:
            raise self._make_error(f"{len(self._failures)} times")
        return self._ask()

    def check_patience(self) -> None:
        """Raise NoProgress if the model has written nothing usable for the third time in a row."""
        faulty = itertools.takewhile(lambda step: step.is_unfinished, reversed(self._turn.steps))
        if sum(1 for _ in faulty) >= MAX_ERRORS - 1:
            raise self._make_error(f"{MAX_ERRORS} times in a row")

    def _make_error(self, times: str) -> NoProgress:
        done = " ".join(self._end().answer.split()) if self._facts.project.has_changes else "No file was changed."
        failed = cut_text(self._failures[-1], 600) if self._failures else "no usable reply"
        return NoProgress(f"The model failed {times}: {failed}\n{done}", _HINT)

    # --- asking ---

    def _ask(self) -> Action:
        asked = sum(step.is_by_model for step in self._turn.steps)
        if asked >= MAX_ASKS:
            raise NoProgress(f"The model has not finished after {asked} replies. {self._end().answer}", _HINT)
        return Action(request=self._build_request())

    def _build_request(self) -> Request:
        """Return the request. After a reply with an error, another format may lead to a better one."""
        only_edits = self._can_edit and self._features.only_edits and self._facts.rejected % 2 == 0
        form = CHANGE_FORMAT if only_edits else EDIT_FORMAT if self._can_edit else READ_FORMAT
        request = self._request
        if self._correction:
            shown = list_sections(self._choice, self._facts, self._list_concerned(), request.max_tokens)
            sections, dialog = [*shown, self._correction], []
        else:
            first = self._gather_first_facts()
            sections = list_sections(self._choice, first, first.project.files, request.max_tokens)
            dialog = self._dialog
        # Facts that a small model does not need are left out.
        notes = [note for note in self._turn.notes if not note.startswith((CACHED_FILES_NOTE, ENVIRONMENT_NOTE))]
        messages: list[Message] = [*build_examples(can_edit=self._can_edit, can_run=self._can_run and not only_edits)]
        for turn in self._earlier[-_MAX_EARLIER:]:
            answer = next((step.message.text for step in reversed(turn.steps) if step.message.text.strip()), "")
            messages += [PromptMessage(f"Task: {cut_text(turn.prompt)}"), make_reply(cut_text(answer) or "Done.")]
        messages += [PromptMessage(format_task(sections, self._turn.prompt, notes)), *dialog]
        # A reply may repeat all shown files, and say something more.
        longest = _REPLY_TOKENS + sum(map(len, self._facts.project.files.values())) // CHARS_PER_TOKEN
        return Request(
            model=request.model,
            messages=tuple(messages),
            system=(*request.system, form),
            max_tokens=min(request.max_tokens, longest),
            temperature=0.0 if request.temperature is None else request.temperature,
            agent=request.agent,
        )

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
        project = self._facts.project
        hits = {path for paths in project.find_hit_files().values() for path in paths}
        leads = {*project.list_named(), *hits, self._unread_path}
        others = [
            path
            for path in project.files
            if path in leads or path.rpartition("/")[2] in self._correction or is_related_file(path, project.written)
        ]
        chosen = [path for path in dict.fromkeys((*project.written, *others)) if path in project.files]
        return chosen or list(project.files)

    # --- checking a reply ---

    def judge_reply(self, text: str, *, is_cut: bool) -> ReplyOutcome:
        """Return what a reply of the model becomes; note an error as a failure. `is_cut`: it was too long."""
        outcome = ReplyJudge(self._features, self._facts, self._offered).judge_reply(text, is_cut=is_cut)
        if outcome.error:
            self._failures.append(outcome.error)
        return outcome

    def is_repeating(self, text: str) -> bool:
        """True if a reply that is being written only repeats what is known."""
        return ReplyJudge(self._features, self._facts, self._offered).is_repeating(text)

    def _judge_again(self, text: str) -> ReplyOutcome:
        """Return why a reply was not accepted. If nothing else is wrong with it, it was too long."""
        outcome = self.judge_reply(text, is_cut=False)
        return outcome if outcome.error else self.judge_reply(text, is_cut=True)


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
            parts.append(format_file(path, apply_call(call, files.get(path)) or ""))
    return "\n\n".join(part for part in parts if part)
