"""What a folder asks to be trusted with, and giving and taking back that trust.

`odin trust`: what this folder asks to be trusted with, and trusting it or not.
"""

import argparse
import asyncio
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, cast

from msgspec import Struct

from odin.commands.command_line import Parser, make_formatter, write_message, write_output
from odin.config import CONFIG_NAME, Config, find_project_root, get_current_folder, load
from odin.config.reader import read_config_file
from odin.config.trust import (
    TrustedFolder,
    add_trusted_folder,
    hash_pinned_files,
    read_trusted_folders,
    remove_trusted_folder,
)
from odin.core.errors import OdinError, UsageError
from odin.core.onboarding import TrustRequest
from odin.policy.hooks.declaration import parse_hooks
from odin.policy.rules.rule_file import RuleReader


class TrustCandidate(Struct, frozen=True, kw_only=True):
    """What counts in a folder only when it is trusted: the programs that start, and what else is allowed or set.

    `pins` are the digests of what was looked at, so that trust is given to that and to nothing that came later.
    """

    folder: str
    trusted: bool
    changed: tuple[str, ...]
    starts: tuple[str, ...]
    allows: tuple[str, ...]
    warning: str = ""
    hashes: dict[str, str]

    @property
    def is_empty(self) -> bool:
        return not self.starts and not self.allows


def inspect_folder(cwd: str, env: Mapping[str, str]) -> TrustCandidate:
    """What the project around a folder asks for. Nothing of it is run or used by looking."""
    where = os.path.realpath(cwd or get_current_folder())
    if not Path(where).is_dir():
        raise UsageError(f"There is no folder {where}.", "Name an existing one.")
    root = os.path.realpath(find_project_root(where, env))
    pins = _hash_files(root)
    config = load(where, env)
    if _hash_files(root) != pins:
        raise UsageError(f"The files of {root} are being changed right now.", "Look again when nobody writes to them.")
    return TrustCandidate(
        folder=root,
        trusted=config.trust.trusted,
        changed=config.trust.changed,
        starts=tuple(dict.fromkeys(_list_started_programs(config))),
        allows=tuple(_list_allowed_settings(config)),
        warning=config.trust.warning,
        hashes=pins,
    )


def _hash_files(root: str) -> dict[str, str]:
    return hash_pinned_files(root, read_config_file(Path(root, CONFIG_NAME)))


def grant_trust(candidate: TrustCandidate, env: Mapping[str, str]) -> None:
    """Trust the folder with the content that was looked at."""
    add_trusted_folder(candidate.folder, candidate.hashes, env)


def find_pending_trust(cwd: str, env: Mapping[str, str]) -> "FolderTrust | None":
    """The folder's wish, when it has one and is not trusted.

    What cannot be looked at is not asked about; opening the session says what is wrong with it.
    """
    try:
        wish = inspect_folder(cwd, env)
    except OdinError:
        return None
    return None if wish.trusted or wish.is_empty else FolderTrust(wish, env)


class FolderTrust:
    """For a front end that asks."""

    def __init__(self, candidate: TrustCandidate, env: Mapping[str, str]) -> None:
        self._candidate = candidate
        self._env = env

    @property
    def request(self) -> TrustRequest:
        wish = self._candidate
        return TrustRequest(wish.folder, wish.changed, wish.starts, wish.allows)

    async def grant(self) -> None:
        await asyncio.to_thread(grant_trust, self._candidate, self._env)


def revoke_trust(cwd: str, env: Mapping[str, str]) -> tuple[str, bool]:
    """The folder that is not trusted any more, and whether it was. It need not exist any more."""
    where = os.path.realpath(cwd or get_current_folder())
    for folder in dict.fromkeys((where, os.path.realpath(find_project_root(where, env)))):
        if remove_trusted_folder(folder, env):
            return folder, True
    return where, False


def list_trusted_folders(env: Mapping[str, str]) -> dict[str, TrustedFolder]:
    return read_trusted_folders(env)


def _list_started_programs(config: Config) -> Iterator[str]:
    """Every program that would start by itself, with what makes it start."""
    for hook in parse_hooks(config.wanted.get("hooks", {}), "").hooks:
        yield f"{hook.event}: {hook.text}"


def _list_allowed_settings(config: Config) -> Iterator[str]:
    """Everything that would be allowed or set."""
    for key, value in config.wanted.items():
        if key != "hooks":
            yield from (f"{key}: {item}" for item in (cast("list[Any]", value) if isinstance(value, list) else [value]))
    for said in config.declared.get("rules", ()):
        if said.layer == "project":
            rules = RuleReader(said.layer, said.source).read(said.value).rules
            yield from (f"rules: {rule.action} {rule.text}" for rule in rules if rule.action == "allow")


_ABOUT = "What this folder asks to be trusted with. Nothing of it counts or starts until you trust the folder."


def run_trust(argv: list[str]) -> int:
    args = _parse_args(argv)
    return {"status": _print_status, "add": _add_folder, "remove": _remove_folder, "list": _list_folders}[args.what](
        args
    )


def ask_for_trust(cwd: str) -> None:
    """Before a chat begins: when the folder asks for something and is not trusted, the person decides.

    What cannot be looked at is not asked about; opening the session says what is wrong with it.
    """

    try:
        wish = inspect_folder(cwd, os.environ)
    except OdinError:
        return
    if not wish.trusted and not wish.is_empty and _confirm_trust(wish):
        grant_trust(wish, os.environ)


def _confirm_trust(candidate: "TrustCandidate") -> bool:
    from odin.ui.plain.trust_prompt import ask_trust

    return ask_trust(**_page_arguments_of(candidate), keyboard=sys.stdin, screen=sys.stderr)


def _page_arguments_of(candidate: "TrustCandidate") -> dict[str, Any]:
    return {
        "folder": candidate.folder,
        "changed": candidate.changed,
        "starts": candidate.starts,
        "allows": candidate.allows,
    }


def _parse_args(argv: list[str]) -> argparse.Namespace:
    parser = Parser(prog="odin trust", description=_ABOUT, formatter_class=make_formatter)
    add = parser.add_argument
    add("what", nargs="?", choices=("status", "add", "remove", "list"), default="status", help="(status)")
    add("path", nargs="?", default="", metavar="PATH", help="another folder than this one")
    add("--yes", "-y", action="store_true", help="add: do not ask")
    add("--json", action="store_true", help="print JSON")
    add("--cwd", default="", metavar="DIR", help="the project's folder")
    args = parser.parse_args(argv)
    args.path = args.path or args.cwd
    return args


def _print_status(args: argparse.Namespace) -> int:
    from odin.ui.plain.trust_prompt import format_trust_page

    wish = inspect_folder(args.path, os.environ)
    if args.json:
        return _print_json(_facts_of(wish))
    if wish.warning:
        write_message(wish.warning)
    return write_output(
        f"{'trusted' if wish.trusted else 'not trusted'}: {format_trust_page(**_page_arguments_of(wish))}"
    )


def _add_folder(args: argparse.Namespace) -> int:
    from odin.ui.plain.trust_prompt import format_trust_page

    wish = inspect_folder(args.path, os.environ)
    if args.yes:
        if not args.json:
            write_output(format_trust_page(**_page_arguments_of(wish)))
    elif not sys.stdin.isatty():
        raise UsageError("There is nobody to ask here, so nothing was trusted.", "Add --yes once you have looked.")
    elif not _confirm_trust(wish):
        return 1
    grant_trust(wish, os.environ)
    if args.json:
        return _print_json({**_facts_of(wish), "trusted": True, "changed": []})
    return write_output("Trusted.\n") if args.yes else 0


def _remove_folder(args: argparse.Namespace) -> int:
    from odin.ui.terminal import escape_hidden

    folder, was = revoke_trust(args.path, os.environ)
    if args.json:
        return _print_json({"folder": folder, "removed": was})
    return write_output(f"{escape_hidden(folder)} {'is not trusted any more' if was else 'was not trusted'}.\n")


def _list_folders(args: argparse.Namespace) -> int:
    from odin.ui.terminal import escape_hidden

    folders = list_trusted_folders(os.environ)
    if args.json:
        return _print_json(
            [{"folder": name, "since": entry.since, "files": sorted(entry.files)} for name, entry in folders.items()]
        )
    return write_output("".join(f"{escape_hidden(name)}\n" for name in folders) or "No folder is trusted.\n")


def _facts_of(candidate: "TrustCandidate") -> dict[str, Any]:
    names = ("folder", "trusted", "changed", "starts", "allows", "warning")
    return {name: getattr(candidate, name) for name in names}


def _print_json(value: Any) -> int:
    import msgspec

    return write_output(msgspec.json.encode(value).decode() + "\n")
