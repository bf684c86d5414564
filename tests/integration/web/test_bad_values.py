"""Values that no browser sends and no database takes: no form fails on them."""

from __future__ import annotations

from tests.integration.webapp import School, form_token

NUL = "a\0b"
OPEN = {"slug": "hw1", "language": "python", "zone": "UTC"}
FORMS: tuple[tuple[str, dict[str, str]], ...] = (
    ("/courses/1/settings", {"title": NUL, "drop_lowest": "0"}),
    ("/courses/1/people/add", {"id": "q1", "name": NUL, "email": NUL}),
    ("/courses/1/people/import/confirm", {"table": f"id,name\n{NUL},x\n", "digest": NUL}),
    ("/courses/1/comments", {"text": NUL}),
    ("/courses/1/assignments/new", {**OPEN, "title": NUL, "slug": "new"}),
    ("/assignments/1/task", {"base": "1", "task": NUL, "note": NUL, "spoken_language": "English"}),
    ("/assignments/1/settings", {**OPEN, "title": NUL}),
    (
        "/assignments/1/settings",
        {**OPEN, "title": "x", "max_submissions": "9" * 20, "group_size": "9" * 4500},
    ),
    ("/assignments/1/rubric/text", {"base": "9" * 4500, "text": "[" * 100_000}),
    (
        "/assignments/1/extensions",
        {"student": "4", "until": "2030-01-01T00:00", "zone": "UTC", "reason": NUL},
    ),
    ("/assignments/1/groups", {"state": NUL, "group-4": NUL}),
    ("/assignments/1/review/release", {"release": "at", "at": "0001-01-01T00:00+14:00"}),
    ("/assignments/1/review/release", {"release": "at", "at": "9999-12-31T23:59-14:00"}),
    ("/assignments/1/review/curve/undo", {"bulk": NUL}),
    ("/assignments/1/review/selected", {"do": "release", "chosen": NUL}),
    ("/assignments/1/examples", {"change": "1", "excerpt": NUL, "reason": NUL}),
)
ADDRESSES = (
    "/courses/1/people?q=%00&role=%00&page=999999",
    "/courses/1/audit?person=%00&kind=%00&before=999999999",
    "/assignments/1/review?q=%00&machine=%00&model=%00&criterion=%00&most=1e400&sort=%00",
    "/assignments/1/second-marking?count=9999&seed=%00",
    "/assignments/1/extensions",
    "/assignments/1/groups",
    "/regrades?course=999999999&page=999999999",
    "/uploads/%00",
    "/dry-runs/%00",
)


def test_values_that_nobody_types_are_refused_kindly(database_url: str) -> None:
    school = School(database_url)
    school.app.config["PROPAGATE_EXCEPTIONS"] = False
    school.app.testing = False
    teacher = school.client("teacher")
    token = form_token(teacher)
    codes = {
        f"{url} {sorted(form)}": teacher.post(url, data={"csrf_token": token, **form}).status_code
        for url, form in FORMS
    }
    codes |= {url: teacher.get(url).status_code for url in ADDRESSES}
    assert {what: code for what, code in codes.items() if code >= 500} == {}
    school.close()
