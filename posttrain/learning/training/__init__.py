"""What every learner is made of, and the one supervised loop.

    trainable = prepare_for_training(model, config.learner, seed=seed)   # prepare.py
    with trainable.computing(): ...                                      # forward passes and loss
    optimizer.step(...); trainable.after_step()
    trainable.finish(); trainable.save(tokenizer, path)

`prepare.py` attaches LoRA adapters, sets the precision and keeps the moving average; `progress.py`
is what a checkpoint holds and who may take it up (`Progress`, `run_identity`); `stopping.py` is the
early-stop rule; `failed_batch.py` keeps the batch at which numbers stopped being finite.
`trainable.parts()` are the checkpoint's parts; an adapter's checkpoints hold the adapter alone.
"""
