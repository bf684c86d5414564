"""The API's guarantees: what a blind random sample proves of an assignment, and its release."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, Field

from app.api.fields import RequestModel
from app.api.guards import of_assignment
from app.api.resources.grades import Counted
from app.api.routes import Call, get, post
from app.trust.guarantee import load_proof
from grading.store import tables
from grading.store.trust import guarantees, sentences

ROOT = "/assignments/<int:assignment_id>/guarantee"


class CriterionSample(BaseModel):
    """The sample by one criterion."""

    criterion: str = Field(description="the ID in the rubric", examples=["load"])
    marked: int = Field(description="the number of its levels that are marked", examples=[40])
    wrong: int | None = Field(
        description="the number of marked levels that are too far from staff's; `null` until all are marked",
        examples=[1],
    )
    left: int = Field(description="the number of submissions that are still to be marked", examples=[0])


class GuaranteeState(BaseModel):
    """What the open sample of an assignment proves."""

    graded: int = Field(description="the number of graded submissions that count", examples=[120])
    sampled: int = Field(
        description="the number of submissions, or of levels if `together`, to mark; 0: no sample",
        examples=[40],
    )
    marked: int = Field(description="the number of them that are marked", examples=[40])
    share: float | None = Field(
        description="the largest share of wrong levels of the target; `null` without a sample",
        examples=[0.05],
    )
    confidence: float | None = Field(
        description="the confidence of the target; `null` without a sample", examples=[0.95]
    )
    tolerance: int | None = Field(
        description="by how many levels a level may be off; `null` without a sample", examples=[1]
    )
    together: bool | None = Field(
        description="whether the target is for the levels of all criteria together, and single levels are "
        "marked; else it is for each criterion; `null` without a sample",
        examples=[True],
    )
    proven: int = Field(description="the number of submissions that are proven", examples=[96])
    unread: int = Field(description="the number of them of which not all levels are marked", examples=[57])
    ready: list[str] = Field(
        description="the IDs of the proven submissions that are not released", examples=[["4f0c2d91"]]
    )
    stamp: str = Field(
        description="a stamp of `ready`; send it to release them", examples=["9d1be2a0c44f7310"]
    )
    sentence: str = Field(
        description="the guarantee; empty while nothing is proven",
        examples=["With 95 % confidence, at most 5 % of the released levels …"],
    )
    needs_person: int = Field(
        description="the number of submissions that are neither proven nor released", examples=[24]
    )
    taken_back: list[str] = Field(
        description="what ended the proof: `rubric`, `engine`, `model`, `weights`, `prompt`, `drift`",
        examples=[["model"]],
    )
    criteria: list[CriterionSample] = Field(description="the criteria of the sample")


class ReleaseProven(RequestModel):
    """The submissions to release."""

    stamp: Annotated[str, Field(max_length=32)] = Field(
        description="the `stamp` of the guarantee that you read", examples=["9d1be2a0c44f7310"]
    )


@get(ROOT, of_assignment("trust.see"))
def guarantee(call: Call, about: tables.Assignment) -> GuaranteeState:
    """Get how many grades of an assignment may be released unread (staff only)."""
    proof = load_proof(call.session, about)
    wanted = proof.sample.wanted if proof.sample else None
    done = proof.sample is not None and proof.sample.done
    said = wanted is not None and proof.proven and proof.threshold is not None
    return GuaranteeState(
        graded=proof.graded,
        sampled=proof.sample.drawn if proof.sample else 0,
        marked=proof.sample.marked if proof.sample else 0,
        share=wanted.share if wanted else None,
        confidence=wanted.confidence if wanted else None,
        tolerance=wanted.tolerance if wanted else None,
        together=wanted.together if wanted else None,
        proven=len(proof.proven),
        unread=proof.unread,
        ready=list(proof.ready),
        stamp=proof.stamp,
        sentence=sentences.bound(wanted).message if wanted and said else "",
        needs_person=len(proof.needs_person),
        taken_back=[one.cause for one in proof.taken_back],
        criteria=[
            # as on the page: who still marks must not see whether their marks differ
            CriterionSample(
                criterion=one.id, marked=one.marked, wrong=one.wrong if done else None, left=one.left
            )
            for one in proof.criteria
        ],
    )


@post(f"{ROOT}/release", of_assignment("grade.release"))
def release_proven(call: Call, about: tables.Assignment, body: ReleaseProven) -> Counted:
    """Release the grades that the sample proves, unread."""
    return Counted(count=guarantees.release_proven(call.session, about, body.stamp, call.actor))
