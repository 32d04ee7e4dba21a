"""Weights that are read when they are in shards, in a group of one process."""

from types import SimpleNamespace

import pytest
import torch
import torch.distributed as dist
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, MixtralConfig, Qwen2Config, Qwen2ForCausalLM

from posttrain.learning.models.adapters import attach_adapter
from posttrain.learning.models.distributed.group import current_process_group
from posttrain.learning.models.distributed.shard import lend_whole, shard
from posttrain.learning.models.hold import hold_as
from posttrain.learning.models.load import load_weights, weights_digest
from posttrain.learning.models.logprobs import token_logprobs
from posttrain.learning.models.reward_head import start_reward_model
from posttrain.learning.models.unread import SHARED_BY, StoredWeight, copied, is_unread
from posttrain.learning.training.asking import ask, in_turns

IDS_BT = torch.arange(27).reshape(3, 9) + 3


def drawn(kind, config, folder, **options):
    """Save a model of random weights."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        kind(config).to(torch.bfloat16).save_pretrained(folder, **options)


@pytest.fixture(params=[True, False], ids=["tied", "untied"])
def path(tmp_path, request):
    """A policy of bfloat16 in several files."""
    config = Qwen2Config(
        vocab_size=40,
        hidden_size=16,
        intermediate_size=24,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        tie_word_embeddings=request.param,
    )
    drawn(Qwen2ForCausalLM, config, tmp_path / "policy", max_shard_size="4KB")
    assert len([*(tmp_path / "policy").glob("*.safetensors")]) > 1
    return tmp_path / "policy"


@pytest.fixture
def group(tmp_path):
    store = dist.FileStore(str(tmp_path / "store"), 1)
    dist.init_process_group("gloo", store=store, rank=0, world_size=1)
    yield current_process_group("cpu")
    dist.destroy_process_group()


def both(path, dtype):
    """The model read, and not read."""
    load = [
        load_weights(AutoModelForCausalLM, path, device="cpu", dtype=dtype, processes=number)
        for number in (1, 2)
    ]
    assert [is_unread(model) for model in load] == [False, True]
    return load


def logprobs(model):
    wanted_BT = torch.arange(9).expand(3, -1) >= 4
    return token_logprobs(model, IDS_BT, wanted_BT=wanted_BT).logprobs_BT


@pytest.mark.parametrize("dtype", [torch.float32, None])
def test_all_but_the_weights_is_there_and_these_have_their_digest(path, dtype):
    read, unread = both(path, dtype)
    told = [[(name, p.shape, p.dtype) for name, p in m.named_parameters()] for m in (read, unread)]
    assert told[0] == told[1]
    assert all(parameter.is_meta for parameter in unread.parameters())
    frequencies = dict(read.named_buffers())
    assert frequencies.keys() == dict(unread.named_buffers()).keys() != set()
    for name, found in unread.named_buffers():
        assert torch.equal(found, frequencies[name])
    assert read.generation_config.to_dict() == unread.generation_config.to_dict()
    assert weights_digest(copied(unread)) == weights_digest(unread) == weights_digest(read)


@pytest.mark.parametrize("weights", ["fp32", "bf16"])
def test_shards_hold_the_numbers_of_the_files_and_adapters_those_of_one_process(
    path, group, weights
):
    read, unread = both(path, torch.float32 if weights == "fp32" else None)
    for model in (read, unread):
        hold_as(model, weights)
    expected = logprobs(read)
    assert torch.allclose(ask(unread, logprobs), expected, atol=1e-5)
    adapters = [attach_adapter(model, rank=2, alpha=4, seed=5) for model in (read, unread)]
    assert adapters[0].base_digest == adapters[1].base_digest
    sharded = shard(unread, group)
    pairs = zip(read.named_parameters(), sharded.model.named_parameters(), strict=True)
    for (name, one), (other_name, other) in pairs:
        assert (name, one.dtype, one.requires_grad) == (
            other_name,
            other.dtype,
            other.requires_grad,
        )
        assert torch.equal(one, other.full_tensor()), name
    (-sharded(logprobs).sum()).backward()
    assert all((p.grad is not None) == p.requires_grad for p in sharded.model.parameters())
    lend_whole(unread, sharded)
    assert weights_digest(unread) == weights_digest(read)


def test_every_weight_of_two_processes_is_read_by_one_of_them(path, tmp_path, monkeypatch):
    """Rows that are asked for are counted: together all of the files, and none twice."""
    from posttrain.learning.models.distributed import shard as sharding
    from posttrain.learning.models.unread import StoredWeight

    _, unread = both(path, torch.float32)
    counted = {}
    given = StoredWeight.rows

    def rows(stored, begin, end):
        counted.setdefault(stored.name, set()).update(range(begin, end))
        asked.append(end - begin)
        return given(stored, begin, end)

    monkeypatch.setattr(StoredWeight, "rows", rows)
    shares = []
    for rank in (0, 1):
        asked = []
        fake = _FakeRank(rank, tmp_path)
        with fake as group:
            sharding.shard(copied(unread), group)
        shares.append(sum(asked))
    lengths = {}
    for file in path.glob("*.safetensors"):
        lengths |= {name: len(tensor) for name, tensor in load_file(file).items()}
    assert {name: len(found) for name, found in counted.items()} == lengths
    assert sum(shares) == sum(lengths.values())


class _FakeRank:
    """A process of two whose other one is not there: shards need none."""

    def __init__(self, rank, folder):
        self.rank = rank

    def __enter__(self):
        from torch.testing._internal.distributed.fake_pg import FakeStore

        dist.init_process_group("fake", store=FakeStore(), rank=self.rank, world_size=2)
        return current_process_group("cpu")

    def __exit__(self, *_):
        dist.destroy_process_group()


def test_a_reward_head_begins_as_in_one_process(path, group, tokens):
    tokens.save_pretrained(path)
    read, unread = (
        start_reward_model(path, parameterization="head", processes=number).model
        for number in (1, 2)
    )
    assert is_unread(unread)
    assert weights_digest(read) == weights_digest(unread)
    sharded = shard(unread, group)
    pairs = zip(read.named_parameters(), sharded.model.named_parameters(), strict=True)
    for (name, one), (other_name, other) in pairs:
        assert name == other_name
        assert torch.equal(one, other.full_tensor()), name


@pytest.fixture(scope="module")
def tokens():
    from posttrain.learning.models.tokenizer import train_tokenizer

    return train_tokenizer(["so"], vocab_size=280)


def test_what_transformers_puts_together_is_read_whole(tmp_path):
    """A file has experts one by one, and the model has all of a layer in one tensor."""
    from transformers import MixtralForCausalLM

    config = MixtralConfig(
        vocab_size=40,
        hidden_size=16,
        intermediate_size=24,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
        num_local_experts=2,
    )
    drawn(MixtralForCausalLM, config, tmp_path / "mixture")
    read, other = (
        load_weights(
            AutoModelForCausalLM,
            tmp_path / "mixture",
            device="cpu",
            dtype=torch.float32,
            processes=number,
        )
        for number in (1, 2)
    )
    assert not is_unread(other)
    assert weights_digest(read) == weights_digest(other)


@pytest.mark.parametrize("count", [1, 4, 5])
def test_processes_take_turns_and_make_as_many_passes(count):
    """Each is told what the other two computed; one without a part repeats the last for nothing."""

    def computed(rank, theirs):
        passes = []

        def double(part):
            passes.append(part)
            return torch.tensor(2 * part)

        group = SimpleNamespace(rank=rank, size=3, from_all=lambda mine: [*theirs, mine])
        found = in_turns(SimpleNamespace(**{SHARED_BY: group}), range(10, 10 + count), double)
        return passes, found

    everything = [{index: torch.tensor(20 + 2 * index) for index in range(count)}]
    passes = [computed(rank, everything)[0] for rank in range(3)]
    assert {len(each) for each in passes} == {-(-count // 3)}
    assert {part for each in passes for part in each} == {*range(10, 10 + count)}
    assert computed(2, everything)[1] == [20 + 2 * index for index in range(count)]


def test_weights_that_are_not_read_are_read_through_once_for_all_their_digests(path, monkeypatch):
    rows, read = StoredWeight.rows, []

    def noted(self, begin, end):
        read.append(self.name)
        return rows(self, begin, end)

    monkeypatch.setattr(StoredWeight, "rows", noted)
    whole, unread = both(path, torch.bfloat16)
    digests = [weights_digest(each) for each in (unread, unread, copied(unread))]
    once = len(unread.state_dict())
    assert len(read) == once
    assert set(digests) == {weights_digest(whole)}
    # Other numbers in the same place are read anew.
    name = "model.norm.weight"
    (file,) = (each for each in path.glob("*.safetensors") if name in load_file(each))
    save_file(load_file(file) | {name: torch.zeros(16)}, file, metadata={"format": "pt"})
    torch.nn.init.zeros_(whole.model.norm.weight)
    assert weights_digest(unread) == weights_digest(whole) != digests[0]
    assert len(read) == 2 * once
