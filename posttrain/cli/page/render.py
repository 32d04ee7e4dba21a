"""One way to answer with a page."""

from typing import Any

from fastapi import Request
from fastapi.responses import HTMLResponse

from posttrain.cli.page.project import Project
from posttrain.cli.page.templates import page_templates

_OF_WHOLE_PAGES = (
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:;"
    " frame-ancestors 'self'"
)
SECTIONS = (
    ("/", "Runs"),
    ("/rollouts", "Rollouts"),
    ("/data", "Data"),
    ("/lineage", "Lineage"),
    ("/releases", "Releases"),
    ("/schedules", "Schedules"),
    ("/claims", "Claims"),
)
"""What stands above every page: address and name."""


def project_shown(request: Request) -> Project:
    """Return the project that the app looks at."""
    project = request.app.state.project
    assert isinstance(project, Project)
    return project


def render_page(
    request: Request, template: str, *, section: str = "", status: int = 200, **values: Any
) -> HTMLResponse:
    """Answer with a page.

    Args:
        request: That asks for it.
        template: Its file in `pages`.
        section: Name of the section that it belongs to.
        status: Of HTTP.
        values: What the template asks for.

    Returns:
        The page.

    """
    page = page_templates().get_template(template)
    root = project_shown(request).root
    text = page.render(sections=SECTIONS, section=section, project=root.name, **values)
    return HTMLResponse(text, status_code=status)


def whole_page(text: str) -> HTMLResponse:
    """Answer with a page that has all that it needs in it, and is the same as a file.

    Args:
        text: HTML with its style and its scripts.

    Returns:
        The page, which may load nothing.

    """
    return HTMLResponse(text, headers={"Content-Security-Policy": _OF_WHOLE_PAGES})
