"""What `grader bench router` reads off a run: what was noticed how soon, and what guests cost."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from click.testing import CliRunner

from bench.cluster.asking import Request
from bench.cluster.bound import bound_s
from bench.cluster.cards import CARDS, GEMMA
from bench.cluster.costs import Box
from bench.cluster.guests import MOST, PROMPT, Tally, prompt
from bench.cluster.report import COUNTED, KNOWN, LONGER, LOST, LOST_WORK, Played, side_by_side, table
from bench.cluster.runs import OURS, OURS_GUESTS, Ended, Outcome, Plan, Reacted
from bench.cluster.scenarios import Scenario, backlog, lost, slow
from bench.cluster.sizes import Asked, padded
from bench.cluster.watch import Watched
from cli.commands.bench_router import bench_router
from grading.broker.heartbeats import Beat, Lease

MAC, OTHER = "mac-studio-1", "mac-studio-2"


def beat(process: str, machine: str = MAC, health: float = 1.0, age_s: float = 0.0) -> Beat:
    paces = {"analysis": {"health": 1.0}, "feedback": {"health": health}}
    return Beat(process, machine, slots=2, busy=0, paces=paces, age_s=age_s)


def lease(process: str, machine: str = MAC) -> Lease:
    return Lease("run", machine, process, "feedback")


def test_a_return_counts_from_the_new_workers_beat_and_run():
    watched = Watched(lost(2, 1, 40), factor=10)  # dead from 30 s to 60 s
    watched.see(20.0, [beat("old")], [lease("old")])
    watched.see(61.0, [beat("old", age_s=4.0)], [lease("old"), lease("far", OTHER)])
    assert watched.reacted() == Reacted(math.inf, math.inf)
    watched.see(68.0, [beat("old", age_s=4.5), beat("new")], [lease("old")])
    watched.see(73.0, [beat("new")], [lease("new")])
    watched.see(99.0, [beat("new")], [lease("new")])
    assert watched.reacted() == Reacted(8.0, 13.0)


def test_a_loss_is_compared_with_the_same_hand_ins_without_it():
    calm, loss = Plan(backlog(40, 2, 1), 10.0), Plan(lost(2, 1, 40), 10.0)
    done = [
        Outcome(OURS, [Ended(0, 0.0, end)], thrown_s={MAC: thrown})
        for end, thrown in ((900.0, 0), (950.0, 80))
    ]
    rows = [
        row for one in side_by_side([Played(calm, done[:1]), Played(loss, done[1:])]) for row in one.rows()
    ]
    assert LOST not in rows[0]
    assert (rows[1][LOST_WORK], rows[1][LONGER]) == (80, 50)
    known, bare = (
        bound_s(CARDS, 2, of.scenario.hand_ins, of.scenario.setting.changes) for of in (loss, calm)
    )
    assert rows[1][LOST] > round(known - bare)  # the work that is done twice counts, too
    assert rows[1][COUNTED] < rows[1][KNOWN]
    assert LONGER not in Played(loss, done[1:]).rows()[0]


def test_a_machine_that_loses_power_says_what_work_is_lost():
    box = Box(CARDS[MAC], slots=1)
    box.submit(0.0, Request("a", GEMMA.name, 5000, 800))
    ends = box.next_event()
    box.advance(ends)  # its prompt is read
    whole = box.next_event()
    box.change(ends + 0.5 * (whole - ends), 0.0)
    assert box.thrown_s == pytest.approx(ends + 0.5 * (whole - ends), rel=0.01)
    assert Box(CARDS[MAC]).thrown_s == 0


def test_slowness_counts_from_when_it_began_until_a_beat_says_so():
    watched = Watched(slow(2, 1, 40), factor=10)  # from 40 s on
    watched.see(39.0, [beat("a", health=0.5)], [])
    watched.see(50.0, [beat("a", health=0.7), beat("b", OTHER, health=0.1)], [])
    assert watched.reacted() == Reacted(noticed_s=math.inf)
    watched.see(60.0, [beat("a", health=0.5, age_s=0.2)], [])
    assert watched.reacted() == Reacted(noticed_s=18.0)


def test_nothing_is_told_of_machines_to_which_nothing_happens():
    watched = Watched(backlog(4, 2, 1), factor=10)
    watched.see(60.0, [beat("a", health=0.1)], [lease("a")])
    assert watched.reacted() == Reacted()


def test_fewer_hand_ins_meet_what_happens_sooner():
    assert (lost(2, 1).name, lost(2, 1).setting.changes) == ("lost", {MAC: ((300.0, 0.0), (600.0, 1.0))})
    assert (lost(2, 1, 40).name, lost(2, 1, 40).setting.changes) == (
        "lost40",
        {MAC: ((30.0, 0.0), (60.0, 1.0))},
    )
    assert (slow(2, 1, 40).name, len(slow(2, 1, 40).hand_ins)) == ("slow40", 40)


def test_a_guest_asks_for_what_it_is_to_get():
    asked = Asked(GEMMA.name, "", prompt(3, 312), None, MOST, True).request("name")
    assert (asked.prompt, asked.output, asked.shared, asked.prefix) == (PROMPT, 312, 0, "")
    assert Asked(GEMMA.name, "", prompt(3, 312), None, 100, True).request("name").output == 100
    assert len(padded(Asked(GEMMA.name, "", "", None, None, True).text(), 312)) == 312


def test_who_found_no_room_was_refused_and_all_others_were_broken_off():
    tally = Tally(answered=2)
    for code in ("machines_busy", "preempted", "rate_limit_exceeded", "machines_busy", "machine_lost"):
        tally.ended(code)
    visits = tally.visits()
    assert visits.refused == {"machines_busy": 2, "rate_limit_exceeded": 1}
    assert visits.broken == {"preempted": 1, "machine_lost": 1}


def played(scenario: Scenario, *outcomes: Outcome) -> Played:
    return Played(Plan(scenario, 10.0), outcomes)


NOTHING = Reacted()


def outcome(way: str, seconds: float, reacted: Reacted = NOTHING) -> Outcome:
    return Outcome(way, [Ended(n, 0.0, seconds) for n in range(40)], reacted=reacted)


def test_columns_stand_only_where_there_is_something_to_tell():
    plain = played(backlog(40, 2, 1), outcome(OURS, 1000.0))
    assert "known" not in table([plain])[0]
    assert "guests" not in table([plain])[0]
    happened = played(lost(2, 1, 40), outcome(OURS, 1000.0, Reacted(8.0, math.inf)), outcome("roles", 1100.0))
    head, _, ours, roles = table([happened])
    lost_columns = " | ".join((KNOWN, COUNTED, LOST_WORK, LOST))
    assert head.endswith(f"| {lost_columns} | return → beat s | return → work s |")
    assert ours.endswith("| 8 | never |")
    assert roles.endswith("| – | – |")
    of = lost(2, 1, 40)
    known = bound_s(CARDS, 2, of.hand_ins, of.setting.changes)
    assert happened.rows()[0]["× bound, changes known"] == round(1000 / known, 3)
    assert known > happened.bound_s


def test_guests_cost_what_grading_takes_longer_with_them():
    visits = Tally(3).visits()
    with_guests = replace(outcome(OURS_GUESTS, 1030.0), visits=visits)
    rows = played(backlog(40, 2, 1), outcome(OURS, 1000.0), with_guests).rows()
    assert "over ours %" not in rows[0]
    assert (rows[1]["over ours %"], rows[1]["guests answered"], rows[1]["broken off"]) == (3.0, 3, 0)
    assert played(backlog(40, 2, 1), with_guests).rows()[0]["over ours %"] is None


@pytest.mark.parametrize(("option", "value"), [("--scenario", "slow0"), ("--only", "ours+others")])
def test_what_there_is_not_is_refused_with_what_there_is(option: str, value: str):
    said = CliRunner().invoke(bench_router, [option, value])
    assert said.exit_code == 2
    assert f"'{value}' is none of" in said.output
