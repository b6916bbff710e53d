"""The tool `cron`: the model makes schedules for the chat of this conversation, and lists and removes them."""

from collections.abc import Callable, Mapping
from typing import Annotated, Literal

from msgspec import Meta, Struct

from odin.core.errors import UsageError
from odin.core.format import clip
from odin.core.schedule import format_local, make_schedule
from odin.core.tool import Args, Target, Tool, ToolContext, ToolOutput, fail
from odin.gateway.channel import Channel, SenderRight
from odin.gateway.jobs import Job, JobStatus, add_job, enable_job, list_jobs, remove_job
from odin.gateway.store import Chat, StoreThread

MAX_TEXT_CHARS = 3000


class JobMaker(Struct, frozen=True):
    """Who has asked for what the session does now. `is_person` is False for a schedule, a trigger and the like."""

    right: SenderRight = "sender"
    sender: str = ""
    is_person: bool = False


class CronArgs(Args, frozen=True):
    """For `add`: a `text` and one of `at`, `at_seconds`, `every_seconds` and `cron_expr`."""

    action: Literal["add", "list", "remove", "enable", "disable"]
    name: Annotated[str, Meta(description="Name of the schedule; small letters, digits and dashes.")] = ""
    text: Annotated[str, Meta(description="What you are asked, or the text that is sent, when it is due.")] = ""
    at: Annotated[str, Meta(description="Once: the next 18:00, or 2027-01-31 18:00.")] = ""
    at_seconds: Annotated[int, Meta(description="Once, so many seconds from now.", ge=0)] = 0
    every_seconds: Annotated[int, Meta(description="Again and again; at least 60.", ge=0)] = 0
    cron_expr: Annotated[str, Meta(description="Cron expression with five fields.")] = ""
    timezone: Annotated[str, Meta(description="Such as Europe/Berlin. Empty: that of the computer.")] = ""
    deliver: Annotated[bool, Meta(description="True: the text is sent as it is, and you are not asked.")] = False
    command: Annotated[str, Meta(description="Instead of a text: a command that is run, whose output is sent.")] = ""


class CronTool(Tool[CronArgs]):
    """Schedules something for this chat: a reminder (`deliver`), a prompt that you answer when it is due, in this
    conversation, or a `command`, which only the owner can have on this computer. Use it only when you are asked to."""

    name = "cron"
    kind = "interactive"
    short = "Schedules reminders and prompts for the chat."
    args = CronArgs

    def __init__(self, db: StoreThread, channels: Mapping[str, Channel]) -> None:
        self.place: Callable[[], Chat]
        self.maker: Callable[[], JobMaker]
        self._db = db
        self._channels = channels

    def get_target(self, args: CronArgs) -> Target:
        return Target(command=args.command if self._is_at_host() else "")

    def _is_at_host(self) -> bool:
        """True if the owner has asked for it on this computer."""
        abilities = self._channels[self.place().channel].abilities
        return self.maker().right == "owner" and abilities.is_internal and abilities.approves

    async def run(self, args: CronArgs, ctx: ToolContext) -> ToolOutput:
        here, maker = self.place(), self.maker()
        is_at_host = self._is_at_host()
        place, now = "" if is_at_host else here.name, ctx.environment.timing.clock()
        try:
            if args.action == "add":
                if not maker.is_person:
                    return fail("Only a person can ask for a new schedule; this turn was started by something else.")
                if args.command and not is_at_host:
                    hint = "The owner can do it with `odin cron add --command`, or in `odin gateway chat`."
                    return fail(f"Commands can be scheduled only on this computer. {hint}")
                return await self._add(args, here, maker, now)
            if args.action == "list":
                known = [item for item in await self._db.run(list_jobs, place) if item.job.action != "heartbeat"]
                return ToolOutput("\n".join(map(_describe, known)) or "There are no schedules.", note="schedules")
            if args.action == "remove":
                await self._db.run(remove_job, args.name, place)
            else:
                await self._db.run(enable_job, args.name, now, on=args.action == "enable", place=place)
        except UsageError as error:
            return fail(error.describe())
        return ToolOutput(f"Done: {args.action} {args.name}.", note=f"{args.action} {args.name}")

    async def _add(self, args: CronArgs, here: Chat, maker: JobMaker, now: float) -> ToolOutput:
        text = args.command or args.text
        if not text.strip() or len(text) > MAX_TEXT_CHARS or (args.command and (args.text or args.deliver)):
            return fail(f"Give a text or a command, of at most {MAX_TEXT_CHARS} characters.")
        at = f"in {max(args.at_seconds, 60)}s" if args.at_seconds else args.at
        every = f"{args.every_seconds}s" if args.every_seconds else ""
        schedule = make_schedule(now, at=at, every=every, cron=args.cron_expr, timezone=args.timezone)
        job = await self._db.run(
            add_job,
            Job(
                name=args.name,
                schedule=schedule,
                channel=here.channel,
                chat=here.chat,
                text=text,
                action="command" if args.command else "message" if args.deliver else "prompt",
                missed="once" if schedule.at else "skip",
                right=maker.right,
                maker=maker.sender,
            ),
            now,
        )
        return ToolOutput(f"Scheduled as {job.name}: {schedule.describe()}.", note=f"scheduled {job.name}")


def _describe(item: JobStatus) -> str:
    job = item.job
    due = f"next {format_local(item.due, job.schedule.timezone)}" if item.due else "off"
    return f"{job.name} ({job.place}): {job.schedule.describe()}; {due}; {job.action}: {clip(job.text, 200)}"
