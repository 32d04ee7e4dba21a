"""Runs of an MLflow server, by its REST interface."""

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import urlsplit

from pydantic import Field, field_validator

from posttrain.data.run_sources.base import FetchedRun, RunSource, fits
from posttrain.stage.errors import UserError, first_line
from posttrain.stage.needs import HUB

if TYPE_CHECKING:
    import httpx2

_PAGE = 1000


class MlflowServer(RunSource):
    """Fetch the runs of an experiment from an MLflow server.

    What the server had when it was asked is the artifact: runs that end later are fetched once the
    stage runs anew (`posttrain run --force`). A server with a password is not asked.
    """

    SOURCE = "MLflow 3.17, REST API 2.0 (experiments/get-by-name, runs/search, metrics/get-history)"

    kind: Literal["mlflow_server"] = "mlflow_server"
    url: str
    """Address of the server, such as http://127.0.0.1:5000."""
    experiment: str
    """Name of the experiment."""
    timeout_s: float = Field(default=60.0, gt=0.0)
    """Seconds without a byte after which the server counts as silent."""

    @field_validator("url")
    @classmethod
    def _is_an_address(cls, url: str) -> str:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.username:
            raise ValueError("url must be like http://host:port, without a password")
        return url.rstrip("/")

    def reaches(self) -> frozenset[str]:
        """Connect to the server."""
        return frozenset({HUB})

    def runs(
        self,
        metrics: Sequence[str],
        where: Mapping[str, str],
        file: Path | None,  # noqa: ARG002 - nothing is read here
    ) -> Sequence[FetchedRun]:
        """Ask for the runs, and for each metric's history; see `RunSource.runs`."""
        import httpx2

        try:
            with httpx2.Client(timeout=self.timeout_s) as http:
                by_name = {"experiment_name": self.experiment}
                found = self._ask(http, "GET", "experiments/get-by-name", by_name)
                asked = {
                    "experiment_ids": [found["experiment"]["experiment_id"]],
                    "filter": "attributes.status = 'FINISHED'",
                    "run_view_type": "ACTIVE_ONLY",
                    "max_results": _PAGE,
                }
                listed = list(self._pages(http, "POST", "runs/search", asked, of="runs"))
                return [
                    FetchedRun(
                        run["info"]["run_id"],
                        run["info"].get("run_name") or run["info"]["run_id"],
                        facts,
                        {m: self._points(http, run["info"]["run_id"], m) for m in metrics},
                    )
                    for run in sorted(listed, key=lambda each: str(each["info"]["run_id"]))
                    if fits(facts := _facts(run.get("data", {})), where)
                ]
        except httpx2.HTTPError as error:
            raise UserError(
                f"{self.url} does not answer: {first_line(error)}; start the server, or correct url"
            ) from None
        except (ValueError, LookupError, TypeError) as error:
            raise UserError(
                f"{self.url} does not answer as MLflow does ({type(error).__name__}); name the"
                " address that MLFLOW_TRACKING_URI would have"
            ) from None

    def _points(self, http: "httpx2.Client", run: str, metric: str) -> dict[int, float]:
        asked = {"run_id": run, "metric_key": metric, "max_results": _PAGE}
        rows = self._pages(http, "GET", "metrics/get-history", asked, of="metrics")
        each = [(int(m.get("step", 0)), int(m["timestamp"]), float(m["value"])) for m in rows]
        return {step: value for step, _, value in sorted(each) if math.isfinite(value)}

    def _pages(
        self, http: "httpx2.Client", verb: str, path: str, asked: Mapping[str, Any], *, of: str
    ) -> Iterator[Mapping[str, Any]]:
        token = ""
        while True:
            page = self._ask(
                http, verb, path, {**asked, **({"page_token": token} if token else {})}
            )
            yield from page.get(of, ())
            token = page.get("next_page_token", "")
            if not token:
                return

    def _ask(
        self, http: "httpx2.Client", verb: str, path: str, asked: Mapping[str, Any]
    ) -> Mapping[str, Any]:
        where = f"{self.url}/api/2.0/mlflow/{path}"
        answer = http.post(where, json=asked) if verb == "POST" else http.get(where, params=asked)
        if answer.status_code >= 400:
            said = " ".join(answer.text[:200].split())
            raise UserError(f"{self.url} refuses {path} ({answer.status_code}): {said}")
        given: Mapping[str, Any] = answer.json()
        return given


def _facts(data: Mapping[str, Any]) -> dict[str, str]:
    listed = [*data.get("tags", ()), *data.get("params", ())]
    return {str(each["key"]): str(each.get("value", "")) for each in listed}
