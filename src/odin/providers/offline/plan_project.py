"""The plan that describes a project by what its own files say."""

import re
from collections import Counter
from collections.abc import Generator
from typing import Any, cast

from odin.core.message import ToolResult
from odin.providers.offline import results
from odin.providers.offline.outline import extract_first_paragraph
from odin.providers.offline.plan_run import find_test_command, parse_package_json
from odin.providers.offline.reach import make_glob_call, make_read_call, report_failure
from odin.providers.offline.task import Plan, PlanContext, PlannedCall, PlannerTask
from odin.providers.offline.vocabulary import FILE_TYPES
from odin.providers.offline.wording import explain_not_offered, format_count

_MANIFESTS = (
    "pyproject.toml",
    "package.json",
    "Cargo.toml",
    "go.mod",
    "setup.cfg",
    "composer.json",
    "Makefile",
    "justfile",
)
_NOT_LANGUAGES = {
    "js",
    "ts",
    "golang",
    "cpp",
    "csharp",
    "text",
    "image",
    "csv",
    "json",
    "toml",
    "xml",
    "bash",
    "markdown",
    "yaml",
}


def plan_init(task: PlannerTask, desk: PlanContext) -> Plan:
    """Have ODIN.md written from what the project is."""
    if not desk.has_tools("InitTool"):
        return explain_not_offered(("InitTool",), desk)
    (result,) = yield (PlannedCall("InitTool", {}),)
    return report_failure("write ODIN.md", result) if result.is_error else result.text


def plan_description(task: PlannerTask, desk: PlanContext) -> Plan:
    """Look at the top folder and all file names, then read the files in which a project says what it is."""
    first = (
        PlannedCall("LS", {"path": desk.cwd}),
        *((make_glob_call("**/*", desk),) if desk.has_tools("Glob") else ()),
    )
    listing, *globbed = yield first
    if listing.is_error:
        return report_failure("look at this folder", listing)
    names = results.parse_entries(listing.text)
    wanted = [name for name in names if re.match(r"readme(?:\.\w+)?$", name, re.IGNORECASE)][:1]
    wanted += [name for name in _MANIFESTS if name in names]
    texts: dict[str, str] = {}
    if wanted:
        answers = yield tuple(make_read_call(desk.resolve_path(name)) for name in wanted)
        for name, answer in zip(wanted, answers, strict=True):
            texts[name] = "" if answer.is_error else results.parse_page(answer.text).text
    languages = languages_of([path for answer in globbed for path in results.parse_paths(answer.text)] or names)
    if any(results.parse_total_files(answer.text) for answer in globbed):
        languages = yield from _count_by_language(languages, desk)
    return _format_description(names, texts, languages, desk)


def _count_by_language(
    languages: list[tuple[str, int]], desk: PlanContext
) -> Generator[tuple[PlannedCall, ...], tuple[ToolResult, ...], list[tuple[str, int]]]:
    """The number of files of each language in a project too large for one list."""
    if not languages:
        return languages
    globs = [f"**/*.{{{FILE_TYPES[name.lower()].replace(' ', ',')}}}" for name, _ in languages]
    answers = yield tuple(make_glob_call(glob, desk) for glob in globs)
    counts = [results.parse_total_files(answer.text) or len(results.parse_paths(answer.text)) for answer in answers]
    exact = [(name, count) for (name, _), count in zip(languages, counts, strict=True)]
    return sorted(exact, key=lambda pair: -pair[1])


def _format_description(
    names: list[str], texts: dict[str, str], languages: list[tuple[str, int]], desk: PlanContext
) -> str:
    if not names:
        return "This folder is empty."
    facts = facts_of(texts)
    name = facts.get("name") or desk.cwd.rstrip("/").rsplit("/", 1)[-1] or "This project"
    readme = next((key for key in texts if key.lower().startswith("readme")), "")
    about = extract_first_paragraph(readme, texts[readme]) if readme else ""
    lines = [f"**{name}**{': ' + facts['description'] if facts.get('description') else ''}"]
    if about and about != facts.get("description"):
        lines += ["", about]
    lines += ["", *_format_points(names, texts, languages, facts)]
    return "\n".join(lines)


def _format_points(
    names: list[str], texts: dict[str, str], languages: list[tuple[str, int]], facts: dict[str, str]
) -> list[str]:
    points: list[str] = []
    if languages:
        written = [f"{name} ({format_count(count, 'file')})" for name, count in languages]
        points.append(f"- Written in: {', '.join(written)}")
    folders = [name for name in names if name.endswith("/") and not name.startswith(".")]
    files = [name for name in names if not name.endswith("/")]
    if folders:
        points.append(f"- Folders: {', '.join(folders[:12])}")
    if files:
        points.append(f"- Files at the top: {', '.join(files[:12])}")
    if facts.get("entry"):
        points.append(f"- Entry points: {facts['entry']}")
    run = _find_run_commands(texts)
    if run:
        points.append(f"- To run: {run}")
    tests = find_test_command(set(names), texts)
    if tests:
        points.append(f"- To test: `{tests.command}`")
    return points


def languages_of(paths: list[str]) -> list[tuple[str, int]]:
    """The programming languages by number of files, most used first."""
    by_ending = {
        ending: name for name, endings in FILE_TYPES.items() if name not in _NOT_LANGUAGES for ending in endings.split()
    }
    endings = (path.rsplit(".", 1)[-1].lower() for path in paths if "." in path.rsplit("/", 1)[-1])
    counts = Counter(by_ending[ending] for ending in endings if ending in by_ending)
    proper = {
        "html": "HTML",
        "css": "CSS",
        "sql": "SQL",
        "php": "PHP",
        "c++": "C++",
        "c#": "C#",
        "javascript": "JavaScript",
        "typescript": "TypeScript",
    }
    return [(proper.get(name, name.capitalize()), count) for name, count in counts.most_common(5)]


def facts_of(texts: dict[str, str]) -> dict[str, str]:
    """Name, description and entry points, from the first manifest that tells them."""
    facts: dict[str, str] = {}
    for found in (_facts_of_toml(texts), _facts_of_node(texts), _facts_of_go(texts)):
        for key, value in found.items():
            if value:
                facts.setdefault(key, value)
    return facts


def _facts_of_toml(texts: dict[str, str]) -> dict[str, str]:
    import tomllib

    text = texts.get("pyproject.toml") or texts.get("Cargo.toml") or ""
    try:
        data: dict[str, Any] = tomllib.loads(text) if text else {}
    except tomllib.TOMLDecodeError:
        return {}
    main = _table_of(data, "project") or _table_of(data, "package") or _table_of(_table_of(data, "tool"), "poetry")
    scripts = _table_of(main, "scripts")
    entry = ", ".join(f"`{name}` ({target})" for name, target in list(scripts.items())[:6])
    return {"name": str(main.get("name", "")), "description": str(main.get("description", "")), "entry": entry}


def _table_of(data: dict[str, Any], key: str) -> dict[str, Any]:
    value = data.get(key)
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _facts_of_node(texts: dict[str, str]) -> dict[str, str]:
    data = parse_package_json(texts.get("package.json", ""))
    command = data.get("bin")
    entry = ", ".join(f"`{name}`" for name in cast("dict[str, Any]", command)) if isinstance(command, dict) else ""
    main = data.get("main")
    return {
        "name": str(data.get("name", "")),
        "description": str(data.get("description", "")),
        "entry": entry or (f"`{main}`" if isinstance(main, str) else ""),
    }


def _facts_of_go(texts: dict[str, str]) -> dict[str, str]:
    found = re.search(r"^module\s+(\S+)", texts.get("go.mod", ""), re.MULTILINE)
    return {"name": found[1]} if found else {}


def _find_run_commands(texts: dict[str, str]) -> str:
    """What the project itself offers to run: script names, make targets."""
    scripts = _table_of(parse_package_json(texts.get("package.json", "")), "scripts")
    commands = [f"`npm run {name}`" for name in ("start", "dev", "build") if name in scripts]
    makefile = texts.get("Makefile", "")
    targets = re.findall(r"^([a-z][\w-]*)\s*:(?!=)", makefile, re.MULTILINE)
    commands += [f"`make {name}`" for name in targets if name not in ("test", "tests", "check", "clean")][:5]
    if "Cargo.toml" in texts:
        commands.append("`cargo run`")
    if "go.mod" in texts:
        commands.append("`go run .`")
    return ", ".join(commands)
