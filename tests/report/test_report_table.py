"""The terminal table."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest
import sample_report as sample

from otelkit.causal.explanation import Explanation, Finding, Interval, Verdict
from otelkit.report import render_table


def example() -> Explanation:
    """The two changes of the README's example."""
    start = datetime(2026, 11, 30, 9, 0, tzinfo=UTC).timestamp()
    clock = {name: start + 3600 * 5 + 60 * minute for name, minute in (("14:02", 2), ("14:03", 3))}
    at_1340 = start + 3600 * 4 + 60 * 40
    temperature = replace(sample.change("temperature", 0.7, 0.9, 0), first_seen=at_1340, last_seen=at_1340)
    tokens = replace(
        sample.change("max_tokens", 256, 1024, 0), first_seen=clock["14:02"], last_seen=clock["14:02"]
    )
    return Explanation(
        service="chat",
        start=start,
        end=start + 6 * 3600,
        findings=(
            Finding(
                temperature,
                Verdict.NO_EFFECT,
                "",
                Interval(0.006, -0.014, 0.025),
                pearson_r=0.12,
                q_value=0.71,
            ),
            Finding(
                tokens,
                Verdict.CAUSAL,
                "begins 27 s after the change",
                Interval(0.221, 0.180, 0.262),
                lag_seconds=27.0,
                pearson_r=0.93,
                q_value=0.003,
                mechanism={"output_length": Interval(0.91, 0.8, 1.0), "queueing": Interval(0.09, 0.0, 0.2)},
            ),
        ),
        p99_before=0.412,
        p99_after=0.655,
        moved_at=clock["14:03"],
        unexplained_seconds=0.016,
    )


def test_table_reads_as_documented() -> None:
    """The documented example and what is printed must not drift apart."""
    assert render_table([example()], zone=UTC, width=120, color=False) == (
        "P99  412 ms -> 655 ms (+59 %) at 14:03\n"
        "change                  at     effect ms        lag   r     q      verdict\n"
        "max_tokens 256 -> 1024  14:02  +221 [180, 262]  27 s  0.93  0.003  "
        "causal: 91 % longer outputs, 9 % queueing\n"
        "temperature 0.7 -> 0.9  13:40  +6 [-14, 25]     -     0.12  0.71   no effect\n"
        "unexplained: 16 ms"
    )


@pytest.mark.parametrize("width", [40, 60, 99, 100, 130])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    """A line that the terminal itself breaks puts numbers into the wrong column."""
    text = render_table([sample.sample_explanation()], width=width, color=False, zone=UTC)
    assert max(map(len, text.splitlines())) <= width
    joined = " ".join(text.split())
    for verdict in Verdict:
        assert verdict.value.split()[0] in joined
    assert "+221 [180, 262]" in joined


def test_piped_output_keeps_one_line_a_change_and_no_colour() -> None:
    """grep and awk read lines; escape sequences and wrapped cells would break them."""
    text = render_table([sample.sample_explanation()], zone=UTC)
    (line,) = [line for line in text.splitlines() if line.startswith("system_prompt_version")]
    assert line.endswith("reverting one would settle it")
    assert "\x1b" not in text


def test_colour_is_used_on_a_terminal_only_without_no_color(monkeypatch: pytest.MonkeyPatch) -> None:
    """NO_COLOR is a promise to the user; so is colour on a terminal without it."""
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "140")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert "\x1b[" in render_table([sample.sample_explanation()], zone=UTC)
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b" not in render_table([sample.sample_explanation()], zone=UTC)


def test_data_cannot_steer_the_terminal() -> None:
    """Parameter values come from requests: an escape sequence in one must arrive as text."""
    evil = replace(
        sample.sample_findings()[0],
        change=sample.change("stop\x1b[2J", "[red]x[/red]", "\u202eabc\r\n", 10),
        reason="\x9b31m [bold]",
    )
    text = render_table([sample.sample_explanation(findings=(evil,))], color=False, zone=UTC)
    assert not {"\x1b", "\x9b", "\u202e", "\r"} & set(text)
    assert "[red]x[/red]" in text
    assert "[bold]" in text


def test_no_changes_and_unknown_p99_are_said() -> None:
    """An empty table would look like a fault of the tool."""
    empty = Explanation("chat", sample.START, sample.START + 60, ())
    assert (
        render_table([empty], zone=UTC)
        == "P99  no movement put down to a change\nno parameter change was seen in this span"
    )


def test_several_services_are_told_apart() -> None:
    """Two tables in a row must say whose they are."""
    other = replace(sample.sample_explanation(), service="search")
    text = render_table([sample.sample_explanation(), other], zone=UTC)
    assert "service chat\n" in text
    assert "\n\nservice search\n" in text
