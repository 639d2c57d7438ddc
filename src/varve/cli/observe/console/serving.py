"""`varve console`: serve the pages until Ctrl-C."""

from __future__ import annotations

import ipaddress
import socket
from contextlib import suppress
from typing import TYPE_CHECKING

from varve.catalog.catalog import Catalog
from varve.cli.context import chosen_graph, chosen_project, chosen_settings
from varve.dagster.instance import embedded_storage
from varve.model.errors import BadInput, ServiceUnavailable, VarveError
from varve.services.distribution import install_command
from varve.services.ports import refuse_taken_port
from varve.services.postgres import connect

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

_BACKLOG = 128


def serve(console: Console, port: int, host: str, names: Sequence[str]) -> None:
    """Serve the console on this address; `names` are those by which a browser may ask for it besides addresses.

    Raises ServiceUnavailable where the port is taken, or packages are missing; BadInput for a host that is no address,
    and for a file that has no token.
    """
    try:
        import uvicorn

        from varve.cli.observe.console.access import token_of
        from varve.cli.observe.console.app import application
        from varve.cli.observe.console.pages import Pages
    except ModuleNotFoundError as error:
        raise ServiceUnavailable(
            f"the console is not installed here ({error}). Install it: {install_command('local')}"
        ) from None
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        raise BadInput(f"{host!r} is no address; write 127.0.0.1, ::1, or that of a network.") from None
    refuse_taken_port(port, setting="--port", remedy="Choose another: varve console --port 3002.", host=host)
    # Errors in files are told now, and not by the first page.
    chosen_graph()
    token = token_of(chosen_settings().home_dir)
    _prepare(console)
    # Of a machine's own name others make the links, where the console listens on all of its addresses.
    own_names = [socket.gethostname(), socket.getfqdn()] if address.is_unspecified else []
    asked = own_names[0] if own_names else host
    shown = f"[{asked}]" if ":" in asked else asked
    family = socket.AF_INET6 if address.version == 6 else socket.AF_INET
    # It listens before it says where: who asks before everything is judged waits for that.
    with socket.create_server((host, port), family=family, backlog=_BACKLOG) as listening:
        _tell(console, f"http://{shown}:{port}/?token={token}")
        pages = Pages(chosen_project())
        # The first look judges every partition.
        pages.judged.look()
        app = application(chosen_project(), token, hosts=[*own_names, *names], pages=pages)
        with suppress(KeyboardInterrupt):
            uvicorn.Server(uvicorn.Config(app, log_level="warning", access_log=False)).run(sockets=[listening])


def _tell(console: Console, address: str) -> None:
    console.print(f"The console is at {address}", markup=False, highlight=False, soft_wrap=True)
    console.print("Whoever has that link can read everything; it changes nothing. Ctrl-C ends it.", highlight=False)


def _prepare(console: Console) -> None:
    """Start the catalog's server and that of Dagster's storage, and bring the tables up to date, as any command does.

    The pages do none of it.
    """
    settings = chosen_settings()
    try:
        with connect(settings, application="varve console") as connection:
            Catalog(connection).ensure_schema()
        if (server := embedded_storage(settings)) is not None:
            server.ensure_up()
    except VarveError as error:
        console.print(f"{error} The pages say so too, until it is mended.", markup=False, highlight=False)
