"""Custom commands: their sources and precedence, and what a poisoned repository cannot do with them."""

import os
from pathlib import Path
from typing import Any

import pytest

from odin.context import markdown_folder as folder_module
from odin.context.library import CommandFolder, CommandLibrary, ConfiguredCommands, split_command
from odin.context.markdown_folder import split_front_matter


def write(path: Path, text: str | bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def make_library(
    root: Path, user: Path, project: dict[str, Any] | None = None, own: dict[str, Any] | None = None
) -> CommandLibrary:
    return CommandLibrary(
        (
            CommandFolder(str(root / ".odin/commands"), "project", str(root)),
            CommandFolder(str(root / ".claude/commands"), "project", str(root)),
            CommandFolder(str(user), "user"),
            ConfiguredCommands(project or {}, "project config", "odinconfig.json"),
            ConfiguredCommands(own or {}, "user config", "mine.json"),
        )
    )


def fill_command(found: CommandLibrary, typed: str) -> str | None:
    match = found.find(typed)
    return None if match is None else match[0].fill(match[1])


@pytest.fixture
def user(tmp_path: Path) -> Path:
    return tmp_path / "user"


class TestFrontMatter:
    def test_flat_values(self) -> None:
        front = split_front_matter('---\ndescription: Fix an issue\nargument-hint: "[number]"\n---\n\nFix it.\n')
        assert front.values == {"description": "Fix an issue", "argument-hint": "[number]"}
        assert (front.body, front.body_line) == ("Fix it.", 5)

    @pytest.mark.parametrize(
        ("line", "value"),
        [
            ("Description: 'it''s'", "it's"),
            ("description: a: b", "a: b"),
            ("description: words # and a remark", "words"),
            ("description: >\n  two\n  lines", "two lines"),
            ("description:\n  - a\n  - b", ["a", "b"]),
            ("description: {tools: {read: true}}", {"tools": {"read": "true"}}),
            ("description: [pr] [priority]", "[pr] [priority]"),
            ("description: @nobody", "@nobody"),
            ("model: &a *b\ndescription: d", "d"),
            ("nonsense\ndescription: still read", "still read"),
            ("# description: no\ndescription: yes", "yes"),
        ],
    )
    def test_common_spellings_are_read(self, line: str, value: object) -> None:
        assert split_front_matter(f"---\n{line}\n---\nx").values["description"] == value

    @pytest.mark.parametrize("text", ["", "plain", "---", "---\nnever closed\nat all", "text\n---\na: b\n---"])
    def test_text_without_closed_front_matter_is_all_body(self, text: str) -> None:
        front = split_front_matter(text)
        assert (front.values, front.body) == ({}, text)

    def test_windows_line_endings_and_a_byte_order_mark_are_accepted(self) -> None:
        front = split_front_matter("\ufeff---\r\ndescription: d\r\n---\r\nbody\r\n")
        assert (front.values, front.body) == ({"description": "d"}, "body")

    def test_every_value_has_its_line_number(self) -> None:
        front = split_front_matter("---\nname: a\n\nrules:\n  Bash:\n    rm *: deny\n  list: [a,\n    b]\n---\nx")
        assert front.lines["rules"] == 4
        assert (front.lines["rules.Bash"], front.lines["rules.Bash.rm *"], front.lines["rules.list[1]"]) == (5, 6, 8)

    def test_nested_aliases_are_not_expanded_exponentially(self) -> None:
        levels = "\n".join(f"k{n}: &k{n} [{', '.join([f'*k{n - 1}'] * 10)}]" for n in range(1, 12))
        front = split_front_matter(f"---\nk0: &k0 [a]\n{levels}\nname: x\n---\nbody")
        assert front.errors and front.values["k0"] == ["a"]


class TestSources:
    def test_the_first_source_wins(self, workspace: Path, user: Path) -> None:
        sources = {
            "a": [workspace / ".odin/commands/a.md", workspace / ".claude/commands/a.md", user / "a.md"],
            "b": [workspace / ".claude/commands/b.md", user / "b.md"],
            "c": [user / "c.md"],
        }
        for paths in sources.values():
            for path in paths:
                write(path, str(path))
        project = {"a": "project config", "b": "project config", "c": "project config", "d": "project config"}
        own = dict.fromkeys("abcde", "user config")
        found = make_library(workspace, user, project, own)
        assert [(item.name, item.source) for item in found.list_commands()] == [
            ("a", "project"),
            ("b", "project"),
            ("c", "user"),
            ("d", "project config"),
            ("e", "user config"),
        ]
        assert fill_command(found, "/a") == str(sources["a"][0])
        assert fill_command(found, "/b") == str(sources["b"][0])
        assert found.take_warnings() == []

    def test_project_command_names_the_user_command_it_overrides(self, workspace: Path, user: Path) -> None:
        write(workspace / ".odin/commands/review.md", "theirs")
        mine = write(user / "review.md", "mine")
        match = make_library(workspace, user).find("/review")
        assert match is not None
        assert match[0].overridden_path == str(mine)

    def test_folders_are_part_of_the_name_and_case_is_ignored(self, workspace: Path, user: Path) -> None:
        write(workspace / ".odin/commands/Git/Commit.md", "commit $ARGUMENTS")
        found = make_library(workspace, user)
        assert [item.name for item in found.list_commands()] == ["Git/Commit"]
        assert fill_command(found, "/git/COMMIT now") == "commit now"
        assert fill_command(found, "/commit now") is None

    def test_description_is_in_the_front_matter_or_the_first_line(self, workspace: Path, user: Path) -> None:
        write(workspace / ".odin/commands/a.md", "---\ndescription: Does a\nargument-hint: N\n---\nbody")
        write(workspace / ".odin/commands/b.md", "\n# The first line\n\nmore")
        own = {"c": {"body": "text", "description": "Does c", "argument_hint": "X"}}
        found = make_library(workspace, user, own=own).list_commands()
        assert [(item.name, item.description, item.hint) for item in found] == [
            ("a", "Does a", "N"),
            ("b", "The first line", ""),
            ("c", "Does c", "X"),
        ]

    @pytest.mark.parametrize("name", ["help", "LOOP", "quit", "cost"])
    def test_names_of_built_in_commands_are_reserved(self, workspace: Path, user: Path, name: str) -> None:
        write(workspace / f".odin/commands/{name}.md", "mine now")
        found = make_library(workspace, user)
        assert found.list_commands() == ()
        assert found.find(f"/{name}") is None
        assert f"/{name.casefold()} is a built-in command" in found.take_warnings()[0]

    def test_empty_command_is_skipped_with_one_warning(self, workspace: Path, user: Path) -> None:
        write(workspace / ".odin/commands/empty.md", "---\ndescription: nothing\n---\n  \n")
        write(user / "empty.md", "the user's own")
        found = make_library(workspace, user, own={"blank": " "})
        assert fill_command(found, "/empty") == "the user's own"
        assert [item.name for item in found.list_commands()] == ["empty"]
        assert [warning.split(" is ignored: ")[1] for warning in found.take_warnings()] == [
            "the command /empty is empty.",
            "the command /blank is empty.",
        ]
        assert found.take_warnings() == [], "every warning is returned once"

    @pytest.mark.parametrize("value", [3, ["a"], {"description": "no body"}, {"body": 3}, None])
    def test_invalid_values_of_the_configuration_are_reported(self, workspace: Path, user: Path, value: object) -> None:
        found = make_library(workspace, user, own={"x": value, "good": "text"})
        assert [item.name for item in found.list_commands()] == ["good"]
        assert "must be a string" in found.take_warnings()[0]


class TestArguments:
    def test_every_placeholder_is_filled_once(self, workspace: Path, user: Path) -> None:
        own = {"a": "1 $ARGUMENTS 2 $ARGUMENTS", "b": "do this"}
        found = make_library(workspace, user, own=own)
        assert fill_command(found, "/a x $ARGUMENTS y") == "1 x $ARGUMENTS y 2 x $ARGUMENTS y"
        assert fill_command(found, "/a") == "1  2 "
        assert fill_command(found, "/b") == "do this"
        assert fill_command(found, "  /b  now\nand then ") == "do this\n\nnow\nand then"

    @pytest.mark.parametrize("typed", ["b", "/", "/ b", "/usr/bin/b is gone", "//b", "see /b", "/bb", ""])
    def test_other_input_is_not_a_command(self, workspace: Path, user: Path, typed: str) -> None:
        assert fill_command(make_library(workspace, user, own={"b": "do this"}), typed) is None

    def test_command_is_split_into_name_and_arguments(self) -> None:
        assert split_command("/a/b  c d ") == ("a/b", "c d")


class TestChanges:
    def test_a_file_is_read_again_when_it_has_changed(self, workspace: Path, user: Path) -> None:
        path = write(workspace / ".odin/commands/a.md", "one")
        found = make_library(workspace, user)
        assert fill_command(found, "/a") == "one"
        write(path, "two two")
        assert fill_command(found, "/a") == "two two"
        path.unlink()
        assert fill_command(found, "/a") is None

    def test_unchanged_file_is_not_read_again(
        self, workspace: Path, user: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        write(workspace / ".odin/commands/a.md", "one")
        found = make_library(workspace, user)
        assert fill_command(found, "/a") == "one"

        def fail(path: str, stamp: tuple[int, int, int]) -> None:
            pytest.fail(f"{path} was read again")

        monkeypatch.setattr(folder_module, "_parse_file", fail)
        assert fill_command(found, "/a") == "one"


class TestPoisonedRepository:
    def test_a_link_out_of_the_project_is_not_followed(self, workspace: Path, user: Path, tmp_path: Path) -> None:
        secret = write(tmp_path / "secret.md", "a password")
        inside = write(workspace / "docs/real.md", "inside")
        folder = workspace / ".odin/commands"
        folder.mkdir(parents=True)
        (folder / "leak.md").symlink_to(secret)
        (folder / "away").symlink_to(tmp_path)
        (folder / "fine.md").symlink_to(inside)
        found = make_library(workspace, user)
        assert [item.name for item in found.list_commands()] == ["fine"]
        assert sum("points outside the project" in warning for warning in found.take_warnings()) == 2

    def test_commands_folder_that_links_outside_is_not_followed(
        self, workspace: Path, user: Path, tmp_path: Path
    ) -> None:
        write(tmp_path / "elsewhere/secret.md", "a password")
        (workspace / ".odin").mkdir()
        (workspace / ".odin/commands").symlink_to(tmp_path / "elsewhere")
        assert make_library(workspace, user).list_commands() == ()

    def test_commands_folder_of_the_user_may_be_a_link(self, workspace: Path, user: Path, tmp_path: Path) -> None:
        write(tmp_path / "dotfiles/a.md", "mine")
        user.symlink_to(tmp_path / "dotfiles")
        assert fill_command(make_library(workspace, user), "/a") == "mine"

    def test_circular_link_is_not_followed(self, workspace: Path, user: Path) -> None:
        write(workspace / ".odin/commands/a.md", "one")
        (workspace / ".odin/commands/again").symlink_to(workspace / ".odin/commands")
        assert [item.name for item in make_library(workspace, user).list_commands()] == ["a"]

    def test_control_characters_are_removed_from_shown_text(self, workspace: Path, user: Path) -> None:
        write(workspace / ".odin/commands/a.md", "---\ndescription: \x1b[2Jgone\u202e!\nhint: \x07x\n---\nbody")
        write(workspace / ".odin/commands/b\x1b[2J.md", "body")
        write(workspace / ".odin/commands/two words.md", "body")
        found = make_library(workspace, user)
        (command,) = found.list_commands()
        assert command.name == "a"
        assert (command.description + command.hint).isprintable()
        assert all(warning.isprintable() for warning in found.take_warnings())

    def test_binary_and_too_long_files_are_ignored(self, workspace: Path, user: Path) -> None:
        folder = workspace / ".odin/commands"
        write(folder / "binary.md", b"a\0b")
        write(folder / "long.md", "x" * (folder_module.MAX_BYTES + 1))
        write(folder / "latin.md", b"caf\xe9")
        os.mkfifo(folder / "pipe.md")
        found = make_library(workspace, user, own={"long2": "x" * (folder_module.MAX_BYTES + 1)})
        assert [item.name for item in found.list_commands()] == ["latin"]
        assert fill_command(found, "/latin") == "caf\ufffd"
        assert len(found.take_warnings()) == 3

    def test_number_of_command_files_is_limited(
        self, workspace: Path, user: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(folder_module, "MAX_FILES", 3)
        for number in range(5):
            write(workspace / f".odin/commands/a{number}.md", "text")
        found = make_library(workspace, user)
        assert len(found.list_commands()) == 3
        assert "some are ignored" in found.take_warnings()[0]


@pytest.mark.parametrize(
    ("body", "arguments", "filled"),
    [
        ("$1-$2-$3.", "a 'b c'", "a-b c-."),
        ("$1 $10 $0 $ARGUMENTS[1] $ARGUMENTS", "a b", "a $10 $0 b a b"),
        ("$1", "$2 $ARGUMENTS", "$2"),
        ("$1", "it's", "it's"),
        ("no place", "a b", "no place\n\na b"),
        ("$1 $ARGUMENTS", "", " "),
        ("!`echo $1` x!`y`", "a", "!`echo a` x!`y`"),
        ("$ARGUMENTS", "!`x`", "!`x`"),
    ],
)
def test_arguments_are_inserted_once(workspace: Path, user: Path, body: str, arguments: str, filled: str) -> None:
    write(user / "a.md", body)
    assert fill_command(make_library(workspace, user), f"/a {arguments}") == filled


def test_folder_is_a_namespace_too(workspace: Path, user: Path) -> None:
    write(user / "web/Test.md", "web $1")
    library = make_library(workspace, user)
    assert fill_command(library, "/web:test now") == fill_command(library, "/web/test now") == "web now"
    assert library.list_commands()[0].names == ("web/Test", "web:Test")


def test_command_of_a_plugin_names_its_folder(tmp_path: Path) -> None:
    folder = tmp_path / "my plugin"
    text = "---\nallowed-tools: Bash(${CLAUDE_PLUGIN_ROOT}/run.sh:*), Read\n---\n!`${CLAUDE_PLUGIN_ROOT}/run.sh`"
    write(folder / "commands/go.md", text)
    library = CommandLibrary([CommandFolder(str(folder / "commands"), "plugin", str(folder), "mine")])
    (found,) = library.list_texts()
    assert found.allowed_tools == (f"Bash('{folder}'/run.sh:*)", "Read")
    assert (found.body, found.command.names) == (f"!`{folder}/run.sh`", ("go", "mine:go"))
