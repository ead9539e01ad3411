"""Changes that only the fleet as a whole shows, and reports that the rest of the fleet contradicts."""

from __future__ import annotations

from otelkit import semconv
from otelkit.model import ParameterChange
from otelkit.query.fleet import Settled
from otelkit.query.merge import Report, merge_reports

END = 5_000.0


def labels(**other: str) -> dict[str, str]:
    return {"service": "chat", "scope": "m", "parameter": "max_tokens", **other}


def settled(process: str, value: str, since: float, until: float = END, scope: str = "m") -> Settled:
    return Settled(("job", process, ""), labels(value=value, scope=scope), since, until)


def report(process: str, at: float, old: str = "8", new: str = "24", shares: str = "") -> Report:
    step = labels(old=old, new=new, source="observed", shares=shares)
    return Report(("job", process, ""), step, at)


def steps(changes: tuple[ParameterChange, ...]) -> list[tuple[object, object]]:
    return [(change.old, change.new) for change in changes]


def deploy(workers: int, old: str, new: str) -> list[Settled]:
    """Every process is replaced by another, 10 s after the one before it."""
    moments = [1_000.0 + 10 * worker for worker in range(workers)]
    return [
        one
        for worker, at in enumerate(moments)
        for one in (settled(f"old{worker}", old, 10 + worker, at - 3), settled(f"new{worker}", new, at))
    ]


def test_a_deploy_with_a_new_value_is_a_change() -> None:
    """Broken: the usual way to change a parameter, a deploy, goes unseen: no process saw both values."""
    for workers in (1, 2, 5, 40):
        (change,) = merge_reports([], deploy(workers, "256", "1024"))
        assert (change.service, change.scope, change.parameter) == ("chat", "m", "max_tokens")
        assert (change.old, change.new) == (256, 1024)
        assert 0.9 * workers <= change.workers <= workers
        assert change.first_seen == 1_000.0
        assert change.last_seen >= 1_000.0 + 10 * 0.9 * (workers - 1)


def test_a_restart_of_all_processes_at_once_counts_them_all() -> None:
    """Broken: the first process to come back is the whole rollout, of one worker and no length."""
    states = [settled(f"old{n}", "256", 10, 990) for n in range(4)]
    states += [settled(f"new{n}", "1024", 1_000 + 5 * n) for n in range(4)]
    (change,) = merge_reports([], states)
    assert (change.first_seen, change.last_seen, change.workers) == (1_000, 1_015, 4)
    fewer = [*states[:4], settled("new0", "1024", 1_000), settled("late", "1024", 1_700)]
    (change,) = merge_reports([], fewer)
    assert (change.last_seen, change.workers) == (1_000, 1)


def test_a_deploy_that_computes_the_same_number_another_way_is_none() -> None:
    """Broken: 0.1 + 0.2 in the place of 0.3 is a change."""
    assert merge_reports([], deploy(4, "0.3", "0.30000000000000004")) == ()
    assert len(merge_reports([], deploy(4, "0.3", "0.31"))) == 1


def test_a_blue_and_a_green_fleet() -> None:
    """Broken: a deploy that keeps the old processes for a while, in case, brings a new value unseen; or one
    of two parts of a fleet that is made smaller for the night is a change."""
    for kept in (60, 1_800):
        blue = [settled(f"blue{n}", "8", 10, 1_000 + kept) for n in range(4)]
        (change,) = merge_reports([], [*blue, *(settled(f"green{n}", "24", 1_000 + n) for n in range(4))])
        assert (change.old, change.new, change.workers) == (8, 24, 4)
        assert (change.first_seen, change.last_seen) == (1_000, 1_003)
        assert merge_reports([], [*blue, *(settled(f"green{n}", "8", 1_000 + n) for n in range(4))]) == ()
    part = [settled(f"a{n}", "8", 10 + n, 2_000 if n else END) for n in range(6)]
    assert merge_reports([], [*part, *(settled(f"b{n}", "24", 12 + n) for n in range(3))]) == ()


def test_a_step_that_a_deploy_took_back_is_made_anew() -> None:
    """Broken: a change, its rollback by a deploy and the same change again within 15 minutes are a single
    change that never ended."""
    states = [settled(f"old{n}", "8", 10, 900) for n in range(3)]
    states += [settled(f"old{n}", "24", 900, 995) for n in range(3)]
    states += [settled(f"new{n}", "8", 1_000 + n, 1_100) for n in range(3)]
    states += [settled(f"new{n}", "24", 1_100) for n in range(3)]
    told = [report(f"old{n}", 900 + n) for n in range(3)] + [report(f"new{n}", 1_100 + n) for n in range(3)]
    changes = merge_reports(told, states)
    assert steps(changes) == [(8, 24), (24, 8), (8, 24)]
    assert [change.workers for change in changes] == [3, 3, 3]


def test_a_deploy_with_the_same_values_is_none() -> None:
    """Broken: every deploy is a change; or one is, where requests vary the parameter."""
    assert merge_reports([], deploy(8, "256", "256")) == ()
    assert merge_reports([], deploy(8, semconv.VARIES, semconv.VARIES)) == ()
    assert merge_reports([], deploy(8, "256", semconv.VARIES)) == ()


def test_a_fleet_that_starts_up_changes_nothing() -> None:
    """Broken: the first of several processes that each use another value counts as what was before."""
    mixed = [settled(f"w{number}", "256" if number % 3 else "512", 10.0 + number / 10) for number in range(9)]
    assert merge_reports([], mixed) == ()


def test_a_reported_rollout_is_not_found_again() -> None:
    """Broken: a reload that processes report themselves is listed twice, once more by the fleet's values."""
    fleet = [settled(f"w{n}", "8", 10, 999 + n) for n in range(6)]
    fleet += [settled(f"w{n}", "24", 1_000 + n) for n in range(6)]
    (change,) = merge_reports([report(f"w{n}", 1_000 + n) for n in range(4)], fleet)
    assert (change.first_seen, change.last_seen, change.workers) == (1_000, 1_005, 6)


def test_a_report_that_the_fleet_contradicts_is_left_out() -> None:
    """Broken: each of many workers that serve one user after the other lists a change of its own."""
    vary = [settled(f"w{n}", semconv.VARIES, 100) for n in range(7)]
    assert merge_reports([report("w7", 1_000), report("w3", 1_100, "24", "8")], vary) == ()


def test_a_canary_is_a_change() -> None:
    """Broken: one process of many that is tried with a new value is taken for variation."""
    steady = [settled(f"w{n}", "8", 10) for n in range(7)]
    assert steps(merge_reports([report("w7", 1_000)], steady)) == [(8, 24)]


def test_a_slow_rollout_is_one_change() -> None:
    """Broken: a rollout over ten minutes by two processes is two changes."""
    (change,) = merge_reports([report("a", 1_000), report("b", 1_590)])
    assert (change.last_seen, change.workers) == (1_590, 2)


def test_shares_are_merged() -> None:
    """Broken: the shares that processes saw are lost, or a split that goes on to all is two changes."""
    (change,) = merge_reports([report("a", 1_000, shares="0.04,0.5"), report("b", 1_001, shares="0.06,0.6")])
    assert change.shares == (0.05, 0.55)
    (change,) = merge_reports([report("a", 1_000, shares="0,0.4"), report("a", 1_100)])
    assert (change.shares, change.workers, change.first_seen) == (None, 1, 1_000)


def test_a_process_withdraws_what_it_reported() -> None:
    """Broken: one worker that takes a user's settings for a change lists it forever: no other can say no."""
    report_ = report("a", 1_000)
    moved = [settled("a", "8", 10, 990), settled("a", "24", 1_000, 1_100)]
    assert steps(merge_reports([report_], moved)) == [(8, 24)]
    assert merge_reports([report_], [*moved, settled("a", semconv.VARIES, 10)]) == ()
    assert merge_reports([report_], [*moved, settled("a", semconv.VARIES, 1_000)]) == ()


def test_variation_that_begins_later_withdraws_nothing() -> None:
    """Broken: a change is struck off the list when, later, a split test begins, or when it is reverted."""
    moved = [settled("a", "8", 10, 990), settled("a", "24", 1_000, 1_100)]
    assert steps(merge_reports([report("a", 1_000)], [*moved, settled("a", semconv.VARIES, 1_090)])) == [
        (8, 24)
    ]
    back = [*moved, settled("a", semconv.VARIES, 1_000, 1_050), settled("a", "8", 1_040)]
    assert len(merge_reports([report("a", 1_000), report("a", 1_040, "24", "8")], back)) == 2


def test_a_shift_of_shares_is_not_withdrawn_by_its_own_variation() -> None:
    """Broken: a split test that begins is never listed, since from then on the values vary."""
    states = [settled("a", "8", 10, 990), settled("a", semconv.VARIES, 1_000)]
    (change,) = merge_reports([report("a", 1_000, shares="0,0.5")], states)
    assert change.shares == (0.0, 0.5)
    # One of two processes saw eight of the new value in a row, and took it for a move at first.
    states += [settled("b", "8", 10, 990), settled("b", semconv.VARIES, 1_002)]
    (change,) = merge_reports([report("a", 1_000, shares="0,0.5"), report("b", 1_002)], states)
    assert change.workers == 2


def test_a_value_that_a_file_can_not_lose_counts_no_more() -> None:
    """Broken: in multiprocess mode, what a process used once is what it uses still."""
    states = [settled("a", "8", 0.0), settled("a", "24", 1_000)]
    assert merge_reports([], states) == ()
