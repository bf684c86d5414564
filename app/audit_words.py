"""A sentence for each action of the audit. Others are shown by their names, so a new one may come later."""

from __future__ import annotations

from collections.abc import Mapping

from app.language import later as N_

ROLES: Mapping[str, str] = {
    "student": N_("student"),
    "grader": N_("grader"),
    "instructor": N_("instructor"),
}

DETAILS: Mapping[str, str] = {
    "made": N_("new accounts"),
    "joined": N_("joined"),
    "changed": N_("changed"),
    "unchanged": N_("unchanged"),
    "title": N_("title"),
    "archived": N_("over"),
    "drop_lowest": N_("lowest grades that do not count"),
    "reason": N_("reason"),
    "count": N_("how many"),
    "held": N_("held"),
    "final_points": N_("points now"),
    "released": N_("released"),
    "role": N_("role"),
    "students": N_("students"),
    "administrator": N_("administrator"),
}
"""What details are called; others by their names."""

HIDDEN = frozenset({"bulk", "group", "change", "digest"})
"""Numbers that say nothing to people."""

SENTENCES: Mapping[str, str] = {
    "grade.view": N_("%(who)s looked at the grade of %(what)s."),
    "grade.change": N_("%(who)s changed the grade of %(what)s."),
    "grade.undo": N_("%(who)s took back a change of the grade of %(what)s."),
    "grade.accept": N_("%(who)s looked through %(what)s and accepted its grade."),
    "grade.release": N_("%(who)s released the grade of %(what)s."),
    "grade.release_all": N_("%(who)s released grades of %(what)s."),
    "grade.withdraw": N_("%(who)s withdrew the grade of %(what)s."),
    "grade.adjust_all": N_("%(who)s adjusted many grades of %(what)s."),
    "grade.adjust_undo": N_("%(who)s took back an adjustment of many grades of %(what)s."),
    "mark.give": N_("%(who)s gave levels of their own to %(what)s."),
    "regrade.ask": N_("%(who)s asked for a regrade of %(what)s."),
    "regrade.answer": N_("%(who)s answered the request for a regrade of %(what)s."),
    "regrade.withdraw": N_("%(who)s withdrew the request for a regrade of %(what)s."),
    "example.add": N_("%(who)s chose a correction as an example for %(what)s."),
    "example.edit": N_("%(who)s put an example of %(what)s in other words."),
    "example.on": N_("%(who)s switched an example of %(what)s on."),
    "example.off": N_("%(who)s switched an example of %(what)s off."),
    "example.remove": N_("%(who)s removed an example of %(what)s."),
    "round.replay": N_("%(who)s had %(what)s graded again after it had not worked."),
    "comment.save": N_("%(who)s saved a comment to use again, in %(what)s."),
    "comment.delete": N_("%(who)s deleted a saved comment, in %(what)s."),
    "batch.upload": N_("%(who)s uploaded the class zip %(what)s."),
    "batch.confirm": N_("%(who)s handed in for the students of the class zip %(what)s."),
    "group.arrange": N_("%(who)s arranged the groups of %(what)s."),
    "group.invite": N_("%(who)s asked somebody into their group for %(what)s."),
    "group.confirm": N_("%(who)s joined a group for %(what)s."),
    "group.leave": N_("%(who)s left a group for %(what)s."),
    "extension.give": N_("%(who)s gave an extension for %(what)s."),
    "extension.revoke": N_("%(who)s took an extension for %(what)s back."),
    "student.export": N_("%(who)s made a zip of all that is kept of %(what)s."),
    "student.erase": N_("%(who)s erased %(what)s with all their work."),
    "assignment.import": N_("%(who)s imported a version of %(what)s."),
    "assignment.release": N_("%(who)s changed how grades of %(what)s are released."),
    "course.create": N_("%(who)s made the course %(what)s."),
    "course.change": N_("%(who)s changed the settings of %(what)s."),
    "roster.import": N_("%(who)s added or changed people of %(what)s."),
    "roster.remove": N_("%(who)s took %(what)s out of the course."),
    "role.change": N_("%(who)s changed the role of %(what)s."),
    "link.make": N_("%(who)s made a link by which %(what)s can set a password."),
    "user.create": N_("%(who)s made the account of %(what)s."),
    "user.change": N_("%(who)s changed the name or address of %(what)s."),
    "user.email": N_("%(who)s changed the e-mail address of %(what)s."),
    "user.password": N_("%(who)s set the password of %(what)s."),
    "user.administrator": N_("%(who)s made %(what)s an administrator."),
    "user.not_administrator": N_("%(who)s made %(what)s an administrator no longer."),
    "user.disabled": N_("%(who)s disabled the account of %(what)s."),
    "user.not_disabled": N_("%(who)s let the account of %(what)s be used again."),
    "sign_in": N_("%(who)s signed in."),
    "password.set": N_("The password of %(what)s was set."),
    "password.check": N_("%(who)s gave their password to change it."),
    "account.lock": N_("The account of %(what)s was locked for 15 minutes after too many wrong passwords."),
    "account.unlock": N_("%(who)s unlocked the account of %(what)s."),
    "session.end_all": N_("%(who)s ended all sessions of %(what)s."),
    "token.create": N_("%(who)s made the API token %(what)s."),
    "token.revoke": N_("%(who)s ended the API token %(what)s."),
    "machine.drain": N_("%(who)s took %(what)s out of work."),
    "machine.undrain": N_("%(who)s gave %(what)s work again."),
    "database.backup": N_("%(who)s made a backup of the database."),
    "database.restore": N_("%(who)s restored the database from a backup."),
}
