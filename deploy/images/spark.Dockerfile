# Spark with our settings: master, worker, Connect server and the Hive metastore that comes with Spark, by their commands.
# It is the Spark of the pyspark package, so that servers and clients have one version, that of constraints.txt.
#   docker build -f deploy/images/spark.Dockerfile -t varve-spark:0.2.0 .
ARG PYTHON_IMAGE=python:3.11.14-slim-bookworm
ARG JAVA_IMAGE=eclipse-temurin:17.0.17_10-jre

# A name of its own, because `COPY --from` takes no variable.
FROM ${JAVA_IMAGE} AS java

FROM ${PYTHON_IMAGE} AS build
# S3 for Spark, of the version of Spark's own Hadoop.
ARG HADOOP_AWS=3.5.0
ENV PIP_CONSTRAINT=/build/constraints.txt PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
COPY --from=java /opt/java/openjdk /opt/java/openjdk
WORKDIR /build
COPY constraints.txt deploy/images/requirements-executor.txt ./
RUN python -m venv /opt/python \
 && /opt/python/bin/pip install pyspark --requirement requirements-executor.txt
# Ivy comes with Spark, whose `--packages` it serves.
RUN IVY="/opt/java/openjdk/bin/java -jar $(echo /opt/python/lib/python*/site-packages/pyspark/jars/ivy-*.jar) -confs default -types jar bundle" \
 && TO='/opt/spark-jars/[artifact]-[revision].[ext]' \
 && $IVY -dependency org.apache.hadoop hadoop-aws "${HADOOP_AWS}" -retrieve "$TO"

FROM ${PYTHON_IMAGE}
# Spark's scripts ask for `ps`.
# hadolint ignore=DL3008
RUN apt-get update && apt-get install -y --no-install-recommends procps && rm -rf /var/lib/apt/lists/* \
 && useradd --uid 10001 --user-group --no-create-home --home-dir /srv/spark varve \
 && install -d -o varve -g varve /srv/spark /srv/spark/metastore
COPY --from=java /opt/java/openjdk /opt/java/openjdk
COPY --from=build /opt/python /opt/python
COPY --from=build /opt/spark-jars /opt/spark-jars
COPY deploy/images/spark /opt/spark-conf
COPY deploy/images/metastore /opt/metastore-conf
RUN ln -s "$(echo /opt/python/lib/python*/site-packages/pyspark)" /opt/spark
ENV JAVA_HOME=/opt/java/openjdk \
    HOME=/srv/spark \
    LC_ALL=C.UTF-8 \
    PATH=/opt/python/bin:/opt/java/openjdk/bin:$PATH \
    PYSPARK_PYTHON=/opt/python/bin/python \
    SPARK_CONF_DIR=/opt/spark-conf \
    SPARK_DIST_CLASSPATH=/opt/spark-jars/* \
    SPARK_HOME=/opt/spark \
    SPARK_LOCAL_DIRS=/srv/spark/local \
    SPARK_WORKER_DIR=/srv/spark/work
WORKDIR /srv/spark
USER 10001:10001
EXPOSE 7077 8080 8081 9083 15002
CMD ["/opt/spark/bin/spark-class", "org.apache.spark.deploy.master.Master", "--port", "7077", "--webui-port", "8080"]
