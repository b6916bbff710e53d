"""/ps: the background processes as text, and stopping one, opening its ports, or sending a command to them."""

import time

from odin.core.client import Client, ProcessRecord
from odin.core.errors import UsageError
from odin.core.format import format_duration
from odin.core.op import ControlProcess, MoveToBackground
from odin.core.slash_commands import make_argument_error
from odin.ui.terminal import escape_hidden, shorten

NO_PROCESSES = "No background processes."
NOTHING_TO_MOVE = "No command is running that could go to the background."
_SHOWN = ("", "show", "follow")


def describe_process(record: ProcessRecord) -> str:
    """Return `running since 14:03:12 (2 min 5 s)` or `failed with exit code 1 after 3 s`."""
    lasted = format_duration(record.seconds)
    if record.status == "running":
        return f"running since {time.strftime('%H:%M:%S', time.localtime(record.started))} ({lasted})"
    code = f" with exit code {record.code}" if record.status in ("finished", "failed") and record.code >= 0 else ""
    return f"{record.status.replace('_', ' ')}{code} after {lasted}"


def describe_port(id: str, port: int, url: str) -> str:
    """Return where the user reaches a port, or how to open it."""
    return url or f"port {port} (closed: /ps {id} open)"


def format_processes(records: tuple[ProcessRecord, ...], columns: int) -> str:
    """Return a line for each background process."""
    if not records:
        return f"{NO_PROCESSES}\n"
    lines: list[str] = []
    for record in records:
        ports = "".join(f"  {describe_port(record.id, port, url)}" for port, url in record.urls.items())
        what = " ".join((record.description or record.command).split())
        lines.append(f"{record.id}  {describe_process(record)}{ports}  {what}")
    lines.append("/ps ID shows the output, /ps ID follow follows it, /ps ID stop stops the process.")
    return "".join(f"{shorten(escape_hidden(line), columns - 1)}\n" for line in lines)


async def find_process(client: Client, id: str) -> ProcessRecord:
    """Return the process with this id, or number. Raise UsageError if there is none."""
    records = await client.list_processes()
    found = next((record for record in records if record.id in (id, f"spawn-{id}")), None)
    if found is None:
        known = ", ".join(record.id for record in records)
        raise UsageError(f"There is no background process {id!r}.", f"Known: {known or 'none'}.")
    return found


async def control_process(client: Client, rest: str, agent: str = "") -> tuple[str, str]:
    """Do what the arguments of /ps say. Return the message to show, or the id and verb of what is to be shown."""
    name, _, more = rest.partition(" ")
    verb, _, port = more.strip().partition(" ")
    if name == "background":
        return ("" if await client.submit(MoveToBackground(agent)) else NOTHING_TO_MOVE), ""
    if verb in _SHOWN:
        return (await find_process(client, name)).id if name else "", verb or "show"
    if verb == "stop":
        stopped = await client.submit(ControlProcess("stop", name))
        record = await find_process(client, name)
        return f"{'Stopped' if stopped else 'Already ended:'} {record.id}.", ""
    if verb != "open" or (port and not port.isdecimal()):
        raise make_argument_error("ps", port if verb == "open" else verb)
    await client.submit(ControlProcess("open", name, int(port or 0)))
    record = await find_process(client, name)
    urls = [url for number, url in record.urls.items() if url and port in ("", str(number))]
    return f"{record.id} is open at {', '.join(urls)}." if urls else "", ""
