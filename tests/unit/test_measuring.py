"""A machine with nothing to do measures the stages that it hardly ever did, and makes way for work."""

from __future__ import annotations

import itertools
import json
import threading
from collections.abc import Callable
from dataclasses import dataclass, field

import fakeredis
import pytest

from grading.cluster.guesses import lengths
from grading.cluster.view import Pace, Peer, View
from grading.config import StageSettings
from grading.errors import Cancelled, EngineError
from grading.jobs import Tokens
from grading.machines import Machine
from tests.system import until
from workers.machine import measuring as module
from workers.machine.engines.base import Generation, Progress, Request
from workers.machine.engines.instances import InstanceMaker
from workers.machine.measuring import AGAIN_S, BATCHES, ENOUGH, IDLE_S, Booked, Measuring
from workers.machine.pacing import Pacing
from workers.machine.stages.made_up import made_up
from workers.machine.stages.table import STAGES

MODELS = {stage: {"engine": "mlx", "model": stage} for stage in STAGES}
MACHINE = Machine.model_validate({"name": "one", "slots": 4, "stages": MODELS})
WRITES = 40


class Words(InstanceMaker):
    """Answers that say something, as a model's must."""

    def string(self, path: tuple[str, ...], low: int, high: int | None) -> str:
        return "A clear first step.".ljust(low, ".")[:high]


@dataclass
class Writer:
    """An engine that writes a token every half second of a clock of its own."""

    name: str = "mlx"
    uses_model: bool = True
    asked: list[Request] = field(default_factory=list)
    look: Callable[[], None] = lambda: None
    error: EngineError | None = None
    holds: bool = False

    def generate(self, request: Request, progress: Progress) -> Generation:
        """Write, or wait to be cancelled."""
        self.asked.append(request)
        if self.error:
            raise self.error
        progress(0, "reading")
        for tokens in range(1, WRITES + 1):
            self.look()
            progress(tokens)
        if self.holds:
            ended = threading.Event()
            with request.cancel.heard_by(ended.set):
                assert ended.wait(60)
            raise Cancelled
        return Generation(json.dumps(Words(request.schema).make()), Tokens(output=WRITES), 0.5, WRITES / 2)

    def close(self) -> None:
        """Nothing is held."""


@dataclass
class World:
    """A machine, its clock, and what there is to do."""

    engine: Writer
    measuring: Measuring
    now: list[float]
    work: list[str]

    def idle(self, seconds: float = IDLE_S) -> None:
        """Look, and look again after so long."""
        self.measuring.look()
        self.now[0] += seconds
        self.measuring.look()


@pytest.fixture
def world() -> World:
    engine, now, work, ticks = Writer(), [0.0], list[str](), itertools.count()
    redis = fakeredis.FakeRedis(decode_responses=True)
    pacing = Pacing(MACHINE, redis, tuple, clock=lambda: next(ticks) / 2)
    measuring = Measuring(
        MACHINE,
        {"mlx": engine},
        pacing,
        Booked(redis, MACHINE),
        {stage: StageSettings(max_output_tokens=WRITES) for stage in STAGES},
        busy=lambda: bool(work),
        able=lambda _stage: True,
        tokens=dict,
        clock=lambda: now[0],
    )
    pacing.made_up = lambda: measuring.runs
    engine.look = pacing.look
    return World(engine, measuring, now, work)


def test_it_measures_every_stage_with_all_its_slots_and_then_no_more(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "BATCHES", 100)
    world.idle()
    assert {request.job.stage for request in world.engine.asked} == {"analysis"}
    for _ in range(80):
        world.measuring.look()
    paces = world.measuring.pacing.paces()
    assert set(paces) == set(STAGES)
    assert min(pace.seen for pace in paces.values()) >= ENOUGH
    asked = len(world.engine.asked)
    world.measuring.look()
    assert len(world.engine.asked) == asked
    assert len({request.user for request in world.engine.asked}) == asked, "servers keep what they read"


def test_a_stage_gets_a_few_batches_over_restarts_too(world: World) -> None:
    for _ in range(2):
        world.idle()
        for _ in range(20):
            world.measuring.look()
        world.measuring._idle_since = (
            None  # as after a restart: what it learned is lost, what it tried is kept
        )
        world.measuring.pacing._learner = type(world.measuring.pacing._learner)(4, dict.fromkeys(STAGES))
    assert len(world.engine.asked) == 4 * BATCHES * len(STAGES)


def test_a_batch_that_ends_the_process_counts(world: World) -> None:
    seen: list[int] = []
    world.engine.look = lambda: seen.append(world.measuring.booked.count("analysis"))
    world.idle()
    assert seen[0] == 1


def test_one_that_is_done_before_the_others_slows_nothing_down(world: World) -> None:
    """It is out of hand at once: else the batch would seem to be full and write little."""
    in_hand: list[int] = []
    world.engine.look = lambda: in_hand.append(len(world.measuring.runs))
    turn, over = threading.Lock(), list[str]()
    generate = world.engine.generate

    def one_by_one(request: Request, progress: Progress) -> Generation:
        with turn:
            until(lambda: len(world.measuring.runs) <= 4 - len(over), 60, "those before are out of hand")
            made = generate(request, progress)
            over.append(made.text)
            return made

    world.engine.generate = one_by_one  # type: ignore[method-assign]
    world.idle()
    assert in_hand[-1] == 1


def test_a_batch_has_as_many_as_are_done_at_once_and_reads_what_a_class_shares_once(world: World) -> None:
    world.idle()
    asked = world.engine.asked[:4]
    assert len({request.system for request in asked}) == 1
    assert len({request.user for request in asked}) == 4


def test_it_waits_until_there_was_nothing_to_do_for_a_while(world: World) -> None:
    world.idle(IDLE_S - 1)
    assert world.engine.asked == []
    world.work.append("a run")
    world.idle()
    world.work.clear()
    world.measuring.look()
    assert world.engine.asked == []


def test_made_up_jobs_are_no_work_and_their_length_says_nothing(world: World) -> None:
    world.engine.holds = True
    thread = threading.Thread(target=world.idle)
    thread.start()
    until(lambda: len(world.engine.asked) == 4, 10, "all have begun")
    pacing = world.measuring.pacing
    assert (pacing.running(), pacing.left()) == ({}, {})
    world.measuring.give_way()
    thread.join(60)
    assert pacing._learner.dump("analysis")["tokens"] == [0.0, 0.0]


@pytest.mark.parametrize("told", [True, False])
def test_it_makes_way_at_once(world: World, told: bool) -> None:
    """For a run, of which it is told, and for what it finds when it looks: a guest, a drain."""
    world.engine.holds = True
    thread = threading.Thread(target=world.idle)
    thread.start()
    until(lambda: len(world.engine.asked) == 4, 10, "all have begun")
    world.work.append("a run")
    if told:
        world.measuring.give_way()
    thread.join(60)
    assert not thread.is_alive()
    assert all(request.cancel.said for request in world.engine.asked)
    assert world.measuring.pacing.paces()["analysis"].seen > 0, "what was seen until then is kept"
    world.work.clear()
    world.measuring.look()
    assert len(world.engine.asked) == 4, "it waits again"


def test_work_that_comes_while_it_begins_is_heard(world: World) -> None:
    """Between its look and its first run; a run that comes says so after it is in hand."""

    def coming() -> bool:
        world.measuring.give_way()
        return False

    world.engine.holds = True
    world.measuring.busy = coming
    world.measuring._idle_since = -IDLE_S
    world.measuring._measure("analysis")
    assert all(request.cancel.said for request in world.engine.asked)


def test_what_fails_is_asked_again_much_later(world: World) -> None:
    world.engine.error = EngineError("The model is not there.")
    world.idle()
    for _ in range(3):
        world.measuring.look()
    assert len(world.engine.asked) == 4 * len(STAGES)
    assert world.measuring.pacing.paces() == {}
    world.engine.error = None
    world.idle(AGAIN_S)
    assert len(world.engine.asked) == 4 * len(STAGES) + 4


@pytest.mark.parametrize("way", ["no model", "away", "known", "told not to", "another model would go"])
def test_what_needs_no_measuring_is_left_alone(world: World, way: str) -> None:
    if way == "no model":
        world.engine.uses_model = False
    elif way == "told not to":
        world.measuring.machine = MACHINE.model_copy(update={"measures": False})
    elif way == "another model would go":
        world.measuring.pacing.load_s = lambda: dict.fromkeys(STAGES, 30.0)  # type: ignore[method-assign]
    elif way == "away":
        world.measuring.able = lambda _stage: False
    else:
        known = Pace(1.0, 2.0, 4, seen=ENOUGH)
        world.measuring.pacing.paces = lambda: dict.fromkeys(STAGES, known)  # type: ignore[method-assign]
    world.idle()
    assert world.engine.asked == []


def test_the_length_of_answers_is_that_of_others_until_it_wrote_enough_of_its_own(world: World) -> None:
    world.measuring.tokens = lambda: {"analysis": 500.0}
    world.idle()
    pacing = world.measuring.pacing
    usual = pacing._learner._stages["analysis"]
    assert (usual.tokens, pacing.paces()["analysis"].tokens) == (500, 0), "what others said is not said again"
    for jobs, expected in ((4, 400), (8, 300)):
        while usual.jobs < jobs:
            usual.count(300)
        assert pacing.paces()["analysis"].tokens == expected


def test_others_tell_the_length_of_answers_but_not_by_guesses() -> None:
    def peer(name: str, **tokens: tuple[float, float]) -> Peer:
        paces = {s: Pace(1.0, 2.0, 4, tokens=length, seen=seen) for s, (length, seen) in tokens.items()}
        return Peer(name, 4, tuple(STAGES), paces=paces)

    peers = [
        peer("one", analysis=(900, 9)),
        peer("two", analysis=(400, 1), feedback=(800, 0)),
        peer("three", analysis=(600, 9)),
    ]
    assert lengths(View("one", {p.name: p for p in peers}, {})) == {"analysis": 500}


@pytest.mark.parametrize("stage", list(STAGES))
def test_a_made_up_job_is_as_large_as_usual_ones(stage: str) -> None:
    prompts = [STAGES[stage].render(made_up(stage, n, 1200, 60.0), 32768, None) for n in (1, 2)]
    assert prompts[0].system == prompts[1].system
    assert prompts[0].user != prompts[1].user
    assert 14_000 < len(prompts[0].system) < 18_000
    assert 3_000 < len(prompts[0].user) < 5_000
    assert all(prompt.flags == () for prompt in prompts), "nothing of it had to be left out"
