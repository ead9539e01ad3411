# In place of the pinned image: Debian's build of the same release, which reads its templates from a folder.
ARG BASE
FROM ${BASE}
COPY prometheus-alertmanager amtool /usr/bin/
COPY templates /usr/share/prometheus/alertmanager
RUN install -d -o 65534 -g 65534 /alertmanager
ENTRYPOINT ["prometheus-alertmanager"]
