"""The examples of docs/spark-deployment.md match the cluster tests, and Kubernetes would accept them."""

import re
from collections.abc import Iterator

import kubernetes_validate  # type: ignore[import-untyped]  # it ships none
import yaml

from scripts.bootstrap import ROOT
from spark_client.deployment import environments

PAGE = (ROOT / "docs" / "spark-deployment.md").read_text(encoding="utf-8")


def blocks(language: str) -> Iterator[str]:
    yield from (found[1] for found in re.finditer(rf"```{language}\n(.*?)```", PAGE, re.DOTALL))


def block(language: str, containing: str) -> str:
    [found] = [text for text in blocks(language) if containing in text]
    return found


def test_the_zip_file_has_the_packages_that_the_test_puts_into_it() -> None:
    [named] = re.findall(r"--target packages tableside (.*)", block("sh", "--py-files"))
    assert set(named.split()) == {name.removesuffix(".py") for name in environments.PURE}


def test_the_pod_template_is_valid_and_mounts_token_and_authority() -> None:
    pod = yaml.safe_load(block("yaml", "kind: Pod"))
    kubernetes_validate.validate(pod | {"metadata": {"name": "driver"}}, "1.34", strict=True)
    [container] = pod["spec"]["containers"]
    mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    volumes = {volume["name"]: volume for volume in pod["spec"]["volumes"]}
    assert set(mounts) == set(volumes)
    [source] = volumes["tableside-token"]["projected"]["sources"]
    token = source["serviceAccountToken"]
    assert token["expirationSeconds"] >= 600  # Kubernetes has the same minimum.
    assert f'token_file="{mounts["tableside-token"]}/{token["path"]}"' in PAGE
    named = {variable["name"]: variable["value"] for variable in container["env"]}
    assert named["TABLESIDE_CA_FILE"].startswith(mounts["tableside-ca"])
    assert pod["spec"]["serviceAccountName"] in block("sh", "k8s://")
