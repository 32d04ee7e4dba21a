"""What is kept and planned: releases, schedules with their logs, claims."""

import threading
import time
from pathlib import Path

from fastapi import APIRouter, Request, Response

from posttrain.cli.page.render import project_shown, render_page, whole_page
from posttrain.cli.page.run_list import tail_of
from posttrain.cli.page.schedule_list import listed_schedules, listed_ticks
from posttrain.cli.page.windows import Memory
from posttrain.pipeline.gathered_claims import claims_of_project
from posttrain.publishing.release.contents import FolderContents
from posttrain.publishing.release.names import parse_tag
from posttrain.publishing.release.registered import registered
from posttrain.publishing.release.tags import promotions
from posttrain.publishing.release.verify import said_about
from posttrain.stage.errors import UserError
from posttrain.views.report.claims import claims_page

keeping_routes = APIRouter()

_MOST_TICKS = 100
_CLAIMS_SECONDS = 600
_claims: Memory[str] = Memory(1)
_gathering = threading.Lock()


@keeping_routes.get("/releases")
def show_releases(request: Request) -> Response:
    """Show releases with their environments, and every promotion."""
    root = project_shown(request).root
    return render_page(
        request,
        "releases.html",
        section="Releases",
        releases=registered(root),
        promotions=promotions(root)[::-1],
    )


@keeping_routes.get("/release/{target}")
def show_release(request: Request, target: str) -> Response:
    """Show one release: its figures, and what let it pass its gates."""
    root = project_shown(request).root
    tag = parse_tag(target)
    folder = tag.folder(root)
    if not folder.is_dir():
        raise UserError(f"{folder} is not there; posttrain release verify {tag} says why")
    contents = FolderContents(folder)
    return render_page(
        request,
        "release.html",
        section="Releases",
        tag=tag,
        about=said_about(contents),
        metrics=contents.evidence("metrics"),
    )


@keeping_routes.get("/schedules")
def show_schedules(request: Request, name: str = "") -> Response:
    """Show every schedule, and what became of what was due."""
    root = project_shown(request).root
    return render_page(
        request,
        "schedules.html",
        section="Schedules",
        schedules=listed_schedules(root),
        ticks=listed_ticks(root, name or None, limit=_MOST_TICKS),
        name=name,
    )


@keeping_routes.get("/schedules/{name}/log")
def show_schedule_log(request: Request, name: str, due: float) -> Response:
    """Show the end of the log of a scheduled run, where its notes say that it is."""
    root = project_shown(request).root
    found = [each for each in listed_ticks(root, name, limit=_MOST_TICKS) if each.due == due]
    if not found or not found[0].log:
        raise UserError(f"the notes of schedule '{name}' name no log of that moment")
    text = tail_of(root / Path(found[0].log))
    return render_page(request, "schedule_log.html", section="Schedules", tick=found[0], text=text)


@keeping_routes.get("/claims")
def show_claims_section(request: Request) -> Response:
    """Show the claims of all methods, which take some seconds to be held against today's code."""
    return render_page(request, "claims.html", section="Claims")


@keeping_routes.get("/claims/page")
def show_claims_page(request: Request) -> Response:
    """Answer with the claims' own page."""
    root = project_shown(request).root
    # What is in force of methods is one for all threads.
    with _gathering:
        made = int(time.time() / _CLAIMS_SECONDS)
        return whole_page(_claims.get(made, lambda: claims_page(*claims_of_project(root))))
