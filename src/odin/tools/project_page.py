"""The generated part of ODIN.md: overview, architecture, components and technology, commands.

A model writes the four sections from the files that describe the project. Where there is none, or it does not answer,
they list what the files of the repository say.
"""

import asyncio
import re
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import get_args

from odin.context.instructions import ODIN_MD
from odin.core.background_prompts import PROJECT_PAGE_HEADINGS, PROJECT_PAGE_JOB
from odin.core.errors import OdinError
from odin.core.format import pluralize
from odin.core.text import join_some
from odin.core.tool import AskSmallModel
from odin.tools.files import Refusal
from odin.tools.project_commands import CommandUse, find_commands, read_text
from odin.tools.ripgrep import walk_files

BEGIN = "<!-- odin:begin -->"
END = "<!-- odin:end -->"

ANSWER_SECONDS = 120.0
MAX_FILES = 20_000
MAX_SECONDS = 5.0
_MAX_LISTED = 15
_MAX_PARAGRAPH = 600
_MAX_PAGE_CHARS = 20_000
_MAX_EXCERPT_CHARS = 4000
_MAX_INPUT_CHARS = 40_000

_SKIPPED = """
    node_modules __pycache__ .venv venv .tox .nox .mypy_cache .pytest_cache .ruff_cache .hypothesis .odin .idea .gradle
    .next .cache target vendor bower_components site-packages
"""
"""Folders of generated or third-party files."""

_COMPONENTS = (
    (r"pyproject\.toml|setup\.cfg|setup\.py", "Python project"),
    (r"requirements.*\.txt", "Python requirements"),
    (r"package\.json", "Node package"),
    (r"Cargo\.toml", "Rust crate"),
    (r"go\.mod", "Go module"),
    (r"pom\.xml", "Maven project"),
    (r"build\.gradle(\.kts)?", "Gradle build"),
    (r"Gemfile", "Ruby bundle"),
    (r"composer\.json", "PHP package"),
    (r"CMakeLists\.txt", "CMake project"),
    (r"Dockerfile", "container image"),
    (r"(docker-)?compose\.ya?ml", "containers"),
    (r"\.github/workflows/[^/]+\.ya?ml|\.gitlab-ci\.yml|\.travis\.yml|\.circleci/config\.yml|Jenkinsfile", "CI"),
)
_README = r"(?i)readme(\.(md|rst|txt))?"
_DESCRIBING = rf"{_README}|(?i:contributing|architecture)\.md|(GNUm|M|m)akefile|[Jj]ustfile"


async def write_project_page(root: Path, is_hidden: Callable[[str], bool], ask: AskSmallModel | None) -> str:
    """Return the generated part with its markers, by the model if it answers in the right form."""
    files = await asyncio.to_thread(list_files, root)
    page = await asyncio.to_thread(list_project_facts, root, files)
    if ask is not None:
        facts = await asyncio.to_thread(collect_excerpts, root, files, page, is_hidden)
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                answer = await ask(PROJECT_PAGE_JOB, facts)
        except (OdinError, TimeoutError):
            answer = ""
        # Text before the title is talk, and a comment could end the generated part.
        answer = answer[answer.find("# ") :].replace("<!--", "<! --").strip()[:_MAX_PAGE_CHARS]
        if all(f"\n## {heading}\n" in answer for heading in PROJECT_PAGE_HEADINGS):
            page = answer
    comment = "<!-- From the files of the repository, by InitTool. What stands outside these markers is kept. -->"
    return f"{BEGIN}\n{comment}\n{page}\n{END}\n"


def list_files(root: Path) -> list[str]:
    """List the first files of the project except ODIN.md, so that writing it does not change the next page."""
    names: list[str] = []
    with suppress(Refusal):  # The time is up.
        for path in islice(
            walk_files(str(root), hidden=True, skip=frozenset(_SKIPPED.split()), seconds=MAX_SECONDS), MAX_FILES
        ):
            names.append(str(Path(path).relative_to(root)))
    return sorted(name for name in names if name != ODIN_MD and name.isprintable())


def collect_excerpts(root: Path, files: Sequence[str], page: str, is_hidden: Callable[[str], bool]) -> str:
    """Return what the model is told: the facts, the names of the files, and the files that describe the project."""
    names = [path for path in files if not is_hidden(str(root / path))]
    parts = [page, "Files:\n" + "\n".join(names)[:_MAX_EXCERPT_CHARS]]
    described = [path for path in names if re.fullmatch(_DESCRIBING, path) or _get_component(path)]
    parts += [f"===== {path}\n{read_text(root / path)[:_MAX_EXCERPT_CHARS]}" for path in described[:20]]
    return "\n\n".join(parts)[:_MAX_INPUT_CHARS]


def list_project_facts(root: Path, files: Sequence[str]) -> str:
    """Return the four sections with what the files say; the same files give the same text."""
    readme = next((path for path in files if re.fullmatch(_README, path)), "")
    blocks = re.split(r"\n\s*\n", re.sub(r"(?s)<!--.*?-->", "", read_text(root / readme)))
    # The first paragraph of prose.
    about = next(
        (block for block in blocks if block.strip() and not re.search(r"(?m)^\s*[#=\-*|`<>!\[.+~:]", block)), ""
    )
    suffixes = Counter(filter(None, (Path(path).suffix for path in files))).most_common()
    kinds = f": {join_some([f'{count} {suffix}' for suffix, count in suffixes], 8)}" if suffixes else ""
    folders = Counter(path.split("/")[0] for path in files if "/" in path and not path.startswith("."))
    components = sorted(filter(_get_component, files), key=lambda path: (path.count("/"), path))
    commands = find_commands(root)
    lines = [f"# {_to_one_line(root.name)}", "", _to_one_line(about), "", f"- {pluralize(len(files), 'file')}{kinds}"]
    lines += ["", "## Architecture", ""]
    lines += _limit_lines([f"- `{folder}/` ({pluralize(folders[folder], 'file')})" for folder in sorted(folders)])
    lines += [] if folders else ["All files are at the root."]
    lines += ["", "## Components and technology", ""]
    lines += _limit_lines([f"- `{path}`: {_get_component(path)}" for path in components])
    lines += [] if components else ["No manifests were found."]
    lines += ["", "## Commands"]
    for use in get_args(CommandUse):
        chosen = [_to_one_line(f"- `{item.text}` ({item.source})") for item in commands if item.use == use]
        lines += ["", f"{use}:", "", *_limit_lines(chosen)] if chosen else []
    lines += [] if commands else ["", "None were found in the files of the repository."]
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines))


def _get_component(path: str) -> str:
    """Return what a manifest or CI file up to two folders below the root stands for, or ""."""
    name = path if path.startswith(".") else path.rpartition("/")[2]
    kinds = (kind for pattern, kind in _COMPONENTS if re.fullmatch(pattern, name))
    return next(kinds, "") if path.count("/") <= 2 else ""


def _limit_lines(lines: list[str]) -> list[str]:
    return lines if len(lines) <= _MAX_LISTED else [*lines[:_MAX_LISTED], f"- and {len(lines) - _MAX_LISTED} more"]


def _to_one_line(text: str) -> str:
    """Join to one line, without text that could end the generated part."""
    text = re.sub(r"\s+", " ", text).replace("<!--", "<! --").strip()
    return text if len(text) <= _MAX_PARAGRAPH else f"{text[:_MAX_PARAGRAPH].rsplit(' ', 1)[0]} …"
