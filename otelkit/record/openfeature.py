"""An OpenFeature hook: a flag whose settled value moves is a parameter change.

::

    from openfeature import api
    from otelkit.record.openfeature import ParameterHook
    api.add_hooks([ParameterHook()])

Flags may differ from request to request by targeting; that is no change, just as it is none for parameters of
requests. The package ``openfeature-sdk`` is the user's own: otelkit does not depend on it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

try:
    from openfeature.flag_evaluation import FlagEvaluationDetails
    from openfeature.hook import Hook, HookContext, HookHints
except ImportError as error:
    raise ImportError("this hook needs OpenFeature: pip install openfeature-sdk") from error

from otelkit.model import CallSite, ChangeSource
from otelkit.record.guard import fault
from otelkit.record.observed import ChangeDetector
from otelkit.record.parameters import counts
from otelkit.record.parameters.flags import FlagValue
from otelkit.record.parameters.process import ProcessParameters, process
from otelkit.record.redaction import exported
from otelkit.record.stable import normalise

OPERATION: Final = "evaluate_flag"
_PLAIN: Final = (str, int, float, bool)


class ParameterHook(Hook):
    """Watches every evaluation of every flag; in the caller's path it costs a few microseconds.

    The value counts that the caller got, so a provider that fails and leaves everyone with the default is a
    change too. The parameter's name is the flag's key, its scope the client's domain.

    Args:
        detector: finds the changes; a fresh one by default.
        now: Unix seconds.
    """

    def __init__(
        self,
        *,
        parameters: ProcessParameters = process,
        detector: ChangeDetector | None = None,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._parameters = parameters
        self._detector = detector or ChangeDetector()
        self._now = now

    def finally_after(
        self, hook_context: HookContext, details: FlagEvaluationDetails[Any], hints: HookHints
    ) -> None:
        """After each evaluation, successful or not."""
        try:
            self._evaluated(hook_context, details)
        except Exception:
            fault("look at a flag")

    def _evaluated(self, context: HookContext, details: FlagEvaluationDetails[Any]) -> None:
        key, at = context.flag_key, self._now()
        provider = context.provider_metadata.name if context.provider_metadata else ""
        domain = (context.client_metadata.domain if context.client_metadata else None) or ""
        value = details.value if isinstance(details.value, _PLAIN) else normalise(details.value)
        self._parameters.flags.put(FlagValue(key, domain, value, details.variant or "", provider, at))
        if details.error_code is not None:
            self._parameters.store.counts.add(counts.FLAG, counts.REFUSED)
        # A call site of its own for each flag: the others are not unset because they were not asked for.
        site = CallSite("", provider, OPERATION, domain, key)
        for change in self._detector.observe(site, {key: value}, at):
            self._parameters.store.counts.add(counts.FLAG, counts.APPLIED)
            self._parameters.reporter.changed(
                replace(
                    change,
                    old=exported(key, change.old),
                    new=exported(key, change.new),
                    scope=domain,
                    source=ChangeSource.FEATURE_FLAG,
                    origin=_origin(provider, details),
                )
            )


def _origin(provider: str, details: FlagEvaluationDetails[Any]) -> str:
    text = f"OpenFeature provider {provider}"
    if details.error_code is not None:
        return f"{text}, which fails: {details.error_code.value}"
    return f"{text}, variant {details.variant}" if details.variant else text
