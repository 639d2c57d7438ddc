"""The console as a web application: which address shows which page, and what errors look like."""

from __future__ import annotations

import re
from importlib import resources
from typing import TYPE_CHECKING, Any

import psycopg
from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.routing import Route

from varve.cli.context import working_on
from varve.cli.observe.console.access import HEADERS, SafeHeaders, TokenWanted
from varve.cli.observe.console.hosts import HostWanted
from varve.cli.observe.console.pages import Pages
from varve.cli.observe.metrics import text as metrics_text
from varve.cli.plan.heat import LETTERS
from varve.cli.selection import size_text, words_of
from varve.model.errors import BadInput, ServiceUnavailable, UnfitCatalog, VarveError
from varve.observe.metrics import CONTENT_TYPE
from varve.planning.judgement.judgement import State
from varve.planning.operations.heat import WORST_FIRST
from varve.services.secrets import redacted

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from starlette.requests import Request

    from varve.project import Project

# Longer than any name, key or path that the catalog can hold.
_LONGEST = 4_000
# PostgreSQL keeps no NUL and no half of a pair; the others show nowhere.
_UNREADABLE = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff]")


def application(project: Project, token: str, *, hosts: Sequence[str] = (), pages: Pages | None = None) -> Starlette:
    """The console of a project.

    Args:
        project: whose catalog and datasets it shows.
        token: see `access.TokenWanted`, which raises BadInput for a short one.
        hosts: further names under which it is asked, besides `localhost` and addresses.
        pages: its pages, where some plan was judged for them already.
    """
    pages, templates = pages or Pages(project), _templates()

    def shown(template: str, values: dict[str, Any], *, status: int = 200) -> Response:
        # The page of a defect is made outside of all middleware, so each page has the headers of its own.
        return HTMLResponse(templates.get_template(template).render(values), status_code=status, headers=HEADERS)

    def problem(title: str, message: str, status: int) -> Response:
        return shown("error.html", {"title": title, "message": message}, status=status)

    def page(template: str, values_of: Callable[[Request], dict[str, Any]]) -> Callable[[Request], Response]:
        def answer(request: Request) -> Response:
            with working_on(project):
                try:
                    _refuse_unreadable(request)
                    return shown(template, values_of(request))
                except (ServiceUnavailable, UnfitCatalog) as error:
                    return problem("The catalog cannot be read", str(error), 503)
                except psycopg.OperationalError as error:
                    message = f"PostgreSQL does not answer any more: {redacted(str(error).strip())}. Try again."
                    return problem("The catalog cannot be read", message, 503)
                except BadInput as error:
                    return problem("Not understood", str(error), 400)
                except VarveError as error:
                    return problem("Not found", str(error), 404)

        return answer

    def refused(request: Request) -> Response:
        del request
        message = (
            "This page needs the token of the console. Open the link that `varve console` has printed; the token is in "
            f"{project.settings.home_dir / 'console.token'}, which only the user of Varve can read."
        )
        return problem("Not for everybody", message, 403)

    def of_another_name(request: Request) -> Response:
        del request
        message = (
            "This console was asked by a name that is not its own. Ask by its address, or by localhost; `varve console "
            "--name NAME` lets it have another name."
        )
        return problem("Not by this name", message, 400)

    def not_answered(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        if error.status_code == 404:
            return problem("Not found", f"There is no page {request.url.path}.", 404)
        message = f"{request.method} is not understood here: the console only shows pages, and changes nothing."
        return problem("Not understood", message, error.status_code)

    def defect(request: Request, error: Exception) -> Response:
        message = f"{request.url.path}: {type(error).__name__}. This is a defect of Varve; its traceback is in the log."
        return problem("Defect", message, 500)

    def metrics(request: Request) -> Response:
        del request
        with working_on(project):
            try:
                return Response(metrics_text(), media_type=CONTENT_TYPE)
            except (VarveError, psycopg.OperationalError) as error:
                return PlainTextResponse(redacted(str(error).strip()), status_code=503)

    def style(request: Request) -> Response:
        del request
        text = resources.files(__package__ or "").joinpath("style.css").read_text(encoding="utf-8")
        return Response(text, media_type="text/css")

    def of(request: Request, name: str) -> str:
        return str(request.path_params[name])

    def asked(request: Request, name: str) -> str:
        return str(request.query_params.get(name, ""))

    routes = [
        Route("/", page("overview.html", lambda _: pages.overview())),
        Route(
            "/dataset/{name}",
            page("dataset.html", lambda r: pages.dataset(of(r, "name"), asked(r, "month"), asked(r, "row"))),
        ),
        Route(
            "/dataset/{name}/partition",
            page("partition.html", lambda r: pages.partition(of(r, "name"), asked(r, "path"))),
        ),
        Route(
            "/dataset/{name}/diff",
            page(
                "diff.html",
                lambda r: pages.difference(of(r, "name"), asked(r, "path"), asked(r, "from"), asked(r, "to")),
            ),
        ),
        Route(
            "/dataset/{name}/lineage",
            page("lineage.html", lambda r: pages.lineage(of(r, "name"), asked(r, "path"))),
        ),
        Route("/publishes", page("publishes.html", lambda r: pages.publishes(asked(r, "before")))),
        Route("/run/{run:path}", page("run.html", lambda r: pages.run(of(r, "run")))),
        Route("/environments", page("environments.html", lambda _: pages.environments())),
        Route("/search", page("search.html", lambda r: pages.search(asked(r, "q")))),
        Route("/metrics", metrics),
        Route("/style.css", style),
    ]
    return Starlette(
        routes=routes,
        middleware=[
            Middleware(SafeHeaders),
            Middleware(HostWanted, names=frozenset(host.lower() for host in hosts), refused=of_another_name),
            Middleware(TokenWanted, token=token, refused=refused),
        ],
        exception_handlers={HTTPException: not_answered, Exception: defect},
    )


def _refuse_unreadable(request: Request) -> None:
    """Raise BadInput for an address with what no name, key or path can have, and the catalog cannot be asked for."""
    for text in (*request.path_params.values(), *request.query_params.values()):
        if len(text) > _LONGEST:
            raise BadInput(f"the address has a text of {len(text):,} characters, above the limit of {_LONGEST:,}.")
        if bad := sorted(set(_UNREADABLE.findall(text))):
            raise BadInput(f"the address has {', '.join(map(repr, bad))}, which no name and no key can have.")


def _templates() -> Environment:
    environment = Environment(
        loader=PackageLoader("varve.cli.observe.console"), autoescape=True, undefined=StrictUndefined,
        trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    environment.globals.update(
        states=[str(state) for state in WORST_FIRST], letters={str(state): LETTERS[state] for state in State}
    )
    environment.filters.update(
        in_words=lambda path: ", ".join(words_of(path)) or path,
        slug=lambda state: str(state).replace(" ", "-"),
        size=lambda size: "" if size is None else size_text(size),
    )
    return environment
