# In place of the OpenTelemetry Collector: rotel receives OTLP too, and writes each span that it got to its log.
ARG BASE
FROM ${BASE}
COPY rotel-agent /usr/bin/
ENTRYPOINT ["rotel-agent"]
