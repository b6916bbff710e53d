"""`odin explain`: what would be said to a command, a file or an address, and why."""

import argparse
import os
from typing import TYPE_CHECKING

from odin.cli.output import write_message, write_output
from odin.cli.parser import Parser, make_formatter, split_list
from odin.config import Options
from odin.policy.modes import mode_of

if TYPE_CHECKING:
    from odin.app.explain import Explanation

_ABOUT = "Whether a call would run by itself (auto), be asked about (ask) or refused (deny), and which rule says so."


def run_explain(argv: list[str]) -> int:
    args = _parse_args(argv)
    if args.mode:
        mode_of(args.mode)
    from odin.app.explain import explain

    found = explain(
        args.text,
        args.tool,
        Options(
            cwd=args.cwd,
            mode=args.mode,
            permission_mode=args.permission_mode,
            yes=args.yes,
            trust=args.trust,
            allowed_tools=tuple(split_list(args.allowedTools)),
            disallowed_tools=tuple(split_list(args.disallowedTools)),
        ),
        os.environ,
    )
    if args.json:
        import msgspec

        return write_output(msgspec.json.encode(found).decode() + "\n")
    for warning in found.warnings:
        write_message(warning)
    return write_output(_format_explanation(found))


def _parse_args(argv: list[str]) -> argparse.Namespace:
    parser = Parser(prog="odin explain", description=_ABOUT, formatter_class=make_formatter)
    add = parser.add_argument
    add("text", metavar="COMMAND|PATH|URL", help="the command, or what the tool would be called with")
    add("--tool", default="Bash", metavar="NAME", help="a tool, such as WriteFile, Read or WebFetch (Bash)")
    add("--mode", default="", help="ask, plan or edit (edit)")
    add("--permission-mode", default="", help="default, acceptEdits, plan, dontAsk or bypassPermissions")
    add("-y", "--yes", action="store_true", help="as if every question were answered with yes")
    add("--trust", action="store_true", help="as if this folder were trusted")
    add("--allowedTools", "--allowed-tools", action="append", default=[], metavar="LIST", help="with these rules")
    add("--disallowedTools", "--disallowed-tools", action="append", default=[], metavar="LIST", help="and these")
    add("--json", action="store_true", help="print JSON")
    add("--cwd", default="", metavar="DIR", help="the folder the call would be made in")
    return parser.parse_intermixed_args(argv)


def _format_explanation(found: "Explanation") -> str:
    from odin.ui.terminal import escape_hidden

    lines = [
        f"{found.verdict}: {found.tool} {escape_hidden(found.subject)}".rstrip(),
        f"  why   {escape_hidden(found.reason)}",
        f"  rule  {escape_hidden(found.rule)}{' (built in: nothing overrules it)' if found.builtin else ''}",
    ]
    if found.unclear:
        lines.append(f"  unclear: {escape_hidden(found.unclear)}")
    if len(found.parts) > 1:
        lines.append("  parts")
        for part in found.parts:
            said = f"{part.verdict or '':<5}"
            inside = "  (inside another command)" if part.inside else ""
            lines.append(f"    {said} {escape_hidden(part.command)}{inside}".rstrip())
    if found.hint and found.verdict != "auto":
        lines.append(f"  how   {escape_hidden(found.hint)}")
    lines += [
        f"  {'rules that would allow it' if not n else '':<26}{escape_hidden(t)}"
        for n, t in enumerate(found.suggestions)
    ]
    return "\n".join(lines) + "\n"
