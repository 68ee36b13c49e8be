"""What is shipped for deployment: it parses, names only what exists, and its rules do what they say."""

import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.local import Local

from service.settings import load_settings

DEPLOY = Path(__file__).parents[2] / "deploy"
RULES = sorted((DEPLOY / "prometheus" / "rules").glob("*.yml"))
OWN_NAME = re.compile(r"\b(?:airlock_[a-z_]+|airlock(?::\w+)+)")

needs_promtool = pytest.mark.skipif(
    shutil.which("promtool") is None, reason="promtool (Debian package prometheus) is not installed"
)


def _documents(path: Path) -> list[Any]:
    return [document for document in yaml.safe_load_all(path.read_text()) if document is not None]


def _run(*command: "str | Path") -> "subprocess.CompletedProcess[str]":
    return subprocess.run([str(part) for part in command], capture_output=True, text=True, check=False)


def _rules() -> list[dict[str, Any]]:
    groups = [group for path in RULES for group in _documents(path)[0]["groups"]]
    return [rule for group in groups for rule in group["rules"]]


@pytest.mark.parametrize("path", sorted(DEPLOY.rglob("*.y*ml")), ids=lambda path: str(path.relative_to(DEPLOY)))
def test_every_yaml_file_parses(path: Path) -> None:
    assert _documents(path)


@needs_promtool
def test_prometheus_accepts_its_configuration_and_rules() -> None:
    checked = _run("promtool", "check", "config", DEPLOY / "prometheus" / "prometheus.yml")
    assert checked.returncode == 0, checked.stdout + checked.stderr
    linted = _run("promtool", "check", "rules", "--lint=all", "--lint-fatal", *RULES)
    assert linted.returncode == 0, linted.stdout + linted.stderr


@needs_promtool
@pytest.mark.parametrize("path", sorted((DEPLOY / "prometheus" / "tests").glob("*.yml")), ids=lambda path: path.stem)
def test_the_rules_fire_and_stay_silent_as_they_should(path: Path) -> None:
    tested = _run("promtool", "test", "rules", path)
    assert tested.returncode == 0, tested.stdout + tested.stderr


def test_every_alert_is_unit_tested_and_explained() -> None:
    alerts = {rule["alert"] for rule in _rules() if "alert" in rule}
    tests = "\n".join(path.read_text() for path in (DEPLOY / "prometheus" / "tests").glob("*.yml"))
    operations = (DEPLOY.parent / "docs" / "operations.md").read_text()
    for alert in alerts:
        assert re.search(rf"alertname: {alert}\n\s+exp_alerts", tests), f"{alert} is never seen firing"
        assert f"## {alert}\n" in operations, f"{alert} is not explained"


def test_rules_and_dashboard_use_metrics_that_exist(local: Local) -> None:
    exported = {name.rsplit("{")[0].split(" ")[0] for name in local.get("/metrics").text.splitlines() if name[0] != "#"}
    recorded = {rule["record"] for rule in _rules() if "record" in rule}
    dashboard = json.loads((DEPLOY / "grafana" / "dashboards" / "airlock.json").read_text())
    texts = [rule["expr"] for rule in _rules()]
    texts += [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", ())]
    texts += [variable["definition"] for variable in dashboard["templating"]["list"] if "definition" in variable]
    used = {name for text in texts for name in OWN_NAME.findall(text)}
    assert used - exported - recorded == set()
    unseen = {name for name in exported if not name.startswith("airlock_score_") or name.endswith("_bucket")} - used
    allowed = {"airlock_inference_seconds_sum", "airlock_inference_seconds_count", "airlock_batch_size_bucket"}
    assert unseen <= allowed, "a metric that the dashboard does not show"


def test_the_dashboard_is_complete() -> None:
    dashboard = json.loads((DEPLOY / "grafana" / "dashboards" / "airlock.json").read_text())
    ids = [panel["id"] for panel in dashboard["panels"]]
    assert len(ids) == len(set(ids))
    taken: set[tuple[int, int]] = set()
    for panel in dashboard["panels"]:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken, f"{panel['title']} lies over another panel"
        assert place["x"] + place["w"] <= 24
        taken |= cells
        if panel["type"] != "row":
            assert panel["description"]
            assert all(target["expr"] for target in panel["targets"])


@needs_promtool
def test_every_query_of_the_dashboard_is_valid(tmp_path: Path) -> None:
    dashboard = json.loads((DEPLOY / "grafana" / "dashboards" / "airlock.json").read_text())
    queries = [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", ())]
    rules = [
        {"record": f"dashboard:query{i}", "expr": query.replace("$instance", ".*")} for i, query in enumerate(queries)
    ]
    path = tmp_path / "dashboard.yml"
    path.write_text(yaml.safe_dump({"groups": [{"name": "dashboard", "rules": rules}]}))
    checked = _run("promtool", "check", "rules", path)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert len(queries) > 20


def _environments() -> dict[str, dict[str, str]]:
    compose = _documents(DEPLOY / "compose.yaml")[0]["services"]["airlock"]["environment"]
    pod = _documents(DEPLOY / "kubernetes" / "deployment.yaml")[0]["spec"]["template"]["spec"]
    secrets = {"AIRLOCK_ADMIN_TOKEN": "x" * 20, "AIRLOCK_MONITORING__LEDGER_URL": "postgresql://a:b@c/d"}
    kubernetes = {
        entry["name"]: entry.get("value", secrets.get(entry["name"])) for entry in pod["containers"][0]["env"]
    }
    return {
        "compose": {name: value or secrets[name] for name, value in compose.items()},
        "kubernetes": kubernetes,
    }


@pytest.mark.parametrize("place", ["compose", "kubernetes"])
def test_the_settings_of_a_deployment_are_known_ones(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("AIRLOCK_")]:
        monkeypatch.delenv(name)
    for name, value in _environments()[place].items():
        monkeypatch.setenv(name, value)
    settings = load_settings()
    assert str(settings.policies) == "/policies"
    assert str(settings.state_dir) == "/var/lib/airlock/state"


def test_compose_mounts_files_that_exist_and_volumes_that_are_declared() -> None:
    compose = _documents(DEPLOY / "compose.yaml")[0]
    for service in compose["services"].values():
        for mount in service.get("volumes", ()):
            source = mount.split(":")[0]
            assert (DEPLOY / source).exists() if source.startswith(".") else source in compose["volumes"]
    assert {"airlock", "prometheus", "grafana"} <= set(compose["services"])


def test_kubernetes_probes_volumes_and_scaling_fit_together() -> None:
    found = {
        document["kind"]: document for path in (DEPLOY / "kubernetes").glob("*.yaml") for document in _documents(path)
        if "kind" in document
    }  # fmt: skip
    pod = found["Deployment"]["spec"]["template"]["spec"]
    container = pod["containers"][0]
    probes = {name: container[name]["httpGet"]["path"] for name in ("startupProbe", "livenessProbe", "readinessProbe")}
    assert probes == {"startupProbe": "/livez", "livenessProbe": "/livez", "readinessProbe": "/readyz"}
    assert {mount["name"] for mount in container["volumeMounts"]} == {volume["name"] for volume in pod["volumes"]}
    claim = next(v["persistentVolumeClaim"]["claimName"] for v in pod["volumes"] if "persistentVolumeClaim" in v)
    assert claim == found["PersistentVolumeClaim"]["metadata"]["name"]
    scaler = found["HorizontalPodAutoscaler"]["spec"]
    assert scaler["scaleTargetRef"]["name"] == found["Deployment"]["metadata"]["name"]
    assert scaler["metrics"][0]["pods"]["metric"]["name"] == "airlock_requests_in_flight"
    wanted = found["Deployment"]["spec"]["selector"]["matchLabels"].items()
    assert wanted <= found["Deployment"]["spec"]["template"]["metadata"]["labels"].items()
    drain = {entry["name"]: entry.get("value") for entry in container["env"]}
    needed = int(drain["AIRLOCK_DRAIN_SECONDS"]) + int(drain["AIRLOCK_SHUTDOWN_SECONDS"])
    assert pod["terminationGracePeriodSeconds"] > needed


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")
def test_kustomize_renders_the_manifests() -> None:
    rendered = _run("kubectl", "kustomize", DEPLOY / "kubernetes")
    assert rendered.returncode == 0, rendered.stderr
    kinds = {document["kind"] for document in yaml.safe_load_all(rendered.stdout)}
    assert kinds == {
        "Deployment", "Service", "HorizontalPodAutoscaler", "PersistentVolumeClaim", "PodDisruptionBudget",
    }  # fmt: skip
