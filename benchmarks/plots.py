"""The plots of docs/performance.md, drawn from the tables of docs/benchmarks.md: `python -m benchmarks.plots`.

Nothing is measured here. Each picture keeps the figures that it shows in its description, so that a test sees when a
table was measured anew and its picture was not drawn again. Drawing needs matplotlib, which the extra `docs` brings.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from html import unescape
from pathlib import Path
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

from benchmarks.quick import number

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from matplotlib.axes import Axes

ROOT = Path(__file__).parent.parent
TABLES = ROOT / "docs" / "benchmarks.md"
PICTURES = ROOT / "docs" / "images"
_DESCRIPTION = "{http://purl.org/dc/elements/1.1/}description"
_OURS, _OTHERS = "#00695c", "#b0bec5"

# The rows of a table, each with its cells by the names of their columns; the first column has no name at times.
Rows = list[dict[str, str]]
# By what a bar or a line is called: its figure, or its figures by their places on the axis.
Bars = dict[str, float]
Lines = dict[str, dict[float, float]]


@dataclass(frozen=True)
class Plot:
    """A picture of one table.

    Attributes:
        name: the name of the file, without its ending.
        section: how the heading of the table's section begins.
        axis: what the figures are, with their unit.
        figures: the bars, or the lines, of the table's rows.
        ours: how the names of our bars and lines begin.
        places: for lines, what the other axis is.
        is_logarithmic: whether the figures are so far apart that equal distances are equal ratios.
    """

    name: str
    section: str
    title: str
    axis: str
    figures: Callable[[Rows], Bars | Lines]
    ours: tuple[str, ...]
    places: str = ""
    is_logarithmic: bool = True


def bars(rows: Rows, column: str) -> Bars:
    """One bar a row, of the figure in this column; rows without one are left out."""
    return {row[""]: number(row[column]) for row in rows if row.get("") and row.get(column)}


def _of_publishing(rows: Rows) -> Lines:
    """The seconds of a publish by the number of its partitions."""
    label = "publish: "
    counts = [row for row in rows if row["what"].startswith(label)]
    return {"one publish": {number(row["what"].removeprefix(label)): number(row["s (median)"]) for row in counts}}


def _of_backfills(rows: Rows) -> Bars:
    """The seconds of a year by dataset, in one run and in a run a day."""
    figures: Bars = {}
    for row in rows:
        dataset = row["dataset"].strip("`")
        figures[f"{dataset}, one run"] = number(row["365 days, one run (s)"])
        figures[f"{dataset}, a run a day"] = number(row["a run a day (s, extrapolated)"])
    return figures


def _of_catalogs(rows: Rows) -> Lines:
    """The seconds of each command that is plotted, by the batches of the catalog."""
    plotted = {"`why` of a partition", "a tick after one publish", "`status`", "the report", "`sweep --dry-run`"}
    sizes = {column: number(column) for column in rows[0] if column.endswith(" batches")}
    return {
        row["command"].replace("`", ""): {size: number(row[column]) for column, size in sizes.items()}
        for row in rows
        if row["command"] in plotted and sizes
    }


PLOTS = (
    Plot(
        "plot-correction", "One day of a year is corrected",
        "A corrected day of a year: until all that follows is there",
        "seconds", lambda rows: bars(rows, "correction s"), ours=("varve", "Varve"), is_logarithmic=False,
    ),
    Plot(
        "plot-readers", "What readers notice of a publish", "The slowest answer to a reader while others publish",
        "milliseconds", lambda rows: bars(rows, "slowest ms"), ours=("ours",),
    ),
    Plot(
        "plot-backfill", "A backfill in SQL", "A year of days, computed by Dagster runs", "seconds", _of_backfills,
        ours=("flights/delays, one run", "flights/trailing_delay, one run"),
    ),
    Plot(
        "plot-publish", "The lake", "A publish by the number of its partitions", "seconds", _of_publishing,
        ours=("one publish",), places="partitions in one publish",
    ),
    Plot(
        "plot-catalog", "One catalog as it grows", "Commands as the catalog grows", "seconds", _of_catalogs,
        ours=("",), places="batches in the catalog",
    ),
)  # fmt: skip


def tables_of(text: str) -> dict[str, list[Rows]]:
    """The tables of a page in Markdown, by the headings of their sections."""
    tables: dict[str, list[Rows]] = {}
    names: list[str] | None = None
    heading = ""
    for line in text.splitlines():
        if line.startswith("#"):
            heading = line.lstrip("# ")
        if not line.startswith("|"):
            names = None
            continue
        cells = [cell.strip() for cell in line.replace(r"\|", "\0").strip("|").split("|")]
        if names is None:
            names = cells
            tables.setdefault(heading, []).append([])
        elif not all(cell and set(cell) <= set("-:") for cell in cells):
            tables[heading][-1].append(dict(zip(names, (cell.replace("\0", "|") for cell in cells), strict=True)))
    return tables


def figures_of(plot: Plot, tables: Mapping[str, list[Rows]]) -> Bars | Lines:
    """What a plot shows: the figures of the last table of its section that has its columns.

    Raises LookupError where the page has no such table.
    """
    sections = [section for heading, section in tables.items() if heading.startswith(plot.section)]
    for rows in reversed([rows for section in sections for rows in section]):
        try:
            figures = plot.figures(rows)
        except KeyError:
            continue
        if figures:
            return figures
    raise LookupError(f"{TABLES.name} has no table for {plot.name} below a heading that begins with {plot.section!r}")


def shown_by(picture: Path) -> str:
    """The figures that a picture shows, as `described` writes them."""
    description = ET.parse(picture).getroot().find(f".//{_DESCRIPTION}")  # noqa: S314 - drawn below
    return unescape(description.text or "") if description is not None else ""


def described(figures: Bars | Lines) -> str:
    """The figures of a plot as the text that its picture keeps."""
    return json.dumps(figures, ensure_ascii=False)


def draw(plot: Plot, figures: Bars | Lines, picture: Path) -> None:
    """Draw one plot into an SVG file, whose text stays text."""
    import matplotlib as mpl

    mpl.use("svg")
    mpl.rcParams |= {"svg.fonttype": "none", "svg.hashsalt": "varve", "font.size": 11, "font.family": "sans-serif"}
    from matplotlib import pyplot as plt

    lines = {name: points for name, points in figures.items() if isinstance(points, dict)}
    heights = {name: value for name, value in figures.items() if not isinstance(value, dict)}
    figure, axes = plt.subplots(figsize=(8, 4 if lines else 0.8 + 0.5 * len(heights)), layout="constrained")
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_title(plot.title, loc="left", fontsize=12)
    if lines:
        _draw_lines(plot, lines, axes)
    else:
        _draw_bars(plot, heights, axes)
    axes.xaxis.set_major_formatter("{x:,.10g}")
    figure.savefig(picture, metadata={"Date": None, "Description": described(figures)})
    plt.close(figure)


def _draw_lines(plot: Plot, lines: Lines, axes: Axes) -> None:
    for name, points in lines.items():
        color = _OURS if name.startswith(plot.ours) else _OTHERS
        axes.plot(list(points), list(points.values()), marker="o", color=color)
        if len(lines) > 1:
            last = max(points)
            beside = {"xytext": (8, 0), "textcoords": "offset points"}
            axes.annotate(name, (last, points[last]), va="center", annotation_clip=False, **beside)  # type: ignore[arg-type]
    axes.set(xscale="log", yscale="log", xlabel=f"{plot.places} (logarithmic)", ylabel=f"{plot.axis} (logarithmic)")
    axes.yaxis.set_major_formatter("{x:,g}")


def _draw_bars(plot: Plot, heights: Bars, axes: Axes) -> None:
    names, values = list(heights)[::-1], list(heights.values())[::-1]
    drawn = axes.barh(names, values, color=[_OURS if name.startswith(plot.ours) else _OTHERS for name in names])
    axes.bar_label(drawn, [f"{value:,.10g}" for value in values], padding=4)
    axes.set(xlabel=plot.axis, xlim=(0, max(values) * 1.15))
    if plot.is_logarithmic:
        # From a whole power of ten below the shortest bar: equal lengths are equal ratios.
        least = 10 ** math.floor(math.log10(min(values) / 2))
        axes.set(xscale="log", xlim=(least, max(values) * 3), xlabel=f"{plot.axis} (logarithmic)")


def main() -> None:
    """Draw all plots anew."""
    tables = tables_of(TABLES.read_text(encoding="utf-8"))
    for plot in PLOTS:
        picture = PICTURES / f"{plot.name}.svg"
        draw(plot, figures_of(plot, tables), picture)
        print(picture.relative_to(ROOT))


if __name__ == "__main__":
    main()
