"""A store as a gateway leaves it behind: chats, messages that wait or failed, answers, schedules and costs."""

import os
import time

from odin.core.schedule import make_schedule
from odin.gateway.channel import InboundMessage
from odin.gateway.jobs import Job, add_job
from odin.gateway.store import Chat, GatewayStore, NewPart
from tests.gateway.platform import locate_gateway


def fill_store(*, text: str = "Water", session: str = "") -> GatewayStore:
    """Return the store. `text` is in each message and each error, `session` that of the first chat."""
    store, name = GatewayStore(locate_gateway()), "ann"
    now = time.time()

    def receive(id: str, chat: str) -> str:
        message = InboundMessage(
            channel="chatty", id=id, sender=name, sender_name=name, chat=chat, text=f"{text}: {id} question"
        )
        return store.add_message(message, "prompt")[0]

    answered, failed = receive("answered", name), receive("failed", "bob")
    receive("waiting", "bob")
    chat = Chat(channel="chatty", chat=name, session=session, folder=os.path.expanduser("~/garden"), owner=name)
    store.save_chat(chat)
    store.finish(chat, [NewPart("part-1", "chatty", name, f"{text}: late answer")], done=[answered], usd=0.25)
    store.finish(Chat(channel="chatty", chat="bob"), done=[failed], error=f"{text}: model failure", usd=0.5)
    store.add_parts([NewPart("part-2", "chatty", "bob", f"{text}: dead answer")])
    late, dead = (int(item.id.removeprefix("out-")) for item in store.list_items("outbox"))
    for seq in (late, dead):
        store.mark_sending(seq)
    store.mark_unsent(late, "pending", f"{text}: slow platform", now + 300)
    store.mark_unsent(dead, "dead", f"{text}: dead platform")
    job = Job("evening", make_schedule(now, cron="0 18 * * *"), "chatty", name, f"{text}: summary")
    add_job(store, job, now)
    return store
