"""`odin auth`: the keys of providers. A key is asked for or piped in; it is never an argument and never shown whole."""

import argparse
import os
import sys
from typing import Any

from odin.cli.output import put, say
from odin.cli.parser import Parser, formatter
from odin.config import current_folder, load
from odin.core.errors import UsageError
from odin.ui.terminal import visible

_ABOUT = (
    "The keys of providers: in the environment, in the settings, and those stored in auth.json, which you add here."
)

_KEY_LIKE = 20
"""So long a name with digits in it, which no provider has, is a key in the wrong place."""

_NO_ARGUMENT = (
    "A key is never an argument: others see it in the list of processes, and your shell keeps it.",
    "Run `odin auth add PROVIDER`, which asks for it, and replace a key that you have typed here. See `odin --help`.",
)


def auth_command(argv: list[str]) -> int:
    args = _parse(argv)
    return {"list": _list, "add": _add, "remove": _remove}[args.what](args)


def _parse(argv: list[str]) -> argparse.Namespace:
    parser = Parser(prog="odin auth", description=_ABOUT, formatter_class=formatter)
    add = parser.add_argument
    add("what", nargs="?", choices=("list", "add", "remove"), default="list", help="(list)")
    add("provider", nargs="?", default="", metavar="PROVIDER", help="whose key: anthropic, openai, ...")
    add("--json", action="store_true", help="print JSON")
    args, more = parser.parse_known_args(argv)
    if any(not word.startswith("-") for word in more):
        raise UsageError(*_NO_ARGUMENT)
    return args if not more else parser.parse_args(argv)


def _list(args: argparse.Namespace) -> int:
    from odin.app.auth import key_lines
    from odin.config.auth import read_auth

    config, auth = load(current_folder(), os.environ), read_auth(os.environ)
    lines = [
        line
        for line in key_lines(config.providers, auth, os.environ)
        if not args.provider or line.provider == args.provider
    ]
    for warning in auth.warnings:
        say(warning)
    if args.json:
        return _json(lines)
    if not lines:
        return put("There are no keys. `odin auth add PROVIDER` stores one.\n")
    width = max(len(line.provider) for line in lines)
    shown = max(len(line.shown) for line in lines)
    return put(
        "".join(
            f"{'*' if line.used else ' '} {visible(line.provider):{width}}  {visible(line.shown):{shown}}  "
            f"{visible(line.place)}\n"
            for line in lines
        )
        + "\n* is the key that is used.\n"
    )


def _add(args: argparse.Namespace) -> int:
    from odin.app.auth import add_key, known_provider
    from odin.config.auth import auth_path

    _must_name(args)
    settings = load(current_folder(), os.environ).providers
    if args.provider not in settings and len(args.provider) >= _KEY_LIKE and any(map(str.isdecimal, args.provider)):
        raise UsageError(*_NO_ARGUMENT)
    provider = known_provider(args.provider, settings)
    count = add_key(provider, _asked(provider), settings, os.environ)
    if args.json:
        return _json({"provider": provider, "keys": count, "file": str(auth_path(os.environ))})
    more = f" {count} are stored; this one is used." if count > 1 else ""
    return put(f"The key of {provider} is in {visible(str(auth_path(os.environ)))}, readable by you alone.{more}\n")


def _asked(provider: str) -> str:
    from odin.config.auth import LONGEST

    if sys.stdin.isatty():
        from getpass import getpass

        try:
            return getpass(f"Key of {provider} (it is not shown): ")
        except EOFError:
            return ""
    return sys.stdin.buffer.read(LONGEST + 2).decode("utf-8", "replace")


def _remove(args: argparse.Namespace) -> int:
    from odin.app.auth import forget_keys

    _must_name(args)
    count = forget_keys(args.provider, os.environ)
    if args.json:
        return _json({"provider": args.provider, "removed": count})
    if not count:
        raise UsageError(f"There is no stored key of {args.provider}.", "See `odin auth`.")
    return put(
        f"{'The key' if count == 1 else f'{count} keys'} of {args.provider} {'is' if count == 1 else 'are'} gone.\n"
    )


def _must_name(args: argparse.Namespace) -> None:
    if not args.provider:
        raise UsageError(f"`odin auth {args.what}` needs the name of a provider.", "Such as anthropic or openai.")


def _json(value: Any) -> int:
    import msgspec

    return put(msgspec.json.encode(value).decode() + "\n")
