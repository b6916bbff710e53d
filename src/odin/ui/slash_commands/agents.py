"""/agents and /focus: the agents and tasks of a session as text, and stopping or closing one of them."""

from odin.core.client import Client, Snapshot, SubAgentRecord
from odin.core.errors import UsageError
from odin.core.format import format_usd, get_model_name
from odin.core.op import CancelTask, CloseAgent
from odin.core.slash_commands import make_argument_error, make_usage_error
from odin.core.team import ACTIVE_STATES, STATE_WORDS, TaskRecord
from odin.core.text import join_some
from odin.ui.terminal import escape_hidden, shorten

MAIN = "main"
"""The main agent's name for users."""

_MAX_NAMED = 10


def format_agents(snapshot: Snapshot, columns: int) -> str:
    """Return a line for each live agent, and one for each task that no agent works on."""
    live = snapshot.sub_agents
    busy = "working" if snapshot.executing else "idle"
    unread = f", {snapshot.unread_messages} unread" if snapshot.unread_messages else ""
    lines = [f"{MAIN}: {busy}{unread}", *(_format_agent(agent, snapshot) for agent in live)]
    names = {agent.task_id for agent in live if agent.task_id}
    lines += [_format_task(task) for task in snapshot.tasks if task.id not in names]
    if live or list_left_tasks(snapshot):
        lines.append("/focus NAME talks to an agent, /agents stop NAME cancels its task, /agents close NAME keeps it.")
    elif not snapshot.tasks:
        lines.append("No sub-agent has worked in this session.")
    return "".join(f"{shorten(escape_hidden(line), columns - 1)}\n" for line in lines)


def _format_agent(agent: SubAgentRecord, snapshot: Snapshot) -> str:
    spent = snapshot.spent_by_agent.get(agent.id)
    details = [
        f"task {agent.task_id}" if agent.task_id else "",
        get_model_name(agent.model),
        f"{agent.context_tokens / agent.context_limit:.0%} context" if agent.context_limit else "",
        format_usd(spent.cost_usd) if spent is not None and spent.cost_usd else "",
        f"{agent.unread} unread" if agent.unread else "",
    ]
    about = " ".join((agent.description or agent.task).split())
    words = ", ".join(word for word in (STATE_WORDS[agent.state], *details) if word)
    return f"{agent.id}: {words}: {about}"


def _format_task(task: TaskRecord) -> str:
    said = task.summary or task.closed_reason or task.stall
    about = " ".join(f"{task.description}{f' → {said}' if said else ''}".split())
    return f"{task.id} ({task.agent or task.type}): {STATE_WORDS[task.state]}: {about}"


def find_agent(snapshot: Snapshot, name: str) -> SubAgentRecord | None:
    """Return the live agent with this name or task, None for the main agent. Raise UsageError if there is none."""
    wanted = name.casefold()
    if wanted == MAIN:
        return None
    found = [agent for agent in snapshot.sub_agents if wanted in (agent.id.casefold(), agent.task_id.casefold())]
    if not found:
        names = join_some((agent.id for agent in snapshot.sub_agents), _MAX_NAMED)
        hint = f"Running agents: {names}." if names else "No sub-agent is running."
        raise UsageError(f"There is no running agent {name!r}.", hint)
    return found[0]


def list_left_tasks(snapshot: Snapshot) -> list[TaskRecord]:
    """Return the open tasks whose agent has ended: a prompt to it continues them with a new agent."""
    live = {agent.id for agent in snapshot.sub_agents}
    return [task for task in snapshot.tasks if not task.is_ended and task.agent not in live]


async def list_team(client: Client) -> tuple[SubAgentRecord | TaskRecord, ...]:
    """Return what `/focus` can name: the live sub-agents, and the tasks that can be continued."""
    snapshot = await client.snapshot()
    return (*snapshot.sub_agents, *list_left_tasks(snapshot))


async def find_focus(client: Client, name: str) -> str:
    """Return the agent that `/focus NAME` means: a live one, or the last of a task that can be continued.

    "" is the main agent.
    """
    if not name:
        raise make_usage_error("focus", "/focus needs the name of an agent.")
    snapshot = await client.snapshot()
    for task in list_left_tasks(snapshot):
        if name.casefold() in (task.agent.casefold(), task.id.casefold()):
            return task.agent
    agent = find_agent(snapshot, name)
    return "" if agent is None else agent.id


async def end_agent(client: Client, rest: str) -> str:
    """Cancel the task of an agent, or close only the agent, as the arguments of /agents say. Return the message."""
    verb, _, more = rest.partition(" ")
    name, _, reason = more.strip().partition(" ")
    if verb not in ("stop", "close"):
        raise make_argument_error("agents", verb)
    if not name:
        raise make_usage_error("agents", f"/agents {verb} needs the name of an agent.")
    snapshot = await client.snapshot()
    task = next((task for task in list_left_tasks(snapshot) if name in (task.id, task.agent)), None)
    agent = None if task is not None else find_agent(snapshot, name)
    if agent is None and task is None:
        raise UsageError("The main agent cannot be stopped this way.", "Interrupt it, or exit.")
    task_id = task.id if task is not None else agent.task_id if agent is not None else ""
    if verb == "stop" and task_id:
        await client.submit(CancelTask(task_id, reason.strip()))
        return f"Cancelled task {task_id}."
    await client.submit(CloseAgent(agent.id if agent is not None else name, reason.strip()))
    return f"Closed {name}." if not task_id else f"Closed {name}. Its task {task_id} can be continued."


def describe_working(snapshot: Snapshot) -> list[str]:
    """Return a line for each sub-agent that works, with its task."""
    return [
        escape_hidden(f"{agent.id}: {' '.join((agent.description or agent.task).split())}")
        for agent in snapshot.sub_agents
        if agent.state in ACTIVE_STATES
    ]
