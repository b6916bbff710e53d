"""`odin provider`: list model servers of the settings, add one by its URL, or remove one."""

import argparse
import asyncio
import os

from odin.commands.command_line import Parser, make_formatter, read_api_key, write_json, write_output
from odin.config import get_current_folder, load
from odin.config.files import remove_key
from odin.core.errors import UsageError
from odin.ui.terminal import escape_hidden

_ABOUT = "List the providers in your settings; add an OpenAI-compatible server by its URL, or remove one."
_MAX_SHOWN = 10
EPILOG = """\
commands:
  odin provider [list]            list the providers in your settings
  odin provider add URL           add a server; Odin gets the list of models from it
  odin provider remove NAME       remove a provider from your settings; its keys stay in auth.json

With --key, Odin asks for a key, or reads it from standard input. Use a model with: odin --model NAME/MODEL
"""


def run_provider(argv: list[str]) -> int:
    parser = Parser(prog="odin provider", description=_ABOUT, epilog=EPILOG, formatter_class=make_formatter)
    add = parser.add_argument
    add("what", nargs="?", choices=("list", "add", "remove"), default="list", help="(default: list)")
    add("target", nargs="?", default="", metavar="URL|NAME", help="the URL of a server to add, or a name to remove")
    add("--name", default="", help="the name of the new provider (default: after the host)")
    add("--key", action="store_true", help="the server needs a key: ask for it")
    add("--json", action="store_true", help="print JSON")
    args = parser.parse_args(argv)
    if args.what != "list" and not args.target:
        raise UsageError(f"`odin provider {args.what}` needs {'a URL' if args.what == 'add' else 'a name'}.")
    return {"list": _list_providers, "add": _add_provider, "remove": _remove_provider}[args.what](args)


def _list_providers(args: argparse.Namespace) -> int:
    settings = load(get_current_folder(), os.environ).providers
    rows = {name: own.base_url for name, own in settings.items()}
    if args.json:
        return write_json([{"provider": name, "base_url": url} for name, url in rows.items()])
    if not rows:
        return write_output("No providers in your settings. Add one with `odin provider add URL`.\n")
    width = max(map(len, rows))
    lines = (f"{escape_hidden(name):{width}}  {escape_hidden(url)}".rstrip() for name, url in rows.items())
    return write_output("".join(f"{line}\n" for line in lines))


def _add_provider(args: argparse.Namespace) -> int:
    from odin.models.server_setup import add_server

    settings = load(get_current_folder(), os.environ).providers
    key = read_api_key(args.target) if args.key else ""
    added = asyncio.run(add_server(args.target, settings, os.environ, name=args.name, key=key))
    if args.json:
        return write_json(added)
    more = f"\n  and {len(added.models) - _MAX_SHOWN} more" if len(added.models) > _MAX_SHOWN else ""
    models = "".join(f"\n  {escape_hidden(f'{added.provider}/{model}')}" for model in added.models[:_MAX_SHOWN])
    text = f"Added {added.provider} ({escape_hidden(added.base_url)}) to {escape_hidden(added.file)}.\n"
    text += f"Its models:{models}{more}\nStart with: odin --model {escape_hidden(added.first_ref)}\n"
    return write_output(text)


def _remove_provider(args: argparse.Namespace) -> int:
    settings = load(get_current_folder(), os.environ).providers
    if args.target not in settings:
        raise UsageError(f"There is no provider {args.target!r} in your settings.", "`odin provider` lists them.")
    file = str(remove_key(f"providers.{args.target}", os.environ))
    if args.json:
        return write_json({"provider": args.target, "file": file})
    return write_output(f"Removed {escape_hidden(args.target)} from {escape_hidden(file)}.\n")
