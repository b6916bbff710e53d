"""Correcting what a small model adds to a Markdown file."""

from odin.providers.whole_files.text_additions import correct_additions
from tests.table import each

_README = "# Rides\n\nA planner.\n\n## Usage\n\n    run\n\n## License\n\nMIT\n"
_FIRST = _README.replace("## Usage", "## Units\n\nKm.\n\n## Usage")
_BETWEEN = _README.replace("## License", "## Units\n\nKm.\n\n## License")
_LOG = "# Log\n\n## Next\n\n- Show.\n\n## 1.2\n\n- Coast.\n"


@each(
    "prompt, new, old, expected",
    [
        ("Add a section '## Units' between Usage and License in README.md.", _FIRST, _README, _BETWEEN),
        ("Insert a Units section after the Usage section.", _FIRST, _README, _BETWEEN),
        ('Please add "## Units" before "## License".', _FIRST, _README, _BETWEEN),
        ("Add a section Units before Usage", _BETWEEN, _README, _FIRST),
        ("Add a section Units with what happens before Usage", _BETWEEN, _README, _BETWEEN),
        ("Add a section '## Units'.", _FIRST, _README, _FIRST),
        ("Add a section Units after the pictures", _FIRST, _README, _FIRST),
        ("Rewrite the section after Usage", _FIRST, _README, _FIRST),
        (
            "Add 'Plan.' to Next",
            _LOG.replace("Show.\n", "Show.\n- Coast.\n- Plan.\n"),
            _LOG,
            _LOG.replace("Show.\n", "Show.\n- Plan.\n"),
        ),
        (
            "Add 'Coast.' to Next",
            _LOG.replace("Show.\n", "Show.\n- Coast.\n"),
            _LOG,
            _LOG.replace("Show.\n", "Show.\n- Coast.\n"),
        ),
    ],
)
def test_additions_are_moved_to_the_right_place_and_copies_removed(
    prompt: str, new: str, old: str, expected: str
) -> None:
    assert correct_additions("README.md", new, old, prompt) == expected
    assert correct_additions("readme.txt", new, old, prompt) == new
