"""The container, compose and Kubernetes files say what carp understands, and nothing that is not there."""

from __future__ import annotations

import json
import re
import shlex
import tomllib
from pathlib import Path, PurePosixPath

import pytest
import yaml

from carp.cli.entry import app

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
CONTAINER = (DEPLOY / "Containerfile").read_text()
COMPOSE = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
MANIFESTS = [
    (file.name, one)
    for file in sorted((DEPLOY / "kubernetes").glob("*.yaml"))
    for one in yaml.safe_load_all(file.read_text())
]


@pytest.fixture(scope="module")
def serve_help():
    from typer.testing import CliRunner

    return CliRunner().invoke(app, ["serve", "--help"], env={"COLUMNS": "300", "TERM": "dumb"}).output


def told_variables():
    """Every variable of carp's that a file of the deployment sets for the service."""
    found = set(re.findall(r"(CARP_[A-Z_]+)=", CONTAINER.split("ENV", 1)[1]))
    found |= set(COMPOSE["services"]["service"]["environment"])
    for _, one in MANIFESTS:
        if one["kind"] == "Deployment":
            [container] = one["spec"]["template"]["spec"]["containers"]
            found |= {variable["name"] for variable in container["env"]}
    return found


def test_every_variable_that_is_set_is_listed_by_the_help_of_serve(serve_help):
    assert len(told_variables()) > 5
    assert told_variables() <= set(re.findall(r"CARP_[A-Z_]+", serve_help))


def test_every_option_of_serve_can_be_set_by_a_variable(serve_help):
    options = set(re.findall(r"--([a-z][a-z-]+)\b", serve_help.split("Options", 1)[1])) - {
        "help",
        "no-open-to-everyone",
    }
    variables = set(re.findall(r"CARP_[A-Z_]+", serve_help))
    expected = {f"CARP_{option.upper().replace('-', '_')}" for option in options - {"allowed-host"}}
    of_any_command = {"CARP_KEY_FILE", "CARP_DEBUG", "CARP_NATIVE"}
    assert expected | {"CARP_ALLOWED_HOSTS", "CARP_API_KEY"} | of_any_command == variables


def test_a_variable_is_taken_and_a_wrong_one_is_named(monkeypatch, capsys, tmp_path):
    from carp.cli import entry

    monkeypatch.setenv("CARP_HOST", "0.0.0.0")
    assert entry.main(["serve", str(tmp_path)]) == 2
    assert "--host 0.0.0.0" in capsys.readouterr().err
    monkeypatch.setenv("CARP_PORT", "seven")
    assert entry.main(["serve", str(tmp_path)]) == 2
    assert "CARP_PORT" in capsys.readouterr().err


def served_model(words):
    """The folder that the words of `carp serve` name."""
    assert words[0] == "serve"
    return PurePosixPath(words[1])


def mounts():
    """For each way to deploy: what is served, and at which folders something is mounted."""
    of_the_image = json.loads(re.search(r"^CMD (.+)$", CONTAINER, re.M)[1])
    for text in (CONTAINER, (ROOT / "docs" / "howto" / "deploy.md").read_text()):
        yield of_the_image, re.findall(r" -v \S+?:([^:\s]+)", text)
    service = COMPOSE["services"]["service"]
    yield service["command"], [one["target"] for one in service["volumes"]]
    for _, one in MANIFESTS:
        if one["kind"] == "Deployment":
            [container] = one["spec"]["template"]["spec"]["containers"]
            yield container["args"], [mount["mountPath"] for mount in container["volumeMounts"]]


def test_the_folder_above_the_model_is_mounted_so_that_a_newer_model_can_take_its_place():
    found = list(mounts())
    assert len(found) == 4
    for words, places in found:
        model = served_model(words)
        assert str(model.parent) in places
        assert str(model) not in places


def given_to_compose(text, **variables):
    """A text of the compose file with its variables filled in."""
    return re.sub(r"\$\{(\w+):-([^}]*)\}", lambda found: variables.get(found[1]) or found[2], text)


def test_compose_finds_folders_and_the_key_in_the_repository_or_where_its_head_says():
    """Compose reads relative paths from the folder of the file, and asks for the variables of all services at once:
    one that must be given would be missed by services that have no use for it."""
    services = COMPOSE["services"].values()
    places = [volume["source"] for service in services for volume in service["volumes"]]
    places.append(COMPOSE["secrets"]["carp-key"]["file"])
    assert len(places) == 4
    ours = {"CARP_MODELS": ROOT / "models", "CARP_SHARED": ROOT / "shared", "CARP_KEY": ROOT / "key.txt"}
    for place in places:
        [name] = re.findall(r"\$\{(\w+)", place)
        assert (DEPLOY / given_to_compose(place)).resolve() == ours[name]
        assert given_to_compose(place, **{name: "/data/x"}) == "/data/x"
    head = (DEPLOY / "compose.yaml").read_text().split("\nx-image")[0]
    assert set(re.findall(r"(CARP_\w+)=\$PWD/", head)) == set(ours)


def test_compose_builds_the_image_of_every_service():
    for service in COMPOSE["services"].values():
        build = service["build"]
        assert (DEPLOY / build["context"]).resolve() == ROOT
        assert (ROOT / build["dockerfile"]).is_file()


def test_the_image_has_what_kuberay_asks_pods_with():
    assert "wget" in re.search(r"^RUN apt-get .+$", CONTAINER, re.M)[0].split()


def test_the_container_copies_files_that_are_there_and_installs_extras_that_exist():
    copied = [word for line in re.findall(r"^COPY (.+)$", CONTAINER, re.M) for word in shlex.split(line)[:-1]]
    assert copied
    assert [name for name in copied if not (ROOT / name).exists()] == []
    extras = re.search(r"ARG EXTRAS=(\S+)", CONTAINER)[1].split(",")
    known = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert set(extras) <= set(known)


def test_health_and_readiness_are_apart_and_are_routes_of_the_service():
    from carp.serve.access_control import OPEN_PATHS

    [container] = next(
        one["spec"]["template"]["spec"]["containers"] for _, one in MANIFESTS if one["kind"] == "Deployment"
    )
    probes = [container[name]["httpGet"]["path"] for name in ("livenessProbe", "readinessProbe")]
    assert probes == ["/health", "/ready"]
    assert set(probes) <= set(OPEN_PATHS)
    assert {port["name"] for port in container["ports"]} >= {container["livenessProbe"]["httpGet"]["port"]}


@pytest.mark.parametrize(("file", "manifest"), MANIFESTS, ids=lambda one: one if isinstance(one, str) else one["kind"])
def test_manifests_pass_the_schemas_of_kubernetes(file, manifest):
    """The parts of a RayCluster that are pods; the rest is KubeRay's own."""
    validate = pytest.importorskip("kubernetes_validate", reason="pip install 'carp-rec[deploy]'; make manifests")
    documents = [manifest]
    if manifest["kind"] == "RayCluster":
        groups = [manifest["spec"]["headGroupSpec"], *manifest["spec"]["workerGroupSpecs"]]
        specs = [group["template"]["spec"] for group in groups]
        documents = [{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "ray"}, "spec": spec} for spec in specs]
    for document in documents:
        validate.validate(document, validate.latest_version(), strict=True)


def test_a_wrong_manifest_is_seen():
    validate = pytest.importorskip("kubernetes_validate", reason="pip install 'carp-rec[deploy]'; make manifests")
    wrong = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "x"}, "spec": {"ports": "80"}}
    with pytest.raises(validate.ValidationError):
        validate.validate(wrong, validate.latest_version(), strict=True)
