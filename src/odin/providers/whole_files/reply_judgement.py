"""Checks a reply of a small model: it becomes tool calls, an answer, or an error that the model has to correct."""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import takewhile

from msgspec import Struct
from msgspec.structs import replace

from odin.core.path_names import quote_path
from odin.providers.whole_files.context_choice import Calls, ToolUse
from odin.providers.whole_files.file_change import clean_text, find_error, make_call, replace_loosely
from odin.providers.whole_files.file_loss import CODE, find_loss, list_definitions
from odin.providers.whole_files.project_tests import is_test
from odin.providers.whole_files.prompt_features import PromptFeatures
from odin.providers.whole_files.request_text import EXAMPLE_FILES, cut_text
from odin.providers.whole_files.turn_history import TurnFacts
from odin.providers.whole_files.written_reply import WrittenBlock, WrittenReply, is_path, parse_reply, split_commands

NO_REPLY = "(The model replied nothing.)"
_MAX_KEPT_FILES = 2
"""Files that a reply may repeat unchanged in a row after it has changed one."""
_MIN_REPEATS = 4
_MAX_REPEATED_CHARS = 400
"""The same line so often that the model does not find an end. Data may repeat a short line."""
_LANGUAGE_ENDINGS = {
    "python": (".py", ".pyi"),
    "javascript": (".js", ".mjs", ".cjs", ".jsx"),
    "typescript": (".ts", ".tsx"),
    "rust": (".rs",),
    "cpp": (".cpp", ".h"),
    "ruby": (".rb",),
    "yaml": (".yaml", ".yml"),
    "markdown": (".md", ".mdx", ".markdown"),
}
"""How the files of a language end whose name is not the ending."""
_TEST_CODE = re.compile(
    r"^\s*(?:def test_|class \w+\((?:unittest\.)?TestCase\)|import unittest|import pytest"
    r"|(?:test|it|describe)\(\s*['\"`]|func Test\w+\()",
    re.MULTILINE,
)


class ReplyOutcome(Struct, frozen=True):
    """What a reply of the model becomes: calls, an answer (`text`), or an `error` that the model has to correct.

    `hint` is what the model is told beside the error, `message` what it is told instead. `unread_path` is a file that
    it has to see first, `lossy_texts` are files that would lose something: written again, they are accepted.
    """

    text: str = ""
    calls: Calls = ()
    error: str = ""
    hint: str = ""
    message: str = ""
    unread_path: str = ""
    lossy_texts: tuple[tuple[str, str], ...] = ()


class ReplyJudge:
    """Checks replies in the light of the prompt and of what the turn has shown so far."""

    def __init__(self, features: PromptFeatures, facts: TurnFacts, offered: Collection[str]) -> None:
        self._features = features
        self._facts = facts
        self._project = facts.project
        self._can_edit = "WriteFile" in offered and not features.is_question
        self._can_run = "ExecuteCommand" in offered
        self._can_delete = "Delete" in offered

    def judge_reply(self, text: str, *, is_cut: bool = False) -> ReplyOutcome:
        """Return what a reply of the model becomes. `is_cut`: it was longer than replies may be."""
        if text.strip() in ("", NO_REPLY):
            return ReplyOutcome(text, error="The reply was empty.")
        reply = parse_reply(text, {*self._project.sizes, *filter(is_path, self._features.paths)})
        files = [block for block in (*reply.files, *self._place_loose(reply)) if not self._is_example(block.path)]
        commands = reply.commands or (() if files else tuple(split_commands(reply.loose)))
        if not self._can_edit:
            files, reply = [], replace(reply, replacements=(), deletions=())
        files, unread = self._split_unread(files)
        if unread:
            return ReplyOutcome(text, error=f"{unread} was not shown yet.", unread_path=unread)
        files, error = self._keep_tests(files)
        if error:
            return ReplyOutcome(text, error=error)
        calls, failed, unchanged = self._make_file_calls(files)
        if failed is None and is_cut and reply.is_cut and (files or not calls):
            failed = ReplyOutcome(error="The reply was too long and was cut off. Write only the files that change.")
        replaced, missing = self._make_replacements(reply)
        if failed is not None or missing:
            return replace(failed or ReplyOutcome(error=missing), text=text)
        calls += [*replaced, *self._make_deletions(reply)]
        if self._can_run:
            new = [one for one in commands if calls or one not in self._facts.commands.fresh]
            calls += [("ExecuteCommand", {"command": command}) for command in new]
        if calls:
            return ReplyOutcome(reply.prose if files or replaced else "", tuple(calls))
        outputs = {one: self._facts.commands.outputs[one] for one in commands if one in self._facts.commands.outputs}
        if outputs:  # the model wants to run again what it has run
            return ReplyOutcome("\n\n".join(f"`{command}`:\n{cut_text(one)}" for command, one in outputs.items()))
        return self._judge_answer(text, reply, unchanged)

    def is_repeating(self, text: str) -> bool:
        """True if a reply that is being written has started to repeat itself, or the files as they are after a change.

        A small model that has done its task may go on with all other files of the project, again and again.
        """
        blocks = parse_reply(text, self._project.sizes).files
        written = [(self._resolve_path(block.path), block.text) for block in blocks if block.is_closed]
        kept = [self._project.files.get(path) == content for path, content in written]
        return (
            any(written[-1:] == [earlier] for earlier in written[:-1])
            or (len(kept) > _MAX_KEPT_FILES and all(kept[-_MAX_KEPT_FILES:]) and not all(kept))
            or _is_stuck(text)
        )

    def _is_example(self, path: str) -> bool:
        """True for the file of the examples in the request, which a model may repeat."""
        return path in EXAMPLE_FILES and path not in self._project.sizes and path not in self._features.text

    def _judge_answer(self, text: str, reply: WrittenReply, unchanged: list[str]) -> ReplyOutcome:
        """Return the answer, unless a change does not work yet or the reply looks like a change without being one."""
        facts = self._facts
        if facts.failing_check:
            again = f"{', '.join(unchanged)} is the same as before, and " if unchanged else ""
            return ReplyOutcome(text, error=f"{again}{facts.failing_check} still fails.", hint="Write the fixed files.")
        if unchanged and self._project.has_changes:
            return ReplyOutcome(reply.prose or "Done.")
        if reply.has_diff and self._can_edit:
            return ReplyOutcome(text, error="A diff cannot be applied. Write the path and the complete file.")
        loose = [block for block in reply.loose if block.text.strip() and not block.is_shell]
        named = (path for path in self._features.paths if "." in path.rpartition("/")[2])
        new = next((path for path in named if not self._project.resolve(path)), "")
        is_done = self._project.has_changes or bool(facts.commands.by_model) or bool(facts.rejected)
        if not self._can_edit or is_done or not (unchanged or loose or new):
            return ReplyOutcome(text)
        if new:
            message = f"Write {new}: its path, then a code block with its content."
        elif unchanged:
            message = f"{', '.join(unchanged)} would stay exactly as it is. A line of it must change."
        else:
            message = "Write the path of the file on the line above its code block."
        return ReplyOutcome(text, error="The task is not done: no file was changed.", message=message)

    # --- files ---

    def _split_unread(self, files: list[WrittenBlock]) -> tuple[list[WrittenBlock], str]:
        """Return the files that the model may write, and one that it has to see first.

        A file that it makes up beside those that the prompt names is left out.
        """
        paths = [self._resolve_path(block.path) for block in files]
        unread = [path for path in paths if path in self._project.sizes and path not in self._project.files]
        named = [path for path in self._project.list_named() if path in paths and path in self._project.files]
        if not named:
            return files, next(iter(unread), "")
        return [block for block, path in zip(files, paths, strict=True) if path not in unread], ""

    def _keep_tests(self, files: list[WrittenBlock]) -> tuple[list[WrittenBlock], str]:
        """Return the files without tests that a model adapts to a bug, and an error if no other file is left.

        It is told once: a test may be wrong.
        """
        tests = [
            block for block in files if is_test(path := self._resolve_path(block.path)) and path in self._project.files
        ]
        is_decided = self._facts.rejected or self._project.has_changes
        if not tests or not self._features.trusts_tests or is_decided:
            return files, ""
        if len(tests) < len(files):
            return [block for block in files if block not in tests], ""
        return [], f"The tests are right. Fix the code, not {tests[0].path}."

    def _make_file_calls(self, files: Sequence[WrittenBlock]) -> tuple[list[ToolUse], ReplyOutcome | None, list[str]]:
        """Return the calls for whole files, what is wrong with one of them, and the files that stay as they are.

        Of several blocks of one file the last one counts, unless it is only an example of its use.
        """
        texts: dict[str, str] = {}
        elsewhere = self._find_moved_names(files)
        prompt = self._features.text
        for block in files:
            path = self._resolve_path(block.path)
            old = self._project.files.get(path, "")
            text = clean_text(path, block.text, old)
            if list_definitions(path, text) >= list_definitions(path, texts.get(path, "")):
                texts[path] = text
        calls: list[ToolUse] = []
        unchanged: list[str] = []
        for path, text in texts.items():
            old = self._project.files.get(path)
            # What the model has created itself, it may write again; and if it insists on a loss, it means it.
            is_free = path in self._project.created or self._facts.refused_texts.get(path) == text
            if text == old:
                unchanged.append(path)
            elif error := find_error(path, text, old or ""):
                return [], ReplyOutcome(error=error), unchanged
            elif not is_free and (loss := find_loss(path, text, old or "", prompt, elsewhere(path))):
                return [], ReplyOutcome(error=loss, lossy_texts=((path, text),)), unchanged
            else:
                calls.append(make_call(path, text, old))
        return calls, None, unchanged

    def _find_moved_names(self, files: Iterable[WrittenBlock]) -> Callable[[str], set[str]]:
        """Return a function that tells which names other files than this one get from the reply."""
        added = {
            path: list_definitions(path, block.text) - list_definitions(path, self._project.files.get(path, ""))
            for block in files
            if (path := self._resolve_path(block.path))
        }
        return lambda path: {name for other, names in added.items() if other != path for name in names}

    def _resolve_path(self, written: str) -> str:
        """Return the file that a written path means. A model may invent folders: `src/calc.py` for the only calc.py."""
        path = written.removeprefix(f"{self._project.cwd}/").removeprefix("./")
        if found := self._project.resolve(path):
            return found
        folder, _, name = path.rpartition("/")
        if not folder or folder in self._features.text or self._project.list_under(folder):
            return path
        return self._project.resolve(name) or path

    def _make_replacements(self, reply: WrittenReply) -> tuple[list[ToolUse], str]:
        texts: dict[str, str] = {}
        for one in reply.replacements:
            path = self._resolve_path(one.path) if one.path else self._find_path(one.old, "")
            old = texts.get(path, self._project.files.get(path))
            if old is None and (one.old or not path):
                return [], f"{path or 'A file'} was not shown. Write the path and the complete file."
            old = old or ""
            text = replace_loosely(old, one.old, one.new) if one.old else f"{old}{one.new}\n"
            if text is None:
                return [], f"The lines to replace were not found in {path}. Write the complete file."
            texts[path] = text
        calls: list[ToolUse] = []
        for path, text in texts.items():
            old = self._project.files.get(path)
            if error := find_error(path, text, old or ""):
                return [], error
            if text != old:
                calls.append(make_call(path, text, old))
        return calls, ""

    def _make_deletions(self, reply: WrittenReply) -> list[ToolUse]:
        paths = [found for path in reply.deletions if (found := self._project.resolve(path))]
        named = [path.rstrip("/") for path in reply.deletions if path.rstrip("/") in self._features.text]
        folders = [path for path in named if self._project.list_under(path)]
        paths += [path for folder in folders for path in self._project.list_under(folder) if path not in paths]
        if not paths:
            return []
        calls: list[ToolUse] = [("Delete", {"paths": paths, "reason": "the task asks for it"})]
        if not self._can_delete:
            calls = [("ExecuteCommand", {"command": f"rm -- {' '.join(map(quote_path, paths))}"})]
        if folders and self._can_run:
            names = " ".join(map(quote_path, folders))
            calls.append(("ExecuteCommand", {"command": f"find {names} -depth -type d -empty -delete"}))
        return calls

    # --- blocks without a path ---

    def _place_loose(self, reply: WrittenReply) -> Iterator[WrittenBlock]:
        """Yield the blocks without a path that belong to a file, with its path. Examples of use belong to none."""
        blocks = [block for block in reply.loose if block.text.strip() and not block.is_shell]
        if len(blocks) > 1 or reply.files:
            blocks = [block for block in blocks if not block.is_usage]
        written = {block.path for block in reply.files}
        for block in blocks:
            path = self._find_path(block.text, block.language)
            if path and path not in written:
                yield replace(block, path=path)

    def _find_path(self, text: str, language: str) -> str:
        """Return the file that a text is for: the only one that the prompt names or that is like it; "" if unsure."""
        named = dict.fromkeys(
            self._resolve_path(path) for path in self._features.paths if is_path(path, self._project.sizes)
        )
        endings = _LANGUAGE_ENDINGS.get(language, (f".{language}",) if language else ())
        fitting = [path for path in named if not endings or path.endswith(endings)]
        is_test_code = _TEST_CODE.search(text) is not None
        fitting = [path for path in fitting if is_test(path) == is_test_code or not path.endswith(CODE)]
        if len(fitting) == 1:
            return fitting[0]
        lines = [line for line in text.splitlines() if line.strip()]
        alike = [
            path
            for path, old in self._project.files.items()
            if (not fitting or path in fitting)
            and (
                2 * sum(line in old.splitlines() for line in lines) >= len(lines)
                or list_definitions(path, text) & list_definitions(path, old)
            )
        ]
        return alike[0] if len(alike) == 1 else ""


def _is_stuck(text: str) -> bool:
    """True if a text ends with the same line again and again."""
    lines = [line for line in text.rpartition("\n")[0].splitlines() if line.strip()]
    times = sum(1 for _ in takewhile(lambda line: line == lines[-1], reversed(lines)))
    return times >= _MIN_REPEATS and times * len(lines[-1]) >= _MAX_REPEATED_CHARS
