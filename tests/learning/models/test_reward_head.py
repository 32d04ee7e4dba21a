import copy
import json

import pytest
import torch
from transformers import (
    AutoModelForCausalLM,
    AutoModelForSequenceClassification,
    AutoTokenizer,
)

from posttrain.data.rows import TokenRow, TokenTable, encode_rows
from posttrain.learning.models import reward_head
from posttrain.learning.models.load import load_weights, save_policy
from posttrain.learning.models.reward_head import (
    load_reward_model,
    save_reward_model,
    start_reward_model,
)
from posttrain.learning.models.tokenizer import check_same_tokenizer, train_tokenizer
from posttrain.stage.errors import UserError
from tests.architectures import model_of

PROMPTS = ["3 + 4 =", "the sum of 12 and 30", "7"]
TEXTS = ["7", "12 + 30 = 42\n#### 42", "7"]


@pytest.fixture
def policy(model, tokenizer, tmp_path):
    save_policy(model, tokenizer, tmp_path / "policy")
    return tmp_path / "policy"


@pytest.fixture
def head(policy):
    return start_reward_model(policy, parameterization="head")


@pytest.fixture
def rows(tokenizer):
    return encode_rows(tokenizer, PROMPTS, TEXTS)


def test_a_fresh_head_gives_zero_so_that_the_first_loss_is_ln_2(head):
    assert head.score(PROMPTS, TEXTS) == [0.0, 0.0, 0.0]
    assert head.score([], []) == []


def test_the_body_is_the_policys(head, model):
    expected = model.base_model.state_dict()
    for name, value in head.model.base_model.state_dict().items():
        assert torch.equal(value, expected[name]), name


@pytest.mark.parametrize("as_stored", [True, False])
def test_the_weights_of_the_body_are_there_once(policy, monkeypatch, as_stored):
    read = []

    def load(*given, **options):
        read.append(load_weights(*given, **options))
        return read[0]

    monkeypatch.setattr(reward_head, "load_weights", load)
    made = start_reward_model(policy, parameterization="head", as_stored=as_stored).model
    before, after = (dict(each.base_model.named_parameters()) for each in (read[0], made))
    assert before.keys() == after.keys()
    assert all(after[name].data_ptr() == each.data_ptr() for name, each in before.items())
    assert not any(each.is_meta for each in made.state_dict().values())


def test_plain_transformers_gives_the_heads_rewards_one_by_one(head, rows, tmp_path):
    torch.manual_seed(0)
    torch.nn.init.normal_(head.model.score.weight)
    save_reward_model(head, tmp_path / "reward")
    # Tiny batches, so that rows of different length meet in different orders.
    scores = load_reward_model(tmp_path / "reward").score(PROMPTS, TEXTS, batch_tokens=40)
    plain = AutoModelForSequenceClassification.from_pretrained(tmp_path / "reward")
    expected = [plain(input_ids=torch.tensor([row.ids])).logits.item() for row in rows]
    assert len(set(expected)) == 3
    assert scores == pytest.approx(expected, abs=1e-5)


def test_a_head_pools_as_transformers_does_where_the_end_is_also_the_padding(head):
    torch.nn.init.normal_(head.model.score.weight)
    head.model.config.pad_token_id = 2
    ids = torch.tensor([[1, 5, 6, 2, 2], [1, 5, 6, 7, 2]])
    batch = TokenTable([TokenRow(tuple(row), 1) for row in ids.tolist()], pad=2).batch([0, 1])
    with torch.inference_mode():
        expected = head.model(input_ids=ids).logits[:, 0]
        assert torch.allclose(head.rewards(batch), expected, atol=1e-6)


def test_a_head_reads_one_token_however_rows_are_laid_out_where_the_policy_pads_with_its_end(
    model, tokenizer, tmp_path
):
    tokenizer = copy.deepcopy(tokenizer)
    tokenizer.pad_token = tokenizer.eos_token
    save_policy(model, tokenizer, tmp_path / "policy")
    head = start_reward_model(tmp_path / "policy", parameterization="head")
    torch.nn.init.normal_(head.model.score.weight)
    save_reward_model(head, tmp_path / "reward")
    rows = encode_rows(tokenizer, PROMPTS, TEXTS)
    plain = AutoModelForSequenceClassification.from_pretrained(tmp_path / "reward")
    # By hand: the head on the states of the row's own last token, its end.
    ends = [plain.model(torch.tensor([row.ids])).last_hidden_state[0, -1] for row in rows]
    expected = [plain.score(end).item() for end in ends]

    packed, padded = (
        TokenTable(rows, pad=tokenizer.pad_token_id, packed=each).batch([0, 1, 2])
        for each in (True, False)
    )
    loaded = load_reward_model(tmp_path / "reward")
    kept = AutoTokenizer.from_pretrained(tmp_path / "reward")
    both = kept.pad([{"input_ids": list(row.ids)} for row in rows], return_tensors="pt")
    with torch.inference_mode():
        for values in (head.rewards(packed), head.rewards(padded), plain(**both).logits[:, 0]):
            assert values.tolist() == pytest.approx(expected, abs=1e-5)
    assert loaded.score(PROMPTS, TEXTS) == pytest.approx(expected, abs=1e-5)
    # The policy's tokenizer still counts as the same one: it cuts text alike.
    check_same_tokenizer(tokenizer, loaded.tokenizer, where="here")


def test_the_likelihood_is_the_scaled_mean_over_the_completions_tokens(policy, rows, tmp_path):
    started = start_reward_model(policy, parameterization="likelihood", scale=10.0)
    save_reward_model(started, tmp_path / "reward")
    scores = load_reward_model(tmp_path / "reward").score(PROMPTS, TEXTS, batch_tokens=40)
    plain = AutoModelForCausalLM.from_pretrained(tmp_path / "reward")
    for row, score in zip(rows, scores, strict=True):
        logp = plain(input_ids=torch.tensor([row.ids])).logits[0].log_softmax(-1)
        taken = [logp[t - 1, row.ids[t]].item() for t in range(row.start, len(row.ids))]
        assert score == pytest.approx(10.0 * sum(taken) / len(taken), abs=1e-4)


def test_an_unknown_parameterization_is_refused(head, tmp_path):
    save_reward_model(head, tmp_path / "reward")
    (tmp_path / "reward" / "reward.json").write_text(json.dumps({"parameterisation": "haed"}))
    with pytest.raises(UserError, match="unknown parameterization 'haed'; did you mean 'head'"):
        load_reward_model(tmp_path / "reward")


def test_a_classifier_without_our_file_is_a_head_of_scale_one(head, tmp_path):
    save_reward_model(head, tmp_path / "reward")
    (tmp_path / "reward" / "reward.json").unlink()
    loaded = load_reward_model(tmp_path / "reward")
    assert (loaded.parameterization, loaded.scale) == ("head", 1.0)


def test_an_architecture_without_a_scalar_head_is_refused_and_its_likelihood_is_not(tmp_path):
    tokenizer = train_tokenizer(["2 + 3 = 5"], vocab_size=265)
    save_policy(model_of("granite"), tokenizer, tmp_path)
    with pytest.raises(UserError, match="'granite'; set reward.parameterization to likelihood"):
        start_reward_model(tmp_path, parameterization="head")
    assert start_reward_model(tmp_path, parameterization="likelihood").model is not None
