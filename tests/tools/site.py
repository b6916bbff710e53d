"""A web site on loopback with scripted responses, which records the heads of the requests."""

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager

from tests.providers.servers import Connection, make_response, serve


class Site:
    def __init__(self) -> None:
        self.url = ""
        self.port = 0
        self.heads: list[str] = []
        self._answers: dict[str, bytes | Callable[[], bytes]] = {}

    @property
    def paths(self) -> list[str]:
        return [head.split(" ", 2)[1] for head in self.heads]

    def raw(self, path: str, answer: bytes | Callable[[], bytes]) -> str:
        self._answers[path] = answer
        return self.url + path

    def page(self, path: str, body: str | bytes, kind: str = "text/html; charset=utf-8", status: str = "200 OK") -> str:
        content = body.encode() if isinstance(body, str) else body
        return self.raw(path, make_response(content, f"content-type: {kind}\r\n" if kind else "", status))

    def redirect(self, path: str, target: str, status: str = "302 Found") -> str:
        return self.raw(path, make_response(b"moved", f"location: {target}\r\ncontent-type: text/plain\r\n", status))

    def answer(self, path: str) -> bytes:
        found = self._answers.get(path.partition("?")[0]) or self._answers.get(path)
        if found is None:
            return make_response(b"<h1>Not here</h1>", "content-type: text/html\r\n", "404 Not Found")
        return found() if callable(found) else found


@asynccontextmanager
async def open_site() -> AsyncGenerator[Site]:
    site = Site()

    async def answer_requests(connection: Connection) -> None:
        while True:
            head, _ = await connection.read_request()
            site.heads.append(head)
            answer = site.answer(head.split(" ", 2)[1])
            await connection.send(answer)
            if b"content-length" not in answer and b"chunked" not in answer:
                return

    async with serve(answer_requests) as listener:
        site.url, site.port = listener.url, listener.port
        yield site
