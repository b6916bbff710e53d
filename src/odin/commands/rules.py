"""`odin rules`: what is allowed, asked about and denied here, and changing what is remembered."""

import argparse
import os
from typing import TYPE_CHECKING, Any

from odin.commands.command_line import Parser, make_formatter, write_message, write_output
from odin.config import get_current_folder
from odin.core.errors import UsageError
from odin.core.policy import RuleAction, RuleLine

if TYPE_CHECKING:
    from odin.policy.rules.rule import RuleSet

_ABOUT = "The rules that hold here, the strongest last. Those with a number are remembered and can be removed."


def run_rules(argv: list[str]) -> int:
    args = _parse_args(argv)
    book = _load_rules(args)
    for warning in () if args.json else book.warnings:
        write_message(warning)
    return {"list": _list_rules, "add": _add_rule, "remove": _remove_rule}[args.what](args, book)


def _parse_args(argv: list[str]) -> argparse.Namespace:
    parser = Parser(prog="odin rules", description=_ABOUT, formatter_class=make_formatter)
    add = parser.add_argument
    add("what", nargs="?", choices=("list", "add", "remove"), default="list", help="(list)")
    add("rule", nargs="?", default="", metavar="TEXT|N", help="add: such as 'Bash(npm test:*)'; remove: its number")
    add("--scope", choices=("user", "project"), default="project", help="add: for every project, or this one (project)")
    kind = parser.add_mutually_exclusive_group()
    kind.add_argument("--deny", action="store_const", const="deny", dest="action", help="add: never run it")
    kind.add_argument("--ask", action="store_const", const="ask", dest="action", help="add: ask about it")
    kind.add_argument("--allow", action="store_const", const="allow", dest="action", help="add: run it (the default)")
    add("--json", action="store_true", help="print JSON")
    add("--cwd", default="", metavar="DIR", help="the project's folder")
    return parser.parse_intermixed_args(argv)


def _load_rules(args: argparse.Namespace) -> "RuleSet":
    from odin.app.policy import load_rule_set
    from odin.config import load

    cwd = os.path.realpath(args.cwd or get_current_folder())
    if not os.path.isdir(cwd):  # noqa: PTH112
        raise UsageError(f"There is no folder {cwd}.", "Name an existing one with --cwd.")
    return load_rule_set(load(cwd, os.environ), os.environ)


def _list_rules(args: argparse.Namespace, book: "RuleSet") -> int:
    if args.rule:
        raise UsageError("The list takes no rule.", "To add one: odin rules add TEXT.")
    lines = book.list_rules()
    if args.json:
        return _print_json({"rules": lines, "warnings": book.warnings})
    return write_output("".join(_format_row(line) for line in lines) or "There are no rules beside the defaults.\n")


def _format_row(line: RuleLine) -> str:
    from odin.ui.terminal import escape_hidden

    number = str(line.number) if line.number else "-"
    source = f"   {escape_hidden(line.source)}" if line.source else ""
    return f"{number:>3}  {line.layer:<8} {line.action:<6} {escape_hidden(line.text)}{source}\n"


def _add_rule(args: argparse.Namespace, book: "RuleSet") -> int:
    if not args.rule.strip():
        raise UsageError("There is no rule to add.", "Write odin rules add 'Bash(npm test:*)'.")
    action: RuleAction = args.action or "allow"
    rule = book.add(args.rule, action, args.scope)
    if args.json:
        return _print_json({"added": {"text": rule.text, "action": action, "scope": args.scope}})
    where = "in every project" if args.scope == "user" else "in this project"
    return write_output(f"Added, {where}: {action} {rule.text}\n")


def _remove_rule(args: argparse.Namespace, book: "RuleSet") -> int:
    if not args.rule.isdecimal():
        raise UsageError("A rule is removed by its number.", "See `odin rules`.")
    rule = book.remove(int(args.rule))
    if args.json:
        return _print_json({"removed": {"text": rule.text, "action": rule.action, "scope": rule.layer}})
    return write_output(f"Removed: {rule.action} {rule.text}\n")


def _print_json(value: Any) -> int:
    import msgspec

    return write_output(msgspec.json.encode(value).decode() + "\n")
