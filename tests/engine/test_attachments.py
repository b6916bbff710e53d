"""Attached files and images: from the prompt to the request, through the queue, a crash and a resume."""

import asyncio
import os
import threading
from pathlib import Path
from typing import Any, cast

import pytest

from odin.app.attachments import AttachmentReader
from odin.core.call_events import FileCached, ToolEnded, ToolStarted
from odin.core.errors import EmptyPrompt, UsageError
from odin.core.event import Compacted, PromptChanged, PromptInjected, PromptQueued, TurnStarted, Warned
from odin.core.event_values import Mode
from odin.core.message import Attachment
from odin.core.op import ChangePrompt, Compact, Interrupt, Prompt
from odin.core.tool import Target
from odin.testing import call, say
from odin.testing.script import SeenRequest
from tests import pictures
from tests.waiting import until

from .conftest import Start, Talk
from .test_images import APIS, api_options, list_images

TEXT = "def one():\n    return 1\n\n\ndef two():\n    return 2\n"


@pytest.fixture
def code(workspace: Path) -> Path:
    path = workspace / "a.py"
    path.write_text(TEXT)
    return path


def request_text(talk: Talk, number: int = -1) -> str:
    """Return all texts in the messages of a request."""
    return "\n".join(_list_texts(talk.server.requests[number].messages))


def _list_texts(value: Any) -> list[str]:
    if isinstance(value, dict):
        found = cast("dict[str, Any]", value)
        return [found["text"]] if isinstance(found.get("text"), str) else _list_texts(list(found.values()))
    if isinstance(value, list):
        return [text for item in cast("list[Any]", value) for text in _list_texts(item)]
    return [value] if isinstance(value, str) else []


def warnings(talk: Talk) -> list[str]:
    return [event.text for event in talk.all(Warned) if event.level != "info"]


async def submit_attached(talk: Talk, text: str, *attached: Attachment, name: str = "q1") -> None:
    await talk.client.submit(Prompt(name, text, attachments=attached))
    await talk.until_end(name)


class TestText:
    @pytest.mark.parametrize("api", APIS)
    async def test_a_mentioned_file_is_read_for_the_model(self, start: Start, code: Path, api: str) -> None:
        talk = await start([say("Two functions.")], **api_options(api))
        await talk.say("explain @a.py, please")
        assert f"Context from {code}:\n     1\tdef one():\n     2\t    return 1\n" in request_text(talk)
        assert "explain @a.py, please" in request_text(talk)
        assert [(event.text, event.level) for event in talk.all(Warned)] == [("Attached a.py, 6 lines.", "info")]

    async def test_mentioned_line_range_is_read_for_the_model(self, start: Start, code: Path) -> None:
        talk = await start([say("One.")])
        await talk.say("explain @a.py:5-6")
        assert f"Context from {code}:5-6:\n     5\tdef two():\n     6\t    return 2\n" in request_text(talk)
        assert "def one" not in request_text(talk)
        assert [event.text for event in talk.all(Warned)] == ["Attached a.py, lines 5-6 of 6."]

    async def test_attachment_of_the_prompt_is_read_for_the_model(self, start: Start, code: Path) -> None:
        talk = await start([say("One.")])
        await submit_attached(talk, "explain it", Attachment("a.py", 1, 2))
        assert f"Context from {code}:1-2:\n     1\tdef one():\n     2\t    return 1\n" in request_text(talk)
        (turn,) = talk.all(TurnStarted)
        assert turn.attachments == (Attachment("a.py", 1, 2),)

    async def test_mention_can_be_quoted_in_the_home_folder_or_absolute(
        self, start: Start, workspace: Path, home: Path, tmp_path: Path
    ) -> None:
        (workspace / "a b.txt").write_text("spaces\n")
        (home / "own.txt").write_text("homely\n")
        (tmp_path / "far.txt").write_text("distant\n")
        talk = await start([say("ok")], yes=False)
        await talk.say(f'read @"a b.txt":1 and @~/own.txt and (@{tmp_path}/far.txt)')
        for word in ("spaces", "homely", "distant"):
            assert f"     1\t{word}" in request_text(talk)
        assert warnings(talk) == []

    @pytest.mark.parametrize(
        ("text", "missing"),
        [
            ("write to me@a.py today", ""),
            ("what does @dataclass do, and @types/node?", ""),
            ("an e-mail: joe@example.org", ""),
            ("see @src/missing.py:1-5, please", "src/missing.py"),
        ],
    )
    async def test_at_sign_without_a_file_attaches_nothing(
        self, start: Start, code: Path, text: str, missing: str
    ) -> None:
        talk = await start([say("ok")])
        await talk.say(text)
        assert "Context from" not in request_text(talk)
        assert "not attached" not in request_text(talk)
        assert warnings(talk) == ([f"@{missing} was not attached: there is no such file."] if missing else [])

    async def test_a_folder_is_listed(self, start: Start, code: Path, workspace: Path) -> None:
        (workspace / "src" / "inner").mkdir(parents=True)
        (workspace / "src" / "main.py").write_text("x\n")
        talk = await start([say("ok")])
        await talk.say("what is in @src/?")
        assert f"Context from {workspace}/src:\n{workspace}/src/\n  inner/\n  main.py" in request_text(talk)

    async def test_file_attached_whole_can_be_edited(self, start: Start, code: Path) -> None:
        edit = call("EditTool", {"file_path": str(code), "old_string": "return 1", "new_string": "return 11"})
        talk = await start([edit, say("Done.")])
        await talk.say("make it 11 in @a.py")
        (ended,) = talk.all(ToolEnded)
        assert ended.status == "success", ended.text
        assert "return 11" in code.read_text()

    async def test_lines_that_were_not_attached_cannot_be_edited(self, start: Start, code: Path) -> None:
        code.write_text("".join(f"line {number}\n" for number in range(1, 2001)))
        edit = call("EditTool", {"file_path": str(code), "old_string": "line 1500\n", "new_string": "changed\n"})
        talk = await start([edit, say("No.")])
        await talk.say("change it in @a.py:1-5")
        (ended,) = talk.all(ToolEnded)
        assert ended.status == "error"
        assert "line 1500\n" in code.read_text()

    async def test_attached_file_can_be_edited_after_a_resume(self, start: Start, code: Path) -> None:
        edit = call("EditTool", {"file_path": str(code), "old_string": "return 1", "new_string": "return 11"})
        talk = await start([say("Seen."), edit, say("Done.")])
        await talk.say("look at @a.py")
        assert [event.file.path for event in talk.all(FileCached)] == [str(code)]
        session = (await talk.client.get_info()).session
        await talk.client.close()
        again = await start(None, server=talk.server, resume=session)
        await again.say("now make it 11")
        (ended,) = again.all(ToolEnded)
        assert ended.status == "success", ended.text
        first, second = (request.messages[0] for request in talk.server.requests[:2])
        assert _list_texts(first) == _list_texts(second)

    async def test_sent_attachment_stays_the_same_when_the_file_changes(self, start: Start, code: Path) -> None:
        talk = await start([say("One."), say("Two.")])
        await talk.say("look at @a.py")
        code.write_text("changed = True\n")
        await talk.say("again @a.py")
        first, second = (request.messages for request in talk.server.requests)
        assert _list_texts(second[0]) == _list_texts(first[0])
        assert "     1\tchanged = True" in _list_texts(second)[-1]

    async def test_secrets_are_redacted(self, start: Start, workspace: Path) -> None:
        key = "ghp_" + "a1B2c3D4e5" * 4
        (workspace / "settings.py").write_text(f"TOKEN = '{key[:40]}'\nDEBUG = True\n")
        talk = await start([say("ok")])
        await talk.say("look at @settings.py")
        assert key[:40] not in request_text(talk)
        assert "[redacted: " in request_text(talk)
        assert "DEBUG = True" in request_text(talk)

    async def test_redaction_placeholder_cannot_be_written_after_a_resume(self, start: Start, workspace: Path) -> None:
        (workspace / "settings.py").write_text("TOKEN = 'ghp_aB3dE5gH7jK9mN1pQ2rS4tU6vW8xY0zA1234'\n")
        write = call("WriteFile", {"file_path": str(workspace / "b"), "content": "x = '[redacted: GitHub token]'\n"})
        talk = await start([say("ok"), write, say("No.")])
        await talk.say("look at @settings.py")
        session = (await talk.client.get_info()).session
        await talk.client.close()
        again = await start(None, server=talk.server, resume=session)
        await again.say("copy it")
        assert [event.status for event in again.all(ToolEnded)] == ["error"]
        assert not (workspace / "b").exists()

    async def test_project_command_attaches_only_project_files_unless_typed_by_the_user(
        self, start: Start, code: Path, tmp_path: Path
    ) -> None:
        (tmp_path / "far.txt").write_text("distant\n")
        text = f"check @a.py and @{tmp_path}/far.txt"
        talk = await start([say("ok"), say("ok")])
        await talk.client.submit(Prompt("q1", text, display_text="/check"))
        await talk.until_end("q1")
        assert "def one" in request_text(talk)
        assert "distant" not in request_text(talk)
        await talk.client.submit(Prompt("q2", text, display_text=f"/check @{tmp_path}/far.txt"))
        await talk.until_end("q2")
        assert "distant" in request_text(talk)

    async def test_interrupt_while_an_attachment_is_read(
        self, start: Start, code: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        reading = asyncio.Event()

        async def never(self: AttachmentReader, item: Attachment, target: Target, mode: Mode) -> Any:
            reading.set()
            await asyncio.Event().wait()

        talk = await start([say("Fine.")])
        with monkeypatch.context() as slow:
            slow.setattr(AttachmentReader, "_read_item", never)
            await talk.client.submit(Prompt("q1", "look at @a.py"))
            await reading.wait()
            await talk.client.submit(Interrupt())
            assert (await talk.until_end("q1")).reason == "interrupted"
        assert [(event.text, event.images) for event in talk.all(TurnStarted)] == [("look at @a.py", ())]
        await talk.say("go on")
        assert "look at @a.py" in request_text(talk)
        assert "Context from" not in request_text(talk)


class TestLeftOut:
    @pytest.mark.parametrize("name", [".env", "id_rsa", "secrets.json"])
    async def test_secret_file_is_left_out_with_a_warning(self, start: Start, workspace: Path, name: str) -> None:
        (workspace / name).write_text("PASSWORD=hunter22hunter22\n")
        talk = await start([say("ok")], yes=False)
        await talk.say(f"look at @{name}")
        assert "hunter22" not in request_text(talk)
        (warned,) = warnings(talk)
        assert warned.startswith(f"{workspace / name} was not attached: ")
        assert "secrets" in warned

    async def test_file_denied_by_a_rule_is_left_out(self, start: Start, code: Path) -> None:
        talk = await start([say("ok")], disallowed_tools=("Read(a.py)",))
        await talk.say("look at @a.py")
        assert "def one" not in request_text(talk)
        assert "The rule 'Read(a.py)' denies it." in warnings(talk)[0]

    async def test_unreadable_kinds_of_files_are_reported_and_the_turn_goes_on(
        self, start: Start, code: Path, workspace: Path
    ) -> None:
        (workspace / "blob").write_bytes(bytes(range(256)) * 10)
        os.mkfifo(workspace / "pipe")
        (workspace / "empty").write_bytes(b"")
        (workspace / "huge").write_bytes(b"")
        os.truncate(workspace / "huge", 60_000_000)
        talk = await start([say("Fine.")])
        ended = await talk.say("look at @blob @pipe @empty @a.py:100-200 @huge")
        assert ended.text == "Fine."
        reported = warnings(talk)
        assert [line.partition(" was not attached: ")[0] for line in reported] == [
            str(workspace / name) for name in ("blob", "pipe", "a.py", "huge")
        ]
        assert "binary file" in reported[0]
        assert "pipe" in reported[1]
        assert "has only 6 lines" in reported[2]
        assert "too large" in reported[3]
        assert "(empty file)" in request_text(talk)
        assert f"{workspace / 'blob'}, which the user mentions, was not attached: " in request_text(talk)

    async def test_links_to_secret_or_special_files_are_refused(self, start: Start, workspace: Path) -> None:
        (workspace / ".env").write_text("PASSWORD=hunter22hunter22\n")
        targets = {"a.txt": ".env", "b.txt": "/dev/zero", "c.txt": "/proc/self/environ", "d.txt": "/etc/shadow"}
        for name, target in targets.items():
            (workspace / name).symlink_to(target)
        (workspace / "hard.txt").hardlink_to(workspace / ".env")
        os.mkfifo(workspace / "pipe")
        (workspace / "e.txt").symlink_to("pipe")
        (workspace / "sparse").touch()
        os.truncate(workspace / "sparse", 2_000_000_000)
        talk = await start([say("Fine.")], yes=False)
        asked = "@a.txt @b.txt @c.txt @d.txt @e.txt @hard.txt @sparse @sparse:1-5 @/dev/zero @/proc/self/environ"
        assert (await talk.say(f"look at {asked}")).text == "Fine."
        assert (
            "hunter22" not in request_text(talk)
            and "root:" not in request_text(talk)
            and "HOME=" not in request_text(talk)
        )
        assert "PASSWORD=[redacted: password]" in request_text(talk)
        refused = [line for line in warnings(talk) if " was not attached: " in line]
        assert len(refused) == 9 - (not Path("/etc/shadow").exists())
        assert len(request_text(talk)) < 10_000

    async def test_file_without_read_permission_is_reported(self, start: Start, code: Path) -> None:
        if os.geteuid() == 0:
            pytest.skip("root reads everything")
        code.chmod(0)
        talk = await start([say("ok")])
        await talk.say("look at @a.py")
        assert "permission denied" in warnings(talk)[0]

    async def test_long_file_is_cut_like_a_read_result(self, start: Start, code: Path) -> None:
        code.write_text("".join(f"line {number}\n" for number in range(1, 5001)))
        talk = await start([say("ok")])
        await talk.say("look at @a.py")
        assert "(showing lines 1-2000 of 5000 total; go on with offset=2001)" in request_text(talk)

    async def test_total_size_of_attachments_is_limited(self, start: Start, workspace: Path) -> None:
        for number in range(6):
            (workspace / f"{number}.txt").write_text(("y" * 99 + "\n") * 480)
        talk = await start([say("ok")])
        await talk.say(" ".join(f"@{number}.txt" for number in range(6)))
        assert len(warnings(talk)) >= 2
        assert "together are too large" in warnings(talk)[-1]
        assert len(request_text(talk)) < 200_000

    async def test_output_of_a_process_attaches_nothing(self, start: Start, code: Path) -> None:
        """Only the user attaches files: `@` mentions in the output of a program are plain text."""
        command = f"until [ -e go ]; do sleep 0.02; done; echo look at @{code}; exit 3"
        talk = await start([call("Spawn", {"command": command}), say("Waiting."), say("It said so.")])
        await talk.say("go")
        (code.parent / "go").touch()
        await until(lambda: len(talk.server.requests) >= 3)
        assert f"The end of its output:\nlook at @{code}" in request_text(talk)
        assert f"Context from {code}" not in request_text(talk)

    async def test_attachment_of_a_blocked_prompt_cannot_be_edited(self, start: Start, code: Path) -> None:
        hook = {"hooks": {"UserPromptSubmit": [{"hooks": [{"type": "command", "command": "grep -q @a.py && exit 2"}]}]}}
        edit = call("EditTool", {"file_path": str(code), "old_string": "return 1", "new_string": "return 11"})
        talk = await start([edit, say("No.")], config=hook)
        assert (await talk.say("look at @a.py")).error_kind == "PromptBlocked"
        assert talk.all(FileCached) == []
        await talk.say("change it")
        assert [event.status for event in talk.all(ToolEnded)] == ["error"]


class TestImages:
    @pytest.mark.parametrize("api", APIS)
    async def test_model_sees_images_in_all_requests_and_after_a_resume(
        self, start: Start, workspace: Path, api: str
    ) -> None:
        shot, pasted = pictures.png(80, 60), pictures.png(5, 5, shade=9)
        (workspace / "shot.png").write_bytes(shot)
        talk = await start([say("A box."), say("Yes."), say("Still.")], **api_options(api))
        await submit_attached(
            talk, "what is on @shot.png", Attachment("Clipboard", data=pasted, media_type="image/png")
        )
        (turn,) = talk.all(TurnStarted)
        assert sorted(image.name for image in turn.images) == ["Clipboard", "shot.png"]
        assert all("/images/" in image.path for image in turn.images)
        assert all(not item.data for item in turn.attachments)
        assert "(image: shot.png, 80x60, png" in request_text(talk)
        (workspace / "shot.png").unlink()
        await talk.say("sure?")
        session = (await talk.client.get_info()).session
        await talk.client.close()
        again = await start(None, server=talk.server, resume=session, **api_options(api))
        await again.say("and now?")
        assert [list_images(seen) for seen in talk.server.requests] == [[pasted, shot]] * 3
        assert talk.server.rejected == []
        firsts = [request.messages[0] for request in talk.server.requests]
        assert (
            _without_cache_control(firsts[0]) == _without_cache_control(firsts[1]) == _without_cache_control(firsts[2])
        )

    async def test_image_needs_no_prompt_text(self, start: Start) -> None:
        talk = await start([say("A box.")])
        await submit_attached(talk, "", Attachment("x.png", data=pictures.png()))
        assert list_images(talk.server.requests[0]) == [pictures.png()]
        assert talk.server.rejected == []
        with pytest.raises(EmptyPrompt):
            await talk.client.submit(Prompt("q2", " "))

    @pytest.mark.parametrize("api", APIS)
    async def test_model_without_image_support_gets_a_note(self, start: Start, workspace: Path, api: str) -> None:
        options = api_options(api)
        name = options["api"]
        model = {"anthropic": "claude-sonnet-4-5", "google": "gemini-3.8-flash"}.get(name, "gpt-4.1")
        provider = options.pop("config", {}).get("providers", {}).get(name, {})
        config = {"providers": {name: {**provider, "models": {model: {"images": False}}}}}
        talk = await start([say("I cannot see.")], **options, config=config)
        await submit_attached(talk, "look", Attachment("x.png", data=pictures.png()))
        assert list_images(talk.server.requests[0]) == []
        assert "look\n(The user attached images, which this model is not shown.)" in request_text(talk)
        assert warnings(talk) == ["This model does not support images. It is only told that some were attached."]

    @pytest.mark.parametrize(
        ("data", "why"),
        [
            (b"", "it is empty"),
            (pictures.png()[:-20], "it is cut off"),
            (b"\x89PNG\r\n\x1a\nbroken", "its header is damaged"),
            (b"not an image", "not a PNG"),
            (pictures.png(12000, 1), "12000x1 pixels"),
            (pictures.png(noise=os.urandom(4_500_000)), "4.5 MB"),
            (pictures.png(noise=os.urandom(5_100_000)), "at most 5.0 MB"),
        ],
        ids=["empty", "cut", "broken", "other", "wide", "large", "huge"],
    )
    async def test_invalid_image_is_refused_on_submission(
        self, start: Start, workspace: Path, data: bytes, why: str
    ) -> None:
        (workspace / "odd.png").write_bytes(data)
        talk = await start([say("ok")])
        with pytest.raises(UsageError, match=r"odd\.png cannot be attached") as refused:
            await talk.client.submit(Prompt("q1", "look at @odd.png"))
        assert why in str(refused.value)
        assert refused.value.hint
        assert (await talk.client.snapshot()).messages == ()
        await talk.say("never mind")
        assert len(talk.server.requests) == 1

    async def test_prompt_takes_at_most_five_images(self, start: Start, workspace: Path) -> None:
        for number in range(3):
            (workspace / f"{number}.png").write_bytes(pictures.png(shade=number))
        passed = [Attachment(f"b{number}", data=pictures.png(shade=9 + number)) for number in range(3)]
        talk = await start([say("ok")])
        with pytest.raises(UsageError, match="6 images are attached; a prompt can have at most 5"):
            await talk.client.submit(Prompt("q1", "@0.png @1.png @2.png", attachments=tuple(passed)))
        await submit_attached(talk, "@0.png @1.png", *passed)
        assert len(list_images(talk.server.requests[0])) == 5

    async def test_image_damaged_while_queued_is_reported(self, start: Start, workspace: Path) -> None:
        (workspace / "x.png").write_bytes(pictures.png())
        gate = threading.Event()
        talk = await start([say("One.").hold(gate), say("Two.")])
        await talk.client.submit(Prompt("p", "go"))
        await talk.client.submit(Prompt("q", "look at @x.png"))
        (workspace / "x.png").write_bytes(b"\x89PNG\r\n\x1a\nno")
        gate.set()
        ended = await talk.until_end("q")
        assert ended.reason == "end_turn"
        assert "cannot be shown" in warnings(talk)[0]

    async def test_pasted_text_is_attached_and_pasted_binary_is_refused(self, start: Start) -> None:
        talk = await start([say("ok")])
        await submit_attached(talk, "what is it?", Attachment("paste.txt", data=b"one\ntwo\n"))
        assert "     1\tone\n     2\ttwo" in request_text(talk)
        with pytest.raises(UsageError, match="cannot be attached"):
            await talk.client.submit(Prompt("q2", "and?", attachments=(Attachment("x.bin", data=b"\0\1\2"),)))

    async def test_old_images_are_no_longer_shown_when_there_are_many(self, start: Start) -> None:
        """Images of prompts and of tool results share one limit, so no request shows more than an API accepts."""
        talk = await start([say(f"{number}") for number in range(8)])
        for number in range(8):
            shots = [Attachment("s", data=pictures.png(shade=number * 5 + each)) for each in range(4)]
            await submit_attached(talk, "look", *shots, name=f"q{number}")
        counts = [len(list_images(request)) for request in talk.server.requests]
        assert max(counts) <= 20
        assert counts[-1] < 32
        assert "no longer shown" in request_text(talk)
        assert talk.server.rejected == []

    async def test_images_of_kept_prompts_survive_a_compaction(self, start: Start) -> None:
        talk = await start([say("## Goal\nx")] * 12)
        for number in range(6):
            await submit_attached(
                talk, f"look {number}", Attachment("s", data=pictures.png(shade=number)), name=f"q{number}"
            )
        await talk.client.submit(Compact())
        await talk.until(Compacted)
        assert (await talk.say("go on")).reason == "end_turn"
        assert b"# Summary of the conversation" in talk.server.requests[-1].body
        assert "look 0" not in request_text(talk)
        assert list_images(talk.server.requests[-1]) == [pictures.png(shade=5)], "the kept prompt keeps its image"
        assert "look 5" in request_text(talk)
        assert talk.server.rejected == []


class TestQueue:
    async def test_queued_attachment_is_read_when_the_turn_starts(self, start: Start, code: Path) -> None:
        gate = threading.Event()
        talk = await start([say("One.").hold(gate), say("Two.")])
        await talk.client.submit(Prompt("p", "go"))
        await talk.client.submit(Prompt("q", "look at @a.py", attachments=(Attachment("x.png", data=pictures.png()),)))
        code.write_text("newer = True\n")
        gate.set()
        await talk.until_end("q")
        assert "     1\tnewer = True" in request_text(talk)
        assert list_images(talk.server.requests[-1]) == [pictures.png()]
        (queued,) = talk.all(PromptQueued)
        assert [(item.name, item.data) for item in queued.attachments] == [("x.png", b"")]

    async def test_changed_prompt_keeps_its_text_or_attachments_unless_replaced(self, start: Start, code: Path) -> None:
        gate = threading.Event()
        talk = await start([say("One.").hold(gate), say("Two.")])
        await talk.client.submit(Prompt("p", "go"))
        await talk.client.submit(Prompt("q", "look", attachments=(Attachment("a.py", 1, 1),)))
        await talk.client.submit(ChangePrompt("q", "look well"))
        assert (await talk.client.snapshot()).queue[0].attachments == (Attachment("a.py", 1, 1),)
        with pytest.raises(UsageError):
            await talk.client.submit(ChangePrompt("q", attachments=(Attachment("y.png", data=b"no"),)))
        await talk.client.submit(ChangePrompt("q", attachments=(Attachment("a.py", 5, 5),)))
        gate.set()
        await talk.until_end("q")
        assert [event.attachments for event in talk.all(PromptChanged)][-1] == (Attachment("a.py", 5, 5),)
        assert "look well" in request_text(talk)
        assert f"Context from {code}:5-5:\n     5\tdef two():" in request_text(talk)

    async def test_queued_attachments_survive_a_resume(self, start: Start, code: Path) -> None:
        gate = threading.Event()
        talk = await start([say("One.").hold(gate), say("Two.")])
        await talk.client.submit(Prompt("p", "go"))
        await talk.client.submit(Prompt("q", "look at @a.py", attachments=(Attachment("x.png", data=pictures.png()),)))
        session = (await talk.client.get_info()).session
        gate.set()
        await talk.client.close()
        again = await start([say("Two.")], resume=session)
        assert [item.attachments[0].name for item in (await again.client.snapshot()).queue] == ["x.png"]
        await again.client.submit(ChangePrompt("q", delivery="queue"))
        await again.until_end("q")
        assert "     1\tdef one():" in request_text(again)
        assert list_images(again.server.requests[-1]) == [pictures.png()]

    @pytest.mark.parametrize("delivery", ["merge", "steer"])
    @pytest.mark.parametrize("api", APIS)
    async def test_attachments_of_an_injected_prompt_join_the_turn(
        self, start: Start, code: Path, delivery: Any, api: str
    ) -> None:
        gate = threading.Event()
        script = [call("LS", {"path": str(code.parent)}).hold(gate), say("Seen.")]
        talk = await start(script, **api_options(api))
        await talk.client.submit(Prompt("p", "go"))
        image = Attachment("x.png", data=pictures.png())
        await talk.client.submit(Prompt("q", "and @a.py:1-1", delivery=delivery, attachments=(image,)))
        gate.set()
        await talk.until_end("p")
        (joined,) = talk.all(PromptInjected)
        assert [item.name for item in joined.images] == ["x.png"]
        assert f"Context from {code}:1-1:\n     1\tdef one():" in request_text(talk)
        assert list_images(talk.server.requests[-1]) == [pictures.png()]
        assert talk.server.rejected == []

    async def test_queued_attachment_waits_after_an_interrupt(self, start: Start, code: Path) -> None:
        talk = await start([call("ExecuteCommand", {"command": "sleep 30"}), say("Two.")])
        await talk.client.submit(Prompt("p", "go"))
        await talk.until_live(ToolStarted)
        await talk.client.submit(Prompt("q", "look at @a.py"))
        await talk.client.submit(Prompt("r", "just words"))
        await talk.client.submit(Interrupt())
        await talk.until_end("p")
        assert talk.all(PromptInjected) == []
        assert [item.id for item in (await talk.client.snapshot()).queue] == ["q", "r"]
        await talk.client.submit(ChangePrompt("q", delivery="queue"))
        await talk.until_end("q")
        assert "     1\tdef one():" in request_text(talk)


def _without_cache_control(value: Any) -> Any:
    if isinstance(value, dict):
        items = cast("dict[str, Any]", value).items()
        return {name: _without_cache_control(item) for name, item in items if name != "cache_control"}
    return [_without_cache_control(item) for item in cast("list[Any]", value)] if isinstance(value, list) else value


def test_images_of_finds_images_of_prompts() -> None:
    part = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGk="}}
    seen = SeenRequest("POST", "/", {}, b"", {"messages": [{"role": "user", "content": [part]}]}, "anthropic", 0.0)
    assert list_images(seen) == [b"hi"]
