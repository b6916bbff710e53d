"""Exports of a session as Markdown, JSON and one HTML page, all safe against hostile content of the session."""

import json
import os
import re
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from odin.app.export import choose_format, export_session
from odin.core.call_events import Replied, TodosChanged, ToolEnded, ToolStarted, UsageRecorded
from odin.core.errors import OdinError, UsageError
from odin.core.event import AnyEvent, Envelope, Rewound, SessionOpened, TitleSet, TurnEnded, TurnStarted
from odin.core.event_values import Todo
from odin.core.message import Image, ReplyMessage, Text, Thinking, ToolCall, Usage
from odin.session.export_html import render_markdown
from odin.session.log import LOG_FORMAT, LogHeader, SessionLog
from tests.pictures import png

DIFF = "--- a/x.py\n+++ b/x.py\n@@ -1,2 +1,2 @@\n-old <b>\n+new & better\n same\n"
EVIL = (
    "<script>alert(1)</script><img src=x onerror=alert(2)> [go](javascript:alert(3)) ![i](https://e.example/i.png) \"'>"
)

Session = Callable[..., Path]


@pytest.fixture
def session(tmp_path: Path) -> Session:
    """Return a function that writes a session log with the given events and returns its path."""

    def write(*events: AnyEvent | tuple[str, AnyEvent]) -> Path:
        path = tmp_path / "sessions" / "20260101120000000" / "main.jsonl"
        log = SessionLog(path, LogHeader(LOG_FORMAT, path.parent.name, "/project", 1_700_000_000.0))
        for number, item in enumerate(events):
            agent, event = item if isinstance(item, tuple) else ("", item)
            log.append(Envelope(number, 1_700_000_000.0 + number, log.session, event, agent))
        log.close()
        return path

    return write


def turn_events(number: int, text: str, answer: str) -> list[AnyEvent]:
    return [
        TurnStarted(f"p{number}", text, "edit_mode"),
        Replied(ReplyMessage((Text(answer),), "anthropic", "m-1")),
        UsageRecorded("anthropic/m-1", Usage(1000, 20), 0.0123, 200_000),
        TurnEnded(f"p{number}", "end_turn", answer, 1, Usage(1000, 20), 0.0123, 1500),
    ]


def sample_events() -> list[AnyEvent | tuple[str, AnyEvent]]:
    edit = ToolCall("c1", "Edit", {"file_path": "/project/x.py"})
    return [
        SessionOpened("/project", "anthropic/m-1", "0.1"),
        TurnStarted("p1", "Mend x.py", "edit_mode"),
        Replied(ReplyMessage((Thinking("Which line?", "sig"), Text("I change it."), edit), "anthropic", "m-1")),
        ToolStarted("c1", "Edit", {"file_path": "/project/x.py"}, "/project/x.py"),
        ToolEnded("c1", "Edit", "success", "Changed.", display=DIFF, duration_ms=12),
        TodosChanged((Todo("1", "mend it", "completed"), Todo("2", "test it", "pending"))),
        ("agent-1", Replied(ReplyMessage((Text("From the sub-agent."),)))),
        *turn_events(1, "unused", "All **done**: see `x.py`.\n\n```python\nprint(1)\n```")[1:],
        *turn_events(2, "Something wrong", "Never mind."),
        Rewound("r1", "p2", files=True, chat=True),
        TitleSet("Mending x"),
    ]


def test_markdown_is_the_default_and_goes_to_the_current_directory(
    session: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    path = export_session(session(*sample_events()))
    assert path == str(tmp_path / "odin-20260101120000000.md")
    text = Path(path).read_text()
    assert "# Mending x" in text
    assert "- Usage: 2,000 tokens in, 40 out" in text
    assert "- Cost: $0.0246" in text
    assert "## 1. Prompt (edit, " in text
    assert "> Mend x.py" in text
    assert "```diff\n--- a/x.py" in text
    assert '"file_path": "/project/x.py"' in text
    assert "Which line?" in text
    assert "- [x] mend it\n- [ ] test it" in text
    assert "**agent-1:**\n\nFrom the sub-agent." in text
    assert re.search(r"## 2\. Prompt \(edit, .* · rewound\)", text)
    assert oct(Path(path).stat().st_mode & 0o777) == "0o600"


@pytest.mark.parametrize("form", ["md", "html", "json"])
def test_mail_is_exported_as_a_remark_and_is_no_prompt(session: Session, tmp_path: Path, form: str):
    mail = TurnStarted("mail-2", "[mail-2] completed from general-1:\nIt is mended.", "edit_mode", source="mail")
    log = session(*sample_events()[:-3], mail, *turn_events(3, "Go on", "Sure.")[1:])
    text = Path(export_session(log, path=str(tmp_path / f"out.{form}"))).read_text()
    assert "Mail: [mail-2] completed from general-1" in text.replace("\\", "") and "It is mended." in text
    if form == "json":
        assert [prompt["id"] for prompt in json.loads(text)["prompts"]] == ["p1", "p2"]
    else:
        assert {"md": ", 2 prompts", "html": "<dt>Prompts</dt><dd>2</dd>"}[form] in text and "3. Prompt" not in text


def test_json_has_the_messages_and_the_usage(session: Session, tmp_path: Path):
    path = export_session(session(*sample_events()), path=str(tmp_path / "out.json"))
    assert path == str(tmp_path / "out.json")
    exported = json.loads(Path(path).read_text())
    assert (exported["odin_export"], exported["session"], exported["title"]) == (1, "20260101120000000", "Mending x")
    assert exported["usage"]["input"] == 2000
    assert exported["usage_by_model"]["anthropic/m-1"]["output"] == 40
    assert [(prompt["id"], prompt["rewound"]) for prompt in exported["prompts"]] == [("p1", False), ("p2", True)]
    kinds = [message["type"] for message in exported["messages"]]
    assert kinds[:4] == ["prompt", "answer", "call", "todos"]
    call = exported["messages"][2]
    assert (call["name"], call["args"], call["view"]) == ("Edit", {"file_path": "/project/x.py"}, DIFF)


class Page(HTMLParser):
    """An HTML page as a browser sees it: the tags with their attributes, and the text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.words: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in ("meta", "img", "br", "hr"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attrs for name, attrs in self.tags if name == tag]


def export_html(log: Path, tmp_path: Path) -> tuple[str, Page]:
    text = Path(export_session(log, "html", str(tmp_path / "page.html"))).read_text()
    return text, Page(text)


def test_html_page_is_well_formed_and_folds_long_parts(session: Session, tmp_path: Path):
    text, page = export_html(session(*sample_events()), tmp_path)
    assert page.open == []
    assert len(page.all("details")) == 2
    assert {"class": "p"} in page.all("span")
    assert {"class": "m"} in page.all("span")
    assert {"name": "viewport", "content": "width=device-width, initial-scale=1"} in page.all("meta")
    assert "<strong>done</strong>" in text
    assert "<pre><code>print(1)</code></pre>" in text
    assert "prefers-color-scheme:dark" in text
    assert "+new &amp; better" in text


def test_html_page_loads_nothing_from_the_network(session: Session, tmp_path: Path):
    text, page = export_html(session(*sample_events()), tmp_path)
    policy = next(meta["content"] for meta in page.all("meta") if meta.get("http-equiv"))
    assert policy is not None
    assert policy.startswith("default-src 'none'")
    assert not {tag for tag, _ in page.tags} & {"script", "link", "iframe", "object", "form", "base", "embed"}
    assert "url(" not in text
    assert "@import" not in text


def events_with(evil: str) -> list[AnyEvent | tuple[str, AnyEvent]]:
    """Return events that contain `evil` in every text."""
    call = ToolCall("c1", "Read", {evil: evil})
    return [
        SessionOpened(evil, evil, "0.1"),
        TurnStarted("p1", evil, "edit_mode"),
        Replied(ReplyMessage((Thinking(evil), Text(evil), call), evil, evil)),
        ToolStarted("c1", "Read", {evil: [evil]}, evil),
        ToolEnded("c1", "Read", "error", evil, display=evil, images=(Image(evil, "image/png"),)),
        TodosChanged((Todo("1", evil, "pending"),)),
        (evil, Replied(ReplyMessage((Text(f"# {evil}\n- {evil}\n> {evil}\n|a|b|\n|-|-|\n|{evil}|c|\n"),)))),
        TurnEnded("p1", "error", evil, error=evil),
        TitleSet(evil),
    ]


def test_session_text_is_escaped_in_the_html_page(session: Session, tmp_path: Path):
    text, page = export_html(session(*events_with(EVIL)), tmp_path)
    assert page.open == []
    assert not page.all("script")
    assert not page.all("img")
    for _, attrs in page.tags:
        assert not [name for name in attrs if name.startswith("on")]
        assert not (attrs.get("href") or "").lower().startswith("javascript")
    assert "alert(1)" in "".join(page.words)
    assert "https://e.example/i.png" not in "".join(re.findall(r'(?:src|href)="[^"]*"', text))


@pytest.mark.parametrize("form", ["markdown", "html", "json"])
def test_exports_contain_no_raw_control_characters(session: Session, tmp_path: Path, form: str):
    evil = "a\x1b[2Jb\x1b]0;t\x07c\x00d\ufffd\u202ee</pre></details>```\n````\n"
    path = export_session(session(*events_with(evil)), form, str(tmp_path / "out"))
    data = Path(path).read_bytes().decode("utf-8")
    assert "\x1b" not in data
    assert "\x00" not in data
    if form == "json":
        assert json.loads(data)["title"] == evil


def test_log_line_with_invalid_utf8_is_skipped(session: Session, tmp_path: Path):
    log = session(*sample_events())
    with log.open("ab") as file:
        file.write(b'{"seq":99,"ts":1,"session":"x","event":{"type":"TitleSet","title":"\xff\xfe"}}\n')
    assert "Mending x" in Path(export_session(log, "html", str(tmp_path / "out.html"))).read_text()


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("[a](https://x.example/?q=1&r=2)", '<a href="https://x.example/?q=1&amp;r=2" rel'),
        ("[a](mailto:x@y.example)", '<a href="mailto:x@y.example"'),
        ("[a](JaVaScRiPt:alert(1))", "a (JaVaScRiPt:alert(1)"),
        ("[a](data:text/html,x)", "a (data:text/html,x)"),
        ("[a](file:///etc/passwd)", "a (file:///etc/passwd)"),
        ("`<b>`", "<code>&lt;b&gt;</code>"),
        ("1. one\n2. two\n   - deep", "<li>two\n<ul>\n<li>deep</li>\n</ul>"),
        ("# Title", "<h3>Title</h3>"),
        ("> said", "<blockquote>\n<p>said</p>"),
        ("2 * 3 * 4", "2 * 3 * 4"),
        ("```\nno end", "<pre><code>no end</code></pre>"),
    ],
)
def test_markdown_is_rendered_as_safe_html(source: str, expected: str):
    assert expected in render_markdown(source)


@pytest.mark.parametrize(
    "source",
    [
        "[a](javascript:alert(1))",
        "[a](&#106;avascript:alert(1))",
        "[a](java&NewLine;script:alert(1))",
        "[a][b]\n\n[b]: javascript:alert(1)",
        "<javascript:alert(1)>",
        "<data:text/html,x>",
        "[a](//evil.example)",
        '<a href="/evil">x</a>',
        "![a](https://evil.example/i.png)",
    ],
)
def test_unsafe_targets_do_not_become_links_or_images(source: str):
    page = Page(render_markdown(source))
    assert not page.all("a")
    assert not page.all("img")
    assert page.open == []


@pytest.mark.parametrize(
    "piece", ["> ", "- ", "**a ", "[a](", "`", "*a*", "| a |\n|-|-|\n", "```\n", "\n- x\n\n", "~~"]
)
def test_repeated_markdown_is_rendered_in_time(piece: str):
    assert render_markdown(piece * 3000)


def test_only_images_of_the_session_are_embedded(session: Session, tmp_path: Path):
    folder = tmp_path / "sessions" / "20260101120000000"
    folder.mkdir(parents=True)
    (folder / "seen.png").write_bytes(png(4, 4))
    (tmp_path / "other.png").write_bytes(png(4, 4))
    own, other = Image(str(folder / "seen.png"), "image/png"), Image(str(tmp_path / "other.png"), "image/png")
    events = [*sample_events(), ToolEnded("c9", "Read", "success", "seen", images=(own, other))]
    _, page = export_html(session(*events), tmp_path)
    (shown,) = page.all("img")
    assert (shown["src"] or "").startswith("data:image/png;base64,iVBOR")


def test_secrets_are_redacted(session: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("SHOP_API_KEY", "hunter2-but-longer-7731")
    events = [event for event in events_with("key hunter2-but-longer-7731") if not isinstance(event, tuple)]
    for form in ("markdown", "json", "html"):
        path = export_session(session(*events), form, str(tmp_path / f"out.{form}"))
        assert "hunter2" not in Path(path).read_text().replace(str(tmp_path), "")


def test_existing_file_that_is_not_an_export_is_not_replaced(session: Session, tmp_path: Path):
    log = session(*sample_events())
    target = tmp_path / "notes.md"
    target.write_text("mine\n")
    with pytest.raises(UsageError, match="exists and is not"):
        export_session(log, path=str(target))
    assert target.read_text() == "mine\n"
    export_session(log, path=str(target), overwrite=True)
    export_session(log, path=str(target))
    assert "Mending x" in target.read_text()
    link = tmp_path / "link.md"
    link.symlink_to(target)
    with pytest.raises(UsageError):
        export_session(log, path=str(link))


def test_export_into_a_folder_uses_the_default_name(session: Session, tmp_path: Path):
    assert export_session(session(*sample_events()), "html", str(tmp_path)) == str(
        tmp_path / "odin-20260101120000000.html"
    )


def test_export_that_cannot_be_written_is_an_error_and_leaves_no_file(session: Session, tmp_path: Path):
    log = session(*sample_events())
    (tmp_path / "file").write_text("")
    with pytest.raises(OdinError, match="Cannot write"):
        export_session(log, path=str(tmp_path / "file" / "x.md"))
    assert sorted(os.listdir(tmp_path)) == ["file", "sessions"]


@pytest.mark.parametrize(
    ("path", "form", "expected"),
    [("", "", "markdown"), ("x.json", "", "json"), ("x.HTML", "", "html"), ("x.json", "md", "markdown")],
)
def test_format_is_given_or_derived_from_the_path(path: str, form: str, expected: str):
    assert choose_format(path, form) == expected


def test_unknown_format_is_refused():
    with pytest.raises(UsageError, match="Unknown export format"):
        choose_format("", "pdf")


@pytest.mark.slow
@pytest.mark.parametrize("form", ["markdown", "html", "json"])
def test_a_long_session_is_not_held_in_memory(session: Session, tmp_path: Path, form: str):
    """The file is written event by event, so the memory does not grow with the size of the results."""
    import tracemalloc

    call = ToolCall("c", "Read", {"file_path": "/project/x"})
    many: list[Any] = [SessionOpened("/project", "m", "0")]
    for number in range(300):
        many += [
            TurnStarted(f"p{number}", "again", "edit_mode"),
            Replied(ReplyMessage((call,))),
            ToolEnded("c", "Read", "success", "x\n" * 25_000),
            TurnEnded(f"p{number}", "end_turn"),
        ]
    log = session(*many)
    tracemalloc.start()
    path = export_session(log, form, str(tmp_path / "out"))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert Path(path).stat().st_size > 15_000_000
    assert peak < 6_000_000
