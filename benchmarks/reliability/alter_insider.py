"""Alterations by who holds the key: signed anew, and at odds with the rest of the release."""

import io
import json
import math
import tarfile
from collections.abc import Callable, Mapping
from typing import Any

from benchmarks.reliability.altered import JSON, Case
from posttrain.stage.hashing import sha256_of_json

RECIPE = "release/recipe.yaml"
MALFORMED = (
    "{}", "[]", "null", "1", '"x"', "[" * 100_000, "{", "", "NaN", '{"policy": 1}', "\x00",
    '{"evaluation": [], "stages": [], "gates": {}}', '{"policy": {"by_seed": []}, "compared": 3}',
)  # fmt: skip
REQUIRED = {
    "release": ("name", "version", "commit", "level", "policy", "claims"),
    "policy": ("sha256", "path", "files"),
    "stage": ("buildDefinition",),
    "definition": ("externalParameters", "internalParameters"),
    "gate": ("result", "configuration"),
    "configuration": ("name", "digest", "annotations"),
    "annotations": ("gate", "figures"),
}


def _gate(statements: list[JSON], name: str) -> JSON:
    for each in statements:
        configuration = each["predicate"].get("configuration")
        if configuration and configuration[0]["name"] == name:
            return configuration[0]
    raise LookupError(name)


def _is(statement: JSON, kind: str) -> bool:
    return kind in str(statement["predicateType"])


def _settings(case: Case, name: str, old: str, new: str, change: Mapping[str, Any]) -> None:
    """Ask for something else in the recipe and in the claim alike."""
    path = case.release / RECIPE
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))
    statements = case.statements()
    configuration = _gate(statements, name)
    settings = configuration["annotations"]["gate"]
    settings.update(change)
    configuration["digest"] = {"sha256": sha256_of_json(settings)}
    case.sign_anew(statements)


def _threshold(case: Case) -> None:
    least = round(case.chance.uniform(0.2, 0.95), 3)
    new = f"at_least: {least}"
    _settings(case, "works", "at_least: 0.0", new, {"at_least": least})


def _limit(case: Case) -> None:
    most = round(case.chance.uniform(0, 5), 3)
    _settings(case, "length", "at_most: 13", f"at_most: {most}", {"at_most": float(most)})


def _more_samples(case: Case) -> None:
    k = case.chance.choice((5, 16, 10**9))
    metric = f"pass_at_{k}"
    new = f"at_least: 0.0, metric: {metric}"
    _settings(case, "works", "at_least: 0.0", new, {"metric": metric})


def _tolerance(case: Case) -> None:
    least = round(case.chance.uniform(0.0, 0.1), 3)
    new = f"tolerance: {least}"
    _settings(case, "not-worse", "tolerance: 1.0", new, {"tolerance": least})


def _figures(case: Case) -> None:
    statements = case.statements()
    figures = _gate(statements, case.pick(("works", "not-worse")))["annotations"]["figures"]
    figures[case.pick(set(figures))] += case.chance.choice((0.001, 0.5, -0.2, 7))
    case.sign_anew(statements)


def _headline(case: Case) -> None:
    def edit(metrics: JSON) -> None:
        each = metrics["evaluation"][case.pick(set(metrics["evaluation"]))]
        each[case.pick(set(each))] += case.chance.choice((0.001, 0.21, -0.5))

    case.edit_json("metrics", edit)


def _card(case: Case) -> None:
    path = case.release / "README.md"
    text = path.read_text()
    old, new = case.chance.choice(
        (
            ("| pass_at_1 | 0", "| pass_at_1 | 1"),
            ("| works |", "| worked |"),
            ("| 24 |", "| 2400 |"),
        )
    )
    assert old in text
    path.write_text(text.replace(old, new, 1))
    case.sign_anew(case.statements())


def _rows(case: Case) -> None:
    def edit(results: JSON) -> None:
        seed = results["policy"]["by_seed"][case.pick(set(results["policy"]["by_seed"]))]
        seed[case.pick(set(seed))] = case.chance.choice(
            ([2, 2], [1, 2], [-1, 2], [5, 2], [0, 0], [0, 10**15], ["x", 1], [], [1e400, 1])
        )

    case.edit_json("results", edit)


def _other_policy(case: Case) -> None:
    case.edit_json("results", lambda results: results["policy"].update(policy="0" * 64))


def _infinite(case: Case) -> None:
    def edit(metrics: JSON) -> None:
        metrics["stages"]["evaluate"]["evaluate/sft/mean_length"] = case.chance.choice(
            (math.inf, math.nan, -math.inf, "long", None, 99.0)
        )

    case.edit_json("metrics", edit)


def _library(case: Case) -> None:
    path = case.release / "release/code.tar"
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w") as tar:
        tar.addfile(tarfile.TarInfo("posttrain/other.py"))
    path.write_bytes(
        case.chance.choice(
            (bytes(10240), b"", b"x" * 5000, target.getvalue(), path.read_bytes()[: 512 * 7 + 1])
        )
    )
    case.sign_anew(case.statements())


def _twice(case: Case) -> None:
    statements = case.statements()
    what = case.chance.choice(("subject", "release", "stage", "gate"))
    if what == "subject":
        subjects = case.pick(statements)["subject"]
        subjects.append(dict(subjects[0]))
    elif what == "release":
        statements.insert(0, json.loads(json.dumps(statements[-1])))
    else:
        kind = "provenance" if what == "stage" else "test-result"
        of_kind = [each for each in statements if _is(each, kind)]
        statements.insert(0, json.loads(json.dumps(case.pick(of_kind))))
    case.sign_anew(statements)


def _policy_files(case: Case) -> None:
    statements = case.statements()
    policy = statements[-1]["predicate"]["policy"]
    edits: list[Callable[[], object]] = [
        lambda: policy["files"].append("nothing.bin"),
        lambda: policy["files"].append("../../../etc/passwd"),
        lambda: policy["files"].pop(),
        lambda: policy.update(sha256="0" * 64),
    ]
    case.pick(edits)()
    case.sign_anew(statements)


def _dropped(case: Case) -> None:
    statements = case.statements()
    del statements[case.chance.randrange(len(statements) - 1)]
    case.sign_anew(statements)


def _failed(case: Case) -> None:
    statements = case.statements()
    gate = case.pick([each for each in statements if _is(each, "test-result")])
    gate["predicate"].update(case.pick(({"result": "FAILED"}, {"failedTests": ["x"]})))
    case.sign_anew(statements)


def _key(case: Case) -> None:
    statements = case.statements()
    stage = case.pick([each for each in statements if _is(each, "provenance")])
    components = stage["predicate"]["buildDefinition"]["internalParameters"]["components"]
    group = components[case.pick({name for name in components if components[name]})]
    group[case.pick(set(group))] = "other"
    case.sign_anew(statements)


def _commit(case: Case) -> None:
    statements = case.statements()
    statements[-1]["predicate"]["commit"] = "0" * 40
    case.sign_anew(statements)


def _form(case: Case) -> None:
    """Something that every check looks at is not there, or is of another kind."""
    statements = case.statements()
    places: list[tuple[JSON, str]] = []
    for each in statements:
        about = each["predicate"]
        if _is(each, "provenance"):
            definition = about["buildDefinition"]
            places += [(about, name) for name in REQUIRED["stage"]]
            places += [(definition, name) for name in REQUIRED["definition"]]
        elif _is(each, "test-result"):
            configuration = about["configuration"][0]
            places += [(about, name) for name in REQUIRED["gate"]]
            places += [(configuration, name) for name in REQUIRED["configuration"]]
            places += [(configuration["annotations"], name) for name in REQUIRED["annotations"]]
        else:
            places += [(about, name) for name in REQUIRED["release"] if name != "claims"]
            places += [(about["policy"], name) for name in REQUIRED["policy"]]
    holder, name = case.pick([*places, (statements[-1], "subject")])
    if case.chance.random() < 0.4:
        del holder[name]
    else:
        holder[name] = case.chance.choice((None, [], {}, 7, [[]], "", {"x": {"y": []}}, True))
    case.sign_anew(statements)


def _evidence(case: Case) -> None:
    name = case.chance.choice(("results", "metrics", "data"))
    (case.release / f"release/{name}.json").write_text(case.chance.choice(MALFORMED))
    case.sign_anew(case.statements())


def _large_evidence(case: Case) -> None:
    size = case.chance.choice((8, 20, 40)) * 2**20
    text = "[" + "[]," * (size // 3) + "1]"
    name = case.chance.choice(("results", "metrics", "data"))
    (case.release / f"release/{name}.json").write_text(text)
    case.sign_anew(case.statements())


def _recipe(case: Case) -> None:
    path = case.release / RECIPE
    bomb = "".join(
        f"a{level}: &a{level} [{', '.join([f'*a{level - 1}'] * 9 if level else ['x'] * 9)}]\n"
        for level in range(12)
    )
    path.write_text(
        case.chance.choice(
            (
                "[]", "", "7", "a: &a [*a]", "release: []", "release: 3", "[" * 20_000,
                "\t", "a: b: c",
                "release: {gates: [{kind: nothing}]}", "!!python/object/apply:os.system ['true']",
                "format: 99\nrelease: {}", "release: {gates: 3}", "x: !custom {}", bomb,
                path.read_text() + "# more\n" * 60_000, "release: {policy: [1]}", "\x00",
                "\x1b[2K: 1",
                f"{bomb}release: {{licenses: *a11}}", "release:\n  gates: *nothing",
            )
        )
    )  # fmt: skip
    case.sign_anew(case.statements())


ALTER_INSIDER: Mapping[str, Callable[[Case], str | None]] = {
    "threshold": _threshold,
    "limit": _limit,
    "samples": _more_samples,
    "tolerance": _tolerance,
    "gate's figures": _figures,
    "headline figures": _headline,
    "card": _card,
    "rows": _rows,
    "rows of another policy": _other_policy,
    "infinite metric": _infinite,
    "library": _library,
    "twice": _twice,
    "policy's files": _policy_files,
    "dropped claim": _dropped,
    "failed gate": _failed,
    "key": _key,
    "commit": _commit,
    "form of a claim": _form,
    "form of the evidence": _evidence,
    "large evidence": _large_evidence,
    "recipe": _recipe,
}
