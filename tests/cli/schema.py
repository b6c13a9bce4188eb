"""A strict check of JSON values against the schemas of schemas/: every keyword used there is supported, and members
that a schema does not name are refused, so no document can have undocumented members."""
import base64
import json
import pathlib
import re

NO_MEANING = {"$schema", "$id", "title", "description", "$defs"}


class Schemas:
    def __init__(self, folder):
        self.all = {p.name: json.loads(p.read_text()) for p in pathlib.Path(folder).glob("*.schema.json")}

    def findings(self, name, value):
        """The errors of `value` as a document of schema NAME.schema.json; empty if it is valid."""
        file = f"{name}.schema.json"
        if file not in self.all:
            return [f"there is no {file}"]
        return list(self._check(self.all[file], value, "$", file))

    def _resolve(self, reference, file):
        target, _, pointer = reference.partition("#")
        node = self.all[target or file]
        for part in filter(None, pointer.split("/")):
            node = node[part]
        return node, target or file

    def _check(self, schema, value, at, file):
        for keyword, wanted in schema.items():
            if keyword in NO_MEANING or keyword in ("properties", "required", "additionalProperties"):
                continue
            check = getattr(self, "_" + keyword.strip("$"), None)
            if check is None:
                raise ValueError(f"{file}: the keyword {keyword} is not checked")
            yield from check(wanted, value, at, file)
        if isinstance(value, dict) and ("properties" in schema or "additionalProperties" in schema):
            yield from self._members(schema, value, at, file)

    def _members(self, schema, value, at, file):
        known = schema.get("properties", {})
        for name in schema.get("required", []):
            if name not in value:
                yield f"{at}: {name} is missing"
        for name, member in value.items():
            if name in known:
                yield from self._check(known[name], member, f"{at}.{name}", file)
            elif "additionalProperties" in schema:
                yield from self._check(schema["additionalProperties"], member, f"{at}.{name}", file)
            else:
                yield f"{at}: {name} is not in the schema"

    def _ref(self, reference, value, at, file):
        schema, other = self._resolve(reference, file)
        yield from self._check(schema, value, at, other)

    def _type(self, wanted, value, at, file):
        names = [wanted] if isinstance(wanted, str) else wanted
        kinds = {"object": dict, "array": list, "string": str, "boolean": bool, "null": type(None), "integer": int,
                 "number": (int, float)}
        if not any(isinstance(value, kinds[n]) and (n == "boolean" or not isinstance(value, bool)) for n in names):
            yield f"{at}: {value!r:.60} is no {' or '.join(names)}"

    def _const(self, wanted, value, at, file):
        if value != wanted:
            yield f"{at}: {value!r:.60} is not {wanted!r}"

    def _enum(self, wanted, value, at, file):
        if value not in wanted:
            yield f"{at}: {value!r:.60} is none of {wanted}"

    def _anyOf(self, options, value, at, file):
        found = [list(self._check(option, value, at, file)) for option in options]
        if all(found):
            yield from min(found, key=len)

    def _items(self, schema, value, at, file):
        if isinstance(value, list):
            for index, item in enumerate(value):
                yield from self._check(schema, item, f"{at}[{index}]", file)

    def _minimum(self, least, value, at, file):
        if isinstance(value, (int, float)) and value < least:
            yield f"{at}: {value} is below {least}"

    def _maximum(self, most, value, at, file):
        if isinstance(value, (int, float)) and value > most:
            yield f"{at}: {value} is above {most}"

    def _pattern(self, pattern, value, at, file):
        if isinstance(value, str) and not re.search(pattern, value):
            yield f"{at}: {value!r:.60} does not match {pattern}"

    def _contentEncoding(self, encoding, value, at, file):
        if encoding != "base64":
            raise ValueError(f"{file}: the encoding {encoding} is not checked")
        try:
            base64.b64decode(value, validate=True)
        except ValueError:
            yield f"{at}: no base64"
