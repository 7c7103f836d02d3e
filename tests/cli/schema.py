"""Answers against the schemas of docs/, by python-jsonschema."""
import json

import jsonschema

from memcalc_cli import ROOT


def schema_of(name):
    """docs/NAME.schema.json, with the record of a run in the place of its reference."""
    schema = json.loads((ROOT / f"docs/{name}.schema.json").read_text())
    if "run" in schema["properties"]:
        record = json.loads((ROOT / "docs/run.schema.json").read_text())
        schema["properties"]["run"] = {key: value for key, value in record.items() if not key.startswith("$")}
    jsonschema.Draft202012Validator.check_schema(schema)
    return schema


def violations(value, schema):
    for error in jsonschema.Draft202012Validator(schema).iter_errors(value):
        yield f"{error.json_path}: {error.message[:200]}"
