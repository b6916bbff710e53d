"""`odin auth`: the keys of providers. A key is asked for or piped in; it is never an argument and never shown whole."""

import argparse
import os
import sys
from typing import Any

from odin.commands.command_line import Parser, make_formatter, write_message, write_output
from odin.config import get_current_folder, load
from odin.core.errors import UsageError
from odin.ui.terminal import escape_hidden

_ABOUT = (
    "The keys of providers: in the environment, in the settings, and those stored in auth.json, which you add here."
)

_MIN_KEY_CHARS = 20
"""So long a name with digits in it, which no provider has, is a key in the wrong place."""

_KEY_ARGUMENT_ERROR = (
    "A key is never an argument: others see it in the list of processes, and your shell keeps it.",
    "Run `odin auth add PROVIDER`, which asks for it, and replace a key that you have typed here. See `odin --help`.",
)


def run_auth(argv: list[str]) -> int:
    args = _parse_args(argv)
    return {"list": _list_keys, "add": _add_key, "remove": _remove_keys}[args.what](args)


def _parse_args(argv: list[str]) -> argparse.Namespace:
    parser = Parser(prog="odin auth", description=_ABOUT, formatter_class=make_formatter)
    add = parser.add_argument
    add("what", nargs="?", choices=("list", "add", "remove"), default="list", help="(list)")
    add("provider", nargs="?", default="", metavar="PROVIDER", help="whose key: anthropic, openai, ...")
    add("--json", action="store_true", help="print JSON")
    args, more = parser.parse_known_args(argv)
    if any(not word.startswith("-") for word in more):
        raise UsageError(*_KEY_ARGUMENT_ERROR)
    return args if not more else parser.parse_args(argv)


def _list_keys(args: argparse.Namespace) -> int:
    from odin.config.auth import read_auth_file
    from odin.models.keys import list_keys

    config, auth = load(get_current_folder(), os.environ), read_auth_file(os.environ)
    lines = [
        line
        for line in list_keys(config.providers, auth, os.environ)
        if not args.provider or line.provider == args.provider
    ]
    for warning in auth.warnings:
        write_message(warning)
    if args.json:
        return _print_json(lines)
    if not lines:
        return write_output("There are no keys. `odin auth add PROVIDER` stores one.\n")
    width = max(len(line.provider) for line in lines)
    shown = max(len(line.shown) for line in lines)
    return write_output(
        "".join(
            f"{'*' if line.used else ' '} {escape_hidden(line.provider):{width}}  {escape_hidden(line.shown):{shown}}  "
            f"{escape_hidden(line.place)}\n"
            for line in lines
        )
        + "\n* is the key that is used.\n"
    )


def _add_key(args: argparse.Namespace) -> int:
    from odin.config.auth import locate_auth_file
    from odin.models.keys import add_key, check_provider

    _require_provider(args)
    settings = load(get_current_folder(), os.environ).providers
    if (
        args.provider not in settings
        and len(args.provider) >= _MIN_KEY_CHARS
        and any(map(str.isdecimal, args.provider))
    ):
        raise UsageError(*_KEY_ARGUMENT_ERROR)
    provider = check_provider(args.provider, settings)
    count = add_key(provider, _ask_key(provider), settings, os.environ)
    if args.json:
        return _print_json({"provider": provider, "keys": count, "file": str(locate_auth_file(os.environ))})
    more = f" {count} are stored; this one is used." if count > 1 else ""
    file = escape_hidden(str(locate_auth_file(os.environ)))
    return write_output(f"The key of {provider} is in {file}, readable by you alone.{more}\n")


def _ask_key(provider: str) -> str:
    from odin.config.auth import MAX_KEY_LENGTH

    if sys.stdin.isatty():
        from getpass import getpass

        try:
            return getpass(f"Key of {provider} (it is not shown): ")
        except EOFError:
            return ""
    return sys.stdin.buffer.read(MAX_KEY_LENGTH + 2).decode("utf-8", "replace")


def _remove_keys(args: argparse.Namespace) -> int:
    from odin.models.keys import forget_keys

    _require_provider(args)
    count = forget_keys(args.provider, os.environ)
    if args.json:
        return _print_json({"provider": args.provider, "removed": count})
    if not count:
        raise UsageError(f"There is no stored key of {args.provider}.", "See `odin auth`.")
    return write_output(
        f"{'The key' if count == 1 else f'{count} keys'} of {args.provider} {'is' if count == 1 else 'are'} gone.\n"
    )


def _require_provider(args: argparse.Namespace) -> None:
    if not args.provider:
        raise UsageError(f"`odin auth {args.what}` needs the name of a provider.", "Such as anthropic or openai.")


def _print_json(value: Any) -> int:
    import msgspec

    return write_output(msgspec.json.encode(value).decode() + "\n")
