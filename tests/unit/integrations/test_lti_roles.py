"""Roles of LTI 1.3 (its appendix A.2): what each is here, alone and beside others."""

from __future__ import annotations

import pytest

from grading.integrations.lti.values import ROLE, role_of
from grading.integrations.told_texts import name_of, text_of

LEARNER = ("ExternalLearner", "GuestLearner", "Instructor", "Learner", "NonCreditLearner")
INSTRUCTOR = ("ExternalInstructor", "GuestInstructor", "Lecturer", "PrimaryInstructor", "SecondaryInstructor")
ASSISTANT = (
    "Grader", "TeachingAssistant", "TeachingAssistantGroup", "TeachingAssistantOffering",
    "TeachingAssistantSection", "TeachingAssistantSectionAssociation", "TeachingAssistantTemplate",
)  # fmt: skip
OTHERS = ("Administrator", "ContentDeveloper", "Manager", "Member", "Mentor", "Officer")
ELSEWHERE = {
    "institution/person": (
        "Administrator", "Faculty", "Guest", "Instructor", "Learner", "Member", "Mentor", "None", "Observer",
        "Other", "ProspectiveStudent", "Staff", "Student", "Alumni",
    ),
    "system/person": (
        "AccountAdmin", "Administrator", "Creator", "None", "SysAdmin", "SysSupport", "User", "TestUser",
    ),
}  # fmt: skip


def expected() -> dict[str, str | None]:
    """Role -> what it is here."""
    found: dict[str, str | None] = {f"{ROLE}membership#Learner": "student", "Learner": "student"}
    found |= {"Student": "student", "Instructor": "instructor", "TeachingAssistant": "grader"}
    found |= {f"{ROLE}membership#Instructor": "instructor", f"{ROLE}membership#TeachingAssistant": "grader"}
    found |= {f"{ROLE}membership/Learner#{one}": "student" for one in LEARNER}
    found |= {f"{ROLE}membership/Instructor#{one}": "instructor" for one in INSTRUCTOR}
    found |= {f"{ROLE}membership/Instructor#{one}": "grader" for one in ASSISTANT}
    found |= {f"{ROLE}membership#{one}": None for one in OTHERS}
    found |= {f"{ROLE}membership/{main}#{sub}": None for main in OTHERS for sub in (main, "Support")}
    found |= {f"{ROLE}{kind}#{one}": None for kind, names in ELSEWHERE.items() for one in names}
    return {**found, "http://purl.imsglobal.org/vocab/lti/system/person#TestUser": None, "": None}


@pytest.mark.parametrize(("role", "here"), expected().items())
def test_each_role(role: str, here: str | None) -> None:
    assert role_of([role]) == here


def test_roles_beside_each_other() -> None:
    elsewhere = [role for role, here in expected().items() if here is None]
    assert role_of([]) is None
    assert role_of(elsewhere) is None
    learner, instructor = f"{ROLE}membership#Learner", f"{ROLE}membership#Instructor"
    assistant = f"{ROLE}membership/Instructor#TeachingAssistant"
    assert role_of([*elsewhere, learner]) == "student"
    assert role_of([learner, instructor]) == "instructor"
    assert role_of([instructor, assistant]) == "grader"


@pytest.mark.parametrize(
    ("said", "kept"),
    [
        ("Ann\N{NO-BREAK SPACE}Lee", "Ann Lee"),
        ("  Ann \t\n Lee\u2009", "Ann Lee"),
        ("Ann\u202eeeL\u0007", "AnneeL"),
        ("\u3042\u3044", "\u3042\u3044"),
        (7, ""),
    ],
)
def test_blanks_of_all_kinds_become_spaces(said: object, kept: str) -> None:
    assert text_of(said) == kept


def test_a_name_is_made_of_its_parts() -> None:
    assert name_of({"given_name": "Ann", "family_name": "Lee"}) == "Ann Lee"
    assert name_of({"name": "Lee Ann", "given_name": "Ann", "family_name": "Lee"}) == "Lee Ann"
    assert name_of({}) == ""
