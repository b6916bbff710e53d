"""Finds the file that a code block without a path belongs to, if it can only be one."""

import re
from collections.abc import Iterable

from msgspec.structs import replace

from odin.providers.whole_files.file_outline import CODE, read_outline
from odin.providers.whole_files.project_tests import is_test
from odin.providers.whole_files.prompt_intent import PromptReading
from odin.providers.whole_files.turn_history import TurnFacts
from odin.providers.whole_files.written_reply import WrittenBlock, WrittenReply, is_path

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


class LooseBlocks:
    """Places blocks by what the prompt names and what the files contain."""

    def __init__(self, reading: PromptReading, facts: TurnFacts) -> None:
        self._facts = facts
        named = (facts.project.resolve(path) or path for path in reading.paths if "." in path)
        self._named = list(dict.fromkeys(named))

    def place(self, reply: WrittenReply) -> list[WrittenBlock]:
        """Return the blocks that belong to a file, with its path. Examples of use belong to none."""
        blocks = [block for block in reply.loose if block.text.strip() and not block.is_shell]
        if len(blocks) > 1:
            blocks = [block for block in blocks if not block.is_usage]
        defining = [block for block in blocks if _list_definitions("a.py", block.text)]
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
            if path.endswith(CODE) and _list_definitions(path, text) & _list_definitions(path, old)
        ]


def _list_definitions(path: str, text: str) -> set[str]:
    return {part.name for part in read_outline(path, text) or () if part.kind == "definition"}
