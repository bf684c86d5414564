import math
import random

import pytest

from bench.router.cost_model import (
    ANALYSIS,
    CARDS,
    FEEDBACK,
    GB,
    GB10,
    GEMMA,
    M3_ULTRA,
    M4_MAX,
    QWEN,
    STAGES,
    Work,
    job_s,
    rate,
)
from bench.router.emulator import Emulator, Event, Refused, Request
from bench.router.lower_bound import per_hour, rates, shares


def ask(name: str, work: Work = ANALYSIS, output: int | None = None, prefix: str = "class") -> Request:
    return Request(name, work.model.name, work.prompt, output or work.output, prefix, work.shared)


def to_end(emulator: Emulator) -> list[Event]:
    events = []
    while (at := emulator.next_event()) < math.inf:
        events += emulator.advance(at)
    return events


# submissions an hour by the facts' arithmetic, without -> with the class's prefix kept
@pytest.mark.parametrize(
    ("card", "work", "expected"),
    [
        (GB10, ANALYSIS, [(331, 339), (507, 528), (589, 617)]),
        (M3_ULTRA, FEEDBACK, [(57, 65), (205, 380), (253, 582)]),
        (M4_MAX, FEEDBACK, [(38, 43), (135, 252), (166, 385)]),
        (GB10, FEEDBACK, [(22, 22), (144, 157), (239, 277)]),
    ],
)
def test_ideal_rates_are_those_of_the_table(card, work, expected):
    for at_once, pair in zip((1, 8, 16), expected, strict=True):
        for cached, hourly in zip((False, True), pair, strict=True):
            assert 3600 * rate(card.ideal(), work, at_once, cached) == pytest.approx(
                hourly, rel=0.01, abs=0.6
            )


def test_bounds_are_those_of_the_table():
    ideal = {m: c.ideal() for m, c in CARDS.items()}
    assert per_hour(ideal, 16) == pytest.approx(1116, rel=0.011)
    assert per_hour(ideal, 8) == pytest.approx(744, rel=0.011)
    assert per_hour(ideal, 1) == pytest.approx(143, rel=0.011)
    assert per_hour(CARDS, 16) == pytest.approx(775, rel=0.015)
    roles = {"analysis": "dgx", "feedback": "mac"}
    fixed = {
        m: {s: r for s, r in of.items() if m.startswith(roles[s])}
        for m, of in rates(ideal, 16, STAGES).items()
    }
    hourly = 3600 / shares(fixed, {"analysis": 1.0, "feedback": 1.0}).makespan_s
    assert hourly == pytest.approx(967, rel=0.005)


@pytest.mark.parametrize("card", [GB10, M3_ULTRA, M4_MAX])
@pytest.mark.parametrize("work", [ANALYSIS, FEEDBACK])
def test_an_emulator_that_is_never_idle_works_at_the_computed_rate(card, work):
    emulator, rng = Emulator(card, 16), random.Random(1)
    for i in range(240):
        emulator.submit(0.0, ask(str(i), work, round(work.output * rng.uniform(0.8, 1.2))))
    done = [e.at for e in to_end(emulator) if e.kind == "done"]
    assert len(done) == 240
    assert (200 - 40) / (done[200] - done[40]) == pytest.approx(rate(card, work, 16), rel=0.04)


def test_one_alone_takes_what_it_should_and_tells_its_tokens():
    emulator = Emulator(GB10, progress=True)
    emulator.submit(0.0, ask("first"))
    events = emulator.advance(job_s(GB10, ANALYSIS, 1, cached=False) / 2)
    assert [e.kind for e in events] == ["first", "progress"]
    assert 0 < events[-1].tokens < 1200
    (done,) = [e for e in to_end(emulator) if e.kind == "done"]
    assert done.at == pytest.approx(job_s(GB10, ANALYSIS, 1, cached=False))
    assert (done.tokens, done.prompt, done.cached) == (1200, 5000, 0)
    emulator.submit(100.0, ask("second"))
    (again,) = [e for e in to_end(emulator) if e.kind == "done"]
    assert again.at - 100 == pytest.approx(job_s(GB10, ANALYSIS, 1))
    assert again.cached == 4000


def test_the_same_calls_give_the_same_events_however_often_it_is_looked_at():
    def play(looks: int) -> list[Event]:
        emulator, rng, events = Emulator(M4_MAX, 4, changes=((50.0, 0.5),)), random.Random(3), []
        for i in range(12):
            emulator.submit(0.0, ask(str(i), rng.choice((ANALYSIS, FEEDBACK)), rng.randint(50, 300)))
        for k in range(looks):
            events += emulator.advance(400.0 * (k + 1) / looks)
            emulator.snapshot()
        return events

    once, often = play(1), play(5000)
    assert [(e.kind, e.id) for e in once] == [(e.kind, e.id) for e in often]
    assert [e.at for e in once] == pytest.approx([e.at for e in often])


def test_two_models_in_one_batch_read_both_sets_of_weights():
    alone, beside = Emulator(M3_ULTRA), Emulator(M3_ULTRA)
    alone.submit(0.0, ask("a"))
    beside.submit(0.0, ask("a"))
    beside.submit(0.0, ask("f", FEEDBACK))
    ends = [
        next(e.at for e in to_end(emulator) if e.id == "a" and e.kind == "done")
        for emulator in (alone, beside)
    ]
    assert ends[1] > 5 * ends[0]


def test_a_full_queue_is_refused_and_a_cancelled_one_makes_room():
    emulator = Emulator(GB10, slots=1, queue=1)
    assert [emulator.submit(0.0, ask(name)) for name in ("a", "b")] == ["a", "b"]
    refused = emulator.submit(0.0, ask("c"))
    assert isinstance(refused, Refused)
    assert refused.status == 503
    emulator.cancel(1.0, "a")
    assert emulator.submit(1.0, ask("c")) == "c"
    assert [e.id for e in to_end(emulator) if e.kind == "done"] == ["b", "c"]
    unknown = emulator.submit(90.0, Request("d", "llama", 1, 1))
    assert isinstance(unknown, Refused)
    assert unknown.status == 404


@pytest.mark.parametrize("when", [0.01, 5.0])
def test_one_that_is_cancelled_while_it_reads_or_writes_slows_nobody_any_more(when):
    emulator = Emulator(GB10, slots=2)
    for name in ("a", "b"):
        emulator.submit(0.0, ask(name))
    emulator.cancel(when, "a")
    assert emulator.snapshot().running == {QWEN.name: 1}
    (done,) = [e for e in to_end(emulator) if e.kind == "done"]
    assert done.id == "b"
    assert done.at < job_s(GB10, ANALYSIS, 2, cached=False)


def test_prefixes_are_kept_until_others_need_the_room():
    emulator = Emulator(GB10, slots=1, prefix_limit=2.5 * QWEN.cache(4000))
    for i, course in enumerate(["a", "b", "a", "c", "a", "b"]):
        emulator.submit(0.0, ask(str(i), prefix=course, output=5))
    cached = {e.id: e.cached for e in to_end(emulator) if e.kind == "done"}
    # c pushed b out, which was used longest ago
    assert cached == {"0": 0, "1": 0, "2": 4000, "3": 0, "4": 4000, "5": 0}


def test_a_model_that_is_not_loaded_waits_for_room_and_for_its_loading():
    emulator = Emulator(GB10, loaded=(QWEN.name,), prefix_limit=60 * GB)
    emulator.submit(0.0, ask("a"))
    emulator.submit(0.0, ask("f", FEEDBACK, 10))
    events = to_end(emulator)
    at = {(e.kind, e.id): e.at for e in events}
    assert at["evicted", QWEN.name] == at["done", "a"]
    assert at["loaded", GEMMA.name] == pytest.approx(at["done", "a"] + GEMMA.size / (2 * GB))
    assert at["first", "f"] > at["loaded", GEMMA.name]


def test_heat_slows_and_death_loses_what_is_in_hand():
    emulator = Emulator(GB10, slots=1, changes=((2.0, 0.5), (4.0, 0.0), (10.0, 1.0)))
    emulator.submit(0.0, ask("a"))
    emulator.submit(0.0, ask("b"))
    cool = Emulator(GB10, slots=1)
    cool.submit(0.0, ask("a"))
    cool.advance(3.0)
    assert [e.kind for e in emulator.advance(3.99)] == ["first"]
    assert emulator.snapshot().tokens["a"] == pytest.approx(cool.snapshot().tokens["a"], abs=1)
    assert [(e.kind, e.id) for e in emulator.advance(5.0)] == [("lost", "a"), ("lost", "b")]
    dead = emulator.submit(6.0, ask("c"))
    assert isinstance(dead, Refused)
    assert dead.status == 0
    emulator.submit(10.0, ask("d", output=1))
    assert [e.kind for e in to_end(emulator)] == ["loaded", "first", "done"]
