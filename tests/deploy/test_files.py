"""The files of deploy/ are valid for the programs that read them, checked by those programs' own schemas and linters.

The validators are in wheels of the lock; systemd's own is a program of the machine. One that is missing skips its test,
and the report says which.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cli.programs import ROOT

DEPLOY = ROOT / "deploy"
KUBERNETES = ("1.29", "1.37")
"""The oldest version that is promised, and the newest one that the validator knows."""

MANIFESTS = sorted(path for path in (DEPLOY / "kubernetes").glob("*.yaml") if path.name != "kustomization.yaml")
UNITS = sorted((DEPLOY / "systemd").glob("*.service"))
EXPOSURE_MAX = 2.0
"""The most exposure, of 10, that `systemd-analyze security` may find in a unit."""


def validator(name: str, *, of_machine: bool = False) -> str:
    """The path of a validator; the test is skipped if there is none."""
    own = shutil.which(name, path=str(Path(sys.executable).parent))
    found = shutil.which(name) if of_machine else own
    if found is None:
        pytest.skip(f"{name} is not there, so what it would check is not checked: run `make env`, or install systemd")
    return found


def run(*command: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*map(str, command)], cwd=ROOT, capture_output=True, text=True, check=False)


def documents(path: Path) -> list[dict[str, Any]]:
    return [document for document in yaml.safe_load_all(path.read_text(encoding="utf-8")) if document]


def containers(manifest: dict[str, Any]) -> list[dict[str, Any]]:
    pod = manifest.get("spec", {}).get("template", {}).get("spec", {})
    return [*pod.get("containers", ()), *pod.get("initContainers", ())]


def test_there_is_something_to_check() -> None:
    assert len(MANIFESTS) >= 5
    assert len(UNITS) == 2


def test_the_dockerfile_passes_hadolint() -> None:
    done = run(validator("hadolint"), "--failure-threshold", "style", "deploy/Dockerfile")
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("script", sorted(path.name for path in DEPLOY.glob("*.sh")))
def test_scripts_pass_shellcheck(script: str) -> None:
    done = run(validator("shellcheck"), "--enable=all", "--exclude=SC2250,SC2292,SC2312", f"deploy/{script}")
    assert done.returncode == 0, done.stdout


@pytest.mark.slow
def test_compose_passes_its_schema() -> None:
    done = run(validator("check-jsonschema"), "--builtin-schema", "vendor.compose-spec", "deploy/compose.yaml")
    assert done.returncode == 0, done.stdout


@pytest.mark.slow
def test_the_schema_of_compose_refuses_what_is_wrong(tmp_path: Path) -> None:
    """The check can fail."""
    compose = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    compose["services"]["service"]["healthchek"] = compose["services"]["service"].pop("healthcheck")
    (tmp_path / "compose.json").write_text(json.dumps(compose))
    checked = run(validator("check-jsonschema"), "--builtin-schema", "vendor.compose-spec", tmp_path / "compose.json")
    assert checked.returncode == 1
    assert "healthchek" in checked.stdout


@pytest.mark.parametrize("version", KUBERNETES)
@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.stem)
def test_manifests_pass_the_strict_schema_of_kubernetes(path: Path, version: str) -> None:
    validate = kubernetes_validator()
    for manifest in documents(path):
        validate(manifest, version, strict=True)


def test_the_schema_of_kubernetes_refuses_what_is_wrong() -> None:
    """The check can fail."""
    (deployment,) = [d for d in documents(DEPLOY / "kubernetes" / "service.yaml") if d["kind"] == "Deployment"]
    containers(deployment)[0]["readinesProbe"] = containers(deployment)[0].pop("readinessProbe")
    with pytest.raises(Exception, match="readinesProbe"):
        kubernetes_validator()(deployment, KUBERNETES[-1], strict=True)


def kubernetes_validator() -> Any:
    if find_spec("kubernetes_validate") is None:
        pytest.skip("kubernetes-validate is not there, so manifests are not checked: run `make env`")
    import kubernetes_validate

    return kubernetes_validate.validate


def test_the_kustomization_names_each_manifest_and_what_is_there() -> None:
    """kubectl is not needed for this: what it would miss are files, and names that do not fit."""
    folder = DEPLOY / "kubernetes"
    (kustomization,) = documents(folder / "kustomization.yaml")
    assert set(kustomization["resources"]) == {path.name for path in MANIFESTS} - {"secrets.example.yaml"}
    (generated,) = kustomization["configMapGenerator"]
    assert all((folder / name).exists() for name in generated["envs"])
    everything = [document for path in MANIFESTS for document in documents(path)]
    used = {ref["configMapRef"]["name"] for m in everything for c in containers(m) for ref in c.get("envFrom", ())}
    assert used == {generated["name"]}
    secrets = {d["metadata"]["name"]: set(d["stringData"]) for d in everything if d["kind"] == "Secret"}
    mounted = {
        source["secret"]["name"]
        for manifest in everything
        if containers(manifest)
        for volume in manifest["spec"]["template"]["spec"]["volumes"]
        for source in volume.get("projected", {}).get("sources", ())
    }
    assert mounted == set(secrets)
    files = {
        variable["value"].rpartition("/")[2]
        for manifest in everything
        for container in containers(manifest)
        for variable in container["env"]
        if variable["name"].endswith("_FILE")
    }
    assert files == {key for keys in secrets.values() for key in keys}


@pytest.mark.parametrize("name", ["service", "compactor"])
def test_pods_have_no_rights_that_they_do_not_need(name: str) -> None:
    found = {document["kind"]: document for document in documents(DEPLOY / "kubernetes" / f"{name}.yaml")}
    assert {"ServiceAccount", "PodDisruptionBudget", "Deployment"} <= set(found)
    assert found["ServiceAccount"]["automountServiceAccountToken"] is False
    pod = found["Deployment"]["spec"]["template"]["spec"]
    assert pod["automountServiceAccountToken"] is False
    assert pod["serviceAccountName"] == found["ServiceAccount"]["metadata"]["name"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    (container,) = pod["containers"]
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert {"livenessProbe", "readinessProbe", "resources"} <= set(container)
    assert container["resources"]["limits"]["memory"]
    budget = found["PodDisruptionBudget"]["spec"]["selector"]
    assert budget == found["Deployment"]["spec"]["selector"]


@pytest.mark.parametrize("unit", UNITS, ids=lambda path: path.stem)
def test_units_pass_systemds_own_check(unit: Path, tmp_path: Path) -> None:
    analyze = validator("systemd-analyze", of_machine=True)
    # it also checks that the program is there, which on this machine it is not
    (tmp_path / unit.name).write_text(re.sub(r"/opt/tablestore/bin/tablestore", "/bin/true", unit.read_text()))
    done = run(analyze, "verify", "--man=no", tmp_path / unit.name)
    assert done.returncode == 0, done.stderr
    assert "Unknown" not in done.stderr, done.stderr
    level = run(
        analyze,
        "security",
        "--offline=true",
        "--no-pager",
        f"--threshold={int(EXPOSURE_MAX * 10)}",
        tmp_path / unit.name,
    )
    assert level.returncode == 0, level.stdout
