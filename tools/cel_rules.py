"""The validation rules in CEL that a Kubernetes schema carries (x-kubernetes-validations), evaluated on a
document as the API server does when it is created. Needs cel-python.
"""
import functools

import celpy

ANY = "*"


def rules_of(schema, path=()):
    """[(path, rule, message)]; ANY in a path stands for every item of a list or value of a map."""
    found = []
    for rule in schema.get("x-kubernetes-validations", []):
        if "oldSelf" not in rule["rule"]:  # about changes of what exists already
            found.append((path, rule["rule"], rule.get("message", rule["rule"])))
    for name, field in schema.get("properties", {}).items():
        found += rules_of(field, path + (name,))
    for name in ("items", "additionalProperties"):
        if isinstance(schema.get(name), dict):
            found += rules_of(schema[name], path + (ANY,))
    return found


def values_at(document, path, place=""):
    if not path:
        yield place, document
    elif path[0] == ANY:
        pairs = enumerate(document) if isinstance(document, list) else document.items() if isinstance(document, dict) else ()
        for key, value in pairs:
            yield from values_at(value, path[1:], f"{place}.{key}")
    elif isinstance(document, dict) and path[0] in document:
        yield from values_at(document[path[0]], path[1:], f"{place}.{path[0]}")


@functools.cache
def program(rule):
    environment = celpy.Environment()
    return environment.program(environment.compile(rule))


def broken(document, rules):
    """One line for each rule that the document breaks, and for each that cannot be evaluated on it."""
    for path, rule, message in rules:
        for place, value in values_at(document, path):
            try:
                holds = bool(program(rule).evaluate({"self": celpy.json_to_cel(value)}))
            except celpy.CELEvalError as error:
                holds, message = False, f"{message} ({error.args[0]})"
            if not holds:
                yield f"{place.lstrip('.') or 'the object'}: {message}"
