"""A claim becomes a recipe of arms; its verdict is kept, and stale once what it rests on moves."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from posttrain.methods.find import (
    arena_files,
    every_method,
    find_arena,
    find_method,
    methods_of,
)
from posttrain.pipeline.claim_recipe import (
    arenas_of_same_base,
    digest_of_claim,
    folder_of_claim,
    recipe_of_claim,
    values_of_claim,
)
from posttrain.pipeline.verdicts import (
    KeptVerdict,
    claim_keys,
    commits_gone,
    equal_arms,
    keep_verdict,
    kept_verdicts,
    remarks_on_verdicts,
    seconds_of_base,
    stages_of_arena,
    standing_verdicts,
    verdicts_of,
    where_decided,
)
from posttrain.provenance.ledger import Run, StageRun, open_ledger
from posttrain.stage.errors import UserError
from posttrain.stage.slots import plugged
from tasks.pretrain.config import PretrainConfig

ROOT = Path(__file__).parents[2]
ARENA = """
name: tiny
says: A base that knows little.
sections:
  pretrain: {steps: 9}
  rl: {steps: 3, group_size: 4}
  evaluate: {num_samples: 2, pass_at: [1]}
contract: [{metric: pass_at_1, at_least: 0.1}]
"""
SETS = "sets: {sft: {steps: 6}}"
METHOD = """
name: mine
title: Mine
source: {paper: a note}
family: pg
says: It says so.
sets: {rl: {algorithm: {preset: dr_grpo}, group_size: 8}}
claims:
- name: better
  says: It is better.
  arena: tiny
  against: {plain: {method: reinforce, rl: {group_size: 2}}}
  matched: rollouts
  decide: [{metric: pass_at_1, is: higher, margin: 0.01}]
  seeds: 2
  minutes: 1
"""


@pytest.fixture
def project(tmp_path):
    def write(method=METHOD, arena=ARENA):
        for place, text in (("pg/mine", method), ("arenas/tiny", arena)):
            file = tmp_path / "methods" / f"{place}.yaml"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
        found = find_method("mine")
        return found, found.method.claims[0]

    with methods_of(tmp_path):
        write.root = tmp_path
        yield write


def test_arms_share_the_base_and_their_seeds_and_differ_in_one_section(project):
    found, claim = project()
    values = values_of_claim(found.method, claim, seeds=2)
    dag = recipe_of_claim(values, project.root).resolve(ROOT)
    arms = [name for name in dag.stages if name.startswith("rl_")]
    assert sorted(arms) == ["rl_mine_1", "rl_mine_2", "rl_plain_1", "rl_plain_2"]
    ours, theirs = dag.stages["rl_mine_1"], dag.stages["rl_plain_1"]
    # The arena's budget lies under the method's settings.
    assert (ours.config.steps, ours.config.group_size) == (3, 8)
    assert (theirs.config.steps, theirs.config.group_size) == (3, 2)
    assert (ours.seed_as, theirs.seed_as) == ("seed_1", "seed_1")
    assert dag.stages["rl_mine_2"].seed_as == "seed_2"
    assert str(ours.inputs["policy"]) == str(theirs.inputs["policy"]) == "sft.policy"
    assert dag.stages["pretrain"].config.steps == 9
    evaluated = {port: str(each) for port, each in dag.stages["evaluate_2"].inputs.items()}
    assert evaluated["policies.plain"] == "rl_plain_2.policy"
    verdict = dag.stages["verdict"]
    assert verdict.config.arms == ("mine", "plain")
    assert str(verdict.inputs["curves.mine_2"]) == "rl_mine_2.curve"


OWN = """
from typing import Literal
from posttrain.learning.algorithms.token_weights.base import TokenWeight
class Mine(TokenWeight):
    \"\"\"All tokens alike.\"\"\"
    kind: Literal["all_alike"] = "all_alike"
    weight: float = {weight}
    def of_update(self, logprobs_BT, *, old_logprobs_BT, batch):
        return logprobs_BT.detach() * 0 + self.weight
PARTS = {{"token_weight": {{"all_alike": Mine}}}}
"""


@pytest.mark.slow
def test_a_claim_on_a_part_of_the_projects_own_rests_on_its_code(project, monkeypatch):
    monkeypatch.syspath_prepend(str(project.root))
    alike = "rl: {algorithm: {preset: dr_grpo, token_weights: {own: all_alike}}"
    file, keys = project.root / "weights_of_mine.py", []
    for weight in (1.0, 2.0):
        file.write_text(OWN.format(weight=weight))
        with (
            plugged(["weights_of_mine"]),
            methods_of(project.root, ["weights_of_mine"]),
        ):
            found, claim = project(METHOD.replace("rl: {algorithm: {preset: dr_grpo}", alike))
            keys.append(claim_keys(found.method, claim, 2, project.root))
        sys.modules.pop("weights_of_mine")
    moved = {name for name in keys[0] if keys[0][name] != keys[1][name]}
    assert moved == {"rl_mine_1", "rl_mine_2"}


def test_a_claim_on_runs_that_nobody_saw_shares_none_with_the_one_before(project):
    """Another first run moves seeds and names of the arms; the verdict counts from 1 as ever."""
    before, was = project()
    after, claim = project(METHOD.replace("seeds: 2", "seeds: 2\n  first_seed: 6"))
    old = recipe_of_claim(values_of_claim(before.method, was, seeds=2), project.root).resolve(ROOT)
    new = recipe_of_claim(values_of_claim(after.method, claim, seeds=2), project.root).resolve(ROOT)
    of_a_run = {name for name in new.stages if name[-2:] in ("_6", "_7")}
    assert {"rl_mine_6", "rl_plain_7", "evaluate_6"} < of_a_run
    assert len(of_a_run) == 6
    assert new.stages.keys() - of_a_run == {n for n in old.stages if n[-2:] not in ("_1", "_2")}
    assert {new.stages[name].seed_as for name in of_a_run} == {"seed_6", "seed_7", None}
    verdict = new.stages["verdict"]
    assert verdict.inputs.keys() == old.stages["verdict"].inputs.keys()
    read = {port: str(each) for port, each in verdict.inputs.items()}
    assert read["curves.plain_1"] == "rl_plain_6.curve"
    assert read["reports.seed_2"] == "evaluate_7.report"
    assert verdict.config.seeds == 2
    assert digest_of_claim(before.method, was) != digest_of_claim(after.method, claim)
    with pytest.raises(UserError, match="first_seed"):
        project(METHOD.replace("seeds: 2", "seeds: 2\n  first_seed: 0"))


def test_an_arm_of_sft_starts_from_the_base_beside_a_shared_sft(project):
    """The arena's own fine-tuned policy is the base of the contract, with the arena's settings."""
    own = METHOD.replace("sets: {rl: {algorithm: {preset: dr_grpo}, group_size: 8}}", SETS)
    against = "{plain: {method: reinforce, rl: {group_size: 2}}}"
    own = own.replace(against, "{plain: {sft: {steps: 5}}}").replace("rollouts", "updates")
    own = own.replace("arena: tiny", "arena: tiny\n  trains: sft")
    with_sft = ARENA.replace("  rl:", "  sft: {steps: 4, batch_tokens: 512}\n  rl:")
    for arena, base in (
        (with_sft, "pretrain"),
        (with_sft.replace("pretrain: {steps: 9}", "import_model: {source: a/b}"), "import_model"),
    ):
        found, claim = project(own, arena)
        values = values_of_claim(found.method, claim, seeds=2)
        assert values["sft"] == {"steps": 4, "batch_tokens": 512}
        assert values["evaluate_1"]["inputs"]["policies.sft"] == "sft.policy"
        ours = values["sft_mine_1"]
        assert ours["inputs"]["policy"] == f"{base}.policy"
        # The arena's budget lies under that of the arm.
        assert (ours["steps"], ours["batch_tokens"]) == (6, 512)


def test_arms_that_update_several_times_a_step_are_told_of_where_updates_are_matched(project):
    changed = METHOD.replace("group_size: 8}}", "group_size: 8, updates: {epochs: 3}}}")
    found, claim = project(changed.replace("matched: rollouts", "matched: updates"))
    verdict = values_of_claim(found.method, claim, seeds=2)["verdict"]
    assert verdict["updates_per_step"] == {"mine": 3, "plain": 1}
    found, claim = project(changed)
    assert "updates_per_step" not in values_of_claim(found.method, claim, seeds=2)["verdict"]


def test_only_the_arm_that_asks_a_reward_model_reads_it(project):
    """The arena adds the stage that trains it; a null unplugs what all arms read."""
    paid = "{components: {correct: verifier, liked: {kind: model, models: [m], squash: sigmoid}},"
    paid += " combine: {kind: sum, weights: {liked: 0.5}}}"
    inputs = "{reward_models: {m: reward.reward_model}, solve_rates: null}"
    sets = "sets: {rl: {inputs: INPUTS, reward: PAID, algorithm".replace("INPUTS", inputs)
    text = METHOD.replace("sets: {rl: {algorithm", sets.replace("PAID", paid))
    trained = "{task: tasks.reward, inputs: {policy: sft.policy, samples: probe.samples}}"
    found, claim = project(text, ARENA.replace("  rl:", f"  reward: {trained}\n  rl:"))
    dag = recipe_of_claim(values_of_claim(found.method, claim, seeds=2), ROOT).resolve(ROOT)
    read = {port: str(each) for port, each in dag.stages["rl_mine_2"].inputs.items()}
    assert read == {
        "policy": "sft.policy",
        "problems": "curate.problems",
        "reward_models.m": "reward.reward_model",
        "verifiers": "synthesize.verifiers",
    }
    plain = {"policy", "problems", "solve_rates", "verifiers"}
    assert dag.stages["rl_plain_2"].inputs.keys() == plain


def test_what_an_arm_sets_beside_leads_to_what_is_compared(project):
    """Data is made once of the arena's problems; what a policy has a part in, for each seed."""
    learned = "{traces: synthesize.corpus, heldout: null}"
    led = "{synthesize: {num_problems: 7}, sft: {steps: 2, inputs: LEARNED}, rl: {group_size: 2}}"
    text = METHOD.replace("{method: reinforce, rl: {group_size: 2}}", led)
    found, claim = project(text.replace("LEARNED", learned))
    dag = recipe_of_claim(values_of_claim(found.method, claim, seeds=2), ROOT).resolve(ROOT)
    of_plain = {name for name in dag.stages if "plain" in name}
    trained = {f"{section}_plain_{n}" for section in ("sft", "rl") for n in (1, 2)}
    assert of_plain == {"synthesize_plain", *trained}
    made, taught, ours = (dag.stages[n] for n in ("synthesize_plain", "sft_plain_2", "rl_mine_2"))
    assert (made.config.num_problems, made.seed_as) == (7, "synthesize")
    assert (taught.config.steps, taught.seed_as) == (2, "seed_2")
    read = {port: str(each) for port, each in taught.inputs.items()}
    assert read == {"policy": "pretrain.policy", "traces": "synthesize_plain.corpus"}
    assert str(dag.stages["rl_plain_2"].inputs["policy"]) == "sft_plain_2.policy"
    assert str(dag.stages["rl_plain_2"].inputs["problems"]) == "curate.problems"
    assert str(ours.inputs["policy"]) == "sft.policy"


def test_what_draws_nothing_is_not_matched_by_what_is_drawn(project):
    text = METHOD.replace("arena: tiny", "arena: tiny\n  trains: sft")
    with pytest.raises(UserError, match="matched: rollouts is of RL; arms of sft draw nothing"):
        project(text)


REFUSED = {
    "an arena that is none": (
        METHOD.replace("arena: tiny", "arena: tinny"),
        "there is no arena 'tinny'; did you mean 'tiny'?",
    ),
    "an arm that sets the base": (
        METHOD.replace("{method: reinforce, ", "{pretrain: {steps: 1}, "),
        "method mine: claim better: arm plain sets pretrain, which arms of a claim on rl share; set"
        " `trains`, or take an arena that has it",
    ),
    "an arm that makes what none reads": (
        METHOD.replace("{method: reinforce, ", "{synthesize: {}, "),
        "method mine: claim better: arm plain sets synthesize, and nothing that leads to its rl"
        " reads it; connect it by `inputs`, set `trains`, or take an arena that has it",
    ),
    "an arm called as the base": (
        METHOD.replace("{plain:", "{base:"),
        "an arm is called base, which means the arena's base; rename it",
    ),
    "a decision against two things": (
        METHOD.replace("margin: 0.01", "against: plain, than: 0.5, margin: 0.01"),
        "the decision on pass_at_1 is against 'plain' and than 0.5; leave one out",
    ),
    "a curve of the base": (
        METHOD.replace("metric: pass_at_1", "metric: rl/entropy, against: base"),
        "the decision on rl/entropy is against base, which has no curve; take a metric of the"
        " evaluation",
    ),
    "an arm called as the method": (
        METHOD.replace("plain:", "mine:"),
        "mine.yaml: claims.better.against: an arm is called as the method itself; rename it",
    ),
}


@pytest.mark.parametrize(("text", "sentence"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_compared_is_one_sentence(project, text, sentence):
    def values():
        found, claim = project(text)
        return values_of_claim(found.method, claim, seeds=2)

    with pytest.raises(UserError) as refused:
        values()
    assert str(refused.value).endswith(sentence)


def test_arenas_of_the_same_base_differ_in_nothing_that_leads_to_it(project):
    project()
    folder = project.root / "methods" / "arenas"
    others = {
        # What arms do from there, a default that is spelled out, and what changes no byte.
        "longer": ARENA.replace("rl: {steps: 3", "probe: {num_samples: 3}\n  rl: {steps: 30"),
        "spelled": ARENA.replace("steps: 9", f"steps: 9, hidden: {PretrainConfig().hidden}"),
        "more_data": ARENA.replace("pretrain:", "synthesize: {num_problems: 77}\n  pretrain:"),
        "one_thread": ARENA.replace("pretrain:", "run: {threads: 1}\n  pretrain:"),
        "on_a_gpu": ARENA.replace("pretrain:", "run: {device: cuda}\n  pretrain:"),
        "retried": ARENA.replace("pretrain:", "run: {retries: 3}\n  pretrain:"),
        "from_pretrain": ARENA + "base: pretrain\n",
        "wrong": ARENA.replace("steps: 9", "stepz: 9"),
    }
    for name, text in others.items():
        (folder / f"{name}.yaml").write_text(text.replace("name: tiny", f"name: {name}"))
    assert {*arenas_of_same_base("tiny", ROOT)} & others.keys() == {"longer", "spelled", "retried"}


WHERE = "/methods/pg/mine.yaml: claims.better"
SLIPS = {
    "of the method": (
        {"method": METHOD.replace("group_size: 8", "group_siz: 8")},
        "/methods/pg/mine.yaml: sets.rl.group_siz: unknown key; did you mean 'group_size'?",
    ),
    "of an arm": (
        {"method": METHOD.replace("group_size: 2", "group_siz: 2")},
        f"{WHERE}.against.plain.rl.group_siz: unknown key; did you mean 'group_size'?",
    ),
    "of the arena": (
        {"arena": ARENA.replace("group_size: 4", "group_siz: 4")},
        "arena tiny: sections.rl.group_siz: unknown key; did you mean 'group_size'?",
    ),
    "a metric that only other settings measure": (
        {"method": METHOD.replace("metric: pass_at_1", "metric: rl/kl_by_reward")},
        f"{WHERE}.decide: arm mine measures no 'rl/kl_by_reward'; did you mean 'rl/reward'?",
    ),
    "a metric that the other arm does not measure": (
        {
            "method": METHOD.replace("metric: pass_at_1", "metric: rl/value_loss").replace(
                "preset: dr_grpo", "preset: ppo"
            )
        },
        f"{WHERE}.decide: arm plain measures no 'rl/value_loss'",
    ),
}

SLIPS |= {
    "a metric that the evaluation does not have": (
        {"method": METHOD.replace("metric: pass_at_1", "metric: mean_lenght")},
        f"{WHERE}.decide: the evaluation has no 'mean_lenght'; did you mean 'mean_length'?",
    ),
    "more samples than are drawn": (
        {"method": METHOD.replace("metric: pass_at_1", "metric: pass_at_2")},
        f"{WHERE}.decide: the evaluation has no 'pass_at_2'; did you mean 'pass_at_1'?",
    ),
    "a figure of no variant": (
        {
            "method": METHOD.replace("metric: pass_at_1", "metric: brif.length").replace(
                "sets: {", "sets: {evaluate: {variants: {brief: {kind: budgets, tokens: [2]}}}, "
            )
        },
        f"{WHERE}.decide: no variant of evaluate and no diagnostic of diagnose is called 'brif', of"
        " which brif.length would be a figure; did you mean 'brief'?",
    ),
    "a mechanism without a curve": (
        {
            "method": METHOD.replace(
                "decide:", "mechanism: [{metric: pass_at_1, at_least: 0}]\n  decide:"
            )
        },
        f"{WHERE}.mechanism: pass_at_1 is no metric of a curve, such as rl/..., and no figure with"
        " a dot; a mechanism looks at these alone: posttrain method metrics mine",
    ),
    "what episodes earn where none is played": (
        {"method": METHOD.replace("metric: pass_at_1", "metric: score")},
        f"{WHERE}.decide: the evaluation has no 'score'; take one of pass_at_1, majority,",
    ),
    "the best of some where no reward model ranks them": (
        {"method": METHOD.replace("metric: pass_at_1", "metric: best_of_1")},
        f"{WHERE}.decide: best_of_1 is of a reward model, and the evaluation reads none; connect",
    ),
    "a contract on what the evaluation does not have": (
        {"arena": ARENA.replace("metric: pass_at_1", "metric: pass_at_4")},
        "arena tiny: contract: the evaluation has no 'pass_at_4'; did you mean 'pass_at_1'?",
    ),
    "a contract on a curve": (
        {"arena": ARENA.replace("metric: pass_at_1", "metric: rl/reward")},
        "arena tiny: contract: rl/reward is of a curve, and the base has none; take a metric of the"
        " evaluation, or a figure, which has a dot",
    ),
}


@pytest.mark.parametrize(("texts", "sentence"), SLIPS.values(), ids=SLIPS)
def test_a_slip_is_told_where_it_stands_before_anything_is_trained(project, texts, sentence):
    found, claim = project(**texts)
    with pytest.raises(UserError) as refused:
        values_of_claim(found.method, claim, seeds=2)
    assert sentence in str(refused.value)
    assert str(refused.value).startswith(("arena tiny", str(project.root)))


def asking(method, metric):
    check = f"mechanism: [{{metric: {metric}, at_least: 0}}]"
    return method.replace("decide:", f"{check}\n  decide:")


def test_metrics_of_schedules_and_of_exchanges_are_known(project):
    coefficient = "{from: 0.1, to: 0.05, over: 2}"
    scheduled = f"algorithm: {{regularizers: {{kl: {{coefficient: {coefficient}}}}}}}"
    own = METHOD.replace("algorithm: {preset: dr_grpo}", scheduled)
    found, claim = project(asking(own, "schedule/algorithm.regularizers.kl.coefficient"))
    assert values_of_claim(found.method, claim, seeds=2)["verdict"]["mechanism"]
    several = METHOD.replace("rl: {algorithm: {preset: dr_grpo}", "coevolve: {exchange: swarm")
    several = several.replace("{method: reinforce, rl:", "{coevolve:")
    several = several.replace("arena: tiny", "arena: tiny\n  trains: coevolve")
    # Of the exchange, and of one of the policies by its name.
    for known in ("rl/exchange_offered", "rl/one/reward"):
        found, claim = project(asking(several, known))
        assert values_of_claim(found.method, claim, seeds=2)["verdict"]["mechanism"]
    found, claim = project(asking(several, "rl/exchange_offerd"))
    with pytest.raises(UserError, match="did you mean 'rl/exchange_offered'"):
        values_of_claim(found.method, claim, seeds=2)


def test_a_reward_model_of_the_arena_picks_the_best_of_some(project):
    trained = "reward: {task: tasks.reward, inputs: {policy: sft.policy, samples: probe.samples}}"
    read = "evaluate: {inputs: {reward_model: reward.reward_model}, "
    ranking = ARENA.replace("  evaluate: {", f"  {trained}\n  {read}")
    found, claim = project(METHOD.replace("metric: pass_at_1", "metric: best_of_1"), ranking)
    values = values_of_claim(found.method, claim, seeds=2)
    evaluated = recipe_of_claim(values, project.root).resolve(ROOT).stages["evaluate_2"]
    read = {port: str(each) for port, each in evaluated.inputs.items()}
    assert read["reward_model"] == "reward.reward_model"
    assert read["policies.mine"] == "rl_mine_2.policy"


def test_what_an_environment_counts_is_its_own_affair(project):
    own = METHOD.replace("metric: pass_at_1", "metric: tool_errors")
    plays = ARENA.replace("evaluate: {", "evaluate: {environment: calculator, ")
    found, claim = project(own, plays)
    assert values_of_claim(found.method, claim, seeds=2)["verdict"]["decide"]


@pytest.mark.slow  # six plans of twelve stages: six seconds
def test_a_verdict_is_kept_and_goes_stale_with_what_it_rests_on(project, monkeypatch):
    found, claim = project()
    keys = claim_keys(found.method, claim, 2, ROOT)
    kept = KeptVerdict(
        "mine", "better", "confirmed", "confirmed: so it is", 2, 1.0, "", "", keys, "00"
    )
    kept = KeptVerdict(**{**kept.__dict__, "digest": digest_of_claim(found.method, claim)})
    path = keep_verdict(project.root, kept)
    assert path == project.root / "methods" / "verdicts.jsonl"
    assert kept_verdicts()["mine", "better"] == kept
    assert standing_verdicts([found], ROOT) == {("mine", "better"): "confirmed"}
    assert verdicts_of(found.method, ROOT) == {"better": "confirmed: so it is"}

    told, _ = project(METHOD.replace("It says so.", "It says another thing."))
    assert standing_verdicts([told], ROOT) == {("mine", "better"): "confirmed"}
    for changed in (
        {"method": METHOD.replace("margin: 0.01", "margin: 0.02")},
        {"method": METHOD.replace("preset: dr_grpo", "preset: rloo")},
        {"arena": ARENA.replace("steps: 3", "steps: 4")},
    ):
        moved, _ = project(**changed)
        assert standing_verdicts([moved], ROOT) == {("mine", "better"): "stale (confirmed)"}
    (project.root / "methods" / "arenas" / "tiny.yaml").unlink()
    assert standing_verdicts([moved], ROOT) == {("mine", "better"): "stale (confirmed)"}
    whole, _ = project()
    other = {**keys, "rl_mine_1": "0" * 64}
    keep_verdict(project.root, KeptVerdict(**{**kept.__dict__, "keys": other}))
    assert standing_verdicts([whole], ROOT) == {("mine", "better"): "stale (confirmed)"}
    assert verdicts_of(whole.method, ROOT)["better"].startswith("stale, it was confirmed")


def figures(metric, against, ours, theirs):
    return {"metric": metric, "against": against, "ours": ours, "theirs": theirs}


def test_arms_that_came_to_the_same_in_every_seed_are_named():
    same, other = ([0.5, 0.25], [0.5, 0.25]), ([0.5, 0.25], [0.5, 0.26])
    acted = "the mechanism may not have acted; posttrain method check mine"
    assert [*equal_arms("mine", [figures("pass_at_1", "plain", *same)])] == [
        f"in all 2 seeds mine and plain came to the same pass_at_1: {acted}"
    ]
    # A rate that is 0 in both says nothing of a mechanism that moved something else.
    told = equal_arms(
        "mine", [figures("score", "plain", *other), figures("truncation_rate", "plain", *same)]
    )
    assert [*told] == ["in all 2 seeds mine and plain came to the same truncation_rate"]
    two = [figures("score", "a", *same), figures("brier", "a", *same), figures("score", "b", *same)]
    assert [*equal_arms("mine", two)] == [
        f"in all 2 seeds mine and a came to the same score, brier: {acted}",
        f"in all 2 seeds mine and b came to the same score: {acted}",
    ]
    # A number that is kept is no arm.
    assert not [*equal_arms("mine", [figures("score", None, [0.5], [0.5])])]
    assert [*equal_arms("mine", [figures("score", "sft", [0.5], [0.5])])] == [
        f"in the only seed mine and sft came to the same score: {acted}"
    ]


def test_where_a_verdict_was_decided_is_said_also_where_nothing_was_committed():
    kept = KeptVerdict("mine", "better", "confirmed", "so", 2, 1.0, "a" * 40, "", {}, "00")
    assert where_decided(kept) == "decided at commit aaaaaaaaaaaa"
    again = replace(kept, rechecked="b" * 40)
    assert where_decided(again) == (
        "decided at commit aaaaaaaaaaaa, first seed again at bbbbbbbbbbbb"
    )
    assert where_decided(replace(kept, commit="")) == "decided on code that was not committed"
    assert where_decided(again, {"a" * 40}) == (
        "decided at commit aaaaaaaaaaaa (not in this history), first seed again at bbbbbbbbbbbb"
    )


def git(folder, *arguments):
    author = ["-c", "user.name=me", "-c", "user.email=me@here"]
    done = subprocess.run(
        ["git", *author, *arguments], cwd=folder, check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


def test_a_commit_that_history_has_not_is_told_where_that_can_be_known(project, tmp_path):
    project()
    lost = "c0ffee" + "0" * 34
    # Outside of a repository nothing is known.
    assert commits_gone([lost], tmp_path) == frozenset()
    git(tmp_path, "init", "-q")
    # Before the first commit none is there.
    assert commits_gone([lost, ""], tmp_path) == {lost}
    commits = []
    for _ in range(2):
        git(tmp_path, "commit", "-q", "--allow-empty", "-m", "one")
        commits.append(git(tmp_path, "rev-parse", "HEAD"))
    assert commits_gone([*commits, lost, ""], tmp_path) == {lost}
    assert commits_gone(commits, tmp_path) == commits_gone([""], tmp_path) == frozenset()
    # What is no commit's name is not there, and no option of git's.
    assert commits_gone(["--all"], tmp_path) == {"--all"}
    decided = KeptVerdict("mine", "better", "void", "so", 2, 1.0, commits[0], "", {}, "00")
    keep_verdict(tmp_path, replace(decided, rechecked=lost))
    (told,) = remarks_on_verdicts(find_method("mine").method, tmp_path)["better"]
    assert told == (
        f"decided at commit {commits[0][:12]}, first seed again at c0ffee000000 (not in this"
        " history)"
    )
    # A shallow clone has one commit of two, and says nothing of the other.
    shallow = tmp_path / "shallow"
    git(tmp_path, "clone", "-q", "--depth", "1", tmp_path.as_uri(), str(shallow))
    assert commits_gone([commits[0], lost], shallow) == frozenset()


def test_stages_of_the_arena_are_those_that_no_arm_adds(project):
    found, claim = project()
    values = values_of_claim(found.method, claim, seeds=2)
    stages = recipe_of_claim(values, project.root).resolve(ROOT).stages
    arenas = ["synthesize", "curate", "pretrain", "sft", "probe"]
    assert stages_of_arena(claim, values, [*arenas, *reversed(list(stages))][:5]) == arenas
    added = {"rl_mine_1", "rl_mine_2", "rl_plain_1", "rl_plain_2"}
    added |= {"evaluate_1", "evaluate_2", "verdict"}
    assert {*stages} - {*stages_of_arena(claim, values, stages)} == added


def test_the_base_takes_as_long_as_in_the_claims_that_were_run_in_its_arena(project):
    found, claim = project()

    def ran(number, recipe, stage, seconds):
        ledger.begin_run(Run(f"r{number}", recipe, 0.0))
        key = f"{number:064x}"
        ledger.record(
            StageRun(f"s{number}", f"r{number}", stage, "t", key, "succeeded", 0.0, seconds)
        )

    with open_ledger("sqlite:///:memory:") as ledger:
        assert seconds_of_base(claim, ["pretrain", "sft"], ledger) == {}
        # Of another arena's base nothing follows.
        ran(1, "nsr.keeps_ways", "pretrain", 100.0)
        ran(2, "mine.better", "pretrain", 30.0)
        ran(3, "mine.better", "pretrain", 20.0)
        assert seconds_of_base(claim, ["pretrain", "sft"], ledger) == {"pretrain": 20.0}


def test_the_ledger_knows_a_claim_by_its_own_name(project, tmp_path):
    """Stages of two claims have the same names, and the one says nothing of the other."""
    found, claim = project()
    values = values_of_claim(found.method, claim, seeds=2)
    own = recipe_of_claim(values, folder_of_claim(found.method, claim, tmp_path))
    assert (own.name, own.is_of_claim) == ("mine.better", True)
    usual = recipe_of_claim(values, tmp_path / "claims" / "mine")
    assert (usual.name, usual.is_of_claim) == ("claim", False)


def test_a_line_that_is_no_verdict_is_one_sentence(project):
    project()
    (project.root / "methods" / "verdicts.jsonl").write_text('{"method": "mine"}\n')
    with pytest.raises(UserError, match=r"verdicts\.jsonl:1: this is no verdict; take the line"):
        kept_verdicts()


def test_every_claim_that_ships_becomes_a_recipe():
    for found in every_method().values():
        for claim in found.method.claims:
            dag = recipe_of_claim(values_of_claim(found.method, claim, seeds=2), ROOT).resolve(ROOT)
            assert "verdict" in dag.stages
    assert "sums" in {find_arena(name).name for name in arena_files()}


def test_verdicts_that_ship_are_of_claims_that_ship():
    methods = every_method()
    for method, claim in kept_verdicts():
        assert claim in {each.name for each in methods[method].method.claims}, (method, claim)
    assert json.dumps([each.verdict for each in kept_verdicts().values()])


def test_the_document_shows_every_verdict_that_ships():
    from tests.methods.write_claims import DOCUMENT, without_standing, written

    with methods_of(ROOT):
        now = written(standing=False)
    assert without_standing(DOCUMENT.read_text()) == now, (
        "run: python tests/methods/write_claims.py"
    )
    table = now[now.index("## What was decided") :]
    missing = [name for name in kept_verdicts() if "| {} | {} |".format(*name) not in table]
    assert missing == []


def test_what_is_stale_does_not_spoil_the_document():
    from tests.methods.write_claims import MARK, without_standing

    head = f"Marked (stale).\n{MARK}\n"
    tally = "2 claims: 2 void (1 still count); 1 of them stale. More."
    marked = f"{head}{tally}\n| void (stale) (not committed) |\n"
    assert without_standing(marked) == f"{head}2 claims: 2 void. More.\n| void (not committed) |\n"


LOOKS = """sets: {evaluate: {num_samples: 16}, diagnose: {diagnostics: {gap: {kind: crossing}}}}"""


def test_what_grades_all_arms_makes_no_arm_another_one(project):
    """The method's own arm is the arena's RL; evaluation and diagnosis are of a seed's arms."""
    own = METHOD.replace("sets: {rl: {algorithm: {preset: dr_grpo}, group_size: 8}}", LOOKS)
    found, claim = project(own.replace("pass_at_1", "gap.gap_1"))
    values = values_of_claim(found.method, claim, seeds=2)
    dag = recipe_of_claim(values, project.root).resolve(ROOT)
    assert dag.stages["rl_mine_1"].config.group_size == 4
    assert (values["evaluate_1"]["num_samples"], values["evaluate_1"]["pass_at"]) == (16, [1])
    read = {port: str(each) for port, each in dag.stages["diagnose_1"].inputs.items()}
    assert read["policies.mine"] == "rl_mine_1.policy"
    assert (read["policies.sft"], read["policies.pretrain"]) == ("sft.policy", "pretrain.policy")
    # The other seed's, in a ring.
    assert read["repeats.plain"] == "rl_plain_2.policy"
    assert values["diagnose_2"]["inputs"]["repeats.plain"] == "rl_plain_1.policy"
    assert read["completions.heldout"] == "evaluate_1.completions"
    assert (read["curves.mine"], read["rollouts.mine"]) == ("rl_mine_1.curve", "rl_mine_1.rollouts")
    assert dag.stages["diagnose_1"].config.reference == "sft"
    assert str(dag.stages["verdict"].inputs["diagnoses.seed_2"]) == "diagnose_2.report"
    other = own.replace("rl: {group_size: 2}", "evaluate: {num_samples: 4}")
    found, claim = project(other)
    # An arm that would be graded otherwise is refused where the method says nothing of it.
    found, claim = project(other.replace(LOOKS, "sets: {rl: {group_size: 8}}"))
    with pytest.raises(UserError, match="arm plain sets evaluate, which arms of a claim on rl"):
        values_of_claim(found.method, claim, seeds=2)


def test_reward_models_are_compared_by_a_diagnosis(project):
    looks = "sets: {reward: {steps: 9}, diagnose: {diagnostics: {many: {kind: one_vs_many}}}}"
    own = METHOD.replace("sets: {rl: {algorithm: {preset: dr_grpo}, group_size: 8}}", looks)
    own = own.replace("{method: reinforce, rl: {group_size: 2}}", "{reward: {steps: 3}}")
    own = own.replace("rollouts", "updates").replace("arena: tiny", "arena: tiny\n  trains: reward")
    found, claim = project(own.replace("pass_at_1", "many.accuracy"))
    values = values_of_claim(found.method, claim, seeds=2)
    dag = recipe_of_claim(values, project.root).resolve(ROOT)
    graded = {port for port in dag.stages["evaluate_1"].inputs if port.startswith("policies.")}
    assert graded == {"policies.sft"}
    read = {port: str(each) for port, each in dag.stages["diagnose_2"].inputs.items()}
    assert read["reward_models.mine"] == "reward_mine_2.reward_model"
    assert read["curves.plain"] == "reward_plain_2.curve"
    assert "policies.mine" not in read
    assert str(dag.stages["verdict"].inputs["curves.mine_1"]) == "reward_mine_1.curve"
