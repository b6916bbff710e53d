"""What is found in a repository, written down for whoever works in it: the part of ODIN.md that InitTool keeps."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import get_args

from odin.core.some import some_of
from odin.tools.survey.commands import Command, Use, commands
from odin.tools.survey.manifests import Manifest, manifests
from odin.tools.survey.tree import Tree, language_of, languages, look

BEGIN = "<!-- odin:begin -->"
END = "<!-- odin:end -->"

_LISTED = 15
_COMMANDS = 20
_PARAGRAPH = 600
_OTHER_INSTRUCTIONS = ("AGENTS.md", "CLAUDE.md", "GEMINI.md", ".cursorrules", ".github/copilot-instructions.md")
_CI = {
    ".gitlab-ci.yml": "GitLab CI",
    ".travis.yml": "Travis CI",
    "Jenkinsfile": "Jenkins",
    "azure-pipelines.yml": "Azure Pipelines",
    ".circleci/config.yml": "CircleCI",
}


def write(root: str) -> str:
    """The whole part with its markers, the same for the same files."""
    tree = look(root)
    known = manifests(tree)
    parts = [
        BEGIN,
        "<!-- From the files of the repository, by InitTool. What stands outside these markers is kept. -->",
        *_overview(tree, known),
        *_architecture(tree, known),
        *_components(tree, known),
        *_commands(commands(tree)),
        END,
    ]
    return "\n".join(parts) + "\n"


def _overview(tree: Tree, known: Sequence[Manifest]) -> list[str]:
    root = [manifest for manifest in known if "/" not in manifest.path]
    name = next((manifest.name for manifest in root if manifest.name), Path(tree.root).name)
    about = next((manifest.description for manifest in root if manifest.description), "") or _first_paragraph(tree)
    lines = [f"# {_line(name)}", ""]
    if about:
        lines += [_line(about), ""]
    found = languages(tree)
    spoken = [
        f"{item.name} ({_count(item.files, 'file')}, {'' if item.counted else 'over '}{_count(item.lines, 'line')})"
        for item in found
    ]
    if spoken:
        lines.append(f"- Languages: {some_of(spoken, 8)}")
    lines.append(f"- {_count(len(tree.files), 'file')}{'' if tree.complete else ' looked at; there are more'}")
    others = [path for path in _OTHER_INSTRUCTIONS if tree.has(path)]
    if others:
        lines.append(f"- Other instructions for agents: {', '.join(f'`{path}`' for path in others)}")
    return lines


def _first_paragraph(tree: Tree) -> str:
    """The first paragraph of prose in the README."""
    path = next((path for path in tree.files if re.fullmatch(r"(?i)readme(\.(md|rst|txt))?", path)), "")
    text = re.sub(r"(?s)<!--.*?-->", "", tree.read(path)) if path else ""
    for block in re.split(r"\n\s*\n", text):
        lines = [line.strip() for line in block.strip().splitlines()]
        prose = [line for line in lines if not re.match(r"[#=\-*|`<>!\[.+~]|:|\d+\.", line)]
        if prose and prose == lines and not re.fullmatch(r"[=\-~^]+", lines[-1]):
            return _cut(" ".join(prose))
    return ""


def _architecture(tree: Tree, known: Sequence[Manifest]) -> list[str]:
    lines = ["", "## Architecture", ""]
    folders = sorted({path.split("/")[0] for path in tree.files if "/" in path})
    shown = [folder for folder in folders if not folder.startswith(".")]
    for folder in shown[:_LISTED]:
        lines += _folder(tree, folder)
    if len(shown) > _LISTED:
        lines.append(f"- and {len(shown) - _LISTED} more folders")
    if not shown:
        lines.append("All files are at the root.")
    begins = [*_declared(known), *_conventional(tree)]
    if begins:
        lines += ["", "Entry points:", "", *_bounded([f"- {line}" for line in dict.fromkeys(begins)])]
    return lines


def _folder(tree: Tree, folder: str) -> list[str]:
    """A folder with what is in it; a folder that only holds another one is named together with it."""
    files = tree.under(folder)
    inner = sorted({path[len(folder) + 1 :].split("/")[0] for path in files})
    if len(inner) == 1 and tree.under(f"{folder}/{inner[0]}"):
        return _folder(tree, f"{folder}/{inner[0]}")
    spoken: dict[str, int] = {}
    for path in files:
        name = language_of(path)
        if name:
            spoken[name] = spoken.get(name, 0) + 1
    tongues = sorted(spoken, key=lambda name: (-spoken[name], name))[:2]
    facts = ", ".join([_count(len(files), "file"), *tongues])
    below = [f"`{name}/`" for name in inner if tree.under(f"{folder}/{name}")]
    about = _purpose(tree, folder)
    return [f"- `{folder}/` ({facts}){f': {about}' if about else ''}{f' Holds {some_of(below, 12)}.' if below else ''}"]


def _purpose(tree: Tree, folder: str) -> str:
    """What a folder says of itself, in the docstring of its package."""
    found = re.match(r'\s*"""([^\n"]+)', tree.read(f"{folder}/__init__.py"))
    text = found[1].strip() if found else ""
    return text if not text or text.endswith((".", "!", "?")) else f"{text}."


def _declared(known: Sequence[Manifest]) -> list[str]:
    return [f"`{name}`: `{target}` ({manifest.path})" for manifest in known for name, target in manifest.begins]


def _conventional(tree: Tree) -> list[str]:
    """Files in which programs begin by the convention of their language."""
    pattern = r"(.*/)?__main__\.py|manage\.py|(cmd/[^/]+/)?main\.go|src/main\.rs|src/bin/[^/]+\.rs"
    return [f"`{path}`" for path in tree.files if re.fullmatch(pattern, path)]


def _components(tree: Tree, known: Sequence[Manifest]) -> list[str]:
    lines: list[str] = []
    for manifest in known:
        name = f"`{manifest.name}`, " if manifest.name else ""
        uses = "on" if manifest.what == "container image" else "uses"
        needs = f"; {uses} {some_of(manifest.needs, _LISTED)}" if manifest.needs else ""
        lines.append(_line(f"- `{manifest.path}`: {name}{manifest.what}{needs}"))
    for path in tree.files:
        if re.fullmatch(r"\.github/workflows/[^/]+\.ya?ml", path):
            lines.append(f"- `{path}`: GitHub Actions")
        elif path in _CI:
            lines.append(f"- `{path}`: {_CI[path]}")
    if not lines:
        return []
    return ["", "## Components and technology", "", *_bounded(lines, 25)]


def _commands(found: Sequence[Command]) -> list[str]:
    lines = ["", "## Commands"]
    uses: tuple[Use, ...] = get_args(Use)
    for use in uses:
        chosen = [command for command in found if command.use == use]
        if chosen:
            shown = [
                _line(f"- `{item.text}`{f': {item.about}' if item.about else ''} ({item.source})") for item in chosen
            ]
            lines += ["", f"{use}:", "", *_bounded(shown, _COMMANDS)]
    if not found:
        lines += ["", "None were found in the files of the repository."]
    return lines


def _bounded(lines: list[str], limit: int = _LISTED) -> list[str]:
    return lines if len(lines) <= limit else [*lines[:limit], f"- and {len(lines) - limit} more"]


def _count(number: int, what: str) -> str:
    return f"1 {what}" if number == 1 else f"{number:,} {what}s"


def _cut(text: str) -> str:
    return text if len(text) <= _PARAGRAPH else f"{text[:_PARAGRAPH].rsplit(' ', 1)[0]} …"


def _line(text: str) -> str:
    """One line that cannot end the part it stands in."""
    return re.sub(r"\s+", " ", _cut(text)).replace("<!--", "<! --").strip()
