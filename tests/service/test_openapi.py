"""The description: complete, valid, true, and shown without a network."""

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator
from support.echo import WIDTH, activate, item, save_echo_bundle
from support.local import ADMIN, Local
from support.server import Server, serving

from models.bundle import Bundle
from models.inputs import TensorInput
from service.web.router import Router


def document(local: Local) -> dict[str, Any]:
    answer: dict[str, Any] = local.get("/docs.json").json()
    return answer


def routed(local: Local) -> set[tuple[str, str]]:
    router = local.web._router
    assert isinstance(router, Router)
    return {(route.path, route.method.lower()) for route in router.routes}


def test_every_route_is_described_and_nothing_else(local: Local) -> None:
    paths = document(local)["paths"]
    assert {(path, method) for path, methods in paths.items() for method in methods} == routed(local)
    assert {"/v1/classify", "/v2/models/{name}/infer", "/v1/policies/{number}/activate", "/docs.json"} <= paths.keys()


def test_every_reference_resolves_and_every_operation_has_a_name_of_its_own(local: Local) -> None:
    description = document(local)
    schemas = description["components"]["schemas"]
    references = set(re.findall(r'"#/components/schemas/([^"]+)"', local.get("/docs.json").text))
    assert references <= schemas.keys()
    names = [op["operationId"] for methods in description["paths"].values() for op in methods.values()]
    assert len(set(names)) == len(names)
    for schema in schemas.values():
        Draft202012Validator.check_schema(schema)


def test_every_operation_describes_its_problems(local: Local) -> None:
    for path, methods in document(local)["paths"].items():
        for method, operation in methods.items():
            problems = {status for status in operation["responses"] if status >= "400"}
            assert "500" in problems, (path, method)
            if "requestBody" in operation:
                assert {"400", "413", "415", "422"} <= problems, (path, method)
            if "security" in operation:
                assert "401" in problems, (path, method)


def test_the_description_of_instances_is_the_bundles_own(
    local: Local, image_bundle: Bundle, make_local: Callable[..., Local]
) -> None:
    def body(local: Local) -> dict[str, Any]:
        content: dict[str, Any] = document(local)["paths"]["/v1/classify"]["post"]["requestBody"]["content"]
        return content

    tensors = body(local)
    validator = Draft202012Validator(tensors["application/json"]["schema"])
    assert validator.is_valid({"instances": [item(1, 1)], "return": ["probabilities"]})
    assert not validator.is_valid({"instances": [item(1, 1)[:4]]})
    assert "image/png" not in tensors
    assert {"image/png", "image/jpeg", "image/webp", "multipart/form-data"} <= body(make_local(image_bundle)).keys()


def test_the_page_needs_nothing_from_elsewhere(local: Local) -> None:
    for path in ("/", "/docs"):
        page = local.get(path)
        assert page.headers["content-type"].startswith("text/html")
        assert "http://" not in page.text
        assert "https://" not in page.text
        policy = page.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert policy.count("sha256-") == 2


def test_bentomls_own_client_reaches_the_route(server: Server) -> None:
    import bentoml

    with bentoml.SyncHTTPClient(server.url) as client:
        answer = client.classify(instances=[item(1, 1, 2), item(0, 1)], ids=["a", "b"])
    assert [(p["id"], p["decision"]) for p in answer["predictions"]] == [("a", "accept"), ("b", "reject")]


def test_schemathesis_finds_no_difference_between_description_and_service(tmp_path: Path) -> None:
    bundle = save_echo_bundle(tmp_path / "bundle", TensorInput(shape=(WIDTH,)))
    activate(bundle)
    command = [
        sys.executable,
        "-m",
        "schemathesis.cli",
        "--config-file",
        str(Path(__file__).parent / "schemathesis.toml"),
    ]
    options = ["--checks", "all", "--max-examples", "5", "--seed", "1", "--no-color", "--warnings", "off"]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parent.parent)}
    with serving(bundle, tmp_path / "run", monitoring__enabled="true") as server:
        run = subprocess.run(
            [*command, "run", f"{server.url}/docs.json", "-H", f"Authorization: Bearer {ADMIN}", *options],
            env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=280,
        )  # fmt: skip
    assert run.returncode == 0, run.stdout[-6000:] + run.stderr[-2000:]
    assert "No issues found" in run.stdout
