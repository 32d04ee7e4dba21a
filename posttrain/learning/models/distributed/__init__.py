"""Several processes that train one model: FSDP2 over a process group of torch.

`group.py` is the group as the learner sees it, `shard.py` splits a model's parameters over it,
`gather.py` puts whole tensors together and apart again, and `optim.py` steps on shards. Nothing
here is imported where a stage has one process.
"""
