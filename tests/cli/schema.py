"""The part of JSON Schema that docs/report.schema.json uses; Debian's Python has no jsonschema."""

TYPES = {"object": dict, "array": list, "string": str, "boolean": bool}


def type_matches(value, name):
    if name == "integer": return isinstance(value, int) and not isinstance(value, bool)
    if name == "number": return isinstance(value, (int, float)) and not isinstance(value, bool)
    return isinstance(value, TYPES[name])


def violations(value, schema, where="$"):
    known = {"$schema", "title", "description", "type", "required", "properties", "additionalProperties", "items",
             "enum", "const", "minimum"}
    assert set(schema) <= known, f"{where}: this checker does not know {set(schema) - known}"
    if "type" in schema and not type_matches(value, schema["type"]):
        yield f"{where}: expected {schema['type']}, found {value!r}"
        return
    if "enum" in schema and value not in schema["enum"]: yield f"{where}: {value!r} is not one of {schema['enum']}"
    if "const" in schema and value != schema["const"]: yield f"{where}: expected {schema['const']}, found {value!r}"
    if "minimum" in schema and value < schema["minimum"]: yield f"{where}: {value} is below {schema['minimum']}"
    if isinstance(value, list):
        for i, item in enumerate(value): yield from violations(item, schema.get("items", {}), f"{where}[{i}]")
    if isinstance(value, dict):
        for key in schema.get("required", ()):
            if key not in value: yield f"{where}.{key} is missing"
        rest = schema.get("additionalProperties", True)
        for key, item in value.items():
            if key in schema.get("properties", {}):
                yield from violations(item, schema["properties"][key], f"{where}.{key}")
            elif rest is False:
                yield f"{where}.{key} is not in the schema"
            elif isinstance(rest, dict):
                yield from violations(item, rest, f"{where}.{key}")
