"""From the older autograder's search strings to checks on parsed code."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations

from grading.assignments.legacy_import.source import Rule
from grading.checks.kinds.code import CodeMatches, Defines, Uses
from grading.checks.kinds.combined import Alternatives, Ladder, Rung
from grading.checks.kinds.outputs import HasOutput, OutputMatches
from grading.domain.check import Check
from grading.domain.errors import AssignmentError
from grading.domain.patterns import compiled

FUNCTION = re.compile(r"[A-Za-z_.][\w.]*(?:::[\w.]+)?\(\)?")
MAKES = re.compile(r"([A-Za-z_.][\w.]*)\s*(?:<-|<<-|=)")
OPERATOR = re.compile(r"%[^%\s]*%|[-+*/^&|<>=!~]{1,3}")
EXPRESSION = re.compile(r"\.[*+]|\\[sbwS]")
"""Signs that a search string is a regular expression."""
CALL = re.compile(r"([A-Za-z_.][\w.]*)\(([\w., ]+)\)")
NAME = re.compile(r"[A-Za-z_.][\w.]*")
LABEL = re.compile(r"[^\W\d_][^\W_]*(?: [^\W_]+)*")
PATTERN_CALL = re.compile(r"\\b([A-Za-z_.][\w.]*)(?:\\s\*)?\\\(")
PIPES = ("%>%", "|>")
DATES = ("ymd", "mdy", "dmy", "ydm", "myd", "dym")
SAME = {
    "paste": ("paste0", "str_c", "glue", "str_glue", "sprintf"),
    "str_extract": ("str_extract_all", "str_match"),
    "str_trim": ("str_squish", "trimws"),
    "str_to_lower": ("tolower",),
    "str_to_upper": ("toupper",),
    "today": ("Sys.Date", "now", "Sys.time"),
    "as.numeric": ("as.integer", "as.double", "difftime"),
    "read_csv": ("read.csv", "read_csv2", "read_delim", "fread", "vroom"),
    "read.csv": ("read_csv", "read.csv2", "read.table", "fread", "vroom"),
    "str": ("glimpse",),
    "library": ("require", "p_load"),
    "head": ("slice_head", "slice"),
    "parse_date_time": ("parse_date_time2",),
}
"""Functions that do the same; a rubric of search strings could not say so."""
USUAL = frozenset(
    "read_csv read_excel read_delim read.csv read_tsv write_csv write.csv group_by ungroup n_distinct"
    " case_when if_else starts_with ends_with contains matches everything all_of any_of where intersect"
    " union setdiff distinct pull slice_max slice_min slice_head slice_tail top_n row_number bind_rows"
    " bind_cols inner_join left_join right_join full_join anti_join semi_join cross_join pivot_longer"
    " pivot_wider separate unite drop_na replace_na fill complete.cases is.na na.omit summarise"
    " summarize mutate filter select arrange desc count tally transmute rename relocate across rowwise"
    " str_detect str_replace str_replace_all str_extract str_count str_trim str_squish str_to_lower"
    " str_to_upper str_to_title str_split str_sub parse_date_time as.Date as.numeric as.integer"
    " as.character as.factor as_date as_datetime sapply lapply tapply colSums rowSums colMeans rowMeans"
    " geom_point geom_bar geom_line geom_histogram geom_boxplot facet_wrap ggplot aes boxplot quantile"
    " median paste0 sprintf groupby merge pivot_table value_counts fillna dropna isna isnull astype"
    " to_datetime to_numeric sort_values reset_index set_index drop_duplicates apply agg describe head"
    " tail iloc loc nrow ncol dim str summary".split()
)
"""Functions of business analytics courses that a search string names without brackets."""


def same_names(name: str) -> tuple[str, ...]:
    """Other spellings and functions that count as `name`."""
    found = list(SAME.get(name, ()))
    for one, other in (("ise", "ize"), ("colour", "color"), ("grey", "gray"), ("analyse", "analyze")):
        for old, new in ((one, other), (other, one)):
            if re.search(rf"{old}(?:_|$)", name):
                found.append(re.sub(rf"{old}(?=_|$)", new, name))
    if name in DATES:
        found += [f"{name}{ending}" for ending in ("_h", "_hm", "_hms")]
    return tuple(dict.fromkeys(found))


@dataclass(frozen=True)
class Names:
    """What a bare word in the file may mean."""

    functions: frozenset[str] = frozenset()
    made: frozenset[str] = frozenset()
    """Variables and columns."""


def check_of(string: str, names: Names) -> Check:
    """The check for one search string of the older autograder."""
    string = string.strip()
    if FUNCTION.fullmatch(string):
        return Uses(all_of=(string.rstrip("()"),))
    made = MAKES.fullmatch(string)
    if made:
        return Defines(all_of=(made.group(1),))
    if OPERATOR.fullmatch(string):
        return Uses(any_of=PIPES) if string in PIPES else Uses(all_of=(string,))
    kind = _kind(string, names)
    if kind == "function":
        return Uses(all_of=(string,))
    if kind == "name":
        return Defines(all_of=(string,))
    return _label(string) if kind == "label" else _pattern(string)


def merged(checks: Sequence[Check]) -> list[Check]:
    """The checks, those on single functions and on single names each as one, with their weights added up."""
    found: list[Check] = []
    for kind in (Uses, Defines):
        single = [
            c for c in checks if isinstance(c, kind) and len(c.all_of) == 1 and not c.any_of and not c.label
        ]
        names = tuple(dict.fromkeys(c.all_of[0] for c in single))
        if names:
            found.append(kind(all_of=names, weight=len(names)))
        checks = [c for c in checks if not any(c is one for one in single)]
    return [*found, *dict.fromkeys(checks)]


def shown_output(checks: Sequence[Check]) -> Check:
    """A third of a task: its cells were run and show something, and some of what is asked for is there.

    The older file gave nothing at all for code without outputs, which a broken kernel would cost too much.
    """
    some = Alternatives(checks=tuple(_any(c) for c in checks))
    rung = Rung(when=(HasOutput(), some), credit=1.0, note="the output is there")
    weight = sum(c.weight for c in checks) / 2
    return Ladder(rungs=(rung,), weight=weight, label="was run and shows its output")


def _any(check: Check) -> Check:
    """The check, met by one of the names it asks for."""
    if isinstance(check, Uses | Defines) and check.all_of:
        return check.model_copy(update={"all_of": (), "any_of": (*check.all_of, *check.any_of)})
    return check


def _kind(string: str, names: Names) -> str:
    if not NAME.fullmatch(string):
        return "label" if LABEL.fullmatch(string) else "other"
    if string in names.made:
        return "name"
    if string in names.functions or string in USUAL:
        return "function"
    if "_" in string or "." in string or string.islower():
        return "name"
    return "label" if LABEL.fullmatch(string) else "name"


def _label(string: str) -> Check:
    """A text that shows up in the code or, where the starter prints it, in the student's output."""
    pattern = "(?i)" + r"\s+".join(re.escape(word) for word in string.split())
    return Alternatives(
        label=f"has “{string}”", checks=(CodeMatches(all_of=(pattern,)), OutputMatches(all_of=(pattern,)))
    )


def _pattern(string: str) -> Check:
    call = CALL.fullmatch(string)
    label = f"has {string}"
    if call:  # more arguments, in any order, are as good
        arguments = [a.strip() for a in call.group(2).split(",") if a.strip()]
        wanted = tuple(rf"\b{re.escape(call.group(1))}\s*\([^)]*\b{re.escape(a)}\b" for a in arguments)
        return CodeMatches(all_of=wanted, label=label)
    if EXPRESSION.search(string) and _is_expression(string):
        return CodeMatches(all_of=(_in_order(string),), label=label)
    spellings = [string]
    if "\\\\d" in string:
        spellings += [string.replace("\\\\d", other) for other in ("[0-9]", "[[:digit:]]", "\\d")]
    return CodeMatches(any_of=tuple(_spaced(s) for s in spellings), label=label)


def _in_order(expression: str) -> str:
    """The pattern, across lines; each `.*` goes to the nearest match and never tries another one.

    The first one is as good, and trying all of them takes cubic time on code that was written for that.
    """
    first, *gaps = re.split(r"(\.[*+])\??", expression)
    found = f"(?s){first}"
    for gap, following in zip(gaps[::2], gaps[1::2], strict=True):
        found += f"(?>{gap}?{following})" if following else ""
    return found


def _is_expression(string: str) -> bool:
    try:
        compiled(f"(?s){string}")
    except AssignmentError:
        return False
    return True


def _spaced(string: str) -> str:
    """The text as a pattern that does not mind blanks between its signs."""
    tokens = re.findall(r"%[^%\s]*%|\w+|\s+|.", string)
    return r"\s*".join(re.escape(t) for t in tokens if t.strip())


def ladder_for(rules: Sequence[Rule], functions: Iterable[str], notes: list[str]) -> Ladder | None:
    """One ladder for the partial credit rules of a part, by priority; what is not understood is noted."""
    rungs = []
    for rule in rules:
        when = _conditions(rule, tuple(functions), notes)
        if when:
            rungs.append(Rung(when=when, credit=rule.multiplier, note=rule.note))
    return Ladder(rungs=tuple(rungs), label="how it was done") if rungs else None


def _conditions(rule: Rule, functions: tuple[str, ...], notes: list[str]) -> tuple[Check, ...]:
    at = f"partial_credit_rules.{rule.part}.{rule.key}"
    for pattern in (*rule.patterns, *rule.not_patterns):
        try:
            compiled(pattern)
        except AssignmentError as error:
            notes.append(f"{at}: {error}; the rule is left out.")
            return ()
    if rule.kind == "count_formats" and rule.formats:
        return (_formats(rule, functions),)
    if rule.kind in ("regex", "any_of") and rule.patterns:
        calls = [hit.group(1) for p in rule.patterns if (hit := PATTERN_CALL.fullmatch(p))]
        others = [p for p in rule.patterns if not PATTERN_CALL.fullmatch(p)]
        ways: list[Check] = [CodeMatches(any_of=tuple(others), none_of=rule.not_patterns)] if others else []
        ways += [Uses(any_of=tuple(calls))] if calls else []
        return (Alternatives(checks=tuple(ways)),)
    if rule.kind == "all_of" and rule.patterns:
        found: list[Check] = []
        rest: list[str] = []
        for pattern in rule.patterns:
            hit = PATTERN_CALL.fullmatch(pattern)
            if hit:
                found.append(Uses(all_of=(hit.group(1),)))
            else:
                rest.append(pattern)
        if rest or rule.not_patterns:
            found.append(CodeMatches(all_of=tuple(rest), none_of=rule.not_patterns))
        return tuple(found)
    notes.append(f"{at}: condition_type {rule.kind!r} is not understood; the rule is left out.")
    return ()


def _formats(rule: Rule, functions: tuple[str, ...]) -> Check:
    """At least so many formats: named to the function the rule is called after, or a function for each."""
    least = max(1, min(rule.least, len(rule.formats)))
    main = max((f for f in functions if rule.key.startswith(f.replace(".", "_"))), key=len, default="")
    ways: list[Check] = []
    for chosen in combinations(rule.formats, least):
        ways.append(CodeMatches(all_of=tuple(_format(f) for f in chosen)))
        if least > 1:  # as good: `coalesce(mdy(x), dmy(x))`
            ways.append(Uses(all_of=chosen))
        if len(ways) >= 40:
            break
    if not main:
        return Alternatives(checks=tuple(ways))
    rungs = []
    for way in ways:
        rungs.append(Rung(when=(way,) if way.kind == "uses" else (Uses(all_of=(main,)), way), credit=1.0))
    return Ladder(rungs=tuple(rungs))


def _format(name: str) -> str:
    """A format such as `mdy` inside a string: "mdy HMS", "%m/%d/%Y", "m-d-y"."""
    inner = r"[%/.\- ]{0,3}".join(re.escape(letter) for letter in name)
    return rf"(?i)[\"'][^\"'\n]{{0,40}}?{inner}"
