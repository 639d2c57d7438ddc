# A code location, and the runs that it starts, in its container or in containers of their own: Varve and one project.
#   docker build -f deploy/images/code.Dockerfile -t varve-code:0.2.0 .
# A project of your own needs the last COPY lines changed, the module of its definitions where it has another name, and one
# more `pip install` for what it depends on beside Varve. It lies outside of this folder, so give it a name and copy from there:
#   docker build --build-context project=../shop -f deploy/images/code.Dockerfile -t shop-code:1 .
#   COPY --from=project pyproject.toml ./
#   COPY --from=project assets assets
ARG PYTHON_IMAGE=python:3.11.14-slim-bookworm

FROM ${PYTHON_IMAGE} AS build
# Extras of pyproject.toml: s3 for a lake on an object store, iceberg, lineage, alerts.
ARG EXTRAS=s3
ENV PIP_CONSTRAINT=/build/constraints.txt PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
WORKDIR /build
COPY constraints.txt pyproject.toml README.md LICENSE ./
COPY deploy/images/requirements-kubernetes.txt ./
COPY src src
RUN python -m venv /opt/varve \
 && /opt/varve/bin/pip install ".[${EXTRAS}]" --requirement requirements-kubernetes.txt

FROM ${PYTHON_IMAGE}
RUN useradd --uid 10001 --user-group --no-create-home --home-dir /srv/state varve \
 && install -d -o varve -g varve /srv/state /srv/dagster /srv/dagster/storage
COPY --from=build /opt/varve /opt/varve
COPY dagster.yaml /srv/dagster/
ENV PATH=/opt/varve/bin:$PATH \
    DAGSTER_HOME=/srv/dagster \
    HOME=/srv/state \
    PYTHONUNBUFFERED=1 \
    VARVE_HOME=/srv/state
WORKDIR /srv/project
COPY pyproject.toml ./
COPY assets assets
COPY resources resources
COPY pipeline_defs pipeline_defs
USER 10001:10001
EXPOSE 4000
# No entry point: Dagster's launchers for Docker and Kubernetes give the whole command of a run.
CMD ["dagster", "api", "grpc", "-h", "0.0.0.0", "-p", "4000", "-m", "pipeline_defs.definitions"]
