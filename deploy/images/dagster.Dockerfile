# The web server and the daemon: Dagster with the storage that Varve's dagster.yaml names; no datasets and no project.
#   docker build -f deploy/images/dagster.Dockerfile -t varve-dagster:0.2.0 .
# An image by its digest in place of the tag: --build-arg PYTHON_IMAGE=python@sha256:...
ARG PYTHON_IMAGE=python:3.11.14-slim-bookworm

FROM ${PYTHON_IMAGE} AS build
ENV PIP_CONSTRAINT=/build/constraints.txt PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
WORKDIR /build
COPY constraints.txt pyproject.toml README.md LICENSE ./
COPY deploy/images/requirements-kubernetes.txt ./
COPY src src
RUN python -m venv /opt/varve \
 && /opt/varve/bin/pip install . dagster-webserver --requirement requirements-kubernetes.txt

FROM ${PYTHON_IMAGE}
RUN useradd --uid 10001 --user-group --no-create-home --home-dir /srv/state varve \
 && install -d -o varve -g varve /srv/state /srv/dagster /srv/dagster/storage
COPY --from=build /opt/varve /opt/varve
# `varve.toml` makes this folder a project without datasets: the settings are all that the storage asks it for.
COPY deploy/images/dagster/varve.toml deploy/images/dagster/workspace.yaml dagster.yaml /srv/dagster/
ENV PATH=/opt/varve/bin:$PATH \
    DAGSTER_HOME=/srv/dagster \
    HOME=/srv/state \
    PYTHONUNBUFFERED=1 \
    VARVE_HOME=/srv/state
WORKDIR /srv/dagster
USER 10001:10001
EXPOSE 3000
# The daemon is the same image with: dagster-daemon run -w /srv/dagster/workspace.yaml
CMD ["dagster-webserver", "-h", "0.0.0.0", "-p", "3000", "-w", "/srv/dagster/workspace.yaml"]
