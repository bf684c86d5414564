"""Two web hosts behind a real proxy, with people at work: a rolling update, hosts and proxies that die."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import requests

from bench.proxies import PROXIES, Places, Proxy, make_certificate
from cli.dev.embedded_redis import RedisProcess, free_port
from tests.faults.harness.ledger import Ledger, verdict
from tests.faults.harness.machines import FAKETIME, MachineSpec, config_of
from tests.faults.harness.netns import HERE, THERE, Link, running_link
from tests.faults.harness.proxy import running_proxy
from tests.support.services import own_postgres
from tests.support.system import ASSIGNMENT, Site, furnish, site, until

pytestmark = pytest.mark.soak
ASKS = """
import sys, urllib.error, urllib.request
direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
try:
    print(direct.open(sys.argv[1], timeout=10).read().decode())
except urllib.error.HTTPError as error:
    print(error.read().decode())
"""
Fault = Callable[["School"], AbstractContextManager[None]]
HOSTS = ("web-a", "web-b")
PEOPLE = 6
ROUNDS = 3
"""Of restarts of both hosts."""
DRAIN_S = 7
"""Two checks of the proxy, and a second."""


@dataclass
class School:
    """Web hosts, their proxy, and people who submit, look at pages and sign in all the time."""

    made: Site
    addresses: dict[str, str]
    """Of each web host."""
    proxy: Proxy
    token: str
    certificate: str
    ledger: Ledger
    link: Link | None = None
    """Between the first web host and everything else."""
    far: Mapping[str, str] = field(default_factory=dict)
    """The environment of that host."""
    answers: Counter[str] = field(default_factory=Counter)
    failed: list[str] = field(default_factory=list)
    times: list[float] = field(default_factory=list)
    """When something failed."""
    _ends: threading.Event = field(default_factory=threading.Event)

    def start(self, name: str, prefix: Sequence[str] = ()) -> None:
        """Start a host and wait until it answers."""
        host, _, port = self.addresses[name].rpartition(":")
        words = ["web", "--host", host, "--port", port, "--var", str(self.made.folder / "var")]
        far = self.link is not None and host == THERE
        prefix = self.link.prefix if self.link is not None and far else prefix
        self.made.parts.start(name, *words, prefix=prefix, environ=self.far if far else {})
        until(lambda: self.ready(name), 60, f"{name}; see {self.made.folder}")

    def ready(self, name: str) -> dict[str, Any]:
        """What a host says of itself, asked where it is; empty while it does not answer."""
        far = self.link is not None and self.addresses[name].startswith(THERE)
        prefix = self.link.prefix if self.link is not None and far else ()
        command = (*prefix, sys.executable, "-c", ASKS, f"http://{self.addresses[name]}/readyz")
        answer = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        found: dict[str, Any] = json.loads(answer.stdout or "{}")
        return found

    def stop(self, name: str) -> None:
        """As an update does: SIGTERM, and wait for the end."""
        process = self.made.parts.running.pop(name)
        os.killpg(process.pid, signal.SIGTERM)
        process.wait(60)
        until(lambda: not self.ready(name), 60, "it has ended, also behind faketime")

    def go_on(self) -> None:
        """Wait until people did much more."""
        before = sum(self.answers.values())
        until(lambda: sum(self.answers.values()) > before + 100, 60, "people go on")

    def went_well_since(self, moment: float) -> bool:
        """Whether nothing failed since, and much was asked."""
        return not [at for at in self.times if at >= moment]

    def person(self, number: int) -> None:
        """Sign in, then submit and look at pages, each step once; the body of a thread."""
        turn = 0
        with requests.Session() as browser:
            browser.verify, browser.trust_env = self.certificate, False
            while not self._ends.is_set():
                turn += 1
                student = f"s{number}-{turn}"
                while not self._try("submit", lambda: self._submit(browser, student)):  # noqa: B023
                    time.sleep(0.1)
                for page in ("/sign-in", "/healthz", "/api/v1/me"):
                    self._try(page, lambda: self._get(browser, page))  # noqa: B023

    def _submit(self, browser: requests.Session, student: str) -> requests.Response:
        self.ledger.attempted.add(student)
        answer = browser.post(
            f"{self.proxy.url}/api/v1/submissions",
            data={"assignment": ASSIGNMENT, "student": student},
            files=[("files", ("work.R", f"# work of {student}\nmean(sales)".encode()))],
            headers={"Authorization": f"Bearer {self.token}", "Idempotency-Key": student},
            timeout=30,
        )
        if answer.ok:
            self.ledger.accepted[student] = str(answer.json()["id"])
        return answer

    def _get(self, browser: requests.Session, page: str) -> requests.Response:
        headers = {"Authorization": f"Bearer {self.token}"} if page.startswith("/api") else {}
        return browser.get(f"{self.proxy.url}{page}", headers=headers, timeout=30)

    def _try(self, what: str, ask: Any) -> bool:
        try:
            answer = ask()
            problem = "" if answer.status_code < 500 else f"{answer.status_code} {answer.text[:200]}"
        except requests.RequestException as error:
            problem = type(error).__name__
        if problem:
            self.failed.append(f"{what}: {problem}")
            self.times.append(time.monotonic())
        self.answers[what] += not problem
        return not problem or self._ends.is_set()

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """People are at work meanwhile."""
        threads = [threading.Thread(target=self.person, args=(number,)) for number in range(PEOPLE)]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self._ends.set()
            for thread in threads:
                thread.join(60)


@pytest.fixture
def school(request: pytest.FixtureRequest, tmp_path: Path, redis_server: RedisProcess) -> Iterator[School]:
    proxy_name, far = request.param
    certificate = make_certificate(tmp_path)
    more = f'public_url = "https://localhost"\ndrain_s = {DRAIN_S}'
    config = config_of([MachineSpec("one", slots=8, seconds=0.05)], free_port(), more)
    with ExitStack() as stack:
        postgres = stack.enter_context(own_postgres(durable=True))
        made = stack.enter_context(site(tmp_path, config, postgres.url, redis_server.url))
        token = furnish(made.store, "http://localhost").token
        addresses = {name: f"127.0.0.1:{free_port()}" for name in HOSTS}
        link, environ = None, {}
        if far:
            link = stack.enter_context(running_link())
            addresses[HOSTS[0]] = f"{THERE}:{free_port()}"
            for name, url in (("DATABASE", postgres.url), ("REDIS", redis_server.url)):
                port = urlsplit(url).port
                assert port
                way = stack.enter_context(running_proxy(port, HERE))
                environ[f"GRADER_{name}_URL"] = url.replace(f"127.0.0.1:{port}", f"{HERE}:{way.port}")
        places = Places(tmp_path / "proxy", free_port(), free_port(), tuple(addresses.values()), *certificate)
        proxy = Proxy(proxy_name, places)
        ledger = Ledger(proxy.url, token)
        one = School(made, addresses, proxy, token, str(certificate[0]), ledger, link, environ)
        for name in HOSTS:
            one.start(name)
        for name in ("store", "sweep"):
            made.parts.start(f"{name}-a", name)
            made.parts.start(f"{name}-b", name)
        made.parts.start("one", "worker", "one")
        made.until_alive("one")
        stack.enter_context(proxy)
        yield one


@pytest.mark.parametrize("school", [(name, False) for name in PROXIES], ids=[*PROXIES], indirect=True)
def test_a_rolling_update_fails_no_request(school: School) -> None:
    with school.at_work():
        for _ in range(ROUNDS):
            for name in HOSTS:
                school.stop(name)
                school.start(name)
                school.go_on()
    assert school.failed == []
    assert set(school.answers) == {"submit", "/sign-in", "/healthz", "/api/v1/me"}
    _nothing_lost(school)


def _dead(name: str) -> Fault:
    @contextmanager
    def dies(school: School) -> Iterator[None]:
        school.made.parts.kill(name)
        yield

    return dies


@contextmanager
def _proxy_dies(school: School) -> Iterator[None]:
    school.proxy.kill()
    school.proxy.start()  # as a service manager does
    yield


@contextmanager
def _network_is_cut(school: School) -> Iterator[None]:
    """Between a web host and everything else: the proxy, the database and Redis."""
    assert school.link is not None
    school.link.down()
    yield
    school.link.up()
    until(lambda: school.ready("web-a").get("status") == "ok", 90, "the host is back")


@contextmanager
def _clock_is_off(school: School) -> Iterator[None]:
    """That of a web host, by an hour."""
    school.stop("web-a")
    school.start("web-a", prefix=(*FAKETIME, "+1h"))
    assert "differs by 3600 s" in school.ready("web-a")["clock"]
    # what a proxy sends there all the same is answered as usual
    page = requests.get(f"http://{school.addresses['web-a']}/sign-in", timeout=30)
    assert page.status_code == 200
    yield


@contextmanager
def _clock_is_off_and_the_host_is_stopped(school: School) -> Iterator[None]:
    """As an operator does where the proxy has no health checks."""
    with _clock_is_off(school):
        school.stop("web-a")
        yield


FAULTS: dict[str, Fault] = {
    "web host": _dead("web-a"),
    "store worker": _dead("store-a"),
    "sweeper": _dead("sweep-a"),
    "proxy": _proxy_dies,
    "network": _network_is_cut,
    "clock": _clock_is_off,
    "clock, nginx": _clock_is_off_and_the_host_is_stopped,
}


@pytest.mark.parametrize(
    ("fault", "school"),
    [(fault, ("nginx" if "nginx" in fault else "caddy", fault == "network")) for fault in FAULTS],
    ids=[*FAULTS],
    indirect=["school"],
)
def test_a_part_that_fails_loses_nothing(school: School, fault: str) -> None:
    with school.at_work():
        school.go_on()
        begun = time.monotonic()
        with FAULTS[fault](school):
            until(lambda: _calm(school), 60, "requests succeed again")
            last = max(school.times, default=begun)
            school.go_on()
    _nothing_lost(school)
    print(f"{fault}: {len(school.failed)} failed, the last {max(0.0, last - begun):.1f} s after the fault")


def _calm(school: School) -> bool:
    """Whether everybody did something for a while, and nothing failed."""
    moment, before = time.monotonic(), sum(school.answers.values())
    until(lambda: sum(school.answers.values()) > before + 50, 60, "people go on")
    return school.went_well_since(moment)


def _nothing_lost(school: School) -> None:
    school.made.until_final(len(school.ledger.accepted), 300)
    found = verdict(school.made.store, school.ledger)
    assert found.clean, found
    assert found.accepted
