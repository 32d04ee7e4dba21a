"""The app: its pages, its rules for every request, and the port that it is served at."""

import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse
from fastapi.staticfiles import StaticFiles
from starlette.exceptions import HTTPException
from starlette.middleware.trustedhost import TrustedHostMiddleware

from posttrain.cli.page.project import Project
from posttrain.cli.page.render import render_page
from posttrain.cli.page.routes.registry import ROUTES
from posttrain.operations.services.loopback import HOSTS, LOOPBACK, bound
from posttrain.stage.errors import UserError
from posttrain.stage.interrupts import Interrupted
from posttrain.views.charts import chart_scripts

_RULES = {
    # Nothing is loaded from elsewhere, and no text becomes code.
    "Content-Security-Policy": "default-src 'self'; style-src 'self' 'unsafe-inline';"
    " script-src 'self'; img-src 'self' data:; frame-ancestors 'self'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cache-Control": "no-store",
}


def create_app(project: Project) -> FastAPI:
    """Make the app.

    Args:
        project: What is looked at.

    Returns:
        An ASGI app.

    """
    app = FastAPI(title="posttrain", docs_url=None, redoc_url=None, openapi_url=None)
    app.state.project = project
    app.add_middleware(TrustedHostMiddleware, allowed_hosts=list(HOSTS))
    app.middleware("http")(_guard)
    app.exception_handler(UserError)(_say_refused)
    app.exception_handler(HTTPException)(_say_missing)
    app.exception_handler(RequestValidationError)(_say_unreadable)
    app.mount("/assets", StaticFiles(directory=Path(__file__).parent / "assets"), name="assets")
    for routes in ROUTES:
        app.include_router(routes)
    return app


async def _guard(request: Request, answer: Callable[[Request], Awaitable[Response]]) -> Response:
    """Let nobody but the app's own pages write, and nothing be kept by the browser."""
    if request.method not in ("GET", "HEAD"):
        origin = urlsplit(request.headers.get("origin", ""))
        if origin.netloc != request.headers.get("host"):
            return HTMLResponse("a page of another origin may not write here", status_code=403)
    response = await answer(request)
    for name, rule in _RULES.items():
        response.headers.setdefault(name, rule)
    return response


def _say_refused(request: Request, error: Exception) -> Response:
    return render_page(request, "problem.html", status=404, sentence=str(error))


def _say_unreadable(request: Request, error: Exception) -> Response:
    wrong = error.errors()[0] if isinstance(error, RequestValidationError) else {}
    where, said = wrong.get("loc", ("", ""))[-1], wrong.get("msg", "")
    return render_page(request, "problem.html", status=422, sentence=f"{where}: {said}")


def _say_missing(request: Request, error: Exception) -> Response:
    code = error.status_code if isinstance(error, HTTPException) else 500
    sentence = f"there is no page {request.url.path}" if code == 404 else str(error)
    return render_page(request, "problem.html", status=code, sentence=sentence)


def serve_project(project: Project, port: int, *, say: Callable[[str], None]) -> None:
    """Serve the app until it is interrupted.

    Args:
        project: What is looked at.
        port: On loopback; 0 takes a free one.
        say: Told where the app is, once it answers.

    Raises:
        UserError: The port is taken.

    """
    import uvicorn

    with bound(port) as listening:
        address = f"http://{LOOPBACK}:{listening.getsockname()[1]}"
        config = uvicorn.Config(create_app(project), log_level="warning", lifespan="off")
        # Vega is put together once on a machine, which takes seconds.
        threading.Thread(target=chart_scripts, name="charts", daemon=True).start()
        say(f"{project.root} is shown at {address}; Ctrl-C ends it")
        # Ctrl-C is how it ends: there is nothing to go on with.
        with suppress(Interrupted):
            uvicorn.Server(config).run([listening])
