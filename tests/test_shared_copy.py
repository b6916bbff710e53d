"""The copy of a session that is shared: what it shows, what it leaves out, and that no secret is in it."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from odin.app.shared_copy import SharedCopy, copy_session
from odin.app.text_scrubber import EMAIL_KIND, FILE_KIND, HOME_KIND, LIKELY_KIND, TextScrubber
from odin.config.paths import make_environment
from odin.core.call_events import (
    HookRan,
    PermissionAnswered,
    Replied,
    SpawnFinished,
    SpawnStarted,
    ToolEnded,
    ToolStarted,
)
from odin.core.errors import UsageError
from odin.core.event import (
    AgentEnded,
    AgentStarted,
    AnyEvent,
    ContextAdded,
    InstructionsChanged,
    MessageRemoved,
    NoteAdded,
    PromptInjected,
    Redone,
    Rewound,
    SessionOpened,
    TitleSet,
    TurnEnded,
    TurnStarted,
)
from odin.core.message import Image, ReplyMessage, Text, Thinking, ToolCall
from odin.policy.secrets import Redactor
from tests.pictures import png
from tests.session.logs import turn
from tests.shared_sessions import SECRETS, SHAPE, list_full_events, make_text, plant_secrets, write_log
from tests.table import each

Events = Sequence[AnyEvent | tuple[str, AnyEvent]]


def copy_events(workspace: Path, events: Events, env: Mapping[str, str] | None = None) -> SharedCopy:
    log = write_log(workspace, [SessionOpened(str(workspace), "test/model", "1"), *events])
    environment = make_environment({"HOME": str(Path.home()), **(env or {})}, str(workspace))
    return copy_session(log, environment)


def read_text(copy: SharedCopy) -> str:
    return copy.encode().decode()


def test_no_secret_of_any_event_is_in_the_copy(home: Path, workspace: Path) -> None:
    env = plant_secrets(home, workspace)
    text = make_text(home)
    agent = [("helper", event) for event in list_full_events(text)]
    copy = copy_events(workspace, [*list_full_events(text), *agent], env)
    written = read_text(copy)
    assert "visible" in written
    assert [secret for secret in (*SECRETS, str(home)) if secret in written] == []
    shown = str(copy.review)
    assert [secret for secret in SECRETS if secret in shown] == [], "the review shows only their starts"
    found = {item.kind: item.count for item in copy.review.redactions}
    assert {"Anthropic key", "GitHub token", "GitLab token", "key of anthropic", "SERVICE_TOKEN"} <= set(found)
    assert {EMAIL_KIND, HOME_KIND, "DB_LOGIN in .env"} <= set(found)


def test_values_in_env_files_of_packages(workspace: Path) -> None:
    (workspace / "apps/web").mkdir(parents=True)
    (workspace / "apps/web/.env").write_text("DB_LOGIN=web8kd93nf\n")
    copy = copy_events(workspace, [*turn("a", "it prints web8kd93nf")])
    assert "it prints [redacted: DB_LOGIN in apps/web/.env]" in read_text(copy)


def test_the_review_says_what_and_where(workspace: Path) -> None:
    call = ToolCall("c1", "Bash", {"command": "env"})
    copy = copy_events(
        workspace,
        [
            TitleSet(f"Mend {SHAPE}"),
            TurnStarted("p1", f"use {SHAPE}", "edit_mode"),
            Replied(ReplyMessage((Text("I look."), call))),
            ToolStarted("c1", "Bash", call.args),
            ToolEnded("c1", "Bash", "success", f"KEY is {SHAPE}, and [redacted: OLD_TOKEN]", files=("a", "b")),
            TurnEnded("p1", "end_turn"),
        ],
    )
    review = copy.review
    assert (review.title, review.model, review.cwd) == ("Mend [redacted: Anthropic key]", "test/model", str(workspace))
    assert (review.prompts, review.answers, review.results, review.files) == (1, 1, 1, 2)
    first, second = review.redactions
    assert (first.kind, first.count, first.samples) == ("Anthropic key", 3, ("sk-a…",))
    assert first.places == ("title", "prompt 1", "result of Bash (prompt 1)")
    assert (second.kind, second.count, second.samples) == ("OLD_TOKEN", 1, ())


def test_what_only_the_user_needs_is_left_out(workspace: Path) -> None:
    secret = "only for me"
    copy = copy_events(
        workspace,
        [
            SessionOpened(str(workspace), "test/model", "1", instructions=secret, config={"secret": secret}),
            InstructionsChanged(secret),
            TurnStarted("p1", f"expanded {secret}", "edit_mode", display_text="/mend", notes=(secret,)),
            NoteAdded(secret),
            HookRan("tool_call", secret, "denied", secret),
            PermissionAnswered("a", "c1", allowed=False, reason=secret),
            ContextAdded(secret, path="/notes"),
            Replied(ReplyMessage((Thinking("hm"), Text("Done."), ToolCall("open", "Bash", {"command": secret})))),
            ToolStarted("open", "Bash", {"command": secret}),
            AgentStarted("helper", "the task", "edit_mode"),
            ("helper", TurnStarted("h1", secret, "edit_mode")),
            ("helper", ToolStarted("h2", "Read", {"file_path": secret})),
            ("helper", ToolEnded("h2", "Read", "success", secret)),
        ],
    )
    written = read_text(copy)
    assert secret not in written
    assert all(text in written for text in ("/mend", "hm", "Done.", "the task"))
    assert [line.event for line in copy.envelopes][-1] == AgentEnded("helper", "interrupted")
    assert [line.event for line in copy.envelopes if line.agent] == [ToolStarted("h2", "Read", {})]


@each(
    ("more", "shown", "hidden"),
    [
        ([], ["first", "second"], []),
        ([Rewound("r", "b", files=True, chat=True)], ["first"], ["second"]),
        ([Rewound("r", "b", files=True, chat=False)], ["first", "second"], []),
        ([Rewound("r", "b", files=True, chat=True), Redone("r")], ["first", "second"], []),
        ([Rewound("r", "b", files=True, chat=True), *turn("c", "third")], ["first", "third"], ["second"]),
        ([Rewound("r", "a", files=True, chat=True), *turn("c", "third")], ["third"], ["first", "second"]),
        (
            [Rewound("r", "b", files=True, chat=True), ContextAdded("seen", command="ls", id="x")],
            ["first", "seen"],
            ["second"],
        ),
        ([*turn("c", "third", "fine"), MessageRemoved()], ["first", "third"], ["fine"]),
        ([*turn("c", "third", "fine"), MessageRemoved(), MessageRemoved()], ["second"], ["third", "fine"]),
        (
            [
                *turn("c", "third", "fine"),
                SpawnStarted("spawn-1", "", "make"),
                *(*turn("d", "fourth", "well"), SpawnStarted("spawn-2", "", "serve")),
                Rewound("r", "d", files=True, chat=True),
                SpawnFinished("spawn-1", "finished", 0, "made"),
                SpawnFinished("spawn-2", "finished", 0, "served"),
                MessageRemoved(),
            ],
            ["third", "made"],
            ["fine", "fourth", "well", "served"],
        ),
        (
            [TurnStarted("c", "third", "edit_mode"), TurnEnded("c", "error", error_kind="PromptBlocked")],
            ["first", "second"],
            ["third"],
        ),
    ],
)
def test_what_was_taken_back_is_not_shared(
    workspace: Path, more: list[AnyEvent], shown: list[str], hidden: list[str]
) -> None:
    copy = copy_events(workspace, [*turn("a", "first"), *turn("b", "second"), *more])
    written = read_text(copy)
    assert [text for text in shown if text not in written] == []
    assert [text for text in hidden if text in written] == []


def call_events(name: str, args: Mapping[str, Any], result: str) -> list[AnyEvent]:
    return [
        TurnStarted("p1", "go", "edit_mode"),
        Replied(ReplyMessage((ToolCall("c1", name, dict(args)),))),
        ToolStarted("c1", name, dict(args), str(args.get("command", "a description"))),
        ToolEnded("c1", name, "success", result, display=result, note=result, for_user=result),
        TurnEnded("p1", "end_turn"),
    ]


PLAIN = "hunter two"
"""Nothing tells that this is a secret but where it is."""


@each(
    ("name", "args"),
    [
        ("Read", {"file_path": "/project/.env"}),
        ("Bash", {"command": "cd x && cat ./.env.local | sort"}),
        ("Bash", {"command": f"cat > .env <<EOF\nA={PLAIN}\nEOF"}),
        ("Edit", {"file_path": "config/.env", "old_string": "A=1", "new_string": f"A={PLAIN}"}),
        ("apply_patch", {"patch": f"*** Begin Patch\n*** Update File: .env\n+A={PLAIN}\n*** End Patch"}),
        ("mcp__files__read", {"paths": ["a.txt", "/home/x/.ssh/id_ed25519"]}),
        ("Write", {"file_path": "~/.netrc", "content": f"machine a.io login me password {PLAIN}"}),
        ("Edit", {"file_path": "secrets.yml", "old_string": "x", "new_string": PLAIN}),
        ("MultiEdit", {"file_path": ".env", "edits": [{"old_string": "x", "new_string": PLAIN}]}),
        ("Bash", {"command": f"echo '{PLAIN}' > ~/.pgpass"}),
        ("Bash", {"command": "cat .env*"}),
        ("Bash", {"command": "true " * 5000 + "; cat .env"}),
        ("mcp__shell__run", {"cmd": "true\n" * 200 + "cat .env"}),
        ("Grep", {"pattern": "A", "glob": ".env*"}),
    ],
)
def test_the_content_of_secret_files(workspace: Path, name: str, args: Mapping[str, Any]) -> None:
    copy = copy_events(workspace, call_events(name, args, f"A={PLAIN}"))
    assert PLAIN not in read_text(copy)
    assert FILE_KIND in [item.kind for item in copy.review.redactions]


def test_a_process_with_a_secret_file(workspace: Path) -> None:
    """Its output is also in the report of its end, and in the result of who asks for it."""
    copy = copy_events(
        workspace,
        [
            TurnStarted("p1", "go", "edit_mode"),
            SpawnStarted("spawn-1", "c1", f"tail -f .env; echo {PLAIN}", f"says {PLAIN}"),
            ToolStarted("c2", "SpawnStatus", {"id": "spawn-1"}, "spawn-1"),
            ToolEnded("c2", "SpawnStatus", "success", PLAIN),
            SpawnFinished("spawn-1", "finished", 0, PLAIN),
            PromptInjected("spawn-1-ended", f"It ended: {PLAIN}", "edit_mode", source="mail", turn="p1"),
            ContextAdded(PLAIN, command=f"echo {PLAIN} >> .env", id="x"),
        ],
    )
    assert PLAIN not in read_text(copy)
    assert "spawn-1" in read_text(copy)


def test_a_command_that_only_reads_a_secret_file_is_shown(workspace: Path) -> None:
    written = read_text(copy_events(workspace, call_events("Bash", {"command": "cd x && cat .env | wc"}, PLAIN)))
    assert "cd x && cat .env | wc" in written and PLAIN not in written


def test_other_files_stay(workspace: Path) -> None:
    copy = copy_events(workspace, call_events("Read", {"file_path": "/project/.env.example"}, "A=visible"))
    assert "A=visible" in read_text(copy)
    assert copy.review.redactions == ()


def test_a_value_is_judged_by_its_key(workspace: Path) -> None:
    args = {"headers": {"x-api-key": "q8w7e6r5"}, "password": "a1s2d3f4", "author": "Jane", "text": "q8w7e6r5x"}
    written = read_text(copy_events(workspace, call_events("mcp__web__post", args, "ok")))
    assert '"q8w7e6r5"' not in written and "a1s2d3f4" not in written
    assert "Jane" in written and "q8w7e6r5x" in written
    args = {"password": "hunter", "apiKey": "Zx9Qw8Er", "cookies": "sid=abcdefgh", "key": "Enter", "token": "$TOKEN"}
    written = read_text(copy_events(workspace, call_events("mcp__web__post", args, "ok")))
    assert [value for value in ("hunter", "Zx9Qw8Er", "abcdefgh") if value in written] == []
    assert "Enter" in written and "$TOKEN" in written


@each(
    "text",
    [
        "DB_PASS={}",
        "export MYSQL_PWD='{}'",
        "SECRET_KEY_BASE={}",
        '"AES_KEY": "{}"',
        "password: {}",
        '{{"password": "{}"}}',
        "machine a.io login me password {}",
        "tool --password {}",
        "curl -sS -u me:{} https://a.io",
        "sshpass -p {} ssh a.io",
        "docker login -u me -p {}",
        "Cookie: theme=dark; sid={}",
        "Set-Cookie: sid={}; Path=/",
        "https://{}wert9yui@github.com/a/b",
    ],
)
def test_likely_secrets(workspace: Path, text: str) -> None:
    secret = "hunter2x9zqwert"
    copy = copy_events(workspace, [*turn("a", text.format(secret))])
    assert secret not in read_text(copy)
    assert [item.kind for item in copy.review.redactions] == [LIKELY_KIND]


@each(
    "text",
    [
        "password: string; password = hash2(x); passwords 123456",
        "API_KEY=os.environ['API_KEY'] TOKEN=$TOKEN KEY=value SECRET=your_secret_here KEY=/home/x/file",
        "curl -u $USER:$PASS https://a.io; docker run -p 8080:80 -u 1000:1000 x; the cookie: a small thing",
        "https://git@github.com/a/b ssh://me@a.io/x",
    ],
)
def test_what_is_no_secret_stays(workspace: Path, text: str) -> None:
    environment = make_environment({"HOME": "/home/jane", "USER": "jane"}, str(workspace))
    assert TextScrubber(Redactor({}), environment).scrub(text) == text


def test_arguments_are_those_that_ran(workspace: Path) -> None:
    events = call_events("Bash", {"command": "echo one"}, "two")
    events[2] = ToolStarted("c1", "Bash", {"command": "echo two"})
    assert "echo one" not in read_text(copy_events(workspace, events))


def test_images_only_if_asked_for(workspace: Path) -> None:
    folder = write_log(workspace, [*turn("a", "first")]).parent.parent

    def share(*, with_images: bool, session: str) -> SharedCopy:
        log = folder / session / "main.jsonl"
        inside, outside = log.parent / f"{SHAPE}.png", workspace / "other.png"
        images = (Image(str(inside), "image/png", 2, 2), Image(str(outside), "image/png", 2, 2))
        write_log(workspace, [TurnStarted("p1", "look", "edit_mode", images=images)], session)
        inside.write_bytes(png(2, 2))
        outside.write_bytes(png(2, 2))
        environment = make_environment({"HOME": str(Path.home())}, str(workspace))
        return copy_session(log, environment, with_images=with_images)

    without = share(with_images=False, session="without")
    assert (without.review.images, without.review.left_out_images, dict(without.images)) == (0, 2, {})
    assert "image/png" not in read_text(without)
    copy = share(with_images=True, session="with")
    assert (copy.review.images, copy.review.left_out_images) == (1, 1)
    assert dict(copy.images) == {"image-1.png": png(2, 2)}
    assert SHAPE not in read_text(copy) and str(folder) not in read_text(copy)


def test_a_session_without_prompts(workspace: Path) -> None:
    with pytest.raises(UsageError, match="has no prompt yet"):
        copy_events(workspace, [*turn("a", "first"), Rewound("r", "a", files=True, chat=True)])


def test_injected_prompts_and_titles(workspace: Path) -> None:
    copy = copy_events(
        workspace,
        [
            TurnStarted("p1", "one\ntwo", "edit_mode"),
            PromptInjected("p2", "and three", "edit_mode", turn="p1", notes=("for the model",)),
            TurnEnded("p1", "end_turn"),
        ],
    )
    assert (copy.review.title, copy.review.prompts) == ("one two", 2)
    assert "and three" in read_text(copy) and "for the model" not in read_text(copy)


@each(
    ("text", "clean"),
    [
        ("/home/jane/a and file:///home/jane/b", "~/a and file://~/b"),
        ("-I/home/jane/include:/home/jane", "-I~/include:~"),
        (r"\/home\/jane\/x %2Fhome%2Fjane%2Fy", r"~\/x ~%2Fy"),
        ("-home-jane-project", "-~-project"),
        ("/home/janet /home/jane2", "/home/janet /home/jane2"),
        ("/tmp/pytest-of-jane/x jane@laptop:~$", "/tmp/pytest-of-user/x user@laptop:~$"),
        ("-rw-r--r-- 1 jane jane 12 a", "-rw-r--r-- 1 user user 12 a"),
        ("ask Jane about jane", "ask Jane about jane"),
        ("USER=jane\nuid=1000(jane) x", "USER=user\nuid=1000(user) x"),
        ("jane  12 0.0 bash; chown jane:jane ~jane/x", "user  12 0.0 bash; chown user:user ~user/x"),
        (r"C:\Users\jane\x", r"C:\Users\user\x"),
        ("https://a.io/u/a@corp.de/x?m=a%40corp.de", "https://a.io/u/[redacted: e-mail]/x?m=[redacted: e-mail]"),
        ("a@münchen.de, ssh://git@corp.de/x", "[redacted: e-mail], ssh://git@corp.de/x"),
        ("mail a.b+c@corp.de, git@github.com:x/y", "mail [redacted: e-mail], git@github.com:x/y"),
        ("icon@2x.png me@example.com npm@10.2.3 @decorator", "icon@2x.png me@example.com npm@10.2.3 @decorator"),
        ("\x1b[31mred\x1b[0m\r\n\x9b1mbold\u202e", "red\nbold"),
        ("", ""),
    ],
)
def test_what_tells_who_the_user_is(workspace: Path, text: str, clean: str) -> None:
    environment = make_environment({"HOME": "/home/jane", "USER": "jane"}, str(workspace))
    assert TextScrubber(Redactor({}), environment).scrub(text) == clean


def test_the_link_of_another_share(workspace: Path) -> None:
    link = "https://odin.example.com/#share/3fd7dc5a/rYbcY-x9dpPMZ7iNy-oS1g"
    written = read_text(copy_events(workspace, [*turn("a", f"see {link}.")]))
    assert "see https://odin.example.com/[redacted: link of a share]." in written


@each(("home", "shown"), [("/srv/ada", "see ~/x"), ("/", "see /srv/ada/x"), ("", "see /srv/ada/x")])
def test_unusual_homes(workspace: Path, home: str, shown: str) -> None:
    environment = make_environment({"HOME": home, "USER": "root"}, str(workspace))
    scrubber = TextScrubber(Redactor({}), environment)
    assert scrubber.scrub("/mnt/root/x / root") == "/mnt/root/x / root"
    assert scrubber.scrub("see /srv/ada/x") == shown
