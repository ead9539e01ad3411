"""From finished generations to telemetry: a /metrics page, token-step spans and change events as OTLP.

``setup`` wires it up; ``sink`` takes work off the request's path; ``pipeline`` does it; ``metrics``,
``selection``, ``token_steps``, ``events`` and ``otlp`` are its parts.
"""
