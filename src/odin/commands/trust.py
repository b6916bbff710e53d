"""`odin trust`: show what a folder needs trust for, and trust folders or stop trusting them."""

import argparse
import asyncio
import os
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, cast

from msgspec import Struct, field

from odin.app.roles import list_project_files
from odin.app.workspace import list_project_skill_folders
from odin.commands.command_line import Parser, make_formatter, write_json, write_message, write_output
from odin.config import CONFIG_NAME, Config, find_project_root, get_current_folder, load, resolve_folder
from odin.config.claude_files import list_texts, read_claude_files
from odin.config.files import read_config_file
from odin.config.roots import list_own_files
from odin.config.trust import (
    PINNED_FILES,
    PINNED_FOLDERS,
    PinnedProject,
    ProjectPin,
    TrustedFolder,
    add_trusted_folder,
    find_agent_servers,
    hash_pinned_files,
    ignore_folder,
    is_ignored,
    read_trusted_folders,
    remove_trusted_folder,
)
from odin.core.errors import OdinError, UsageError
from odin.core.interaction import TrustRequest
from odin.core.setup import TrustAnswer
from odin.hooks.declaration import HookSpec, parse_hooks
from odin.policy.rules.rule_file import RuleReader
from odin.ui.terminal import escape_hidden


class TrustCandidate(Struct, frozen=True, kw_only=True):
    """What a folder's configuration does only if trusted: programs it starts, and settings it allows or sets.

    `hooks` and `servers` are the names of what it starts as programs. `network` and `unsandboxed` are what the user has
    allowed them already. `adds_folders`: its settings or the user's name more folders to work in. `hashes` are of the
    files that were inspected, so that trust covers exactly that content and no later change.
    """

    folder: str
    trusted: bool
    changed: tuple[str, ...]
    starts: tuple[str, ...]
    allows: tuple[str, ...]
    hooks: tuple[str, ...] = ()
    servers: tuple[str, ...] = ()
    network: tuple[str, ...] = ()
    unsandboxed: dict[str, ProjectPin] = field(default_factory=dict[str, ProjectPin])
    warning: str = ""
    adds_folders: bool = False
    hashes: dict[str, str]

    @property
    def request(self) -> TrustRequest:
        return TrustRequest(self.folder, self.changed, self.starts, self.allows, self.servers)

    @property
    def is_empty(self) -> bool:
        return not self.starts and not self.allows


def inspect_folder(cwd: str, env: Mapping[str, str], *, is_added: bool = False) -> TrustCandidate:
    """Return what the project around a folder needs trust for, without running anything of it.

    `is_added`: a session in another project works there, too, so its instructions need trust as well.
    """
    folder = resolve_folder(cwd)
    root = os.path.realpath(find_project_root(folder, env))
    hashes = _hash_files(root, env)
    config = load(folder, env)
    if _hash_files(root, env) != hashes:
        raise UsageError(f"Files in {root} changed while they were inspected.", "Try again.")
    declared = [item for item in config.declared.get("hooks", ()) if item.layer == "project"]
    hooks = [hook for item in declared for hook in parse_hooks(item.value, "", item.hook_prefix).hooks]
    servers = tuple(_list_servers(config))
    return TrustCandidate(
        folder=root,
        trusted=config.trust.trusted,
        changed=config.trust.changed,
        starts=tuple(dict.fromkeys(_list_started_programs(config, hooks, servers))),
        allows=(*(_list_instructions(folder) if is_added else ()), *_list_allowed_settings(config)),
        hooks=tuple(hook.id for hook in hooks),
        servers=tuple(dict.fromkeys(name for name, server in servers if server.get("command"))),
        network=config.trust.network,
        unsandboxed=config.trust.unsandboxed,
        warning=config.trust.warning,
        adds_folders=bool(config.roots) or "additional_directories" in config.wanted,
        hashes=hashes,
    )


def _hash_files(root: str, env: Mapping[str, str]) -> dict[str, str]:
    config_text, texts = read_config_file(Path(root, CONFIG_NAME)), list_texts(read_claude_files(root, root, env)[1])
    return hash_pinned_files(root, config_text, texts)


def grant_trust(
    candidate: TrustCandidate,
    env: Mapping[str, str],
    *,
    network: Collection[str] = (),
    unsandboxed: Collection[str] = (),
) -> None:
    """Trust the folder with the inspected content. `network` and `unsandboxed` name its servers and hooks."""
    for name in network:
        if name not in candidate.servers:
            raise UsageError(f"This project starts no MCP server {name!r}.", "`odin trust` lists what it starts.")
    pins = dict(candidate.unsandboxed)
    for name in unsandboxed:
        kinds = [kind for kind, known in (("hook", candidate.hooks), ("server", candidate.servers)) if name in known]
        if len(kinds) != 1:
            why = "Both a hook and a server are" if kinds else "No hook or MCP server of this project is"
            raise UsageError(f"{why} called {name!r}.", "`odin trust` lists what it starts.")
        pins[f"{kinds[0]} {name}"] = PinnedProject(candidate.folder).make_pin()
    if pins and _hash_files(candidate.folder, env) != candidate.hashes:
        raise UsageError(f"Files in {candidate.folder} changed while they were inspected.", "Try again.")
    allowed = tuple(dict.fromkeys((*candidate.network, *network)))
    trusted = TrustedFolder(files=candidate.hashes, network=allowed, unsandboxed=pins)
    add_trusted_folder(candidate.folder, trusted, env)


def find_pending_trusts(cwd: str, add_dirs: Sequence[str], env: Mapping[str, str]) -> "Iterator[FolderTrust]":
    """Yield the trust requests for a folder and then for those that a session there works in, too."""
    try:
        candidate = inspect_folder(cwd, env)
        pending = _make_request(candidate, env)
    except OdinError:  # opening the session reports it
        return
    if pending is not None:
        yield pending
    if not add_dirs and not candidate.adds_folders:
        return
    try:
        roots = load(resolve_folder(cwd), env, add_dirs=add_dirs).roots
    except OdinError:
        return
    for root in roots:
        if not root.trusted and (pending := find_pending_trust(root.path, env, is_added=True)) is not None:
            yield pending


def find_pending_trust(cwd: str, env: Mapping[str, str], *, is_added: bool = False) -> "FolderTrust | None":
    """Return the trust request for a folder, or None if it is trusted, needs no trust or was refused it as it is.

    None also if the folder cannot be inspected: opening the session reports why.
    """
    try:
        return _make_request(inspect_folder(cwd, env, is_added=is_added), env)
    except OdinError:
        return None


def _make_request(candidate: TrustCandidate, env: Mapping[str, str]) -> "FolderTrust | None":
    is_settled = candidate.trusted or candidate.is_empty or is_ignored(candidate.folder, candidate.hashes, env)
    return None if is_settled else FolderTrust(candidate, env)


class FolderTrust:
    """The trust request for a front end that shows it itself."""

    def __init__(self, candidate: TrustCandidate, env: Mapping[str, str]) -> None:
        self._candidate = candidate
        self._env = env

    @property
    def request(self) -> TrustRequest:
        return self._candidate.request

    async def grant(self, *, network: bool = False) -> None:
        servers = self._candidate.servers if network else ()
        await asyncio.to_thread(partial(grant_trust, self._candidate, self._env, network=servers))

    async def refuse(self) -> None:
        with suppress(OdinError, OSError):  # what cannot be saved is asked again
            await asyncio.to_thread(ignore_folder, self._candidate.folder, self._candidate.hashes, self._env)


def revoke_trust(cwd: str, env: Mapping[str, str]) -> tuple[str, bool]:
    """Stop trusting a folder, which may no longer exist. Return the folder and whether it was trusted."""
    path = os.path.realpath(cwd or get_current_folder())
    for folder in dict.fromkeys((path, os.path.realpath(find_project_root(path, env)))):
        if remove_trusted_folder(folder, env):
            return folder, True
    return path, False


def _list_servers(config: Config) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the MCP servers that the project brings."""
    for name, server in (*find_agent_servers(config.root), *config.wanted.get("mcp", {}).items()):
        if isinstance(server, dict):
            yield name, cast("dict[str, Any]", server)


def _list_started_programs(
    config: Config, hooks: Sequence[HookSpec], servers: Sequence[tuple[str, dict[str, Any]]]
) -> Iterator[str]:
    trust, project = config.trust, PinnedProject(config.root)
    notes = {
        name: " (outside the sandbox)" if project.has_content(pin) else " (in the sandbox again: files have changed)"
        for name, pin in trust.unsandboxed.items()
    }
    for hook in hooks:
        yield f"{hook.id}: {hook.text}{notes.get(f'hook {hook.id}', '')}"
    for name, settings in servers:
        args = cast("Sequence[Any]", settings.get("args") if isinstance(settings.get("args"), list | tuple) else ())
        given = [*_list_pairs(settings.get("env"), "="), settings.get("command", ""), *args]
        shown = " ".join(map(str, given)) if settings.get("command") else settings.get("url", "")
        shown += "".join(f" ({header})" for header in _list_pairs(settings.get("headers"), ": "))
        wish = " (asks for the network)" if settings.get("network") in (True, "true") else ""
        note = notes.get(f"server {name}", " (with network)" if name in trust.network else wish)
        yield f"MCP server {name}: {shown}{note}"
    for name, server in config.wanted.get("lsp_servers", {}).items():
        words = (server.get("command", name), *server.get("args", ()))
        yield f"language server {name}: {' '.join(words)}"


def _list_pairs(value: Any, separator: str) -> list[str]:
    pairs = cast("dict[str, Any]", value if isinstance(value, dict) else {})
    return [f"{name}{separator}{item}" for name, item in pairs.items()]


def _list_allowed_settings(config: Config) -> Iterator[str]:
    for key, value in config.wanted.items():
        if key not in ("hooks", "mcp", "lsp_servers", "rules"):
            yield from (f"{key}: {item}" for item in (cast("list[Any]", value) if isinstance(value, list) else [value]))
    for declared in config.declared.get("rules", ()):
        if declared.layer == "project":
            rules = RuleReader(declared.layer, declared.source).read(declared.value).rules
            yield from (f"rules: {rule.action} {rule.text}" for rule in rules if rule.action == "allow")
    yield from (f"agent file: {name}" for name in list_project_files(config.root))
    files = (name for name in PINNED_FILES if name.startswith(".odin/") and os.path.isfile(f"{config.root}/{name}"))  # noqa: PTH113
    yield from (f"instruction file: {name}" for name in files)
    declared = (item for item in config.declared.get("commands", ()) if item.layer == "project")
    folders = (f"{config.root}/{name}" for name in PINNED_FOLDERS if name.endswith("/commands"))
    if any(declared) or any(map(os.path.isdir, folders)):
        from odin.app.command_library import describe_demands, load_command_library

        for text in load_command_library(config, os.environ).list_texts():
            if text.is_from_project and (demands := describe_demands(text)):
                yield f"command: {text.path.removeprefix(f'{config.root}/')}{demands}"
    if list_project_skill_folders(config):
        from odin.app.skills import describe_allowed, list_project_skills

        for skill in list_project_skills(config):
            yield f"skill: {os.path.relpath(skill.path, config.root)}{describe_allowed(skill)}"


def _list_instructions(folder: str) -> Iterator[str]:
    settings = (CONFIG_NAME, ".claude/settings.json", ".claude/settings.local.json")
    yield from (f"instruction file: {name}" for name in list_own_files(folder) if name not in settings)


_ABOUT = "Show what this folder needs trust for. Hooks, allow rules and other settings are ignored until you trust it."


def run_trust(argv: list[str]) -> int:
    parser = Parser(prog="odin trust", description=_ABOUT, formatter_class=make_formatter)
    add = parser.add_argument
    add("what", nargs="?", choices=("status", "add", "remove", "list"), default="status", help="(default: status)")
    add("path", nargs="?", default="", metavar="PATH", help="folder (default: the current one)")
    add("--yes", "-y", action="store_true", help="add without confirmation")
    repeatable: dict[str, Any] = {"action": "append", "default": [], "metavar": "NAME"}
    add("--network", **repeatable, help="with add: let this MCP server use the network; repeatable")
    add("--unsandboxed", **repeatable, help="with add: run this hook or MCP server outside the sandbox; repeatable")
    parser.add_common_flags()
    args = parser.parse_args(argv)
    args.path = args.path or args.cwd
    if args.what != "add" and (args.network or args.unsandboxed):
        raise UsageError("--network and --unsandboxed belong to `odin trust add`.")
    commands = {"status": _print_status, "add": _add_folder, "remove": _remove_folder, "list": _list_folders}
    return commands[args.what](args)


def ask_for_trust(cwd: str, add_dirs: Sequence[str]) -> None:
    """Ask whether to trust the folders of a session that need trust, before plain mode starts."""
    for pending in find_pending_trusts(cwd, add_dirs, os.environ):
        answer = _confirm_trust(pending.request)
        asyncio.run(pending.refuse() if answer == "no" else pending.grant(network=answer == "network"))


def _confirm_trust(request: TrustRequest) -> TrustAnswer:
    from odin.ui.trust_prompt import ask_trust

    return ask_trust(request, sys.stdin, sys.stderr)


def _print_status(args: argparse.Namespace) -> int:
    from odin.ui.trust_prompt import format_trust_page

    candidate = inspect_folder(args.path, os.environ)
    if args.json:
        return write_json(_collect_facts(candidate), verbatim=True)
    if candidate.warning:
        write_message(candidate.warning)
    state = "trusted" if candidate.trusted else "not trusted"
    return write_output(f"{state}: {format_trust_page(candidate.request)}", verbatim=True)


def _add_folder(args: argparse.Namespace) -> int:
    from odin.ui.trust_prompt import format_trust_page

    candidate = inspect_folder(args.path, os.environ)
    network = args.network
    if args.yes:
        if not args.json:
            write_output(format_trust_page(candidate.request), verbatim=True)
    elif not sys.stdin.isatty():
        raise UsageError("Cannot ask for confirmation without a terminal.", "Review `odin trust`, then add --yes.")
    else:
        answer = _confirm_trust(candidate.request)
        if answer == "no":
            return 1
        network = candidate.servers if answer == "network" else network
    grant_trust(candidate, os.environ, network=network, unsandboxed=args.unsandboxed)
    if args.json:
        return write_json({**_collect_facts(candidate), "trusted": True, "changed": []})
    return write_output("Trusted.\n") if args.yes else 0


def _remove_folder(args: argparse.Namespace) -> int:
    folder, removed = revoke_trust(args.path, os.environ)
    if args.json:
        return write_json({"folder": folder, "removed": removed})
    return write_output(f"{escape_hidden(folder)} {'is no longer trusted' if removed else 'was not trusted'}.\n")


def _list_folders(args: argparse.Namespace) -> int:
    folders = read_trusted_folders(os.environ)
    if args.json:
        return write_json(
            [
                {
                    "folder": name,
                    "since": entry.since,
                    "files": sorted(entry.files),
                    "network": entry.network,
                    "unsandboxed": sorted(entry.unsandboxed),
                }
                for name, entry in folders.items()
            ]
        )
    lines: list[str] = []
    for name, entry in folders.items():
        lines.append(name)
        lines += [f"  {server}: may use the network" for server in entry.network]
        lines += [f"  {program}: outside the sandbox until a file changes" for program in sorted(entry.unsandboxed)]
    return write_output("".join(f"{escape_hidden(line)}\n" for line in lines) or "No trusted folders.\n")


def _collect_facts(candidate: TrustCandidate) -> dict[str, Any]:
    names = ("folder", "trusted", "changed", "starts", "allows", "warning")
    return {name: getattr(candidate, name) for name in names}
