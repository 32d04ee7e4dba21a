"""Run a DAG in this process: a thread per stage that may run, no server, no Prefect."""

from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait

from posttrain.pipeline.execution.executor import Executor
from posttrain.pipeline.execution.failures import StageFailed, raise_all


def run_locally(executor: Executor, names: Sequence[str], *, slots: int) -> None:
    """Bring `names` up to date, at most `slots` at a time; on a failure nothing new is started."""
    dag = executor.planner.dag
    retries = executor.planner.recipe.run.retries
    waiting, running = list(names), dict[Future[None], str]()
    with ThreadPoolExecutor(max_workers=slots) as pool:
        while waiting or running:
            for name in _ready(waiting, dag.upstream, {*waiting, *running.values()}):
                waiting.remove(name)
                running[pool.submit(_with_retries, executor, name, retries)] = name
            finished, _ = wait(running, return_when=FIRST_COMPLETED)
            if any(future.exception() for future in finished):
                wait(running)
                ended = sorted(running.items(), key=lambda item: item[1])
                raise_all(error for future, _ in ended if (error := future.exception()))
            for future in finished:
                running.pop(future)


def _ready(
    waiting: Sequence[str], upstream: Callable[[str], list[str]], unfinished: set[str]
) -> list[str]:
    return [name for name in waiting if not unfinished.intersection(upstream(name))]


def _with_retries(executor: Executor, name: str, retries: int) -> None:
    for attempt in range(1, retries + 2):
        try:
            executor.bring_up_to_date(name, attempt=attempt)
        except StageFailed as failure:
            if not failure.retryable or attempt > retries:
                raise
        else:
            return
