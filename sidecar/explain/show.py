"""The answer as text for a terminal and as JSON for programs."""

from __future__ import annotations

import json
from collections.abc import Mapping

from sidecar.explain.values import Field, Incident, InputNote, Report
from sidecar.verdict.values import EndClass

EXIT_CLASSIFIED = 0
EXIT_UNKNOWN = 1


def exit_status(report: Report) -> int:
    """Give 1 where an incident could not be decided, else 0, also where nothing ended."""
    undecided = any(one.end_class is EndClass.UNKNOWN for one in report.incidents)
    return EXIT_UNKNOWN if undecided else EXIT_CLASSIFIED


def as_json(report: Report) -> str:
    """Give {"incidents": [..], "inputs": [..]}. Fields that are null are not known, never 0."""
    document = {
        "incidents": [_incident(one) for one in report.incidents],
        "inputs": [
            {
                "file": one.file,
                "formats": list(one.formats),
                "lines": one.lines,
                "used_lines": list(one.used),
                "fields": dict(one.fields),
            }
            for one in report.inputs
        ],
    }
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def _incident(one: Incident) -> dict[str, object]:
    return {
        "class": one.end_class.value,
        "confidence": one.confidence.value,
        "at": one.at,
        "summary": one.summary,
        "fields": dict(one.fields),
        "evidence": [
            {"for": said.supports, "text": said.text, "file": said.file, "line": said.line} for said in one.evidence
        ],
        "missing": list(one.missing),
        "next": list(one.next_steps),
    }


def as_text(report: Report) -> str:
    """Give the answer for people: each incident with evidence, numbers, what is missing and what to do."""
    parts = [_told(number, one, len(report.incidents)) for number, one in enumerate(report.incidents, 1)]
    if not report.incidents:
        parts.append("Nothing ended in what was read.\n")
    parts.append("".join(_note(one) for one in report.inputs))
    return "\n".join(parts)


def _told(number: int, one: Incident, count: int) -> str:
    head = f"{number} of {count}: " if count > 1 else ""
    when = "" if one.at is None else f"  at {one.at}"
    lines = [f"{head}{one.end_class.value} ({one.confidence.value} confidence){when}", f"  {one.summary}"]
    for title, supports in (("For", True), ("Against", False)):
        said = [said for said in one.evidence if said.supports is supports]
        if said:
            lines.append(f"  {title}:")
            lines.extend(f"    {said.file}:{said.line}  {said.text}" for said in said)
    numbers = _numbers(one.fields)
    if numbers:
        lines.append(f"  Known: {numbers}")
    for title, texts in (("Missing", one.missing), ("Next", one.next_steps)):
        if texts:
            lines.append(f"  {title}:")
            lines.extend(f"    - {text}" for text in texts)
    return "\n".join(lines) + "\n"


def _numbers(fields: Mapping[str, Field]) -> str:
    """Give the plain fields that are known. Tables and lists are for the JSON."""
    said = [
        f"{name}={value}"
        for name, value in fields.items()
        if isinstance(value, (str, int, float)) and value is not False
    ]
    return ", ".join(part for part in said if len(part) < 200)  # noqa: PLR2004 - about two lines


def _note(one: InputNote) -> str:
    formats = ", ".join(one.formats) or "plain text"
    used = _ranges(one.used)
    readings = _numbers(one.fields)
    text = (
        f"Read {one.file}: {one.lines} lines as {formats}; "
        + (f"used lines {used}" if used else "nothing of use")
        + "\n"
    )
    return text + (f"  Readings: {readings}\n" if readings else "")


def _ranges(numbers: tuple[int, ...]) -> str:
    """Say 1-4, 7 for 1, 2, 3, 4, 7."""
    parts: list[list[int]] = []
    for number in sorted(numbers):
        if parts and number == parts[-1][1] + 1:
            parts[-1][1] = number
        else:
            parts.append([number, number])
    return ", ".join(str(low) if low == high else f"{low}-{high}" for low, high in parts)
