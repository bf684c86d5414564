"""The live state of a submission in plain words, for its page."""

from __future__ import annotations

from app.progress import Progress, StageStatus
from grading.model import RoundState, StageState
from grading.rubric import Value
from grading.store.views import SubmissionView

TITLES = {"analysis": "Technical review", "feedback": "Personal feedback"}
WORDS = {
    StageState.WAITING: "waiting",
    StageState.DISPATCHED: "waiting for a free machine",
    StageState.RUNNING: "at work",
    StageState.DONE: "done",
    StageState.FAILED: "did not work, will be tried again",
    StageState.DEAD: "did not work",
}
PHASES = {
    "waiting": "waiting for a turn",
    "queued": "waiting for a turn",
    "starting": "starting",
    "loading": "loading the model",
    "reading": "reading your work",
    "generating": "writing",
}


class LiveStage(Value):
    """One stage in words."""

    stage: str
    title: str
    status: str
    words: str
    detail: str
    draft: str = ""
    """What is being written and may still change; gone when the stage is done."""


class Live(Value):
    """What the page shows and announces; `result` changes when the part below must be loaded again."""

    status: str
    headline: str
    detail: str
    stages: tuple[LiveStage, ...]
    settled: bool
    """Nothing more will change for this reader."""
    result: str


def live(view: SubmissionView, progress: Progress, *, sees_score: bool) -> Live:
    """The state of a submission as this reader may see it."""
    headline, detail = _headline(view, progress, sees_score=sees_score)
    seen = int(sees_score and view.grade is not None)
    stages = () if view.final and not sees_score else progress.stages.items()
    return Live(
        status=view.state,
        headline=headline,
        detail=detail,
        stages=tuple(_stage(name, stage) for name, stage in stages),
        settled=view.final and (sees_score or view.grade is None),
        result=f"{view.round_id}-{view.state}-{seen}-{int(view.released)}",
    )


def _headline(view: SubmissionView, progress: Progress, *, sees_score: bool) -> tuple[str, str]:
    queue = progress.queue
    if view.state == RoundState.FAILED:
        why = _why(view) or view.failure or "The grading did not work. A person will look at it."
        return "Not graded", f"{why} That is no zero."
    if view.grade is not None and not sees_score:
        done = _why(view) or "The grading is done."
        return "Waits for review", f"{done} A person looks at it before you see the result."
    if view.state == RoundState.GRADED:
        return "Graded", ""
    if view.state == RoundState.PARTIAL:
        return (
            "Partly graded",
            "One part of the grading did not work. There is no total yet, and that is no zero.",
        )
    about = f"About {duration(queue.eta_s)} to go." if queue and queue.eta_s is not None else ""
    if view.release == "after_review" and not sees_score:
        about = f"{about} Then a person looks at the result before you see it.".strip()
    if view.state == RoundState.RUNNING:
        begun = any(stage.status != StageState.DISPATCHED for stage in progress.stages.values())
        if begun or not queue or not queue.position:
            return "Being graded" if begun else "Next in line", about
        return "Next in line", f"Place {queue.position}. {about}".strip()
    if view.state == RoundState.QUEUED and queue:
        return "In the queue", f"Place {queue.position}. {about}".strip()
    doing = "Your work is being run" if view.to_run else "Your files are being read"
    return "Received", f"{doing}. {about}".strip()


def _why(view: SubmissionView) -> str:
    """The sentences about stages that were given up."""
    return " ".join(dict.fromkeys(stage.student for stage in view.stages if stage.student))


def _stage(name: str, stage: StageStatus) -> LiveStage:
    words = PHASES.get(stage.phase or "") or WORDS.get(StageState(stage.status), stage.status)
    parts = [f"on {stage.machine}" if stage.machine else "", stage.model or ""]
    parts.append(f"{stage.seconds:.0f} s" if stage.seconds is not None else "")
    parts.append(_tokens(stage))
    title = TITLES.get(name, name.capitalize())
    return LiveStage(
        stage=name,
        title=title,
        status=stage.status,
        words=words,
        detail=" · ".join(filter(None, parts)),
        draft=stage.draft or "",
    )


def _tokens(stage: StageStatus) -> str:
    """Tokens written; before that, those to be read."""
    if stage.tokens:
        return f"{stage.tokens} tokens"
    return f"about {_coarse(stage.prompt_tokens):,} tokens to read" if stage.prompt_tokens else ""


def _coarse(number: int) -> int:
    """An estimate without digits that it does not have."""
    return round(number, 2 - len(str(number)))


def duration(seconds: float) -> str:
    """Seconds in words, coarse on purpose."""
    if seconds < 45:
        return f"{max(5, 5 * round(seconds / 5))} seconds"
    minutes = round(seconds / 60)
    if minutes < 90:
        return "1 minute" if minutes <= 1 else f"{minutes} minutes"
    return f"{round(minutes / 60)} hours"
