"""`odin sessions`: list, search, show, rename, delete, fork and export; and choosing one for `--resume`."""

import argparse
import sys
from collections.abc import Callable
from typing import Any

import msgspec

from odin.app.sessions import ProjectSessions, open_project_sessions
from odin.commands.command_line import Parser, make_formatter, write_message, write_output
from odin.core.errors import OdinError, UsageError
from odin.ui.slash_commands.sessions import PICK_PROMPT, PlainSessionPicker, format_match, format_session, format_time
from odin.ui.terminal import escape_hidden, shorten, size_of

EPILOG = """\
ID is the id of a session, the beginning of one, or words of its title.

  odin sessions                           the list, newest first
  odin sessions search WORDS              sessions in which all of them were said, by you, the model or a tool
  odin sessions show ID                   its prompts, numbered from the last one
  odin sessions rename ID TITLE
  odin sessions fork ID [--at N]          a copy, or a copy of what was before the N-th last prompt
  odin sessions export ID [--json|--format markdown|json|html] [-o PATH]
  odin sessions delete ID...              after a question, or with --yes
"""


def _build_parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="odin sessions", description="The sessions of this project.", epilog=EPILOG, formatter_class=make_formatter
    )
    add = parser.add_argument
    add("act", nargs="?", default="list", metavar="COMMAND", help="what to do (list)")
    add("words", nargs="*", metavar="WORD", help="which session, or what to search for")
    add("--json", action="store_true", help="print JSON; export: write JSON")
    add("--all", action="store_true", help="the sessions of all projects")
    add("--limit", type=int, default=0, metavar="N", help="at most so many; 0 for all")
    add("--at", default="", metavar="N|ID", help="fork: before the N-th last prompt, or the one of that id")
    add("--format", default="", choices=("markdown", "json", "html"), help="export: what to write (markdown)")
    add("-o", "--output", default="", metavar="PATH", help="export: where to; beside the session when it is not said")
    add("-y", "--yes", action="store_true", help="delete: do not ask")
    add("--cwd", default="", metavar="DIR", help="the project's folder")
    return parser


def run_sessions(argv: list[str]) -> int:
    args = _build_parser().parse_intermixed_args(argv)
    act = _ACTIONS.get(args.act)
    if act is None:
        raise UsageError(f"`odin sessions` does not know {args.act!r}.", f"It knows {', '.join(_ACTIONS)}.")
    if args.limit < 0:
        raise UsageError("--limit is a number of sessions.", "0 means all of them.")
    return act(open_project_sessions(args.cwd, everywhere=args.all), args)


def _print_json(value: Any) -> int:
    return write_output(msgspec.json.encode(value).decode() + "\n")


def _list_sessions(sessions: ProjectSessions, args: argparse.Namespace) -> int:
    if args.words:
        raise UsageError("`odin sessions list` takes no words.", "`odin sessions search` does.")
    found = sessions.list_sessions()
    found = found[: args.limit or len(found)]
    if args.json:
        return _print_json(found)
    columns = _count_columns()
    return write_output("".join(f"{format_session(item, columns)}\n" for item in found) or "No sessions yet.\n")


def _search_sessions(sessions: ProjectSessions, args: argparse.Namespace) -> int:
    found = sessions.search(" ".join(args.words))
    found = found[: args.limit or len(found)]
    if args.json:
        return _print_json(found)
    columns = _count_columns()
    rows = [row for match in found for row in format_match(match, columns)]
    return write_output("".join(f"{row}\n" for row in rows) or "No session fits these words.\n")


def _show_session(sessions: ProjectSessions, args: argparse.Namespace) -> int:
    shown = sessions.show(_require_name(args))
    if args.json:
        return _print_json(shown)
    item, columns = shown.session, _count_columns()
    facts = [("id", item.id), ("title", item.title), ("folder", item.cwd), ("model", item.model)]
    facts += [("created", format_time(item.created)), ("written to", format_time(item.modified))]
    facts += [("fork of", item.forked_from), ("open", item.locked)]
    rows = [f"{name:<11} {escape_hidden(' '.join(value.split()))}" for name, value in facts if value]
    for number, turn in zip(range(len(shown.prompts), 0, -1), shown.prompts, strict=True):
        rows += ["", f"{number:>3}  {_format_line(turn.body, columns - 5)}"]
        if turn.answer_summary.strip():
            rows.append(f"     {_format_line(turn.answer_summary, columns - 5)}")
    return write_output("\n".join(rows) + "\n")


def _rename_session(sessions: ProjectSessions, args: argparse.Namespace) -> int:
    if len(args.words) < 2:
        raise UsageError("`odin sessions rename` needs a session and a title.")
    session = sessions.rename(args.words[0], " ".join(args.words[1:]))
    return _print_json({"session": session}) if args.json else write_output(f"Renamed session {session}.\n")


def _fork_session(sessions: ProjectSessions, args: argparse.Namespace) -> int:
    session, draft = sessions.fork(_require_name(args), args.at)
    if args.json:
        return _print_json({"session": session, "draft": draft})
    left = f"The prompt that was left out: {_format_line(draft, _count_columns() - 31)}\n" if draft else ""
    return write_output(f"{left}The copy is session {session}. Go on in it with `odin --resume {session}`.\n")


def _export_session(sessions: ProjectSessions, args: argparse.Namespace) -> int:
    if args.json and args.format not in ("", "json"):
        raise UsageError(f"Both --json and --format {args.format} were given.", "Use one of them.")
    session = sessions.find(_require_name(args))
    path = sessions.export(session, "json" if args.json else args.format, args.output)
    return write_output(f"{escape_hidden(path)}\n")


def _delete_sessions(sessions: ProjectSessions, args: argparse.Namespace) -> int:
    """Every one that is named, also when another cannot be deleted."""
    if not args.words:
        raise UsageError("`odin sessions delete` needs the id of a session.")
    code, gone = 0, list[str]()
    for session in list(dict.fromkeys(sessions.find(word) for word in args.words)):
        if not args.yes and not _confirm_deletion(sessions, session):
            write_message(f"Session {session} was kept.")
            code = 1
            continue
        try:
            gone.append(sessions.delete(session))
        except OdinError as error:
            write_message(f"odin: {error.describe()}")
            code = error.exit_code
    if args.json:
        return _print_json({"deleted": gone}) or code
    return write_output("".join(f"Deleted session {session}.\n" for session in gone)) or code


def _confirm_deletion(sessions: ProjectSessions, session: str) -> bool:
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise UsageError("Deleting a session needs a yes, and there is nobody to ask.", "Add --yes.")
    write_message(format_session(sessions.show(session).session, _count_columns()))
    return _ask_line("Delete it for good? [y/N] ").strip().lower() in ("y", "yes")


_ACTIONS: dict[str, Callable[[ProjectSessions, argparse.Namespace], int]] = {
    "list": _list_sessions,
    "search": _search_sessions,
    "show": _show_session,
    "rename": _rename_session,
    "fork": _fork_session,
    "export": _export_session,
    "delete": _delete_sessions,
}


def pick_session(cwd: str) -> str:
    """A session that a person chooses from a list, for `--resume` without an id; "" when they would rather not."""
    picker = PlainSessionPicker(open_project_sessions(cwd).list_sessions())
    while True:
        for row in picker.format_lines(_count_columns()):
            write_message(row)
        typed = "" if picker.is_empty else _ask_line(PICK_PROMPT)
        chosen = picker.parse_choice(typed)
        if chosen is not None:
            return chosen


def _ask_line(question: str) -> str:
    """What was typed; nothing when the input ended or was interrupted."""
    sys.stderr.write(question)
    sys.stderr.flush()
    try:
        return sys.stdin.readline()
    except KeyboardInterrupt:
        write_message("")
        return ""


def _require_name(args: argparse.Namespace) -> str:
    if not args.words:
        raise UsageError(f"`odin sessions {args.act}` needs a session.", "Name its id, or words of its title.")
    return " ".join(args.words)


def _format_line(text: str, room: int) -> str:
    return shorten(escape_hidden(" ".join(text.split())), max(room, 20))


def _count_columns() -> int:
    """Of a terminal; enough for most titles where there is none, or no output at all."""
    return size_of(sys.stdout)[0] if getattr(sys.stdout, "isatty", bool)() else 160
