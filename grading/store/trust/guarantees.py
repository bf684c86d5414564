"""What the open sample of an assignment proves: which grades may be released unread, and why not more.

The formulas, and what is proven of a submission with several criteria, are in
`grading.statistics.joint_guarantee` (of each criterion) and `grading.statistics.pooled_guarantee` (of all
criteria together).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from hashlib import sha256
from typing import Literal

from sqlalchemy import select
from sqlalchemy.orm import Session

from grading.domain.errors import Conflict
from grading.domain.messages import define_message
from grading.domain.permissions import Actor
from grading.domain.rubric import Criterion
from grading.statistics.joint_guarantee import JointGuarantee, Work, joint_gain, joint_guarantee
from grading.statistics.pooled_guarantee import pooled_gain, pooled_guarantee
from grading.statistics.release_guarantee import Draw, Gain, Reason, fewest_marks
from grading.store.assignments.versions import find_published
from grading.store.audit import write_audit
from grading.store.database import now
from grading.store.grades import release
from grading.store.tables import Assignment, GuaranteeRelease, GuaranteeSample, User
from grading.store.trust import confidence, release_samples, sentences
from grading.store.trust.grading_ground import GradedSubmission, load_graded
from grading.store.trust.release_samples import LoadedSample, Member, Wanted
from grading.store.trust.withdrawals import TakenBack, list_reasons

MORE = (10, 20, 40, 60, 80, 120, 160)
"""Numbers of further marks of which the page says what they would bring."""
WORTH = 0.1
"""Submissions more that may be released for each mark, below which the page proposes no more marks."""
Why = Literal[
    "differs",
    "not_blind",
    "not_marked",
    "uncertain",
    "held",
    "partial",
    "reviewed",
    "withdrawn",
    "other_rubric",
    "late",
    "not_drawn",
]
"""Why a person must read a submission, the first one that applies."""


class ProofChanged(Conflict):
    """What is proven changed since the page was loaded. Nothing was released; read the page again."""

    code = "proof_changed"
    default_message = define_message(
        "error.proof_changed",
        "What is proven changed since the page was loaded. Nothing was released; read the page again.",
    )


class NothingProven(Conflict):
    """Nothing that is proven is left to release."""

    code = "nothing_proven"
    default_message = define_message("error.nothing_proven", "Nothing that is proven is left to release.")


@dataclass(frozen=True)
class CriterionProof:
    """What the sample says of one criterion."""

    id: str
    title: str
    drawn: int
    """Submissions of the sample whose level of it is to be marked."""
    marked: int
    """Of them those with a level that was given blind."""
    wrong: int
    """Of them those whose level is too far from it."""
    seen: int
    """Submissions with a level that does not count, as its marker had seen the machine's."""
    alone: int
    """Submissions that could be released if there were no other criterion; 0 where all are together."""
    left: int
    """Submissions that are still to be marked."""
    by_person: bool
    """People had graded it everywhere when the sample was drawn, so there is nothing to prove."""


@dataclass(frozen=True)
class NeedsPerson:
    """A submission that must not be released unread."""

    submission_id: str
    student: str
    number: int
    why: Why
    criteria: tuple[str, ...] = ()
    """Titles of those in which a level is wrong, or most likely to be."""


@dataclass(frozen=True)
class SampleFacts:
    """The open sample, and how far it is marked; single levels are counted where they were drawn."""

    id: str
    at: datetime
    by: str
    wanted: Wanted
    size: int
    """Submissions (or levels) that it was drawn of."""
    drawn: int
    """Of them those that are to be marked."""
    marked: int
    """Of them those that are marked, a submission by each criterion."""
    seen: int
    """Of these those whose mark does not count, as its marker had seen the level."""

    @property
    def done(self) -> bool:
        """Whether all that was drawn is marked."""
        return self.marked == self.drawn


@dataclass(frozen=True)
class PastRelease:
    """A release on the grounds of a sample of this assignment."""

    at: datetime
    by: str
    count: int
    proven: int
    marks: int
    threshold: float
    wanted: Wanted
    still: int
    """Of them those that are still released."""


@dataclass(frozen=True)
class Proof:
    """What is proven of an assignment, and what is not."""

    graded: int
    """Submissions that count and are graded."""
    drawable: int
    """Of them those that a sample can be drawn of."""
    levels: int
    """Levels of these."""
    fewest: int | None
    """Marks below which a sample of these proves nothing, whatever is found; nothing where none proves it."""
    sample: SampleFacts | None = None
    proven: tuple[str, ...] = ()
    """The safest first."""
    ready: tuple[str, ...] = ()
    """Of them those that are not released yet."""
    unread: int = 0
    """Of `proven` those that nobody marked by each criterion."""
    read: int = 0
    """Levels of `proven` that staff marked blind and found right."""
    released_levels: int = 0
    """All levels of `proven` that the guarantee is about."""
    threshold: float | None = None
    at_most_wrong: int = 0
    """Levels of a criterion (or of all together) among `proven`, with the target's confidence."""
    marks: int = 0
    """Marked submissions (or levels) of the draw that proves most."""
    reason: Reason = Reason.NOTHING_DRAWN
    """Why no more is proven."""
    criteria: tuple[CriterionProof, ...] = ()
    needs_person: tuple[NeedsPerson, ...] = ()
    taken_back: tuple[TakenBack, ...] = ()
    releases: tuple[PastRelease, ...] = ()
    gains: tuple[Gain, ...] = ()
    """What more marks would bring, the fewest first; nothing while the sample is not marked."""

    @property
    def reasons(self) -> dict[Why, int]:
        """How many submissions need a person, by reason."""
        return dict(Counter(one.why for one in self.needs_person))

    @property
    def releasable(self) -> int:
        """How many may be released unread, as people count them: of single levels, all that are proven."""
        return len(self.proven) if self.sample and self.sample.wanted.together else self.unread

    @property
    def stamp(self) -> str:
        """Of what a release would release."""
        return _stamp(self.ready)


def _stamp(ready: Sequence[str]) -> str:
    return sha256(" ".join(sorted(ready)).encode()).hexdigest()[:16]


def load_proof(session: Session, assignment: Assignment) -> Proof:
    """What is proven now."""
    graded = load_graded(session, assignment)
    published = find_published(session, assignment)
    version = published.id if published else 0
    drawable = [one for one in graded.values() if _is_drawable(one, version)]
    row = release_samples.find_open(session, assignment.id)
    wanted = release_samples.wanted_of(row) if row else Wanted()
    plain = Proof(
        graded=len(graded),
        drawable=len(drawable),
        levels=sum(len(one.levels) for one in drawable),
        fewest=fewest_marks(_units(drawable, wanted), wanted.target),
        releases=tuple(_releases(session, assignment, graded)),
    )
    if row is None:
        works = _unmarked(session, assignment, drawable) if plain.fewest else []
        return replace(plain, gains=_gains(works, wanted, ()))
    now_ = _load_proven(session, assignment, row, graded)
    tries = _next_tries(session, now_.sample, drawable, version)
    fewest = fewest_marks(_units(drawable, wanted), wanted.target, tries)
    return _with_sample(session, replace(plain, fewest=fewest), now_, graded, version)


def _with_sample(
    session: Session, plain: Proof, now_: _Proven, graded: Mapping[str, GradedSubmission], version: int
) -> Proof:
    """With what the open sample proves."""
    sample, found, taken_back = now_.sample, now_.found, now_.taken_back
    facts, proven = _facts(session, sample), frozenset(now_.proven)
    rubric = release_samples.rubric_of(session, sample.row)
    marks = [wrong for one in now_.works if one.key in proven for wrong in one.wrong.values()]
    return replace(
        plain,
        sample=facts,
        proven=now_.proven,
        ready=now_.ready,
        unread=0 if taken_back else len(found.unread),
        read=sum(wrong is False for wrong in marks),
        released_levels=len(marks),
        threshold=found.threshold,
        at_most_wrong=found.at_most_wrong,
        marks=found.marked,
        reason=_reason(sample, found),
        criteria=tuple(_criteria(sample, found, rubric.criteria)),
        needs_person=tuple(_needing(sample, now_.proven, graded, version)),
        taken_back=taken_back,
        gains=_gains(now_.works, sample.wanted, sample.tries) if facts.done and not taken_back else (),
    )


@dataclass(frozen=True)
class _Proven:
    """What the open sample proves, and what that rests on."""

    sample: LoadedSample
    works: Sequence[Work]
    found: JointGuarantee
    taken_back: tuple[TakenBack, ...]
    proven: tuple[str, ...]
    ready: tuple[str, ...]


def _load_proven(
    session: Session, assignment: Assignment, row: GuaranteeSample, graded: Mapping[str, GradedSubmission]
) -> _Proven:
    sample = release_samples.load_sample(session, row)
    taken_back = list_reasons(session, assignment, row, graded)
    works = sample.works(graded)
    prove = pooled_guarantee if sample.wanted.together else joint_guarantee
    found = prove(works, sample.wanted.target, sample.closed_tries)
    proven = () if taken_back else found.released
    ready = tuple(one for one in proven if graded[one].state == "open")
    return _Proven(sample, works, found, taken_back, proven, ready)


def _reason(sample: LoadedSample, found: JointGuarantee) -> Reason:
    """Why no more is proven: first because a draw is too small or not marked."""
    for draw in sample.open_draws:
        too_few = draw.limits[0] > sample.wanted.target.allowed(len(draw.candidates))
        return Reason.TOO_FEW if too_few else Reason.NOT_MARKED
    return found.reason


def _next_tries(
    session: Session, sample: LoadedSample, drawable: Sequence[GradedSubmission], version: int
) -> int:
    """Tries before the next sample."""
    ground = release_samples.ground_of(drawable) or sample.row.ground
    return release_samples.count_tries(session, sample.row.assignment_id, version, ground)


def _units(drawable: Sequence[GradedSubmission], wanted: Wanted) -> int:
    """Of how many submissions (or levels) a sample is drawn."""
    return sum(len(one.levels) for one in drawable) if wanted.together else len(drawable)


def _is_drawable(one: GradedSubmission, version: int) -> bool:
    return one.state == "open" and one.whole and one.rubric_version_id == version


def _unmarked(session: Session, assignment: Assignment, drawable: Sequence[GradedSubmission]) -> list[Work]:
    """What a first sample would be drawn of."""
    known = confidence.scores(session, assignment.id)
    return [
        Work(
            one.submission_id,
            {name: known.get((one.round_id, name), 1.0) for name in one.levels},
            dict.fromkeys(one.levels),
        )
        for one in drawable
    ]


def _gains(works: Sequence[Work], wanted: Wanted, tries: Sequence[Draw]) -> tuple[Gain, ...]:
    """What more marks would bring, where they bring anything."""
    here = [one for one in works if one.here]
    if wanted.together:
        left = sum(wrong is None for one in here for wrong in one.wrong.values())
        now_, predict = len(pooled_guarantee(works, wanted.target, tries).released), pooled_gain
    else:
        left = sum(one.found is None for one in here)
        now_, predict = len(joint_guarantee(works, wanted.target, tries).unread), joint_gain
    found: list[Gain] = []
    for more in (one for one in MORE if one < left):
        made = predict(works, wanted.target, more, tries)
        if made.expected >= now_ + max(1, made.marks * WORTH):
            found.append(made)
    return tuple(found)


def _facts(session: Session, sample: LoadedSample) -> SampleFacts:
    together = sample.wanted.together
    waiting = [(key, name) for name in sample.criteria() for key in sample.to_mark(name)]
    seen = [one for one in sample.levels if sample.unblind(*one)]
    drawn, left, unblind = (_counted(one, together) for one in (sample.levels, waiting, seen))
    return SampleFacts(
        id=sample.row.id,
        at=sample.row.at,
        by=session.scalar(select(User.name).where(User.id == sample.row.by)) or "",
        wanted=sample.wanted,
        size=sum(len(one.levels) for one in sample.members.values()) if together else len(sample.members),
        drawn=len(drawn),
        marked=len(drawn) - len(left),
        seen=len(unblind - left),
    )


def _counted(levels: Iterable[tuple[str, str]], together: bool) -> set[tuple[str, str]] | set[str]:
    """The levels themselves, or their submissions where these are counted."""
    return set(levels) if together else {submission for submission, _ in levels}


def _criteria(
    sample: LoadedSample, found: JointGuarantee, criteria: Sequence[Criterion]
) -> Iterator[CriterionProof]:
    """Of the rubric of the sample: those that it is drawn of, and those that people had graded everywhere."""
    known = frozenset(sample.criteria())
    for criterion in criteria:
        name = criterion.id
        members = [sample.members[key] for key in sample.drawn_by(name)]
        result = found.criteria.get(name)
        yield CriterionProof(
            id=name,
            title=criterion.title,
            drawn=len(members),
            marked=sum((one.round_id, name) in sample.marks.blind for one in members),
            wrong=sum(_differs(one, name, sample) for one in members),
            seen=sum(sample.unblind(one.submission_id, name) for one in members),
            alone=result.alone if result else 0,
            left=len(sample.to_mark(name)),
            by_person=name not in known,
        )


def _needing(
    sample: LoadedSample, proven: Sequence[str], graded: Mapping[str, GradedSubmission], version: int
) -> Iterator[NeedsPerson]:
    """What is neither released nor proven: the most uncertain first."""
    left = graded.keys() - frozenset(proven)
    open_ones = [graded[one] for one in left if graded[one].state != "released"]
    for one in sorted(
        open_ones, key=lambda one: (-_doubt(sample.members.get(one.submission_id)), one.student)
    ):
        member = sample.members.get(one.submission_id)
        why = _why(one, member, sample, version)
        if one.submission_id in sample.open_keys and why in ("differs", "not_blind", "uncertain"):
            why = "not_marked"
        names = () if member is None else _names(member, sample, why)
        titles = tuple(one.levels[name].title for name in names if name in one.levels)
        yield NeedsPerson(one.submission_id, one.student, one.number, why, titles)


def _doubt(member: Member | None) -> float:
    return 1.0 if member is None else max(member.scores.values())


def _why(one: GradedSubmission, member: Member | None, sample: LoadedSample, version: int) -> Why:
    if one.state != "open" and one.state != "released":
        return one.state
    if one.rubric_version_id != version:
        return "other_rubric"
    if member is None or member.round_id != one.round_id:
        return "late" if one.graded_at > sample.row.at else "not_drawn"
    if _names(member, sample, "differs"):
        return "differs"
    if _names(member, sample, "not_blind"):
        return "not_blind"
    return "uncertain"


def _differs(member: Member, name: str, sample: LoadedSample) -> bool:
    blind = (member.round_id, name) in sample.marks.blind
    return blind and sample.marks.wrong(member, name, sample.row.tolerance) is True


def _names(member: Member, sample: LoadedSample, why: Why) -> Sequence[str]:
    """The criteria that a reason is about."""
    if why == "differs":
        return [name for name in member.levels if _differs(member, name, sample)]
    if why == "not_blind":
        return [name for name in member.levels if sample.unblind(member.submission_id, name)]
    if why != "uncertain":
        return ()
    most = _doubt(member)
    return [name for name, score in member.scores.items() if score >= most - release_samples.TINY]


def _releases(
    session: Session, assignment: Assignment, graded: Mapping[str, GradedSubmission]
) -> Iterator[PastRelease]:
    """The newest first."""
    table, sample = GuaranteeRelease, GuaranteeSample
    query = (
        select(table, sample, User.name)
        .join(sample, sample.id == table.sample_id)
        .outerjoin(User, User.id == table.by)
        .where(sample.assignment_id == assignment.id)
        .order_by(table.id.desc())
    )
    moments = Counter(one.released_at for one in graded.values())
    for row, its, name in session.execute(query):
        yield PastRelease(
            at=row.at,
            by=name or "",
            count=row.count,
            proven=row.proven,
            marks=row.marks,
            threshold=row.threshold,
            wanted=release_samples.wanted_of(its),
            still=moments[row.at],
        )


def release_proven(session: Session, assignment: Assignment, seen: str, actor: Actor) -> int:
    """Release what is proven; returns how many. Raises NothingProven, ProofChanged.

    `seen` is the stamp of what the reader saw, so that nothing else is released.
    """
    sample = release_samples.lock_open(session, assignment)
    if sample is None:
        raise NothingProven
    proof = _load_proven(session, assignment, sample, load_graded(session, assignment))
    found = proof.found
    if not proof.ready or found.threshold is None:
        raise NothingProven
    if seen != _stamp(proof.ready):
        raise ProofChanged
    rounds = [proof.sample.members[one].round_id for one in proof.ready]
    count = release.release_rounds(session, assignment.id, actor, rounds)
    if count != len(rounds):  # another round took the place of one, or somebody reviewed it meanwhile
        raise ProofChanged
    row = GuaranteeRelease(
        sample_id=sample.id,
        count=count,
        proven=len(proof.proven),
        marks=found.marked,
        threshold=found.threshold,
        by=actor.user_id,
        at=now(session),
    )
    session.add(row)
    said = sentences.statement(proof.sample.wanted, row.proven, row.marks, row.threshold)
    detail = {"count": count, "text": said, "sample": sample.id}
    write_audit(session, actor.name, "guarantee.release", f"assignment:{assignment.id}", detail)
    session.flush()
    return count
