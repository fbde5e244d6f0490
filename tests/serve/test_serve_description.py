"""Whatever schemathesis makes of the OpenAPI description is answered as the description says."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from collections import Counter

import pytest

from oracle.served import SERVE

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        importlib.util.find_spec("schemathesis") is None,
        reason="needs the extra fuzz, which make test-slow installs",
    ),
]
CHECKS = ("not_a_server_error", "status_code_conformance", "content_type_conformance",
          "response_headers_conformance", "response_schema_conformance",
          "unsupported_method")  # fmt: skip
REFUSES = ("negative_data_rejection", "missing_required_header")  # what is not described
COUNT = 100  # requests that are made up for each address, beside those at the bounds of each field
BROKEN = f"""
from bayesmf.serve import answers
answers.explain = lambda *asked: {{}}["a mistake of ours"]
answers.find = lambda *asked: {{"found": [], "total": "some"}}
{SERVE}"""
LIMITS = json.dumps({"rate": 0})


def search(folder, description, *words):
    """Make requests of a description, as schemathesis does; what it said, and the answers."""
    log = folder / "log.ndjson"
    done = subprocess.run(
        [sys.executable, "-c", "from schemathesis.cli import schemathesis; schemathesis()", "run",
         description, "--seed", "0", "--continue-on-failure", "--no-color", "--report", "ndjson",
         "--report-ndjson-path", log, *words],
        cwd=folder, capture_output=True, text=True,
    )  # fmt: skip
    answers = Counter()
    for line in log.read_text().splitlines():
        recorder = json.loads(line).get("ScenarioFinished", {}).get("recorder", {})
        for one in recorder.get("interactions", {}).values():
            answers[recorder["label"], one["response"]["status_code"]] += 1
    return done, answers


def narrow(api, known):
    """Describe requests that the model can answer: the ids that it knows, ratings on its scale."""
    few = {
        **known,
        "users": {"type": "array", "minItems": 1, "maxItems": 5, "items": known["user"]},
        "items": {"type": "array", "minItems": 1, "maxItems": 5, "items": known["item"]},
        "rating": {"enum": [1, 2, 3, 4, 5]},
        "time": {"type": "integer", "minimum": 0, "exclusiveMaximum": 2**33},
        "at": {"enum": ["now", "2001-05-01", 978_300_000, None]},
        "bins": {"enum": [[1, 5, 9], [3], None]},
    }
    parts = api["components"]["schemas"]
    for name in ("Pair", "Predict", "Recommend", "Explain", "Rated", "Rating", "Visit", "Update",
                 "Evaluate"):  # fmt: skip
        fields = parts[name]["properties"]
        fields.update({field: few[field] for field in fields.keys() & few})
        for field in fields.keys() & {"pairs", "ratings"}:
            fields[field]["maxItems"] = 2
    parts["Similar"] = {"oneOf": [
        {"type": "object", "additionalProperties": False, "required": [side],
         "properties": {side: known[side], "n": {"type": "integer", "minimum": 1, "maximum": 1000}}}
        for side in known
    ]}  # fmt: skip
    given = api["paths"]["/api/ratings"]["get"]["parameters"]
    next(one for one in given if one["name"] == "user")["schema"] = known["user"]
    return api


@pytest.mark.parametrize("model", ["tiny_fit", "timed_fit"])
def test_every_answer_is_as_it_is_described(start, model, tmp_path, request):
    server = start("-c", SERVE, request.getfixturevalue(model), LIMITS)
    address = f"http://127.0.0.1:{server.port}"
    checks = ["--checks", ",".join((*CHECKS, *REFUSES)), "--max-examples", str(COUNT)]
    done, told = search(tmp_path, f"{address}/openapi.json", *checks)
    assert done.returncode == 0, done.stdout[-5000:]

    api = json.loads(server.ask("/openapi.json"))
    known = {
        side: {"enum": [one["id"] for one in json.loads(server.ask(f"/api/{side}s"))["found"]]}
        for side in ("user", "item")
    }
    (tmp_path / "narrow.json").write_text(json.dumps(narrow(api, known)))
    checks = ["--checks", ",".join(CHECKS), "--max-examples", str(COUNT), "--mode", "positive"]
    done, more = search(tmp_path, "narrow.json", "--url", address, *checks)
    assert done.returncode == 0, done.stdout[-5000:]

    statuses = Counter()
    for (_, status), count in (told + more).items():
        statuses[status] += count
    print(f"{model}: {statuses.total()} requests of {len(api['paths'])} addresses: {statuses}")
    assert max(statuses) < 500
    assert {label.split()[1] for label, _ in told} == set(api["paths"])
    for path, methods in api["paths"].items():
        for method in methods:
            label = f"{method.upper()} {path}"
            asked = sum(count for (of, _), count in more.items() if of == label)
            wanted = 0 if path == "/api/quality" and model == "tiny_fit" else asked / 2
            assert more[label, 200] >= wanted, f"{label}: {more}"
    assert json.loads(server.ask("/api/health"))["status"] == "ok"
    assert "Traceback" not in "".join(server.lines)


def test_mistakes_are_seen(start, tiny_fit, tmp_path):
    """Our own failure, an answer of another form, and a status that is not described."""
    server = start("-c", BROKEN, tiny_fit, LIMITS)
    api = json.loads(server.ask("/openapi.json"))
    del api["paths"]["/api/predict"]["post"]["responses"]["422"]
    (tmp_path / "other.json").write_text(json.dumps(api))
    address = f"http://127.0.0.1:{server.port}"
    words = ["--url", address, "--checks", ",".join(CHECKS), "--max-examples", "5", "--no-shrink"]
    done, told = search(tmp_path, "other.json", *words)
    assert done.returncode == 1
    assert told["POST /api/explain", 500]
    for words in ("Server error", "Undocumented status code", "Response violates schema"):
        assert words in done.stdout, done.stdout
