"""deploy/kubernetes: rights, probes, budgets and times of every pod."""

from __future__ import annotations

import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from app.operations.views import health, ready
from cli.deploy.unit_command import PARTS
from cli.deploy.units import MARGIN_S

FOLDER = Path(__file__).parents[3] / "deploy" / "kubernetes"
Object = dict[str, Any]
DRAIN_S = 10
"""`server.drain_s`, as kubernetes.md sets it."""
OBJECT_STORE = {"GRADER_FILES_KEY_ID", "GRADER_FILES_SECRET"}
SECRETS = {"GRADER_REDIS_URL", "GRADER_DATABASE_URL"}
"""What the sandbox worker and the migration are told; no secret key."""


@cache
def objects() -> tuple[Object, ...]:
    """Every object of every file, each document read by itself, as kubectl does."""
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    texts = [
        text for file in sorted(FOLDER.glob("*.yaml")) for text in file.read_text("utf-8").split("\n---\n")
    ]
    return tuple(yaml.load(text, loader) for text in texts)


def of_kind(*kinds: str) -> list[Object]:
    return [one for one in objects() if one["kind"] in kinds]


WORKLOADS = of_kind("Deployment", "Job")


def pod(workload: Object) -> Object:
    found: Object = workload["spec"]["template"]["spec"]
    return found


def name(workload: Object) -> str:
    return str(workload["metadata"]["name"])


def test_parts_are_those_of_the_server() -> None:
    assert {name(one) for one in WORKLOADS} == {"web", "store", "sweeper", "sandbox", "migrate"}
    for one in WORKLOADS:
        (container,) = pod(one)["containers"]
        words = {"sweeper": ["sweep"], "migrate": ["db", "upgrade"]}.get(name(one), [name(one)])
        assert container["args"][: len(words)] == words


@pytest.mark.parametrize("workload", WORKLOADS, ids=name)
def test_no_pod_has_rights(workload: Object) -> None:
    (container,) = pod(workload)["containers"]
    shared, own = pod(workload)["securityContext"], container["securityContext"]
    assert shared["runAsNonRoot"] is True
    assert shared["runAsUser"] == 10001  # of the Dockerfile
    assert own["allowPrivilegeEscalation"] is False
    assert own["readOnlyRootFilesystem"] is True
    assert own["capabilities"] == {"drop": ["ALL"]}
    assert not own.get("privileged")
    assert pod(workload)["automountServiceAccountToken"] is False
    assert pod(workload)["enableServiceLinks"] is False  # they would name variables GRADER_…
    assert not {"hostNetwork", "hostPID", "hostIPC"} & set(pod(workload))
    assert set(container["resources"]["requests"]) == {"cpu", "memory"}
    assert "memory" in container["resources"]["limits"]
    kinds = {kind for volume in pod(workload)["volumes"] for kind in volume if kind != "name"}
    assert kinds == {"configMap", "emptyDir"}


def test_only_the_sandbox_worker_is_without_seccomp_and_in_its_own_namespace() -> None:
    levels = {
        name(one): one["metadata"]["labels"]["pod-security.kubernetes.io/enforce"]
        for one in of_kind("Namespace")
    }
    assert levels == {"grader": "restricted", "grader-sandbox": "privileged"}
    for one in WORKLOADS:
        sandbox = name(one) == "sandbox"
        assert one["metadata"]["namespace"] == ("grader-sandbox" if sandbox else "grader")
        kind = pod(one)["securityContext"]["seccompProfile"]["type"]
        assert kind == ("Unconfined" if sandbox else "RuntimeDefault")
        # whoever may make namespaces in the pod is nobody outside of it
        assert (pod(one).get("hostUsers") is False) == sandbox


def test_secrets_come_from_secrets_that_exist_and_the_sandbox_worker_gets_no_secret_key() -> None:
    assert of_kind("Secret") == []
    for one in WORKLOADS:
        (container,) = pod(one)["containers"]
        if name(one) in ("sandbox", "migrate"):
            assert "envFrom" not in container
            taken = {entry["name"]: entry["valueFrom"] for entry in container["env"] if "valueFrom" in entry}
            optional = {key for key, of in taken.items() if of["secretKeyRef"].get("optional")}
            assert set(taken) - optional == SECRETS
            assert optional == (OBJECT_STORE if name(one) == "sandbox" else set())
        else:
            assert container["envFrom"] == [{"secretRef": {"name": "grader"}}]
        assert not any("PASSWORD" in str(entry.get("value")) for entry in container["env"])


def test_probes_ask_what_the_web_app_answers() -> None:
    assert (health.__name__, ready.__name__) == ("health", "ready")
    (web,) = (one for one in WORKLOADS if name(one) == "web")
    (container,) = pod(web)["containers"]
    paths = {kind: container[kind]["httpGet"]["path"] for kind in container if kind.endswith("Probe")}
    assert paths == {"startupProbe": "/healthz", "livenessProbe": "/healthz", "readinessProbe": "/readyz"}


def test_each_part_gets_the_time_that_it_needs_to_end() -> None:
    for one in of_kind("Deployment"):
        (container,) = pod(one)["containers"]
        drain = DRAIN_S if name(one) == "web" else 0
        needed = PARTS[container["args"][0]] + drain + MARGIN_S
        assert pod(one)["terminationGracePeriodSeconds"] == needed, name(one)


def test_one_of_each_part_stays_while_nodes_are_emptied() -> None:
    budgets = {
        (name(one), one["metadata"]["namespace"]): one["spec"] for one in of_kind("PodDisruptionBudget")
    }
    for one in of_kind("Deployment"):
        budget = budgets.pop((name(one), one["metadata"]["namespace"]))
        assert budget["minAvailable"] < one["spec"]["replicas"] >= 2
        labels = one["spec"]["template"]["metadata"]["labels"]
        assert one["spec"]["selector"]["matchLabels"] == budget["selector"]["matchLabels"] == labels
        (spread,) = pod(one)["topologySpreadConstraints"]
        assert spread["labelSelector"]["matchLabels"] == labels
    assert budgets == {}


def test_what_is_not_allowed_is_forbidden() -> None:
    policies = of_kind("NetworkPolicy")
    for namespace in ("grader", "grader-sandbox"):
        own = [one["spec"] for one in policies if one["metadata"]["namespace"] == namespace]
        assert {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]} in own
    into = [one for one in policies if "ingress" in one["spec"]]
    assert [name(one) for one in into] == ["proxy-to-web"]
    (service,) = of_kind("Service")
    (web,) = (one for one in WORKLOADS if name(one) == "web")
    assert service["spec"]["selector"] == web["spec"]["template"]["metadata"]["labels"]
    ports = [
        port["port"]
        for one in policies
        for rule in one["spec"].get("egress", [])
        for port in rule["ports"]
        if one["metadata"]["namespace"] == "grader-sandbox"
    ]
    assert set(ports) == {53, 5432, 6379, 26379}


@pytest.mark.soak
@pytest.mark.parametrize("version", ["1.33.0", "1.37.0"])
def test_every_object_follows_the_schemas_of_kubernetes(version: str) -> None:
    program = FOLDER.parents[1] / ".venv-soak" / "bin" / "kubernetes-validate"
    files = sorted(map(str, FOLDER.glob("*.yaml")))
    done = subprocess.run(
        [str(program), "--strict", "-k", version, *files], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stdout
    assert done.stdout.count("passed for resource") == len(objects())
