"""What a span may not tell: lines that the type checker must go on refusing.

Each carries an ignore of the very error it must raise; mypy reports an ignore that is not needed.
"""

from vfbandits.telemetry.tracer import Span, Tracer


def a_span_does_not_say_who_the_user_is(tracer: Tracer) -> None:
    tracer.span("rank", user="u1")  # type: ignore[call-arg]


def a_span_does_not_hold_numbers_of_a_decision(span: Span) -> None:
    span.set(scores=[1.0])  # type: ignore[call-arg]
    span.set(n_arms=3.5)  # type: ignore[arg-type]
