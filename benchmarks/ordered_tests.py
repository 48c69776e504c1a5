"""A plugin of pytest for runs with a plan: which tests, in which order, and what to note about them.

    CARP_TEST_PLAN=plan.json python -m pytest -p ordered_tests tests/faults

The plan is a `Plan` as JSON. The report says which test failed first, how long each took, and the number of each, by
which coverage's contexts name it: also in processes that a test starts, which learn the number from their environment.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path

import pytest
from coverage import Coverage

PLAN, NUMBER = "CARP_TEST_PLAN", "CARP_TEST_NUMBER"


@dataclass(frozen=True)
class Plan:
    report: str  # the file that is written at the end
    first: list[str] = field(default_factory=list)  # tests by name, in this order
    only: bool = False  # no others than those
    without: list[str] = field(default_factory=list)
    coverage: str | None = None  # a configuration of coverage: lines are noted, each with the tests that reach it


@dataclass
class Report:
    passed: int = 0
    failed: str | None = None  # the first test that failed, or the file that could not be collected
    seconds: dict[str, dict[str, float]] = field(default_factory=dict)  # test → setup, call, teardown → seconds
    numbers: dict[str, str] = field(default_factory=dict)  # a test's number → its name


class PlannedTests:
    def __init__(self, plan: Plan) -> None:
        self.plan, self.report = plan, Report()
        self.lines = Coverage(config_file=plan.coverage) if plan.coverage else None
        if self.lines:
            self.lines.start()

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        place = {name: number for number, name in enumerate(self.plan.first)}
        without = {*self.plan.without}
        wanted = [one for one in items if one.nodeid not in without and (one.nodeid in place or not self.plan.only)]
        chosen = {*wanted}
        config.hook.pytest_deselected(items=[one for one in items if one not in chosen])
        items[:] = sorted(wanted, key=lambda one: place.get(one.nodeid, len(place)))
        self.report.numbers = {str(number): one.nodeid for number, one in enumerate(items)}

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        if self.lines:
            number = next(number for number, name in self.report.numbers.items() if name == item.nodeid)
            os.environ[NUMBER] = number
            self.lines.switch_context(number)
        return (yield)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self._failed(report.nodeid)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.report.seconds.setdefault(report.nodeid, {})[str(report.when)] = report.duration
        if report.failed:
            self._failed(report.nodeid)
        self.report.passed += report.when == "call" and report.passed

    def _failed(self, name: str) -> None:
        if self.report.failed is None:
            self.report.failed = name

    def pytest_sessionfinish(self) -> None:
        if self.lines:
            self.lines.stop()
            self.lines.save()
        Path(self.plan.report).write_text(json.dumps(asdict(self.report)), "utf-8")


def pytest_configure(config: pytest.Config) -> None:
    if path := os.environ.get(PLAN):
        config.pluginmanager.register(PlannedTests(Plan(**json.loads(Path(path).read_text("utf-8")))))
