"""The recipe for Kubernetes, read as Ray itself reads a cluster of KubeRay, and held against the options of a build."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import ray
import yaml
from ray.autoscaler._private.kuberay.autoscaling_config import AutoscalingConfigProducer

from indexmill.jobs.cli.commands import build as cmd_build
from indexmill.jobs.options.declare import flag_of, parameters_of
from indexmill.pipeline.spec import parse_size
from indexmill.pipeline.urls.storage import MIRROR_VARIABLE

pytestmark = pytest.mark.ray

RECIPE = Path(__file__).parents[3] / "docs" / "examples" / "kuberay.yaml"
GIB = 1 << 30


@pytest.fixture
def job() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(RECIPE.read_text())
    return found


def read_by_ray(job: dict[str, Any]) -> dict[str, Any]:
    """Return the configuration that Ray makes of the cluster of a job, as its autoscaler asks Kubernetes for it."""
    made = {"metadata": {"name": "products-1", "namespace": "default"}, "spec": job["spec"]["rayClusterSpec"]}

    class Api:
        def get(self, path: str) -> dict[str, Any]:
            assert path == "rayclusters/products-1"
            return made

    producer = AutoscalingConfigProducer("products-1", "default")
    producer.kubernetes_api_client = Api()
    config: dict[str, Any] = producer()
    return config


def flags(job: dict[str, Any]) -> dict[str, str]:
    words = shlex.split(job["spec"]["entrypoint"])
    assert words[:2] == ["indexmill", "build"]
    return dict(zip(words[2::2], words[3::2], strict=True))


def containers(job: dict[str, Any]) -> list[dict[str, Any]]:
    cluster = job["spec"]["rayClusterSpec"]
    groups = [cluster["headGroupSpec"], *cluster["workerGroupSpecs"]]
    return [one for group in groups for one in group["template"]["spec"]["containers"]]


def test_ray_reads_the_cluster_and_its_schema_holds(job: dict[str, Any]) -> None:
    config = read_by_ray(job)
    schema = json.loads((Path(ray.__file__).parent / "autoscaler/ray-schema.json").read_text())
    validator = jsonschema.validators.validator_for(schema)(schema)
    assert list(validator.iter_errors(config)) == []
    assert config["head_node_type"] == "headgroup"
    head, workers = config["available_node_types"]["headgroup"], config["available_node_types"]["workers"]
    assert head["resources"]["CPU"] == 0, "the head runs no tasks"
    assert (workers["min_workers"], workers["max_workers"]) == (4, 4), "a build never asks for nodes"
    assert workers["resources"]["CPU"] == 16
    assert workers["resources"]["memory"] == 48 * GIB


def test_ray_refuses_a_recipe_with_an_unknown_number(job: dict[str, Any]) -> None:
    job["spec"]["rayClusterSpec"]["workerGroupSpecs"][0]["rayStartParams"]["memory"] = "48GiB"
    with pytest.raises(ValueError, match="48GiB"):
        read_by_ray(job)


def test_the_command_has_flags_of_a_build_and_fits_its_nodes(job: dict[str, Any]) -> None:
    given = flags(job)
    known = {flag_of(one.name, one.annotation.__metadata__[0]) for one in parameters_of(cmd_build.Options)}
    assert given.keys() <= known
    workers = read_by_ray(job)["available_node_types"]["workers"]["resources"]
    assert int(given["--workers"]) == workers["CPU"]
    assert parse_size(given["--memory"]) <= workers["memory"]
    assert given["--executor"] == "ray"
    assert all(given[flag].startswith("s3://") for flag in ("--input", "--out", "--work"))


def test_every_node_has_a_disk_for_its_mirror_and_the_ray_of_the_cluster(job: dict[str, Any]) -> None:
    found = containers(job)
    assert len(found) == 2
    for one in found:
        (place,) = [variable["value"] for variable in one["env"] if variable["name"] == MIRROR_VARIABLE]
        assert place in [mount["mountPath"] for mount in one["volumeMounts"]]
        assert one["resources"]["requests"] == one["resources"]["limits"]
    guide = (RECIPE.parents[1] / "guides" / "cluster.md").read_text()
    assert f"ray[default]=={job['spec']['rayClusterSpec']['rayVersion']}" in guide
