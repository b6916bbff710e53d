"""Judges a reply of a small model: it comes to tool calls, an answer, or a fault that the model has to correct."""

import shlex
from collections.abc import Collection, Iterable
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from odin.providers.whole_files.file_change import clean_text, find_fault, make_calls, replace_loosely
from odin.providers.whole_files.file_completion import complete_file, find_loss, is_continued
from odin.providers.whole_files.loose_blocks import LooseBlocks
from odin.providers.whole_files.project_tests import is_test
from odin.providers.whole_files.prompt_intent import Intent, PromptReading
from odin.providers.whole_files.turn_history import TurnFacts
from odin.providers.whole_files.written_reply import WrittenBlock, WrittenReply, parse_reply, split_commands

NO_REPLY = "(The model replied nothing.)"
_MAX_OUTPUT_CHARS = 3_000

ToolUse = tuple[str, dict[str, Any]]
Calls = tuple[ToolUse, ...]


class ReplyOutcome(Struct, frozen=True):
    """What a reply of the model comes to: calls, an answer (`text`), or a `fault` that the model has to correct.

    `advice` is what the model is told beside the fault; `unshown` is a file that it has to see first.
    """

    text: str = ""
    calls: Calls = ()
    fault: str = ""
    advice: str = ""
    unshown: str = ""


class ReplyJudge:
    """Judges replies in the light of the prompt and of what the turn has shown so far."""

    def __init__(self, reading: PromptReading, facts: TurnFacts, offered: Collection[str]) -> None:
        self.reading = reading
        self.facts = facts
        self.can_edit = "WriteFile" in offered
        self.can_run = "ExecuteCommand" in offered
        self._can_delete = "Delete" in offered
        self._loose = LooseBlocks(reading, facts)

    def judge_reply(self, text: str, *, is_cut: bool = False) -> ReplyOutcome:
        """Return what a reply of the model comes to. `is_cut`: it was longer than replies may be."""
        if text.strip() in ("", NO_REPLY):
            return ReplyOutcome(text, fault="The reply was empty.")
        reply = parse_reply(text, {*self.facts.sizes, *(path for path in self.reading.paths if "." in path)})
        files = list(reply.files) or self._loose.place(reply)
        commands = reply.commands or (() if files else tuple(split_commands(reply.loose)))
        if not self.can_edit or self.reading.asks_only:
            files = []
            reply = replace(reply, replacements=(), deletions=())
        if unshown := next((path for block in files if self._is_unshown(path := self._resolve_path(block.path))), ""):
            return ReplyOutcome(text, fault=f"{unshown} was not shown yet.", unshown=unshown)
        files, fault = self._keep_tests(files)
        if fault:
            return ReplyOutcome(text, fault=fault)
        calls, fault, unchanged = self._make_file_calls(files)
        if not fault and is_cut and reply.is_cut and (files or not calls):
            fault = "The reply was too long and was cut off. Write only the files that change."
        replaced, missing = self._make_replacements(reply)
        fault = fault or missing
        if fault:
            return ReplyOutcome(text, fault=fault)
        calls += [*replaced, *self._make_deletions(reply)]
        if self.can_run:
            calls += [("ExecuteCommand", {"command": command}) for command in commands if self._is_new(command, calls)]
        if calls:
            return ReplyOutcome(reply.prose if files or replaced else "", tuple(calls))
        if commands and self.facts.outputs and not self._is_missing_change([]):
            return self._answer_with_output(commands)
        return self._judge_answer(text, reply, unchanged)

    def _judge_answer(self, text: str, reply: WrittenReply, unchanged: list[str]) -> ReplyOutcome:
        """Return the answer, unless the task wants a change and none was made."""
        facts = self.facts
        if facts.failing_check:
            again = f"{', '.join(unchanged)} is the same as before, and " if unchanged else ""
            return ReplyOutcome(
                text, fault=f"{again}{facts.failing_check} still fails.", advice="Write the fixed files."
            )
        if unchanged and facts.has_changes:
            return ReplyOutcome(reply.prose or "Done.")
        if self.can_edit and self._is_missing_change(unchanged):
            what = f"{', '.join(unchanged)} would stay exactly as it is" if unchanged else "no file was changed"
            return ReplyOutcome(text, fault=f"The task is not done: {what}.", advice=self._advise(reply))
        return ReplyOutcome(text)

    def _advise(self, reply: WrittenReply) -> str:
        """Return what the model should write, after a reply that changes nothing."""
        if reply.deletions:
            return f"{reply.deletions[0]} does not exist. Write DELETE and the path of a file."
        if any(not block.is_shell for block in reply.loose):
            return "Write the path of the file on the line above its code block."
        return "Write the path and the complete new file."

    def _is_missing_change(self, unchanged: list[str]) -> bool:
        """True if the task certainly wants a change; if it probably does, when the model says so for the first time."""
        facts, reading = self.facts, self.reading
        if facts.has_changes or reading.asks_only:
            return False
        if reading.wants_change or (reading.fixes_failures and facts.failed_commands):
            return not facts.model_commands or bool(reading.paths)
        is_doubtful = reading.intent is Intent.LIKELY and not facts.model_commands
        return not facts.rejected and (is_doubtful or bool(unchanged))

    def _answer_with_output(self, commands: Iterable[str]) -> ReplyOutcome:
        """The model wants to run again what it has run: its output is the answer."""
        known = [(command, self.facts.outputs[command]) for command in commands if command in self.facts.outputs]
        return ReplyOutcome("\n\n".join(f"`{command}`:\n{cut_text(text)}" for command, text in known))

    def _is_new(self, command: str, calls: list[Any]) -> bool:
        """True if a command has not run since the last change."""
        return bool(calls) or command not in self.facts.fresh

    def _is_unshown(self, path: str) -> bool:
        return path in self.facts.sizes and path not in self.facts.files

    def _keep_tests(self, files: list[WrittenBlock]) -> tuple[list[WrittenBlock], str]:
        """Return the files without tests that a model adapts to a bug, and a fault if no other file is left.

        It is told once: a test may be wrong.
        """
        tests = [
            block for block in files if is_test(path := self._resolve_path(block.path)) and path in self.facts.files
        ]
        if not tests or not self.reading.trusts_tests or self.facts.rejected or self.facts.has_changes:
            return files, ""
        if len(tests) < len(files):
            return [block for block in files if block not in tests], ""
        return [], f"The tests are right. Fix the code, not {tests[0].path}."

    def _make_file_calls(self, files: Iterable[WrittenBlock]) -> tuple[list[ToolUse], str, list[str]]:
        """Return the calls for whole files, what is wrong with one of them, and the files that stay as they are.

        Several blocks of one file are applied one after the other: a model may write its parts, or quote it first.
        """
        texts: dict[str, str] = {}
        for block in files:
            path = self._resolve_path(block.path)
            old = self.facts.files.get(path)
            written = clean_text(path, block.text, old or "")
            known = texts.get(path)
            if known is None or is_continued(path, written, known):
                texts[path] = complete_file(path, written, old or "" if known is None else known, self.reading.text)
        calls: list[ToolUse] = []
        unchanged: list[str] = []
        for path, text in texts.items():
            old = self.facts.files.get(path)
            if text == old:
                unchanged.append(path)
            elif fault := find_loss(path, text, old or "", self.reading.text) or find_fault(path, text, old or ""):
                return [], fault, unchanged
            else:
                calls.append(make_calls(path, text, old))
        return calls, "", unchanged

    def _resolve_path(self, written: str) -> str:
        """Return the file that a written path means. A model may invent folders: `src/calc.py` for the only calc.py."""
        path = written.removeprefix(f"{self.facts.cwd}/").removeprefix("./")
        if found := self.facts.project.resolve(path):
            return found
        folder, _, name = path.rpartition("/")
        is_folder = folder in self.reading.text or self.facts.project.list_under(folder)
        if not folder or is_folder or path in self.reading.text:
            return path
        return self.facts.project.resolve(name) or path

    def _make_replacements(self, reply: WrittenReply) -> tuple[list[ToolUse], str]:
        texts: dict[str, str] = {}
        for one in reply.replacements if self.can_edit else ():
            path = self._resolve_path(one.path) if one.path else self._loose.find_path(one.old)
            old = texts.get(path, self.facts.files.get(path))
            if old is None and (one.old or not path):
                return [], f"{path or 'A file'} was not shown. Write the path and the complete file."
            old = old or ""
            text = (
                replace_loosely(old, one.old, one.new)
                if one.old
                else complete_file(path, f"{one.new}\n", old, self.reading.text)
            )
            if text is None:
                return [], f"The lines to replace were not found in {path}. Write the complete file."
            texts[path] = text
        calls: list[ToolUse] = []
        for path, text in texts.items():
            old = self.facts.files.get(path)
            if fault := find_fault(path, text, old or ""):
                return [], fault
            if text != old:
                calls.append(make_calls(path, text, old))
        return calls, ""

    def _make_deletions(self, reply: WrittenReply) -> list[ToolUse]:
        paths = [found for path in reply.deletions if (found := self.facts.project.resolve(path))]
        folders = [path.rstrip("/") for path in reply.deletions if self.facts.project.list_under(path)]
        folders = [folder for folder in folders if folder in self.reading.text]
        for folder in folders:
            paths += [path for path in self.facts.project.list_under(folder) if path not in paths]
        if not paths or not self.can_edit:
            return []
        calls: list[ToolUse] = [("Delete", {"paths": paths, "reason": "the task asks for it"})]
        if not self._can_delete:
            calls = [("ExecuteCommand", {"command": f"rm -- {shlex.join(paths)}"})]
        if folders and self.can_run:
            calls.append(("ExecuteCommand", {"command": f"find {shlex.join(folders)} -depth -type d -empty -delete"}))
        return calls


def cut_text(text: str, most: int = _MAX_OUTPUT_CHARS) -> str:
    """Return the start and the end of a long text."""
    text = text.strip()
    return text if len(text) <= most else f"{text[: most // 2]}\n[…]\n{text[-most // 2 :]}"
