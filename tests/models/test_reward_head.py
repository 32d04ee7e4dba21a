import pytest
import torch
from transformers import AutoModelForSequenceClassification

from posttrain.data.templates import encode_completions, encode_prompts
from posttrain.models.load import save_policy
from posttrain.models.reward_head import add_reward_head, load_reward_model, save_reward_model


@pytest.fixture
def reward_model(model, tokenizer, tmp_path):
    save_policy(model, tokenizer, tmp_path / "policy")
    return add_reward_head(tmp_path / "policy")


PROMPTS = ["3 + 4 =", "the sum of 12 and 30", "7"]
TEXTS = ["7", "12 + 30 = 42\n#### 42", "7"]


def test_a_fresh_head_gives_zero_so_that_the_first_loss_is_ln_2(reward_model):
    assert reward_model.score(PROMPTS, TEXTS) == [0.0, 0.0, 0.0]


def test_the_body_is_the_policys(reward_model, model):
    expected = model.base_model.state_dict()
    for name, value in reward_model.model.base_model.state_dict().items():
        assert torch.equal(value, expected[name]), name


def test_plain_transformers_gives_the_same_rewards_one_by_one(reward_model, tmp_path):
    torch.manual_seed(0)
    torch.nn.init.normal_(reward_model.model.score.weight)
    save_reward_model(reward_model, tmp_path / "reward")
    # Tiny batches, so that rows of different length meet in different orders.
    scores = load_reward_model(tmp_path / "reward").score(PROMPTS, TEXTS, batch_tokens=40)
    plain = AutoModelForSequenceClassification.from_pretrained(tmp_path / "reward")
    tokenizer = reward_model.tokenizer
    rows = [
        prompt + text
        for prompt, text in zip(
            encode_prompts(tokenizer, PROMPTS), encode_completions(tokenizer, TEXTS), strict=True
        )
    ]
    expected = [plain(input_ids=torch.tensor([row])).logits.item() for row in rows]
    assert len(set(expected)) == 3
    assert scores == pytest.approx(expected, abs=1e-5)
