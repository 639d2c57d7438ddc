"""The OpenLineage events of a build: one run of OpenLineage's for each partition, with START and COMPLETE or FAIL.

Pure: a build in, events out. The id of such a run follows from dataset, partition and batch id, so that no state is
kept between the events of one run, and whoever ends it may be another process than the one that began it.

Not here: sending them (sender.py), and when (varve/dagster/runs/builds/telling.py).
"""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from uuid import UUID

from openlineage.client.event_v2 import InputDataset, Job, OutputDataset, Run, RunEvent, RunState
from openlineage.client.generated import (
    base_subset_dataset,
    column_lineage_dataset,
    data_quality_assertions_dataset,
    data_quality_metrics_dataset,
    dataset_version_dataset,
    documentation_dataset,
    error_message_run,
    job_type_job,
    nominal_time_run,
    output_statistics_output_dataset,
    parent_run,
    schema_dataset,
    sql_job,
    symlinks_dataset,
    test_run,
)
from openlineage.client.uuid import generate_static_uuid

from varve.model.partitions.key import parse_path
from varve.observe.lineage.facets import PRODUCER, VarvePartitionRunFacet
from varve.services.secrets import redacted

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from varve.model.batch import Batch, BatchId, Input, StagedBatch
    from varve.model.build import Build
    from varve.model.dataset import Dataset
    from varve.model.partitions.key import PartitionKey
    from varve.planning.graph import Graph

# The name of the parent of all runs of partitions that one run of Dagster's has.
PARENT_JOB = "dagster"
_MESSAGE_LENGTH = 10_000


@dataclass(frozen=True)
class LineageEvents:
    """Makes the events of the builds of one graph.

    Attributes:
        namespace: of jobs and datasets; those of an environment have `<namespace>@<environment>`.
    """

    graph: Graph
    namespace: str

    def started(self, build: Build, environment: str = "") -> list[RunEvent]:
        """The START of each partition of a build."""
        of = _OfBuild(self, build, environment)
        return [of.event(RunState.START, key, "pending") for key in build.partitions]

    def completed(self, build: Build, staged: Sequence[StagedBatch], environment: str = "") -> list[RunEvent]:
        """The COMPLETE of each partition of a build that was published."""
        of = _OfBuild(self, build, environment)
        return [of.event(RunState.COMPLETE, batch.partition, "published", batch=batch) for batch in staged]

    def reused(self, build: Build, batches: Sequence[Batch], environment: str = "") -> list[RunEvent]:
        """The COMPLETE of each partition of a build for which an earlier batch was published again."""
        of, keys = _OfBuild(self, build, environment), {key.path: key for key in build.partitions}
        return [of.event(RunState.COMPLETE, keys[batch.partition], "reused", batch=batch) for batch in batches]

    def failed(
        self, build: Build, reason: str, broken: Mapping[str, str] | None = None, environment: str = ""
    ) -> list[RunEvent]:
        """The FAIL of each partition of a build that publishes nothing.

        `broken` are the expectations that rows break, by name, with how many of which partitions.
        """
        of = _OfBuild(self, build, environment, broken or {}, redacted(reason)[:_MESSAGE_LENGTH])
        return [of.event(RunState.FAIL, key, "none") for key in build.partitions]

    def moved(self, build: Build, batch: Batch | None, publish: str) -> list[RunEvent]:
        """The COMPLETE of the one partition of a build that computes nothing: an earlier batch became current.

        `publish` says how that came; no `batch`: from then on the partition has none, and the event is of the one that
        it had. What only the code here says, columns and queries, is left out where another code has made the batch.
        """
        (key,) = build.partitions
        code = self.graph.code_versions.get(build.dataset.name, "")
        is_of_other_code = bool(batch and code and build.code_version and build.code_version != code)
        of = _OfBuild(self, build, is_of_other_code=is_of_other_code)
        return [of.event(RunState.COMPLETE, key, publish, batch=batch, withdrawn=build.expected.get(key))]

    def of_dataset(self, dataset: Dataset, namespace: str) -> dict[str, Any]:
        """The facets that a dataset has in every event: its columns, and what one row means."""
        columns = (*dataset.partition_columns, *dataset.schema.columns)
        fields = [
            schema_dataset.SchemaDatasetFacetFields(
                name=column.name, type=str(column.type), description=column.comment or None, ordinal_position=place
            )
            for place, column in enumerate(columns, start=1)
        ]
        documented = documentation_dataset.DocumentationDatasetFacet(description=dataset.comment, producer=PRODUCER)
        lineage = self.graph.lineage.get(dataset.name)
        return {
            "schema": schema_dataset.SchemaDatasetFacet(fields=fields, producer=PRODUCER),
            **({"documentation": documented} if dataset.comment else {}),
            **({"columnLineage": _column_lineage(lineage, namespace)} if lineage else {}),
        }


@dataclass(frozen=True)
class _OfBuild:
    """The events of one build, whose parts that do not differ between partitions are made once."""

    events: LineageEvents
    build: Build
    environment: str = ""
    broken: Mapping[str, str] = field(default_factory=dict)
    error: str = ""
    is_of_other_code: bool = False

    @property
    def namespace(self) -> str:
        return f"{self.events.namespace}@{self.environment}" if self.environment else self.events.namespace

    def event(
        self,
        state: RunState,
        key: PartitionKey,
        publish: str,
        *,
        batch: StagedBatch | Batch | None = None,
        withdrawn: BatchId | None = None,
    ) -> RunEvent:
        dataset, batch_id = self.build.dataset, self.build.batch_id
        # What became current may be older than the build, which names the event alone.
        made = getattr(batch, "batch_id", batch_id) if batch is not None else withdrawn or batch_id
        run_id = generate_static_uuid(batch_id.started, f"{self.namespace}/{dataset}/{key.path}".encode())
        return RunEvent(
            eventType=state,
            eventTime=dt.datetime.now(dt.UTC).isoformat(),
            producer=PRODUCER,
            run=Run(runId=str(run_id), facets=self._run_facets(key, publish, state, made)),
            job=Job(namespace=self.namespace, name=dataset.name, facets=self._job_facets()),
            inputs=self._inputs(key),
            outputs=[self._output(key, batch, state, made)],
        )

    def _run_facets(self, key: PartitionKey, publish: str, state: RunState, made: BatchId) -> dict[str, Any]:
        build, replaced = self.build, self.build.expected.get(key)
        facets: dict[str, Any] = {
            "varve_partition": VarvePartitionRunFacet(
                dataset=build.dataset.name, partition=key.path, batchId=str(made), runId=build.run_id,
                environment=self.environment, codeVersion=build.code_version, publish=publish,
                replaced=None if replaced is None else str(replaced), producer=PRODUCER,
            ),
            **self._parent(), **self._nominal_time(key),
        }  # fmt: skip
        if self.error:
            facets["errorMessage"] = error_message_run.ErrorMessageRunFacet(
                message=self.error, programmingLanguage="PYTHON", producer=PRODUCER
            )
        if state is not RunState.START and (tests := self._tests(state)):
            facets["test"] = test_run.TestRunFacet(tests=tests, producer=PRODUCER)
        return facets

    def _parent(self) -> dict[str, Any]:
        try:
            run_id = str(UUID(self.build.run_id))
        except ValueError:
            # A command made the build, and no run of Dagster's.
            return {}
        run, job = parent_run.Run(runId=run_id), parent_run.Job(namespace=self.namespace, name=PARENT_JOB)
        return {"parent": parent_run.ParentRunFacet(run=run, job=job, producer=PRODUCER)}

    def _nominal_time(self, key: PartitionKey) -> dict[str, Any]:
        partitioning = self.build.dataset.partitioning
        time = partitioning.time
        if time is None:
            return {}
        # A series may have several partition columns.
        window = time.window(dict(zip(partitioning.dimension_names, partitioning.values(key), strict=True))[time.name])
        begin, end = window.start.in_timezone("UTC").isoformat(), window.end.in_timezone("UTC").isoformat()
        return {
            "nominalTime": nominal_time_run.NominalTimeRunFacet(
                nominalStartTime=begin, nominalEndTime=end, producer=PRODUCER
            )
        }

    def _job_facets(self) -> dict[str, Any]:
        name = self.build.dataset.name
        kind = job_type_job.JobTypeJobFacet(
            processingType="BATCH", integration="VARVE", jobType="PARTITION", producer=PRODUCER
        )
        source = self.events.graph.sources.get(name)
        # Only the text of a SELECT has columns of which others are made.
        if not source or name not in self.events.graph.lineage or self.is_of_other_code:
            return {"jobType": kind}
        return {"jobType": kind, "sql": sql_job.SQLJobFacet(query=source, dialect="spark", producer=PRODUCER)}

    def _expectations(self, state: RunState) -> list[tuple[str, str, bool | None]]:
        """By expectation its name, its condition, and whether it held: None where that is not known."""
        expected = {} if self.is_of_other_code else self.events.graph.expectations.get(self.build.dataset.name, {})
        # A build that failed though none is broken may have failed before they were looked at.
        otherwise = True if state is RunState.COMPLETE or self.broken else None
        return [(name, text, False if name in self.broken else otherwise) for name, text in expected.items()]

    def _tests(self, state: RunState) -> list[test_run.TestExecution]:
        return [
            test_run.TestExecution(
                name=name, status="skip" if held is None else "pass" if held else "fail", severity="error",
                type="expectation", content=text, contentType="expression", description=self.broken.get(name),
            )
            for name, text, held in self._expectations(state)
        ]  # fmt: skip

    def _inputs(self, key: PartitionKey) -> list[InputDataset]:
        """The datasets that the dataset reads, with the partitions and batches that were read so far."""
        read: dict[str, list[Input]] = {edge.upstream.name: [] for edge in self._edges}
        for version in sorted(self.build.inputs.get(key, ())):
            read.setdefault(version.source, []).append(version)
        return [self._input(source, versions) for source, versions in read.items()]

    @property
    def _edges(self) -> Sequence[Any]:
        return self.events.graph.edges.get(self.build.dataset.name, ())

    def _input(self, source: str, versions: Sequence[Input]) -> InputDataset:
        dataset, facets = self.events.graph.datasets.get(source), {}
        if dataset is not None:
            facets = self.events.of_dataset(dataset, self.namespace)
        if len(versions) == 1:
            facets["version"] = dataset_version_dataset.DatasetVersionDatasetFacet(
                datasetVersion=versions[0].version, producer=PRODUCER
            )
        partitions = [
            base_subset_dataset.Partition(dimensions=dict(parse_path(version.partition)), identifier=version.version)
            for version in versions
        ]
        subset = base_subset_dataset.InputSubsetInputDatasetFacet(
            inputCondition=base_subset_dataset.PartitionSubsetCondition(partitions=partitions),
            producer=PRODUCER,
        )
        return InputDataset(self.namespace, source, facets=facets, inputFacets={"subset": subset} if versions else {})

    def _output(
        self, key: PartitionKey, batch: StagedBatch | Batch | None, state: RunState, made: BatchId
    ) -> OutputDataset:
        dataset = self.build.dataset
        facets = {} if self.is_of_other_code else self.events.of_dataset(dataset, self.namespace)
        partition = base_subset_dataset.Partition(dimensions=dict(parse_path(key.path)), identifier=str(made))
        output_facets: dict[str, Any] = {
            "subset": base_subset_dataset.OutputSubsetOutputDatasetFacet(
                outputCondition=base_subset_dataset.PartitionSubsetCondition(partitions=[partition]),
                producer=PRODUCER,
            )
        }
        if batch is not None:
            files = getattr(batch, "files", None)
            facets |= {
                "version": dataset_version_dataset.DatasetVersionDatasetFacet(
                    datasetVersion=str(made), producer=PRODUCER
                ),
                "dataQualityMetrics": data_quality_metrics_dataset.DataQualityMetricsDatasetFacet(
                    columnMetrics={}, rowCount=batch.rows, bytes=batch.size, producer=PRODUCER
                ),
                "symlinks": symlinks_dataset.SymlinksDatasetFacet(
                    identifiers=[_place(dataset, batch.location)], producer=PRODUCER
                ),
            }
            output_facets["outputStatistics"] = output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet(
                rowCount=batch.rows, size=batch.size, fileCount=files, producer=PRODUCER
            )
        judged = (
            [expectation for expectation in self._expectations(state) if expectation[2] is not None]
            if state is not RunState.START
            else []
        )
        if judged:
            facets["dataQualityAssertions"] = data_quality_assertions_dataset.DataQualityAssertionsDatasetFacet(
                assertions=[
                    data_quality_assertions_dataset.Assertion(
                        assertion="expectation", success=bool(held), name=name, severity="error", content=text,
                        contentType="expression", actual=self.broken.get(name),
                    )
                    for name, text, held in judged
                ],
                producer=PRODUCER,
            )  # fmt: skip
        return OutputDataset(self.namespace, dataset.name, facets=facets, outputFacets=output_facets)


def _column_lineage(
    lineage: Mapping[str, Sequence[tuple[str, str]]], namespace: str
) -> column_lineage_dataset.ColumnLineageDatasetFacet:
    """Every column of the query, also those that no column of a dataset is in."""
    return column_lineage_dataset.ColumnLineageDatasetFacet(
        fields={
            column: column_lineage_dataset.Fields(
                inputFields=[
                    column_lineage_dataset.InputField(namespace=namespace, name=dataset, field=source)
                    for dataset, source in sources
                ]
            )
            for column, sources in lineage.items()
        },
        producer=PRODUCER,
    )


def _place(dataset: Dataset, location: str) -> symlinks_dataset.Identifier:
    """Where the rows lie: a folder by its URI, a table of the warehouse by its name."""
    if "/" not in location:
        return symlinks_dataset.Identifier(namespace=str(dataset.store), name=location, type="TABLE")
    scheme, _, path = location.rpartition("://")
    return symlinks_dataset.Identifier(namespace=scheme or "file", name=path, type="LOCATION")
