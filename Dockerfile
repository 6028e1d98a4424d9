# The service with every store. docs/kubernetes.md shows how to build, run and check it.
ARG BASE=python:3.11-slim-bookworm

FROM ${BASE} AS builder
WORKDIR /build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_NO_INPUT=1 PIP_ROOT_USER_ACTION=ignore \
    PYTHONHASHSEED=0
COPY requirements/image.txt requirements/image-build.txt ./
# Build secrets contain the pip configuration and the CA certificate. No layer contains them.
RUN --mount=type=secret,id=pip.conf --mount=type=secret,id=ca.pem set -eu; \
    export PIP_CONFIG_FILE=/run/secrets/pip.conf; \
    if [ -f /run/secrets/ca.pem ]; then export PIP_CERT=/run/secrets/ca.pem; fi; \
    python3 -m venv tools; \
    python3 -m venv --without-pip /opt/tableside; \
    locked="--no-deps --require-hashes --only-binary=:all: --no-compile"; \
    tools/bin/pip install $locked --requirement image-build.txt; \
    tools/bin/pip --python /opt/tableside/bin/python3 install $locked --requirement image.txt
COPY pyproject.toml README.md LICENSE ./
COPY scripts/hatch_build.py scripts/state_jar.py scripts/
COPY service service
COPY spark_client spark_client
RUN set -eu; \
    tools/bin/pip wheel --no-deps --no-index --no-build-isolation --wheel-dir dist .; \
    tools/bin/pip --python /opt/tableside/bin/python3 install --no-deps --no-index --no-compile dist/*.whl; \
    cd /opt/tableside; \
    rm -rf bin/*ctivate* include lib/python3*/site-packages/pyarrow/include; \
    find lib -type d -name tests -prune -exec rm -r {} +; \
    # Bytecode that depends on nothing but the source: two builds give the same files.
    bin/python3 -m compileall -qf --invalidation-mode unchecked-hash lib

FROM ${BASE}
# Remove installers and setuid bits. The user has a name, because some libraries look it up.
RUN set -eu; \
    rm -rf /usr/local/bin/pip* /usr/local/bin/wheel /usr/local/lib/python3*/site-packages/* \
        /usr/local/lib/python3*/ensurepip /usr/lib/python3*/ensurepip /usr/share/python-wheels \
        /usr/lib/python3/dist-packages/pip* /usr/lib/python3/dist-packages/setuptools*; \
    find / -xdev -type f -perm /6000 -exec chmod a-s {} +; \
    echo 'tableside:x:10001:' >> /etc/group; \
    echo 'tableside:x:10001:10001::/nonexistent:/usr/sbin/nologin' >> /etc/passwd; \
    install --directory --owner=10001 --group=10001 --mode=0750 /data
COPY --from=builder /opt/tableside /opt/tableside
COPY examples/container.yaml /etc/tableside/config.yaml
ENV PATH=/opt/tableside/bin:$PATH
# Some base images lack the bytecode of the standard library. This compiles the modules that the service imports.
RUN python3 -c 'import tableside.app, tableside.cli'
ENV PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    TABLESIDE_CONFIG=/etc/tableside/config.yaml
ARG VERSION=unknown
ARG REVISION=unknown
ARG SOURCE=unknown
LABEL org.opencontainers.image.title="Tableside" \
      org.opencontainers.image.description="Random access by key to tables in RocksDB, Redis, PostgreSQL and DynamoDB, over HTTP and from PySpark" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.source="${SOURCE}"
USER 10001:10001
WORKDIR /data
EXPOSE 8080
STOPSIGNAL SIGTERM
ENTRYPOINT ["tableside"]
# A container's loopback is unreachable from outside. Without `auth` in the configuration, the service does not start.
CMD ["serve", "--host", "0.0.0.0"]
