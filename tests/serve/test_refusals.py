"""Whatever is asked wrongly is answered by a problem document: never a stack trace, never a place on the disk."""

from __future__ import annotations

import json
import re

import pytest

INSIDE = re.compile(r"Traceback|\.py\b|/work/|/home/|/tmp/|site-packages|File \"")
GOOD = {"user": "person-010", "item": "thing-005"}
BAD_REQUESTS = [
    # method, address, body, status, what the detail names
    ("GET", "/api/explain?user=person-010", None, 422, "item is missing"),
    ("GET", "/api/explain?user=&item=thing-005", None, 422, "user must not be empty"),
    ("GET", "/api/explain?user=person-010&item=thing-005&colour=red", None, 422, "colour is not known"),
    ("GET", "/api/explain?user=person-01O&item=thing-005", None, 404, "person-01O"),
    ("GET", "/api/explain?user=person-010&item=thing-0050", None, 404, "thing-0050"),
    ("GET", "/api/explain?user=" + "x" * 3000 + "&item=thing-005", None, 422, "user"),
    ("GET", "/api/recommend?user=person-010&n=0", None, 422, "n "),
    ("GET", "/api/recommend?user=person-010&n=1e9", None, 422, "n must be a whole number"),
    ("GET", "/api/recommend?user=person-010&diversity=2", None, 422, "diversity is too large"),
    ("GET", "/api/recommend?user=person-010&diversity=nan", None, 422, "diversity"),
    ("GET", "/api/recommend?user=person-010&diversity=much", None, 422, "diversity must be a number"),
    ("GET", "/api/recommend?user=person-010&by=luck", None, 422, "by is none of the words"),
    ("GET", "/api/recommend?user=person-010&by=rating&diversity=0.5", None, 409, "no diversity"),
    ("GET", "/api/recommend?user=person-010&min_reviews=-1", None, 422, "min_reviews is too small"),
    ("GET", "/api/recommend?user=person-010&among=thing-0050", None, 404, "thing-0050"),
    ("GET", "/api/recommend?user=person-010&category=Beer", None, 409, "knows no categories"),
    ("POST", "/api/newcomer", b'{"reviews": ["light"], "among": []}', 422, "among holds too little"),
    ("GET", "/api/users?limit=-1", None, 422, "limit"),
    ("GET", "/api/users?q=a&q=b&offset=x", None, 422, "offset must be a whole number"),
    ("GET", "/api/users?limit=1_0", None, 422, "limit must be a whole number"),
    ("GET", "/api/users?limit=%205", None, 422, "limit must be a whole number"),
    ("GET", "/api/users?offset=%2B5", None, 422, "offset must be a whole number"),
    ("GET", "/api/recommend?user=person-010&diversity=0_0.5", None, 422, "diversity must be a number"),
    ("GET", "/api/overview?since=0", None, 422, "since must be a day"),
    ("GET", "/api/overview?until=2026-01-31T00:00:00", None, 422, "until must be a day"),
    ("GET", "/api/overview?until=2026-02-31", None, 422, "until must be a day"),
    ("GET", "/healthz?verbose=1", None, 422, "verbose is not known"),
    ("GET", "/api/compare?user=person-010&first=thing-005&second=thing-005", None, 409, "the same"),
    ("GET", "/api/users/nobody/profile", None, 404, "nobody"),
    ("GET", "/api/users//profile", None, 404, "''"),
    ("GET", "/api/nothing", None, 404, "/api/nothing"),
    ("GET", "/api/explain/", None, 404, "/api/explain/"),
    ("DELETE", "/api/explain", None, 405, "DELETE"),
    ("POST", "/api/explain", b"{}", 405, "POST"),
    ("GET", "/api/predict", None, 405, "GET"),
    ("PUT", "/", b"x", 405, "PUT"),
    ("POST", "/api/predict", b"", 422, "the body is missing"),
    ("POST", "/api/predict", b"{", 400, "not JSON"),
    ("POST", "/api/predict", b"\xff\xfe", 400, ""),
    ("POST", "/api/predict", b"[" * 100_000, 400, ""),
    ("POST", "/api/predict", b"[]", 422, ""),
    ("POST", "/api/predict", b"null", 422, "the body"),
    ("POST", "/api/predict", b'"person"', 422, ""),
    ("POST", "/api/predict", b'{"user": 5, "item": ["x"]}', 422, "user must be text; item must be text"),
    ("POST", "/api/predict", b'{"user": "a"}', 422, "give both user and item, or pairs"),
    ("POST", "/api/predict", b'{"user": "a", "item": "b", "pairs": [{"user": "a", "item": "b"}]}', 422, "or pairs"),
    ("POST", "/api/predict", b'{"user": "a", "item": "b", "pairs": null}', 422, "or pairs"),
    ("POST", "/api/predict", b'{"user": "a", "item": null}', 422, "give both user and item, or pairs"),
    ("POST", "/api/predict", b'{"pairs": []}', 422, "pairs"),
    ("POST", "/api/predict", b'{"pairs": [{"user": "a", "thing": "b"}]}', 422, "pairs.0.thing is not known"),
    ("POST", "/api/predict", b'{"user": "\\ud800", "item": "b"}', 422, "user"),
    ("POST", "/api/newcomer", b'{"reviews": []}', 422, "reviews"),
    ("POST", "/api/newcomer", b'{"reviews": ["", "  \\n"]}', 422, "reviews.0 must not be empty"),
    ("POST", "/api/newcomer", b'{"reviews": ["\\u001c"]}', 409, "empty"),
    ("POST", "/api/newcomer", b'{"reviews": ["\\u0085\\ufeff"]}', 422, "reviews.0 must not be empty"),
    ("POST", "/api/newcomer", b'{"reviews": ["zzzzqqq xyzzy"]}', 409, "no word the model knows"),
    ("POST", "/api/newcomer", b'{"reviews": "light"}', 422, "reviews must be a list"),
    ("POST", "/api/newcomer", b'{"reviews": ["light"], "n": "3"}', 422, "n must be a whole number"),
    ("POST", "/api/newcomer", b'{"reviews": ["light"], "n": 1e400}', 422, "n"),
    ("POST", "/api/newcomer", b'{"reviews": ["light"], "n": 1.5}', 422, "n must be a whole number"),
    ("POST", "/api/newcomer", b'{"reviews": ["light"], "n": true}', 422, "n must be a whole number"),
    ("POST", "/api/newcomer", b'{"reviews": ["light"], "explain": "nothing"}', 404, "nothing"),
    ("GET", "/static/../app.py", None, 404, ""),
    ("GET", "/static/%2e%2e/app.py", None, 404, ""),
    ("GET", "/static/..%2f..%2f..%2f..%2f..%2fetc/passwd", None, 404, ""),
    ("GET", "/static//etc/passwd", None, 404, ""),
    ("GET", "/static/..\\app.py", None, 404, ""),
    ("GET", "/static/app.py%00.js", None, 404, ""),
    ("GET", "/%2e%2e/%2e%2e/etc/passwd", None, 404, ""),
]


def problem_in(answer):
    assert answer.headers["content-type"] == "application/problem+json"
    problem = answer.json()
    assert {"type", "title", "status", "detail", "fix", "id"} <= problem.keys()
    assert problem["status"] == answer.status_code
    assert problem["id"] == answer.headers["x-request-id"]
    return problem


@pytest.mark.parametrize(("method", "address", "body", "status", "named"), BAD_REQUESTS)
def test_a_bad_request_is_a_problem_that_names_what_is_wrong(client, method, address, body, status, named):
    answer = client.request(method, address, content=body, headers={"content-type": "application/json"} if body else {})
    assert answer.status_code == status, answer.text
    problem = problem_in(answer)
    assert named in problem["detail"]
    assert problem["title"]
    assert problem["fix"]
    assert not INSIDE.search(answer.text.replace("/etc/passwd", "").replace("app.py", ""))


def test_an_unknown_id_is_answered_with_the_nearest_known_one(client):
    problem = client.get("/api/explain", params={"user": "person-0100", "item": "thing-005"}).json()
    assert problem["fix"] == "did you mean person-010?"
    far = client.get("/api/explain", params={"user": "q" * 450, "item": "thing-005"}).json()
    assert far["fix"] == "search with /api/users?q="
    assert len(far["detail"]) < 200


def test_a_body_over_the_limit_is_refused(client):
    content = json.dumps({"reviews": ["heavy " * 250_000]}).encode()
    answer = client.post("/api/newcomer", content=content, headers={"content-type": "application/json"})
    assert answer.status_code == 413
    assert "1.2 MB" in problem_in(answer)["detail"]


def test_a_long_text_under_the_limit_is_answered(client):
    answer = client.post("/api/newcomer", json={"reviews": ["light battery " * 13_000], "n": 1})
    assert answer.status_code == 200
    assert len(answer.json()["recommendations"]) == 1


def test_markup_in_reviews_and_ids_comes_back_as_data_that_no_browser_runs(client):
    name = "<script>alert(1)</script>"
    for answer in (
        client.get("/api/users", params={"q": "onmouseover"}),
        client.get("/api/explain", params={"user": name, "item": '"><img src=x onerror=alert(1)>'}),
        client.get("/api/explain", params={"user": "<svg onload=alert(1)>", "item": name}),
        client.post("/api/newcomer", json={"reviews": [f"light {name}"], "explain": "thing-005"}),
    ):
        assert answer.headers["content-type"] in ("application/json", "application/problem+json")
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert "default-src 'self'" in answer.headers["content-security-policy"]
        json.loads(answer.text)


def test_a_bug_is_answered_by_its_id_alone_and_told_to_the_log(recommender, monkeypatch):
    import io

    from starlette import testclient

    from carp.serve.answer_service import AnswerService
    from carp.serve.log_lines import LogLines
    from carp.serve.routes import make_app

    def broken(*_):
        raise RuntimeError("/secret/place/model.safetensors is broken")

    monkeypatch.setattr(AnswerService, "explain", broken)
    monkeypatch.setattr(AnswerService, "predict", broken)
    stream = io.StringIO()
    log = LogLines(stream)
    client = testclient.TestClient(make_app(recommender, log=log), raise_server_exceptions=True)
    problems = []
    for method, given in (("GET", {"params": GOOD}), ("POST", {"json": GOOD})):
        answer = client.request(method, "/api/explain" if method == "GET" else "/api/predict", **given)
        assert answer.status_code == 500
        problems.append(problem_in(answer))
        assert "secret" not in answer.text
    assert "carp_errors_total 2" in client.get("/metrics").text
    log.close()
    lines = {line["id"]: line for line in map(json.loads, stream.getvalue().splitlines())}
    for problem in problems:
        assert lines[problem["id"]]["status"] == 500
        assert "RuntimeError" in lines[problem["id"]]["error"]
        assert "Traceback" not in lines[problem["id"]]["error"]


@pytest.mark.parametrize(
    ("address", "field"),
    [("predict", "pairs"), ("newcomer", "reviews"), ("newcomer", "items"), ("newcomer", "among")],
)
def test_a_list_of_many_faults_is_read_up_to_the_first(client, address, field):
    """Reading all of them takes long enough for health to wait."""
    answer = client.post(f"/api/{address}", json={"reviews": ["light"], field: [1] * 1000})
    assert [name for name in problem_in(answer)["fields"] if name.startswith(f"{field}.")] == [f"{field}.0"]


def test_a_refused_request_does_not_spoil_the_next_one(client):
    before = client.get("/api/explain", params=GOOD).json()
    for method, address, body, _, _ in BAD_REQUESTS:
        client.request(method, address, content=body)
    assert client.get("/api/explain", params=GOOD).json() == before


def test_no_answer_invites_other_origins_or_names_other_hosts(client):
    answer = client.get("/healthz", headers={"origin": "https://evil.example"})
    assert not [name for name in answer.headers if name.startswith("access-control")]
    docs = client.get("/docs")
    assert docs.status_code == 200
    for page in (docs.text, client.get("/openapi.json").text):
        assert not re.search(r"https?://|//cdn|<script", page)
    assert "server" not in answer.headers


def test_the_schema_lists_every_route_of_the_contract(client):
    paths = client.get("/openapi.json").json()["paths"]
    assert {
        "/api/about",
        "/api/users",
        "/api/items",
        "/api/predict",
        "/api/explain",
        "/api/recommend",
        "/api/users/{user}/profile",
        "/api/items/{item}/profile",
        "/api/items/{item}/summary",
        "/api/newcomer",
        "/api/compare",
        "/api/results",
        "/health",
        "/healthz",
        "/ready",
        "/version",
        "/metrics",
    } <= set(paths)
