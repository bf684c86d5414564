"""A worker of one thread, started as a process by `test_worker_pool`: python -m … REDIS_URL."""

import logging
import sys

from redis import Redis

from grading.broker import celery_app
from workers.celery_worker import run_worker


def main(url: str) -> None:
    """Answer until SIGTERM; `fill_quietly` fills Redis, `spoil` breaks what stores results."""
    logging.basicConfig()
    app, client = celery_app.celery_app(url, 60), Redis.from_url(url)

    @app.task(name="grader.fill_quietly", ignore_result=True)
    def fill_quietly() -> None:
        client.config_set("maxmemory", 1)

    @app.task(name="grader.stop_writing", ignore_result=True)
    def stop_writing() -> None:
        client.config_set("min-replicas-to-write", 1)

    @app.task(name="grader.spoil", ignore_result=False)
    def spoil() -> str:
        app.backend.store_result = None  # whatever is done to store a result or an error fails
        return "spoilt"

    @app.task(name="grader.tell", ignore_result=True)
    def tell() -> None:
        client.rpush("told", 1)

    run_worker(app, "one", ["tasks"], 1, lambda _consumer: client.rpush("told", 0))


if __name__ == "__main__":
    main(sys.argv[1])
