"""A compromised machine: what it forges counts for nothing, and what it wants to stop goes on."""

from __future__ import annotations

import base64
import json
import threading
import time
from collections.abc import Iterator
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest
from redis import Redis

from grading.broker import celery_app, redis_acl, redis_key_types, signing
from grading.broker.heartbeats import Heartbeat, Lease
from grading.broker.leases import Leases, load_scripts
from grading.config import settings as configuration
from grading.domain.round_states import RunState
from grading.store.tables import Round, Run
from tests.hostile.broker import forged_results
from tests.hostile.broker.forged_results import Target
from tests.support import factories
from tests.support.redis_servers import acl_file, client, password, redis_server
from tests.support.system import Site, site, until
from workers.machine.results import Inbox
from workers.server.context import Server
from workers.server.sweeper import Sweeper

TOML = """
[[machines]]
name = "one"
slots = 2
[machines.stages]
analysis = { engine = "instant", model = "m" }
[[machines]]
name = "two"
slots = 2
[machines.stages]
analysis = { engine = "instant", model = "m" }
feedback = { engine = "instant", model = "m" }
"""


class World:
    """A server with its store process, and two machines that the test plays with their own users."""

    def __init__(self, made: Site, urls: dict[str, str]) -> None:
        self.made, self.urls = made, urls
        self.names = ("one", "two")

    def redis(self, machine: str) -> Redis:
        return client(self.urls[machine])

    def running(self, student: str) -> dict[str, dict[str, Any]]:
        """stage -> the job that its machine took: `one` analyses, `two` does the rest."""
        for name in self.names:
            with self.redis(name) as redis:
                stages = self.made.config.machine(name).stages
                kinds = {s: {"engine": "instant", "model": "m"} for s in stages}
                Leases(redis, self.names).heartbeat(Heartbeat(f"of {name}", name, 2, 0, kinds))
        self.made.dispatch.announce(factories.submit(self.made.store, 1, student).round_id)
        return {"analysis": self.take("one", "analysis"), "feedback": self.take("two", "feedback")}

    def take(self, machine: str, name: str) -> dict[str, Any]:
        """Off the queue and claimed, as that machine does it."""
        with self.redis(machine) as redis:
            _, row = redis.brpop([name], timeout=30)  # type: ignore[misc]
            _, kwargs, _ = json.loads(base64.b64decode(json.loads(row)["body"]))
            job: dict[str, Any] = kwargs["job"]
            assert (
                Leases(redis, self.names).claim(self.lease(machine, job), job["round_id"]).answer == "granted"
            )
        return job

    def lease(self, machine: str, job: dict[str, Any]) -> Lease:
        return Lease(job["run_id"], machine, f"of {machine}", job["stage"], round_id=job["round_id"])

    def send(self, machine: str, job: dict[str, Any], secret: str | None = None) -> None:
        """The result of a job, signed by this machine."""
        content = factories.result(job["run_id"], job["round_id"], job["stage"]).model_dump(mode="json")
        with self.redis(machine) as redis:
            inbox = Inbox(redis, signing.signer(self.urls[machine], machine))
            inbox.result(content, job["secret"] if secret is None else secret)

    def run(self, job: dict[str, Any]) -> Run:
        with self.made.store.read() as session:
            return session.get_one(Run, job["run_id"])

    def state(self, jobs: dict[str, dict[str, Any]]) -> str:
        with self.made.store.read() as session:
            return session.get_one(Round, jobs["analysis"]["round_id"]).state

    def log(self) -> str:
        return (self.made.folder / "store.log").read_text(errors="replace")

    def until_refused(self, count: int) -> None:
        until(lambda: self.log().count("was rejected") >= count, 30, f"{count} messages are refused")


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("forged")
    (folder / "config.toml").write_text(TOML)
    read = configuration.load(folder / "config.toml", {})
    keys = signing.Keyring(password(), users=True)
    users = {"server": keys.password, **{f"machine.{n}": keys.machine_password(n) for n in ("one", "two")}}
    with redis_server(folder / "redis", acl_file(folder / "redis", redis_acl.lines(read, users))) as port:
        known = read.model_copy(
            update={"redis": read.redis.model_copy(update={"url": f"redis://127.0.0.1:{port}/0"})}
        )
        urls = {user: redis_acl.url_of(known, user, secret) for user, secret in users.items()}
        with site(folder, TOML, f"sqlite:///{folder}/grader.db", urls["server"]) as made:
            made.parts.start("store", "store")
            load_scripts(made.dispatch.registry.redis)
            factories.add_assignment(made.store)
            yield World(made, {name: urls[f"machine.{name}"] for name in ("one", "two")})


def test_no_attack_of_a_machines_user_forges_a_grade(world: World) -> None:
    jobs = world.running("victim")
    target = Target("one", jobs["analysis"]["run_id"], jobs["analysis"]["round_id"], "analysis")
    refused = world.log().count("was rejected")
    done = forged_results.play(world.urls["two"], target)
    left = [attack for attack, outcome in done.items() if outcome == "left to the server"]
    assert [(a.name, a.command) for a in done if done[a] not in ("refused", "left to the server")] == []
    assert len(left) >= 8
    world.until_refused(refused + len(left))
    secret = unquote(urlsplit(world.urls["two"]).password or "")
    admin = world.made.dispatch.registry.redis
    with world.redis("two") as redis:
        for row in forged_results.forgeries("two", secret, target).values():
            refused = world.log().count("was rejected")
            redis.set(f"grader:results:two:{target.run_id}", row)
            redis.lpush("results.two", target.run_id)
            world.until_refused(refused + 1)
            until(lambda: not admin.exists(f"grader:results:two:{target.run_id}"), 30, "it is deleted")
    assert world.run(jobs["analysis"]).state == RunState.DISPATCHED
    for machine, stage in (("one", "analysis"), ("two", "feedback")):
        world.send(machine, jobs[stage])
    world.made.until_final(1, 30)
    run = world.run(jobs["analysis"])
    assert (run.state, run.machine, run.accepted) == (RunState.DONE, "one", True)


def test_a_secret_of_another_run_proves_nothing(world: World) -> None:
    jobs = world.running("secrets")
    refused = world.log().count("was rejected")
    world.send("two", jobs["analysis"], secret=jobs["feedback"]["secret"])
    world.until_refused(refused + 1)
    assert world.run(jobs["analysis"]).state == RunState.DISPATCHED


def test_who_had_the_job_and_passed_it_on_sends_no_result_for_who_holds_it(world: World) -> None:
    """It knows the secret of the run, and signs with its own key."""
    jobs = world.running("passed on")
    refused = world.log().count("another machine has the lease of run")
    world.send("two", jobs["analysis"])
    until(
        lambda: world.log().count("another machine has the lease of run") > refused,
        30,
        "the result is refused",
    )
    assert world.run(jobs["analysis"]).state == RunState.DISPATCHED


def test_a_result_is_stored_under_the_machine_that_sent_it(world: World) -> None:
    job = world.running("named")["feedback"]
    world.send("two", job)  # its content names another machine, as factories.result does
    until(lambda: world.run(job).state == RunState.DONE, 30, "the result is recorded")
    assert world.run(job).machine == "two"


def test_an_honest_late_result_counts_if_it_is_the_first(world: World) -> None:
    job = world.running("late")["feedback"]
    world.made.dispatch.registry.take_away(world.lease("two", job))
    world.send("two", job)
    until(lambda: world.run(job).state == RunState.DONE, 30, "the result is recorded")


def test_a_run_that_is_given_back_is_put_together_anew(world: World) -> None:
    jobs = world.running("handed on")
    with world.redis("one") as redis:
        job = jobs["analysis"]
        Leases(redis, world.names).give_back(world.lease("one", job))
        Inbox(redis, signing.signer(world.urls["one"], "one")).give_up(
            job["run_id"], job["secret"], "machine.two"
        )
    again = world.take("two", "machine.two")
    assert (again["run_id"], again["secret"]) == (job["run_id"], job["secret"])
    assert again["documents"] == job["documents"]
    world.send("two", again)
    until(lambda: world.run(job).state == RunState.DONE, 30, "the result is recorded")


def test_a_message_that_comes_back_while_its_run_goes_on_changes_nothing(world: World) -> None:
    """Kombu gives back what is not settled when a worker connects again."""
    job = world.running("connects again")["analysis"]
    admin = world.made.dispatch.registry
    envelope = {"body": base64.b64encode(json.dumps([[], {"job": job}, {}]).encode()).decode()}
    with world.redis("one") as redis:
        inbox = Inbox(redis, signing.signer(world.urls["one"], "one"))
        key, said = inbox.returned(envelope) or ("", "")
        assert inbox.returned({"body": base64.b64encode(b"[[], {}, {}]").decode()}) is None
        assert inbox.returned("nonsense") is None
        redis.lpush(key, said)
        until(lambda: f"run {job['run_id']} of machine one is still running" in world.log(), 30, "it is read")
        assert admin.lengths(["analysis"]) == {"analysis": 0}
        Leases(redis, world.names).give_back(world.lease("one", job))
        redis.lpush(key, said)
    assert world.take("one", "analysis")["run_id"] == job["run_id"]


def test_a_run_that_is_over_is_not_sent_again(world: World) -> None:
    job = world.running("over")["feedback"]
    world.send("two", job)
    until(lambda: world.run(job).state == RunState.DONE, 30, "the result is recorded")
    with world.redis("two") as redis:
        inbox = Inbox(redis, signing.signer(world.urls["two"], "two"))
        Leases(redis, world.names).finish(world.lease("two", job))
        inbox.give_up(job["run_id"], job["secret"], "machine.one")
    until(lambda: f"run {job['run_id']} of machine two has finished" in world.log(), 30, "it is read")
    assert world.made.dispatch.registry.lengths(["machine.one"]) == {"machine.one": 0}


def test_a_queue_of_another_type_is_set_aside_and_said(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """No machine's user can do that; an operator or another program can."""
    redis = world.made.dispatch.registry.redis
    server = Server(world.made.config, world.made.store, world.made.dispatch)
    names = ["store", "results.one", "analysis\x06\x163", "grader:leases:two", "grader:unacked-times:one"]
    for name in names:
        redis.delete(name)
        redis.set(name, "x")
    wrong = redis_key_types.of_another_type(redis, redis_key_types.expected(world.made.config))
    assert wrong == dict.fromkeys(names, "string")
    Sweeper(server).step()
    assert all(repr(name) in caplog.text for name in names)
    assert redis.get("grader:set-aside:store") == "x"
    assert 0 < redis.ttl("grader:set-aside:store") <= redis_key_types.ASIDE_S
    # the store's worker, which met the wrong type, reads again
    job = world.running("after")["feedback"]
    world.send("two", job)
    until(lambda: world.run(job).state == RunState.DONE, 30, "the result is recorded")


def test_what_a_machine_took_long_ago_is_forgotten(world: World) -> None:
    redis = world.made.dispatch.registry.redis
    taken, times = celery_app.handed_out("one")
    for tag, age_s in (("old", 5000.0), ("new", 5.0)):
        redis.hset(taken, tag, "a message")
        redis.zadd(times, {tag: time.time() - age_s})
    redis_key_types.forget_handed_out(redis, ["one", "two"], 1200)
    assert redis.hkeys(taken) == redis.zrange(times, 0, -1) == ["new"]
    redis.delete(taken, times)


def test_scripts_that_redis_forgot_are_loaded_again(world: World) -> None:
    """A machine waits for them: it may not load any itself."""
    admin = world.made.dispatch.registry.redis
    job = world.running("scripts")["feedback"]
    assert admin.script_flush()
    loader = threading.Timer(0.5, load_scripts, args=[admin])
    loader.start()
    with world.redis("two") as redis:
        assert Leases(redis, world.names).progress(world.lease("two", job))
    loader.join()
    world.send("two", job)
