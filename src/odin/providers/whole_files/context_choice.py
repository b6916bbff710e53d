"""Chooses what a small model is shown of a project, and the calls that look at it.

One search tells where the project defines the words of the prompt, where it sets them, and how its tests run: a word
such as `mean` or `port` becomes a name because the project defines it. Files named in the prompt come first, then those
that contain its names, then the whole project if it is small. If the prompt is about a command or the tests, these run
first.
"""

import re
from collections.abc import Collection, Iterable
from typing import Any

from odin.core.path_names import quote_path
from odin.providers.whole_files.project_state import EVERY_LINE, build_lookup
from odin.providers.whole_files.project_tests import find_doctest_command, find_test_command, is_test
from odin.providers.whole_files.prompt_features import RUNNERS, PromptFeatures
from odin.providers.whole_files.turn_history import TurnFacts

ToolUse = tuple[str, dict[str, Any]]
Calls = tuple[ToolUse, ...]

CODE_ENDINGS = (".py", ".js", ".mjs", ".cjs", ".ts", ".go", ".rs", ".java", ".c", ".cpp", ".rb", ".json", ".toml")
_MAX_LOOKUPS = 200
_MAX_UNCOUNTED = 8
_PROGRAMS = {
    "main.py": "python3 main.py",
    "index.js": "node index.js",
    "main.go": "go run .",
    "main.sh": "bash main.sh",
}
_FIRST_TESTS_MS = 30_000
_MAX_TESTED_LINES = 4_000
"""Lines of a project whose tests run before a change, too: those of a larger one may take minutes."""
_TOKENS_PER_LINE = 11
_GATHERED_SHARE = 0.3
"""The share of the context window for gathered files. History, reply and the next rounds need the rest."""
_MAX_FILES = 24
_OTHER_LINES = 120
"""Lines of files that the prompt does not lead to, if it leads to others. They take time and distract."""
_SKIPPED = re.compile(
    r"\.(?:lock|min\.js|map|svg|png|jpe?g|gif|ico|pdf|zip|gz|woff2?|pyc|so|o|class|jar|exe|bin|sum)$|package-lock\.json$"
)
_CODE = re.compile(r"\.(?:py|[cm]?[jt]sx?|go|rs|java|c|h|cpp|rb|sh|kt|cs|php)$")
_DATA = re.compile(r"\.(?:json|toml|ya?ml|ini|cfg|conf|properties|txt|csv|tsv|log|lock)$|(?:^|/)\.[\w.-]+$")
"""Files that can be changed without a look at any other."""


class ContextChoice:
    """Chooses the calls that look. `facts` grows with their results; `context` is the model's context window."""

    def __init__(
        self, features: PromptFeatures, facts: TurnFacts, context: int, *, can_edit: bool, can_run: bool
    ) -> None:
        self.features = features
        self.can_edit = can_edit
        self.can_run = can_run
        self._commands = facts.commands
        self._project = facts.project
        self._context = context
        self._max_lines = max(120, int((context or 8192) * _GATHERED_SHARE) // _TOKENS_PER_LINE)

    def look_around(self) -> Calls:
        """List the files, their sizes, and where the names of the prompt occur and are defined."""
        limit = self._context // 400 or 30
        lookup = build_lookup(self._project.words, with_values=self.features.is_question)
        return (
            ("LS", {"path": "."}),
            self._count_lines(),
            *(("Grep", {"pattern": term, "literal_text": True, "head_limit": limit}) for term in self.features.terms),
            ("Grep", {"pattern": lookup, "head_limit": _MAX_LOOKUPS}),
        )

    def look_again(self) -> Calls:
        """Look at the project again after a command, which may have changed it."""
        if not self.can_edit:
            return ()
        return (("LS", {"path": "."}), self._count_lines(), *self.read(self._project.files))

    def gather(self) -> Calls:
        """Look closer at what was found, read the files that matter, then run what the prompt is about."""
        chosen = () if self._project.read_paths else self.choose_files()
        return self._look_closer() or self.read(chosen) or self._list_first_commands()

    def _count_lines(self) -> ToolUse:
        return "Grep", {"pattern": EVERY_LINE, "output_mode": "count", "head_limit": self._context // 130 or 100}

    def _look_closer(self) -> Calls:
        """List the folders of named files that no search has found; count the lines of files not listed."""
        project = self._project
        missing = [path for path in self.features.paths if not project.resolve(path)]
        folders = dict.fromkeys(path.rpartition("/")[0] for path in missing)
        listed = [
            folder for folder in folders if folder and folder not in project.listed and project.has_folder(folder)
        ]
        hits = [path for paths in project.find_hit_files().values() for path in paths if path not in project.sizes]
        wanted = [
            *({"glob": name} for name in missing if "/" not in name),
            *({"path": path} for path in list(dict.fromkeys(hits))[:_MAX_UNCOUNTED]),
        ]
        uncounted = [] if project.is_complete else [one for one in wanted if not project.narrowed & {*one.values()}]
        return (
            *(("LS", {"path": folder}) for folder in listed),
            *(("Grep", {"pattern": EVERY_LINE, "output_mode": "count", **where}) for where in uncounted),
        )

    def read(self, paths: Iterable[str]) -> Calls:
        most = 2 * self._max_lines
        fits = {path: 0 < self._project.sizes.get(path, 0) <= most for path in paths}
        return tuple(("Read", {"file_path": path, **({} if fits[path] else {"limit": most})}) for path in fits)

    # --- files ---

    def choose_files(self) -> tuple[str, ...]:
        """Return the files to read, the most important first, as many as the window has room for."""
        project, features = self._project, self.features
        named = project.list_named()
        folders = [file for path in features.paths for file in project.list_under(path)]
        by_stem = [path for path in project.sizes if _is_named_by_stem(path, features.text)]
        by_hit = [path for paths in project.find_hit_files().values() for path in paths]
        tests = [path for path in project.sizes if is_test(path)] if features.mentions_tests else []
        related = [path for path in project.sizes if is_related_file(path, named)]
        ranked = [*named, *folders, *by_hit, *project.lookup.setters, *by_stem, *tests, *related]
        others = sorted(project.sizes.keys() - set(ranked), key=lambda path: (path.count("/"), path))
        shown = (path for path in (*ranked, *others) if path in project.sizes and not _SKIPPED.search(path.casefold()))
        chosen: list[str] = []
        left = self._max_lines
        for path in dict.fromkeys(shown):
            size = project.sizes[path] + 3
            if chosen and ranked and path not in ranked:
                room = _OTHER_LINES - sum(project.sizes[one] + 3 for one in chosen if one not in ranked)
                is_enough = self._is_enough([one for one in chosen if one in ranked], named, folders)
                left = min(left, 0 if is_enough else room)
            if size <= left or (path in named and not chosen):
                chosen.append(path)
                left -= size
            if len(chosen) >= _MAX_FILES:
                break
        return tuple(chosen)

    def _is_enough(self, chosen: Iterable[str], named: list[str], folders: list[str]) -> bool:
        """True if the files that the prompt leads to suffice, and others would distract."""
        lookup = self._project.lookup
        if self.features.is_question:
            if named or folders or lookup.has_leads:
                return True
        elif any(_CODE.search(path) and not is_test(path) for path in chosen):
            return True
        is_quoted = self.features.has_quotes and not lookup.definitions
        return bool(named) and all(
            _DATA.search(path) or (is_quoted and path.endswith((".md", ".rst"))) for path in named
        )

    # --- commands ---

    def _list_first_commands(self) -> Calls:
        """Return what runs before the model is asked: what the prompt is about, and tests that may fail already."""
        if not self.can_run or self._commands.refused:
            return ()
        needs_tests = self.features.runs_tests or self._may_change_code()
        own = self.find_command()
        wanted = (own, *((self.find_tests(), self._find_doctests()) if needs_tests else ()))
        new = [one for one in dict.fromkeys(wanted) if one and one not in self._commands.outputs]
        limit = {} if self.features.runs_tests else {"timeout": _FIRST_TESTS_MS}
        return tuple(("ExecuteCommand", {"command": one, **({} if one == own else limit)}) for one in new)

    def _may_change_code(self) -> bool:
        """True if code of a small project may be changed: its tests tell afterwards whether the change broke them."""
        named = [path for path in self.features.paths if "." in path]
        is_code = not named or any(path.endswith(CODE_ENDINGS) for path in named)
        is_small = self._project.is_complete and sum(self._project.sizes.values()) <= _MAX_TESTED_LINES
        return is_code and is_small and self.can_edit and not self.features.is_question

    def find_command(self) -> str:
        """Return the command that the prompt is about; for `the program` the only one that the project can mean."""
        if self.features.command or not self.features.runs_program:
            return self.features.command
        paths = self._project.sizes
        found = [command for path, command in _PROGRAMS.items() if path in paths]
        scripts = [path for path in paths if re.fullmatch(r"[\w-]+\.(?:py|js|sh)", path) and not is_test(path)]
        if not found and len(scripts) == 1:
            found = [f"{RUNNERS[scripts[0].rpartition('.')[2]]} {quote_path(scripts[0])}"]
        return found[0] if len(found) == 1 else ""

    def find_tests(self) -> str:
        return find_test_command(self._project.sizes, self._project.test_texts, self._commands.unavailable)

    def _find_doctests(self) -> str:
        """Return the check of the examples in the files that the prompt names or defines something in."""
        defining = [path for paths in self._project.lookup.definitions.values() for path in paths]
        paths = [path for path in (*self._project.list_named(), *defining) if path in self._project.files]
        return find_doctest_command({path: self._project.files[path] for path in paths})

    def list_checks(self) -> list[str]:
        """Return the commands that show whether a change works: the one that the prompt is about, and the tests."""
        if not self.can_run:
            return []
        tests = self.find_tests()
        own = self.features.command if self.features.checks_with_command else ""
        is_needed = own in self._commands.failed or own in self._commands.unavailable or not tests
        wanted = dict.fromkeys((own if is_needed else "", tests, self._find_doctests()))
        return [command for command in wanted if command and command not in self._commands.refused]


def _is_named_by_stem(path: str, text: str) -> bool:
    stem = path.rpartition("/")[2].partition(".")[0]
    return len(stem) > 3 and re.search(rf"\b{re.escape(stem)}\b", text, re.IGNORECASE) is not None


def is_related_file(path: str, named: Collection[str]) -> bool:
    """True for the test of a named file, and for the file that a named test is about."""
    stem = _find_stem(path)
    return path not in named and any(stem == _find_stem(other) for other in named)


def _find_stem(path: str) -> str:
    stem = path.rpartition("/")[2].partition(".")[0]
    return re.sub(r"^test_|_test$|^check_|Test$", "", stem)
