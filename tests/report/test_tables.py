"""Tables fit the terminal: no number is cut, and what there is no room for is named."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from op_profiler.operators.titles import title_of
from op_profiler.report.tables import Heading, numbers, print_line, show_table, texts

HEADINGS: list[Heading] = [
    *numbers("share"),
    *texts("operator"),
    *texts("layers", rank=1),
    *numbers("us, 1 thread", "us, 2 threads"),
    *numbers("output", rank=2),
    *numbers("energy, mJ", rank=3),
    *numbers("GFLOP/s", rank=4),
]
ROWS = [
    ["51.3%", "conv2d + add + relu", "features.denseblock4.denselayer16.conv2", "42462.1", "24217.9", "1x100x13x13x10"]
    + ["-", "139.2"],
    ["0.4%", "layer norm + add + reshape + transpose", "encoder.layer.11.output.LayerNorm", "7.1", "5.0", "1x128x768"]
    + ["-", "0.4"],
]


def shown(width: int, rows: list[list[str]] = ROWS) -> str:
    file = io.StringIO()
    show_table(Console(file=file, width=width), "net", HEADINGS, rows)
    return file.getvalue()


@pytest.mark.parametrize("width", [60, 80, 100, 120, 200])
def test_lines_are_as_wide_as_the_terminal_at_most_and_no_number_is_cut(width: int) -> None:
    text = shown(width)
    table = [line for line in text.splitlines() if line.startswith(tuple("┏┃┡│└"))]
    assert table and max(map(len, table)) <= width
    for number in ("51.3%", "42462.1", "24217.9", "7.1"):
        assert f" {number} │" in text or f"│ {number} " in text


def test_what_has_no_room_is_named_the_least_important_first() -> None:
    texts_at = {width: shown(width).splitlines()[-1] for width in (80, 100, 200)}
    assert texts_at[80] == "a wider terminal also shows: layers; output; GFLOP/s"
    assert texts_at[100] == "a wider terminal also shows: GFLOP/s"
    assert "wider" not in texts_at[200] and "139.2" in shown(200)


def test_a_column_in_which_nothing_stands_is_left_out() -> None:
    assert "energy" not in shown(200)
    assert "energy" in shown(200, [[*row[:6], "1.5", row[7]] for row in ROWS])


def test_what_all_rows_say_alike_leaves_before_what_tells_them_apart() -> None:
    rows = [[*row[:2], "fc", *row[3:]] for row in ROWS]
    assert shown(80, rows).splitlines()[-1] == "a wider terminal also shows: layers (fc in all rows); GFLOP/s"


def test_brackets_in_names_are_no_markup() -> None:
    assert "[red]conv[/red]" in shown(200, [["1%", "[red]conv[/red]", *ROWS[0][2:]]])


@pytest.mark.parametrize(
    ("ops", "title"),
    [
        ("nn.contrib_conv2d_NCHWc add nn.relu", "conv2d + add + relu"),
        ("nn.contrib_dense_pack add multiply erf multiply add multiply", "dense + add + gelu"),
        ("reshape multiply power multiply add multiply tanh add multiply reshape", "gelu by tanh"),
        ("subtract add rsqrt multiply multiply add transpose reshape", "layer norm"),
        ("nn.contrib_depthwise_conv2d_NCHWc add add clip divide multiply", "depthwise_conv2d + add + hard swish"),
        ("reshape squeeze transpose", "reshape + squeeze + transpose"),
        ("nn.conv2d add add nn.relu", "conv2d + add x2 + relu"),
        ("exp log sin cos tan", "exp + log + sin + cos + 1 more"),
        ("split sigmoid sigmoid multiply sigmoid tanh multiply add tanh multiply", "lstm cell"),
        ("multiply_add", "multiply_add"),
        ("nn.batch_matmul divide add nn.softmax reshape nn.batch_matmul transpose", "attention"),
        ("reshape matmul multiply subtract exp sum divide matmul add", "attention + add"),
        ("nn.attention", "attention"),
        ("nn.batch_matmul divide nn.softmax", "batch_matmul + divide + softmax"),
    ],
)
def test_operators_have_the_names_that_people_use(ops: str, title: str) -> None:
    assert title_of(ops.split()) == title


def test_lines_are_wrapped_between_words_on_a_terminal_only_and_commands_stay_whole() -> None:
    text = "- tuning 3 operators: conv2d + add\n    op-profiler collect net:net --iftune true"

    def printed(*, terminal: bool) -> str:
        file = io.StringIO()
        print_line(Console(file=file, width=24, force_terminal=terminal, color_system=None), text)
        return file.getvalue()

    wrapped = "- tuning 3 operators:\n  conv2d + add\n    op-profiler collect net:net --iftune true\n"
    assert (printed(terminal=True), printed(terminal=False)) == (wrapped, f"{text}\n")
