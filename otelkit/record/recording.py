"""One generation while it runs: a timestamp per step in the request's path, everything else once, at its end.

The record is made off the path: ``Recording.finish`` hands the sink a closure that builds it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import TracebackType
from typing import Any, Final

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import Status, StatusCode

from otelkit import semconv
from otelkit.model import CallSite, Generation, Outcome, SpanIdentity
from otelkit.record import paused, session, span
from otelkit.record.active import SPAN_KEY, attach, current_context, detach
from otelkit.record.attributes import request_attributes
from otelkit.record.call_span import CallSpan
from otelkit.record.guard import fault, guarded
from otelkit.record.request import Request
from otelkit.record.response import Reader, ResponseFacts, repeated_share
from otelkit.record.runtime import Runtime, call_site
from otelkit.record.times import shifted
from otelkit.record.unmade import UnmadeSpan, making

_MADE_TOGETHER: Final = 32
"""Spans that are made one after the other, before the records of their generations."""


class Recording(CallSpan):
    """The state of one generation.

    ``steps`` and ``pieces`` are appended to directly by the stream machinery: a method call a step would
    double the cost. What is run once a generation costs five to ten times as much as in a loop, a microsecond
    a function, since nothing of it is in the processor's caches any more: so a recording does little when it
    begins, in few functions, and reads the request when its record is made.

    ``with recording:`` makes its span current while the request is sent; never held across a yield to the
    user. An error then is the end of the generation.

    Args:
        describe: makes the ``Request``: off the request's path, unless its span is needed before.
    """

    __slots__ = (
        "_call_site",
        "_error_type",
        "_facts",
        "_is_tried",
        "_last_ns",
        "_outcome",
        "_share",
        "_token",
        "last_chunk",
        "pieces",
        "quiet_ns",
        "reader",
        "steps",
    )

    def __init__(self, runtime: Runtime, describe: Callable[[], Request], reader: Reader) -> None:
        self.runtime = runtime
        self.reader = reader
        self.steps: list[int] = []
        """Monotonic ns at which each token step arrived. To have them in an array, of which a record is made
        quicker, costs the request's path more than that gains; so does a set of ``pieces``."""
        self.pieces: list[Any] = []
        """Text of each step while the generation runs, to see repetition; dropped at the end."""
        self.last_chunk: Any = None
        """The chunk that came last: its finish reason and usage are read at the end."""
        self.quiet_ns = 0
        """Monotonic ns at which a chunk came that says nothing which a later one doesn't say too; 0 for
        none."""
        self._share: tuple[int, float | None] = 0, None
        """Number of pieces looked at, and the share of them that repeats one before."""
        self._facts = ResponseFacts()
        self._describe = describe
        self._request = None
        self._call_site: CallSite | None = None
        self._outcome = Outcome.COMPLETED
        self._error_type = ""
        self._joined = self._is_tried = False
        self._span = self._identity = None
        self._endable = []
        clock = runtime.clock
        self._start = self._last_ns = start = clock.monotonic_ns()
        self._anchor_ns = clock.wall_ns() - start
        # The sink may set up OpenTelemetry now, at the first generation; so it is told before the span is
        # made.
        runtime.sink.generation_started(self.call_site)
        if not runtime.ends_with_process:
            runtime.end_with_process()
        surrounding = current_context()
        self._unmade = [surrounding]
        self._session_id = session.of_block.get()
        if surrounding:
            self._look_around(surrounding)
        if not runtime.late_spans.can_begin():
            self._make_span()
        runtime.open.add(self)

    def _look_around(self, surrounding: Context) -> None:
        """Join the current span, where another instrumentation has just made it for this generation."""
        self._session_id = self._session_id or session.in_baggage(surrounding)
        current = trace.get_current_span(surrounding)
        if span.inference_span_of_another(current):
            self._unmade.clear()
            self._span, self._joined = current, True
            request = self._described()
            span.add_attributes(current, request_attributes(request.parameters, request.originals))
            span.before_end(current, self._close_joined)

    def call_site(self) -> CallSite:
        """Where the call comes from, for the sink that counts it."""
        site = self._call_site
        if site is None:
            request = self._described()
            site = self._call_site = call_site(
                self.runtime.service, request.provider, request.operation, request.model, request.location
            )
        return site

    def __enter__(self) -> None:
        for surrounding in self._unmade:  # as in ``_active_context``, one function less
            context: Context | None = Context({**surrounding, SPAN_KEY: UnmadeSpan(self._made_span)})
            break
        else:
            context = self._active_context()
        self._token = None if context is None else attach(context)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        # As in ``ActiveSpan``.
        if self._token is not None and kind is not GeneratorExit:
            detach(self._token)
        if error is not None:
            self.failed(error)

    # --- while it runs --------------------------------------------------------------------------------------
    def observe(self, chunk: Any) -> None:
        """Read the chunk stamped last, which the reader's quick way did not see to be a token step."""
        now = self._last_ns = self.steps.pop()
        try:
            facts = self._facts
            if self.reader.chunk(chunk, facts):
                self.steps.append(now)
                self.pieces.append(facts.piece)
                facts.end_step(len(self.steps))
        except Exception:
            fault("read a chunk")

    def opened(self) -> None:
        """The provider has begun to answer; the first chunk is still to come."""
        self._last_ns = self.runtime.clock.monotonic_ns()

    def at(self, unix_seconds: float) -> int:
        """A wall-clock time as a reading (ns) of this recording's clock, between the call's begin and now."""
        reading = round(unix_seconds * 1e9) - self._anchor_ns
        return min(max(reading, self._start), self.runtime.clock.monotonic_ns())

    def answered(self, response: Any, last_ns: int | None = None) -> None:
        """A call that is not streamed has returned ``response``.

        Args:
            last_ns: when its last token was made (monotonic ns), where the engine tells; None for now.
        """
        self._last_ns = self.runtime.clock.monotonic_ns() if last_ns is None else last_ns
        with guarded("read a response"):
            self.reader.response(response, self._facts)
        self.finish(Outcome.COMPLETED)

    # --- ends -----------------------------------------------------------------------------------------------
    def completed(self) -> None:
        """The stream was read to its end; which came early, where the provider has not said that the answer
        ends there. No error: neither the provider nor its client takes it for one."""
        whole = self._facts.finish_reasons or not getattr(self.reader, "says_end", False)
        if not whole:
            self._read_last_chunk()
            whole = self._facts.finish_reasons
        self.finish(Outcome.COMPLETED if whole else Outcome.ENDED_EARLY)

    def failed(self, error: BaseException) -> None:
        """``error`` came out of the provider's client."""
        if not isinstance(error, Exception):
            # CancelledError, GeneratorExit, KeyboardInterrupt, GreenletExit: someone stopped waiting.
            self.finish(Outcome.CANCELLED)
            return
        self._last_ns = self.runtime.clock.monotonic_ns()
        self._error_type = type(error).__qualname__
        self.finish(Outcome.ERROR)

    def abandon(self) -> None:
        """The consumer closed the stream or dropped it; nothing new for one that has ended."""
        if self in self.runtime.open:
            self.finish(Outcome.ENDED_EARLY)

    def pause(self) -> None:
        """The consumer left a loop over the stream, which it may still hold and read on.

        The span ends now; the record waits for the stream to be closed, dropped, read to its end, or left
        alone for a while.
        """
        if self not in self.runtime.open:
            return
        self._conclude(Outcome.ENDED_EARLY)
        self._end_span()
        paused.add(self)

    def finish(self, outcome: Outcome) -> None:
        """End the generation once; further calls do nothing. Safe from any thread and from ``__del__``."""
        try:
            self.runtime.open.remove(self)
        except KeyError:
            return  # or a copy in a forked child; the parent reports it
        self._outcome = outcome
        if self._facts.error_type or self._facts.aborted:
            self._conclude(outcome)
        try:
            late = self.runtime.late_spans.can_end()
            if late and self._unmade:
                self.runtime.unmade.append(self)
                self.runtime.sink.generation(self._make_late_and_build)
            elif late and self._endable:
                self.runtime.sink.generation(self._end_and_build)
            else:
                self._end_span()
                self.runtime.sink.generation(self._build)
        except Exception:
            self._end_span()
            fault("hand over a generation")

    def _conclude(self, outcome: Outcome) -> None:
        """Note the outcome, where the answer itself may have told of another."""
        if self._facts.error_type and outcome is not Outcome.ERROR:
            outcome, self._error_type = Outcome.ERROR, self._facts.error_type
        elif self._facts.aborted and outcome is Outcome.COMPLETED:
            outcome = Outcome.CANCELLED
        self._outcome = outcome

    def _close_joined(self) -> None:
        """Another instrumentation ends its span: what is known by now is all that it will tell."""
        if self not in self.runtime.open or self._span is None:
            return
        with guarded("complete a span"):
            self._read_last_chunk()
            attributes = span.closing_attributes(self._facts, self.steps, self._start)
            whole = self._facts.finish_reasons or not self._described().streamed
            outcome = Outcome.COMPLETED if whole else Outcome.ENDED_EARLY
            if span.ended_with_error(self._span):
                outcome = Outcome.ERROR
            span.add_attributes(self._span, {**attributes, semconv.OUTCOME: outcome.value})

    def _end_span(self) -> None:
        try:
            self._make_once()
            made = self._span
            if made is None:
                return
            self._read_last_chunk()
            if self._joined:
                span.end_as_made(made)
            if made.is_recording():
                made.set_attributes(self._closing_attributes())
                if self._outcome is Outcome.ERROR:
                    made.set_status(Status(StatusCode.ERROR, self._error_type))
            if self._endable:
                self._endable.pop()
                made.end(end_time=self._end_ns())
        except IndexError:
            return  # another thread has ended it
        except Exception:
            fault("end a span")

    def _closing_attributes(self) -> dict[str, Any]:
        attributes = span.closing_attributes(self._facts, self.steps, self._start)
        attributes[semconv.OUTCOME] = self._outcome._value_  # ``value`` is no C code
        if self._error_type:
            attributes[semconv.ERROR_TYPE] = self._error_type
        share = self._repeated_share()
        if share is not None:
            attributes[semconv.REPEATED_TOKEN_SHARE] = share
        return attributes

    def _read_last_chunk(self) -> None:
        """Some servers send the finish reason or the usage along with the last text."""
        chunk, self.last_chunk = self.last_chunk, None
        # What ``observe`` was given is read.
        if chunk is not None and self._latest_ns() > self._last_ns:
            try:
                self.reader.chunk(chunk, self._facts)
            except Exception:
                fault("read the last chunk")

    def _latest_ns(self) -> int:
        """Monotonic ns of the latest thing that is known to have happened."""
        latest, steps = self._last_ns, self.steps
        if self.quiet_ns > latest:
            latest = self.quiet_ns
        return steps[-1] if steps and steps[-1] > latest else latest

    def _end_ns(self) -> int:
        return self._latest_ns() + self._anchor_ns

    # --- the record, off the request's path -----------------------------------------------------------------
    def _make_late_and_build(self) -> Generation:
        # First the spans of several are made, then their records one by one: what is run again at once is
        # still in the processor's caches.
        unmade = self.runtime.unmade
        for _ in range(min(len(unmade), _MADE_TOGETHER)):
            try:
                ended = unmade.popleft()
            except IndexError:
                break  # another thread has taken it
            ended._make_late()
        if not self._is_tried:
            self._make_late()
        return self._end_and_build() if self._identity is None else self._build()

    def _make_late(self) -> None:
        """Once: what can't be made now is left to the tracer."""
        self._is_tried = True
        entry = self, threading.get_ident()
        making.append(entry)
        try:
            surrounding = self._unmade.pop()
        except IndexError:
            making.remove(entry)
            return  # somebody has just asked for it
        try:
            self._identity = self._made_late(surrounding)
        except Exception:
            fault("make a span late")
        finally:
            if self._identity is None:
                self._unmade.append(surrounding)
            making.remove(entry)

    def _made_late(self, surrounding: Context) -> SpanIdentity | None:
        request = self._request or self._described()
        if request.request_id or (surrounding and span.request_id(request, surrounding)):
            return None  # it has a link
        if self.last_chunk is not None:
            self._read_last_chunk()
        others = self._closing_attributes()
        if surrounding or self._session_id:
            others = self._surrounding_attributes("", surrounding) | others
        return self.runtime.late_spans.make(
            span.name(request),
            surrounding,
            span.sent_attributes(request),
            others,
            start_ns=self._start + self._anchor_ns,
            end_ns=self._end_ns(),
            error=self._error_type if self._outcome is Outcome.ERROR else None,
        )

    def _end_and_build(self) -> Generation:
        self._end_span()
        return self._build()

    def _build(self) -> Generation:
        identity = self._identity
        if identity is None and self._span is not None:
            identity = span.identity(self._span)
        request, anchor, facts = self._request or self._described(), self._anchor_ns, self._facts
        share, self.pieces = self._repeated_share(), []
        generation = Generation(
            call_site=self._call_site or self.call_site(),
            start_ns=self._start + anchor,
            end_ns=self._end_ns(),
            step_ns=shifted(self.steps, anchor),
            step_tokens=facts.step_tokens,
            step_logprobs=facts.step_logprobs,
            step_entropies=facts.step_entropies,
            outcome=self._outcome,
            error_type=self._error_type,
            streamed=request.streamed,
            parameters=request.parameters,
            response_model=facts.response_model,
            response_id=facts.response_id,
            finish_reasons=facts.finish_reasons,
            input_tokens=facts.input_tokens,
            output_tokens=facts.output_tokens,
            repeated_token_share=share,
            span=identity,
            session_id=self._session_id,
            phase_seconds=facts.phase_seconds,
        )
        self.runtime.observe(generation)
        return generation

    def _repeated_share(self) -> float | None:
        pieces = self.pieces
        if self._share[0] != len(pieces):
            self._share = len(pieces), repeated_share(pieces)
        return self._share[1]
