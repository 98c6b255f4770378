"""Makes `webloom/models.py` and `webloom/_calls.py` from the OpenAPI document of a broker.

    python3 python/tools/generate.py --binary target/debug/webloom   # starts a broker and asks it
    python3 python/tools/generate.py --document openapi.json

With `--check` it writes nothing and exits with 1 if the files differ from the document in more than their words. It needs
nothing but Python.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import json
import keyword
import re
import subprocess
import sys
import tempfile
import textwrap
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

PACKAGE = Path(__file__).resolve().parent.parent / "src" / "webloom"
HEADER = "# Made by tools/generate.py from the OpenAPI document of the broker. Do not edit.\n"

# Sockets and the files of the page are no calls; the addresses of other products' clients have clients of their own.
TAGS_LEFT_OUT = {"Sockets", "Portal", "Scheduler.NET", "easy-job", "scrapyd"}
# A second address of the same call, and a GET that does what a POST does.
CALLS_LEFT_OUT = {"triggerJobByGet", "readOpenApi"}
# What may be sent back as it was read.
SENT_BACK = {"JobInput": "JobOutput", "GroupInput": "GroupOutput", "AlertInput": "AlertOutput"}


def snake(name: str) -> str:
    """`jobType` is `job_type`; a keyword gets an underscore."""
    text = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower().replace("-", "_").replace(".", "_")
    return text + "_" if keyword.iskeyword(text) else text


def camel(name: str) -> str:
    """What `snake` made of a name, back."""
    first, *rest = name.rstrip("_").split("_")
    return first + "".join(word.capitalize() for word in rest)


class Types:
    """How a schema is written as a type."""

    def __init__(self, schemas: dict[str, Any]) -> None:
        self.schemas = schemas

    def optional(self, text: str) -> str:
        if text == "Any" or text.endswith("| None"):
            return text
        return f"{text} | None"

    def of(self, schema: Any, prefix: str = "") -> str:
        if not isinstance(schema, dict) or not schema:
            return "Any"
        if "$ref" in schema:
            return prefix + str(schema["$ref"]).rsplit("/", 1)[1]
        if "const" in schema:
            return f"Literal[{json.dumps(schema['const'])}]"
        if "enum" in schema:
            values = [value for value in schema["enum"] if value is not None]
            text = f"Literal[{', '.join(json.dumps(value) for value in values)}]"
            return text if len(values) == len(schema["enum"]) else self.optional(text)
        for word in ("oneOf", "anyOf"):
            if word in schema:
                return self.union(schema[word], prefix)
        kind = schema.get("type")
        if isinstance(kind, list):
            one = [k for k in kind if k != "null"]
            text = " | ".join(self.of({**schema, "type": k}, prefix) for k in one)
            return self.optional(text) if "null" in kind else text
        if kind == "array":
            if "prefixItems" in schema:
                return f"tuple[{', '.join(self.of(item, prefix) for item in schema['prefixItems'])}]"
            return f"list[{self.of(schema.get('items'), prefix)}]"
        if kind == "object":
            of = schema.get("additionalProperties")
            return f"dict[str, {self.of(of, prefix) if isinstance(of, dict) else 'Any'}]"
        if kind == "string":
            return "datetime" if schema.get("format") == "date-time" else "str"
        return {"integer": "int", "number": "float", "boolean": "bool", "null": "None"}.get(kind or "", "Any")

    def union(self, options: list[Any], prefix: str) -> str:
        null = any(option.get("type") == "null" for option in options)
        texts: list[str] = []
        for option in options:
            if option.get("type") != "null":
                text = self.of(option, prefix)
                if text not in texts:
                    texts.append(text)
        literals = [text[len("Literal[") : -1] for text in texts if text.startswith("Literal[")]
        if literals:
            texts = [f"Literal[{', '.join(literals)}]"] + [text for text in texts if not text.startswith("Literal[")]
        text = "Any" if "Any" in texts else " | ".join(texts)
        return self.optional(text) if null else text


def words(schema: Any, indent: str, width: int = 110) -> list[str]:
    """The description of a schema as lines of a comment or docstring."""
    text = " ".join(str(schema.get("description", "") if isinstance(schema, dict) else "").split())
    text = text.replace("\\", "\\\\").replace('"""', "'''")
    return textwrap.wrap(text, width - len(indent)) if text else []


def docstring(lines: list[str], indent: str) -> str:
    if not lines:
        return ""
    if len(lines) == 1:
        return f'{indent}"""{lines[0]}"""\n'
    return f'{indent}"""' + f"\n{indent}".join(lines) + f'\n{indent}"""\n'


def models(document: dict[str, Any]) -> str:
    schemas = document["components"]["schemas"]
    types = Types(schemas)
    wanted = reachable(document)
    aliases, classes = [], []
    for name in sorted(wanted):
        schema = schemas[name]
        members = schema.get("properties")
        if schema.get("type") != "object" or members is None:
            text = types.of(schema)
            parts = text.split(" | ")
            # An alias is a value, and names that are not defined yet are texts in it.
            if any(part.split("[")[-1].rstrip("]") in schemas for part in parts):
                text = f"Union[{', '.join(json.dumps(part) for part in parts)}]"
            lines = "".join(f"# {line}\n" for line in words(schema, ""))
            aliases.append(f"\n{lines}{name}: TypeAlias = {text}\n")
            continue
        body = docstring(words(schema, "    "), "    ")
        names, needed, other = {}, "", ""
        for member, of in members.items():
            if isinstance(of, dict) and of.get("readOnly") and name.endswith("Input"):
                continue
            field = snake(member)
            if camel(field) != member:
                names[field] = member
            said = "".join(f"    #: {line}\n" for line in words(of, "    "))
            text = types.of(of)
            if member in schema.get("required", []):
                needed += f"{said}    {field}: {text}\n"
            else:
                other += f"{said}    {field}: {types.optional(text)} = None\n"
        if names:
            body += f"\n    _names: ClassVar[dict[str, str]] = {json.dumps(names)}\n"
        classes.append(f"\n\n@dataclass(kw_only=True)\nclass {name}(Model):\n{body}\n{needed}{other}".rstrip() + "\n")
    needs = "ClassVar, " if any(" _names:" in text for text in classes) else ""
    out = [
        HEADER,
        '"""What the REST API takes and gives."""\n\n',
        "from __future__ import annotations\n\n",
        "from dataclasses import dataclass\nfrom datetime import datetime\n",
        f"from typing import Any, {needs}Literal, TypeAlias, Union\n\nfrom ._model import Model\n",
    ]
    return "".join(out + aliases + classes)


def calls(document: dict[str, Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for path, item in document["paths"].items():
        for method, call in item.items():
            if method == "parameters" or set(call["tags"]) & TAGS_LEFT_OUT:
                continue
            if call["operationId"] in CALLS_LEFT_OUT or call["operationId"].endswith("2"):
                continue
            found.append({**call, "path": path, "method": method.upper(), "of path": item.get("parameters", [])})
    return found


def reachable(document: dict[str, Any]) -> set[str]:
    """The schemas that some call needs."""
    found: set[str] = set()

    def look(value: Any) -> None:
        if isinstance(value, dict):
            ref = value.get("$ref", "")
            if isinstance(ref, str) and ref.startswith("#/components/"):
                kind, name = ref.split("/")[2:]
                if kind != "schemas" or name not in found:
                    if kind == "schemas":
                        found.add(name)
                    look(document["components"][kind][name])
            for each in value.values():
                look(each)
        elif isinstance(value, list):
            for each in value:
                look(each)

    for call in calls(document):
        look({key: value for key, value in call.items() if key not in ("path", "method")})
    # Workers read these from their sockets.
    for name in ("StartRun", "TaskOrder"):
        found.add(name)
        look(document["components"]["schemas"][name])
    return found


def clients(document: dict[str, Any]) -> str:
    out = [
        HEADER,
        '"""The calls of the REST API."""\n\n',
        "from __future__ import annotations\n\n",
        "from collections.abc import Mapping, Sequence\nfrom datetime import datetime\n",
        "from typing import Any, Literal\n\nfrom . import models\nfrom ._call import AsyncCalls, SyncCalls\n",
    ]
    types = Types(document["components"]["schemas"])
    for name, base, define, wait in (("Calls", "SyncCalls", "def", ""), ("AsyncioCalls", "AsyncCalls", "async def", "await ")):
        out.append(f'\n\nclass {name}({base}):\n    """A method for each call."""\n')
        for call in sorted(calls(document), key=lambda call: str(call["operationId"])):
            out.append(method(call, types, define, wait))
    text = "".join(out)
    return text if "Literal[" in text else text.replace("Any, Literal", "Any")


def method(call: dict[str, Any], types: Types, define: str, wait: str) -> str:
    name = snake(call["operationId"])
    in_path = [parameter["name"] for parameter in call["of path"] if parameter["in"] == "path"]
    arguments = ["self"] + [f"{snake(p)}: str" for p in in_path]
    queries = [p for p in call.get("parameters", []) if p["in"] == "query"]
    content = call.get("requestBody", {}).get("content", {})
    path = re.sub(r"\{(\w+)\}", lambda found: "{" + f"self._part({snake(found[1])})" + "}", call["path"])
    passed = [json.dumps(call["method"]), ("f" if in_path else "") + json.dumps(path)]
    if "application/json" in content:
        schema = content["application/json"]["schema"]
        body = type_of_body(schema, types)
        arguments.append(f"body: {body}" if call["requestBody"].get("required") else f"body: {body} | None = None")
        passed.append("body=body")
    elif content:
        arguments.append("content: bytes")
        passed.append("content=content")
    keyed = [p for p in queries if p.get("required")] + [p for p in queries if not p.get("required")]
    if keyed:
        arguments.append("*")
        for p in keyed:
            text = types.of(p.get("schema"), "models.")
            text = text if p.get("required") else f"{types.optional(text)} = None"
            arguments.append(f"{snake(p['name'])}: {text}")
        passed.append("query={" + ", ".join(f"{json.dumps(p['name'])}: {snake(p['name'])}" for p in queries) + "}")
    answers = {code: answer for code, answer in call["responses"].items() if code.startswith("2")}
    schemas = [
        answer["content"]["application/json"]["schema"]
        for answer in answers.values()
        if "application/json" in answer.get("content", {})
    ]
    kinds = {kind for answer in answers.values() for kind in answer.get("content", {})}
    if schemas:
        returns = types.of(schemas[0], "models.")
        if "204" in answers:
            returns = types.optional(returns)
        take, end = f"{wait}self._json({', '.join(passed)}, returns={json.dumps(returns)})", "return "
        ignore = ""
    elif kinds & {"application/octet-stream"}:
        returns, take, end, ignore = "bytes", f"{wait}self._bytes({', '.join(passed)})", "return ", ""
    elif kinds:
        returns, take, end, ignore = "str", f"{wait}self._text({', '.join(passed)})", "return ", ""
    else:
        returns, take, end, ignore = "None", f"{wait}self._none({', '.join(passed)})", "", ""
    lines = words({"description": call.get("description") or call.get("summary")}, "        ")
    if lines:
        lines[0] = f"`{call['method']} {call['path']}`: {lines[0]}"
    cast = f"answer: {returns} = {take}\n        return answer" if end and returns not in ("bytes", "str") else f"{end}{take}"
    return f"\n    {define} {name}({', '.join(arguments)}) -> {returns}:{ignore}\n{docstring(lines, '        ')}        {cast}\n"


def type_of_body(schema: dict[str, Any], types: Types) -> str:
    text = types.of(schema, "models.")
    if text.startswith("list["):
        return f"Sequence[{text[5:-1]} | Mapping[str, Any]]"
    name = text.removeprefix("models.")
    back = f" | models.{SENT_BACK[name]}" if name in SENT_BACK else ""
    many = " | Sequence[Any]" if name in ("PushInput", "ImportBody") else ""
    return f"{text}{back} | Mapping[str, Any]{many}"


@contextlib.contextmanager
def running(binary: str) -> Iterator[str]:
    """The address of a broker that is started for it."""
    with tempfile.TemporaryDirectory() as folder:
        command = [binary, "broker", "--listen", "127.0.0.1:0", "--database", f"{folder}/webloom.db"]
        broker = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        try:
            assert broker.stdout
            yield next(line for line in broker.stdout if "listening on" in line).split()[-1]
        finally:
            broker.kill()
            broker.wait()


def ask(binary: str) -> dict[str, Any]:
    """The document of a broker."""
    with running(binary) as url, urllib.request.urlopen(f"{url}/api/v1/openapi.json", timeout=30) as answer:
        document: dict[str, Any] = json.load(answer)
        return document


def bones(text: str) -> str:
    """A module without its docstrings and comments: what must agree with the document."""
    tree = ast.parse(text)
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list) and body and isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant):
            body[0].value.value = ""
    return ast.dump(tree)


def make(document: dict[str, Any]) -> dict[str, str]:
    """The files, by name."""
    return {"models.py": models(document), "_calls.py": clients(document)}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--binary", help="a built `webloom`: a broker is started and asked")
    source.add_argument("--document", help="a file with the OpenAPI document")
    parser.add_argument("--check", action="store_true", help="write nothing; fail if the files do not agree with it")
    chosen = parser.parse_args()
    document = ask(chosen.binary) if chosen.binary else json.loads(Path(chosen.document).read_text())
    for name, text in make(document).items():
        path = PACKAGE / name
        if not chosen.check:
            path.write_text(text)
        elif not path.exists() or bones(path.read_text()) != bones(text):
            print(
                f"{path.name} does not agree with the broker's OpenAPI document. Make it again: "
                "python3 python/tools/generate.py --binary target/debug/webloom",
                file=sys.stderr,
            )
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
