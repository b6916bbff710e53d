"""The sentences people read when there is nothing to show."""

from odin.providers.offline.task import PlanContext

ABILITIES = (
    "search the code, find, list and read files, replace text in one file or everywhere, create a file or append to "
    "one, "
    "run a command or the tests, answer git questions, outline or summarise a file, and describe the project"
)
CONNECT_HINT = (
    "To connect a model, set ANTHROPIC_API_KEY or OPENAI_API_KEY, or run `odin models` to see local servers and put "
    "your "
    'choice as "model" in odinconfig.json.'
)
HELLO = (
    f"Hello. No model is connected, so this is Odin's built-in planner: I follow plain requests word by word and "
    f"can {ABILITIES}. "
    f'Try "Search for TODO in src" or "describe this project". {CONNECT_HINT}'
)
UNKNOWN = (
    "I did not understand that. No model is connected, so this is Odin's built-in planner, which follows plain "
    "requests "
    f"word by word. I can {ABILITIES}; for example \"Search for TODO in src\" or \"Replace 'a' with 'b' in notes.txt\". "
    f"{CONNECT_HINT}"
)
INVENT = (
    "That needs a model, and none is connected: I am Odin's built-in planner and cannot write code or think "
    "something up. "
    f"I can {ABILITIES}. {CONNECT_HINT}"
)
STOPPED = (
    "I stopped here: this request needed more steps than I allow for one prompt. What was done until now stays. "
    "Ask for the rest in smaller parts."
)


def explain_not_understood(said: str, invent: bool, some_done: bool) -> str:
    """One paragraph. When part of the request was done it names the part that was not."""
    if not some_done:
        return INVENT if invent else UNKNOWN
    quoted = said if len(said) <= 100 else f"{said[:99]}…"
    reason = "needs a model, and none is connected" if invent else "I did not understand"
    rest = f'"{quoted}" {reason}' if invent else f'{reason} "{quoted}"'
    return f"{rest}, so I left it and whatever came after it. {CONNECT_HINT}"


def explain_not_offered(tools: tuple[str, ...], desk: PlanContext) -> str:
    """Why a call cannot be made at all, and what to do about it."""
    names = " and ".join(tools)
    writing = {"WriteFile", "EditTool", "MultiEditTool", "Delete", "InitTool"}
    if writing.issuperset(tools) and not writing & desk.tools.keys():
        mode = f"in {desk.mode} mode" if desk.mode else "in this mode"
        return (
            f"Nothing was changed: {mode} no tool that writes files is offered. Ask again in edit mode, "
            "for example with `--mode edit`."
        )
    return f"That needs {names}, which this session does not offer. Look at the tools your configuration switches off."


def format_count(number: int, noun: str, plural: str = "") -> str:
    """1 file, 2 files."""
    return f"{number} {noun if number == 1 else plural or noun + 's'}"


def extract_reason(text: str) -> str:
    """The gist of an error result: its first lines, bounded."""
    lines = [line.strip() for line in text.strip().splitlines() if line.strip()]
    gist = " ".join(lines[:3]) or "no reason was given"
    return gist if len(gist) <= 400 else f"{gist[:399]}…"


def format_code_block(text: str, language: str = "") -> str:
    """A code block whose fence is longer than any inside it."""
    fence = "```"
    while fence in text:
        fence += "`"
    return f"{fence}{language}\n{text}\n{fence}"
