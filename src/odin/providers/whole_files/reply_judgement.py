"""Judges a reply of a small model: it comes to tool calls, an answer, or a fault that the model has to correct."""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import takewhile
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from odin.core.path_names import quote_path
from odin.providers.whole_files.file_change import clean_text, find_fault, make_calls, replace_loosely
from odin.providers.whole_files.file_completion import complete_file, find_loss, is_continued, keep_others
from odin.providers.whole_files.file_outline import CODE, list_definitions
from odin.providers.whole_files.missing_imports import add_missing_imports
from odin.providers.whole_files.project_tests import is_test
from odin.providers.whole_files.prompt_intent import Intent, PromptReading
from odin.providers.whole_files.rename import find_rename, limit_to_rename
from odin.providers.whole_files.task_context import EXAMPLE_FILES
from odin.providers.whole_files.text_additions import correct_additions
from odin.providers.whole_files.turn_history import TurnFacts
from odin.providers.whole_files.written_reply import WrittenBlock, WrittenReply, is_path, parse_reply, split_commands

NO_REPLY = "(The model replied nothing.)"
_MAX_OUTPUT_CHARS = 3_000
_MAX_KEPT_FILES = 2
"""Files that a reply may repeat unchanged in a row after it has changed one."""
_MIN_REPEATS = 4
_MAX_REPEATED_CHARS = 400
"""The same line so often that the model does not find an end. Data may repeat a short line."""
_MAX_ALIKE = 9
_KEPT_ALIKE = 3
_MAX_CYCLE = 3
"""Assertions in a row that differ only in their values, how many of them are enough, and the lines of one."""
_ASSERTION = re.compile(r"(?:self\.assert\w+|assert(?:\.\w+)?|expect)\b")
_COUNTED = re.compile(r"\d+(?:\.\d+)?|\"[^\"]*\"|'[^']*'")
_ENDINGS = {
    "python": (".py", ".pyi"),
    "py": (".py", ".pyi"),
    "javascript": (".js", ".mjs", ".cjs", ".jsx"),
    "js": (".js", ".mjs", ".cjs", ".jsx"),
    "typescript": (".ts", ".tsx"),
    "ts": (".ts", ".tsx"),
    "go": (".go",),
    "rust": (".rs",),
    "java": (".java",),
    "c": (".c", ".h"),
    "cpp": (".cpp", ".h"),
    "ruby": (".rb",),
    "html": (".html", ".htm"),
    "css": (".css",),
    "json": (".json",),
    "toml": (".toml",),
    "yaml": (".yaml", ".yml"),
    "yml": (".yaml", ".yml"),
    "markdown": (".md", ".mdx", ".markdown"),
    "md": (".md", ".mdx", ".markdown"),
    "csv": (".csv",),
    "sql": (".sql",),
}
"""How the files of a language end. Other languages say nothing about the file."""
_TEST_CODE = re.compile(
    r"^\s*(?:def test_|class \w+\((?:unittest\.)?TestCase\)|import unittest|import pytest"
    r"|(?:test|it|describe)\(\s*['\"`]|func Test\w+\()",
    re.MULTILINE,
)
_SAVED_AS = re.compile(
    r"\b(?:save|store|put|name|create|call)\w*\b[^.\n]{0,40}?[`*\"']+([^\s`*\"']+)[`*\"']+", re.IGNORECASE
)
"""`Save this as "sum.py"`, before or after the block."""

ToolUse = tuple[str, dict[str, Any]]
Calls = tuple[ToolUse, ...]


class ReplyOutcome(Struct, frozen=True):
    """What a reply of the model comes to: calls, an answer (`text`), or a `fault` that the model has to correct.

    `advice` is what the model is told beside the fault, `told` what it is told instead; `unshown` is a file that it has
    to see first.
    """

    text: str = ""
    calls: Calls = ()
    fault: str = ""
    advice: str = ""
    told: str = ""
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
        reply = parse_reply(text, {*self.facts.sizes, *filter(is_path, self.reading.paths)})
        files = [block for block in (*reply.files, *self._loose.place(reply)) if not self._is_example(block.path)]
        commands = reply.commands or (() if files else tuple(split_commands(reply.loose)))
        if not self.can_edit or self.reading.asks_only:
            files = []
            reply = replace(reply, replacements=(), deletions=())
        files, unshown = self._split_unshown(files)
        if unshown:
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

    def is_repeating(self, text: str) -> bool:
        """True if a reply that is being written has started to repeat itself, or the files as they are after a change.

        A small model that has done its task may go on with all other files of the project, again and again.
        """
        blocks = parse_reply(text, self.facts.sizes).files
        written = [(self._resolve_path(block.path), block.text) for block in blocks if block.is_closed]
        kept = [self.facts.files.get(path) == content for path, content in written]
        return (
            any(written[-1:] == [earlier] for earlier in written[:-1])
            or (len(kept) > _MAX_KEPT_FILES and all(kept[-_MAX_KEPT_FILES:]) and not all(kept))
            or _is_stuck(text)
            or cut_assertions(text) != text
        )

    def _is_example(self, path: str) -> bool:
        """True for the file of the examples in the request, which a model may repeat."""
        return path in EXAMPLE_FILES and path not in self.facts.sizes and path not in self.reading.text

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
            paths = ", ".join(unchanged)
            what = f"{paths} would stay exactly as it is" if unchanged else "no file was changed"
            verb, what_of = ("is", "it") if len(unchanged) == 1 else ("are", "them")
            told = f"{paths} {verb} not right yet: a line of {what_of} must change." if unchanged else ""
            new = next((path for path in self.reading.paths if self._is_to_create(path)), "")
            told = f"Write {new}: its path, then a code block with its content." if new else told
            return ReplyOutcome(text, fault=f"The task is not done: {what}.", advice=self._advise(reply), told=told)
        return ReplyOutcome(text)

    def _is_to_create(self, path: str) -> bool:
        """True for a file that the prompt names and that does not exist yet."""
        return "." in path.rpartition("/")[2] and not self.facts.project.resolve(path) and self.reading.wants_change

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
            return not facts.model_commands or not reading.is_done_by_command
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

    def _split_unshown(self, files: list[WrittenBlock]) -> tuple[list[WrittenBlock], str]:
        """Return the files that the model may write, and one that it has to see first.

        A file that it makes up beside those that the prompt names is left out.
        """
        paths = [self._resolve_path(block.path) for block in files]
        named = [
            path for path in paths if path in self.facts.files and path in map(self._resolve_path, self.reading.paths)
        ]
        unshown = [path for path in paths if self._is_unshown(path)]
        if not named:
            return files, next(iter(unshown), "")
        return [block for block, path in zip(files, paths, strict=True) if path not in unshown], ""

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

    def _make_file_calls(self, files: Sequence[WrittenBlock]) -> tuple[list[ToolUse], str, list[str]]:
        """Return the calls for whole files, what is wrong with one of them, and the files that stay as they are.

        Several blocks of one file are applied one after the other: a model may write its parts, or quote it first.
        """
        texts: dict[str, str] = {}
        written: dict[str, str] = {}
        elsewhere = self._find_moved_names(files)
        rename = find_rename(self.reading.text) if self.reading.intent > Intent.EITHER else None
        for block in files:
            path = self._resolve_path(block.path)
            old = self.facts.files.get(path, "")
            text = clean_text(path, block.text, old)
            known = texts.get(path)
            if known is None or is_continued(path, text, known):
                before = old if known is None else known
                written[path] = text
                whole = complete_file(path, text, before, self.reading.text, elsewhere(path))
                texts[path] = keep_others(path, whole, before, self.reading.text)
                texts[path] = add_missing_imports(path, texts[path], old, self.facts.files)
                texts[path] = correct_additions(path, texts[path], old, self.reading.text)
                if old and rename and rename.is_all:
                    texts[path] = limit_to_rename(old, texts[path], rename)
        calls: list[ToolUse] = []
        unchanged: list[str] = []
        for path, text in texts.items():
            old = self.facts.files.get(path)
            if text == old:
                unchanged.append(path)
            elif fault := self._find_loss(path, text, elsewhere(path)):
                return [], fault, unchanged
            elif fault := find_fault(path, text, old or ""):
                fits = text == written[path] or find_fault(path, written[path])
                return [], fault if fits else f"These lines do not fit into {path}. Write the complete file.", unchanged
            else:
                calls.append(make_calls(path, text, old))
        return calls, "", unchanged

    def _find_loss(self, path: str, text: str, elsewhere: Collection[str]) -> str:
        """Return what the file would lose. The model may write again what it has created itself."""
        old = "" if path in self.facts.created else self.facts.files.get(path, "")
        return find_loss(path, text, old, self.reading.text, elsewhere)

    def _find_moved_names(self, files: Iterable[WrittenBlock]) -> Callable[[str], set[str]]:
        """Return a function that tells which names other files than this one get from the reply."""
        added = {
            path: list_definitions(path, block.text) - list_definitions(path, self.facts.files.get(path, ""))
            for block in files
            if (path := self._resolve_path(block.path))
        }
        return lambda path: {name for other, names in added.items() if other != path for name in names}

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
            calls = [("ExecuteCommand", {"command": f"rm -- {' '.join(map(quote_path, paths))}"})]
        if folders and self.can_run:
            calls.append(
                (
                    "ExecuteCommand",
                    {"command": f"find {' '.join(map(quote_path, folders))} -depth -type d -empty -delete"},
                )
            )
        return calls


class LooseBlocks:
    """Finds the file of a code block without a path by what the prompt names and the files contain."""

    def __init__(self, reading: PromptReading, facts: TurnFacts) -> None:
        self._facts = facts
        named = (facts.project.resolve(path) or path for path in reading.paths if is_path(path, facts.sizes))
        self._named = list(dict.fromkeys(named))

    def place(self, reply: WrittenReply) -> list[WrittenBlock]:
        """Return the blocks that belong to a file, with its path. Examples of use belong to none."""
        blocks = [block for block in reply.loose if block.text.strip() and not block.is_shell]
        if reply.files:
            return [block for block in self._place_alike(blocks) if block.path not in {one.path for one in reply.files}]
        if len(blocks) > 1:
            blocks = [block for block in blocks if not block.is_usage]
        defining = [block for block in blocks if list_definitions("a.py", block.text)]
        if len(blocks) > len(defining) == 1:
            blocks = defining
        saved = [path for path in _SAVED_AS.findall(reply.prose) if is_path(path, self._facts.sizes)]
        placed: list[WrittenBlock] = []
        for block in blocks:
            path = self.find_path(block.text, block.language)
            if not path and len(blocks) == len(set(saved)) == 1:
                path = saved[0]
            if path:
                placed.append(replace(block, path=path))
        return placed

    def _place_alike(self, blocks: Iterable[WrittenBlock]) -> Iterator[WrittenBlock]:
        """Yield the blocks that are certainly a version of a file."""
        for block in blocks:
            alike = self._list_alike(block.text, self._facts.files)
            if len(alike) == 1:
                yield replace(block, path=alike[0])

    def find_path(self, text: str, language: str = "") -> str:
        """Return the path of the file that a text is for; "" if that is not certain."""
        named = self._keep_fitting(self._named, text, language)
        if _TEST_CODE.search(text) and not named and self._named:
            return self._find_test_path(self._keep_language(self._named, language))
        if len(named) == 1:
            return named[0]
        alike = self._list_alike(text, named or self._facts.files)
        if len(alike) == 1:
            return alike[0]
        new = [path for path in named if path not in self._facts.sizes]
        return new[0] if len(new) == 1 and not alike else ""

    def _keep_language(self, paths: Iterable[str], language: str) -> list[str]:
        endings = _ENDINGS.get(language.casefold(), ())
        return [path for path in paths if not endings or path.endswith(endings)]

    def _keep_fitting(self, paths: Iterable[str], text: str, language: str) -> list[str]:
        """Return the paths for a text of this language: tests for a test, other files for other code."""
        fitting = self._keep_language(paths, language)
        if _TEST_CODE.search(text):
            return [path for path in fitting if is_test(path) or not path.endswith(CODE)]
        code = [path for path in fitting if not is_test(path)]
        return code or fitting

    def _find_test_path(self, about: list[str]) -> str:
        """Return where the test of a file is, or where it goes, if it is the only one that the prompt names."""
        if len(about) != 1:
            return ""
        folder, _, name = about[0].rpartition("/")
        stem, _, ending = name.rpartition(".")
        wanted = {"py": f"test_{stem}.py", "go": f"{stem}_test.go"}.get(ending, f"{stem}.test.{ending}")
        known = [path for path in self._facts.sizes if path.rpartition("/")[2] == wanted]
        if known:
            return known[0]
        tests = [path.rpartition("/")[0] for path in self._facts.sizes if is_test(path)]
        place = tests[0] if tests and ending != "go" else folder
        return f"{place}/{wanted}" if place else wanted

    def _list_alike(self, text: str, paths: Iterable[str]) -> list[str]:
        """Return the files that have most lines of a text; if there are none, those that define a name of it."""
        known = {path: self._facts.files[path] for path in paths if path in self._facts.files}
        lines = [line for line in text.splitlines() if line.strip()]
        alike = [
            path for path, old in known.items() if sum(line in old.splitlines() for line in lines) * 2 >= len(lines)
        ]
        return alike or [
            path
            for path, old in known.items()
            if path.endswith(CODE) and list_definitions(path, text) & list_definitions(path, old)
        ]


def _is_stuck(text: str) -> bool:
    """True if a text ends with the same line again and again."""
    lines = [line for line in text.rpartition("\n")[0].splitlines() if line.strip()]
    times = sum(1 for _ in takewhile(lambda line: line == lines[-1], reversed(lines)))
    return times >= _MIN_REPEATS and times * len(lines[-1]) >= _MAX_REPEATED_CHARS


def cut_assertions(text: str) -> str:
    """Return a reply without the assertions at its end that only count on: a small model does not stop writing them."""
    lines = text.rpartition("\n")[0].splitlines()
    filled = [at for at, line in enumerate(lines) if line.strip()]
    forms = [_COUNTED.sub("#", lines[at].strip()) for at in filled[-_MAX_CYCLE * _MAX_ALIKE :]]
    for size in range(1, _MAX_CYCLE + 1):
        cycle = forms[-size:]
        groups = [forms[at : at + size] for at in range(len(forms) - size, -1, -size)]
        times = next((count for count, group in enumerate(groups) if group != cycle), len(groups))
        if times >= _MAX_ALIKE and any(map(_ASSERTION.match, cycle)):
            kept = lines[: filled[-size * (times - _KEPT_ALIKE) - 1] + 1]
            return "\n".join(kept) + "\n```\n"
    return text


def cut_text(text: str, most: int = _MAX_OUTPUT_CHARS) -> str:
    """Return the start and the end of a long text."""
    text = text.strip()
    return text if len(text) <= most else f"{text[: most // 2]}\n[…]\n{text[-most // 2 :]}"
