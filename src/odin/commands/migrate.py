"""`odin migrate`: find the setups of other agents, show what is in them, and import what the user chooses.

Nothing is run or connected, the files of the other agents are only read, and nothing that Odin has is replaced.
"""

import os
import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

import msgspec
from msgspec import Struct

from odin.app.policy import load_rule_set
from odin.commands.command_line import (
    REDIRECTED_COLUMNS,
    Parser,
    ask_line,
    make_formatter,
    split_list,
    write_json,
    write_message,
    write_output,
)
from odin.commands.session_import import import_session
from odin.commands.setups.claude import read_claude
from odin.commands.setups.codex import read_codex
from odin.commands.setups.gemini import read_gemini
from odin.commands.setups.item import SetupFolders, SetupItem, as_object
from odin.commands.setups.opencode import read_opencode
from odin.config import CONFIG_NAME, Config, get_config_dir, get_state_dir, load, make_private_folder, resolve_folder
from odin.config.auth import mask_key, read_auth_file, validate_key
from odin.config.files import parse_json_object, read_config_file, set_key, write_atomically
from odin.config.mcp_file import check_new_server
from odin.config.paths import find_worktree_origin, get_home_dir
from odin.context.markdown_folder import is_typable
from odin.core.errors import OdinError, UsageError
from odin.core.format import shorten_home
from odin.core.text import list_choices, suggest_similar, to_valid_unicode
from odin.hooks.declaration import HOOK_EVENTS
from odin.models.catalog import PRESETS
from odin.models.keys import add_key, check_provider
from odin.policy.rules.rule import RuleSet
from odin.providers.settings import ProviderSettings
from odin.session.store import SessionStore
from odin.ui.terminal import escape_hidden, get_terminal_size, shorten

_ABOUT = "Find the setups of Claude Code, Codex, OpenCode and Gemini CLI, and import what you choose from them."
EPILOG = """\
What Odin reads where it is, such as .claude, AGENTS.md and .mcp.json, is not copied. What Odin already has is not
replaced. Nothing is run, and the files of the other agents stay as they are. Without a terminal, and without --all,
the setups are only listed.
"""

READERS: dict[str, tuple[str, Callable[[SetupFolders], list[SetupItem]]]] = {
    "claude": ("Claude Code", read_claude),
    "codex": ("Codex", read_codex),
    "opencode": ("OpenCode", read_opencode),
    "gemini": ("Gemini CLI", read_gemini),
}

_SETTINGS_KEYS = {"MCP server": "mcp", "provider": "providers", "hook": "hooks"}
_FOLDERS = {"command": "commands", "agent": "agents"}
_NAME_COLUMNS = 36
_ASK = "Import which? Enter for those with [x], numbers such as 1 3-5, or none: "

Fate = Literal["import", "already there", "used as it is", "not supported"]


class MigrationRow(Struct, frozen=True):
    """An item, where in Odin's settings it belongs, and what happens to it."""

    agent: str
    item: SetupItem
    place: str
    fate: Fate
    why: str
    ticked: bool = False

    @property
    def name(self) -> str:
        """The name as it is shown: a key is masked."""
        name = to_valid_unicode(self.item.name)
        return f"{name} {mask_key(self.item.value)}" if self.item.kind == "key" and self.item.value else name


class MigrationTarget(Struct, frozen=True):
    """What Odin has already. `settings` is the user's own odinconfig.json."""

    setup: SetupFolders
    config: Config
    settings: dict[str, Any]
    rules: RuleSet
    store: SessionStore


def run_migrate(argv: list[str]) -> int:
    parser = Parser(prog="odin migrate", description=_ABOUT, epilog=EPILOG, formatter_class=make_formatter)
    add = parser.add_argument
    add("--from", action="append", default=[], dest="agents", metavar="LIST", help=f"only these: {', '.join(READERS)}")
    add("--all", action="store_true", help="import everything that is marked, without asking")
    add("--keys", action="store_true", help="mark API keys, too")
    add("--dry-run", action="store_true", help="only list")
    parser.add_common_flags()
    args = parser.parse_args(argv)
    names = split_list(args.agents) or [*READERS]
    for name in names:
        if name not in READERS:
            raise UsageError(f"Unknown agent {name!r}.{suggest_similar(name, READERS)} Use {list_choices(READERS)}.")
    target = _open_target(resolve_folder(args.cwd), os.environ)
    rows = plan(names, target, keys=args.keys)
    asks = not (args.all or args.json or args.dry_run) and sys.stdin.isatty() and sys.stdout.isatty()
    chosen = [row for row in rows if row.ticked] if args.all and not args.dry_run else []
    if not args.json:
        _write_rows(rows, target)
    if asks:
        chosen = _ask_for_rows([row for row in rows if row.fate == "import"])
    problems: dict[str, str] = {}  # by place: of two rows for one place, the first is imported
    for row in chosen:
        if row.place not in problems:
            problem = problems[row.place] = _import_row(row, target)
            what = escape_hidden(f"{row.item.kind} {row.name}")
            if problem:
                write_message(f"Not imported: {what}: {problem}")
            elif not args.json:
                write_output(f"Imported: {what}\n")
    failed = any(problems.values())
    if args.json:
        imported = [row for row in chosen if not problems[row.place]]
        return write_json([_describe_row(row, row in imported) for row in rows]) or failed
    if not chosen and not asks and any(row.ticked for row in rows):
        write_message("Nothing was imported. `odin migrate --all` imports what is marked with [x].")
    return int(failed)


def _open_target(folder: str, env: Mapping[str, str]) -> MigrationTarget:
    config = load(folder, env)
    path, state = get_config_dir(env) / CONFIG_NAME, make_private_folder(get_state_dir(env))
    raw = read_config_file(path)
    settings = parse_json_object(raw, path)[0] if raw and raw.strip() else {}
    store = SessionStore(state, find_worktree_origin(config.root, state))
    setup = SetupFolders(Path(get_home_dir(env)), Path(config.root), env)
    return MigrationTarget(setup, config, settings, load_rule_set(config, env), store)


def plan(names: list[str], target: MigrationTarget, *, keys: bool = False) -> list[MigrationRow]:
    """Return a row for everything in the setups of these agents. `keys`: keys are ticked, too."""
    rows: list[MigrationRow] = []
    ticked: dict[str, MigrationRow] = {}
    for agent, read in (READERS[name] for name in names):
        for item in read(target.setup):
            place, fate, why = _locate(item), "used as it is" if item.used else "not supported", item.note
            if item.value is not None:
                fate, why = _judge(item, place, target, ticked)
            of_project = target.setup.is_in_project(item.source)
            if fate == "import" and of_project and item.kind != "rule":
                why = "The project brings it, Odin would use it everywhere."
            is_ticked = item.suggested and not of_project and (keys or item.kind != "key")
            rows.append(MigrationRow(agent, item, place, fate, why, fate == "import" and is_ticked))
            if rows[-1].ticked:
                ticked[place] = rows[-1]
    return rows


def _locate(item: SetupItem) -> str:
    """Return where the item belongs: a key of odinconfig.json, a file beside it, or a name of its own."""
    if item.kind in _SETTINGS_KEYS:
        return f"{_SETTINGS_KEYS[item.kind]}.{item.name}"
    if item.kind in _FOLDERS:
        return f"{_FOLDERS[item.kind]}/{item.name}.md"
    return {"model": "model", "instructions": "AGENTS.md"}.get(item.kind, f"{item.kind} {item.name} {item.value}")


_ONLY_ONE = {
    "instructions": "Odin has one AGENTS.md of yours: add the text there.",
    "model": "Odin has one default model.",
}


def _judge(
    item: SetupItem, place: str, target: MigrationTarget, ticked: Mapping[str, MigrationRow]
) -> tuple[Fate, str]:
    """Return what happens to an item that could be imported, and why. `ticked` are the rows before it, by place."""
    try:
        if (present := _find_present(item, place, target)) is not None:
            other = _ONLY_ONE.get(item.kind, "Odin's own is different and stays.")
            return "already there", "" if present == item.value else other
        if (row := ticked.get(place)) is not None:
            other = _ONLY_ONE.get(item.kind, f"{row.agent} has another one of this name.")
            return "already there", f"The same as in {row.agent}." if row.item.value == item.value else other
        _check(item, target, ticked)
    except (OdinError, msgspec.ValidationError) as error:
        return "not supported", str(error)
    return "import", item.note


def _find_present(item: SetupItem, place: str, target: MigrationTarget) -> Any:
    """Return what Odin has in the place of the item, or None."""
    match item.kind:
        case "MCP server" | "provider" | "hook":
            return as_object(target.settings.get(_SETTINGS_KEYS[item.kind])).get(item.name)
        case "model":
            return target.settings.get("model")
        case "rule":
            known = [(line.text, line.action) for line in target.rules.list_rules()]
            return item.value if item.value in known else None
        case "key":
            return item.value if item.value in read_auth_file(target.setup.env).raw_keys.get(item.name, ()) else None
        case "session":
            return item.value if target.store.find_log(item.value) else None
        case _:
            path = get_config_dir(target.setup.env) / place
            if not is_typable(item.name) or not os.path.lexists(path):
                return None
            return (read_config_file(path) or b"").decode("utf-8", "replace")


def _check(item: SetupItem, target: MigrationTarget, ticked: Mapping[str, MigrationRow]) -> None:
    """Raise OdinError if Odin cannot use the item."""
    providers = target.config.providers
    match item.kind:
        case "MCP server":
            check_new_server(item.name, item.value, target.config)
        case "rule":
            target.rules.check(*item.value)
        case "key":
            check_provider(item.name, providers)
            validate_key(item.value)
        case "hook":
            if item.name not in HOOK_EVENTS or not isinstance(item.value, list):
                raise UsageError("Odin has no such hook event.")
        case "model":
            provider = str(item.value).partition("/")[0]
            if provider not in (*PRESETS, *providers) and f"providers.{provider}" not in ticked:
                raise UsageError("Odin does not know its provider.")
        case "provider":
            url = msgspec.convert(item.value, ProviderSettings).base_url
            if not re.fullmatch(r"[\w-]+", item.name, re.ASCII) or not url.startswith(("http://", "https://")):
                raise UsageError("It needs a name of letters and digits, and a URL.")
        case "command" | "agent" if not is_typable(item.name):
            raise UsageError("Its name cannot be typed.")
        case _:
            pass


def _import_row(row: MigrationRow, target: MigrationTarget) -> str:
    """Import an item and return why it failed, or ""."""
    item, env = row.item, target.setup.env
    try:
        match item.kind:
            case "rule":
                scope = "project" if target.setup.is_in_project(item.source) else "user"
                text, action = item.value
                target.rules.add(text, action, scope)
            case "key":
                add_key(item.name, item.value, load(target.config.root, env).providers, env)
            case "session":
                import_session(str(item.source), env, cwd=target.config.root, session=item.value)
            case "command" | "agent" | "instructions":
                path = get_config_dir(env) / row.place
                make_private_folder(get_config_dir(env))
                path.parent.mkdir(parents=True, exist_ok=True)
                write_atomically(path, item.value.encode())
            case _:
                set_key(row.place, item.value, env)
    except OdinError as error:
        return str(error)
    except OSError as error:
        return f"{error.strerror or error}."
    return ""


def _write_rows(rows: list[MigrationRow], target: MigrationTarget) -> None:
    columns = get_terminal_size(sys.stdout)[0] if sys.stdout.isatty() else REDIRECTED_COLUMNS
    if not rows:
        write_output(f"No setup of {list_choices([name for name, _ in READERS.values()])} was found.\n")
    lines, heading, number = list[str](), "", 0
    for row in rows:
        item = row.item
        is_file = item.source.suffix in (".md", ".toml", ".jsonl") and item.kind in (*_FOLDERS, "session")
        place = item.source.parent if is_file else item.source
        if heading != (heading := f"{row.agent}  {shorten_home(str(place), str(target.setup.home))}"):
            lines.append(escape_hidden(heading))
        number += row.fate == "import"
        mark = f"[{'x' if row.ticked else ' '}] {number:>2}" if row.fate == "import" else ""
        name = shorten(escape_hidden(row.name), _NAME_COLUMNS)
        line = f"  {mark:6}  {item.kind:12}  {name:{_NAME_COLUMNS}}  {row.fate}"
        why = escape_hidden(row.why)
        apart = f"\n{' ' * 24}" if len(line) + len(why) + 4 > columns else "  "
        lines.append(f"{line}{apart}{why}" if why else line)
    write_output("".join(f"{line}\n" for line in lines))


def _ask_for_rows(rows: list[MigrationRow]) -> list[MigrationRow]:
    """Return the rows that the user chooses; none at the end of input or after Ctrl-C."""
    while rows:
        typed = ask_line(_ASK)
        words = typed.replace(",", " ").split()
        if not typed or words == ["none"]:
            return []
        if not words:
            return [row for row in rows if row.ticked]
        ends = [(word.partition("-")[0], word.rpartition("-")[2]) for word in words]
        known = [str(number + 1) for number in range(len(rows))]
        if all(first in known and last in known for first, last in ends):
            chosen = {at for first, last in ends for at in range(int(first) - 1, int(last))}
            return [rows[at] for at in sorted(chosen)]
        write_message(f"Type numbers from 1 to {len(rows)}.")
    return []


def _describe_row(row: MigrationRow, imported: bool) -> dict[str, object]:
    item = row.item
    shown = {"agent": row.agent, "kind": item.kind, "name": row.name, "source": to_valid_unicode(str(item.source))}
    return {**shown, "then": row.fate, "why": row.why, "ticked": row.ticked, "imported": imported}
