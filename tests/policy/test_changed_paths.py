"""The paths that a command changes, if they are all written out in it."""

from pathlib import Path

from odin.policy.commands.analysis import find_changed_paths
from tests.policy.policies import make_scope
from tests.table import each


@each(
    "command, names",
    [
        ("echo x > a", ["a"]),
        ("echo x >> sub/a; cat b > c && ls > /dev/null", ["sub/a", "c"]),
        ("cd sub && echo x > a", ["sub/a"]),
        ("mkdir -p new/deep/er && touch new/deep/f", ["new"]),
        ("mv old sub; rm -rf gone", ["old", "sub", "gone"]),
        ("cp -r a b sub", ["a", "b", "sub"]),
        ("echo x | tee a b", ["a", "b"]),
        ("ln -s target link", ["target", "link"]),
        ("echo x > 'with space'", ["with space"]),
        ("sleep 1; echo done", []),
        ("echo x > $HOME/a", None),
        ("rm *.txt", None),
        ("make > log", None),
        ("pytest", None),
        ("python -c 'open(1)' > a", None),
        ("cp --target-directory=sub a", None),
        ("cp -tsub a", None),
        ("rm $(cat names)", None),
        ("for f in a b; do rm $f.txt; done < list", None),
        ("sh -c 'rm a'", None),
        ("echo 'unclosed > a", None),
        ("", None),
    ],
)
def test_changed_paths_are_found_only_if_all_are_written_out(
    tmp_path: Path, command: str, names: list[str] | None
) -> None:
    (tmp_path / "sub").mkdir(exist_ok=True)
    found = find_changed_paths(command, make_scope(tmp_path))
    assert found == (None if names is None else tuple(str(tmp_path / name) for name in names))
