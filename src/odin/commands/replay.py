"""`odin replay`: replay a recorded session and compare the results."""

import asyncio

from odin.commands.command_line import Parser, make_formatter, write_json, write_message, write_output
from odin.core.errors import UsageError
from odin.ui.terminal import escape_control

DESCRIPTION = """\
Replay a recorded session in a scratch copy of its project, with the recorded model replies, and compare tool calls,
results, files and outcomes.

SESSION is a session ID, the start of one, words of the title, the path of a log, or a recording made with --save.
Exit code 0: no differences; 1: differences.
"""


def run_replay(argv: list[str]) -> int:
    parser = Parser(prog="odin replay", description=DESCRIPTION, formatter_class=make_formatter)
    add = parser.add_argument
    add("session", metavar="SESSION", help="session ID, or path of a log or recording")
    add("--until", type=int, default=0, metavar="N", help="replay only the first N prompts")
    add("--keep", action="store_true", help="keep the scratch copy and print its path")
    add("--save", default="", metavar="DIR", help="save a recording of the session in DIR instead of replaying")
    add("--json", action="store_true", help="print JSON")
    add("--verbose", action="store_true", help="print progress and every difference")
    add("--yes", action="store_true", help="run commands even without a sandbox")
    add("--cwd", default="", metavar="DIR", help="project folder")
    args = vars(parser.parse_args(argv))
    if args["until"] < 0:
        raise UsageError("--until must be 0 or more.")
    folder = args.pop("save")
    if folder:
        from odin.replay.recording import save_recording

        return write_output(escape_control(save_recording(args["session"], folder, args["cwd"], args["until"])))
    from odin.replay.replay import ReplayOptions, format_report, replay_session

    options = ReplayOptions(**args)
    report = asyncio.run(replay_session(options, write_message if options.verbose else lambda line: None))
    if options.json:
        write_json(report)
    else:
        write_output(escape_control(format_report(report, verbose=options.verbose)))
    return 0 if report.same else 1
