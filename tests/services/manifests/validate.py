"""Validates rendered manifests, and prints them as a JSON array.

Reads YAML documents from stdin. The arguments are versions of Kubernetes; without any, nothing is validated. Every
object has to be valid for each of them by the published schemas, without unknown keys; objects of KEDA and
prometheus-operator by the models that were generated from the definitions of those projects. Every fault is printed;
the exit code is then 1.
"""

import functools
import importlib
import json
import re
import sys

import jsonschema
import yaml
from kubernetes_validate.utils import schema_contents
from referencing import Registry, Resource

MODELS = {
    "keda.sh/v1alpha1": "cloudcoil.models.keda.v1alpha1",
    "monitoring.coreos.com/v1": "cloudcoil.models.prometheus_operator.v1",
}

# Newer than the models: KEDA 2.17 (https://keda.sh/docs/2.17/reference/scaledobject-spec/#fallback).
BEHAVIORS = ["static", "currentReplicas", "currentReplicasIfHigher", "currentReplicasIfLower"]


def unknown(seen, known, path=""):
    """What a model left out of an object, since it does not know it."""
    if isinstance(seen, dict):
        if not isinstance(known, dict):
            yield path
            return
        for key, value in seen.items():
            here = f"{path}.{key}"
            if key not in known:
                yield here
            else:
                yield from unknown(value, known[key], here)
    elif isinstance(seen, list) and isinstance(known, list):
        for at, (one, other) in enumerate(zip(seen, known)):
            yield from unknown(one, other, f"{path}[{at}]")


def custom(thing):
    """The faults of an object of another project."""
    kind = getattr(importlib.import_module(MODELS[thing["apiVersion"]]), thing["kind"], None)
    if kind is None:
        yield f"{thing['apiVersion']} has no kind {thing['kind']}"
        return
    thing = json.loads(json.dumps(thing))
    fallback = thing["spec"].get("fallback", {})
    behavior = fallback.pop("behavior", "static")
    if behavior not in BEHAVIORS:
        yield f"spec.fallback.behavior: {behavior!r}, expected one of {', '.join(BEHAVIORS)}"
    try:
        model = kind.model_validate(thing)
    except ValueError as error:
        yield str(error)
        return
    known = json.loads(model.model_dump_json(by_alias=True, exclude_none=True))
    for key in unknown(thing, known):
        yield f"unknown key {key.removeprefix('.')}"


def schema(version, name):
    return schema_contents(f"kubernetes-json-schema/v{version}.0-local-strict/{name}.json", version)


@functools.cache
def definitions(version):
    """What the schemas of a version refer to. kubernetes_validate.validate reads it again for every object."""
    return (Resource.from_contents(schema(version, "_definitions")) @ Registry()).crawl()


@functools.cache
def validator(version, kind, api):
    # rbac.authorization.k8s.io/v1 is rbac-v1
    short = re.sub(r"^([^./]*)(?:\.[^/]*)?/", r"\1-", api)
    return jsonschema.Draft202012Validator(
        schema(version, f"{kind.lower()}-{short}"), registry=definitions(version)
    )


def of_kubernetes(thing, version):
    try:
        known = validator(version, thing["kind"], thing["apiVersion"])
    except FileNotFoundError:
        yield f"Kubernetes {version} has no {thing['apiVersion']} {thing['kind']}"
        return
    for error in known.iter_errors(thing):
        yield f"Kubernetes {version}: {'.'.join(map(str, error.path))}: {error.message}"


def main():
    things = [thing for thing in yaml.safe_load_all(sys.stdin) if thing]
    faults = 0
    for thing in things:
        name = f"{thing['kind']} {thing['metadata']['name']}"
        if thing["apiVersion"] in MODELS:
            found = list(custom(thing)) if sys.argv[1:] else []
        else:
            found = [fault for version in sys.argv[1:] for fault in of_kubernetes(thing, version)]
        for fault in found:
            print(f"{name}: {fault}", file=sys.stderr)
        faults += len(found)
    json.dump(things, sys.stdout)
    sys.exit(1 if faults else 0)


main()
