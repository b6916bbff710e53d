"""`odin replay`."""

import asyncio

from odin.commands.command_line import Parser, make_formatter, write_message, write_output
from odin.core.errors import UsageError

DESCRIPTION = """\
Play a recorded session again, in a scratch copy of its project, with the replies the model gave then, and say whether
the same things happened: the same calls with the same results, the same files, the same endings.

SESSION is the id of a session, the beginning of one, words of its title, the path of a log, or a recording made with
--save.
Exit code 0: the same; 1: something is different.
"""


def run_replay(argv: list[str]) -> int:
    parser = Parser(prog="odin replay", description=DESCRIPTION, formatter_class=make_formatter)
    add = parser.add_argument
    add("session", metavar="SESSION", help="the id of a session, or the path of a log or a recording")
    add("--until", type=int, default=0, metavar="N", help="only the first N prompts")
    add("--keep", action="store_true", help="keep the scratch copy and say where it is")
    add("--save", default="", metavar="DIR", help="make a recording of the session in that folder, and play nothing")
    add("--json", action="store_true", help="print JSON")
    add("--verbose", action="store_true", help="say what is being played, and every difference")
    add("--yes", action="store_true", help="run commands even where no sandbox keeps them in the copy")
    add("--cwd", default="", metavar="DIR", help="the project's folder")
    args = vars(parser.parse_args(argv))
    if args["until"] < 0:
        raise UsageError("--until needs a number of prompts.")
    folder = args.pop("save")
    from odin.ui.terminal import escape_control

    if folder:
        from odin.replay.recording import save_recording

        return write_output(escape_control(save_recording(args["session"], folder, args["cwd"], args["until"])))
    from odin.replay.replay import ReplayOptions, format_report, replay_session

    wish = ReplayOptions(**args)
    report = asyncio.run(replay_session(wish, write_message if wish.verbose else lambda line: None))
    if wish.json:
        import msgspec

        write_output(msgspec.json.encode(report).decode() + "\n")
    else:
        write_output(escape_control(format_report(report, verbose=wish.verbose)))
    return 0 if report.same else 1
