"""`grader plan --year`: a simulated term against closed formulas, and what the command says."""

from __future__ import annotations

import json
import math
import random
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from cli.commands.plan import plan as command
from cli.commands.plan_year import EXAMPLE
from cli.plan_inputs import courses_of, machines_of, parse
from cli.settings import Settings
from grading.domain.errors import ConfigError
from grading.scheduling.capacity_plan import Machine, NobodyDoes, speed_profile_of
from grading.scheduling.cluster_view import Peer
from grading.scheduling.cost_model import Size
from grading.scheduling.flow import Cluster, Counts, Pace, Point, There
from grading.scheduling.forecast import throughput
from grading.scheduling.term import Course, Rush, Work, arrivals
from grading.scheduling.term_plan import Assumed, Kind, plan_term, waits
from grading.scheduling.term_simulation import Failures, FairLine, Term, losses

FILE = """
weeks = 2
target_hours = 0.2
price_per_kwh = 0.5
[[courses]]
name = "programming"
count = 2
students = 20
deadlines = ["Fri 18:00"]
regraded = 0.5
[[machines]]
name = "box"
slots = 4
mtbf_hours = 100
watts_idle = 10
watts_busy = 110
[machines.stages]
analysis = { jobs_per_hour = 240 }
feedback = { jobs_per_hour = 240 }
"""


def machine(name: str = "box", **an_hour: float) -> Machine:
    profiles = {stage: speed_profile_of(jobs / 3600, 4) for stage, jobs in an_hour.items()}
    return Machine(Peer(name, 4, tuple(profiles), speed_profiles=profiles), kind=name)


class Servers(Cluster):
    """So many servers of one job a second each, as books on queues have them."""

    def pace(self, counts: Counts) -> Pace:
        return Servings(self, counts)


class Servings(Pace):
    """Of `Servers`."""

    def at(self, there: There) -> Point:
        """Each run has a server of its own, as far as there are enough."""
        found = min(there[0], self.slots // 4)
        return Point((float(found),), (found,), (1.0,), ((1.0,),))


SERVERS = Servers([machine(analysis=3600)], ["analysis"])


def poisson(count: int, a_second: float, *, exponential: bool) -> list[Work]:
    rng, at, found = random.Random(3), 0.0, []
    for _ in range(count):
        at += rng.expovariate(a_second)
        found.append(Work(at, 0, 0, sizes=(rng.expovariate(1.0) if exponential else 1.0,)))
    return found


def mean_in_line(work: list[Work], servers: int) -> float:
    played = Term(work, SERVERS, (servers,)).play()
    spans = [at - one.at_s - one.sizes[0] for at, one in zip(played.graded_s, work, strict=True)]
    return sum(spans) / len(spans)


@pytest.mark.parametrize("load", [0.5, 0.8])
def test_one_server_with_equal_jobs_waits_as_m_d_1(load: float) -> None:
    """Pollaczek and Khinchine: load / 2 (1 - load) jobs' worth."""
    work = poisson(12_000, load, exponential=False)
    assert mean_in_line(work, 1) == pytest.approx(load / (2 * (1 - load)), rel=0.06)


def test_four_servers_wait_as_m_m_c() -> None:
    """Erlang's C."""
    servers, load = 4, 0.8
    offered = servers * load
    full = offered**servers / math.factorial(servers) / (1 - load)
    waiting = full / (sum(offered**n / math.factorial(n) for n in range(servers)) + full)
    work = poisson(20_000, offered, exponential=True)
    # a job takes its own size of seconds as long as no more are in hand than there are servers
    assert mean_in_line(work, servers) == pytest.approx(waiting / (servers - offered), rel=0.1)


def test_work_is_neither_lost_nor_done_twice() -> None:
    """Pace times seconds is the work of all tries; without failures none begins anew."""
    work = poisson(2_000, 2.0, exponential=True)
    played = Term(work, SERVERS, (3,)).play()
    assert not any(map(math.isinf, played.graded_s))
    did = sum(min(n, 3) * seconds for (n,), seconds in played.spent[3,].items())
    assert did == pytest.approx(sum(one.sizes[0] for one in work))
    again = Term([Work(0.0, 0, 0)] * 400, SERVERS, (3,), retried=0.25).play()
    did = sum(min(n, 3) * seconds for (n,), seconds in again.spent[3,].items())
    assert again.retries == pytest.approx(400 / 3, rel=0.2)
    assert did == pytest.approx(400 + again.retries)


def test_what_a_lost_machine_had_begins_anew_and_ends_later() -> None:
    cluster = Cluster([machine(analysis=3600)], ["analysis"])
    work = [Work(0.0, 0, 0)] * 40
    whole = Term(work, cluster, (2,)).play()
    lost = Term(work, cluster, (2,), [(2.0, 0, -1), (500.0, 0, 1)]).play()
    assert max(lost.graded_s) > 1.5 * max(whole.graded_s)
    assert lost.lost == [1]
    gone = Term(work, cluster, (1,), [(2.0, 0, -1)]).play()
    assert math.isinf(waits(gone.graded_s).worst_h)
    back = Term(work, cluster, (1,), [(2.0, 0, -1), (900.0, 0, 1)]).play()
    assert 900 < max(back.graded_s) < 1000


def test_machines_are_away_as_often_and_as_long_as_assumed() -> None:
    changes = losses((50,), Failures((90.0,), (10.0,)), 5000.0)
    away, since, hours = 0, 0.0, 0.0
    for at, _, by in changes:
        hours, since, away = hours + away * (at - since) / 3600, at, away - by
    assert away == 0
    assert hours / (50 * 5000) == pytest.approx(0.1, rel=0.1)


def test_courses_take_turns_and_first_submissions_go_before_further_ones() -> None:
    line = FairLine()
    for number, (course, again) in enumerate([(0, True), (0, False), (0, False), (1, False)]):
        line.add(course, number, again)
    assert [line.take() for _ in range(4)] == [1, 3, 2, 0]


def test_batch_work_takes_one_of_eight_while_others_wait() -> None:
    work = [Work(0.0, 0, 0, batch=True)] * 16 + [Work(0.0, 0, 0)] * 40
    played = Term(work, SERVERS, (1,)).play()
    order = sorted(range(len(work)), key=lambda n: played.graded_s[n])
    assert [place for place, n in enumerate(order[:40]) if n < 16][1:] == [7, 15, 23, 31, 39]


def test_submissions_crowd_before_the_deadline_as_assumed() -> None:
    rush = Rush()
    assert rush.share(24) == pytest.approx(0.72, abs=0.005)
    assert rush.share(1) == pytest.approx(0.28, abs=0.005)
    assert rush.hours_left(rush.share(5.0)) == pytest.approx(5.0)
    course = Course("a", 3000, (400.0,), taking_part=1, submissions=1.5, regraded=0.1)
    found = arrivals([course])
    own = [one for one in found if not one.batch]
    assert len(own) == pytest.approx(4500, rel=0.03)
    assert sum(not one.again for one in own) == 3000
    assert len(found) - len(own) == pytest.approx(450, rel=0.03)
    assert sum(one.at_s >= 399 * 3600 for one in own) / len(own) == pytest.approx(0.28, abs=0.02)
    assert all(one.at_s <= later.at_s for one, later in pairwise(found))
    assert sum(one.sizes[0] for one in own) / len(own) == pytest.approx(1.0, rel=0.02)


def test_a_large_cluster_is_scaled_from_a_small_one() -> None:
    cluster = Cluster([machine(analysis=360, feedback=360)], ["analysis", "feedback"])
    small, large = cluster.pace((8,)), cluster.pace((80,))
    assert large.slots == 10 * small.slots
    for there in ((4, 4), (32, 16), (64, 64), (900, 600)):
        few, many = small.at(there), large.at((10 * there[0], 10 * there[1]))
        assert many.per_s == pytest.approx([10 * rate for rate in few.per_s])
        assert many.busy == few.busy
    assert sum(large.at((900, 600)).per_s) == pytest.approx(80 * 0.1, rel=0.1)
    assert cluster.pace((0,)).at((5, 5)).per_s == (0.0, 0.0)


def test_more_machines_or_fewer_students_never_wait_longer_and_energy_adds_up() -> None:
    kind = Kind(machine(analysis=120, feedback=120), 1, watts_idle=10, watts_busy=110)
    course = Course("a", 100, (100.0, 268.0), submissions=1)
    found = plan_term(Assumed([kind], ["analysis", "feedback"], [course], 2, target_h=0.25))
    assert found.additions[0].p95_h < found.p95_h
    assert [one.kind for one in found.steps] == ["box"] * len(found.steps)
    used = found.used[0]
    assert used.busy_h == pytest.approx(found.busy_h, rel=0.02)
    assert used.kwh == pytest.approx((336 * 10 + used.busy_h * 100) / 1000)


def test_a_stage_without_a_machine_is_no_plan() -> None:
    with pytest.raises(NobodyDoes, match="feedback"):
        plan_term(Assumed([Kind(machine(analysis=1), 1)], ["analysis", "feedback"], [], 1, 1.0))


def run(path: Path, *options: str) -> Result:
    return CliRunner().invoke(command, [str(path), "--year", *options], obj=Settings(path))


def test_the_command_says_waits_energy_and_what_to_buy(tmp_path: Path) -> None:
    path = tmp_path / "term.toml"
    path.write_text(FILE)
    plot = tmp_path / "weeks.svg"
    result = run(path, "--plot", str(plot))
    assert result.exit_code == 0, result.output
    for words in (
        "Courses: 2, with 40 students; 85 % of them take part in a deadline, and submit 1.5 times on",
        "28 % of the submissions come in the last hour before their deadline",
        "box every 100 h for 8 h",
        "programming 2",
        "kWh",
        "EUR",
        "buy before week 2",
        "Buy one box: 95 % within",
    ):
        assert words in result.output
    assert plot.read_text().startswith("<svg")
    found = json.loads(run(path, "--json").output)
    assert set(found["courses"]) == {"programming 1", "programming 2"}
    assert found["weeks"]["2"]["submissions"] == found["submissions"]
    assert found["energy_cost"] == pytest.approx(found["kwh"] * 0.5)


def test_what_is_not_known_is_said(tmp_path: Path) -> None:
    path = tmp_path / "term.toml"
    path.write_text(FILE.replace("watts_idle = 10\n", "").replace("watts_busy = 110\n", ""))
    result = run(path)
    assert "Energy: unknown" in result.output
    assert json.loads(run(path, "--json").output)["kwh"] is None


@pytest.mark.parametrize(
    ("wrong", "right", "says"),
    [
        ('"Fri 18:00"', '"Friday"', "courses.0.deadlines.0"),
        ("students = 20", "students = 0", "courses.0.students"),
        ("weeks = 2", "weeks = true", "weeks: write a number or a text, not true or false"),
        ("students = 20", "students = true", "courses.0.students: write a number"),
        ("watts_idle = 10\n", "", "write both watts_idle and watts_busy"),
        ("weeks = 2", "weeks = 2\nweek = 3", "week: Extra inputs"),
        ('"Fri 18:00"', '"Fri 25:00"', "write a weekday and a time, such as 'Fri 18:00'"),
        ("students = 20", "students = -20", "courses.0.students"),
        ("students = 20", "students = 1000000000", "courses.0.students"),
        ("regraded = 0.5", "first_week = 9\nlast_week = 3", "last_week 3 is before first_week 9"),
        ("regraded = 0.5", "first_week = 9", "no deadline within 2 weeks"),
        ("watts_busy = 110", "watts_busy = 1", "watts_busy is less than watts_idle"),
        ("mtbf_hours = 100", "mtbf_hours = 1e-9", "machines.0.mtbf_hours"),
        ("slots = 4", "count = 101", "machines.0.count"),
        ("analysis = { jobs_per_hour = 240 }", "anlysis = { jobs_per_hour = 1 }", "Use analysis, feedback"),
        ("analysis = { jobs_per_hour = 240 }", "analysis = { jobs_per_hour = 1e300 }", "jobs_per_hour"),
        ("analysis = { jobs_per_hour = 240 }", "analysis = { }", "write either jobs_per_hour or model"),
        ('name = "programming"', 'name = "a\\u001b[31m"', "use printable characters only"),
        ("target_hours = 0.2", "target_hours = nan", "target_hours: Input should be a finite number"),
    ],
)
def test_a_wrong_term_is_refused_with_the_key(wrong: str, right: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        courses_of(parse(FILE.replace(wrong, right), "term.toml"))


def test_a_term_that_is_too_large_to_play_is_refused() -> None:
    text = FILE.replace("count = 2", "count = 2000").replace("students = 20", "students = 100000")
    with pytest.raises(ConfigError, match=r"382,500,000 submissions in the term\. A plan takes"):
        courses_of(parse(text, "term.toml"))


def test_a_submission_is_graded_when_its_last_stage_ends() -> None:
    """Analysis is four times as fast as feedback, and each has machines of its own."""
    kinds = [machine("fast", analysis=1440), machine("slow", feedback=360)]
    work = [Work(0.0, 0, 0)] * 60
    played = Term(work, Cluster(kinds, ["analysis", "feedback"]), (1, 1)).play()
    alone = Term(work, Cluster(kinds[1:], ["feedback"]), (1,)).play()
    assert played.graded_s == pytest.approx(alone.graded_s, rel=0.15)


def test_runs_differ_by_machine_and_each_stage_goes_on_as_after_the_worse_beginning() -> None:
    kinds = [machine("fast", analysis=1440, feedback=300), machine("slow", analysis=360, feedback=200)]
    peers, there = [[kind.peer] for kind in kinds], {"analysis": 12, "feedback": 12}
    both = [throughput(peers, there, 40, apt=apt) for apt in (False, True)]
    assert Cluster(kinds, list(there)).flow((1, 1), (12, 12)).per_s == tuple(
        map(min, *(one.per_s for one in both))
    )
    times = throughput(peers, {"analysis": 60}, 40).spread[0]
    assert sum(times) / len(times) == pytest.approx(1.0)
    assert times[-1] > 2 * times[0]


def test_computed_speeds_know_how_long_answers_are() -> None:
    """Beside the other stage an analysis has more steps than a feedback, each as long."""
    sizes = {"analysis": Size(output=1200), "feedback": Size(output=800)}
    profiles = machines_of(parse(EXAMPLE, "the example"), sizes)[0].peer.speed_profiles
    assert {stage: one.tokens for stage, one in profiles.items()} == {"analysis": 1200, "feedback": 800}


def test_other_machines_are_tried_in_the_worst_weeks_and_those_beside_them() -> None:
    kind = Kind(machine(analysis=120, feedback=120), 1)
    course = Course("a", 30, tuple(168.0 * week + 100 for week in range(6)), submissions=1)
    found = plan_term(Assumed([kind], ["analysis", "feedback"], [course], 6, target_h=20))
    assert sorted(found.growth) == [1.5, 2.0, 3.0, 4.0]
    whole = plan_term(Assumed([replace(kind, count=2)], ["analysis", "feedback"], [course], 6, target_h=20))
    assert found.additions[0].p95_h == pytest.approx(whole.p95_h, rel=0.1)


def test_alike_courses_share_deadlines_in_turn() -> None:
    course = 'name = "c"\ncount = 4\nstudents = 5\ndeadlines = ["Mon 12:00", "Sun 23:30"]\nevery_weeks = 2\n'
    text = f"weeks = 6\n[[courses]]\n{course}"
    found = courses_of(parse(text, "t"))
    assert [[at // 168 + 1 for at in one.deadlines_h] for one in found] == [
        [2, 4, 6],
        [2, 4, 6],
        [3, 5],
        [3, 5],
    ]
    assert [one.deadlines_h[0] % 168 for one in found] == [12, 167.5, 12, 167.5]


def test_the_manual_shows_the_example() -> None:
    manual = Path(__file__).parents[3] / "docs" / "how-to" / "administrators" / "planning.md"
    assert f"```toml\n{EXAMPLE}```" in manual.read_text(encoding="utf-8")
