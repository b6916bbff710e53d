"""`odin auth`: list, add and remove API keys. Keys are typed or piped in, never arguments, and never printed whole."""

import argparse
import asyncio
import os
from typing import TYPE_CHECKING

from odin.commands.command_line import Parser, make_formatter, read_api_key, write_json, write_message, write_output
from odin.config import get_current_folder, load
from odin.config.auth import locate_auth_file, read_auth_file
from odin.core.errors import UsageError
from odin.core.format import describe_limits, format_duration
from odin.ui.terminal import escape_hidden

if TYPE_CHECKING:
    from odin.models.keys import KeyEntry

_ABOUT = "List API keys from the environment, the settings and auth.json; add keys to auth.json or remove them."

_MIN_KEY_CHARS = 20
"""A longer provider name that contains digits is probably a key typed in the wrong place."""

_KEY_ARGUMENT_ERROR = (
    "Do not pass a key as an argument: the process list and your shell history expose it.",
    "Run `odin auth add PROVIDER`, which asks for the key. Revoke a key that you typed here. See `odin auth --help`.",
)


def run_auth(argv: list[str]) -> int:
    parser = Parser(prog="odin auth", description=_ABOUT, formatter_class=make_formatter)
    add = parser.add_argument
    add("what", nargs="?", choices=("list", "add", "remove"), default="list", help="(default: list)")
    add("provider", nargs="?", default="", metavar="PROVIDER", help="anthropic, openai, ...")
    add("--json", action="store_true", help="print JSON")
    args, more = parser.parse_known_args(argv)
    if any(not word.startswith("-") for word in more):
        raise UsageError(*_KEY_ARGUMENT_ERROR)
    args = args if not more else parser.parse_args(argv)
    return {"list": _list_keys, "add": _add_key, "remove": _remove_keys}[args.what](args)


def _list_keys(args: argparse.Namespace) -> int:
    from odin.models.keys import find_unknown_providers, list_keys

    config, auth = load(get_current_folder(), os.environ), read_auth_file(os.environ)
    lines = [
        line
        for line in list_keys(config.providers, auth, os.environ)
        if not args.provider or line.provider == args.provider
    ]
    for warning in (*auth.warnings, *find_unknown_providers(config.providers, auth)):
        write_message(warning)
    if args.json:
        return write_json(lines)
    if not lines:
        return write_output("No API keys. Add one with `odin auth add PROVIDER`.\n")
    width = max(len(line.provider) for line in lines)
    shown = max(len(line.shown) for line in lines)
    rows = "".join(
        f"{'*' if line.used else ' '} {escape_hidden(line.provider):{width}}  {escape_hidden(line.shown):{shown}}  "
        f"{escape_hidden(line.place)}{_describe_state(line)}{_describe_limits(line)}\n"
        for line in lines
    )
    # One line for each provider with several keys: how many are healthy, and when the next one is.
    from odin.core.format import format_duration

    text = ""
    for provider in dict.fromkeys(line.provider for line in lines):
        keys = [line for line in lines if line.provider == provider]
        if len(keys) > 1:
            healthy = sum(line.state == "healthy" for line in keys)
            cooldowns = [line.cooldown_s for line in keys if line.state == "cooling"]
            following = f", the next one in {format_duration(min(cooldowns))}" if cooldowns else ""
            text += f"{escape_hidden(provider)}: {healthy} of {len(keys)} keys healthy{following}\n"
    return write_output(f"{rows}\n* in use\n{text}")


def _describe_state(line: "KeyEntry") -> str:
    match line.state:
        case "cooling":
            return f"  cooling down, {format_duration(line.cooldown_s)} left"
        case "rejected":
            return f"  rejected: {escape_hidden(line.reason)}"
        case "unset":
            return "  not set"
        case "unproven":
            return "  failed before, not tried again yet"
        case _:
            return ""


def _describe_limits(line: "KeyEntry") -> str:
    text = "" if line.limits is None else describe_limits(line.limits)
    return f"  {text}" if text else ""


def _add_key(args: argparse.Namespace) -> int:
    from odin.models.keys import add_key, check_key, check_provider

    _require_provider(args)
    settings = load(get_current_folder(), os.environ).providers
    if (
        args.provider not in settings
        and len(args.provider) >= _MIN_KEY_CHARS
        and any(map(str.isdecimal, args.provider))
    ):
        raise UsageError(*_KEY_ARGUMENT_ERROR)
    provider = check_provider(args.provider, settings)
    key = read_api_key(provider)
    unchecked = asyncio.run(check_key(provider, key, settings, os.environ))
    count, file = add_key(provider, key, settings, os.environ), str(locate_auth_file(os.environ))
    if args.json:
        return write_json({"provider": provider, "keys": count, "file": file, "unchecked": unchecked})
    if unchecked:
        write_message(f"The key was not checked: {unchecked}")
    more = f" {count} keys are stored; this one is used first." if count > 1 else ""
    accepted = "" if unchecked else f" {provider} accepts it."
    return write_output(f"Stored the {provider} key in {escape_hidden(file)} (readable only by you).{accepted}{more}\n")


def _remove_keys(args: argparse.Namespace) -> int:
    from odin.models.keys import forget_keys

    _require_provider(args)
    count = forget_keys(args.provider, os.environ)
    if args.json:
        return write_json({"provider": args.provider, "removed": count})
    if not count:
        raise UsageError(f"No stored key for {args.provider}.", "`odin auth` lists the keys.")
    return write_output(f"Removed {'the key' if count == 1 else f'{count} keys'} for {args.provider}.\n")


def _require_provider(args: argparse.Namespace) -> None:
    if not args.provider:
        raise UsageError(f"`odin auth {args.what}` needs a provider, e.g. anthropic or openai.")
