"""/metrics pages: keep the lines of the metrics that are needed, and read them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final

from prometheus_client import Metric
from prometheus_client.openmetrics.parser import text_string_to_metric_families as read_openmetrics
from prometheus_client.parser import text_string_to_metric_families as read_text

ACCEPT: Final = "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5"
_SUFFIX: Final = "(?:_total|_bucket|_sum|_count)?"


class PageReader:
    """Reads the samples of some metric families from a page, in either text format.

    Args:
        families: Names without suffixes.
    """

    def __init__(self, families: Iterable[str]) -> None:
        names = "|".join(re.escape(name) for name in families)
        self._needed = re.compile(f"(?:# (?:TYPE|HELP|UNIT) )?(?:{names}){_SUFFIX}[{{ ]")

    def samples(self, page: str, content_type: str) -> Iterator[tuple[str, dict[str, str], float]]:
        """Name, labels and value of each sample of the wanted families; only their lines are parsed.

        Raises:
            ValueError: the page is no metrics page.
        """
        kept = "".join(line + "\n" for line in page.split("\n") if self._needed.match(line))
        try:
            for family in _families(kept, content_type):
                for sample in family.samples:
                    yield sample.name, sample.labels, sample.value
        except (KeyError, IndexError) as error:
            # What the parsers raise of some pages that are cut short or mangled.
            raise ValueError(f"is no metrics page: {error!r}") from error


def _families(text: str, content_type: str) -> Iterable[Metric]:
    if content_type.startswith("application/openmetrics-text"):
        found: Iterable[Metric] = read_openmetrics(text + "# EOF\n")  # type: ignore[no-untyped-call]
        return found
    return read_text(text)
