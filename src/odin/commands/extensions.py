"""`odin skills` and `odin plugin`: list and check skills; list, add and remove plugins."""

import argparse
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from odin.app.command_library import describe_demands, list_plugin_commands
from odin.app.skills import (
    check_skill_folder,
    describe_allowed,
    describe_unused_skills,
    list_plugin_skills,
    load_skill_catalog,
    summarize_skills,
)
from odin.app.workspace import list_markdown_folders
from odin.commands.command_line import Parser, make_formatter, write_json, write_message, write_output, write_table
from odin.config import load, resolve_folder
from odin.config.plugins import add_plugin, load_plugins, read_plugin, read_plugin_store, remove_plugin
from odin.config.settings import Plugin, PluginFiles
from odin.core.errors import UsageError
from odin.core.format import pluralize
from odin.hooks.declaration import parse_hooks
from odin.ui.slash_commands.extensions import NO_SKILLS

_ABOUT_SKILLS = """\
List the skills that the model may use in this folder (list), or check a skill or a folder of skills (check DIR).
Reports mistakes with file and line; the exit code is then 1."""

_SKILL_HEADINGS = ("NAME", "SOURCE", "FILE", "DESCRIPTION")


def run_skills(argv: list[str]) -> int:
    parser = Parser(prog="odin skills", description=_ABOUT_SKILLS, formatter_class=make_formatter)
    add = parser.add_argument
    add("what", nargs="?", choices=("list", "check"), default="list", help="(default: list)")
    add("folder", nargs="?", default="", metavar="DIR", help="for check: a skill or a folder of skills")
    parser.add_common_flags()
    add("--trust", action="store_true", help="trust this folder's skills for this run")
    args = parser.parse_args(argv)
    return _check_skills(args) if args.what == "check" else _list_skills(args)


def _list_skills(args: argparse.Namespace) -> int:
    if args.folder:
        raise UsageError(f"Unknown argument {args.folder!r}.", "Use `odin skills check DIR` to check a folder.")
    config = load(resolve_folder(args.cwd), os.environ, trust=args.trust)
    catalog = load_skill_catalog(config, os.environ)
    skills, unused = summarize_skills(catalog), describe_unused_skills(config)
    if args.json:
        write_json({"skills": skills, "problems": catalog.problems, "untrusted": unused})
        return 1 if catalog.problems else 0
    if skills:
        write_table([_SKILL_HEADINGS, *((skill.name, skill.source, skill.path, skill.description) for skill in skills)])
    else:
        write_output(NO_SKILLS)
    for problem in catalog.problems:
        write_message(problem.describe())
    if unused:
        write_message(unused)
    return 1 if catalog.problems else 0


def _check_skills(args: argparse.Namespace) -> int:
    folder = Path(args.cwd, args.folder or ".").resolve()
    if not folder.is_dir():
        raise UsageError(f"{args.folder} is not a folder.", "Name a skill or a folder of skills.")
    skills, problems = check_skill_folder(str(folder))
    if args.json:
        write_json({"skills": skills, "problems": problems})
    else:
        for problem in problems:
            write_message(problem.describe())
        if not skills and not problems:
            write_message(f"There is no SKILL.md in {folder}.")
        found = pluralize(len(problems), "problem") if problems else "no problems"
        write_output(f"{pluralize(len(skills), 'skill')}, {found}\n")
    return 1 if problems or not skills else 0


_ABOUT_PLUGINS = """\
Plugins bundle agents, commands, skills, hooks and MCP servers, in the layout of Claude Code. `add DIR` shows what a
plugin would start and allow, and trusts it with exactly this content. If that changes, it is not used until you add it
again."""

_PLUGIN_HEADINGS = ("NAME", "VERSION", "PARTS", "FOLDER", "DESCRIPTION")


def run_plugin(argv: list[str]) -> int:
    parser = Parser(prog="odin plugin", description=_ABOUT_PLUGINS, formatter_class=make_formatter)
    add = parser.add_argument
    add("what", nargs="?", choices=("list", "add", "remove"), default="list", help="(default: list)")
    add("plugin", nargs="?", default="", metavar="DIR|NAME", help="the folder to add, or the plugin to remove")
    add("--yes", "-y", action="store_true", help="add without confirmation")
    add("--json", action="store_true", help="print JSON")
    args = parser.parse_args(argv)
    if args.what != "list" and not args.plugin:
        raise UsageError(f"`odin plugin {args.what}` needs {'a folder' if args.what == 'add' else 'a name'}.")
    if args.what == "list" and args.plugin:
        raise UsageError(f"Unknown argument {args.plugin!r}.", "Use `odin plugin add DIR` to add a plugin.")
    commands = {"list": _list_plugins, "add": _add_plugin, "remove": _remove_plugin}
    return commands[args.what](args)


def _list_plugins(args: argparse.Namespace) -> int:
    added = read_plugin_store(os.environ)
    plugins, problems = load_plugins(os.environ, (), "/")
    used = {plugin.name: plugin for plugin in plugins}
    rows = [_describe_row(name, used.get(name), pinned.folder) for name, pinned in added.items()]
    if args.json:
        write_json({"plugins": rows, "problems": [problem.describe() for problem in problems]})
        return 1 if problems else 0
    if rows:
        write_table([_PLUGIN_HEADINGS, *(tuple(str(value) for value in row.values()) for row in rows)])
    else:
        write_output("No plugins. `odin plugin add DIR` adds one, `odin --plugin-dir DIR` uses one for one run.\n")
    for problem in problems:
        write_message(problem.describe())
    return 1 if problems else 0


def _describe_row(name: str, plugin: Plugin | None, folder: str) -> dict[str, str]:
    parts = "not used" if plugin is None else ", ".join(plugin.parts)
    about = ("", "") if plugin is None else (plugin.version, plugin.description)
    return {"name": name, "version": about[0], "parts": parts, "folder": folder, "description": about[1]}


def _add_plugin(args: argparse.Namespace) -> int:
    plugin = read_plugin(str(Path(args.plugin).expanduser()), os.environ)
    if not args.json:
        from odin.ui.terminal import escape_hidden

        title = " ".join(filter(None, (plugin.name, plugin.version)))
        lines = [f"{title}: {plugin.description}" if plugin.description else title, f"  {plugin.folder}"]
        for heading, items in (
            ("these programs would start", list(_list_programs(plugin))),
            ("it brings", list(_list_parts(plugin))),
            ("problems", [problem.describe() for problem in plugin.problems]),
        ):
            if items:
                lines += [f"  {heading}:", *(f"    {item}" for item in items)]
        write_output("".join(f"{escape_hidden(line)}\n" for line in lines), verbatim=True)
    if not args.yes:
        if not sys.stdin.isatty():
            raise UsageError("Cannot ask for confirmation without a terminal.", "Review it above, then add --yes.")
        write_output("\nAdd this plugin? Type yes to add it [no]: ")
        if sys.stdin.readline().strip().casefold() != "yes":
            write_output("Not added.\n")
            return 1
    add_plugin(plugin, os.environ)
    if args.json:
        return write_json({"name": plugin.name, "folder": plugin.folder, "parts": plugin.parts})
    return write_output(f"Added {plugin.name}. New sessions use it until its files change.\n")


def _remove_plugin(args: argparse.Namespace) -> int:
    name = remove_plugin(args.plugin, os.environ)
    return write_json({"removed": name}) if args.json else write_output(f"Removed {name}. Its files stay.\n")


def _list_programs(plugin: Plugin) -> Iterator[str]:
    for source, value in plugin.hooks:
        declared = parse_hooks(value, source)
        yield from (f"hook {hook.event}: {hook.text}" for hook in declared.hooks)
        yield from (f"(ignored) {warning}" for warning in declared.warnings)
    for name, server in plugin.servers.items():
        command: Sequence[Any] = [server.get("command", ""), *server.get("args", ())]
        yield f"MCP server {name}: {' '.join(map(str, command)) if server.get('command') else server.get('url', '')}"


def _list_parts(plugin: Plugin) -> Iterator[str]:
    demands = {text.command.name: describe_demands(text) for text in list_plugin_commands(plugin)}
    names = _list_names(plugin.commands, plugin.folder)
    yield from (f"command {name}{demands.get(name, '')}" for name in names)
    yield from (f"agent {name}" for name in _list_names(plugin.agents, plugin.folder))
    yield from (f"skill {skill.name}{describe_allowed(skill)}" for skill in list_plugin_skills(plugin))


def _list_names(parts: PluginFiles, top: str) -> list[str]:
    found: dict[str, None] = {}
    for folder, only in list_markdown_folders(parts, top):
        paths = [Path(path) for path in only] or sorted(Path(folder).glob("**/*.md"))
        found.update((str(path.relative_to(folder).with_suffix("")), None) for path in paths)
    return list(found)
