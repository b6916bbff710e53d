"""`odin sessions`: list, search, show, rename, fork, export and delete sessions; and the picker of `--resume`."""

import argparse
import os
import sys
from collections.abc import Callable

from odin.commands.command_line import Parser, ask_line, make_formatter, write_json, write_message, write_output
from odin.core.errors import OdinError, UsageError
from odin.core.format import format_time
from odin.core.text import list_choices, suggest_similar
from odin.host.stored_sessions import ProjectSessions, open_project_sessions
from odin.server.shares import remove_ended_shares
from odin.ui.slash_commands.sessions import (
    PICK_PROMPT,
    PlainSessionPicker,
    format_match,
    format_session,
    list_conversations,
)
from odin.ui.terminal import escape_hidden, get_terminal_size, shorten

EPILOG = """\
commands:
  odin sessions                           list sessions, newest first
  odin sessions search WORDS              search prompts, answers and tool output
  odin sessions show ID                   show the prompts, numbered from the last
  odin sessions rename ID TITLE           set the title
  odin sessions fork ID [--at N]          copy a session, or its part before the Nth last prompt
  odin sessions export ID [-o PATH]       write a session to a file (--format markdown, json or html)
  odin sessions delete ID...              delete sessions, after confirmation or with --yes

ID is a session ID, the start of one, or words of the title.
"""


def _build_parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="odin sessions",
        description="List and manage the sessions of this project.",
        epilog=EPILOG,
        formatter_class=make_formatter,
    )
    add = parser.add_argument
    add(
        "act",
        nargs="?",
        default="list",
        metavar="COMMAND",
        help="list, search, show, rename, fork, export or delete (default: list)",
    )
    add("words", nargs="*", metavar="WORD", help="session ID or search words")
    add("--json", action="store_true", help="print JSON; export: same as --format json")
    add("--all", action="store_true", help="include sessions of all projects")
    add("--limit", type=int, default=0, metavar="N", help="maximum number of sessions; 0 for all (default)")
    add("--at", default="", metavar="N|ID", help="fork: copy up to before this prompt")
    add("--format", default="", choices=("markdown", "json", "html"), help="export format (default: markdown)")
    add(
        "-o",
        "--output",
        default="",
        metavar="PATH",
        help="export: output file or folder (default: the current directory)",
    )
    add("-y", "--yes", action="store_true", help="delete without confirmation")
    add("--cwd", default="", metavar="DIR", help="project folder")
    return parser


def run_sessions(argv: list[str]) -> int:
    args = _build_parser().parse_intermixed_args(argv)
    run = _COMMANDS.get(args.act)
    if run is None:
        raise UsageError(
            f"Unknown command {args.act!r}.{suggest_similar(args.act, _COMMANDS)}", f"Use {list_choices(_COMMANDS)}."
        )
    if args.limit < 0:
        raise UsageError("--limit must be 0 or more.")
    return run(open_project_sessions(args.cwd, everywhere=args.all), args)


def _list_sessions(sessions: ProjectSessions, args: argparse.Namespace) -> int:
    if args.words:
        raise UsageError("`odin sessions list` takes no arguments.", "Use `odin sessions search WORDS` to search.")
    found = sessions.list_sessions()
    found = found[: args.limit or len(found)]
    if args.json:
        return write_json(found)
    columns = _count_columns()
    return write_output("".join(f"{format_session(item, columns)}\n" for item in found) or "No sessions yet.\n")


def _search_sessions(sessions: ProjectSessions, args: argparse.Namespace) -> int:
    found = sessions.search(" ".join(args.words))
    found = found[: args.limit or len(found)]
    if args.json:
        return write_json(found)
    columns = _count_columns()
    rows = [row for match in found for row in format_match(match, columns)]
    return write_output("".join(f"{row}\n" for row in rows) or "No matching sessions.\n")


def _show_session(sessions: ProjectSessions, args: argparse.Namespace) -> int:
    shown = sessions.show(_require_name(args))
    if args.json:
        return write_json(shown)
    item, columns = shown.session, _count_columns()
    facts = [("id", item.id), ("title", item.title), ("folder", item.cwd), ("model", item.model)]
    facts += [("created", format_time(item.created)), ("modified", format_time(item.modified))]
    facts += [("fork of", item.forked_from), ("open in", item.locked)]
    rows = [f"{name:<11} {escape_hidden(' '.join(value.split()))}" for name, value in facts if value]
    for number, turn in zip(range(len(shown.prompts), 0, -1), shown.prompts, strict=True):
        rows += ["", f"{number:>3}  {_format_line(turn.body, columns - 5)}"]
        if turn.answer_summary.strip():
            rows.append(f"     {_format_line(turn.answer_summary, columns - 5)}")
    return write_output("\n".join(rows) + "\n")


def _rename_session(sessions: ProjectSessions, args: argparse.Namespace) -> int:
    if len(args.words) < 2:
        raise UsageError("`odin sessions rename` needs a session ID and a title.")
    session = sessions.rename(args.words[0], " ".join(args.words[1:]))
    return write_json({"session": session}) if args.json else write_output(f"Renamed session {session}.\n")


def _fork_session(sessions: ProjectSessions, args: argparse.Namespace) -> int:
    session, draft = sessions.fork(_require_name(args), args.at)
    if args.json:
        return write_json({"session": session, "draft": draft})
    omitted = f"Left out: {_format_line(draft, _count_columns() - 11)}\n" if draft else ""
    return write_output(f"{omitted}Created session {session}. Continue with `odin --resume {session}`.\n")


def _export_session(sessions: ProjectSessions, args: argparse.Namespace) -> int:
    if args.json and args.format not in ("", "json"):
        raise UsageError(f"--json and --format {args.format} cannot be combined.")
    session = sessions.find(_require_name(args))
    path = sessions.export(session, "json" if args.json else args.format, args.output)
    return write_output(f"{escape_hidden(path)}\n")


def _delete_sessions(sessions: ProjectSessions, args: argparse.Namespace) -> int:
    """Delete every named session, also if one of them cannot be deleted."""
    if not args.words:
        raise UsageError("`odin sessions delete` needs a session ID.")
    code, deleted = 0, list[str]()
    for session in list(dict.fromkeys(sessions.find(word) for word in args.words)):
        if not args.yes and not _confirm_deletion(sessions, session):
            write_message(f"Kept session {session}.")
            code = 1
            continue
        try:
            deleted.append(sessions.delete(session))
        except OdinError as error:
            write_message(f"odin: {error.describe()}")
            code = error.exit_code
    if deleted:
        remove_ended_shares(os.environ)
    if args.json:
        return write_json({"deleted": deleted}) or code
    return write_output("".join(f"Deleted session {session}.\n" for session in deleted)) or code


def _confirm_deletion(sessions: ProjectSessions, session: str) -> bool:
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise UsageError("Cannot ask for confirmation without a terminal.", "Add --yes to delete.")
    write_message(format_session(sessions.show(session).session, _count_columns()))
    return ask_line("Delete this session permanently? [y/N] ").strip().lower() in ("y", "yes")


_COMMANDS: dict[str, Callable[[ProjectSessions, argparse.Namespace], int]] = {
    "list": _list_sessions,
    "search": _search_sessions,
    "show": _show_session,
    "rename": _rename_session,
    "fork": _fork_session,
    "export": _export_session,
    "delete": _delete_sessions,
}


def pick_session(cwd: str) -> str:
    """Let the user choose a session for `--resume` without an ID. Return "" if they cancel."""
    listed = open_project_sessions(cwd).list_sessions()
    picker = PlainSessionPicker(list_conversations(listed, "") or listed)
    while True:
        for row in picker.format_lines(_count_columns()):
            write_message(row)
        typed = "" if picker.is_empty else ask_line(PICK_PROMPT)
        chosen = picker.parse_choice(typed)
        if chosen is not None:
            return chosen


def _require_name(args: argparse.Namespace) -> str:
    if not args.words:
        raise UsageError(f"`odin sessions {args.act}` needs a session ID or title.")
    return " ".join(args.words)


def _format_line(text: str, columns: int) -> str:
    return shorten(escape_hidden(" ".join(text.split())), max(columns, 20))


def _count_columns() -> int:
    """Return the width of the terminal, or a generous width if output is redirected."""
    return get_terminal_size(sys.stdout)[0] if getattr(sys.stdout, "isatty", bool)() else 160
