# In place of the pinned image: Debian's build of the same release.
ARG BASE
FROM ${BASE}
COPY prometheus promtool /usr/bin/
RUN install -d -o 65534 -g 65534 /prometheus
ENTRYPOINT ["prometheus"]
