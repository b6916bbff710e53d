"""The generated part of ODIN.md: overview, architecture, components and technology, commands.

A model writes the four sections from the files that describe the project. Where there is none, or it does not answer,
they list what the files of the repository say.
"""

import asyncio
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, cast, get_args

from odin.core.errors import OdinError
from odin.core.format import count_of
from odin.core.small_jobs import PROJECT_PAGE_HEADINGS, PROJECT_PAGE_JOB
from odin.core.text import join_some
from odin.core.tool import AskSmallModel
from odin.tools.project_survey import (
    CommandUse,
    Json,
    ProjectTree,
    find_commands,
    get_table,
    parse_json,
    parse_toml,
    scan_project,
)

BEGIN = "<!-- odin:begin -->"
END = "<!-- odin:end -->"

ANSWER_SECONDS = 120.0
_MAX_LISTED = 15
_MAX_PARAGRAPH = 600
_MAX_PAGE_CHARS = 20_000
_MAX_EXCERPT_CHARS = 4000
_MAX_INPUT_CHARS = 40_000

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
_ENTRY_POINT = r"(.*/)?__main__\.py|manage\.py|(cmd/[^/]+/)?main\.go|src/main\.rs|src/bin/[^/]+\.rs"
_README = r"(?i)readme(\.(md|rst|txt))?"
_DESCRIBING = rf"{_README}|(?i:contributing|architecture)\.md|(GNUm|M|m)akefile|[Jj]ustfile"


async def write_project_page(root: str, is_hidden: Callable[[str], bool], ask: AskSmallModel | None) -> str:
    """Return the generated part with its markers, by the model if it answers in the right form."""
    tree = await asyncio.to_thread(scan_project, root)
    page = await asyncio.to_thread(list_project_facts, tree)
    if ask is not None:
        facts = await asyncio.to_thread(collect_excerpts, tree, page, is_hidden)
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


def collect_excerpts(tree: ProjectTree, page: str, is_hidden: Callable[[str], bool]) -> str:
    """Return what the model is told: the facts, the names of the files, and the files that describe the project."""
    names = [path for path in tree.files if not is_hidden(str(Path(tree.root, path)))]
    parts = [page, "Files:\n" + "\n".join(names)[:_MAX_EXCERPT_CHARS]]
    described = [path for path in names if re.fullmatch(_DESCRIBING, path) or _get_component(path)]
    parts += [f"===== {path}\n{tree.read(path)[:_MAX_EXCERPT_CHARS]}" for path in described[:20]]
    return "\n\n".join(parts)[:_MAX_INPUT_CHARS]


def list_project_facts(tree: ProjectTree) -> str:
    """Return the four sections with what the files say; the same files give the same text."""
    components = sorted(filter(_get_component, tree.files), key=lambda path: (path.count("/"), path))
    data = {path: _read_manifest(tree, path) for path in components}
    root = [data[path] for path in components if "/" not in path]
    name = next((item["name"] for item in root if isinstance(item.get("name"), str)), Path(tree.root).name)
    about = next((item["description"] for item in root if isinstance(item.get("description"), str)), "")
    about = about or _read_first_paragraph(tree)
    lines = [f"# {_to_one_line(name)}", "", *([_to_one_line(about), ""] if about else [])]
    suffixes = Counter(filter(None, (Path(path).suffix for path in tree.files))).most_common()
    kinds = join_some([f"{count} {suffix}" for suffix, count in suffixes], 8) if suffixes else ""
    more = "" if tree.complete else " looked at; there are more"
    lines.append(f"- {count_of(len(tree.files), 'file')}{more}{f': {kinds}' if kinds else ''}")

    lines += ["", "## Architecture", ""]
    folders = Counter(path.split("/")[0] for path in tree.files if "/" in path and not path.startswith("."))
    lines += _limit_lines([f"- `{folder}/` ({count_of(folders[folder], 'file')})" for folder in sorted(folders)])
    lines += [] if folders else ["All files are at the root."]
    entry_points = [f"- `{path}`" for path in tree.files if re.fullmatch(_ENTRY_POINT, path)]
    lines += ["", "Entry points:", "", *_limit_lines(entry_points)] if entry_points else []

    lines += ["", "## Components and technology", ""]
    for path in components[:_MAX_LISTED]:
        own, uses = data[path].get("name"), _list_dependencies(data[path])
        named = f"`{own}`, " if isinstance(own, str) else ""
        more = f"; uses {join_some(uses, _MAX_LISTED)}" if uses else ""
        lines.append(_to_one_line(f"- `{path}`: {named}{_get_component(path)}{more}"))
    lines += [] if components else ["No manifests were found."]

    lines += ["", "## Commands"]
    commands = find_commands(tree)
    for use in get_args(CommandUse):
        chosen = [_to_one_line(f"- `{item.text}` ({item.source})") for item in commands if item.use == use]
        lines += ["", f"{use}:", "", *_limit_lines(chosen)] if chosen else []
    lines += [] if commands else ["", "None were found in the files of the repository."]
    return "\n".join(lines)


def _get_component(path: str) -> str:
    """Return what a manifest or CI file up to two folders below the root stands for, or ""."""
    name = path if path.startswith(".") else path.rpartition("/")[2]
    kinds = (kind for pattern, kind in _COMPONENTS if re.fullmatch(pattern, name))
    return next(kinds, "") if path.count("/") <= 2 else ""


def _read_manifest(tree: ProjectTree, path: str) -> Json:
    """Return the table with name, description and dependencies of a manifest in TOML or JSON."""
    if path.endswith(".json"):
        return parse_json(tree.read(path))
    data = parse_toml(tree.read(path)) if path.endswith(".toml") else {}
    package = get_table(data, "package")
    if package:
        return {**package, "dependencies": data.get("dependencies")}
    return get_table(data, "project") or get_table(data, "tool", "poetry")


def _list_dependencies(manifest: Json) -> Sequence[str]:
    """Return the names of the packages in a list of requirements or a table."""
    listed: Any = manifest.get("dependencies") or manifest.get("require")
    requirements = cast("Iterable[object]", listed) if isinstance(listed, list | dict) else ()
    return [re.split(r"[ \[;<>=!~]", str(item))[0] for item in requirements]


def _read_first_paragraph(tree: ProjectTree) -> str:
    """Return the first paragraph of prose in the README."""
    path = next((path for path in tree.files if re.fullmatch(_README, path)), "")
    text = re.sub(r"(?s)<!--.*?-->", "", tree.read(path)) if path else ""
    blocks = (block.strip() for block in re.split(r"\n\s*\n", text))
    return next((block for block in blocks if block and not re.search(r"(?m)^\s*[#=\-*|`<>!\[.+~:]", block)), "")


def _limit_lines(lines: list[str]) -> list[str]:
    return lines if len(lines) <= _MAX_LISTED else [*lines[:_MAX_LISTED], f"- and {len(lines) - _MAX_LISTED} more"]


def _to_one_line(text: str) -> str:
    """Join to one line, without text that could end the generated part."""
    text = re.sub(r"\s+", " ", text).replace("<!--", "<! --").strip()
    return text if len(text) <= _MAX_PARAGRAPH else f"{text[:_MAX_PARAGRAPH].rsplit(' ', 1)[0]} …"
