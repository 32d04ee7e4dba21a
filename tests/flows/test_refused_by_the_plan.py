"""What cannot succeed by its wiring is refused with the remedy, before anything runs."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from posttrain.cli.main import cli
from posttrain.pipeline.recipe import load_recipe
from posttrain.stage.errors import UserError
from posttrain.stage.spec import Vocabulary

ROOT = Path(__file__).parents[2]
BY_SOLVE_RATE = "draw: {sampler: solve_rate}"


@pytest.fixture
def dag(tmp_path):
    def resolve(text, *overrides):
        (tmp_path / "recipe.yaml").write_text(f"flow: flows.post_training\nformat: 3\n{text}\n")
        return load_recipe(tmp_path, overrides).resolve(ROOT)

    return resolve


def refusal(dag, text):
    with pytest.raises(UserError) as caught:
        dag(text)
    return str(caught.value)


def test_solve_rates_of_another_policy_than_rl_starts_from(dag):
    rewired = f"preference: {{}}\nrl: {{{BY_SOLVE_RATE}, inputs: {{policy: preference.policy}}}}"
    assert refusal(dag, rewired) == (
        "rl.inputs.solve_rates: probe probes sft.policy, and rl starts from preference.policy;"
        " probe that one (probe: {inputs: {policy: preference.policy}}, or a further entry of a"
        " list of probes), or set rl.draw.sampler to uniform"
    )
    assert "rl" in dag(rewired.replace(BY_SOLVE_RATE, "draw: {sampler: uniform}")).stages
    second = (
        "preference: {}\nprobe: [{}, {as: late, inputs: {policy: preference.policy}}]\n"
        f"rl: {{{BY_SOLVE_RATE},"
        " inputs: {policy: preference.policy, solve_rates: late.solve_rates}}"
    )
    assert "late" in dag(second).stages


def test_a_sampler_that_begins_from_solve_rates_without_any(dag):
    assert refusal(dag, f"rl: {{{BY_SOLVE_RATE}, inputs: {{solve_rates: null}}}}").startswith(
        "rl.draw.sampler: solve_rate begins from solve rates, and none are connected;"
    )


def test_a_reference_that_the_algorithm_has_no_use_for(dag):
    text = "rl: {algorithm: %s, inputs: {reference: sft.policy}}"
    assert "it would change nothing" in refusal(dag, text % "dapo")
    assert "reference" in dag(text % "grpo").stages["rl"].inputs


def test_pairs_and_samples_both_connected_or_neither(dag):
    text = "preference: {inputs: {pairs: reward.pairs%s}}"
    assert refusal(dag, text % "") == (
        "preference.inputs: samples and pairs are both connected (probe.samples and reward.pairs),"
        " and one of them is taken; write samples: null or pairs: null"
    )
    assert "samples" not in dag(text % ", samples: null").stages["preference"].inputs
    assert refusal(dag, "preference: {inputs: {samples: null}}") == (
        "preference.inputs: neither samples nor pairs is connected; connect one"
    )


def test_rounds_of_preference_that_cannot_sample(dag):
    assert "none are connected" in refusal(dag, "preference: {rounds: 2, inputs: {problems: null}}")
    assert "in one process" in refusal(dag, "preference: {rounds: 2, resources: {processes: 2}}")


def test_adapters_of_a_model_that_begins_from_nothing(dag, tmp_path):
    adapters = "pretrain: {learner: {lora: {rank: 4}}}"
    assert refusal(dag, adapters).startswith("pretrain.learner.lora: adapters change a model that")
    (tmp_path / "model").mkdir()
    assert "pretrain" in dag(f"{adapters}\nimport_model: {{path: model}}").stages


@pytest.mark.parametrize(
    ("section", "said"),
    [
        (
            "sft: {learner: {offload: true}}",
            "sft: learner.offload keeps the shards of several processes in host memory, and this"
            " stage has one; set resources.processes, or leave learner.offload out",
        ),
        (
            "rl: {learner: {offload: true}}",
            "rl: learner.offload keeps the shards of several processes in host memory, and this"
            " stage has one; set resources.processes, or leave learner.offload out",
        ),
        (
            "sft: {learner: {context_parallel: true}}",
            "sft: learner.context_parallel shares the tokens of a row out among several processes,"
            " and this stage has one; set resources.processes, or leave"
            " learner.context_parallel out",
        ),
        (
            "sft: {loss: soft_targets, learner: {context_parallel: true}, resources:"
            " {processes: 2}}",
            "sft: learner.context_parallel gives a process some tokens of a row, and loss"
            " soft_targets reads what the policy says of a teacher's tokens at all of them; set"
            " context_parallel to false, or take another loss",
        ),
        (
            "reward: {parameterization: head, learner: {context_parallel: true}, resources:"
            " {processes: 2}}",
            "reward: learner.context_parallel puts log-probabilities of several processes"
            " together, and a scalar head reads hidden states; set context_parallel to false, or"
            " parameterization to likelihood",
        ),
    ],
)
def test_a_learner_that_does_not_go_with_the_processes_or_the_loss(dag, section, said):
    assert refusal(dag, section) == said


def test_several_processes_take_what_one_does_not(dag):
    for field in ("offload", "context_parallel"):
        section = f"sft: {{learner: {{{field}: true}}, resources: {{processes: 2}}}}"
        assert "sft" in dag(section).stages


def test_an_evaluation_of_no_policy(dag):
    assert "no policy is connected" in refusal(dag, "evaluate: {inputs: {policies: null}}")


def saved(folder, words):
    """A model's folder, of which only the vocabulary is read."""
    folder.mkdir()
    content = {"model": {"vocab": {word: index for index, word in enumerate(words)}}}
    (folder / "tokenizer.json").write_text(json.dumps(content))


REFERENCE = (
    "%s\nteacher: {task: tasks.import_model, path: %s}\n"
    "rl: {algorithm: grpo, inputs: {reference: teacher.policy}}"
)


def test_a_reference_whose_vocabulary_cannot_be_that_of_the_policy(dag, tmp_path):
    saved(tmp_path / "large", map(str, range(9000)))
    saved(tmp_path / "small", map(str, range(400)))
    assert refusal(dag, REFERENCE % ("", "large")) == (
        "rl: its inputs policy and reference come of pretrain and teacher, whose tokenizers differ"
        " (at most 512 tokens, and 9000); the models of a stage share one: start both from the same"
        " model"
    )
    # It may be a model that was saved from here: that is not known before pretraining.
    assert "rl" in dag(REFERENCE % ("", "small")).stages


def test_two_imported_models_share_a_vocabulary_word_by_word(dag, tmp_path):
    saved(tmp_path / "one", "abc")
    saved(tmp_path / "same", "abc")
    saved(tmp_path / "other", "abd")
    base = "import_model: {path: one}"
    assert "(3 tokens, and 3)" in refusal(dag, REFERENCE % (base, "other"))
    assert "rl" in dag(REFERENCE % (base, "same")).stages
    (tmp_path / "other" / "tokenizer.json").write_text("no JSON")
    assert "rl" in dag(REFERENCE % (base, "other")).stages


def test_a_grader_has_a_tokenizer_of_its_own(dag, tmp_path):
    saved(tmp_path / "one", "abc")
    saved(tmp_path / "judge", "xyz")
    assert dag("import_model: {path: one}\nimport_reward_model: {path: judge}").stages


@pytest.mark.parametrize(
    ("one", "other", "differ"),
    [
        (Vocabulary(3, 3, "a"), Vocabulary(3, 3, "b"), True),
        (Vocabulary(3, 3, "a"), Vocabulary(3, 3, "a"), False),
        (Vocabulary(1, 5), Vocabulary(5, 9), False),
        (Vocabulary(1, 5), Vocabulary(6, 9), True),
        (Vocabulary(6, 9), Vocabulary(1, 5), True),
        (Vocabulary(1, 5), Vocabulary(4, 4, "a"), False),
    ],
)
def test_vocabularies_differ_where_they_cannot_be_one(one, other, differ):
    assert one.differs_from(other) is differ


def test_plan_refuses_it_and_writes_nothing(tmp_path, monkeypatch):
    (tmp_path / ".dvc").mkdir()
    (tmp_path / "recipe.yaml").write_text(
        "flow: flows.post_training\nformat: 3\npreference: {inputs: {pairs: reward.pairs}}\n"
    )
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(cli, ["plan"])
    assert isinstance(done.exception, UserError)  # for which the program exits with 2
    assert "samples and pairs are both connected" in str(done.exception)
    assert sorted(path.name for path in tmp_path.iterdir()) == [".dvc", "recipe.yaml"]


def test_answers_that_the_verifier_cannot_read(dag, tmp_path):
    """By file and line, for the first rows; a hub's table is not there yet."""
    answers = [*range(6), "six", 7, 8]
    rows = [{"prompt": f"q{a}", "answer": a, "solution": f"#### {a}"} for a in answers]
    (tmp_path / "own.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    source = "synthesize: {sources: [{kind: jsonl, name: own, path: own.jsonl%s}]}"
    assert refusal(dag, source % "") == (
        "own.jsonl:7: the verifier 'numeric' cannot read the answer 'six', so nothing would ever"
        " count as right; correct the answers, or give the source another verifier, such as 'exact'"
    )
    assert "synthesize" in dag(source % ", verifier: exact").stages


@pytest.mark.parametrize(
    ("source", "said"),
    [
        (
            "{kind: reasoning_gym, name: chain_sums, levels: [2], graded: [min_terms]}",
            "synthesize.sources.0: reasoning-gym has no generator 'chain_sums'; did you mean 'ch",
        ),
        (
            "{kind: reasoning_gym, name: chain_sum, levels: [2], graded: [mim_terms]}",
            "synthesize.sources.0: options of 'chain_sum': the generator got an unexpected keyword",
        ),
        (
            "{kind: jsonl, name: own, path: own.jsonl, columns: {promt: q}}",
            "synthesize.sources.0.columns: it maps 'promt', which is none of prompt, answer,",
        ),
        (
            "{kind: jsonl, name: ../x, path: own.jsonl}",
            "synthesize.sources.0.name: a source's name is a word, without slashes, got '../x';",
        ),
    ],
)
def test_a_source_that_cannot_be_read_or_solved(tmp_path, source, said):
    (tmp_path / "recipe.yaml").write_text(
        "flow: flows.post_training\nformat: 3\nrun: {threads: 1}\n"
        f"synthesize: {{sources: [{source}]}}\n"
    )
    (tmp_path / "own.jsonl").write_text("{}\n")
    (tmp_path / ".dvc").mkdir()
    done = CliRunner().invoke(cli, ["plan", str(tmp_path)])
    assert isinstance(done.exception, UserError)
    assert str(done.exception).startswith(said)
