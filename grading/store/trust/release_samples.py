"""Random samples of submissions or levels that staff mark blind: drawing them, and what is marked of them.

Scores and levels are kept as they were when a sample was drawn, so that no mark moves a submission.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from secrets import randbits
from typing import Any

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from grading.domain.errors import Conflict, GraderError, NotFound
from grading.domain.messages import define_message
from grading.domain.permissions import Actor
from grading.domain.rubric import Rubric, too_far
from grading.statistics.joint_guarantee import NO_LIMIT, Work, next_joint_sample
from grading.statistics.pooled_guarantee import level_key, level_of, next_level_sample
from grading.statistics.release_guarantee import Draw, Target
from grading.store.assignments.versions import published_version
from grading.store.audit import write_audit
from grading.store.change_tracking import mark_assignment_changed
from grading.store.database import now
from grading.store.review import level_views
from grading.store.tables import (
    Assignment,
    Grade,
    GuaranteeCandidate,
    GuaranteeDraw,
    GuaranteeMember,
    GuaranteeRelease,
    GuaranteeSample,
    Mark,
    Round,
    RubricVersion,
)
from grading.store.trust import confidence
from grading.store.trust.grading_ground import GradedSubmission, load_graded, load_person_graded

TINY = 1e-9
SEED_BITS = 62
SHARES, CONFIDENCES, TOLERANCES = (0.01, 0.02, 0.05, 0.1, 0.2), (0.8, 0.9, 0.95, 0.99), (0, 1, 2)
MOST = 5_000
"""Submissions of one draw."""
MOST_LEVELS = 1_000
"""Levels of one draw: planning more takes seconds."""
NO_SAMPLE = define_message("guarantee.no_sample", "No sample was drawn for this assignment.")


class TargetRefused(GraderError):
    """Choose one of the offered targets and a number of submissions."""

    code = "target_refused"
    status = 422
    default_message = define_message(
        "error.target_refused", "Choose one of the offered targets and a number of submissions."
    )


class NothingToDraw(Conflict):
    """There is no submission to draw: all are released, held, reviewed, or you have seen their levels."""

    code = "nothing_to_draw"
    default_message = define_message(
        "error.nothing_to_draw",
        "There is no submission to draw: all are released, held, reviewed, or you have seen their levels.",
    )


class SampleDrawn(Conflict):
    """A sample was drawn since the page was loaded. Nothing was drawn; read the page again."""

    code = "sample_drawn"
    default_message = define_message(
        "error.sample_drawn",
        "A sample was drawn since the page was loaded. Nothing was drawn; read the page again.",
    )


@dataclass(frozen=True)
class Wanted:
    """What a sample is to prove."""

    share: float = 0.05
    """Of released levels that may be wrong."""
    confidence: float = 0.95
    tolerance: int = 1
    """Levels that a level may be off without being wrong."""
    together: bool = True
    """Whether the share is of the levels of all criteria together, by a sample of single levels; else it is
    of the levels of each criterion, by a sample of whole submissions."""

    @property
    def most(self) -> int:
        """Submissions (or levels) of one draw."""
        return MOST_LEVELS if self.together else MOST

    @property
    def target(self) -> Target:
        """For the formulas."""
        return Target(self.share, self.confidence)

    def require_offered(self) -> None:
        """Go on, or raise TargetRefused."""
        offered = (self.share in SHARES, self.confidence in CONFIDENCES, self.tolerance in TOLERANCES)
        if not all(offered):
            raise TargetRefused


@dataclass(frozen=True)
class Member:
    """A submission of a sample."""

    submission_id: str
    round_id: str
    scores: Mapping[str, float]
    levels: Mapping[str, float]
    current: bool
    """Whether it was not graded again."""


@dataclass(frozen=True)
class Marks:
    """The marks of a sample, by round and criterion."""

    blind: Mapping[tuple[str, str], Sequence[float]]
    seen: frozenset[tuple[str, str]]
    """Marked only by who had seen the level: such a mark does not count."""
    highest: Mapping[str, int]
    """Criterion -> its highest level: on a short scale, half of it is too far."""

    def has(self, round_id: str, criterion: str) -> bool:
        """Whether anybody marked it."""
        return (round_id, criterion) in self.blind or (round_id, criterion) in self.seen

    def wrong(self, member: Member, criterion: str, tolerance: int) -> bool | None:
        """Whether a blind mark is further away than allowed, or none can tell any more; nothing unmarked."""
        key = (member.round_id, criterion)
        if key not in self.blind:
            return True if key in self.seen else None
        level, highest = member.levels[criterion], self.highest[criterion]
        return any(too_far(level, one, highest, tolerance) for one in self.blind[key])


@dataclass(frozen=True)
class LoadedSample:
    """A sample with all that its result is made of."""

    row: GuaranteeSample
    members: Mapping[str, Member]
    """By submission, those that were erased left out."""
    draws: tuple[Draw, ...]
    marks: Marks
    tries_before: int
    """Draws of earlier samples that count (`count_tries`): each try spends a part of the risk."""

    @property
    def wanted(self) -> Wanted:
        """What it is to prove."""
        return wanted_of(self.row)

    @property
    def tries(self) -> tuple[Draw, ...]:
        """The draws, after as many that say nothing as were made before."""
        return (*[NO_LIMIT] * self.tries_before, *self.draws)

    @cached_property
    def levels(self) -> tuple[tuple[str, str], ...]:
        """(submission, criterion) that are to be marked, in the order of the draws."""
        return tuple(one for draw in self.draws for one in self._levels_of(draw))

    def _levels_of(self, draw: Draw) -> list[tuple[str, str]]:
        if self.wanted.together:
            return [one for one in map(level_of, draw.keys) if one[0] in self.members]
        here = (key for key in draw.keys if key in self.members)
        return [(key, name) for key in here for name in self.members[key].levels]

    @cached_property
    def keys(self) -> tuple[str, ...]:
        """The submissions with levels that are to be marked, in the order of the draws."""
        return tuple(dict.fromkeys(key for key, _ in self.levels))

    def drawn_by(self, criterion: str) -> tuple[str, ...]:
        """The submissions whose level of a criterion is to be marked."""
        return tuple(key for key, name in self.levels if name == criterion)

    def criteria(self) -> tuple[str, ...]:
        """Of its submissions."""
        return tuple(dict.fromkeys(name for one in self.members.values() for name in one.levels))

    def to_mark(self, criterion: str, without: Collection[str] | None = None) -> tuple[str, ...]:
        """The submissions that nobody has marked by a criterion.

        With those `without` which somebody can mark blind: also the others whose mark is not blind.
        """
        return tuple(
            key
            for key in self.drawn_by(criterion)
            if self.members[key].current
            and (
                not self.marks.has(self.members[key].round_id, criterion)
                or (without is not None and key not in without and self.unblind(key, criterion))
            )
        )

    def unblind(self, key: str, criterion: str) -> bool:
        """Whether only people marked it who had seen the level: it counts as wrong until another one does."""
        member = self.members[key]
        return member.current and (member.round_id, criterion) in self.marks.seen

    @cached_property
    def open_draws(self) -> tuple[Draw, ...]:
        """Those that are not marked to their end.

        They prove nothing yet: what they prove would show which marks are wrong while these can be corrected.
        """
        left = {(key, name) for name in self.criteria() for key in self.to_mark(name)}
        return tuple(draw for draw in self.draws if not left.isdisjoint(self._levels_of(draw)))

    @property
    def closed_tries(self) -> tuple[Draw, ...]:
        """As `tries`, but those that are not marked to their end say nothing."""
        return tuple(NO_LIMIT if draw in self.open_draws else draw for draw in self.tries)

    @cached_property
    def open_keys(self) -> frozenset[str]:
        """The submissions that are to be marked in `open_draws`."""
        return frozenset(key for draw in self.open_draws for key, _ in self._levels_of(draw))

    def works(self, standing: Mapping[str, GradedSubmission] | None = None) -> list[Work]:
        """For the formulas; `standing` says which still have their grade."""
        return [
            Work(
                one.submission_id,
                one.scores,
                {name: self.marks.wrong(one, name, self.row.tolerance) for name in one.levels},
                standing is None or _stands(one, standing.get(one.submission_id)),
            )
            for one in self.members.values()
        ]


def _stands(member: Member, now_: GradedSubmission | None) -> bool:
    return now_ is not None and now_.round_id == member.round_id and now_.state in ("open", "released")


def wanted_of(sample: GuaranteeSample) -> Wanted:
    """What a sample is to prove."""
    return Wanted(sample.share, sample.confidence, sample.tolerance, sample.together)


def rubric_of(session: Session, sample: GuaranteeSample) -> Rubric:
    """By which its submissions were graded."""
    return Rubric.model_validate(session.get_one(RubricVersion, sample.rubric_version_id).rubric)


def drawable(session: Session, assignment: Assignment, actor: Actor) -> list[GradedSubmission]:
    """What may be drawn: whole grades by the published rubric that nobody released, holds or reviewed.

    What the actor has opened before is no longer unread.
    """
    version = published_version(session, assignment)
    opened = level_views.list_seen(session, assignment.id, actor)
    return [
        one
        for one in load_graded(session, assignment).values()
        if one.state == "open"
        and one.whole
        and one.rubric_version_id == version.id
        and one.submission_id not in opened
    ]


def draw(
    session: Session, assignment: Assignment, wanted: Wanted, count: int, actor: Actor, shown: str = ""
) -> GuaranteeSample:
    """Draw a sample; it replaces the one before it. Raises TargetRefused, SampleDrawn, NothingToDraw.

    `shown` is the id of the sample that the reader saw, so that a form that is sent twice draws once: each
    draw is a try, and spends a part of the risk.
    """
    wanted.require_offered()
    if not 1 <= count <= wanted.most:
        raise TargetRefused
    before = lock_open(session, assignment)
    if shown != (before.id if before else ""):
        raise SampleDrawn
    found = drawable(session, assignment, actor)
    kept = {name for one in found for name in one.levels} - graded_by_people(session, assignment, found)
    if not kept:
        raise NothingToDraw
    if before is not None:
        before.replaced_at = now(session)
        session.flush()
    # fitted on what was marked until now: the marks of this sample move nothing
    calibration = confidence.calibrate(session, assignment.course_id)
    sample = GuaranteeSample(
        assignment_id=assignment.id,
        share=wanted.share,
        confidence=wanted.confidence,
        tolerance=wanted.tolerance,
        together=wanted.together,
        calibration_id=calibration,
        rubric_version_id=found[0].rubric_version_id,
        ground=ground_of(found),
        by=actor.user_id,
        at=now(session),
    )
    session.add(sample)
    session.flush()
    _add_members(session, sample, found, kept)
    _draw(session, assignment, load_sample(session, sample), count, actor)
    return sample


def graded_by_people(session: Session, assignment: Assignment, found: Sequence[GradedSubmission]) -> set[str]:
    """Criteria that people graded everywhere, so that there is nothing to prove.

    Asked before a draw only: to leave out a criterion for what the sample shows of it makes a proof of the
    others wrong more often.
    """
    person = load_person_graded(session, assignment)
    names = {name for one in found for name in one.levels}
    return {
        name for name in names if all((one.round_id, name) in person for one in found if name in one.levels)
    }


def _add_members(
    session: Session, sample: GuaranteeSample, found: Sequence[GradedSubmission], kept: Collection[str]
) -> None:
    """Keep what may be drawn with its scores and levels of now, of these criteria."""
    known = confidence.scores(session, sample.assignment_id, sample.calibration_id)
    for one in found:
        # a round that another transaction replaced meanwhile has none, and comes last
        levels = {name: level.level for name, level in one.levels.items() if name in kept}
        scores = {name: known.get((one.round_id, name), 1.0) for name in levels}
        row = {"round_id": one.round_id, "scores": scores, "levels": levels}
        session.add(GuaranteeMember(sample_id=sample.id, submission_id=one.submission_id, **row))
    session.flush()


def draw_more(session: Session, assignment: Assignment, count: int, actor: Actor) -> GuaranteeSample:
    """Draw more submissions of the same sample. Raises NotFound, TargetRefused, StillToMark."""
    sample = lock_open(session, assignment)
    if sample is None:
        raise NotFound(NO_SAMPLE)
    if not 1 <= count <= wanted_of(sample).most:
        raise TargetRefused
    loaded = load_sample(session, sample)
    if any(loaded.to_mark(name) for name in loaded.criteria()):
        raise StillToMark
    _draw(session, assignment, loaded, count, actor, load_graded(session, assignment))
    return sample


class StillToMark(Conflict):
    """Mark what is drawn first; then more can be drawn."""

    code = "still_to_mark"
    default_message = define_message(
        "error.still_to_mark", "Mark what is drawn first; then more can be drawn."
    )


def _draw(
    session: Session,
    assignment: Assignment,
    loaded: LoadedSample,
    count: int,
    actor: Actor,
    standing: Mapping[str, GradedSubmission] | None = None,
) -> None:
    """Store a further draw, planned by the scores and what is marked by now."""
    works, seed = loaded.works(standing), randbits(SEED_BITS)
    plan = next_level_sample if loaded.wanted.together else next_joint_sample
    made = plan(works, loaded.wanted.target, count, seed, loaded.tries)
    number, sample = len(loaded.draws) + 1, loaded.row
    session.add(
        GuaranteeDraw(
            sample_id=sample.id, number=number, drawn=len(made.keys), limits=list(made.limits), seed=seed,
            by=actor.user_id, at=now(session),
        )
    )  # fmt: skip
    session.flush()
    kept = _kept_levels(made) if loaded.wanted.together else _kept(made)
    session.add_all(GuaranteeCandidate(sample_id=sample.id, number=number, **one) for one in kept)
    mark_assignment_changed(session, assignment.course_id, assignment.id)
    detail = {"count": len(made.keys), "sample": sample.id}
    write_audit(session, actor.name, "guarantee.draw", f"assignment:{assignment.id}", detail)
    session.flush()


def _kept(made: Draw) -> Iterator[dict[str, Any]]:
    """The rows of the candidates of a draw."""
    turns = {key: turn for turn, key in enumerate(made.keys, 1)}
    for place, key in enumerate(made.candidates, 1):
        yield {"submission_id": key, "place": place, "known": key in made.known, "turn": turns.get(key)}


def _kept_levels(made: Draw) -> Iterator[dict[str, Any]]:
    """The same where single levels were drawn: a row for each submission."""
    turns = dict.fromkeys(made.known, 0) | {key: turn for turn, key in enumerate(made.keys, 1)}
    for place, (submission, keys) in enumerate(groupby(made.candidates, key=lambda one: level_of(one)[0]), 1):
        mine = {level_of(key)[1]: turns[key] for key in keys if key in turns}
        first = min((turn for turn in mine.values() if turn), default=None)
        yield {"submission_id": submission, "place": place, "known": False, "turn": first, "turns": mine}


def ground_of(found: Iterable[GradedSubmission]) -> list[dict[str, str]]:
    """What graded these submissions, as samples keep it."""
    origins = {origin for one in found for origin in one.origins}
    return [one.model_dump() for one in sorted(origins, key=lambda one: one.model_dump_json())]


def lock_open(session: Session, assignment: Assignment) -> GuaranteeSample | None:
    """The sample that counts; who draws or releases waits until this transaction ends."""
    query = select(Assignment.id).where(Assignment.id == assignment.id)
    session.execute(query.with_for_update(key_share=True))
    return find_open(session, assignment.id)


def find_open(session: Session, assignment_id: int) -> GuaranteeSample | None:
    """The sample that counts."""
    here = (GuaranteeSample.assignment_id == assignment_id, GuaranteeSample.replaced_at.is_(None))
    query = select(GuaranteeSample).where(*here)
    return session.scalar(query.execution_options(populate_existing=True))


def load_sample(session: Session, sample: GuaranteeSample) -> LoadedSample:
    """A sample with its submissions, draws and marks."""
    table = GuaranteeMember
    query = select(table.submission_id, table.round_id, table.scores, table.levels, Round.current)
    rows = session.execute(query.join(Round, Round.id == table.round_id).where(table.sample_id == sample.id))
    members = {row.submission_id: Member(*row) for row in rows}
    return LoadedSample(
        row=sample,
        members=members,
        draws=_draws(session, sample, members),
        marks=_marks(session, sample),
        tries_before=count_tries(
            session, sample.assignment_id, sample.rubric_version_id, sample.ground, sample
        ),
    )


def load_drawn(session: Session, sample: GuaranteeSample) -> LoadedSample:
    """As much of a sample as marking it needs: only the submissions that are to be marked, no limits."""
    one, table = GuaranteeCandidate, GuaranteeMember
    same = (one.sample_id == table.sample_id) & (one.submission_id == table.submission_id)
    columns = (table.submission_id, table.round_id, table.scores, table.levels, Round.current)
    query = (
        select(*columns, one.number, one.turns)
        .join(Round, Round.id == table.round_id)
        .join(one, same)
        .where(table.sample_id == sample.id, one.turn.is_not(None))
        .order_by(one.number, one.turn)
    )
    rows = session.execute(query).all()
    members = {row.submission_id: Member(*row[: len(columns)]) for row in rows}
    turns = [
        (row.number, turn, level_key(row.submission_id, name))
        for row in rows
        for name, turn in (row.turns or {}).items()
        if turn
    ]
    keys = tuple(key for *_, key in sorted(turns)) if sample.together else tuple(members)
    return LoadedSample(sample, members, (Draw((), frozenset(), keys, ()),), _marks(session, sample), 0)


def _draws(session: Session, sample: GuaranteeSample, members: Mapping[str, Member]) -> tuple[Draw, ...]:
    one = GuaranteeCandidate
    candidates: defaultdict[int, list[GuaranteeCandidate]] = defaultdict(list)
    for row in session.scalars(select(one).where(one.sample_id == sample.id).order_by(one.place)):
        candidates[row.number].append(row)
    table = GuaranteeDraw
    query = select(table.number, table.limits, table.drawn).where(table.sample_id == sample.id)
    return tuple(
        _restored_levels(candidates[number], members, limits, drawn)
        if sample.together
        else _restored(candidates[number], limits, drawn)
        for number, limits, drawn in session.execute(query.order_by(table.number))
    )


def _restored(rows: Sequence[GuaranteeCandidate], limits: Sequence[int], drawn: int) -> Draw:
    """A draw as it was. Those of its sample that were deleted since stand in the first free places.

    Nothing else is known of them, and there they count most: as found wrong in each part.
    """
    by_place = {row.place: row.submission_id for row in rows}
    gone = [place for place in range(1, max(by_place, default=0) + 1) if place not in by_place]
    in_sample = sorted((row for row in rows if row.turn is not None), key=lambda row: row.turn or 0)
    lost = gone[: max(0, drawn - len(in_sample))]
    return Draw(
        candidates=tuple(by_place.get(place, f"deleted-{place}") for place in sorted([*by_place, *lost])),
        known=frozenset(row.submission_id for row in rows if row.known),
        keys=(*(row.submission_id for row in in_sample), *(f"deleted-{place}" for place in lost)),
        limits=tuple(limits),
    )


def _restored_levels(
    rows: Sequence[GuaranteeCandidate], members: Mapping[str, Member], limits: Sequence[int], drawn: int
) -> Draw:
    """The same of single levels. Deleted ones of the sample stand at the first free place."""
    turns: dict[str, int] = {}
    keys: list[list[str]] = []
    for row in rows:
        of = row.turns or {}
        turns |= {level_key(row.submission_id, name): turn for name, turn in of.items()}
        keys.append([level_key(row.submission_id, name) for name in members[row.submission_id].levels])
    in_sample = sorted((key for key, turn in turns.items() if turn), key=lambda key: turns[key])
    gap = next((at for at, row in enumerate(rows) if row.place != at + 1), len(rows))
    lost = [level_key("deleted", str(number)) for number in range(drawn - len(in_sample))]
    return Draw(
        candidates=tuple(key for some in [*keys[:gap], lost, *keys[gap:]] for key in some),
        known=frozenset(key for key, turn in turns.items() if not turn),
        keys=(*in_sample, *lost),
        limits=tuple(limits),
    )


def count_tries(
    session: Session,
    assignment_id: int,
    rubric_version_id: int,
    ground: Sequence[Mapping[str, str]],
    sample: GuaranteeSample | None = None,
) -> int:
    """Draws before a sample (or the next one) that share its risk, each of them a try.

    These are all on the same ground, and those on other grounds since grades were last released on one of
    them: who changes the ground and draws until a sample passes has no more risk than who does not.
    """
    table = GuaranteeSample
    query = select(table.id, table.rubric_version_id, table.ground).where(
        table.assignment_id == assignment_id
    )
    if sample is not None:
        query = query.where(table.at <= sample.at, table.id != sample.id)
    released = _released_by(session, assignment_id)
    counted: list[str] = []
    passed = False
    for row in session.execute(query.order_by(table.at.desc(), table.id.desc())):
        same = row.rubric_version_id == rubric_version_id and list(row.ground) == list(ground)
        passed = passed or (row.id in released and not same)
        if same or not passed:
            counted.append(row.id)
    made = select(func.count()).select_from(GuaranteeDraw).where(GuaranteeDraw.sample_id.in_(counted))
    return session.scalar(made) or 0


def _released_by(session: Session, assignment_id: int) -> set[str]:
    """Samples by which grades were released that still are."""
    row, member = GuaranteeRelease, GuaranteeMember
    query = (
        select(row.sample_id)
        .join(GuaranteeSample, GuaranteeSample.id == row.sample_id)
        .join(member, member.sample_id == row.sample_id)
        .join(Grade, (Grade.round_id == member.round_id) & (Grade.released_at == row.at))
        .where(GuaranteeSample.assignment_id == assignment_id)
    )
    return set(session.scalars(query.distinct()))


def _marks(session: Session, sample: GuaranteeSample) -> Marks:
    query = (
        select(Mark.round_id, Mark.criterion, Mark.level, Mark.blind)
        .join(GuaranteeMember, GuaranteeMember.round_id == Mark.round_id)
        .where(GuaranteeMember.sample_id == sample.id)
    )
    blind: defaultdict[tuple[str, str], list[float]] = defaultdict(list)
    seen: set[tuple[str, str]] = set()
    for row in session.execute(query):
        key = (row.round_id, row.criterion)
        if row.blind:
            blind[key].append(row.level)
        else:
            seen.add(key)
    highest = {one.id: one.highest for one in rubric_of(session, sample).criteria}
    return Marks(dict(blind), frozenset(seen - blind.keys()), highest)
