"""A model in shards, in a group of one process."""

import pytest
import torch
import torch.distributed as dist
from transformers import LlamaConfig, LlamaForCausalLM

from posttrain.learning.models.distributed.gather import GatheredTensors
from posttrain.learning.models.distributed.group import current_process_group
from posttrain.learning.models.distributed.shard import lend_whole, shard, take_back
from posttrain.learning.models.fast_llama import is_fast_llama
from posttrain.learning.models.load import weights_digest
from posttrain.learning.models.logprobs import token_logprobs
from posttrain.learning.models.optim import NotFiniteError
from posttrain.learning.training.failed_batch import kept_for_replay, weights_beside
from posttrain.stage.config import refuse_processes
from posttrain.stage.errors import UserError
from tasks.rl.config import RlStageConfig


@pytest.fixture
def group(tmp_path):
    store = dist.FileStore(str(tmp_path / "store"), 1)
    dist.init_process_group("gloo", store=store, rank=0, world_size=1)
    yield current_process_group("cpu")
    dist.destroy_process_group()


@pytest.fixture
def model():
    config = LlamaConfig(
        vocab_size=40,
        hidden_size=16,
        intermediate_size=24,
        num_hidden_layers=2,
        num_attention_heads=2,
        tie_word_embeddings=True,
    )
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return LlamaForCausalLM(config)


def test_shards_go_through_their_own_layers_and_find_what_the_fast_pass_finds(group, model):
    """The fast pass calls modules beside the layers' own calls, where a shard is only a part."""
    ids_BT = torch.randint(3, 40, (3, 9), generator=torch.Generator().manual_seed(1))
    wanted_BT = torch.arange(9).expand(3, -1) >= 4

    def logprobs(policy):
        return token_logprobs(policy, ids_BT, wanted_BT=wanted_BT).logprobs_BT

    assert is_fast_llama(model)
    digest, expected = weights_digest(model), logprobs(model)
    sharded = shard(model, group)
    assert not is_fast_llama(sharded.model)
    assert torch.allclose(sharded(logprobs), expected, atol=1e-5)
    assert all(parameter.numel() == 0 for parameter in model.parameters())
    for _ in range(2):  # the first time they are taken over, then they are overwritten
        lend_whole(model, sharded)
        assert weights_digest(model) == digest
        with torch.no_grad():
            model.model.norm.weight.zero_()
    take_back(model)
    assert all(parameter.numel() == 0 for parameter in model.parameters())
    lend_whole(model, sharded)
    assert weights_digest(model) == digest
    assert is_fast_llama(model)


def test_a_batch_that_broke_the_loss_is_kept_without_the_weights(group, model, tmp_path):
    weights = GatheredTensors(shard(model, group).model, group)
    with (
        pytest.raises(NotFiniteError, match="the loss is nan.*the batch is kept in") as caught,
        kept_for_replay(tmp_path, weights, [], step=3, seed=0),
    ):
        raise NotFiniteError("step 3: the loss is nan")
    kept = tmp_path / "failed-step-000000003.safetensors"
    assert str(kept) in str(caught.value)
    assert kept.is_file()
    assert not weights_beside(kept).exists()


def test_what_works_on_whole_weights_is_refused():
    config = RlStageConfig.parse({"algorithm": {"advantage": {"kind": "learned"}}}, where="rl")
    refuse_processes(config, 1, where="rl")
    with pytest.raises(UserError) as caught:
        refuse_processes(config, 2, where="rl")
    assert str(caught.value) == (
        "rl: advantage learned works on whole weights, but several processes have a part each; do"
        " without it, or leave resources.processes out"
    )
