# What the stack's own Dockerfile starts from: Debian with Python, and all packages that it will ask pip for.
ARG BASE
FROM ${BASE}
COPY wheels /opt/wheels
RUN printf '[global]\nno-index = true\nfind-links = /opt/wheels\n' >/etc/pip.conf && ln -s python3 /usr/bin/python
