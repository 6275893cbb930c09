"""Where each expected value of the corpus is found in the answer: one table for all cases.

Keys that are not listed have the same name in both. `None` marks judgements and remarks that are no fields.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

Answer = Sequence[Mapping[str, Any]]
Find = Callable[[Answer], Any]


def field(name: str) -> Find:
    """Look a field up in the first incident."""
    return lambda answer: answer[0]["fields"].get(name) if answer else None


def _second(name: str) -> Find:
    return lambda answer: answer[1]["fields"].get(name)


def _rss_of_largest(answer: Answer) -> Any:  # noqa: ANN401 - a value of JSON
    task = answer[0]["fields"]["largest_task"]
    return {"pid": task["pid"], "rss": task["rss_pages"]}


FIELDS: Final[Mapping[str, Find | None]] = {
    "constraint_field": field("constraint"),
    "global_oom_flag_present": field("global_oom_flag"),
    "victim": field("victim_pid"),
    "rss_pages": field("table_rss_pages"),
    "rss_pages_largest_table_row": _rss_of_largest,
    "no_uid_field": lambda answer: answer[0]["fields"]["uid"] is None,
    "reaped": field("reaped"),
    "incident_count": len,
    "event_count": len,
    "next_event_invoker_pid": _second("invoker_pid"),
    "second_invoker": _second("invoker"),
    "swap_unlimited": field("swap_limit_is_unlimited"),
    "other_process": lambda answer: answer[0]["fields"]["other_processes"][0],
    "exit_signal": field("signal_number"),
    "uptime_s": lambda answer: int(answer[0]["fields"]["duration_s"]),
    "lifetime_s": lambda answer: int(answer[0]["fields"]["duration_s"]),
    "service_result": field("result"),
    "confidence": lambda answer: answer[0]["confidence"],
    "error_kind": lambda answer: answer[0]["fields"]["error_kind"],
    "killer": lambda answer: answer[0]["fields"]["killer"],
    "total_allocation_bytes": field("total_allocation_bytes"),
    # remarks and judgements in words, shown by the class or the summary
    **dict.fromkeys(
        (
            *("classification", "events", "final", "evidence", "truncated", "implication", "hint", "phase", "scope"),
            *("cause_hint", "unrelated_gpu_hang", "unrelated", "collateral", "advice", "app_tail", "k8s_reason_seen"),
            *("earlyoom_claims_kill", "likely_cause", "device_certainty", "format", "misleading_text", "not", "dedupe"),
            *("process_exit", "restart_scope", "first_cause", "secondary", "consequence", "exit", "root_cause"),
            *("pod_level", "container_restarts", "truth_in_thread", "expected_verdict", "candidates", "exit_path"),
            *(
                "container_survived",
                "second_line",
                "working_set",
                "log",
                "form",
                "dedupe_with_second_line",
                "note",
                "subtype",
            ),
            *("memory_related", "restart_seen", "killing_event", "custom_reason", "container_restarted", "window"),
        )
    ),
}
