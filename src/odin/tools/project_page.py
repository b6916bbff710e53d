"""Writes the generated part of ODIN.md from the survey of the repository."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import get_args

from odin.core.format import count_of
from odin.core.text import join_some
from odin.tools.project_survey import (
    CommandUse,
    PackageManifest,
    ProjectCommand,
    ProjectTree,
    count_languages,
    find_commands,
    language_of,
    read_manifests,
    scan_project,
)

BEGIN = "<!-- odin:begin -->"
END = "<!-- odin:end -->"

_MAX_LISTED = 15
_MAX_COMMANDS = 20
_MAX_PARAGRAPH = 600
_OTHER_INSTRUCTIONS = ("AGENTS.md", "CLAUDE.md", "GEMINI.md", ".cursorrules", ".github/copilot-instructions.md")
_CI_FILES = {
    ".gitlab-ci.yml": "GitLab CI",
    ".travis.yml": "Travis CI",
    "Jenkinsfile": "Jenkins",
    "azure-pipelines.yml": "Azure Pipelines",
    ".circleci/config.yml": "CircleCI",
}


def write_project_page(root: str) -> str:
    """Return the generated part with its markers; the same files give the same text."""
    tree = scan_project(root)
    manifests = read_manifests(tree)
    parts = [
        BEGIN,
        "<!-- From the files of the repository, by InitTool. What stands outside these markers is kept. -->",
        *_write_overview(tree, manifests),
        *_write_architecture(tree, manifests),
        *_write_components(tree, manifests),
        *_write_commands(find_commands(tree)),
        END,
    ]
    return "\n".join(parts) + "\n"


def _write_overview(tree: ProjectTree, manifests: Sequence[PackageManifest]) -> list[str]:
    root = [manifest for manifest in manifests if "/" not in manifest.path]
    name = next((manifest.name for manifest in root if manifest.name), Path(tree.root).name)
    about = next((manifest.description for manifest in root if manifest.description), "") or _read_first_paragraph(tree)
    lines = [f"# {_to_one_line(name)}", ""]
    if about:
        lines += [_to_one_line(about), ""]
    counts = [
        f"{item.name} ({count_of(item.files, 'file')}, {'' if item.counted else 'over '}{count_of(item.lines, 'line')})"
        for item in count_languages(tree)
    ]
    if counts:
        lines.append(f"- Languages: {join_some(counts, 8)}")
    lines.append(f"- {count_of(len(tree.files), 'file')}{'' if tree.complete else ' looked at; there are more'}")
    others = [path for path in _OTHER_INSTRUCTIONS if tree.has(path)]
    if others:
        lines.append(f"- Other instructions for agents: {', '.join(f'`{path}`' for path in others)}")
    return lines


def _read_first_paragraph(tree: ProjectTree) -> str:
    """Return the first paragraph of prose in the README."""
    path = next((path for path in tree.files if re.fullmatch(r"(?i)readme(\.(md|rst|txt))?", path)), "")
    text = re.sub(r"(?s)<!--.*?-->", "", tree.read(path)) if path else ""
    for block in re.split(r"\n\s*\n", text):
        lines = [line.strip() for line in block.strip().splitlines()]
        prose = [line for line in lines if not re.match(r"[#=\-*|`<>!\[.+~]|:|\d+\.", line)]
        if prose and prose == lines and not re.fullmatch(r"[=\-~^]+", lines[-1]):
            return _truncate(" ".join(prose))
    return ""


def _write_architecture(tree: ProjectTree, manifests: Sequence[PackageManifest]) -> list[str]:
    lines = ["", "## Architecture", ""]
    folders = sorted({path.split("/")[0] for path in tree.files if "/" in path})
    shown = [folder for folder in folders if not folder.startswith(".")]
    for folder in shown[:_MAX_LISTED]:
        lines += _describe_folder(tree, folder)
    if len(shown) > _MAX_LISTED:
        lines.append(f"- and {len(shown) - _MAX_LISTED} more folders")
    if not shown:
        lines.append("All files are at the root.")
    entry_points = [*_list_declared_entries(manifests), *_list_conventional_entries(tree)]
    if entry_points:
        lines += ["", "Entry points:", "", *_limit_lines([f"- {line}" for line in dict.fromkeys(entry_points)])]
    return lines


def _describe_folder(tree: ProjectTree, folder: str) -> list[str]:
    """Describe a folder; a folder that only contains another one is skipped in favor of it."""
    files = tree.list_under(folder)
    inner = sorted({path[len(folder) + 1 :].split("/")[0] for path in files})
    if len(inner) == 1 and tree.list_under(f"{folder}/{inner[0]}"):
        return _describe_folder(tree, f"{folder}/{inner[0]}")
    counts: dict[str, int] = {}
    for path in files:
        name = language_of(path)
        if name:
            counts[name] = counts.get(name, 0) + 1
    languages = sorted(counts, key=lambda name: (-counts[name], name))[:2]
    facts = ", ".join([count_of(len(files), "file"), *languages])
    below = [f"`{name}/`" for name in inner if tree.list_under(f"{folder}/{name}")]
    about = _read_purpose(tree, folder)
    return [
        f"- `{folder}/` ({facts}){f': {about}' if about else ''}{f' Holds {join_some(below, 12)}.' if below else ''}"
    ]


def _read_purpose(tree: ProjectTree, folder: str) -> str:
    """Return the first line of the package docstring of a folder."""
    match = re.match(r'\s*"""([^\n"]+)', tree.read(f"{folder}/__init__.py"))
    text = match[1].strip() if match else ""
    return text if not text or text.endswith((".", "!", "?")) else f"{text}."


def _list_declared_entries(manifests: Sequence[PackageManifest]) -> list[str]:
    return [
        f"`{name}`: `{target}` ({manifest.path})" for manifest in manifests for name, target in manifest.entry_points
    ]


def _list_conventional_entries(tree: ProjectTree) -> list[str]:
    """Return files that are entry points by convention of their language."""
    pattern = r"(.*/)?__main__\.py|manage\.py|(cmd/[^/]+/)?main\.go|src/main\.rs|src/bin/[^/]+\.rs"
    return [f"`{path}`" for path in tree.files if re.fullmatch(pattern, path)]


def _write_components(tree: ProjectTree, manifests: Sequence[PackageManifest]) -> list[str]:
    lines: list[str] = []
    for manifest in manifests:
        name = f"`{manifest.name}`, " if manifest.name else ""
        uses = "on" if manifest.kind == "container image" else "uses"
        dependencies = f"; {uses} {join_some(manifest.dependencies, _MAX_LISTED)}" if manifest.dependencies else ""
        lines.append(_to_one_line(f"- `{manifest.path}`: {name}{manifest.kind}{dependencies}"))
    for path in tree.files:
        if re.fullmatch(r"\.github/workflows/[^/]+\.ya?ml", path):
            lines.append(f"- `{path}`: GitHub Actions")
        elif path in _CI_FILES:
            lines.append(f"- `{path}`: {_CI_FILES[path]}")
    if not lines:
        return []
    return ["", "## Components and technology", "", *_limit_lines(lines, 25)]


def _write_commands(found: Sequence[ProjectCommand]) -> list[str]:
    lines = ["", "## Commands"]
    uses: tuple[CommandUse, ...] = get_args(CommandUse)
    for use in uses:
        chosen = [command for command in found if command.use == use]
        if chosen:
            shown = [
                _to_one_line(f"- `{item.text}`{f': {item.about}' if item.about else ''} ({item.source})")
                for item in chosen
            ]
            lines += ["", f"{use}:", "", *_limit_lines(shown, _MAX_COMMANDS)]
    if not found:
        lines += ["", "None were found in the files of the repository."]
    return lines


def _limit_lines(lines: list[str], limit: int = _MAX_LISTED) -> list[str]:
    return lines if len(lines) <= limit else [*lines[:limit], f"- and {len(lines) - limit} more"]


def _truncate(text: str) -> str:
    return text if len(text) <= _MAX_PARAGRAPH else f"{text[:_MAX_PARAGRAPH].rsplit(' ', 1)[0]} …"


def _to_one_line(text: str) -> str:
    """Join to one line, without text that could end the generated part."""
    return re.sub(r"\s+", " ", _truncate(text)).replace("<!--", "<! --").strip()
