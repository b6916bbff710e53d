"""Time `odin gateway` from a webhook to the model's request, and measure what it takes while nobody writes.

It is a process of its own, with the webhook, a Telegram bot against a stand-in, and 20 chats. `run.py` calls `rows()`;
run directly, this file prints the results.
"""

import asyncio
import http.client
import json
import os
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from agent import ODIN, Server
from idle import get_processor_s
from row import Row, table

sys.path.append(str(Path(__file__).parent.parent))

from tests.gateway.telegram_stand_in import TOKEN, TelegramStandIn

CHATS = 20
MESSAGES = 40
PAUSE_S = 0.15
SETTLE_S = 5.0
WATCHED_S = 25.0
SECRET = "0f9c31b5a7d24e68b1c0"


@contextmanager
def run_telegram() -> Generator[TelegramStandIn]:
    """Run the stand-in in a thread, and let one person write in each chat."""
    telegram, loop = TelegramStandIn(), asyncio.new_event_loop()
    served = telegram.serve()
    loop.run_until_complete(served.__aenter__())
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    for number in range(CHATS):
        loop.call_soon_threadsafe(lambda sender=number + 1: telegram.write("hello", sender=sender))
    try:
        yield telegram
    finally:
        loop.call_soon_threadsafe(telegram.write, "end")  # a poll that hangs ends
        asyncio.run_coroutine_threadsafe(served.__aexit__(None, None, None), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()


@contextmanager
def run_gateway(home: Path, model: Server, api_url: str) -> Generator[tuple[subprocess.Popen[bytes], int]]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    owners = [str(number + 1) for number in range(CHATS)]
    telegram = {"token": TOKEN, "owners": owners, "options": {"api_url": api_url}}
    gateway: dict[str, Any] = {"channels": {"telegram": telegram}, "port": port}
    gateway["webhooks"] = {"ci": {"secret": SECRET, "history": True}}
    folder = home / ".config/odin"
    folder.mkdir(parents=True)
    (folder / "odinconfig.json").write_text(json.dumps({"gateway": gateway}))
    env = {**model.environment(home), "ODIN_LOCAL_PORTS": ""}
    process = subprocess.Popen([*ODIN, "gateway"], env=env, cwd=home, stderr=subprocess.DEVNULL)
    try:
        yield process, port
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait()


def post(port: int, id: str) -> float:
    """Send a message and return the time at which it was sent."""
    from odin.gateway.channels.webhook import sign

    timestamp, body = str(int(time.time())), b"It failed."
    headers = {"X-Odin-Id": id, "X-Odin-Timestamp": timestamp, "X-Odin-Signature": sign(SECRET, timestamp, id, body)}
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    connection.connect()
    sent = time.monotonic()
    connection.request("POST", "/hook/ci", body, headers)
    if connection.getresponse().status != 202:
        raise SystemExit("bench: the webhook did not accept a message")
    connection.close()
    return sent


def wait_until(is_so: Any) -> None:
    end = time.monotonic() + 60
    while not is_so():
        if time.monotonic() > end:
            raise SystemExit("bench: the gateway did not answer")
        time.sleep(0.02)


def is_open(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def rows() -> list[Row]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        model = Server(folder, turns=0)
        try:
            with run_telegram() as telegram, run_gateway(folder, model, telegram.url) as (process, port):
                chats = range(1, CHATS + 1)
                wait_until(lambda: is_open(port) and all(telegram.list_texts(chat) for chat in chats))
                model.new_requests(CHATS)
                post(port, "first")  # opens the session
                model.new_requests(1)
                taken: list[float] = []
                for number in range(MESSAGES):
                    time.sleep(PAUSE_S)
                    sent = post(port, str(number))
                    taken.append((model.new_requests(1)[-1]["at"] - sent) * 1000)
                time.sleep(SETTLE_S)
                before = get_processor_s(process.pid)
                time.sleep(WATCHED_S)
                percent = (get_processor_s(process.pid) - before) / WATCHED_S * 100
                pages = int(Path(f"/proc/{process.pid}/statm").read_text().split()[1])
        finally:
            model.stop()
    return [
        Row("message at a webhook until the model's request", statistics.median(taken), None, 20, "ms", False),
        Row("memory of a gateway with 20 chats", pages * os.sysconf("SC_PAGE_SIZE") / 1e6, None, 60, "MB", False),
        Row("processor of a gateway while nobody writes", percent, None, 0.5, "%", False),
    ]


if __name__ == "__main__":
    print(table(rows()))
