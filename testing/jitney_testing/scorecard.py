"""The report as a page: groups at a glance, then each finding with a program that fails alone."""

from __future__ import annotations

from collections.abc import Iterable

from jitney_testing.report import Finding, Report, Result
from jitney_tools.report.assets import CSS
from jitney_tools.report.html import escape, table, text_block


def page(report: Report) -> str:
    """One HTML file, without anything from elsewhere."""
    title = f"{report.backend}: {'passed' if report.passed else 'interrupted' if report.interrupted else 'failed'}"
    versions = ", ".join(f"{name} {version}" for name, version in report.versions.items())
    facts = f"level {report.level}, device {report.device}, seed {report.seed}, {report.tried} cases; {versions}"
    parts = {
        "Groups": _groups(report.results),
        "Findings": "".join(map(_finding, report.findings)) or "<p>Nothing is wrong.</p>",
        "Expected failures": "".join(map(_finding, report.expected)),
        "Expected failures that did not happen": table(
            ["check", "case", "reason"], [[escape(x.check), escape(x.case), escape(x.reason)] for x in report.stale]
        )
        if report.stale
        else "",
        "Checks": _checks(report.results),
    }
    body = "".join(f"<section><h2>{name}</h2>{text}</section>" for name, text in parts.items() if text)
    return (
        '<!DOCTYPE html><html lang="en"><head><meta charset="utf-8"><meta name="color-scheme" content="light dark">'
        f"<title>jitney conformance: {escape(title)}</title><style>{CSS}</style></head><body>"
        f"<header><h1>jitney conformance <small>{escape(title)}</small></h1></header>"
        f"<main><p>{escape(facts)}</p>{body}</main></body></html>\n"
    )


def _groups(results: Iterable[Result]) -> str:
    rows: dict[str, list[Result]] = {}
    for result in results:
        rows.setdefault(result.name.partition(".")[0], []).append(result)
    return table(
        ["group", "#checks", "#cases", "#findings", "#expected", "#seconds"],
        [
            [
                escape(group),
                str(len(found)),
                str(sum(r.tried for r in found)),
                str(sum(len(r.unexpected) for r in found)),
                str(sum(len(r.findings) - len(r.unexpected) for r in found)),
                f"{sum(r.seconds for r in found):.1f}",
            ]
            for group, found in rows.items()
        ],
    )


def _checks(results: Iterable[Result]) -> str:
    rows = [
        [escape(r.name), "failed" if r.unexpected else "passed", str(r.tried), f"{r.seconds:.2f}", escape(r.says)]
        for r in results
    ]
    return table(["check", "result", "#cases", "#seconds", "what it says"], rows)


def _finding(finding: Finding) -> str:
    reason = f"<p>Expected: {escape(finding.expected)}</p>" if finding.expected else ""
    title = escape(f"{finding.check} (case {finding.case}): {finding.kind}")
    return (
        f"<details open><summary>{title}</summary>"
        f'<div class="body"><p>{escape(finding.says)}</p>{reason}{text_block(finding.detail)}'
        f"{text_block(finding.script)}</div></details>"
    )
