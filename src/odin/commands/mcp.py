"""`odin mcp`: list, add, show and remove MCP servers, sign in to them, or serve Odin itself as one."""

import argparse
import asyncio
import json
import os
import sys
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any, cast

import msgspec

from odin.app.launcher import Launcher
from odin.app.policy import build_redactor
from odin.app.sandbox import LazySandbox
from odin.app.workspace import add_variables
from odin.commands.command_line import Parser, make_formatter, write_json, write_message, write_output
from odin.config import Config, get_current_folder, get_state_dir, load
from odin.config.files import parse_json_object, read_config_file, remove_key, set_key, write_atomically
from odin.config.mcp_file import SERVERS_KEY, check_new_server, rewrite_texts
from odin.config.paths import MCP_NAME, SCRATCH_FOLDER, find_project_root, make_environment
from odin.config.settings import McpServerSettings
from odin.core.errors import ConfigError, NeedsConfirmation, UsageError
from odin.core.event import AnyEvent, ServersChanged
from odin.core.event_values import ServerStatus
from odin.core.private_folders import open_scratch
from odin.core.text import suggest_similar
from odin.engine.event_bus import EventBus
from odin.sandbox.runner import ProcessRunner
from odin.ui.slash_commands.extensions import format_servers
from odin.ui.terminal import escape_hidden

_ABOUT = "List the MCP servers of this project, add, show or remove one, sign in, or serve Odin as an MCP server."
_COLUMNS = 1000
EPILOG = """\
commands:
  odin mcp [list]                     connect the configured servers and list them
  odin mcp add NAME COMMAND [ARG...]  add a server that Odin starts
  odin mcp add NAME URL               add an HTTP server
  odin mcp add-json NAME JSON         add a server as in .mcp.json
  odin mcp get NAME                   show the settings and the tools of a server
  odin mcp remove NAME                remove a server from your settings, or with --scope project from .mcp.json
  odin mcp login NAME                 sign in to an HTTP server with OAuth
  odin mcp logout NAME                remove its tokens
  odin mcp serve                      serve Odin to other agents on standard input and output

Options come before the program: odin mcp add git -e TOKEN=abc --scope project -- uvx mcp-server-git
"""


def run_mcp(argv: list[str]) -> int:
    what, *rest = argv or ["list"]
    if what == "serve":
        return _serve(rest)
    commands: dict[str, Callable[[argparse.Namespace], int]] = {
        "list": _list_servers,
        "add": _add_server,
        "add-json": _add_json,
        "get": _show_server,
        "remove": _remove_server,
        "login": _log_in,
        "logout": _log_out,
    }
    if what.startswith("-"):
        what, rest = "list", argv
    if what not in commands:
        raise UsageError(
            f"Unknown command {what!r}.{suggest_similar(what, [*commands, 'serve'])}", "See `odin mcp --help`."
        )
    return commands[what](_parse_args(what, rest))


def _parse_args(what: str, argv: list[str]) -> argparse.Namespace:
    parser = Parser(
        prog=f"odin mcp {what}".replace(" list", ""), description=_ABOUT, epilog=EPILOG, formatter_class=make_formatter
    )
    add = parser.add_argument
    _add_options(parser)
    if what != "list":
        add("name", metavar="NAME", help="the name of the server")
    if what not in ("add", "add-json"):
        return parser.parse_args(argv)
    add("words", nargs=argparse.REMAINDER, metavar="COMMAND|URL", help="a program and its arguments, a URL, or JSON")
    at = argv.index("--") if "--" in argv else len(argv)
    args, after = parser.parse_args(argv[:at]), argv[at + 1 :]
    words = args.words
    if words and words[0].startswith("-"):
        # Options after NAME, as in `claude mcp add NAME --env A=B -- PROGRAM`: read them with NAME at the end.
        args = parser.parse_args([*argv[: at - len(words) - 1], *words, args.name])
        *words, args.name = args.name, *args.words
    args.words = words = [*words, "--", *after] if words and after else words or after
    if what == "add" and words and words[0].startswith(("http://", "https://")):
        more = Parser(prog="odin mcp add", formatter_class=make_formatter)
        _add_options(more)
        more.parse_args(words[1:], args)
        args.words = words[:1]
    return args


def _add_options(parser: Parser) -> None:
    add = parser.add_argument
    add("-s", "--scope", choices=("user", "project"), default="", help="user (the default) or project: .mcp.json")
    add("-t", "--transport", choices=("stdio", "http", "sse"), default="", help="(default: http for a URL, else stdio)")
    add("-e", "--env", action="append", default=[], metavar="NAME=VALUE", help="an environment variable for the server")
    add("-H", "--header", action="append", default=[], metavar="'NAME: VALUE'", help="an HTTP header")
    add("--manual", action="store_true", help="start it only with /mcp enable NAME")
    add("--no-connect", action="store_true", help="with list and get: do not start the servers")
    parser.add_common_flags()


def _load_config(args: argparse.Namespace) -> Config:
    return load(args.cwd or get_current_folder(), os.environ)


def _find_settings(args: argparse.Namespace) -> McpServerSettings:
    servers = _load_config(args).mcp
    if args.name not in servers:
        raise UsageError(
            f"There is no MCP server {args.name!r}.{suggest_similar(args.name, servers)}", "`odin mcp` lists them."
        )
    return servers[args.name]


# --- list and get ---


async def check_servers(
    config: Config, env: Mapping[str, str], *, connect: bool = True
) -> dict[ServerStatus, tuple[str, ...]]:
    """Return the states of the configured servers, after connecting them all, and the names of their tools.

    On a terminal, say what takes long.
    """
    from odin.mcp.connection import ConnectionDeps
    from odin.mcp.servers import ServerDeps, SessionServers, make_workspace_servers

    told: set[str] = set()

    def show_attempts(event: AnyEvent, agent: str) -> None:
        for server in event.servers if isinstance(event, ServersChanged) and sys.stderr.isatty() else ():
            line = f"Connecting {server.name}, attempt {server.attempt} of {server.attempts} …"
            if server.state == "connecting" and line not in told:
                told.add(line)
                write_message(line)

    async def refuse(*request: Any) -> Any:
        raise NeedsConfirmation("No user and no model can be asked here.")

    redact = build_redactor(config, env, ())
    environment = add_variables(make_environment(env, config.root), config)
    sandbox = LazySandbox(config, environment)
    runner = ProcessRunner(environment, env_passthrough=config.env_passthrough, sandbox=sandbox.get)
    launcher = Launcher(config, environment, sandbox, runner.has_background, write_message)
    project_servers = launcher.list_project_servers()
    connections = ConnectionDeps(config, environment, runner, launcher.plan_server, project_servers)
    with open_scratch(get_state_dir(env) / SCRATCH_FOLDER) as folder:
        deps = ServerDeps(
            folder=folder,
            bus=EventBus(),
            emit=show_attempts,
            redact=lambda text: redact(text).text,
            is_busy=lambda: False,
            ask_user=refuse,
            sample=refuse,
        )
        servers = SessionServers(deps, make_workspace_servers(connections))
        try:
            if connect:
                await servers.connect_all()
            return {status: servers.list_tool_names(status.name) for status in servers.list_statuses()}
        finally:
            await servers.close()
            await runner.close()


def _list_servers(args: argparse.Namespace) -> int:
    config = _load_config(args)
    for problem in config.problems:
        if problem.key == "mcp" or MCP_NAME in problem.file or " trusted" in problem.text:
            write_message(problem.describe())
    statuses = [*asyncio.run(check_servers(config, os.environ, connect=not args.no_connect))] if config.mcp else []
    code = write_json(statuses) if args.json else write_output(format_servers(statuses, _COLUMNS))
    return code or any(status.state == "failed" for status in statuses)


def _show_server(args: argparse.Namespace) -> int:
    settings = _find_settings(args)
    config = msgspec.structs.replace(_load_config(args), mcp={args.name: settings})
    ((status, tools),) = asyncio.run(check_servers(config, os.environ, connect=not args.no_connect)).items()
    shown = {
        key: value for key, value in msgspec.to_builtins(settings).items() if value not in ("", [], {}, None, False)
    }
    shown |= {key: dict.fromkeys(shown[key], "…") for key in ("env", "headers") if key in shown}
    oauth = {key: value for key, value in shown.pop("oauth", {}).items() if value}
    if oauth:
        shown["oauth"] = oauth | ({"client_secret": "…"} if "client_secret" in oauth else {})
    is_failed = status.state == "failed"
    if args.json:
        return write_json({**msgspec.to_builtins(status), "settings": shown, "tool_names": tools}) or is_failed
    lines = [format_servers([status], _COLUMNS).splitlines()[0]]
    texts = {key: v if isinstance(v, str) else json.dumps(v, ensure_ascii=False) for key, v in shown.items()}
    lines += [f"  {key}: {text}" for key, text in texts.items()]
    lines += [f"  tools: {', '.join(tools)}"] if tools else []
    return write_output("".join(f"{escape_hidden(line)}\n" for line in lines)) or is_failed


# --- add and remove ---


def _add_server(args: argparse.Namespace) -> int:
    if not args.words:
        raise UsageError("`odin mcp add` needs a program or a URL.", "See `odin mcp --help`.")
    program: str = args.words[0]
    if program.startswith("-"):
        raise UsageError(f"{program!r} is not a program.", "See `odin mcp --help`.")
    is_url = program.startswith(("http://", "https://")) or args.transport in ("http", "sse")
    if is_url and len(args.words) > 1:
        raise UsageError(f"Unexpected argument {args.words[1]!r} after the URL.", "See `odin mcp --help`.")
    value: dict[str, Any] = {"url": program} if is_url else {"command": program, "args": args.words[1:]}
    if is_url or args.transport:
        value["type"] = args.transport or "http"
    if args.env:
        value["env"] = dict(_split_pair(text, "=", "-e NAME=VALUE") for text in args.env)
    if args.header:
        value["headers"] = dict(_split_pair(text, ":", "--header 'NAME: VALUE'") for text in args.header)
    if not is_url and "/" not in program and "$" not in program:
        import shutil

        if shutil.which(program) is None:
            write_message(f"There is no program {program} on your PATH; the server cannot start until it is installed.")
    return _save(args, rewrite_texts(value, r"\$([A-Za-z_]\w*)", r"${\1}") if args.scope == "project" else value)


def _split_pair(text: str, separator: str, usage: str) -> tuple[str, str]:
    name, found, value = text.partition(separator)
    if not found or not name.strip():
        raise UsageError(f"{text!r} must have the form {usage}.")
    return name.strip(), value.strip()


def _add_json(args: argparse.Namespace) -> int:
    try:
        value: Any = json.loads(" ".join(args.words))
    except ValueError as error:
        raise UsageError(f"This is not valid JSON: {error}.") from error
    if not isinstance(value, dict):
        raise UsageError("The settings of a server must be a JSON object.")
    return _save(args, cast("dict[str, Any]", value))


def _save(args: argparse.Namespace, value: dict[str, Any]) -> int:
    config = _load_config(args)
    check_new_server(args.name, value, config)
    if args.manual:
        value["manual"] = True
    if args.scope == "project":
        path = Path(find_project_root(args.cwd or get_current_folder(), os.environ), MCP_NAME)
        known: Collection[str] = config.wanted.get("mcp", {})
        _change_file(path, lambda servers: servers.update({args.name: value}))
        note = " It takes effect when the folder is trusted: `odin trust`."
    else:
        known = config.mcp.keys() - config.project_servers
        # odinconfig.json knows more variables than .mcp.json: double every `$` that names none
        path = set_key(f"mcp.{args.name}", rewrite_texts(value, r"\$(?![A-Za-z_{])", "$$"), os.environ)
        note = ""
    if args.json:
        return write_json({"name": args.name, "file": str(path)})
    done = f"Replaced {args.name} in" if args.name in known else f"Added {args.name} to"
    return write_output(f"{done} {escape_hidden(str(path))}.{note}\n")


def _change_file(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    raw = read_config_file(path)
    found = parse_json_object(raw, path)[0] if raw and raw.strip() else {}
    servers: Any = found.setdefault(SERVERS_KEY, {})
    if not isinstance(servers, dict):
        raise UsageError(f"{path}: {SERVERS_KEY} must be an object.")
    change(cast("dict[str, Any]", servers))
    write_atomically(path, (json.dumps(found, indent=2, ensure_ascii=False) + "\n").encode(), 0o644)


def _remove_server(args: argparse.Namespace) -> int:
    path = Path(find_project_root(args.cwd or get_current_folder(), os.environ), MCP_NAME)
    in_project = path.is_file() and args.name in (
        parse_json_object(read_config_file(path) or b"", path)[0].get(SERVERS_KEY) or {}
    )
    if args.scope == "project":
        if not in_project:
            raise UsageError(f"{path} has no MCP server {args.name!r}.")
        _change_file(path, lambda servers: servers.pop(args.name, None))
    else:
        try:
            path = remove_key(f"mcp.{args.name}", os.environ)
        except ConfigError:
            if in_project:
                hint = f"Run `odin mcp remove --scope project {args.name}`."
                raise UsageError(f"{args.name} is a server of the project, in {path}.", hint) from None
            _find_settings(args)  # says which servers there are
            raise
    if args.json:
        return write_json({"name": args.name, "file": str(path)})
    return write_output(f"Removed {args.name} from {escape_hidden(str(path))}.\n")


# --- signing in ---


def _log_in(args: argparse.Namespace) -> int:
    settings = _find_settings(args)
    if settings.transport not in ("http", "sse"):
        raise UsageError(f"{args.name} is not an HTTP server; it needs no sign-in.")
    from odin.mcp.failures import describe_failure
    from odin.mcp.oauth import log_in

    def open_page(url: str) -> None:
        write_message(f"Sign in here: {url}")
        if sys.stderr.isatty():
            from odin.sandbox.terminal import TerminalPrograms

            TerminalPrograms(os.environ, LazySandbox(_load_config(args), make_environment()).writable).open_page(url)

    try:
        is_signed_in, problem = asyncio.run(log_in(args.name, settings, os.environ, open_page))
    except Exception as error:
        why = describe_failure(error, settings, _load_config(args).mcp_limits)
        raise UsageError(f"Signing in to {args.name} failed: {why}.") from error
    if problem is not None:
        why = describe_failure(problem, settings, _load_config(args).mcp_limits)
        raise UsageError(f"You are signed in to {args.name}, but it cannot be used: {why}.") from problem
    said = f"Signed in to {args.name}." if is_signed_in else f"{args.name} did not ask for a sign-in."
    return write_output(f"{said}\n")


def _log_out(args: argparse.Namespace) -> int:
    from odin.mcp.oauth import log_out

    removed = log_out(args.name, os.environ)
    return write_output(f"Signed out of {args.name}.\n" if removed else f"{args.name} had no tokens.\n")


# --- serve ---


def _serve(argv: list[str]) -> int:
    parser = Parser(prog="odin mcp serve", description="Serve Odin as an MCP server on standard input and output.")
    add = parser.add_argument
    add("--cwd", default="", metavar="DIR", help="project folder")
    add("-m", "--model", default="", help="model to use")
    add("--permission-mode", default="", help="default, acceptEdits, auto, dontAsk or bypassPermissions")
    add("--commands-ask", choices=("effects", "before"), default="before", help="when to ask about commands")
    add("-y", "--yes", action="store_true", help="approve every permission request")
    args = parser.parse_args(argv)
    from odin.commands.mcp_serve import serve

    cwd = args.cwd or get_current_folder()
    return asyncio.run(serve(cwd, args.model, args.permission_mode, args.commands_ask, yes=args.yes))
