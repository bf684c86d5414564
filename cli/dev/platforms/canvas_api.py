"""The REST API of a Canvas as far as the bridge uses it, with its habits and its moods."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlencode

from flask import Flask, Response, abort, jsonify, redirect, request
from werkzeug.serving import make_server

TOKEN = "7~" + "aB3" * 20
ME = 900
COURSE, ASSIGNMENT = 101, 2001
LONG_ID = 10_000_000_000_042
"""Of another shard: larger than 32 bits."""
MOST_A_PAGE = 100


@dataclass
class FakeCanvas:
    """What it has, what it was asked, and what goes wrong next."""

    token: str = TOKEN
    base: str = ""
    files_at: str = ""
    """Another origin, where files lie."""
    people: list[dict[str, Any]] = field(default_factory=list)
    assignments: dict[int, dict[str, Any]] = field(default_factory=dict)
    submissions: dict[tuple[int, int], dict[str, Any]] = field(default_factory=dict)
    files: dict[int, bytes] = field(default_factory=dict)
    asked: list[tuple[str, str, str]] = field(default_factory=list)
    moods: list[str] = field(default_factory=list)
    """What becomes of the next requests: `500`, `throttled`, `429`, `deaf` (does it, says nothing), …"""
    posts: int = 0
    """Scores and comments it was told."""
    left: str = "599.7"
    """Units that it says are left."""
    per_page: int = 3
    """The most it gives, whatever is asked for: lists of the tests have several pages."""
    _comment: int = 5000
    lock: threading.RLock = field(default_factory=threading.RLock)

    def enrol(self, number: int, name: str, kind: str = "StudentEnrollment", state: str = "active") -> None:
        """Put somebody into the course."""
        place = {"id": number + 7, "type": kind, "enrollment_state": state, "course_id": COURSE}
        email = f"{name.split(maxsplit=1)[0].lower()}@school.example"
        person = {"id": number, "name": name, "sortable_name": name, "login_id": name, "email": email}
        self.people.append({**person, "created_at": "2026-08-01T10:00:00Z", "enrollments": [place]})
        for assignment in self.assignments:
            self.submissions[assignment, number] = _unsubmitted(assignment, number)

    def assign(self, number: int = ASSIGNMENT, **changes: Any) -> None:
        """Make an assignment."""
        made = {
            "id": number, "name": "Homework 1", "course_id": COURSE, "points_possible": 20.0,
            "grading_type": "points", "submission_types": ["online_upload"], "workflow_state": "published",
            "due_at": "2026-11-20T22:59:59Z", "group_category_id": None, "anonymous_grading": False,
        }  # fmt: skip
        self.assignments[number] = {**made, **changes}
        for person in self.people:
            self.submissions[number, person["id"]] = _unsubmitted(number, person["id"])

    def submit(
        self, user: int, files: dict[str, bytes], assignment: int = ASSIGNMENT,
        at: str = "", **changes: Any,
    ) -> int:  # fmt: skip
        """A student submits; the number of the attempt."""
        with self.lock:
            row = self.submissions[assignment, user]
            attached = [self._file(name, data) for name, data in files.items()]
            attempt = (row["attempt"] or 0) + 1
            new = {
                "attempt": attempt, "submitted_at": at or _now(), "workflow_state": "submitted",
                "late": False,
                "submission_type": "online_upload", "attachments": attached, **changes,
            }  # fmt: skip
            row.update(new)
            row["history"].append({key: value for key, value in row.items() if key != "history"})
            return attempt

    def _file(self, name: str, data: bytes) -> dict[str, Any]:
        number = 60_000 + len(self.files)
        self.files[number] = data
        url = f"{self.base}/files/{number}/download?download_frd=1&verifier=v{number}"
        return {
            "id": number, "uuid": f"u{number}", "display_name": name, "filename": f"{number}_{name}",
            "content-type": "text/x-python", "url": url, "size": len(data), "locked": False,
        }  # fmt: skip

    def of(self, user: int, assignment: int = ASSIGNMENT) -> dict[str, Any]:
        """A student's submission."""
        return self.submissions[assignment, user]

    def told(self, user: int) -> tuple[float | None, list[str]]:
        """Score and comments of a student."""
        row = self.of(user)
        return row["entered_score"], [one["comment"] for one in row["submission_comments"]]

    def comment(self, row: dict[str, Any], text: str, author: int) -> None:
        """Somebody comments."""
        self._comment += 1
        row["submission_comments"].append(
            {"id": self._comment, "author_id": author, "author_name": "A", "comment": text}
        )


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _unsubmitted(assignment: int, user: int) -> dict[str, Any]:
    return {
        "id": assignment * 100_000 + user % 100_000, "user_id": user, "assignment_id": assignment,
        "attempt": None, "submitted_at": None, "workflow_state": "unsubmitted", "submission_type": None,
        "late": False, "missing": True, "score": None, "entered_score": None, "grade": None,
        "entered_grade": None, "graded_at": None, "grader_id": None, "attachments": [],
        "submission_comments": [], "history": [],
    }  # fmt: skip


API = "/api/v1"
SUBMISSION = f"{API}/courses/{COURSE}/assignments/<int:assignment>/submissions/<int:user>"


def canvas_app(canvas: FakeCanvas) -> Flask:
    """The app that answers for it."""
    app = Flask("canvas", static_folder=None)
    for part in (_add_limits, _add_course, _add_submissions, _add_grades, _add_files):
        part(app, canvas)
    return app


def _add_limits(app: Flask, canvas: FakeCanvas) -> None:
    @app.before_request
    def before() -> Response | None:
        canvas.asked.append((request.method, request.path, request.host))
        if not request.path.startswith(API):
            return None
        if request.headers.get("Authorization") != f"Bearer {canvas.token}":
            answer = jsonify(errors=[{"message": "Invalid access token."}])
            answer.status_code = 401
            answer.headers["WWW-Authenticate"] = 'Bearer realm="canvas-lms"'
            return answer
        mood = canvas.moods[0] if canvas.moods else ""
        if mood in ("500", "throttled", "429", "html"):
            canvas.moods.pop(0)
            return _MOODS[mood]()
        return None

    @app.after_request
    def after(answer: Response) -> Response:
        answer.headers.setdefault("X-Rate-Limit-Remaining", canvas.left)
        answer.headers["X-Request-Cost"] = "0.03"
        if canvas.moods and canvas.moods[0] == "deaf" and request.method != "GET":
            canvas.moods.pop(0)
            return Response("<html>gateway</html>", 504)
        return answer

    @app.errorhandler(404)
    def missing(_: Exception) -> tuple[Response, int]:
        return jsonify(errors=[{"message": "The specified resource does not exist."}]), 404


def _add_course(app: Flask, canvas: FakeCanvas) -> None:
    @app.get(f"{API}/users/self")
    def me() -> Response:
        return jsonify(id=ME, name="Bridge", created_at="2026-08-01T10:00:00Z")

    @app.get(f"{API}/courses/{COURSE}")
    def course() -> Response:
        return jsonify(id=COURSE, name="Business Analytics", course_code="BA", workflow_state="available")

    @app.get(f"{API}/courses/{COURSE}/users")
    @app.get(f"{API}/courses/{COURSE}/search_users")
    def users() -> Response:
        states = request.args.getlist("enrollment_state[]")
        hidden = {"enrollments"} - set(request.args.getlist("include[]"))
        return _page(canvas, [
            {key: value for key, value in one.items() if key not in hidden}
            for one in canvas.people if one["enrollments"][0]["enrollment_state"] in states
        ])  # fmt: skip

    @app.get(f"{API}/courses/{COURSE}/assignments")
    def assignments() -> Response:
        return _page(canvas, list(canvas.assignments.values()))

    @app.get(f"{API}/courses/{COURSE}/assignments/<int:number>")
    def assignment(number: int) -> Response:
        return jsonify(canvas.assignments.get(number) or abort(404))


def _add_submissions(app: Flask, canvas: FakeCanvas) -> None:
    @app.get(f"{API}/courses/{COURSE}/students/submissions")
    def of_students() -> Response:
        """The list that knows submitted_since (controllers/submissions_api_controller.rb)."""
        since = datetime.fromisoformat(request.args.get("submitted_since", "1970-01-01T00:00:00Z"))
        wanted = {int(one) for one in request.args.getlist("assignment_ids[]")}
        if any(canvas.assignments[one]["workflow_state"] != "published" for one in wanted):
            return _forbidden("invalid assignment ids requested")
        everybody = request.args.getlist("student_ids[]") == ["all"]
        rows = [
            row
            for (of, user), row in sorted(canvas.submissions.items())
            if of in wanted and (everybody or user == ME) and row["submitted_at"]
        ]
        rows = [row for row in rows if datetime.fromisoformat(row["submitted_at"]) > since]
        return _page(canvas, [_shown(row, request.args.getlist("include[]")) for row in rows])

    @app.get(f"{API}/courses/{COURSE}/assignments/<int:number>/submissions")
    def submissions(number: int) -> Response:
        rows = [row for (of, _), row in sorted(canvas.submissions.items()) if of == number]
        return _page(canvas, [_shown(row, request.args.getlist("include[]")) for row in rows])

    @app.get(SUBMISSION)
    def one(assignment: int, user: int) -> Response:
        row = canvas.submissions.get((assignment, user)) or abort(404)
        return jsonify(_shown(row, request.args.getlist("include[]")))


def _add_grades(app: Flask, canvas: FakeCanvas) -> None:
    @app.put(SUBMISSION)
    def grade(assignment: int, user: int) -> Response:
        with canvas.lock:
            row = canvas.submissions.get((assignment, user)) or abort(404)
            _grade(canvas, row, request.form)
            return jsonify(_shown(row, ["submission_comments"]))

    @app.put(f"{SUBMISSION}/comments/<int:number>")
    def edit(assignment: int, user: int, number: int) -> Response:
        with canvas.lock:
            found = _comment(canvas.of(user, assignment), number)
            found["comment"] = request.form["comment"]
            canvas.posts += 1
            return jsonify(found)

    @app.delete(f"{SUBMISSION}/comments/<int:number>")
    def forget(assignment: int, user: int, number: int) -> Response:
        with canvas.lock:
            row = canvas.of(user, assignment)
            row["submission_comments"].remove(_comment(row, number))
            canvas.posts += 1
            return jsonify(id=number)


def _add_files(app: Flask, canvas: FakeCanvas) -> None:
    @app.get("/files/<int:number>/download")
    def file(number: int) -> Any:
        if request.args.get("verifier") != f"v{number}":
            abort(403)
        return redirect(f"{canvas.files_at}/inst-fs/{number}?token=t{number}", 302)

    @app.get("/inst-fs/<int:number>")
    def stored(number: int) -> Any:
        # as stores of files do: one way of signing in only
        if "Authorization" in request.headers or request.args.get("token") != f"t{number}":
            abort(400)
        mood = canvas.moods[0] if canvas.moods else ""
        if mood in ("file 503", "file away"):
            canvas.moods.pop(0)
            return Response("", 503) if mood == "file 503" else redirect("http://10.1.2.3/inner")
        return Response(canvas.files[number], mimetype="application/octet-stream")


def _forbidden(message: str) -> Response:
    answer = jsonify(errors=[{"message": message}])
    answer.status_code = 403
    return answer


def _throttled() -> Response:
    answer = Response("403 Forbidden (Rate Limit Exceeded)\n", 403, mimetype="text/plain")
    answer.headers["X-Rate-Limit-Remaining"] = "0.0"
    return answer


_MOODS: dict[str, Callable[[], Response]] = {
    "500": lambda: Response(
        '{"errors":[{"message":"An error occurred."}]}', 500, mimetype="application/json"
    ),
    "throttled": _throttled,
    "429": lambda: Response("", 429),
    "html": lambda: Response("<html>maintenance</html>", 200),
}


def _page(canvas: FakeCanvas, rows: list[Any]) -> Response:
    """A part of a list, with the addresses of others in a header, as absolute and opaque as Canvas' own."""
    asked = int(request.args.get("per_page", 10))
    size = min(asked, canvas.per_page, MOST_A_PAGE)
    page = int(request.args.get("page", "bookmark:1").removeprefix("bookmark:"))
    last = max(1, -(-len(rows) // size))
    answer = jsonify(rows[(page - 1) * size : page * size])

    def link(number: int, name: str) -> str:
        query = [(k, v) for k, v in request.args.items(multi=True) if k != "page"]
        query.append(("page", f"bookmark:{number}"))
        return f'<{canvas.base}{request.path}?{urlencode(query)}>; rel="{name}"'

    links = [link(page, "current"), link(1, "first")]
    if page < last:
        links.insert(1, link(page + 1, "next"))
    answer.headers["Link"] = ",".join(links)
    return answer


def _shown(row: dict[str, Any], include: list[str]) -> dict[str, Any]:
    hidden = {"history", "submission_comments"} - set(include)
    shown = {key: value for key, value in row.items() if key not in hidden}
    if "submission_history" in include:
        shown["submission_history"] = row["history"]
    return shown


def _comment(row: dict[str, Any], number: int) -> dict[str, Any]:
    found: list[dict[str, Any]] = [
        one for one in row["submission_comments"] if one["id"] == number and one["author_id"] == ME
    ]
    return found[0] if found else abort(404)


def _grade(canvas: FakeCanvas, row: dict[str, Any], form: Any) -> None:
    if "submission[posted_grade]" in form:
        given = form["submission[posted_grade]"]
        score = float(given) if given else None
        row.update(score=score, entered_score=score, grade=given or None, grader_id=ME)
        row["workflow_state"] = "graded" if given else ("submitted" if row["attempt"] else "unsubmitted")
        # grading makes a new entry of the same attempt
        row["history"].append({key: value for key, value in row.items() if key != "history"})
        canvas.posts += 1
    if "comment[text_comment]" in form:
        canvas.comment(row, form["comment[text_comment]"], ME)
        canvas.posts += 1


@contextmanager
def canvas_server() -> Iterator[FakeCanvas]:
    """One that answers at two names of this computer: files lie at the other."""
    canvas = FakeCanvas()
    server = make_server("127.0.0.1", 0, canvas_app(canvas), threaded=True)
    canvas.base = f"http://127.0.0.1:{server.server_port}"
    canvas.files_at = f"http://localhost:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield canvas
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
