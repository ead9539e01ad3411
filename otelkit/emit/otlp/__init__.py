"""OTLP requests as bytes: where they go, how they are put together, sent, retried and counted."""
