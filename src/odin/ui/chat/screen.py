"""Commands of the app that are about a screen: plain mode has none, and says so, and how else it is done here."""

from typing import TextIO

from odin.ui.terminal import write_line

KEY_LINES = (
    "Enter sends the line; Tab completes a command or an @ file.",
    "Up and Down, or Ctrl-P and Ctrl-N, bring earlier lines back.",
    "Left, Right, Home, End, Ctrl-A, Ctrl-E move; Ctrl-W, Ctrl-U, Ctrl-K take a word or the line before or after away.",
    "Ctrl-C stops the turn; twice at an empty prompt it ends Odin, and so does Ctrl-D there, at once.",
    "Ctrl-Z gives the terminal to the shell; fg comes back.",
)
UNAVAILABLE_SENTENCES = {
    "/copy": "The answers are ordinary lines of your terminal: select and copy them there, or /export the session.",
    "/transcript": "The conversation is in your terminal's scrollback; /export writes the whole of it to a file.",
    "/theme": "Plain mode has the colours of your terminal; NO_COLOR=1 leaves out the little it uses.",
    "/mouse": "The mouse is the terminal's own in plain mode.",
    "/setup": "Plain mode has no setup: `odin auth` stores keys, /models and /model choose the model.",
    "/vim": "Vim-style navigation needs the app: odin without --plain.",
}
SCREEN_COMMANDS = (*UNAVAILABLE_SENTENCES, "/keys")


async def run_screen_command(command: str, err: TextIO) -> None:
    for line in KEY_LINES if command == "/keys" else (UNAVAILABLE_SENTENCES[command],):
        write_line(err, line)
