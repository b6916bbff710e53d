"""The gateway on the page of `odin serve`: chats, inbox, outbox, schedules and costs.

It is read from the store, which another process may be writing: whether a gateway runs makes no difference.
"""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence

from odin.app.crash_log import make_redactor
from odin.config import get_state_dir, load
from odin.core.errors import UsageError
from odin.core.format import clip_line, format_age, format_seconds, format_usd, pluralize, shorten_home
from odin.core.gateway_settings import GatewaySettings
from odin.core.schedule import format_local
from odin.gateway.jobs import HEARTBEAT, JobStatus, ask_for_run, list_jobs
from odin.gateway.lock import GATEWAY_FOLDER, find_running
from odin.gateway.store import STORE_NAME, GatewayStore, ItemQueue, QueueItem
from odin.remote.protocol import Board, BoardAction, BoardCell, BoardRow, BoardSection, BoardTone
from odin.ui.terminal import escape_hidden

_MAX_ROWS = 200
_DAYS = 14
_MAX_TEXT = 160
_MAX_READ = 4_000
"""Characters of a text in which secrets are looked for."""

_TONES: dict[str, BoardTone] = {
    "connected": "good",
    "done": "good",
    "running": "good",
    "waiting": "dim",
    "failed": "bad",
    "not answered": "bad",
    "not sent": "bad",
    "unsure": "warn",
    "may have been sent": "warn",
    "missed": "warn",
}


def describe_running(process: str) -> str:
    return f"Running as process {process}." if process else "Not running. `odin gateway` starts it."


def describe_heartbeat(store: GatewayStore, item: JobStatus) -> str:
    last = f"last {item.run.state}, {format_usd(item.run.usd)}; " if item.run else ""
    today = format_usd(store.get_cost_today(HEARTBEAT, item.job.chat))
    return f"next {format_local(item.due or 0)}; {last}today {today}."


class GatewayBoard:
    """The board of the gateway of this user. It has no secrets of the settings, and none that is known otherwise."""

    name = "gateway"
    title = "Gateway"

    def __init__(self, env: Mapping[str, str], clock: Callable[[], float] = time.time) -> None:
        self._env = env
        self._folder = get_state_dir(env) / GATEWAY_FOLDER
        self._clock = clock

    def exists(self) -> bool:
        return (self._folder / STORE_NAME).is_file()

    def read(self) -> Board:
        settings = load("/", self._env).gateway
        redact = make_redactor(self._env, dict(settings.list_secrets()))
        store = GatewayStore(self._folder, self._clock, is_reader=True)
        try:
            view = _BoardView(store, settings, redact, self._env.get("HOME", ""), self._clock())
            return Board(self.name, self.title, tuple(view.list_sections(find_running(self._folder))))
        finally:
            store.close()

    def act(self, action: str) -> str:
        verb, _, name = action.partition(":")
        later = "" if find_running(self._folder) else " when the gateway runs"
        store = GatewayStore(self._folder, self._clock)
        try:
            match verb:
                case "retry":
                    store.retry_failed(name)
                    return f"{name} is tried again{later}."
                case "drop":
                    store.drop_failed(name)
                    return f"{name} is forgotten."
                case "run":
                    ask_for_run(store, name, self._clock())
                    return f"{name} runs{later or ' now'}."
                case _:
                    raise UsageError("The gateway has no such action.", "Load the page again.")
        finally:
            store.close()


class _BoardView:
    """The store in words."""

    def __init__(
        self, store: GatewayStore, settings: GatewaySettings, redact: Callable[[str], str], home: str, now: float
    ) -> None:
        self._store = store
        self._settings = settings
        self._redact = redact
        self._home = home
        self._now = now

    def list_sections(self, running: str) -> Iterable[BoardSection]:
        jobs = list_jobs(self._store)
        channels = self._store.list_values("channel:") if running else {}
        rows = [_make_row(name, name, self._make_state(state)) for name, state in channels.items() if name != HEARTBEAT]
        yield _make_section("Channels", describe_running(running), ("Channel", "State"), rows)
        yield self._make_chats()
        yield self._make_queue("Inbox", "inbox", "unanswered")
        yield self._make_queue("Outbox", "outbox", "unsent")
        yield self._make_schedules([item for item in jobs if item.job.name != HEARTBEAT], running)
        beat = next((item for item in jobs if item.job.name == HEARTBEAT), None)
        if beat is not None and self._settings.heartbeat.enabled:
            text = describe_heartbeat(self._store, beat)
            yield _make_section("Heartbeat", text[0].upper() + text[1:])
        yield self._make_costs()

    def _clean(self, text: str) -> str:
        return escape_hidden(clip_line(self._redact(text[:_MAX_READ]), _MAX_TEXT))

    def _make_state(self, state: str) -> BoardCell:
        text = self._clean(state)
        return BoardCell(text, _TONES.get(text, "bad" if " " in text else ""))  # a channel has the error in its place

    def _make_place(self, channel: str, chat: str, session: str = "") -> BoardCell:
        return BoardCell(self._clean(f"{channel}:{chat}"), session=session)

    def _format_age(self, at: float) -> str:
        age = format_age(self._now - at)
        return age if age == "now" else f"{age} ago"

    def _make_chats(self) -> BoardSection:
        chats = [chat for chat in self._store.list_chats() if chat.channel != HEARTBEAT]
        rows = [
            _make_row(
                f"{chat.channel}:{chat.chat}",
                self._make_place(chat.channel, chat.chat, chat.session),
                self._clean(shorten_home(chat.folder or self._settings.workspace, self._home)),
                ("edit" if chat.owner else "ask") + (f", {self._clean(chat.role)}" if chat.role else ""),
                self._format_age(chat.last) if chat.last else "",
                format_usd(chat.usd_today),
            )
            for chat in sorted(chats, key=lambda chat: -chat.last)
        ]
        facts = pluralize(len(chats), "chat") if chats else "Nobody has written yet."
        if chats and (budget := self._settings.max_budget_usd_per_day):
            facts += f"; each may cost {format_usd(budget)} per day."
        return _make_section("Chats", facts, ("Chat", "Folder", "Mode", "Last message", "Today"), rows)

    def _make_queue(self, heading: str, open: ItemQueue, failed: ItemQueue) -> BoardSection:
        counts = self._store.count_items(open), self._store.count_items(failed)
        items = [*self._store.list_items(failed, _MAX_ROWS), *self._store.list_items(open, _MAX_ROWS)]
        rows = [self._make_item(item, is_open=at >= min(counts[1], _MAX_ROWS)) for at, item in enumerate(items)]
        facts = f"{counts[0]:,} waiting, {counts[1]:,} failed." if any(counts) else "Nothing waits, nothing has failed."
        columns = ("Chat", "State", "Since", "Text", "Attempts", "Why")
        return _make_section(heading, facts, columns, rows, sum(counts) - len(rows))

    def _make_item(self, item: QueueItem, *, is_open: bool) -> BoardRow:
        tries = str(item.attempts) if item.attempts else ""
        if item.due > self._now:
            tries += f", next in {format_seconds(item.due - self._now)}"
        text = f"{item.sender}: {item.text}" if item.sender else item.text
        actions = (
            ()
            if is_open
            else (
                BoardAction("Retry", f"retry:{item.id}"),
                BoardAction("Discard", f"drop:{item.id}", f"{item.id} will be forgotten, and cannot be tried again."),
            )
        )
        return _make_row(
            item.id,
            self._make_place(item.channel, item.chat),
            BoardCell(item.state, _TONES.get(item.state, "")),
            self._format_age(item.at),
            self._clean(text),
            tries,
            self._clean(item.error),
            actions=actions,
        )

    def _make_schedules(self, jobs: Sequence[JobStatus], running: str) -> BoardSection:
        rows: list[BoardRow] = []
        for item in jobs:
            job, run = item.job, item.run
            last = f"{run.state}, {self._format_age(run.started)}" if run else ""
            rows.append(
                _make_row(
                    job.name,
                    job.name,
                    job.schedule.describe(),
                    format_local(item.due, job.schedule.timezone) if item.due else BoardCell("off", "dim"),
                    BoardCell(last, _TONES.get(run.state if run else "", "")),
                    format_usd(run.usd) if run else "",
                    self._make_place(job.channel, job.chat),
                    self._clean(f"{job.action}: {job.text}"),
                    actions=(BoardAction("Run now", f"run:{job.name}"),),
                )
            )
        facts = pluralize(len(jobs), "schedule") + "." if jobs else "No schedules. `odin cron add` makes one."
        columns = ("Name", "When", "Next run", "Last run", "Cost", "Chat", "What")
        return _make_section("Schedules", facts, columns, rows)

    def _make_costs(self) -> BoardSection:
        days = self._store.list_costs(_DAYS)
        today = time.strftime("%Y-%m-%d", time.localtime(self._now))
        most = max((usd for _, usd in days), default=0.0)
        rows = [_make_row(day, day, BoardCell(format_usd(usd), progress=usd / most)) for day, usd in days if most]
        facts = f"Today {format_usd(dict(days).get(today, 0.0))}."
        return _make_section("Cost", facts, ("Day", "Cost"), rows)


def _make_row(key: str, *cells: BoardCell | str, actions: tuple[BoardAction, ...] = ()) -> BoardRow:
    return BoardRow(key, tuple(BoardCell(cell) if isinstance(cell, str) else cell for cell in cells), actions)


def _make_section(
    heading: str, facts: str, columns: tuple[str, ...] = (), rows: Sequence[BoardRow] = (), more: int = 0
) -> BoardSection:
    shown = tuple(rows[:_MAX_ROWS])
    return BoardSection(heading, facts, columns, shown, more + len(rows) - len(shown))
