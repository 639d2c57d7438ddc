"""The plots of docs/performance.md show what the tables of docs/benchmarks.md say, and nothing older."""

from __future__ import annotations

import pytest

from benchmarks.plots import PICTURES, PLOTS, ROOT, TABLES, Plot, bars, described, figures_of, shown_by, tables_of

PAGE = """
# Figures

## Reading: `python -m x`

| | s | goal |
|---|---|---|
| ours | 1,234.5 | < 2 |
| a \\| b | | |

Between them.

| | s |
|---|---|
| ours | 3.0 x |

## Other
"""


def test_the_tables_of_a_page_are_read_by_their_headings() -> None:
    tables = tables_of(PAGE)
    assert tables == {
        "Reading: `python -m x`": [
            [{"": "ours", "s": "1,234.5", "goal": "< 2"}, {"": "a | b", "s": "", "goal": ""}],
            [{"": "ours", "s": "3.0 x"}],
        ]
    }


def test_a_plot_shows_the_last_table_of_its_section_that_has_its_columns() -> None:
    def plot(section: str, column: str) -> Plot:
        return Plot("p", section, "t", "s", lambda rows: bars(rows, column), ours=("ours",))

    assert figures_of(plot("Reading", "s"), tables_of(PAGE)) == {"ours": 3.0}
    with pytest.raises(LookupError, match="has no table for p below a heading that begins with 'Writing'"):
        figures_of(plot("Writing", "s"), tables_of(PAGE))
    with pytest.raises(LookupError):
        figures_of(plot("Reading", "minutes"), tables_of(PAGE))


@pytest.mark.parametrize("plot", PLOTS, ids=lambda plot: plot.name)
def test_each_plot_was_drawn_from_the_table_as_it_is_now(plot: Plot) -> None:
    figures = figures_of(plot, tables_of(TABLES.read_text(encoding="utf-8")))
    drawn = shown_by(PICTURES / f"{plot.name}.svg")
    assert drawn == described(figures), f"{plot.name} is older than its table: python -m benchmarks.plots"
    assert f"](images/{plot.name}.svg)" in (ROOT / "docs" / "performance.md").read_text(encoding="utf-8")
