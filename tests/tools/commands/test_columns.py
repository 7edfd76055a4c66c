from jitney_tools.commands.columns import columns


def test_columns_are_as_wide_as_their_widest_cell() -> None:
    assert columns(("name", "#n"), [("a", "10"), ("longer", "2")]) == "name     n\na       10\nlonger   2"


def test_a_head_alone_is_a_line() -> None:
    assert columns(("a", "#b"), []) == "a  b"
