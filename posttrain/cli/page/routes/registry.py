"""The pages that there are, by module."""

from posttrain.cli.page.routes.compare_pages import compare_routes
from posttrain.cli.page.routes.data_pages import data_routes
from posttrain.cli.page.routes.keeping_pages import keeping_routes
from posttrain.cli.page.routes.lineage_pages import lineage_routes
from posttrain.cli.page.routes.review_pages import review_routes
from posttrain.cli.page.routes.row_pages import row_routes
from posttrain.cli.page.routes.run_pages import run_routes
from posttrain.cli.page.routes.table_pages import table_routes

ROUTES = (
    run_routes,
    compare_routes,
    table_routes,
    row_routes,
    data_routes,
    lineage_routes,
    keeping_routes,
    review_routes,
)
"""Of each module; no two have an address in common."""
