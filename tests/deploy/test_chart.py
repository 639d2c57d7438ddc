"""The chart, as it is rendered (deploy/helm/rendered.yaml, which `make lint-deploy` renders anew and compares).

It says of images, commands and variables what the compose file says, whose services a test starts.
"""

from __future__ import annotations

import re
from typing import Any

import pytest
import yaml

from tests.deploy.images import DEPLOY, services
from tests.deploy.test_kit import GIVEN, SETTINGS

OBJECTS: list[dict[str, Any]] = [
    found for found in yaml.safe_load_all((DEPLOY / "helm" / "rendered.yaml").read_text(encoding="utf-8")) if found
]
VALUES = yaml.safe_load((DEPLOY / "helm" / "values.yaml").read_text(encoding="utf-8"))
# The chart's pods by the names of the compose file's services.
PODS = ("webserver", "daemon", "code", "spark-master", "spark-worker", "spark-connect")


def of_kind(*kinds: str) -> dict[str, dict[str, Any]]:
    return {found["metadata"]["name"]: found for found in OBJECTS if found["kind"] in kinds}


def pod(name: str) -> dict[str, Any]:
    found = of_kind("Deployment", "StatefulSet")[f"varve-{name}"]["spec"]["template"]["spec"]
    assert isinstance(found, dict)
    return found


def container(name: str) -> dict[str, Any]:
    (found,) = pod(name)["containers"]
    assert isinstance(found, dict)
    return found


def dagster_yaml() -> dict[str, Any]:
    found = yaml.safe_load(of_kind("ConfigMap")["varve-dagster"]["data"]["dagster.yaml"])
    assert isinstance(found, dict)
    return found


def test_the_chart_has_a_pod_for_every_service_of_the_kit() -> None:
    assert set(of_kind("Deployment", "StatefulSet")) == {f"varve-{name}" for name in PODS}


@pytest.mark.parametrize("name", PODS)
def test_a_pod_runs_what_the_service_of_that_name_runs(name: str) -> None:
    service, found = services(GIVEN)[name], container(name)
    assert found["image"] == service.values["image"]
    if name == "code":
        # A project's image knows its module.
        assert "command" not in found
        return
    if name == "webserver":
        assert service.image is not None
        assert found["command"] == service.image.final.command
        return

    def words(command: object) -> set[str]:
        """Without addresses and amounts, which differ from place to place."""
        assert isinstance(command, list | tuple)
        own = {f"varve-{each}" for each in PODS} | set(PODS) | {"$(POD_IP)"}
        texts = [re.sub(r"(spark://|thrift://|host=).*", r"\1", word) for word in map(str, command)]
        return {text for text in texts if text not in own and not re.fullmatch(r"\d+g|.*memory=\w+", text)}

    assert words(service.command) <= words(found["command"])


@pytest.mark.parametrize("name", PODS)
def test_a_pod_has_no_rights_it_does_not_need(name: str) -> None:
    found, spec = container(name), pod(name)
    assert spec["securityContext"]["runAsNonRoot"]
    service = services(GIVEN)[name]
    assert service.image is not None
    assert service.image.final.user == f"{spec['securityContext']['runAsUser']}:{spec['securityContext']['runAsGroup']}"
    assert found["securityContext"] == {
        "allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]},
    }  # fmt: skip
    assert spec["automountServiceAccountToken"] is (name in {"webserver", "daemon"})
    assert spec["serviceAccountName"] in of_kind("ServiceAccount")
    assert found["resources"].keys() == {"requests", "limits"}
    assert {"startupProbe", "livenessProbe"} <= found.keys()
    # An image that nobody can write in wants a volume at each place where a program writes.
    mounted = {mount["mountPath"] for mount in found["volumeMounts"]}
    writes = set(re.findall(r"/srv/[\w/]+", " ".join(service.image.final.commands))) - {
        "/srv/dagster",
        "/srv/spark/metastore",
    }
    assert writes | {"/tmp"} <= mounted  # noqa: S108 - a folder of the pod


def test_secrets_are_named_and_never_written() -> None:
    rendered = (DEPLOY / "helm" / "rendered.yaml").read_text(encoding="utf-8")
    assert not of_kind("Secret")
    assert not re.search(r"password|postgresql://\S+:\S+@", rendered, re.IGNORECASE)
    for name in ("webserver", "daemon", "code"):
        assert {"secretRef": {"name": VALUES["secret"]}} in container(name)["envFrom"]
    for name in ("spark-worker", "spark-connect"):
        taken = {each["name"] for each in container(name)["env"] if "secretKeyRef" in each.get("valueFrom", {})}
        assert taken == set(VALUES["sparkSecretKeys"])
        assert not {each for each in taken if "POSTGRES" in each}
    assert "envFrom" not in container("spark-master")


def test_the_settings_of_the_chart_are_settings() -> None:
    data = of_kind("ConfigMap")["varve-settings"]["data"]
    assert {name for name in data if name.startswith("VARVE_")} <= SETTINGS
    assert data["VARVE_SPARK_REMOTE"] == "sc://varve-spark-connect:15002"


def test_runs_are_jobs_with_a_lease_without_rights_and_with_the_settings() -> None:
    config = dagster_yaml()
    assert config["storage"]["custom"]["class"] == "VarveDagsterStorage"
    assert (config["run_launcher"]["module"], config["run_launcher"]["class"]) == ("dagster_k8s", "K8sRunLauncher")
    launcher = config["run_launcher"]["config"]
    assert launcher["job_image"] == VALUES["images"]["code"]
    assert launcher["service_account_name"] in of_kind("ServiceAccount")
    assert launcher["instance_config_map"] in of_kind("ConfigMap")
    assert set(launcher["env_config_maps"]) <= set(of_kind("ConfigMap"))
    assert launcher["env_secrets"] == [VALUES["secret"]]
    assert launcher["run_k8s_config"]["pod_spec_config"]["security_context"]["run_as_non_root"]
    (rules,) = [found["rules"] for found in of_kind("Role").values()]
    assert {resource for rule in rules for resource in rule["resources"]} == {
        "jobs", "jobs/status", "pods", "pods/log", "pods/status", "events",
    }  # fmt: skip
    (subjects,) = [found["subjects"] for found in of_kind("RoleBinding").values()]
    assert [subject["name"] for subject in subjects] == ["varve-dagster"]


def test_pods_of_runs_pull_their_image_with_the_secrets_of_all_other_pods() -> None:
    templates = {file.stem: file.read_text(encoding="utf-8") for file in (DEPLOY / "helm" / "templates").iterdir()}
    for name, text in templates.items():
        assert ("images.pullPolicy" in text) is ("images.pullSecrets" in text), name
        assert text.count('include "varve.container"') == text.count('include "varve.pod"'), name
    # Dagster's launcher makes those pods; it takes what a pod takes.
    wanted = r"""
        {{- with .Values.images.pullSecrets }}
        image_pull_secrets: {{- toYaml . | nindent 10 }}
        {{- end }}
"""
    launcher = templates["settings"].partition("run_launcher:")[2].partition("run_monitoring:")[0]
    assert wanted in launcher


def test_every_policy_speaks_of_pods_that_there_are_and_nothing_else_passes() -> None:
    policies = of_kind("NetworkPolicy")
    everything = policies["varve-nothing"]["spec"]
    assert everything["policyTypes"] == ["Ingress", "Egress"]
    assert not {"ingress", "egress"} & everything.keys()
    components = {
        found["spec"]["template"]["metadata"]["labels"]["app.kubernetes.io/component"]
        for found in of_kind("Deployment", "StatefulSet").values()
    } | {dagster_yaml()["run_launcher"]["config"]["labels"]["app.kubernetes.io/component"]}
    named = re.findall(r"app.kubernetes.io/component': '([\w-]+)'", str([each["spec"] for each in policies.values()]))
    assert set(named) == components
    # To the Connect server, which asks nobody for a password, come code and runs alone; beside Spark's own parts.
    rules = policies["varve-spark-connect"]["spec"]["ingress"]
    callers = {
        source["podSelector"]["matchLabels"]["app.kubernetes.io/component"] for rule in rules for source in rule["from"]
    }
    assert callers == {"code", "run", "spark-master", "spark-worker", "spark-connect"}


def test_every_service_leads_to_a_pod_with_that_port() -> None:
    pods = {
        str(found["spec"]["template"]["metadata"]["labels"]): found
        for found in of_kind("Deployment", "StatefulSet").values()
    }
    for name, service in of_kind("Service").items():
        target = pods[str(service["spec"]["selector"])]["spec"]["template"]["spec"]["containers"][0]
        ports = {port["name"] for port in target["ports"]}
        assert {port["targetPort"] for port in service["spec"]["ports"]} <= ports, name
    workspace = yaml.safe_load(of_kind("ConfigMap")["varve-dagster"]["data"]["workspace.yaml"])
    assert workspace["load_from"][0]["grpc_server"]["host"] in of_kind("Service")
